//! Rounds against a plain table, crashes at every I/O, tampering, and what the disk sees.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;

use super::{Controller, ControllerSpec, DefaultRow, Error};
use crate::aggregate::AggregateSpec;
use crate::bucket::DUMMY;
use crate::disk::{Access, FaultSpec, Faults, Tear, Unsynced};
use crate::fdp::{FdpSpec, MechanismSpec, Shape};
use crate::geometry::Storage;
use crate::journal::JournalError;
use crate::seal::Key;
use crate::union::Loss;

mod clip;
mod freshness;
mod outcomes;

const ROWS: u64 = 150;
/// 500 bytes a row: 8 blocks a bucket, so that a few rows make a tree of some height.
const DIM: usize = 125;

fn key() -> Key {
    Key::from_bytes([9; 32])
}

fn spec(epsilon: f64) -> ControllerSpec {
    let mut spec = ControllerSpec::new("toys", (ROWS, DIM), (6, 5));
    spec.fdp = FdpSpec { epsilon, mechanism: MechanismSpec::Geometric, ..FdpSpec::default() };
    spec.cached_levels = 2;
    spec
}

fn value(row: u64, column: usize) -> f32 {
    row as f32 * 3.0 + column as f32 / 64.0
}

fn fill(first: u64, rows: &mut [f32]) -> Result<(), Error> {
    for (at, row) in rows.chunks_exact_mut(DIM).enumerate() {
        row.iter_mut().enumerate().for_each(|(column, n)| *n = value(first + at as u64, column));
    }
    Ok(())
}

/// A folder in memory where there is one: thousands of them are opened.
pub(super) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.unwrap()
}

fn create(at: &Path, spec: &ControllerSpec) -> Controller {
    let counter = at.join("counter");
    Controller::create(&at.join("t"), &key(), &counter, spec, &mut fill, &mut |_, _| {}).unwrap()
}

fn open(at: &Path, faults: &Faults) -> Result<Controller, Error> {
    Controller::open_with(&at.join("t"), &key(), &at.join("counter"), &mut |_, _| {}, faults)
}

/// The table, by an export.
fn table(controller: &mut Controller) -> Vec<f32> {
    let mut all = Vec::new();
    controller
        .export(
            &mut |first, rows| {
                assert_eq!(first as usize * DIM, all.len());
                all.extend_from_slice(rows);
                Ok(())
            },
            &mut |_, _| {},
        )
        .unwrap();
    all
}

fn requests(random: &mut ChaCha20Rng, users: usize) -> Vec<u32> {
    (0..users * 5)
        .map(|_| match random.random_range(0..6) {
            0 => DUMMY,
            1 | 2 => random.random_range(0..4),
            _ => random.random_range(0..ROWS as u32),
        })
        .collect()
}

/// One row a round, of two that are asked for: in turns, until a restart forgets whose turn it is.
#[test]
fn rows_read_longest_ago_are_read_first() {
    let at = folder();
    let mut spec = spec(1.0);
    let shape = Shape::Delta { at: Some(1) };
    spec.fdp.mechanism = MechanismSpec::Exponential { shape };
    spec.loss = Loss::RecentlyRead;
    let mut controller = create(at.path(), &spec);
    let mut read = Vec::new();
    for round in 0..9 {
        let start = controller.begin(1, &[40, 7, 40, DUMMY, 7]).unwrap();
        assert_eq!(start.accesses, 1);
        let (mut rows, mut found) = (vec![0.0; 5 * DIM], [false; 5]);
        controller.rows(0, &mut rows, &mut found).unwrap();
        assert!(
            found == [true, false, true, false, false]
                || found == [false, true, false, false, true]
        );
        read.push(found[0]);
        // Rows of a round that is abandoned were read too.
        match round % 2 {
            0 => controller.commit().map(drop).unwrap(),
            _ => controller.abandon().map(drop).unwrap(),
        }
    }
    assert!(read.windows(2).all(|pair| pair[0] != pair[1]), "{read:?}");
    drop(controller);
    let mut controller = open(at.path(), &Faults::none()).unwrap();
    assert_eq!(controller.spec().loss, Loss::RecentlyRead);
    controller.begin(1, &[40, 7, 40, DUMMY, 7]).unwrap();
}

