//! Reading all that a shard has of a model, before it is served.

use std::ops::Range;

use super::{MapError, ShardMap};
use crate::error::Error;
use crate::model::Model;
use crate::model::verify::read_dense;
use crate::shape::BLOCK_ROWS;
use crate::table::Table;

/// Rows are read in pieces of about so many bytes.
const PIECE_BYTES: usize = 1 << 20;

impl ShardMap {
    /// Reads what shard `shard` has of `model`, or with none, a front, and checks it against the
    /// model's version: the tables' manifests, layouts and patches, the dense file, and the shard's
    /// rows. The model may be a copy that has [`pieces`](Self::pieces) alone.
    ///
    /// `progress` is called with the bytes of rows done and the bytes there are. Prepared
    /// files are not looked at: what knows their columns checks those.
    ///
    /// # Errors
    /// [`Error::ShardMap`] for a shard that there is not; [`Error::Rows`], [`Error::Damaged`] or
    /// [`Error::Model`] for the first damage; the errors of tables that do not open.
    pub fn verify(
        &self,
        model: &Model,
        shard: Option<usize>,
        progress: &mut dyn FnMut(u64, u64),
    ) -> Result<(), Error> {
        let path = model.path().join(self.scheme().place());
        let wrong = |source: MapError| Error::ShardMap { path: path.clone(), source };
        self.check_model(model.manifest()).map_err(wrong)?;
        if let Some(shard) = shard {
            self.shard(shard).map_err(wrong)?;
        }
        let total = (0..self.tables().len()).map(|index| self.bytes_of(model, shard, index)).sum();
        let mut done = 0;
        progress(done, total);
        read_dense(model)?;
        for index in 0..self.tables().len() {
            // A front has no rows, but what opens.
            let table = model.table(index)?;
            let Some(shard) = shard else { continue };
            let row_bytes = table.row_bytes() as u64;
            let mut step = |rows: u64| progress(done + rows * row_bytes, total);
            match self.is_whole(Some(shard), table.layout().is_some()) {
                true => check_whole(model, index, &mut step)?,
                false => {
                    if let Some(rows) = self.blocks_of(shard, index) {
                        check_rows(&table, rows, &mut step)?;
                    }
                }
            }
            done += self.bytes_of(model, Some(shard), index);
        }
        progress(total, total);
        Ok(())
    }

    /// Bytes of the rows of a table that are read for a shard.
    fn bytes_of(&self, model: &Model, shard: Option<usize>, index: usize) -> u64 {
        let table = &self.tables()[index];
        let Some(shard) = shard else { return 0 };
        let rows =
            match self.is_whole(Some(shard), model.manifest().tables()[index].layout.is_some()) {
                true => table.rows,
                false => self.blocks_of(shard, index).map_or(0, |rows| rows.end - rows.start),
            };
        rows * table.row_bytes as u64
    }
}

/// Reads a table whose layout's bins have rows from all over it.
fn check_whole(model: &Model, index: usize, step: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let path = model.table_path(index);
    let report = crate::verify::verify(&path, &mut |rows, _| step(rows))?;
    match report.damaged.first() {
        None => Ok(()),
        Some(&damage) => Err(Error::Damaged { path, damage }),
    }
}

/// Reads a shard's rows of a table.
fn check_rows(table: &Table, rows: Range<u64>, step: &mut dyn FnMut(u64)) -> Result<(), Error> {
    let reading = table.reading_of(rows.clone())?;
    let block_bytes = BLOCK_ROWS * table.row_bytes();
    let piece_rows = BLOCK_ROWS * (PIECE_BYTES / block_bytes).max(1);
    let mut served = vec![0; piece_rows * table.row_bytes()];
    for first in rows.clone().step_by(piece_rows) {
        let count = (rows.end - first).min(piece_rows as u64);
        reading.copy_rows(first, &mut served[..count as usize * table.row_bytes()])?;
        step(first + count - rows.start);
    }
    reading.finish()
}
