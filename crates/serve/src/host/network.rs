//! What a server's connections may take: [`NetworkSpec`] as every scheme's spec holds it, checked
//! into `Network`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::{address, tls};
use crate::Error;
use crate::batch::WINDOW_MAX;
use crate::trace::{Collector, Fraction};

/// What a server's connections may take: the part of its spec that every scheme shares. Fields that
/// are not given have their defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct NetworkSpec {
    /// Where requests are answered: an IP or a name of this machine, and a port, 0 for any free one.
    #[serde(deserialize_with = "address::one")]
    pub addr: SocketAddr,
    /// The port, instead of that of `addr`.
    pub port: Option<u16>,
    /// Where `/metrics`, `/livez` and `/readyz` are answered, in plain HTTP; none to leave
    /// them out.
    #[serde(deserialize_with = "address::or_none")]
    pub metrics_addr: Option<SocketAddr>,
    /// The certificate and key; none for plain text, on this machine only.
    pub tls: Option<TlsSpec>,
    /// Allow an address that other machines reach without TLS: for when something else
    /// encrypts the way.
    pub insecure: bool,
    /// Threads that read requests and write answers.
    pub io_threads: usize,
    /// Most bytes of requests and answers in memory.
    pub inflight_bytes_max: usize,
    /// Most open connections.
    pub connections_max: usize,
    /// Most open connections of one peer (an IPv4 address, or an IPv6 network of 64 bits); none for a
    /// quarter of `connections_max`, but 16 where that is less.
    pub connections_per_peer_max: Option<usize>,
    /// Most bytes of one peer's requests and answers in memory; none for half of
    /// `inflight_bytes_max`.
    pub inflight_bytes_per_peer_max: Option<usize>,
    /// Most requests a second of one peer, and most at once after a pause.
    pub requests_per_s_per_peer_max: u32,
    /// Most requests at once on one connection.
    pub streams_per_connection_max: u32,
    /// How long a handshake may take, in milliseconds.
    pub handshake_ms_max: u64,
    /// How long an idle connection is left alone before it is asked whether it still stands,
    /// in milliseconds.
    pub keep_alive_ms: u64,
    /// How long a connection may have no request before it is closed, in milliseconds.
    pub idle_ms_max: u64,
    /// How long a request's headers may take, from their first byte to their last, in milliseconds.
    pub headers_ms_max: u64,
    /// How long a request's body may bring nothing, in milliseconds.
    pub body_idle_ms_max: u64,
    /// Most frames a second of those that cost a client nothing: PING, SETTINGS, PRIORITY, empty DATA.
    pub pings_per_s_max: u32,
    /// How long a request may take from its headers to its answer, in milliseconds.
    pub request_ms_max: u64,
    /// How long open requests may go on after a signal to stop, in milliseconds.
    pub drain_ms_max: u64,
    /// The URL of a collector of traces (OTLP over HTTP); none to send none.
    pub otlp_endpoint: Option<String>,
    /// What traces call this server: `service.name`.
    pub otlp_service: String,
    /// The part of all requests that is traced.
    pub otlp_sample: Fraction,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        Self {
            addr: default_addr(),
            port: None,
            metrics_addr: default_metrics_addr(),
            tls: None,
            insecure: false,
            io_threads: default_io_threads(),
            inflight_bytes_max: default_inflight_bytes_max(),
            connections_max: default_connections_max(),
            connections_per_peer_max: None,
            inflight_bytes_per_peer_max: None,
            requests_per_s_per_peer_max: default_requests_per_s_per_peer_max(),
            streams_per_connection_max: default_streams_per_connection_max(),
            handshake_ms_max: default_handshake_ms_max(),
            keep_alive_ms: default_keep_alive_ms(),
            idle_ms_max: default_idle_ms_max(),
            headers_ms_max: default_headers_ms_max(),
            body_idle_ms_max: default_body_idle_ms_max(),
            pings_per_s_max: default_pings_per_s_max(),
            request_ms_max: default_request_ms_max(),
            drain_ms_max: default_drain_ms_max(),
            otlp_endpoint: None,
            otlp_service: default_otlp_service(),
            otlp_sample: default_otlp_sample(),
        }
    }
}

/// The PEM files of a server.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct TlsSpec {
    /// The certificate, followed by its chain.
    pub cert: PathBuf,
    /// Its private key.
    pub key: PathBuf,
    /// The CA that clients' certificates must come from; none to let every client in.
    #[serde(default)]
    pub client_ca: Option<PathBuf>,
    /// The CA of certificates that clients may have and need not, where there is no `client_ca`. The scheme's to set: one
    /// kind of its clients has them.
    #[serde(skip)]
    pub peer_ca: Option<PathBuf>,
    /// The DNS name that clients' certificates must have, where not every one of that CA will do. What
    /// a server is decides it, not its operator.
    #[serde(skip)]
    pub client_name: Option<String>,
}

/// A checked [`NetworkSpec`].
pub struct Network {
    pub(crate) spec: NetworkSpec,
    pub(crate) tls: Option<tls::ServerTls>,
    pub(crate) connection_bytes_max: usize,
    pub(crate) connections_per_peer_max: usize,
    pub(crate) peer_bytes_max: usize,
    pub(crate) idle_max: Duration,
    pub(crate) headers_max: Duration,
    pub(crate) body_idle_max: Duration,
    pub(crate) handshake_max: Duration,
    pub(crate) keep_alive: Duration,
    pub(crate) request_max: Duration,
    pub(crate) drain_max: Duration,
    pub(crate) collector: Option<Collector>,
}

