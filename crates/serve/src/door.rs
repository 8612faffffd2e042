//! The one place that every request passes: it counts, bounds and times it, then routes it.

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tower::Service;

use crate::Refusal;
use crate::budget::{Budget, Held, Reservation};
use crate::observe::{Method, Metrics};
use crate::service::LookupService;
use crate::wire::private_lookup_server::PrivateLookupServer;

/// Answers the requests of one connection.
#[derive(Clone)]
pub(crate) struct Door {
    lookup: PrivateLookupServer<LookupService>,
    health: HealthServer<HealthService>,
    metrics: Arc<Metrics>,
    retry_after: Duration,
    request_max: Duration,
    budget: Arc<Budget>,
}

impl Door {
    pub fn new(
        service: &Arc<LookupService>,
        health: HealthServer<HealthService>,
        metrics: Arc<Metrics>,
        request_bytes_max: usize,
        request_max: Duration,
        budget: Arc<Budget>,
    ) -> Self {
        let lookup = PrivateLookupServer::from_arc(Arc::clone(service))
            .max_decoding_message_size(request_bytes_max);
        let retry_after = service.retry_after();
        Self { lookup, health, metrics, retry_after, request_max, budget }
    }

    /// Answers a request whose bytes, and whose answer's, count against the budget.
    fn look_up(&self, request: Request<Incoming>) -> Visiting {
        let reservation = Arc::new(self.budget.reserve());
        let retry_after = self.retry_after;
        let mut request = request.map(|body| CountedBody {
            body,
            reservation: Arc::clone(&reservation),
            retry_after,
        });
        request.extensions_mut().insert(Arc::clone(&reservation));
        let reply = self.lookup.clone().call(request);
        Box::pin(async move {
            let reply = reply.await?;
            Ok(reply.map(|body| tonic::body::Body::new(HeldBody { body, reservation })))
        })
    }

    /// The door of one more connection, whose bytes count against `budget`.
    pub fn with_budget(&self, budget: Arc<Budget>) -> Self {
        Self { budget, ..self.clone() }
    }
}

type Reply = Response<tonic::body::Body>;
type Visiting = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Reply;
    type Error = Infallible;
    type Future = Visiting;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let method = Method::of_path(request.uri().path());
        let visit = Visit::new(Arc::clone(&self.metrics), method);
        let request_max = self.request_max;
        // Clones of a few Arcs: `call` of a tonic service wants `&mut`, a connection's requests run
        // side by side.
        let reply: Self::Future = match method {
            Method::Answer | Method::AnswerBags | Method::Layout | Method::TableInfo => {
                self.look_up(request)
            }
            Method::Health => Box::pin(self.health.clone().call(request)),
            Method::Other => {
                Box::pin(async { Ok(Status::unimplemented("no such method").into_http()) })
            }
        };
        Box::pin(async move {
            let reply = match tokio::time::timeout(request_max, reply).await {
                Ok(Ok(reply)) => reply,
                Ok(Err(never)) => match never {},
                Err(_) => Status::deadline_exceeded(format!(
                    "the request was not complete and answered within {} ms",
                    request_max.as_millis()
                ))
                .into_http(),
            };
            visit.finish(code(&reply));
            Ok(reply)
        })
    }
}

/// The status of a reply: errors have it among the headers, all else is on its way to be OK.
fn code(reply: &Reply) -> Code {
    reply
        .headers()
        .get("grpc-status")
        .map_or(Code::Ok, |status| Code::from_bytes(status.as_bytes()))
}

/// Counts a request when it is over, however it ends.
struct Visit {
    metrics: Arc<Metrics>,
    method: Method,
    started: Instant,
    code: Code,
}

impl Visit {
    fn new(metrics: Arc<Metrics>, method: Method) -> Self {
        // A client that goes away drops the future: then this code stands.
        Self { metrics, method, started: Instant::now(), code: Code::Cancelled }
    }

    fn finish(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.metrics.record(self.method, self.code, self.started.elapsed());
    }
}

/// A request body whose bytes are counted as they come in, and refused once there is no room.
struct CountedBody {
    body: Incoming,
    reservation: Arc<Reservation>,
    retry_after: Duration,
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = match ready!(Pin::new(&mut self.body).poll_frame(cx)) {
            None => return Poll::Ready(None),
            Some(Ok(frame)) => frame,
            Some(Err(error)) => return Poll::Ready(Some(Err(Status::from_error(error.into())))),
        };
        if let Some(data) = frame.data_ref()
            && let Err(limit) = self.reservation.grow(data.len())
        {
            let retry_after = self.retry_after;
            return Poll::Ready(Some(Err(Refusal::Busy { limit, retry_after }.to_status())));
        }
        Poll::Ready(Some(Ok(frame)))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

/// A reply's body whose bytes stay counted until they have left for the network: HTTP/2 buffers
/// them for as long as the client makes no room.
struct HeldBody {
    body: tonic::body::Body,
    reservation: Arc<Reservation>,
}

impl Body for HeldBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let frame = ready!(Pin::new(&mut self.body).poll_frame(cx));
        Poll::Ready(frame.map(|frame| {
            frame.map(|frame| {
                frame.map_data(|bytes| {
                    let _reservation = Arc::clone(&self.reservation);
                    Bytes::from_owner(Held { bytes, _reservation })
                })
            })
        }))
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}
