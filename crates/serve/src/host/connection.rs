//! Accepts connections and serves each: how many, how fast they must shake hands, when they end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, interval_at, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Limit;
use crate::host::budget::Budget;
use crate::host::door::Door;
use crate::host::gather::{Gather, Outlet};
use crate::host::metrics::Metrics;

/// What holds for every connection.
#[derive(Clone)]
pub(crate) struct ConnectionRules {
    pub tls: Option<TlsAcceptor>,
    pub connections_max: usize,
    pub connection_bytes_max: usize,
    pub streams_max: u32,
    pub handshake_max: Duration,
    pub keep_alive: Duration,
    /// A connection that holds requests this long, of which none ends or goes on, is closed.
    pub stuck_max: Duration,
}

/// Accepts until `drain` becomes true, then lets the open requests finish; whoever drops the future
/// ends what is left.
pub(crate) async fn serve(
    listener: TcpListener,
    rules: ConnectionRules,
    door: Door,
    budget: Arc<Budget>,
    metrics: Arc<Metrics>,
    mut drain: watch::Receiver<bool>,
) {
    let places = Arc::new(Semaphore::new(rules.connections_max));
    let mut connections = JoinSet::new();
    let draining = drain.clone();
    loop {
        let accepted = tokio::select! {
            _ = drain.wait_for(|drain| *drain) => break,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let stream = match accepted {
            Ok((stream, _)) => stream,
            Err(error) if is_of_one_connection(&error) => continue,
            Err(error) => {
                // Out of files or memory: the connections that end meanwhile give some back.
                tracing::warn!(%error, "no connection can be accepted for now");
                sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else {
            metrics.connections_refused.inc();
            continue;
        };
        let budget = Budget::new(
            Limit::ConnectionBytes,
            rules.connection_bytes_max,
            Some(Arc::clone(&budget)),
        );
        let connection = Connection {
            rules: rules.clone(),
            door: door.with_budget(Arc::clone(&budget)),
            budget,
            metrics: Arc::clone(&metrics),
            drain: draining.clone(),
        };
        connections.spawn(async move {
            connection.metrics.connections.inc();
            let _counted = Counted(Arc::clone(&connection.metrics));
            connection.serve(stream).await;
            drop(place);
        });
    }
    // New connections are refused from here on, by the system itself.
    drop(listener);
    while connections.join_next().await.is_some() {}
}

/// Counts a connection as gone, however it ends.
struct Counted(Arc<Metrics>);

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.connections.dec();
    }
}

struct Connection {
    rules: ConnectionRules,
    door: Door,
    budget: Arc<Budget>,
    metrics: Arc<Metrics>,
    drain: watch::Receiver<bool>,
}

impl Connection {
    async fn serve(self, stream: TcpStream) {
        // Answers are small and awaited: they must not wait for more to fill a packet.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let handshake_max = self.rules.handshake_max;
        let (stream, outlet) = Gather::new(stream);
        match self.rules.tls.clone() {
            None => self.serve_http2(Prompt::new(stream, handshake_max), outlet).await,
            Some(tls) => match timeout(handshake_max, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    self.serve_http2(Prompt::new(stream, handshake_max), outlet).await;
                }
                Ok(Err(error)) => {
                    self.metrics.handshakes_failed.inc();
                    tracing::debug!(%error, "a TLS handshake failed");
                }
                Err(_) => {
                    self.metrics.handshakes_failed.inc();
                    tracing::debug!("a TLS handshake took too long");
                }
            },
        }
    }

    async fn serve_http2<S: AsyncRead + AsyncWrite + Unpin>(
        mut self,
        stream: Prompt<S>,
        outlet: Outlet<TcpStream>,
    ) {
        let mut builder = http2::Builder::new(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            // No client of gRPC reads it, and its size in HPACK changes with the time.
            .auto_date_header(false)
            .initial_stream_window_size(STREAM_WINDOW_BYTES)
            .initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .max_frame_size(FRAME_BYTES_MAX)
            .max_concurrent_streams(self.rules.streams_max)
            .max_header_list_size(HEADER_BYTES_MAX)
            .max_send_buf_size(SEND_BUFFER_BYTES)
            .keep_alive_interval(self.rules.keep_alive)
            .keep_alive_timeout(self.rules.keep_alive);
        let connection = builder.serve_connection(TokioIo::new(stream), self.door);
        outlet.start();
        let connection = std::pin::pin!(connection);
        let mut serving = Turns { connection, outlet, ended: None };
        let stuck_max = self.rules.stuck_max;
        let mut checks = interval_at(Instant::now() + stuck_max, stuck_max);
        let (mut held, mut before) = (false, 0);
        let mut draining = false;
        loop {
            tokio::select! {
                result = &mut serving => {
                    if let Err(error) = result {
                        tracing::debug!(%error, "a connection ended early");
                    }
                    return;
                }
                _ = self.drain.wait_for(|drain| *drain), if !draining => {
                    draining = true;
                    serving.connection.as_mut().graceful_shutdown();
                    checks = interval_at(Instant::now() + DRAIN_IDLE_MAX, DRAIN_IDLE_MAX);
                    (held, before) = (self.budget.open() > 0, self.budget.progress());
                }
                _ = checks.tick() => {
                    let idle = self.budget.open() == 0 && !held;
                    let unchanged = self.budget.progress() == before;
                    // A client that does not even acknowledge the end must not delay it.
                    if draining && idle && unchanged {
                        return;
                    }
                    if !draining && held && unchanged && self.budget.bytes() > 0 {
                        tracing::debug!("closed a connection that does not read its answers");
                        return;
                    }
                    (held, before) = (self.budget.open() > 0, self.budget.progress());
                }
            }
        }
    }
}

/// A connection that sends what it wrote at the end of each turn.
struct Turns<'a, C: Future> {
    connection: Pin<&'a mut C>,
    outlet: Outlet<TcpStream>,
    ended: Option<C::Output>,
}

