//! Loads what a server holds: at its start, and the next versions beside what it holds then.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hushtable_pir::{CpuEngine, Patched, Platform, Threads};
use hushtable_table::Table;
use hushtable_table::layout::Layout;

use super::bags::Bags;
use super::device;
use super::engine::{self, Checked, ModelTable};
use super::front::Front;
use super::held::{Held, Holdings};
use super::inferences::Inferences;
use super::metrics::PairMetrics;
use super::rows::Rows;
use super::server::{MakeBackend, MakeBatchBackend};
use super::sharded::Sharded;
use super::spec::{Settings, base_of, needed_bytes};
use crate::batch::{Answerer, QueueLimits, Runner, Scheduler, SchedulerSpec};
use crate::endpoint::SOFTWARE;
use crate::host::scheme::Loading;
use crate::host::{Next, ReloadError};
use crate::schemes::bundles::{Bundles, HeldTable};
use crate::schemes::versions::{GENERATIONS_MAX, Keep, Sources, check_room};
use crate::shards::{Fleet, ShardError};
use crate::vital::Vitals;
use crate::{Error, ServerSpec, TableInfo};

/// What loads tables and models, and what they run on.
pub(super) struct Loader {
    spec: ServerSpec,
    keep: Keep,
    /// One thread for all passes, and one set of threads for the work in them, whatever the version.
    runner: Runner,
    /// What is told of panics.
    vitals: Vitals,
    threads: Threads,
    metrics: PairMetrics,
    sources: Mutex<Sources>,
    /// The shards that answer, of a front.
    fleet: Option<Arc<Fleet>>,
}

impl Loader {
    pub fn new(
        settings: &Settings,
        metrics: PairMetrics,
        sources: Sources,
        fleet: Option<Arc<Fleet>>,
        vitals: Vitals,
    ) -> Result<Self, Error> {
        Ok(Self {
            keep: settings.spec.change.check()?,
            threads: Threads::new(settings.spec.threads)?,
            runner: Runner::start(&vitals)?,
            vitals,
            spec: settings.spec.clone(),
            metrics,
            sources: Mutex::new(sources),
            fleet,
        })
    }

    /// Puts what answers behind a scheduler. At a front each has a thread of its own, as a pass there is mostly waiting;
    /// and none runs on a thread of connections, however short it is.
    fn schedule<A: Answerer>(
        &self,
        answerer: A,
        spec: SchedulerSpec,
    ) -> Result<Scheduler<A>, Error> {
        let answerer = Arc::new(answerer);
        match &self.fleet {
            Some(fleet) => {
                let _within = fleet.handle().enter();
                Scheduler::start(&self.vitals, answerer, spec)
            }
            None => Ok(Scheduler::start_on(&self.runner, answerer, spec)),
        }
    }

    pub fn metrics(&self) -> &PairMetrics {
        &self.metrics
    }

    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// Loads what `bundles` hold and `old` does not, checks it, and puts it behind schedulers; and the shortest of
    /// their windows.
    pub fn load(
        &self,
        settings: &Settings,
        bundles: &Bundles,
        old: Option<&Held>,
        (make_backend, make_batch_backend): (Option<MakeBackend>, Option<MakeBatchBackend>),
    ) -> Result<(Holdings, Duration), Error> {
        let front = match &self.fleet {
            Some(fleet) => Some(Front::new(fleet, &sharded(bundles)?, &settings.spec)),
            None => None,
        };
        let mut house = House {
            loader: self,
            front,
            settings,
            bundles,
            old,
            holdings: Holdings {
                request_bytes_max: settings.request_bytes_max,
                ..Holdings::default()
            },
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
        let window = house.windows.iter().copied().min().unwrap_or_default();
        Ok((house.holdings, window))
    }

    /// Loads a next version beside `held`; None where there is nothing new.
    pub fn next(
        &self,
        next: &Next,
        held: &Held,
        loading: &Loading,
    ) -> Result<Option<Holdings>, Error> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let found = sources.next(next)?;
        let bundles = Bundles::open(found.paths())?;
        if is_held(&bundles, held.newest()) {
            *sources = found;
            return Ok(None);
        }
        if held.generations() >= GENERATIONS_MAX {
            return Err(ReloadError::Versions { held: held.generations() }.into());
        }
        // The network stands, and its files have their own turn.
        let spec = ServerSpec { tls: None, insecure: true, ..self.spec.clone() };
        let (settings, _) = Settings::check(spec, &bundles)?;
        match &self.fleet {
            // Every shard holds it before a client hears of it.
            Some(fleet) => {
                let sharded = sharded(&bundles)?;
                let (shards, map) = (sharded.map.shards().len(), sharded.map_version);
                fleet.check_ready(shards, map).map_err(Error::of_next)?;
            }
            None => {
                let bytes = needed_bytes(&bundles, held)?;
                check_room(bytes, held.bytes(), self.spec.tables_bytes_max)?;
                tracing::info!(bytes, held = held.bytes(), "loading the next version");
            }
        }
        let (holdings, _) = self.load(&settings, &bundles, Some(held), (None, None))?;
        if loading.is_abandoned.load(std::sync::atomic::Ordering::Relaxed) {
            return Ok(None);
        }
        *sources = found;
        Ok(Some(holdings))
    }
}

