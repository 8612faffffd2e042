//! The lattice that every scheme stands on: a degree, moduli, and how hard it is to break.

use hushtable_ring::{Platform, Ring};

use crate::Error;

/// A lattice as written down; [`Lattice::new`] checks it.
///
/// The secret is uniformly ternary and errors have standard deviation 3.2. What is published under
/// another secret is checked by [`Lattice::check`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LatticeSpec {
    /// The set's name. A set below 128 bits must say so by ending in `_paper`; with the feature
    /// `test-sets`, in `_paper` or `_test`.
    pub name: String,
    /// N.
    pub degree: usize,
    /// The primes of Q, each 1 modulo 2N: what ciphertexts live modulo.
    pub moduli: Vec<u64>,
    /// The primes of P, each 1 modulo 2N, which only evaluation keys are modulo beside Q's; none
    /// where a scheme's keys do without.
    pub special_moduli: Vec<u64>,
}

/// A lattice that was checked, with its rings.
///
/// Cheap to clone: the roots are shared.
#[derive(Clone, Debug)]
pub struct Lattice {
    name: String,
    ring: Ring,
    key_ring: Ring,
}

impl Lattice {
    /// Checks `spec`: its security, over every modulus that something is published under.
    ///
    /// # Errors
    /// [`Error::Security`] for less than 128 bits under a name that does not say so;
    /// [`Error::Ring`].
    pub fn new(spec: LatticeSpec, platform: Platform) -> Result<Self, Error> {
        let LatticeSpec { name, degree, moduli, special_moduli } = spec;
        let published = [moduli.as_slice(), &special_moduli].concat();
        let key_ring = Ring::new(degree, &published, platform)?;
        let ring = key_ring.prefix(moduli.len())?;
        let lattice = Self { name, ring, key_ring };
        lattice.check(SecretKind::Ternary, lattice.key_ring.modulus_log2())?;
        Ok(lattice)
    }

    /// Holds the modulus of something that is published under a secret of `kind` to that secret's limit.
    ///
    /// # Errors
    /// [`Error::Security`] above it, under a name that does not say so.
    pub fn check(&self, kind: SecretKind, modulus_log2: f64) -> Result<(), Error> {
        let (name, degree) = (&self.name, self.degree());
        let modulus_log2_max = kind.modulus_log2_max(degree);
        let is_marked = WEAK_ENDINGS.iter().any(|ending| name.ends_with(ending));
        if modulus_log2 > modulus_log2_max && !is_marked {
            return Err(Error::Security {
                name: name.clone(),
                secret: kind.name(),
                table: kind.table(),
                degree,
                modulus_log2,
                modulus_log2_max,
            });
        }
        Ok(())
    }

    /// The set's name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// N.
    pub fn degree(&self) -> usize {
        self.ring.degree()
    }

    /// The ring modulo Q.
    pub fn ring(&self) -> &Ring {
        &self.ring
    }

    /// The ring modulo Q · P: Q's limbs, then P's.
    pub fn key_ring(&self) -> &Ring {
        &self.key_ring
    }

    /// Limbs of P.
    pub fn special_limbs(&self) -> usize {
        self.key_ring.limbs() - self.ring.limbs()
    }
}

/// The ending of every set's name whose security is below 128 bits.
const WEAK_ENDINGS: &[&str] =
    if cfg!(feature = "test-sets") { &["_paper", "_test"] } else { &["_paper"] };

/// How a secret is drawn, which its limit depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SecretKind {
    /// Coefficients of −1, 0 and 1, each with chance one third.
    Ternary,
    /// 32 coefficients of −1 or 1, the others 0: for small moduli only.
    Weight32,
}

impl SecretKind {
    /// Largest log2 of a modulus that something is published under with such a secret, at degree
    /// `degree`, for 128 bits against classical attacks; 0 where the table has no entry.
    ///
    /// Of weight 32: poulpy's presets, after ePrint 2026/279. `bench/core_svp.py` estimates what keys at
    /// these limits cost to break, and those in use.
    pub fn modulus_log2_max(self, degree: usize) -> f64 {
        match (self, degree) {
            (Self::Ternary, _) => modulus_log2_max(degree),
            (Self::Weight32, 32768) => 162.0,
            (Self::Weight32, 65536) => 345.0,
            (Self::Weight32, _) => 0.0,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Ternary => "a ternary secret",
            Self::Weight32 => "a secret of weight 32",
        }
    }

    /// What the limits are from.
    fn table(self) -> &'static str {
        match self {
            Self::Ternary => "Security Guidelines for Implementing Homomorphic Encryption, 2024",
            Self::Weight32 => "ePrint 2026/279, at N = 32768 and 65536 alone",
        }
    }
}

/// Largest log2 of a published modulus at degree `degree` for 128 bits against classical attacks
/// with a ternary secret; 0 where the table has no entry.
///
/// Bossuat et al., "Security Guidelines for Implementing Homomorphic Encryption", IACR CiC 1(4),
/// 2025 (ePrint 2024/463), table 5.2; for 2^16, the newer and lower figure of OpenFHE 1.5's table.
pub fn modulus_log2_max(degree: usize) -> f64 {
    match degree {
        1024 => 26.0,
        2048 => 53.0,
        4096 => 106.0,
        8192 => 214.0,
        16384 => 430.0,
        32768 => 868.0,
        65536 => 1747.0,
        _ => 0.0,
    }
}
