//! How clients check servers, what they show them, and how long they wait.

use std::path::{Path, PathBuf};
use std::time::Duration;

use hushtable_serve::{EndpointSpec, Identity};
use pyo3::prelude::*;

use crate::errors::Failure;

/// The authorities that servers' certificates may come from, as Python gives them.
#[derive(Clone, FromPyObject)]
pub(crate) enum Authorities {
    /// Those that this machine trusts: `True`.
    System(bool),
    /// That of a PEM file.
    File(PathBuf),
}

/// How servers are checked, and what they are shown.
pub(crate) struct Trust {
    ca_pem: Option<Vec<u8>>,
    system_roots: bool,
    identity: Option<Identity>,
}

impl Trust {
    /// Of the authority's file, and those of a certificate and its key.
    pub(crate) fn read(
        ca: Option<Authorities>,
        certificate: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, Failure> {
        let (ca_pem, system_roots) = match ca {
            None | Some(Authorities::System(false)) => (None, false),
            Some(Authorities::System(true)) => (None, true),
            Some(Authorities::File(path)) => (Some(read_file(&path)?), false),
        };
        let identity = match certificate {
            None => None,
            Some((cert, key)) => {
                Some(Identity { cert_pem: read_file(&cert)?, key_pem: read_file(&key)? })
            }
        };
        Ok(Self { ca_pem, system_roots, identity })
    }

    /// One of the servers of one operator at `urls`, as [`endpoint`](Self::endpoint).
    pub(crate) fn side(
        &self,
        urls: Vec<String>,
        domain: Option<String>,
    ) -> Result<EndpointSpec, Failure> {
        let mut urls = urls.into_iter();
        let first = urls.next().ok_or_else(|| Failure::config("a list of no URLs"))?;
        Ok(EndpointSpec { others: urls.collect(), ..self.endpoint(first, domain) })
    }

    /// The server at `url`, whose certificate is for `domain` where that is not the URL's host.
    pub(crate) fn endpoint(&self, url: String, domain: Option<String>) -> EndpointSpec {
        EndpointSpec {
            domain,
            system_roots: self.system_roots,
            identity: self.identity.clone(),
            ..EndpointSpec::new(url, self.ca_pem.clone())
        }
    }
}

fn read_file(path: &Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::config(format!("cannot read {}: {error}", path.display())))
}

/// The wait `name` of `seconds`.
pub(crate) fn duration(name: &str, seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| (MIN_WAIT..=MAX_WAIT).contains(duration))
        .ok_or_else(|| {
            Failure::config(format!("{name} is {seconds} seconds, but must be 0.001 to 86,400"))
        })
}

const MIN_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_secs(86_400);
