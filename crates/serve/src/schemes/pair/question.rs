//! Questions whose answers the server's own tables have: what self-checks ask.

use std::ops::Range;

use hushtable_pir::batch::{self, Geometry};
use hushtable_pir::dpf::{self, Group, Reply};
use hushtable_pir::{PrgKind, TableShape};
use hushtable_table::layout::{Found, Layout, Plan};
use hushtable_table::{Table, Version};

use crate::Error;
use crate::batch::check::is_row;
use crate::peer::random_u64;

/// A question that was asked of both servers, and how to read their answers.
pub(crate) enum Question<'a> {
    /// One row, beside dummies.
    Row { table: &'a Table, row: u64, pending: dpf::Pending },
    /// Random entries of each part of a layout.
    Bins { table: &'a Table, version: Version, ids: Vec<u64>, plan: Plan, pending: batch::Pending },
}

/// What goes to the left and to the right server.
pub(crate) type Sides<T> = [T; 2];
/// The keys of one server's request.
type Keys = Vec<Vec<u8>>;

impl<'a> Question<'a> {
    /// Asks for `row`, by keys of `group`, padded to `keys`.
    pub fn of_row(
        table: &'a Table,
        row: u64,
        group: Group,
        keys: usize,
    ) -> Result<(Self, Sides<Keys>), Error> {
        let shape = TableShape::new(table.rows(), table.row_bytes())?;
        let client = dpf::Client::with_group(shape, table.version(), PrgKind::Aes128, group)?;
        let (request, pending) = client.query(&[row], keys)?;
        Ok((Self::Row { table, row, pending }, [request.left, request.right]))
    }

    /// Asks for one row of each of a few bins of each part of `layout`; of some of its bins alone, where
    /// `own` says which of each part.
    pub fn of_bins(
        table: &'a Table,
        layout: &Layout,
        own: Option<&[Range<usize>]>,
        geometry: &Geometry,
    ) -> Result<(Self, Sides<Vec<u8>>), Error> {
        let (plan, ids) = random_plan(layout, own)?;
        let client = batch::Client::new(geometry.clone(), PrgKind::Aes128);
        let (request, pending) = client.query(&plan)?;
        let sides = [request.left.clone(), request.right.clone()];
        Ok((Self::Bins { table, version: layout.version(), ids, plan, pending }, sides))
    }

    /// The first row that came back different from the table's bytes.
    pub fn wrong(&self, answers: Sides<&[u8]>) -> Result<Option<u64>, Error> {
        match self {
            Self::Row { table, row, pending } => {
                let version = table.version();
                let [left, right] = answers.map(|answers| Reply { version, answers });
                let found = pending.combine(left, right)?;
                Ok((!is_row(table, *row, &found)?).then_some(*row))
            }
            Self::Bins { table, version, ids, plan, pending } => {
                let version = *version;
                let [left, right] = answers.map(|answers| Reply { version, answers });
                let entries = pending.combine(left, right)?;
                let row_bytes = table.row_bytes();
                let rows = pending.rows(plan, &entries, row_bytes);
                for (&id, row) in ids.iter().zip(rows.chunks_exact(row_bytes)) {
                    if !is_row(table, id, row)? {
                        return Ok(Some(id));
                    }
                }
                Ok(None)
            }
        }
    }
}

/// A random one of `rows`.
pub(super) fn random_row(rows: Range<u64>) -> Result<u64, Error> {
    Ok(rows.start + random_u64()? % (rows.end - rows.start))
}

/// A random one of the rows that changed; None where none did.
pub(super) fn random_change(changed: &[u64]) -> Result<Option<u64>, Error> {
    match changed.len() {
        0 => Ok(None),
        count => Ok(Some(changed[(random_u64()? % count as u64) as usize])),
    }
}

/// A plan that wants one row of each of a few bins of each part, and the ids stored there.
fn random_plan(layout: &Layout, own: Option<&[Range<usize>]>) -> Result<(Plan, Vec<u64>), Error> {
    let mut plan = Plan::empty(layout.keys());
    let mut ids = Vec::new();
    let mut first_key = 0;
    for (number, part) in layout.parts().enumerate() {
        let own = own.map(|own| &own[number]);
        let is_own = |bin: usize| own.is_none_or(|own| own.contains(&bin));
        // A shard has few of the bins: it looks for rows in them until it has found some.
        let (mut left, mut tries) = (ENTRIES_CHECKED, ENTRY_TRIES_MAX);
        while left > 0 && tries > 0 && own.is_none_or(|own| !own.is_empty()) {
            tries -= 1;
            let index = random_u64()? % part.spec().rows;
            if !part.places(index).any(|place| is_own(place.bin as usize)) {
                continue;
            }
            left -= 1;
            for place in part.places(index).filter(|place| is_own(place.bin as usize)) {
                let key = first_key + place.bin as usize * part.queries();
                if plan.found.iter().flatten().any(|found| found.key as usize == key) {
                    continue;
                }
                plan.offsets[key] = place.offset;
                for (id, entry_row) in layout.entry_ids(part, index).zip(0..) {
                    plan.found.push(Some(Found { key: key as u32, entry_row }));
                    ids.push(id);
                }
            }
        }
        first_key += part.keys();
    }
    Ok((plan, ids))
}

const ENTRIES_CHECKED: usize = 4;
const ENTRY_TRIES_MAX: usize = 1 << 16;
