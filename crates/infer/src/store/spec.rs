//! What a folder of precomputes is told, what it says of itself, and what it refuses.

use std::io;
use std::path::PathBuf;
use std::time::SystemTime;

use hushtable_mpc::compare::Half;
use hushtable_mpc::{EntropyError, Party};

use super::place::LedgerPlace;
use crate::records::{RecordError, is_full};

/// Most records of one precompute.
pub const RECORDS_MAX: usize = 1 << 20;

/// Where precomputes are kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct StoreSpec {
    /// The folder; it is made where there is none.
    pub folder: PathBuf,
    /// Most bytes that it may take, with what is being written.
    pub bytes_max: u64,
    /// A file of 32 bytes that only its owner may read; it is made where there is none.
    pub key: PathBuf,
    /// Where it is written down, outside of the folder, what may still be used.
    pub ledger: LedgerPlace,
}

/// What a precompute is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Head {
    /// Its name, the same for both parties.
    pub id: [u8; 16],
    /// The hash of the terms that it was made under.
    pub plan: [u8; 32],
    /// Who garbled, where one of the two did; else false.
    pub client_garbles: bool,
    /// Whose half it is.
    pub role: Role,
}

/// Whose half a precompute is: of a client and a server, or of two servers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there are two parties, of two kinds")]
pub enum Role {
    /// Who has the input.
    Client,
    /// Who has the model.
    Server,
    /// One of two servers.
    Left,
    /// The other one.
    Right,
}

impl From<Party> for Role {
    fn from(party: Party) -> Self {
        match party {
            Party::Client => Self::Client,
            Party::Server => Self::Server,
        }
    }
}

impl From<Half> for Role {
    fn from(half: Half) -> Self {
        match half {
            Half::Left => Self::Left,
            Half::Right => Self::Right,
        }
    }
}

/// One precompute of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "read field by field")]
pub struct Listed {
    /// What it is of.
    pub head: Head,
    /// Bytes that it takes.
    pub bytes: u64,
    /// When it was committed.
    pub made: SystemTime,
}

/// How full a folder is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "read field by field")]
pub struct Counts {
    /// Precomputes that may be taken.
    pub ready: usize,
    /// Precomputes that are being written.
    pub writing: usize,
    /// Precomputes that were taken and are not yet let go.
    pub taken: usize,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Most bytes that there may be.
    pub bytes_max: u64,
}

/// A precompute that was found unusable and deleted.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "read field by field")]
pub struct Dropped {
    /// The file's name without its ending.
    pub name: String,
    /// What was wrong with it.
    pub why: Cause,
}

/// Why a precompute is not used, and deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Cause {
    /// Its files.
    #[error("{0}")]
    Damaged(&'static str),
    /// Its file, or the folder, is not the one that was made.
    #[error(
        "it was copied, or put back from a backup, and may have been used since: keep no backups of such folders"
    )]
    Copied,
    /// The ledger has no entry of it.
    #[error(
        "its ledger says that it was used or dropped: the folder was put back, or the process ended as it was taken"
    )]
    Used,
    /// There is no ledger.
    #[error(
        "its ledger is missing, so nobody knows whether it was used: keep ledgers where they outlive a restart"
    )]
    NoLedger,
    /// The ledger's bytes are not those that were written.
    #[error("its ledger is damaged, so nobody knows whether it was used")]
    DamagedLedger,
    /// The ledger's file is not the one that was made.
    #[error(
        "its ledger was copied, or put back from a backup, and may not say what was used since"
    )]
    CopiedLedger,
    /// The ledger does not know of what was made last.
    #[error("its ledger is older than the folder, and may not say what was used since")]
    OlderLedger,
    /// The ledger was begun on another machine.
    #[error(
        "its ledger is another machine's: this disk is a copy, or the machine has another id; name a place for \
         ledgers where machines share one"
    )]
    OtherMachine,
}

impl Cause {
    /// Whether it is whole, and only not known to be unused.
    pub fn is_refusal(self) -> bool {
        !matches!(self, Self::Damaged(_))
    }
}

/// A folder that cannot be used, or a precompute that it cannot take in.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The file system.
    #[error("{path}: {source}")]
    Io {
        /// Which file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// Another process, or this one, has the folder open.
    #[error("{folder} is in use: one process at a time may take precomputes from a folder")]
    Locked {
        /// Which.
        folder: PathBuf,
    },
    /// Another process has this folder open, or a copy of it.
    #[error(
        "{folder} has a ledger that is in use ({ledger}): another process has a copy of the folder open; each \
         process needs a folder of its own, which begins empty"
    )]
    LedgerLocked {
        /// The ledger's lock.
        ledger: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// A ledger that would be put back with its folder.
    #[error(
        "ledgers in {ledger} would be copied and put back with {folder}: keep them outside of it"
    )]
    LedgerInside {
        /// Where ledgers are to be.
        ledger: PathBuf,
        /// The folder.
        folder: PathBuf,
    },
    /// The ledger cannot be read or written.
    #[error(
        "{path}: {source}. There it is written down which precomputes may still be used: name another place for \
         ledgers, outside of the folder, where this process may write"
    )]
    Ledger {
        /// Which file or folder.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file of a key that is none.
    #[error("{path} cannot be the store's key: {why}")]
    KeyFile {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The folder was made with another key.
    #[error(
        "{key} is not the key that the precomputes in {folder} were sealed with: give the right \
         key, or delete the folder"
    )]
    WrongKey {
        /// The folder.
        folder: PathBuf,
        /// The key's file.
        key: PathBuf,
    },
    /// There is no room.
    #[error(
        "a precompute of {needed} bytes does not fit: {used} of {bytes_max} bytes are taken; use \
         or discard precomputes, or allow more"
    )]
    Full {
        /// Bytes of the precompute.
        needed: u64,
        /// Bytes taken.
        used: u64,
        /// Most bytes.
        bytes_max: u64,
    },
    /// The folder is the other party's.
    #[error("{folder} has precomputes of the other party: give each party a folder of its own")]
    OtherParty {
        /// Which.
        folder: PathBuf,
    },
    /// There is a precompute of that name.
    #[error("there is a precompute of this name already: draw a new one")]
    Exists,
    /// More records than a precompute may have.
    #[error("a precompute of {records} records: at most {} are allowed", RECORDS_MAX)]
    Records {
        /// Of how many.
        records: usize,
    },
    /// A record is missing or could not be written.
    #[error(transparent)]
    Record(#[from] RecordError),
    /// The operating system gave no entropy.
    #[error(transparent)]
    Entropy(#[from] EntropyError),
}

impl StoreError {
    /// Whether the disk had no room, or the user's quota: later it may.
    pub fn is_disk_full(&self) -> bool {
        match self {
            Self::Io { source, .. } | Self::Ledger { source, .. } => is_full(source),
            Self::Record(error) => error.is_full(),
            _ => false,
        }
    }
}
