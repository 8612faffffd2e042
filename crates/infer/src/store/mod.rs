//! A folder of precomputes: what one party keeps of an offline phase until an online phase uses it, once. It serves
//! [`hybrid`](crate::hybrid) and what two servers deal for [`shares`](crate::shares::joint).
//!
//! ```text
//! lock            held by the process that has the folder open
//! check           that the store's key is the one the folder was made with
//! ID.key          the precompute's own key, sealed by the store's, with what it is of
//! ID.data         its records, each sealed by its own key
//! ```
//!
//! A precompute that is used twice shows what it hides (a client's input, a server's weights), so its key is gone
//! from the folder, durably, before any record is handed out: whatever kills the process, or cuts the
//! machine's power, the precompute is either whole and unused or can never be read again. Until it is
//! committed it has no key in the folder either. What is left behind is swept when the folder is opened.
//! (Against who reads freed blocks of the disk, the store's key stands: keep it on another one.)
//!
//! Files are for this machine's eyes: they hold no input and no weights, but with the other party's half
//! they would show both.

mod folder;
mod sealed;
mod taken;
mod writing;

#[cfg(test)]
mod tests;

use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use hushtable_mpc::compare::Half;
use hushtable_mpc::{EntropyError, Party};
use zeroize::Zeroizing;

use crate::records::RecordError;
use folder::Folder;
use sealed::Contents;
pub use taken::Taken;
pub use writing::Writing;

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
    pub why: String,
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

/// A folder of precomputes that this process has open. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

struct Inner {
    folder: Folder,
    key: Zeroizing<[u8; 32]>,
    bytes_max: u64,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Oldest first.
    ready: Vec<Listed>,
    writing: Vec<(Head, u64)>,
    taken: Vec<([u8; 16], u64)>,
    dropped: Vec<Dropped>,
}

impl State {
    fn bytes(&self) -> u64 {
        let ready = self.ready.iter().map(|listed| listed.bytes);
        let writing = self.writing.iter().map(|(_, bytes)| *bytes);
        ready.chain(writing).chain(self.taken.iter().map(|(_, bytes)| *bytes)).sum()
    }

    fn roles(&self) -> impl Iterator<Item = Role> + '_ {
        let writing = self.writing.iter().map(|(head, _)| head.role);
        self.ready.iter().map(|listed| listed.head.role).chain(writing)
    }

    fn has(&self, id: &[u8; 16]) -> bool {
        self.ready.iter().any(|listed| listed.head.id == *id)
            || self.writing.iter().any(|(head, _)| head.id == *id)
            || self.taken.iter().any(|(taken, _)| taken == id)
    }
}

impl Store {
    /// Opens a folder, makes what is missing, and sweeps what an interrupted process left.
    ///
    /// # Errors
    /// [`StoreError`]: a folder in use, a key that is none or not the folder's, or the file system.
    pub fn open(spec: &StoreSpec) -> Result<Self, StoreError> {
        let folder = Folder::open(&spec.folder)?;
        let key = folder::store_key(&spec.key)?;
        folder.check_key(&key, &spec.key)?;
        let (ready, dropped) = folder.sweep(&key)?;
        let state = Mutex::new(State { ready, dropped, ..State::default() });
        Ok(Self(Arc::new(Inner { folder, key, bytes_max: spec.bytes_max, state })))
    }

    /// Precomputes that were found damaged, and deleted, since the folder was opened; each is told once.
    pub fn dropped(&self) -> Vec<Dropped> {
        std::mem::take(&mut self.0.state().dropped)
    }

    /// Begins a precompute of records of these sizes; its room is taken from now on. It is deleted again
    /// unless it is committed.
    ///
    /// # Errors
    /// [`StoreError`]: no room, a name that is taken, the other party's folder, or the file system.
    pub fn begin(&self, head: Head, record_bytes: &[u64]) -> Result<Writing, StoreError> {
        if record_bytes.len() > RECORDS_MAX {
            return Err(StoreError::Records { records: record_bytes.len() });
        }
        let contents = Contents::new(head, record_bytes)?;
        let needed = contents.bytes();
        {
            let mut state = self.0.state();
            let used = state.bytes();
            if used.saturating_add(needed) > self.0.bytes_max {
                return Err(StoreError::Full { needed, used, bytes_max: self.0.bytes_max });
            }
            if state.roles().any(|role| role != head.role) {
                return Err(StoreError::OtherParty { folder: self.0.folder.path().to_owned() });
            }
            if state.has(&head.id) {
                return Err(StoreError::Exists);
            }
            state.writing.push((head, needed));
        }
        match self.0.folder.create_data(&head.id, contents.data_bytes()) {
            Ok(file) => Ok(Writing::new(self.0.clone(), contents, file)),
            Err(error) => {
                self.0.state().writing.retain(|(other, _)| other.id != head.id);
                Err(error)
            }
        }
    }

