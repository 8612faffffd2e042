//! Prepared files: written in any order, interrupted, damaged, and opened for the wrong thing.

use std::fs;
use std::io::{BufRead, BufReader};
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::Duration;

use hushtable_table::Version;
use hushtable_table::prepared::{
    PAYLOAD_BYTES_MAX, Prepared, PreparedError, PreparedFormatError, PreparedPart, PreparedSpec,
    PreparedSpecError, PreparedWriter, SLACK_BYTES,
};
use proptest::prelude::*;

const BLOCK_BYTES: usize = 1_000;
const JOURNAL_HEADER_BYTES: u64 = 64;
const RECORD_BYTES: u64 = 40;

/// A spec of `blocks`, of which the last is short.
fn spec(blocks: u32) -> PreparedSpec {
    PreparedSpec {
        kind: "test/blocks".to_owned(),
        format: 2,
        table_version: Version::from([3; 32]),
        meta: b"geometry".to_vec(),
        payload_bytes: u64::from(blocks) * BLOCK_BYTES as u64 - 300,
        blocks,
    }
}

/// What an engine makes of `block`.
fn content(spec: &PreparedSpec, block: u32) -> Vec<u8> {
    let start = u64::from(block) * BLOCK_BYTES as u64;
    let count = (spec.payload_bytes - start).min(BLOCK_BYTES as u64);
    (0..count).map(|i| (((start + i) * 31) >> 3) as u8 ^ spec.format as u8).collect()
}

fn hash(bytes: &[u8]) -> [u8; 32] {
    *blake3::hash(bytes).as_bytes()
}

fn write_block(writer: &PreparedWriter, spec: &PreparedSpec, block: u32) {
    let bytes = content(spec, block);
    writer.write_at(u64::from(block) * BLOCK_BYTES as u64, &bytes).unwrap();
    writer.finish_block(block, hash(&bytes)).unwrap();
}

/// Writes what is missing, and says how many blocks that were.
fn finish(path: &Path, spec: &PreparedSpec) -> u32 {
    let writer = PreparedWriter::open(path, spec).unwrap();
    let missing: Vec<_> = (0..spec.blocks).filter(|&block| !writer.is_done(block)).collect();
    assert_eq!(missing.len() as u32, spec.blocks - writer.done());
    missing.iter().for_each(|&block| write_block(&writer, spec, block));
    writer.finish().unwrap();
    missing.len() as u32
}

/// The bytes of the file of `spec`, as one that was never interrupted writes it.
fn whole(spec: &PreparedSpec) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    assert_eq!(finish(&path, spec), spec.blocks);
    assert_eq!(names(folder.path()), ["t"]);
    fs::read(path).unwrap()
}

fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).unwrap();
    let mut names: Vec<_> =
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn beside(path: &Path, ending: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(ending);
    name.into()
}

fn flip(path: &Path, at: u64, mask: u8) {
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ mask], at).unwrap();
}

/// A folder with blocks 0 and 1 of `spec` done and noted.
fn half_done(spec: &PreparedSpec) -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let writer = PreparedWriter::open(&path, spec).unwrap();
    assert_eq!(writer.done(), 0);
    (0..2).for_each(|block| write_block(&writer, spec, block));
    assert_eq!(writer.done(), 2);
    drop(writer);
    assert_eq!(names(folder.path()), ["t.journal", "t.partial"]);
    (folder, path)
}

#[test]
fn what_was_written_is_mapped_and_loaded() {
    let spec = spec(5);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let writer = PreparedWriter::open(&path, &spec).unwrap();
    thread::scope(|scope| {
        for first in 0..2 {
            let (writer, spec) = (&writer, &spec);
            scope.spawn(move || {
                (first..5).step_by(2).for_each(|block| write_block(writer, spec, block));
            });
        }
    });
    let made = writer.finish().unwrap();
    let prepared = Prepared::open(&path, &spec).unwrap();
    prepared.advise_sequential();
    prepared.advise_will_need();
    let payload: Vec<_> = (0..5).flat_map(|block| content(&spec, block)).collect();
    assert_eq!(prepared.payload(), payload);
    assert_eq!(prepared.spec(), &spec);
    assert_eq!(prepared.version(), made.version());
    let hashes: Vec<_> = (0..5).map(|block| hash(&content(&spec, block))).collect();
    assert_eq!(prepared.block_hashes(), hashes);
    let padded = [&payload[..], &[0; SLACK_BYTES]].concat();
    assert_eq!(prepared.padded_payload(), padded);
    assert!(prepared.payload().as_ptr().addr().is_multiple_of(4_096));

    let loaded = prepared.load().unwrap();
    assert_eq!(loaded.payload(), payload);
    assert_eq!(loaded.padded_payload(), padded);
    assert_eq!((loaded.spec(), loaded.version()), (&spec, made.version()));
    assert!(loaded.payload().as_ptr().addr().is_multiple_of(4_096));
    assert_eq!(fs::read(&path).unwrap(), whole(&spec), "the order of blocks leaves no trace");
}

