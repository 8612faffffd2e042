//! A precompute that is being used.

use std::fs::File;
use std::io;
use std::sync::Arc;

use super::folder::{DATA_GONE, DATA_LENGTH};
use super::inner::Inner;
use super::sealed::Contents;
use super::spec::{Cause, Head, Listed, StoreError};
use super::writing::{io_error, read};
use crate::records::{RecordError, Records};

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
    /// All of these, but for those that are damaged: they are deleted then, and told of.
    pub(super) fn all(store: &Arc<Inner>, listed: &[Listed]) -> Result<Vec<Self>, StoreError> {
        let folder = &store.folder;
        let open = |listed: &Listed| {
            let id = listed.head.id;
            let claim = Claim { store: Arc::clone(store), id };
            (claim, folder.contents(&store.seals, &id), folder.open_data(&id))
        };
        let opened: Vec<_> = listed.iter().map(open).collect();
        let ids: Vec<[u8; 16]> = listed.iter().map(|listed| listed.head.id).collect();
        #[cfg(test)]
        super::tests::cut("before they are struck out");
        // Before anything is handed out; where they cannot be struck out and deleted, nothing is.
        store.ledger.strike(&ids)?;
        #[cfg(test)]
        super::tests::cut("before the key is deleted");
        folder.delete_keys(&ids)?;
        #[cfg(test)]
        super::tests::cut("after the key is deleted");
        ids.iter().try_for_each(|id| folder.delete_data(id))?;
        #[cfg(test)]
        super::tests::cut("after the data are deleted");
        let mut taken = Vec::with_capacity(opened.len());
        for (claim, found, data) in opened {
            let found = found?.map(|(contents, _)| contents);
            taken.extend(Self::whole(claim, found, data)?);
        }
        Ok(taken)
    }

    /// None where it is damaged.
    fn whole(
        claim: Claim,
        found: Result<Contents, Cause>,
        data: Result<(File, u64), StoreError>,
    ) -> Result<Option<Self>, StoreError> {
        let id = claim.id;
        let contents = match found {
            Ok(contents) => contents,
            Err(why) => return Ok(claim.store.drop_damaged(&id, why)),
        };
        let (file, bytes) = match data {
            Ok(data) => data,
            Err(StoreError::Io { source, .. }) if source.kind() == io::ErrorKind::NotFound => {
                return Ok(claim.store.drop_damaged(&id, DATA_GONE));
            }
            Err(error) => return Err(error),
        };
        if bytes != contents.data_bytes() {
            return Ok(claim.store.drop_damaged(&id, DATA_LENGTH));
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
