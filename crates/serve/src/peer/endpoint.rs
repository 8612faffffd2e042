//! One server, as a client sees it: a URL, a connection, the errors of its calls.

use std::error::Error as _;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use http::Uri;
use hushtable_client::RECONNECT_WITHIN;
use hyper_util::rt::TokioIo;
use rustls::pki_types::ServerName;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};

use super::shaper::{Link, LinkSpec, Shaped};
use crate::endpoint::{EndpointSpec, SOFTWARE, is_loopback, tls};
use crate::error::{Error, ReplyDefect};
use crate::refusal::{MESSAGE_CHARS_MAX, Refusal, Tables, code_name};

/// How a server is connected to.
#[derive(Clone)]
pub(crate) struct Way {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    link: Link,
    /// Whether the last server that said anything in answer to plain text said that it speaks TLS. The
    /// connection knows; the transport hands its error to some calls as text, and to others not at all.
    met_tls: Arc<AtomicBool>,
    /// What its refusals may be, beside those of any server.
    refusals: Tables,
}

impl Way {
    /// Checks `spec`, which names one server; it refuses by `refusals`.
    pub fn of(
        spec: &EndpointSpec,
        insecure: bool,
        link: LinkSpec,
        refusals: Tables,
    ) -> Result<Self, Error> {
        let url = &spec.url;
        let bad = |reason: &str| Error::Url { url: url.clone(), reason: reason.into() };
        let uri: Uri =
            url.parse().map_err(|error: http::uri::InvalidUri| bad(&error.to_string()))?;
        let host = uri.host().ok_or_else(|| bad("it has no host"))?;
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        if !matches!(uri.path(), "" | "/") || uri.query().is_some() {
            return Err(bad("it has a path"));
        }
        if !spec.others.is_empty() {
            return Err(bad("others come with it, but there is one server alone of this kind"));
        }
        let tls = match uri.scheme_str() {
            Some("https") => {
                let name = spec.domain.as_ref().unwrap_or(&host).clone();
                let name = ServerName::try_from(name)
                    .map_err(|_| bad("its host is no name that a certificate can have"))?;
                Some((TlsConnector::from(tls::client_config(spec)?), name))
            }
            Some("http") if insecure || is_loopback(&host) => None,
            Some("http") => return Err(Error::PlainText { url: url.clone() }),
            _ => return Err(bad("its scheme is neither https nor http")),
        };
        let port = uri.port_u16().unwrap_or(if tls.is_some() { 443 } else { 80 });
        Ok(Self { host, port, tls, link: Link::new(link), met_tls: Arc::default(), refusals })
    }

    pub fn is_tls(&self) -> bool {
        self.tls.is_some()
    }

    pub async fn connect(&self) -> io::Result<Box<dyn Stream>> {
        let reached = TcpStream::connect((self.host.as_str(), self.port)).await;
        // What was met there before says nothing of why there is nobody now.
        let stream = reached.inspect_err(|_| self.met_tls.store(false, Ordering::Relaxed))?;
        stream.set_nodelay(true)?;
        let stream = self.link.carry(stream);
        Ok(match self.tls.clone() {
            None => Box::new(Plain { stream, is_first: true, met_tls: Arc::clone(&self.met_tls) }),
            Some((connector, name)) => {
                Box::new(connector.connect(name, stream).await.map_err(explained)?)
            }
        })
    }

    /// The error that a status of a call to `url`, over a connection of this way, is.
    pub fn error(&self, url: &str, status: &Status) -> Error {
        match error_of(url, status, self.refusals) {
            Error::Unavailable { url, .. } if self.met_tls.load(Ordering::Relaxed) => {
                Error::SpeaksTls { url }
            }
            error => error,
        }
    }
}

/// A server and the connection to it, made at first use and again when it was lost.
#[derive(Clone)]
pub(crate) struct Peer {
    url: Arc<str>,
    way: Way,
    pub(crate) channel: Channel,
}

