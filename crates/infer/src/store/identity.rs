//! What tells a file from a copy of it: its number in its file system, and when it was made.
//!
//! Both stay as they are when the file is renamed and when its volume is mounted elsewhere, on another machine say. A copy
//! has others, and so has a file that is put back from a backup. A device's number is no part of it, for it changes with
//! each mount; nor is the number of a boot.

use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::time::UNIX_EPOCH;

/// One file's.
pub(super) type Identity = [u8; IDENTITY_BYTES];
pub(super) const IDENTITY_BYTES: usize = 24;

/// The identity of an open file.
pub(super) fn identity(file: &File) -> io::Result<Identity> {
    let found = file.metadata()?;
    // Zero where the file system does not keep it.
    let born = found.created().ok().and_then(|born| born.duration_since(UNIX_EPOCH).ok());
    let born = born.map_or(0, |born| born.as_nanos());
    let mut identity = [0; IDENTITY_BYTES];
    identity[..8].copy_from_slice(&found.ino().to_le_bytes());
    identity[8..].copy_from_slice(&born.to_le_bytes());
    Ok(identity)
}
