//! A folder of precomputes: what one party keeps of an offline phase until an online phase uses it, once. It serves
//! [`hybrid`](crate::hybrid) and what two servers deal for [`shares`](crate::shares::joint).
//!
//! ```text
//! lock            held by the process that has the folder open
//! check           that the store's key is the one the folder was made with
//! id              the folder's id, bound to this file
//! ID.key          the precompute's own key, sealed by the store's, with what it is of and the file that it is in
//! ID.data         its records, each sealed by its own key
//! ```
//!
//! A precompute that is used twice shows what it hides (a client's input, a server's weights), so its key is gone
//! from the folder, durably, before any record is handed out: whatever kills the process, or cuts the
//! machine's power, the precompute is either whole and unused or can never be read again. Until it is
//! committed it has no key in the folder either. What is left behind is swept when the folder is opened.
//! (Against who reads freed blocks of the disk, the store's key stands: keep it on another one.)
//!
//! # A folder that is put back
//!
//! The folder alone cannot say that it is not a copy of what it was, so two things do that are no part of a copy:
//!
//! - The **ledger** (its module has the bytes), a file [outside of the folder](LedgerPlace): a precompute is entered there
//!   before it is in the folder, and struck out, durably, before it is taken. Only what is entered is used. A ledger that is
//!   missing, damaged, older than the folder, put back itself or another machine's vouches for nothing. So a folder that was
//!   put back gives out what was not used since, or nothing.
//! - The **files' identity** (number and time of birth), sealed into the folder's id, each key and the ledger: a file that
//!   was copied or put back is another file. A copy of the folder gets an id, and so a ledger, of its own, and the
//!   original's is as it was.
//!
//! What is refused is deleted, for precomputes can be made again, and told with its [`Cause`]. A volume that is mounted
//! again, elsewhere too, has its files' identities as they were: a restart loses nothing where the ledger is there.
//!
//! Not noticed: blocks of a disk that are put back with both the folder and the ledger on them (a machine's snapshot, say),
//! unless the other party's ledger is not; a running process's memory that is put back; and copies of files that keep number
//! and time of birth (a snapshot of a file system), where the ledger is in the copy as well.
//!
//! Files are for this machine's eyes: they hold no input and no weights, but with the other party's half
//! they would show both.

mod folder;
mod identity;
mod inner;
mod ledger;
mod place;
mod sealed;
mod spec;
mod taken;
mod writing;

#[cfg(test)]
mod tests;

use std::collections::HashMap;
use std::path::Path;
use std::sync::{Arc, Mutex};

use folder::Folder;
use inner::{Inner, State};
use ledger::Ledger;
pub use place::LedgerPlace;
use sealed::{Contents, Seals};
pub use spec::{Cause, Counts, Dropped, Head, Listed, RECORDS_MAX, Role, StoreError, StoreSpec};
pub use taken::Taken;
pub use writing::Writing;

/// A folder of precomputes that this process has open. Cheap to clone.
#[derive(Clone)]
pub struct Store(Arc<Inner>);

impl Store {
    /// Opens a folder, makes what is missing, and sweeps what an interrupted process left, and what the ledger does not
    /// vouch for.
    ///
    /// # Errors
    /// [`StoreError`]: a folder in use, a key that is none or not the folder's, a ledger in use or within the folder, or the
    /// file system.
    pub fn open(spec: &StoreSpec) -> Result<Self, StoreError> {
        let folder = Folder::open(&spec.folder)?;
        let key = folder::store_key(&spec.key)?;
        folder.check_key(&key, &spec.key)?;
        let (id, is_own) = folder.identify(&key)?;
        let ledger = Ledger::open(&spec.ledger, &spec.folder, &key, id)?;
        let seals = Seals { key, store: id };
        let surveyed = folder.survey(&seals)?;
        let numbers = surveyed.iter().filter_map(|(_, found)| Some(found.as_ref().ok()?.1));
        let newest = numbers.max().unwrap_or(0);
        let doubt = if is_own { ledger.doubt(newest) } else { Some(Cause::Copied) };
        let (mut ready, mut dropped, mut entries) = (Vec::new(), Vec::new(), HashMap::new());
        for (id, found) in surveyed {
            let judged = found.and_then(|(listed, number)| match doubt {
                Some(doubt) => Err(doubt),
                None if !ledger.has(&id, number) => Err(Cause::Used),
                None => Ok((listed, number)),
            });
            match judged {
                Ok((listed, number)) => {
                    entries.insert(id, number);
                    ready.push(listed);
                }
                Err(why) => dropped.push((id, why)),
            }
        }
        folder.sweep(dropped.iter().map(|(id, _)| *id))?;
        ledger.begin(entries, newest)?;
        ready.sort_by_key(|listed| (listed.made, listed.head.id));
        let dropped = dropped.iter().map(|(id, why)| Dropped { name: folder::name(id), why: *why });
        let state = Mutex::new(State { ready, dropped: dropped.collect(), ..State::default() });
        let bytes_max = spec.bytes_max;
        Ok(Self(Arc::new(Inner { folder, seals, ledger, bytes_max, state })))
    }

    /// The ledger's file.
    pub fn ledger(&self) -> &Path {
        self.0.ledger.path()
    }

    /// Precomputes that were found damaged, or not known to be unused, and deleted, since the folder was opened; each is told
    /// once.
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
        let id = &listed.head.id;
        let deleted = self.0.ledger.strike(&[*id]).and_then(|()| self.0.folder.delete(id));
        self.0.release(&listed.head.id);
        deleted.map(|()| true)
    }

    /// Bytes that a precompute of records of these sizes takes.
    pub fn bytes_of(record_bytes: &[u64]) -> u64 {
        sealed::bytes_of(record_bytes)
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

    /// Whether the precompute of this name may be taken.
    pub fn has(&self, id: &[u8; 16]) -> bool {
        self.0.state().ready.iter().any(|listed| listed.head.id == *id)
    }

    /// Precomputes that may be taken, oldest first.
    pub fn list(&self) -> Vec<Listed> {
        self.0.state().ready.clone()
    }
}
