//! What a client of a training server asks, and what comes back: messages without their wire.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{Place, Protocol};
use zeroize::Zeroizing;

use crate::round::RoundReport;
use crate::rounds::{RoundLimits, RoundStage};
use crate::wire::{Pin, PublicKey, Terms};

/// What a training server announces.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Announced {
    /// What is trained, and how.
    pub terms: Terms,
    /// What requests are sealed to.
    pub public_key: PublicKey,
    /// Rounds committed.
    pub rounds: u64,
    /// The open round, with what it is doing; None where there is none.
    pub open: Option<(u64, RoundStage)>,
    /// Places, requests taken and uploads taken of the open round.
    pub users: [usize; 3],
    /// The server's software.
    pub software: String,
}

impl Announced {
    /// The pin of the controller that was announced. It proves nothing that came with it: users are
    /// given theirs by somebody other than the operator.
    pub fn pin(&self) -> Pin {
        Pin::new(self.public_key, &self.terms)
    }

    /// How a round's number of accesses is drawn: a word, or one word with settings.
    pub fn mechanism(&self) -> String {
        match serde_json::to_value(self.terms.spec().fdp.mechanism) {
            Ok(serde_json::Value::String(name)) => name,
            Ok(settings) => settings.to_string(),
            Err(_) => String::new(),
        }
    }
}

/// What an operator's calls carry. Clones share it.
#[derive(Clone)]
pub struct Token(Arc<Zeroizing<String>>);

impl Token {
    /// The operator's, as it was given out.
    pub fn new(token: &str) -> Self {
        Self(Arc::new(Zeroizing::new(token.to_owned())))
    }

    /// Its text.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

/// A call to the server. Clones share their bytes.
#[derive(Clone)]
#[non_exhaustive]
pub enum Call {
    /// What is trained, and how far it is.
    Info,
    /// Opens a round. The operator's.
    OpenRound {
        /// How; what is None is the server's own choice.
        limits: RoundLimits,
        /// The operator's token.
        token: Option<Token>,
    },
    /// Begins a round with whoever has come. The operator's.
    CloseRequests {
        /// The round.
        round: u64,
        /// The operator's token.
        token: Option<Token>,
    },
    /// Commits a round. The operator's.
    Finish {
        /// The round.
        round: u64,
        /// Whether no more uploads are waited for.
        now: bool,
        /// How long the call may be held until the round is ready.
        within: Duration,
        /// The operator's token.
        token: Option<Token>,
    },
    /// Ends a round without an update. The operator's.
    Abandon {
        /// The round.
        round: u64,
        /// The operator's token.
        token: Option<Token>,
    },
    /// Writes a backup. The operator's.
    Backup {
        /// Its name.
        name: Arc<str>,
        /// How long the call may be held until it is written.
        within: Duration,
        /// The operator's token.
        token: Option<Token>,
    },
    /// A user's request.
    Request {
        /// The round.
        round: u64,
        /// The user's number in it.
        user: u32,
        /// The request, sealed.
        sealed: Bytes,
    },
    /// A user's rows.
    Rows {
        /// The round.
        round: u64,
        /// The user's number in it.
        user: u32,
        /// How long the call may be held until the round has begun.
        within: Duration,
        /// Bytes of the rows, sealed.
        reply_bytes: usize,
    },
    /// A user's upload.
    Upload {
        /// The round.
        round: u64,
        /// The user's number in it.
        user: u32,
        /// The upload, sealed.
        sealed: Bytes,
    },
}

impl Call {
    /// How long it may be held; None of a call that waits for nobody.
    pub fn within(&self) -> Option<Duration> {
        match self {
            Self::Finish { within, .. }
            | Self::Backup { within, .. }
            | Self::Rows { within, .. } => Some(*within),
            _ => None,
        }
    }
}

// Tokens are secret, from logs too.
impl fmt::Debug for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Info => "Info",
            Self::OpenRound { .. } => "OpenRound",
            Self::CloseRequests { .. } => "CloseRequests",
            Self::Finish { .. } => "Finish",
            Self::Abandon { .. } => "Abandon",
            Self::Backup { .. } => "Backup",
            Self::Request { .. } => "Request",
            Self::Rows { .. } => "Rows",
            Self::Upload { .. } => "Upload",
        })
    }
}

/// What a server replied to a [`Call`].
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum Reply {
    /// To [`Call::Info`].
    Info(Box<Announced>),
    /// To [`Call::OpenRound`]: the round.
    Opened(u64),
    /// To [`Call::CloseRequests`]: users that have come.
    Closed(usize),
    /// To [`Call::Finish`].
    Finished(Box<RoundReport>),
    /// To [`Call::Backup`].
    Backup(BackupMade),
    /// To [`Call::Rows`]: the rows, sealed.
    Rows(Bytes),
    /// To [`Call::Abandon`], [`Call::Request`] and [`Call::Upload`].
    Done,
}

impl Reply {
    pub(super) fn done(self) -> Option<()> {
        matches!(self, Self::Done).then_some(())
    }
}

/// A backup that a server wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct BackupMade {
    /// Rounds committed.
    pub rounds: u64,
    /// Rounds that were ever begun.
    pub rounds_begun: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// Why a client refuses to go on. Whoever drives it knows the server's address and can say more.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// A server that took too long.
    #[error("the server did not answer within {} ms", after.as_millis())]
    Timeout {
        /// How long it was waited for.
        after: Duration,
    },
    /// A reply to another call than the one that was made.
    #[error("the server answers another call than the one that was made")]
    OtherCall,
    /// A server that announces another controller than the pinned one.
    #[error("the server announces another controller than the pinned one")]
    Pinned,
}

/// What clients of a training server ask.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "it has no value")]
pub enum Training {}

impl Protocol for Training {
    type Call = Call;
    type Reply = Reply;
    type Failure = Failure;

    fn timed_out(_: Place, after: Duration) -> Failure {
        Failure::Timeout { after }
    }

    // The server holds it for what is left of its time, however often it was made before.
    fn at(call: &Call, elapsed: Duration) -> Call {
        let mut call = call.clone();
        if let Call::Finish { within, .. }
        | Call::Backup { within, .. }
        | Call::Rows { within, .. } = &mut call
        {
            *within = within.saturating_sub(elapsed);
        }
        call
    }

    // Where the reply is lost, the round is open.
    fn is_repeatable(call: &Call) -> bool {
        !matches!(call, Call::OpenRound { .. })
    }
}
