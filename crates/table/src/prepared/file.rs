//! The bytes of a prepared file: where its parts stand, its header, and what it hashes to.

use super::{META_BYTES_MAX, PreparedFormatError, PreparedSpec, SLACK_BYTES};
use crate::version::Version;

/// The file's first bytes.
pub(super) const MARK: [u8; 16] = *b"hushtable-prep1\n";
/// What stands where the version goes, until the file is finished; 8 bytes follow that the
/// journal has too.
const UNFINISHED: [u8; 24] = *b"hushtable-prep not done\n";
const PAGE_BYTES: usize = 4_096;
const KIND_AT: usize = 80;
const META_AT: usize = KIND_AT + super::KIND_BYTES_MAX;
pub(super) const HASH_BYTES: usize = 32;

/// A hash of a block, as the engine gives it; a checksum; a version.
pub(super) type Hash = [u8; HASH_BYTES];

/// Where the parts of a file stand, in bytes from its start.
#[derive(Clone, Copy, Debug)]
pub(super) struct Extents {
    pub(super) header_bytes: usize,
    pub(super) payload_start: u64,
    pub(super) slack_start: u64,
    pub(super) hashes_start: u64,
    pub(super) version_start: u64,
    pub(super) file_bytes: u64,
}

impl Extents {
    /// The parts of a file of `spec`, which has been checked: no sum of these overflows.
    pub(super) fn of(spec: &PreparedSpec) -> Self {
        let header_bytes = META_AT + spec.meta.len() + HASH_BYTES;
        let payload_start = header_bytes.next_multiple_of(PAGE_BYTES) as u64;
        let slack_start = payload_start + spec.payload_bytes;
        let hashes_start = slack_start + SLACK_BYTES as u64;
        let version_start = hashes_start + u64::from(spec.blocks) * HASH_BYTES as u64;
        let file_bytes = version_start + HASH_BYTES as u64;
        Self { header_bytes, payload_start, slack_start, hashes_start, version_start, file_bytes }
    }
}

/// The header of `spec`, its checksum last, without the zeros up to the payload.
pub(super) fn encode_header(spec: &PreparedSpec) -> Vec<u8> {
    let header_bytes = Extents::of(spec).header_bytes;
    let mut header = Vec::with_capacity(header_bytes);
    header.extend_from_slice(&MARK);
    header.extend_from_slice(&(header_bytes as u32).to_le_bytes());
    header.extend_from_slice(&spec.format.to_le_bytes());
    header.extend_from_slice(spec.table_version.as_bytes());
    header.extend_from_slice(&spec.payload_bytes.to_le_bytes());
    header.extend_from_slice(&spec.blocks.to_le_bytes());
    header.extend_from_slice(&(spec.kind.len() as u32).to_le_bytes());
    header.extend_from_slice(&(spec.meta.len() as u32).to_le_bytes());
    header.resize(KIND_AT, 0);
    header.extend_from_slice(spec.kind.as_bytes());
    header.resize(META_AT, 0);
    header.extend_from_slice(&spec.meta);
    let checksum = header_checksum(&header);
    header.extend_from_slice(&checksum);
    header
}

/// The hash of the header's fields.
fn header_checksum(fields: &[u8]) -> Hash {
    blake3::derive_key("hushtable prepared header v1", fields)
}

/// What a file with this header and these block hashes hashes to. The header is as long as it
/// says and says how many blocks there are, so that no two files give the same bytes.
pub(super) fn version_of(header: &[u8], block_hashes: &[Hash]) -> Version {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable prepared content v1");
    hasher.update(header);
    hasher.update(block_hashes.as_flattened());
    Version::from(*hasher.finalize().as_bytes())
}

/// The mark that a writer with this nonce puts in the version's place while it works.
pub(super) fn unfinished_version(nonce: u64) -> Hash {
    let mut bytes = [0; HASH_BYTES];
    bytes[..UNFINISHED.len()].copy_from_slice(&UNFINISHED);
    bytes[UNFINISHED.len()..].copy_from_slice(&nonce.to_le_bytes());
    bytes
}

