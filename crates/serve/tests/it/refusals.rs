//! What a server says to requests that it cannot answer, over the bare wire contract.

use std::path::PathBuf;

use crate::common::{Pair, Running, raw, spec, table};
use bytes::Bytes;
use hushtable_pir::TableShape;
use hushtable_pir::dpf::{self, Domain, Group, KeyPair, Side};
use hushtable_pir::{Platform, Prg, PrgKind};
use hushtable_serve::wire::{AnswerRequest, TableInfoRequest};
use hushtable_serve::{Server, ServerSpec, TlsSpec};
use hushtable_table::Version;
use tonic::{Code, Status};
use tonic_types::StatusExt;

const ROWS: u64 = 1000;

fn version() -> Bytes {
    Bytes::copy_from_slice(table(ROWS, 4, 1).version().as_bytes())
}

/// Keys for row 5 of a table of `rows`.
fn keys(rows: u64, prg: PrgKind, side: Side, count: usize) -> Vec<Bytes> {
    let shape = TableShape::new(rows, 16).unwrap();
    let client = dpf::Client::new(shape, Version::from([0; 32]), prg).unwrap();
    let (request, _) = client.query(&[5], count).unwrap();
    let keys = match side {
        Side::Left => request.left,
        Side::Right => request.right,
    };
    keys.into_iter().map(Bytes::from).collect()
}

fn good_keys(count: usize) -> Vec<Bytes> {
    keys(ROWS, PrgKind::Aes128, Side::Left, count)
}

async fn ask(server: &Running, table_version: Bytes, keys: Vec<Bytes>) -> Result<usize, Status> {
    let reply = raw(server).await.answer(AnswerRequest { table_version, keys }).await?;
    assert_eq!(reply.get_ref().table_version, version());
    assert!(reply.get_ref().queue_us.is_some() && reply.get_ref().answer_us.is_some());
    Ok(reply.get_ref().answers.len())
}

/// The refusal's code, reason, facts and words.
async fn refusal(server: &Running, version: Bytes, keys: Vec<Bytes>) -> (Code, String, String) {
    let status = ask(server, version, keys).await.unwrap_err();
    let details = status.get_error_details();
    let info = details.error_info().unwrap_or_else(|| panic!("no details in {status:?}"));
    assert_eq!(info.domain, "hushtable");
    (status.code(), info.reason.clone(), status.message().to_owned())
}

