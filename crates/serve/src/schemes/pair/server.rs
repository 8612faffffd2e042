//! One of two servers: opens the table, loads it, offers `PrivateLookup`.

use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::batch::BatchBackend;
use hushtable_pir::{Backend, Threads};
use hushtable_table::Table;
use hushtable_table::layout::Layout;
use prometheus_client::registry::Registry;

use super::SERVICE;
use super::bags::Bags;
use super::device;
use super::engine::{self, Checked, ModelTable};
use super::inferences::Inferences;
use super::metrics::PairMetrics;
use super::rows::Rows;
use super::service::{Holdings, LookupService};
use super::spec::Settings;
use crate::batch::{QueueLimits, Runner, Scheduler, SchedulerSpec};
use crate::host::admission::Admission;
use crate::host::door::{Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{Loading, Scheme};
use crate::host::{BoundServer, SOFTWARE, Unbound};
use crate::schemes::bundles::{Bundles, HeldTable};
use crate::wire::private_lookup_server::PrivateLookupServer;
use crate::{Error, ServerSpec, TableInfo};

type MakeBatchBackend =
    Box<dyn FnOnce(&Table, &Layout) -> Result<Arc<dyn BatchBackend>, Error> + Send>;
type MakeBackend = Box<dyn FnOnce(&Table) -> Result<Arc<dyn Backend>, Error> + Send>;

/// A checked server that has not started yet.
pub struct Server {
    network: Network,
    settings: Settings,
    bundles: Bundles,
    make_backend: Option<MakeBackend>,
    make_batch_backend: Option<MakeBatchBackend>,
}

impl Server {
    /// Opens the bundles that `spec` names and checks the rest against them. The rows are not read
    /// yet.
    ///
    /// # Errors
    /// [`Error::Table`] for a bundle that does not open; [`Error::Model`], [`Error::ModelTable`],
    /// [`Error::ModelTwice`] for a model's; [`Error::TablesBudget`] for tables that take more memory
    /// than they may; [`Error::Exposed`], [`Error::Setting`], [`Error::PrgName`], [`Error::Pem`],
    /// [`Error::Tls`] for what else is wrong with `spec`.
    pub fn open(spec: ServerSpec) -> Result<Self, Error> {
        let bundles = Bundles::open(std::iter::once(&spec.table).chain(&spec.tables))?;
        Self::of_bundles(spec, bundles)
    }

    /// As [`open`](Self::open), for one table that is open already or in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_table(spec: ServerSpec, table: Table) -> Result<Self, Error> {
        Self::of_bundles(spec, Bundles::of_table(table))
    }

    fn of_bundles(spec: ServerSpec, bundles: Bundles) -> Result<Self, Error> {
        let (settings, network) = Settings::check(spec, &bundles)?;
        Ok(Self { network, settings, bundles, make_backend: None, make_batch_backend: None })
    }

    /// Answers from what `make` loads, instead of from processors. It is called once, on a thread
    /// that may block, and what it makes is checked against the table before it serves. A server of
    /// several tables answers the first of them so.
    pub fn with_backend(
        mut self,
        make: impl FnOnce(&Table) -> Result<Arc<dyn Backend>, Error> + Send + 'static,
    ) -> Self {
        self.make_backend = Some(Box::new(make));
        self
    }

    /// As [`with_backend`](Self::with_backend), for the bins of the table's layout. Not called where
    /// no table has one.
    pub fn with_batch_backend(
        mut self,
        make: impl FnOnce(&Table, &Layout) -> Result<Arc<dyn BatchBackend>, Error> + Send + 'static,
    ) -> Self {
        self.make_batch_backend = Some(Box::new(make));
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
        let Self { network, settings, bundles, make_backend, make_batch_backend } = self;
        let side = settings.spec.side;
        let metrics = PairMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let load = move |loading: &Loading| {
            let threads = Threads::new(settings.spec.threads)?;
            let mut house = House {
                runner: Runner::start()?,
                threads,
                settings: &settings,
                bundles: &bundles,
                metrics: &metrics,
                holdings: Holdings::default(),
                windows: Vec::new(),
                make_backend,
                make_batch_backend,
            };
            for index in 0..bundles.tables.len() {
                house.hold_table(index)?;
            }
            for index in 0..bundles.models.len() {
                house.hold_model(index)?;
            }
            // Loaded once, so said once.
            let _ = loading.engine.set(house.describe());
            let window = house.windows.iter().copied().min().unwrap_or_default();
            let service = LookupService::new(house.holdings, Admission::new(window));
            let grpc = PrivateLookupServer::from_arc(Arc::clone(&service))
                .max_decoding_message_size(settings.request_bytes_max);
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        };
        let (services, side, load) = (&[SERVICE], side.name(), Box::new(load));
        Unbound { network, scheme: Scheme { services, side, register, load } }
    }
}

