//! How a client of predictions on shares makes its session.

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::{Connect, Place};

use super::call::{Failure, SharedInference};
use super::held::{Session, SessionSpec};
use super::opening::SharesOpening;

/// See [`Connect`].
pub(super) struct Shares(pub SessionSpec);

impl Connect for Shares {
    type Protocol = SharedInference;
    type Session = Session;
    type Opening = SharesOpening;

    fn opening(&self, _: Option<&Arc<Session>>) -> SharesOpening {
        SharesOpening::new(self.0.clone())
    }

    fn first(&self) -> Place {
        Place::Left
    }

    fn servers(&self) -> [usize; 3] {
        [1, 1, 0]
    }

    fn limits(&self) -> (Duration, Duration) {
        (self.0.call_max, self.0.call_max)
    }

    // There is one server of each side.
    fn is_misfit(&self, _: &Failure) -> bool {
        false
    }
}
