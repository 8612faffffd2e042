//! The thread that sends spans to a collector: OTLP, protobuf over HTTP/1.1.
//!
//! It has a runtime of its own. Servers run on one thread by default, and an export that ran there would wait
//! for the very thread that it keeps.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HOST, HeaderMap, RETRY_AFTER, USER_AGENT};
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use hyper_util::rt::TokioIo;
use prost::Message;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio::sync::{oneshot, watch};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;

use super::collector::{Collector, NoCollector};
use super::wire::{ExportTraceServiceResponse, Resource};
use super::{BATCH_MAX, Span, Tracer};
use crate::endpoint::SOFTWARE;
use crate::endpoint::{EndpointSpec, tls};
use crate::error::Error;

/// Sends what a [`Tracer`] keeps; ends when dropped.
pub(crate) struct Exporter {
    end: watch::Sender<bool>,
    ended: oneshot::Receiver<()>,
}

impl Exporter {
    /// Starts the thread, which sends to `collector` what `tracer` keeps, and with it who this is.
    ///
    /// # Errors
    /// [`Error::Tls`] where no collector could be checked; [`Error::Io`] where the system gives no
    /// thread.
    pub fn start<'a>(
        collector: Collector,
        tracer: Arc<Tracer>,
        who: impl IntoIterator<Item = (&'a str, String)>,
    ) -> Result<Self, Error> {
        let tls = match collector.is_https {
            true => Some(checks(&collector)?),
            false => None,
        };
        let failed = |source| Error::Io { what: "start the thread of traces".into(), source };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            // Names are looked up on it.
            .max_blocking_threads(1)
            .thread_name(THREAD)
            .build()
            .map_err(failed)?;
        let (end, ending) = watch::channel(false);
        let (done, ended) = oneshot::channel();
        let resource = Resource::new(who);
        let mut sender =
            Sender { collector, tls, tracer, resource, connection: None, is_failing: false };
        let work = move || {
            runtime.block_on(async {
                let mut until = ending.clone();
                tokio::select! {
                    () = sender.send_all(ending) => {}
                    () = async {
                        // An end of the channel is one too.
                        let _ = until.wait_for(|end| *end).await;
                        sleep(FLUSH_MAX).await;
                    } => {}
                }
            });
            // A look-up of a name, which nothing can cut short, must not hold what waits for the end.
            runtime.shutdown_background();
            let _ = done.send(());
        };
        std::thread::Builder::new().name(THREAD.into()).spawn(work).map_err(failed)?;
        Ok(Self { end, ended })
    }

    /// Sends what waits, for as long as [`FLUSH_MAX`] allows, and ends.
    pub async fn flush(self) {
        self.end.send_replace(true);
        if timeout(FLUSH_MAX, self.ended).await.is_err() {
            tracing::warn!("the last spans did not reach the collector in time");
        }
    }
}

struct Sender {
    collector: Collector,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    tracer: Arc<Tracer>,
    resource: Resource,
    connection: Option<SendRequest<Full<Bytes>>>,
    /// Whether the last message was not taken; said once, not each time.
    is_failing: bool,
}

/// What became of a message.
enum Sent {
    /// It was taken, but for so many spans.
    Taken(u64),
    /// It may be taken later.
    Later(String, Option<Duration>),
    /// It never will be.
    Refused(String),
}

