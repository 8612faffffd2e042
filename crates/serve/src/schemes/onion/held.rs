//! What a server that is asked alone holds: its tables and models in their newest version, and in older ones that
//! clients still ask for.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use hushtable_pir::onion::{self, Geometry};
use hushtable_table::Version;
use hushtable_table::model::ModelManifest;

use super::OnionInfo;
use super::metrics::OnionMetrics;
use crate::Refusal;
use crate::batch::Scheduler;
use crate::schemes::versions::{Keep, Uses, state_of};
use crate::wire::{ModelInfo, OnionCatalogReply, OnionInfoReply};

/// A table behind a scheduler.
pub(super) struct HeldTable {
    pub server: onion::Server,
    pub info: OnionInfo,
    pub version: Bytes,
    /// What fronts and shards know this table and its split by.
    pub map: Version,
    /// Bytes in memory.
    pub stored_bytes: u64,
    pub scheduler: Scheduler<onion::Server>,
    /// Who asks for it.
    pub uses: Uses,
}

impl HeldTable {
    pub fn new(
        server: onion::Server,
        info: OnionInfo,
        scheduler: Scheduler<onion::Server>,
        (map, stored_bytes): (Version, u64),
    ) -> Self {
        let version = Bytes::copy_from_slice(info.version.as_bytes());
        Self { server, info, version, map, stored_bytes, scheduler, uses: Uses::new() }
    }

    pub fn version(&self) -> Version {
        self.info.version
    }
}

/// A model over tables that are held.
pub(super) struct HeldModel {
    pub manifest: ModelManifest,
    /// By feature, its table.
    pub tables: Vec<Arc<HeldTable>>,
    pub info: ModelInfo,
    /// Who asks for it.
    pub uses: Uses,
}

/// What a server holds of its bundles as they were at one time, each table version once.
#[derive(Clone)]
pub(super) struct Holdings {
    pub tables: Vec<Arc<HeldTable>>,
    pub models: Vec<Arc<HeldModel>>,
    /// What is said of each table, once for each name.
    pub infos: Vec<OnionInfoReply>,
    /// Of the table with the most levels, whose keys are the largest.
    pub deepest: Geometry,
    /// Bytes that any request may have.
    pub request_bytes_max: usize,
}

/// All that a server holds, and what it says of it. It does not change: another takes its place.
pub(super) struct Held {
    newest: Holdings,
    /// The newest first, each with when it was followed.
    older: Vec<(Holdings, Instant)>,
    catalog: OnionCatalogReply,
    state: u64,
}

impl Held {
    pub fn new(newest: Holdings) -> Self {
        Self::of(newest, Vec::new())
    }

    fn of(newest: Holdings, older: Vec<(Holdings, Instant)>) -> Self {
        let tables = newest.infos.iter().flat_map(|info| [info.name.as_bytes(), &info.version[..]]);
        let models = newest.models.iter().map(|model| &model.info.versions[0][..]);
        let state = state_of(tables.chain(models));
        let mut held = Self { newest, older, catalog: OnionCatalogReply::default(), state };
        held.catalog = held.describe();
        held
    }

    /// With `next` as the newest.
    pub fn followed_by(&self, next: Holdings) -> Self {
        let mut older = vec![(self.newest.clone(), Instant::now())];
        older.extend(self.older.iter().cloned());
        Self::of(next, older)
    }

    /// Without what nobody asks for any more; None where all of it stays.
    pub fn retired(&self, keep: Keep, now: Instant) -> Option<Self> {
        let is_over = |place: usize, (holdings, since): &(Holdings, Instant)| {
            let newer = || self.older[..place].iter().map(|(it, _)| it).chain([&self.newest]);
            let tables = holdings.tables.iter().filter(|table| {
                newer().all(|it| it.tables.iter().all(|other| !Arc::ptr_eq(other, table)))
            });
            let models = holdings.models.iter().filter(|model| {
                newer().all(|it| it.models.iter().all(|other| !Arc::ptr_eq(other, model)))
            });
            let uses = tables.map(|it| &it.uses).chain(models.map(|it| &it.uses));
            let uses: Vec<&Uses> = uses.collect();
            keep.is_over(*since, uses.into_iter(), now)
        };
        let older = self.older.iter().enumerate();
        let stays: Vec<_> = older.filter(|&(place, it)| !is_over(place, it)).collect();
        if stays.len() == self.older.len() {
            return None;
        }
        Some(Self::of(self.newest.clone(), stays.into_iter().map(|(_, it)| it.clone()).collect()))
    }

