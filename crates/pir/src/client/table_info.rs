//! What one of two servers says about its table, checked.

use std::time::Duration;

use bytes::Bytes;
use hushtable_prg::PrgKind;
use hushtable_table::{DType, Version};

use super::announced::{
    BAGS_PER_REQUEST_MAX, KEYS_PER_REQUEST_MAX, count_within, shape, text, version, versions,
    window, within,
};
use super::{ReplyDefect, RowFormat};
use crate::TableShape;
use crate::dpf::{Group, Side};

/// What a server holds and what it accepts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "servers say it field by field")]
pub struct TableInfo {
    /// The table's name.
    pub name: String,
    /// The version of its content.
    pub version: Version,
    /// Rows and row bytes.
    pub shape: TableShape,
    /// Numbers in a row.
    pub dim: usize,
    /// Their type.
    pub dtype: DType,
    /// Which server this is.
    pub side: Side,
    /// Keys that one request may hold.
    pub keys_per_request_max: usize,
    /// Bytes that one request may have.
    pub request_bytes_max: u64,
    /// Generators that keys may use.
    pub prgs: Vec<PrgKind>,
    /// Output groups that keys may use, what the server answers fastest first;
    /// [`Group::Bits`] is always among them.
    pub groups: Vec<Group>,
    /// How long a request may wait for others to share its pass.
    pub window: Duration,
    /// The server's software.
    pub software: String,
    /// The table's layout, if it has one.
    pub layout: Option<LayoutInfo>,
}

/// What a server says about its table's layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "servers say it field by field")]
pub struct LayoutInfo {
    /// What it hashes to.
    pub version: Version,
    /// Bytes of it on the wire.
    pub bytes: u64,
    /// How long an inference may wait for others to share its pass.
    pub window: Duration,
    /// Inferences that one request may hold.
    pub bags_per_request_max: usize,
}

/// A server's announcement of a table as it came, unchecked: the fields of `TableInfoReply` in
/// `proto/hushtable/v1/lookup.proto`.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
#[allow(missing_docs, reason = "the proto says what each is")]
pub struct AnnouncedTable {
    pub name: String,
    pub version: Bytes,
    pub versions: Vec<Bytes>,
    pub rows: u64,
    pub dim: u32,
    pub dtype: DType,
    pub row_bytes: u32,
    pub side: Side,
    pub keys_per_request_max: u32,
    pub request_bytes_max: u64,
    pub prgs: Vec<u32>,
    pub groups: Vec<u32>,
    pub window_us: u64,
    pub software: String,
    pub layout_version: Bytes,
    pub layout_bytes: u64,
    pub bags_window_us: u64,
    pub bags_per_request_max: u32,
    pub state: Option<u64>,
}

impl AnnouncedTable {
    /// The versions that the server says it holds, newest first.
    pub(super) fn listed(&self) -> Result<Vec<Version>, ReplyDefect> {
        versions(version(&self.version)?, &self.versions)
    }
}

impl TableInfo {
    /// Holds an announcement against what a table can be.
    ///
    /// # Errors
    /// The [`ReplyDefect`] of the field that cannot be.
    pub fn check(announced: AnnouncedTable) -> Result<Self, ReplyDefect> {
        let AnnouncedTable { rows, dim, dtype, row_bytes, side, .. } = announced;
        let layout = match announced.layout_version.is_empty() {
            true => {
                within("layout_bytes", announced.layout_bytes, 0..=0)?;
                within("bags_window_us", announced.bags_window_us, 0..=0)?;
                within("bags_per_request_max", announced.bags_per_request_max.into(), 0..=0)?;
                None
            }
            false => Some(LayoutInfo {
                version: version(&announced.layout_version)?,
                bytes: within("layout_bytes", announced.layout_bytes, 1..=LAYOUT_BYTES_MAX)?,
                window: window("bags_window_us", announced.bags_window_us)?,
                // An older server says nothing of it, and takes one.
                bags_per_request_max: count_within(
                    "bags_per_request_max",
                    announced.bags_per_request_max.max(1),
                    BAGS_PER_REQUEST_MAX,
                )?,
            }),
        };
        let current = version(&announced.version)?;
        versions(current, &announced.versions)?;
        let keys_max = announced.keys_per_request_max;
        // A newer server may take generators that this version does not know: those are of no use.
        let prgs = announced.prgs.iter();
        let prgs = prgs.filter_map(|&id| PrgKind::from_id(id.try_into().ok()?).ok());
        Ok(Self {
            version: current,
            shape: shape(rows, row_bytes, dim, dtype)?,
            dim: dim as usize,
            dtype,
            side,
            keys_per_request_max: count_within(
                "keys_per_request_max",
                keys_max,
                KEYS_PER_REQUEST_MAX,
            )?,
            request_bytes_max: announced.request_bytes_max,
            prgs: prgs.take(PrgKind::ALL.len()).collect(),
            groups: known_groups(&announced.groups)?,
            window: window("window_us", announced.window_us)?,
            name: text("name", announced.name)?,
            software: text("software", announced.software)?,
            layout,
        })
    }

    /// How a row's bytes make numbers.
    pub fn format(&self) -> RowFormat {
        let &Self { dtype, dim, shape, .. } = self;
        RowFormat { dtype, dim, row_bytes: shape.row_bytes() }
    }
}

/// The groups that this version knows, each once. Every server takes bits.
fn known_groups(ids: &[u32]) -> Result<Vec<Group>, ReplyDefect> {
    let known = ids.iter().filter_map(|&id| Group::from_id(id.try_into().ok()?).ok());
    let mut groups = Vec::new();
    for group in known {
        if !groups.contains(&group) {
            groups.push(group);
        }
    }
    match groups.contains(&Group::Bits) {
        true => Ok(groups),
        false => Err(ReplyDefect::Groups),
    }
}

/// More than the ids of all companions of 2^32 rows take.
const LAYOUT_BYTES_MAX: u64 = 1 << 41;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_server_takes_bits() {
        for ids in [&[][..], &[1], &[9, u32::MAX, 256]] {
            assert_eq!(known_groups(ids), Err(ReplyDefect::Groups), "{ids:?}");
        }
        let groups = known_groups(&[9, 1, 1, u32::MAX, 256, 0]);
        assert_eq!(groups, Ok(vec![Group::Z8, Group::Bits]));
        assert_eq!(known_groups(&[0; 100_000]), Ok(vec![Group::Bits]));
    }
}
