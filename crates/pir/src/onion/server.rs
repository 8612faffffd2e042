//! The server's half: what answers, and what it accepts.

use std::sync::Arc;

use hushtable_table::Version;

use super::query::Query;
use super::{Error, EvaluationKeys, Geometry};

/// One accepted query, and whose keys answer it.
#[derive(Clone)]
pub struct Asked {
    keys: Arc<EvaluationKeys>,
    query: Query,
}

impl Asked {
    pub(crate) fn new(keys: Arc<EvaluationKeys>, query: Query) -> Self {
        Self { keys, query }
    }

    /// Whose keys answer it.
    pub fn keys(&self) -> &Arc<EvaluationKeys> {
        &self.keys
    }

    /// The query.
    pub fn query(&self) -> &Query {
        &self.query
    }
}

/// Something that holds a prepared table and answers queries: a processor, a GPU.
pub trait OnionBackend: Send + Sync {
    /// Where rows lie.
    fn geometry(&self) -> &Geometry;

    /// The table's version (not the prepared file's).
    fn version(&self) -> Version;

    /// Bytes that come of one query: a response, or of a shard's backend its part of one.
    fn answer_bytes(&self) -> usize {
        self.geometry().response_bytes()
    }

    /// Answers every query: what comes of `queries[i]` lands in
    /// `responses[i * answer_bytes..(i + 1) * answer_bytes]`.
    ///
    /// # Errors
    /// [`Error::ResponseBytes`] for a buffer of another size.
    fn answer(&self, queries: &[Asked], responses: &mut [u8]) -> Result<(), Error>;

    /// Whether what it answers from is still what was loaded: a server asks now and then.
    ///
    /// # Errors
    /// What has happened to it; nothing must be served any more.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Queries that one pass answers best; a scheduler batches up to this many.
    fn batch_queries_best(&self) -> usize;

    /// One line for logs and `doctor`.
    fn description(&self) -> String;
}

/// A server's half of a lookup.
#[derive(Clone)]
pub struct Server {
    backend: Arc<dyn OnionBackend>,
}

impl Server {
    /// The server of what `backend` holds.
    pub fn new(backend: Arc<dyn OnionBackend>) -> Self {
        Self { backend }
    }

    /// The version that goes into every answer.
    pub fn version(&self) -> Version {
        self.backend.version()
    }

    /// What answers.
    pub fn backend(&self) -> &Arc<dyn OnionBackend> {
        &self.backend
    }

    /// Reads a client's keys.
    ///
    /// # Errors
    /// As [`EvaluationKeys::parse`].
    pub fn accept_keys(&self, bytes: &[u8]) -> Result<EvaluationKeys, Error> {
        EvaluationKeys::parse(self.backend.geometry(), bytes)
    }

    /// Reads a query of the client with these keys.
    ///
    /// # Errors
    /// As [`Query::parse`]; [`Error::KeyParameters`] where the keys are of another parameter set.
    pub fn accept(&self, keys: &Arc<EvaluationKeys>, query: &[u8]) -> Result<Asked, Error> {
        let geometry = self.backend.geometry();
        keys.check(geometry)?;
        Ok(Asked { keys: Arc::clone(keys), query: Query::parse(geometry, query)? })
    }

    /// Answers queries that were accepted; see [`OnionBackend::answer`].
    ///
    /// # Errors
    /// As [`OnionBackend::answer`].
    pub fn answer(&self, queries: &[Asked], responses: &mut [u8]) -> Result<(), Error> {
        self.backend.answer(queries, responses)
    }
}
