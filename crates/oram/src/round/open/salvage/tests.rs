//! What comes back of folders that are old, cut short, or damaged.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use super::{Recovered, Salvage, SalvageReport, recovered_place, swap};
use crate::aggregate::AggregateSpec;
use crate::disk::{FaultSpec, Faults, Tear, Unsynced};
use crate::fdp::{FdpSpec, MechanismSpec};
use crate::journal::{CounterPlace, JournalError};
use crate::round::tests::folder;
use crate::round::{BudgetSpec, Controller, ControllerSpec, Error};
use crate::seal::Key;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

const ROWS: u64 = 150;
const DIM: usize = 60;
/// Of the spec's users and slots.
const USERS: usize = 4;
const SLOTS: usize = 5;

fn key() -> Key {
    Key::from_bytes([9; 32])
}

fn spec() -> ControllerSpec {
    let mut spec = ControllerSpec::new("toys", (ROWS, DIM), (USERS, SLOTS));
    spec.fdp = FdpSpec { epsilon: 0.5, mechanism: MechanismSpec::Geometric, ..FdpSpec::default() };
    spec.budget = Some(BudgetSpec { epsilon: 100.0, delta: 0.0 });
    // Keeps state in each row: the sum of squares, by which a later update is divided.
    spec.aggregate = serde_json::from_str(r#"{"name":"fed_adagrad","learning_rate":0.5}"#).unwrap();
    spec.cached_levels = 2;
    spec
}

fn fill(first: u64, rows: &mut [f32]) -> Result<(), Error> {
    for (at, number) in rows.iter_mut().enumerate() {
        *number = first as f32 + at as f32 / 64.0;
    }
    Ok(())
}

fn create(at: &Path, spec: &ControllerSpec) -> Controller {
    let counter = at.join("counter");
    Controller::create(&at.join("t"), &key(), &counter, spec, &mut fill, &mut |_, _| {}).unwrap()
}

fn open_as(at: &Path, folder: &str, counter: &str) -> Result<Controller, Error> {
    Controller::open(&at.join(folder), &key(), &at.join(counter), &mut |_, _| {})
}

fn open(at: &Path) -> Result<Controller, Error> {
    open_as(at, "t", "counter")
}

/// One round of random rows and gradients.
fn round(controller: &mut Controller, random: &mut ChaCha20Rng) -> Result<(), Error> {
    let ids: Vec<u32> = (0..USERS * SLOTS).map(|_| random.random_range(0..ROWS as u32)).collect();
    controller.begin(USERS, &ids)?;
    for user in 0..USERS {
        let gradients: Vec<f32> =
            (0..SLOTS * DIM).map(|_| random.random_range(-4..5) as f32).collect();
        controller.add(user, &gradients, 1.0)?;
    }
    controller.commit().map(drop)
}

/// Every row's payload, state and all, by the rounds that an export makes.
fn payloads(controller: &mut Controller) -> Vec<Vec<u8>> {
    let ids: Vec<u32> = (0..ROWS as u32).collect();
    let mut steps = super::super::Steps::default();
    let mut all = Vec::new();
    for ids in ids.chunks(controller.spec.rows_at_once()) {
        let mut own = Vec::new();
        let intent = controller.take_positions(ids, &mut steps).unwrap();
        controller
            .take_rows(&intent.entries, &mut steps, &mut |_, payload| {
                own.push(payload.to_vec());
                Ok(())
            })
            .unwrap();
        let round = controller.round;
        controller.put(&intent.entries, &own.concat(), round, None, &mut steps).unwrap();
        all.append(&mut own);
    }
    all
}

fn copy(from: &Path, to: &Path) {
    fs::create_dir(to.join("t")).unwrap();
    for file in fs::read_dir(from.join("t")).unwrap() {
        let file = file.unwrap();
        fs::copy(file.path(), to.join("t").join(file.file_name())).unwrap();
    }
    fs::copy(from.join("counter"), to.join("counter")).unwrap();
}

fn flip(path: &Path, byte: usize) {
    let mut bytes = fs::read(path).unwrap();
    bytes[byte] ^= 4;
    fs::write(path, bytes).unwrap();
}

fn counted(at: &Path) -> crate::journal::CounterValue {
    let mut counter = at.join("counter").open(&key().derive("counter"), &Faults::none()).unwrap();
    counter.read().unwrap()
}

fn rebuild_with(at: &Path, begun: u64, faults: &Faults) -> Result<SalvageReport, Error> {
    let counted = fs::exists(at.join("counter")).unwrap().then(|| counted(at));
    let salvage = Salvage::read(&at.join("t"), &key(), counted.as_ref())?;
    let to = recovered_place(&at.join("t"));
    let counter = recovered_place(&at.join("counter"));
    let made =
        salvage.rebuild(&to, &key(), &counter, begun, &mut |_| true, &mut |_, _| {}, faults)?;
    Ok(made.unwrap())
}

fn rebuild(at: &Path) -> SalvageReport {
    rebuild_with(at, 0, &Faults::none()).unwrap()
}

fn open_rebuilt(at: &Path) -> Controller {
    open_as(at, "t.recovered", "counter.recovered").unwrap()
}

#[test]
fn a_rebuilt_controller_is_the_old_one_in_another_instance() {
    let at = folder();
    let mut random = ChaCha20Rng::seed_from_u64(1);
    let mut controller = create(at.path(), &spec());
    for _ in 0..7 {
        round(&mut controller, &mut random).unwrap();
    }
    let expected = payloads(&mut controller);
    let instance = *controller.journal.instance();
    // As a process that is killed leaves it: rows in the journal, none of the cached levels on disk.
    drop(controller);

    let report = rebuild(at.path());
    assert!(report.is_whole() && !report.was_serving, "{report:?}");
    assert_eq!((report.rounds, report.spent.rounds), (7, 7));
    let mut rebuilt = open_rebuilt(at.path());
    assert!(payloads(&mut rebuilt) == expected, "state and all");
    assert_eq!((rebuilt.round(), rebuilt.spent().rounds), (7, 7));
    assert!(*rebuilt.journal.instance() != instance);
    // Users' pins hold the hash of this file.
    let text = |folder: &str| fs::read(at.path().join(folder).join("controller.json")).unwrap();
    assert_eq!(text("t"), text("t.recovered"));
    round(&mut rebuilt, &mut random).unwrap();
    drop(rebuilt);
    // The old one is as it was, and neither takes the other's counter.
    assert!(payloads(&mut open(at.path()).unwrap()) == expected);
    let error = open_as(at.path(), "t", "counter.recovered").map(drop).unwrap_err();
    assert!(matches!(error, Error::Journal(JournalError::OtherInstance { .. })), "{error}");
}

#[test]
fn an_old_state_is_gone_on_from_with_its_rounds_charged() {
    let at = folder();
    let old = folder();
    let mut random = ChaCha20Rng::seed_from_u64(2);
    let mut controller = create(at.path(), &spec());
    for _ in 0..3 {
        round(&mut controller, &mut random).unwrap();
    }
    let expected = payloads(&mut controller);
    drop(controller);
    copy(at.path(), old.path());
    let mut controller = open(at.path()).unwrap();
    for _ in 0..4 {
        round(&mut controller, &mut random).unwrap();
    }
    controller.begin(1, &[1, 2, 3, 4, 5]).unwrap();
    controller.abandon().unwrap();
    controller.close().unwrap();
    // The old folder, the new counter.
    fs::copy(at.path().join("counter"), old.path().join("counter")).unwrap();
    let error = open(old.path()).map(drop).unwrap_err();
    assert!(matches!(error, Error::Journal(JournalError::RolledBack { .. })), "{error}");

    // The counter knows of 7 committed rounds, and only the operator of the eighth that was begun.
    let report = rebuild(old.path());
    assert!(report.is_whole());
    assert_eq!((report.rounds, report.spent.rounds), (3, 7));
    let rebuilt = open_rebuilt(old.path());
    assert_eq!((rebuilt.round(), rebuilt.spent().rounds), (3, 7));
    assert_eq!(rebuilt.spent().epsilon, 3.5);
    drop(rebuilt);
    fs::remove_dir_all(recovered_place(&old.path().join("t"))).unwrap();
    fs::remove_file(recovered_place(&old.path().join("counter"))).unwrap();
    rebuild_with(old.path(), 8, &Faults::none()).unwrap();
    let mut rebuilt = open_rebuilt(old.path());
    assert_eq!((rebuilt.round(), rebuilt.spent().rounds), (3, 8));
    assert!(payloads(&mut rebuilt) == expected);
}

#[test]
fn rows_are_read_from_other_leaves_than_the_undone_rounds_showed() {
    // Rounds that ask for the same rows in the state that was undone and in that gone on from: were their
    // leaves those of the old state, who watches the disk would see that the rows are the same.
    let at = folder();
    let mut spec = spec();
    spec.budget = None;
    spec.fdp.epsilon = 0.0;
    let mut controller = create(at.path(), &spec);
    let ids: Vec<u32> = (0..(USERS * SLOTS) as u32).collect();
    let leaves = |controller: &mut Controller| -> Vec<u32> {
        controller.begin(USERS, &ids).unwrap();
        let open = controller.open.as_ref().unwrap();
        let leaves = open.entries.iter().map(|entry| entry.leaf).collect();
        controller.commit().unwrap();
        leaves
    };
    let (mut same, mut all) = (0, 0);
    for _ in 0..6 {
        let old = folder();
        drop(controller);
        copy(at.path(), old.path());
        controller = open(at.path()).unwrap();
        let before = leaves(&mut controller);
        fs::remove_file(old.path().join("counter")).unwrap();
        rebuild(old.path());
        let after = leaves(&mut open_rebuilt(old.path()));
        same += before.iter().zip(&after).filter(|(a, b)| a == b).count();
        all += before.len();
    }
    let leaf_count = controller.geometry().leaves() as usize;
    assert!(leaf_count >= 16);
    assert!(same * leaf_count < all * 4, "{same} of {all} rows of {leaf_count} leaves");
}

/// A controller whose rows lie everywhere: on disk, in cached levels, in the journal.
fn worn(at: &Path) -> Vec<Vec<u8>> {
    let mut random = ChaCha20Rng::seed_from_u64(3);
    let mut controller = create(at, &spec());
    for _ in 0..5 {
        round(&mut controller, &mut random).unwrap();
    }
    drop(controller);
    let mut controller = open(at).unwrap();
    for _ in 0..3 {
        round(&mut controller, &mut random).unwrap();
    }
    drop(controller);
    let reference = folder();
    copy(at, reference.path());
    payloads(&mut open(reference.path()).unwrap())
}

#[test]
fn a_flipped_bit_in_any_bucket_costs_no_more_than_is_told() {
    let base = folder();
    let expected = worn(base.path());
    let pages = fs::metadata(base.path().join("t/tree")).unwrap().len() as usize / 4096;
    let mut random = ChaCha20Rng::seed_from_u64(4);
    let (mut hurt, mut differing, mut told) = (0, 0, 0);
    for page in 0..pages {
        let byte = page * 4096 + random.random_range(0..2000);
        let flipped = || {
            let at = folder();
            copy(base.path(), at.path());
            flip(&at.path().join("t/tree"), byte);
            at
        };
        if open(flipped().path()).is_ok() {
            // A copy that is not in force.
            continue;
        }
        let at = flipped();
        let report = rebuild(at.path());
        assert_eq!(report.damaged_buckets, 1, "page {page}");
        assert!(!report.is_whole());
        hurt += 1;
        let found = payloads(&mut open_rebuilt(at.path()));
        let listed: BTreeSet<u64> = report.lost.iter().chain(&report.uncertain).copied().collect();
        let mut unlisted = 0;
        for (row, (found, expected)) in (0..).zip(found.iter().zip(&expected)) {
            if found != expected {
                differing += 1;
                unlisted += u64::from(!listed.contains(&row));
            }
        }
        assert!(unlisted <= report.older_max, "page {page}: {unlisted} of {report:?}");
        for &row in &report.lost {
            assert!(found[row as usize].iter().all(|&byte| byte == 0), "the default row");
        }
        told += listed.len() as u64 + report.older_max;
    }
    assert!(hurt > 10 && differing > 0, "{hurt} pages, {differing} rows");
    assert!(told < ROWS * hurt / 4, "{told} rows told of in {hurt} folders");
}

#[test]
fn a_journal_that_was_cut_is_the_round_before() {
    let at = folder();
    let mut random = ChaCha20Rng::seed_from_u64(5);
    let mut controller = create(at.path(), &spec());
    for _ in 0..3 {
        round(&mut controller, &mut random).unwrap();
    }
    let expected = payloads(&mut controller);
    round(&mut controller, &mut random).unwrap();
    drop(controller);
    let journal = at.path().join("t/journal");
    let bytes = fs::metadata(&journal).unwrap().len();
    fs::File::options().write(true).open(&journal).unwrap().set_len(bytes - 30).unwrap();
    let report = rebuild(at.path());
    assert!(report.is_whole() && report.was_serving, "{report:?}");
    assert_eq!((report.rounds, report.spent.rounds), (3, 4));
    assert!(payloads(&mut open_rebuilt(at.path())) == expected);
}

#[test]
fn damage_within_the_journal_is_told_and_no_row_is_made_up() {
    let at = folder();
    let mut random = ChaCha20Rng::seed_from_u64(6);
    create(at.path(), &spec()).close().unwrap();
    let mut controller = open(at.path()).unwrap();
    let start = controller.journal.bytes() as usize;
    let mut states = Vec::new();
    for committed in 0..=4 {
        if committed > 0 {
            round(&mut controller, &mut random).unwrap();
        }
        let copied = folder();
        copy(at.path(), copied.path());
        states.push(payloads(&mut open(copied.path()).unwrap()));
    }
    let end = controller.journal.bytes() as usize;
    drop(controller);
    for third in 0..3 {
        let damaged = folder();
        copy(at.path(), damaged.path());
        let journal = damaged.path().join("t/journal");
        let mut bytes = fs::read(&journal).unwrap();
        let from = start + (end - start) * third / 3;
        // More than a journal mends by itself.
        bytes[from..from + 5000].fill(0);
        fs::write(&journal, bytes).unwrap();
        assert!(open(damaged.path()).is_err());
        let report = rebuild(damaged.path());
        assert!(report.journal_damaged_at.is_some() && !report.is_whole(), "{report:?}");
        assert_eq!(report.spent.rounds, 4);
        let found = payloads(&mut open_rebuilt(damaged.path()));
        let lost: BTreeSet<usize> = report.lost.iter().map(|&row| row as usize).collect();
        assert!(lost.len() < ROWS as usize / 4, "{report:?}");
        for (row, found) in found.iter().enumerate() {
            let is_a_rounds = states.iter().any(|state| state[row] == *found);
            assert_ne!(is_a_rounds, lost.contains(&row), "row {row}");
        }
    }
}

#[test]
fn without_its_first_record_nothing_is_made_up() {
    let at = folder();
    create(at.path(), &spec()).close().unwrap();
    let journal = at.path().join("t/journal");
    let mut bytes = fs::read(&journal).unwrap();
    bytes[200..].fill(0);
    fs::write(&journal, bytes).unwrap();
    let error = Salvage::read(&at.path().join("t"), &key(), None).map(drop).unwrap_err();
    assert!(matches!(error, Error::Unsalvageable { .. }), "{error}");
    assert!(error.to_string().contains("hushtable train restore"), "{error}");
    let other = Key::from_bytes([8; 32]);
    assert!(Salvage::read(&at.path().join("t"), &other, None).is_err());
}

#[test]
fn a_crash_anywhere_in_a_recovery_leaves_the_old_or_the_new() {
    let base = folder();
    let expected = worn(base.path());
    let recover = |at: &Path, faults: &Faults| -> Result<(), Error> {
        let recovered = Recovered::new(&at.join("t"), Some(&at.join("counter")));
        if !recovered.is_whole()? {
            recovered.prepare()?;
            rebuild_with(at, 0, faults)?;
            recovered.note_whole(faults)?;
        }
        swap(&recovered, faults)
    };
    let count = {
        let at = folder();
        copy(base.path(), at.path());
        let faults = Faults::new(FaultSpec::default());
        recover(at.path(), &faults).unwrap();
        faults.operation_count()
    };
    let (mut old, mut new) = (0, 0);
    // All of the swap, and the rebuild here and there.
    for kill_at in (0..count).filter(|at| at % 17 == 0 || count - at < 16) {
        let at = folder();
        copy(base.path(), at.path());
        let (tear, unsynced) = (Tear::Scattered(kill_at), Unsynced::Scattered(kill_at));
        let faults = Faults::new(FaultSpec { kill_at: Some(kill_at), tear, unsynced });
        assert!(recover(at.path(), &faults).is_err(), "kill at {kill_at} of {count}");
        let is_old = at.path().join("t").exists() && !at.path().join("t.before-recovery").exists();
        *(if is_old { &mut old } else { &mut new }) += 1;
        // The command again: it begins anew, or goes on.
        let finished = at.path().join("t").exists() && !is_old;
        if !finished {
            recover(at.path(), &Faults::none()).unwrap();
        }
        let mut controller = open(at.path()).unwrap();
        assert!(payloads(&mut controller) == expected, "kill at {kill_at}");
        assert_eq!(controller.round(), 8);
        drop(controller);
        let mut kept = open_as(at.path(), "t.before-recovery", "counter.before-recovery").unwrap();
        assert!(payloads(&mut kept) == expected, "kill at {kill_at}");
    }
    assert!(old > 10 && new > 2, "{old} old, {new} new of {count}");
}

#[test]
fn lost_rows_of_a_table_with_a_mean_get_it() {
    let at = folder();
    let mut spec = spec();
    spec.default_row = crate::round::DefaultRow::Mean;
    spec.aggregate = AggregateSpec::FedAvg { learning_rate: 1.0 };
    let controller = create(at.path(), &spec);
    let mean = controller.default_row.clone();
    controller.close().unwrap();
    // Half of the file, as when a disk's end is gone.
    let tree = at.path().join("t/tree");
    let bytes = fs::metadata(&tree).unwrap().len();
    fs::File::options().write(true).open(&tree).unwrap().set_len(bytes / 2).unwrap();
    let report = rebuild(at.path());
    assert!(!report.lost.is_empty() && (report.lost.len() as u64) < ROWS, "{report:?}");
    assert!(report.unreadable_buckets > 0);
    let found = payloads(&mut open_rebuilt(at.path()));
    let mean: Vec<u8> = mean.iter().flat_map(|number| number.to_le_bytes()).collect();
    assert!(report.lost.iter().all(|&row| found[row as usize] == mean));
    assert!(mean.iter().any(|&byte| byte != 0));
}
