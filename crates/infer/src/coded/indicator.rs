//! An encrypted token to its one-hot form, by squarings.

use hushtable_rlwe::ckks::{Error, Evaluate};

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
    /// The indicator of the bases that its authors give squarings for: 4, 8, 16, 32 and 64.
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

    /// Levels that it takes.
    pub fn depth(self) -> usize {
        (1 + self.squarings + 2 * self.cleanings) as usize
    }

    /// The function itself, of a difference over p.
    pub fn value(self, difference: f64) -> f64 {
        let start = 1.0 - difference * difference;
        let sharp = start.powf(f64::from(self.squarings).exp2());
        (0..self.cleanings).fold(sharp, |x, _| x * x * (3.0 - 2.0 * x))
    }

    /// Of slots that hold differences over p.
    ///
    /// # Errors
    /// [`Error::Exhausted`] with fewer levels than [`depth`](Self::depth).
    pub fn apply<E: Evaluate>(
        self,
        evaluator: &mut E,
        difference: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error> {
        let mut x = evaluator.square(difference)?;
        evaluator.rescale(&mut x)?;
        // The power is even: the sign of 1 − x² does not matter.
        evaluator.add_constant(&mut x, -1.0)?;
        for _ in 0..self.squarings {
            x = evaluator.square(&x)?;
            evaluator.rescale(&mut x)?;
        }
        for _ in 0..self.cleanings {
            let mut square = evaluator.square(&x)?;
            evaluator.rescale(&mut square)?;
            // x²(3 − 2x) = −2 x²(x − 3/2), the integer at scale 1: it takes no level.
            evaluator.add_constant(&mut x, -1.5)?;
            let level = evaluator.level(&square);
            evaluator.drop_to(&mut x, level)?;
            x = evaluator.multiply(&square, &x)?;
            evaluator.rescale(&mut x)?;
            evaluator.multiply_constant(&mut x, -2.0, 1.0)?;
        }
        Ok(x)
    }
}
