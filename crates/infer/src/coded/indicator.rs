//! An encrypted token to its one-hot form, by squarings.

/// The encrypted indicator function of one base p (Kim et al., "Privacy-preserving embedding via
/// look-up table evaluation with fully homomorphic encryption", ICML 2024, section 3.3): about 1 where
/// a difference of tokens is 0, about 0 where it is another integer of −p..p.
///
/// (1 − (x / p)²)^(2^r) falls off so quickly in x that 1 is told from 0; x²(3 − 2x) then pulls what is
/// near to 0 and 1 nearer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Indicator {
    base: usize,
    squarings: u32,
    cleanings: u32,
}

impl Indicator {
    /// The bases that its authors give squarings for.
    pub const BASES: [usize; 5] = [4, 8, 16, 32, 64];

    /// The indicator of one of the [`BASES`](Self::BASES), as its authors have it.
    pub fn of_base(base: usize) -> Option<Self> {
        let (squarings, cleanings) = match base {
            4 => (6, 1),
            8 => (8, 1),
            16 => (10, 2),
            32 => (11, 2),
            64 => (13, 3),
            _ => return None,
        };
        Some(Self { base, squarings, cleanings })
    }

    /// p.
    pub fn base(self) -> usize {
        self.base
    }

    /// Squarings after the first, which makes 1 − (x / p)².
    pub(super) fn squarings(self) -> usize {
        self.squarings as usize
    }

    /// How often x²(3 − 2x) is taken.
    pub(super) fn cleanings(self) -> usize {
        self.cleanings as usize
    }

    /// Levels that it takes.
    pub fn depth(self) -> usize {
        1 + self.squarings() + 2 * self.cleanings()
    }

    /// The function itself, of a difference over p.
    pub fn value(self, difference: f64) -> f64 {
        let start = 1.0 - difference * difference;
        let sharp = start.powf(f64::from(self.squarings).exp2());
        (0..self.cleanings).fold(sharp, |x, _| x * x * (3.0 - 2.0 * x))
    }
}