/// The nonce in the last bytes of a file that is not finished; `None` for one that is.
pub(super) fn nonce_of(version: &Hash) -> Option<u64> {
    let nonce = version.strip_prefix(&UNFINISHED)?;
    Some(u64::from_le_bytes(nonce.try_into().ok()?))
}

/// Whether the last bytes of a file say that it is not finished.
pub(super) fn is_unfinished(version: &Hash) -> bool {
    version.starts_with(&UNFINISHED)
}

/// A whole prepared file, checked in all but the payload's bytes.
#[derive(Clone, Debug)]
pub struct PreparedBytes<'a> {
    spec: PreparedSpec,
    payload: &'a [u8],
    block_hashes: &'a [Hash],
    version: Version,
}

impl<'a> PreparedBytes<'a> {
    /// Checks the bytes of a whole file. Allocates for the header only, at most 64 KiB of it.
    ///
    /// # Errors
    /// [`PreparedFormatError`] says what is damaged or missing.
    pub fn parse(bytes: &'a [u8]) -> Result<Self, PreparedFormatError> {
        let header = split_header(bytes)?;
        let spec = decode_header(header)?;
        let extents = Extents::of(&spec);
        let (expected, found) = (extents.file_bytes, bytes.len() as u64);
        if expected != found {
            return Err(PreparedFormatError::FileSize { expected, found });
        }
        // All of these are within the bytes, whose length is a usize.
        let part = |start: u64, end: u64| &bytes[start as usize..end as usize];
        for (start, end) in [
            (header.len() as u64, extents.payload_start),
            (extents.slack_start, extents.hashes_start),
        ] {
            if let Some(at) = part(start, end).iter().position(|&byte| byte != 0) {
                let offset = start + at as u64;
                let found = bytes[offset as usize];
                return Err(PreparedFormatError::Padding { offset, found });
            }
        }
        let (block_hashes, _) = part(extents.hashes_start, extents.version_start).as_chunks();
        let mut stored = [0; HASH_BYTES];
        stored.copy_from_slice(part(extents.version_start, extents.file_bytes));
        if is_unfinished(&stored) {
            return Err(PreparedFormatError::Unfinished);
        }
        let (expected, found) = (Version::from(stored), version_of(header, block_hashes));
        if expected != found {
            return Err(PreparedFormatError::Version { expected, found });
        }
        let payload = part(extents.payload_start, extents.slack_start);
        Ok(Self { spec, payload, block_hashes, version: found })
    }

    /// What the file says it is; within the limits.
    pub fn spec(&self) -> &PreparedSpec {
        &self.spec
    }

    /// The payload.
    pub fn payload(&self) -> &'a [u8] {
        self.payload
    }

    /// The hash of every block, in order.
    pub fn block_hashes(&self) -> &'a [[u8; 32]] {
        self.block_hashes
    }

    /// The file's version.
    pub fn version(&self) -> Version {
        self.version
    }
}

/// The header at the start of `bytes`, which is as long as it says; nothing else of it is checked.
fn split_header(bytes: &[u8]) -> Result<&[u8], PreparedFormatError> {
    let header_bytes_min = META_AT + HASH_BYTES;
    if bytes.len() < MARK.len() && MARK.starts_with(bytes) {
        let (expected, found) = (header_bytes_min as u64, bytes.len() as u64);
        return Err(PreparedFormatError::FileSize { expected, found });
    }
    if !bytes.starts_with(&MARK) {
        return Err(PreparedFormatError::Mark);
    }
    let too_short = |expected: usize| PreparedFormatError::FileSize {
        expected: expected as u64,
        found: bytes.len() as u64,
    };
    if bytes.len() < header_bytes_min {
        return Err(too_short(header_bytes_min));
    }
    let header_bytes = word(bytes, MARK.len()) as usize;
    if !(header_bytes_min..=header_bytes_min + META_BYTES_MAX).contains(&header_bytes) {
        let expected = "144 to 65,680 bytes";
        return Err(PreparedFormatError::Header { field: "length", expected });
    }
    bytes.get(..header_bytes).ok_or_else(|| too_short(header_bytes))
}