impl Peer {
    /// Checks `spec`; connects when first used. What is asked there is refused by `refusals`. Must be
    /// called within a tokio runtime.
    pub fn new(
        spec: &EndpointSpec,
        insecure: bool,
        connect_max: Duration,
        refusals: Tables,
    ) -> Result<Self, Error> {
        Self::over(spec, insecure, connect_max, LinkSpec::default(), refusals)
    }

    /// Each of the servers of `spec`. Must be called within a tokio runtime.
    pub fn each(
        spec: &EndpointSpec,
        insecure: bool,
        connect_max: Duration,
        refusals: Tables,
    ) -> Result<Vec<Self>, Error> {
        spec.each().map(|spec| Self::new(&spec, insecure, connect_max, refusals)).collect()
    }

    /// As [`new`](Self::new), over a link of a given speed.
    pub fn over(
        spec: &EndpointSpec,
        insecure: bool,
        connect_max: Duration,
        link: LinkSpec,
        refusals: Tables,
    ) -> Result<Self, Error> {
        let url = &spec.url;
        let bad = |reason: &str| Error::Url { url: url.clone(), reason: reason.into() };
        let way = Way::of(spec, insecure, link, refusals)?;
        let endpoint = Endpoint::from_shared(url.clone())
            .map_err(|error| bad(&error.to_string()))?
            .connect_timeout(connect_max)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .http2_keep_alive_interval(KEEP_ALIVE)
            .keep_alive_timeout(KEEP_ALIVE)
            .user_agent(SOFTWARE)
            .map_err(|error| bad(&error.to_string()))?;
        let connecting = way.clone();
        let channel = endpoint.connect_with_connector_lazy(tower::service_fn(move |_: Uri| {
            let way = connecting.clone();
            async move { way.connect().await.map(TokioIo::new) }
        }));
        Ok(Self { url: url.as_str().into(), way, channel })
    }

    pub fn url(&self) -> &str {
        &self.url
    }

    /// The error of a reply that does not fit.
    pub fn reply_error(&self, defect: ReplyDefect) -> Error {
        let url = self.url.to_string();
        match defect {
            ReplyDefect::ParameterSet { announced, accepted } => {
                Error::ParametersRefused { url, announced, accepted }
            }
            defect => Error::Reply { url, defect },
        }
    }

    /// Makes a call once more where it failed at once for want of a connection: the server may have
    /// been restarted since the last call, which shows only in the next one.
    pub async fn reconnecting<T, F: Future<Output = Result<T, Error>>>(
        &self,
        call: impl Fn() -> F,
    ) -> Result<T, Error> {
        let started = Instant::now();
        match call().await {
            Err(Error::Unavailable { .. }) if started.elapsed() < RECONNECT_WITHIN => call().await,
            result => result,
        }
    }

    /// Makes a call that whoever drives it puts an end to.
    pub async fn call<T>(&self, call: impl Future<Output = Result<T, Status>>) -> Result<T, Error> {
        call.await.map_err(|status| self.error(&status))
    }

    pub async fn within<T>(
        &self,
        limit: Duration,
        call: impl Future<Output = Result<T, Status>>,
    ) -> Result<T, Error> {
        match tokio::time::timeout(limit, call).await {
            Ok(Ok(reply)) => Ok(reply),
            Ok(Err(status)) => Err(self.error(&status)),
            Err(_) => Err(Error::Timeout { url: self.url.to_string(), after: limit }),
        }
    }

    /// The error that a status is.
    pub fn error(&self, status: &Status) -> Error {
        self.way.error(&self.url, status)
    }
}

fn error_of(url: &str, status: &Status, refusals: Tables) -> Error {
    let url = url.to_owned();
    if let Some(refusal) = Refusal::read(status, refusals) {
        return Error::Refused { url, refusal };
    }
    match status.code() {
        Code::Unimplemented => {
            let message = status.message().chars().take(MESSAGE_CHARS_MAX).collect();
            Error::Unserved { url, message }
        }
        // Without details the status was made here, of a transport error, or by a proxy.
        // A server that found too much on the connection has ended that.
        Code::Unavailable
        | Code::Unknown
        | Code::Cancelled
        | Code::Internal
        | Code::ResourceExhausted
            if status.source().is_some() || status.code() == Code::Unavailable =>
        {
            Error::Unavailable { url, reason: reason(status) }
        }
        code => Error::Remote {
            url,
            code: code_name(code).into(),
            message: status.message().chars().take(MESSAGE_CHARS_MAX).collect(),
        },
    }
}

