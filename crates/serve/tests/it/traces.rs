//! Traces of real servers, sent to a collector on loopback; and collectors that are gone, slow, busy.

use std::fs;
use std::process::Command;
use std::time::Instant;

use crate::collector::{Collector, Manner, Span, said};
use crate::common::{
    Certificates, PATIENCE, Pair, Process, Running, lay_out, layout_spec, program, raw, reserve,
    row, spec, table, until,
};
use bytes::Bytes;
use hushtable_pir::PrgKind;
use hushtable_pir::TableShape;
use hushtable_pir::dpf::{self, Side};
use hushtable_serve::wire::onion_lookup_client::OnionLookupClient;
use hushtable_serve::wire::private_lookup_client::PrivateLookupClient;
use hushtable_serve::wire::{AnswerRequest, OnionInfoRequest, TableInfoRequest};
use hushtable_serve::{
    ClientSpec, EndpointSpec, Fraction, LookupClient, ModelClient, ModelPin, NetworkSpec,
    NoCollector, OnionServer, OnionServerSpec, Server, ServerSpec,
};
use hushtable_table::model::{self, Feature, Model, Pooling, ShardMap, ShardMapSpec};
use rustix::process::Signal;
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Request};

const ROWS: u64 = 1000;

/// `spec`, with all requests traced.
fn traced(spec: ServerSpec, otlp_endpoint: Option<String>) -> ServerSpec {
    ServerSpec { otlp_endpoint, otlp_sample: Fraction::new(1.0).unwrap(), ..spec }
}

fn start(otlp_endpoint: Option<String>) -> Running {
    let spec = traced(spec(Side::Left), otlp_endpoint);
    Running::start(Server::of_table(spec, table(ROWS, 4, 1)).unwrap())
}

