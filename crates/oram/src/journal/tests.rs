//! Crashes at every I/O, damage to every byte, old copies, full disks.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

use tempfile::TempDir;

use super::chain::Layout;
use super::*;
use crate::disk::{FaultSpec, FileSpec, FileStore, Tear, Unsynced};

pub(super) fn key() -> Key {
    Key::from_bytes([7; 32])
}

/// A folder in memory where there is one: what is tested is what is written, thousands of times.
pub(super) fn folder() -> TempDir {
    let memory = Path::new("/dev/shm");
    if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() }.expect("a folder")
}

/// Bytes of the file's header, and of a record.
fn header_bytes() -> usize {
    Layout::Redundant.file_header_bytes()
}

fn record_bytes(payload_bytes: usize) -> usize {
    Layout::Redundant.record_bytes(payload_bytes)
}

/// A record as it was appended.
type Plain = (u32, u64, Vec<u8>);

fn open(path: &Path) -> Result<(Journal, Vec<Plain>), JournalError> {
    let mut records: Vec<Plain> = Vec::new();
    let mut last = None;
    let journal = Journal::open(path, &key(), &Faults::none(), &mut |record| {
        assert!(last.is_none_or(|last| last + 1 == record.sequence));
        last = Some(record.sequence);
        records.push((record.kind, record.round, record.payload.to_vec()));
    })?;
    assert_eq!(journal.record_count(), records.len());
    Ok((journal, records))
}

fn payload(i: u64) -> Vec<u8> {
    // Empty, short, and past a sector and a page.
    let bytes = [0, 1, 40, 700, 5000][i as usize % 5];
    (0..bytes).map(|at| (at as u64 * 31 + i) as u8).collect()
}

#[test]
fn what_was_appended_is_read_again() {
    let folder = folder();
    let path = folder.path().join("journal");
    let mut journal = Journal::create(&path, &key(), &Faults::none()).expect("a new journal");
    let mut plain = Vec::new();
    let mut heads = vec![[0; 32], journal.head()];
    for i in 0..20 {
        let (kind, round) = (i as u32 % 3, i * 10);
        heads.push(journal.append(kind, round, &payload(i)).expect("space"));
        plain.push((kind, round, payload(i)));
    }
    journal.sync().expect("a disk that works");
    let counters = journal.counters();
    assert_eq!((counters.writes, counters.syncs), (21, 2));
    assert_eq!(counters.written_bytes, journal.bytes());
    assert_eq!(journal.bytes(), fs::metadata(&path).expect("a file").len());
    assert_eq!(fs::metadata(&path).expect("a file").permissions().mode() & 0o777, 0o600);
    let head = journal.head();
    let second = Journal::open(&path, &key(), &Faults::none(), &mut |_| {});
    assert!(matches!(second, Err(JournalError::Disk(DiskError::Busy { .. }))), "{second:?}");
    drop(journal);

    let (mut journal, records) = open(&path).expect("the same journal");
    assert_eq!(records, plain);
    assert_eq!((journal.head(), journal.generation(), journal.next_sequence()), (head, 0, 20));
    let instance = *journal.instance();
    let at = |head| CounterValue { instance, head, ..CounterValue::default() };
    for (i, &head) in heads.iter().enumerate() {
        let records = 20 - (i as u64).saturating_sub(1);
        assert_eq!(journal.reconcile(&at(head), 20).expect("a head of this journal"), records);
    }
    let behind = journal.reconcile(&at(heads[19]), 1);
    assert!(matches!(behind, Err(JournalError::CounterBehind { records: 2, records_max: 1, .. })));

    let entries = [Entry { kind: 9, round: 200, payload: b"all" }];
    journal.start_anew(&entries).expect("space");
    assert_eq!((journal.generation(), journal.next_sequence(), journal.record_count()), (1, 21, 1));
    assert_eq!(journal.reconcile(&at(head), 1).expect("the head before"), 1);
    let rolled_back = journal.reconcile(&at(heads[19]), 100);
    assert!(matches!(rolled_back, Err(JournalError::RolledBack { .. })), "{rolled_back:?}");
    journal.append(1, 210, b"more").expect("space");
    journal.sync().expect("a disk that works");
    drop(journal);
    let (_, records) = open(&path).expect("the new generation");
    assert_eq!(records, [(9, 200, b"all".to_vec()), (1, 210, b"more".to_vec())]);
    assert_eq!(fs::read_dir(folder.path()).expect("the folder").count(), 1, "nothing is left over");
}

