//! A scheme that is not of this crate, added as CONTRIBUTING.md says: one descriptor, and the server has
//! its ports, metrics, health, limits and end from the host.

use crate::common;

use std::convert::Infallible;
use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use common::{Running, Startable};
use hushtable_serve::host::{
    Admission, CountedBody, GrpcService, Loading, Method, Network, PushRefusal, Reservation,
    Routed, Routes, Scheme, Service, Stopping, TableLabel, TableSizes, Unbound, Visiting, Vital,
};
use hushtable_serve::refusal::Listed;
use hushtable_serve::{BoundServer, Error, Limit, NetworkSpec, Refusal, refusal_of, refusals};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;
use tonic::client::Grpc as GrpcClient;
use tonic::codegen::BoxFuture;
use tonic::server::{Grpc, UnaryService};
use tonic::transport::Channel;
use tonic::{Code, Request, Response, Status};
use tonic_prost::ProstCodec;

refusals! {
    /// Why an echo is refused.
    pub enum EchoRefusal {
        /// A text that is longer than an echo.
        #[error("the text has {chars} characters: shorten it to {chars_max}")]
        TooLong = OutOfRange "TOO_LONG" {
            /// Characters received.
            chars: usize,
            /// Characters allowed.
            chars_max: usize,
        },
    }
}

/// What travels, both ways.
#[derive(Clone, PartialEq, prost::Message)]
struct Text {
    #[prost(string, tag = "1")]
    text: String,
}

/// What is no [`Text`].
#[derive(Clone, PartialEq, prost::Message)]
struct Number {
    #[prost(uint64, tag = "1")]
    text: u64,
}

const SERVICE: GrpcService = GrpcService {
    name: "toys.v1.Echo",
    methods: &[Method { name: "Say", metric: "EchoSay" }, Method::named("Hold")],
};

#[derive(Clone, Default)]
struct EchoMetrics {
    sizes: TableSizes,
    echoes: Family<TableLabel, Counter>,
}

impl EchoMetrics {
    fn register(&self, registry: &mut Registry) {
        self.sizes.register(registry);
        registry.register("echoes", "Texts that were said again", self.echoes.clone());
    }
}

struct EchoService {
    admission: Admission,
    echoes: Counter,
    /// Lets go of what `Hold` holds.
    release: Arc<Notify>,
    is_stopped: Arc<AtomicBool>,
    /// Panics where it is told a word that it does not know.
    speller: std::sync::mpsc::Sender<String>,
}

impl EchoService {
    fn say(&self, mut request: Request<Text>) -> Result<Response<Text>, Status> {
        self.admission.check_open()?;
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let text = request.into_inner();
        // The answer is held beside the request.
        self.admission.hold(reservation.as_deref(), text.text.len())?;
        let chars = text.text.chars().count();
        if chars > CHARS_MAX {
            return Err(EchoRefusal::TooLong { chars, chars_max: CHARS_MAX }.into());
        }
        self.echoes.inc();
        drop(self.speller.send(text.text.clone()));
        Ok(Response::new(text))
    }
}

impl Service for EchoService {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn stop(self: Arc<Self>) -> Stopping {
        self.is_stopped.store(true, Ordering::Relaxed);
        Box::pin(std::future::ready(()))
    }
}

/// What generated code would be.
#[derive(Clone)]
struct EchoGrpc(Arc<EchoService>);

impl tower::Service<http::Request<CountedBody>> for EchoGrpc {
    type Response = http::Response<tonic::body::Body>;
    type Error = Infallible;
    type Future = Visiting;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<CountedBody>) -> Visiting {
        let method = EchoMethod {
            service: Arc::clone(&self.0),
            holds: request.uri().path().ends_with("/Hold"),
        };
        let mut grpc = Grpc::new(ProstCodec::default());
        Box::pin(async move { Ok(grpc.unary(method, request).await) })
    }
}

struct EchoMethod {
    service: Arc<EchoService>,
    holds: bool,
}

impl UnaryService<Text> for EchoMethod {
    type Response = Text;
    type Future = BoxFuture<Response<Text>, Status>;

    fn call(&mut self, request: Request<Text>) -> Self::Future {
        let (service, holds) = (Arc::clone(&self.service), self.holds);
        Box::pin(async move {
            let said = service.say(request);
            if holds {
                service.release.notified().await;
            }
            said
        })
    }
}

/// A checked server that has not started yet.
struct EchoServer {
    network: Network,
    release: Arc<Notify>,
    is_stopped: Arc<AtomicBool>,
}

