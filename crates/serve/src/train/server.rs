//! A training server: opens the controller, offers `FederatedTraining`.

use std::sync::Arc;

use hushtable_oram::wire::ControllerKey;

use super::host::Host;
use super::service::TrainService;
use super::spec::Settings;
use super::{
    ControllerPlace, MasterKey, OramMemory, RoundMemory, TrainFacts, TrainServerSpec, facts_of,
};
use crate::door::{Routed, Routes};
use crate::observe::Scheme;
use crate::server::{Loading, Unbound};
use crate::spec::Network;
use crate::wire::federated_training_server::FederatedTrainingServer;
use crate::{BoundServer, Error};

type Open = Box<dyn FnOnce() -> Result<Box<dyn RoundMemory>, Error> + Send>;

/// A checked training server that has not started yet.
pub struct TrainServer {
    network: Network,
    settings: Settings,
    facts: TrainFacts,
    key: ControllerKey,
    open: Open,
}

impl TrainServer {
    /// A server of what `facts` describes. `open` opens the memory, which may take minutes; it is
    /// called once, on a thread that may block, after the ports are taken.
    ///
    /// # Errors
    /// [`Error::Exposed`], [`Error::Setting`], [`Error::Pem`], [`Error::Tls`], [`Error::Io`],
    /// [`Error::Token`] for what is wrong with `spec`; [`Error::Sealed`] for facts that no message
    /// can be bound to.
    pub fn new(
        spec: TrainServerSpec,
        facts: TrainFacts,
        key: ControllerKey,
        open: impl FnOnce() -> Result<Box<dyn RoundMemory>, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        hushtable_oram::wire::Context::new(&facts.name, facts.rows, facts.shape, 0, 0)?;
        let (settings, network) = Settings::check(spec, facts.shape)?;
        Ok(Self { network, settings, facts, key, open: Box::new(open) })
    }

    /// A server of the controller at `place`, which is opened after the ports are taken; `progress`
    /// is told the work done and all of it meanwhile.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`Error::Controller`], [`Error::KeyFile`] for what can be seen of
    /// the controller without opening it.
    pub fn of_controller(
        spec: TrainServerSpec,
        place: ControllerPlace,
        mut progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<Self, Error> {
        let facts = facts_of(&place.spec()?)?;
        let key = MasterKey::read(&place.key)?.controller_key();
        Self::new(spec, facts, key, move || {
            let controller = place.open(&mut progress)?;
            Ok(Box::new(OramMemory::new(place, controller)) as Box<dyn RoundMemory>)
        })
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        self.unbound().bind().await
    }

    /// Serves until SIGTERM or SIGINT on a runtime of its own; `on_bound` is told the addresses
    /// before the memory is opened. A round that is open then is abandoned.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        self.unbound().run_blocking(on_bound)
    }

    fn unbound(self) -> Unbound {
        let Self { network, settings, facts, key, open } = self;
        let load = move |loading: &Loading| {
            let memory = open()?;
            let metrics = &loading.metrics;
            let row_bytes = 4 * facts.shape.dim() as u64;
            metrics.describe_trained(facts.rows, facts.rows * row_bytes);
            tracing::info!(
                table = facts.name,
                rows = facts.rows,
                dim = facts.shape.dim(),
                slots = facts.shape.slots(),
                users_max = facts.users_max,
                epsilon = facts.epsilon,
                public_key = %key.public(),
                operator_token = settings.operator_token.is_some(),
                rounds = memory.rounds(),
                "opened the memory"
            );
            let message_bytes_max = settings.message_bytes_max;
            let host = Host::new(facts, key, memory, metrics.train.clone());
            let service = TrainService::new(host, settings);
            let grpc = FederatedTrainingServer::from_arc(Arc::clone(&service))
                .max_decoding_message_size(message_bytes_max);
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        };
        Unbound { network, scheme: Scheme::Train, load: Box::new(load) }
    }
}
