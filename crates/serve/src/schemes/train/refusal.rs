//! Why a training server refuses a call: `train.proto` lists the reasons.

use std::fmt;
use std::time::Duration;

use hushtable_oram::wire;
use tonic::Code;

/// Why a training server refused a call.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum TrainRefusal {
    /// A sealed message that is not taken, whatever is wrong with it: the answer goes through the
    /// operator.
    #[error(
        "the {what} is refused: it was changed on its way, or made under other terms, for another \
         round or user, or by somebody who is not enrolled, or it holds what none may hold"
    )]
    BadMessage {
        /// `request` or `upload`.
        what: String,
    },
    /// A number of OpenRound that it cannot work with.
    #[error("{name} is {value}, but must be {min} to {max}")]
    BadSetting {
        /// Which number.
        name: String,
        /// Its value.
        value: u64,
        /// The least it may be.
        min: u64,
        /// The most it may be.
        max: u64,
    },
    /// An operator's call without the operator's token.
    #[error("this call is the operator's: give its token (operator_token)")]
    OperatorOnly,
    /// A round that was never opened here, or is long over.
    #[error("there is no round {round}: ask the operator for the open one")]
    NoRound {
        /// The number given.
        round: u64,
    },
    /// An enrolled user that has another place in the round.
    #[error("the enrolled user of this request has a place in this round: it has one")]
    AlreadySeated,
    /// Another request or upload of a user than the one taken.
    #[error("user {user} has made another {what} in this round: it may make one")]
    AlreadyDone {
        /// `request` or `upload`.
        what: String,
        /// The user.
        user: u32,
    },
    /// A second round beside an open one.
    #[error("round {round} is open: finish or abandon it first")]
    RoundOpen {
        /// The open round.
        round: u64,
    },
    /// A round that has ended.
    #[error("round {round} is over: {outcome}")]
    RoundOver {
        /// The round.
        round: u64,
        /// How it ended.
        outcome: Outcome,
    },
    /// Rows or an upload of a user whose request was not taken.
    #[error("user {user} has made no request in this round, or it was refused")]
    NotRequested {
        /// The user.
        user: u32,
    },
    /// A request after requests were closed.
    #[error("the round has begun without user {user}: wait for the next one")]
    RequestsClosed {
        /// The user.
        user: u32,
    },
    /// An upload before the round has begun.
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
    /// More users than the controller was made for, or than the round has.
    #[error(
        "{users} users are more than the {users_max} there is room for: declare more when the round \
         is opened, or make the controller for more (users_max)"
    )]
    TooManyUsers {
        /// Users asked for, or the number of this one and those before it.
        users: usize,
        /// Users there is room for.
        users_max: usize,
    },
    /// Another round would cost more privacy than is left.
    #[error("{message}")]
    BudgetSpent {
        /// Rounds that began, whatever became of them.
        rounds: u64,
        /// The server's explanation.
        message: String,
    },
    /// What was waited for has not come yet.
    #[error("round {round} still waits for {awaited}: ask again")]
    Pending {
        /// The round.
        round: u64,
        /// What it waits for.
        awaited: Awaited,
        /// When to ask again.
        retry_after: Duration,
    },
}

/// How a round ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Outcome {
    /// The rows are updated.
    Committed,
    /// The operator gave it up.
    Abandoned,
    /// Fewer users than it begins with came in time.
    Deserted,
    /// The memory failed; the server's log says how.
    Failed,
}

/// What a round waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Awaited {
    /// Users' requests.
    Requests,
    /// Users' uploads.
    Uploads,
}

/// A closed list of words, as they travel.
trait Word: Copy + 'static {
    const ALL: &'static [(Self, &'static str)];
}

impl Word for Outcome {
    const ALL: &'static [(Self, &'static str)] = &[
        (Self::Committed, "committed"),
        (Self::Abandoned, "abandoned"),
        (Self::Deserted, "deserted"),
        (Self::Failed, "failed"),
    ];
}