impl<E, C: Future<Output = Result<(), E>>> Future for Turns<'_, C>
where
    E: std::error::Error + Send + Sync + Unpin + 'static,
{
    type Output = Result<(), Box<dyn std::error::Error + Send + Sync>>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = &mut *self;
        if this.ended.is_none()
            && let Poll::Ready(end) = this.connection.as_mut().poll(cx)
        {
            this.ended = Some(end);
        }
        let drained = this.outlet.poll_drain(cx)?;
        match this.ended.take() {
            Some(Ok(())) if drained.is_pending() => {
                this.ended = Some(Ok(()));
                Poll::Pending
            }
            Some(end) => Poll::Ready(end.map_err(Into::into)),
            None => Poll::Pending,
        }
    }
}

/// A stream that must bring the HTTP/2 preface in time: hyper itself would wait for ever.
struct Prompt<S> {
    stream: S,
    /// Bytes of the preface still to come, and until when.
    awaited: Option<(usize, Pin<Box<Sleep>>)>,
}

impl<S> Prompt<S> {
    fn new(stream: S, limit: Duration) -> Self {
        Self { stream, awaited: Some((PREFACE_BYTES, Box::pin(sleep(limit)))) }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prompt<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let this = &mut *self;
        let before = buf.filled().len();
        let polled = Pin::new(&mut this.stream).poll_read(cx, buf);
        if let Some((missing, deadline)) = &mut this.awaited {
            *missing = missing.saturating_sub(buf.filled().len() - before);
            if *missing == 0 {
                this.awaited = None;
            } else if polled.is_pending() && deadline.as_mut().poll(cx).is_ready() {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
        }
        polled
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prompt<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, slices)
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

/// Whether `accept` failed for the one connection only, which is gone.
fn is_of_one_connection(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

const PREFACE_BYTES: usize = 24;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// After a signal to stop, a connection without requests is closed after this.
const DRAIN_IDLE_MAX: Duration = Duration::from_millis(500);
/// What a client may send ahead. Request bodies count against the budget only once they are read
/// from HTTP/2, so a connection holds at most this much beside its budget.
const STREAM_WINDOW_BYTES: u32 = 512 << 10;
const CONNECTION_WINDOW_BYTES: u32 = 1 << 20;
/// The largest frame that a client may send: a request of many keys needs few.
const FRAME_BYTES_MAX: u32 = 256 << 10;
const SEND_BUFFER_BYTES: usize = 256 << 10;
const HEADER_BYTES_MAX: u32 = 16 << 10;
