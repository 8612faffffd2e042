//! What a shard holds: its rows and bins in their newest version, and in older ones that fronts still go by.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hushtable_pir::{Backend, Below, batch, dpf};
use hushtable_table::Version;
use hushtable_table::model::ShardMap;

use crate::batch::Scheduler;
use crate::schemes::versions::{Keep, Uses};

/// The rows of one table that a shard has, behind a scheduler.
pub(super) struct ShardRows {
    pub server: dpf::Server,
    pub rows: Range<u64>,
    pub scheduler: Scheduler<dpf::Server>,
    /// What a pass for one key takes.
    pub scan: Duration,
    /// Bytes of those rows in memory, whole.
    pub whole_bytes: u64,
}

/// The bins of one layout that a shard has, behind a scheduler.
pub(super) struct ShardBins {
    pub server: batch::Server,
    /// Of each part.
    pub bins: Vec<Range<usize>>,
    pub scheduler: Scheduler<batch::Server>,
    pub bytes: u64,
}

/// What a shard has of one table.
#[derive(Clone, Default)]
pub(super) struct ShardTable {
    pub rows: Option<Arc<ShardRows>>,
    pub bins: Option<Arc<ShardBins>>,
}

/// What a shard has of one version of the model.
pub(super) struct HeldShard {
    pub map: Arc<ShardMap>,
    pub map_version: Version,
    /// By the manifest's index.
    pub tables: Vec<ShardTable>,
    /// Who asks for it.
    pub uses: Uses,
}

/// All that a shard holds. It does not change: another takes its place.
#[derive(Clone, Default)]
pub(super) struct HeldShards {
    /// The newest first.
    all: Vec<Arc<HeldShard>>,
    /// Since when each is not the newest any more; none of the newest.
    since: Vec<Option<Instant>>,
}

impl ShardRows {
    pub fn version(&self) -> Version {
        self.server.version()
    }

    /// What takes memory, by version: the rows, or those that changed and what lies below them.
    fn parts(&self) -> impl Iterator<Item = (Version, u64)> {
        let (own, below) = match self.server.backend().below() {
            Some(below) => (below.changed_bytes, Some((below.version, self.whole_bytes))),
            None => (self.whole_bytes, None),
        };
        std::iter::once((self.version(), own)).chain(below)
    }

    /// What holds version `version` of these rows whole, as they are or below changes.
    fn whole(&self, version: Version) -> Option<Arc<dyn Backend>> {
        let backend = self.server.backend();
        match backend.below() {
            Some(Below { version: below, backend, .. }) => (below == version).then_some(backend),
            None => (self.version() == version).then(|| Arc::clone(backend)),
        }
    }
}

impl HeldShard {
    pub fn description(&self) -> String {
        let rows = self.tables.iter().filter_map(|table| table.rows.as_ref());
        let first = rows.clone().next().map(|rows| rows.server.backend().description());
        match (first, rows.count()) {
            (Some(first), 1) => first,
            (Some(first), tables) => format!("{first}, and rows of {} tables more", tables - 1),
            (None, _) => "cpu, bins alone".into(),
        }
    }
}

impl HeldShards {
    /// With `next` as the newest.
    pub fn followed_by(&self, next: HeldShard) -> Self {
        self.led_by(Arc::new(next))
    }

    /// With a version that may be held already as the newest.
    pub fn led_by(&self, next: Arc<HeldShard>) -> Self {
        let now = Instant::now();
        let (mut all, mut since) = (vec![Arc::clone(&next)], vec![None]);
        let older = self.all.iter().zip(&self.since);
        for (held, when) in older.filter(|(held, _)| !Arc::ptr_eq(held, &next)) {
            all.push(Arc::clone(held));
            since.push(Some(when.unwrap_or(now)));
        }
        Self { all, since }
    }

    /// Without what no front has named for long enough; None where all of it stays.
    pub fn retired(&self, keep: Keep, now: Instant) -> Option<Self> {
        let stays = |held: &HeldShard, since: Option<Instant>| {
            since.is_none_or(|since| !keep.is_over(since, [&held.uses].into_iter(), now))
        };
        let kept = self.all.iter().zip(&self.since).filter(|(held, since)| stays(held, **since));
        let (all, since): (Vec<_>, Vec<_>) =
            kept.map(|(held, since)| (Arc::clone(held), *since)).unzip();
        (all.len() < self.all.len()).then_some(Self { all, since })
    }

    /// The newest first.
    pub fn all(&self) -> &[Arc<HeldShard>] {
        &self.all
    }

    pub fn find(&self, map: Version) -> Option<&Arc<HeldShard>> {
        self.all.iter().find(|held| held.map_version == map)
    }

    fn all_rows(&self) -> impl Iterator<Item = &Arc<ShardRows>> {
        self.all.iter().flat_map(|held| &held.tables).filter_map(|table| table.rows.as_ref())
    }

    fn all_bins(&self) -> impl Iterator<Item = &Arc<ShardBins>> {
        self.all.iter().flat_map(|held| &held.tables).filter_map(|table| table.bins.as_ref())
    }

    pub fn find_rows(&self, version: Version, rows: &Range<u64>) -> Option<&Arc<ShardRows>> {
        self.all_rows().find(|held| held.version() == version && held.rows == *rows)
    }

    pub fn find_bins(&self, version: Version, bins: &[Range<usize>]) -> Option<&Arc<ShardBins>> {
        let is_it = |held: &&Arc<ShardBins>| {
            held.server.backend().geometry().version() == version && held.bins == bins
        };
        self.all_bins().find(is_it)
    }

    /// What holds those rows whole, and what a pass takes it.
    pub fn find_whole(
        &self,
        version: Version,
        rows: &Range<u64>,
    ) -> Option<(Arc<dyn Backend>, Duration)> {
        self.all_rows()
            .filter(|held| held.rows == *rows)
            .find_map(|held| held.whole(version).map(|whole| (whole, held.scan)))
    }

    /// Bytes in memory, each part of them once.
    pub fn bytes(&self) -> u64 {
        let mut parts = BTreeMap::new();
        for rows in self.all_rows() {
            for (version, bytes) in rows.parts() {
                parts.insert((*version.as_bytes(), rows.rows.start), bytes);
            }
        }
        for bins in self.all_bins() {
            let version = bins.server.backend().geometry().version();
            parts.insert((*version.as_bytes(), 0), bins.bytes);
        }
        parts.values().sum()
    }
}
