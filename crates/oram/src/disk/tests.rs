//! One checker for every kind of store, and what only some of them do.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;

use proptest::prelude::*;
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;

use super::*;

const PAGES: u64 = 300;

/// Every way in which a file is read and written here. `Auto` for direct: not every machine's
/// temporary folder can.
fn specs() -> Vec<FileSpec> {
    let mut specs = Vec::new();
    for io in [IoKind::Auto, IoKind::Pread] {
        for direct in [Direct::Auto, Direct::Off] {
            for depth in [1, 3, 64] {
                specs.push(FileSpec { io, direct, depth });
            }
        }
    }
    specs
}

fn random_pages(rng: &mut ChaCha8Rng, count: usize) -> Pages {
    let mut pages = Pages::with_count(count);
    rng.fill_bytes(pages.bytes_mut());
    pages
}

/// Runs that do not overlap, in random order.
fn random_runs(rng: &mut ChaCha8Rng) -> Vec<Run> {
    let mut runs = Vec::new();
    let mut page = rng.random_range(0..9);
    while page < PAGES {
        let pages = rng.random_range(0..20).min((PAGES - page) as u32);
        runs.insert(rng.random_range(0..=runs.len()), Run { first_page: page, pages });
        page += u64::from(pages) + rng.random_range(1..9);
    }
    runs
}

/// A store does what an array of pages does, through every way of reading, and counts it.
fn check_store(mut store: impl Store, seed: u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    assert_eq!(store.pages(), PAGES);
    let mut plain = MemoryStore::new(PAGES as usize);
    let all = [Run { first_page: 0, pages: PAGES as u32 }];
    store.read(&all, plain.contents_mut()).expect("all of it");
    let before = store.counters();
    let (mut written_pages, mut read_pages, mut read_runs) = (0, 0, 0);
    let (mut expected, mut found) = (Pages::new(), Pages::new());
    for _ in 0..8 {
        let runs = random_runs(&mut rng);
        let count = runs.iter().map(|run| run.pages as usize).sum();
        let pages = random_pages(&mut rng, count);
        plain.write(&runs, &pages).expect("runs that fit");
        store.write(&runs, &pages).expect("runs that fit");
        written_pages += count;

        let mut runs = random_runs(&mut rng);
        // Reading a page twice is no mistake.
        runs.extend(random_runs(&mut rng));
        plain.read(&runs, &mut expected).expect("runs that fit");
        store.read(&runs, &mut found).expect("runs that fit");
        assert!(found == expected, "seed {seed}");
        read_pages += 2 * found.count();
        read_runs += 2 * runs.len();

        let mut seen = vec![0; runs.len()];
        let mut starts = vec![0];
        starts.extend(runs.iter().scan(0, |end, run| {
            *end += run.pages as usize;
            Some(*end)
        }));
        store
            .read_each(&runs, &mut |i, bytes| {
                seen[i] += 1;
                assert!(bytes == expected.run(starts[i], runs[i].pages as usize), "run {i}");
                bytes.fill(0xaa);
            })
            .expect("runs that fit");
        assert_eq!(seen, vec![1; runs.len()]);
        store.sync().expect("a disk that works");
    }
    let counters = store.counters();
    assert_eq!(counters.written_bytes - before.written_bytes, (written_pages * PAGE_BYTES) as u64);
    assert_eq!(counters.read_bytes - before.read_bytes, (read_pages * PAGE_BYTES) as u64);
    assert_eq!(counters.reads - before.reads, read_runs as u64);
    assert_eq!(counters.syncs - before.syncs, 8);
    check_refusals(&mut store);
}