impl Word for Awaited {
    const ALL: &'static [(Self, &'static str)] =
        &[(Self::Requests, "requests"), (Self::Uploads, "uploads")];
}

fn word<W: Word + PartialEq>(of: W) -> &'static str {
    W::ALL.iter().find(|(word, _)| *word == of).map_or("other", |(_, name)| name)
}

fn read_word<W: Word>(name: &str) -> Option<W> {
    W::ALL.iter().find(|(_, known)| *known == name).map(|(word, _)| *word)
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(*self))
    }
}

impl fmt::Display for Awaited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(word(*self))
    }
}

/// A code, a reason, its facts.
pub(crate) type Parts = (Code, &'static str, Vec<(&'static str, String)>);

impl TrainRefusal {
    /// The refusal of a user's message for what was found in it.
    pub(crate) fn of_message(what: &str, error: &wire::Error) -> Self {
        use wire::{Error, OrderError};
        let what = what.to_owned();
        match error {
            Error::UserRange { user, users } => {
                Self::TooManyUsers { users: *user as usize + 1, users_max: *users }
            }
            Error::Order(
                OrderError::AlreadyRequested { user } | OrderError::AlreadyUploaded { user },
            ) => Self::AlreadyDone { what, user: *user },
            Error::Order(OrderError::AlreadySeated) => Self::AlreadySeated,
            Error::Order(OrderError::NotRequested { user }) => Self::NotRequested { user: *user },
            Error::Order(OrderError::Closed { user }) => Self::RequestsClosed { user: *user },
            _ => Self::BadMessage { what },
        }
    }

