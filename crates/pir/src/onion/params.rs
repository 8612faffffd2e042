//! The parameter sets that servers offer.

use std::sync::{Arc, OnceLock};

use hushtable_prg::Platform;
use hushtable_rlwe::bfv::{ParameterSpec, Parameters};

/// A named parameter set.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ParameterSet {
    /// N = 4096, log2 Q = 100, 16 bits a coefficient: 128 bits of security. The default.
    N4096128,
    /// The paper's N = 4096, log2 Q = 108.07, 32 bits a coefficient: just below 128 bits by the 2024
    /// table (Kim et al., "IVE", table I and section IV-G).
    IvePaper,
    /// N = 256 without security, for tests of protocols within one process. Only with the feature
    /// `test-sets`.
    #[cfg(feature = "test-sets")]
    N256Test,
}

impl ParameterSet {
    /// The sets that servers offer and messages name.
    pub const ALL: [Self; 2] = [Self::N4096128, Self::IvePaper];

    /// The set's name.
    pub fn name(self) -> &'static str {
        match self {
            Self::N4096128 => "n4096_128",
            Self::IvePaper => "ive_paper",
            #[cfg(feature = "test-sets")]
            Self::N256Test => "n256_test",
        }
    }

    /// The offered set of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.name() == name)
    }

    /// What keys, queries, geometries and prepared files name it by. Test sets have no id there.
    pub(crate) fn id(self) -> u8 {
        match self {
            Self::N4096128 => 1,
            Self::IvePaper => 2,
            // No set's id, so that nothing reads it as one.
            #[cfg(feature = "test-sets")]
            Self::N256Test => 0,
        }
    }

    pub(crate) fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|set| set.id() == id)
    }

    /// The checked parameters on this machine's best platform, made once.
    pub fn parameters(self) -> Arc<Parameters> {
        static MADE: [OnceLock<Arc<Parameters>>; 3] = [const { OnceLock::new() }; 3];
        let (cell, spec): (_, fn() -> ParameterSpec) = match self {
            Self::N4096128 => (&MADE[0], ParameterSpec::n4096_128),
            Self::IvePaper => (&MADE[1], ParameterSpec::ive_paper),
            #[cfg(feature = "test-sets")]
            Self::N256Test => (&MADE[2], ParameterSpec::n256_test),
        };
        let make = || self.parameters_on(spec(), Platform::detect());
        Arc::clone(cell.get_or_init(make))
    }

    fn parameters_on(self, spec: ParameterSpec, platform: Platform) -> Arc<Parameters> {
        Arc::new(
            Parameters::new(spec, platform).expect("the named sets are valid: tests hold them"),
        )
    }
}
