//! A whole client of predictions on shares, without sockets: what both servers compute, and
//! inferences that are dealt, asked of both at once, and dealt anew where the servers lose them.
//!
//! Every operation is a [`Machine`]; what drives machines is said in [`hushtable_client`]. What was
//! dealt is sent at most once: each turn of an inference has keys, shares and a name of its own, so
//! that neither server sees two openings under one mask.

mod call;
mod connect;
mod held;
mod info;
mod opening;
mod predict;

use std::sync::Arc;

use hushtable_client::{Bell, Machine, Opening, Operation, Shared};

pub use call::{Call, Failure, Reply, Share, SharedInference};
pub use held::{LOOKUP_PRG, SessionSpec};
pub use info::{Announced, Info, InfoDefect, Terms};
pub use predict::{Answered, LOST};

use connect::Shares;
use predict::Predict;

/// A client of one model at two servers. Clones share its session.
#[derive(Clone)]
pub struct Predictor {
    shared: Arc<Shared<Shares>>,
    info: Arc<Info>,
}

impl Predictor {
    /// Asks both servers what they compute, and checks that they are a left and a right one of one
    /// model and plan. `bell` is rung for machines that wait for each other; `random` spreads
    /// retries.
    pub fn open<E: Send>(
        spec: SessionSpec,
        random: u64,
        bell: Bell,
    ) -> impl Machine<E, Protocol = SharedInference, Output = Self> + use<E> {
        Opening::new(Shares(spec), bell, random, |shared| {
            let info = Arc::clone(&shared.session().info);
            Self { shared, info }
        })
    }

    /// What the servers compute, as the left one announced it and it was checked. It does not
    /// change.
    pub fn info(&self) -> &Arc<Info> {
        &self.info
    }

    /// Asks for the logit of one user: `dense` has the model's numbers, `indices` their rows, as
    /// many a feature as its bag has room for. `random` spreads retries; nothing secret hangs on
    /// it.
    pub fn predict_one<E: Send>(
        &self,
        dense: Vec<f64>,
        indices: Vec<u64>,
        random: u64,
    ) -> impl Machine<E, Protocol = SharedInference, Output = Answered> + use<E> {
        Operation::new(&self.shared, Predict { dense, indices }, random)
    }
}
