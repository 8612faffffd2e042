//! A server's half of a lookup: check the keys, answer them.

use std::sync::Arc;

use hushtable_table::Version;

use super::{Key, Side};
use crate::{Backend, Error};

/// One side's table, ready to answer.
#[derive(Clone)]
pub struct Server {
    side: Side,
    version: Version,
    backend: Arc<dyn Backend>,
}

impl Server {
    /// The server on `side` for the table `version` that `backend` holds.
    pub fn new(side: Side, version: Version, backend: Arc<dyn Backend>) -> Self {
        Self { side, version, backend }
    }

    /// Which of the two servers this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// The version that goes into every answer.
    pub fn version(&self) -> Version {
        self.version
    }

    /// What answers.
    pub fn backend(&self) -> &Arc<dyn Backend> {
        &self.backend
    }

    /// Reads a key from the wire and checks that it is for this side and this table.
    ///
    /// # Errors
    /// As [`Key::parse`], and [`Error::Side`] or [`Error::Domain`].
    pub fn accept(&self, bytes: &[u8]) -> Result<Key, Error> {
        let key = Key::parse(bytes)?;
        let params = key.params();
        if params.side != self.side {
            return Err(Error::Side { expected: self.side, found: params.side });
        }
        let expected = self.backend.shape().rows();
        if params.domain.rows() != expected {
            return Err(Error::Domain { expected, found: params.domain.rows() });
        }
        Ok(key)
    }

    /// Answers keys that were accepted; see [`Backend::answer`].
    ///
    /// # Errors
    /// As [`Backend::answer`].
    pub fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), Error> {
        self.backend.answer(keys, answers)
    }
}
