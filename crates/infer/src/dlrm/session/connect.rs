//! How a client comes to its sessions.

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::{Bell, Connect, Place};

use super::call::{Failure, Inference, Progress};
use super::held::{Session, SessionSpec};
use super::opening::InferOpening;

/// See [`Connect`].
pub(super) struct Infer {
    pub spec: SessionSpec,
    pub progress: Option<Progress>,
    pub bell: Bell,
}

impl Connect for Infer {
    type Protocol = Inference;
    type Session = Session;
    type Opening = InferOpening;

    fn opening(&self, known: Option<&Arc<Session>>) -> InferOpening {
        InferOpening::new(self.spec.clone(), self.progress.clone(), self.bell.clone(), known)
    }

    fn first(&self) -> Place {
        Place::Single
    }

    fn servers(&self) -> [usize; 3] {
        [0, 0, self.spec.servers]
    }

    fn limits(&self) -> (Duration, Duration) {
        (self.spec.call_max, self.spec.call_max)
    }

    // A server of another plan is as good as none.
    fn is_misfit(&self, failure: &Failure) -> bool {
        matches!(failure, Failure::VersionMismatch { .. })
    }
}
