//! What a server that is asked alone says to requests that it cannot answer, over the bare wire
//! contract.

use crate::common::{Running, network, table, until};
use bytes::Bytes;
use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Geometry, KeyId, ParameterSet};
use hushtable_serve::wire::onion_lookup_client::OnionLookupClient;
use hushtable_serve::wire::{KeysChunk, OnionAnswerRequest, OnionInfoRequest, PutKeysReply};
use hushtable_serve::{Error, NetworkSpec, OnionServer, OnionServerSpec};
use hushtable_table::Table;
use tonic::codegen::tokio_stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt;

const ROWS: u64 = 1000;

fn spec() -> OnionServerSpec {
    OnionServerSpec { network: network(), threads: 1, ..OnionServerSpec::new("") }
}

fn start(spec: OnionServerSpec) -> Running {
    Running::start(OnionServer::of_table(spec, films()).unwrap())
}

fn films() -> Table {
    table(ROWS, 4, 1)
}

fn geometry(set: ParameterSet) -> Geometry {
    Geometry::new(set, TableShape::new(ROWS, 16).unwrap()).unwrap()
}

fn client() -> Client {
    Client::new(geometry(ParameterSet::N4096128), films().version()).unwrap()
}

async fn raw(server: &Running) -> OnionLookupClient<Channel> {
    let endpoint = Endpoint::from_shared(server.url()).unwrap();
    OnionLookupClient::new(endpoint.connect().await.unwrap())
}

async fn put(server: &Running, bytes: &[u8], chunk_bytes: usize) -> Result<PutKeysReply, Status> {
    let chunks: Vec<_> = bytes
        .chunks(chunk_bytes)
        .map(|bytes| KeysChunk { bytes: Bytes::copy_from_slice(bytes) })
        .collect();
    Ok(raw(server).await.put_keys(tokio_stream::iter(chunks)).await?.into_inner())
}

/// A request for row 5 that the server answers once it has the keys.
fn good(client: &Client, queries: usize) -> OnionAnswerRequest {
    let (queries, _) = client.query(&[5], queries).unwrap();
    OnionAnswerRequest {
        table_version: Bytes::copy_from_slice(films().version().as_bytes()),
        key_id: Bytes::copy_from_slice(client.key_id().as_bytes()),
        queries: queries.into_iter().map(Bytes::from).collect(),
    }
}

fn reason(status: &Status) -> (Code, String, String) {
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no details in {status:?}"));
    assert_eq!(info.domain, "hushtable");
    (status.code(), info.reason.clone(), status.message().to_owned())
}

