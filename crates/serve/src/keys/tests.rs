use std::fs;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::UNIX_EPOCH;

use proptest::prelude::*;
use tempfile::TempDir;

use super::*;

/// Keys that are text: `memory` bytes for each byte, and a count of what was parsed.
#[derive(Clone)]
struct Text {
    memory: usize,
    parsed: Arc<AtomicUsize>,
}

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("not text")]
struct NotText;

impl KeyParser for Text {
    type Keys = String;
    type Error = NotText;

    fn parse(&self, bytes: &[u8]) -> Result<String, NotText> {
        self.parsed.fetch_add(1, Ordering::Relaxed);
        String::from_utf8(bytes.to_vec()).map_err(|_| NotText)
    }

    fn memory_bytes(&self, keys: &String) -> usize {
        keys.len() * self.memory
    }
}

/// Where most keys come from here.
const ORIGIN: Origin = Origin { peer: 7, connection: 1 };

struct Bench {
    parser: Text,
    spec: KeyStoreSpec,
    metrics: KeyMetrics,
    _folder: Option<TempDir>,
}

impl Bench {
    fn new(folder: bool) -> Self {
        let folder = folder.then(|| TempDir::new().unwrap());
        Self {
            parser: Text { memory: 3, parsed: Arc::default() },
            spec: KeyStoreSpec {
                memory_bytes_max: 30,
                folder: folder.as_ref().map(|folder| folder.path().join("keys")),
                folder_bytes_max: 20,
                key_bytes_max: 10,
                peer_bytes_max: PeerShare { memory: 30, folder: 20 },
            },
            metrics: KeyMetrics::default(),
            _folder: folder,
        }
    }

    fn open(&self) -> KeyStore<Text> {
        KeyStore::open(self.parser.clone(), &self.spec, self.metrics.clone()).unwrap()
    }

    fn parsed(&self) -> usize {
        self.parser.parsed.load(Ordering::Relaxed)
    }

    fn path(&self) -> &Path {
        self.spec.folder.as_deref().unwrap()
    }

    fn file(&self, text: &str) -> PathBuf {
        self.path().join(format!("{}.keys", KeyId::of(text.as_bytes())))
    }

    /// What a file of these keys would be used last, in seconds of the epoch.
    fn set_time(&self, text: &str, seconds: u64) {
        let file = fs::File::open(self.file(text)).unwrap();
        file.set_modified(UNIX_EPOCH + Duration::from_secs(seconds)).unwrap();
    }

    fn files(&self) -> usize {
        fs::read_dir(self.path()).unwrap().count()
    }
}

fn has(store: &KeyStore<Text>, text: &str) -> bool {
    let found = store.fetch(&KeyId::of(text.as_bytes()), ORIGIN).unwrap();
    assert!(found.as_ref().is_none_or(|found| ***found == *text), "{found:?}");
    found.is_some()
}

#[test]
fn keys_are_known_by_their_content_and_parsed_once() {
    let bench = Bench::new(false);
    let store = bench.open();
    assert!(!has(&store, "alice"));
    let stored = store.put(b"alice", ORIGIN).unwrap();
    assert_eq!(stored, Stored { id: KeyId::of(b"alice"), evicted: 0, held: false });
    assert!(store.put(b"alice", ORIGIN).unwrap().held);
    assert!(has(&store, "alice") && has(&store, "alice"));
    assert_eq!((bench.parsed(), bench.metrics.uploaded.get()), (1, 1));
    assert_eq!(store.counts(), (1, 0));
}