/// A server's tables and models as they are loaded, one after the other.
struct House<'a> {
    /// One thread for all passes, and one set of threads for the work in them.
    runner: Runner,
    threads: Threads,
    settings: &'a Settings,
    bundles: &'a Bundles,
    metrics: &'a PairMetrics,
    holdings: Holdings,
    windows: Vec<Duration>,
    make_backend: Option<MakeBackend>,
    make_batch_backend: Option<MakeBatchBackend>,
}

impl House<'_> {
    fn window(&mut self, scan: Duration) -> Duration {
        let window = self.settings.spec.window_us.map_or(scan, Duration::from_micros);
        self.windows.push(window);
        window
    }

    /// Loads a table and its layout's bins, unless they are held under another name already.
    fn hold_table(&mut self, index: usize) -> Result<(), Error> {
        let (bundles, settings) = (self.bundles, self.settings);
        let HeldTable { table, name, .. } = &bundles.tables[index];
        if bundles.is_first_of_version(index) {
            self.load_rows(index)?;
        }
        let layout = match table.layout() {
            None => None,
            Some(layout) => {
                if bundles.is_first_of_layout(index) {
                    self.load_bins(table, name, layout)?;
                }
                let version = layout.version();
                self.holdings.bags.iter().find(|bags| bags.version() == version).map(Bags::info)
            }
        };
        let version = table.version();
        let rows = self.holdings.rows.iter().find(|rows| rows.version() == version);
        if let Some(rows) = rows {
            let name = name.clone();
            let request_bytes_max = settings.tables[index].request_bytes_max as u64;
            let info = TableInfo { name, layout, request_bytes_max, ..rows.info().clone() };
            self.holdings.infos.push((&info).into());
        }
        Ok(())
    }

    fn load_rows(&mut self, index: usize) -> Result<(), Error> {
        let (bundles, settings) = (self.bundles, self.settings);
        let HeldTable { table, name, .. } = &bundles.tables[index];
        let spec = &settings.spec;
        let backend = match self.make_backend.take() {
            Some(make) => make(table)?,
            None => device::load(spec, &self.threads, table)?,
        };
        let Checked { server, scan } = engine::check_rows(spec.side, table, backend)?;
        let metrics = self.metrics.table(name);
        let shape = server.backend().shape();
        metrics.describe_table(shape.rows(), shape.table_bytes(), scan);
        let description = server.backend().description();
        metrics.describe_engine(description.clone());
        let window = self.window(scan);
        let best = server.backend().batch_keys_best().max(1);
        let limits = QueueLimits {
            window,
            lone_waits: spec.window_us.is_some(),
            batch_queries_max: spec.batch_keys_max.unwrap_or(best),
            queue_queries_max: spec.queue_keys_max,
        };
        tracing::info!(
            side = %spec.side,
            table = name,
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
            name: name.clone(),
            version: table.version(),
            shape,
            dim: table.dim(),
            dtype: table.dtype(),
            side: spec.side,
            keys_per_request_max: settings.tables[index].keys_per_request_max,
            request_bytes_max: settings.tables[index].request_bytes_max as u64,
            prgs: settings.prgs.clone(),
            groups: server.backend().groups().to_vec(),
            window,
            software: SOFTWARE.into(),
            layout: None,
        };
        let spec = SchedulerSpec { limits, pass: scan, metrics: metrics.passes };
        let scheduler = Scheduler::start_on(&self.runner, Arc::new(server.clone()), spec);
        self.holdings.rows.push(Rows::new(server, info, scheduler));
        Ok(())
    }

    /// Puts a layout's bins behind a scheduler with the same rules as the table's.
    fn load_bins(&mut self, table: &Table, name: &str, layout: &Layout) -> Result<(), Error> {
        let spec = &self.settings.spec;
        let backend = match self.make_batch_backend.take() {
            Some(make) => make(table, layout)?,
            None => device::load_batch(spec, &self.threads, table, layout)?,
        };
        let Checked { server, scan } = engine::check_bins(spec.side, table, layout, backend)?;
        let metrics = self.metrics.table(name);
        let costs = server.backend().geometry().costs(layout);
        metrics.describe_layout(costs.keys, costs.stored_bytes, scan);
        let window = self.window(scan);
        let best = server.backend().batch_requests_best().max(1);
        let limits = QueueLimits {
            window,
            lone_waits: spec.window_us.is_some(),
            batch_queries_max: spec.batch_bags_max.unwrap_or(best),
            queue_queries_max: spec.queue_bags_max,
        };
        tracing::info!(
            table = name,
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
        let spec = SchedulerSpec { limits, pass: scan, metrics: metrics.bag_passes };
        let scheduler = Scheduler::start_on(&self.runner, Arc::new(server.clone()), spec);
        let bags = Bags::new(server, layout, self.settings.prgs.clone(), window, scheduler);
        self.holdings.bags.push(bags);
        Ok(())
    }

    /// Puts a model's tables, which are loaded, behind one scheduler more.
    fn hold_model(&mut self, index: usize) -> Result<(), Error> {
        let (bundles, settings) = (self.bundles, self.settings);
        let (model, spec) = (&bundles.models[index], &settings.spec);
        let mut tables = Vec::with_capacity(model.tables.len());
        for &held in &model.tables {
            let table = &bundles.tables[held].table;
            let rows = self.holdings.rows.iter().find(|rows| rows.version() == table.version());
            let Some(rows) = rows.map(|rows| rows.server().clone()) else { continue };
            let layout = table.layout().map(|layout| layout.version());
            let bins = self.holdings.bags.iter().find(|bags| Some(bags.version()) == layout);
            let bins = bins.map(|bags| bags.server().clone());
            tables.push(ModelTable { table, rows, bins });
        }
        let manifest = &model.manifest;
        let Checked { server, scan } =
            engine::check_model(spec.side, manifest, &tables, &self.threads)?;
        let window = self.window(scan);
        let limits = QueueLimits {
            window,
            lone_waits: spec.window_us.is_some(),
            batch_queries_max: spec.batch_bags_max.unwrap_or(server.batch_best()),
            queue_queries_max: spec.queue_bags_max,
        };
        tracing::info!(
            model = manifest.name(),
            version = %manifest.version(),
            features = manifest.features().len(),
            tables = tables.len(),
            read_bytes = server.read_bytes(),
            answer_bytes = server.answer_bytes(),
            scan_us = scan.as_micros() as u64,
            window_us = window.as_micros() as u64,
            batch_bags_max = limits.batch_queries_max,
            "loaded the model"
        );
        let metrics = self.metrics.model(manifest.name());
        let spec = SchedulerSpec { limits, pass: scan, metrics };
        let scheduler = Scheduler::start_on(&self.runner, Arc::new(server.clone()), spec);
        let (prgs, bytes_max) = (settings.prgs.clone(), settings.model_request_bytes_max[index]);
        let manifest = manifest.clone();
        let inferences = Inferences::new(server, manifest, prgs, window, bytes_max, scheduler);
        self.holdings.models.push(inferences);
        Ok(())
    }

    /// What answers, in a line: of several tables what answers the first.
    fn describe(&self) -> String {
        let first = self.holdings.rows.first().map(|rows| rows.server().backend().description());
        match (first, self.bundles.versions()) {
            (Some(first), 0 | 1) => first,
            (Some(first), tables) => format!("{first}, and {} tables more", tables - 1),
            (None, _) => String::new(),
        }
    }
}
