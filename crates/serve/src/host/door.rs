//! The one place that every request passes: it counts, bounds and times it, then routes it.

use std::convert::Infallible;
use std::path::Path;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Request, Response};
use hyper::body::{Body, Frame, Incoming, SizeHint};
use tokio::sync::watch;
use tokio::time::{Sleep, sleep};
use tonic::{Code, Status};
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::HealthService;
use tower::Service as _;

use crate::host::admission::Admission;
use crate::host::budget::{Budget, Held, Reservation};
use crate::host::metrics::{Limited, Metrics};
use crate::host::peers::Rate;
use crate::host::push::{FRAME_BYTES_MAX, PUSH_MAX, Push};
use crate::host::reload::{Next, Reloaded};
use crate::host::scheme::{Destination, GrpcService, Loading, service_of};
use crate::host::tls::{PeerCertificate, PeerNames};
use crate::trace::{Traced, Tracer};
use crate::wire::operate_server::OperateServer;
use crate::{Error, Limit, Refusal};

/// What a scheme's service tells the rest of the server.
pub trait Service: Send + Sync + 'static {
    /// What lets requests in.
    fn admission(&self) -> &Admission;

    /// Whether what it answers from is still what was loaded. May block.
    ///
    /// # Errors
    /// What changed; then nothing is answered any more.
    fn check(&self) -> Result<(), Error> {
        Ok(())
    }

    /// Whether it can do its work, for those that wait for a change; None where it always can.
    fn readiness(&self) -> Option<watch::Receiver<bool>> {
        None
    }

    /// Takes a next version beside what it answers from, and announces it once it is known to be right. May block
    /// for as long as a load; one is asked for at a time.
    ///
    /// # Errors
    /// Why it does not; then nothing has changed.
    #[allow(unused_variables, reason = "a scheme names them")]
    fn reload(&self, next: &Next, loading: &Loading) -> Result<Reloaded, Error> {
        Ok(Reloaded::Unchanged)
    }

    /// Reads every byte of a bundle that was pushed, and checks it against the bundle's own hashes. May block.
    ///
    /// # Errors
    /// What is wrong with it.
    #[allow(unused_variables, reason = "a scheme names it")]
    fn examine(&self, folder: &Path) -> Result<(), Error> {
        Ok(())
    }

    /// Called every second or so: drops the versions that nobody asks for any more. May block.
    fn retire(&self) {}

    /// Called once, after the last answer: what is unfinished must end here.
    fn stop(self: Arc<Self>) -> Stopping {
        Box::pin(std::future::ready(()))
    }
}

/// A scheme's gRPC methods, with the messages that they take bounded.
pub trait Routes: Send + Sync {
    /// As [`Service::admission`].
    fn admission(&self) -> &Admission;
    /// As [`Service::check`].
    ///
    /// # Errors
    /// As [`Service::check`].
    fn check(&self) -> Result<(), Error>;
    /// As [`Service::readiness`].
    fn readiness(&self) -> Option<watch::Receiver<bool>>;
    /// As [`Service::reload`].
    ///
    /// # Errors
    /// As [`Service::reload`].
    fn reload(&self, next: &Next, loading: &Loading) -> Result<Reloaded, Error>;
    /// As [`Service::examine`].
    ///
    /// # Errors
    /// As [`Service::examine`].
    fn examine(&self, folder: &Path) -> Result<(), Error>;
    /// As [`Service::retire`].
    fn retire(&self);
    /// As [`Service::stop`].
    fn stop(&self) -> Stopping;
    /// Answers a request to one of the services that the descriptor offers.
    fn call(&self, request: Request<CountedBody>) -> Visiting;
}

/// A gRPC service `S` as generated code `G` routes to it.
#[allow(clippy::exhaustive_structs, reason = "it is made of its two parts")]
pub struct Routed<G, S> {
    /// What generated code makes of the service.
    pub grpc: G,
    /// The service.
    pub service: Arc<S>,
}