fn request(id: u64, count: usize) -> AnswerRequest {
    let table = table(ROWS, 4, 1);
    let shape = TableShape::new(ROWS, 16).unwrap();
    let client = dpf::Client::new(shape, table.version(), PrgKind::Aes128).unwrap();
    let (request, _) = client.query(&[id], count).unwrap();
    AnswerRequest {
        table_version: Bytes::copy_from_slice(table.version().as_bytes()),
        keys: request.left.into_iter().map(Bytes::from).collect(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_over_tls_is_traced_from_its_request_to_its_pass() {
    let certificates = Certificates::new();
    let collectors = Side::BOTH.map(|_| Collector::start(Manner::Takes));
    let version = table(ROWS, 4, 1).version().to_string();
    let [left, right] = Side::BOTH.map(|side| {
        let url = collectors[usize::from(side == Side::Right)].url();
        let spec = ServerSpec { tls: Some(certificates.tls()), ..traced(spec(side), url) };
        let spec = ServerSpec { otlp_service: format!("films-{side}"), ..spec };
        Running::start(Server::of_table(spec, table(ROWS, 4, 1)).unwrap())
    });
    let endpoint = |url| EndpointSpec::new(url, Some(certificates.ca_pem()));
    let client_spec = ClientSpec::new(endpoint(left.tls_url()), endpoint(right.tls_url()));
    let client = LookupClient::connect(&client_spec).await.unwrap();
    let found = client.lookup(&[7, 999], 8).await.unwrap().rows;
    assert_eq!(found, [row(&table(ROWS, 4, 1), 7), row(&table(ROWS, 4, 1), 999)].concat());
    for collector in &collectors {
        for name in ["Answer", "queue", "pass"] {
            collector.await_spans(name, 1);
        }
    }
    left.stop().unwrap();
    right.stop().unwrap();

    let mut ids = Vec::new();
    for (side, collector) in Side::BOTH.into_iter().zip(&collectors) {
        // The server has stopped: what it sent is all that there is.
        let (spans, who) = collector.spans();
        assert_eq!(said(&who, "service.name").unwrap(), format!("films-{side}"));
        assert_eq!(said(&who, "hushtable.side").unwrap(), side.to_string());
        let named = |name: &str| {
            let found: Vec<_> = spans.iter().filter(|span| span.name == name).collect();
            assert_eq!(found.len(), 1, "{name}: {spans:?}");
            found[0]
        };
        let (answer, queue, pass) = (named("Answer"), named("queue"), named("pass"));
        assert_eq!((answer.kind, &answer.parent_span_id[..]), (2, &[][..]));
        assert_eq!(
            answer.keys(),
            [
                "hushtable.queries",
                "hushtable.received_bytes",
                "hushtable.version",
                "rpc.grpc.status_code",
                "rpc.method",
                "rpc.response.status_code",
                "rpc.service",
                "rpc.system",
            ]
        );
        assert_eq!(answer.said("rpc.service"), "hushtable.v1.PrivateLookup");
        assert_eq!(answer.said("rpc.grpc.status_code"), "0");
        assert_eq!(answer.said("hushtable.queries"), "8");
        assert_eq!(answer.said("hushtable.version"), version[..16]);
        let bytes: usize = answer.said("hushtable.received_bytes").parse().unwrap();
        assert!((8 * 100..8 * 400).contains(&bytes), "{bytes}");

        assert_eq!((&queue.trace_id, &queue.parent_span_id), (&answer.trace_id, &answer.span_id));
        let links: Vec<_> = answer.links.iter().map(|it| (&it.trace_id, &it.span_id)).collect();
        assert_eq!(links, [(&pass.trace_id, &pass.span_id)]);
        assert_ne!(pass.trace_id, answer.trace_id);
        assert_eq!(
            pass.keys(),
            [
                "hushtable.answer_us",
                "hushtable.asked",
                "hushtable.engine",
                "hushtable.queries",
                "hushtable.queue_us",
                "hushtable.requests",
                "hushtable.table",
            ]
        );
        assert_eq!(pass.said("hushtable.asked"), "keys");
        assert_eq!(pass.said("hushtable.queries"), "8");
        assert_eq!(pass.said("hushtable.requests"), "1");
        assert_eq!(pass.said("hushtable.table"), "films");
        assert!(
            pass.said("hushtable.engine").starts_with("cpu"),
            "{}",
            pass.said("hushtable.engine")
        );

        let slack_ns = 2_000_000;
        assert!(answer.started_ns <= queue.started_ns + slack_ns, "{spans:?}");
        assert!(queue.ended_ns <= pass.started_ns + slack_ns, "{spans:?}");
        assert!(pass.ended_ns <= answer.ended_ns + slack_ns, "{spans:?}");
        assert!(answer.started_ns < answer.ended_ns && pass.started_ns < pass.ended_ns);
        assert!(answer.status.is_none());
        ids.extend(spans.iter().map(|span| span.trace_id.clone()));
    }
    // Nothing joins what the two servers say of one lookup.
    let (of_left, of_right) = ids.split_at(collectors[0].spans().0.len());
    assert!(of_left.iter().all(|id| id.iter().any(|&byte| byte != 0) && !of_right.contains(id)));
}

/// The first of the secrets of which eight bytes in a row, as they are, in hex or as numbers, are in what was sent.
fn leaked<'a>(sent: &[u8], secrets: &'a [(&'a str, Vec<u8>)]) -> Option<&'a str> {
    let holds = |part: &[u8]| sent.windows(part.len()).any(|window| window == part);
    let hex = |part: &[u8]| part.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    secrets.iter().find_map(|(name, secret)| {
        let parts = secret.windows(8).step_by(3).filter(|part| {
            // Runs of zeros are in every message.
            let mut bytes = part.to_vec();
            bytes.sort_unstable();
            bytes.dedup();
            bytes.len() >= 4
        });
        let leaks = |part: &[u8]| {
            let (lower, upper) = (hex(part), hex(part).to_uppercase());
            holds(part) || holds(lower.as_bytes()) || holds(upper.as_bytes())
        };
        parts.into_iter().any(leaks).then_some(*name)
    })
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_of_a_query_is_in_what_a_collector_is_sent() {
    let collector = Collector::start(Manner::Takes);
    let server = start(collector.url());
    let mut client = raw(&server).await;
    let mut secrets = Vec::new();
    for id in [3, 500, 999] {
        let request = request(id, 4);
        secrets.extend(request.keys.iter().map(|key| ("a key", key.to_vec())));
        let mut request = Request::new(request);
        // A client's own trace, and headers that no client of ours sends.
        let parent = "00-c0ffee00c0ffee11c0ffee22c0ffee33-c0ffee44c0ffee55-01";
        request.metadata_mut().insert("traceparent", parent.parse().unwrap());
        request.metadata_mut().insert("tracestate", "canary-state=1".parse().unwrap());
        request.metadata_mut().insert("baggage", "canary-baggage=1".parse().unwrap());
        request.metadata_mut().insert("user-agent", "canary-agent".parse().unwrap());
        client.answer(request).await.unwrap();
    }
    let parent = [0xc0, 0xff, 0xee, 0x00, 0xc0, 0xff, 0xee, 0x11, 0xc0, 0xff, 0xee, 0x22];
    secrets.push(("a trace", parent.to_vec()));
    secrets.push(("a trace's text", b"c0ffee00c0ffee11c0ffee22c0ffee33".to_vec()));
    // What is refused is no way out either: a version that is not held, a key that does not parse.
    let canary: Vec<u8> = (0..32).map(|i| b"canary-version-a"[i % 16]).collect();
    let unknown = AnswerRequest { table_version: canary.clone().into(), ..request(1, 1) };
    assert_eq!(client.answer(unknown).await.unwrap_err().code(), Code::FailedPrecondition);
    let asked = TableInfoRequest { table_version: canary.into() };
    client.table_info(asked).await.unwrap_err();
    let garbled = Bytes::from_static(b"canary-of-a-key-that-does-not-parse");
    let garbled = AnswerRequest { keys: vec![garbled], ..request(1, 1) };
    assert_eq!(client.answer(garbled).await.unwrap_err().code(), Code::InvalidArgument);
    secrets.push(("a word", b"canary-".repeat(2)));
    collector.await_spans("Answer", 5);
    collector.await_spans("TableInfo", 1);
    server.stop().unwrap();

    let (spans, _) = collector.spans();
    assert_eq!(spans.iter().filter(|span| span.name == "Answer").count(), 5);
    assert!(spans.iter().any(|span| span.name == "TableInfo"));
    let messages = collector.messages();
    for sent in &messages {
        assert_eq!(leaked(&sent.body, &secrets), None);
        assert_eq!(leaked(sent.head.as_bytes(), &secrets), None);
        assert!(!sent.body.windows(6).any(|window| window == b"canary"));
    }
    // Where nothing of a request was right, nothing is said of its queries.
    let refused = spans.iter().filter(|span| span.name == "Answer" && span.links.is_empty());
    for span in refused {
        assert!(!span.keys().contains(&"hushtable.queries"), "{span:?}");
    }
    // The test sees a leak where there is one.
    let mut planted = messages[0].body.clone();
    planted.extend(secrets[0].1[20..30].iter().flat_map(|byte| format!("{byte:02x}").into_bytes()));
    assert_eq!(leaked(&planted, &secrets), Some("a key"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stops_sends_its_last_spans() {
    // It has two seconds for that, which a machine that stands still may take: then once more.
    for _ in 0..10 {
        let collector = Collector::start(Manner::Takes);
        let server = start(collector.url());
        raw(&server).await.answer(request(5, 1)).await.unwrap();
        server.stop().unwrap();
        if collector.spans().0.iter().any(|span| span.name == "Answer") {
            return;
        }
    }
    panic!("nothing was sent in ten times");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_gone_costs_spans_and_nothing_else() {
    // An address at which nobody listens.
    let server = start(Some(format!("http://{}", reserve())));
    let mut client = raw(&server).await;
    for _ in 0..20 {
        assert_eq!(client.answer(request(5, 1)).await.unwrap().get_ref().answers.len(), 16);
    }
    let dropped = async || server.metric("hushtable_spans_dropped_total").await;
    until("all spans are dropped", async || dropped().await >= 60.0).await;
    assert_eq!(server.metric("hushtable_spans_sent_total").await, 0.0);
    client.answer(request(5, 1)).await.unwrap();
    let stopping = Instant::now();
    server.stop().unwrap();
    assert!(stopping.elapsed() < PATIENCE / 2, "{:?}", stopping.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_hangs_fills_a_queue_that_has_an_end() {
    let collector = Collector::start(Manner::Hangs);
    let server = start(collector.url());
    let client = raw(&server).await;
    // A request makes up to three spans; room is for 8,192 and the message that hangs.
    let mut lookups = tokio::task::JoinSet::new();
    for _ in 0..20 {
        let (mut client, request) = (client.clone(), request(5, 1));
        lookups.spawn(async move {
            for _ in 0..250 {
                client.answer(request.clone()).await.unwrap();
            }
        });
    }
    while let Some(done) = lookups.join_next().await {
        done.unwrap();
    }
    assert!(server.metric("hushtable_spans_dropped_total").await > 0.0);
    assert_eq!(server.metric("hushtable_spans_sent_total").await, 0.0);
    let stopping = Instant::now();
    server.stop().unwrap();
    // The flush has two seconds: sixteen messages that wait five each would take longer than this.
    assert!(stopping.elapsed() < PATIENCE / 2, "{:?}", stopping.elapsed());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_collector_that_is_busy_is_asked_again() {
    let collector = Collector::start(Manner::Busy(2));
    let server = start(collector.url());
    raw(&server).await.answer(request(5, 1)).await.unwrap();
    collector.await_spans("Answer", 1);
    assert!(collector.messages().len() >= 3);
    let sent = async || server.metric("hushtable_spans_sent_total").await;
    until("all spans are sent", async || sent().await >= 3.0).await;
    assert_eq!(server.metric("hushtable_spans_dropped_total").await, 0.0);
    let head = &collector.messages()[0].head;
    assert!(head.starts_with("POST /v1/traces HTTP/1.1\r\n"), "{head}");
    assert!(head.contains("content-type: application/x-protobuf\r\n"), "{head}");
}

async fn client_of(server: &Process) -> PrivateLookupClient<Channel> {
    let endpoint = Endpoint::from_shared(server.url()).unwrap();
    PrivateLookupClient::new(endpoint.connect().await.unwrap())
}

/// The names of a process's threads.
fn threads(process: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{process}/task")).unwrap();
    let name =
        |task: fs::DirEntry| fs::read_to_string(task.path().join("comm")).unwrap_or_default();
    tasks.map(|task| name(task.unwrap()).trim().to_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_a_collector_there_is_no_thread_and_with_one_by_https_it_is_checked() {
    const THREAD: &str = "hushtable-otlp";
    let folder = TempDir::new().unwrap();
    let bundle = folder.path().join("films");
    table(ROWS, 4, 1).save(&bundle).unwrap();
    let of_bundle = |spec: ServerSpec| ServerSpec { table: bundle.clone(), ..spec };

    let quiet = Process::start(folder.path(), "quiet", &of_bundle(spec(Side::Left)), &[]);
    let mut client = client_of(&quiet).await;
    client.answer(request(5, 1)).await.unwrap();
    let names = threads(quiet.id());
    assert!(names.iter().any(|name| name == "hushtable-pass"), "{names:?}");
    assert!(!names.iter().any(|name| name == THREAD), "{names:?}");
    let text = crate::common::page(quiet.metrics_addr, "/metrics").await.1;
    assert!(!text.contains("hushtable_spans"), "{text}");

    let certificates = Certificates::new();
    let collector =
        Collector::start_tls(&certificates.path("cert.pem"), &certificates.path("key.pem"));
    let url = Some(format!("https://localhost:{}", collector.addr.port()));
    let others = Certificates::new();
    for (name, trusted) in [("trusted", &certificates), ("another", &others)] {
        let mut command = Command::new(program());
        command.env_remove("SSL_CERT_DIR").env("SSL_CERT_FILE", trusted.path("ca.pem"));
        let spec = of_bundle(traced(spec(Side::Left), url.clone()));
        let mut server = Process::start_by(&mut command, folder.path(), name, &spec, &[]);
        let mut client = client_of(&server).await;
        client.answer(request(5, 1)).await.unwrap();
        assert!(threads(server.id()).iter().any(|name| name == THREAD));
        if name == "trusted" {
            collector.await_spans("Answer", 1);
        }
        server.signal(Signal::TERM);
        assert!(server.wait().success());
        // What was sent before is all: a collector of an unknown authority gets nothing.
        let answers = collector.spans().0.iter().filter(|span| span.name == "Answer").count();
        assert_eq!(answers, 1, "{name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inferences_and_single_servers_are_traced_too() {
    let collector = Collector::start(Manner::Takes);
    let laid_out = || lay_out(table(2000, 4, 1), layout_spec(2000, 1));
    let servers = Pair::start_with(laid_out, |spec| traced(spec, collector.url()));
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    client.fetch_bag(&[1, 2, 1999]).await.unwrap();
    let spans = collector.await_spans("AnswerBags", 2);
    let layout = laid_out().layout().unwrap().version().to_string();
    let bags = spans.iter().find(|span| span.name == "AnswerBags").unwrap();
    assert_eq!(bags.said("hushtable.queries"), "1");
    assert_eq!(bags.said("hushtable.version"), layout[..16]);
    let passes = collector.await_spans("pass", 2);
    assert!(passes.iter().any(|it| it.name == "pass" && it.said("hushtable.asked") == "bags"));

    let network = NetworkSpec {
        addr: reserve(),
        metrics_addr: Some(([127, 0, 0, 1], 0).into()),
        otlp_endpoint: collector.url(),
        otlp_sample: Fraction::new(1.0).unwrap(),
        ..NetworkSpec::default()
    };
    let spec = OnionServerSpec { network, prepared: None, threads: 1, ..OnionServerSpec::new("") };
    let single = Running::start(OnionServer::of_table(spec, table(64, 4, 1)).unwrap());
    let endpoint = Endpoint::from_shared(single.url()).unwrap();
    let mut client = OnionLookupClient::new(endpoint.connect().await.unwrap());
    client.info(OnionInfoRequest::default()).await.unwrap();
    single.stop().unwrap();
    let spans = collector.spans().0;
    let info = spans.iter().find(|it| it.name == "OnionInfo").unwrap();
    assert_eq!(info.said("rpc.service"), "hushtable.v1.OnionLookup");
}

/// A left front of two shards, and what they send to one collector.
struct Fronted {
    folder: TempDir,
    collector: Collector,
    front: Running,
    shards: Vec<Running>,
}

impl Fronted {
    /// Traced by these fractions; a front without one sends nothing.
    fn start(of_front: Option<f64>, of_shards: f64) -> Self {
        let folder = TempDir::new().unwrap();
        let path = folder.path().join("model");
        let feature = Feature { name: "film".into(), table: 0, pooling: Pooling::Sum, max_ids: 3 };
        model::write(&path, "clicks", &[("films", &table(ROWS, 4, 1))], &[feature], None).unwrap();
        let model = Model::open(&path).unwrap();
        let two = ShardMapSpec { shards: Some(2), ..ShardMapSpec::default() };
        ShardMap::plan(&model, &two).unwrap().write(&model).unwrap();
        let collector = Collector::start(Manner::Takes);
        let start = |sample: Option<f64>, spec: ServerSpec| {
            let url = sample.and_then(|_| collector.url());
            let otlp_sample = Fraction::new(sample.unwrap_or_default()).unwrap();
            Running::start(Server::open(ServerSpec { otlp_sample, ..traced(spec, url) }).unwrap())
        };
        let of = || ServerSpec { table: path.clone(), ..spec(Side::Left) };
        let shard = |number| start(Some(of_shards), ServerSpec { shard: Some(number), ..of() });
        let shards = vec![shard(0), shard(1)];
        let file = folder.path().join("shards.toml");
        let named = shards.iter().map(|it| format!("[[shard]]\nreplicas = [\"{}\"]\n", it.url()));
        fs::write(&file, named.collect::<String>()).unwrap();
        let front = start(of_front, ServerSpec { shards_file: Some(file), ..of() });
        Self { folder, collector, front, shards }
    }

    /// Ends all three, in this order: all that they have to say is there then.
    fn stop(self) -> Collector {
        self.front.stop().unwrap();
        self.shards.into_iter().for_each(|shard| shard.stop().unwrap());
        self.collector
    }
}

fn named<'a>(spans: &'a [Span], name: &str) -> Vec<&'a Span> {
    spans.iter().filter(|span| span.name == name).collect()
}

fn links(span: &Span) -> Vec<(&[u8], &[u8])> {
    span.links.iter().map(|it| (&it.trace_id[..], &it.span_id[..])).collect()
}

fn id(span: &Span) -> (&[u8], &[u8]) {
    (&span.trace_id, &span.span_id)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_shards_do_for_a_front_is_part_of_its_pass() {
    // Shards sample none of themselves: what they say is of the front's traces alone.
    let fronted = Fronted::start(Some(1.0), 0.0);
    let right = ServerSpec { table: fronted.folder.path().join("model"), ..spec(Side::Right) };
    let right = Running::start(Server::open(right).unwrap());
    let endpoint = |of: &Running| EndpointSpec::new(of.url(), None);
    let both = ClientSpec::new(endpoint(&fronted.front), endpoint(&right));
    let client = ModelClient::connect(&both, &ModelPin::default()).await.unwrap();
    let found = client.lookup(&[("film", &[7, 999])]).await.unwrap();
    let expected = [row(&table(ROWS, 4, 1), 7), row(&table(ROWS, 4, 1), 999)].concat();
    assert_eq!(found.features[0].rows[..32], expected);
    // A client's own trace goes nowhere.
    let asked = request(500, 4);
    let mut secrets: Vec<_> = asked.keys.iter().map(|key| ("a key", key.to_vec())).collect();
    secrets.push(("a trace", (0..16).map(|byte| byte * 15 + 7).collect()));
    let mut asked = Request::new(asked);
    let hex = secrets[4].1.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let parent = format!("00-{hex}-{}-01", &hex[..16]);
    asked.metadata_mut().insert("traceparent", parent.parse().unwrap());
    raw(&fronted.front).await.answer(asked).await.unwrap();
    let collector = fronted.stop();

    let (spans, _) = collector.spans();
    let (at_shards, passes) = (named(&spans, "AnswerPass"), named(&spans, "pass"));
    assert_eq!(at_shards.len(), 4, "{spans:?}");
    for (method, asked) in [("AnswerModel", "inferences"), ("Answer", "keys")] {
        let [request] = named(&spans, method)[..] else { panic!("{method}: {spans:?}") };
        assert!(request.parent_span_id.is_empty(), "{request:?}");
        let is_its = |pass: &&&Span| links(pass).contains(&id(request));
        let [pass] = passes.iter().filter(is_its).collect::<Vec<_>>()[..] else {
            panic!("{method}: {spans:?}")
        };
        assert_eq!(links(request), [id(pass)]);
        assert_eq!(
            (pass.said("hushtable.asked"), &pass.parent_span_id[..]),
            (asked.into(), &[][..])
        );
        // Each shard was asked once, as a part of that pass.
        let is_part = |span: &&&Span| span.parent_span_id == pass.span_id;
        let parts: Vec<_> = at_shards.iter().filter(is_part).collect();
        assert_eq!(parts.len(), 2, "{method}: {spans:?}");
        for part in parts {
            assert_eq!((&part.trace_id, part.kind), (&pass.trace_id, 2));
            assert_eq!(part.said("rpc.service"), "hushtable.v1.PrivateShard");
            assert!(part.started_ns + 2_000_000 >= pass.started_ns, "{spans:?}");
            assert!(part.ended_ns <= pass.ended_ns + 2_000_000, "{spans:?}");
            // There it waited, and has a pass of its own: that may answer other fronts besides.
            let is_queue = |span: &&&Span| span.parent_span_id == part.span_id;
            let queues = named(&spans, "queue");
            let [queue] = queues.iter().filter(is_queue).collect::<Vec<_>>()[..] else {
                panic!("{method}: {spans:?}")
            };
            assert_eq!(queue.trace_id, part.trace_id);
            let own: Vec<_> = passes.iter().filter(|it| links(it).contains(&id(part))).collect();
            assert_eq!(own.len(), 1, "{spans:?}");
            assert_ne!(own[0].trace_id, pass.trace_id);
        }
    }
    for sent in collector.messages() {
        assert_eq!(leaked(&sent.body, &secrets), None);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pass_that_a_front_does_not_trace_is_sampled_by_its_shards() {
    let untraced = Fronted::start(Some(0.0), 0.0);
    raw(&untraced.front).await.answer(request(500, 4)).await.unwrap();
    assert_eq!(untraced.stop().spans().0.len(), 0);

    let fronted = Fronted::start(None, 1.0);
    raw(&fronted.front).await.answer(request(500, 4)).await.unwrap();
    let collector = fronted.stop();
    let (spans, _) = collector.spans();
    assert!(named(&spans, "Answer").is_empty());
    // Also of what the front asked before it served.
    let at_shards = named(&spans, "AnswerPass");
    assert!(at_shards.len() >= 2, "{spans:?}");
    let traces: std::collections::HashSet<_> = at_shards.iter().map(|it| &it.trace_id).collect();
    assert_eq!(traces.len(), at_shards.len());
    assert!(at_shards.iter().all(|span| span.parent_span_id.is_empty()), "{spans:?}");
}

#[test]
fn a_collector_that_cannot_be_is_refused_at_the_start() {
    for url in ["collector:4318", "ftp://collector", "http://collector/?all"] {
        let spec = traced(spec(Side::Left), Some(url.into()));
        let error = Server::of_table(spec, table(10, 1, 1)).err().unwrap();
        assert!(error.of::<NoCollector>().is_some_and(|at| at.url == url), "{error}");
    }
    let json = r#"{"table": "t", "side": "left", "otlp_sample": 1.5}"#;
    let error = serde_json::from_str::<ServerSpec>(json).unwrap_err().to_string();
    assert!(error.contains("1.5 is no fraction"), "{error}");
}
