//! The bytes of a journal: how records are sealed, chained, and recognised.
//!
//! All numbers are little-endian.
//!
//! ```text
//! file    header twice, records
//! header  magic 8 | generation 8 | sequence of the first record 8 | head before 32 | instance 32
//!         salt 32 | tag 16
//! record  record header twice, body, parity
//!         record header: magic 4 | kind 4 | payload bytes 4 | round 8 | sequence 8 | synced 8
//!         nonce 32 | tag 16; body: sealed payload | tag 16
//! head    BLAKE3 of the header; then BLAKE3 of (head before, record header, payload tag)
//! ```
//!
//! Headers are there twice, and behind a body is its [parity](super::parity), so that a disk that
//! gives back one wrong sector of a record costs nothing. Files of an earlier version (`HTORAMJ2`)
//! have each header once and no parity; they are read and appended to as they are.
//!
//! The payload is sealed by AEGIS-256 under a random 32-byte nonce, with the head before it and the
//! record's header as associated data. The record header's own tag is there to recognise a header
//! behind a record that cannot be read; `synced` then says whether that record had been durable when
//! this one was written: all below that sequence were. If so, it was damaged, and if not, it was
//! torn by a crash.

use std::fmt;

use hushtable_prg::{EntropyError, fill_random};
use zeroize::Zeroizing;

use super::parity::{parity, parity_bytes};
use super::{Entry, JournalError};
use crate::instance::Instance;
use crate::seal::{Key, NONCE_BYTES, TAG_BYTES};

/// Most bytes of a record's payload.
pub const PAYLOAD_BYTES_MAX: usize = 256 << 20;

pub(super) const FILE_HEADER_BYTES: usize = 136;
pub(super) const FILE_MAGIC: [u8; 8] = *b"HTORAMJ3";
/// Of files whose records are there once.
pub(super) const PLAIN_MAGIC: [u8; 8] = *b"HTORAMJ2";
pub(super) const RECORD_HEADER_BYTES: usize = 84;
pub(super) const RECORD_MAGIC: [u8; 4] = *b"HTJR";
const INSTANCE_AT: usize = 56;
const SALT_AT: usize = 88;
const FILE_TAG_AT: usize = 120;
const NONCE_AT: usize = 36;
const HEADER_TAG_AT: usize = 68;

/// A record as it is read.
#[derive(Clone, PartialEq, Eq)]
pub struct Record {
    /// What the payload is, as it was appended.
    pub kind: u32,
    /// The round that it was appended for.
    pub round: u64,
    /// How many records there were before it, over all generations.
    pub sequence: u64,
    /// The chain's head with it.
    pub head: [u8; 32],
    /// What was appended.
    pub payload: Zeroizing<Vec<u8>>,
}

impl fmt::Debug for Record {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Not the payload: it may be rows.
        f.debug_struct("Record")
            .field("kind", &self.kind)
            .field("round", &self.round)
            .field("sequence", &self.sequence)
            .finish_non_exhaustive()
    }
}

/// The keys of a journal or counter: one for each use, so that no tag of one passes for another's.
pub(super) struct Keys {
    file: Key,
    header: Key,
    payload: Key,
    counter: Key,
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(..)")
    }
}

impl Keys {
    pub fn derive(key: &Key) -> Keys {
        Keys {
            file: key.derive("hushtable oram 2026 journal file header"),
            header: key.derive("hushtable oram 2026 journal record header"),
            payload: key.derive("hushtable oram 2026 journal record payload"),
            counter: key.derive("hushtable oram 2026 root counter"),
        }
    }

    /// The authentication code of a counter's bytes.
    pub fn counter_tag(&self, nonce: &[u8; NONCE_BYTES], bytes: &[u8]) -> [u8; TAG_BYTES] {
        code(&self.counter, nonce, bytes)
    }

    pub fn is_counter_tag(
        &self,
        nonce: &[u8; NONCE_BYTES],
        bytes: &[u8],
        tag: &[u8; TAG_BYTES],
    ) -> bool {
        is_code(&self.counter, nonce, bytes, tag)
    }
}

/// How often the bytes of a file say what they say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Once: a file of an earlier version.
    Plain,
    /// Headers twice, bodies with parity.
    Redundant,
}

impl Layout {
    /// How many times a header is there.
    pub fn header_copies(self) -> usize {
        match self {
            Self::Plain => 1,
            Self::Redundant => 2,
        }
    }