/// The payloads, the same twice, show nowhere in the file, and no two files are alike.
#[test]
fn records_are_sealed() {
    let folder = folder();
    let secret = b"a secret of more than a few bytes";
    let mut files = Vec::new();
    for name in ["a", "b"] {
        let path = folder.path().join(name);
        let mut journal = Journal::create(&path, &key(), &Faults::none()).expect("a new journal");
        journal.append(1, 1, secret).expect("space");
        journal.append(1, 1, secret).expect("space");
        files.push(fs::read(&path).expect("a file"));
    }
    for file in &files {
        assert!(!file.windows(8).any(|window| secret.starts_with(window)));
    }
    let sealed = |file: usize, record: usize| {
        let at = header_bytes() + record * record_bytes(secret.len()) + 2 * 84;
        &files[file][at..at + secret.len() + 16]
    };
    assert_ne!(sealed(0, 0), sealed(0, 1));
    assert_ne!(sealed(0, 0), sealed(1, 0));
}

/// What a crash may leave: any of these, each a list of records.
struct Expected {
    /// The records that are durable, and those appended since, any number of which may be too.
    durable: Vec<Plain>,
    pending: Vec<Plain>,
    /// What was to take their place.
    replacing: Option<Vec<Plain>>,
}

impl Expected {
    fn allows(&self, found: &[Plain]) -> bool {
        let all: Vec<Plain> = self.durable.iter().chain(&self.pending).cloned().collect();
        let old = found.len() >= self.durable.len() && all.starts_with(found);
        old || self.replacing.as_deref() == Some(found)
    }
}

/// Rounds of intent and commit, the counter advanced behind each, and now and then a new generation.
fn run_rounds(
    folder: &Path,
    faults: &Faults,
    expected: &mut Expected,
    counted: &mut CounterValue,
) -> Result<(), JournalError> {
    let mut journal = Journal::create(&folder.join("journal"), &key(), faults)?;
    counted.instance = *journal.instance();
    let mut counter = FileCounter::create(&folder.join("counter"), &key(), counted, faults)?;
    for round in 1..6 {
        for kind in [1, 2] {
            let payload = payload(round * 2 + u64::from(kind));
            expected.pending.push((kind, round, payload.clone()));
            journal.append(kind, round, &payload)?;
            // An intent is synced in some rounds only, so that there are two records in doubt.
            if kind == 2 || round % 2 == 0 {
                journal.sync()?;
                expected.durable.append(&mut expected.pending);
            }
        }
        advance(&mut counter, counted, round, journal.head())?;
        if round % 2 == 0 {
            let entries: Vec<Plain> = (0..round / 2).map(|i| (7, round, payload(i))).collect();
            expected.replacing = Some(entries.clone());
            let entries: Vec<Entry<'_>> = entries
                .iter()
                .map(|(kind, round, payload)| Entry { kind: *kind, round: *round, payload })
                .collect();
            journal.start_anew(&entries)?;
            expected.durable = expected.replacing.take().expect("set above");
            advance(&mut counter, counted, round, journal.head())?;
        }
    }
    Ok(())
}

/// Advances the counter, and what is known of it: the round at which it stands at least.
fn advance(
    counter: &mut FileCounter,
    counted: &mut CounterValue,
    round: u64,
    head: [u8; 32],
) -> Result<(), JournalError> {
    let value = CounterValue { round, evictions: round * 3, head, ..*counted };
    counter.advance(counted, &value)?;
    *counted = value;
    Ok(())
}

