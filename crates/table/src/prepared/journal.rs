//! The journal: which blocks of an unfinished file are on the disk.
//!
//! A header of 64 bytes names the file that it belongs to: its header's checksum, and a nonce that
//! stands at the end of that very file, so that a journal is never taken for another run's. Then
//! come records of 40 bytes: the block, its hash, and a CRC-32 of both. What follows the first
//! record that is damaged counts as not written, so that a write that was torn costs its blocks
//! and nothing else. The writer that holds the lock on the journal is the only one at its file, but
//! for those of its parts, each of which has a journal of its own.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use super::PreparedError;
use super::blocks::{Blocks, Recorded};
use super::file::{HASH_BYTES, Hash};
use crate::staging::still_names;
use crate::system::{self, FileExt};

pub(super) const MARK: [u8; 16] = *b"hushtable-jrnl1\n";
const HEADER_BYTES: usize = 64;
const RECORD_BYTES: usize = 40;

/// A journal that is locked.
pub(super) struct Journal {
    file: File,
    path: PathBuf,
    /// Where the next record goes.
    end: u64,
}

impl Journal {
    /// Opens or makes the journal at `path` and locks it, or says that `target` is locked.
    pub(super) fn lock(path: &Path, target: &Path) -> Result<Self, PreparedError> {
        // Each failure needs another writer that finishes in the instant between open and lock.
        const ATTEMPT_COUNT_MAX: usize = 64;
        for _ in 0..ATTEMPT_COUNT_MAX {
            let mut options = OpenOptions::new();
            options.read(true).write(true).create(true).truncate(false);
            let file = system::nonblocking(&mut options)
                .open(path)
                .map_err(PreparedError::io("open", path))?;
            match file.try_lock() {
                // The writer that had the lock has finished and removed the journal.
                Ok(()) if !still_names(path, &file) => {}
                Ok(()) => return Ok(Self { file, path: path.to_owned(), end: 0 }),
                Err(TryLockError::WouldBlock) => {
                    return Err(PreparedError::Locked { path: target.to_owned() });
                }
                Err(TryLockError::Error(source)) => {
                    return Err(PreparedError::io("lock", path)(source));
                }
            }
        }
        Err(PreparedError::Locked { path: target.to_owned() })
    }

    /// Forgets all that it says, on the disk too.
    pub(super) fn clear(&mut self) -> Result<(), PreparedError> {
        let clear = || self.file.set_len(0).and_then(|()| self.file.sync_all());
        clear().map_err(PreparedError::io("clear", &self.path))
    }

    /// Makes it the empty journal of the file with this header checksum and nonce.
    pub(super) fn begin(&mut self, checksum: &Hash, nonce: u64) -> Result<(), PreparedError> {
        let header = encode_header(checksum, nonce);
        let write = || self.file.write_all_at(&header, 0).and_then(|()| self.file.sync_all());
        write().map_err(PreparedError::io("write", &self.path))?;
        self.end = HEADER_BYTES as u64;
        Ok(())
    }

    /// Reads the nonce and the blocks, of which there are `count`, if it is the journal of a file
    /// with this header checksum, and cuts off what is damaged.
    pub(super) fn resume(
        &mut self,
        checksum: &Hash,
        count: u32,
    ) -> Result<Option<(u64, Blocks)>, PreparedError> {
        let mut read = || {
            self.file.seek(SeekFrom::Start(0))?;
            let reader = BufReader::with_capacity(RECORD_BYTES << 12, &self.file);
            let Some((nonce, blocks)) = read_journal(reader, checksum, count)? else {
                return Ok(None);
            };
            self.end = HEADER_BYTES as u64 + u64::from(blocks.done_count()) * RECORD_BYTES as u64;
            self.file.set_len(self.end)?;
            Ok(Some((nonce, blocks)))
        };
        read().map_err(PreparedError::io("read", &self.path))
    }

    /// As [`resume`](Self::resume), of a journal that another writer holds, and leaves it as it is.
    pub(super) fn peek(
        path: &Path,
        checksum: &Hash,
        count: u32,
    ) -> Result<Option<(u64, Blocks)>, PreparedError> {
        let file = match File::open(path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(PreparedError::io("open", path)(error)),
        };
        let reader = BufReader::with_capacity(RECORD_BYTES << 12, file);
        read_journal(reader, checksum, count).map_err(PreparedError::io("read", path))
    }

    /// Removes its file, which nobody else can be at. One that cannot be removed says nothing of any
    /// other file, so that the next writer clears it.
    pub(super) fn remove(&self) {
        let _ = fs::remove_file(&self.path);
    }

    /// Makes every later [`append`](Self::append) fail, as a broken disk would.
    #[cfg(test)]
    pub(super) fn refuse_writes(&mut self) {
        self.file.unlock().unwrap();
        self.file = File::open(&self.path).unwrap();
    }

    /// Adds records, and returns once they are on the disk.
    pub(super) fn append(&mut self, blocks: &[(u32, Hash)]) -> Result<(), PreparedError> {
        let mut records = Vec::with_capacity(blocks.len() * RECORD_BYTES);
        for (block, hash) in blocks {
            records.extend_from_slice(&encode_record(*block, hash));
        }
        let write =
            || self.file.write_all_at(&records, self.end).and_then(|()| self.file.sync_data());
        write().map_err(PreparedError::io("write", &self.path))?;
        self.end += records.len() as u64;
        Ok(())
    }
}

impl Drop for Journal {
    fn drop(&mut self) {
        // Closing it is not enough: a process that was forked meanwhile, by this program to run
        // another say, has the lock as well until it starts that one.
        let _ = self.file.unlock();
    }
}

