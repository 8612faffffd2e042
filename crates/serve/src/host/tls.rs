//! rustls configurations of servers, and what is kept of the certificates that clients showed.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use rustls::server::WebPkiClientVerifier;
use rustls::{ServerConfig, ServerConnection};

use crate::endpoint::tls::{ALPN, certificates, check_key, private_key, provider, roots, unusable};
use crate::error::Error;
use crate::host::expiry::Expiry;
use crate::host::named::{NamedClients, names_of};
use crate::host::network::TlsSpec;

/// The certificate that a client proved to have when it connected: BLAKE3 of the leaf. No name in it
/// is read; two that differ in anything are two.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PeerCertificate([u8; 32]);

impl PeerCertificate {
    /// That of a connection; None where the server asked for none.
    pub(crate) fn of(connection: &ServerConnection) -> Option<Self> {
        let leaf = connection.peer_certificates()?.first()?;
        Some(Self(blake3::hash(leaf).into()))
    }

    /// A number that no other certificate has; never zero.
    pub(crate) fn number(&self) -> u64 {
        let (bytes, _) = self.0.split_first_chunk().unwrap_or((&[0; 8], &[]));
        u64::from_le_bytes(*bytes).max(1)
    }
}

/// The DNS names of the certificate that a client proved to have when it connected.
#[derive(Clone, Debug)]
pub(crate) struct PeerNames(Arc<[String]>);

impl PeerNames {
    /// Those of a connection; None where its client showed no certificate.
    pub fn of(connection: &ServerConnection) -> Option<Self> {
        let leaf = connection.peer_certificates()?.first()?;
        Some(Self(names_of(leaf).unwrap_or_default().into()))
    }

    pub fn has(&self, name: &str) -> bool {
        self.0.iter().any(|found| found.eq_ignore_ascii_case(name))
    }
}

/// What the files of a [`TlsSpec`] hold.
#[derive(Clone)]
pub(crate) struct ServerTls {
    pub config: Arc<ServerConfig>,
    pub expiry: Option<Expiry>,
}

/// Reads the files of `spec`.
pub(crate) fn server_tls(spec: &TlsSpec) -> Result<ServerTls, Error> {
    let cert_from = spec.cert.display().to_string();
    let certs = certificates(&read(&spec.cert)?, &cert_from)?;
    let key = private_key(&read(&spec.key)?, &spec.key.display().to_string())?;
    let expiry = Expiry::of_chain(&certs, &cert_from)?;
    let builder = ServerConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable(&cert_from, &error))?;
    let builder = match spec.client_ca.as_ref().or(spec.peer_ca.as_ref()) {
        None => builder.with_no_client_auth(),
        Some(path) => {
            let from = path.display().to_string();
            let roots = Arc::new(roots(&read(path)?, &from)?);
            let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider());
            let verifier = match spec.client_ca {
                None => verifier.allow_unauthenticated(),
                Some(_) => verifier,
            };
            let verifier =
                verifier.build().map_err(|error| Error::Tls { from, reason: error.to_string() })?;
            match &spec.client_name {
                None => builder.with_client_cert_verifier(verifier),
                Some(name) => {
                    let named = NamedClients { verifier, name: name.clone() };
                    builder.with_client_cert_verifier(Arc::new(named))
                }
            }
        }
    };
    check_key(&certs, &key, &cert_from)?;
    let mut config =
        builder.with_single_cert(certs, key).map_err(|error| unusable(&cert_from, &error))?;
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(ServerTls { config: Arc::new(config), expiry })
}

fn read(path: &Path) -> Result<Vec<u8>, Error> {
    fs::read(path).map_err(|source| Error::Io { what: format!("read {}", path.display()), source })
}
