//! NumPy's `.npz`: a zip archive of `.npy` files.

use super::SourceError;
use super::files::Window;
use super::npy::{self, NpyError};
use super::read_at::ReadAt;
use super::tensor::Entry;
use super::zip::Archive;

const ARRAY_COUNT_MAX: usize = 65_536;
const NAME_BYTES_MAX: usize = 1_024;

/// Lists the arrays of a `.npz` file, by name.
pub(super) fn read_entries(file: &impl ReadAt) -> Result<Vec<Entry>, SourceError> {
    let archive = Archive::read(file)?;
    let mut names: Vec<&str> = archive.names().filter(|name| name.ends_with(".npy")).collect();
    if names.len() > ARRAY_COUNT_MAX {
        return Err(SourceError::TooManyTensors { tensor_count_max: ARRAY_COUNT_MAX });
    }
    names.sort_unstable();
    let mut entries = Vec::new();
    for member in names.into_iter().filter(|name| name.len() <= NAME_BYTES_MAX) {
        let Some((offset, byte_count)) = archive.locate(file, member)? else { continue };
        let window = Window::new(file, offset, byte_count)?;
        let mut entry = match npy::read_array(&window) {
            Ok((entry, _)) => entry,
            // Listed, but never read: texts and objects beside a table are no fault of the table.
            Err(SourceError::Npy(NpyError::Descr { descr } | NpyError::BigEndian { descr })) => {
                Entry::unread(descr)
            }
            Err(error) => return Err(error),
        };
        entry.offset += offset;
        member.trim_end_matches(".npy").clone_into(&mut entry.info.name);
        entries.push(entry);
    }
    Ok(entries)
}
