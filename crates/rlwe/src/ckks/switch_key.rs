//! What switches a ciphertext from one secret to another.

use hushtable_ring::kernel::{Rows, pack_rows, width_bytes};
use hushtable_ring::{Evaluations, Kernel, Modulus, Poly, Ring, Seed, Stream};

use super::Parameters;
use super::switch::Words;

/// Encryptions of each digit's gadget times one secret under another, modulo Q · P: row j has, of
/// secret s' and for the target s, mask a uniform and body e − a · s + P · s' · g_j, where g_j is 1
/// modulo the primes of digit j and 0 modulo Q's others.
///
/// Both are held, and sent, over P modulo Q's primes (a is uniform either way), which makes the gadget
/// s' itself and leaves a division by P nothing to multiply.
pub(super) struct SwitchKey {
    level: usize,
    digits: usize,
    /// By limb; within one packed together, by digit, mask before body or the body alone, and times 2^52,
    /// which sums of rows are divided by.
    rows: Vec<Vec<u8>>,
    /// Where masks are drawn from that are not held.
    drawn: Option<Masked>,
}

/// What a key's masks are drawn from: the seed's polynomials from number `first` on.
pub(super) struct Masked {
    pub seed: Seed,
    pub first: u64,
}

/// How keys hold the masks of their rows, which are uniform and drawn from a seed. Results are the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a key's masks are there or not")]
pub enum Masks {
    /// Beside the bodies: the fastest.
    #[default]
    Held,
    /// Not at all: half the memory. They are drawn at each use of a key.
    Drawn,
}

impl Masks {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Held, Self::Drawn];

    /// What it is called: `held` or `drawn`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Held => "held",
            Self::Drawn => "drawn",
        }
    }

    /// Sides of a row that are held.
    pub(super) fn sides(self) -> usize {
        match self {
            Self::Held => 2,
            Self::Drawn => 1,
        }
    }
}

impl SwitchKey {
    /// The highest level that it is for.
    pub fn level(&self) -> usize {
        self.level
    }

    /// Whether its masks are drawn at each use.
    pub fn draws(&self) -> bool {
        self.drawn.is_some()
    }

    /// A key over `ring`, Q's limbs at `level` and P's.
    pub fn zero(
        parameters: &Parameters,
        ring: &Ring,
        level: usize,
        (masks, masked): (Masks, Masked),
    ) -> Self {
        let digits = parameters.digits(level);
        let bytes = |modulus| masks.sides() * digits * ring.degree() * width_bytes(modulus);
        let rows = ring.moduli().map(|modulus| vec![0; bytes(modulus)]).collect();
        Self { level, digits, rows, drawn: (masks == Masks::Drawn).then_some(masked) }
    }

    /// Puts a row, its mask where it is held.
    pub fn put(
        &mut self,
        ring: &Ring,
        digit: usize,
        mask: Option<Poly<Evaluations>>,
        body: Poly<Evaluations>,
    ) {
        let weights: Vec<_> = ring.moduli().map(|modulus| modulus.reduce_u128(1 << 52)).collect();
        let mask = mask.filter(|_| self.drawn.is_none());
        let sides = 1 + usize::from(mask.is_some());
        for (side, mut poly) in mask.into_iter().chain([body]).enumerate() {
            ring.scale_assign(&mut poly, &weights);
            let at = (sides * self.digits, sides * digit + side);
            for (limb, rows) in self.rows.iter_mut().enumerate() {
                pack_rows(ring.modulus(limb), poly.limb(limb), at, rows);
            }
        }
    }

    /// The rows of the first `digits` digits at limb `limb` of those at `level`; masks that are not held
    /// are drawn to `room`.
    pub fn rows<'a>(
        &'a self,
        (kernel, modulus): (Kernel, Modulus),
        (level, limb): (usize, usize),
        digits: usize,
        room: &'a mut Words,
    ) -> Rows<'a> {
        let limb = if limb <= level { limb } else { limb + self.level - level };
        let rows = &self.rows[limb];
        let Some(Masked { seed, first }) = &self.drawn else { return Rows::Packed(rows) };
        let degree = rows.len() / (self.digits * width_bytes(modulus));
        let firsts = room.take(digits * degree);
        for (index, mask) in (*first..).zip(firsts.chunks_exact_mut(degree)) {
            let stream = Stream { seed, index, limb: limb as u32 };
            kernel.uniform(modulus, stream, modulus.reduce_u128(1 << 52), mask);
        }
        Rows::Apart { firsts, seconds: rows }
    }

    pub fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.rows.iter().map(Vec::capacity).sum::<usize>()
    }
}
