//! One of two servers: opens the table, loads it, offers `PrivateLookup`.

use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::Backend;
use hushtable_pir::batch::BatchBackend;
use hushtable_table::Table;
use hushtable_table::layout::Layout;
use prometheus_client::registry::Registry;

use super::SERVICE;
use super::bags::Bags;
use super::device;
use super::engine::{self, Bins, Engine};
use super::metrics::{PairMetrics, PairTableMetrics};
use super::service::LookupService;
use super::spec::Settings;
use crate::batch::{QueueLimits, Scheduler, SchedulerSpec};
use crate::host::door::{Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{Loading, Scheme};
use crate::host::{BoundServer, SOFTWARE, Unbound};
use crate::wire::private_lookup_server::PrivateLookupServer;
use crate::{Error, ServerSpec, TableInfo};

type MakeBatchBackend =
    Box<dyn FnOnce(&Table, &Layout) -> Result<Arc<dyn BatchBackend>, Error> + Send>;
type MakeBackend = Box<dyn FnOnce(&Table) -> Result<Arc<dyn Backend>, Error> + Send>;

/// A checked server that has not started yet.
pub struct Server {
    network: Network,
    settings: Settings,
    table: Table,
    make_backend: MakeBackend,
    make_batch_backend: MakeBatchBackend,
}

impl Server {
    /// Opens `spec.table` and checks the rest against it. The rows are not read yet.
    ///
    /// # Errors
    /// [`Error::Table`] for a bundle that does not open, [`Error::Exposed`], [`Error::Setting`],
    /// [`Error::PrgName`], [`Error::Pem`], [`Error::Tls`] for what else is wrong with `spec`.
    pub fn open(spec: ServerSpec) -> Result<Self, Error> {
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
    pub fn of_table(spec: ServerSpec, table: Table) -> Result<Self, Error> {
        let engine_spec = spec.clone();
        let batch_spec = spec.clone();
        let (settings, network) = Settings::check(spec, &table)?;
        let make_backend: MakeBackend = Box::new(move |table| device::load(&engine_spec, table));
        let make_batch_backend: MakeBatchBackend =
            Box::new(move |table, layout| engine::load_batch(&batch_spec, table, layout));
        Ok(Self { network, settings, table, make_backend, make_batch_backend })
    }

    /// Answers from what `make` loads, instead of from processors. It is called once, on a thread
    /// that may block, and what it makes is checked against the table before it serves.
    pub fn with_backend(
        mut self,
        make: impl FnOnce(&Table) -> Result<Arc<dyn Backend>, Error> + Send + 'static,
    ) -> Self {
        self.make_backend = Box::new(make);
        self
    }

    /// As [`with_backend`](Self::with_backend), for the bins of the table's layout. Not called where
    /// the table has none.
    pub fn with_batch_backend(
        mut self,
        make: impl FnOnce(&Table, &Layout) -> Result<Arc<dyn BatchBackend>, Error> + Send + 'static,
    ) -> Self {
        self.make_batch_backend = Box::new(make);
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
        let Self { network, settings, table, make_backend, make_batch_backend } = self;
        let side = settings.spec.side;
        let metrics = PairMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let load = move |loading: &Loading| {
            let metrics = metrics.table(table.name());
            let backend = make_backend(&table)?;
            let Engine { server, scan } = engine::check(side, &table, backend)?;
            let bags = match table.layout() {
                Some(layout) => {
                    let backend = make_batch_backend(&table, layout)?;
                    let bins = engine::check_batch(side, &table, layout, backend)?;
                    Some(start_bags(&settings, bins, layout, &metrics)?)
                }
                None => None,
            };
            let shape = server.backend().shape();
            metrics.describe_table(shape.rows(), shape.table_bytes(), scan);
            let description = server.backend().description();
            metrics.describe_engine(description.clone());

            let window = settings.spec.window_us.map_or(scan, Duration::from_micros);
            let best = server.backend().batch_keys_best().max(1);
            let limits = QueueLimits {
                window,
                batch_queries_max: settings.spec.batch_keys_max.unwrap_or(best),
                queue_queries_max: settings.spec.queue_keys_max,
            };
            tracing::info!(
                %side,
                table = table.name(),
                version = %table.version(),
                rows = shape.rows(),
                row_bytes = shape.row_bytes(),
                backend = %description,
                scan_us = scan.as_micros() as u64,
                window_us = window.as_micros() as u64,
                batch_keys_max = limits.batch_queries_max,
                "loaded the table"
            );
            let info = TableInfo {
                name: table.name().into(),
                version: table.version(),
                shape,
                dim: table.dim(),
                dtype: table.dtype(),
                side,
                keys_per_request_max: settings.keys_per_request_max,
                request_bytes_max: settings.request_bytes_max as u64,
                prgs: settings.prgs.clone(),
                groups: server.backend().groups().to_vec(),
                window,
                software: SOFTWARE.into(),
                layout: bags.as_ref().map(Bags::info),
            };
            let spec = SchedulerSpec { limits, pass: scan, metrics: metrics.passes.clone() };
            let scheduler = Scheduler::start(Arc::new(server.clone()), spec)?;
            // Loaded once, so said once.
            let _ = loading.engine.set(description);
            let service = LookupService::new(server, info, scheduler, bags);
            let grpc = PrivateLookupServer::from_arc(Arc::clone(&service))
                .max_decoding_message_size(settings.request_bytes_max);
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        };
        let (services, side, load) = (&[SERVICE], side.name(), Box::new(load));
        Unbound { network, scheme: Scheme { services, side, register, load } }
    }
}

/// Puts a layout's bins behind a scheduler with the same rules as the table's.
fn start_bags(
    settings: &Settings,
    bins: Bins,
    layout: &Layout,
    metrics: &PairTableMetrics,
) -> Result<Bags, Error> {
    let Bins { server, scan } = bins;
    let costs = server.backend().geometry().costs(layout);
    metrics.describe_layout(costs.keys, costs.stored_bytes, scan);
    let window = settings.spec.window_us.map_or(scan, Duration::from_micros);
    let best = server.backend().batch_requests_best().max(1);
    let limits = QueueLimits {
        window,
        batch_queries_max: settings.spec.batch_bags_max.unwrap_or(best),
        queue_queries_max: settings.spec.queue_bags_max,
    };
    tracing::info!(
        version = %layout.version(),
        keys = costs.keys,
        comm_bytes = costs.comm_bytes,
        map_bytes = costs.map_bytes,
        backend = server.backend().description(),
        scan_us = scan.as_micros() as u64,
        window_us = window.as_micros() as u64,
        batch_bags_max = limits.batch_queries_max,
        "loaded the bins of the table's layout"
    );
    let spec = SchedulerSpec { limits, pass: scan, metrics: metrics.bag_passes.clone() };
    let scheduler = Scheduler::start(Arc::new(server.clone()), spec)?;
    Ok(Bags::new(server, layout, settings.prgs.clone(), window, scheduler))
}
