//! A server of hybrid inference: opens the model and its plan, offers `HybridInference`.

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;

use super::HybridError;
use super::keep::Keep;
use super::metrics::HybridMetrics;
use super::model::HybridNetwork;
use super::precomputes::Precomputes;
use super::service::{HybridService, Room};
use super::spec::{MESSAGE_BYTES_MAX, Settings};
use super::{HybridInfo, HybridServerSpec, SERVICE};
use crate::host::Unbound;
use crate::host::door::{Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{Loading, Scheme};
use crate::wire::hybrid_inference_server::HybridInferenceServer;
use crate::{BoundServer, Error};

/// A checked server of hybrid inference that has not started yet.
pub struct HybridServer {
    network: Network,
    settings: Settings,
    served: HybridNetwork,
    info: HybridInfo,
}

impl HybridServer {
    /// Opens the model and its plan that `spec` names, and checks the rest.
    ///
    /// # Errors
    /// [`Error::Model`] for a model or plan that is not usable, [`Error::SeveralPlans`] where the spec
    /// names none of several, [`Error::PlanScheme`] for a plan of another scheme; [`hushtable_infer::hybrid::Error`] for a
    /// plan that cannot be computed by; [`Error::Exposed`], [`Error::Setting`], [`HybridError::NoGarbler`](crate::HybridError::NoGarbler),
    /// [`Error::Pem`], [`Error::Tls`] for what else is wrong with `spec`.
    pub fn open(spec: HybridServerSpec) -> Result<Self, Error> {
        let (settings, network) = Settings::check(spec)?;
        let spec = &settings.spec;
        let served = HybridNetwork::open(&spec.model, spec.plan.as_deref())?;
        let info = served.info(spec.client_garbles, spec.server_garbles);
        Ok(Self { network, settings, served, info })
    }

    /// What it will announce.
    pub fn info(&self) -> &HybridInfo {
        &self.info
    }

    /// What follows from it: circuits, packing, sizes.
    pub fn outline(&self) -> &hushtable_infer::hybrid::Outline {
        self.served.model().outline()
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        self.unbound().bind().await
    }

    /// Serves until SIGTERM or SIGINT on a runtime of its own; `on_bound` is told the addresses before
    /// precomputes are looked for. Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        self.unbound().run_blocking(on_bound)
    }

    fn unbound(self) -> Unbound {
        let Self { network, settings, served, info } = self;
        let metrics = HybridMetrics::new();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let load = move |_: &Loading| offer(&settings, served, info, metrics);
        let (services, side, load) = (&[SERVICE], "hybrid", Box::new(load));
        Unbound::new(network, Scheme { services, side, register, load })
    }
}

/// Opens what is kept of precomputes, and offers the rest.
fn offer(
    settings: &Settings,
    served: HybridNetwork,
    info: HybridInfo,
    metrics: HybridMetrics,
) -> Result<Arc<dyn Routes>, Error> {
    let spec = &settings.spec;
    let store = spec.precompute_store();
    let keep = Keep::open(store.as_ref(), spec.store_bytes_max).map_err(HybridError::of_keep)?;
    let model = Arc::clone(served.model());
    let idle_max = Duration::from_millis(spec.precompute_idle_ms_max);
    let plan = *info.plan.as_bytes();
    let age_max = Duration::from_secs(3600 * spec.precompute_hours_max);
    let limits = [idle_max, age_max];
    let (places, per_day) = (spec.precomputes_max as u64, spec.precomputes_per_client_per_day);
    let amounts = [places, spec.store_bytes_max, per_day];
    let precomputes = Precomputes::new(
        Arc::clone(&model),
        plan,
        keep,
        amounts,
        limits,
        metrics.displaced.clone(),
    );
    let dropped = precomputes.drop_others().map_err(HybridError::of_keep)?;
    metrics.describe(&precomputes);
    let steps = match spec.threads {
        0 => std::thread::available_parallelism().map_or(1, usize::from),
        threads => threads,
    };
    tracing::info!(
        model = info.name,
        version = %info.version,
        plan = %info.plan,
        steps,
        kept = precomputes.count().precomputes,
        of_other_plans = dropped,
        "opened the network"
    );
    let pause_max = Duration::from_millis(spec.network.request_ms_max).min(PAUSE_MAX);
    let room = Room { steps, predictions: spec.predictions_max, pause_max };
    let service = HybridService::new(model, info, precomputes, metrics, room);
    let grpc = HybridInferenceServer::from_arc(Arc::clone(&service))
        .max_decoding_message_size(MESSAGE_BYTES_MAX);
    Ok(Arc::new(Routed { grpc, service }))
}

/// A client of a prediction that says nothing for so long has gone, or holds others up.
const PAUSE_MAX: Duration = Duration::from_secs(60);
