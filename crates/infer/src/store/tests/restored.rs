//! Folders that are put back, copied, or held against a ledger that is not theirs: no half is used twice.

use super::*;
use crate::store::ledger::Ledger;

/// Brings every file of a folder into another.
fn each(from: &Path, to: &Path, bring: fn(&Path, &Path)) {
    fs::create_dir_all(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        bring(&entry.path(), &to.join(entry.file_name()));
    }
}

/// All files of a folder, as a backup has them.
fn copy(from: &Path, to: &Path) {
    each(from, to, |from, to| _ = fs::copy(from, to).unwrap());
}

/// Puts a folder's files back: files of these names, and other files.
fn put_back(from: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap();
    copy(from, to);
}

/// A snapshot, of blocks: the files themselves, which later changes do not reach for they replace or remove names.
fn snapshot(from: &Path, to: &Path) {
    each(from, to, |from, to| fs::hard_link(from, to).unwrap());
}

/// Puts the same files back.
fn roll_back(from: &Path, to: &Path) {
    fs::remove_dir_all(to).unwrap();
    snapshot(from, to);
}

/// A store with halves 1, 2 and 3, closed, of which there is a snapshot and a backup of the folder and of the ledgers.
fn filled(place: &Path) -> StoreSpec {
    let spec = spec(place);
    let store = Store::open(&spec).unwrap();
    (1..=3).for_each(|number| fill(&store, number));
    drop(store);
    copy(&spec.folder, &place.join("backup"));
    copy(&place.join("ledgers"), &place.join("backup of ledgers"));
    snapshot(&spec.folder, &place.join("snapshot"));
    spec
}

fn ids(store: &Store) -> Vec<u8> {
    store.list().iter().map(|it| it.head.id[0]).collect()
}

fn causes(store: &Store) -> Vec<Cause> {
    store.dropped().iter().map(|it| it.why).collect()
}

fn use_up(spec: &StoreSpec, number: u8) {
    let taken = Store::open(spec).unwrap().take_id(&[number; 16]).unwrap().unwrap();
    assert_eq!(taken.get(2).unwrap(), record(2));
}