#[test]
fn without_a_folder_memory_evicts_and_says_so() {
    let bench = Bench::new(false);
    let store = bench.open();
    store.put(b"alice", ORIGIN).unwrap();
    let in_a_pass = store.fetch(&KeyId::of(b"alice"), ORIGIN).unwrap().unwrap();
    assert_eq!(store.put(b"bobby", ORIGIN).unwrap().evicted, 0);
    assert!(has(&store, "alice"));
    assert_eq!(store.put(b"carol", ORIGIN).unwrap().evicted, 1);
    assert!(has(&store, "alice") && !has(&store, "bobby") && has(&store, "carol"));
    assert_eq!(store.put(b"0123456789", ORIGIN).unwrap().evicted, 2);
    assert_eq!(*in_a_pass, "alice", "a pass keeps what was evicted");
    assert_eq!(bench.metrics.evicted.get(), 3);
    assert_eq!((bench.metrics.in_memory.get(), bench.metrics.memory_bytes.get()), (1, 30));
}

#[test]
fn with_a_folder_memory_is_only_a_cache() {
    let bench = Bench::new(true);
    let store = bench.open();
    for text in ["alice", "bobby", "carol", "dave!"] {
        let stored = store.put(text.as_bytes(), ORIGIN).unwrap();
        assert_eq!((stored.evicted, stored.held), (0, false));
    }
    assert_eq!(store.counts(), (2, 4));
    assert!(has(&store, "alice"), "read back from its file");
    assert_eq!((bench.parsed(), bench.metrics.loaded.get()), (5, 1));
    // Disk holds four: the fifth drops bobby, used longest ago, and its file.
    assert_eq!(store.put(b"erin!", ORIGIN).unwrap().evicted, 1);
    assert!(!bench.file("bobby").exists() && bench.files() == 4);
    assert!(!has(&store, "bobby") && has(&store, "carol") && has(&store, "alice"));
    assert_eq!(bench.metrics.evicted.get(), 1);
}

#[test]
fn a_restart_keeps_keys_and_the_order_of_their_use() {
    let bench = Bench::new(true);
    let texts = ["alice", "bobby", "carol", "dave!"];
    let store = bench.open();
    for text in texts {
        assert!(!store.put(text.as_bytes(), ORIGIN).unwrap().held);
    }
    drop(store);
    for (text, seconds) in texts.into_iter().zip([400, 100, 300, 200]) {
        bench.set_time(text, seconds);
    }
    let store = bench.open();
    assert_eq!(store.counts(), (0, 4));
    assert_eq!(bench.parsed(), 4, "nothing is read before it is used");
    assert!(has(&store, "dave!"));
    let used = fs::metadata(bench.file("dave!")).unwrap().modified().unwrap();
    assert!(used > UNIX_EPOCH + Duration::from_secs(1 << 30), "its use shows in the file's time");
    drop(store);

    // A smaller budget: the two used longest ago go at once.
    let bench =
        Bench { spec: KeyStoreSpec { folder_bytes_max: 10, ..bench.spec.clone() }, ..bench };
    let store = bench.open();
    assert!(has(&store, "dave!") && has(&store, "alice"));
    assert!(!has(&store, "bobby") && !has(&store, "carol"));
    assert_eq!((bench.files(), bench.metrics.evicted.get()), (2, 2));
}

#[test]
fn damaged_files_are_dropped_and_others_left_alone() {
    let bench = Bench::new(true);
    let store = bench.open();
    for text in ["alice", "bobby", "carol"] {
        assert_eq!(store.put(text.as_bytes(), ORIGIN).unwrap().evicted, 0);
    }
    drop(store);
    fs::write(bench.file("alice"), "alicf").unwrap();
    fs::write(bench.file("bobby"), "").unwrap();
    fs::write(bench.file("carol"), "carol, and more than keys can have").unwrap();
    fs::write(bench.file("dave!"), "dave").unwrap();
    let half_written = format!("{}.keys.0123456789abcdef.aside", KeyId::of(b"erin!"));
    let upper = format!("{}.keys", KeyId::of(b"frank").to_string().to_uppercase());
    for name in [half_written.as_str(), upper.as_str(), "notes.txt", "é.keys"] {
        fs::write(bench.path().join(name), "frank").unwrap();
    }
    fs::create_dir(bench.file("grace")).unwrap();

    let store = bench.open();
    assert_eq!(store.counts(), (0, 2), "alice's and dave's could be keys");
    for text in ["alice", "bobby", "carol", "dave!", "erin!", "frank", "grace"] {
        assert!(!has(&store, text), "{text}");
    }
    assert_eq!((store.counts(), bench.metrics.damaged.get()), ((0, 0), 2));
    assert!(bench.path().join("notes.txt").exists() && bench.path().join(upper).exists());
    assert!(!bench.path().join(half_written).exists());
    assert!(store.put(b"alice", ORIGIN).unwrap().id == KeyId::of(b"alice") && has(&store, "alice"));
}

