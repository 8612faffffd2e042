//! Folders of precomputes: bounds, damage, and processes that are killed.

mod restored;

use std::fs::{self, OpenOptions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Duration;

use super::*;
use crate::records::RecordError;
use crate::records::Records;

const SIZES: [u64; 3] = [5, 0, 70_000];
const CUT: &str = "HUSHTABLE_STORE_CUT";
const FOLDER: &str = "HUSHTABLE_STORE_FOLDER";

/// Where a test wants this process to be killed, it says so and waits.
pub(super) fn cut(point: &str) {
    if std::env::var(CUT).is_ok_and(|wanted| wanted == point) {
        println!("cut: {point}");
        thread::sleep(Duration::from_secs(3600));
    }
}

fn spec(path: &Path) -> StoreSpec {
    let ledger = LedgerPlace::Folder(path.join("ledgers"));
    StoreSpec { folder: path.join("store"), bytes_max: 1 << 20, key: path.join("key"), ledger }
}

fn head(number: u8) -> Head {
    Head { id: [number; 16], plan: [9; 32], client_garbles: true, role: Role::Client }
}

fn record(number: usize) -> Vec<u8> {
    (0..SIZES[number]).map(|i| (i * 7 + number as u64) as u8).collect()
}

fn fill(store: &Store, number: u8) {
    let writing = store.begin(head(number), &SIZES).unwrap();
    for i in 0..SIZES.len() {
        writing.put(i, &record(i)).unwrap();
    }
    writing.commit().unwrap();
}

fn names(path: &Path) -> Vec<String> {
    let entries = fs::read_dir(path.join("store")).unwrap();
    let names = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<_> =
        names.filter(|name| !["lock", "check", "id"].contains(&&**name)).collect();
    names.sort();
    names
}

#[test]
fn a_precompute_is_taken_once_and_outlives_the_process() {
    let place = tempfile::tempdir().unwrap();
    let spec = spec(place.path());
    let store = Store::open(&spec).unwrap();
    assert_eq!(fs::metadata(&spec.key).unwrap().permissions().mode() & 0o777, 0o600);
    fill(&store, 1);
    fill(&store, 2);
    assert_eq!(store.ready(&[9; 32], true), 2);
    assert_eq!(store.ready(&[9; 32], false) + store.ready(&[8; 32], true), 0);
    drop(store);

    let store = Store::open(&spec).unwrap();
    assert_eq!(store.list().iter().map(|it| it.head).collect::<Vec<_>>(), [head(1), head(2)]);
    assert!(store.take(&[9; 32], false).unwrap().is_none());
    assert!(store.take_id(&[3; 16]).unwrap().is_none());
    let taken = store.take(&[9; 32], true).unwrap().unwrap();
    assert_eq!((*taken.head(), taken.records()), (head(1), 3));
    for i in (0..SIZES.len()).rev() {
        assert_eq!(taken.get(i).unwrap(), record(i));
    }
    assert!(matches!(taken.get(3), Err(RecordError::Missing { record: 3 })));
    assert!(taken.put(0, &record(0)).is_err());
    assert!(store.take_id(&[1; 16]).unwrap().is_none());
    let counts = store.counts();
    assert_eq!((counts.ready, counts.writing, counts.taken), (1, 0, 1));
    drop(taken);
    assert_eq!(store.counts().taken, 0);
    assert!(store.discard(&[2; 16]).unwrap() && !store.discard(&[2; 16]).unwrap());
    assert_eq!(store.counts().bytes, 0);
    assert!(names(place.path()).is_empty());
}

#[test]
fn a_precompute_that_is_not_committed_is_gone() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&spec(place.path())).unwrap();
    let writing = store.begin(head(1), &SIZES).unwrap();
    writing.put(0, &record(0)).unwrap();
    assert!(matches!(
        writing.put(2, &[1; 3]),
        Err(RecordError::Size { record: 2, expected: 70_000, found: 3 })
    ));
    assert!(matches!(writing.put(3, &[]), Err(RecordError::Missing { record: 3 })));
    assert!(matches!(
        writing.commit(),
        Err(StoreError::Record(RecordError::Missing { record: 1 }))
    ));
    // A step that is repeated, and one that reads what an earlier one left.
    writing.put(0, &record(0)).unwrap();
    assert_eq!(writing.get(0).unwrap(), record(0));
    assert!(matches!(writing.get(1), Err(RecordError::Missing { record: 1 })));
    assert!(matches!(store.begin(head(1), &[1]), Err(StoreError::Exists)));
    assert!(store.take(&[9; 32], true).unwrap().is_none());
    drop(writing);
    assert!(names(place.path()).is_empty());
    assert_eq!(store.counts().bytes, 0);
}

