//! Lookups through two real servers.

use std::time::Duration;

use crate::common::{Certificates, GatedPair, Pair, Running, in_time, row, spec, table, until};
use hushtable_pir::PrgKind;
use hushtable_pir::dpf::Side;
use hushtable_serve::{
    ClientSpec, EndpointSpec, Error, Identity, LookupClient, Refusal, Server, ServerSpec,
};
use hushtable_table::{DType, Table, decode_rows};
use tokio::io::AsyncWriteExt;
use tokio::task::JoinSet;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rows_come_back_as_they_are() {
    let servers = Pair::start(1000, 16);
    let table = table(1000, 16, 1);
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let info = client.info();
    assert_eq!((info.shape.rows(), info.dim, info.version), (1000, 16, table.version()));

    let ids = [999, 0, 7, 7, 512];
    let lookup = client.lookup(&ids, 8).await.unwrap();
    let expected: Vec<u8> = ids.iter().flat_map(|&id| row(&table, id)).collect();
    assert_eq!(lookup.rows, expected);
    // Two servers, eight keys each, whatever the number of ids.
    assert_eq!(lookup.stats.received_bytes, 2 * 8 * 64);
    assert_eq!(lookup.stats.retries, 0);
    let fewer = client.lookup(&ids[..1], 8).await.unwrap();
    assert_eq!(fewer.stats.sent_bytes, lookup.stats.sent_bytes);
    assert_eq!(fewer.stats.received_bytes, lookup.stats.received_bytes);

    let mut numbers = vec![0.0; 5 * 16];
    decode_rows(DType::F32, 16, &expected, &mut numbers).unwrap();
    assert_eq!(client.lookup_f32(&ids, 8).await.unwrap(), numbers);
    assert!(client.lookup(&[], 3).await.unwrap().rows.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_generator_that_the_servers_take_works_and_others_are_named() {
    let all = PrgKind::ALL.map(|prg| prg.name().to_owned());
    let servers =
        Pair::start_with(|| table(300, 3, 2), |spec| ServerSpec { prgs: all.to_vec(), ..spec });
    let table = table(300, 3, 2);
    for prg in PrgKind::ALL {
        let spec = ClientSpec { prg, ..servers.client_spec() };
        let client = LookupClient::connect(&spec).await.unwrap();
        assert_eq!(client.lookup(&[299], 1).await.unwrap().rows, row(&table, 299), "{prg}");
    }
    let strict = Pair::start(10, 1);
    let spec = ClientSpec { prg: PrgKind::SipHash24, ..strict.client_spec() };
    let error = LookupClient::connect(&spec).await.err().unwrap();
    assert!(matches!(error, Error::Prg { prg: PrgKind::SipHash24, .. }), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_go_through_tls() {
    let certificates = Certificates::new();
    let tls = certificates.tls();
    let servers = Pair::start_with(
        || table(5000, 8, 3),
        |spec| ServerSpec { tls: Some(tls.clone()), ..spec },
    );
    let table = table(5000, 8, 3);
    let ca = Some(certificates.ca_pem());
    let (left, right) = (servers.left.tls_url(), servers.right.tls_url());
    let good = ClientSpec::new(
        EndpointSpec::new(&left, ca.clone()),
        EndpointSpec { domain: Some("localhost".into()), ..EndpointSpec::new(&right, ca.clone()) },
    );
    let client = LookupClient::connect(&good).await.unwrap();
    assert_eq!(client.lookup(&[4999], 2).await.unwrap().rows, row(&table, 4999));

    // Another CA, another name, no CA, no TLS: each says what is wrong.
    let other = Certificates::new();
    let stranger =
        ClientSpec { left: EndpointSpec::new(&left, Some(other.ca_pem())), ..good.clone() };
    let error = LookupClient::connect(&stranger).await.err().unwrap();
    assert!(matches!(&error, Error::Unavailable { url, .. } if *url == left), "{error:?}");
    assert!(error.to_string().contains("UnknownIssuer"), "{error}");

    let misnamed = ClientSpec {
        right: EndpointSpec {
            domain: Some("elsewhere.example".into()),
            ..EndpointSpec::new(&right, ca.clone())
        },
        ..good.clone()
    };
    let error = LookupClient::connect(&misnamed).await.err().unwrap();
    assert!(error.to_string().contains("not valid for name"), "{error}");

    let unchecked = ClientSpec { left: EndpointSpec::new(&left, None), ..good.clone() };
    let error = LookupClient::connect(&unchecked).await.err().unwrap();
    assert!(matches!(&error, Error::NoCa { url } if *url == left), "{error:?}");

    let plain = ClientSpec { left: EndpointSpec::new(servers.left.url(), None), ..good };
    let error = LookupClient::connect(&plain).await.err().unwrap();
    assert!(matches!(&error, Error::SpeaksTls { url } if *url == servers.left.url()), "{error:?}");
    assert!(error.to_string().contains("write https://"), "{error}");
    assert!(servers.left.metric("hushtable_handshakes_failed_total").await >= 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_speaks_tls_is_known_whenever_it_says_so() {
    const CLIENTS: u32 = 256;
    // Its alert comes before the first call does, beside it, or after it.
    // The system resets connections of a full queue, whose alert nobody reads: it takes all, of both sides.
    let listener = tokio::net::TcpSocket::new_v4().unwrap();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(4 * CLIENTS).unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let server = tokio::spawn(async move {
        let mut held = Vec::new();
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            // Fatal, and the version is not the server's.
            stream.write_all(&[0x15, 3, 3, 0, 2, 2, 70]).await.unwrap();
            held.push(stream);
        }
    });
    // Many at once: some of them have not sent their first call by then.
    let mut asking = JoinSet::new();
    for _ in 0..CLIENTS {
        let plain = ClientSpec::new(EndpointSpec::new(&url, None), EndpointSpec::new(&url, None));
        asking.spawn(async move { LookupClient::connect(&plain).await.err().unwrap() });
    }
    while let Some(error) = asking.join_next().await {
        let error = error.unwrap();
        assert!(matches!(&error, Error::SpeaksTls { url: said } if *said == url), "{error:?}");
    }
    server.abort();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_systems_authorities_do_not_vouch_for_a_ca_of_ones_own() {
    let certificates = Certificates::new();
    let tls = certificates.tls();
    let servers =
        Pair::start_with(|| table(10, 1, 3), |spec| ServerSpec { tls: Some(tls.clone()), ..spec });
    let side = |url: String, ca: Option<Vec<u8>>| EndpointSpec {
        system_roots: true,
        ..EndpointSpec::new(url, ca)
    };
    let spec = |ca: Option<Vec<u8>>| {
        ClientSpec::new(side(servers.left.tls_url(), ca.clone()), side(servers.right.tls_url(), ca))
    };
    let error = LookupClient::connect(&spec(None)).await.err().unwrap();
    match &error {
        // A machine without a store of authorities says so.
        Error::Tls { from, reason } => {
            assert!(from.contains("system") && reason.contains("ca-certificates"), "{error}");
        }
        Error::Unavailable { reason, .. } => assert!(reason.contains("UnknownIssuer"), "{error}"),
        other => panic!("{other:?}"),
    }
    // A CA that is given is the only one.
    LookupClient::connect(&spec(Some(certificates.ca_pem()))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_wants_client_certificates_gets_them() {
    let certificates = Certificates::new();
    let mut tls = certificates.tls();
    tls.client_ca = Some(certificates.path("ca.pem"));
    let servers =
        Pair::start_with(|| table(100, 2, 4), |spec| ServerSpec { tls: Some(tls.clone()), ..spec });
    let pem = certificates.ca.issue_client("phone").unwrap();
    let identity = Identity { cert_pem: pem.cert.into_bytes(), key_pem: pem.key.into_bytes() };
    let endpoint = |url: String, identity: Option<Identity>| EndpointSpec {
        identity,
        ..EndpointSpec::new(url, Some(certificates.ca_pem()))
    };
    let spec = |identity: Option<Identity>| {
        ClientSpec::new(
            endpoint(servers.left.tls_url(), identity.clone()),
            endpoint(servers.right.tls_url(), identity),
        )
    };
    let client = LookupClient::connect(&spec(Some(identity))).await.unwrap();
    let expected = row(&table(100, 2, 4), 50);
    assert_eq!(client.lookup(&[50], 1).await.unwrap().rows, expected);
    let error = LookupClient::connect(&spec(None)).await.err().unwrap();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_do_not_fit_are_told_apart() {
    let servers = Pair::start(100, 4);
    let other = Running::start(Server::of_table(spec(Side::Right), table(100, 4, 99)).unwrap());
    let (left, right) = (servers.left.url(), servers.right.url());
    let connect = async |left: &str, right: &str| {
        let (left, right) = (EndpointSpec::new(left, None), EndpointSpec::new(right, None));
        LookupClient::connect(&ClientSpec::new(left, right)).await.err().unwrap()
    };

    let error = connect(&right, &left).await;
    let Error::SidesSwapped { left: l, right: r } = &error else { panic!("{error:?}") };
    assert_eq!((l, r), (&right, &left));

    let error = connect(&left, &left).await;
    let Error::SameSide { left: l, right: r, side } = &error else { panic!("{error:?}") };
    assert_eq!((l, r, *side), (&left, &left, Side::Left));

    let error = connect(&left, &other.url()).await;
    let Error::TablesDiffer { left: l, left_version, right: r, right_version } = &error else {
        panic!("{error:?}")
    };
    assert_eq!((l, *left_version), (&left, table(100, 4, 1).version()));
    assert_eq!((r, *right_version), (&other.url(), table(100, 4, 99).version()));

    for url in ["localhost:4000", "ftp://127.0.0.1:1", "http://127.0.0.1:1/path", "", "http://"] {
        let error = connect(url, &right).await;
        assert!(matches!(error, Error::Url { .. }), "{url}: {error:?}");
    }
    let error = connect("http://192.0.2.1:4000", &right).await;
    assert!(matches!(error, Error::PlainText { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_that_cannot_be_is_refused_before_it_is_sent() {
    let servers = Pair::start(100, 4);
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let keys_max = client.info().keys_per_request_max;
    let before = servers.left.metric("hushtable_answered_keys_total").await;

    let error = client.lookup(&[100], 1).await.unwrap_err();
    let expected = hushtable_pir::Error::IdRange { id: 100, rows: 100 };
    assert!(matches!(&error, Error::Pir(e) if *e == expected), "{error:?}");
    let error = client.lookup(&[1, 2], 1).await.unwrap_err();
    let expected = hushtable_pir::Error::TooManyIds { ids: 2, max_ids: 1 };
    assert!(matches!(&error, Error::Pir(e) if *e == expected), "{error:?}");
    for max_ids in [0, keys_max + 1] {
        let error = client.lookup(&[], max_ids).await.unwrap_err();
        assert!(matches!(error, Error::MaxIds { .. }), "{error:?}");
    }
    assert_eq!(servers.left.metric("hushtable_answered_keys_total").await, before);
    let most = client.lookup(&[5], keys_max).await.unwrap();
    assert_eq!(most.rows, row(&table(100, 4, 1), 5));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_table_version_is_fetched_once_both_servers_have_it() {
    let old = || table(100, 4, 1);
    let servers = Pair::start_with(old, |spec| spec);
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    assert_eq!(client.lookup(&[1], 1).await.unwrap().rows, row(&old(), 1));

    // The same ports, another table, of another shape.
    let Pair { left, right } = servers;
    let new = || table(300, 4, 2);
    let restart = |server: Running, side| {
        let addr = server.addr;
        server.stop().unwrap();
        Running::start(Server::of_table(ServerSpec { addr, ..spec(side) }, new()).unwrap())
    };
    let left = restart(left, Side::Left);
    let error = client.lookup(&[1], 1).await.unwrap_err();
    assert!(matches!(error, Error::TablesDiffer { .. }), "{error:?}");
    let _right = restart(right, Side::Right);
    assert_eq!(client.lookup(&[1], 1).await.unwrap().rows, row(&new(), 1));
    assert_eq!(client.info().version, new().version());
    assert_eq!(client.lookup(&[299], 1).await.unwrap().rows, row(&new(), 299));
    drop(left);
}

#[test]
fn a_client_is_shared_by_threads_that_wait() {
    let servers = Pair::start(1000, 4);
    let table = table(1000, 4, 1);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let client = runtime.block_on(LookupClient::connect(&servers.client_spec())).unwrap();
    assert_eq!(client.info().shape.rows(), 1000);
    std::thread::scope(|scope| {
        for thread in 0..8u64 {
            let (client, table, runtime) = (&client, &table, &runtime);
            scope.spawn(move || {
                for i in 0..20 {
                    let id = (thread * 131 + i * 17) % 1000;
                    let rows = runtime.block_on(client.lookup(&[id], 2)).unwrap().rows;
                    assert_eq!(rows, row(table, id));
                }
            });
        }
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shapes_at_the_edges_are_served() {
    for (rows, dim, dtype) in [(1, 1, DType::Int8), (2, 16384, DType::F32), (513, 1, DType::F16)] {
        let values: Vec<f32> = (0..rows as usize * dim).map(|i| i as f32 % 97.0).collect();
        let table = || Table::from_weight("edge", rows, dim, dtype, &values).unwrap();
        let servers = Pair::start_with(table, |spec| spec);
        let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
        let rows = client.lookup(&[rows - 1, 0], 2).await.unwrap().rows;
        let expected = [row(&table(), table().rows() - 1), row(&table(), 0)].concat();
        assert_eq!(rows, expected);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_server_is_asked_again_until_the_lookup_is_out_of_time() {
    let limits = |spec| ServerSpec { queue_keys_max: 4, keys_per_request_max: Some(4), ..spec };
    let servers = GatedPair::start_with(|| table(100, 4, 1), limits);
    let spec = servers.pair.client_spec();
    let client = LookupClient::connect(&spec).await.unwrap();
    let held = servers.hold();
    let client = std::sync::Arc::new(client);
    let lookups: Vec<_> = (0..12u64)
        .map(|id| {
            let client = std::sync::Arc::clone(&client);
            tokio::spawn(async move { client.lookup(&[id], 4).await.unwrap() })
        })
        .collect();
    // One is in a pass, one waits: there is no room for more.
    servers.pair.left.refuses_busy("Answer").await;
    drop(held);
    let mut retries = 0;
    for (id, lookup) in (0..).zip(lookups) {
        let lookup = lookup.await.unwrap();
        assert_eq!(lookup.rows, row(&table(100, 4, 1), id));
        retries += lookup.stats.retries;
    }
    assert!(retries > 0, "twelve lookups of four keys fit a queue of four?");

    // A queue that does not empty: the refusal comes back once there is no time for another try. A machine that does
    // not get to say no in the shortest time has more.
    let held = servers.hold();
    let ask = |id: u64| {
        let client = std::sync::Arc::clone(&client);
        tokio::spawn(async move { client.lookup(&[id], 4).await })
    };
    let answering = ask(1);
    until("passes are under way", async || servers.waiting() == [1, 1]).await;
    let waiting = ask(2);
    for server in [&servers.pair.left, &servers.pair.right] {
        server.comes_to("hushtable_queue_keys", 4.0).await;
    }
    for lookup_ms_max in [300, 3000, 30_000] {
        let lookup_max = Duration::from_millis(lookup_ms_max);
        let hurried = LookupClient::connect(&ClientSpec { lookup_max, ..spec.clone() }).await;
        match in_time(hurried.unwrap().lookup(&[1], 4)).await.unwrap_err() {
            Error::Refused { refusal: Refusal::Busy { .. }, .. } => break,
            error => {
                let is_late = matches!(error, Error::Timeout { .. }) && lookup_ms_max < 30_000;
                assert!(is_late, "{error:?}");
            }
        }
    }
    drop(held);
    answering.await.unwrap().unwrap();
    waiting.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_takes_too_long_is_not_waited_for() {
    let servers = GatedPair::start_with(|| table(100, 4, 1), |spec| spec);
    let call_max = Duration::from_millis(200);
    let spec = ClientSpec { call_max, ..servers.pair.client_spec() };
    // What is asked to connect has no more time than that either.
    let mut client = None;
    until("a client connects in time", async || {
        client = LookupClient::connect(&spec).await.ok();
        client.is_some()
    })
    .await;
    let _held = servers.hold();
    let error = in_time(client.unwrap().lookup(&[1], 1)).await.unwrap_err();
    let Error::Timeout { after, .. } = &error else { panic!("{error:?}") };
    assert_eq!(*after, call_max);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_tells_those_who_watch_and_does_not_wait_for_them() {
    use tonic_health::pb::HealthCheckRequest;
    use tonic_health::pb::health_client::HealthClient;
    let spec = ServerSpec { drain_ms_max: 3_600_000, ..spec(Side::Left) };
    let mut server = Running::start(Server::of_table(spec, table(100, 4, 1)).unwrap());
    let endpoint = tonic::transport::Endpoint::from_shared(server.url()).unwrap();
    let mut health = HealthClient::new(endpoint.connect().await.unwrap());
    let request = HealthCheckRequest { service: "hushtable.v1.PrivateLookup".into() };
    let mut watch = health.watch(request).await.unwrap().into_inner();
    let (serving, not_serving) = (1, 2);
    assert_eq!(watch.message().await.unwrap().unwrap().status, serving);
    server.signal();
    assert_eq!(watch.message().await.unwrap().unwrap().status, not_serving);
    in_time(tokio::task::spawn_blocking(|| server.stop())).await.unwrap().unwrap();
}