/// The innermost cause says what happened ("connection refused", "invalid peer certificate").
pub(crate) fn reason(status: &Status) -> String {
    let mut cause = status.source();
    let mut innermost = None;
    while let Some(error) = cause {
        innermost = Some(error.to_string());
        cause = error.source();
    }
    innermost.unwrap_or_else(|| status.message().chars().take(MESSAGE_CHARS_MAX).collect())
}

/// What TLS says of a server's certificate, in words where its own say what it is to libraries alone.
fn explained(error: io::Error) -> io::Error {
    match error.to_string().contains("CaUsedAsEndEntity") {
        true => io::Error::new(
            error.kind(),
            "invalid peer certificate: it is an authority's own (CA:TRUE), which may sign certificates of servers but be \
             none; give the server one that the authority signs (`hushtable certificates` makes both)",
        ),
        false => error,
    }
}

/// A connection in plain text, which knows a TLS server by the first byte that it says.
struct Plain {
    stream: Shaped<TcpStream>,
    is_first: bool,
    met_tls: Arc<AtomicBool>,
}

impl AsyncRead for Plain {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let outcome = Pin::new(&mut self.stream).poll_read(cx, buffer);
        if self.is_first
            && let Some(&first) = buffer.filled().get(before)
        {
            self.is_first = false;
            self.met_tls.store(first == TLS_ALERT, Ordering::Relaxed);
            if first == TLS_ALERT {
                let said = "the server speaks TLS";
                return Poll::Ready(Err(io::Error::new(io::ErrorKind::InvalidData, said)));
            }
        }
        outcome
    }
}

impl AsyncWrite for Plain {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.written(written, bytes.len())
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.written(written, parts.iter().map(|part| part.len()).sum())
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }
}

impl Plain {
    /// A server that closes at the first bytes has said why before. A write that fails then is passed
    /// over, so that the read that follows finds the alert, or the end of the connection.
    fn written(&self, written: Poll<io::Result<usize>>, bytes: usize) -> Poll<io::Result<usize>> {
        match written {
            Poll::Ready(Err(_)) if self.is_first => Poll::Ready(Ok(bytes)),
            written => written,
        }
    }
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// How a record begins with which a TLS server answers what is no TLS. HTTP/2 begins with the length of
/// a short frame, so with a zero.
const TLS_ALERT: u8 = 0x15;
pub(crate) const INFO_BYTES_MAX: usize = 64 << 10;
pub(crate) const REPLY_OVERHEAD_BYTES: usize = 1024;
pub(crate) const STREAM_WINDOW_BYTES: u32 = 4 << 20;
pub(crate) const CONNECTION_WINDOW_BYTES: u32 = 8 << 20;
/// A reply should be one frame.
pub(crate) const FRAME_BYTES_MAX: u32 = 1 << 20;
const KEEP_ALIVE: Duration = Duration::from_secs(20);

#[cfg(test)]
mod tests {
    use h2::Reason;

    use super::*;

    #[test]
    fn a_connection_that_a_server_ended_is_lost_and_says_nothing_of_the_call() {
        for reason in [Reason::ENHANCE_YOUR_CALM, Reason::REFUSED_STREAM, Reason::INTERNAL_ERROR] {
            let status = Status::from_error(Box::new(h2::Error::from(reason)));
            let error = error_of("http://a:1", &status, &[]);
            assert!(matches!(error, Error::Unavailable { .. }), "{reason:?}: {error}");
        }
        // What a server says in its own words is its answer.
        let said = Status::resource_exhausted("as it is");
        assert!(matches!(error_of("http://a:1", &said, &[]), Error::Remote { .. }));
    }
}