impl EchoServer {
    fn new() -> Self {
        let any = ([127, 0, 0, 1], 0).into();
        let spec = NetworkSpec {
            addr: any,
            metrics_addr: Some(any),
            inflight_bytes_max: WHOLE_BYTES,
            ..NetworkSpec::default()
        };
        let network = Network::check(spec, WHOLE_BYTES).unwrap();
        Self { network, release: Arc::default(), is_stopped: Arc::default() }
    }

    fn unbound(self) -> Unbound {
        let Self { network, release, is_stopped } = self;
        let metrics = EchoMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let load = Box::new(move |loading: &Loading| {
            let words = TableLabel::new("words");
            metrics.sizes.set(&words, 7, 28);
            let echoes = metrics.echoes.get_or_create_owned(&words);
            loading.engine.set("a parrot".into()).unwrap();
            let admission = Admission::new(Duration::from_millis(3));
            let speller = spell(loading.vitals.hold(SPELLER));
            let service = EchoService { admission, echoes, release, is_stopped, speller };
            let service = Arc::new(service);
            let grpc = EchoGrpc(Arc::clone(&service));
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        });
        Unbound::new(network, Scheme { services: &[SERVICE], side: "parrot", register, load })
    }
}

/// A thread that the server cannot do without.
fn spell(vital: Vital) -> std::sync::mpsc::Sender<String> {
    let (sender, words) = std::sync::mpsc::channel::<String>();
    let work = move || {
        let _vital = vital;
        words.iter().for_each(|word| assert_ne!(word, UNKNOWN, "a word that nobody knows"));
    };
    std::thread::spawn(work);
    sender
}

impl Startable for EchoServer {
    fn bind(self) -> impl Future<Output = Result<BoundServer, Error>> {
        self.unbound().bind()
    }
}

async fn channel(server: &Running) -> Channel {
    let endpoint = tonic::transport::Endpoint::from_shared(server.url()).unwrap();
    endpoint.connect().await.unwrap()
}

