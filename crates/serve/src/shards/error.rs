//! Whose shards there are, what they are called, and what is wrong with one or with a front.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use hushtable_pir::dpf::Side;

use crate::error::Own;
use crate::host::ReloadError;

/// Whose shards and fronts they are: no others may meet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there are no others")]
pub enum Owner {
    /// One of two that do not collude.
    Side(Side),
    /// One that is asked alone.
    Single,
}

impl Owner {
    /// What certificates and metrics call it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Side(side) => side.name(),
            Self::Single => "single",
        }
    }
}

impl From<Side> for Owner {
    fn from(side: Side) -> Self {
        Self::Side(side)
    }
}

impl FromStr for Owner {
    type Err = <Side as FromStr>::Err;

    fn from_str(name: &str) -> Result<Self, Self::Err> {
        match name {
            "single" => Ok(Self::Single),
            side => side.parse().map(Self::Side),
        }
    }
}

impl fmt::Display for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What is wrong with a shard or a front, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ShardError {
    /// A server that is to be both.
    #[error(
        "shard and shards_file are both set: a server is one shard (--shard) or a front of all of \
         them (--shards-file)"
    )]
    Both,
    /// A bundle that has no shards.
    #[error(
        "{}: a shard or a front serves one model's bundle and nothing beside it: make one with \
         `hushtable model build`, and its map with `hushtable shard plan`",
        path.display()
    )]
    NotAModel {
        /// The bundle.
        path: PathBuf,
    },
    /// Rows that were changed since the map was made.
    #[error(
        "{}: the map of shards was made with another patch of table {table:?}: make it again with \
         `hushtable shard plan`",
        path.display()
    )]
    Patch {
        /// The bundle.
        path: PathBuf,
        /// The table.
        table: String,
    },
    /// A file of shards that cannot be used.
    #[error("{}: {reason}", path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// A file of other shards than the map's.
    #[error(
        "{} names the servers of {found} shards, and the model's map has {expected}: give each \
         shard its [[shard]], in order",
        path.display()
    )]
    Count {
        /// The file.
        path: PathBuf,
        /// The map's shards.
        expected: usize,
        /// The file's.
        found: usize,
    },
    /// Shards without a server that holds the version.
    #[error(
        "no server is ready for {}: start them (`hushtable serve --shard`) with this version of \
         the model, or correct their addresses in shards.toml",
        shards.join("; ")
    )]
    Absent {
        /// Each with the reason.
        shards: Vec<String>,
    },
    /// Another side's shard.
    #[error(
        "{url} is a shard of the {found} server, and this is a front of the {expected} one: the two \
         sides' shards must never meet; correct shards.toml"
    )]
    Side {
        /// The server.
        url: String,
        /// Whose the front is.
        expected: Owner,
        /// Whose the shard is.
        found: Owner,
    },
    /// A shard without the number of all of them, or the other way round.
    #[error("a shard is told its number and how many there are: give both, --shard and --shards")]
    CountMissing,
    /// A shard that its split does not have.
    #[error(
        "there is no shard {number} of {count}: shards are numbered from 0 on, and are 1 to {count_max}"
    )]
    Number {
        /// The shard.
        number: usize,
        /// Of how many.
        count: usize,
        /// The most there may be.
        count_max: usize,
    },
    /// A shard on other machines' reach that any client could ask.
    #[error(
        "a shard that other machines reach asks fronts for certificates: give the authority that \
         signs them (--tls-client-ca), or say `insecure` if something else keeps others out"
    )]
    NoClientCa,
}

impl Own for ShardError {}

/// The DNS name that a shard's certificate must have: of its owner, so that no front takes another's.
pub fn shard_name(owner: impl Into<Owner>) -> String {
    format!("shard.{}.hushtable.internal", owner.into())
}

/// The DNS name that a front's certificate must have, as a client of its shards.
pub fn front_name(owner: impl Into<Owner>) -> String {
    format!("front.{}.hushtable.internal", owner.into())
}

impl crate::Error {
    /// What keeps a front from the next version: of shards that are not ready, that it is to be tried again.
    pub(crate) fn of_next(error: ShardError) -> Self {
        match error {
            ShardError::Absent { .. } | ShardError::Side { .. } => {
                ReloadError::NotYet { reason: error.to_string() }.into()
            }
            error => error.into(),
        }
    }
}