    /// Bytes of parity behind a body.
    pub fn parity_bytes(self, body_bytes: usize) -> usize {
        match self {
            Self::Plain => 0,
            Self::Redundant => parity_bytes(body_bytes),
        }
    }

    /// Bytes of the file's header.
    pub fn file_header_bytes(self) -> usize {
        self.header_copies() * FILE_HEADER_BYTES
    }

    /// Bytes of a record.
    pub fn record_bytes(self, payload_bytes: usize) -> usize {
        let body_bytes = payload_bytes + TAG_BYTES;
        self.header_copies() * RECORD_HEADER_BYTES + body_bytes + self.parity_bytes(body_bytes)
    }
}

/// Where a chain of records stands.
#[derive(Clone, Debug)]
pub(super) struct Chain {
    layout: Layout,
    instance: Instance,
    generation: u64,
    salt: [u8; 32],
    head: [u8; 32],
    sequence: u64,
    synced: u64,
}

/// A record header that authenticates.
#[derive(Clone, Copy, Debug)]
pub(super) struct RecordHeader {
    pub kind: u32,
    pub payload_bytes: usize,
    pub round: u64,
    pub sequence: u64,
    pub synced: u64,
}

impl Chain {
    /// A new generation: what its file begins with, and where the chain stands behind it.
    pub fn begin(
        keys: &Keys,
        instance: &Instance,
        generation: u64,
        sequence: u64,
        base: [u8; 32],
    ) -> Result<(Vec<u8>, Chain), EntropyError> {
        let salt = random()?;
        let mut header = [0; FILE_HEADER_BYTES];
        header[..8].copy_from_slice(&FILE_MAGIC);
        header[8..16].copy_from_slice(&generation.to_le_bytes());
        header[16..24].copy_from_slice(&sequence.to_le_bytes());
        header[24..56].copy_from_slice(&base);
        header[INSTANCE_AT..SALT_AT].copy_from_slice(instance.bytes());
        header[SALT_AT..FILE_TAG_AT].copy_from_slice(&salt);
        let tag = code(&keys.file, &salt, &header[..FILE_TAG_AT]);
        header[FILE_TAG_AT..].copy_from_slice(&tag);
        let chain = Chain::behind(&header, Layout::Redundant);
        Ok((header.repeat(chain.layout.header_copies()), chain))
    }

    /// The generation that `header` begins, and the head of the one before; none if the header is
    /// not one that the keys made.
    pub fn parse(keys: &Keys, header: &[u8; FILE_HEADER_BYTES]) -> Option<(Chain, [u8; 32])> {
        let (salt, tag) = (array(header, SALT_AT), array(header, FILE_TAG_AT));
        let layout = match array(header, 0) {
            FILE_MAGIC => Layout::Redundant,
            PLAIN_MAGIC => Layout::Plain,
            _ => return None,
        };
        let sound = is_code(&keys.file, &salt, &header[..FILE_TAG_AT], &tag);
        sound.then(|| (Chain::behind(header, layout), array(header, 24)))
    }

    fn behind(header: &[u8; FILE_HEADER_BYTES], layout: Layout) -> Chain {
        let sequence = u64::from_le_bytes(array(header, 16));
        Chain {
            layout,
            generation: u64::from_le_bytes(array(header, 8)),
            instance: Instance::from_bytes(array(header, INSTANCE_AT)),
            salt: array(header, SALT_AT),
            head: *blake3::hash(header).as_bytes(),
            sequence,
            synced: sequence,
        }
    }

    /// The bytes of a record, and where the chain stands with it.
    pub fn seal(&self, keys: &Keys, entry: Entry<'_>) -> Result<(Vec<u8>, Chain), JournalError> {
        let payload_bytes = entry.payload.len();
        if payload_bytes > PAYLOAD_BYTES_MAX {
            return Err(JournalError::TooLong { payload_bytes });
        }
        let nonce = random()?;
        let mut bytes = Vec::with_capacity(self.layout.record_bytes(payload_bytes));
        bytes.extend(RECORD_MAGIC);
        bytes.extend(entry.kind.to_le_bytes());
        // At most PAYLOAD_BYTES_MAX.
        bytes.extend((payload_bytes as u32).to_le_bytes());
        bytes.extend(entry.round.to_le_bytes());
        bytes.extend(self.sequence.to_le_bytes());
        bytes.extend(self.synced.to_le_bytes());
        bytes.extend(nonce);
        let tag = code(&keys.header, &nonce, &self.header_data(&bytes));
        bytes.extend(tag);
        let data = self.payload_data(&bytes);
        if self.layout == Layout::Redundant {
            bytes.extend_from_within(..);
        }
        let body_at = bytes.len();
        bytes.extend(entry.payload);
        let tag = keys.payload.seal_in_place(&nonce, &data, &mut bytes[body_at..]);
        bytes.extend(tag);
        if self.layout == Layout::Redundant {
            let parity = parity(&bytes[body_at..]);
            bytes.extend(parity);
        }
        let next = self.next(&bytes[..RECORD_HEADER_BYTES], &tag);
        Ok((bytes, next))
    }

