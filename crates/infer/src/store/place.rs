//! Where ledgers are: outside of the folders that they speak for.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

/// Where the ledger of a folder is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "there is a place by default, and those that are named")]
pub enum LedgerPlace {
    /// Where this machine keeps its state: `hushtable/ledgers` in `$STATE_DIRECTORY` (systemd's), `$XDG_STATE_HOME`,
    /// `~/.local/state` or `/var/lib`, whichever of these there is first. Such a ledger is this machine's: another machine,
    /// which a copy of the disk was started on, takes nothing by it.
    #[default]
    Machine,
    /// In a folder, which should be on storage that is not put back together with the precomputes.
    Folder(PathBuf),
}

impl From<Option<PathBuf>> for LedgerPlace {
    fn from(folder: Option<PathBuf>) -> Self {
        folder.map_or(Self::Machine, Self::Folder)
    }
}

impl LedgerPlace {
    /// The folder.
    pub(super) fn folder(&self) -> PathBuf {
        match self {
            Self::Machine => state_folder(|name| std::env::var_os(name)).join("hushtable/ledgers"),
            Self::Folder(folder) => folder.clone(),
        }
    }

    /// The machine that the ledger belongs to, as nobody can tell without the key; zeros for any.
    pub(super) fn machine(&self, store_key: &[u8; 32]) -> [u8; 32] {
        let id = match self {
            Self::Machine => fs::read("/etc/machine-id").unwrap_or_default(),
            // Who names the place says that it is the right one, whichever container looks there.
            Self::Folder(_) => Vec::new(),
        };
        match id.trim_ascii() {
            [] => [0; 32],
            id => blake3::keyed_hash(store_key, id).into(),
        }
    }
}

/// The first folder of this machine's state that the variables name; none of them names a relative one.
fn state_folder(variable: impl Fn(&str) -> Option<OsString>) -> PathBuf {
    let named = |name: &str| {
        // systemd's is a list where a service has several.
        let value = variable(name)?.into_string().ok()?;
        let first = value.split(':').next().map(PathBuf::from)?;
        first.is_absolute().then_some(first)
    };
    let of_user = || named("HOME").map(|home| home.join(".local/state"));
    let found = named("STATE_DIRECTORY").or_else(|| named("XDG_STATE_HOME")).or_else(of_user);
    found.unwrap_or_else(|| Path::new("/var/lib").to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_where_the_machine_keeps_it() {
        let found = |given: &[(&str, &str)]| {
            let variable = |name: &str| {
                given.iter().find(|(own, _)| *own == name).map(|(_, value)| value.into())
            };
            state_folder(variable).to_str().unwrap().to_owned()
        };
        let (home, state) = (("HOME", "/home/a"), ("XDG_STATE_HOME", "/state"));
        assert_eq!(found(&[]), "/var/lib");
        assert_eq!(found(&[("HOME", "")]), "/var/lib");
        assert_eq!(found(&[home]), "/home/a/.local/state");
        assert_eq!(found(&[home, state]), "/state");
        assert_eq!(found(&[home, ("XDG_STATE_HOME", "here")]), "/home/a/.local/state");
        assert_eq!(found(&[state, ("STATE_DIRECTORY", "/var/lib/a:/var/lib/b")]), "/var/lib/a");
    }
}
