//! What a client of predictions on shares is told, and what it knows of its servers.

use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::PrgKind;
use hushtable_pir::dpf::Domain;
use hushtable_table::Version;

use super::info::Info;
use crate::shares::DealtBy;

/// How a client asks two servers for predictions on shares.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct SessionSpec {
    /// The only version of the model to ask; `None` for whatever the servers have.
    pub version: Option<Version>,
    /// The only dealer to send anything to; `None` for whichever the servers announce.
    pub dealer: Option<DealtBy>,
    /// How long an inference may take, those dealt anew included.
    pub call_max: Duration,
}

/// What both servers compute.
pub(super) struct Session {
    pub info: Arc<Info>,
    /// One a feature.
    pub domains: Vec<Domain>,
}

/// What lookup keys are made with.
pub const LOOKUP_PRG: PrgKind = PrgKind::Aes128;
