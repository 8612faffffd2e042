//! A prepared file that is made in ranges: the same as one that is made whole, whatever happens.

use std::fs::{self, OpenOptions};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};
use std::thread;

use hushtable_pir::onion::{
    Cut, Engine, Error, OnionSpec, ParameterSet, Preparation, prepare, prepare_range,
    prepare_ranges,
};
use hushtable_table::patch::patch;
use hushtable_table::prepared::PreparedError;
use hushtable_table::{DType, Error as TableError, Table};

const SET: ParameterSet = ParameterSet::N256Test;

struct World {
    folder: tempfile::TempDir,
    table: Table,
    /// What one process makes.
    whole: Vec<u8>,
}

impl World {
    fn new(rows: u64, dim: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let values: Vec<f32> = (0..rows * dim as u64).map(|at| (at % 10_007) as f32).collect();
        let bundle = folder.path().join("films");
        Table::from_weight("films", rows, dim, DType::F32, &values).unwrap().save(&bundle).unwrap();
        let table = Table::open(&bundle).unwrap();
        let place = folder.path().join("whole");
        prepare(&table, &place, SET, &spec(), &|_, _| true).unwrap();
        Self { whole: fs::read(&place).unwrap(), table, folder }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn ranges(&self, count: u64) -> Vec<Range<u32>> {
        let bytes = self.table.rows() * self.table.row_bytes() as u64 / count;
        prepare_ranges(&self.table, SET, bytes, Cut::Units).unwrap()
    }

    fn prepare(&self, path: &Path, units: Range<u32>) -> Result<u32, Error> {
        // As another process does, which opens the table for itself.
        let table = Table::open(self.table.path().unwrap()).unwrap();
        prepare_range(&table, path, SET, units, &spec(), &|_, _| true)
    }

    fn check(&self, path: &Path) {
        assert!(fs::read(path).unwrap() == self.whole, "{} is another", path.display());
        Engine::open(path, &self.table, SET, &spec()).unwrap();
    }
}

fn spec() -> OnionSpec {
    OnionSpec { threads: 1, ..OnionSpec::new() }
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

#[test]
fn ranges_make_the_file_that_one_process_makes() {
    // Several rows a plaintext; three plaintexts a row, each of which is a part of the file.
    for (rows, dim) in [(60_000, 4), (2_000, 300)] {
        let world = World::new(rows, dim);
        for count in [1, 2, 5] {
            let path = world.path(&format!("{rows}-{count}"));
            let ranges = world.ranges(count);
            assert_eq!(ranges.len() as u64, count);
            let preparation = Preparation::begin(&world.table, &path, SET).unwrap();
            thread::scope(|scope| {
                for units in ranges.iter().rev().cloned() {
                    let (world, path) = (&world, &path);
                    scope.spawn(move || assert_eq!(world.prepare(path, units).unwrap(), 0));
                }
            });
            ranges.into_iter().for_each(|units| preparation.take(units).unwrap());
            assert_eq!(preparation.done(), preparation.units());
            let made = preparation.finish().unwrap();
            assert_eq!(made.resumed_units, 0);
            world.check(&path);
        }
    }
}

#[test]
fn an_interrupted_range_is_gone_on_with() {
    let world = World::new(60_000, 4);
    let path = world.path("interrupted");
    let preparation = Preparation::begin(&world.table, &path, SET).unwrap();
    let ranges = world.ranges(3);
    let (stopped, lost) = (ranges[1].clone(), ranges[2].clone());
    assert!(stopped.len() > 2);
    let calls = AtomicU32::new(0);
    let stop = |_: u64, _: u64| calls.fetch_add(1, Ordering::Relaxed) < 1;
    let error =
        prepare_range(&world.table, &path, SET, stopped.clone(), &spec(), &stop).unwrap_err();
    assert!(matches!(error, Error::Stopped), "{error}");
    assert_eq!(world.prepare(&path, stopped.clone()).unwrap(), 2);
    // The coordinator dies before it has heard of either; the next one cuts otherwise.
    assert_eq!(world.prepare(&path, lost.clone()).unwrap(), 0);
    drop(preparation);
    let preparation = Preparation::begin(&world.table, &path, SET).unwrap();
    let done = stopped.len() + lost.len();
    assert_eq!(preparation.done() as usize, done);
    let error = Preparation::begin(&world.table, &path, SET).unwrap_err();
    assert!(matches!(error, Error::Prepared(PreparedError::Locked { .. })), "{error}");
    let resumed = world.ranges(2).into_iter().map(|units| world.prepare(&path, units).unwrap());
    assert_eq!(resumed.sum::<u32>() as usize, done);
    assert_eq!(preparation.finish().unwrap().resumed_units as usize, done);
    world.check(&path);
    let names = fs::read_dir(world.folder.path()).unwrap();
    let mut names: Vec<_> = names.map(|name| name.unwrap().file_name()).collect();
    names.sort();
    assert_eq!(names, ["films", "interrupted", "whole"]);
}

#[test]
fn what_was_done_and_is_damaged_since_is_made_again() {
    let world = World::new(60_000, 4);
    for whole in [false, true] {
        let path = world.path(if whole { "by-whole" } else { "by-range" });
        let preparation = Preparation::begin(&world.table, &path, SET).unwrap();
        let ranges = world.ranges(2);
        world.prepare(&path, ranges[0].clone()).unwrap();
        // The first bytes of the payload, which are the first unit's.
        let partial = OpenOptions::new().write(true).open(beside(&path, ".partial")).unwrap();
        partial.write_all_at(&[0x55; 20], 4_096).unwrap();
        if whole {
            drop(preparation);
            let made = prepare(&world.table, &path, SET, &spec(), &|_, _| true).unwrap();
            assert_eq!(made.resumed_units as usize, ranges[0].len());
        } else {
            for units in ranges {
                world.prepare(&path, units).unwrap();
            }
            preparation.finish().unwrap();
        }
        world.check(&path);
    }
}

#[test]
fn a_patched_table_is_prepared_in_ranges() {
    let world = World::new(60_000, 4);
    let bundle = world.path("patched");
    let ids = [3, 700, 30_000, 59_999];
    patch(world.table.path().unwrap(), &ids, &[0x3e; 16 * 4], &bundle).unwrap();
    let table = Table::open(&bundle).unwrap();
    let (whole, path) = (world.path("of-patched"), world.path("in-ranges"));
    prepare(&table, &whole, SET, &spec(), &|_, _| true).unwrap();
    assert!(fs::read(&whole).unwrap() != world.whole);
    let preparation = Preparation::begin(&table, &path, SET).unwrap();
    for units in prepare_ranges(&table, SET, 200_000, Cut::Units).unwrap() {
        prepare_range(&table, &path, SET, units, &spec(), &|_, _| true).unwrap();
    }
    preparation.finish().unwrap();
    assert!(fs::read(&whole).unwrap() == fs::read(&path).unwrap());
}

#[test]
fn a_range_reads_its_own_rows_and_no_others() {
    let world = World::new(60_000, 4);
    let path = world.path("damaged");
    let ranges = world.ranges(2);
    let preparation = Preparation::begin(&world.table, &path, SET).unwrap();
    // A row of the second half, of 16 bytes.
    let rows = world.table.path().unwrap().join("rows.safetensors");
    let file = OpenOptions::new().read(true).write(true).open(&rows).unwrap();
    let at = fs::metadata(&rows).unwrap().len() - 16;
    let mut row = [0; 16];
    file.read_exact_at(&mut row, at).unwrap();
    file.write_all_at(&[0xaa; 16], at).unwrap();
    world.prepare(&path, ranges[0].clone()).unwrap();
    let error = world.prepare(&path, ranges[1].clone()).unwrap_err();
    assert!(matches!(error, Error::Table(TableError::Rows { .. })), "{error}");
    assert!(error.to_string().contains("row 59904"), "{error}");
    let error = preparation.finish().unwrap_err();
    assert!(matches!(error, Error::Prepared(PreparedError::Undone { .. })), "{error}");
    file.write_all_at(&row, at).unwrap();
    let preparation = Preparation::begin(&world.table, &path, SET).unwrap();
    assert_eq!(preparation.done() as usize, ranges[0].len());
    world.prepare(&path, ranges[1].clone()).unwrap();
    preparation.finish().unwrap();
    world.check(&path);
}
