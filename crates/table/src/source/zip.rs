//! The directory of a zip archive whose entries are stored, not compressed: what torch writes.
//!
//! Layout: APPNOTE.TXT 6.3.10, sections 4.3.7 (local header), 4.3.12 (central directory),
//! 4.3.14 to 4.3.16 (its end, 64-bit and 32-bit), 4.5.3 (64-bit sizes).

use std::collections::HashMap;

use super::SourceError;
use super::read_at::ReadAt;

const END: u32 = 0x0605_4b50;
const END_BYTES: u64 = 22;
const COMMENT_BYTES_MAX: u64 = 65_535;
const LOCATOR: u32 = 0x0706_4b50;
const LOCATOR_BYTES: u64 = 20;
const END64: u32 = 0x0606_4b50;
const END64_BYTES: u64 = 56;
const CENTRAL: u32 = 0x0201_4b50;
const CENTRAL_BYTES: usize = 46;
const LOCAL: u32 = 0x0403_4b50;
const LOCAL_BYTES: u64 = 30;
const SIZES_64: u16 = 1;

/// A state dict of 100,000 tensors has a directory of about 10 MiB.
const DIRECTORY_BYTES_MAX: u64 = 16 << 20;

/// What is wrong with a zip archive.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ZipError {
    /// An entry is compressed or encrypted.
    #[error(
        "entry {name:?} of the zip archive is compressed or encrypted (method {method}); torch.save and numpy.savez write plain ones: save the model again"
    )]
    Compressed {
        /// Its name.
        name: String,
        /// The compression method.
        method: u16,
    },
    /// The directory is larger than any model's.
    #[error(
        "the zip directory says it is {byte_count} bytes long; at most {DIRECTORY_BYTES_MAX} are read"
    )]
    DirectoryLength {
        /// What the file says.
        byte_count: u64,
    },
    /// A record is not where the archive says it is.
    #[error(
        "the zip archive has no {record} at byte {offset}; the file is truncated or damaged, fetch it again"
    )]
    Record {
        /// Which record.
        record: &'static str,
        /// Where it should be.
        offset: u64,
    },
}

/// One stored entry.
#[derive(Clone, Debug)]
struct Member {
    method: u16,
    encrypted: bool,
    byte_count: u64,
    local_offset: u64,
}

/// The entries of an archive, by name.
#[derive(Debug)]
pub(super) struct Archive(HashMap<String, Member>);

impl Archive {
    /// Reads the directory.
    pub(super) fn read(file: &impl ReadAt) -> Result<Self, SourceError> {
        let (offset, byte_count) = find_directory(file)?;
        if byte_count > DIRECTORY_BYTES_MAX {
            return Err(ZipError::DirectoryLength { byte_count }.into());
        }
        let directory = file.read_vec(offset, byte_count)?;
        let mut members = HashMap::new();
        let mut rest = &directory[..];
        while !rest.is_empty() {
            let at = offset + (directory.len() - rest.len()) as u64;
            let wrong = || ZipError::Record { record: "directory entry", offset: at };
            let (name, member, after) = parse_central(rest).ok_or_else(wrong)?;
            members.insert(name, member);
            rest = after;
        }
        Ok(Self(members))
    }

    pub(super) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }

    /// Where an entry's bytes are: offset and count, within the file. `None` if it is not there.
    pub(super) fn locate(
        &self,
        file: &impl ReadAt,
        name: &str,
    ) -> Result<Option<(u64, u64)>, SourceError> {
        let Some(member) = self.0.get(name) else { return Ok(None) };
        if member.method != 0 || member.encrypted {
            let name = name.chars().take(256).collect();
            return Err(ZipError::Compressed { name, method: member.method }.into());
        }
        let head = file.read_vec(member.local_offset, LOCAL_BYTES)?;
        if u32_at(&head, 0) != Some(LOCAL) {
            let offset = member.local_offset;
            return Err(ZipError::Record { record: "local header", offset }.into());
        }
        // The local header has its own name and padding: torch aligns the bytes that follow.
        let skipped = [26, 28].iter().map(|at| u64::from(u16_at(&head, *at).unwrap_or(0)));
        let offset = member.local_offset + LOCAL_BYTES + skipped.sum::<u64>();
        let expected = offset.saturating_add(member.byte_count);
        if expected > file.size() {
            return Err(SourceError::Truncated { expected, found: file.size() });
        }
        Ok(Some((offset, member.byte_count)))
    }
}

