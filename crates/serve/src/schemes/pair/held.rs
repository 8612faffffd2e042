//! What a server of a pair holds: its tables and models in their newest version, and in older ones that clients
//! still ask for.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant};

use hushtable_pir::Backend;
use hushtable_table::Version;

use super::bags::Bags;
use super::inferences::Inferences;
use super::metrics::PairMetrics;
use super::rows::Rows;
use crate::schemes::versions::{Keep, Uses, state_of};
use crate::wire::{CatalogReply, ModelInfo, TableInfoReply};
use crate::{Refusal, TableInfo};

/// What a server holds of its bundles as they were at one time, each table, layout and model once.
#[derive(Clone, Default)]
pub(crate) struct Holdings {
    /// Tables, by their versions.
    pub rows: Vec<Arc<Rows>>,
    /// Layouts' bins, by the layouts' versions.
    pub bags: Vec<Arc<Bags>>,
    /// Models.
    pub models: Vec<Arc<Inferences>>,
    /// What is said of each table: a version that has several names or layouts is there several
    /// times.
    pub infos: Vec<TableInfo>,
    /// Bytes that any request may have.
    pub request_bytes_max: usize,
}

/// Holdings that were the newest until some time.
#[derive(Clone)]
struct Older {
    holdings: Holdings,
    since: Instant,
}

/// All that a server holds, and what it says of it. It does not change: another takes its place.
#[derive(Default)]
pub(crate) struct Held {
    newest: Holdings,
    /// The newest first.
    older: Vec<Older>,
    infos: Vec<TableInfoReply>,
    catalog: CatalogReply,
    state: u64,
}

impl Held {
    pub fn new(newest: Holdings) -> Self {
        Self::of(newest, Vec::new())
    }

    fn of(newest: Holdings, older: Vec<Older>) -> Self {
        let mut held = Self { newest, older, ..Self::default() };
        let tables = held.newest.infos.iter().flat_map(|info| {
            let layout = info.layout.map_or([0; 32], |layout| *layout.version.as_bytes());
            [info.name.as_bytes().to_vec(), info.version.as_bytes().to_vec(), layout.to_vec()]
        });
        let models = held.newest.models.iter().map(|model| model.version().as_bytes().to_vec());
        held.state = state_of(tables.chain(models));
        held.infos = held.describe_tables();
        let (models, older) = held.describe_models();
        let (tables, state) = (held.infos.clone(), Some(held.state));
        held.catalog = CatalogReply { tables, models, older, state };
        held
    }

    /// With `next` as the newest.
    pub fn followed_by(&self, next: Holdings) -> Self {
        let since = Instant::now();
        let mut older = vec![Older { holdings: self.newest.clone(), since }];
        older.extend(self.older.iter().cloned());
        Self::of(next, older)
    }

    /// Without what nobody asks for any more; None where all of it stays.
    pub fn retired(&self, keep: Keep, now: Instant) -> Option<Self> {
        let is_over = |place: usize, it: &Older| {
            let newer = || {
                let before = self.older[..place].iter().map(|older| &older.holdings);
                before.chain([&self.newest])
            };
            let rows = it.holdings.rows.iter().filter(|rows| {
                newer().all(|other| other.rows.iter().all(|other| !Arc::ptr_eq(other, rows)))
            });
            let bags = it.holdings.bags.iter().filter(|bags| {
                newer().all(|other| other.bags.iter().all(|other| !Arc::ptr_eq(other, bags)))
            });
            let models = it.holdings.models.iter().filter(|model| {
                newer().all(|other| other.models.iter().all(|other| !Arc::ptr_eq(other, model)))
            });
            let uses = rows.map(|it| &it.uses).chain(bags.map(|it| &it.uses));
            let uses: Vec<&Uses> = uses.chain(models.map(|it| &it.uses)).collect();
            keep.is_over(it.since, uses.into_iter(), now)
        };
        let places = self.older.iter().enumerate();
        let stays: Vec<_> = places.map(|(place, it)| !is_over(place, it)).collect();
        if stays.iter().all(|&stays| stays) {
            return None;
        }
        let older = self.older.iter().zip(stays).filter(|&(_, stays)| stays);
        Some(Self::of(self.newest.clone(), older.map(|(older, _)| older.clone()).collect()))
    }

    /// All holdings, the newest first.
    fn all(&self) -> impl Iterator<Item = &Holdings> {
        std::iter::once(&self.newest).chain(self.older.iter().map(|older| &older.holdings))
    }

    /// How many versions of anything there are at most.
    pub fn generations(&self) -> usize {
        1 + self.older.len()
    }

    pub fn newest(&self) -> &Holdings {
        &self.newest
    }

    pub fn state(&self) -> u64 {
        self.state
    }

    pub fn catalog(&self) -> &CatalogReply {
        &self.catalog
    }

    pub fn request_bytes_max(&self) -> usize {
        self.all().map(|holdings| holdings.request_bytes_max).max().unwrap_or(0)
    }

    pub fn find_rows(&self, version: Version) -> Option<&Arc<Rows>> {
        self.all().flat_map(|holdings| &holdings.rows).find(|rows| rows.version() == version)
    }

    pub fn find_bags(&self, version: Version) -> Option<&Arc<Bags>> {
        self.all().flat_map(|holdings| &holdings.bags).find(|bags| bags.version() == version)
    }

    pub fn find_model(&self, version: Version) -> Option<&Arc<Inferences>> {
        self.all().flat_map(|holdings| &holdings.models).find(|model| model.version() == version)
    }

