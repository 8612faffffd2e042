//! A whole client of hybrid inference, without sockets: what the server computes, precomputes that are made step by
//! step, each step again where its reply was lost, and predictions that use them up.
//!
//! Every operation is a [`Machine`]; what drives machines is said in [`hushtable_client`]. A precompute is used once:
//! this client's half is taken once the server says that it has taken its own, and from then on nothing is made again.

mod call;
mod halves;
mod making;
mod predicting;
mod scheme;
mod step;

use std::sync::Arc;

use hushtable_client::{Bell, Machine, Opening, Operation, Shared};

use super::outline::Outline;
use crate::store::Head;

pub use call::{Announced, Call, Failure, Inference, PrecomputeId, Reply, Stream};
pub use halves::{Half, Halves, HalvesError, TakenHalf};
pub use making::{Counted, Making, Pace, Progress};
pub use predicting::{Answer, Predicted};
pub use scheme::SessionSpec;

use halves::ChosenIds;
use predicting::PredictAsk;
use scheme::{Server, Session};

/// A client of one network at one server. Clones share its session, and which halves it is about to use.
#[derive(Clone)]
pub struct Predictor {
    shared: Arc<Shared<Server>>,
    session: Arc<Session>,
    bell: Bell,
    chosen: ChosenIds,
}

impl Predictor {
    /// Asks the server what it computes, and checks that against what the client is told. `bell` is rung for
    /// machines that wait for each other; `random` spreads retries.
    pub fn open<E: Send>(
        spec: SessionSpec,
        random: u64,
        bell: Bell,
    ) -> impl Machine<E, Protocol = Inference, Output = Self> + use<E> {
        Opening::new(Server(spec), bell, random, |shared| {
            let (session, bell) = (shared.session(), shared.bell());
            Self { shared, session, bell, chosen: ChosenIds::default() }
        })
    }

    /// What the server computes. It does not change.
    pub fn announced(&self) -> &Announced {
        &self.session.announced
    }

    /// What follows from it: circuits, packing, sizes.
    pub fn outline(&self) -> &Arc<Outline> {
        &self.session.outline
    }

    /// Bytes that one precompute takes at this client.
    pub fn half_bytes(&self) -> u64 {
        self.session.record_bytes().iter().sum()
    }

    /// Whether a half is this client's, and can be used with this server.
    pub fn fits(&self, head: &Head) -> bool {
        self.session.fits(head)
    }

    /// Makes `count` precomputes, this client's halves of which go to `halves`. `progress` is told.
    pub fn make(
        &self,
        halves: Arc<dyn Halves>,
        count: usize,
        pace: Pace,
        progress: Option<Progress>,
    ) -> Making {
        Making::new(&self.shared, halves, self.bell.clone(), count, pace, progress)
    }

    /// Has the network computed on `input`: its numbers, as [`Terms::encode`](super::Terms::encode) makes them. Uses
    /// a precompute of `halves` up. Where `is_fresh`, the precompute was made a moment ago, and it is an error that
    /// the server has lost it. `random` spreads retries.
    pub fn predict<E: Send>(
        &self,
        halves: Arc<dyn Halves>,
        input: Arc<Vec<u64>>,
        is_fresh: bool,
        random: u64,
    ) -> impl Machine<E, Protocol = Inference, Output = Predicted> + use<E> {
        let chosen = Arc::clone(&self.chosen);
        let call_max = self.session.spec.call_max;
        let ask = PredictAsk::new(call_max, halves, chosen, input, is_fresh);
        Operation::new(&self.shared, ask, random)
    }
}
