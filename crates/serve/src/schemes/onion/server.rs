//! A server that is asked alone: opens the table, prepares and loads it, offers `OnionLookup`.

use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::Threads;
use hushtable_pir::onion::OnionBackend;
use hushtable_table::Table;
use prometheus_client::registry::Registry;

use super::engine::{self, Checked, Loaded};
use super::metrics::OnionMetrics;
use super::service::{Depths, HeldModel, HeldTable, Holdings, OnionService};
use super::spec::{Settings, TableLimits};
use super::{CHUNK_BYTES_MAX, OnionInfo, OnionServerSpec, SERVICE};
use crate::batch::WINDOW_MAX;
use crate::batch::{QueueLimits, Runner, Scheduler, SchedulerSpec};
use crate::host::door::{Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{Loading, Scheme};
use crate::host::{SOFTWARE, Unbound};
use crate::keys::KeyStore;
use crate::peer::values::microseconds;
use crate::schemes::bundles::Bundles;
use crate::wire::onion_lookup_server::OnionLookupServer;
use crate::wire::{ModelInfo, OnionInfoReply};
use crate::{BoundServer, Error};

type MakeBackend = Box<dyn FnOnce(&Table) -> Result<Arc<dyn OnionBackend>, Error> + Send>;
type Progress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// A checked server, to be asked alone, that has not started yet.
pub struct OnionServer {
    network: Network,
    settings: Settings,
    bundles: Bundles,
    /// Instead of processors.
    make_backend: Option<MakeBackend>,
    progress: Progress,
}

impl OnionServer {
    /// Opens the bundles that `spec` names and checks the rest against them. The rows are not read
    /// yet.
    ///
    /// # Errors
    /// [`Error::Table`] for a bundle that does not open; [`Error::Model`], [`Error::ModelTable`],
    /// [`Error::ModelTwice`] for a model's; [`Error::TablesBudget`]; [`Error::Exposed`], [`Error::Setting`],
    /// [`Error::ParameterSet`], [`Error::Onion`] for a table that the parameters do not hold,
    /// [`Error::Pem`], [`Error::Tls`] for what else is wrong with `spec`.
    pub fn open(spec: OnionServerSpec) -> Result<Self, Error> {
        let bundles = Bundles::open(std::iter::once(&spec.table).chain(&spec.tables))?;
        Self::of_bundles(spec, bundles)
    }

    /// As [`open`](Self::open), for one table that is open already or in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_table(spec: OnionServerSpec, table: Table) -> Result<Self, Error> {
        Self::of_bundles(spec, Bundles::of_table(table))
    }

    fn of_bundles(spec: OnionServerSpec, bundles: Bundles) -> Result<Self, Error> {
        let (settings, network) = Settings::check(spec, &bundles)?;
        Ok(Self { network, settings, bundles, make_backend: None, progress: Box::new(|_, _| {}) })
    }

    /// Answers from what `make` loads, instead of from processors. It is called once, on a thread
    /// that may block, and what it makes is checked against the table before it serves. Its
    /// geometry must be the one that
    /// [`Geometry::new`](hushtable_pir::onion::Geometry::new) chooses. A server of several tables
    /// answers the first of them so.
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
        let Self { network, settings, bundles, mut make_backend, progress } = self;
        let metrics = OnionMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let load = move |loading: &Loading| {
            let threads = Threads::new(settings.spec.threads)?;
            let mut house = House {
                settings: &settings,
                bundles: &bundles,
                metrics: &metrics,
                runner: Runner::start()?,
                tables: Vec::new(),
                infos: Vec::new(),
            };
            for (index, held) in bundles.tables.iter().enumerate() {
                if !bundles.is_first_of_version(index) {
                    house.name_again(index);
                    continue;
                }
                let geometry = &settings.tables[index].geometry;
                let first = settings.spec.prepared.as_deref().filter(|_| index == 0);
                let prepared = first.or(held.prepared.as_deref());
                let loaded = match make_backend.take() {
                    Some(make) => Loaded { backend: make(&held.table)?, scan: None },
                    None => {
                        let table = &held.table;
                        let (settings, progress) = (&settings, &*progress);
                        engine::load(
                            settings, geometry, &threads, table, prepared, loading, progress,
                        )?
                    }
                };
                house.hold(index, loaded)?;
            }
            house.offer()
        };
        let (services, side, load) = (&[SERVICE], "single", Box::new(load));
        Unbound::new(network, Scheme { services, side, register, load })
    }
}