    /// What holds version `version` of a table whole, as rows that are held or below ones that are, and what a pass
    /// takes it.
    pub fn find_whole(&self, version: Version) -> Option<(Arc<dyn Backend>, Duration)> {
        self.all().flat_map(|holdings| &holdings.rows).find_map(|rows| {
            let backend = rows.server().backend();
            let found = match backend.below() {
                Some(below) => (below.version == version).then_some(below.backend),
                None => (rows.version() == version).then(|| Arc::clone(backend)),
            };
            found.map(|backend| (backend, rows.scan()))
        })
    }

    /// What is said of a table: of the newest version of the only one, where `version` is none.
    pub fn info(&self, version: Option<Version>) -> Result<&TableInfoReply, Refusal> {
        let tables = self.newest.rows.len();
        let Some(found) = version else {
            return match (tables, self.infos.first()) {
                (1, Some(only)) => Ok(only),
                _ => Err(Refusal::UnknownTable { found: None, tables }),
            };
        };
        if let Some(rows) = self.find_rows(found) {
            rows.uses.note();
        }
        let info = self.infos.iter().find(|info| *info.version == *found.as_bytes());
        info.ok_or_else(|| self.unknown(found))
    }

    /// The refusal of a table that is not held: a server of one says which it holds.
    pub fn unknown(&self, found: Version) -> Refusal {
        match self.newest.rows.as_slice() {
            [only] => Refusal::VersionSkew { expected: only.version(), found },
            rows => Refusal::UnknownTable { found: Some(found), tables: rows.len() },
        }
    }

    fn describe_tables(&self) -> Vec<TableInfoReply> {
        let mut infos: Vec<&TableInfo> = Vec::new();
        for info in self.all().flat_map(|holdings| &holdings.infos) {
            let layout = |info: &TableInfo| info.layout.map(|layout| layout.version);
            let is_it = |it: &&TableInfo| {
                (&it.name, it.version, layout(it)) == (&info.name, info.version, layout(info))
            };
            if !infos.iter().any(is_it) {
                infos.push(info);
            }
        }
        let reply = |place: usize| {
            let info: &TableInfo = infos[place];
            let mut versions = vec![info.version];
            // Those of its name that are older than it.
            for older in infos[place..].iter().filter(|older| older.name == info.name) {
                if !versions.contains(&older.version) {
                    versions.push(older.version);
                }
            }
            let versions = versions.iter().map(|version| version.as_bytes().to_vec().into());
            TableInfoReply {
                versions: versions.collect(),
                state: Some(self.state),
                ..TableInfoReply::from(info)
            }
        };
        (0..infos.len()).map(reply).collect()
    }

    fn describe_models(&self) -> (Vec<ModelInfo>, Vec<ModelInfo>) {
        let mut models: Vec<&Arc<Inferences>> = Vec::new();
        for model in self.all().flat_map(|holdings| &holdings.models) {
            if models.iter().all(|it| it.version() != model.version()) {
                models.push(model);
            }
        }
        let infos = (0..models.len()).map(|place| {
            let info = models[place].info();
            let older = models[place..].iter().filter(|older| older.info().name == info.name);
            let versions = older.flat_map(|older| older.info().versions.clone()).collect();
            ModelInfo { versions, ..info.clone() }
        });
        let mut infos: Vec<_> = infos.collect();
        let older = infos.split_off(self.newest.models.len());
        (infos, older)
    }

    /// Bytes in memory of what is held.
    pub fn bytes(&self) -> u64 {
        let mut versions = Vec::new();
        let mut bytes = 0u64;
        for holdings in self.all() {
            for (version, stored) in holdings.parts() {
                if !versions.contains(&version) {
                    versions.push(version);
                    bytes = bytes.saturating_add(stored);
                }
            }
        }
        bytes
    }

    /// Bytes in memory of what `version` is of, where it is held.
    pub fn holds(&self, version: Version) -> bool {
        self.find_rows(version).is_some() || self.find_bags(version).is_some()
    }

    /// Says in the metrics how many versions there are of each table.
    pub fn count(&self, metrics: &PairMetrics) {
        let names: BTreeSet<_> = self.infos.iter().map(|it| &it.name).collect();
        for name in names {
            let of_it = self.infos.iter().filter(|info| info.name == *name);
            let mut versions: Vec<_> =
                of_it.map(|info| (&info.version, &info.layout_version)).collect();
            versions.sort_unstable();
            let mut bytes = 0;
            let mut layouts: Vec<_> = versions.iter().map(|(_, layout)| *layout).collect();
            layouts.sort_unstable();
            layouts.dedup();
            for layout in layouts {
                let bags = version_of(layout).and_then(|layout| self.find_bags(layout));
                bytes += bags.map_or(0, |bags| bags.stored_bytes());
            }
            let mut versions: Vec<_> = versions.iter().map(|(version, _)| *version).collect();
            versions.dedup();
            let mut parts = BTreeMap::new();
            for version in &versions {
                let rows = version_of(version).and_then(|version| self.find_rows(version));
                for (version, stored) in rows.iter().flat_map(|rows| rows.parts()) {
                    parts.insert(version, stored);
                }
            }
            bytes += parts.values().sum::<u64>();
            metrics.hold(name, versions.len() as u64, bytes);
        }
    }
}

impl Holdings {
    /// What takes memory: versions of tables and of layouts, and their bytes.
    fn parts(&self) -> impl Iterator<Item = (Version, u64)> {
        let rows = self.rows.iter().flat_map(|rows| rows.parts());
        rows.chain(self.bags.iter().map(|bags| (bags.version(), bags.stored_bytes())))
    }
}

fn version_of(bytes: &[u8]) -> Option<Version> {
    <[u8; 32]>::try_from(bytes).ok().map(Version::from)
}