    /// What a record's header says; none if it is none of this generation's.
    pub fn parse_header(
        &self,
        keys: &Keys,
        header: &[u8; RECORD_HEADER_BYTES],
    ) -> Option<RecordHeader> {
        let data = self.header_data(&header[..HEADER_TAG_AT]);
        let tag = array(header, HEADER_TAG_AT);
        let sound = header[..4] == RECORD_MAGIC
            && is_code(&keys.header, &array(header, NONCE_AT), &data, &tag);
        sound.then(|| RecordHeader {
            kind: u32::from_le_bytes(array(header, 4)),
            payload_bytes: u32::from_le_bytes(array(header, 8)) as usize,
            round: u64::from_le_bytes(array(header, 12)),
            sequence: u64::from_le_bytes(array(header, 20)),
            synced: u64::from_le_bytes(array(header, 28)),
        })
    }

    /// Opens the payload of the record with this header (`parsed` from it), and returns it and where
    /// the chain stands then; none if it is not what was sealed here.
    pub fn open(
        &self,
        keys: &Keys,
        header: &[u8; RECORD_HEADER_BYTES],
        parsed: RecordHeader,
        mut payload: Zeroizing<Vec<u8>>,
        tag: &[u8; TAG_BYTES],
    ) -> Option<(Record, Chain)> {
        if parsed.sequence != self.sequence {
            return None;
        }
        let (nonce, data) = (array(header, NONCE_AT), self.payload_data(header));
        keys.payload.open_in_place(&nonce, &data, &mut payload, tag).ok()?;
        let next = self.next(header, tag);
        let RecordHeader { kind, round, sequence, .. } = parsed;
        Some((Record { kind, round, sequence, head: next.head, payload }, next))
    }

    /// Notes that all records so far are durable.
    pub fn note_synced(&mut self) {
        self.synced = self.sequence;
    }

    pub fn layout(&self) -> Layout {
        self.layout
    }

    pub fn instance(&self) -> &Instance {
        &self.instance
    }

    pub fn generation(&self) -> u64 {
        self.generation
    }

    pub fn sequence(&self) -> u64 {
        self.sequence
    }

    pub fn head(&self) -> [u8; 32] {
        self.head
    }

    fn next(&self, header: &[u8], tag: &[u8; TAG_BYTES]) -> Chain {
        let mut hasher = blake3::Hasher::new();
        hasher.update(&self.head).update(header).update(tag);
        let head = *hasher.finalize().as_bytes();
        Chain { head, sequence: self.sequence + 1, ..self.clone() }
    }

    /// What a record header's tag covers: with the salt, so that what an earlier file left on the
    /// disk is not taken for this one's.
    fn header_data(&self, fields: &[u8]) -> Vec<u8> {
        [&self.salt, fields].concat()
    }

    fn payload_data(&self, header: &[u8]) -> Vec<u8> {
        [&self.head, header].concat()
    }
}

/// An authentication code: the tag of sealing nothing.
fn code(key: &Key, nonce: &[u8; NONCE_BYTES], data: &[u8]) -> [u8; TAG_BYTES] {
    key.seal_in_place(nonce, data, &mut [])
}

fn is_code(key: &Key, nonce: &[u8; NONCE_BYTES], data: &[u8], tag: &[u8; TAG_BYTES]) -> bool {
    key.open_in_place(nonce, data, &mut [], tag).is_ok()
}

/// A random nonce: never the same twice, also not when a torn record is written again.
pub(super) fn random() -> Result<[u8; NONCE_BYTES], EntropyError> {
    let mut nonce = [0; NONCE_BYTES];
    fill_random(&mut nonce)?;
    Ok(nonce)
}

/// `N` bytes of `bytes` from `at` on, which are there.
pub(super) fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N].try_into().expect("as many bytes as were cut")
}
