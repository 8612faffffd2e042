//! A server of predictions on shares: opens the model and its plan, offers `SharedInference`.

use std::sync::Arc;
use std::sync::atomic::AtomicUsize;

use hushtable_infer::shares::DealtBy;
use hushtable_infer::shares::joint::Stock;
use hushtable_pir::Threads;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::driver::Inferences;
use super::link::{Link, Reach};
use super::metrics::SharesMetrics;
use super::model::SharedModel;
use super::refill::Refill;
use super::service::{SharesService, Working, spawn};
use super::spec::{PeerError, Settings};
use super::{SERVICE, SharesInfo, SharesServerSpec};
use crate::host::Unbound;
use crate::host::door::{Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{Loading, Scheme};
use crate::vital::Vitals;
use crate::wire::shared_inference_server::SharedInferenceServer;
use crate::{BoundServer, Error};

/// A checked server of predictions on shares that has not started yet.
pub struct SharesServer {
    network: Network,
    settings: Settings,
    model: Arc<SharedModel>,
}

impl SharesServer {
    /// Opens the model and its plan that `spec` names, and checks the rest against them.
    ///
    /// # Errors
    /// [`Error::Model`] for a model or plan that is not usable, [`Error::SeveralPlans`] where the spec
    /// names none of several; [`hushtable_infer::shares::Error`] for a plan that the model's weights do not fit; [`PeerError`](crate::PeerError) for
    /// how the servers are to meet; [`Error::Exposed`], [`Error::Setting`], [`Error::Pem`], [`Error::Tls`] for what
    /// else is wrong with `spec`.
    pub fn open(spec: SharesServerSpec) -> Result<Self, Error> {
        let threads = Threads::new(spec.threads)?;
        let model =
            SharedModel::open(&spec.model, spec.plan.as_deref(), spec.side, spec.dealer, &threads)?;
        let (settings, network) = Settings::check(spec, &model.info)?;
        Ok(Self { network, settings, model: Arc::new(model) })
    }

    /// What it will announce.
    pub fn info(&self) -> &SharesInfo {
        &self.model.info
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        self.unbound().bind().await
    }

    /// Serves until SIGTERM or SIGINT on a runtime of its own; `on_bound` is told the addresses before it is ready.
    /// Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        self.unbound().run_blocking(on_bound)
    }

    fn unbound(self) -> Unbound {
        let Self { network, settings, model } = self;
        let metrics = SharesMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let side = settings.spec.side.name();
        let load = move |loading: &Loading| offer(&settings, model, metrics, &loading.vitals);
        let (services, load) = (&[SERVICE], Box::new(load));
        Unbound::new(network, Scheme { services, side, register, load })
    }
}

/// Starts what computes and, at left, what calls the other server.
fn offer(
    settings: &Settings,
    model: Arc<SharedModel>,
    metrics: SharesMetrics,
    vitals: &Vitals,
) -> Result<Arc<dyn Routes>, Error> {
    let spec = &settings.spec;
    let (is_met, met) = watch::channel(false);
    let inferences = Arc::new(AtomicUsize::new(0));
    let limits = (settings.exchange, spec.batch_inferences_max);
    let refill = refill(spec, &model, &metrics, vitals)?;
    let driver = Inferences::new(
        Arc::clone(&model),
        metrics,
        is_met,
        Arc::clone(&inferences),
        limits,
        refill.clone(),
    );
    let (events, driver) = spawn(driver, vitals)
        .map_err(|source| Error::Io { what: "start a thread that computes".into(), source })?;
    let info = &model.info;
    tracing::info!(
        model = info.name,
        version = %info.version,
        plan = %info.plan,
        side = spec.side.name(),
        dealer = %info.dealer,
        up_bytes = info.up_bytes(),
        peer_bytes = info.outline.peer_bytes(),
        rounds = info.outline.rounds(),
        "computes on shares"
    );
    let link = Arc::new(Link::new(model, settings.exchange, events, inferences, refill.clone()));
    let mut calls = Vec::new();
    if let Some((right, endpoint)) = &settings.peer {
        let runtime = tokio::runtime::Handle::current();
        let (tell, told) = watch::channel(endpoint.clone());
        calls.push(runtime.spawn(right.clone().watch(tell)).abort_handle());
        let reach = || Reach::new(told.clone(), spec.network.insecure);
        calls.push(runtime.spawn(Arc::clone(&link).keep(reach()?)).abort_handle());
        if let Some(refill) = refill {
            // A connection of its own: its megabytes are not to stand before an inference's frames.
            let dealing = Arc::clone(&link).keep_dealing(reach()?, refill);
            calls.push(runtime.spawn(dealing).abort_handle());
        }
    }
    let working = Working { driver, calls };
    let service = SharesService::new(link, settings.peer_name.clone(), met, working);
    let grpc = SharedInferenceServer::from_arc(Arc::clone(&service))
        .max_decoding_message_size(settings.message_bytes_max);
    Ok(Arc::new(Routed { grpc, service }))
}

/// Where the servers deal: what this one has dealt before.
fn refill(
    spec: &SharesServerSpec,
    model: &SharedModel,
    metrics: &SharesMetrics,
    vitals: &Vitals,
) -> Result<Option<Arc<Refill>>, Error> {
    let (DealtBy::Servers, Some(store)) = (spec.dealer, spec.store()) else { return Ok(None) };
    let info = &model.info;
    let stock = Stock::open(&store, info.half, &info.outline)
        .map_err(|error| PeerError::Stock(Box::new(error)))?;
    let pace = (spec.refill_batch, spec.refill_percent);
    let refill = Refill::new(stock, info.half, info.outline.clone(), pace, metrics.clone(), vitals);
    let refill = refill.map_err(|source| Error::Io {
        what: "start a thread that takes precomputes".into(),
        source,
    })?;
    Ok(Some(refill))
}