fn check_crash(spec: FaultSpec) -> Faults {
    let folder = folder();
    let (journal_path, counter_path) =
        (folder.path().join("journal"), folder.path().join("counter"));
    let faults = Faults::new(spec);
    let mut expected = Expected { durable: Vec::new(), pending: Vec::new(), replacing: None };
    let mut counted = CounterValue::default();
    let outcome = run_rounds(folder.path(), &faults, &mut expected, &mut counted);
    assert_eq!(outcome.is_err(), spec.kill_at.is_some(), "{spec:?}: {outcome:?}");

    let (mut journal, records) = match open(&journal_path) {
        Ok(opened) => opened,
        Err(error) => {
            // Only a creation that did not end leaves no journal, and an error says so.
            let unfinished = matches!(
                error,
                JournalError::Unfinished { .. } | JournalError::Disk(DiskError::Missing { .. })
            ) || spec.tear != Tear::Nothing
                && matches!(error, JournalError::NotAJournal { .. } | JournalError::Forged { .. });
            assert!(unfinished && expected.durable.is_empty(), "{spec:?}: {error}");
            assert!(expected.pending.is_empty(), "{spec:?}: {error}");
            return faults;
        }
    };
    assert!(expected.allows(&records), "{spec:?}: {records:?}");
    match FileCounter::open(&counter_path, &key(), &Faults::none()) {
        Ok(mut counter) => {
            let found = counter.read().expect("read a moment ago");
            assert!(found.round == counted.round || found.round == counted.round + 1, "{spec:?}");
            // An intent and a commit, or a generation's first records, of which there are at most 2.
            journal.reconcile(&found, 2).unwrap_or_else(|error| panic!("{spec:?}: {error}"));
        }
        Err(error) => {
            let missing = matches!(error, JournalError::Disk(DiskError::Missing { .. }));
            assert!(missing && counted.round == 0 && records.is_empty(), "{spec:?}: {error}");
        }
    }
    // And it goes on.
    let more = payload(3);
    journal.append(3, 99, &more).expect("space");
    journal.start_anew(&[Entry { kind: 4, round: 99, payload: &more }]).expect("space");
    journal.append(3, 100, &more).expect("space");
    journal.sync().expect("a disk that works");
    drop(journal);
    let (journal, records) = open(&journal_path).expect("a sound journal");
    assert_eq!(records, [(4, 99, more.clone()), (3, 100, more)]);
    assert_eq!(journal.torn_bytes(), 0);
    faults
}

#[test]
fn a_crash_at_any_operation_loses_nothing_that_was_synced() {
    let operations = check_crash(FaultSpec::default()).operation_count();
    assert!(operations > 50, "{operations}");
    let mut tears = vec![Tear::Nothing, Tear::Half, Tear::HalfPage, Tear::Everything];
    tears.extend((0..6).map(Tear::Scattered));
    let mut losses = vec![Unsynced::Kept, Unsynced::Lost];
    losses.extend((0..3).map(Unsynced::Scattered));
    for kill_at in 0..operations {
        for &tear in &tears {
            for &unsynced in &losses {
                check_crash(FaultSpec { kill_at: Some(kill_at), tear, unsynced });
            }
        }
    }
}

/// A journal of a few records, and the counter at its end.
fn of_five_records(path: &Path) -> (CounterValue, Vec<Plain>) {
    let mut journal = Journal::create(path, &key(), &Faults::none()).expect("a new journal");
    let mut plain = Vec::new();
    for i in 0..5 {
        plain.push((i as u32, i, payload(i)));
        journal.append(i as u32, i, &payload(i)).expect("space");
        journal.sync().expect("a disk that works");
    }
    let (instance, head) = (*journal.instance(), journal.head());
    (CounterValue { instance, round: 4, head, evictions: 0 }, plain)
}

