//! Where spans go: an operator's URL of a collector, checked.

use crate::error::Own;
use http::Uri;

/// A collector of OTLP over HTTP.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Collector {
    pub url: String,
    pub host: String,
    pub port: u16,
    pub path: String,
    pub is_https: bool,
}

/// A URL that no collector of traces is at.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{url:?} is no collector of traces: {reason}; write http://host:4318 or https://host")]
#[non_exhaustive]
pub struct NoCollector {
    /// The URL as given.
    pub url: String,
    /// What is wrong with it.
    pub reason: String,
}

impl Own for NoCollector {}

impl Collector {
    /// The collector at `url`: `http(s)://host:port`, to which `/v1/traces` is added where it is not
    /// there already, as OTEL_EXPORTER_OTLP_ENDPOINT has it.
    ///
    /// # Errors
    /// [`NoCollector`] for what is no such URL.
    pub fn parse(url: &str) -> Result<Self, NoCollector> {
        let bad = |reason: &str| NoCollector { url: url.into(), reason: reason.into() };
        if !cfg!(feature = "otlp") {
            return Err(bad("this build sends no traces: build it with the feature otlp"));
        }
        let uri: Uri =
            url.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        let is_https = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(bad("its scheme is neither https nor http")),
        };
        let host =
            uri.host().filter(|host| !host.is_empty()).ok_or_else(|| bad("it has no host"))?;
        let authority = uri.authority().map_or("", |authority| authority.as_str());
        if authority.contains('@') {
            // What signs in is not to be read where this is.
            let reason = "it holds a user's name: sign in from a collector beside the server";
            return Err(NoCollector { url: format!("http://...@{host}"), reason: reason.into() });
        }
        if uri.query().is_some() {
            return Err(bad("it has a query"));
        }
        let base = uri.path().trim_end_matches('/');
        let path = match base.ends_with(TRACES) {
            true => base.to_owned(),
            false => format!("{base}{TRACES}"),
        };
        Ok(Self {
            url: url.into(),
            host: host.trim_start_matches('[').trim_end_matches(']').to_owned(),
            port: uri.port_u16().unwrap_or(if is_https { 443 } else { PORT }),
            path,
            is_https,
        })
    }

    /// The host and port as the header `host` says them.
    #[cfg(feature = "otlp")]
    pub fn authority(&self) -> String {
        match self.host.contains(':') {
            true => format!("[{}]:{}", self.host, self.port),
            false => format!("{}:{}", self.host, self.port),
        }
    }
}

const TRACES: &str = "/v1/traces";
/// OTLP over HTTP has it where a URL has no port.
const PORT: u16 = 4318;

#[cfg(all(test, feature = "otlp"))]
mod tests {
    use super::*;

    #[test]
    fn a_url_is_where_spans_go_or_says_why_not() {
        for (url, host, port, path, is_https) in [
            ("http://127.0.0.1:4318", "127.0.0.1", 4318, "/v1/traces", false),
            ("http://collector", "collector", 4318, "/v1/traces", false),
            ("https://collector.example/", "collector.example", 443, "/v1/traces", true),
            ("https://a.example:1/otlp/", "a.example", 1, "/otlp/v1/traces", true),
            ("http://[::1]:4318/v1/traces", "::1", 4318, "/v1/traces", false),
        ] {
            let found = Collector::parse(url).unwrap();
            let (host, path) = (host.to_owned(), path.to_owned());
            let expected = Collector { url: url.into(), host, port, path, is_https };
            assert_eq!(found, expected, "{url}");
        }
        assert_eq!(Collector::parse("http://[::1]:7").unwrap().authority(), "[::1]:7");
        for (url, says) in [
            ("", "empty"),
            ("collector:4318", "scheme"),
            ("grpc://collector:4317", "scheme"),
            ("http://user:secret@collector", "user's name"),
            ("http://collector/?token=1", "query"),
            ("http://", "empty"),
        ] {
            let error = Collector::parse(url).unwrap_err().to_string();
            assert!(error.contains(says) && !error.contains("secret"), "{url}: {error}");
        }
    }
}