#[test]
fn a_committed_precompute_is_the_takers_alone() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&spec(place.path())).unwrap();
    let writing = store.begin(head(1), &[4]).unwrap();
    writing.put(0, &[1; 4]).unwrap();
    writing.commit().unwrap();
    writing.commit().unwrap();
    assert!(writing.put(0, &[2; 4]).is_err());
    assert!(writing.get(0).is_err());
    drop(writing);
    assert_eq!(store.take_id(&[1; 16]).unwrap().unwrap().get(0).unwrap(), [1; 4]);
}

#[test]
fn the_folder_is_bounded_and_one_partys() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&spec(place.path())).unwrap();
    let writing = store.begin(head(1), &[600_000]).unwrap();
    // What is being written counts.
    assert!(matches!(
        store.begin(head(2), &[600_000]),
        Err(StoreError::Full { used: 600_000.., .. })
    ));
    assert!(matches!(store.begin(head(2), &[u64::MAX, 9]), Err(StoreError::Full { .. })));
    let too_many = vec![0; RECORDS_MAX + 1];
    assert!(matches!(store.begin(head(2), &too_many), Err(StoreError::Records { .. })));
    let other = Head { role: Role::Server, ..head(2) };
    assert!(matches!(store.begin(other, &[1]), Err(StoreError::OtherParty { .. })));
    drop(writing);
    store.begin(head(2), &[600_000]).unwrap();
    store.begin(other, &[1]).unwrap();
}

#[test]
fn what_is_damaged_is_dropped_and_said() {
    let place = tempfile::tempdir().unwrap();
    let spec = spec(place.path());
    let file = |number: u8, ending: &str| {
        let name = format!("{}.{ending}", folder::name(&[number; 16]));
        OpenOptions::new().read(true).write(true).open(spec.folder.join(name)).unwrap()
    };
    let store = Store::open(&spec).unwrap();
    (1..=7).for_each(|number| fill(&store, number));
    drop(store);
    file(1, "key").set_len(40).unwrap();
    let mut byte = [0];
    file(2, "key").read_exact_at(&mut byte, 100).unwrap();
    file(2, "key").write_all_at(&[byte[0] ^ 1], 100).unwrap();
    file(3, "data").set_len(70_000).unwrap();
    let data = |number: u8| spec.folder.join(format!("{}.data", folder::name(&[number; 16])));
    fs::remove_file(data(4)).unwrap();
    // One precompute's whole key in the place of another's.
    let key = |number: u8| spec.folder.join(format!("{}.key", folder::name(&[number; 16])));
    fs::copy(key(6), key(5)).unwrap();

    let store = Store::open(&spec).unwrap();
    let dropped = store.dropped();
    assert_eq!(dropped.len(), 5, "{dropped:?}");
    assert!(dropped.iter().any(|it| it.why.to_string().contains("data were cut")), "{dropped:?}");
    assert!(store.dropped().is_empty());
    assert_eq!(names(place.path()).len(), 4);
    // While it is open: a record of another precompute, a flipped bit, a cut file.
    fs::copy(data(7), data(6)).unwrap();
    let taken = store.take_id(&[6; 16]).unwrap().unwrap();
    for i in 0..3 {
        assert!(matches!(taken.get(i), Err(RecordError::Damaged { .. })), "record {i}");
    }
    drop(taken);
    file(7, "data").set_len(60_000).unwrap();
    assert!(store.take_id(&[7; 16]).unwrap().is_none());
    assert_eq!(store.dropped().len(), 1);
    assert_eq!(store.counts(), Counts { bytes_max: 1 << 20, ..Counts::default() });
}

