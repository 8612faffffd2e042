//! The second port: `/metrics`, `/livez` and `/readyz` in plain HTTP, apart from the work queue.

use std::collections::HashMap;
use std::convert::Infallible;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Method, Request, Response, StatusCode};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::net::TcpListener;
use tokio::sync::{oneshot, watch};
use tokio::task::{AbortHandle, JoinSet};
use tokio::time::{sleep, timeout};

use crate::Error;
use crate::host::metrics::{Limited, Metrics};
use crate::host::peers::peer_of;

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Loading,
    Serving,
    /// It serves, but what it is for cannot be done at present.
    Unready,
    Draining,
    /// What is answered from is no longer what was loaded, or a thread that answers has panicked.
    Failed,
}

/// Serves on a thread of its own, so that who asks for metrics takes none of the time of connections
/// to the service; ends when dropped.
pub(crate) struct Admin(Option<oneshot::Sender<()>>);

impl Admin {
    /// Starts the thread.
    ///
    /// # Errors
    /// [`Error::Io`] where the system gives no thread.
    pub fn start(
        listener: TcpListener,
        metrics: Arc<Metrics>,
        phase: watch::Receiver<Phase>,
    ) -> Result<Self, Error> {
        let failed = |source| Error::Io { what: "start the metrics thread".into(), source };
        let listener = listener.into_std().map_err(failed)?;
        let runtime =
            tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (stop, stopped) = oneshot::channel();
        let serving = move || {
            runtime.block_on(async {
                match TcpListener::from_std(listener) {
                    Ok(listener) => tokio::select! {
                        () = serve(listener, metrics, phase) => {}
                        _ = stopped => {}
                    },
                    Err(error) => tracing::error!(%error, "there are no metrics"),
                }
            });
        };
        std::thread::Builder::new()
            .name("hushtable-admin".into())
            .spawn(serving)
            .map_err(failed)?;
        Ok(Self(Some(stop)))
    }
}

impl Drop for Admin {
    fn drop(&mut self) {
        // A thread that ended by itself has nobody to tell.
        let _ = self.0.take().map(|stop| stop.send(()));
    }
}

/// A connection, from whom, and what ends it.
struct Open {
    peer: IpAddr,
    end: AbortHandle,
}

async fn serve(listener: TcpListener, metrics: Arc<Metrics>, phase: watch::Receiver<Phase>) {
    let mut connections = JoinSet::new();
    // Oldest first.
    let mut open: Vec<Open> = Vec::new();
    loop {
        let accepted = tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => {
                open.retain(|connection| !connection.end.is_finished());
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, addr)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        open.retain(|connection| !connection.end.is_finished());
        if open.len() >= CONNECTIONS_MAX {
            metrics.limit(Limited::Probes);
            let crowded = most_crowded(open.iter().map(|connection| connection.peer));
            let oldest = open.iter().position(|connection| Some(connection.peer) == crowded);
            open.remove(oldest.unwrap_or_default()).end.abort();
        }
        let (metrics, phase) = (Arc::clone(&metrics), phase.clone());
        let end = connections.spawn(async move {
            let service = service_fn(|request: Request<Incoming>| {
                let reply = reply(&request, &metrics, *phase.borrow());
                async { Ok::<_, Infallible>(reply) }
            });
            let serving = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_READ_MAX)
                .max_buf_size(BUFFER_BYTES_MAX)
                .serve_connection(TokioIo::new(stream), service);
            // A scraper that reads nothing must not hold its place for ever.
            if let Ok(Err(error)) = timeout(CONNECTION_MAX, serving).await {
                tracing::debug!(%error, "a connection to the second port ended early");
            }
        });
        open.push(Open { peer: peer_of(addr.ip()), end });
    }
}

/// Who of them is there most often. Where all places are taken, its oldest connection makes room: one
/// that comes is always let in, and a crowd of one peer's costs that peer.
fn most_crowded(peers: impl Iterator<Item = IpAddr>) -> Option<IpAddr> {
    let mut counts: HashMap<IpAddr, usize> = HashMap::new();
    peers.for_each(|peer| *counts.entry(peer).or_default() += 1);
    counts.into_iter().max_by_key(|&(_, count)| count).map(|(peer, _)| peer)
}

fn reply(request: &Request<Incoming>, metrics: &Metrics, phase: Phase) -> Response<Full<Bytes>> {
    if request.method() != Method::GET && request.method() != Method::HEAD {
        return text(StatusCode::METHOD_NOT_ALLOWED, "use GET\n");
    }
    match (request.uri().path(), phase) {
        ("/metrics", _) => {
            let mut reply = Response::new(Full::from(metrics.render()));
            reply.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(OPEN_METRICS));
            reply
        }
        ("/livez", _) => text(StatusCode::OK, "alive\n"),
        ("/readyz", Phase::Serving) => text(StatusCode::OK, "ready\n"),
        ("/readyz", Phase::Unready) => text(
            StatusCode::SERVICE_UNAVAILABLE,
            "its work cannot be done at present: see the log\n",
        ),
        ("/readyz", Phase::Loading) => text(StatusCode::SERVICE_UNAVAILABLE, "loading the table\n"),
        ("/readyz", Phase::Draining) => text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
        ("/readyz", Phase::Failed) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "nothing more can be answered: see the log\n")
        }
        _ => text(StatusCode::NOT_FOUND, "there are /metrics, /livez and /readyz\n"),
    }
}

fn text(status: StatusCode, text: &'static str) -> Response<Full<Bytes>> {
    let mut reply = Response::new(Full::from(text));
    *reply.status_mut() = status;
    let plain = HeaderValue::from_static("text/plain; charset=utf-8");
    reply.headers_mut().insert(CONTENT_TYPE, plain);
    reply
}

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const CONNECTIONS_MAX: usize = 64;
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
const HEADER_READ_MAX: Duration = Duration::from_secs(10);
const CONNECTION_MAX: Duration = Duration::from_secs(600);
const BUFFER_BYTES_MAX: usize = 16 << 10;