#[test]
fn the_version_is_of_the_spec_and_of_every_block() {
    let base = spec(3);
    let version = |spec: &PreparedSpec, odd: Option<u32>| {
        let folder = tempfile::tempdir().unwrap();
        let writer = PreparedWriter::open(folder.path().join("t"), spec).unwrap();
        for block in 0..spec.blocks {
            writer.finish_block(block, [u8::from(odd == Some(block)); 32]).unwrap();
        }
        writer.finish().unwrap().version()
    };
    let mut versions: Vec<_> = others(&base).iter().map(|(_, spec)| version(spec, None)).collect();
    versions.push(version(&base, None));
    versions.extend((0..3).map(|block| version(&base, Some(block))));
    assert_eq!(version(&base, Some(1)), versions[8]);
    versions.sort();
    versions.dedup();
    assert_eq!(versions.len(), 10);
}

#[test]
fn a_dropped_writer_is_gone_on_with() {
    let spec = spec(7);
    let (folder, path) = half_done(&spec);
    assert_eq!(finish(&path, &spec), 5);
    assert_eq!(fs::read(&path).unwrap(), whole(&spec));
    assert_eq!(names(folder.path()), ["t"]);
}

#[test]
fn a_journal_cut_anywhere_costs_only_what_it_lost() {
    let spec = spec(4);
    let expected = whole(&spec);
    for length in (0..=JOURNAL_HEADER_BYTES + 2 * RECORD_BYTES).step_by(4) {
        let (_folder, path) = half_done(&spec);
        let journal = fs::OpenOptions::new().write(true).open(beside(&path, ".journal")).unwrap();
        journal.set_len(length).unwrap();
        let kept = length.saturating_sub(JOURNAL_HEADER_BYTES) / RECORD_BYTES;
        // Goes on, notes a third block after what was cut, and goes on again.
        let writer = PreparedWriter::open(&path, &spec).unwrap();
        assert_eq!(u64::from(writer.done()), kept, "{length} bytes");
        write_block(&writer, &spec, 3);
        drop(writer);
        assert_eq!(u64::from(finish(&path, &spec)), 3 - kept);
        assert_eq!(fs::read(&path).unwrap(), expected);
    }
}

#[test]
fn flipped_bits_cost_only_what_they_hit() {
    let spec = spec(4);
    let expected = whole(&spec);
    // Where, and how many of two blocks that were done are kept.
    let journal = [16, 50, 57, 60, 64, 70, 103].map(|at| (".journal", at, 0));
    let later = [(".journal", 104, 1), (".journal", 143, 1)];
    // In the header, the padding after it, the slack, and what stands for the version.
    let (slack_start, end) = (4_096 + 3_700, expected.len() as u64);
    let partial =
        [16, 20, 90, 115, 130, 200, 4_095, slack_start, slack_start + 63, end - 32, end - 1];
    let partial = partial.map(|at| (".partial", at, 0));
    // A block that is still to be written, and the hashes, which come last.
    let unread = [(".partial", slack_start - 1, 2), (".partial", slack_start + 64, 2)];
    for (ending, at, kept) in journal.into_iter().chain(later).chain(partial).chain(unread) {
        let (_folder, path) = half_done(&spec);
        flip(&beside(&path, ending), at, 0x10);
        assert_eq!(finish(&path, &spec), 4 - kept, "{ending}, byte {at}");
        assert_eq!(fs::read(&path).unwrap(), expected);
    }
}

