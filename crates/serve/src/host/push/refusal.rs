//! Why a server does not take a push: `operate.proto` lists the reasons.

use std::io;

use crate::refusal::{MESSAGE_CHARS_MAX, words};
use crate::refusals;

refusals! {
    /// Why a server did not take a pushed bundle; what it held goes on being served.
    pub enum PushRefusal {
        /// Frames or bytes that do not make the bundle that was announced.
        #[error(
            "what came is not the bundle that was announced ({defect}): push a bundle that nobody writes to \
             meanwhile, by a release that fits the server's"
        )]
        BadPush = InvalidArgument "BAD_PUSH" {
            /// What is wrong with it.
            defect: PushDefect,
        },
        /// A bundle's folder or file of a name that none here may have.
        #[error(
            "{name:?} cannot be a name at the server: rename it to at most 128 letters, digits, dots, \
             underscores and hyphens, the first no dot; a file lies at most 8 folders deep, once"
        )]
        BadPushName = InvalidArgument "BAD_PUSH_NAME" {
            /// The folder's name, or the file's path in the bundle.
            name: String,
        },
        /// More files than a bundle has, or none.
        #[error("the folder has {files} files, but a bundle has 1 to {files_max}: push a bundle's folder")]
        PushFiles = InvalidArgument "PUSH_FILES" {
            /// How many were announced.
            files: usize,
            /// How many may be.
            files_max: usize,
        },
        /// A bundle whose bytes are not what its manifest says.
        #[error("{message}")]
        PushDamaged = InvalidArgument "PUSH_DAMAGED" {
            /// What is damaged, and what to do.
            message: String,
        },
        /// A push without the server's token.
        #[error(
            "a push is the operator's: give the token that the server was started with (--token-file here, \
             --push-token-file there)"
        )]
        PushToken = Unauthenticated "PUSH_TOKEN",
        /// A version that the server does not take.
        #[error("{message}")]
        PushNotTaken = FailedPrecondition "PUSH_NOT_TAKEN" {
            /// Why, and what to do.
            message: String,
        },
        /// A bundle for which the disk has no room.
        #[error(
            "the bundle has {bytes} bytes, and the folder for pushes has room for {bytes_max}: remove old \
             bundles from it at the server (--push-folder), or give it a larger disk"
        )]
        PushSpace = ResourceExhausted "PUSH_SPACE" {
            /// Bytes of the bundle.
            bytes: u64,
            /// Bytes that the disk has room for.
            bytes_max: u64,
        },
        /// A second push beside one.
        #[error("another push is under way at this server: push again when it has ended")]
        PushUnderWay = ResourceExhausted "PUSH_UNDER_WAY" {
            /// When to try again.
            retry_after: std::time::Duration,
        },
        /// A push that takes longer than any may.
        #[error(
            "the push took more than {s} seconds, and nothing of it is kept: bring the bundle nearer to the \
             server, or move it into the server's --watch folder"
        )]
        PushLate = DeadlineExceeded "PUSH_LATE" {
            /// Seconds that it may take.
            s: u64,
        },
        /// A server that cannot write the bundle.
        #[error(
            "the server could not {message}, and nothing of the push is kept: look at the disk and the owner of \
             its --push-folder, then push again"
        )]
        PushUnwritable = Internal "PUSH_UNWRITABLE" {
            /// What it could not do, and why.
            message: String,
        },
    }
}

words! {
    /// What is wrong with a push.
    pub enum PushDefect {
        /// Fewer bytes than the files have.
        Fewer = "fewer",
        /// More bytes than the files have.
        More = "more",
        /// Frames in another order than the start, then bytes.
        Order = "order",
        /// Anything newer.
        Other = "other",
    }
    or Other
}

impl PushRefusal {
    /// What could not be done on the server's disk.
    pub(super) fn unwritable(what: &str, error: &io::Error) -> Self {
        tracing::error!(%error, "a push failed: could not {what}");
        Self::PushUnwritable { message: format!("{what}: {error}") }
    }

    /// A bundle that is not what it says.
    pub(super) fn damaged(error: &crate::Error) -> Self {
        Self::PushDamaged { message: cut(error) }
    }

    /// A version that the server does not take.
    pub(super) fn not_taken(error: &crate::Error) -> Self {
        Self::PushNotTaken { message: cut(error) }
    }

    /// What a client says of `name`, cut.
    pub(super) fn name(name: &str) -> Self {
        Self::BadPushName { name: name.chars().take(MESSAGE_CHARS_MAX).collect() }
    }
}

/// What the client keeps of a text, and headers have room for.
fn cut(error: &crate::Error) -> String {
    error.to_string().chars().take(MESSAGE_CHARS_MAX).collect()
}