    /// Takes the oldest precompute of a plan; from now on it is not in the folder, whatever happens. None
    /// where there is none that is whole.
    ///
    /// # Errors
    /// [`StoreError::Io`], where the folder does not let it go.
    pub fn take(&self, plan: &[u8; 32], client_garbles: bool) -> Result<Option<Taken>, StoreError> {
        loop {
            let is_wanted =
                |head: &Head| head.plan == *plan && head.client_garbles == client_garbles;
            let Some(listed) = self.0.claim(is_wanted) else { return Ok(None) };
            // What is damaged is deleted, and the next one tried.
            if let Some(taken) = Taken::all(&self.0, &[listed])?.pop() {
                return Ok(Some(taken));
            }
        }
    }

    /// Takes the precompute of this name, as [`take`](Self::take) does.
    ///
    /// # Errors
    /// [`StoreError::Io`], where the folder does not let it go.
    pub fn take_id(&self, id: &[u8; 16]) -> Result<Option<Taken>, StoreError> {
        Ok(self.take_ids(&[*id])?.pop())
    }

    /// Takes the precomputes of these names, as [`take`](Self::take) does, but for those that are not there or damaged: so
    /// many that the folder is made durable once.
    ///
    /// # Errors
    /// [`StoreError::Io`], where the folder does not let them go: none is handed out then.
    pub fn take_ids(&self, ids: &[[u8; 16]]) -> Result<Vec<Taken>, StoreError> {
        let listed = ids.iter().filter_map(|id| self.0.claim(|head| head.id == *id));
        let listed: Vec<Listed> = listed.collect();
        match listed[..] {
            [] => Ok(Vec::new()),
            _ => Taken::all(&self.0, &listed),
        }
    }

    /// Deletes the precompute of this name; whether there was one.
    ///
    /// # Errors
    /// [`StoreError::Io`], where the folder does not let it go.
    pub fn discard(&self, id: &[u8; 16]) -> Result<bool, StoreError> {
        let Some(listed) = self.0.claim(|head| head.id == *id) else { return Ok(false) };
        let deleted = self.0.folder.delete(&listed.head.id);
        self.0.release(&listed.head.id);
        deleted.map(|()| true)
    }

    /// How many more precomputes of records of these sizes there is room for.
    pub fn room(&self, record_bytes: &[u64]) -> u64 {
        let Counts { bytes, bytes_max, .. } = self.counts();
        bytes_max.saturating_sub(bytes) / sealed::bytes_of(record_bytes)
    }

    /// How full the folder is.
    pub fn counts(&self) -> Counts {
        let state = self.0.state();
        Counts {
            ready: state.ready.len(),
            writing: state.writing.len(),
            taken: state.taken.len(),
            bytes: state.bytes(),
            bytes_max: self.0.bytes_max,
        }
    }

    /// Precomputes of a plan that may be taken.
    pub fn ready(&self, plan: &[u8; 32], client_garbles: bool) -> usize {
        let state = self.0.state();
        let is_wanted = |listed: &&Listed| {
            listed.head.plan == *plan && listed.head.client_garbles == client_garbles
        };
        state.ready.iter().filter(is_wanted).count()
    }

    /// Precomputes that may be taken, oldest first.
    pub fn list(&self) -> Vec<Listed> {
        self.0.state().ready.clone()
    }
}

impl Inner {
    fn state(&self) -> MutexGuard<'_, State> {
        // Every change of it is one push, removal or retain, so a panic leaves it whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Makes the oldest that is wanted one that nobody else takes.
    fn claim(&self, is_wanted: impl Fn(&Head) -> bool) -> Option<Listed> {
        let mut state = self.state();
        let place = state.ready.iter().position(|listed| is_wanted(&listed.head))?;
        let listed = state.ready.remove(place);
        state.taken.push((listed.head.id, listed.bytes));
        Some(listed)
    }

    /// Lists a damaged precompute, which was deleted.
    fn drop_damaged<T>(&self, id: &[u8; 16], why: &str) -> Option<T> {
        let dropped = Dropped { name: folder::name(id), why: why.to_owned() };
        self.state().dropped.push(dropped);
        None
    }

    /// Gives back the room of a precompute that was taken.
    fn release(&self, id: &[u8; 16]) {
        self.state().taken.retain(|(other, _)| other != id);
    }
}