#[test]
fn files_of_other_runs_are_not_mixed() {
    let spec = spec(4);
    let expected = whole(&spec);
    // The journal of one run beside the file of another.
    let ((_left_folder, left), (_right_folder, right)) = (half_done(&spec), half_done(&spec));
    fs::copy(beside(&left, ".journal"), beside(&right, ".journal")).unwrap();
    assert_eq!(finish(&right, &spec), 4);
    // Either alone; a file of the wrong size.
    fs::remove_file(beside(&left, ".partial")).unwrap();
    assert_eq!(finish(&left, &spec), 4);
    let (_folder, path) = half_done(&spec);
    fs::remove_file(beside(&path, ".journal")).unwrap();
    assert_eq!(finish(&path, &spec), 4);
    let (_folder, long) = half_done(&spec);
    let partial = fs::OpenOptions::new().write(true).open(beside(&long, ".partial")).unwrap();
    partial.set_len(expected.len() as u64 + 1).unwrap();
    assert_eq!(finish(&long, &spec), 4);
    for path in [left, right, path, long] {
        assert_eq!(fs::read(path).unwrap(), expected);
    }
}

#[test]
fn a_run_that_ended_in_finishing_is_finished() {
    let spec = spec(2);
    let expected = whole(&spec);
    // The version is written, but the file has not got its name.
    let (folder, path) = half_done(&spec);
    fs::write(beside(&path, ".partial"), &expected).unwrap();
    assert_eq!(finish(&path, &spec), 0);
    assert_eq!(fs::read(&path).unwrap(), expected);
    assert_eq!(names(folder.path()), ["t"]);
    // The file has its name, but the journal is still there.
    let (folder, path) = half_done(&spec);
    fs::rename(beside(&path, ".partial"), &path).unwrap();
    fs::write(&path, &expected).unwrap();
    Prepared::open(&path, &spec).unwrap();
    assert_eq!(finish(&path, &spec), 2);
    assert_eq!(names(folder.path()), ["t"]);
}

