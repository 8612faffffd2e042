//! Measurements of what oblivious memories are made of: the union, pages of a disk, Path ORAM.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hushtable_oram::disk::{FileSpec, FileStore, Pages, Run, Store};
use hushtable_oram::geometry::{Geometry, GeometrySpec};
use hushtable_oram::path::{PathOram, PathShape};
use hushtable_oram::seal::Key;
use hushtable_oram::union::{Union, scan};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::errors::Failure;

/// Z, A and levels of the tree of `rows` rows of `row_bytes` bytes.
#[pyfunction]
pub(crate) fn oram_shape(rows: u64, row_bytes: usize) -> PyResult<(usize, usize, u32)> {
    let geometry = Geometry::new(&GeometrySpec::on_disk(rows, row_bytes))
        .map_err(|error| Failure::new("ConfigError", error))?;
    Ok((geometry.slots(), geometry.period(), geometry.levels()))
}

/// Seconds that the union of `ids` took, in one piece by sorting or in chunks by scanning, and how
/// many distinct rows it found (in all chunks together).
#[pyfunction]
#[pyo3(signature = (ids, *, is_scan))]
pub(crate) fn union_seconds(
    py: Python<'_>,
    ids: PyReadonlyArray1<'_, u32>,
    is_scan: bool,
) -> PyResult<(f64, u64)> {
    let ids = ids.as_slice()?;
    let measured = py.detach(|| {
        let started = Instant::now();
        let count = match is_scan {
            true => scan::scan(ids).iter().map(|chunk| chunk.count).sum(),
            false => {
                let union = Union::new(ids).map_err(|error| Failure::new("RoundError", error))?;
                // The rows themselves too, as the scan gives them.
                std::hint::black_box(union.all());
                union.count()
            }
        };
        Ok::<_, Failure>((started.elapsed().as_secs_f64(), count))
    });
    Ok(measured?)
}

/// Seconds that `count` random pages of the store in the file took to read, many in flight, and then
/// to write (to a scratch file beside it, which is removed) and sync.
#[pyfunction]
pub(crate) fn page_seconds(py: Python<'_>, path: PathBuf, count: u32) -> PyResult<(f64, f64)> {
    let measured = py.detach(|| {
        let mut store = FileStore::open(&path, FileSpec::default()).map_err(disk)?;
        let mut random = ChaCha8Rng::seed_from_u64(1);
        let mut numbers: Vec<u64> =
            (0..count).map(|_| random.random_range(0..store.pages())).collect();
        numbers.sort_unstable();
        numbers.dedup();
        let runs: Vec<Run> = numbers.into_iter().map(Run::page).collect();
        let mut pages = Pages::new();
        let started = Instant::now();
        store.read(&runs, &mut pages).map_err(disk)?;
        let reading = started.elapsed().as_secs_f64() * f64::from(count) / runs.len() as f64;

        let scratch = Scratch(path.with_extension("scratch"));
        let pages_max = runs.len() as u64 * 2;
        let mut written =
            FileStore::create(&scratch.0, pages_max, FileSpec::default()).map_err(disk)?;
        random.fill_bytes(pages.bytes_mut());
        // Every other page, so that none joins its neighbour.
        let runs: Vec<Run> = (0..runs.len() as u64).map(|page| Run::page(2 * page)).collect();
        let started = Instant::now();
        written.write(&runs, &pages).map_err(disk)?;
        written.sync().map_err(disk)?;
        let writing = started.elapsed().as_secs_f64() * f64::from(count) / runs.len() as f64;
        Ok::<_, Failure>((reading, writing))
    });
    Ok(measured?)
}

/// A Path ORAM in a file, to compare with.
#[pyclass(frozen, module = "hushtable._native.bench", name = "PathBench")]
pub(crate) struct NativePathBench {
    memory: Mutex<(PathOram, Vec<u32>)>,
    path: PathBuf,
}

#[pymethods]
impl NativePathBench {
    /// Builds the tree in a new file.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, rows: u32, row_bytes: usize) -> PyResult<Self> {
        let made = py.detach(|| {
            let shape = PathShape::new(u64::from(rows), row_bytes).map_err(memory)?;
            let mut random = ChaCha8Rng::seed_from_u64(2);
            let leaves: Vec<u32> =
                (0..rows).map(|_| random.random_range(0..shape.leaves())).collect();
            let store =
                FileStore::create(&path, shape.pages(), FileSpec::default()).map_err(disk)?;
            let key = Key::random().map_err(|error| Failure::new("Error", error))?;
            let oram = PathOram::create(shape, &key, Box::new(store), &leaves, &mut fill)
                .map_err(memory)?;
            Ok::<_, Failure>(Self { memory: Mutex::new((oram, leaves)), path: path.clone() })
        });
        Ok(made?)
    }

    /// `(levels, pages of a path, bytes of the file)`.
    fn facts(&self) -> (u32, u32, u64) {
        let guard = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = guard.0.shape();
        (shape.levels, shape.path_pages(), shape.pages() * 4096)
    }

    /// One round's accesses, two for each id (its row out, its row back), then a sync: seconds of
    /// both halves, bytes read and written. Each row is compared with what was written first.
    fn round(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u32>,
    ) -> PyResult<(f64, f64, u64, u64)> {
        let ids = ids.as_slice()?;
        let measured = py.detach(|| {
            let mut guard = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            let (oram, leaves) = &mut *guard;
            if ids.iter().any(|&id| id as usize >= leaves.len()) {
                return Err(Failure::config("an id is no row of this memory"));
            }
            let before = oram.counters();
            let leaf_max = oram.shape().leaves();
            let mut random = ChaCha8Rng::seed_from_u64(ids.len() as u64);
            let mut halves = [0.0; 2];
            let mut expected = Vec::new();
            for half in &mut halves {
                let started = Instant::now();
                for &id in ids {
                    let fresh = random.random_range(0..leaf_max);
                    let leaf = std::mem::replace(&mut leaves[id as usize], fresh);
                    let mut is_right = false;
                    oram.access(id, leaf, fresh, &mut |row| {
                        expected.resize(row.len(), 0);
                        fill(id, &mut expected);
                        is_right = row == expected;
                    })
                    .map_err(memory)?;
                    if !is_right {
                        return Err(Failure::new("ControllerError", format!("row {id} is wrong")));
                    }
                }
                oram.sync().map_err(memory)?;
                *half = started.elapsed().as_secs_f64();
            }
            let after = oram.counters();
            let read = after.read_bytes - before.read_bytes;
            Ok((halves[0], halves[1], read, after.written_bytes - before.written_bytes))
        });
        Ok(measured?)
    }

    /// The file.
    #[getter]
    fn path(&self) -> &Path {
        &self.path
    }
}

/// A file that is removed at the end.
struct Scratch(PathBuf);

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = std::fs::remove_file(&self.0);
    }
}

/// A row as a function of its number.
fn fill(id: u32, row: &mut [u8]) {
    for (at, byte) in row.iter_mut().enumerate() {
        *byte = (id.wrapping_mul(0x9E37_79B9) >> (8 * (at % 4))) as u8 ^ at as u8;
    }
}

fn disk(error: impl ToString) -> Failure {
    Failure::new("ControllerError", error)
}

fn memory(error: impl ToString) -> Failure {
    Failure::new("ControllerError", error)
}