/// What cannot be done is refused before anything is.
fn check_refusals(store: &mut impl Store) {
    let mut before = Pages::new();
    let all = [Run { first_page: 0, pages: PAGES as u32 }];
    store.read(&all, &mut before).expect("all of it");
    let mut pages = Pages::with_count(2);
    for first_page in [PAGES - 1, PAGES, u64::MAX, u64::MAX / PAGE_BYTES as u64] {
        let outside = [Run::page(0), Run { first_page, pages: 2 }];
        let read = store.read(&outside, &mut pages);
        assert!(matches!(read, Err(DiskError::OutOfRange { .. })), "{read:?}");
        let read = store.read_each(&outside, &mut |_, _| panic!("nothing is read"));
        assert!(matches!(read, Err(DiskError::OutOfRange { .. })), "{read:?}");
        pages.resize(3);
        let wrote = store.write(&outside, &pages);
        assert!(matches!(wrote, Err(DiskError::OutOfRange { .. })), "{wrote:?}");
    }
    let wrote = store.write(&[Run::page(1), Run::page(2)], &pages);
    assert!(matches!(wrote, Err(DiskError::Length { runs_pages: 2, given_pages: 3 })), "{wrote:?}");
    let wrote = store.write(&[Run { first_page: 4, pages: 2 }, Run::page(5)], &pages);
    assert!(matches!(wrote, Err(DiskError::Overlap { page: 5 })), "{wrote:?}");
    store.read(&all, &mut pages).expect("all of it");
    assert!(pages == before, "a refused call changes nothing");
}

#[test]
fn memory_is_a_store() {
    check_store(MemoryStore::new(PAGES as usize), 1);
    let boxed: Box<dyn Store> = Box::new(MemoryStore::new(PAGES as usize));
    check_store(boxed, 2);
}

#[test]
fn a_file_is_a_store_in_every_way() {
    let folder = TempDir::new().expect("a folder");
    for (i, spec) in specs().into_iter().enumerate() {
        let path = folder.path().join(format!("store-{i}"));
        let store = FileStore::create(&path, PAGES, spec).expect("a new store");
        assert!(spec.direct != Direct::Off || !store.is_direct());
        assert!(spec.io != IoKind::Pread || !store.uses_uring());
        check_store(store, i as u64);
        check_store(FileStore::open(&path, spec).expect("the same store"), 100 + i as u64);
    }
}

#[test]
fn faults_that_are_not_planned_change_nothing() {
    let faults = Faults::new(FaultSpec::default());
    check_store(FaultStore::new(MemoryStore::new(PAGES as usize), faults.clone()), 3);
    assert!(!faults.is_killed());
    check_store(FaultStore::new(MemoryStore::new(PAGES as usize), Faults::none()), 4);
}

/// The kernel this project is developed and tested on has io_uring: were it refused everywhere, the
/// tests above would test threads alone and nobody would know.
#[test]
#[cfg(target_os = "linux")]
fn io_uring_is_refused_only_where_the_system_has_none() {
    let folder = TempDir::new().expect("a folder");
    let spec = FileSpec { io: IoKind::Uring, ..FileSpec::default() };
    match FileStore::create(&folder.path().join("store"), 4, spec) {
        Ok(store) => assert!(store.uses_uring()),
        Err(DiskError::NoUring { source }) => {
            let kind = source.kind();
            use std::io::ErrorKind::{OutOfMemory, PermissionDenied, Unsupported};
            assert!(matches!(kind, PermissionDenied | Unsupported | OutOfMemory), "{source}");
        }
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn a_file_is_private_whole_locked_and_never_overwritten() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store");
    let spec = FileSpec::default();
    let store = FileStore::create(&path, 1000, spec).expect("a new store");
    let metadata = fs::metadata(&path).expect("a file");
    assert_eq!(metadata.permissions().mode() & 0o777, 0o600);
    assert_eq!(metadata.len(), 1000 * PAGE_BYTES as u64);
    assert!(metadata.blocks() * 512 >= metadata.len(), "its space is reserved");
    let second = FileStore::open(&path, spec);
    assert!(matches!(second, Err(DiskError::Busy { .. })), "{second:?}");
    drop(store);
    drop(FileStore::open(&path, spec).expect("given back"));
    let again = FileStore::create(&path, 1, spec);
    assert!(matches!(again, Err(DiskError::Exists { .. })), "{again:?}");
    assert_eq!(fs::metadata(&path).expect("still there").len(), 1000 * PAGE_BYTES as u64);
}

/// A process that is being started holds its parent's files until it has become another program:
/// closing the file would give the lock back only then.
#[test]
fn a_lock_is_given_back_though_processes_are_started() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store");
    drop(FileStore::create(&path, 1, FileSpec::default()).expect("a new store"));
    let done = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !done.load(std::sync::atomic::Ordering::Relaxed) {
                std::process::Command::new("true").status().expect("a process");
            }
        });
        let spec = FileSpec { io: IoKind::Pread, ..FileSpec::default() };
        let outcome: Result<(), DiskError> =
            (0..3000).try_for_each(|_| FileStore::open(&path, spec).map(drop));
        done.store(true, std::sync::atomic::Ordering::Relaxed);
        outcome.expect("nobody else's");
    });
}

