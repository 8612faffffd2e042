//! A server's half of an inference: check the request, answer it.

use std::sync::Arc;

use super::{BatchKeys, Geometry};
use crate::Error;
use crate::dpf::Side;

/// Something that holds a layout's bins and answers batches of requests: a processor, a GPU.
///
/// Implementations never branch on a share or index memory by one.
pub trait BatchBackend: Send + Sync {
    /// The bins.
    fn geometry(&self) -> &Geometry;

    /// Answers every request: that to `requests[i]` lands in `answers[i * answer_bytes..]`, its
    /// keys' entries in their order. An answer is the XOR of the entries whose share bit is set.
    ///
    /// # Errors
    /// [`Error::AnswerBytes`] for a buffer of another size than `requests.len() * answer_bytes`.
    fn answer(&self, requests: &[BatchKeys], answers: &mut [u8]) -> Result<(), Error>;

    /// As [`answer`](Self::answer), for requests that do not lie side by side. Backends that do not
    /// say how answer copies of them.
    ///
    /// # Errors
    /// As [`answer`](Self::answer).
    fn answer_each(&self, requests: &[&BatchKeys], answers: &mut [u8]) -> Result<(), Error> {
        let requests: Vec<BatchKeys> = requests.iter().map(|keys| keys.copy()).collect();
        self.answer(&requests, answers)
    }

    /// Requests that one pass answers best; a scheduler batches up to this many.
    fn batch_requests_best(&self) -> usize;

    /// One line for logs and `doctor`.
    fn description(&self) -> String;
}

/// One side's bins, ready to answer.
#[derive(Clone)]
pub struct Server {
    side: Side,
    backend: Arc<dyn BatchBackend>,
}

impl Server {
    /// The server on `side` for the layout that `backend` holds.
    pub fn new(side: Side, backend: Arc<dyn BatchBackend>) -> Self {
        Self { side, backend }
    }

    /// Which of the two servers this is.
    pub fn side(&self) -> Side {
        self.side
    }

    /// What answers.
    pub fn backend(&self) -> &Arc<dyn BatchBackend> {
        &self.backend
    }

    /// Reads a request from the wire.
    ///
    /// # Errors
    /// As [`BatchKeys::parse`].
    pub fn accept(&self, bytes: Vec<u8>) -> Result<BatchKeys, Error> {
        BatchKeys::parse(self.backend.geometry(), self.side, bytes)
    }

    /// Answers requests that were accepted; see [`BatchBackend::answer`].
    ///
    /// # Errors
    /// As [`BatchBackend::answer`].
    pub fn answer(&self, requests: &[BatchKeys], answers: &mut [u8]) -> Result<(), Error> {
        self.backend.answer(requests, answers)
    }
}