#[test]
fn a_hundred_rounds_are_those_of_a_plain_table() {
    let at = folder();
    let mut spec = spec(1.0);
    spec.default_row = DefaultRow::Mean;
    let mut controller = create(at.path(), &spec);
    let mut plain: Vec<Vec<f32>> =
        (0..ROWS).map(|row| (0..DIM).map(|column| value(row, column)).collect()).collect();
    let mean: Vec<f32> = (0..DIM)
        .map(|c| (plain.iter().map(|row| f64::from(row[c])).sum::<f64>() / ROWS as f64) as f32)
        .collect();
    let mut random = ChaCha20Rng::seed_from_u64(4);
    let (mut lost, mut dummies) = (0, 0);
    for round in 1..=100 {
        let users = random.random_range(1..=6);
        let ids = requests(&mut random, users);
        let start = controller.begin(users, &ids).unwrap();
        assert_eq!((start.round, start.requests), (round, 5 * users as u64));
        let union: BTreeSet<u32> = ids.iter().copied().filter(|&id| id != DUMMY).collect();
        let mut served = BTreeSet::new();
        let mut sums: BTreeMap<u32, (Vec<f32>, f32)> = BTreeMap::new();
        for user in 0..users {
            let own = &ids[user * 5..][..5];
            let (mut rows, mut found) = (vec![0.0; 5 * DIM], [false; 5]);
            controller.rows(user, &mut rows, &mut found).unwrap();
            for ((&id, row), found) in own.iter().zip(rows.chunks_exact(DIM)).zip(found) {
                assert!(!found || id != DUMMY);
                assert_eq!(row, if found { &plain[id as usize][..] } else { &mean[..] });
                if found {
                    served.insert(id);
                }
            }
            if random.random_range(0..4) == 0 {
                continue; // drops out
            }
            let weight = random.random_range(1..5) as f32;
            let gradients: Vec<f32> =
                (0..5 * DIM).map(|_| random.random_range(-8..8) as f32).collect();
            controller.add(user, &gradients, weight).unwrap();
            for (slot, &id) in own.iter().enumerate().filter(|&(slot, _)| found[slot]) {
                let (sum, all) = sums.entry(id).or_insert_with(|| (vec![0.0; DIM], 0.0));
                for (sum, gradient) in sum.iter_mut().zip(&gradients[slot * DIM..]) {
                    *sum += weight * gradient;
                }
                *all += weight;
            }
        }
        assert_eq!(
            served.len(),
            (start.accesses as usize).min(union.len()),
            "as many rows as were read"
        );
        lost += union.len() - served.len();
        dummies += start.accesses as usize - served.len();
        if round % 10 == 3 {
            controller.abandon().unwrap();
            continue_from(&mut controller, &mut plain);
            // An abandoned round is not counted; catch up.
            controller.begin(1, &[DUMMY; 5]).unwrap();
            controller.commit().unwrap();
            continue;
        }
        let report = controller.commit().unwrap();
        assert_eq!((report.round, report.accesses), (round, start.accesses));
        for (id, (sum, weight)) in sums {
            for (number, sum) in plain[id as usize].iter_mut().zip(sum) {
                *number -= sum / weight;
            }
        }
        if round % 25 == 0 {
            controller = match round % 50 {
                0 => {
                    controller.close().unwrap();
                    open(at.path(), &Faults::none()).unwrap()
                }
                _ => {
                    drop(controller);
                    open(at.path(), &Faults::none()).unwrap()
                }
            };
            assert_eq!(controller.round(), round);
        }
    }
    continue_from(&mut controller, &mut plain);
    // Their number is drawn anew in each run: 18 dummies have been seen.
    assert!(lost > 5 && dummies > 5, "{lost} lost and {dummies} dummies show nothing");
}

/// The controller's table is the plain one, but for rounding.
fn continue_from(controller: &mut Controller, plain: &mut [Vec<f32>]) {
    for (row, (found, expected)) in
        table(controller).chunks_exact(DIM).zip(plain.iter_mut()).enumerate()
    {
        for (found, expected) in found.iter().zip(expected.iter_mut()) {
            assert!((found - *expected).abs() < 1e-3 * expected.abs().max(1.0), "row {row}");
            *expected = *found;
        }
    }
}

/// One round that changes rows 1 to 3 and 20 to 29 by one each.
fn small_round(controller: &mut Controller) -> Result<(), Error> {
    let ids: Vec<u32> = [1, 2, 3, 1, 2].into_iter().chain(20..30).collect();
    controller.begin(3, &ids)?;
    let (mut rows, mut found) = (vec![0.0; 5 * DIM], [false; 5]);
    for user in 0..3 {
        controller.rows(user, &mut rows, &mut found)?;
        controller.add(user, &vec![1.0; 5 * DIM], 1.0)?;
    }
    controller.commit().map(drop)
}