#[test]
fn what_is_no_store_is_refused() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store");
    let spec = FileSpec::default();
    let open = |path: &Path| FileStore::open(path, spec).expect_err("no store");
    assert!(matches!(open(&path), DiskError::Missing { .. }));
    assert!(matches!(open(folder.path()), DiskError::NotPages { regular: false, .. }));
    for bytes in [0, 1, 4095, 4097] {
        fs::write(&path, vec![0; bytes]).expect("a file");
        assert!(matches!(open(&path), DiskError::NotPages { regular: true, .. }), "{bytes}");
    }
    for pages in [0, u64::MAX, 1 << 51] {
        let other = FileStore::create(&folder.path().join("other"), pages, spec);
        assert!(matches!(other, Err(DiskError::Size { .. })), "{other:?}");
    }
}

#[test]
fn a_full_disk_is_seen_at_once_and_leaves_no_file() {
    let folder = TempDir::new().expect("a folder");
    let path = folder.path().join("store");
    let store = FileStore::create(&path, 1 << 45, FileSpec::default());
    let Err(DiskError::Full { wanted_bytes, available_bytes, .. }) = store else {
        panic!("{store:?}")
    };
    assert_eq!(wanted_bytes, 1 << 57);
    assert!(available_bytes > 0 && available_bytes < wanted_bytes);
    assert!(!path.exists());
}

#[test]
fn a_file_that_was_cut_is_said_to_be_short() {
    let folder = TempDir::new().expect("a folder");
    for (i, spec) in specs().into_iter().enumerate() {
        let path = folder.path().join(format!("store-{i}"));
        let mut store = FileStore::create(&path, PAGES, spec).expect("a new store");
        let file = OpenOptions::new().write(true).open(&path).expect("the file");
        file.set_len(100 * PAGE_BYTES as u64 + 10).expect("cut");
        let mut pages = Pages::new();
        let runs: Vec<Run> = (0..PAGES / 2).map(|i| Run { first_page: 2 * i, pages: 2 }).collect();
        let read = store.read(&runs, &mut pages);
        assert!(matches!(read, Err(DiskError::Short { page: 100.., .. })), "{spec:?}: {read:?}");
        let mut seen = Vec::new();
        let read = store.read_each(&runs, &mut |i, _| seen.push(i));
        assert!(matches!(read, Err(DiskError::Short { page: 100.., .. })), "{spec:?}: {read:?}");
        assert!(seen.iter().all(|&i| i < 50), "what is not there is not handed out");
        // And it goes on with what is there.
        store.read(&runs[..50], &mut pages).expect("what is there");
    }
}

/// A caller that panics while reads are in flight: they are waited for, and the store is as it was.
#[test]
fn a_panic_while_reads_are_in_flight_is_survived() {
    let folder = TempDir::new().expect("a folder");
    for (i, spec) in specs().into_iter().enumerate() {
        let path = folder.path().join(format!("store-{i}"));
        let mut store = FileStore::create(&path, PAGES, spec).expect("a new store");
        let runs: Vec<Run> = (0..PAGES).map(Run::page).collect();
        let mut left = 10;
        let read = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            store.read_each(&runs, &mut |_, _| {
                left -= 1;
                assert!(left > 0, "planned");
            })
        }));
        assert!(read.is_err());
        check_store(store, 500 + i as u64);
    }
}

#[test]
fn runs_are_the_fewest_that_keep_the_order() {
    let run = |first_page, pages| Run { first_page, pages };
    let pages = [5, 6, 7, 9, 8, 9, 10, 11, u64::MAX, 0, 1];
    let runs = [run(5, 3), run(9, 1), run(8, 3), run(11, 1), run(u64::MAX, 1), run(0, 2)];
    assert_eq!(runs_of(pages, 3), runs);
    assert!(runs_of([], 3).is_empty());
}

