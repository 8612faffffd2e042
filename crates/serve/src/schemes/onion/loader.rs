//! Loads what a server that is asked alone holds: at its start, and the next versions beside what it holds then.

use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hushtable_pir::Threads;
use hushtable_pir::onion::{self, Geometry};
use hushtable_table::{Table, Version};

use super::engine::{self, Checked, Loaded};
use super::front::Remote;
use super::held::{Held, HeldModel, HeldTable, Holdings};
use super::metrics::OnionMetrics;
use super::role::{Role, check_front, map_of, mapped, stored_bytes, take_count};
use super::server::{MakeBackend, Progress};
use super::spec::{Settings, TableLimits};
use super::{OnionInfo, OnionServerSpec};
use crate::batch::WINDOW_MAX;
use crate::batch::{QueueLimits, Runner, Scheduler, SchedulerSpec};
use crate::endpoint::SOFTWARE;
use crate::host::scheme::Loading;
use crate::host::{Next, ReloadError};
use crate::peer::values::microseconds;
use crate::schemes::bundles::Bundles;
use crate::schemes::versions::{GENERATIONS_MAX, Keep, Sources, Uses, check_room};
use crate::vital::Vitals;
use crate::wire::{ModelInfo, OnionInfoReply};
use crate::{Error, NetworkSpec};

/// What loads tables and models, and what they run on.
pub(super) struct Loader {
    spec: OnionServerSpec,
    keep: Keep,
    /// One thread for all passes, and one set of threads for the work in them, whatever the version.
    runner: Runner,
    /// What is told of panics.
    vitals: Vitals,
    threads: Threads,
    metrics: OnionMetrics,
    progress: Progress,
    sources: Mutex<Sources>,
    role: Role,
}

impl Loader {
    pub fn new(
        settings: &Settings,
        metrics: OnionMetrics,
        sources: Sources,
        progress: Progress,
        role: Role,
        vitals: Vitals,
    ) -> Result<Self, Error> {
        Ok(Self {
            keep: settings.spec.change.check()?,
            threads: Threads::new(settings.spec.threads)?,
            runner: Runner::start(&vitals)?,
            vitals,
            spec: settings.spec.clone(),
            metrics,
            progress,
            sources: Mutex::new(sources),
            role,
        })
    }

    pub fn metrics(&self) -> &OnionMetrics {
        &self.metrics
    }

    pub fn keep(&self) -> Keep {
        self.keep
    }

    /// Puts what answers behind a scheduler. At a front each has a thread of its own, as a pass there is mostly waiting;
    /// and none runs on a thread of connections, however short it is.
    fn schedule(
        &self,
        server: &onion::Server,
        spec: SchedulerSpec,
    ) -> Result<Scheduler<onion::Server>, Error> {
        let server = Arc::new(server.clone());
        match &self.role {
            Role::Front(fleet) => {
                let _within = fleet.handle().enter();
                Scheduler::start(&self.vitals, server, spec)
            }
            Role::Whole | Role::Shard(_) => Ok(Scheduler::start_on(&self.runner, server, spec)),
        }
    }

    /// What answers a table's queries, checked.
    fn load_table(
        &self,
        settings: &Settings,
        geometry: &Geometry,
        held: Bundled<'_>,
        make_backend: Option<MakeBackend>,
        loading: &Loading,
    ) -> Result<(Checked, Option<Duration>), Error> {
        let Bundled { table, prepared, is_mapped } = held;
        let (threads, batch_max) = (&self.threads, settings.spec.batch_queries_max);
        Ok(match &self.role {
            Role::Front(fleet) => {
                let remote = Remote::new(fleet, geometry, table.version(), threads, batch_max)?;
                (engine::check_front(geometry, table, Arc::new(remote))?, None)
            }
            Role::Shard(shard) => {
                let loaded = engine::load_shard(
                    settings, geometry, *shard, threads, table, is_mapped, prepared,
                )?;
                let scan = loaded.scan();
                (engine::check_shard(geometry, table, loaded)?, Some(scan))
            }
            Role::Whole => {
                let Loaded { backend, scan } = match make_backend {
                    Some(make) => Loaded { backend: make(table)?, scan: None },
                    None => {
                        let progress = &*self.progress;
                        engine::load(
                            settings, geometry, threads, table, prepared, loading, progress,
                        )?
                    }
                };
                (engine::check_row(geometry, table, backend)?, scan)
            }
        })
    }