#[test]
fn a_flipped_bit_or_a_cut_after_taking_is_told_from_a_record() {
    let place = tempfile::tempdir().unwrap();
    let spec = spec(place.path());
    let store = Store::open(&spec).unwrap();
    fill(&store, 1);
    let data = spec.folder.join(format!("{}.data", folder::name(&[1; 16])));
    let file = OpenOptions::new().read(true).write(true).open(data).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, 40).unwrap();
    file.write_all_at(&[byte[0] ^ 0x80], 40).unwrap();
    let taken = store.take_id(&[1; 16]).unwrap().unwrap();
    assert!(matches!(taken.get(0), Err(RecordError::Damaged { record: 0, .. })));
    assert_eq!(taken.get(1).unwrap(), record(1));
    file.set_len(1000).unwrap();
    assert!(matches!(taken.get(2), Err(RecordError::Damaged { record: 2, .. })));
}

#[test]
fn keys_are_checked() {
    let place = tempfile::tempdir().unwrap();
    let spec = spec(place.path());
    fill(&Store::open(&spec).unwrap(), 1);
    let other = StoreSpec { key: place.path().join("other"), ..spec.clone() };
    assert!(matches!(Store::open(&other), Err(StoreError::WrongKey { .. })));
    fs::set_permissions(&spec.key, fs::Permissions::from_mode(0o640)).unwrap();
    assert!(matches!(Store::open(&spec), Err(StoreError::KeyFile { .. })));
    fs::set_permissions(&spec.key, fs::Permissions::from_mode(0o600)).unwrap();
    fs::write(&other.key, [1; 31]).unwrap();
    assert!(matches!(Store::open(&other), Err(StoreError::KeyFile { .. })));
    // Nothing was deleted by any of this.
    assert_eq!(Store::open(&spec).unwrap().counts().ready, 1);
}

#[test]
fn a_key_that_was_being_made_is_made_again() {
    let place = tempfile::tempdir().unwrap();
    let spec = spec(place.path());
    let mut new = spec.key.clone().into_os_string();
    new.push(format!(".{}.new", std::process::id()));
    // Of a process of this number that was killed then.
    fs::write(&new, [1; 3]).unwrap();
    fill(&Store::open(&spec).unwrap(), 1);
    assert!(!fs::exists(&new).unwrap());
    assert_eq!(fs::read(&spec.key).unwrap().len(), 32);
    assert_eq!(Store::open(&spec).unwrap().counts().ready, 1);
}

#[test]
fn one_at_a_time_has_the_folder() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&spec(place.path())).unwrap();
    assert!(matches!(Store::open(&spec(place.path())), Err(StoreError::Locked { .. })));
    drop(store);
    Store::open(&spec(place.path())).unwrap();
}

#[test]
fn the_folder_goes_though_a_forked_process_has_the_lock_open() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&spec(place.path())).unwrap();
    let inherited = store.0.folder.inherit();
    drop(store);
    Store::open(&spec(place.path())).unwrap();
    drop(inherited);
}

#[test]
fn threads_take_each_precompute_once() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&spec(place.path())).unwrap();
    (1..=8).for_each(|number| fill(&store, number));
    let take_all = || {
        let taken = std::iter::from_fn(|| store.take(&[9; 32], true).unwrap());
        taken.map(|taken| (taken.head().id[0], taken.get(2).unwrap()).0).collect::<Vec<_>>()
    };
    let mut all: Vec<u8> = thread::scope(|scope| {
        let threads: Vec<_> = (0..4).map(|_| scope.spawn(take_all)).collect();
        threads.into_iter().flat_map(|thread| thread.join().unwrap()).collect()
    });
    all.sort_unstable();
    assert_eq!(all, [1, 2, 3, 4, 5, 6, 7, 8]);
}