#[test]
fn a_file_that_vanishes_costs_an_upload() {
    let bench = Bench::new(true);
    bench.open().put(b"alice", ORIGIN).unwrap();
    let store = bench.open();
    fs::remove_file(bench.file("alice")).unwrap();
    assert!(!has(&store, "alice") && !has(&store, "alice"));
    assert!(!store.put(b"alice", ORIGIN).unwrap().held);
    drop(store);
    assert!(has(&bench.open(), "alice"));
}

#[test]
fn keys_that_are_none_or_too_large_change_nothing() {
    let bench = Bench::new(true);
    let store = bench.open();
    store.put(b"alice", ORIGIN).unwrap();
    assert_eq!(store.put(b"\xff", ORIGIN), Err(KeysError::Parse(NotText)));
    let large = KeysError::Budget { bytes: 33, bytes_max: 30 };
    assert_eq!(store.put(b"0123456789a", ORIGIN), Err(large));
    assert_eq!((store.counts(), bench.files(), bench.metrics.evicted.get()), ((1, 1), 1, 0));

    let spec = KeyStoreSpec { folder_bytes_max: 4, ..bench.spec.clone() };
    let store = KeyStore::open(bench.parser.clone(), &spec, KeyMetrics::default()).unwrap();
    assert_eq!(store.put(b"bobby", ORIGIN), Err(KeysError::Budget { bytes: 5, bytes_max: 4 }));
}

#[test]
fn keys_of_other_parameters_are_said_to_be_that_and_kept() {
    let bench = Bench::new(true);
    drop(bench.open());
    let id = KeyId::of(b"\xff");
    fs::write(bench.path().join(format!("{id}.keys")), b"\xff").unwrap();
    let store = bench.open();
    assert_eq!(store.fetch(&id, ORIGIN), Err(KeysError::Parse(NotText)));
    assert_eq!((store.counts(), bench.files()), ((0, 1), 1));
}

#[test]
fn a_folder_that_cannot_be_written_leaves_keys_in_memory() {
    let bench = Bench::new(true);
    let store = bench.open();
    fs::remove_dir(bench.path()).unwrap();
    assert_eq!(store.put(b"alice", ORIGIN).unwrap().evicted, 0);
    assert_eq!(store.counts(), (1, 0));
    assert!(has(&store, "alice"));
    // Once it can be written, the next upload of the same keys is.
    fs::create_dir(bench.path()).unwrap();
    assert!(store.put(b"alice", ORIGIN).unwrap().held);
    assert_eq!((store.counts(), bench.parsed()), ((1, 1), 1));

    let file = bench.path().join("file");
    fs::write(&file, "").unwrap();
    let spec = KeyStoreSpec { folder: Some(file), ..bench.spec.clone() };
    let error = KeyStore::open(bench.parser.clone(), &spec, KeyMetrics::default()).err().unwrap();
    assert!(matches!(&error, Error::Io { what, .. } if what.contains("file")), "{error:?}");
}