/// Offset and size of the central directory.
fn find_directory(file: &impl ReadAt) -> Result<(u64, u64), SourceError> {
    let tail_bytes = file.size().min(END_BYTES + COMMENT_BYTES_MAX);
    let tail_offset = file.size() - tail_bytes;
    let tail = file.read_vec(tail_offset, tail_bytes)?;
    let missing = || ZipError::Record { record: "end of directory", offset: tail_offset };
    let at = (0..tail.len().saturating_sub(END_BYTES as usize - 1))
        .rev()
        .find(|at| {
            // A comment may hold the mark; the real record says how long the comment after it is.
            let comment_bytes = tail.len() - at - END_BYTES as usize;
            u32_at(&tail, *at) == Some(END)
                && u16_at(&tail, at + 20).map(usize::from) == Some(comment_bytes)
        })
        .ok_or_else(missing)?;
    let size = u32_at(&tail, at + 12).ok_or_else(missing)?;
    let offset = u32_at(&tail, at + 16).ok_or_else(missing)?;

    // torch always writes the 64-bit records; they hold when the 32-bit fields are full.
    let end_offset = tail_offset + at as u64;
    if (size == u32::MAX || offset == u32::MAX) && end_offset >= LOCATOR_BYTES {
        let locator_offset = end_offset - LOCATOR_BYTES;
        let locator = file.read_vec(locator_offset, LOCATOR_BYTES)?;
        if u32_at(&locator, 0) == Some(LOCATOR) {
            let end64_offset = u64_at(&locator, 8).unwrap_or(u64::MAX);
            let wrong =
                || ZipError::Record { record: "64-bit end of directory", offset: end64_offset };
            let end64 = file.read_vec(end64_offset, END64_BYTES)?;
            if u32_at(&end64, 0) != Some(END64) {
                return Err(wrong().into());
            }
            let size = u64_at(&end64, 40).ok_or_else(wrong)?;
            let offset = u64_at(&end64, 48).ok_or_else(wrong)?;
            return Ok((offset, size));
        }
    }
    Ok((u64::from(offset), u64::from(size)))
}

/// One entry of the central directory, and the bytes after it.
fn parse_central(bytes: &[u8]) -> Option<(String, Member, &[u8])> {
    if u32_at(bytes, 0)? != CENTRAL {
        return None;
    }
    let encrypted = u16_at(bytes, 8)? & 1 != 0;
    let method = u16_at(bytes, 10)?;
    let stored_bytes = u32_at(bytes, 20)?;
    let plain_bytes = u32_at(bytes, 24)?;
    let name_bytes = usize::from(u16_at(bytes, 28)?);
    let extra_bytes = usize::from(u16_at(bytes, 30)?);
    let comment_bytes = usize::from(u16_at(bytes, 32)?);
    let local_offset = u32_at(bytes, 42)?;
    let name_end = CENTRAL_BYTES + name_bytes;
    let extra_end = name_end + extra_bytes;
    let name = String::from_utf8_lossy(bytes.get(CENTRAL_BYTES..name_end)?).into_owned();
    let extra = bytes.get(name_end..extra_end)?;
    let after = bytes.get(extra_end + comment_bytes..)?;

    // Each full 32-bit field has its 64-bit value in the extra field, in this order.
    let mut wide = find_extra(extra, SIZES_64).unwrap_or_default();
    let mut widen = |narrow: u32| {
        if narrow != u32::MAX {
            return Some(u64::from(narrow));
        }
        let value = u64_at(wide, 0)?;
        wide = &wide[8..];
        Some(value)
    };
    let byte_count = widen(plain_bytes)?;
    widen(stored_bytes)?;
    let local_offset = widen(local_offset)?;
    Some((name, Member { method, encrypted, byte_count, local_offset }, after))
}

/// The extra field of that kind.
fn find_extra(mut extra: &[u8], kind: u16) -> Option<&[u8]> {
    loop {
        let end = 4 + usize::from(u16_at(extra, 2)?);
        if u16_at(extra, 0)? == kind {
            return extra.get(4..end);
        }
        extra = extra.get(end..)?;
    }
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().map(|bytes| u16::from_le_bytes(*bytes))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().map(|bytes| u64::from_le_bytes(*bytes))
}