fn start() -> Running {
    Running::start(Server::of_table(spec(Side::Left), table(ROWS, 4, 1)).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_that_are_no_keys() {
    let server = start();
    let good = || good_keys(1)[0].to_vec();
    assert_eq!(ask(&server, version(), vec![good().into()]).await.unwrap(), 16);

    let mut longer = good();
    longer.push(0);
    let shorter = good()[..good().len() - 1].to_vec();
    for key in [vec![], vec![1; 7], shorter, longer, vec![1; 65536]] {
        let length = key.len();
        let (code, reason, words) = refusal(&server, version(), vec![key.into()]).await;
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "BAD_KEY"), "{length}");
        assert!(words.contains("key 0"), "{words}");
    }

    let with = |at: usize, value: u8| {
        let mut key = good();
        key[at] = value;
        Bytes::from(key)
    };
    let domain = Domain::new(ROWS, Group::Z8).unwrap();
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let additive = KeyPair::generate(prg, domain, 5).unwrap().left;
    for (key, expected) in [
        (with(0, 9), "format"),
        (with(1, 2), "side 2 is unknown"),
        (with(2, 7), "output group 7 is unknown"),
        (additive.to_bytes().into(), "keys of group bits, not z8"),
        (with(3, 0), "pseudorandom generator 0 is unknown"),
        (with(3, 200), "pseudorandom generator 200 is unknown"),
        (with(3, PrgKind::Sha256.id()), "takes aes128, chacha20, chacha12, not sha256"),
    ] {
        // The bad key is the second: the refusal says so.
        let keys = vec![good().into(), key];
        let (code, reason, words) = refusal(&server, version(), keys).await;
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "BAD_KEY"), "{words}");
        assert!(words.contains("key 1") && words.contains(expected), "{words}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_for_elsewhere() {
    let server = start();
    let right = keys(ROWS, PrgKind::Aes128, Side::Right, 1);
    let (code, reason, words) = refusal(&server, version(), right).await;
    assert_eq!((code, reason.as_str()), (Code::FailedPrecondition, "WRONG_SIDE"));
    assert!(words.contains("swap the two addresses"), "{words}");

    for rows in [ROWS - 1, ROWS + 1, 1, 1 << 32] {
        let other = keys(rows.max(6), PrgKind::Aes128, Side::Left, 1);
        let (code, reason, words) = refusal(&server, version(), other).await;
        assert_eq!((code, reason.as_str()), (Code::FailedPrecondition, "WRONG_DOMAIN"));
        assert!(words.contains("1000"), "{words}");
    }

    let stale = Bytes::from(vec![7; 32]);
    let (code, reason, words) = refusal(&server, stale, good_keys(1)).await;
    assert_eq!((code, reason.as_str()), (Code::FailedPrecondition, "VERSION_SKEW"));
    let ours = table(ROWS, 4, 1).version().to_string();
    assert!(words.contains(&ours) && words.contains(&"07".repeat(32)), "{words}");

    for bytes in [0, 31, 33] {
        let (code, reason, _) = refusal(&server, vec![0; bytes].into(), good_keys(1)).await;
        assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "BAD_VERSION"));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn too_few_and_too_many_keys() {
    let server = Running::start(
        Server::of_table(
            ServerSpec { keys_per_request_max: Some(10), ..spec(Side::Left) },
            table(ROWS, 4, 1),
        )
        .unwrap(),
    );
    let (code, reason, _) = refusal(&server, version(), vec![]).await;
    assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "NO_KEYS"));
    // Shorter than keys, so that they pass the limit on a request's bytes.
    let (code, reason, words) = refusal(&server, version(), vec![Bytes::new(); 11]).await;
    assert_eq!((code, reason.as_str()), (Code::InvalidArgument, "TOO_MANY_KEYS"));
    assert!(words.contains("10") && words.contains("11"), "{words}");
    assert_eq!(ask(&server, version(), good_keys(10)).await.unwrap(), 160);

    let status = ask(&server, version(), good_keys(50)).await.unwrap_err();
    assert_eq!(status.code(), Code::OutOfRange);
    assert!(status.message().contains("limit"), "{status:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_queue_refuses_at_once_and_says_when_to_retry() {
    // A window of a minute: what is queued stays queued.
    let limits = ServerSpec {
        window_us: Some(60_000_000),
        queue_keys_max: 8,
        keys_per_request_max: Some(8),
        batch_keys_max: Some(64),
        drain_ms_max: 0,
        ..spec(Side::Left)
    };
    let server = Running::start(Server::of_table(limits, table(ROWS, 4, 1)).unwrap());
    let client = raw(&server).await;
    let request = AnswerRequest { table_version: version(), keys: good_keys(8) };
    let waiting = tokio::spawn({
        let (mut client, request) = (client.clone(), request.clone());
        async move { client.answer(request).await }
    });
    while server.metric("hushtable_queue_keys").await < 8.0 {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let status = client.clone().answer(request.clone()).await.unwrap_err();
    assert!(!waiting.is_finished(), "it did not wait for the window");
    assert_eq!(status.code(), Code::ResourceExhausted);
    let details = status.get_error_details();
    assert_eq!(details.error_info().unwrap().reason, "BUSY");
    assert!(details.retry_info().unwrap().retry_delay.unwrap() > std::time::Duration::ZERO);

    // Info and health do not wait behind the queue.
    client.clone().table_info(TableInfoRequest::default()).await.unwrap();
    assert_eq!(server.page("/readyz").await.0, 200);

    // A client that leaves makes room: its keys are never computed.
    waiting.abort();
    let _ = waiting.await;
    let refused = r#"hushtable_requests_total{method="Answer",code="CANCELLED"}"#;
    while !server.page("/metrics").await.1.contains(refused) {
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    }
    let again = tokio::spawn({
        let (mut client, request) = (client.clone(), request.clone());
        async move { client.answer(request).await }
    });
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    assert!(!again.is_finished(), "{:?}", again.await);
    assert_eq!(server.metric("hushtable_answered_keys_total").await, 0.0);
    again.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_in_flight_are_bounded() {
    let limits = ServerSpec {
        window_us: Some(60_000_000),
        keys_per_request_max: Some(8),
        inflight_bytes_max: 20_000,
        inflight_bytes_per_peer_max: Some(1 << 20),
        drain_ms_max: 0,
        ..spec(Side::Left)
    };
    let server = Running::start(Server::of_table(limits, table(ROWS, 4, 1)).unwrap());
    let mut requests = Vec::new();
    for _ in 0..40 {
        // A connection each, and as much as they like of one peer, so that it is the server's limit that is met.
        let mut client = raw(&server).await;
        let request = AnswerRequest { table_version: version(), keys: good_keys(8) };
        requests.push(tokio::spawn(async move { client.answer(request).await }));
    }
    let refused = loop {
        if let Some(i) = requests.iter().position(|request| request.is_finished()) {
            break requests.swap_remove(i);
        }
        tokio::time::sleep(std::time::Duration::from_millis(5)).await;
    };
    let status = refused.await.unwrap().unwrap_err();
    assert_eq!(status.code(), Code::ResourceExhausted, "{status:?}");
    let details = status.get_error_details();
    assert_eq!(details.error_info().unwrap().metadata["limit"], "inflight_bytes");
    assert!(server.metric("hushtable_inflight_bytes").await <= 20_000.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_second_port_tells_what_happens() {
    let servers = Pair::start(ROWS, 4);
    let server = &servers.left;
    assert_eq!(ask(server, version(), good_keys(3)).await.unwrap(), 48);
    ask(server, version(), vec![]).await.unwrap_err();
    let (status, text) = server.page("/metrics").await;
    assert_eq!(status, 200);
    for (name, value) in [
        (r#"hushtable_requests_total{method="Answer",code="OK"}"#, 1.0),
        (r#"hushtable_requests_total{method="Answer",code="INVALID_ARGUMENT"}"#, 1.0),
        (r#"hushtable_request_seconds_count{method="Answer"}"#, 2.0),
        (r#"hushtable_queue_seconds_count{table="films"}"#, 1.0),
        ("hushtable_answer_seconds_count", 1.0),
        ("hushtable_batch_keys_sum", 3.0),
        ("hushtable_answered_keys_total", 3.0),
        ("hushtable_queue_keys", 0.0),
        (r#"hushtable_table_rows{table="films"}"#, 1000.0),
        ("hushtable_table_bytes", 16000.0),
    ] {
        assert_eq!(crate::common::metric_of(&text, name), value, "{name}");
    }
    assert!(text.contains("hushtable_build_info{version="), "{text}");
    assert!(text.ends_with("# EOF\n"));
    assert_eq!(server.page("/livez").await, (200, "alive\n".into()));
    assert_eq!(server.page("/readyz").await, (200, "ready\n".into()));
    assert_eq!(server.page("/secret").await.0, 404);

    // A path that a client makes up is not a label.
    let mut health = tonic_health::pb::health_client::HealthClient::new(
        tonic::transport::Endpoint::from_shared(server.url()).unwrap().connect().await.unwrap(),
    );
    let check = |service: &str| tonic_health::pb::HealthCheckRequest { service: service.into() };
    for service in ["", "hushtable.v1.PrivateLookup"] {
        let reply = health.check(check(service)).await.unwrap();
        assert_eq!(reply.get_ref().status, 1);
    }
    health.check(check("row-17-of-user-5")).await.unwrap_err();
    let (_, text) = server.page("/metrics").await;
    assert!(!text.contains("row-17"), "{text}");
}

#[tokio::test]
async fn certificates_that_cannot_be_used_say_what_they_are() {
    use hushtable_serve::{EndpointSpec, Error, OnionClient, OnionClientSpec};
    let connect =
        async |endpoint| OnionClient::connect(&OnionClientSpec::new(endpoint)).await.err().unwrap();
    let certificates = crate::common::Certificates::new();
    let read = |name: &str| std::fs::read_to_string(certificates.path(name)).unwrap();
    let written = |name: &str, text: &str| {
        std::fs::write(certificates.path(name), text).unwrap();
        certificates.path(name)
    };
    let open = |cert: PathBuf, key: PathBuf| {
        let tls = TlsSpec { cert, key, ..certificates.tls() };
        Server::of_table(ServerSpec { tls: Some(tls), ..spec(Side::Left) }, table(10, 1, 1))
    };
    let (cert, key, ca) = (read("cert.pem"), read("key.pem"), read("ca.pem"));
    // With the mark that some editors put before their text.
    let marked = ["cert.pem", "key.pem"].map(|name| format!("\u{feff}{}", read(name)));
    assert!(open(written("cert-8.pem", &marked[0]), written("key-8.pem", &marked[1])).is_ok());
    let own = || certificates.path("cert.pem");
    for begin in ["ENCRYPTED PRIVATE KEY-----\n", "EC PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n\n"]
    {
        let encrypted = key.replacen("PRIVATE KEY-----\n", begin, 1);
        let error = open(own(), written("encrypted.pem", &encrypted)).err().unwrap();
        assert!(matches!(&error, Error::Pem { expected: "private key", .. }), "{error:?}");
        assert!(error.to_string().contains("openssl pkey"), "{error}");
    }
    let good = || certificates.path("key.pem");
    assert!(open(written("chain.pem", &format!("{cert}{ca}")), good()).is_ok());
    let turned = open(written("turned.pem", &format!("{ca}{cert}")), good()).err().unwrap();
    assert!(turned.to_string().contains("certificate 2, which must come first"), "{turned}");
    let joined = written("joined.pem", &format!("{cert}\u{feff}{ca}"));
    let joined = std::fs::read(joined).unwrap();
    let url = "https://localhost:1";
    let ca_only = EndpointSpec::new(url, Some(joined[cert.len()..].to_vec()));
    assert!(matches!(connect(ca_only).await, Error::Unavailable { .. }));
    for (bytes, expected) in
        [(&b"\xff\xfe-\0-\0"[..], "UTF-16"), (b"\x30\x82\x01\x0a\x02", "openssl")]
    {
        let error = connect(EndpointSpec::new(url, Some(bytes.to_vec()))).await;
        assert!(
            matches!(error, Error::Pem { .. }) && error.to_string().contains(expected),
            "{error}"
        );
    }
    let other = open(certificates.path("ca.pem"), good()).err().unwrap();
    assert!(other.to_string().contains("another certificate"), "{other}");
}

#[test]
fn specs_that_cannot_be() {
    use hushtable_serve::Error;
    let check = |spec| Server::of_table(spec, table(10, 1, 1)).err().unwrap();
    let left = || spec(Side::Left);
    for addr in ["0.0.0.0:0", "192.0.2.1:4000", "[::]:0"] {
        let error = check(ServerSpec { addr: addr.parse().unwrap(), ..left() });
        assert!(matches!(error, Error::Exposed { .. }), "{error:?}");
    }
    let open = ServerSpec { addr: "0.0.0.0:0".parse().unwrap(), insecure: true, ..left() };
    assert!(Server::of_table(open, table(10, 1, 1)).is_ok());

    for (spec, expected) in [
        (ServerSpec { io_threads: 0, ..left() }, "io_threads"),
        (ServerSpec { batch_keys_max: Some(0), ..left() }, "batch_keys_max"),
        (ServerSpec { queue_keys_max: 0, ..left() }, "queue_keys_max"),
        (ServerSpec { keys_per_request_max: Some(1 << 15), ..left() }, "keys_per_request_max"),
        (ServerSpec { connections_max: 0, ..left() }, "connections_max"),
        (ServerSpec { inflight_bytes_max: 10, ..left() }, "inflight_bytes_max"),
        (ServerSpec { window_us: Some(u64::MAX), ..left() }, "window_us"),
        (ServerSpec { handshake_ms_max: 0, ..left() }, "handshake_ms_max"),
    ] {
        let error = check(spec);
        assert!(matches!(&error, Error::Setting { name, .. } if *name == expected), "{error:?}");
    }
    for prgs in [vec![], vec!["rot13".to_owned()]] {
        let error = check(ServerSpec { prgs, ..left() });
        assert!(matches!(error, Error::PrgName { .. }), "{error:?}");
    }
    let certificates = crate::common::Certificates::new();
    let mut tls = certificates.tls();
    tls.key = certificates.path("cert.pem");
    let error = check(ServerSpec { tls: Some(tls.clone()), ..left() });
    assert!(matches!(&error, Error::Pem { expected: "private key", .. }), "{error:?}");
    tls.key = certificates.path("nowhere.pem");
    let error = check(ServerSpec { tls: Some(tls), ..left() });
    assert!(matches!(&error, Error::Io { .. }), "{error:?}");

    let error = Server::open(ServerSpec::new("/nowhere/at/all", Side::Left)).err().unwrap();
    assert!(matches!(&error, Error::Table { .. }), "{error:?}");
}

#[test]
fn a_spec_is_read_from_a_file() {
    let spec: ServerSpec =
        serde_json::from_str(r#"{ "table": "films", "side": "right" }"#).unwrap();
    assert_eq!(spec, ServerSpec::new("films", Side::Right));
    let text = serde_json::to_string(&spec).unwrap();
    assert_eq!(serde_json::from_str::<ServerSpec>(&text).unwrap(), spec);
    for bad in [
        r#"{ "table": "films", "side": "middle" }"#,
        r#"{ "table": "films", "side": "left", "widnow_us": 5 }"#,
        r#"{ "side": "left" }"#,
    ] {
        serde_json::from_str::<ServerSpec>(bad).unwrap_err();
    }
}
