//! A server that is asked alone: opens the table, prepares and loads it, offers `OnionLookup`.

use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::onion::OnionBackend;
use hushtable_table::Table;
use prometheus_client::registry::Registry;

use super::engine::{self, Checked, Loaded};
use super::keys::KeyStore;
use super::metrics::OnionMetrics;
use super::service::OnionService;
use super::spec::Settings;
use super::{CHUNK_BYTES_MAX, OnionInfo, OnionServerSpec, SERVICE};
use crate::batch::WINDOW_MAX;
use crate::batch::{QueueLimits, Scheduler, SchedulerSpec};
use crate::host::door::{Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{Loading, Scheme};
use crate::host::{SOFTWARE, Unbound};
use crate::wire::onion_lookup_server::OnionLookupServer;
use crate::{BoundServer, Error};

type MakeBackend = Box<dyn FnOnce(&Table) -> Result<Arc<dyn OnionBackend>, Error> + Send>;
type Progress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// A checked server, to be asked alone, that has not started yet.
pub struct OnionServer {
    network: Network,
    settings: Settings,
    table: Table,
    /// Instead of processors.
    make_backend: Option<MakeBackend>,
    progress: Progress,
}

impl OnionServer {
    /// Opens `spec.table` and checks the rest against it. The rows are not read yet.
    ///
    /// # Errors
    /// [`Error::Table`] for a bundle that does not open, [`Error::Exposed`], [`Error::Setting`],
    /// [`Error::ParameterSet`], [`Error::Onion`] for a table that the parameters do not hold,
    /// [`Error::Pem`], [`Error::Tls`] for what else is wrong with `spec`.
    pub fn open(spec: OnionServerSpec) -> Result<Self, Error> {
        let table = Table::open(&spec.table).map_err(|source| Error::Table {
            path: spec.table.clone(),
            source: Box::new(source),
        })?;
        Self::of_table(spec, table)
    }

    /// As [`open`](Self::open), for a table that is open already or in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_table(spec: OnionServerSpec, table: Table) -> Result<Self, Error> {
        let (settings, network) = Settings::check(spec, &table)?;
        Ok(Self { network, settings, table, make_backend: None, progress: Box::new(|_, _| {}) })
    }

    /// Answers from what `make` loads, instead of from processors. It is called once, on a thread
    /// that may block, and what it makes is checked against the table before it serves. Its
    /// geometry must be the one that
    /// [`Geometry::new`](hushtable_pir::onion::Geometry::new) chooses.
    pub fn with_backend(
        mut self,
        make: impl FnOnce(&Table) -> Result<Arc<dyn OnionBackend>, Error> + Send + 'static,
    ) -> Self {
        self.make_backend = Some(Box::new(make));
        self
    }

    /// Tells `progress` the bytes of the table that are prepared, and all of them, while the table
    /// is prepared. It is called from several threads.
    pub fn with_progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        self.unbound().bind().await
    }

    /// Serves until SIGTERM or SIGINT on a runtime of its own; `on_bound` is told the addresses
    /// before the table is loaded. Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        self.unbound().run_blocking(on_bound)
    }

    fn unbound(self) -> Unbound {
        let Self { network, settings, table, make_backend, progress } = self;
        let metrics = OnionMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let load = move |loading: &Loading| {
            let loaded = match make_backend {
                Some(make) => Loaded { backend: make(&table)?, scan: None },
                None => engine::load(&settings, &table, loading, &progress)?,
            };
            offer(settings, &table, loaded, &metrics)
        };
        let (services, side, load) = (&[SERVICE], "single", Box::new(load));
        Unbound { network, scheme: Scheme { services, side, register, load } }
    }
}

/// Checks what was loaded and puts it behind a scheduler.
fn offer(
    settings: Settings,
    table: &Table,
    loaded: Loaded,
    metrics: &OnionMetrics,
) -> Result<Arc<dyn Routes>, Error> {
    let Checked { server, pass } = engine::check_row(&settings, table, loaded.backend)?;
    let keys = KeyStore::open(server.clone(), &settings.keys, metrics.keys.clone())?;
    let Settings { spec, geometry, queries_per_request_max, request_bytes_max, .. } = settings;
    let (shape, backend) = (geometry.shape(), server.backend());
    let metrics = metrics.table(table.name());
    metrics.describe_table(shape.rows(), shape.table_bytes(), pass);

    let scan = loaded.scan.unwrap_or(pass);
    let window = spec.window_us.map_or(scan.min(WINDOW_MAX), Duration::from_micros);
    let limits = QueueLimits {
        window,
        batch_queries_max: spec.batch_queries_max.unwrap_or(backend.batch_queries_best().max(1)),
        queue_queries_max: spec.queue_queries_max,
    };
    tracing::info!(
        table = table.name(),
        version = %table.version(),
        rows = shape.rows(),
        row_bytes = shape.row_bytes(),
        parameters = geometry.set().name(),
        key_bytes = geometry.key_bytes(),
        query_bytes = geometry.query_bytes(),
        response_bytes = geometry.response_bytes(),
        backend = backend.description(),
        scan_us = scan.as_micros() as u64,
        pass_us = pass.as_micros() as u64,
        window_us = window.as_micros() as u64,
        batch_queries_max = limits.batch_queries_max,
        "loaded the table"
    );
    let info = OnionInfo {
        name: table.name().into(),
        version: table.version(),
        shape,
        dim: table.dim(),
        dtype: table.dtype(),
        geometry,
        queries_per_request_max,
        request_bytes_max: request_bytes_max as u64,
        window,
        software: SOFTWARE.into(),
    };
    let spec = SchedulerSpec { limits, pass, metrics: metrics.passes.clone() };
    let scheduler = Scheduler::start(Arc::new(server.clone()), spec)?;
    let service = OnionService::new(server, info, keys, scheduler);
    let message_bytes_max = request_bytes_max.max(CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES);
    let grpc = OnionLookupServer::from_arc(Arc::clone(&service))
        .max_decoding_message_size(message_bytes_max);
    Ok(Arc::new(Routed { grpc, service }))
}

/// What a chunk of keys has around its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 64;
