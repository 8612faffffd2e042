//! What a server's connections may take: [`NetworkSpec`] as every scheme's spec holds it, checked
//! into `Network`.

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::tls;
use crate::Error;
use crate::batch::WINDOW_MAX;

/// What a server's connections may take: the part of its spec that every scheme shares. Fields that
/// are not given have their defaults.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct NetworkSpec {
    /// As in [`ServerSpec`].
    pub addr: SocketAddr,
    /// As in [`ServerSpec`].
    pub metrics_addr: Option<SocketAddr>,
    /// As in [`ServerSpec`].
    pub tls: Option<TlsSpec>,
    /// As in [`ServerSpec`].
    pub insecure: bool,
    /// As in [`ServerSpec`].
    pub io_threads: usize,
    /// As in [`ServerSpec`].
    pub inflight_bytes_max: usize,
    /// As in [`ServerSpec`].
    pub connections_max: usize,
    /// As in [`ServerSpec`].
    pub streams_per_connection_max: u32,
    /// As in [`ServerSpec`].
    pub handshake_ms_max: u64,
    /// As in [`ServerSpec`].
    pub keep_alive_ms: u64,
    /// As in [`ServerSpec`].
    pub request_ms_max: u64,
    /// As in [`ServerSpec`].
    pub drain_ms_max: u64,
}

impl Default for NetworkSpec {
    fn default() -> Self {
        Self {
            addr: default_addr(),
            metrics_addr: default_metrics_addr(),
            tls: None,
            insecure: false,
            io_threads: default_io_threads(),
            inflight_bytes_max: default_inflight_bytes_max(),
            connections_max: default_connections_max(),
            streams_per_connection_max: default_streams_per_connection_max(),
            handshake_ms_max: default_handshake_ms_max(),
            keep_alive_ms: default_keep_alive_ms(),
            request_ms_max: default_request_ms_max(),
            drain_ms_max: default_drain_ms_max(),
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
}

/// A checked [`NetworkSpec`].
pub(crate) struct Network {
    pub spec: NetworkSpec,
    pub tls: Option<Arc<rustls::ServerConfig>>,
    pub connection_bytes_max: usize,
    pub handshake_max: Duration,
    pub keep_alive: Duration,
    pub request_max: Duration,
    pub drain_max: Duration,
}

impl Network {
    /// Checks `spec` for a server that may hold `whole` bytes for one request.
    pub fn check(spec: NetworkSpec, whole: usize) -> Result<Self, Error> {
        if !spec.addr.ip().is_loopback() && spec.tls.is_none() && !spec.insecure {
            return Err(Error::Exposed { addr: spec.addr });
        }
        within("io_threads", spec.io_threads, 1..=64)?;
        within("connections_max", spec.connections_max, 1..=1 << 20)?;
        let streams = spec.streams_per_connection_max as usize;
        within("streams_per_connection_max", streams, 1..=1 << 16)?;
        within_u64("handshake_ms_max", spec.handshake_ms_max, 1..=600_000)?;
        within_u64("keep_alive_ms", spec.keep_alive_ms, 1..=3_600_000)?;
        within_u64("request_ms_max", spec.request_ms_max, 1..=3_600_000)?;
        within_u64("drain_ms_max", spec.drain_ms_max, 0..=3_600_000)?;
        within("inflight_bytes_max", spec.inflight_bytes_max, whole..=1 << 40)?;
        Ok(Self {
            tls: spec.tls.as_ref().map(tls::server_config).transpose()?,
            connection_bytes_max: (spec.inflight_bytes_max / 4).max(whole),
            handshake_max: Duration::from_millis(spec.handshake_ms_max),
            keep_alive: Duration::from_millis(spec.keep_alive_ms),
            request_max: Duration::from_millis(spec.request_ms_max),
            drain_max: Duration::from_millis(spec.drain_ms_max),
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

pub(crate) fn default_streams_per_connection_max() -> u32 {
    128
}

pub(crate) fn default_handshake_ms_max() -> u64 {
    10_000
}

pub(crate) fn default_keep_alive_ms() -> u64 {
    20_000
}

pub(crate) fn default_request_ms_max() -> u64 {
    60_000
}

pub(crate) fn default_drain_ms_max() -> u64 {
    10_000
}