fn copy(from: &Path, to: &Path) {
    copy_but(from, to, "");
}

/// All but the file of that name.
fn copy_but(from: &Path, to: &Path, without: &str) {
    fs::create_dir(to.join("t")).unwrap();
    for file in fs::read_dir(from.join("t")).unwrap() {
        let file = file.unwrap();
        if file.file_name() != without {
            fs::copy(file.path(), to.join("t").join(file.file_name())).unwrap();
        }
    }
    fs::copy(from.join("counter"), to.join("counter")).unwrap();
}

/// Pages that leaves may lie in.
fn leaf_pages(spec: &ControllerSpec) -> BTreeSet<u64> {
    let place = spec.check().unwrap().place;
    let layout = place.layout();
    let pages = layout.pages_per_bucket();
    let places = layout.level_places(place.geometry().levels() - 1);
    places.into_iter().flat_map(|place| place * pages..(place + 1) * pages).collect()
}

#[test]
fn a_crash_at_any_io_leaves_the_round_before_or_the_round() {
    crash_at_any_io(&spec(0.0));
}

#[test]
fn so_it_does_in_a_folder_of_two_copies() {
    let mut spec = spec(0.0);
    spec.storage = Storage::Pairs;
    crash_at_any_io(&spec);
}

#[test]
fn so_it_does_with_larger_buckets_and_nothing_cached() {
    let mut spec = spec(0.0);
    (spec.bucket_kib, spec.cached_levels) = (8, 0);
    crash_at_any_io(&spec);
}

fn crash_at_any_io(spec: &ControllerSpec) {
    let base = folder();
    let mut controller = create(base.path(), spec);
    small_round(&mut controller).unwrap();
    let before = table(&mut controller);
    drop(controller);
    let mut after = before.clone();
    for row in [1, 2, 3].into_iter().chain(20..30) {
        after[row * DIM..][..DIM].iter_mut().for_each(|number| *number -= 1.0);
    }

    let leaves = leaf_pages(spec);
    let read_leaves = |faults: &Faults| -> BTreeSet<u64> {
        let reads = faults.take_trace().into_iter().filter(|access| access.0 == Access::Read);
        reads.map(|(_, page)| page).filter(|page| leaves.contains(page)).collect()
    };

    let (mut kept, mut happened) = (0, 0);
    for kill_at in 0.. {
        let variants = [
            (Tear::Nothing, Unsynced::Lost),
            (Tear::Half, Unsynced::Kept),
            (Tear::Scattered(kill_at), Unsynced::Scattered(kill_at)),
        ];
        let mut killed = false;
        for (tear, unsynced) in variants {
            let at = folder();
            copy(base.path(), at.path());
            let faults = Faults::new(FaultSpec { kill_at: Some(kill_at), tear, unsynced });
            let outcome = open(at.path(), &faults).and_then(|mut controller| {
                faults.take_trace();
                small_round(&mut controller)
            });
            killed = faults.is_killed();
            assert_eq!(outcome.is_err(), killed, "kill at {kill_at}: {outcome:?}");
            let watched = Faults::new(FaultSpec::default());
            let mut controller = open(at.path(), &watched)
                .unwrap_or_else(|error| panic!("kill at {kill_at}, {tear:?}: {error}"));
            let shown = read_leaves(&watched);
            let round = controller.round();
            let found = table(&mut controller);
            match round {
                1 => assert!(found == before && killed, "kill at {kill_at}, {tear:?}"),
                2 => assert!(found == after, "kill at {kill_at}, {tear:?}"),
                _ => panic!("round {round}"),
            }
            *(if round == 1 { &mut kept } else { &mut happened }) += 1;
            // What the cut round has shown is shown again by the end that it is given, not by the
            // rows' next round: recovery reads all of the tree, with those paths among it.
            assert!(shown.is_superset(&read_leaves(&faults)));
            // And the state is one that goes on.
            small_round(&mut controller).unwrap();
            small_round(&mut controller).unwrap();
        }
        if !killed {
            break;
        }
    }
    assert!(kept > 20 && happened > 3, "{kept} before, {happened} after");
}

