//! A whole client of encrypted inference, without sockets: what a server computes by, keys brought to it once,
//! queries asked of it or of the next server of its operator.
//!
//! Every operation is a [`Machine`]; what drives machines is said in [`hushtable_client`]. A client keeps to the
//! plan that its keys are for: a server that computes by another gets neither keys nor queries.

mod call;
mod connect;
mod held;
mod info;
mod opening;
mod query;

use std::sync::Arc;

use hushtable_client::{Bell, Machine, Opening, Operation, Shared};

pub use call::{Answer, Call, Failure, Inference, Progress, Reply};
pub use held::SessionSpec;
pub use info::{Announced, Info, InfoDefect};
pub use query::{Answered, Uploaded};

use connect::Infer;
use query::{Query, Upload};

/// A client of one model at one server, or at several of one operator. Clones share its keys.
#[derive(Clone)]
pub struct Predictor {
    shared: Arc<Shared<Infer>>,
    info: Arc<Info>,
}

impl Predictor {
    /// Asks what the server computes, and makes a secret and keys for it. The keys are brought by the first query,
    /// or by [`upload`](Self::upload); `progress` is told then. `bell` is rung for machines that wait for each
    /// other; `random` spreads retries.
    pub fn open<E: Send>(
        spec: SessionSpec,
        progress: Option<Progress>,
        random: u64,
        bell: Bell,
    ) -> impl Machine<E, Protocol = Inference, Output = Self> + use<E> {
        let scheme = Infer { spec, progress, bell: bell.clone() };
        Opening::new(scheme, bell, random, |shared| {
            let info = Arc::clone(&shared.session().info);
            Self { shared, info }
        })
    }

    /// What the server computes, as it announced it and it was checked. It does not change.
    pub fn info(&self) -> &Arc<Info> {
        &self.info
    }

    /// Brings the keys to the server, where they are not there yet. `random` spreads retries.
    pub fn upload<E: Send>(
        &self,
        random: u64,
    ) -> impl Machine<E, Protocol = Inference, Output = Uploaded> + use<E> {
        Operation::new(&self.shared, Upload, random)
    }

    /// Asks for the logits of as many users as one query carries, or fewer: `dense` has the model's numbers for
    /// each of them, one user after the other, `indices` their rows, one a table. `random` spreads retries.
    pub fn query<E: Send>(
        &self,
        dense: Vec<f32>,
        indices: Vec<u64>,
        random: u64,
    ) -> impl Machine<E, Protocol = Inference, Output = Answered> + use<E> {
        Operation::new(&self.shared, Query { dense, indices }, random)
    }
}
