//! Loads what a shard holds: at its start, and the next versions beside what it holds then.

use std::ops::Range;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use hushtable_pir::batch::{BatchBackend, BatchEngine, Geometry};
use hushtable_pir::dpf::Side;
use hushtable_pir::{Backend, CpuEngine, Patched, Platform, TableShape, Threads};
use hushtable_table::Table;
use hushtable_table::layout::Layout;

use super::super::engine::{self, Checked};
use super::super::metrics::PairMetrics;
use super::super::sharded::Sharded;
use super::super::spec::{key_bytes_max, max_batch};
use super::held::{HeldShard, HeldShards, ShardBins, ShardRows, ShardTable};
use crate::batch::{QueueLimits, Runner, Scheduler, SchedulerSpec};
use crate::host::network::Network;
use crate::host::scheme::Loading;
use crate::host::{Next, ReloadError};
use crate::schemes::versions::{GENERATIONS_MAX, Keep, Sources, Uses, check_room};
use crate::vital::Vitals;
use crate::{Error, ServerSpec};

/// What loads a shard's rows and bins, and what they run on.
pub(super) struct ShardLoader {
    spec: ServerSpec,
    pub number: usize,
    keep: Keep,
    runner: Runner,
    threads: Threads,
    metrics: PairMetrics,
    sources: Mutex<Sources>,
    /// Bytes that one pass's request may have.
    pub request_bytes_max: usize,
}

/// What came of a next version.
pub(super) enum Loaded {
    /// It is the newest already.
    Unchanged,
    /// It is held, but another is newer.
    Again(Arc<HeldShard>),
    New(HeldShard),
}

/// Checks `spec` for shard `number` of a model; and the bytes that the request of one pass may have.
pub(super) fn check(
    spec: &ServerSpec,
    number: usize,
    sharded: &Sharded,
) -> Result<(Network, usize), Error> {
    spec.check_counts()?;
    let mut whole = 0;
    for index in 0..sharded.map.tables().len() {
        let table = sharded.table(index)?;
        let keys = max_batch(spec.batch_keys_max);
        if sharded.map.rows_of(number, index).is_some() {
            whole = whole.max(keys * (key_bytes_max(spec.side, &table)? + table.row_bytes()));
        }
        if let Some(layout) = table.layout() {
            let geometry = Geometry::new(layout);
            let bags = max_batch(spec.batch_bags_max).min(BAGS_TYPICAL);
            let bag_bytes = geometry.request_bytes(spec.side) + geometry.answer_bytes();
            whole = whole.max(bags * bag_bytes);
        }
    }
    let network = Network::check(spec.network(), whole.min(spec.inflight_bytes_max))?;
    // A pass over several tables asks for all of them in one message.
    Ok((network, spec.inflight_bytes_max / 4))
}

impl ShardLoader {
    pub fn new(
        spec: ServerSpec,
        number: usize,
        metrics: PairMetrics,
        sources: Sources,
        vitals: &Vitals,
    ) -> Result<Self, Error> {
        Ok(Self {
            keep: spec.change.check()?,
            number,
            threads: Threads::new(spec.threads)?,
            runner: Runner::start(vitals)?,
            metrics,
            sources: Mutex::new(sources),
            request_bytes_max: spec.inflight_bytes_max / 4,
            spec,
        })
    }

    pub fn keep(&self) -> Keep {
        self.keep
    }

    pub fn side(&self) -> Side {
        self.spec.side
    }

    /// Loads a next version beside `held`.
    pub fn next(&self, next: &Next, held: &HeldShards, loading: &Loading) -> Result<Loaded, Error> {
        let mut sources = self.sources.lock().unwrap_or_else(PoisonError::into_inner);
        let found = sources.next(next)?;
        let Some(path) = found.paths().next() else { return Ok(Loaded::Unchanged) };
        let sharded = Sharded::open(path)?;
        sharded.check_number(self.number)?;
        if let Some(known) = held.find(sharded.map_version) {
            *sources = found;
            let is_newest = held.all().first().is_some_and(|newest| Arc::ptr_eq(newest, known));
            return Ok(if is_newest {
                Loaded::Unchanged
            } else {
                Loaded::Again(Arc::clone(known))
            });
        }
        if held.all().len() >= GENERATIONS_MAX {
            return Err(ReloadError::Versions { held: held.all().len() }.into());
        }
        let bytes = self.needed_bytes(&sharded, held)?;
        check_room(bytes, held.bytes(), self.spec.tables_bytes_max)?;
        tracing::info!(bytes, held = held.bytes(), "loading the next version");
        let loaded = self.load(&sharded, held)?;
        if loading.is_abandoned.load(Ordering::Relaxed) {
            return Ok(Loaded::Unchanged);
        }
        *sources = found;
        Ok(Loaded::New(loaded))
    }