#[test]
fn a_round_that_was_cut_short_leaves_its_rows_elsewhere() {
    // The same rows asked for before and after a crash are read from leaves that have nothing to do
    // with each other: were they the same, who watches would see that the rows are.
    let at = folder();
    let mut controller = create(at.path(), &spec(0.0));
    let (mut same, mut all) = (0, 0);
    for _ in 0..12 {
        controller.begin(3, &(0..15).collect::<Vec<u32>>()).unwrap();
        let leaf_of = |controller: &Controller| -> Vec<u32> {
            let open = controller.open.as_ref().unwrap();
            open.entries.iter().map(|entry| entry.leaf).collect()
        };
        let first = leaf_of(&controller);
        drop(controller); // no commit: as a crash
        controller = open(at.path(), &Faults::none()).unwrap();
        assert_eq!(controller.round(), 0);
        controller.begin(3, &(0..15).collect::<Vec<u32>>()).unwrap();
        let second = leaf_of(&controller);
        same += first.iter().zip(&second).filter(|(a, b)| a == b).count();
        all += 15;
        controller.abandon().unwrap();
    }
    let leaves = controller.geometry().leaves();
    assert!(leaves >= 16);
    assert!(same * 4 < all, "{same} of {all} rows were read from the same of {leaves} leaves");
}

#[test]
fn what_was_changed_or_put_back_is_found_out() {
    let base = folder();
    let mut controller = create(base.path(), &spec(0.0));
    let old = folder();
    copy(base.path(), old.path());
    for _ in 0..4 {
        small_round(&mut controller).unwrap();
    }
    let (geometry, evictions) = (*controller.geometry(), controller.raw.evictions());
    let shape = geometry.shape();
    let passed = (0..geometry.buckets()).map(|number| shape.place(number));
    let passed = passed.filter(|&(level, index)| shape.passes(evictions, level, index) > 0).count();
    controller.close().unwrap();
    let fails = |change: &dyn Fn(&Path)| {
        let at = folder();
        copy(base.path(), at.path());
        change(at.path());
        open(at.path(), &Faults::none()).map(drop).unwrap_err()
    };
    let flip = |at: &Path, file: &str, byte: usize| {
        let path = at.join(file);
        let mut bytes = fs::read(&path).unwrap();
        let byte = byte % bytes.len();
        bytes[byte] ^= 4;
        fs::write(&path, bytes).unwrap();
    };
    // Some pages hold copies that are not in force; one of a bucket's two is.
    let pages = fs::metadata(base.path().join("t/tree")).unwrap().len() as usize / 4096;
    let mut forged = 0;
    for page in 0..pages {
        let at = folder();
        copy(base.path(), at.path());
        flip(at.path(), "t/tree", page * 4096 + page * 37 % 4096);
        match open(at.path(), &Faults::none()) {
            Err(Error::Recover(error)) => {
                forged += 1;
                assert!(error.to_string().contains("is not what was written last"), "{error}");
            }
            Err(error) => panic!("{error}"),
            Ok(_) => {}
        }
    }
    assert!(passed * 4 > pages);
    assert_eq!(forged, passed, "every bucket that is in force, and no other");
    // One damaged place costs nothing; what is there twice has to be damaged twice.
    for (byte, again) in [(3, 139), (60, 196), (300, 390), (4000, 9000)] {
        let at = folder();
        copy(base.path(), at.path());
        flip(at.path(), "t/journal", byte);
        flip(at.path(), "counter", byte);
        assert_eq!(open(at.path(), &Faults::none()).unwrap().round(), 4);
        fails(&|at| [byte, again].iter().for_each(|&byte| flip(at, "t/journal", byte)));
        fails(&|at| [byte % 150, byte % 150 + 4096].iter().for_each(|&b| flip(at, "counter", b)));
    }
    assert!(matches!(fails(&|at| flip(at, "t/controller.json", 20)), Error::SpecChanged { .. }));
    // Older files: one of them, or all but the counter.
    let older = |file: &str, at: &Path| {
        fs::copy(old.path().join(file), at.join(file)).unwrap();
    };
    let error = fails(&|at| older("t/tree", at));
    assert!(error.to_string().contains("older state"), "{error}");
    let error = fails(&|at| older("t/journal", at));
    assert!(matches!(error, Error::Journal(JournalError::RolledBack { .. })), "{error}");
    let error = fails(&|at| ["t/tree", "t/journal"].iter().for_each(|file| older(file, at)));
    assert!(matches!(error, Error::Journal(JournalError::RolledBack { .. })), "{error}");
    fails(&|at| fs::remove_file(at.join("t/tree")).unwrap());
    fails(&|at| fs::remove_file(at.join("t/journal")).unwrap());
    fails(&|at| fs::remove_file(at.join("counter")).unwrap());
    let other = Key::from_bytes([8; 32]);
    let (folder, counter) = (base.path().join("t"), base.path().join("counter"));
    assert!(Controller::open(&folder, &other, &counter, &mut |_, _| {}).is_err());
    let incomplete = Controller::open(base.path(), &key(), &counter, &mut |_, _| {});
    assert!(matches!(incomplete, Err(Error::Incomplete { .. })));
}

