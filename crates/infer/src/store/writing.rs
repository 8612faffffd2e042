//! A precompute that is being made.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, RwLock, RwLockReadGuard};
use std::time::SystemTime;

use super::folder::failed;
use super::inner::Inner;
use super::sealed::{Contents, Origin, SEAL_BYTES};
use super::spec::{Head, Listed, StoreError};
use crate::records::{RecordError, Records};

/// A precompute that is being made. Unless it is committed, it is deleted when it is dropped, or when the
/// folder is next opened.
pub struct Writing {
    store: Arc<Inner>,
    contents: Contents,
    file: File,
    /// Of each record, whether it was put; held while it is: a step that is repeated may come beside itself.
    is_put: Vec<Mutex<bool>>,
    /// Read as long as a record is put.
    is_committed: RwLock<bool>,
}

impl Writing {
    pub(super) fn new(store: Arc<Inner>, contents: Contents, file: File) -> Self {
        let is_put = (0..contents.records()).map(|_| Mutex::new(false)).collect();
        Self { store, contents, file, is_put, is_committed: RwLock::new(false) }
    }

    /// What it is of.
    pub fn head(&self) -> &Head {
        &self.contents.head
    }

    /// Puts the precompute in the folder, durably: from now on it may be taken. Again is nothing.
    ///
    /// # Errors
    /// [`RecordError::Missing`] while a record is, or the file system.
    pub fn commit(&self) -> Result<(), StoreError> {
        let id = &self.contents.head.id;
        let mut is_committed = self.is_committed.write().unwrap_or_else(PoisonError::into_inner);
        if *is_committed {
            return Ok(());
        }
        if let Some(record) = (0..self.is_put.len()).find(|record| !*self.put_lock(*record)) {
            return Err(RecordError::Missing { record }.into());
        }
        let path = self.store.folder.data(id);
        self.file.sync_all().map_err(failed(&path))?;
        #[cfg(test)]
        super::tests::cut("before it is entered");
        let number = self.store.ledger.enter(id)?;
        #[cfg(test)]
        super::tests::cut("before the key is written");
        let key_file = |file| {
            let origin = Origin { number, file };
            Ok(self.contents.to_file(&self.store.seals, &origin)?)
        };
        self.store.folder.commit(id, key_file)?;
        #[cfg(test)]
        super::tests::cut("after the key is written");
        *is_committed = true;
        let listed = Listed {
            head: self.contents.head,
            bytes: self.contents.bytes(),
            made: SystemTime::now(),
        };
        let mut state = self.store.state();
        state.writing.retain(|(head, _)| head.id != *id);
        state.ready.push(listed);
        Ok(())
    }

    fn put_lock(&self, record: usize) -> MutexGuard<'_, bool> {
        self.is_put[record].lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn committed(&self) -> RwLockReadGuard<'_, bool> {
        self.is_committed.read().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Records for Writing {
    fn put(&self, record: usize, bytes: &[u8]) -> Result<(), RecordError> {
        let expected = self.contents.record_bytes(record).ok_or(RecordError::Missing { record })?;
        if bytes.len() != expected {
            return Err(RecordError::Size { record, expected, found: bytes.len() });
        }
        let io = io_error(&self.store, &self.contents.head.id);
        let is_committed = self.committed();
        if *is_committed {
            return Err(io(std::io::Error::other("the precompute is committed: it takes no more")));
        }
        let mut is_put = self.put_lock(record);
        *is_put = false;
        let write = |bytes: &[u8], place: u64| self.file.write_all_at(bytes, place);
        self.contents.seal(record, bytes, write).map_err(io)?;
        *is_put = true;
        Ok(())
    }

    fn get(&self, record: usize) -> Result<Vec<u8>, RecordError> {
        let is_committed = self.committed();
        // Once it may be taken, it is the taker's alone.
        if *is_committed || record >= self.is_put.len() {
            return Err(RecordError::Missing { record });
        }
        let is_put = self.put_lock(record);
        if !*is_put {
            return Err(RecordError::Missing { record });
        }
        read(&self.store, &self.contents, &self.file, record)
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        if !*self.committed() {
            let id = &self.contents.head.id;
            // The key too, which a failing disk may have taken all the same. What cannot be deleted now
            // is when the folder is next opened.
            let _ = self.store.folder.delete(id);
            self.store.state().writing.retain(|(head, _)| head.id != *id);
        }
    }
}

/// One record of a data file.
pub(super) fn read(
    store: &Inner,
    contents: &Contents,
    file: &File,
    record: usize,
) -> Result<Vec<u8>, RecordError> {
    let bytes = contents.record_bytes(record).ok_or(RecordError::Missing { record })?;
    let (mut before, mut text) = ([0; SEAL_BYTES], vec![0; bytes]);
    let offset = contents.offset(record);
    let found = file
        .read_exact_at(&mut before, offset)
        .and_then(|()| file.read_exact_at(&mut text, offset + SEAL_BYTES as u64));
    match found {
        Err(source) if source.kind() == std::io::ErrorKind::UnexpectedEof => {
            Err(RecordError::Damaged { record, why: "its file was cut".to_owned() })
        }
        Err(source) => Err(io_error(store, &contents.head.id)(source)),
        Ok(()) if contents.open(record, &before, &mut text) => Ok(text),
        Ok(()) => {
            let why = "its bytes are not those that were kept".to_owned();
            Err(RecordError::Damaged { record, why })
        }
    }
}

/// What the file system says of a precompute's data.
pub(super) fn io_error(store: &Inner, id: &[u8; 16]) -> impl Fn(std::io::Error) -> RecordError {
    let path = store.folder.data(id).display().to_string();
    move |source| RecordError::Io { path: path.clone(), source }
}
