//! What both ends of TLS have in common, and the configuration of clients: TLS 1.3 and 1.2, ring, ALPN `h2`.

use std::sync::Arc;

use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, InconsistentKeys, RootCertStore};

use super::EndpointSpec;
use crate::error::Error;

/// The configuration for one server, by its own CA or those of this machine.
pub(crate) fn client_config(spec: &EndpointSpec) -> Result<Arc<ClientConfig>, Error> {
    let roots = match &spec.ca_pem {
        Some(ca_pem) => roots(ca_pem, &format!("the CA given for {}", spec.url))?,
        None if spec.system_roots => system_roots()?,
        None => return Err(Error::NoCa { url: spec.url.clone() }),
    };
    let builder = ClientConfig::builder_with_provider(provider())
        .with_safe_default_protocol_versions()
        .map_err(|error| unusable("the client", &error))?
        .with_root_certificates(roots);
    let mut config = match &spec.identity {
        None => builder.with_no_client_auth(),
        Some(identity) => {
            let from = format!("the client certificate given for {}", spec.url);
            let certs = certificates(&identity.cert_pem, &from)?;
            let key = private_key(&identity.key_pem, &from)?;
            check_key(&certs, &key, &from)?;
            builder.with_client_auth_cert(certs, key).map_err(|error| unusable(&from, &error))?
        }
    };
    config.alpn_protocols = vec![ALPN.to_vec()];
    Ok(Arc::new(config))
}

pub(crate) fn provider() -> Arc<CryptoProvider> {
    Arc::new(ring::default_provider())
}

pub(crate) fn certificates(pem: &[u8], from: &str) -> Result<Vec<CertificateDer<'static>>, Error> {
    let missing =
        |reason: String| Error::Pem { from: from.into(), expected: "certificate", reason };
    // Files that were put together have a mark before each.
    let pem = pem.split(|&byte| byte == b'\n').map(text).collect::<Vec<_>>().join(&b'\n');
    let certs = CertificateDer::pem_slice_iter(&pem)
        .collect::<Result<Vec<_>, _>>()
        .map_err(|error| missing(error.to_string()))?;
    match certs.is_empty() {
        true => Err(missing(match pem[..] {
            [0xff, 0xfe, ..] | [0xfe, 0xff, ..] => "it is UTF-16 text; save it as UTF-8".into(),
            [0x30, 0x80..=0xff, ..] => "it is binary (DER or PKCS #12); convert it: openssl x509 -inform der -in FILE -out \
                                   NEW, or openssl pkcs12 -in FILE -out NEW"
                .into(),
            _ => "nothing of the kind in it".into(),
        })),
        false => Ok(certs),
    }
}

pub(crate) fn private_key(pem: &[u8], from: &str) -> Result<PrivateKeyDer<'static>, Error> {
    let pem = text(pem);
    PrivateKeyDer::from_pem_slice(pem).map_err(|error| Error::Pem {
        from: from.into(),
        expected: "private key",
        reason: match pem.windows(ENCRYPTED.len()).any(|part| part == ENCRYPTED) {
            true => "the key is encrypted, and nobody is there to type its passphrase; write it without one, for this \
                     user alone: openssl pkey -in KEY -out NEW"
                .into(),
            false => error.to_string(),
        },
    })
}

/// What says in a PEM file that a key is encrypted: of PKCS #8, and of OpenSSL's older form.
const ENCRYPTED: &[u8] = b"ENCRYPTED";

/// A PEM file without the mark that some editors put before UTF-8.
fn text(pem: &[u8]) -> &[u8] {
    pem.strip_prefix(b"\xef\xbb\xbf").unwrap_or(pem)
}

/// That a key is the first certificate's, and says which one's it is instead.
pub(crate) fn check_key(
    certs: &[CertificateDer<'static>],
    key: &PrivateKeyDer<'static>,
    from: &str,
) -> Result<(), Error> {
    let signer = provider()
        .key_provider
        .load_private_key(key.clone_key())
        .map_err(|error| unusable(from, &error))?;
    let matches = |cert: &CertificateDer<'static>| {
        // A key of which the public half is not known is left to the handshake.
        !matches!(
            CertifiedKey::new(vec![cert.clone()], Arc::clone(&signer)).keys_match(),
            Err(rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch))
        )
    };
    let reason = match certs.iter().position(matches) {
        Some(0) => return Ok(()),
        Some(at) => format!(
            "the key is that of its certificate {}, which must come first; each after it signs the one before",
            at + 1
        ),
        None => "the key is another certificate's".to_owned(),
    };
    Err(Error::Tls { from: from.into(), reason })
}

pub(crate) fn roots(pem: &[u8], from: &str) -> Result<RootCertStore, Error> {
    let mut roots = RootCertStore::empty();
    for cert in certificates(pem, from)? {
        roots.add(cert).map_err(|error| unusable(from, &error))?;
    }
    Ok(roots)
}

/// The authorities that this machine trusts. Those that rustls cannot read are left out, as the stores of
/// systems have some.
fn system_roots() -> Result<RootCertStore, Error> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (usable, _) = roots.add_parsable_certificates(found.certs);
    if usable > 0 {
        return Ok(roots);
    }
    let reason = match found.errors.first() {
        Some(error) => error.to_string(),
        None => {
            "it has none: install the package ca-certificates, or give the CA's PEM file".into()
        }
    };
    Err(Error::Tls { from: "the system's store of authorities".into(), reason })
}

pub(crate) fn unusable(from: &str, error: &rustls::Error) -> Error {
    Error::Tls { from: from.into(), reason: error.to_string() }
}

/// What connections agree on: HTTP/2.
pub(crate) const ALPN: &[u8] = b"h2";