#[test]
fn bad_input_is_refused_and_harms_nobody() {
    let at = folder();
    let mut controller = create(at.path(), &spec(0.0));
    let exists = Controller::create(
        &at.path().join("t"),
        &key(),
        &at.path().join("c2"),
        &spec(0.0),
        &mut fill,
        &mut |_, _| {},
    );
    assert!(matches!(exists, Err(Error::Exists { .. })));
    assert!(matches!(open(at.path(), &Faults::none()), Err(Error::Journal(_))), "in use");
    assert!(matches!(controller.begin(7, &[0; 35]), Err(Error::Users { users: 7, users_max: 6 })));
    assert!(matches!(controller.begin(0, &[]), Err(Error::Users { .. })));
    assert!(matches!(controller.begin(2, &[0; 9]), Err(Error::Ids { expected: 10, .. })));
    assert!(matches!(controller.commit(), Err(Error::Phase { .. })));
    // The second user asks for a row that is none.
    let start = controller.begin(2, &[1, 2, 3, 4, 5, 6, ROWS as u32, 7, 8, 9]).unwrap();
    assert_eq!(start.refused, [1]);
    assert!(matches!(controller.begin(1, &[0; 5]), Err(Error::Phase { .. })));
    let (mut rows, mut found) = (vec![0.0; 5 * DIM], [false; 5]);
    controller.rows(1, &mut rows, &mut found).unwrap();
    assert_eq!(found, [false; 5]);
    assert!(rows.iter().all(|&number| number == 0.0));
    controller.rows(0, &mut rows, &mut found).unwrap();
    assert_eq!(found, [true; 5]);
    assert_eq!(rows[DIM], value(2, 0));
    assert!(matches!(controller.rows(2, &mut rows, &mut found), Err(Error::User { .. })));
    let mut bad = vec![1.0; 5 * DIM];
    bad[7] = f32::NAN;
    assert!(matches!(controller.add(0, &bad, 1.0), Err(Error::Gradients(_))));
    assert!(matches!(controller.add(0, &bad[..9], 1.0), Err(Error::Gradients(_))));
    assert!(matches!(controller.add(0, &[1.0; 5 * DIM], f32::NAN), Err(Error::Gradients(_))));
    controller.add(0, &[1.0; 5 * DIM], 2.0).unwrap();
    assert!(matches!(controller.add(0, &[1.0; 5 * DIM], 2.0), Err(Error::Twice { user: 0 })));
    controller.commit().unwrap();
    assert_eq!(table(&mut controller)[2 * DIM], value(2, 0) - 1.0);

    let mut bad = spec(1.0);
    bad.aggregate = AggregateSpec::FedAvg { learning_rate: f32::NAN };
    assert!(matches!(bad.geometry(), Err(Error::Aggregate(_))));
    assert!(matches!(ControllerSpec { dim: 0, ..spec(1.0) }.geometry(), Err(Error::Spec { .. })));
    assert!(matches!(ControllerSpec { rows: 0, ..spec(1.0) }.geometry(), Err(Error::Geometry(_))));
    assert!(matches!(ControllerSpec { slots: 0, ..spec(1.0) }.geometry(), Err(Error::Spec { .. })));
    let nan = Controller::create(
        &at.path().join("n"),
        &key(),
        &at.path().join("c3"),
        &spec(1.0),
        &mut |_, rows| {
            rows[3] = f32::INFINITY;
            Ok(())
        },
        &mut |_, _| {},
    );
    assert!(matches!(nan, Err(Error::Row { row: 0, column: 3 })));
}

/// What a round at ε = 0 shows of the disk: how often each leaf's page was read, and all reads.
fn view(
    controller: &mut Controller,
    faults: &Faults,
    ids: &[u32],
    leaf_pages: &BTreeSet<u64>,
) -> (f64, f64) {
    faults.take_trace();
    controller.begin(6, ids).unwrap();
    controller.commit().unwrap();
    let trace = faults.take_trace();
    let reads: Vec<u64> = trace.iter().filter(|a| a.0 == Access::Read).map(|a| a.1).collect();
    let leaves: BTreeSet<u64> =
        reads.iter().copied().filter(|page| leaf_pages.contains(page)).collect();
    (leaves.len() as f64, trace.len() as f64)
}