impl Sender {
    async fn send_all(&mut self, mut ending: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                () = self.tracer.full.notified() => {}
                () = sleep(EVERY) => {}
                _ = ending.wait_for(|end| *end) => {}
            }
            loop {
                let spans = self.next();
                if spans.is_empty() {
                    break;
                }
                self.send(&spans, &mut ending).await;
            }
            if *ending.borrow() || ending.has_changed().is_err() {
                return;
            }
        }
    }

    fn next(&self) -> Vec<Span> {
        let mut waiting = self.tracer.waiting();
        let count = waiting.len().min(BATCH_MAX);
        waiting.drain(..count).collect()
    }

    /// Sends one message, more than once where that may help.
    async fn send(&mut self, spans: &[Span], ending: &mut watch::Receiver<bool>) {
        let (counts, count) = (self.tracer.counts.clone(), spans.len() as u64);
        let message = Bytes::from(self.resource.message(spans));
        let mut reason = String::new();
        for attempt in 0..ATTEMPTS {
            let posted = timeout(POST_MAX, self.post(message.clone())).await;
            let sent = posted.unwrap_or_else(|_| {
                let limit = POST_MAX.as_millis();
                Sent::Later(format!("it did not answer within {limit} ms"), None)
            });
            let pause = match sent {
                Sent::Taken(rejected) => {
                    let rejected = rejected.min(count);
                    counts.sent.inc_by(count - rejected);
                    counts.dropped.inc_by(rejected);
                    self.say(None);
                    return;
                }
                Sent::Refused(why) => {
                    reason = why;
                    break;
                }
                Sent::Later(why, pause) => {
                    reason = why;
                    self.connection = None;
                    pause.unwrap_or(PAUSE * 2u32.pow(attempt)).min(PAUSE_MAX)
                }
            };
            // At the end there is time for one attempt.
            if attempt + 1 == ATTEMPTS || *ending.borrow() {
                break;
            }
            tokio::select! {
                () = sleep(pause) => {}
                _ = ending.wait_for(|end| *end) => {}
            }
        }
        counts.dropped.inc_by(count);
        self.say(Some(&reason));
    }

    /// Logs what changed: whether the collector takes spans.
    fn say(&mut self, failure: Option<&str>) {
        let url = &self.collector.url;
        match failure {
            Some(reason) if !self.is_failing => {
                tracing::warn!(url, reason, "the collector takes no spans: they are dropped");
            }
            None if self.is_failing => tracing::info!(url, "the collector takes spans again"),
            _ => {}
        }
        self.is_failing = failure.is_some();
    }

    async fn post(&mut self, message: Bytes) -> Sent {
        // A connection that the collector closed meanwhile is made anew, at once.
        let is_kept = self.connection.as_ref().is_some_and(|kept| !kept.is_closed());
        let mut connection = match self.connection.take().filter(|_| is_kept) {
            Some(kept) => kept,
            None => match connect(&self.collector, self.tls.clone()).await {
                Ok(made) => made,
                Err(error) => return Sent::Later(error.to_string(), None),
            },
        };
        let request = Request::post(&self.collector.path)
            .header(HOST, self.collector.authority())
            .header(CONTENT_TYPE, PROTOBUF)
            .header(USER_AGENT, SOFTWARE)
            .body(Full::new(message));
        let request = match request {
            Ok(request) => request,
            Err(error) => return Sent::Refused(error.to_string()),
        };
        if let Err(error) = connection.ready().await {
            return Sent::Later(error.to_string(), None);
        }
        let (head, body) = match connection.send_request(request).await {
            Ok(reply) => reply.into_parts(),
            Err(error) => return Sent::Later(error.to_string(), None),
        };
        let body = match Limited::new(body, REPLY_BYTES_MAX).collect().await {
            Ok(body) => body.to_bytes(),
            Err(error) => return Sent::Later(error.to_string(), None),
        };
        self.connection = Some(connection);
        sent(head.status, &head.headers, &body)
    }
}

/// What a collector's reply says.
fn sent(status: StatusCode, headers: &HeaderMap, body: &[u8]) -> Sent {
    let reason = || format!("it answered {status}");
    match status {
        StatusCode::TOO_MANY_REQUESTS
        | StatusCode::BAD_GATEWAY
        | StatusCode::SERVICE_UNAVAILABLE
        | StatusCode::GATEWAY_TIMEOUT => {
            let seconds = headers.get(RETRY_AFTER).and_then(|it| it.to_str().ok()?.parse().ok());
            Sent::Later(reason(), seconds.map(Duration::from_secs))
        }
        // What does not parse says nothing of rejected spans.
        status if status.is_success() => Sent::Taken(
            ExportTraceServiceResponse::decode(body).map_or(0, |reply| reply.rejected()),
        ),
        _ => Sent::Refused(reason()),
    }
}

