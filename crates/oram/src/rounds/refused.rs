//! Why a round refuses a call, and how it ends.

use std::fmt;

use crate::wire;

/// Why a call of a user or of the operator is refused. The round is as it was.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Refused {
    /// A round that was never opened here, or is long over.
    #[error("there is no round {round}: ask the operator for the open one")]
    NoRound {
        /// The number given.
        round: u64,
    },
    /// A second round beside an open one.
    #[error("round {round} is open: commit or abandon it first")]
    RoundOpen {
        /// The open round.
        round: u64,
    },
    /// A round that has ended.
    #[error("round {round} is over: {outcome}")]
    Over {
        /// The round.
        round: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// Rows or an upload before the round has begun.
    #[error("round {round} has not begun: fetch the rows first")]
    NotBegun {
        /// The round.
        round: u64,
    },
    /// Too few users to begin with.
    #[error("{users} users have come, but the round begins with {users_min} or more")]
    TooFewUsers {
        /// Users that have come.
        users: usize,
        /// Users without which it does not begin.
        users_min: usize,
    },
    /// More users than the controller was made for.
    #[error(
        "a round of {users} users: this controller was created for 1 to {users_max}; declare fewer, \
         or make the controller for more (users_max)"
    )]
    TooManyUsers {
        /// Users asked for.
        users: usize,
        /// Users there is room for.
        users_max: usize,
    },
    /// A number that no round can have.
    #[error("{name} is {value}, but must be {min} to {max}")]
    Setting {
        /// Which number.
        name: &'static str,
        /// Its value.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// Whether an earlier round was committed is not known yet.
    #[error(
        "whether round {round} was committed is not known yet: the memory has to be opened again before \
         there is another"
    )]
    Unsettled {
        /// The earlier round.
        round: u64,
    },
    /// Another round would cost more privacy than is left.
    #[error("{}", .0.message)]
    BudgetSpent(BudgetSpent),
    /// A user's message that is not taken.
    #[error("{source}")]
    Message {
        /// `request`, `rows` or `upload`.
        what: &'static str,
        /// What is wrong with it.
        source: wire::Error,
    },
}

impl Refused {
    pub(super) fn of(what: &'static str) -> impl FnOnce(wire::Error) -> Self {
        move |source| Self::Message { what, source }
    }
}

/// That rounds have cost all that they may.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "memories fill it in")]
pub struct BudgetSpent {
    /// Rounds that began, whatever became of them.
    pub rounds: u64,
    /// What they cost, and what they may.
    pub message: String,
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Outcome {
    /// The rows are updated.
    Committed,
    /// The operator gave it up.
    Abandoned,
    /// Fewer users than it begins with came in time.
    Deserted,
    /// The memory failed, and the table is as it was before the round; its log says how.
    Failed,
    /// The operator did not finish it in time, and the table is as it was before it.
    Expired,
    /// Whether the table is updated is not known yet: it is once the memory has been opened again.
    Unknown,
}

/// What a round waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Awaited {
    /// Users' requests.
    Requests,
    /// Users' uploads.
    Uploads,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 6] = [
        Self::Committed,
        Self::Abandoned,
        Self::Deserted,
        Self::Failed,
        Self::Expired,
        Self::Unknown,
    ];

    /// As text: `committed`, `abandoned`, `deserted`, `failed`, `expired` or `unknown`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Abandoned => "abandoned",
            Self::Deserted => "deserted",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Unknown => "unknown",
        }
    }
}

impl Awaited {
    /// All of them.
    pub const ALL: [Self; 2] = [Self::Requests, Self::Uploads];

    /// As text: `requests` or `uploads`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Requests => "requests",
            Self::Uploads => "uploads",
        }
    }
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}
