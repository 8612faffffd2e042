#![no_main]

use std::fs;

use hushtable_fuzz::with_folder;
use hushtable_table::Version;
use hushtable_table::prepared::{
    Prepared, PreparedBytes, PreparedFormatError, PreparedSpec, PreparedWriter,
};
use libfuzzer_sys::fuzz_target;

/// A prepared file where a server looks for it, and the journal of a preparation that was killed.
/// The first byte says which.
fuzz_target!(|bytes: &[u8]| match bytes.split_first() {
    Some((0, file)) => check_file(file.to_vec()),
    Some((at, journal)) => check_journal(usize::from(*at), journal),
    None => {}
});

fn check_file(mut bytes: Vec<u8>) {
    // A file that hashes to what it says is out of a fuzzer's reach, so it is told the hashes: the
    // header's, and then the version.
    for _ in 0..2 {
        let (expected, found) = match PreparedBytes::parse(&bytes) {
            Err(PreparedFormatError::Checksum { expected, found }) => (expected, found),
            Err(PreparedFormatError::Version { expected, found }) => (expected, found),
            _ => break,
        };
        replace_last(&mut bytes, &expected, &found);
    }
    let Ok(parsed) = PreparedBytes::parse(&bytes) else { return };
    let spec = parsed.spec();
    assert!(parsed.payload().len() as u64 == spec.payload_bytes);
    assert!(parsed.block_hashes().len() == spec.blocks as usize);
    with_folder(|folder| {
        // One content, one encoding.
        let path = folder.join("written");
        let writer = PreparedWriter::open(&path, spec).expect("a spec that was read");
        writer.write_at(0, parsed.payload()).expect("all of the payload");
        for (block, hash) in parsed.block_hashes().iter().enumerate() {
            writer.finish_block(block as u32, *hash).expect("a block that is not done");
        }
        let version = writer.finish().expect("all blocks").version();
        assert_eq!(version, parsed.version());
        assert!(fs::read(&path).expect("read what was written") == bytes);
        fs::write(&path, &bytes).expect("write the file");
        let loaded = Prepared::open(&path, spec).expect("what was parsed").load();
        assert!(loaded.expect("a small payload").payload() == parsed.payload());
        fs::remove_file(path).expect("remove the file");
    });
}

/// Puts `bytes` into a journal from `at` on, past its mark: whatever it then says, the file is
/// finished, and blocks are lost only from the first record that was hit.
fn check_journal(at: usize, bytes: &[u8]) {
    const BLOCKS: u32 = 5;
    let spec = PreparedSpec {
        kind: "fuzz".to_owned(),
        format: 1,
        table_version: Version::from([1; 32]),
        meta: vec![],
        payload_bytes: 5,
        blocks: BLOCKS,
    };
    with_folder(|folder| {
        let (path, journal_path) = (folder.join("resumed"), folder.join("resumed.journal"));
        let writer = PreparedWriter::open(&path, &spec).expect("begin");
        for block in 0..3 {
            writer.finish_block(block, [block as u8; 32]).expect("a block that is not done");
        }
        drop(writer);
        let mut journal = fs::read(&journal_path).expect("read the journal");
        let at = at.clamp(16, journal.len());
        let end = journal.len().min(at + bytes.len());
        journal.splice(at..end, bytes.iter().copied());
        fs::write(&journal_path, &journal).expect("write the journal");

        let writer = PreparedWriter::open(&path, &spec).expect("go on");
        let whole = at.saturating_sub(64) / 40;
        assert!((0..whole.min(3) as u32).all(|block| writer.is_done(block)));
        for block in (0..BLOCKS).filter(|&block| !writer.is_done(block)) {
            writer.finish_block(block, [block as u8; 32]).expect("a block that is not done");
        }
        writer.finish().expect("all blocks");
        fs::remove_file(path).expect("remove the file");
    });
}

/// Puts one hash where another stands last.
fn replace_last(bytes: &mut [u8], old: &Version, new: &Version) {
    let at = bytes.windows(32).rposition(|window| window == old.as_bytes());
    let at = at.expect("a hash that the file says it has");
    bytes[at..at + 32].copy_from_slice(new.as_bytes());
}