/// A server's tables as they are loaded, one after the other.
struct House<'a> {
    settings: &'a Settings,
    bundles: &'a Bundles,
    metrics: &'a OnionMetrics,
    /// One thread for all passes.
    runner: Runner,
    tables: Vec<HeldTable>,
    infos: Vec<OnionInfoReply>,
}

impl House<'_> {
    /// Checks what was loaded and puts it behind a scheduler.
    fn hold(&mut self, index: usize, loaded: Loaded) -> Result<(), Error> {
        let (bundles, spec) = (self.bundles, &self.settings.spec);
        let (table, name) = (&bundles.tables[index].table, &bundles.tables[index].name);
        let TableLimits { geometry, queries_per_request_max, request_bytes_max } =
            self.settings.tables[index].clone();
        let Checked { server, pass } = engine::check_row(&geometry, table, loaded.backend)?;
        let (shape, backend) = (geometry.shape(), server.backend());
        let metrics = self.metrics.table(name);
        metrics.describe_table(shape.rows(), shape.table_bytes(), pass);

        let scan = loaded.scan.unwrap_or(pass);
        let window = spec.window_us.map_or(scan.min(WINDOW_MAX), Duration::from_micros);
        let best = backend.batch_queries_best().max(1);
        let limits = QueueLimits {
            window,
            lone_waits: spec.window_us.is_some(),
            batch_queries_max: spec.batch_queries_max.unwrap_or(best),
            queue_queries_max: spec.queue_queries_max,
        };
        tracing::info!(
            table = name,
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
            name: name.clone(),
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
        self.infos.push((&info).into());
        let spec = SchedulerSpec { limits, pass, metrics: metrics.passes.clone() };
        let scheduler = Scheduler::start_on(&self.runner, Arc::new(server.clone()), spec);
        self.tables.push(HeldTable::new(server, info, scheduler));
        Ok(())
    }

    /// The place of a table's rows among those that are loaded.
    fn place(&self, index: usize) -> Option<usize> {
        let version = self.bundles.tables[index].table.version();
        self.tables.iter().position(|table| table.version() == version)
    }

    /// Says of a table that is held already what it is called by another bundle.
    fn name_again(&mut self, index: usize) {
        let name = self.bundles.tables[index].name.clone();
        let held = self.place(index).map(|place| OnionInfoReply::from(self.tables[place].info()));
        let is_new = |info: &OnionInfoReply| {
            self.infos.iter().all(|other| (&other.name, &other.version) != (&name, &info.version))
        };
        if let Some(info) = held.filter(is_new) {
            self.infos.push(OnionInfoReply { name, ..info });
        }
    }

    fn offer(self) -> Result<Arc<dyn Routes>, Error> {
        let mut models = Vec::with_capacity(self.bundles.models.len());
        let models_and_bytes =
            self.bundles.models.iter().zip(&self.settings.model_request_bytes_max);
        for (model, &request_bytes_max) in models_and_bytes {
            let manifest = model.manifest.clone();
            let places = manifest.features().iter().map(|it| self.place(model.tables[it.table]));
            let tables: Vec<usize> = places.flatten().collect();
            let windows = tables.iter().map(|&table| self.tables[table].info().window);
            let info = ModelInfo {
                name: manifest.name().to_owned(),
                versions: vec![manifest.version().as_bytes().to_vec().into()],
                manifest: manifest.to_json().into(),
                window_us: microseconds(windows.max().unwrap_or_default()),
                request_bytes_max: request_bytes_max as u64,
            };
            tracing::info!(
                model = manifest.name(),
                version = %manifest.version(),
                features = manifest.features().len(),
                "loaded the model"
            );
            models.push(HeldModel { manifest, tables, info });
        }
        let depths = self.tables.iter().map(|table| table.info().geometry.clone()).collect();
        let metrics = self.metrics.keys.clone();
        let keys = KeyStore::open(Depths(depths), &self.settings.keys, metrics)?;
        let deepest = self.settings.deepest.clone();
        let Self { settings, tables, infos, .. } = self;
        let service = OnionService::new(Holdings { tables, models, infos, deepest, keys });
        let message_bytes_max =
            settings.request_bytes_max.max(CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES);
        let grpc = OnionLookupServer::from_arc(Arc::clone(&service))
            .max_decoding_message_size(message_bytes_max);
        Ok(Arc::new(Routed { grpc, service }))
    }
}

/// What a chunk of keys has around its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 64;