/// Specs that differ from `spec` in one field each.
fn others(spec: &PreparedSpec) -> [(&'static str, PreparedSpec); 6] {
    let with = |name, change: fn(&mut PreparedSpec)| {
        let mut other = spec.clone();
        change(&mut other);
        (name, other)
    };
    [
        with("kind", |spec| spec.kind.push('2')),
        with("format", |spec| spec.format += 1),
        with("table_version", |spec| spec.table_version = Version::from([4; 32])),
        with("meta", |spec| spec.meta[3] ^= 1),
        with("payload_bytes", |spec| spec.payload_bytes += 1),
        with("blocks", |spec| (spec.blocks, spec.payload_bytes) = (4, 3_700)),
    ]
}

#[test]
fn another_spec_begins_anew() {
    let spec = PreparedSpec { payload_bytes: 3_700, ..spec(5) };
    for (name, other) in others(&spec) {
        if name == "blocks" {
            assert_eq!(other.payload_bytes, spec.payload_bytes);
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        let writer = PreparedWriter::open(&path, &spec).unwrap();
        writer.finish_block(1, [0xee; 32]).unwrap();
        drop(writer);
        assert_eq!(PreparedWriter::open(&path, &spec).unwrap().done(), 1);
        let writer = PreparedWriter::open(&path, &other).unwrap();
        assert_eq!(writer.done(), 0, "{name}");
        assert!(!writer.is_done(1));
        drop(writer);
        // And back again: nothing of the first is left.
        assert_eq!(PreparedWriter::open(&path, &spec).unwrap().done(), 0, "{name}");
    }
}

#[test]
fn a_file_for_something_else_is_refused() {
    let spec = spec(3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    finish(&path, &spec);
    for (name, other) in others(&spec) {
        let error = Prepared::open(&path, &other).unwrap_err();
        let text = error.to_string();
        assert!(text.contains(path.to_str().unwrap()), "{text}");
        let fits = match (name, error) {
            ("kind", PreparedError::Kind { expected, found, .. }) => {
                (expected, found) == (other.kind, spec.kind.clone())
            }
            ("format", PreparedError::Format { expected: 3, found: 2, .. }) => true,
            ("table_version", PreparedError::Stale { expected, found, .. }) => {
                (expected, found) == (other.table_version, spec.table_version)
            }
            ("meta", PreparedError::Meta { expected_bytes, found_bytes, differs_at, .. }) => {
                (expected_bytes, found_bytes, differs_at) == (8, 8, 3)
            }
            ("payload_bytes", PreparedError::PayloadBytes { expected, found, .. }) => {
                (expected, found) == (2_701, 2_700)
            }
            // The payload is named first.
            ("blocks", PreparedError::PayloadBytes { .. }) => true,
            (_, other) => panic!("{name}: {other}"),
        };
        assert!(fits, "{name}: {text}");
    }
    let fewer = PreparedSpec { blocks: 2, ..spec.clone() };
    assert!(matches!(
        Prepared::open(&path, &fewer),
        Err(PreparedError::Blocks { expected: 2, found: 3, .. })
    ));
    let longer = PreparedSpec { meta: b"geometry and more".to_vec(), ..spec.clone() };
    assert!(matches!(
        Prepared::open(&path, &longer),
        Err(PreparedError::Meta { expected_bytes: 17, found_bytes: 8, differs_at: 8, .. })
    ));
}

#[test]
fn a_damaged_file_is_refused() {
    let spec = spec(3);
    let bytes = whole(&spec);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    assert!(matches!(Prepared::open(&path, &spec), Err(PreparedError::Missing { .. })));
    assert!(matches!(
        Prepared::open(folder.path(), &spec),
        Err(PreparedError::NotAFile { path }) if path == folder.path()
    ));
    let open = |bytes: &[u8]| {
        fs::write(&path, bytes).unwrap();
        match Prepared::open(&path, &spec) {
            Err(PreparedError::File { path: at, source }) if at == path => source,
            other => panic!("{other:?}"),
        }
    };
    let size = bytes.len() as u64;
    for length in [1, 15, 16, 31, 32, 143, 151, 4_096, 6_000, bytes.len() - 1] {
        let error = open(&bytes[..length]);
        let PreparedFormatError::FileSize { expected, found } = error else {
            panic!("{length}: {error}");
        };
        assert!(found == length as u64 && expected <= size && expected > found);
    }
    assert!(matches!(open(&[]), PreparedFormatError::FileSize { found: 0, .. }));
    let flipped = |at: usize| {
        let mut bytes = bytes.clone();
        bytes[at] ^= 4;
        open(&bytes)
    };
    assert_eq!(flipped(0), PreparedFormatError::Mark);
    assert!(matches!(flipped(19), PreparedFormatError::Header { field: "length", .. }));
    assert!(matches!(flipped(30), PreparedFormatError::Checksum { .. }));
    let slack_start = 4_096 + 2_700;
    assert!(matches!(
        flipped(slack_start + 1),
        PreparedFormatError::Padding { offset: 6_797, found: 4 }
    ));
    assert!(matches!(flipped(slack_start + 64), PreparedFormatError::Version { .. }));
    assert!(matches!(flipped(bytes.len() - 1), PreparedFormatError::Version { .. }));
    // As the documentation says, the payload itself is the engine's to check, by the hashes.
    fs::write(&path, &bytes).unwrap();
    flip(&path, 5_000, 1);
    let prepared = Prepared::open(&path, &spec).unwrap();
    assert_ne!(hash(&prepared.payload()[..BLOCK_BYTES]), prepared.block_hashes()[0]);
    assert_eq!(hash(&prepared.payload()[2 * BLOCK_BYTES..]), prepared.block_hashes()[2]);
}

#[test]
fn an_unfinished_file_is_no_prepared_file() {
    let spec = spec(4);
    let (_folder, path) = half_done(&spec);
    assert!(matches!(
        Prepared::open(beside(&path, ".partial"), &spec),
        Err(PreparedError::File { source: PreparedFormatError::Unfinished, .. })
    ));
    assert!(matches!(Prepared::open(&path, &spec), Err(PreparedError::Missing { .. })));
    let writer = PreparedWriter::open(&path, &spec).unwrap();
    assert!(matches!(writer.finish(), Err(PreparedError::Undone { expected: 4, found: 2, .. })));
    assert_eq!(finish(&path, &spec), 2, "what was done stayed");
}

#[test]
fn what_a_writer_is_asked_wrongly_it_refuses() {
    let spec = spec(3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let writer = PreparedWriter::open(&path, &spec).unwrap();
    for (offset, count) in [(2_700, 1), (2_699, 2), (0, 2_701), (u64::MAX, 1), (u64::MAX - 1, 9)] {
        let error = writer.write_at(offset, &vec![1; count]).unwrap_err();
        assert!(matches!(
            error,
            PreparedError::PayloadRange { offset: at, byte_count, payload_bytes: 2_700, .. }
                if (at, byte_count) == (offset, count)
        ));
    }
    writer.write_at(2_700, &[]).unwrap();
    assert!(matches!(
        writer.finish_block(3, [0; 32]),
        Err(PreparedError::BlockIndex { block: 3, blocks: 3, .. })
    ));
    assert!(!writer.is_done(3) && !writer.is_done(u32::MAX));
    (0..3).for_each(|block| write_block(&writer, &spec, block));
    writer.finish_block(1, hash(&content(&spec, 1))).unwrap();
    assert!(matches!(
        writer.finish_block(1, [7; 32]),
        Err(PreparedError::BlockHash { block: 1, found, .. }) if found == Version::from([7; 32])
    ));
    writer.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole(&spec), "nothing of it reached the file");

    let huge = PreparedSpec { payload_bytes: PAYLOAD_BYTES_MAX + 1, ..spec.clone() };
    let range = |error| {
        matches!(
            error,
            PreparedError::Spec(PreparedSpecError::Range { field: "payload_bytes", .. })
        )
    };
    assert!(range(PreparedWriter::open(&path, &huge).unwrap_err()));
    assert!(range(Prepared::open(&path, &huge).unwrap_err()));
    for unnamed in ["/", "..", ""] {
        assert!(matches!(
            PreparedWriter::open(unnamed, &spec),
            Err(PreparedError::Unnamed { .. } | PreparedError::NotAFile { .. })
        ));
    }
    assert!(matches!(
        PreparedWriter::open(folder.path().join("no/such"), &spec),
        Err(PreparedError::Io { action: "open", .. })
    ));
}

#[test]
fn other_files_are_not_written_over() {
    let spec = spec(3);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    for ending in ["", ".partial", ".journal"] {
        let other = beside(&path, ending);
        fs::write(&other, "dear diary").unwrap();
        let error = PreparedWriter::open(&path, &spec).unwrap_err();
        assert!(matches!(error, PreparedError::Occupied { path } if path == other));
        assert_eq!(fs::read(&other).unwrap(), b"dear diary");
        assert_eq!(names(folder.path()).len(), 1, "and nothing else is left behind");
        fs::remove_file(&other).unwrap();
        fs::create_dir(&other).unwrap();
        let error = PreparedWriter::open(&path, &spec).unwrap_err();
        assert!(matches!(error, PreparedError::NotAFile { path } if path == other));
        fs::remove_dir(&other).unwrap();
    }
    // Zeros are what a power failure leaves of files just begun, but not of a finished one.
    for ending in ["", ".partial", ".journal"] {
        fs::write(beside(&path, ending), [0; 100]).unwrap();
    }
    assert!(matches!(PreparedWriter::open(&path, &spec), Err(PreparedError::Occupied { .. })));
    fs::write(&path, "").unwrap();
    assert_eq!(finish(&path, &spec), 3);
}

#[test]
fn a_new_file_takes_the_place_of_the_old_and_of_what_a_link_points_at() {
    let (old, new) = (spec(3), PreparedSpec { format: 9, ..spec(4) });
    let folder = tempfile::tempdir().unwrap();
    let (path, link) = (folder.path().join("v1"), folder.path().join("current"));
    finish(&path, &old);
    std::os::unix::fs::symlink("v1", &link).unwrap();
    let mapped = Prepared::open(&link, &old).unwrap();
    let before = mapped.payload().to_vec();
    let writer = PreparedWriter::open(&link, &new).unwrap();
    (0..4).for_each(|block| write_block(&writer, &new, block));
    Prepared::open(&link, &old).expect("the old one stands until the new one is whole");
    writer.finish().unwrap();
    Prepared::open(&path, &new).unwrap();
    assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
    assert_eq!(mapped.payload(), before);
    assert_eq!(names(folder.path()), ["current", "v1"]);
}

#[test]
fn two_writers_never_share_a_file() {
    let spec = spec(6);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let writer = PreparedWriter::open(&path, &spec).unwrap();
    write_block(&writer, &spec, 0);
    let error = PreparedWriter::open(&path, &spec).unwrap_err();
    assert!(matches!(error, PreparedError::Locked { path: at } if at == path));
    let neighbour = PreparedWriter::open(folder.path().join("u"), &spec).unwrap();
    drop((writer, neighbour));
    assert_eq!(PreparedWriter::open(&path, &spec).unwrap().done(), 1);

    // Writers that come and go, with the journal removed and made again under each other.
    let expected = whole(&spec);
    let finished: u32 = thread::scope(|scope| {
        let writers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    let mut finished = 0;
                    while finished < 25 {
                        match PreparedWriter::open(&path, &spec) {
                            Ok(writer) => {
                                for block in (0..6).filter(|&block| !writer.is_done(block)) {
                                    write_block(&writer, &spec, block);
                                }
                                let made = writer.finish().unwrap();
                                assert_eq!(made.payload(), &expected[4_096..4_096 + 5_700]);
                                finished += 1;
                            }
                            Err(PreparedError::Locked { .. }) => thread::yield_now(),
                            Err(other) => panic!("{other}"),
                        }
                    }
                    finished
                })
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().unwrap()).sum()
    });
    assert_eq!(finished, 100);
    assert_eq!(fs::read(&path).unwrap(), expected);
}

