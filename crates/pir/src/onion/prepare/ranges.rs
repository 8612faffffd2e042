//! Preparing ranges of one table side by side, in processes of one machine or of several.
//!
//! All write into one file, each unit at its place, so that the file is the one that a single process
//! makes and nothing is copied at the end. Who shares the work holds a [`Preparation`] meanwhile.

use std::ops::Range;
use std::path::Path;

use hushtable_table::model::whole_blocks;
use hushtable_table::prepared::{PreparedPart, PreparedWriter};
use hushtable_table::{Error as TableError, RowsError, Table};

use super::{Making, Progress, Summary, Unit, file_spec, geometry, read_rows, thread_pool, units};
use crate::onion::{Error, Geometry, OnionSpec, ParameterSet};

/// The preparation of a table in ranges. While it is there, no other run is at the file.
///
/// ```
/// use hushtable_pir::onion::{
///     Cut, Engine, OnionSpec, ParameterSet, Preparation, prepare_range, prepare_ranges,
/// };
/// use hushtable_table::{DType, Table};
///
/// let folder = tempfile::tempdir()?;
/// let (bundle, path) = (folder.path().join("films"), folder.path().join("films.prepared"));
/// Table::from_weight("films", 9_000, 4, DType::F32, &[0.5; 36_000])?.save(&bundle)?;
/// let (table, set) = (Table::open(&bundle)?, ParameterSet::N4096128);
/// let preparation = Preparation::begin(&table, &path, set)?;
/// for units in prepare_ranges(&table, set, 64 << 10, Cut::Units)? {
///     // In other processes, which open the table again.
///     prepare_range(&table, &path, set, units.clone(), &OnionSpec::new(), &|_, _| true)?;
///     preparation.take(units)?;
/// }
/// preparation.finish()?;
/// Engine::open(&path, &table, set, &OnionSpec::new())?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
pub struct Preparation {
    writer: PreparedWriter,
    units: u32,
    resumed_units: u32,
}

/// Where a table is cut into ranges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cut {
    /// Between any units of work, for processes of one machine.
    Units,
    /// Where pages of 4 KiB of the file end too: of a file on a disk that machines share, each keeps and
    /// writes whole pages, so that two that write into one could undo what the other wrote.
    Pages,
}

impl Preparation {
    /// Begins the prepared file of `table` at `path`, or goes on with it, in whatever ranges an
    /// earlier run made it.
    ///
    /// # Errors
    /// As [`prepare`](super::prepare): [`Error::Prepared`], also while a range is still prepared for an
    /// earlier run, [`Error::RowBytes`]; [`Error::Table`] for a patch that does not make the table's
    /// version.
    pub fn begin(table: &Table, path: &Path, set: ParameterSet) -> Result<Self, Error> {
        let geometry = geometry(table, set)?;
        let spec = file_spec(table, &geometry);
        let writer = PreparedWriter::open(path, &spec)?;
        // A range checks the rows below the patch, of which it has some.
        table.check_patch().map_err(Error::Table)?;
        let resumed_units = writer.done();
        Ok(Self { writer, units: spec.blocks, resumed_units })
    }

    /// Units of work.
    pub fn units(&self) -> u32 {
        self.units
    }

    /// Units that are done, in ranges that were [taken](Self::take) or by an earlier run.
    pub fn done(&self) -> u32 {
        self.writer.done()
    }

    /// Notes what [`prepare_range`] has done of a range, and clears away the range's own notes.
    ///
    /// # Errors
    /// [`Error::Prepared`], also while the range is still being prepared.
    pub fn take(&self, units: Range<u32>) -> Result<(), Error> {
        Ok(self.writer.take_part(units)?)
    }

    /// Puts the file in its place once all ranges are done.
    ///
    /// # Errors
    /// [`Error::Prepared`] where units are missing, or a range is still being prepared.
    pub fn finish(self) -> Result<Summary, Error> {
        let (units, resumed_units) = (self.units, self.resumed_units);
        let prepared = self.writer.finish()?;
        let payload_bytes = prepared.payload().len() as u64;
        Ok(Summary { version: prepared.version(), payload_bytes, resumed_units, units })
    }
}

