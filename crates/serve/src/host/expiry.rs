//! When certificates expire: said in the log and in a gauge before clients find out.

use std::time::{SystemTime, UNIX_EPOCH};

pub(crate) use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};
use rustls::pki_types::CertificateDer;
use x509_parser::prelude::{ASN1Time, FromDer, X509Certificate};

use crate::Error;

/// What a certificate says of itself: whose it is, and between which times it may be used.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Validity {
    /// Its subject, such as `CN=left.example`.
    pub subject: String,
    /// Its names and IP addresses: what clients compare with the URL.
    pub names: Vec<String>,
    /// Seconds since 1970 from which it may be used.
    pub not_before_s: i64,
    /// Seconds since 1970 up to which it may be used.
    pub not_after_s: i64,
}

impl Validity {
    pub(crate) fn of(der: &CertificateDer<'_>, from: &str) -> Result<Self, Error> {
        let (_, certificate) = X509Certificate::from_der(der)
            .map_err(|error| Error::Tls { from: from.into(), reason: error.to_string() })?;
        let validity = certificate.validity();
        let names = certificate.subject_alternative_name().ok().flatten();
        let names = names.iter().flat_map(|names| &names.value.general_names);
        Ok(Self {
            subject: certificate.subject().to_string(),
            names: names.map(name).collect(),
            not_before_s: validity.not_before.timestamp(),
            not_after_s: validity.not_after.timestamp(),
        })
    }
}

/// When the first certificate of a server's chain expires.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Expiry {
    /// The file, for the log.
    from: String,
    at_s: i64,
}

impl Expiry {
    /// None of an empty chain.
    pub fn of_chain(chain: &[CertificateDer<'_>], from: &str) -> Result<Option<Self>, Error> {
        let mut first: Option<i64> = None;
        for certificate in chain {
            let at_s = Validity::of(certificate, from)?.not_after_s;
            first = Some(first.map_or(at_s, |first| first.min(at_s)));
        }
        Ok(first.map(|at_s| Self { from: from.into(), at_s }))
    }

    /// Seconds since 1970.
    pub fn at_s(&self) -> i64 {
        self.at_s
    }

    /// # Errors
    /// [`Error::Expired`] where it is over at `now_s`.
    pub fn check(&self, now_s: i64) -> Result<(), Error> {
        match self.at_s < now_s {
            true => Err(Error::Expired { from: self.from.clone(), at: date(self.at_s) }),
            false => Ok(()),
        }
    }

    /// Says in the log where it is over, or soon will be.
    pub fn say(&self, now_s: i64) {
        match self.check(now_s) {
            Err(error) => tracing::error!(%error, "clients refuse this server"),
            Ok(()) if self.at_s - now_s < SOON_S => tracing::warn!(
                certificate = self.from,
                expires = date(self.at_s),
                days = (self.at_s - now_s) / DAY_S,
                "the certificate expires soon: put a new one in its place, the files are read again when \
                 they change"
            ),
            Ok(()) => {}
        }
    }
}

/// Has the metrics say it; not of a server without TLS, as no time is not 1970.
pub(crate) fn register(gauge: &Gauge, registry: &mut Registry) {
    registry.register_with_unit(
        "tls_certificate_expiry_timestamp",
        "When the first certificate of the server's chain expires, since 1970",
        Unit::Seconds,
        gauge.clone(),
    );
}

/// Seconds since 1970, by this machine's clock.
pub(crate) fn now_s() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_secs()).unwrap_or(i64::MAX)
}

fn date(at_s: i64) -> String {
    ASN1Time::from_timestamp(at_s).map_or_else(|_| format!("{at_s} s"), |at| at.to_string())
}

fn name(name: &x509_parser::extensions::GeneralName<'_>) -> String {
    use x509_parser::extensions::GeneralName;
    match name {
        GeneralName::DNSName(name) => (*name).to_owned(),
        GeneralName::IPAddress(bytes) => {
            match (<[u8; 4]>::try_from(*bytes), <[u8; 16]>::try_from(*bytes)) {
                (Ok(four), _) => std::net::Ipv4Addr::from(four).to_string(),
                (_, Ok(sixteen)) => std::net::Ipv6Addr::from(sixteen).to_string(),
                _ => "an address that is none".into(),
            }
        }
        other => other.to_string(),
    }
}

/// A server says once a day that its certificate expires, from so long before.
const SOON_S: i64 = 30 * DAY_S;
const DAY_S: i64 = 24 * 3600;

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::host::certificate::{LocalCa, validities};

    #[test]
    fn the_first_of_a_chain_to_expire_counts() {
        let year = LocalCa::new().unwrap();
        let long = year.issue_server(&["left.example", "10.0.0.7", "::1"]).unwrap().cert;
        let day = year.valid_for(Duration::from_secs(86_400));
        let short = day.issue_server(&["left.example"]).unwrap().cert;
        let validity = |pem: &str| validities(pem.as_bytes(), "test").unwrap().remove(0);
        assert_eq!(validity(&long).names, ["left.example", "10.0.0.7", "::1"]);
        assert_eq!(validity(&long).subject, "CN=left.example");
        assert!((364 * DAY_S..=365 * DAY_S).contains(&(validity(&long).not_after_s - now_s())));
        assert!(validity(&long).not_before_s < now_s());

        let both = long + &short;
        let chain = crate::endpoint::tls::certificates(both.as_bytes(), "test").unwrap();
        let expiry = Expiry::of_chain(&chain, "test").unwrap().unwrap();
        assert_eq!(expiry.at_s(), validity(&short).not_after_s);
        assert!(expiry.check(expiry.at_s()).is_ok());
        let text = expiry.check(expiry.at_s() + 1).unwrap_err().to_string();
        assert!(text.starts_with("the certificate of test expired on "), "{text}");
        assert_eq!(Expiry::of_chain(&[], "test").unwrap(), None);
    }

    #[test]
    fn bytes_that_are_no_certificate_are_refused() {
        let pem = LocalCa::new().unwrap().cert_pem();
        let der = crate::endpoint::tls::certificates(pem.as_bytes(), "test").unwrap().remove(0);
        for keep in 0..der.len() {
            let cut = CertificateDer::from(der[..keep].to_vec());
            assert!(matches!(Validity::of(&cut, "test"), Err(Error::Tls { .. })), "{keep} bytes");
        }
    }
}