impl Network {
    /// Checks `spec` for a server that may hold `whole` bytes for one request.
    ///
    /// # Errors
    /// [`Error::Exposed`], [`Error::Setting`], [`Error::Pem`], [`Error::Tls`], [`NoCollector`](crate::NoCollector),
    /// [`Error::Io`] for what is wrong with it.
    pub fn check(mut spec: NetworkSpec, whole: usize) -> Result<Self, Error> {
        if let Some(port) = spec.port {
            spec.addr.set_port(port);
        }
        if !spec.addr.ip().is_loopback() && spec.tls.is_none() && !spec.insecure {
            return Err(Error::Exposed { addr: spec.addr });
        }
        within("io_threads", spec.io_threads, 1..=64)?;
        within("connections_max", spec.connections_max, 1..=1 << 20)?;
        let streams = spec.streams_per_connection_max as usize;
        within("streams_per_connection_max", streams, 1..=1 << 16)?;
        within_u64("handshake_ms_max", spec.handshake_ms_max, 1..=600_000)?;
        within_u64("keep_alive_ms", spec.keep_alive_ms, 1..=3_600_000)?;
        let connections_per_peer_max = spec
            .connections_per_peer_max
            .unwrap_or((spec.connections_max / 4).max(16))
            .min(spec.connections_max);
        within("connections_per_peer_max", connections_per_peer_max, 1..=1 << 20)?;
        let requests = spec.requests_per_s_per_peer_max as usize;
        within("requests_per_s_per_peer_max", requests, 1..=10_000_000)?;
        within_u64("idle_ms_max", spec.idle_ms_max, 1..=86_400_000)?;
        within_u64("headers_ms_max", spec.headers_ms_max, 1..=600_000)?;
        within_u64("body_idle_ms_max", spec.body_idle_ms_max, 1..=600_000)?;
        within("pings_per_s_max", spec.pings_per_s_max as usize, 1..=1_000_000)?;
        within_u64("request_ms_max", spec.request_ms_max, 1..=3_600_000)?;
        within_u64("drain_ms_max", spec.drain_ms_max, 0..=3_600_000)?;
        within("inflight_bytes_max", spec.inflight_bytes_max, whole..=1 << 40)?;
        let peer_bytes_max = match spec.inflight_bytes_per_peer_max {
            None => (spec.inflight_bytes_max / 2).max(whole),
            Some(bytes) => {
                within("inflight_bytes_per_peer_max", bytes, whole..=1 << 40)?;
                bytes
            }
        };
        Ok(Self {
            connections_per_peer_max,
            peer_bytes_max,
            idle_max: Duration::from_millis(spec.idle_ms_max),
            headers_max: Duration::from_millis(spec.headers_ms_max),
            body_idle_max: Duration::from_millis(spec.body_idle_ms_max),
            tls: spec.tls.as_ref().map(tls::server_tls).transpose()?,
            connection_bytes_max: (spec.inflight_bytes_max / 4).max(whole),
            handshake_max: Duration::from_millis(spec.handshake_ms_max),
            keep_alive: Duration::from_millis(spec.keep_alive_ms),
            request_max: Duration::from_millis(spec.request_ms_max),
            drain_max: Duration::from_millis(spec.drain_ms_max),
            collector: spec.otlp_endpoint.as_deref().map(Collector::parse).transpose()?,
            spec,
        })
    }
}

pub(crate) fn check_window(window_us: Option<u64>) -> Result<(), Error> {
    within_u64("window_us", window_us.unwrap_or(0), 0..=WINDOW_MAX.as_micros() as u64)
}

pub(crate) fn within(
    name: &'static str,
    value: usize,
    range: std::ops::RangeInclusive<usize>,
) -> Result<(), Error> {
    within_u64(name, value as u64, *range.start() as u64..=*range.end() as u64)
}

pub(crate) fn within_u64(
    name: &'static str,
    value: u64,
    range: std::ops::RangeInclusive<u64>,
) -> Result<(), Error> {
    match range.contains(&value) {
        true => Ok(()),
        false => Err(Error::Setting { name, value, min: *range.start(), max: *range.end() }),
    }
}

pub(crate) fn default_addr() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 4000).into()
}

#[allow(clippy::unnecessary_wraps, reason = "serde wants the field's type")]
pub(crate) fn default_metrics_addr() -> Option<SocketAddr> {
    Some((Ipv4Addr::LOCALHOST, 4001).into())
}

pub(crate) fn default_io_threads() -> usize {
    1
}

pub(crate) fn default_inflight_bytes_max() -> usize {
    256 << 20
}

pub(crate) fn default_connections_max() -> usize {
    4096
}

/// What one io thread answers in half a second: many honest clients behind one address do not come
/// near, and one that floods leaves half of it to the others.
pub(crate) fn default_requests_per_s_per_peer_max() -> u32 {
    10_000
}

pub(crate) fn default_streams_per_connection_max() -> u32 {
    128
}

pub(crate) fn default_handshake_ms_max() -> u64 {
    10_000
}

pub(crate) fn default_keep_alive_ms() -> u64 {
    20_000
}

pub(crate) fn default_idle_ms_max() -> u64 {
    600_000
}

pub(crate) fn default_headers_ms_max() -> u64 {
    10_000
}

pub(crate) fn default_body_idle_ms_max() -> u64 {
    10_000
}

pub(crate) fn default_pings_per_s_max() -> u32 {
    100
}

pub(crate) fn default_request_ms_max() -> u64 {
    60_000
}

pub(crate) fn default_drain_ms_max() -> u64 {
    10_000
}

pub(crate) fn default_otlp_service() -> String {
    "hushtable".into()
}

/// Enough to see where time goes on a busy server, at little cost to it and to whoever keeps the spans.
pub(crate) fn default_otlp_sample() -> Fraction {
    Fraction::HUNDREDTH
}
