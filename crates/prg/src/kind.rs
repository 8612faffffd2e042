//! The names and wire ids of the generators.

use std::fmt;
use std::str::FromStr;

/// Which pseudorandom generator expands the seeds.
///
/// The discriminants are the ids on the wire. They are stable for ever: a number is never reused
/// for another construction, nor a construction changed under its number. What each one computes,
/// to the bit, is in the [crate documentation](crate#the-eight-generators).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
#[non_exhaustive]
pub enum PrgKind {
    /// AES-128 under one fixed public key, as a correlation-robust hash. The default choice on a
    /// CPU with AES instructions.
    Aes128 = 1,
    /// ChaCha with 20 rounds.
    ChaCha20 = 2,
    /// ChaCha with 12 rounds.
    ChaCha12 = 3,
    /// Salsa20 with its full 20 rounds.
    Salsa20 = 4,
    /// Salsa20 with 12 rounds (Salsa20/12, the eSTREAM portfolio's choice).
    Salsa12 = 5,
    /// SHA-256 of the seed and a counter.
    Sha256 = 6,
    /// SipHash-2-4 keyed with the seed, on counters.
    SipHash24 = 7,
    /// HighwayHash-256 keyed with the seed, on counters.
    HighwayHash = 8,
}

impl PrgKind {
    /// Every generator, in the order of the wire ids.
    pub const ALL: [Self; 8] = [
        Self::Aes128,
        Self::ChaCha20,
        Self::ChaCha12,
        Self::Salsa20,
        Self::Salsa12,
        Self::Sha256,
        Self::SipHash24,
        Self::HighwayHash,
    ];

    /// The generator with wire id `id`.
    ///
    /// # Errors
    /// [`UnknownPrg::Id`] if no generator has that id.
    pub fn from_id(id: u8) -> Result<Self, UnknownPrg> {
        Self::ALL.into_iter().find(|kind| kind.id() == id).ok_or(UnknownPrg::Id { id })
    }

    /// The wire id.
    pub fn id(self) -> u8 {
        self as u8
    }

    /// The name that the command line, the benchmarks and the vectors use.
    pub fn name(self) -> &'static str {
        match self {
            Self::Aes128 => "aes128",
            Self::ChaCha20 => "chacha20",
            Self::ChaCha12 => "chacha12",
            Self::Salsa20 => "salsa20",
            Self::Salsa12 => "salsa12",
            Self::Sha256 => "sha256",
            Self::SipHash24 => "siphash24",
            Self::HighwayHash => "highwayhash",
        }
    }
}

impl fmt::Display for PrgKind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for PrgKind {
    type Err = UnknownPrg;

    /// Reads [`PrgKind::name`], in either case.
    fn from_str(name: &str) -> Result<Self, UnknownPrg> {
        Self::ALL
            .into_iter()
            .find(|kind| kind.name().eq_ignore_ascii_case(name))
            .ok_or_else(|| UnknownPrg::Name { name: name.chars().take(NAME_CHARS_MAX).collect() })
    }
}

/// An error carries at most this much of an unknown name: the text may come from outside.
const NAME_CHARS_MAX: usize = 32;

/// A wire id or a name that no generator has.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownPrg {
    /// The id is not one of the wire ids.
    #[error(
        "no pseudorandom generator has the id {id}; the ids are {}; \
         if the key is newer than this program, upgrade the program",
        KnownIds
    )]
    Id {
        /// The id as read.
        id: u8,
    },
    /// The name is not one of the names.
    #[error("no pseudorandom generator is called {name:?}; choose one of {}", KnownNames)]
    Name {
        /// The name as given, cut after 32 characters.
        name: String,
    },
}

struct KnownIds;

impl fmt::Display for KnownIds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, |kind, f| write!(f, "{} ({kind})", kind.id()))
    }
}

struct KnownNames;

impl fmt::Display for KnownNames {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        list(f, |kind, f| f.write_str(kind.name()))
    }
}

fn list(
    f: &mut fmt::Formatter<'_>,
    item: impl Fn(PrgKind, &mut fmt::Formatter<'_>) -> fmt::Result,
) -> fmt::Result {
    for (index, kind) in PrgKind::ALL.into_iter().enumerate() {
        if index > 0 {
            f.write_str(", ")?;
        }
        item(kind, f)?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_round_trip() {
        for (index, kind) in PrgKind::ALL.into_iter().enumerate() {
            assert_eq!(usize::from(kind.id()), index + 1);
            assert_eq!(PrgKind::from_id(kind.id()), Ok(kind));
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(kind.name().to_uppercase().parse(), Ok(kind));
        }
    }

    #[test]
    fn every_other_id_is_refused_with_the_list() {
        for id in (0..=u8::MAX).filter(|id| !(1..=8).contains(id)) {
            let error = PrgKind::from_id(id).unwrap_err();
            assert_eq!(error, UnknownPrg::Id { id });
            let text = error.to_string();
            assert!(text.contains(&format!("the id {id};")), "{text}");
            assert!(text.contains("8 (highwayhash)"), "{text}");
        }
    }

    #[test]
    fn an_unknown_name_is_cut_and_answered_with_the_names() {
        let error = "é".repeat(1000).parse::<PrgKind>().unwrap_err();
        assert_eq!(error, UnknownPrg::Name { name: "é".repeat(32) });
        assert!(error.to_string().contains("aes128, chacha20"), "{error}");
    }
}
