//! The settings that every server has.

use super::{Kind, Setting};

/// Of every server: [`NetworkSpec`](crate::NetworkSpec).
pub(crate) const NETWORK: &[Setting] = &[
    Setting::new("addr", Kind::Addr, "", "IP or name, and port, to listen on; port 0 for any."),
    Setting::new("port", Kind::Count, "that of --addr", "The port to listen on."),
    Setting::new("metrics_addr", Kind::Addr, "", "The same of metrics and probes, or none."),
    Setting::new(
        "tls.cert",
        Kind::Path,
        "none, for this machine alone",
        "PEM file: this server's certificate and chain.",
    ),
    Setting::new("tls.key", Kind::Path, "none", "PEM file: the certificate's private key."),
    Setting::new(
        "tls.client_ca",
        Kind::Path,
        "every client may connect",
        "PEM file: ask clients for certificates of this authority.",
    ),
    Setting::new(
        "insecure",
        Kind::Flag,
        "",
        "Serve other machines without TLS: only where something else encrypts the way.",
    ),
    Setting::new("io_threads", Kind::Count, "", "Threads for connections."),
    Setting::new(
        "inflight_bytes_max",
        Kind::Bytes,
        "",
        "Most bytes of requests and answers in memory; one connection may hold a quarter of it.",
    ),
    Setting::new("connections_max", Kind::Count, "", "Most connections."),
    Setting::new(
        "connections_per_peer_max",
        Kind::Count,
        "a quarter of all",
        "Most connections of one peer: an IPv4 address, or an IPv6 network of 64 bits.",
    ),
    Setting::new(
        "inflight_bytes_per_peer_max",
        Kind::Bytes,
        "half of all",
        "Most bytes of one peer's requests and answers in memory.",
    ),
    Setting::new(
        "requests_per_s_per_peer_max",
        Kind::Count,
        "",
        "Most requests a second of one peer; beyond, BUSY.",
    ),
    Setting::new(
        "streams_per_connection_max",
        Kind::Count,
        "",
        "Most open requests of a connection.",
    ),
    Setting::new("handshake_ms_max", Kind::Milliseconds, "", "Longest handshake."),
    Setting::new(
        "keep_alive_ms",
        Kind::Milliseconds,
        "",
        "How often a quiet connection is pinged, and how long its answer may take.",
    ),
    Setting::new(
        "idle_ms_max",
        Kind::Milliseconds,
        "",
        "How long a connection may have no request before it is closed.",
    ),
    Setting::new("headers_ms_max", Kind::Milliseconds, "", "Longest headers of a request."),
    Setting::new(
        "body_idle_ms_max",
        Kind::Milliseconds,
        "",
        "How long a request's body may bring nothing.",
    ),
    Setting::new(
        "pings_per_s_max",
        Kind::Count,
        "",
        "Most HTTP/2 frames a second that cost a client nothing: PING, SETTINGS, PRIORITY, empty DATA.",
    ),
    Setting::new("request_ms_max", Kind::Milliseconds, "", "Longest request."),
    Setting::new(
        "drain_ms_max",
        Kind::Milliseconds,
        "",
        "Longest wait for requests after SIGTERM.",
    ),
    Setting::new(
        "otlp_endpoint",
        Kind::Text,
        "no traces leave the server",
        "URL of a collector of traces, http(s)://host:port: OTLP over HTTP.",
    ),
    Setting::new("otlp_service", Kind::Text, "", "What traces call this server (service.name)."),
    Setting::new(
        "otlp_sample",
        Kind::Fraction,
        "",
        "Part of all requests that is traced, where --otlp-endpoint is given: 0 to 1.",
    ),
];