    /// Loads what `bundles` hold and `old` does not, checks it, and puts it behind schedulers.
    pub fn load(
        &self,
        settings: &Settings,
        bundles: &Bundles,
        old: Option<&Held>,
        mut make_backend: Option<MakeBackend>,
        loading: &Loading,
    ) -> Result<Holdings, Error> {
        let (tables, infos) = (Vec::new(), Vec::new());
        let mapped = mapped(&settings.spec, bundles)?;
        let mut house = House { loader: self, settings, bundles, tables, infos };
        for (index, held) in bundles.tables.iter().enumerate() {
            let version = held.table.version();
            if !bundles.is_first_of_version(index) {
                house.name_again(index);
                continue;
            }
            if let Some(table) = old.and_then(|old| old.find_table(version)) {
                house.tables.push(Arc::clone(table));
                house.name_again(index);
                continue;
            }
            let geometry = &settings.tables[index].geometry;
            let first = settings.spec.prepared.as_deref().filter(|_| index == 0);
            let first = first.map(|path| match old {
                None => path.to_owned(),
                Some(_) => beside(path, version),
            });
            let prepared = first.as_deref().or(held.prepared.as_deref());
            let held = Bundled { table: &held.table, prepared, is_mapped: mapped[index] };
            let make = make_backend.take();
            let loaded = self.load_table(settings, geometry, held, make, loading)?;
            house.hold(index, loaded)?;
        }
        Ok(house.finish(old))
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
        let network = NetworkSpec { tls: None, insecure: true, ..self.spec.network.clone() };
        let mut spec = OnionServerSpec { network, ..self.spec.clone() };
        take_count(&mut spec, &bundles)?;
        let (settings, _) = Settings::check(spec, &bundles)?;
        let new = |&index: &usize| {
            let version = bundles.tables[index].table.version();
            bundles.is_first_of_version(index) && held.find_table(version).is_none()
        };
        let new = (0..bundles.tables.len()).filter(new);
        let new: Vec<_> = new.collect();
        let of_new = || new.iter().map(|&index| &settings.tables[index].geometry);
        if let Role::Front(fleet) = &self.role {
            check_front(&settings.spec, &bundles, fleet.shards())?;
            // Every shard holds it before a client hears of it.
            for (&index, geometry) in new.iter().zip(of_new()) {
                let version = bundles.tables[index].table.version();
                let count = self.role.count();
                let map = map_of(version, geometry, count);
                fleet.check_ready(count as usize, map).map_err(Error::of_next)?;
            }
        }
        let bytes = of_new().map(|geometry| stored_bytes(&self.spec, geometry));
        let bytes = bytes.sum::<Result<u64, Error>>()?;
        check_room(bytes, held.bytes(), self.spec.tables_bytes_max)?;
        tracing::info!(bytes, held = held.bytes(), "loading the next version");
        let holdings = self.load(&settings, &bundles, Some(held), None, loading)?;
        if loading.is_abandoned.load(Ordering::Relaxed) {
            return Ok(None);
        }
        *sources = found;
        Ok(Some(holdings))
    }
}

/// Whether bundles hold nothing but what is held as the newest, and all of it.
fn is_held(bundles: &Bundles, newest: &Holdings) -> bool {
    let tables = bundles.tables.iter().all(|held| {
        let version = held.table.version();
        let is_it = |info: &OnionInfoReply| {
            info.name == held.name && info.version[..] == version.as_bytes()[..]
        };
        newest.infos.iter().any(is_it)
    });
    let models = bundles.models.iter().all(|model| {
        let version = model.manifest.version();
        newest.models.iter().any(|known| known.manifest.version() == version)
    });
    let known = newest.infos.iter().all(|info| {
        bundles.tables.iter().any(|held| info.version[..] == held.table.version().as_bytes()[..])
    });
    tables && models && known && bundles.models.len() == newest.models.len()
}