/// Reads a header that has the least length or more.
fn decode_header(header: &[u8]) -> Result<PreparedSpec, PreparedFormatError> {
    let (fields, checksum) = header.split_at(header.len() - HASH_BYTES);
    let found = Version::from(header_checksum(fields));
    if found.as_bytes() != checksum {
        let mut expected = [0; HASH_BYTES];
        expected.copy_from_slice(checksum);
        return Err(PreparedFormatError::Checksum { expected: expected.into(), found });
    }
    let mut table_version = [0; 32];
    table_version.copy_from_slice(&fields[24..56]);
    let kind = fields[KIND_AT..META_AT].get(..word(fields, 68) as usize);
    let kind = kind.and_then(|kind| str::from_utf8(kind).ok());
    let kind = kind.ok_or(PreparedFormatError::Header {
        field: "kind",
        expected: "at most 32 ASCII characters",
    })?;
    let spec = PreparedSpec {
        kind: kind.to_owned(),
        format: word(fields, 20),
        table_version: table_version.into(),
        meta: fields[META_AT..].to_vec(),
        payload_bytes: u64::from(word(fields, 56)) | u64::from(word(fields, 60)) << 32,
        blocks: word(fields, 64),
    };
    spec.check()?;
    // The length of meta is there twice, and some bytes are zero: one spec has one header.
    if encode_header(&spec) != header {
        let expected = "the one that its other fields make";
        return Err(PreparedFormatError::Header { field: "encoding", expected });
    }
    Ok(spec)
}

fn word(bytes: &[u8], at: usize) -> u32 {
    let mut word = [0; 4];
    word.copy_from_slice(&bytes[at..at + 4]);
    u32::from_le_bytes(word)
}

#[cfg(test)]
mod tests {
    use super::super::PreparedSpecError;
    use super::*;

    fn spec() -> PreparedSpec {
        PreparedSpec {
            kind: "test/k".to_owned(),
            format: 3,
            table_version: Version::from([9; 32]),
            meta: vec![1, 2, 3],
            payload_bytes: 70,
            blocks: 2,
        }
    }

    /// A file of `spec` with `header`, whatever that says.
    fn file(spec: &PreparedSpec, header: &[u8]) -> Vec<u8> {
        let extents = Extents::of(spec);
        let hashes = vec![[5; 32]; spec.blocks as usize];
        let mut bytes = header.to_vec();
        bytes.resize(extents.payload_start as usize, 0);
        bytes.resize(extents.slack_start as usize, 0xaa);
        bytes.resize(extents.hashes_start as usize, 0);
        bytes.extend_from_slice(hashes.as_flattened());
        bytes.extend_from_slice(version_of(header, &hashes).as_bytes());
        bytes
    }

    /// A header of which byte `at` is `byte`, with the checksum that it then has.
    fn resealed(at: usize, byte: u8) -> Vec<u8> {
        let mut header = encode_header(&spec());
        let fields_bytes = header.len() - HASH_BYTES;
        header[at] = byte;
        let checksum = header_checksum(&header[..fields_bytes]);
        header[fields_bytes..].copy_from_slice(&checksum);
        header
    }

    #[test]
    fn what_is_written_is_read() {
        for (meta_bytes, payload_start) in
            [(0, 4_096), (3_952, 4_096), (3_953, 8_192), (META_BYTES_MAX, 69_632)]
        {
            let spec = PreparedSpec { meta: vec![8; meta_bytes], ..spec() };
            assert_eq!(Extents::of(&spec).payload_start, payload_start);
            let bytes = file(&spec, &encode_header(&spec));
            let parsed = PreparedBytes::parse(&bytes).unwrap();
            assert_eq!(parsed.spec(), &spec);
            assert_eq!(parsed.payload(), [0xaa; 70]);
            assert_eq!(parsed.block_hashes(), [[5; 32]; 2]);
        }
    }

