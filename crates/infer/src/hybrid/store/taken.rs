//! A precompute that is being used.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::sealed::Contents;
use super::writing::{io_error, read};
use super::{Head, Inner, Listed, StoreError};
use crate::hybrid::records::{RecordError, Records};

/// A precompute that was taken from the folder: nothing else can use it, now or later. Its records are
/// gone when it is dropped.
pub struct Taken {
    claim: Claim,
    contents: Contents,
    /// Its name is gone: the disk frees it when it is closed, by whatever end.
    file: File,
}

/// The room of a precompute, until it is let go.
struct Claim {
    store: Arc<Inner>,
    id: [u8; 16],
}

impl Drop for Claim {
    fn drop(&mut self) {
        self.store.release(&self.id);
    }
}

impl Taken {
    /// None where it is damaged: it is then deleted, and told of.
    pub(super) fn new(store: Arc<Inner>, listed: Listed) -> Result<Option<Self>, StoreError> {
        let id = listed.head.id;
        let claim = Claim { store, id };
        let folder = &claim.store.folder;
        let found = folder.contents(&claim.store.key, &id);
        let data = folder.open_data(&id);
        #[cfg(test)]
        super::tests::cut("before the key is deleted");
        // Before anything is handed out; where it cannot be deleted, nothing is.
        folder.delete_key(&id)?;
        #[cfg(test)]
        super::tests::cut("after the key is deleted");
        folder.delete_data(&id)?;
        #[cfg(test)]
        super::tests::cut("after the data are deleted");
        let contents = match found? {
            Ok(contents) => contents,
            Err(why) => return Ok(claim.store.drop_damaged(&id, why)),
        };
        let (file, bytes) = match data {
            Ok(data) => data,
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(claim.store.drop_damaged(&id, "its data are gone"));
            }
            Err(error) => return Err(error),
        };
        if bytes != contents.data_bytes() {
            return Ok(claim.store.drop_damaged(&id, "its data were cut or have grown"));
        }
        Ok(Some(Self { claim, contents, file }))
    }

    /// What it is of.
    pub fn head(&self) -> &Head {
        &self.contents.head
    }

    /// How many records it has.
    pub fn records(&self) -> usize {
        self.contents.records()
    }
}

impl Records for Taken {
    fn put(&self, _record: usize, _bytes: &[u8]) -> Result<(), RecordError> {
        let why = "the precompute is being used: nothing is added to it";
        Err(io_error(&self.claim.store, &self.contents.head.id)(io::Error::other(why)))
    }

    fn get(&self, record: usize) -> Result<Vec<u8>, RecordError> {
        read(&self.claim.store, &self.contents, &self.file, record)
    }
}