impl<G, S: Service> Routes for Routed<G, S>
where
    G: tower::Service<Request<CountedBody>, Response = Reply, Error = Infallible>
        + Clone
        + Send
        + Sync,
    G::Future: Send + 'static,
{
    fn admission(&self) -> &Admission {
        self.service.admission()
    }

    fn check(&self) -> Result<(), Error> {
        self.service.check()
    }

    fn readiness(&self) -> Option<watch::Receiver<bool>> {
        self.service.readiness()
    }

    fn reload(&self, next: &Next, loading: &Loading) -> Result<Reloaded, Error> {
        self.service.reload(next, loading)
    }

    fn examine(&self, folder: &Path) -> Result<(), Error> {
        self.service.examine(folder)
    }

    fn retire(&self) {
        self.service.retire();
    }

    fn stop(&self) -> Stopping {
        Arc::clone(&self.service).stop()
    }

    fn call(&self, request: Request<CountedBody>) -> Visiting {
        // A clone of an Arc: `call` wants `&mut`, a connection's requests run side by side.
        Box::pin(self.grpc.clone().call(request))
    }
}

/// Generated code that is made anew for each request, since its bounds change with what is held. `F` makes it.
#[derive(Clone)]
pub(crate) struct Fresh<F>(pub F);

impl<G, F: Fn() -> G> tower::Service<Request<CountedBody>> for Fresh<F>
where
    G: tower::Service<Request<CountedBody>, Response = Reply, Error = Infallible>,
{
    type Response = Reply;
    type Error = Infallible;
    type Future = G::Future;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<CountedBody>) -> Self::Future {
        (self.0)().call(request)
    }
}

/// Answers the requests of one connection.
#[derive(Clone)]
pub(crate) struct Door {
    services: &'static [GrpcService],
    routes: Arc<dyn Routes>,
    health: HealthServer<HealthService>,
    metrics: Arc<Metrics>,
    request_max: Duration,
    body_idle_max: Duration,
    budget: Arc<Budget>,
    /// None before there is a connection.
    rate: Option<Arc<Rate>>,
    /// The client's, where it has one.
    certificate: Option<(PeerCertificate, PeerNames)>,
    /// What takes bundles from the operator, where there is a token for it.
    push: Option<OperateServer<Push>>,
    /// What traces requests; None where they are not.
    tracer: Option<Arc<Tracer>>,
    /// Whether a request may say that it is part of another server's trace.
    is_joined: bool,
}

impl Door {
    pub fn new(
        services: &'static [GrpcService],
        routes: Arc<dyn Routes>,
        health: HealthServer<HealthService>,
        metrics: Arc<Metrics>,
        [request_max, body_idle_max]: [Duration; 2],
        budget: Arc<Budget>,
    ) -> Self {
        Self {
            services,
            routes,
            health,
            metrics,
            request_max,
            body_idle_max,
            budget,
            rate: None,
            certificate: None,
            push: None,
            tracer: None,
            is_joined: false,
        }
    }

    /// The same, with what traces its requests. Where they are `is_joined`, each says by [`crate::trace::join`]
    /// whether it is part of another server's trace.
    pub fn traced(self, tracer: Option<Arc<Tracer>>, is_joined: bool) -> Self {
        Self { tracer, is_joined, ..self }
    }

    /// The same, with what takes an operator's pushes.
    pub fn taking(self, push: Option<Push>) -> Self {
        let push = push.map(OperateServer::new);
        let push = push.map(|push| push.max_decoding_message_size(FRAME_BYTES_MAX));
        Self { push, ..self }
    }

    /// Answers a request whose bytes, and whose answer's, count against the budget.
    fn look_up(&self, request: Request<Incoming>, traced: Option<Arc<Traced>>) -> Visiting {
        let routes = Arc::clone(&self.routes);
        self.count_in(request, traced, move |request| routes.call(request))
    }

