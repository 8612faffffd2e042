//! Where left finds right, and what both prove who they are by: files that are read anew as they change.

use std::path::{Path, PathBuf};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{MissedTickBehavior, interval};

use super::spec::{SharesServerSpec, peer_name};
use crate::endpoint::tls::client_config;
use crate::host::reload::{Stamp, blocking, stamp};
use crate::{EndpointSpec, Error, Identity};
use hushtable_pir::dpf::Side;

/// The files by which left reaches right.
#[derive(Clone)]
pub(super) struct Right {
    url: String,
    ca: Option<PathBuf>,
    /// Left's own certificate and its key.
    identity: Option<(PathBuf, PathBuf)>,
    /// The files as they were when they were read last.
    read: Vec<Option<Stamp>>,
}

impl Right {
    /// Right at `url`, as the server of `spec` reaches it, and what its files hold.
    pub fn of(spec: &SharesServerSpec, url: String) -> Result<(Self, EndpointSpec), Error> {
        let own = spec.network.tls.as_ref().map(|tls| (tls.cert.clone(), tls.key.clone()));
        let identity = spec.peer_cert.clone().zip(spec.peer_key.clone()).or(own);
        let mut right = Self { url, ca: spec.peer_ca.clone(), identity, read: Vec::new() };
        right.read = right.stamps();
        let endpoint = right.endpoint()?;
        Ok((right, endpoint))
    }

    /// One that proves to be right.
    fn endpoint(&self) -> Result<EndpointSpec, Error> {
        let read = |path: &Path| {
            let what = || format!("read {}", path.display());
            std::fs::read(path).map_err(|source| Error::Io { what: what(), source })
        };
        let identity = match &self.identity {
            Some((cert, key)) => Some(Identity { cert_pem: read(cert)?, key_pem: read(key)? }),
            None => None,
        };
        let ca_pem = self.ca.as_deref().map(read).transpose()?;
        let domain = Some(peer_name(Side::Right));
        Ok(EndpointSpec { domain, identity, ..EndpointSpec::new(self.url.clone(), ca_pem) })
    }

    fn stamps(&self) -> Vec<Option<Stamp>> {
        let identity = self.identity.iter().flat_map(|(cert, key)| [cert, key]);
        self.ca.iter().chain(identity).map(|path| stamp(path)).collect()
    }

    /// What the files hold, where they have changed. What is broken is said once, and read again when it changes.
    fn look(&mut self) -> Option<Result<EndpointSpec, Error>> {
        let now = self.stamps();
        if now == self.read {
            return None;
        }
        self.read = now;
        let usable = |endpoint: EndpointSpec| match endpoint.url.starts_with("https:") {
            true => client_config(&endpoint).map(|_| endpoint),
            false => Ok(endpoint),
        };
        Some(self.endpoint().and_then(usable))
    }

    /// Looks every second. Never returns; sessions that are open go on, the next ones go by what is told last.
    pub async fn watch(mut self, told: watch::Sender<EndpointSpec>) {
        let mut ticks = interval(LOOK_EVERY);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            let (right, found) = blocking(move || {
                let found = self.look();
                (self, found)
            })
            .await;
            self = right;
            match found {
                None => {}
                Some(Ok(endpoint)) => {
                    told.send_replace(endpoint);
                    tracing::info!(
                        "the next session with right is by the certificate that is in the files now"
                    );
                }
                Some(Err(error)) => tracing::error!(
                    %error,
                    "the files for sessions with right are not taken: the last ones go on"
                ),
            }
        }
    }
}

const LOOK_EVERY: Duration = Duration::from_secs(1);