async fn refusal(server: &Running, request: OnionAnswerRequest) -> (Code, String, String) {
    reason(&raw(server).await.answer(request).await.unwrap_err())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_in_pieces_of_any_size_have_one_id() {
    let server = start(spec());
    let client = client();
    for (chunk_bytes, held) in [(1 << 20, false), (1 << 20, true), (1000, true)] {
        let reply = put(&server, client.keys(), chunk_bytes).await.unwrap();
        assert_eq!(&reply.key_id[..], client.key_id().as_bytes());
        assert_eq!((reply.held, reply.evicted), (Some(held), Some(0)));
    }
    let info = raw(&server).await.info(OnionInfoRequest::default()).await.unwrap().into_inner();
    assert_eq!(info.key_bytes, client.keys().len() as u64);
    assert_eq!(info.parameters, "n4096_128");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_no_keys() {
    let server = start(spec());
    let good = client().keys().to_vec();
    let key_bytes = good.len();
    let changed = |at: usize, byte: u8| {
        let mut keys = good.clone();
        keys[at] = byte;
        keys
    };
    let other = Client::new(geometry(ParameterSet::IvePaper), films().version()).unwrap();
    let mut oversized = good.clone();
    oversized.push(0);
    for (bytes, defect) in [
        (vec![], "length"),
        (vec![1; 7], "length"),
        (good[..key_bytes - 1].to_vec(), "length"),
        (oversized, "length"),
        (vec![0xff; 8 << 20], "length"),
        (vec![0xff; 2 * key_bytes], "parameters"),
        (changed(0, 99), "parameters"),
        (changed(1, 99), "parameters"),
        (changed(2, good[2] + 1), "parameters"),
        (other.keys().to_vec(), "parameters"),
    ] {
        let length = bytes.len();
        let status = put(&server, &bytes, 1 << 20).await.unwrap_err();
        let (code, reason, words) = reason(&status);
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "BAD_KEYS"), "{words}");
        assert!(words.contains(defect), "{length} bytes: {words}");
    }
    // All numbers at their modulus or above.
    let mut large = good.clone();
    large[64..].fill(0xff);
    let (_, reason, words) = reason(&put(&server, &large, 1 << 20).await.unwrap_err());
    assert_eq!(reason, "BAD_KEYS");
    assert!(words.contains("residue"), "{words}");
    // A chunk that is much too large is not even read.
    let status = put(&server, &vec![0; 8 << 20], 8 << 20).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert_eq!(server.metric("hushtable_client_keys_memory").await, 0.0);
    assert_eq!(put(&server, &good, 1 << 20).await.unwrap().held, Some(false));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_stops_half_way_leaves_nothing() {
    let limits = NetworkSpec { request_ms_max: 300, ..spec().network };
    let server = start(OnionServerSpec { network: limits, ..spec() });
    let half = KeysChunk { bytes: Bytes::copy_from_slice(&client().keys()[..1000]) };
    let (sender, receiver) = tokio::sync::mpsc::channel(1);
    sender.send(half).await.unwrap();
    let mut raw = raw(&server).await;
    let stream = StreamOf(receiver);
    let status = raw.put_keys(stream).await.unwrap_err();
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    drop(sender);
    server.comes_to("hushtable_inflight_bytes", 0.0).await;
    assert_eq!(server.metric("hushtable_client_keys_memory").await, 0.0);
}

/// A channel as a stream.
struct StreamOf(tokio::sync::mpsc::Receiver<KeysChunk>);

impl tokio_stream::Stream for StreamOf {
    type Item = KeysChunk;

    fn poll_next(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
    ) -> std::task::Poll<Option<KeysChunk>> {
        self.0.poll_recv(cx)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queries_that_cannot_be_answered() {
    let server = start(OnionServerSpec { queries_per_request_max: Some(4), ..spec() });
    let client = client();

    let (code, reason, words) = refusal(&server, good(&client, 1)).await;
    assert_eq!((code, reason.as_str()), (Code::NotFound, "UNKNOWN_KEYS"));
    assert!(words.contains(&client.key_id().to_string()), "{words}");
    put(&server, client.keys(), 1 << 20).await.unwrap();
    let reply = raw(&server).await.answer(good(&client, 4)).await.unwrap().into_inner();
    assert_eq!(reply.responses.len(), 4 * client.geometry().response_bytes());
    assert!(reply.queue_us.is_some() && reply.answer_us.is_some());

    let with = |change: fn(&mut OnionAnswerRequest)| {
        let mut request = good(&client, 2);
        change(&mut request);
        request
    };
    let (invalid, failed) = (Code::InvalidArgument, Code::FailedPrecondition);
    for (request, expected, part) in [
        (with(|r| r.queries.clear()), (invalid, "NO_QUERIES"), "at least one"),
        (with(|r| r.queries = vec![Bytes::new(); 5]), (invalid, "TOO_MANY_QUERIES"), "5"),
        (with(|r| r.key_id = Bytes::new()), (invalid, "BAD_KEY_ID"), "32"),
        (with(|r| r.key_id = vec![0; 33].into()), (invalid, "BAD_KEY_ID"), "33"),
        (with(|r| r.table_version = vec![0; 31].into()), (invalid, "BAD_VERSION"), "31"),
        (with(|r| r.table_version = vec![7; 32].into()), (failed, "VERSION_SKEW"), "0707"),
        (with(|r| r.queries[1] = Bytes::new()), (invalid, "BAD_QUERY"), "query 1"),
        (with(|r| r.queries[1].truncate(9999)), (invalid, "BAD_QUERY"), "length"),
        (with(|r| r.queries[0] = vec![0xff; 40].into()), (invalid, "BAD_QUERY"), "query 0"),
    ] {
        let (code, reason, words) = refusal(&server, request).await;
        assert_eq!((code, reason.as_str()), expected, "{words}");
        assert!(words.contains(part), "{words}");
    }
    // Bytes of the right length that are no query.
    let mut request = good(&client, 1);
    let mut query = request.queries[0].to_vec();
    query[64..].fill(0xff);
    request.queries[0] = query.into();
    let (_, reason, words) = refusal(&server, request).await;
    assert_eq!(reason, "BAD_QUERY");
    assert!(words.contains("residue"), "{words}");
    // A request of more bytes than any that is answered.
    let mut request = good(&client, 4);
    request.queries.extend(request.queries.clone());
    let status = raw(&server).await.answer(request).await;
    let status = status.err().unwrap();
    assert!(matches!(status.code(), Code::OutOfRange | Code::InvalidArgument), "{status:?}");
    // Another client's queries under these keys are noise, but answered: the server cannot tell.
    let stranger = self::client();
    let mut request = good(&stranger, 1);
    request.key_id = Bytes::copy_from_slice(client.key_id().as_bytes());
    raw(&server).await.answer(request).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_in_flight_are_bounded_for_uploads_too() {
    let key_bytes = client().keys().len();
    let network = NetworkSpec {
        inflight_bytes_max: 16 * key_bytes,
        // Who waits is waited for.
        request_ms_max: 3_600_000,
        body_idle_ms_max: 600_000,
        ..spec().network
    };
    let limits = OnionServerSpec { queries_per_request_max: Some(1), network, ..spec() };
    let server = start(limits);
    // Uploads that wait for their bytes hold what they will need: there is room for two.
    let mut waiting = Vec::new();
    for _ in 0..2 {
        let (sender, receiver) = tokio::sync::mpsc::channel(1);
        let mut raw = raw(&server).await;
        let upload = tokio::spawn(async move { raw.put_keys(StreamOf(receiver)).await });
        waiting.push((sender, upload));
    }
    let least = 12.0 * key_bytes as f64;
    let hold = async || server.metric("hushtable_inflight_bytes").await >= least;
    until("both hold what they need", hold).await;
    let status = put(&server, client().keys(), 1 << 20).await.unwrap_err();
    let (code, reason, _) = reason(&status);
    assert_eq!((code, reason.as_str()), (Code::ResourceExhausted, "BUSY"), "{status:?}");
    assert!(status.get_error_details().retry_info().is_some());
    for (sender, upload) in waiting {
        let bytes = Bytes::copy_from_slice(client().keys());
        sender.send(KeysChunk { bytes }).await.unwrap();
        drop(sender);
        upload.await.unwrap().unwrap();
    }
    assert_eq!(server.metric("hushtable_client_keys_memory").await, 2.0);
}

#[test]
fn specs_that_cannot_be() {
    let check = |spec| OnionServer::of_table(spec, films()).err().unwrap();
    let open = NetworkSpec { addr: "0.0.0.0:0".parse().unwrap(), ..spec().network };
    let error = check(OnionServerSpec { network: open, ..spec() });
    assert!(matches!(error, Error::Exposed { .. }), "{error:?}");
    let small = NetworkSpec { inflight_bytes_max: 1 << 20, ..spec().network };
    for (spec, expected) in [
        (OnionServerSpec { network: small, ..spec() }, "inflight_bytes_max"),
        (OnionServerSpec { threads: 5000, ..spec() }, "threads"),
        (OnionServerSpec { batch_queries_max: Some(0), ..spec() }, "batch_queries_max"),
        (OnionServerSpec { queue_queries_max: 0, ..spec() }, "queue_queries_max"),
        (OnionServerSpec { queries_per_request_max: Some(0), ..spec() }, "queries_per_request_max"),
        (OnionServerSpec { window_us: Some(u64::MAX), ..spec() }, "window_us"),
        (OnionServerSpec { keys_memory_bytes_max: 1000, ..spec() }, "keys_memory_bytes_max"),
        (OnionServerSpec { keys_folder_bytes_max: 1000, ..spec() }, "keys_folder_bytes_max"),
    ] {
        let error = check(spec);
        assert!(matches!(&error, Error::Setting { name, .. } if *name == expected), "{error:?}");
    }
    let error = check(OnionServerSpec { parameters: "n1024_40".into(), ..spec() });
    assert!(matches!(&error, Error::ParameterSet { name } if name == "n1024_40"), "{error:?}");
    assert!(error.to_string().contains("n4096_128, ive_paper"), "{error}");
    let wide = table(2, 16384, 1);
    let error = OnionServer::of_table(spec(), wide).err().unwrap();
    assert!(error.of::<hushtable_pir::onion::Error>().is_some(), "{error:?}");
    let error = OnionServer::open(OnionServerSpec::new("/nowhere/at/all")).err().unwrap();
    assert!(matches!(&error, Error::Table { .. }), "{error:?}");
}

#[test]
fn a_spec_is_read_from_a_file() {
    let read = serde_json::from_str::<OnionServerSpec>;
    assert_eq!(read(r#"{ "table": "films" }"#).unwrap(), OnionServerSpec::new("films"));
    let spec = read(r#"{ "table": "films", "addr": "127.0.0.1:7", "metrics_addr": null }"#);
    let network = NetworkSpec {
        addr: ([127, 0, 0, 1], 7).into(),
        metrics_addr: None,
        ..NetworkSpec::default()
    };
    assert_eq!(spec.unwrap(), OnionServerSpec { network, ..OnionServerSpec::new("films") });
    let full = OnionServerSpec {
        prepared: Some("films.prepared".into()),
        keys_folder: Some("keys".into()),
        window_us: Some(5),
        ..self::spec()
    };
    let text = serde_json::to_string(&full).unwrap();
    assert_eq!(read(&text).unwrap(), full);
    for bad in [
        r#"{ "table": "films", "side": "left" }"#,
        r#"{ "table": "films", "widnow_us": 5 }"#,
        r#"{ "table": "films", "connections_max": "many" }"#,
        r#"{ "prepared": "films.prepared" }"#,
    ] {
        assert!(read(bad).is_err(), "{bad}");
    }
    assert_eq!(KeyId::of(b"").to_string().len(), 64);
}