/// Every byte damaged in turn: the journal is read as it was written, and says that it was damaged
/// where anything but parity was.
#[test]
fn a_flipped_bit_anywhere_is_mended() {
    let folder = folder();
    let path = folder.path().join("journal");
    let (counter, plain) = of_five_records(&path);
    let good = fs::read(&path).expect("a file");
    let mut mended = 0;
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).expect("a file");
        let (journal, records) = open(&path).unwrap_or_else(|error| panic!("byte {at}: {error}"));
        assert!(records == plain, "byte {at}: {records:?}");
        assert_eq!(journal.reconcile(&counter, 0).expect("the head at the end"), 0);
        mended += journal.mended();
        assert_eq!(fs::read(&path).expect("a file"), bad, "opening changes nothing");
    }
    // The first of two headers, and all of a body.
    let bodies: usize = plain.iter().map(|(_, _, payload)| 84 + payload.len() + 16).sum();
    assert_eq!(mended as usize, header_bytes() / 2 + bodies);
    // And in the next generation nothing is damaged any more.
    fs::write(&path, [&good[..400], &[good[400] ^ 4], &good[401..]].concat()).expect("a file");
    let mut journal = open(&path).expect("a damaged one").0;
    journal.start_anew(&[Entry { kind: 1, round: 5, payload: b"all" }]).expect("space");
    drop(journal);
    assert_eq!(open(&path).expect("a whole one").0.mended(), 0);
}

/// What is wrong in two places of a record cannot be mended: an error, or the last record is taken
/// for a torn one, which the counter then shows to have been there.
#[test]
fn more_damage_is_detected() {
    let folder = folder();
    let path = folder.path().join("journal");
    let (counter, plain) = of_five_records(&path);
    let good = fs::read(&path).expect("a file");
    let (mut refused, mut cut) = (0, 0);
    let mut places = vec![(0, header_bytes() / 2)];
    let mut start = header_bytes();
    for (_, _, payload) in &plain {
        let body = start + 2 * 84;
        places.push((start + 30, start + 84 + 30));
        if payload.len() > 64 {
            places.push((body + 3, body + 64 * (payload.len() / 64)));
        }
        start += record_bytes(payload.len());
    }
    assert_eq!(start, good.len());
    let last = start - record_bytes(plain[4].2.len());
    for (one, other) in places {
        let mut bad = good.clone();
        bad[one] ^= 1;
        bad[other] ^= 0x80;
        fs::write(&path, &bad).expect("a file");
        match open(&path) {
            Err(JournalError::NotAJournal { .. }) => assert_eq!(one, 0),
            Err(JournalError::Damaged { offset, .. }) => {
                assert!(offset <= one as u64 && one < last, "byte {one}");
                refused += 1;
            }
            Err(error) => panic!("byte {one}: {error}"),
            Ok((journal, records)) => {
                assert!(one >= last, "byte {one}");
                assert_eq!((records.len(), journal.torn_bytes()), (4, (start - last) as u64));
                let rolled_back = journal.reconcile(&counter, 100);
                assert!(matches!(rolled_back, Err(JournalError::RolledBack { .. })), "byte {one}");
                cut += 1;
            }
        }
    }
    assert_eq!((refused, cut), (5, 2));
}

/// A folder that an earlier version wrote, after one round: each record once, the counter beside it.
#[test]
fn a_journal_of_an_earlier_version_is_read_and_gone_on_with() {
    let folder = folder();
    let path = folder.path().join("journal");
    let kept = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/testdata"));
    fs::copy(kept.join("controller-2/journal"), &path).expect("a copy");
    let master: [u8; 32] =
        fs::read(kept.join("controller-2.key")).expect("a key").try_into().expect("32");
    let key = Key::from_bytes(master).derive("journal");
    let open = || {
        let mut kinds = Vec::new();
        let journal = Journal::open(&path, &key, &Faults::none(), &mut |r| kinds.push(r.kind));
        (journal.expect("a journal of an earlier version"), kinds)
    };
    let (mut journal, kinds) = open();
    // A checkpoint, and a round: begun, intent, rows, commit.
    assert_eq!(kinds, [1, 5, 2, 3, 4]);
    journal.append(9, 1, b"more of the same").expect("space");
    journal.sync().expect("a disk that works");
    drop(journal);
    let (mut journal, kinds) = open();
    assert_eq!(kinds, [1, 5, 2, 3, 4, 9]);
    journal.start_anew(&[Entry { kind: 1, round: 1, payload: b"all" }]).expect("space");
    drop(journal);
    assert_eq!(fs::read(&path).expect("a file")[..8], *b"HTORAMJ3");
    assert_eq!(open().1, [1]);
}