/// Cuts a table into ranges of units, of `table_bytes` bytes of its rows each or somewhat more; one range
/// where its bundle has no tree of hashes, as then no less than the whole table can be checked.
///
/// # Errors
/// As [`Preparation::begin`], files apart.
pub fn prepare_ranges(
    table: &Table,
    set: ParameterSet,
    table_bytes: u64,
    cut: Cut,
) -> Result<Vec<Range<u32>>, Error> {
    let geometry = geometry(table, set)?;
    let first = whole_blocks(0..1, table.rows());
    let count = match table.reading_of(first) {
        Err(TableError::Rows { source: RowsError::NoTree, .. }) => 1,
        Err(error) => return Err(Error::Table(error)),
        Ok(_) => geometry.shape().table_bytes() / table_bytes.max(1),
    };
    Ok(ranges_of(&geometry, count, cut))
}

/// At most `count` ranges of units, one at least, as alike as `cut` lets them be.
fn ranges_of(geometry: &Geometry, count: u64, cut: Cut) -> Vec<Range<u32>> {
    let units = units(geometry);
    let all = units.len() as u64;
    let is_cut = |unit: &Unit| cut == Cut::Units || unit.group == 0;
    let starts: Vec<u64> =
        (0..).zip(&units).filter(|(_, unit)| is_cut(unit)).map(|(start, _)| start).collect();
    let count = count.clamp(1, all);
    let mut bounds: Vec<u32> = (0..=count)
        .map(|index| {
            let wanted = all * index / count;
            let next = starts.partition_point(|&start| start < wanted);
            let after = starts.get(next).copied().unwrap_or(all);
            let before = starts.get(next.wrapping_sub(1)).copied().unwrap_or(0);
            (if wanted - before < after - wanted { before } else { after }) as u32
        })
        .collect();
    bounds.dedup();
    bounds.windows(2).map(|pair| pair[0]..pair[1]).collect()
}

/// Prepares some units of `table` for the file that a [`Preparation`], in this process or another, has
/// begun at `path`, or goes on with them; returns how many an earlier run had done. Of the table, their
/// rows alone are read and checked; `progress` hears of theirs.
///
/// # Errors
/// As [`prepare`](super::prepare); [`Error::Prepared`] also where no such file has been begun, and where
/// another process is at one of the units.
pub fn prepare_range(
    table: &Table,
    path: &Path,
    set: ParameterSet,
    units: Range<u32>,
    spec: &OnionSpec,
    progress: Progress<'_>,
) -> Result<u32, Error> {
    let geometry = geometry(table, set)?;
    let part = PreparedPart::open(path, &file_spec(table, &geometry), units.clone())?;
    let resumed_units = part.done();
    let own: Vec<_> =
        (0..).zip(super::units(&geometry)).skip(units.start as usize).take(units.len()).collect();
    let all_bytes = own.iter().map(|(_, unit)| unit.table_bytes(&geometry)).sum();
    let making = Making::new(&part, &geometry, table.version(), all_bytes, progress);
    thread_pool(spec)?.install(|| {
        let missing = making.missing(&own)?;
        for rows in rows_of(&geometry, &missing) {
            let reading = table.reading_of(rows.clone()).map_err(Error::Table)?;
            read_rows(table, rows, |first, out| reading.copy_rows(first, out))?;
            reading.finish()?;
        }
        making.make(&missing, &table.summed_rows())
    })?;
    part.finish()?;
    Ok(resumed_units)
}

