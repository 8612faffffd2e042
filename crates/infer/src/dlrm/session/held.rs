//! What a client keeps: how it asks, and what it knows of a server.

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::Uploads;
use hushtable_table::Version;

use super::call::Progress;
use super::info::Info;
use crate::dlrm::Client;

/// How a client asks a server for encrypted inference.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct SessionSpec {
    /// Servers; one of them is asked.
    pub servers: usize,
    /// The only version of the model to ask; `None` for whatever the server has.
    pub version: Option<Version>,
    /// How long one call may take, other than an upload, and how long an operation may, without its upload.
    pub call_max: Duration,
    /// How long an upload of keys may take.
    pub upload_max: Duration,
    /// Most bytes of keys that this client makes and uploads.
    pub key_bytes_max: u64,
}

/// A server that computes by the plan, and the keys for it.
pub(super) struct Session {
    pub info: Arc<Info>,
    pub client: Arc<Client>,
    pub uploads: Arc<Uploads>,
    pub upload_max: Duration,
    pub progress: Option<Progress>,
}