async fn call(channel: &Channel, path: &'static str, text: &str) -> Result<String, Status> {
    let mut grpc = GrpcClient::new(channel.clone());
    grpc.ready().await.unwrap();
    let request = Request::new(Text { text: text.into() });
    let codec = ProstCodec::<Text, Text>::default();
    let path = http::uri::PathAndQuery::from_static(path);
    Ok(grpc.unary(request, path, codec).await?.into_inner().text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_scheme_that_brings_a_descriptor_has_all_that_the_built_in_ones_have() {
    let server = Running::start(EchoServer::new());
    let channel = channel(&server).await;
    assert_eq!(call(&channel, SAY, "hello").await.unwrap(), "hello");

    // Its refusals travel as those of the built-in schemes do, and so do the host's own.
    let status = call(&channel, SAY, &"x".repeat(CHARS_MAX + 1)).await.unwrap_err();
    let refusal = EchoRefusal::TooLong { chars: CHARS_MAX + 1, chars_max: CHARS_MAX };
    assert_eq!(
        (status.code(), EchoRefusal::from_status(&status)),
        (Code::OutOfRange, Some(refusal.clone()))
    );
    assert_eq!(refusal_of(&status), None, "no other scheme takes it for its own");
    // Who reads by its table has it as any other refusal.
    let read = Refusal::read(&status, &[Listed::of::<EchoRefusal>()]);
    assert_eq!(read, Some(Refusal::from(refusal.clone())));
    assert_eq!(read.as_ref().and_then(Refusal::of), Some(&refusal));
    assert_eq!(read.as_ref().and_then(Refusal::of::<PushRefusal>), None);
    let status = call(&channel, SAY, &"x".repeat(2 * WHOLE_BYTES)).await.unwrap_err();
    let Some(Refusal::Busy { limit, retry_after }) = refusal_of(&status) else {
        panic!("{status:?}")
    };
    assert_eq!((limit, retry_after), (Limit::ConnectionBytes, Duration::from_millis(3)));

    // Bytes that are no message are the caller's fault, by reason.
    let mut grpc = GrpcClient::new(channel.clone());
    grpc.ready().await.unwrap();
    let (codec, path) = (ProstCodec::<Number, Text>::default(), SAY.parse().unwrap());
    let status = grpc.unary(Request::new(Number { text: 7 }), path, codec).await.unwrap_err();
    let found = (status.code(), refusal_of(&status));
    assert_eq!(found, (Code::InvalidArgument, Some(Refusal::Undecodable)), "{status:?}");

    // Methods and services that the descriptor does not have.
    let status = call(&channel, "/toys.v1.Echo/Sing", "la").await.unwrap_err();
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, "no such method"));
    let status = call(&channel, "/hushtable.v1.PrivateLookup/TableInfo", "").await.unwrap_err();
    let words = "this server offers toys.v1.Echo";
    assert_eq!((status.code(), status.message()), (Code::Unimplemented, words));

    let mut health = tonic_health::pb::health_client::HealthClient::new(channel);
    let request = tonic_health::pb::HealthCheckRequest { service: SERVICE.name.into() };
    assert_eq!(health.check(request).await.unwrap().get_ref().status, 1);

    let text = server.page("/metrics").await.1;
    for (name, value) in [
        (r#"hushtable_requests_total{method="EchoSay",code="OK"}"#, 1.0),
        (r#"hushtable_requests_total{method="EchoSay",code="INVALID_ARGUMENT"}"#, 1.0),
        (r#"hushtable_requests_total{method="EchoSay",code="OUT_OF_RANGE"}"#, 1.0),
        (r#"hushtable_requests_total{method="EchoSay",code="RESOURCE_EXHAUSTED"}"#, 1.0),
        (r#"hushtable_requests_total{method="other",code="UNIMPLEMENTED"}"#, 2.0),
        (r#"hushtable_requests_total{method="Health",code="OK"}"#, 1.0),
        (r#"hushtable_echoes_total{table="words"}"#, 1.0),
        (r#"hushtable_table_rows{table="words"}"#, 7.0),
        ("hushtable_inflight_bytes", 0.0),
    ] {
        assert_eq!(common::metric_of(&text, name), value, "{name}");
    }
    assert!(text.contains(r#"side="parrot""#), "{text}");
    assert!(!text.contains("hushtable_client_keys"), "no other scheme's metrics:\n{text}");
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn its_server_drains_what_is_open_and_tells_it_to_stop() {
    let echo = EchoServer::new();
    let (release, is_stopped) = (Arc::clone(&echo.release), Arc::clone(&echo.is_stopped));
    let mut server = Running::start(echo);
    let channel = channel(&server).await;
    let held = tokio::spawn(async move { call(&channel, HOLD, "wait").await });
    while server.metric(r#"hushtable_echoes_total{table="words"}"#).await < 1.0 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    server.signal();
    while server.page("/readyz").await.0 == 200 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    assert!(!is_stopped.load(Ordering::Relaxed), "a call is still open");
    release.notify_one();
    assert_eq!(held.await.unwrap().unwrap(), "wait");
    server.stop().unwrap();
    assert!(is_stopped.load(Ordering::Relaxed));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_thread_of_it_that_panics_ends_its_server_which_says_so_first() {
    let echo = EchoServer::new();
    let release = Arc::clone(&echo.release);
    let server = Running::start(echo);
    let channel = channel(&server).await;
    let mut health = tonic_health::pb::health_client::HealthClient::new(channel.clone());
    let request = tonic_health::pb::HealthCheckRequest { service: SERVICE.name.into() };
    let mut health = health.watch(request).await.unwrap().into_inner();
    assert_eq!(health.message().await.unwrap().unwrap().status, SERVING);
    assert_eq!(server.metric("hushtable_panics_total").await, 0.0);
    let said = channel.clone();
    // It is answered, and keeps the server from ending before it was seen.
    let held = tokio::spawn(async move { call(&said, HOLD, UNKNOWN).await });
    assert_eq!(health.message().await.unwrap().unwrap().status, NOT_SERVING);
    let (status, text) = server.page("/readyz").await;
    assert_eq!((status, text.contains("see the log")), (503, true), "{text}");
    assert_eq!(server.metric("hushtable_panics_total").await, 1.0);
    release.notify_one();
    assert_eq!(held.await.unwrap().unwrap(), UNKNOWN);
    let error = server.stop().unwrap_err();
    assert!(matches!(error, Error::Panicked { thread: SPELLER }), "{error}");
}

const SPELLER: &str = "that spells";
const UNKNOWN: &str = "xyzzy";
const SERVING: i32 = 1;
const NOT_SERVING: i32 = 2;
const SAY: &str = "/toys.v1.Echo/Say";
const HOLD: &str = "/toys.v1.Echo/Hold";
const CHARS_MAX: usize = 100;
/// What one request may hold.
const WHOLE_BYTES: usize = 4096;
