//! Clients of one name alone, where a server has but one kind of client.

use std::sync::Arc;

use rustls::client::danger::HandshakeSignatureValid;
use rustls::pki_types::{CertificateDer, UnixTime};
use rustls::server::danger::{ClientCertVerified, ClientCertVerifier};
use rustls::{CertificateError, DigitallySignedStruct, DistinguishedName, Error, SignatureScheme};
use x509_parser::extensions::GeneralName;
use x509_parser::parse_x509_certificate;

/// Lets in whom `verifier` does, if the certificate has the DNS name `name`.
#[derive(Debug)]
pub(super) struct NamedClients {
    pub verifier: Arc<dyn ClientCertVerifier>,
    pub name: String,
}

/// A certificate's DNS names; None for one that cannot be read.
pub(super) fn names_of(leaf: &CertificateDer<'_>) -> Option<Vec<String>> {
    let (_, leaf) = parse_x509_certificate(leaf).ok()?;
    let names = leaf.subject_alternative_name().ok().flatten();
    let names = names.iter().flat_map(|names| &names.value.general_names);
    let dns = names.filter_map(|name| match name {
        GeneralName::DNSName(name) => Some((*name).to_owned()),
        _ => None,
    });
    Some(dns.collect())
}

impl NamedClients {
    fn check_name(&self, leaf: &CertificateDer<'_>) -> Result<(), Error> {
        let bad = |error| Error::InvalidCertificate(error);
        let found = names_of(leaf).ok_or_else(|| bad(CertificateError::BadEncoding))?;
        if found.iter().any(|found| found.eq_ignore_ascii_case(&self.name)) {
            return Ok(());
        }
        // Said here, as the alert that the client gets has no words.
        tracing::warn!(
            expected = self.name,
            found = found.join(", "),
            "a client's certificate is for another role or side: it is not let in"
        );
        Err(bad(CertificateError::ApplicationVerificationFailure))
    }
}

impl ClientCertVerifier for NamedClients {
    fn root_hint_subjects(&self) -> &[DistinguishedName] {
        self.verifier.root_hint_subjects()
    }

    fn verify_client_cert(
        &self,
        leaf: &CertificateDer<'_>,
        chain: &[CertificateDer<'_>],
        now: UnixTime,
    ) -> Result<ClientCertVerified, Error> {
        let verified = self.verifier.verify_client_cert(leaf, chain, now)?;
        self.check_name(leaf)?;
        Ok(verified)
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls12_signature(message, leaf, signature)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        leaf: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        self.verifier.verify_tls13_signature(message, leaf, signature)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.verifier.supported_verify_schemes()
    }
}
