//! What operations cost at least, and the sets that they cost least with.

use super::{Error, ModulusBits, ParameterSpec, Parameters};
use crate::modulus_log2_max;
use hushtable_ring::kernel::width_bytes;

/// What an operation computes and reads: a floor under its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Transforms of one limb, in either direction.
    pub transforms: usize,
    /// Multiplications of 52 bits a coefficient outside of transforms: two for a product that is summed
    /// up, two for a reduction.
    pub products: usize,
    /// Bytes of keys and prepared plaintexts that are read, each once.
    pub bytes: usize,
}

impl Work {
    /// Multiplications of 52 bits in all, at `degree`: three for each butterfly and those outside.
    pub fn multiplications(self, degree: usize) -> usize {
        self.transforms * (degree / 2 * degree.ilog2() as usize) * 3 + self.products * degree
    }

    /// Both.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            transforms: self.transforms + other.transforms,
            products: self.products + other.products,
            bytes: self.bytes + other.bytes,
        }
    }

    /// `count` times as much.
    #[must_use]
    pub fn times(self, count: usize) -> Self {
        let Self { transforms, products, bytes } = self;
        Self { transforms: count * transforms, products: count * products, bytes: count * bytes }
    }

    /// Cutting a mask over `limbs` limbs into digits of `special`, and extending them.
    ///
    /// # Panics
    /// If `special` is 0.
    pub fn extend(limbs: usize, special: usize) -> Self {
        let digits = limbs.div_ceil(special);
        let extended = digits * (limbs + special) - limbs;
        Self { transforms: limbs + extended, products: extended * (2 * special + 2), bytes: 0 }
    }

    /// The sums of a key's rows, of which a number takes `width` bytes over all limbs.
    ///
    /// # Panics
    /// If `special` is 0.
    pub fn rows(limbs: usize, special: usize, degree: usize, width: usize) -> Self {
        let digits = limbs.div_ceil(special);
        let products = (limbs + special) * 2 * (2 * digits + 2);
        Self { transforms: 0, products, bytes: 2 * digits * degree * width }
    }

    /// The division of a polynomial by P and `rescaled` of Q's primes.
    ///
    /// # Panics
    /// If more are rescaled than there are limbs.
    pub fn divide(limbs: usize, special: usize, rescaled: usize) -> Self {
        let sources = special + rescaled;
        let kept = limbs - rescaled;
        Self { transforms: sources + kept, products: kept * (2 * sources + 2), bytes: 0 }
    }

    /// The product of two ciphertexts before it is relinearised: the mask's square takes a product and its
    /// reduction, the others three products.
    pub fn tensor(limbs: usize) -> Self {
        Self { transforms: 0, products: limbs * (4 + 6), bytes: 0 }
    }

    /// Bytes of a number at `level`, over Q's limbs and P's.
    pub fn widths(parameters: &Parameters, level: usize) -> usize {
        let special = parameters.levels() + 1..;
        let moduli = parameters.lattice().key_ring().moduli().enumerate();
        let has = |limb: &usize| *limb <= level || special.contains(limb);
        moduli.filter(|(limb, _)| has(limb)).map(|(_, modulus)| width_bytes(modulus)).sum()
    }

    /// Dividing a mask at `level` by P and cutting it into digits.
    pub(super) fn cut(parameters: &Parameters, level: usize) -> Self {
        let (limbs, special) = (level + 1, parameters.special_limbs());
        Self::extend(limbs, special).plus(Self::divide(limbs, special, 0))
    }

    /// Bytes of one side of a key for `level` in memory.
    pub(super) fn key_bytes(parameters: &Parameters, level: usize) -> usize {
        parameters.digits(level) * parameters.degree() * Self::widths(parameters, level)
    }

    /// A rotation at `level`.
    pub fn rotate(parameters: &Parameters, level: usize) -> Self {
        let (limbs, special) = (level + 1, parameters.special_limbs());
        let width = Self::widths(parameters, level);
        Self::extend(limbs, special)
            .plus(Self::rows(limbs, special, parameters.degree(), width))
            .plus(Self::divide(limbs, special, 0).times(2))
    }

    /// A product at `level`, relinearised and rescaled.
    pub fn multiply(parameters: &Parameters, level: usize) -> Self {
        let (limbs, special) = (level + 1, parameters.special_limbs());
        let width = Self::widths(parameters, level);
        Self::tensor(limbs)
            .plus(Self::extend(limbs, special))
            .plus(Self::rows(limbs, special, parameters.degree(), width))
            .plus(Self::divide(limbs, special, 1).times(2))
    }

    /// A rescaling from `level`.
    pub fn rescale(level: usize) -> Self {
        Self { transforms: 2 * (level + 1), products: 2 * level * 6, bytes: 0 }
    }

    /// A division of one polynomial at `level` by P.
    pub fn division(parameters: &Parameters, level: usize) -> Self {
        Self::divide(level + 1, parameters.special_limbs(), 0)
    }

    /// A linear map at `level` with `diagonals` diagonals, and as many baby and giant steps that rotate.
    pub fn transform(
        parameters: &Parameters,
        level: usize,
        diagonals: usize,
        (babies, giants): (usize, usize),
    ) -> Self {
        let (limbs, special) = (level + 1, parameters.special_limbs());
        let degree = parameters.degree();
        let width = Self::widths(parameters, level);
        let rows = Self::rows(limbs, special, degree, width);
        let extend = Self::extend(limbs, special);
        let divide = Self::divide(limbs, special, 0);
        let products = Self {
            transforms: 0,
            products: diagonals * (limbs + special) * 4,
            bytes: diagonals * degree * width,
        };
        let hoisted = if babies > 0 { extend } else { Self::default() };
        let giant = extend.plus(rows).plus(divide);
        hoisted
            .plus(rows.times(babies))
            .plus(products)
            .plus(giant.times(giants))
            .plus(divide.times(2))
    }
}

