//! Secret keys in files of their own: a controller's, an authority's, a user's.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{OpenOptionsExt, PermissionsExt};
use std::path::Path;

use hushtable_oram::wire::{AuthorityKey, Credential, Ticket, UserKey};
use zeroize::Zeroizing;

use super::TrainError;
use crate::Error;

/// 32 secret bytes in a file that only its owner may read. Whose they are is for the file's name to
/// say: the key pairs of users and authorities follow from them in the same way.
pub struct SecretFile(Zeroizing<[u8; 32]>);

impl SecretFile {
    /// Makes random bytes and writes them to a new file.
    ///
    /// # Errors
    /// [`Error::Io`] for a file that exists or cannot be written, [`Error::Pir`] without entropy.
    pub fn create(path: &Path) -> Result<Self, Error> {
        let mut key = Zeroizing::new([0; 32]);
        getrandom::fill(&mut *key).map_err(|_| Error::Pir(hushtable_pir::Error::Entropy))?;
        let failed =
            |source| Error::Io { what: format!("write the key to {}", path.display()), source };
        let mut file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(path)
            .map_err(failed)?;
        file.write_all(&*key).and_then(|()| file.sync_all()).map_err(failed)?;
        Ok(Self(key))
    }

    /// Reads what [`create`](Self::create) wrote.
    ///
    /// # Errors
    /// [`Error::Io`]; [`TrainError::KeyFile`](crate::TrainError::KeyFile) for a file of other than 32 bytes; [`TrainError::KeyMode`] for
    /// one that others than its owner may read or write.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let failed =
            |source| Error::Io { what: format!("read the key from {}", path.display()), source };
        let file = File::open(path).map_err(failed)?;
        let about = file.metadata().map_err(failed)?;
        let mode = about.permissions().mode() & 0o777;
        if about.is_file() && mode & 0o077 != 0 {
            return Err(TrainError::KeyMode { path: path.to_owned(), mode }.into());
        }
        let mut bytes = Zeroizing::new(Vec::new());
        // More than a key has is enough to refuse it.
        file.take(KEY_FILE_BYTES_MAX).read_to_end(&mut bytes).map_err(failed)?;
        let key = <[u8; 32]>::try_from(bytes.as_slice())
            .map_err(|_| TrainError::KeyFile { path: path.to_owned(), bytes: bytes.len() })?;
        Ok(Self(Zeroizing::new(key)))
    }

    pub(super) fn into_bytes(self) -> Zeroizing<[u8; 32]> {
        self.0
    }

    /// The key pair of a user.
    pub fn user(&self) -> UserKey {
        UserKey::from_seed(&self.0)
    }

    /// The key pair of an authority.
    pub fn authority(&self) -> AuthorityKey {
        AuthorityKey::from_seed(&self.0)
    }

    /// The user of this key, enrolled by `ticket`.
    pub fn credential(&self, ticket: Ticket) -> Credential {
        Credential::new(self.user(), ticket)
    }
}

const KEY_FILE_BYTES_MAX: u64 = 4096;
