//! Why a training server refuses a call: `train.proto` lists the reasons.

use hushtable_oram::wire;

use crate::refusal::Listed;
use crate::refusal::Tables;
use crate::refusal::words;
use crate::refusals;

refusals! {
    /// Why a training server refused a call.
    pub enum TrainRefusal {
        /// A sealed message that is not taken, whatever is wrong with it: the answer goes through the
        /// operator.
        #[error(
            "the {what} is refused: it was changed on its way, or made under other terms, for another \
             round or user, or by somebody who is not enrolled, or it holds what none may hold"
        )]
        BadMessage = InvalidArgument "BAD_MESSAGE" {
            /// `request` or `upload`.
            what: String,
        },
        /// A number of OpenRound that it cannot work with.
        #[error("{name} is {value}, but must be {min} to {max}")]
        BadSetting = InvalidArgument "BAD_SETTING" {
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
        OperatorOnly = Unauthenticated "OPERATOR_ONLY",
        /// A round that was never opened here, or is long over.
        #[error("there is no round {round}: ask the operator for the open one")]
        NoRound = NotFound "NO_ROUND" {
            /// The number given.
            round: u64,
        },
        /// An enrolled user that has another place in the round.
        #[error("the enrolled user of this request has a place in this round: it has one")]
        AlreadySeated = AlreadyExists "ALREADY_SEATED",
        /// Another request or upload of a user than the one taken.
        #[error("user {user} has made another {what} in this round: it may make one")]
        AlreadyDone = AlreadyExists "ALREADY_DONE" {
            /// `request` or `upload`.
            what: String,
            /// The user.
            user: u32,
        },
        /// A second round beside an open one.
        #[error("round {round} is open: finish or abandon it first")]
        RoundOpen = FailedPrecondition "ROUND_OPEN" {
            /// The open round.
            round: u64,
        },
        /// Rounds cannot be written at present; none was opened.
        #[error(
            "rounds cannot be written at present, and none was opened: the server's log says why; ask \
             again in {} s", retry_after.as_secs()
        )]
        Unwritable = Unavailable "UNWRITABLE" {
            /// When to ask again.
            retry_after: std::time::Duration,
        },
        /// A round that has ended.
        #[error("round {round} is over: {outcome}")]
        RoundOver = FailedPrecondition "ROUND_OVER" {
            /// The round.
            round: u64,
            /// How it ended.
            outcome: Outcome,
        },
        /// Rows or an upload of a user whose request was not taken.
        #[error("user {user} has made no request in this round, or it was refused")]
        NotRequested = FailedPrecondition "NOT_REQUESTED" {
            /// The user.
            user: u32,
        },
        /// A request after requests were closed.
        #[error("the round has begun without user {user}: wait for the next one")]
        RequestsClosed = FailedPrecondition "REQUESTS_CLOSED" {
            /// The user.
            user: u32,
        },
        /// An upload before the round has begun.
        #[error("round {round} has not begun: fetch the rows first")]
        NotBegun = FailedPrecondition "NOT_BEGUN" {
            /// The round.
            round: u64,
        },
        /// Too few users to begin with.
        #[error("{users} users have come, but the round begins with {users_min} or more")]
        TooFewUsers = FailedPrecondition "TOO_FEW_USERS" {
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
        TooManyUsers = ResourceExhausted "TOO_MANY_USERS" {
            /// Users asked for, or the number of this one and those before it.
            users: usize,
            /// Users there is room for.
            users_max: usize,
        },
        /// Another round would cost more privacy than is left.
        #[error("{message}")]
        BudgetSpent = ResourceExhausted "BUDGET_SPENT" {
            /// Rounds that began, whatever became of them.
            rounds: u64,
            /// The server's explanation.
            message: String,
        },
        /// A backup that is not made.
        #[error("{message}")]
        BackupRefused = FailedPrecondition "BACKUP_REFUSED" {
            /// The server's explanation.
            message: String,
        },
        /// What was waited for has not come yet.
        #[error("round {round} still waits for {awaited}: ask again")]
        Pending = FailedPrecondition "PENDING" {
            /// The round; 0 where what is awaited is of none.
            round: u64,
            /// What it waits for.
            awaited: Awaited,
            /// When to ask again.
            retry_after: std::time::Duration,
        },
    }
}

words! {
    /// How a round ended.
    pub enum Outcome {
        /// The rows are updated.
        Committed = "committed",
        /// The operator gave it up.
        Abandoned = "abandoned",
        /// Fewer users than it begins with came in time.
        Deserted = "deserted",
        /// The memory failed, and the table is as it was before the round; the server's log says how.
        Failed = "failed",
        /// The operator did not finish it in time, and the table is as it was before it.
        Expired = "expired",
        /// Whether the table is updated is not known until the memory could be opened again: ask again.
        Unknown = "unknown",
    }
}

words! {
    /// What a round waits for.
    pub enum Awaited {
        /// Users' requests.
        Requests = "requests",
        /// Users' uploads.
        Uploads = "uploads",
        /// A backup.
        Backup = "backup",
    }
}

/// What its servers may refuse by, beside what any server may.
pub(super) const REFUSALS: Tables = &[Listed::of::<TrainRefusal>()];

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
}
