//! Measurements of what oblivious memories are made of: the union, pages of a disk, Path ORAM.

use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::Instant;

use hushtable_oram::disk::{FileSpec, FileStore, Pages, Run, Store};
use hushtable_oram::fdp::FdpSpec;
use hushtable_oram::path::PathShape;
use hushtable_oram::path::rounds::PathRounds;
use hushtable_oram::seal::Key;
use hushtable_oram::union::{Union, scan};
use numpy::PyReadonlyArray1;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::errors::Failure;

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

/// A Path ORAM in a file, to compare with: whole rounds, with all but the tree as ours has it.
#[pyclass(frozen, module = "hushtable._native.bench", name = "PathBench")]
pub(crate) struct NativePathBench {
    memory: Mutex<PathRounds>,
    path: PathBuf,
}

#[pymethods]
impl NativePathBench {
    /// Builds the tree in a new file.
    #[new]
    fn new(py: Python<'_>, path: PathBuf, rows: u32, row_bytes: usize) -> PyResult<Self> {
        let made = py.detach(|| {
            let shape = PathShape::new(u64::from(rows), row_bytes).map_err(memory)?;
            let store =
                FileStore::create(&path, shape.pages(), FileSpec::default()).map_err(disk)?;
            let key = Key::random().map_err(|error| Failure::new("Error", error))?;
            let size = (rows, row_bytes / 4);
            let rounds =
                PathRounds::create(size, &key, Box::new(store), &mut fill).map_err(memory)?;
            Ok::<_, Failure>(Self { memory: Mutex::new(rounds), path: path.clone() })
        });
        Ok(made?)
    }

    /// `(levels, pages of a path, bytes of the file)`.
    fn facts(&self) -> (u32, u32, u64) {
        let guard = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
        let shape = guard.shape();
        (shape.levels, shape.path_pages(), shape.pages() * 4096)
    }

    /// One round at this epsilon: seconds, by name k, k_union and each step's microseconds, bytes read
    /// and written.
    fn round<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'_, u32>,
        epsilon: f64,
    ) -> PyResult<(f64, Bound<'py, PyDict>, u64, u64)> {
        let ids = ids.as_slice()?;
        let measured = py.detach(|| {
            let mut guard = self.memory.lock().unwrap_or_else(PoisonError::into_inner);
            let before = guard.counters();
            let fdp = FdpSpec { epsilon, ..FdpSpec::default() };
            let gradient = vec![1e-3; guard.shape().payload_bytes / 4];
            let started = Instant::now();
            let mut served = 0_u64;
            let round = guard
                .round(ids, &fdp, &gradient, &mut |_, row| {
                    served += u64::from(std::hint::black_box(row)[0]);
                })
                .map_err(memory)?;
            std::hint::black_box(served);
            let seconds = started.elapsed().as_secs_f64();
            let after = guard.counters();
            let read = after.read_bytes - before.read_bytes;
            Ok::<_, Failure>((seconds, round, read, after.written_bytes - before.written_bytes))
        });
        let (seconds, round, read, written) = measured?;
        let facts = PyDict::new(py);
        for (name, value) in [
            ("k", round.k),
            ("k_union", round.k_union),
            ("union", round.union_us),
            ("position", round.position_us),
            ("take", round.take_us),
            ("buffer", round.buffer_us),
            ("update", round.update_us),
            ("put", round.put_us),
        ] {
            facts.set_item(name, value)?;
        }
        Ok((seconds, facts, read, written))
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
