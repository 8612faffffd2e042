//! Paths of what lies in a folder, where somebody else says what it is called: a manifest, a map of shards, an index, a
//! request. What this joins stays in the folder, or is refused.

use std::borrow::Cow;
use std::io;
use std::path::{Path, PathBuf};

/// A path that would lead out of its folder, or that some system takes for another.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{path:?} is no path within a folder")]
#[non_exhaustive]
pub struct LeadsOut {
    /// The first characters of it.
    pub path: String,
}

impl LeadsOut {
    fn of(path: &str) -> Self {
        Self { path: path.chars().take(CLIPPED_CHARS).collect() }
    }
}

/// `path`, whose steps a `/` divides, below `folder`.
///
/// # Errors
/// [`LeadsOut`] for a path without steps, an absolute one, and one of over 4,096 bytes; for a step that is empty, `.` or
/// `..`, has over 255 bytes, a NUL or a backslash, or begins with a drive's letter.
pub fn join(folder: &Path, path: &str) -> Result<PathBuf, LeadsOut> {
    match path.len() <= PATH_BYTES_MAX && path.split('/').all(is_step) {
        true => Ok(folder.join(path)),
        false => Err(LeadsOut::of(path)),
    }
}

/// [`join`], for a folder whose content comes from outside too: no link on the way leads out of it either. What is not
/// there leads nowhere.
///
/// # Errors
/// As [`join`], [`io::ErrorKind::InvalidInput`] with a [`LeadsOut`]; what the system says of the folder.
pub fn join_real(folder: &Path, path: &str) -> io::Result<PathBuf> {
    let leads_out = |error: LeadsOut| io::Error::new(io::ErrorKind::InvalidInput, error);
    let joined = join(folder, path).map_err(leads_out)?;
    let real = folder.canonicalize()?;
    for place in joined.ancestors().take_while(|place| *place != folder) {
        match place.symlink_metadata() {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
            // A link to nothing is followed by whoever makes the file.
            Ok(_) if place.canonicalize().is_ok_and(|place| place.starts_with(&real)) => {}
            Ok(_) => return Err(leads_out(LeadsOut::of(path))),
        }
    }
    Ok(joined)
}

/// A name as one step of a path: itself, if it is one, else with `%` and two digits for each byte that makes it none.
/// For names that were checked before, where there is nobody to tell.
pub(crate) fn step(name: &str) -> Cow<'_, str> {
    if is_step(name) {
        return Cow::Borrowed(name);
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-_".contains(&byte);
    let mut step = String::from("%");
    for byte in name.bytes().take(STEP_BYTES_MAX / 4) {
        match plain(byte) {
            true => step.push(byte.into()),
            false => step.push_str(&format!("%{byte:02x}")),
        }
    }
    Cow::Owned(step)
}

fn is_step(step: &str) -> bool {
    let leads_elsewhere = matches!(step, "" | "." | "..") || step.contains(['/', '\\', '\0']);
    let has_drive = matches!(step.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    step.len() <= STEP_BYTES_MAX && !leads_elsewhere && !has_drive
}

const PATH_BYTES_MAX: usize = 4096;
const STEP_BYTES_MAX: usize = 255;
const CLIPPED_CHARS: usize = 64;

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::symlink;

    use proptest::prelude::*;
    use tempfile::TempDir;

    use super::*;

    #[test]
    fn what_leads_out_of_a_folder_is_refused() {
        let folder = Path::new("/srv/models");
        for path in ["a", "tables/films/rows.bin", "..a", "a..", "...", ".hidden", "ä b:c", "ab:c"]
        {
            assert_eq!(join(folder, path), Ok(folder.join(path)), "{path}");
            assert_eq!(step(path.split('/').next().unwrap()), path.split('/').next().unwrap());
        }
        let long = ["a".repeat(256), "a/".repeat(2100) + "a"];
        for path in [
            "",
            ".",
            "..",
            "/",
            "/etc/passwd",
            "../x",
            "a/../../x",
            "a/..",
            "./a",
            "a//b",
            "a/",
            "a/./b",
            "a\0b",
            "a\\b",
            "..\\x",
            "\\\\host\\share",
            "C:",
            "c:/windows",
            "a/C:\\x",
            "\0",
            &long[0],
            &long[1],
        ] {
            let error = join(folder, path).unwrap_err();
            assert!(path.starts_with(&error.path) && error.path.chars().count() <= 64, "{path:?}");
            assert!(join_real(folder, path).is_err(), "{path:?}");
            assert!(is_step(&step(path)), "{path:?}");
        }
        assert_ne!(step(".."), step("."));
    }

    #[test]
    fn a_link_that_leads_out_of_its_folder_is_refused() {
        let root = TempDir::new().unwrap();
        let folder = root.path().join("pushed");
        fs::create_dir_all(folder.join("tables")).unwrap();
        fs::create_dir(root.path().join("else")).unwrap();
        fs::write(root.path().join("else/secret"), "").unwrap();
        symlink("../else", folder.join("out")).unwrap();
        symlink("../else/secret", folder.join("file")).unwrap();
        symlink("/nowhere", folder.join("nothing")).unwrap();
        symlink("tables", folder.join("in")).unwrap();
        for path in ["tables", "tables/new", "new", "new/er", "in", "in/new"] {
            assert_eq!(join_real(&folder, path).unwrap(), folder.join(path), "{path}");
        }
        for path in ["out", "out/secret", "out/new/er", "file", "nothing", "nothing/new"] {
            let error = join_real(&folder, path).unwrap_err();
            assert_eq!(error.kind(), io::ErrorKind::InvalidInput, "{path}: {error}");
        }
        // A folder may be reached by a link: it is what it holds that counts.
        symlink(&folder, root.path().join("link")).unwrap();
        assert!(join_real(&root.path().join("link"), "tables/new").is_ok());
        assert!(join_real(&root.path().join("link"), "out/secret").is_err());
        assert!(join_real(&root.path().join("none"), "a").is_err());
    }

    proptest! {
        #[test]
        fn whatever_is_joined_stays_below_its_folder(path in "(\\.\\.|[./\\\\a:C]|\u{0}|ä){0,12}") {
            let folder = Path::new("/srv/models");
            let below = |joined: &Path| joined.strip_prefix(folder).is_ok_and(|rest| {
                rest.components().count() > 0
                    && rest.components().all(|part| matches!(part, std::path::Component::Normal(_)))
            });
            if let Ok(joined) = join(folder, &path) {
                prop_assert!(below(&joined));
            }
            prop_assert!(below(&folder.join(&*step(&path))));
            prop_assert!(is_step(&step(&path)));
        }
    }
}
