//! The rules of the house, as functions over text: each returns what breaks it, one line a finding.
//!
//! `tests/it/house.rs` runs them over the repository; the tests beside each rule plant a breach and
//! ask that it is found. Nothing here is shipped.
#![forbid(unsafe_code)]

pub mod arrows;
pub mod circles;
pub mod files;
pub mod imports;
pub mod links;
pub mod paths;
pub mod seam;
pub mod words;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The root of the repository that this crate was compiled in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders up").to_owned()
}

/// Every file of the repository, relative to `root`, in order, what git ignores left out.
///
/// # Errors
/// A folder that cannot be read.
pub fn walk(root: &Path) -> io::Result<Vec<PathBuf>> {
    let ignored = Ignored::of(&fs::read_to_string(root.join(".gitignore"))?);
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name();
            let path = folder.join(&name);
            let kind = entry.file_type()?;
            if kind.is_dir() && !ignored.has(&path) {
                folders.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// The folders that git ignores: `/build/` is one place, `target/` any folder of that name.
struct Ignored {
    places: Vec<PathBuf>,
    names: Vec<String>,
}

impl Ignored {
    /// Of what .gitignore says. Its lines of files are of no folder, and passed over.
    fn of(gitignore: &str) -> Self {
        let folders = gitignore.lines().filter_map(|line| line.trim().strip_suffix('/'));
        let (places, names): (Vec<_>, Vec<_>) = folders.partition(|line| line.starts_with('/'));
        Self {
            places: places.iter().map(|place| PathBuf::from(&place[1..])).collect(),
            names: names.into_iter().chain([".git", "node_modules"]).map(str::to_owned).collect(),
        }
    }

    fn has(&self, folder: &Path) -> bool {
        let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        self.names.iter().any(|ignored| ignored == name)
            || self.places.iter().any(|place| place == folder)
    }
}

/// The text of a file, or None where it is not UTF-8.
///
/// # Errors
/// A file that cannot be read.
pub fn read(root: &Path, file: &Path) -> io::Result<Option<String>> {
    Ok(String::from_utf8(fs::read(root.join(file))?).ok())
}

#[cfg(test)]
mod tests {
    use super::{Ignored, Path};

    #[test]
    fn what_git_ignores_is_no_file_of_ours() {
        let ignored = Ignored::of("/build/\n/bench/peers/spu/venv/\n__pycache__/\n*.so\n");
        for folder in ["build", "bench/peers/spu/venv", "python/tests/__pycache__", ".git"] {
            assert!(ignored.has(Path::new(folder)), "{folder}");
        }
        for folder in ["crates/build", "bench/peers/spu", "python", "fuzz"] {
            assert!(!ignored.has(Path::new(folder)), "{folder}");
        }
    }
}