const KILLED_PATH: &str = "HUSHTABLE_TABLE_PREPARED_PATH";
const KILLED_AFTER: &str = "HUSHTABLE_TABLE_PREPARED_COUNT";

/// Starts `test` again in a process of its own, as the writer that is to be killed once it has said `count` times that
/// it wrote.
fn start_writer(test: &str, path: &Path, count: usize) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args([&format!("prepared::{test}"), "--exact", "--nocapture"])
        .env(KILLED_PATH, path)
        .env(KILLED_AFTER, count.to_string())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills `writer` once it has said `count` times that it wrote a block.
fn kill_after(mut writer: Child, count: usize) {
    let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
    let wrote = lines.map(Result::unwrap).filter(|line| line.contains("wrote"));
    assert_eq!(wrote.take(count).count(), count);
    writer.kill().unwrap();
    assert!(!writer.wait().unwrap().success());
}

#[test]
fn a_killed_writer_loses_only_what_was_not_synchronised() {
    let spec = spec(4_000);
    if let Some(path) = std::env::var_os(KILLED_PATH) {
        let writer = PreparedWriter::open(path, &spec).unwrap();
        let mut left: usize = std::env::var(KILLED_AFTER).unwrap().parse().unwrap();
        for block in (0..4_000).rev().filter(|&block| !writer.is_done(block)) {
            write_block(&writer, &spec, block);
            if block % 100 == 0 && left > 0 {
                writer.sync().unwrap();
                println!("wrote {block}");
                left -= 1;
            }
            // It is killed while it writes more, or here.
            if block % 100 == 50 && left == 0 {
                loop {
                    thread::park();
                }
            }
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let test = "a_killed_writer_loses_only_what_was_not_synchronised";
    let mut done = 0;
    for count in [1, 4, 2, 7] {
        kill_after(start_writer(test, &path, count), count);
        let writer = PreparedWriter::open(&path, &spec).unwrap();
        assert!(writer.done() > done + 100 * (count as u32 - 1), "{}", writer.done());
        done = writer.done();
        assert!(done < 4_000);
        for block in 4_000 - done..4_000 {
            assert!(writer.is_done(block));
        }
    }
    let missing = finish(&path, &spec);
    assert!(missing > 0 && missing == 4_000 - done);
    assert_eq!(fs::read(&path).unwrap(), whole(&spec));
    assert_eq!(names(folder.path()), ["t"]);
}

#[test]
fn a_writer_synchronises_by_itself_once_a_second() {
    let spec = spec(10_000);
    if let Some(path) = std::env::var_os(KILLED_PATH) {
        let writer = PreparedWriter::open(path, &spec).unwrap();
        for block in 0..10_000 {
            write_block(&writer, &spec, block);
            println!("wrote {block}");
            thread::sleep(Duration::from_millis(10));
        }
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    // 2.5 s at the least, so that a second has passed twice, and never a block a journal write.
    let test = "a_writer_synchronises_by_itself_once_a_second";
    kill_after(start_writer(test, &path, 250), 250);
    let done = PreparedWriter::open(&path, &spec).unwrap().done();
    assert!(done >= 2, "{done}");
    finish(&path, &spec);
    assert_eq!(fs::read(&path).unwrap(), whole(&spec));
}

/// Writes what is missing of a part, and says how many blocks that were.
fn finish_part(path: &Path, spec: &PreparedSpec, blocks: Range<u32>) -> u32 {
    let part = PreparedPart::open(path, spec, blocks.clone()).unwrap();
    let missing: Vec<_> = blocks.filter(|&block| !part.is_done(block)).collect();
    missing.iter().for_each(|&block| write_block(&part, spec, block));
    part.finish().unwrap();
    missing.len() as u32
}

#[test]
fn parts_make_the_file_that_one_writer_makes() {
    let spec = spec(10);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
    write_block(&whole_writer, &spec, 2);
    whole_writer.sync().unwrap();
    thread::scope(|scope| {
        for (blocks, missing) in [(0..3, 2), (3..4, 1), (4..10, 6)] {
            let (path, spec) = (&path, &spec);
            scope.spawn(move || assert_eq!(finish_part(path, spec, blocks), missing));
        }
    });
    assert_eq!(
        names(folder.path()),
        ["t.0-3.part", "t.3-4.part", "t.4-10.part", "t.journal", "t.partial"]
    );
    whole_writer.take_part(0..3).unwrap();
    assert_eq!(whole_writer.done(), 3);
    // One that has not been is not missed, and the others are found without being named.
    whole_writer.take_part(1..2).unwrap();
    whole_writer.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole(&spec));
    assert_eq!(names(folder.path()), ["t"]);
}

#[test]
fn parts_that_were_interrupted_are_gone_on_with_by_any_others() {
    let spec = spec(10);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
    let part = PreparedPart::open(&path, &spec, 0..5).unwrap();
    (3..5).for_each(|block| write_block(&part, &spec, block));
    assert!(matches!(part.finish(), Err(PreparedError::Undone { expected: 5, found: 2, .. })));
    // The same part goes on, also without the whole file's writer taking anything.
    let part = PreparedPart::open(&path, &spec, 0..5).unwrap();
    assert_eq!((part.done(), part.is_done(3), part.is_done(0)), (2, true, false));
    assert_eq!(part.hash_of(3), Some(hash(&content(&spec, 3))));
    let mut bytes = [1; BLOCK_BYTES];
    part.read_at(3 * BLOCK_BYTES as u64, &mut bytes).unwrap();
    assert_eq!(bytes[..], content(&spec, 3));
    write_block(&part, &spec, 0);
    drop((part, whole_writer));
    assert_eq!(names(folder.path()), ["t.0-5.part", "t.journal", "t.partial"]);

    // The next run has other parts.
    let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
    assert_eq!(whole_writer.done(), 3);
    assert_eq!(names(folder.path()), ["t.journal", "t.partial"]);
    assert_eq!(finish_part(&path, &spec, 0..4), 2);
    drop(whole_writer);
    // And the one after none.
    assert_eq!(finish(&path, &spec), 5);
    assert_eq!(fs::read(&path).unwrap(), whole(&spec));
    assert_eq!(names(folder.path()), ["t"]);
}

#[test]
fn two_processes_never_share_a_part() {
    let spec = spec(6);
    if let Some(path) = std::env::var_os(KILLED_PATH) {
        let part = PreparedPart::open(path, &spec, 1..4).unwrap();
        write_block(&part, &spec, 1);
        part.sync().unwrap();
        println!("wrote 1");
        thread::sleep(Duration::from_secs(3600));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
    let mut writer = start_writer("two_processes_never_share_a_part", &path, 1);
    let lines = BufReader::new(writer.stdout.as_mut().unwrap()).lines();
    lines.map(Result::unwrap).find(|line| line.contains("wrote")).unwrap();
    let is_locked =
        |error: PreparedError| matches!(error, PreparedError::Locked { path: at } if at == path);
    for blocks in [1..4, 0..2, 2..3, 3..6] {
        assert!(is_locked(PreparedPart::open(&path, &spec, blocks).unwrap_err()));
    }
    assert_eq!(finish_part(&path, &spec, 0..1), 1);
    assert_eq!(finish_part(&path, &spec, 4..6), 2);
    assert!(is_locked(whole_writer.take_part(1..4).unwrap_err()));
    assert!(is_locked(whole_writer.finish().unwrap_err()));
    // The whole file is not begun again under one that lives on.
    assert!(is_locked(PreparedWriter::open(&path, &spec).unwrap_err()));
    writer.kill().unwrap();
    writer.wait().unwrap();
    let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
    assert_eq!(whole_writer.done(), 4);
    assert_eq!(finish_part(&path, &spec, 1..4), 2);
    whole_writer.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), whole(&spec));
}

#[test]
fn a_part_of_nothing_that_was_begun_is_refused() {
    let spec = spec(5);
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let is_not_begun = |spec: &PreparedSpec| match PreparedPart::open(&path, spec, 0..2) {
        Err(PreparedError::NotBegun { path: at }) => at == path,
        _ => false,
    };
    assert!(is_not_begun(&spec));
    assert!(names(folder.path()).is_empty());
    let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
    for (what, other) in others(&spec) {
        assert!(is_not_begun(&other), "{what}");
    }
    for blocks in [2..2, 0..6, 5..7] {
        let error = PreparedPart::open(&path, &spec, blocks).unwrap_err();
        assert!(
            matches!(error, PreparedError::PartRange { own_first: 0, own_end: 5, .. }),
            "{error}"
        );
    }
    let part = PreparedPart::open(&path, &spec, 1..3).unwrap();
    let error = part.finish_block(3, [0; 32]).unwrap_err();
    assert!(
        matches!(error, PreparedError::PartRange { first: 3, own_first: 1, own_end: 3, .. }),
        "{error}"
    );
    assert!(matches!(part.finish_block(5, [0; 32]), Err(PreparedError::BlockIndex { .. })));
    (1..3).for_each(|block| write_block(&part, &spec, block));
    part.finish().unwrap();
    [0, 3, 4].into_iter().for_each(|block| write_block(&whole_writer, &spec, block));
    whole_writer.finish().unwrap();
    assert!(is_not_begun(&spec));
    // What another program wrote there is none of ours.
    fs::write(beside(&path, ".0-2.part"), b"a diary").unwrap();
    assert!(matches!(PreparedWriter::open(&path, &spec), Err(PreparedError::Occupied { .. })));
    assert_eq!(fs::read(beside(&path, ".0-2.part")).unwrap(), b"a diary");
}

#[test]
fn a_damaged_part_costs_only_what_was_hit() {
    let spec = spec(4);
    let expected = whole(&spec);
    let end = JOURNAL_HEADER_BYTES + 2 * RECORD_BYTES;
    // By the part's own next writer, and by that of the whole file.
    for by_part in [true, false] {
        for (at, kept) in [(20, 0), (50, 0), (64, 0), (103, 0), (104, 1), (end - 1, 1)] {
            let folder = tempfile::tempdir().unwrap();
            let path = folder.path().join("t");
            let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
            let part = PreparedPart::open(&path, &spec, 1..4).unwrap();
            (1..3).for_each(|block| write_block(&part, &spec, block));
            drop(part);
            flip(&beside(&path, ".1-4.part"), at, 0x10);
            if by_part {
                assert_eq!(finish_part(&path, &spec, 1..4), 3 - kept, "byte {at}");
                write_block(&whole_writer, &spec, 0);
                whole_writer.finish().unwrap();
            } else {
                drop(whole_writer);
                assert_eq!(finish(&path, &spec), 4 - kept, "byte {at}");
            }
            assert_eq!(fs::read(&path).unwrap(), expected);
        }
    }
    // A part of an earlier run, whose file is gone, says nothing of this one's.
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
    assert_eq!(finish_part(&path, &spec, 1..4), 3);
    drop(whole_writer);
    fs::remove_file(beside(&path, ".partial")).unwrap();
    fs::copy(beside(&path, ".1-4.part"), folder.path().join("kept")).unwrap();
    let whole_writer = PreparedWriter::open(&path, &spec).unwrap();
    assert_eq!(whole_writer.done(), 0);
    fs::rename(folder.path().join("kept"), beside(&path, ".1-4.part")).unwrap();
    assert_eq!(finish_part(&path, &spec, 1..4), 3);
    write_block(&whole_writer, &spec, 0);
    whole_writer.finish().unwrap();
    assert_eq!(fs::read(&path).unwrap(), expected);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]

    /// Runs that each write some blocks, with damage to the journal in between, end in one file.
    #[test]
    fn any_interruptions_end_in_the_same_file(
        runs in prop::collection::vec((prop::collection::vec(0_u32..9, 0..6), 0_u64..500, 0_u8..3), 0..6),
    ) {
        let spec = spec(9);
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t");
        for (blocks, at, damage) in runs {
            let writer = PreparedWriter::open(&path, &spec).unwrap();
            blocks.iter().for_each(|&block| write_block(&writer, &spec, block));
            drop(writer);
            let journal = beside(&path, ".journal");
            let length = fs::metadata(&journal).unwrap().len();
            match damage {
                // Past the mark, whose damage is an error.
                0 => flip(&journal, 16 + at % (length - 16), 1 << (at % 8)),
                1 => fs::OpenOptions::new().write(true).open(&journal).unwrap().set_len(at % length).unwrap(),
                _ => {}
            }
        }
        finish(&path, &spec);
        prop_assert_eq!(fs::read(&path).unwrap(), whole(&spec));
    }
}
