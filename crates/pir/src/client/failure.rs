//! What ends a client's operation.

use std::time::Duration;

use hushtable_prg::PrgKind;
use hushtable_table::Version;
use hushtable_table::layout::LayoutError;
use hushtable_table::model::ModelError;

use super::{Place, ReplyDefect};
use crate::dpf::Side;

/// Why a client refuses. Whoever drives it knows the servers' addresses and can say more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A server that took too long.
    #[error("the {place} server did not answer within {} ms", after.as_millis())]
    Timeout {
        /// The server.
        place: Place,
        /// How long it was waited for.
        after: Duration,
    },
    /// A reply that makes no sense.
    #[error("the {place} server sent a reply that does not fit: {defect}")]
    Reply {
        /// The server.
        place: Place,
        /// What does not fit.
        defect: ReplyDefect,
    },
    /// The two addresses are the wrong way round.
    #[error("the server addressed as left says that it is right, the other that it is left")]
    SidesSwapped,
    /// Both servers are of one side.
    #[error("both servers say that they are {side}")]
    SameSide {
        /// What both say.
        side: Side,
    },
    /// The servers hold different tables.
    #[error("left holds table version {}, right {}", versions[0], versions[1])]
    TablesDiffer {
        /// Left's, right's.
        versions: [Version; 2],
    },
    /// The servers announce one version of a table, and other facts of it that differ.
    #[error("the servers announce different {field} for one version")]
    AnnouncementsDiffer {
        /// The field.
        field: &'static str,
    },
    /// The servers' tables have different layouts, or only one has any.
    #[error("the servers have different layouts")]
    LayoutsDiffer {
        /// Left's, right's.
        versions: Box<[Option<Version>; 2]>,
    },
    /// The servers' table has no layout.
    #[error("the table has no layout")]
    NoLayout,
    /// A layout larger than this client fetches.
    #[error("the {place} server's layout has {bytes} bytes, over {bytes_max}")]
    LayoutBytes {
        /// The server.
        place: Place,
        /// The layout's bytes.
        bytes: u64,
        /// The client's bound.
        bytes_max: u64,
    },
    /// The client's generator is not one that a server accepts.
    #[error("the {place} server accepts keys of {accepted:?}, not {prg}")]
    Prg {
        /// The server.
        place: Place,
        /// The client's generator.
        prg: PrgKind,
        /// The server's.
        accepted: Vec<PrgKind>,
    },
    /// More ids a lookup than the servers take, or none.
    #[error("max_ids is {max_ids}, but 1 to {keys_max} are taken a lookup")]
    MaxIds {
        /// The caller's bound.
        max_ids: usize,
        /// The servers' bound.
        keys_max: usize,
    },
    /// Another version than the one that the client was told to ask for.
    #[error(
        "this client asks for version {expected} alone, but there is {}: nothing was fetched. \
         Serve that version, or ask for the one that is there",
        or_others(found)
    )]
    VersionMismatch {
        /// The version asked for.
        expected: Version,
        /// What the server holds, where it said so.
        found: Option<Version>,
    },
    /// No model of the name asked for, or no name where there is not exactly one.
    #[error("the {place} server does not serve model {model:?}; it serves {models:?}")]
    ModelUnserved {
        /// The server.
        place: Place,
        /// The name asked for.
        model: Option<String>,
        /// The names of those that the server holds.
        models: Vec<String>,
    },
    /// The servers hold different versions of a model.
    #[error("left holds version {} of model {model}, right {}", versions[0], versions[1])]
    ModelsDiffer {
        /// The model.
        model: String,
        /// Left's, right's.
        versions: [Version; 2],
    },
    /// A feature that the model does not have.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A feature that one inference is asked for twice.
    #[error("feature {feature:?} is asked for twice: ask for all its ids at once")]
    FeatureTwice {
        /// The feature.
        feature: String,
    },
    /// More ids of a feature than the model is made for.
    #[error(
        "{ids} ids of feature {feature:?}, which the model bundle pads to max_ids = {max_ids}: ask \
         for fewer at once, or build the model with a larger max_ids for it"
    )]
    FeatureIds {
        /// The feature.
        feature: String,
        /// Ids asked for.
        ids: usize,
        /// What the model bundle pads them to.
        max_ids: usize,
    },
    /// An id of a feature that is not a row of its table.
    #[error(
        "id {id} of feature {feature:?} is out of range: its table has {rows} rows, ids run from 0 \
         to {last}",
        last = rows - 1
    )]
    FeatureIdRange {
        /// The feature.
        feature: String,
        /// The id.
        id: u64,
        /// Rows of its table.
        rows: u64,
    },
    /// The pair scheme's own errors: ids, keys, answers.
    #[error(transparent)]
    Pir(#[from] crate::Error),
    /// The onion scheme's own errors.
    #[error(transparent)]
    Onion(#[from] crate::onion::Error),
    /// A bag that a layout cannot answer.
    #[error(transparent)]
    Bag(#[from] LayoutError),
}

impl Failure {
    /// Whether servers of another route may do where those of one did not fit each other, or what is asked for.
    pub(super) fn is_misfit(&self) -> bool {
        matches!(
            self,
            Self::TablesDiffer { .. }
                | Self::ModelsDiffer { .. }
                | Self::ModelUnserved { .. }
                | Self::VersionMismatch { .. }
        )
    }
}

fn or_others(found: &Option<Version>) -> String {
    found.map_or_else(|| "none such".to_owned(), |version| format!("version {version}"))
}
