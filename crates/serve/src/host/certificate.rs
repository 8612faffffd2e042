//! Certificates for servers that have none: local runs, demos, tests.
//!
//! Production servers use certificates of their operators' CA. These are made on the spot, ECDSA
//! P-256, valid for a year.

use std::time::{Duration, SystemTime};

use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa,
    KeyPair, KeyUsagePurpose,
};

use crate::Error;
use crate::endpoint::tls;
pub use crate::host::expiry::Validity;
use crate::peer::random_u64;

/// A certificate and its private key, in PEM form.
pub struct CertificatePem {
    /// The certificate.
    pub cert: String,
    /// Its private key: keep it from others.
    pub key: String,
}

/// A certificate authority that lives as long as this value: only its certificate is written out.
pub struct LocalCa {
    issuer: CertifiedIssuer<'static, KeyPair>,
    /// How long what it issues may be used.
    valid_for: Duration,
}

impl LocalCa {
    /// A new authority.
    ///
    /// # Errors
    /// [`Error::Certificate`] where the system gives no randomness.
    pub fn new() -> Result<Self, Error> {
        let failed = failed(&[]);
        // Two authorities of one name would be taken for each other, and the error be of a bad
        // signature where it is of an unknown authority.
        let name = format!("hushtable local CA {:016x}", random_u64()?);
        let mut params = params(&[], &name, YEAR).map_err(&failed)?;
        // Nothing below this authority may sign: it issues leaves only.
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let key = KeyPair::generate().map_err(&failed)?;
        let issuer = CertifiedIssuer::self_signed(params, key).map_err(&failed)?;
        Ok(Self { issuer, valid_for: YEAR })
    }

    /// What it issues from now on may be used for so long, in place of a year.
    #[must_use]
    pub fn valid_for(self, valid_for: Duration) -> Self {
        Self { valid_for, ..self }
    }

    /// The authority's certificate: what clients are given to check servers by.
    pub fn cert_pem(&self) -> String {
        self.issuer.pem()
    }

    /// A server's certificate for these host names and IP addresses.
    ///
    /// # Errors
    /// [`Error::Certificate`] for a name that no certificate can hold.
    pub fn issue_server(&self, names: &[&str]) -> Result<CertificatePem, Error> {
        self.issue(names, ExtendedKeyUsagePurpose::ServerAuth)
    }

    /// A client's certificate for a server that asks for one.
    ///
    /// # Errors
    /// [`Error::Certificate`] for a name that no certificate can hold.
    pub fn issue_client(&self, name: &str) -> Result<CertificatePem, Error> {
        self.issue(&[name], ExtendedKeyUsagePurpose::ClientAuth)
    }

    fn issue(
        &self,
        names: &[&str],
        usage: ExtendedKeyUsagePurpose,
    ) -> Result<CertificatePem, Error> {
        let failed = failed(names);
        let common_name = names.first().unwrap_or(&"hushtable");
        let mut params = params(names, common_name, self.valid_for).map_err(&failed)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![usage];
        params.use_authority_key_identifier_extension = true;
        let key = KeyPair::generate().map_err(&failed)?;
        let cert = params.signed_by(&key, &self.issuer).map_err(&failed)?;
        Ok(CertificatePem { cert: cert.pem(), key: key.serialize_pem() })
    }
}

/// A server's certificate that is its own authority: clients are given it as the CA.
///
/// # Errors
/// [`Error::Certificate`] for a name that no certificate can hold.
pub fn self_signed(names: &[&str]) -> Result<CertificatePem, Error> {
    let failed = failed(names);
    let mut params = params(names, names.first().unwrap_or(&"hushtable"), YEAR).map_err(&failed)?;
    params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
    params.extended_key_usages = vec![ExtendedKeyUsagePurpose::ServerAuth];
    let key = KeyPair::generate().map_err(&failed)?;
    let cert = params.self_signed(&key).map_err(&failed)?;
    Ok(CertificatePem { cert: cert.pem(), key: key.serialize_pem() })
}

/// What each certificate of a PEM file says of itself, in the file's order; `from` names it in errors.
///
/// # Errors
/// [`Error::Pem`] where there is none, [`Error::Tls`] for one that cannot be read.
pub fn validities(pem: &[u8], from: &str) -> Result<Vec<Validity>, Error> {
    tls::certificates(pem, from)?.iter().map(|der| Validity::of(der, from)).collect()
}

fn params(
    names: &[&str],
    common_name: &str,
    valid_for: Duration,
) -> Result<CertificateParams, rcgen::Error> {
    let mut params =
        CertificateParams::new(names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>())?;
    params.distinguished_name.push(DnType::CommonName, common_name);
    let now = SystemTime::now();
    // Clocks differ: a certificate made now is used by machines whose now is a little earlier.
    params.not_before = (now - Duration::from_secs(3600)).into();
    params.not_after = (now + valid_for).into();
    Ok(params)
}

fn failed(names: &[&str]) -> impl Fn(rcgen::Error) -> Error {
    let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
    move |error| Error::Certificate { names: names.clone(), reason: error.to_string() }
}

const YEAR: Duration = Duration::from_secs(365 * 24 * 3600);
