//! Accepts connections and serves each: how many, how fast they must shake hands, when they end.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use rustls::ServerConfig;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{Instant, Sleep, interval_at, sleep, timeout};
use tokio_rustls::TlsAcceptor;

use crate::Limit;
use crate::host::budget::Budget;
use crate::host::door::Door;
use crate::host::frames::{Frames, Misuse};
use crate::host::gather::{Gather, Outlet};
use crate::host::metrics::{Limited, Metrics};
use crate::host::peers::{Peers, Place};
use crate::host::tls::{PeerCertificate, PeerNames};

/// What holds for every connection.
#[derive(Clone)]
pub(crate) struct ConnectionRules {
    /// What is shown to new connections.
    pub tls: Option<watch::Receiver<Arc<ServerConfig>>>,
    pub connections_max: usize,
    pub connection_bytes_max: usize,
    pub streams_max: u32,
    pub handshake_max: Duration,
    pub keep_alive: Duration,
    pub peers: Arc<Peers>,
    /// A connection without requests is closed after this.
    pub idle_max: Duration,
    pub headers_max: Duration,
    pub pings_max: u32,
    /// A connection that holds requests this long, of which none ends or goes on, is closed.
    pub stuck_max: Duration,
}

/// Accepts until `drain` becomes true, then lets the open requests finish; whoever drops the future
/// ends what is left.
pub(crate) async fn serve(
    listener: TcpListener,
    rules: ConnectionRules,
    door: Door,
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
        let (stream, addr) = match accepted {
            Ok(accepted) => accepted,
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
        let Some(of_peer) = rules.peers.enter(addr.ip()) else {
            metrics.connections_refused.inc();
            metrics.limit(Limited::Connections);
            continue;
        };
        let budget = Budget::of(
            Limit::ConnectionBytes,
            rules.connection_bytes_max,
            Some(Arc::clone(&of_peer.budget)),
            of_peer.origin,
        );
        let connection = Connection {
            rules: rules.clone(),
            door: door.of_connection(Arc::clone(&budget), Arc::clone(&of_peer.rate)),
            budget,
            metrics: Arc::clone(&metrics),
            drain: draining.clone(),
            of_peer,
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
    #[allow(dead_code, reason = "it is held, and given back with the connection")]
    of_peer: Place,
}

impl Connection {
    async fn serve(mut self, stream: TcpStream) {
        // Answers are small and awaited: they must not wait for more to fill a packet.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let handshake_max = self.rules.handshake_max;
        let limits = [handshake_max, self.rules.headers_max];
        let (pings_max, metrics) = (self.rules.pings_max, Arc::clone(&self.metrics));
        let (stream, outlet) = Gather::new(stream);
        let tls = self.rules.tls.as_ref().map(|tls| TlsAcceptor::from(Arc::clone(&tls.borrow())));
        match tls {
            None => {
                self.serve_http2(Prompt::new(stream, limits, pings_max, metrics), outlet).await;
            }
            Some(tls) => match timeout(handshake_max, tls.accept(stream)).await {
                Ok(Ok(stream)) => {
                    let connection = stream.get_ref().1;
                    let certificate = PeerCertificate::of(connection);
                    self.door = self.door.of_client(certificate.zip(PeerNames::of(connection)));
                    let stream = Prompt::new(stream, limits, pings_max, metrics);
                    self.serve_http2(stream, outlet).await;
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
            // A client that asks two servers gives up its calls to one where the other fails: all of them at once.
            .max_pending_accept_reset_streams(self.rules.streams_max as usize)
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
        // Twice in each such time, so that a request in between is not overlooked for long.
        let idle_max = self.rules.idle_max;
        let mut rests = interval_at(Instant::now() + idle_max / 2, idle_max / 2);
        let (mut rested, mut begun) = (0, 0);
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
                    (held, before) = (self.budget.due() > 0, self.budget.progress());
                }
                _ = rests.tick(), if !draining => {
                    let is_idle = self.budget.open() == 0 && self.budget.begun() == begun;
                    (rested, begun) = (if is_idle { rested + 1 } else { 0 }, self.budget.begun());
                    if rested == 2 {
                        self.metrics.limit(Limited::Idle);
                        // A client that asks just now is answered, or told that it was not heard.
                        serving.connection.as_mut().graceful_shutdown();
                        checks = interval_at(Instant::now() + DRAIN_IDLE_MAX, DRAIN_IDLE_MAX);
                        (held, before) = (false, self.budget.progress());
                        draining = true;
                    }
                }
                _ = checks.tick() => {
                    // Who watches has been told; one that does not read it is not waited for.
                    let due = if draining { self.budget.due() } else { self.budget.open() };
                    let idle = due == 0 && !held;
                    let unchanged = self.budget.progress() == before;
                    // A client that does not even acknowledge the end must not delay it.
                    if draining && idle && unchanged {
                        return;
                    }
                    if !draining && held && unchanged && self.budget.bytes() > 0 {
                        self.metrics.limit(Limited::Unread);
                        tracing::debug!("closed a connection that does not read its answers");
                        return;
                    }
                    (held, before) = (due > 0, self.budget.progress());
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

/// A stream that must bring the HTTP/2 preface, and all headers that it begins, in time, and not too
/// many frames for nothing: hyper itself would wait, and answer, for ever.
struct Prompt<S> {
    stream: S,
    frames: Frames,
    /// How long the preface may take, and headers.
    limits: [Duration; 2],
    /// Until when what has begun must have come.
    deadline: Option<Pin<Box<Sleep>>>,
    /// Which it is that has begun.
    begun: u64,
    metrics: Arc<Metrics>,
}

impl<S> Prompt<S> {
    fn new(stream: S, limits: [Duration; 2], pings_max: u32, metrics: Arc<Metrics>) -> Self {
        let deadline = Some(Box::pin(sleep(limits[0])));
        Self { stream, frames: Frames::new(pings_max), limits, deadline, begun: 0, metrics }
    }

    /// Takes note of what was read; an error where it is too much.
    fn follow(&mut self, bytes: &[u8]) -> io::Result<()> {
        if let Err(Misuse::Pings) = self.frames.follow(bytes, std::time::Instant::now) {
            self.metrics.limit(Limited::Pings);
            return Err(io::Error::other("too many frames for nothing"));
        }
        if self.frames.awaits_preface() {
            return Ok(());
        }
        match self.frames.is_open() {
            false => self.deadline = None,
            // Each has its own time, wherever a read happens to end.
            true if self.begun != self.frames.begun() => {
                self.begun = self.frames.begun();
                self.deadline = Some(Box::pin(sleep(self.limits[1])));
            }
            true => {}
        }
        Ok(())
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
        let read = &buf.filled()[before..];
        if !read.is_empty() {
            this.follow(read)?;
        }
        // What comes byte by byte is late as well as what does not come.
        if let Some(deadline) = &mut this.deadline
            && deadline.as_mut().poll(cx).is_ready()
        {
            if !this.frames.awaits_preface() {
                this.metrics.limit(Limited::Headers);
            }
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
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