/// What space was kept for is written on a full disk, as often as there is a next generation.
#[test]
fn a_full_disk_takes_what_space_was_kept_for() {
    let folder = folder();
    let path = folder.path().join("journal");
    let faults = Faults::new(FaultSpec::default());
    let mut journal = Journal::create(&path, &key(), &faults).expect("a new journal");
    journal.reserve(3000).expect("space");
    journal.reserve_successor(3000).expect("space");
    faults.fill_from(Some(0));
    let is_full = |error: JournalError| {
        assert!(matches!(error, JournalError::Disk(DiskError::Full { .. })), "{error}");
    };
    journal.append(1, 1, &[1; 2000]).expect("its space was kept");
    is_full(journal.append(1, 1, &[1; 2000]).expect_err("no space"));
    for round in 2..6 {
        let payload = [round as u8; 2000];
        let entry = Entry { kind: 2, round, payload: &payload };
        journal.start_anew(&[entry]).expect("its space was kept");
        drop(journal);
        // Opened again, as after a crash, it finds what was kept.
        journal = Journal::open(&path, &key(), &faults, &mut |_| {}).expect("a journal");
        assert_eq!(journal.record_count(), 1);
    }
    faults.fill_from(None);
    journal.reserve(3000).expect("space again");
    journal.append(1, 7, &[1; 2000]).expect("space again");
}

/// Records moved, repeated, dropped, or from another journal of the same key.
#[test]
fn records_keep_their_place() {
    let folder = folder();
    let path = folder.path().join("journal");
    let other_path = folder.path().join("other");
    let make = |path: &Path| {
        let mut journal = Journal::create(path, &key(), &Faults::none()).expect("a new journal");
        for i in 0..4 {
            journal.append(1, i, &[i as u8; 50]).expect("space");
            journal.sync().expect("a disk that works");
        }
        fs::read(path).expect("a file")
    };
    let (good, other) = (make(&path), make(&other_path));
    let record = |file: &[u8], i: usize| {
        file[header_bytes() + i * record_bytes(50)..][..record_bytes(50)].to_vec()
    };
    let header = &good[..header_bytes()];
    let of = |records: [Vec<u8>; 4]| [header, &records.concat()].concat();
    let own = |i| record(&good, i);
    let bad = [
        of([own(1), own(0), own(2), own(3)]),
        of([own(0), own(0), own(2), own(3)]),
        of([own(0), own(2), own(3), own(3)]),
        of([own(0), own(1), record(&other, 2), own(3)]),
        of([own(0), Vec::new(), Vec::new(), own(3)]),
    ];
    for (i, bytes) in bad.iter().enumerate() {
        fs::write(&path, bytes).expect("a file");
        let opened = open(&path).map(|(_, records)| records);
        assert!(matches!(opened, Err(JournalError::Damaged { .. })), "{i}: {opened:?}");
    }
    // What another journal left behind the end is no record, and no damage.
    fs::write(&path, [&good[..], &record(&other, 3)].concat()).expect("a file");
    let (mut journal, records) = open(&path).expect("a torn end");
    assert_eq!((records.len(), journal.torn_bytes()), (4, record_bytes(50) as u64));
    journal.append(1, 4, b"next").expect("space");
    assert_eq!(journal.torn_bytes(), 0);
    drop(journal);
    assert_eq!(open(&path).expect("a sound journal").1.len(), 5);
    // Two records appended before one sync, and the first of them torn: a crash, not damage.
    let mut journal =
        Journal::create(&folder.path().join("c"), &key(), &Faults::none()).expect("new");
    for i in 0..3 {
        journal.append(1, i, &[1; 50]).expect("space");
    }
    drop(journal);
    let mut bytes = fs::read(folder.path().join("c")).expect("a file");
    let body = header_bytes() + record_bytes(50) + 2 * 84;
    bytes[body] ^= 1;
    bytes[body + 64] ^= 1;
    fs::write(&path, bytes).expect("a file");
    assert_eq!(open(&path).expect("a torn end").1.len(), 1);
}