/// The one ledger's file that there is.
fn ledger(place: &Path) -> std::path::PathBuf {
    let files = fs::read_dir(place.join("ledgers")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> =
        files.filter(|path| path.extension().is_some_and(|it| it == "ledger")).collect();
    assert_eq!(files.len(), 1, "{files:?}");
    files.remove(0)
}

#[test]
fn a_folder_that_is_put_back_gives_nothing_out_again() {
    let place = tempfile::tempdir().unwrap();
    let spec = filled(place.path());
    use_up(&spec, 1);
    put_back(&place.path().join("backup"), &spec.folder);
    let store = Store::open(&spec).unwrap();
    assert!(store.take_id(&[1; 16]).unwrap().is_none(), "it was used before");
    assert_eq!(causes(&store), [Cause::Copied; 3]);
    // What is made from now on is as good as ever, and so it is after a restart.
    fill(&store, 4);
    drop(store);
    let store = Store::open(&spec).unwrap();
    assert_eq!((ids(&store), causes(&store)), (vec![4], vec![]));
}

#[test]
fn files_that_are_put_back_one_by_one_give_nothing_out_again() {
    let place = tempfile::tempdir().unwrap();
    let spec = filled(place.path());
    use_up(&spec, 1);
    // As a program does that copies what is missing.
    let name = folder::name(&[1; 16]);
    for ending in ["key", "data"] {
        let file = format!("{name}.{ending}");
        fs::copy(place.path().join("backup").join(&file), spec.folder.join(&file)).unwrap();
    }
    let store = Store::open(&spec).unwrap();
    assert_eq!((ids(&store), causes(&store)), (vec![2, 3], vec![Cause::Copied]));
    // Nor does the file that was there itself.
    drop(store);
    let file = format!("{name}.key");
    let from = place.path().join("snapshot").join(&file);
    fs::hard_link(from, spec.folder.join(&file)).unwrap();
    fs::copy(
        place.path().join("backup").join(format!("{name}.data")),
        spec.folder.join(format!("{name}.data")),
    )
    .unwrap();
    let store = Store::open(&spec).unwrap();
    assert_eq!((ids(&store), causes(&store)), (vec![2, 3], vec![Cause::Used]));
}

#[test]
fn a_snapshot_that_is_put_back_gives_out_what_was_not_used_since() {
    let place = tempfile::tempdir().unwrap();
    let spec = filled(place.path());
    use_up(&spec, 1);
    assert!(Store::open(&spec).unwrap().discard(&[2; 16]).unwrap());
    roll_back(&place.path().join("snapshot"), &spec.folder);
    let store = Store::open(&spec).unwrap();
    assert_eq!((ids(&store), causes(&store)), (vec![3], vec![Cause::Used; 2]));
    assert!(store.take_id(&[1; 16]).unwrap().is_none());
    drop(store);
    // A volume that is mounted again is no copy.
    assert_eq!(ids(&Store::open(&spec).unwrap()), [3]);
}

#[test]
fn nothing_is_used_that_no_ledger_vouches_for() {
    for (what, expected) in [
        ("missing", Cause::NoLedger),
        ("put back", Cause::CopiedLedger),
        ("flipped", Cause::DamagedLedger),
        ("flipped within", Cause::DamagedLedger),
        ("cut", Cause::DamagedLedger),
        ("another folder's", Cause::DamagedLedger),
    ] {
        let place = tempfile::tempdir().unwrap();
        let spec = filled(place.path());
        use_up(&spec, 1);
        let path = ledger(place.path());
        let bytes = fs::read(&path).unwrap();
        let file = || OpenOptions::new().write(true).open(&path).unwrap();
        match what {
            "missing" => fs::remove_file(&path).unwrap(),
            "put back" => {
                put_back(&place.path().join("backup of ledgers"), &place.path().join("ledgers"));
            }
            "flipped" => file().write_all_at(&[bytes[100] ^ 1], 100).unwrap(),
            // The header has 120 bytes, a record 41.
            "flipped within" => file().write_all_at(&[bytes[150] ^ 1], 150).unwrap(),
            "cut" => file().set_len(119).unwrap(),
            _ => {
                let other = self::spec(&place.path().join("other"));
                fill(&Store::open(&other).unwrap(), 1);
                fs::remove_file(&path).unwrap();
                fs::hard_link(ledger(&place.path().join("other")), &path).unwrap();
            }
        }
        let store = Store::open(&spec).unwrap();
        assert_eq!((ids(&store), causes(&store)), (vec![], vec![expected; 2]), "{what}");
        assert!(names(place.path()).is_empty(), "{what}");
        // And with a ledger of its own again it goes on, where it was rolled back too.
        fill(&store, 4);
        drop(store);
        assert_eq!(ids(&Store::open(&spec).unwrap()), [4], "{what}");
        roll_back(&place.path().join("snapshot"), &spec.folder);
        let store = Store::open(&spec).unwrap();
        assert_eq!((ids(&store), causes(&store)), (vec![], vec![Cause::Used; 3]), "{what}");
    }
}

#[test]
fn a_ledger_that_is_older_than_the_folder_vouches_for_nothing() {
    let place = tempfile::tempdir().unwrap();
    let spec = filled(place.path());
    snapshot(&place.path().join("ledgers"), &place.path().join("older ledgers"));
    let store = Store::open(&spec).unwrap();
    fill(&store, 4);
    drop(store);
    // A snapshot of a later moment than the ledger's.
    snapshot(&spec.folder, &place.path().join("later"));
    use_up(&spec, 1);
    roll_back(&place.path().join("older ledgers"), &place.path().join("ledgers"));
    roll_back(&place.path().join("later"), &spec.folder);
    let store = Store::open(&spec).unwrap();
    assert_eq!((ids(&store), causes(&store)), (vec![], vec![Cause::OlderLedger; 4]));
    // Numbers go on behind those that were seen.
    fill(&store, 5);
    drop(store);
    assert_eq!(ids(&Store::open(&spec).unwrap()), [5]);
}

#[test]
fn a_copy_elsewhere_has_nothing_and_takes_nothing_from_the_original() {
    let place = tempfile::tempdir().unwrap();
    let spec = filled(place.path());
    let copied = StoreSpec { folder: place.path().join("elsewhere"), ..spec.clone() };
    copy(&spec.folder, &copied.folder);
    let original = Store::open(&spec).unwrap();
    let copy = Store::open(&copied).unwrap();
    assert_eq!((ids(&copy), causes(&copy)), (vec![], vec![Cause::Copied; 3]));
    fill(&copy, 4);
    drop((original, copy));
    assert_eq!(ids(&Store::open(&spec).unwrap()), [1, 2, 3]);
    assert_eq!(ids(&Store::open(&copied).unwrap()), [4]);
    // The folder itself, under another name, is no copy.
    let renamed = StoreSpec { folder: place.path().join("renamed"), ..spec.clone() };
    fs::rename(&spec.folder, &renamed.folder).unwrap();
    assert_eq!(ids(&Store::open(&renamed).unwrap()), [1, 2, 3]);
}

#[test]
fn two_processes_with_one_folder_or_one_ledger_are_told() {
    let place = tempfile::tempdir().unwrap();
    let spec = filled(place.path());
    // A copy by blocks: the same files elsewhere.
    let copied = StoreSpec { folder: place.path().join("elsewhere"), ..spec.clone() };
    snapshot(&spec.folder, &copied.folder);
    fs::remove_file(copied.folder.join("lock")).unwrap();
    let store = Store::open(&spec).unwrap();
    assert!(matches!(Store::open(&spec), Err(StoreError::Locked { .. })));
    let error = Store::open(&copied).err().unwrap();
    assert!(matches!(error, StoreError::LedgerLocked { .. }), "{error}");
    drop(store);
    // One after the other they have the halves once.
    use_up(&spec, 1);
    let store = Store::open(&copied).unwrap();
    assert_eq!(ids(&store), [2, 3]);
    assert!(store.take_id(&[2; 16]).unwrap().is_some());
    drop(store);
    assert_eq!(ids(&Store::open(&spec).unwrap()), [3]);
}

#[test]
fn a_ledger_is_outside_of_its_folder_and_one_machines() {
    let place = tempfile::tempdir().unwrap();
    let spec = filled(place.path());
    let within = LedgerPlace::Folder(spec.folder.join("ledgers"));
    let refused = Store::open(&StoreSpec { ledger: within, ..spec.clone() }).err().unwrap();
    assert!(matches!(refused, StoreError::LedgerInside { .. }), "{refused}");
    let unfit = LedgerPlace::Folder(spec.key.clone());
    let refused = Store::open(&StoreSpec { ledger: unfit, ..spec.clone() }).err().unwrap();
    assert!(matches!(refused, StoreError::Ledger { .. }), "{refused}");
    assert_eq!(ids(&Store::open(&spec).unwrap()), [1, 2, 3]);

    let ledgers = place.path().join("machines");
    let open = |machine| Ledger::open_at(&ledgers, &spec.folder, &[1; 32], [2; 16], [machine; 32]);
    let ledger = open(1).unwrap();
    assert_eq!(ledger.doubt(0), Some(Cause::NoLedger));
    ledger.begin(std::collections::HashMap::new(), 0).unwrap();
    let number = ledger.enter(&[3; 16]).unwrap();
    drop(ledger);
    assert!(open(1).unwrap().has(&[3; 16], number));
    assert_eq!(open(2).unwrap().doubt(number), Some(Cause::OtherMachine));
    assert_eq!(open(1).unwrap().doubt(number), None);
}

#[test]
fn a_ledger_stays_as_small_as_what_is_in_the_folder() {
    let place = tempfile::tempdir().unwrap();
    let open = || {
        Ledger::open_at(
            &place.path().join("ledgers"),
            &place.path().join("store"),
            &[1; 32],
            [2; 16],
            [0; 32],
        )
    };
    fs::create_dir(place.path().join("store")).unwrap();
    let ledger = open().unwrap();
    ledger.begin(std::collections::HashMap::new(), 0).unwrap();
    let mut most = 0;
    for number in 0..700_u32 {
        let id: [u8; 16] = std::array::from_fn(|i| number.to_le_bytes()[i % 4]);
        assert_eq!(ledger.enter(&id).unwrap(), u64::from(number) + 1);
        if number > 0 {
            ledger.strike(&[id]).unwrap();
        }
        most = most.max(fs::metadata(ledger.path()).unwrap().len());
    }
    assert!(most < 30_000, "{most}");
    drop(ledger);
    // What was being written when the process ended is as if it were not there.
    let path = open().unwrap().path().to_owned();
    let bytes = fs::read(&path).unwrap();
    fs::OpenOptions::new()
        .append(true)
        .open(&path)
        .unwrap()
        .set_len(bytes.len() as u64 - 20)
        .unwrap();
    let ledger = open().unwrap();
    assert_eq!(ledger.doubt(699), None);
    assert!(ledger.has(&[0; 16], 1));
}

#[test]
fn a_full_disk_under_the_ledger_is_a_full_disk() {
    let failed = |kind: std::io::ErrorKind| {
        StoreError::Ledger { path: "ledger".into(), source: kind.into() }.is_disk_full()
    };
    assert!(failed(std::io::ErrorKind::StorageFull));
    assert!(!failed(std::io::ErrorKind::PermissionDenied));
}