    /// When to ask again, where that makes sense.
    pub(crate) fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Pending { retry_after, .. } => Some(*retry_after),
            _ => None,
        }
    }

    /// What travels, but for the retry's delay.
    pub(crate) fn parts(&self) -> Parts {
        let round = |round: &u64| ("round", round.to_string());
        let user = |user: &u32| ("user", user.to_string());
        match self {
            Self::BadMessage { what } => {
                (Code::InvalidArgument, "BAD_MESSAGE", vec![("what", what.clone())])
            }
            Self::AlreadySeated => (Code::AlreadyExists, "ALREADY_SEATED", vec![]),
            Self::BadSetting { name, value, min, max } => (
                Code::InvalidArgument,
                "BAD_SETTING",
                vec![
                    ("name", name.clone()),
                    ("value", value.to_string()),
                    ("min", min.to_string()),
                    ("max", max.to_string()),
                ],
            ),
            Self::OperatorOnly => (Code::Unauthenticated, "OPERATOR_ONLY", vec![]),
            Self::NoRound { round: number } => (Code::NotFound, "NO_ROUND", vec![round(number)]),
            Self::AlreadyDone { what, user: number } => {
                (Code::AlreadyExists, "ALREADY_DONE", vec![("what", what.clone()), user(number)])
            }
            Self::RoundOpen { round: number } => {
                (Code::FailedPrecondition, "ROUND_OPEN", vec![round(number)])
            }
            Self::RoundOver { round: number, outcome } => (
                Code::FailedPrecondition,
                "ROUND_OVER",
                vec![round(number), ("outcome", outcome.to_string())],
            ),
            Self::NotRequested { user: number } => {
                (Code::FailedPrecondition, "NOT_REQUESTED", vec![user(number)])
            }
            Self::RequestsClosed { user: number } => {
                (Code::FailedPrecondition, "REQUESTS_CLOSED", vec![user(number)])
            }
            Self::NotBegun { round: number } => {
                (Code::FailedPrecondition, "NOT_BEGUN", vec![round(number)])
            }
            Self::TooFewUsers { users, users_min } => (
                Code::FailedPrecondition,
                "TOO_FEW_USERS",
                vec![("users", users.to_string()), ("users_min", users_min.to_string())],
            ),
            Self::TooManyUsers { users, users_max } => (
                Code::ResourceExhausted,
                "TOO_MANY_USERS",
                vec![("users", users.to_string()), ("users_max", users_max.to_string())],
            ),
            Self::BudgetSpent { rounds, message } => (
                Code::ResourceExhausted,
                "BUDGET_SPENT",
                vec![("rounds", rounds.to_string()), ("message", message.clone())],
            ),
            Self::Pending { round: number, awaited, .. } => (
                Code::FailedPrecondition,
                "PENDING",
                vec![round(number), ("awaited", awaited.to_string())],
            ),
        }
    }

    /// Reads what [`parts`](Self::parts) made; `fact` looks one up, cut to a bearable length.
    pub(crate) fn read(
        reason: &str,
        fact: impl Fn(&str) -> Option<String>,
        retry_after: Option<Duration>,
    ) -> Option<Self> {
        let number = |name: &str| fact(name)?.parse::<u64>().ok();
        let count = |name: &str| fact(name)?.parse::<usize>().ok();
        let user = || fact("user")?.parse::<u32>().ok();
        Some(match reason {
            "BAD_MESSAGE" => Self::BadMessage { what: fact("what")? },
            "ALREADY_SEATED" => Self::AlreadySeated,
            "BAD_SETTING" => Self::BadSetting {
                name: fact("name")?,
                value: number("value")?,
                min: number("min")?,
                max: number("max")?,
            },
            "OPERATOR_ONLY" => Self::OperatorOnly,
            "NO_ROUND" => Self::NoRound { round: number("round")? },
            "ALREADY_DONE" => Self::AlreadyDone { what: fact("what")?, user: user()? },
            "ROUND_OPEN" => Self::RoundOpen { round: number("round")? },
            "ROUND_OVER" => {
                Self::RoundOver { round: number("round")?, outcome: read_word(&fact("outcome")?)? }
            }
            "NOT_REQUESTED" => Self::NotRequested { user: user()? },
            "REQUESTS_CLOSED" => Self::RequestsClosed { user: user()? },
            "NOT_BEGUN" => Self::NotBegun { round: number("round")? },
            "TOO_FEW_USERS" => {
                Self::TooFewUsers { users: count("users")?, users_min: count("users_min")? }
            }
            "TOO_MANY_USERS" => {
                Self::TooManyUsers { users: count("users")?, users_max: count("users_max")? }
            }
            "BUDGET_SPENT" => {
                Self::BudgetSpent { rounds: number("rounds")?, message: fact("message")? }
            }
            "PENDING" => Self::Pending {
                round: number("round")?,
                awaited: read_word(&fact("awaited")?)?,
                retry_after: retry_after?,
            },
            _ => return None,
        })
    }

    /// One of each, for tests of what carries them.
    #[cfg(test)]
    pub(crate) fn samples() -> Vec<Self> {
        let mut all = vec![
            Self::BadSetting { name: "users".into(), value: 0, min: 1, max: u64::MAX },
            Self::OperatorOnly,
            Self::BadMessage { what: "request".into() },
            Self::AlreadySeated,
            Self::NoRound { round: u64::MAX },
            Self::AlreadyDone { what: "upload".into(), user: u32::MAX },
            Self::RoundOpen { round: 1 },
            Self::NotRequested { user: 3 },
            Self::RequestsClosed { user: 4 },
            Self::NotBegun { round: 5 },
            Self::TooFewUsers { users: 1, users_min: 2 },
            Self::TooManyUsers { users: 101, users_max: 100 },
            Self::BudgetSpent { rounds: 7, message: "why".into() },
        ];
        all.extend(Outcome::ALL.iter().map(|&(outcome, _)| Self::RoundOver { round: 9, outcome }));
        all.extend(Awaited::ALL.iter().map(|&(awaited, _)| Self::Pending {
            round: 7,
            awaited,
            retry_after: Duration::from_millis(5),
        }));
        all
    }
}