/// How an https collector is checked: by the authorities that this machine trusts.
fn checks(collector: &Collector) -> Result<(TlsConnector, ServerName<'static>), Error> {
    let spec = EndpointSpec { system_roots: true, ..EndpointSpec::new(&collector.url, None) };
    let mut config: ClientConfig = (*tls::client_config(&spec)?).clone();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    let name = ServerName::try_from(collector.host.clone()).map_err(|_| NoCollector {
        url: collector.url.clone(),
        reason: "its host is no name that a certificate can have".into(),
    })?;
    Ok((TlsConnector::from(Arc::new(config)), name))
}

async fn connect(
    collector: &Collector,
    tls: Option<(TlsConnector, ServerName<'static>)>,
) -> io::Result<SendRequest<Full<Bytes>>> {
    let stream = TcpStream::connect((collector.host.as_str(), collector.port)).await?;
    stream.set_nodelay(true)?;
    match tls {
        None => shake_hands(TokioIo::new(stream)).await,
        Some((connector, name)) => {
            shake_hands(TokioIo::new(connector.connect(name, stream).await?)).await
        }
    }
}

async fn shake_hands<S>(stream: S) -> io::Result<SendRequest<Full<Bytes>>>
where
    S: hyper::rt::Read + hyper::rt::Write + Send + Unpin + 'static,
{
    let (sender, connection) = http1::handshake(stream).await.map_err(io::Error::other)?;
    // Its end is the sender's to find.
    tokio::spawn(async move { drop(connection.await) });
    Ok(sender)
}

/// The name of a thread has 15 characters at most.
const THREAD: &str = "hushtable-otlp";
const PROTOBUF: &str = "application/x-protobuf";
/// How long a span waits at most before it is sent, while the collector keeps up.
const EVERY: Duration = Duration::from_secs(1);
/// How long a message may take, a connection included.
const POST_MAX: Duration = Duration::from_secs(5);
/// How often a message is sent where the collector cannot take it yet.
const ATTEMPTS: u32 = 3;
const PAUSE: Duration = Duration::from_secs(1);
const PAUSE_MAX: Duration = Duration::from_secs(30);
/// How long a server that stops waits for its last spans to be sent.
pub(crate) const FLUSH_MAX: Duration = Duration::from_secs(2);
const REPLY_BYTES_MAX: usize = 64 << 10;

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    fn reply(status: u16, retry_after: Option<&'static str>, body: &[u8]) -> Sent {
        let mut headers = HeaderMap::new();
        headers.extend(retry_after.map(|it| (RETRY_AFTER, HeaderValue::from_static(it))));
        sent(StatusCode::from_u16(status).unwrap(), &headers, body)
    }

    #[test]
    fn what_a_collector_says_is_taken_as_the_protocol_has_it() {
        assert!(matches!(reply(200, None, b""), Sent::Taken(0)));
        // partial_success { rejected_spans: 3 }
        assert!(matches!(reply(200, None, &[0x0a, 0x02, 0x08, 0x03]), Sent::Taken(3)));
        assert!(matches!(reply(202, None, b"\xff no protobuf"), Sent::Taken(0)));
        let five = Some(Duration::from_secs(5));
        assert!(matches!(reply(429, Some("5"), b""), Sent::Later(_, pause) if pause == five));
        for status in [429, 502, 503, 504] {
            assert!(matches!(reply(status, None, b""), Sent::Later(_, None)), "{status}");
        }
        for status in [400, 401, 404, 413, 500, 307] {
            assert!(matches!(reply(status, Some("5"), b""), Sent::Refused(_)), "{status}");
        }
    }
}