#[test]
fn many_threads_upload_and_fetch_the_same_keys() {
    let mut bench = Bench::new(true);
    bench.spec.folder_bytes_max = 35;
    bench.spec.peer_bytes_max.folder = 35;
    let store = bench.open();
    std::thread::scope(|scope| {
        for thread in 0..8 {
            let store = &store;
            scope.spawn(move || {
                for i in 0..100 {
                    let text = format!("key {}", (thread + i) % 9);
                    let stored = store.put(text.as_bytes(), ORIGIN).unwrap();
                    assert_eq!(stored.id, KeyId::of(text.as_bytes()));
                    has(store, &text);
                }
            });
        }
    });
    // Seven of the nine fit. What the list says is there, is.
    assert_eq!((store.counts().1, bench.files()), (7, 7));
    let held = (0..9).filter(|i| has(&store, &format!("key {i}"))).count();
    assert_eq!((held, bench.metrics.damaged.get()), (7, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Budgets hold after every step, and what memory drops comes back from disk.
    #[test]
    fn budgets_hold(steps in prop::collection::vec((any::<bool>(), "[a-f]{1,10}"), 1..60)) {
        let bench = Bench::new(true);
        let mut store = bench.open();
        for (i, (put, text)) in steps.iter().enumerate() {
            if *put {
                let before = has(&store, text);
                prop_assert_eq!(store.put(text.as_bytes(), ORIGIN).unwrap().held, before);
                prop_assert!(has(&store, text));
            } else {
                has(&store, text);
            }
            prop_assert!(bench.metrics.memory_bytes.get() <= 30);
            prop_assert!(bench.metrics.disk_bytes.get() <= 20);
            let (memory, disk) = store.counts();
            prop_assert!(memory <= disk && disk == bench.files());
            if i % 10 == 9 {
                drop(store);
                store = bench.open();
                prop_assert_eq!(store.counts(), (0, disk));
            }
        }
    }
}

#[test]
fn one_peer_cannot_push_out_the_keys_of_others() {
    for folder in [false, true] {
        let mut bench = Bench::new(folder);
        bench.spec.memory_bytes_max = 120;
        bench.spec.folder_bytes_max = 40;
        bench.spec.peer_bytes_max = PeerShare::of(None, [120, 40], [15, 5]);
        let store = bench.open();
        let peer = |peer: u64| Origin { peer, connection: 0 };
        let id = |text: &str| KeyId::of(text.as_bytes());
        for (number, text) in (1..).zip(["alice", "bobby", "carol"]) {
            store.put(text.as_bytes(), peer(number)).unwrap();
        }
        // From one address, as many as it likes, over many connections.
        for attack in 10_000..10_100 {
            let attack = format!("{attack}");
            let attacker = Origin { peer: 666, connection: 9 };
            store.put(attack.as_bytes(), attacker).unwrap();
        }
        for (number, text) in (1..).zip(["alice", "bobby", "carol"]) {
            let kept = store.fetch(&id(text), peer(number)).unwrap();
            assert!(kept.is_some(), "{text} went, with a folder: {folder}");
        }
        // Who comes late finds room, at the cost of the one that has the most.
        for (number, text) in (4..).zip(["david", "erica"]) {
            store.put(text.as_bytes(), peer(number)).unwrap();
        }
        for text in ["alice", "bobby", "carol", "david", "erica"] {
            assert!(store.holds(&id(text)), "{text} went, with a folder: {folder}");
        }
        // One that asks from another address than it uploaded from is answered like before.
        assert!(store.fetch(&id("alice"), peer(77)).unwrap().is_some());
        if folder {
            // What is found at the start is nobody's, and then whose who uses it.
            drop(store);
            let store = bench.open();
            assert_eq!(store.counts(), (0, 8));
            for text in ["alice", "bobby", "carol"] {
                assert!(store.fetch(&id(text), peer(1)).unwrap().is_some());
            }
            for attack in 20_000..20_100 {
                store.put(format!("{attack}").as_bytes(), peer(666)).unwrap();
            }
            assert!(["alice", "bobby", "carol"].iter().all(|text| store.holds(&id(text))));
        }
    }
}
