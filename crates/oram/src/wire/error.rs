//! What can go wrong between a user and the controller.

use hushtable_prg::EntropyError;

/// An error of sealed messages. Fields carry the facts; `Display` names the remedy.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Slots, dim or rows that no round has.
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
    /// A table's name that does not fit what messages are bound to.
    #[error(
        "the table's name has {bytes} bytes, but at most {bytes_max} fit: give it a shorter one"
    )]
    Name {
        /// Bytes of the name.
        bytes: usize,
        /// Bytes that fit.
        bytes_max: usize,
    },
    /// Bytes that are no X25519 public key, or one that no secret can be shared with.
    #[error(
        "these {bytes} bytes are no usable public key of a controller (X25519, 32 bytes): ask the \
         controller for its own"
    )]
    PublicKey {
        /// Bytes given.
        bytes: usize,
    },
    /// Text that is no controller's terms.
    #[error("this is no `controller.json` of this version: ask the controller for its terms")]
    Terms,
    /// Text that is no pin.
    #[error(
        "this is no controller's pin: it is `pin1:` and 128 hex digits, as `hushtable train info` \
         prints it"
    )]
    Pin,
    /// Terms, or a key, other than those that were pinned.
    #[error(
        "what is announced is not the controller that the pin names: take no part, and ask whoever \
         gave you the pin"
    )]
    Pinned,
    /// Text that is no ticket.
    #[error("this is no ticket: it is `ticket1:` and 96 hex digits, from `hushtable train enroll`")]
    Ticket,
    /// A controller that serves enrolled users alone.
    #[error("the controller serves enrolled users alone: give a key and the ticket for it")]
    NoCredential,
    /// A message that is not taken. One text for whatever is wrong with it, at either end: it may
    /// travel back to whoever made the message.
    #[error(
        "the sealed {what} is refused: it was changed on its way, or made under other terms, for \
         another round, user or controller, or by somebody who is not enrolled, or it holds what \
         none may hold"
    )]
    Refused {
        /// Which message.
        what: &'static str,
        /// What is wrong with it, for the controller's side alone: `Display` leaves it out.
        reason: RefusedReason,
    },
    /// More ids than a user has slots. How many is the user's secret: the error may be shown to others.
    #[error("more ids than the {slots} slots of a user: ask for fewer")]
    TooManyIds {
        /// Slots of a user.
        slots: usize,
    },
    /// An id that is not a row. Which, and how many, is the user's secret.
    #[error(
        "one of the ids is no row of this table: ids run from 0 to {}",
        rows.saturating_sub(1)
    )]
    IdRange {
        /// Rows of the table.
        rows: u64,
    },
    /// A user's gradients that are no whole rows, or too many. How many is the user's secret.
    #[error("gradients must be whole rows of {dim} numbers, and at most {slots} of them")]
    Gradients {
        /// Numbers of a row.
        dim: usize,
        /// Slots of a user.
        slots: usize,
    },
    /// Numbers that do not fill the slots.
    #[error("{what} of {found} numbers, where {expected} were expected (slots x dim)")]
    Numbers {
        /// What they are.
        what: &'static str,
        /// How many there must be.
        expected: usize,
        /// How many there are.
        found: usize,
    },
    /// A gradient that is NaN or infinite.
    #[error("the gradients hold a NaN or an infinity: nothing can be learnt from them")]
    NotFinite,
    /// A weight that no user may have.
    #[error("a user's weight must be 0 to {}", crate::aggregate::WEIGHT_MAX)]
    Weight,
    /// Bytes that no session was kept as.
    #[error("these {bytes} bytes are no kept session: make a new one for the next round")]
    Kept {
        /// Bytes given.
        bytes: usize,
    },
    /// A second request, or an upload before the request.
    #[error("{0}")]
    Order(#[from] OrderError),
    /// A user's number that the round does not have.
    #[error("user {user} is none of this round's: it has users 0 to {}", users.saturating_sub(1))]
    UserRange {
        /// The number given.
        user: u32,
        /// Users of the round.
        users: usize,
    },
    /// The system gave no randomness.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

/// A message out of its turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum OrderError {
    /// A session makes one request.
    #[error("this session has made its request: make a session for each user and round")]
    Requested,
    /// A session is kept once its request is made.
    #[error("this session has made no request yet: make it before the session is kept")]
    NotYetRequested,
    /// Another request under a number that is taken.
    #[error("user {user} has made another request in this round: it has one")]
    AlreadyRequested {
        /// The user.
        user: u32,
    },
    /// An enrolled user that has another place.
    #[error("the enrolled user of this request has a place in this round: it has one")]
    AlreadySeated,
    /// Another upload of a user.
    #[error("user {user} has uploaded in this round: it may do so once")]
    AlreadyUploaded {
        /// The user.
        user: u32,
    },
    /// No request of this user was taken.
    #[error("user {user} has made no request in this round, or it was refused")]
    NotRequested {
        /// The user.
        user: u32,
    },
    /// A request after the round has begun.
    #[error("the round has begun without user {user}: wait for the next one")]
    Closed {
        /// The user.
        user: u32,
    },
    /// Rows or an upload before the round has begun.
    #[error("the round has not begun: close its requests first")]
    Open,
}