    #[test]
    fn every_flipped_bit_outside_the_payload_is_found() {
        let bytes = file(&spec(), &encode_header(&spec()));
        let extents = Extents::of(&spec());
        let payload = extents.payload_start as usize..extents.slack_start as usize;
        for at in (0..bytes.len()).filter(|at| !payload.contains(at)) {
            for bit in 0..8 {
                let mut damaged = bytes.clone();
                damaged[at] ^= 1 << bit;
                let error = PreparedBytes::parse(&damaged).unwrap_err();
                let fits = match at {
                    0..16 => error == PreparedFormatError::Mark,
                    // A length out of range, past the file's end, or one that moves the checksum.
                    16..20 => matches!(
                        error,
                        PreparedFormatError::Header { field: "length", .. }
                            | PreparedFormatError::FileSize { .. }
                            | PreparedFormatError::Checksum { .. }
                    ),
                    20..147 => matches!(error, PreparedFormatError::Checksum { .. }),
                    147..4_230 => matches!(
                        error, PreparedFormatError::Padding { offset, .. } if offset == at as u64
                    ),
                    _ => matches!(error, PreparedFormatError::Version { .. }),
                };
                assert!(fits, "byte {at}, bit {bit}: {error:?}");
            }
        }
    }

    #[test]
    fn a_file_cut_or_grown_anywhere_is_refused() {
        let bytes = file(&spec(), &encode_header(&spec()));
        for length in 0..bytes.len() {
            let error = PreparedBytes::parse(&bytes[..length]).unwrap_err();
            let PreparedFormatError::FileSize { expected, found } = error else {
                panic!("{length}: {error:?}");
            };
            assert!(found == length as u64 && expected > found);
            assert!(length < 147 || expected == bytes.len() as u64);
        }
        let grown = [&bytes[..], &[0]].concat();
        assert!(matches!(
            PreparedBytes::parse(&grown),
            Err(PreparedFormatError::FileSize { expected, .. }) if expected == bytes.len() as u64
        ));
    }

    #[test]
    fn a_header_with_the_right_checksum_may_still_not_lie() {
        let parse = |at, byte| {
            let bytes = file(&spec(), &resealed(at, byte));
            PreparedBytes::parse(&bytes).unwrap_err()
        };
        let range = |error, name| {
            matches!(
                error,
                PreparedFormatError::Spec { source: PreparedSpecError::Range { field, .. } }
                    if field == name
            )
        };
        // A payload of 2^56 bytes, no blocks, no kind: nothing is allocated by them.
        assert!(range(parse(63, 1), "payload_bytes"));
        assert!(range(parse(64, 0), "blocks"));
        assert!(range(parse(68, 0), "kind's length"));
        let field = |error| match error {
            PreparedFormatError::Header { field, .. } => field,
            other => panic!("{other:?}"),
        };
        // A kind of 2^24 bytes, one that is not text.
        assert_eq!(field(parse(71, 1)), "kind");
        assert_eq!(field(parse(KIND_AT, 0xff)), "kind");
        // Another length of kind, of meta, a reserved byte, a byte after the kind.
        assert_eq!(field(parse(68, 5)), "encoding");
        assert_eq!(field(parse(72, 4)), "encoding");
        assert_eq!(field(parse(76, 1)), "encoding");
        assert_eq!(field(parse(KIND_AT + 6, b'x')), "encoding");
    }

    #[test]
    fn an_unfinished_file_says_so() {
        let mut bytes = file(&spec(), &encode_header(&spec()));
        let at = bytes.len() - HASH_BYTES;
        bytes[at..].copy_from_slice(&unfinished_version(7));
        assert_eq!(PreparedBytes::parse(&bytes).unwrap_err(), PreparedFormatError::Unfinished);
    }
}