    fn count_in(
        &self,
        request: Request<Incoming>,
        traced: Option<Arc<Traced>>,
        call: impl FnOnce(Request<CountedBody>) -> Visiting,
    ) -> Visiting {
        let reservation = Arc::new(self.budget.reserve());
        let retry_after = self.routes.admission().retry_after();
        let mut request = request.map(|body| CountedBody {
            body,
            reservation: Arc::clone(&reservation),
            retry_after,
            idle_max: self.body_idle_max,
            idle: None,
            metrics: Arc::clone(&self.metrics),
            traced: traced.clone(),
        });
        request.extensions_mut().insert(Arc::clone(&reservation));
        if let Some((certificate, names)) = &self.certificate {
            request.extensions_mut().insert(*certificate);
            request.extensions_mut().insert(names.clone());
        }
        let reply = match traced {
            None => call(request),
            Some(traced) => Box::pin(traced.scope(call(request))),
        };
        Box::pin(async move {
            let reply = reply.await?;
            Ok(reply.map(|body| tonic::body::Body::new(HeldBody { body, reservation })))
        })
    }

    /// Answers a request for the server's health. A watch lasts: its connection is not idle, and no drain waits for it.
    fn probe(&self, request: Request<Incoming>) -> Visiting {
        let is_watch = request.uri().path().ends_with("/Watch");
        let budget = &self.budget;
        let reservation = if is_watch { budget.watch() } else { budget.reserve() };
        let reservation = Arc::new(reservation);
        let reply = self.health.clone().call(request);
        Box::pin(async move {
            let reply = reply.await?;
            Ok(reply.map(|body| tonic::body::Body::new(HeldBody { body, reservation })))
        })
    }

    /// The door of one more connection, whose bytes count against `budget` and its requests against
    /// `rate`.
    pub fn of_connection(&self, budget: Arc<Budget>, rate: Arc<Rate>) -> Self {
        Self { budget, rate: Some(rate), ..self.clone() }
    }

    /// Counts a request against what its peer may ask in a second.
    fn check_rate(&self) -> Result<(), Refusal> {
        let Some(rate) = &self.rate else { return Ok(()) };
        rate.take(Instant::now()).map_err(|retry_after| {
            self.metrics.limit(Limited::Requests);
            Refusal::Busy { limit: Limit::PeerRequests, retry_after }
        })
    }

    /// The door of a connection whose client proved to have this certificate, which every request
    /// then carries among its extensions.
    pub fn of_client(&self, certificate: Option<(PeerCertificate, PeerNames)>) -> Self {
        Self { certificate, ..self.clone() }
    }
}

type Reply = Response<tonic::body::Body>;
/// A service's end.
pub type Stopping = Pin<Box<dyn Future<Output = ()> + Send>>;
/// An answer on its way.
pub type Visiting = Pin<Box<dyn Future<Output = Result<Reply, Infallible>> + Send>>;

