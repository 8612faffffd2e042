//! Reads a journal's bytes: from a disk, so not to be believed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use zeroize::Zeroizing;

use super::chain::{
    Chain, FILE_HEADER_BYTES, FILE_MAGIC, Keys, PAYLOAD_BYTES_MAX, RECORD_HEADER_BYTES,
    RECORD_MAGIC, Record,
};
use super::{DiskError, JournalError, io_error};
use crate::seal::TAG_BYTES;

/// How much is searched at a time for headers behind a record that cannot be read.
const WINDOW_BYTES: usize = 1 << 20;

/// A journal that was read.
pub(super) struct Replay {
    pub chain: Chain,
    /// Bytes of the header and the records.
    pub end: u64,
    pub file_bytes: u64,
    /// The head before this generation, behind its header, and behind each record.
    pub heads: Vec<[u8; 32]>,
}

/// Reads all records, and tells a torn end from damage. Allocates no more than the file is long.
pub(super) fn replay(
    file: &File,
    path: &Path,
    keys: &Keys,
    each: &mut dyn FnMut(Record),
) -> Result<Replay, JournalError> {
    let reader = Reader::new(file, path)?;
    let file_bytes = reader.bytes;
    let magic_bytes = FILE_MAGIC.len().min(file_bytes as usize);
    let mut magic = [0; FILE_MAGIC.len()];
    reader.read(0, &mut magic[..magic_bytes])?;
    if magic[..magic_bytes] != FILE_MAGIC[..magic_bytes] {
        return Err(JournalError::NotAJournal { path: path.to_owned() });
    }
    if file_bytes < FILE_HEADER_BYTES as u64 {
        return Err(JournalError::Unfinished { path: path.to_owned(), bytes: file_bytes });
    }
    let mut header = [0; FILE_HEADER_BYTES];
    reader.read(0, &mut header)?;
    let (mut chain, base) = Chain::parse(keys, &header)
        .ok_or_else(|| JournalError::Forged { path: path.to_owned() })?;
    let mut heads = vec![base, chain.head()];
    let mut end = FILE_HEADER_BYTES as u64;
    while let Some((record, next, record_bytes)) = reader.record(keys, &chain, end)? {
        heads.push(next.head());
        (chain, end) = (next, end + record_bytes);
        each(record);
    }
    if end < file_bytes && reader.has_later(keys, &chain, end)? {
        let sequence = chain.sequence();
        return Err(JournalError::Damaged { path: path.to_owned(), offset: end, sequence });
    }
    Ok(Replay { chain, end, file_bytes, heads })
}

struct Reader<'a> {
    file: &'a File,
    path: &'a Path,
    bytes: u64,
}

impl Reader<'_> {
    fn new<'a>(file: &'a File, path: &'a Path) -> Result<Reader<'a>, DiskError> {
        let metadata = file.metadata().map_err(io_error("look at", path))?;
        Ok(Reader { file, path, bytes: metadata.len() })
    }

    fn read(&self, at: u64, into: &mut [u8]) -> Result<(), DiskError> {
        self.file.read_exact_at(into, at).map_err(io_error("read", self.path))
    }

    /// The record at byte `at`, the chain with it, and its bytes; none if there is no whole one that
    /// goes on the chain.
    fn record(
        &self,
        keys: &Keys,
        chain: &Chain,
        at: u64,
    ) -> Result<Option<(Record, Chain, u64)>, DiskError> {
        const AROUND_BYTES: u64 = (RECORD_HEADER_BYTES + TAG_BYTES) as u64;
        let left = self.bytes - at;
        if left < AROUND_BYTES {
            return Ok(None);
        }
        let mut header = [0; RECORD_HEADER_BYTES];
        self.read(at, &mut header)?;
        let Some(parsed) = chain.parse_header(keys, &header) else { return Ok(None) };
        let payload_bytes = parsed.payload_bytes;
        // Checked before anything is allocated: no header makes this ask for more than the file has.
        if payload_bytes > PAYLOAD_BYTES_MAX || left - AROUND_BYTES < payload_bytes as u64 {
            return Ok(None);
        }
        let mut payload = Zeroizing::new(vec![0; payload_bytes]);
        let payload_at = at + RECORD_HEADER_BYTES as u64;
        self.read(payload_at, &mut payload)?;
        let mut tag = [0; TAG_BYTES];
        self.read(payload_at + payload_bytes as u64, &mut tag)?;
        let opened = chain.open(keys, &header, parsed, payload, &tag);
        Ok(opened.map(|(record, next)| (record, next, AROUND_BYTES + payload_bytes as u64)))
    }

    /// Whether somewhere from byte `at` on there is the header of a record that was written when
    /// that at which the chain stands had been durable.
    fn has_later(&self, keys: &Keys, chain: &Chain, mut at: u64) -> Result<bool, DiskError> {
        let mut window = vec![0; WINDOW_BYTES.min(self.bytes as usize)];
        while at < self.bytes && self.bytes - at >= RECORD_HEADER_BYTES as u64 {
            let window_bytes = window.len().min((self.bytes - at) as usize);
            let window = &mut window[..window_bytes];
            self.read(at, window)?;
            let later = window.windows(RECORD_HEADER_BYTES).any(|header| {
                header[..4] == RECORD_MAGIC
                    && header
                        .try_into()
                        .ok()
                        .and_then(|header| chain.parse_header(keys, header))
                        .is_some_and(|parsed| parsed.synced > chain.sequence())
            });
            if later {
                return Ok(true);
            }
            // Headers that begin in this window's last bytes are whole in the next one's first.
            at += (window_bytes - RECORD_HEADER_BYTES + 1) as u64;
        }
        Ok(false)
    }
}