/// A table as its bundle has it.
#[derive(Clone, Copy)]
struct Bundled<'a> {
    table: &'a Table,
    prepared: Option<&'a Path>,
    /// Whether a map of shards was made with its very patch.
    is_mapped: bool,
}

/// A server's tables as they are loaded, one after the other.
struct House<'a> {
    loader: &'a Loader,
    settings: &'a Settings,
    bundles: &'a Bundles,
    tables: Vec<Arc<HeldTable>>,
    infos: Vec<OnionInfoReply>,
}

impl House<'_> {
    /// Checks what was loaded and puts it behind a scheduler.
    fn hold(
        &mut self,
        index: usize,
        (checked, scan): (Checked, Option<Duration>),
    ) -> Result<(), Error> {
        let (bundles, spec) = (self.bundles, &self.settings.spec);
        let (table, name) = (&bundles.tables[index].table, &bundles.tables[index].name);
        let TableLimits { geometry, queries_per_request_max, request_bytes_max } =
            self.settings.tables[index].clone();
        let Checked { server, pass } = checked;
        let (shape, backend) = (geometry.shape(), server.backend());
        let metrics = self.loader.metrics.table(name);
        metrics.describe_table(shape.rows(), shape.table_bytes(), pass);

        let scan = scan.unwrap_or(pass);
        let window = match (spec.window_us, &self.loader.role) {
            (Some(us), _) => Duration::from_micros(us),
            // A front's has made the pass, and a second one would add to it.
            (None, Role::Shard(_)) => Duration::ZERO,
            (None, _) => scan.min(WINDOW_MAX),
        };
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
        let map = map_of(info.version, &info.geometry, self.loader.role.count());
        let stored = (map, stored_bytes(&self.settings.spec, &info.geometry)?);
        let spec = SchedulerSpec { limits, pass, metrics: metrics.passes.clone() };
        let scheduler = self.loader.schedule(&server, spec)?;
        self.tables.push(Arc::new(HeldTable::new(server, info, scheduler, stored)));
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
        let held = self.place(index).map(|place| OnionInfoReply::from(&self.tables[place].info));
        let is_new = |info: &OnionInfoReply| {
            self.infos.iter().all(|other| (&other.name, &other.version) != (&name, &info.version))
        };
        if let Some(info) = held.filter(is_new) {
            self.infos.push(OnionInfoReply { name, ..info });
        }
    }

    fn finish(self, old: Option<&Held>) -> Holdings {
        let mut models = Vec::with_capacity(self.bundles.models.len());
        let models_and_bytes =
            self.bundles.models.iter().zip(&self.settings.model_request_bytes_max);
        for (model, &request_bytes_max) in models_and_bytes {
            let manifest = model.manifest.clone();
            if let Some(held) = old.and_then(|old| old.find_model(manifest.version())) {
                models.push(Arc::clone(held));
                continue;
            }
            let places = manifest.features().iter().map(|it| self.place(model.tables[it.table]));
            let tables: Vec<_> =
                places.flatten().map(|place| Arc::clone(&self.tables[place])).collect();
            let windows = tables.iter().map(|table| table.info.window);
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
            models.push(Arc::new(HeldModel { manifest, tables, info, uses: Uses::new() }));
        }
        let Self { settings, tables, infos, .. } = self;
        let (deepest, request_bytes_max) = (settings.deepest.clone(), settings.request_bytes_max);
        Holdings { tables, models, infos, deepest, request_bytes_max }
    }
}

/// The prepared file of the first table in a version that follows: that of the one before stays as it is.
fn beside(prepared: &Path, version: Version) -> PathBuf {
    let mut name = prepared.as_os_str().to_owned();
    name.push(format!(".{}", &version.to_string()[..16]));
    name.into()
}