impl hyper::service::Service<Request<Incoming>> for Door {
    type Response = Reply;
    type Error = Infallible;
    type Future = Visiting;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let destination = Destination::of(request.uri().path(), self.services);
        let mut visit = Visit::new(Arc::clone(&self.metrics), destination.metric());
        let mut request_max = self.request_max;
        if let Err(refusal) = self.check_rate() {
            let status = refusal.to_status();
            visit.finish(status.code());
            return Box::pin(async move { Ok(status.into_http()) });
        }
        if let (Some(tracer), Destination::Offered(_)) = (&self.tracer, destination) {
            let traced = if self.is_joined { Some(tracer.offer()) } else { tracer.begin() };
            visit.trace(traced, service_of(request.uri().path(), self.services));
        }
        let traced = visit.traced();
        let push = self.push.clone().filter(|_| request.uri().path() == PUSH_PATH);
        let reply: Self::Future = match destination {
            Destination::NoService if push.is_some() => {
                request_max = PUSH_MAX;
                self.count_in(request, None, move |request| match push {
                    Some(mut push) => Box::pin(push.call(request)),
                    None => Box::pin(async { Ok(Status::unimplemented("no pushes").into_http()) }),
                })
            }
            Destination::Health => self.probe(request),
            Destination::Offered(_) => self.look_up(request, traced),
            Destination::NoMethod => {
                Box::pin(async { Ok(Status::unimplemented("no such method").into_http()) })
            }
            Destination::NoService => {
                let names: Vec<_> = self.services.iter().map(|service| service.name).collect();
                let words = format!("this server offers {}", names.join(", "));
                Box::pin(async { Ok(Status::unimplemented(words).into_http()) })
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
            let reply = undecodable(reply);
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

/// What generated code says of bytes that are no message is the server's own fault by its status; it is the caller's.
fn undecodable(reply: Reply) -> Reply {
    let is_own = code(&reply) != Code::Internal;
    let status = if is_own { None } else { Status::from_header_map(reply.headers()) };
    match status.is_some_and(|status| status.message().starts_with(NO_MESSAGE)) {
        true => Refusal::Undecodable.to_status().into_http(),
        false => reply,
    }
}

/// How prost begins to say that bytes are no message.
const NO_MESSAGE: &str = "failed to decode Protobuf message";

/// Counts a request when it is over, however it ends.
struct Visit {
    metrics: Arc<Metrics>,
    method: &'static str,
    started: Instant,
    code: Code,
    /// Its trace, and the service that it is for.
    traced: Option<(Arc<Traced>, &'static str)>,
}

impl Visit {
    fn new(metrics: Arc<Metrics>, method: &'static str) -> Self {
        // A client that goes away drops the future: then this code stands.
        Self { metrics, method, started: Instant::now(), code: Code::Cancelled, traced: None }
    }

    fn trace(&mut self, traced: Option<Arc<Traced>>, service: &'static str) {
        self.traced = traced.map(|traced| (traced, service));
    }

    fn traced(&self) -> Option<Arc<Traced>> {
        self.traced.as_ref().map(|(traced, _)| Arc::clone(traced))
    }

    fn finish(mut self, code: Code) {
        self.code = code;
    }
}

impl Drop for Visit {
    fn drop(&mut self) {
        self.metrics.record(self.method, self.code, self.started.elapsed());
        if let Some((traced, service)) = &self.traced {
            traced.finish(service, self.method, self.code, self.started);
        }
    }
}

/// A request body whose bytes are counted as they come in, and refused once there is no room.
pub struct CountedBody {
    body: Incoming,
    reservation: Arc<Reservation>,
    retry_after: Duration,
    /// How long nothing may come of it, and until when it is waited for now.
    idle_max: Duration,
    idle: Option<Pin<Box<Sleep>>>,
    metrics: Arc<Metrics>,
    traced: Option<Arc<Traced>>,
}

impl CountedBody {
    /// Whether nothing has come for too long.
    fn poll_idle(&mut self, cx: &mut Context<'_>) -> Poll<Status> {
        let idle_max = self.idle_max;
        let idle = self.idle.get_or_insert_with(|| Box::pin(sleep(idle_max)));
        ready!(idle.as_mut().poll(cx));
        self.metrics.limit(Limited::Body);
        let waited = idle_max.as_millis();
        Poll::Ready(Status::deadline_exceeded(format!(
            "nothing came of the request for {waited} ms"
        )))
    }
}

impl Body for CountedBody {
    type Data = Bytes;
    type Error = Status;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Status>>> {
        let Poll::Ready(frame) = Pin::new(&mut self.body).poll_frame(cx) else {
            return self.poll_idle(cx).map(|status| Some(Err(status)));
        };
        self.idle = None;
        let frame = match frame {
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
        if let (Some(data), Some(traced)) = (frame.data_ref(), &self.traced) {
            traced.receive(data.len());
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

const PUSH_PATH: &str = "/hushtable.v1.Operate/Push";