/// A history that did not stand: a file put back, and gone on with otherwise. Its records have the
/// same key, generation and numbers; only the chain tells them from those that stand.
#[test]
fn a_record_of_another_history_is_detected() {
    let folder = folder();
    let path = folder.path().join("journal");
    let append = |payloads: &[u8]| {
        let mut journal = open(&path).expect("a sound journal").0;
        for &byte in payloads {
            journal.append(1, 1, &[byte; 50]).expect("space");
            journal.sync().expect("a disk that works");
        }
        drop(journal);
        fs::read(&path).expect("a file")
    };
    drop(Journal::create(&path, &key(), &Faults::none()).expect("a new journal"));
    let begun = append(&[0]);
    let first = append(&[1]);
    fs::write(&path, &begun).expect("a file");
    let mut second = append(&[2, 3, 4]);
    let place = begun.len()..first.len();
    second[place.clone()].copy_from_slice(&first[place]);
    fs::write(&path, &second).expect("a file");
    let opened = open(&path).map(|(_, records)| records);
    assert!(matches!(opened, Err(JournalError::Damaged { sequence: 2, .. })), "{opened:?}");
}

#[test]
fn a_cut_file_ends_in_the_records_before() {
    let folder = folder();
    let path = folder.path().join("journal");
    let mut journal = Journal::create(&path, &key(), &Faults::none()).expect("a new journal");
    let mut ends = vec![journal.bytes() as usize];
    for i in 0..4 {
        journal.append(1, i, &payload(i)).expect("space");
        ends.push(journal.bytes() as usize);
    }
    drop(journal);
    let good = fs::read(&path).expect("a file");
    for bytes in 0..good.len() {
        fs::write(&path, &good[..bytes]).expect("a file");
        match open(&path) {
            Ok((journal, records)) => {
                assert_eq!(records.len(), ends.iter().filter(|&&end| end <= bytes).count() - 1);
                assert_eq!(journal.torn_bytes(), (bytes - ends[records.len()]) as u64);
            }
            Err(JournalError::Unfinished { bytes: said, .. }) => {
                assert!(bytes < header_bytes() && said == bytes as u64);
            }
            Err(error) => panic!("{bytes} bytes: {error}"),
        }
    }
}

#[test]
fn what_is_no_journal_is_refused() {
    let folder = folder();
    let path = folder.path().join("journal");
    let missing = open(&path).map(|_| ());
    assert!(matches!(missing, Err(JournalError::Disk(DiskError::Missing { .. }))), "{missing:?}");
    fs::write(&path, vec![b'x'; 5000]).expect("a file");
    assert!(matches!(open(&path), Err(JournalError::NotAJournal { .. })));
    let there = Journal::create(&path, &key(), &Faults::none());
    assert!(matches!(there, Err(JournalError::Disk(DiskError::Exists { .. }))), "{there:?}");
    assert_eq!(fs::metadata(&path).expect("still there").len(), 5000);
    fs::remove_file(&path).expect("it was there");
    drop(Journal::create(&path, &key(), &Faults::none()).expect("a new journal"));
    let other_key = Journal::open(&path, &Key::from_bytes([8; 32]), &Faults::none(), &mut |_| {});
    assert!(matches!(other_key, Err(JournalError::Forged { .. })), "{other_key:?}");
    let mut journal = open(&path).expect("its own key").0;
    let long = vec![0; PAYLOAD_BYTES_MAX + 1];
    assert!(matches!(journal.append(1, 1, &long), Err(JournalError::TooLong { .. })));
    journal.append(1, 1, b"short").expect("no worse for it");
}

