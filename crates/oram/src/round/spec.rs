//! What a controller is asked to be, as a file says it.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::aggregate::{Aggregate, AggregateSpec, ClipSpec};
use crate::disk::FileSpec;
use crate::fdp::{FdpSpec, Mechanism};
use crate::geometry::{BUCKET_BYTES, Geometry, GeometrySpec, Storage};
use crate::tree::TreePlace;
use crate::union::{Loss, SLOTS_COUNT_MAX};
use crate::wire::PublicKey;

use super::Error;
use super::budget::{Budget, BudgetSpec};

/// What a user gets for a row that was lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum DefaultRow {
    /// Zeros. What a user adds to it is dropped.
    #[default]
    Zero,
    /// The mean of the table's rows when it was created.
    Mean,
}

/// A controller: its table, its rounds, its privacy.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ControllerSpec {
    /// The table's name.
    pub name: String,
    /// Rows, 1 to 2^31.
    pub rows: u64,
    /// Numbers (`f32`) in a row.
    pub dim: usize,
    /// The most users of a round.
    pub users_max: usize,
    /// Request slots of a user; users with fewer values pad.
    pub slots: usize,
    /// How many rows are read.
    #[serde(default)]
    pub fdp: FdpSpec,
    /// What rounds may cost together; no bound if not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<BudgetSpec>,
    /// Which rows are lost when fewer are read than were asked for.
    #[serde(default)]
    pub loss: Loss,
    /// What is served instead.
    #[serde(default)]
    pub default_row: DefaultRow,
    /// What becomes of gradients.
    pub aggregate: AggregateSpec,
    /// How much of one user's upload counts. None, as before there was a clip, bounds nothing but
    /// what sums can hold ([`VALUE_MAX`](crate::aggregate::VALUE_MAX) a number): one user can then
    /// undo a row.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clip: Option<ClipSpec>,
    /// Who enrols the users that may take part, by its public key. None lets everyone take part who
    /// can reach the controller.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub authority: Option<PublicKey>,
    /// Levels of the tree in memory; 14 are 64 MB.
    #[serde(default = "cached_levels")]
    pub cached_levels: u32,
    /// Bytes of memory for the paths of a round; a longer round reads some buckets twice.
    #[serde(default = "window_bytes_max")]
    pub window_bytes_max: u64,
    /// -log2 of the probability that an eviction overfills the stash.
    #[serde(default = "overflow_bits")]
    pub overflow_bits: u32,
    /// KiB of a bucket, the unit of the tree that is read and written: 4, 8 or 16.
    #[serde(default = "bucket_kib", skip_serializing_if = "is_bucket_kib")]
    pub bucket_kib: usize,
    /// How buckets are kept on disk. Folders of before there was a choice say nothing of it.
    #[serde(default, skip_serializing_if = "is_pairs")]
    pub storage: Storage,
    /// How the file is read and written.
    #[serde(default, skip)]
    pub file: FileSpec,
}

/// The most rows that are taken out at once beside a round's: an export's.
const EXPORT_ROWS: usize = 1 << 16;

/// The most rows of a table of `rows` that are taken out and put back before they are committed, in
/// rounds of up to `requests`.
pub fn rows_at_once(rows: u64, requests: usize) -> usize {
    ((rows / 64).clamp(1, EXPORT_ROWS as u64) as usize).max(requests)
}

fn bucket_kib() -> usize {
    BUCKET_BYTES >> 10
}
fn is_bucket_kib(kib: &usize) -> bool {
    *kib == bucket_kib()
}
fn is_pairs(storage: &Storage) -> bool {
    *storage == Storage::Pairs
}

fn cached_levels() -> u32 {
    14
}
fn window_bytes_max() -> u64 {
    1 << 30
}
fn overflow_bits() -> u32 {
    80
}

