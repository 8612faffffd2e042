//! Where a server is, and how it is known to be that one.

pub(crate) mod tls;

use std::net::IpAddr;

/// How to reach one server, or one of several of the same operator.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct EndpointSpec {
    /// `https://host:port`, or `http://host:port` on this machine.
    pub url: String,
    /// Other servers of the same operator that hold the same, in the order in which they are asked where
    /// those before drain or are out of reach. A client checks each before it sends it anything secret.
    pub others: Vec<String>,
    /// The PEM certificate of the CA that the server's certificate comes from.
    pub ca_pem: Option<Vec<u8>>,
    /// Where there is no `ca_pem`: the certificate may come from any authority that this machine trusts,
    /// which is read at every connect of a client. `SSL_CERT_FILE` and `SSL_CERT_DIR` say where else.
    pub system_roots: bool,
    /// The name to check the certificate for, where it is not the URL's host.
    pub domain: Option<String>,
    /// This client's own certificate, for a server that asks for one.
    pub identity: Option<Identity>,
}

/// A client's certificate and key, in PEM form.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct Identity {
    /// The certificate, followed by its chain.
    pub cert_pem: Vec<u8>,
    /// Its private key.
    pub key_pem: Vec<u8>,
}

impl EndpointSpec {
    /// A server at `url`, to be checked by the CA of `ca_pem`.
    pub fn new(url: impl Into<String>, ca_pem: Option<Vec<u8>>) -> Self {
        Self {
            url: url.into(),
            others: Vec::new(),
            ca_pem,
            system_roots: false,
            domain: None,
            identity: None,
        }
    }

    /// All its URLs.
    pub fn urls(&self) -> impl Iterator<Item = &str> {
        std::iter::once(&self.url).chain(&self.others).map(String::as_str)
    }

    /// Each of its servers alone.
    pub(crate) fn each(&self) -> impl Iterator<Item = Self> {
        self.urls().map(|url| Self { url: url.into(), others: Vec::new(), ..self.clone() })
    }
}

/// Whether `host` is this machine.
pub(crate) fn is_loopback(host: &str) -> bool {
    host.eq_ignore_ascii_case("localhost")
        || host.parse::<IpAddr>().is_ok_and(|addr| addr.is_loopback())
}

/// What this release calls itself.
pub(crate) const SOFTWARE: &str = concat!("hushtable/", env!("CARGO_PKG_VERSION"));