impl ParameterSpec {
    /// The set of 128 bits with `limbs` primes in Q whose key switches cost least: more primes in P make
    /// fewer digits, and leave less of the modulus to Q. There are two digits at least, as plaintexts of
    /// transforms are modulo P besides. Of a level's prime at most four bits are given up for speed; none
    /// has more than 46.
    ///
    /// # Errors
    /// [`Error::Parameters`] where the degree has no room for as many primes of at least 20 bits.
    pub fn of_limbs(name: &str, degree: usize, limbs: usize) -> Result<Self, Error> {
        let room = modulus_log2_max(degree) as usize;
        // q_0 and P's primes are four bits longer than the others: room for what is decrypted, and for
        // the noise of key switches to be divided by more than it is multiplied with.
        let level_bits = |special: usize| {
            let others = limbs + special;
            let left = room.saturating_sub(1 + 4 * (1 + special));
            (left / others.max(1)).min(LEVEL_BITS_MAX)
        };
        let most = level_bits(1);
        if limbs == 0 || most < LEVEL_BITS_MIN {
            let why =
                format!("degree {degree} has no room for {limbs} primes of 128 bits of security");
            return Err(Error::Parameters { name: name.to_owned(), why });
        }
        let cost = |special: usize| {
            let width = (limbs + special) * (level_bits(special) + 4).div_ceil(8);
            let work = Work::extend(limbs, special)
                .plus(Work::rows(limbs, special, degree, width))
                .plus(Work::divide(limbs, special, 0).times(2));
            // A cycle starts eight multiplications, or reads as many bytes.
            work.multiplications(degree) + work.bytes
        };
        let special = (1..=SPECIAL_MAX.min(limbs.div_ceil(2)))
            .filter(|&special| level_bits(special) + 4 >= most)
            .min_by_key(|&special| cost(special))
            .expect("one prime gives nothing up");
        let level = level_bits(special) as u32;
        let bits = ModulusBits { first: level + 4, level, special: level + 4 };
        Self::of_bits(name, degree, bits, limbs - 1, special)
    }
}

/// Longest primes of levels: four bits below the longest that are fast.
const LEVEL_BITS_MAX: usize = 46;

/// Shortest primes of levels.
const LEVEL_BITS_MIN: usize = 20;

/// Most primes of P that are tried.
const SPECIAL_MAX: usize = 12;
