//! The rules of the house, as functions over text: each returns what breaks it, one line a finding.
//!
//! `tests/house.rs` runs them over the repository; the tests beside each rule plant a breach and
//! ask that it is found. Nothing here is shipped.
#![forbid(unsafe_code)]

pub mod arrows;
pub mod circles;
pub mod files;
pub mod links;
pub mod seam;
pub mod words;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

/// The root of the repository that this crate was compiled in.
pub fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).ancestors().nth(2).expect("two folders up").to_owned()
}

/// Every file of the repository, relative to `root`, in order, what builds and runs leave behind
/// left out.
///
/// # Errors
/// A folder that cannot be read.
pub fn walk(root: &Path) -> io::Result<Vec<PathBuf>> {
    let mut files = Vec::new();
    let mut folders = vec![PathBuf::new()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root.join(&folder))? {
            let entry = entry?;
            let name = entry.file_name();
            let path = folder.join(&name);
            let kind = entry.file_type()?;
            if kind.is_dir() && !is_left_behind(&path) {
                folders.push(path);
            } else if kind.is_file() {
                files.push(path);
            }
        }
    }
    files.sort();
    Ok(files)
}

/// Whether a folder is made by tools and ignored by git (see .gitignore).
fn is_left_behind(folder: &Path) -> bool {
    const ANYWHERE: [&str; 7] = [
        ".git",
        "__pycache__",
        "node_modules",
        "target",
        ".mypy_cache",
        ".pytest_cache",
        ".ruff_cache",
    ];
    const AT: [&str; 7] =
        [".venv", ".whl", "build", "dist", "site", "fuzz/artifacts", "fuzz/corpus"];
    let name = folder.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    ANYWHERE.contains(&name) || AT.iter().any(|at| folder == Path::new(at))
}

/// The text of a file, or None where it is not UTF-8.
///
/// # Errors
/// A file that cannot be read.
pub fn read(root: &Path, file: &Path) -> io::Result<Option<String>> {
    Ok(String::from_utf8(fs::read(root.join(file))?).ok())
}