#[test]
fn an_old_copy_is_detected() {
    let folder = folder();
    let (path, counter_path) = (folder.path().join("journal"), folder.path().join("counter"));
    let mut journal = Journal::create(&path, &key(), &Faults::none()).expect("a new journal");
    let (instance, head) = (*journal.instance(), journal.head());
    let start = CounterValue { instance, head, ..CounterValue::default() };
    let mut counted = start;
    let mut counter =
        FileCounter::create(&counter_path, &key(), &start, &Faults::none()).expect("a new counter");
    let mut copies = Vec::new();
    for round in 1..5 {
        copies.push(fs::read(&path).expect("a file"));
        journal.append(1, round, b"commit").expect("space");
        journal.sync().expect("a disk that works");
        let value = CounterValue { round, evictions: round, head: journal.head(), ..start };
        counter.advance(&counted, &value).expect("space");
        counted = value;
    }
    drop(journal);
    let value = counter.read().expect("a counter");
    for copy in copies {
        fs::write(&path, copy).expect("a file");
        let (journal, _) = open(&path).expect("an old copy is sound");
        let found = journal.reconcile(&value, 100);
        assert!(
            matches!(found, Err(JournalError::RolledBack { counter_round: 4, .. })),
            "{found:?}"
        );
    }
}

/// In a process whose files cannot grow past some size, and, where the system lets tests mount one,
/// on a file system that is full: appending fails with an error, and all that was there is there.
#[test]
fn a_full_disk_is_an_error_and_loses_nothing() {
    const VARIABLE: &str = "HUSHTABLE_TEST_FULL_DISK";
    if let Some(folder) = std::env::var_os(VARIABLE) {
        return fill_disk(Path::new(&folder));
    }
    let folder = TempDir::new().expect("a folder");
    let test = std::env::current_exe().expect("this test's program");
    let run = |command: &mut Command, script: &str| {
        command
            .args(["-c", script, "sh"])
            .arg(&test)
            .args([
                "--exact",
                "--nocapture",
                "journal::tests::a_full_disk_is_an_error_and_loses_nothing",
            ])
            .env(VARIABLE, folder.path())
            .output()
            .expect("a shell")
    };
    // Past the limit the system sends a signal, which is ignored here as in a server's shell.
    let output = run(&mut Command::new("sh"), "trap '' XFSZ; ulimit -f 64; exec \"$@\"");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(String::from_utf8_lossy(&output.stdout).contains("1 passed"));
    let mount =
        "mount -t tmpfs -o size=64k none \"$HUSHTABLE_TEST_FULL_DISK\" || exit 77; exec \"$@\"";
    let output = run(Command::new("unshare").args(["--mount", "--map-root-user", "sh"]), mount);
    if output.status.code() == Some(77) || !output.status.success() && output.stdout.is_empty() {
        eprintln!("no file system of its own for this test: only the limited process was tried");
        return;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}{}", String::from_utf8_lossy(&output.stdout));
}

fn fill_disk(folder: &Path) {
    let is_full = |error: &JournalError| match error {
        JournalError::Disk(DiskError::Full { wanted_bytes, available_bytes, .. }) => {
            available_bytes < wanted_bytes
        }
        JournalError::Disk(DiskError::Io { source, .. }) => {
            source.kind() == std::io::ErrorKind::FileTooLarge
        }
        _ => false,
    };
    // A pid of its own, should two tests share the folder.
    let path = folder.join(format!("journal-{}", std::process::id()));
    let mut journal = Journal::create(&path, &key(), &Faults::none()).expect("some space");
    let big = vec![5; 20_000];
    let mut whole = 0;
    let error = loop {
        match journal.append(1, whole, &big) {
            Ok(_) => whole += 1,
            Err(error) => break error,
        }
    };
    assert!(is_full(&error), "{error}");
    assert!(whole > 0);
    journal.sync().expect("what is there can be synced");
    let anew = journal.start_anew(&[Entry { kind: 1, round: 1, payload: &big.repeat(10) }]);
    assert!(anew.as_ref().is_err_and(is_full), "{anew:?}");
    assert!(!beside(&path).exists(), "what did not come about takes no space");
    journal.append(2, whole, b"small").expect("there is space for a small one");
    journal.sync().expect("a disk that works");
    drop(journal);
    let (_, records) = open(&path).expect("nothing is lost");
    assert_eq!(records.len() as u64, whole + 1);
    let store = FileStore::create(&folder.join("store"), 100, FileSpec::default());
    assert!(store.map_err(JournalError::from).is_err_and(|error| is_full(&error)));
    assert!(!folder.join("store").exists());
}