fn encode_header(checksum: &Hash, nonce: u64) -> [u8; HEADER_BYTES] {
    let mut header = [0; HEADER_BYTES];
    header[..16].copy_from_slice(&MARK);
    header[16..48].copy_from_slice(checksum);
    header[48..56].copy_from_slice(&nonce.to_le_bytes());
    let crc = crc32fast::hash(&header[..56]);
    header[56..60].copy_from_slice(&crc.to_le_bytes());
    header
}

fn encode_record(block: u32, hash: &Hash) -> [u8; RECORD_BYTES] {
    let mut record = [0; RECORD_BYTES];
    record[..4].copy_from_slice(&block.to_le_bytes());
    record[4..36].copy_from_slice(hash);
    let crc = crc32fast::hash(&record[..36]);
    record[36..].copy_from_slice(&crc.to_le_bytes());
    record
}

/// The nonce and the blocks up to the first damage; `None` for another file's journal. Reads no
/// more than `count` records and one, whatever there is.
fn read_journal(
    mut reader: impl Read,
    checksum: &Hash,
    count: u32,
) -> io::Result<Option<(u64, Blocks)>> {
    let mut header = [0; HEADER_BYTES];
    if !read_whole(&mut reader, &mut header)? {
        return Ok(None);
    }
    let mut nonce = [0; 8];
    nonce.copy_from_slice(&header[48..56]);
    let nonce = u64::from_le_bytes(nonce);
    if header != encode_header(checksum, nonce) {
        return Ok(None);
    }
    let mut blocks = Blocks::new(count);
    let mut record = [0; RECORD_BYTES];
    while read_whole(&mut reader, &mut record)? {
        let (mut block, mut hash) = ([0; 4], [0; HASH_BYTES]);
        block.copy_from_slice(&record[..4]);
        hash.copy_from_slice(&record[4..36]);
        let block = u32::from_le_bytes(block);
        // A block is never journalled twice, so a repetition is damage too.
        if record != encode_record(block, &hash) || blocks.restore(block, hash) != Recorded::New {
            break;
        }
    }
    Ok(Some((nonce, blocks)))
}

/// Fills `bytes`; `false` if the end comes first.
fn read_whole(reader: &mut impl Read, bytes: &mut [u8]) -> io::Result<bool> {
    match reader.read_exact(bytes) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(false),
        Err(error) => Err(error),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHECKSUM: Hash = [4; 32];

    fn journal() -> Vec<u8> {
        let mut bytes = encode_header(&CHECKSUM, 77).to_vec();
        for block in [5, 0, 9] {
            bytes.extend_from_slice(&encode_record(block, &[block as u8; 32]));
        }
        bytes
    }

    fn done(bytes: &[u8]) -> Option<Vec<u32>> {
        let (nonce, blocks) = read_journal(bytes, &CHECKSUM, 10).unwrap()?;
        assert_eq!(nonce, 77);
        let done: Vec<_> = (0..10).filter(|&block| blocks.is_done(block)).collect();
        assert!(done.iter().all(|&block| blocks.hashes()[block as usize] == [block as u8; 32]));
        Some(done)
    }

    #[test]
    fn a_lock_goes_though_a_forked_process_has_the_file_open() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("t.journal");
        let journal = Journal::lock(&path, &path).unwrap();
        let inherited = journal.file.try_clone().unwrap();
        assert!(matches!(Journal::lock(&path, &path), Err(PreparedError::Locked { .. })));
        drop(journal);
        Journal::lock(&path, &path).unwrap();
        drop(inherited);
    }

    #[test]
    fn a_torn_record_costs_itself() {
        let bytes = journal();
        for length in 0..=bytes.len() {
            let expected = match length {
                0..64 => None,
                64..104 => Some(vec![]),
                104..144 => Some(vec![5]),
                144..184 => Some(vec![0, 5]),
                _ => Some(vec![0, 5, 9]),
            };
            assert_eq!(done(&bytes[..length]), expected, "{length} bytes");
        }
    }

    #[test]
    fn a_flipped_bit_costs_its_record_and_those_after() {
        for at in 0..journal().len() {
            for bit in 0..8 {
                let mut bytes = journal();
                bytes[at] ^= 1 << bit;
                let expected = match at {
                    0..64 => None,
                    64..104 => Some(vec![]),
                    104..144 => Some(vec![5]),
                    _ => Some(vec![0, 5]),
                };
                assert_eq!(done(&bytes), expected, "byte {at}, bit {bit}");
            }
        }
    }

    #[test]
    fn records_that_cannot_be_end_the_journal() {
        for bad in [encode_record(10, &[1; 32]), encode_record(5, &[5; 32]), [0; RECORD_BYTES]] {
            let mut bytes = journal();
            bytes.extend_from_slice(&bad);
            bytes.extend_from_slice(&encode_record(1, &[1; 32]));
            assert_eq!(done(&bytes), Some(vec![0, 5, 9]));
        }
        assert!(read_journal(&journal()[..], &[5; 32], 10).unwrap().is_none(), "another file's");
    }

    #[test]
    fn an_endless_journal_is_not_read_to_its_end() {
        let records = (0..10).flat_map(|block| encode_record(block, &[block as u8; 32]));
        let bytes: Vec<u8> = encode_header(&CHECKSUM, 77).into_iter().chain(records).collect();
        let mut reader = bytes.chain(io::repeat(1));
        let (_, blocks) = read_journal(&mut reader, &CHECKSUM, 10).unwrap().unwrap();
        assert!(blocks.is_whole());
    }
}