/// Starts one test again, in a process of its own, waits for it to say `until`, and kills it there.
fn kill_at(test: &str, path: &Path, point: &str, until: &str) -> Vec<String> {
    let mut child = Command::new(std::env::current_exe().unwrap())
        .args([&format!("store::tests::{test}"), "--exact", "--nocapture"])
        .env(CUT, point)
        .env(FOLDER, path)
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .unwrap();
    let mut said = Vec::new();
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        said.push(line.unwrap());
        if said.last().unwrap().contains(until) {
            break;
        }
    }
    // As long as it lives, the folder is its own.
    assert!(matches!(Store::open(&spec(path)), Err(StoreError::Locked { .. })));
    child.kill().unwrap();
    assert!(!child.wait().unwrap().success(), "{said:?}");
    assert!(said.last().is_some_and(|line| line.contains(until)), "{said:?}");
    said
}

#[test]
fn a_process_killed_at_any_cut_never_lets_a_precompute_be_used_twice() {
    const TEST: &str = "a_process_killed_at_any_cut_never_lets_a_precompute_be_used_twice";
    if let Some(path) = std::env::var_os(FOLDER) {
        // The process that is killed: makes one, takes one, uses it.
        let store = Store::open(&spec(Path::new(&path))).unwrap();
        fill(&store, 2);
        let taken = store.take_id(&[1; 16]).unwrap().unwrap();
        assert_eq!(taken.get(2).unwrap(), record(2));
        println!("used: 1");
        cut("in use");
        drop(taken);
        cut("after use");
        return;
    }
    // What stands after the kill: of the one that was there, and of the one that was being made.
    for (point, is_first_there, is_second_there) in [
        ("before it is entered", true, false),
        ("before the key is written", true, false),
        ("after the key is written", true, true),
        ("before they are struck out", true, true),
        ("before the key is deleted", false, true),
        ("after the key is deleted", false, true),
        ("after the data are deleted", false, true),
        ("in use", false, true),
        ("after use", false, true),
    ] {
        let place = tempfile::tempdir().unwrap();
        fill(&Store::open(&spec(place.path())).unwrap(), 1);
        let said = kill_at(TEST, place.path(), point, &format!("cut: {point}"));
        let store = Store::open(&spec(place.path())).unwrap();
        // Between both, nobody can tell it from one that was used and put back.
        let is_refused = point == "before the key is deleted";
        let refused = Dropped { name: folder::name(&[1; 16]), why: Cause::Used };
        assert_eq!(store.dropped(), if is_refused { vec![refused] } else { vec![] }, "{point}");
        let is_there = |number: u8| store.list().iter().any(|it| it.head == head(number));
        assert_eq!((is_there(1), is_there(2)), (is_first_there, is_second_there), "{point}");
        assert!(!(is_there(1) && said.iter().any(|line| line.contains("used: 1"))), "{point}");
        assert_eq!(names(place.path()).len(), 2 * store.counts().ready, "{point}");
        for number in 1..=2 {
            if let Some(taken) = store.take_id(&[number; 16]).unwrap() {
                (0..3).for_each(|i| assert_eq!(taken.get(i).unwrap(), record(i), "{point}"));
            }
        }
    }
}

#[test]
fn a_process_killed_at_any_moment_uses_each_precompute_at_most_once() {
    const TEST: &str = "a_process_killed_at_any_moment_uses_each_precompute_at_most_once";
    if let Some(path) = std::env::var_os(FOLDER) {
        let store = Store::open(&spec(Path::new(&path))).unwrap();
        while let Some(taken) = store.take(&[9; 32], true).unwrap() {
            println!("used: {}", taken.head().id[0]);
        }
        println!("all are used");
        thread::sleep(Duration::from_secs(3600));
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let store = Store::open(&spec(place.path())).unwrap();
    (1..=12).for_each(|number| fill(&store, number));
    drop(store);
    let mut used = Vec::new();
    for _ in 0..13 {
        let said = kill_at(TEST, place.path(), "", "used");
        used.extend(
            said.iter().filter_map(|line| line.split_once("used: ")).map(|it| it.1.to_owned()),
        );
    }
    let all = used.len();
    used.sort();
    used.dedup();
    assert!(all >= 12 || Store::open(&spec(place.path())).unwrap().counts().ready == 0);
    assert_eq!(used.len(), all, "one was used twice: {used:?}");
}