    /// Bytes in memory of what a shard holds of `sharded` and `held` has not.
    fn needed_bytes(&self, sharded: &Sharded, held: &HeldShards) -> Result<u64, Error> {
        let mut bytes = 0u64;
        for index in 0..sharded.map.tables().len() {
            let table = sharded.table(index)?;
            if let Some(rows) = sharded.map.rows_of(self.number, index)
                && held.find_rows(table.version(), &rows).is_none()
            {
                let base = held.find_whole(table.version_below_patch(), &rows);
                let whole = stored_bytes(&table, &rows)?;
                let changed = table.patch().map_or(0, |patch| {
                    let changed = patch.ids().iter().filter(|id| rows.contains(id)).count();
                    Patched::bytes(changed as u64, table.row_bytes())
                });
                bytes += changed + if base.is_some() { 0 } else { whole };
            }
            if let Some((layout, bins)) = self.bins_of(sharded, &table)
                && held.find_bins(layout.version(), &bins).is_none()
            {
                bytes += bins_bytes(layout, &bins);
            }
        }
        Ok(bytes)
    }

    /// The bins of a table's layout that this shard has, where it has any.
    fn bins_of<'a>(
        &self,
        sharded: &Sharded,
        table: &'a Table,
    ) -> Option<(&'a Layout, Vec<Range<usize>>)> {
        let layout = table.layout()?;
        let shards = sharded.map.shards().len();
        let bins = Geometry::new(layout).bins_of_shard(self.number, shards);
        bins.iter().any(|bins| !bins.is_empty()).then_some((&**layout, bins))
    }

    /// Loads what this shard has of `sharded`, and checks it; what `held` has too is shared.
    pub fn load(&self, sharded: &Sharded, held: &HeldShards) -> Result<HeldShard, Error> {
        if let Some(bytes_max) = self.spec.tables_bytes_max {
            let bytes = self.needed_bytes(sharded, &HeldShards::default())?;
            if bytes > bytes_max {
                let what = format!("shard {}", self.number);
                return Err(Error::TablesBudget { what, bytes, bytes_max });
            }
        }
        let mut tables = Vec::with_capacity(sharded.map.tables().len());
        for (index, of_map) in sharded.map.tables().iter().enumerate() {
            let table = sharded.table(index)?;
            let rows = match sharded.map.rows_of(self.number, index) {
                Some(rows) => Some(self.load_rows(&of_map.name, &table, rows, held)?),
                None => None,
            };
            let bins = match self.bins_of(sharded, &table) {
                Some((layout, bins)) => {
                    Some(self.load_bins(&of_map.name, &table, layout, bins, held)?)
                }
                None => None,
            };
            tables.push(ShardTable { rows, bins });
        }
        let (map, map_version) = (Arc::clone(&sharded.map), sharded.map_version);
        tracing::info!(
            shard = self.number,
            shards = map.shards().len(),
            model = map.name(),
            version = %map.model(),
            map = %map_version,
            "loaded the shard"
        );
        Ok(HeldShard { map, map_version, tables, uses: Uses::new() })
    }

    fn load_rows(
        &self,
        name: &str,
        table: &Table,
        rows: Range<u64>,
        held: &HeldShards,
    ) -> Result<Arc<ShardRows>, Error> {
        if let Some(known) = held.find_rows(table.version(), &rows) {
            return Ok(Arc::clone(known));
        }
        let (started, spec) = (Instant::now(), &self.spec);
        let whole = || -> Result<Arc<dyn Backend>, Error> {
            let engine = engine::engine_spec(&self.threads, spec.batch_keys_max);
            Ok(Arc::new(CpuEngine::from_range(table, rows.clone(), &engine)?))
        };
        let Checked { server, scan } = match table.patch() {
            None => engine::check_rows(spec.side, table, rows.clone(), whole()?)?,
            Some(patch) => {
                let (base, scan) = match held.find_whole(patch.base(), &rows) {
                    Some(whole) => whole,
                    None => {
                        let base = whole()?;
                        let scan = engine::check_base(table, rows.clone(), &base)?;
                        (base, scan)
                    }
                };
                let (platform, threads) = (Platform::detect(), self.threads.clone());
                let patched = Patched::over_range(base, table, rows.clone(), platform, threads)?;
                engine::check_changes(spec.side, table, rows.clone(), patched, scan)?
            }
        };
        let metrics = self.metrics.table(name);
        let whole_bytes = stored_bytes(table, &rows)?;
        metrics.describe_table(rows.end - rows.start, whole_bytes, scan);
        let description = server.backend().description();
        metrics.describe_engine(description.clone());
        let limits = QueueLimits {
            window: self.window(),
            lone_waits: spec.window_us.is_some(),
            batch_queries_max: max_keys(spec, &server),
            queue_queries_max: spec.queue_keys_max.max(max_keys(spec, &server)),
        };
        tracing::info!(
            side = %spec.side,
            shard = self.number,
            table = name,
            version = %table.version(),
            first_row = rows.start,
            end_row = rows.end,
            load_ms = started.elapsed().as_millis() as u64,
            backend = %description,
            scan_us = scan.as_micros() as u64,
            batch_keys_max = limits.batch_queries_max,
            "loaded the shard's rows of the table"
        );
        let scheduler = SchedulerSpec { limits, pass: scan, metrics: metrics.passes };
        let scheduler = Scheduler::start_on(&self.runner, Arc::new(server.clone()), scheduler);
        Ok(Arc::new(ShardRows { server, rows, scheduler, scan, whole_bytes }))
    }

    fn load_bins(
        &self,
        name: &str,
        table: &Table,
        layout: &Layout,
        bins: Vec<Range<usize>>,
        held: &HeldShards,
    ) -> Result<Arc<ShardBins>, Error> {
        if let Some(known) = held.find_bins(layout.version(), &bins) {
            return Ok(Arc::clone(known));
        }
        let spec = &self.spec;
        let engine = engine::engine_spec(&self.threads, spec.batch_bags_max);
        let backend: Arc<dyn BatchBackend> =
            Arc::new(BatchEngine::from_bins(table, layout, &bins, &engine)?);
        let Checked { server, scan } =
            engine::check_bins(spec.side, table, layout, Some(&bins), backend)?;
        let metrics = self.metrics.table(name);
        let (costs, bytes) = (Geometry::new(layout).costs(layout), bins_bytes(layout, &bins));
        metrics.describe_layout(costs.keys, bytes, scan);
        let best = server.backend().batch_requests_best().max(1);
        let batch = spec.batch_bags_max.unwrap_or(best);
        let limits = QueueLimits {
            window: self.window(),
            lone_waits: spec.window_us.is_some(),
            batch_queries_max: batch,
            queue_queries_max: spec.queue_bags_max.max(batch),
        };
        tracing::info!(
            shard = self.number,
            table = name,
            version = %layout.version(),
            bins = bins.iter().map(Range::len).sum::<usize>(),
            backend = server.backend().description(),
            scan_us = scan.as_micros() as u64,
            "loaded the shard's bins of the table's layout"
        );
        let scheduler = SchedulerSpec { limits, pass: scan, metrics: metrics.bag_passes };
        let scheduler = Scheduler::start_on(&self.runner, Arc::new(server.clone()), scheduler);
        Ok(Arc::new(ShardBins { server, bins, scheduler, bytes }))
    }

    /// None unless it is set: the front's has made the pass, and a second one would add to it.
    fn window(&self) -> Duration {
        Duration::from_micros(self.spec.window_us.unwrap_or(0))
    }
}

fn max_keys(spec: &ServerSpec, server: &hushtable_pir::dpf::Server) -> usize {
    spec.batch_keys_max.unwrap_or_else(|| server.backend().batch_keys_best().max(1))
}

fn stored_bytes(table: &Table, rows: &Range<u64>) -> Result<u64, Error> {
    Ok(CpuEngine::stored_bytes(TableShape::new(rows.end - rows.start, table.row_bytes())?))
}

/// Bytes of the entries in some of a layout's bins.
fn bins_bytes(layout: &Layout, bins: &[Range<usize>]) -> u64 {
    let geometry = Geometry::new(layout);
    let of = |(part, bins): (&hushtable_pir::batch::PartGeometry, &Range<usize>)| {
        (bins.len() * part.bin_rows() * part.entry_bytes) as u64
    };
    geometry.parts().iter().zip(bins).map(of).sum()
}

/// Inferences of a pass that a request is sized for, where nobody says how many.
const BAGS_TYPICAL: usize = 16;
