//! Parameters: as written down, and checked.

use std::sync::Arc;

use hushtable_ring::{Modulus, Platform, Ring, ntt_primes};

use super::Error;
use crate::{Lattice, LatticeSpec};

/// A parameter set as written down; [`Parameters::new`] checks it.
#[derive(Clone, Debug, PartialEq)]
pub struct ParameterSpec {
    /// The set's name; one below 128 bits must end in `_paper` (or, with the feature `test-sets`,
    /// in `_test`).
    pub name: String,
    /// N.
    pub degree: usize,
    /// q_0, which the last level decrypts under, then one prime a level.
    pub moduli: Vec<u64>,
    /// The primes of P, for key switching; a digit of a key switch has as many limbs as there are.
    pub special_moduli: Vec<u64>,
    /// log2 of the scale of fresh ciphertexts.
    pub scale_log2: u32,
}

/// The bits of a set's primes, from which [`ParameterSpec::of_bits`] chooses them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ModulusBits {
    /// Of q_0.
    pub first: u32,
    /// Of each level's prime: log2 of the scale.
    pub level: u32,
    /// Of each prime of P.
    pub special: u32,
}

impl ParameterSpec {
    /// The set of degree `degree` with `levels` levels and `special` primes in P, the primes chosen by
    /// their bits.
    ///
    /// # Errors
    /// [`Error::Parameters`] where there are too few primes of some length.
    pub fn of_bits(
        name: &str,
        degree: usize,
        bits: ModulusBits,
        levels: usize,
        special: usize,
    ) -> Result<Self, Error> {
        let runs = [(bits.first, 1), (bits.level, levels)];
        Self::of_runs(name, degree, &runs, (bits.special, special), bits.level)
    }

    /// The set whose Q has, from q_0 up, `count` primes of `bits` bits for each (bits, count) of `runs`, and
    /// whose P has those of `special`; fresh ciphertexts are at 2^`scale_log2`.
    ///
    /// # Errors
    /// [`Error::Parameters`] where there are too few primes of some length.
    pub fn of_runs(
        name: &str,
        degree: usize,
        runs: &[(u32, usize)],
        special: (u32, usize),
        scale_log2: u32,
    ) -> Result<Self, Error> {
        let mut taken: Vec<u64> = Vec::new();
        let mut take = |bits: u32, count: usize| {
            let held = taken.iter().filter(|prime| 64 - prime.leading_zeros() == bits).count();
            let primes = ntt_primes(bits, degree, held + count);
            if primes.len() < held + count {
                let (found, name) = (primes.len(), name.to_owned());
                let why = format!(
                    "{} primes of {bits} bits at degree {degree}, there are {found}",
                    held + count
                );
                return Err(Error::Parameters { name, why });
            }
            taken.extend(&primes[held..]);
            Ok(primes[held..].to_vec())
        };
        let special_moduli = take(special.0, special.1)?;
        let mut moduli = Vec::new();
        for &(bits, count) in runs {
            moduli.extend(take(bits, count)?);
        }
        let name = name.to_owned();
        Ok(Self { name, degree, moduli, special_moduli, scale_log2 })
    }
}

/// A parameter set that was checked, with its rings; cheap to clone.
#[derive(Clone, Debug)]
pub struct Parameters(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    spec: ParameterSpec,
    lattice: Lattice,
    /// By level: the ring of q_0 to q_level.
    rings: Vec<Ring>,
}

impl Parameters {
    /// Checks `spec`, its security first of all.
    ///
    /// # Errors
    /// [`Error::Core`] for less than 128 bits under a name that does not say so and for moduli that
    /// are none; [`Error::Parameters`] where no prime is special, or the scale is no number of bits
    /// that q_0 holds.
    pub fn new(spec: ParameterSpec, platform: Platform) -> Result<Self, Error> {
        let refused = |why: String| Error::Parameters { name: spec.name.clone(), why };
        if spec.moduli.is_empty() || spec.special_moduli.is_empty() {
            return Err(refused("needs at least one prime in Q and one in P".into()));
        }
        let first = spec.moduli[0];
        if spec.scale_log2 == 0 || u64::from(spec.scale_log2) >= u64::from(first.ilog2()) {
            let most = first.ilog2().saturating_sub(1);
            let found = spec.scale_log2;
            return Err(refused(format!("a scale of 2^{found}, possible are 2^1 to 2^{most}")));
        }
        let lattice = Lattice::new(
            LatticeSpec {
                name: spec.name.clone(),
                degree: spec.degree,
                moduli: spec.moduli.clone(),
                special_moduli: spec.special_moduli.clone(),
            },
            platform,
        )?;
        let ring = lattice.ring();
        let rings = (1..=ring.limbs()).map(|limbs| ring.prefix(limbs));
        let rings = rings.collect::<Result<Vec<_>, _>>().map_err(crate::Error::from)?;
        Ok(Self(Arc::new(Inner { spec, lattice, rings })))
    }

    /// The set as written down.
    pub fn spec(&self) -> &ParameterSpec {
        &self.0.spec
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.0.spec.name
    }

    /// N.
    pub fn degree(&self) -> usize {
        self.0.spec.degree
    }

    /// Slots of a ciphertext: N / 2.
    pub fn slots(&self) -> usize {
        self.degree() / 2
    }

    /// The level of fresh ciphertexts: how often one can be rescaled.
    pub fn levels(&self) -> usize {
        self.0.rings.len() - 1
    }

    /// The scale of fresh ciphertexts.
    pub fn scale(&self) -> f64 {
        f64::from(self.0.spec.scale_log2).exp2()
    }

    /// The scale that stays about the same from `level` down: its prime to the nearest power of two, and
    /// that of fresh ciphertexts at level 0. In a set whose levels are all as long, it is
    /// [`scale`](Self::scale).
    ///
    /// # Panics
    /// If there are fewer levels.
    pub fn scale_at(&self, level: usize) -> f64 {
        match level {
            0 => self.scale(),
            _ => (self.modulus(level).value() as f64).log2().round().exp2(),
        }
    }

    /// What security was checked of.
    pub fn lattice(&self) -> &Lattice {
        &self.0.lattice
    }

    /// The ring of q_0 to q_`level`, in which ciphertexts of that level live.
    ///
    /// # Panics
    /// If there are fewer levels.
    pub fn ring(&self, level: usize) -> &Ring {
        &self.0.rings[level]
    }

    /// q_`level`: what rescaling from that level divides by.
    pub fn modulus(&self, level: usize) -> Modulus {
        self.0.lattice.ring().modulus(level)
    }

    /// k: primes of P, and limbs of a digit of key switching.
    pub fn special_limbs(&self) -> usize {
        self.0.lattice.special_limbs()
    }

    /// Digits that a key switch at `level` cuts a mask into.
    pub fn digits(&self, level: usize) -> usize {
        (level + 1).div_ceil(self.special_limbs())
    }
}