impl ControllerSpec {
    /// Rounds of up to `users_max` users with `slots` values each, at ε = 1 by FedAvg, of users who
    /// are believed to be honest: set [`clip`](Self::clip) where they may not be.
    pub fn new(name: &str, (rows, dim): (u64, usize), (users_max, slots): (usize, usize)) -> Self {
        Self {
            name: name.to_owned(),
            rows,
            dim,
            users_max,
            slots,
            fdp: FdpSpec::default(),
            budget: None,
            loss: Loss::default(),
            default_row: DefaultRow::default(),
            aggregate: AggregateSpec::FedAvg { learning_rate: 1.0 },
            clip: None,
            authority: None,
            cached_levels: cached_levels(),
            window_bytes_max: window_bytes_max(),
            overflow_bits: overflow_bits(),
            bucket_kib: bucket_kib(),
            storage: Storage::Rings,
            file: FileSpec::default(),
        }
    }

    /// The tree that it takes.
    ///
    /// # Errors
    ///
    /// What [`Controller::create`](super::Controller::create) would refuse.
    pub fn geometry(&self) -> Result<Geometry, Error> {
        Ok(*self.check()?.place.geometry())
    }

    /// Bytes of the tree's file.
    ///
    /// # Errors
    ///
    /// As [`geometry`](Self::geometry).
    pub fn tree_bytes(&self) -> Result<u64, Error> {
        Ok(self.check()?.place.pages() * crate::disk::PAGE_BYTES as u64)
    }

    /// The most rows that are taken out and put back before they are committed: a round's, or an
    /// export's, which are fewer of a small table, whose file they would lengthen.
    pub(super) fn rows_at_once(&self) -> usize {
        let requests = self.users_max * self.slots;
        match self.storage {
            Storage::Pairs => EXPORT_ROWS.max(requests),
            Storage::Rings => rows_at_once(self.rows, requests),
        }
    }

    /// The text of `controller.json`: what users' messages are bound to.
    ///
    /// # Errors
    ///
    /// A spec that JSON cannot hold.
    pub fn to_text(&self) -> Result<Vec<u8>, Error> {
        serde_json::to_vec_pretty(self).map_err(|_| Error::Record)
    }

    pub(super) fn check(&self) -> Result<Checked, Error> {
        let spec = |field, expected| Err(Error::Spec { field, expected });
        if self.name.is_empty() || self.name.len() > 255 {
            return spec("name", "1 to 255 bytes");
        }
        if self.dim == 0 || self.dim > 1000 {
            return spec("dim", "1 to 1000 numbers");
        }
        let requests =
            self.users_max.checked_mul(self.slots).filter(|&r| r > 0 && r <= SLOTS_COUNT_MAX);
        let Some(requests) = requests else {
            return spec("users_max and slots", "a product of 1 to 2^21 requests a round");
        };
        if self.overflow_bits < 20 || self.overflow_bits > 256 {
            return spec("overflow_bits", "20 to 256");
        }
        if self.cached_levels > 20 {
            return spec("cached_levels", "0 to 20 (4 GiB)");
        }
        if ![4, 8, 16].contains(&self.bucket_kib) {
            return spec("bucket_kib", "4, 8 or 16");
        }
        let aggregate = self.aggregate.build()?;
        self.clip.as_ref().map_or(Ok(()), ClipSpec::check)?;
        // Made again for each round's K; this one is for the error.
        let _ = Mechanism::new(&self.fdp, requests as u64)?;
        let budget = Budget::new(self.budget, &self.fdp)?;
        let payload_bytes = 4 * self.dim + aggregate.state_bytes(self.dim);
        let geometry = Geometry::new(&GeometrySpec {
            overflow_bits: self.overflow_bits,
            bucket_bytes: self.bucket_kib << 10,
            storage: self.storage,
            ..GeometrySpec::on_disk(self.rows, payload_bytes)
        })?;
        let place = TreePlace::new(&geometry, self.cached_levels, self.rows_at_once());
        Ok(Checked { place, aggregate: aggregate.into(), budget })
    }
}

/// What a spec means.
pub(super) struct Checked {
    pub(super) place: TreePlace,
    pub(super) aggregate: Arc<dyn Aggregate>,
    pub(super) budget: Budget,
}