/// The rows of some units, as ranges of whole blocks of rows, ascending and apart.
fn rows_of(geometry: &Geometry, units: &[(u32, Unit)]) -> Vec<Range<u64>> {
    let rows = geometry.shape().rows();
    let of_unit = |(_, unit): &(u32, Unit)| geometry.ids_of(unit.columns());
    let own = units.iter().map(of_unit).filter(|ids| !ids.is_empty());
    let mut own: Vec<_> = own.map(|ids| whole_blocks(ids, rows)).collect();
    own.sort_by_key(|ids| ids.start);
    let mut apart: Vec<Range<u64>> = Vec::new();
    for ids in own {
        match apart.last_mut() {
            // Those of another chunk of the same rows among them.
            Some(last) if ids.start <= last.end => last.end = last.end.max(ids.end),
            _ => apart.push(ids),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::TableShape;

    fn geometry(set: ParameterSet, rows: u64, row_bytes: usize) -> Geometry {
        Geometry::new(set, TableShape::new(rows, row_bytes).unwrap()).unwrap()
    }

    #[test]
    fn ranges_are_all_units_once_and_alike() {
        let geometry = geometry(ParameterSet::N4096128, 1 << 22, 256);
        let all = units(&geometry).len() as u32;
        for cut in [Cut::Units, Cut::Pages] {
            for count in [0, 1, 2, 3, 7, 8, 100, u64::from(all), 1 << 40] {
                let ranges = ranges_of(&geometry, count, cut);
                assert!(ranges.len() as u64 <= count.max(1));
                assert_eq!((ranges[0].start, ranges[ranges.len() - 1].end), (0, all));
                assert!(ranges.windows(2).all(|pair| pair[0].end == pair[1].start));
                let units = |range: &Range<u32>| range.len() as u64;
                let most = ranges.iter().map(units).max().unwrap();
                let even = u64::from(all).div_ceil(count.clamp(1, all.into()));
                // Of 64 columns there are 16 units.
                assert!(
                    most <= even + if cut == Cut::Units { 0 } else { 16 },
                    "{count}: {ranges:?}"
                );
                assert!(ranges.iter().all(|range| !range.is_empty()));
            }
        }
    }

    /// Machines that share a disk write whole pages: two that wrote into one could undo each other's.
    #[test]
    fn ranges_of_pages_meet_where_pages_do() {
        for set in ParameterSet::ALL {
            for (rows, row_bytes) in [(1 << 22, 256), (3_000_001, 44), (40_000, 20_000)] {
                let geometry = geometry(set, rows, row_bytes);
                let units = units(&geometry);
                let ranges = ranges_of(&geometry, 5, Cut::Pages);
                assert!(ranges.len() >= 2, "{set:?}: {ranges:?}");
                for (number, range) in ranges.iter().enumerate() {
                    // No unit of another range has a byte between the first of this one's and its last.
                    let own = &units[range.start as usize..range.end as usize];
                    let end =
                        own.iter().map(|unit| unit.block.offset + unit.block.bytes).max().unwrap();
                    let next = units.get(range.end as usize).map_or(end, |unit| unit.block.offset);
                    let start = own.iter().map(|unit| unit.block.offset).min().unwrap();
                    assert_eq!((start % 4_096, end % 4_096), (0, 0), "{set:?}, range {number}");
                    assert_eq!((own[0].group, next), (0, end));
                }
            }
        }
    }

    #[test]
    fn a_ranges_rows_are_those_of_its_columns() {
        // Rows of three plaintexts: chunks of the same rows follow each other.
        let geometry = geometry(ParameterSet::N4096128, 6_000, 20_000);
        let numbered: Vec<_> = (0..).zip(units(&geometry)).collect();
        let all = rows_of(&geometry, &numbered);
        assert_eq!((all.len(), &all[0]), (1, &(0..6_000)));
        let of_chunk = numbered.len() / 3;
        // The end of the first chunk's units and the start of the second's.
        let rows = rows_of(&geometry, &numbered[of_chunk - 1..of_chunk + 1]);
        assert_eq!(rows.len(), 2);
        assert!(
            rows[0].start == 0 && rows[1].end == 6_000 && rows[0].end < rows[1].start,
            "{rows:?}"
        );
        assert!(rows.iter().all(|rows| rows.start.is_multiple_of(256)));
        assert_eq!(rows_of(&geometry, &[]), []);
    }
}
