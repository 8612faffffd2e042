//! Where a controller's root counter is kept: in a file, or in etcd.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use hushtable_oram::disk::Faults;
use hushtable_oram::journal::{CounterPlace, CounterValue, JournalError, RootCounter};
use hushtable_oram::seal::Key;

use super::etcd::EtcdPlace;
use crate::Error;

/// Where a controller's root counter is kept.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CounterSpec {
    /// In a file, which should be on storage that whoever can write to the folder cannot put back.
    File(PathBuf),
    /// Under a key of an etcd cluster.
    Etcd(EtcdPlace),
}

impl CounterSpec {
    /// A file's path, or `etcd://HOST:PORT[,HOST:PORT...]/KEY` for a cluster on this machine, or
    /// `etcds://HOST:PORT[,...]/KEY?ca=FILE[&cert=FILE&key=FILE][&domain=NAME]` for one over TLS: the
    /// CA that the members' certificates come from, this client's own certificate and its key where the
    /// cluster asks for them, and the name to check certificates for where it is not the host's. All
    /// files in PEM form.
    ///
    /// # Errors
    /// [`Error::Url`] for a URL that is not of this form, or `etcd://` at another machine.
    pub fn parse(text: &Path) -> Result<Self, Error> {
        match text
            .to_str()
            .filter(|text| text.starts_with("etcd://") || text.starts_with("etcds://"))
        {
            Some(url) => Ok(Self::Etcd(EtcdPlace::parse(url)?)),
            None => Ok(Self::File(text.to_owned())),
        }
    }

    /// The same, of whose members each has `call_max` for a call (else 3 s) and all together `wait_max` (else 10 s)
    /// before the call fails. For a file it says nothing.
    #[must_use]
    pub fn with_waits(self, call_max: Duration, wait_max: Duration) -> Self {
        match self {
            Self::File(path) => Self::File(path),
            Self::Etcd(place) => Self::Etcd(place.with_waits(call_max, wait_max)),
        }
    }

    fn place(&self) -> &dyn CounterPlace {
        match self {
            Self::File(path) => path,
            Self::Etcd(place) => place,
        }
    }
}

impl fmt::Display for CounterSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "{}", path.display()),
            Self::Etcd(place) => write!(f, "{place}"),
        }
    }
}

impl CounterPlace for CounterSpec {
    fn check_free(&self) -> Result<(), JournalError> {
        self.place().check_free()
    }

    fn create(
        &self,
        key: &Key,
        value: &CounterValue,
        faults: &Faults,
    ) -> Result<Box<dyn RootCounter>, JournalError> {
        self.place().create(key, value, faults)
    }

    fn open(&self, key: &Key, faults: &Faults) -> Result<Box<dyn RootCounter>, JournalError> {
        self.place().open(key, faults)
    }
}
