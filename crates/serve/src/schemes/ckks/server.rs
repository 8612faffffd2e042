//! A server of encrypted inference: opens the model and its plan, offers `EncryptedInference`.

use std::sync::Arc;
use std::time::Duration;

use hushtable_infer::dlrm::Masks;
use hushtable_pir::Threads;
use prometheus_client::registry::Registry;

use super::answerer::Computing;
use super::engine::Computation;
use super::metrics::CkksMetrics;
use super::service::CkksService;
use super::spec::Settings;
use super::{CkksInfo, CkksServerSpec, SERVICE};
use crate::batch::{QueueLimits, Runner, Scheduler, SchedulerSpec};
use crate::host::Unbound;
use crate::host::door::{Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{Loading, Scheme};
use crate::keys::KeyStore;
use crate::wire::encrypted_inference_server::EncryptedInferenceServer;
use crate::{BoundServer, Error};

/// A checked server of encrypted inference that has not started yet.
pub struct CkksServer {
    network: Network,
    settings: Settings,
    computation: Arc<Computation>,
}

impl CkksServer {
    /// Opens the model and its plan that `spec` names, and checks the rest against them.
    ///
    /// # Errors
    /// [`Error::Model`] for a model or plan that is not usable, [`Error::SeveralPlans`] where the spec
    /// names none of several; [`hushtable_infer::dlrm::Error`] for a plan that cannot be computed by; [`Error::Exposed`],
    /// [`Error::Setting`], [`Error::Pem`], [`Error::Tls`] for what else is wrong with `spec`.
    pub fn open(spec: CkksServerSpec) -> Result<Self, Error> {
        let mut computation = Computation::open(&spec.model, spec.plan.as_deref())?;
        let (settings, network) = Settings::check(spec, &computation.info)?;
        computation.masks = settings.masks;
        Ok(Self { network, settings, computation: Arc::new(computation) })
    }

    /// What it will announce.
    pub fn info(&self) -> &CkksInfo {
        &self.computation.info
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        self.unbound().bind().await
    }

    /// Serves until SIGTERM or SIGINT on a runtime of its own; `on_bound` is told the addresses
    /// before the model is checked. Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        self.unbound().run_blocking(on_bound)
    }

    fn unbound(self) -> Unbound {
        let Self { network, settings, computation } = self;
        let metrics = CkksMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let load = move |loading: &Loading| offer(&settings, computation, &metrics, loading);
        let (services, side, load) = (&[SERVICE], "infer", Box::new(load));
        Unbound::new(network, Scheme { services, side, register, load })
    }
}

/// Checks the model on a query, and puts it behind a scheduler.
fn offer(
    settings: &Settings,
    computation: Arc<Computation>,
    metrics: &CkksMetrics,
    loading: &Loading,
) -> Result<Arc<dyn Routes>, Error> {
    let spec = &settings.spec;
    let threads = Threads::new(spec.threads)?;
    let pass = threads.run(|| computation.check())?;
    let (info, masks) = (&computation.info, computation.masks);
    metrics.describe(&info.name, pass);
    metrics.describe_keys(masks, settings.key_memory_bytes);
    if masks == Masks::Drawn {
        let with_masks = info.terms.key_memory_bytes(Masks::Held)?;
        tracing::info!(
            keys_memory_bytes_max = spec.keys_memory_bytes_max,
            with_masks,
            without = settings.key_memory_bytes,
            "clients' keys are kept without their masks, because one client's would not fit with \
             them: a query takes longer"
        );
    }
    tracing::info!(
        model = info.name,
        version = %info.version,
        plan = %info.plan,
        key_bytes = info.key_bytes(),
        key_memory_bytes = settings.key_memory_bytes,
        masks = masks.name(),
        query_bytes = info.query_bytes(),
        answer_bytes = info.answer_bytes(),
        threads = threads.count(),
        pass_us = pass.as_micros() as u64,
        "checked the model on an encrypted query"
    );
    // A query keeps one thread busy: nothing is gained by waiting for others.
    let limits = QueueLimits {
        window: Duration::ZERO,
        lone_waits: false,
        batch_queries_max: threads.count(),
        queue_queries_max: spec.queue_queries_max,
    };
    let keys = KeyStore::open(Arc::clone(&computation), &settings.keys, metrics.keys.clone())?;
    let passes = SchedulerSpec { limits, pass, metrics: metrics.passes(&info.name) };
    let computing = Computing { computation: Arc::clone(&computation), threads };
    let scheduler =
        Scheduler::start_on(&Runner::start(&loading.vitals)?, Arc::new(computing), passes);
    let service = CkksService::new(computation, keys, scheduler, pass, metrics.displaced.clone());
    let grpc = EncryptedInferenceServer::from_arc(Arc::clone(&service))
        .max_decoding_message_size(settings.message_bytes_max);
    Ok(Arc::new(Routed { grpc, service }))
}
