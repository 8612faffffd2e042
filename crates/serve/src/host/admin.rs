//! The second port: `/metrics`, `/livez` and `/readyz` in plain HTTP, apart from the work queue.

use std::convert::Infallible;
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
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use crate::host::metrics::Metrics;

/// What a server is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Loading,
    Serving,
    Draining,
    /// What is answered from is no longer what was loaded.
    Failed,
}

/// Serves until dropped.
pub(crate) async fn serve(
    listener: TcpListener,
    metrics: Arc<Metrics>,
    phase: watch::Receiver<Phase>,
) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    let mut connections = JoinSet::new();
    loop {
        let accepted = tokio::select! {
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            accepted = listener.accept() => accepted,
        };
        let Ok((stream, _)) = accepted else {
            sleep(ACCEPT_PAUSE).await;
            continue;
        };
        let Ok(place) = Arc::clone(&places).try_acquire_owned() else { continue };
        let (metrics, phase) = (Arc::clone(&metrics), phase.clone());
        connections.spawn(async move {
            let _place = place;
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
    }
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
        ("/readyz", Phase::Loading) => text(StatusCode::SERVICE_UNAVAILABLE, "loading the table\n"),
        ("/readyz", Phase::Draining) => text(StatusCode::SERVICE_UNAVAILABLE, "shutting down\n"),
        ("/readyz", Phase::Failed) => {
            text(StatusCode::SERVICE_UNAVAILABLE, "the table was changed while it was served\n")
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