/// How often the better of all thresholds on either feature, learned on one half, tells the two sets
/// apart on the other.
fn advantage(a: &[(f64, f64)], b: &[(f64, f64)]) -> f64 {
    let half = a.len() / 2;
    let mut best = (0.0, 0, 0.0, false);
    let feature = |view: &(f64, f64), which: usize| if which == 0 { view.0 } else { view.1 };
    let score = |a: &[(f64, f64)], b: &[(f64, f64)], which, threshold: f64, less: bool| {
        let is_a = |view: &&(f64, f64)| (feature(view, which) < threshold) == less;
        let right = a.iter().filter(is_a).count() + b.iter().filter(|view| !is_a(view)).count();
        right as f64 / (a.len() + b.len()) as f64
    };
    for which in 0..2 {
        for view in a[..half].iter().chain(&b[..half]) {
            for less in [false, true] {
                let threshold = feature(view, which);
                let right = score(&a[..half], &b[..half], which, threshold, less);
                if right > best.0 {
                    best = (right, which, threshold, less);
                }
            }
        }
    }
    score(&a[half..], &b[half..], best.1, best.2, best.3)
}

#[test]
fn the_disk_sees_the_same_whatever_is_asked_for_and_a_skipped_dummy_shows() {
    let at = folder();
    let faults = Faults::new(FaultSpec::default());
    let run = |spec: ControllerSpec, name: &str| {
        let folder = at.path().join(name);
        let counter = at.path().join(format!("{name}.counter"));
        let mut controller = Controller::create_with(
            &folder,
            &key(),
            &counter,
            &spec,
            &mut fill,
            &mut |_, _| {},
            &faults,
        )
        .unwrap();
        let leaf_pages = leaf_pages(&spec);
        // All users want one row, or all want different ones: what is easiest to tell apart.
        let mut views = [Vec::new(), Vec::new()];
        for round in 0..240 {
            let same = round * 7 % 5 < 2;
            let ids: Vec<u32> = (0..30).map(|slot| if same { 7 } else { slot * 5 }).collect();
            views[usize::from(same)].push(view(&mut controller, &faults, &ids, &leaf_pages));
        }
        let [a, b] = views;
        let count = a.len().min(b.len());
        advantage(&a[..count], &b[..count])
    };
    let right = run(spec(0.0), "hidden");
    // Half of about 190 guesses, and four standard deviations.
    assert!(right < 0.5 + 4.0 * 0.5 / 96_f64.sqrt(), "{right} of guesses are right");
    let planted = run(spec(f64::INFINITY), "no dummies");
    assert!(planted > 0.95, "a round without its dummies goes unnoticed: {planted}");
}

#[test]
fn what_was_in_memory_goes_in_again_within_the_stash() {
    // A tree of the paper's bucket (58 rows, A = 92), of which all but the lowest levels are cached:
    // blocks that were in upper buckets must not come back in an order that favours a part of it.
    let at = folder();
    let mut spec = ControllerSpec::new("wide", (90_000, 16), (10, 100));
    spec.cached_levels = 9;
    let (folder, counter) = (at.path().join("t"), at.path().join("counter"));
    let mut fill = |first: u64, rows: &mut [f32]| {
        let numbers = rows.chunks_exact_mut(16).zip(first..);
        numbers.for_each(|(row, id)| row.fill(id as f32));
        Ok(())
    };
    let mut controller =
        Controller::create(&folder, &key(), &counter, &spec, &mut fill, &mut |_, _| {}).unwrap();
    let bound = controller.geometry().stash_bound();
    for _ in 0..3 {
        controller.begin(10, &(500..1500).collect::<Vec<u32>>()).unwrap();
        controller.commit().unwrap();
        drop(controller);
        controller = Controller::open(&folder, &key(), &counter, &mut |_, _| {}).unwrap();
        assert!(controller.raw.stash_count() <= bound / 2 + controller.geometry().period());
    }
    controller
        .export(
            &mut |first, rows| {
                assert!(rows.chunks_exact(16).zip(first..).all(|(row, id)| row == [id as f32; 16]));
                Ok(())
            },
            &mut |_, _| {},
        )
        .unwrap();
}