    fn all(&self) -> impl Iterator<Item = &Holdings> {
        std::iter::once(&self.newest).chain(self.older.iter().map(|(holdings, _)| holdings))
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

    pub fn catalog(&self) -> &OnionCatalogReply {
        &self.catalog
    }

    /// Every table version, once for each time that it is held.
    pub fn tables(&self) -> impl Iterator<Item = &Arc<HeldTable>> {
        self.all().flat_map(|holdings| &holdings.tables)
    }

    pub fn geometries(&self) -> Vec<Geometry> {
        self.tables().map(|table| table.info.geometry.clone()).collect()
    }

    /// Of the table with the most levels, whose keys are the largest.
    pub fn deepest(&self) -> &Geometry {
        let all = self.all().map(|holdings| &holdings.deepest);
        all.max_by_key(|geometry| geometry.levels()).unwrap_or(&self.newest.deepest)
    }

    pub fn request_bytes_max(&self) -> usize {
        self.all().map(|holdings| holdings.request_bytes_max).max().unwrap_or(0)
    }

    pub fn find_table(&self, version: Version) -> Option<&Arc<HeldTable>> {
        self.tables().find(|table| table.version() == version)
    }

    pub fn find_model(&self, version: Version) -> Option<&Arc<HeldModel>> {
        let mut models = self.all().flat_map(|holdings| &holdings.models);
        models.find(|model| model.manifest.version() == version)
    }

    /// The refusal of a table that is not held: a server of one says which it holds.
    pub fn unknown(&self, found: Version) -> Refusal {
        match self.newest.tables.as_slice() {
            [only] => Refusal::VersionSkew { expected: only.info.version, found },
            tables => Refusal::UnknownTable { found: Some(found), tables: tables.len() },
        }
    }

    /// What is said of a table: of the newest version of the only one, where `version` is none.
    pub fn info(&self, version: Option<Version>) -> Result<&OnionInfoReply, Refusal> {
        let (infos, tables) = (&self.catalog.tables, self.newest.tables.len());
        let Some(found) = version else {
            return match (tables, infos.first()) {
                (1, Some(only)) => Ok(only),
                _ => Err(Refusal::UnknownTable { found: None, tables }),
            };
        };
        if let Some(table) = self.find_table(found) {
            table.uses.note();
        }
        let info = infos.iter().find(|info| *info.version == *found.as_bytes());
        info.ok_or_else(|| self.unknown(found))
    }

    fn describe(&self) -> OnionCatalogReply {
        let mut infos: Vec<&OnionInfoReply> = Vec::new();
        for info in self.all().flat_map(|holdings| &holdings.infos) {
            if infos.iter().all(|it| (&it.name, &it.version) != (&info.name, &info.version)) {
                infos.push(info);
            }
        }
        let tables = (0..infos.len()).map(|place| {
            let info = infos[place];
            // Those of its name that are older than it.
            let of_it = infos[place..].iter().filter(|older| older.name == info.name);
            let versions = of_it.map(|older| older.version.clone()).collect();
            OnionInfoReply { versions, state: Some(self.state), ..info.clone() }
        });
        let mut models: Vec<&ModelInfo> = Vec::new();
        for model in self.all().flat_map(|holdings| &holdings.models) {
            if models.iter().all(|it| it.versions != model.info.versions) {
                models.push(&model.info);
            }
        }
        let described = (0..models.len()).map(|place| {
            let older = models[place..].iter().filter(|older| older.name == models[place].name);
            let versions = older.flat_map(|older| older.versions.clone()).collect();
            ModelInfo { versions, ..models[place].clone() }
        });
        let mut models: Vec<_> = described.collect();
        let older = models.split_off(self.newest.models.len());
        OnionCatalogReply { tables: tables.collect(), models, older, state: Some(self.state) }
    }

    /// Bytes in memory of what is held.
    pub fn bytes(&self) -> u64 {
        let mut versions = BTreeSet::new();
        let tables = self.tables().filter(|table| versions.insert(&table.version));
        tables.map(|table| table.stored_bytes).sum()
    }

    /// Says in the metrics how many versions there are of each table.
    pub fn count(&self, metrics: &OnionMetrics) {
        let names: BTreeSet<_> = self.catalog.tables.iter().map(|info| &info.name).collect();
        for name in names {
            let of_it = self.catalog.tables.iter().filter(|info| info.name == *name);
            let (mut versions, mut bytes) = (0, 0);
            for info in of_it {
                let table = self.tables().find(|table| table.version == info.version);
                versions += 1;
                bytes += table.map_or(0, |table| table.stored_bytes);
            }
            metrics.hold(name, versions, bytes);
        }
    }
}
