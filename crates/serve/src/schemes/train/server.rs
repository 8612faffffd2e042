//! A training server: opens the controller, offers `FederatedTraining`.

use std::sync::Arc;

use hushtable_oram::wire::{ControllerKey, Pin, Terms};
use prometheus_client::registry::Registry;

use super::audit::Audit;
use super::host::Host;
use super::metrics::TrainMetrics;
use super::seats::Seats;
use super::service::TrainService;
use super::spec::Settings;
use super::{ControllerPlace, OramMemory, RoundMemory, SERVICE, TrainServerSpec};
use crate::host::Unbound;
use crate::host::door::{Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{Loading, Scheme};
use crate::wire::federated_training_server::FederatedTrainingServer;
use crate::{BoundServer, Error};

type Open = Box<dyn FnOnce() -> Result<Box<dyn RoundMemory>, Error> + Send>;

/// A checked training server that has not started yet.
pub struct TrainServer {
    network: Network,
    settings: Settings,
    terms: Terms,
    key: ControllerKey,
    audit: Option<Audit>,
    open: Open,
}

impl TrainServer {
    /// A server of what `terms` describe. `open` opens the memory, which may take minutes; it is
    /// called once, on a thread that may block, after the ports are taken.
    ///
    /// # Errors
    /// [`Error::Exposed`], [`Error::Setting`], [`Error::Pem`], [`Error::Tls`], [`Error::Io`],
    /// [`Error::Token`] for what is wrong with `spec`; [`TrainError`](crate::TrainError) for
    /// an address that other machines reach, where `spec` does not allow that everyone takes part,
    /// or opens and ends rounds.
    pub fn new(
        spec: TrainServerSpec,
        terms: Terms,
        key: ControllerKey,
        open: impl FnOnce() -> Result<Box<dyn RoundMemory>, Error> + Send + 'static,
    ) -> Result<Self, Error> {
        let (settings, network) = Settings::check(spec, &terms)?;
        let audit = settings.audit_log.as_ref().map(|path| Audit::open(path, &key)).transpose()?;
        Ok(Self { network, settings, terms, key, audit, open: Box::new(open) })
    }

    /// A server of the controller at `place`, which is opened after the ports are taken; `progress`
    /// is told the work done and all of it meanwhile.
    ///
    /// # Errors
    /// As [`new`](Self::new), and [`hushtable_oram::round::Error`], [`TrainError::KeyFile`](crate::TrainError::KeyFile) for what can be seen of
    /// the controller without opening it.
    pub fn of_controller(
        spec: TrainServerSpec,
        place: ControllerPlace,
        mut progress: impl FnMut(u64, u64) + Send + 'static,
    ) -> Result<Self, Error> {
        let terms = place.terms()?;
        let key = place.master_key()?.controller_key();
        Self::new(spec, terms.clone(), key, move || {
            Ok(Box::new(OramMemory::open(place, terms, &mut progress)?) as Box<dyn RoundMemory>)
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
        let Self { network, settings, terms, key, audit, open } = self;
        let metrics = TrainMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let load = move |_: &Loading| {
            let memory = open()?;
            let (rows, shape) = (terms.rows(), terms.shape());
            metrics.describe_table(terms.table(), rows, rows * 4 * shape.dim() as u64);
            tracing::info!(
                table = terms.table(),
                rows,
                dim = shape.dim(),
                slots = shape.slots(),
                users_max = terms.spec().users_max,
                epsilon = terms.spec().fdp.epsilon,
                pin = %Pin::new(key.public(), &terms),
                enrolled = terms.authority().is_some(),
                operator_token = settings.operator_token.is_some(),
                rounds = memory.rounds(),
                audited = audit.is_some(),
                "opened the memory"
            );
            let message_bytes_max = settings.message_bytes_max;
            let seats = Seats::new(settings.rows_cache_bytes_max);
            let host = Host::new(terms, key, memory, metrics, seats, audit);
            host.watch();
            let service = TrainService::new(host, settings);
            let grpc = FederatedTrainingServer::from_arc(Arc::clone(&service))
                .max_decoding_message_size(message_bytes_max);
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        };
        let (services, side, load) = (&[SERVICE], "controller", Box::new(load));
        Unbound::new(network, Scheme { services, side, register, load })
    }
}
