//! Reads a journal's bytes: from a disk, so not to be believed.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use zeroize::Zeroizing;

use super::chain::{
    Chain, FILE_HEADER_BYTES, FILE_MAGIC, Keys, PAYLOAD_BYTES_MAX, PLAIN_MAGIC,
    RECORD_HEADER_BYTES, RECORD_MAGIC, Record,
};
use super::parity::mend;
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
    /// Records, and the header, that were damaged and are read by what is there of them twice.
    pub mended: u64,
}

/// A record that was read.
pub(super) struct Read {
    pub record: Record,
    /// Where the chain stands with it.
    pub chain: Chain,
    /// Its bytes in the file.
    pub bytes: u64,
    /// It was damaged, and is whole again.
    pub is_mended: bool,
}

/// Reads all records, and tells a torn end from damage. Allocates no more than the file is long.
pub(super) fn replay(
    file: &File,
    path: &Path,
    keys: &Keys,
    each: &mut dyn FnMut(Record),
) -> Result<Replay, JournalError> {
    match replay_to_damage(file, path, keys, each)? {
        (replay, None) => Ok(replay),
        (_, Some((offset, sequence))) => {
            Err(JournalError::Damaged { path: path.to_owned(), offset, sequence })
        }
    }
}

/// As [`replay`], and how far it came: the byte and the number of the first record that is damaged.
pub(super) fn replay_to_damage(
    file: &File,
    path: &Path,
    keys: &Keys,
    each: &mut dyn FnMut(Record),
) -> Result<(Replay, Option<(u64, u64)>), JournalError> {
    let reader = Reader::new(file, path)?;
    let file_bytes = reader.bytes;
    let magics = [FILE_MAGIC, PLAIN_MAGIC];
    // Either copy of the header will do: a damaged one is no reason to doubt the other.
    let mut begins_as_one = false;
    let mut begun = None;
    for at in [0, FILE_HEADER_BYTES as u64] {
        let left = file_bytes.saturating_sub(at);
        let mut header = [0; FILE_HEADER_BYTES];
        let header_bytes = FILE_HEADER_BYTES.min(left as usize);
        reader.read(at, &mut header[..header_bytes])?;
        let magic_bytes = FILE_MAGIC.len().min(header_bytes);
        begins_as_one |= magics.iter().any(|magic| header[..magic_bytes] == magic[..magic_bytes])
            && left > 0
            || file_bytes == 0;
        if header_bytes == FILE_HEADER_BYTES && begun.is_none() {
            begun = Chain::parse(keys, &header).map(|parsed| (parsed, at > 0));
        }
    }
    let Some(((mut chain, base), is_mended)) = begun else {
        return Err(match (begins_as_one, file_bytes < 2 * FILE_HEADER_BYTES as u64) {
            (false, _) => JournalError::NotAJournal { path: path.to_owned() },
            (true, true) => JournalError::Unfinished { path: path.to_owned(), bytes: file_bytes },
            (true, false) => JournalError::Forged { path: path.to_owned() },
        });
    };
    if file_bytes < chain.layout().file_header_bytes() as u64 {
        return Err(JournalError::Unfinished { path: path.to_owned(), bytes: file_bytes });
    }
    let mut mended = u64::from(is_mended);
    let mut heads = vec![base, chain.head()];
    let mut end = chain.layout().file_header_bytes() as u64;
    while let Some(read) = reader.record(keys, &chain, end)? {
        heads.push(read.chain.head());
        (chain, end) = (read.chain, end + read.bytes);
        mended += u64::from(read.is_mended);
        each(read.record);
    }
    let is_damaged = end < file_bytes && reader.has_later(keys, &chain, end)?;
    let damage = is_damaged.then(|| (end, chain.sequence()));
    Ok((Replay { chain, end, file_bytes, heads, mended }, damage))
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

    /// The record at byte `at`; none if there is no whole one that goes on the chain, and none that
    /// can be mended.
    pub fn record(&self, keys: &Keys, chain: &Chain, at: u64) -> Result<Option<Read>, DiskError> {
        let layout = chain.layout();
        let left = self.bytes - at;
        let around_bytes = layout.record_bytes(0) as u64 - layout.parity_bytes(TAG_BYTES) as u64;
        if left < around_bytes {
            return Ok(None);
        }
        let mut parsed = None;
        for copy in 0..layout.header_copies() {
            let mut header = [0; RECORD_HEADER_BYTES];
            self.read(at + (copy * RECORD_HEADER_BYTES) as u64, &mut header)?;
            // Of the next record only: what follows it may begin with a header, too.
            let own = chain.parse_header(keys, &header);
            if let Some(own) = own.filter(|own| own.sequence == chain.sequence()) {
                parsed = Some((header, own, copy > 0));
                break;
            }
        }
        let Some((header, parsed, is_header_mended)) = parsed else { return Ok(None) };
        let payload_bytes = parsed.payload_bytes;
        // Checked before anything is allocated: no header makes this ask for more than the file has.
        if payload_bytes > PAYLOAD_BYTES_MAX || left - around_bytes < payload_bytes as u64 {
            return Ok(None);
        }
        let body_bytes = payload_bytes + TAG_BYTES;
        let body_at = at + (layout.header_copies() * RECORD_HEADER_BYTES) as u64;
        let mut body = Zeroizing::new(vec![0; body_bytes]);
        self.read(body_at, &mut body)?;
        let bytes = layout.record_bytes(payload_bytes) as u64;
        let open = |body: &[u8]| {
            let (payload, tag) = body.split_at(payload_bytes);
            let tag = tag.try_into().expect("a tag behind the payload");
            chain.open(keys, &header, parsed, Zeroizing::new(payload.to_vec()), tag)
        };
        let mut is_mended = is_header_mended;
        let mut opened = open(&body);
        // A record whose end a crash cut off is torn, even if no more than parity is missing.
        if left < bytes {
            return Ok(None);
        }
        if opened.is_none() && layout.parity_bytes(body_bytes) > 0 {
            let mut parity = vec![0; layout.parity_bytes(body_bytes)];
            self.read(body_at + body_bytes as u64, &mut parity)?;
            is_mended |= mend(&mut body, &parity, &mut |body| {
                opened = open(body);
                opened.is_some()
            });
        }
        Ok(opened.map(|(record, chain)| Read { record, chain, bytes, is_mended }))
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
