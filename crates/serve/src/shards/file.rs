//! `shards.toml`: where the servers of each shard are.

use std::path::{Path, PathBuf};
use std::time::Duration;
use std::{fs, io};

use hushtable_table::model::{REPLICA_COUNT_MAX, SHARD_COUNT_MAX};
use serde::Deserialize;

use super::{Owner, ShardError, shard_name};
use crate::{EndpointSpec, Error, Identity};

/// What the file says.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FleetFile {
    /// PEM file: what signs shards' certificates.
    pub ca: Option<PathBuf>,
    /// PEM files: this front's own certificate, and its key.
    pub cert: Option<PathBuf>,
    pub key: Option<PathBuf>,
    /// Of 1,000 parts of passes, how many may be asked a second time because they are late.
    #[serde(default = "default_hedge_per_mille")]
    pub hedge_per_mille: u32,
    /// How long one shard's part of a pass may take, in milliseconds.
    #[serde(default = "default_pass_ms_max")]
    pub pass_ms_max: u64,
    /// How long the start waits for shards, in seconds.
    #[serde(default = "default_start_s_max")]
    pub start_s_max: u64,
    /// How long a change of versions waits for the last servers of a shard that has one ready, in seconds.
    #[serde(default = "default_change_s_max")]
    pub change_s_max: u64,
    /// Each shard's servers, in the shards' order.
    #[serde(default)]
    pub shard: Vec<ShardServers>,
}

/// The servers of one shard.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct ShardServers {
    /// Their URLs.
    pub replicas: Vec<String>,
}

impl FleetFile {
    /// Reads the file at `path`, and checks it.
    pub fn read(path: &Path) -> Result<Self, Error> {
        let bad = |reason: String| ShardError::File { path: path.to_owned(), reason };
        if fs::metadata(path).is_ok_and(|about| about.len() > FILE_BYTES_MAX) {
            return Err(bad("it is over 16 MiB long: that is no file of shards".into()).into());
        }
        let text = fs::read_to_string(path).map_err(|source| {
            let what = format!("read {}", path.display());
            match source.kind() {
                io::ErrorKind::InvalidData => bad("it is no text".into()).into(),
                _ => Error::Io { what, source },
            }
        })?;
        let mut file: Self =
            toml::from_str(text.trim_start_matches('\u{feff}')).map_err(|error| {
                bad(format!(
                    "{error}; write a [[shard]] with replicas = [\"https://host:port\"] for each"
                ))
            })?;
        file.check().map_err(bad)?;
        let folder = path.parent().unwrap_or(Path::new("."));
        for place in [&mut file.ca, &mut file.cert, &mut file.key].into_iter().flatten() {
            *place = folder.join(&*place);
        }
        Ok(file)
    }

    fn check(&self) -> Result<(), String> {
        if self.shard.is_empty() || self.shard.len() > SHARD_COUNT_MAX {
            let found = self.shard.len();
            return Err(format!("it has {found} shards, but must have 1 to {SHARD_COUNT_MAX}"));
        }
        if self.cert.is_some() != self.key.is_some() {
            return Err("cert and key go together: give both, or neither".into());
        }
        if self.hedge_per_mille > 1000 {
            return Err(format!("hedge_per_mille is {}, but at most 1000", self.hedge_per_mille));
        }
        for (name, value, max) in [
            ("pass_ms_max", self.pass_ms_max, 3_600_000),
            ("start_s_max", self.start_s_max, 86_400),
            ("change_s_max", self.change_s_max, 86_400),
        ] {
            if !(1..=max).contains(&value) {
                return Err(format!("{name} is {value}, but must be 1 to {max}"));
            }
        }
        let mut seen = Vec::new();
        for (number, ShardServers { replicas }) in self.shard.iter().enumerate() {
            if replicas.is_empty() || replicas.len() > REPLICA_COUNT_MAX {
                let found = replicas.len();
                return Err(format!(
                    "shard {number} has {found} replicas, but must have 1 to {REPLICA_COUNT_MAX}"
                ));
            }
            for url in replicas {
                if let Some((other, _)) = seen.iter().find(|(_, known)| *known == url) {
                    return Err(format!("{url} is there twice, for shards {other} and {number}"));
                }
                seen.push((number, url));
            }
        }
        Ok(())
    }

    /// How the server at `url` is reached: one that proves to be a shard of `owner`.
    pub fn endpoint(&self, url: &str, owner: Owner) -> Result<EndpointSpec, Error> {
        let read = |path: &PathBuf| {
            let what = || format!("read {}", path.display());
            fs::read(path).map_err(|source| Error::Io { what: what(), source })
        };
        let identity = match (&self.cert, &self.key) {
            (Some(cert), Some(key)) => {
                Some(Identity { cert_pem: read(cert)?, key_pem: read(key)? })
            }
            _ => None,
        };
        Ok(EndpointSpec {
            domain: Some(shard_name(owner)),
            identity,
            ..EndpointSpec::new(url, self.ca.as_ref().map(read).transpose()?)
        })
    }

    /// How long one shard's part of a pass may take.
    pub fn pass_max(&self) -> Duration {
        Duration::from_millis(self.pass_ms_max)
    }
}

fn default_hedge_per_mille() -> u32 {
    50
}

fn default_pass_ms_max() -> u64 {
    30_000
}

fn default_start_s_max() -> u64 {
    600
}

fn default_change_s_max() -> u64 {
    60
}

const FILE_BYTES_MAX: u64 = 16 << 20;

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<FleetFile, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("shards.toml");
        fs::write(&path, text).unwrap();
        FleetFile::read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn a_file_names_the_servers_of_each_shard() {
        let file = read(
            "ca = \"ca.pem\"\n[[shard]]\nreplicas = [\"https://a:1\", \"https://b:1\"]\n\
             [[shard]]\nreplicas = [\"https://c:1\"]\n",
        )
        .unwrap();
        assert_eq!(file.shard.len(), 2);
        assert_eq!(file.shard[0].replicas, ["https://a:1", "https://b:1"]);
        assert_eq!(file.hedge_per_mille, 50);
        assert!(file.ca.unwrap().is_absolute(), "beside the file");
    }

    #[test]
    fn each_defect_of_a_file_is_named() {
        for (text, words) in [
            ("", "0 shards"),
            ("[[shard]]\nreplicas = []\n", "shard 0 has 0 replicas"),
            ("[[shard]]\nreplicas = [\"http://a:1\"]\nside = \"left\"\n", "unknown field `side`"),
            ("[[shards]]\n", "unknown field `shards`"),
            ("cert = \"c\"\n[[shard]]\nreplicas = [\"http://a:1\"]\n", "cert and key go together"),
            (
                "[[shard]]\nreplicas = [\"http://a:1\"]\n[[shard]]\nreplicas = [\"http://a:1\"]\n",
                "http://a:1 is there twice, for shards 0 and 1",
            ),
            ("pass_ms_max = 0\n[[shard]]\nreplicas = [\"http://a:1\"]\n", "pass_ms_max is 0"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(words), "{text}: {error}");
        }
    }
}