/// Writes all pages and syncs, then writes all again as ones; the second write is killed.
fn killed_write(tear: Tear, unsynced: Unsynced, kill_at: u64) -> (Pages, Faults) {
    let faults = Faults::new(FaultSpec { kill_at: Some(kill_at), tear, unsynced });
    let mut store = FaultStore::new(MemoryStore::new(8), faults.clone());
    let runs: Vec<Run> = (0..8).map(Run::page).collect();
    let ones = Pages::from_bytes(&[1; 8 * PAGE_BYTES]);
    let mut work = || {
        store.sync()?;
        store.write(&runs[..4], &Pages::from_bytes(&[2; 4 * PAGE_BYTES]))?;
        store.write(&runs, &ones)
    };
    assert!(matches!(work(), Err(DiskError::Killed { operation }) if operation == kill_at));
    assert!(matches!(store.read(&runs, &mut Pages::new()), Err(DiskError::Killed { .. })));
    assert!(matches!(store.sync(), Err(DiskError::Killed { .. })));
    (store.into_inner().contents().clone(), faults)
}

#[test]
fn a_killed_write_is_torn_as_planned() {
    let first_bytes = |pages: &Pages| (0..8).map(|i| pages.page(i)[0]).collect::<Vec<u8>>();
    let (pages, faults) = killed_write(Tear::Nothing, Unsynced::Kept, 2);
    assert_eq!(first_bytes(&pages), [2, 2, 2, 2, 0, 0, 0, 0]);
    assert!(faults.is_killed());
    assert_eq!(faults.operation_count(), 5);
    let trace: Trace =
        [0, 1, 2, 3, 0, 1, 2, 3, 4, 5, 6, 7].map(|page| (Access::Write, page)).into();
    assert_eq!(faults.take_trace(), trace);
    let (pages, _) = killed_write(Tear::Half, Unsynced::Kept, 2);
    assert_eq!(first_bytes(&pages), [1, 1, 1, 1, 0, 0, 0, 0]);
    let (pages, _) = killed_write(Tear::HalfPage, Unsynced::Kept, 2);
    assert_eq!(first_bytes(&pages), [1, 2, 2, 2, 0, 0, 0, 0]);
    assert_eq!((pages.page(0)[2047], pages.page(0)[2048]), (1, 2));
    let (pages, _) = killed_write(Tear::Everything, Unsynced::Kept, 2);
    assert_eq!(first_bytes(&pages), [1; 8]);
    let scattered = |seed| killed_write(Tear::Scattered(seed), Unsynced::Kept, 2).0;
    let ones: Vec<usize> = (0..20)
        .map(|seed| first_bytes(&scattered(seed)).iter().filter(|&&byte| byte == 1).count())
        .collect();
    assert!(ones.iter().any(|&count| count > 4) && ones.iter().any(|&count| count < 4), "{ones:?}");
    let (pages, _) = killed_write(Tear::Everything, Unsynced::Lost, 2);
    assert_eq!(first_bytes(&pages), [0; 8], "what was not synced is lost, with what came before");
    let (pages, _) = killed_write(Tear::Everything, Unsynced::Lost, 0);
    assert_eq!(first_bytes(&pages), [0; 8]);
    let lost: Vec<u8> = (0..20)
        .flat_map(|seed| {
            first_bytes(&killed_write(Tear::Everything, Unsynced::Scattered(seed), 2).0)
        })
        .collect();
    assert!(lost.contains(&0) && lost.contains(&1) && !lost.contains(&2), "{lost:?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn runs_of_pages_are_these_pages(pages in proptest::collection::vec(0..50_u64, 0..60), max in 1..9_u32) {
        let runs = runs_of(pages.iter().copied(), max);
        prop_assert!(runs.iter().all(|run| (1..=max).contains(&run.pages)));
        let again: Vec<u64> =
            runs.iter().flat_map(|run| run.first_page..run.first_page + u64::from(run.pages)).collect();
        prop_assert_eq!(again, pages);
    }
}