/// Why the controller does not take a user's message, in words that never change. The operator is told;
/// the user is not, for the answer goes through others.
///
/// In order of how much is proven: [`NotFinite`](Self::NotFinite) and what follows was found in what
/// the holder of that place had sealed. What comes before it may have been sent under the place's number
/// by anybody who reaches the controller, so it is no evidence against its holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum RefusedReason {
    /// The controller's own fault, or the memory's below it.
    Failed,
    /// A number that the round does not have.
    Place,
    /// Out of its turn: requests are closed, or the round waits for something else first.
    Order,
    /// Another message of the user was taken before.
    Repeated,
    /// It does not authenticate: changed on its way, or made for another round, user or controller (so
    /// too a message of an earlier round that somebody kept).
    NotOpened,
    /// Its sender shows no ticket of the authority for this controller.
    Enrolment,
    /// It asks for what is no row, or says that it is another round's or user's.
    Ids,
    /// The enrolled user has another place in the round.
    Seated,
    /// A gradient is NaN or infinite.
    NotFinite,
    /// The weight is negative, NaN or above [`WEIGHT_MAX`](crate::aggregate::WEIGHT_MAX).
    Weight,
}

impl RefusedReason {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Failed,
        Self::Place,
        Self::Order,
        Self::Repeated,
        Self::NotOpened,
        Self::Enrolment,
        Self::Ids,
        Self::Seated,
        Self::NotFinite,
        Self::Weight,
    ];

    /// As text: `failed`, `place`, `order`, `repeated`, `not_opened`, `enrolment`, `ids`, `seated`,
    /// `not_finite` or `weight`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Failed => "failed",
            Self::Place => "place",
            Self::Order => "order",
            Self::Repeated => "repeated",
            Self::NotOpened => "not_opened",
            Self::Enrolment => "enrolment",
            Self::Ids => "ids",
            Self::Seated => "seated",
            Self::NotFinite => "not_finite",
            Self::Weight => "weight",
        }
    }

    /// Whether it was found in what the holder of the place had sealed, so that nobody else sent it.
    pub fn is_proven(self) -> bool {
        self >= Self::NotFinite
    }
}

impl std::fmt::Display for RefusedReason {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.name())
    }
}

impl Error {
    /// Why a user's message is not taken, for the operator.
    pub fn reason(&self) -> RefusedReason {
        match self {
            Self::Refused { reason, .. } => *reason,
            Self::UserRange { .. } => RefusedReason::Place,
            Self::Order(OrderError::AlreadySeated) => RefusedReason::Seated,
            Self::Order(
                OrderError::AlreadyRequested { .. } | OrderError::AlreadyUploaded { .. },
            ) => RefusedReason::Repeated,
            Self::Order(_) => RefusedReason::Order,
            Self::NotFinite => RefusedReason::NotFinite,
            Self::Weight => RefusedReason::Weight,
            // Of a session's own side: the controller finds none of them in a message.
            _ => RefusedReason::Failed,
        }
    }
}
