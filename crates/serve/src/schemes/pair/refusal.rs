//! Why a server of a pair refuses a request: `lookup.proto` lists the reasons.

use std::str::FromStr;

use hushtable_pir::Error as PirError;
use hushtable_pir::dpf::Side;
use hushtable_pir::model::PartError;
use hushtable_table::Version;

use crate::refusal::Listed;
use crate::refusal::Tables;
use crate::refusal::{Fact, Facts, KeyDefect};
use crate::refusals;

refusals! {
    /// Why a server of a pair refused a request.
    pub enum PairRefusal {
        /// The keys of an inference that do not parse, or of a kind that the server does not take.
        #[error("the bag's keys are not usable ({defect}): {message}")]
        BadBag = InvalidArgument "BAD_BAG" {
            /// What is wrong with them.
            defect: KeyDefect,
            /// The server's explanation.
            message: String,
        },
        /// A key that does not parse, or of a kind that the server does not take.
        #[error("key {key_index} is not usable ({defect}): {message}")]
        BadKey = InvalidArgument "BAD_KEY" {
            /// Which key of the request, from 0.
            key_index: usize,
            /// What is wrong with it.
            defect: KeyDefect,
            /// The server's explanation.
            message: String,
        },
        /// Keys made for another layout.
        #[error(
            "the server holds layout version {expected}, the keys are for {found}: fetch the \
             table info again"
        )]
        LayoutSkew = FailedPrecondition "LAYOUT_SKEW" {
            /// The server's version.
            expected: Version,
            /// The request's version.
            found: Version,
        },
        /// A request without keys.
        #[error("a request needs at least one key")]
        NoKeys = InvalidArgument "NO_KEYS",
        /// The table has no layout.
        #[error(
            "the server's table has no layout: look rows up by `max_ids`, or serve a bundle \
             that `hushtable tune --apply` has made"
        )]
        NoLayout = FailedPrecondition "NO_LAYOUT",
        /// More inferences than one request may hold.
        #[error("a request may hold {bags_max} inferences, this one holds {bags}: split it")]
        TooManyBags = InvalidArgument "TOO_MANY_BAGS" {
            /// Inferences received.
            bags: usize,
            /// Inferences allowed.
            bags_max: usize,
        },
        /// More keys than one request may hold.
        #[error("a request may hold {keys_max} keys, this one holds {keys}: split it")]
        TooManyKeys = InvalidArgument "TOO_MANY_KEYS" {
            /// Keys received.
            keys: usize,
            /// Keys allowed.
            keys_max: usize,
        },
        /// A key made for another number of rows.
        #[error(
            "key {key_index} is for a table of {found} rows, this one has {expected}: fetch \
             the table info again"
        )]
        WrongDomain = FailedPrecondition "WRONG_DOMAIN" {
            /// Which key of the request, from 0.
            key_index: usize,
            /// The table's rows.
            expected: u64,
            /// The key's rows.
            found: u64,
        },
        /// A left key at the right server, or the other way round.
        #[error(
            "key {key_index} is a {found} key, this is the {expected} server: swap the two \
             addresses"
        )]
        WrongSide = FailedPrecondition "WRONG_SIDE" {
            /// Which key of the request, from 0.
            key_index: usize,
            /// The server's side.
            expected: Side,
            /// The key's side.
            found: Side,
        },
    }
}

/// What its servers may refuse by, beside what any server may.
pub(super) const REFUSALS: Tables = &[Listed::of::<PairRefusal>()];

impl Fact for Side {
    const KIND: &'static str = "word";
    const WORDS: &'static [&'static str] = &["left", "right"];

    fn write(&self, name: &'static str, facts: &mut Facts) {
        facts.put(name, self.to_string());
    }

    fn read(name: &str, facts: &Facts) -> Option<Self> {
        Self::from_str(facts.text(name)?).ok()
    }

    fn samples() -> Vec<Self> {
        Self::BOTH.into()
    }
}

impl PairRefusal {
    /// The refusal of key `key_index` for what the scheme found in it.
    pub(crate) fn of_key(key_index: usize, error: &PirError) -> Self {
        match *error {
            PirError::Domain { expected, found } => {
                Self::WrongDomain { key_index, expected, found }
            }
            PirError::Side { expected, found } => Self::WrongSide { key_index, expected, found },
            _ => {
                let (defect, message) = (defect_of(error), error.to_string());
                Self::BadKey { key_index, defect, message }
            }
        }
    }

    /// The refusal of an inference's keys for what the scheme found in them.
    pub(crate) fn of_bag(error: &PirError) -> Self {
        match *error {
            PirError::Side { expected, found } => Self::WrongSide { key_index: 0, expected, found },
            _ => Self::BadBag { defect: defect_of(error), message: error.to_string() },
        }
    }

    /// The refusal of a whole inference's parts; `feature` names a feature by its number.
    pub(crate) fn of_part(error: &PartError, feature: impl Fn(usize) -> String) -> Self {
        let (defect, message) = match error {
            PartError::Parts { .. } => (KeyDefect::Length, error.to_string()),
            PartError::Length { feature: at, keys, bytes } => {
                let name = feature(*at);
                let message = format!(
                    "feature {name:?} has {bytes} bytes, which are not {keys} keys of one length: \
                     its max_ids is {keys}"
                );
                (KeyDefect::Length, message)
            }
            PartError::Key { source: PirError::Side { expected, found }, .. } => {
                return Self::WrongSide { key_index: 0, expected: *expected, found: *found };
            }
            PartError::Key { feature: at, source } => {
                (defect_of(source), format!("feature {:?}: {source}", feature(*at)))
            }
            PartError::Group { feature: at, group } => {
                let (name, group) = (feature(*at), group.name());
                (KeyDefect::Group, format!("feature {name:?}: this server takes no {group} keys"))
            }
            _ => (KeyDefect::Other, error.to_string()),
        };
        Self::BadBag { defect, message }
    }
}

fn defect_of(error: &PirError) -> KeyDefect {
    match error {
        PirError::KeyBytes { .. } | PirError::KeyHeader { .. } | PirError::RequestBytes { .. } => {
            KeyDefect::Length
        }
        PirError::KeyFormat { .. } => KeyDefect::Format,
        PirError::KeyPadding => KeyDefect::Padding,
        PirError::UnknownGroup { .. } => KeyDefect::Group,
        PirError::UnknownPrg { .. } => KeyDefect::Prg,
        _ => KeyDefect::Other,
    }
}