/// The one model that a front serves, and its map.
pub(super) fn sharded(bundles: &Bundles) -> Result<Sharded, Error> {
    match bundles.models.as_slice() {
        [model] if model.tables.len() == bundles.tables.len() => Sharded::open(&model.path),
        _ => {
            let path = bundles.tables.first().and_then(|held| held.table.path());
            let path = path.map(Into::into).unwrap_or_default();
            Err(ShardError::NotAModel { path }.into())
        }
    }
}

/// Whether bundles hold nothing but what is held as the newest, and all of it.
fn is_held(bundles: &Bundles, newest: &Holdings) -> bool {
    let tables = bundles.tables.iter().all(|held| {
        let layout = held.table.layout().map(|layout| layout.version());
        newest.infos.iter().any(|info| {
            let known = (&info.name, info.version, info.layout.map(|layout| layout.version));
            known == (&held.name, held.table.version(), layout)
        })
    });
    let models = bundles
        .models
        .iter()
        .all(|model| newest.models.iter().any(|known| known.version() == model.manifest.version()));
    let counts = (bundles.tables.len(), bundles.models.len());
    tables && models && counts == (newest.infos.len(), newest.models.len())
}

/// A server's tables and models as they are loaded, one after the other.
struct House<'a> {
    loader: &'a Loader,
    settings: &'a Settings,
    bundles: &'a Bundles,
    /// What is held already: what has the same version is shared.
    old: Option<&'a Held>,
    /// What answers instead of this machine, at a front.
    front: Option<Front>,
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
                    let bags_max = settings.tables[index].bags_per_request_max;
                    self.load_bins(table, name, layout, bags_max)?;
                }
                let version = layout.version();
                {
                    let mut bags = self.holdings.bags.iter();
                    bags.find(|bags| bags.version() == version).map(|bags| bags.info())
                }
            }
        };
        let version = table.version();
        let rows = self.holdings.rows.iter().find(|rows| rows.version() == version);
        if let Some(rows) = rows {
            let name = name.clone();
            let request_bytes_max = settings.tables[index].request_bytes_max as u64;
            let info = TableInfo { name, layout, request_bytes_max, ..rows.info().clone() };
            self.holdings.infos.push(info);
        }
        Ok(())
    }

    fn load_rows(&mut self, index: usize) -> Result<(), Error> {
        let (bundles, settings) = (self.bundles, self.settings);
        let HeldTable { table, name, .. } = &bundles.tables[index];
        if let Some(rows) = self.old.and_then(|old| old.find_rows(table.version())) {
            self.windows.push(rows.info().window);
            self.holdings.rows.push(Arc::clone(rows));
            return Ok(());
        }
        let spec = &settings.spec;
        let started = Instant::now();
        let threads = &self.loader.threads;
        let base = match &self.front {
            Some(_) => None,
            None => self.old.and_then(|old| base_of(table, old)),
        };
        let changed = base.as_ref().map(|base| base.changed);
        let checked = match (self.make_backend.take(), base) {
            _ if let Some(front) = &self.front => front.rows(spec.side, table, name)?,
            (Some(make), _) => engine::check_rows(spec.side, table, 0..table.rows(), make(table)?)?,
            (None, Some(base)) => {
                let platform = Platform::detect();
                let patched = Patched::new(base.backend, table, platform, threads.clone())?;
                engine::check_changes(spec.side, table, 0..table.rows(), patched, base.scan)?
            }
            (None, None) => {
                let backend = device::load(spec, threads, table)?;
                engine::check_rows(spec.side, table, 0..table.rows(), backend)?
            }
        };
        let (server, scan) = (&checked.server, checked.scan);
        let metrics = self.loader.metrics.table(name);
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
            changed_rows = changed,
            load_ms = started.elapsed().as_millis() as u64,
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
        let whole_bytes = if self.front.is_some() { 0 } else { CpuEngine::stored_bytes(shape) };
        let spec = SchedulerSpec { limits, pass: scan, metrics: metrics.passes };
        let scheduler = self.loader.schedule(server.clone(), spec)?;
        self.holdings.rows.push(Arc::new(Rows::new(checked, info, scheduler, whole_bytes)));
        Ok(())
    }

    /// Puts a layout's bins behind a scheduler with the same rules as the table's.
    fn load_bins(
        &mut self,
        table: &Table,
        name: &str,
        layout: &Layout,
        bags_per_request_max: usize,
    ) -> Result<(), Error> {
        if let Some(bags) = self.old.and_then(|old| old.find_bags(layout.version())) {
            self.windows.push(bags.info().window);
            self.holdings.bags.push(Arc::clone(bags));
            return Ok(());
        }
        let spec = &self.settings.spec;
        let Checked { server, scan } = match &self.front {
            Some(front) => front.bins(spec.side, table, name, layout)?,
            None => {
                let backend = match self.make_batch_backend.take() {
                    Some(make) => make(table, layout)?,
                    None => device::load_batch(spec, &self.loader.threads, table, layout)?,
                };
                engine::check_bins(spec.side, table, layout, None, backend)?
            }
        };
        let metrics = self.loader.metrics.table(name);
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
        let stored_bytes = if self.front.is_some() { 0 } else { costs.stored_bytes };
        let spec = SchedulerSpec { limits, pass: scan, metrics: metrics.bag_passes };
        let scheduler = self.loader.schedule(server.clone(), spec)?;
        let prgs = self.settings.prgs.clone();
        let bags =
            Bags::new(server, layout, prgs, window, bags_per_request_max, scheduler, stored_bytes);
        self.holdings.bags.push(Arc::new(bags));
        Ok(())
    }

    /// Puts a model's tables, which are loaded, behind one scheduler more.
    fn hold_model(&mut self, index: usize) -> Result<(), Error> {
        let (bundles, settings) = (self.bundles, self.settings);
        let (model, spec) = (&bundles.models[index], &settings.spec);
        let version = model.manifest.version();
        if let Some(model) = self.old.and_then(|old| old.find_model(version)) {
            self.holdings.models.push(Arc::clone(model));
            return Ok(());
        }
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
        let bytes_max = settings.model_request_bytes_max[index];
        let threads = &self.loader.threads;
        let (Checked { server, scan }, best) = match &self.front {
            Some(front) => {
                let checked = front.model(spec.side, manifest, &tables, threads)?;
                (checked, front.batch_bags_max(bytes_max))
            }
            None => {
                let checked = engine::check_model(spec.side, manifest, &tables, threads)?;
                let best = spec.batch_bags_max.unwrap_or(checked.server.batch_best());
                (checked, best)
            }
        };
        let window = self.window(scan);
        let limits = QueueLimits {
            window,
            lone_waits: spec.window_us.is_some(),
            batch_queries_max: best,
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
        let metrics = self.loader.metrics.model(manifest.name());
        let spec = SchedulerSpec { limits, pass: scan, metrics };
        let scheduler = self.loader.schedule(server.clone(), spec)?;
        let prgs = settings.prgs.clone();
        let manifest = manifest.clone();
        let inferences = Inferences::new(server, manifest, prgs, window, bytes_max, scheduler);
        self.holdings.models.push(Arc::new(inferences));
        Ok(())
    }
}

/// What answers, in a line: of several tables what answers the first.
pub(super) fn describe(holdings: &Holdings) -> String {
    let first = holdings.rows.first().map(|rows| rows.server().backend().description());
    match (first, holdings.rows.len()) {
        (Some(first), 0 | 1) => first,
        (Some(first), tables) => format!("{first}, and {} tables more", tables - 1),
        (None, _) => String::new(),
    }
}
