//! Whole inferences through two real servers.

use std::sync::Arc;
use std::time::Duration;

use crate::common::{
    Certificates, GatedPair, Pair, Running, block_until, lay_out, layout_spec, raw, row, spec,
    table, until,
};
use bytes::Bytes;
use hushtable_pir::batch::{BatchBackend, BatchEngine, BatchKeys, Client, Geometry};
use hushtable_pir::dpf::Side;
use hushtable_pir::{EngineSpec, PrgKind};
use hushtable_serve::load::BagLoadSpec;
use hushtable_serve::wire::{AnswerBagsRequest, LayoutRequest, TableInfoRequest};
use hushtable_serve::{
    Bag, ClientSpec, EndpointSpec, Error, LookupClient, PairRefusal, Refusal, Server, ServerSpec,
};
use hushtable_table::layout::{Layout, LayoutError, LayoutSpec, PartSpec, Plan};
use hushtable_table::{DType, Table};
use tonic::{Code, Status};
use tonic_types::StatusExt;

const ROWS: u64 = 1000;

fn laid_out() -> Table {
    lay_out(table(ROWS, 4, 1), layout_spec(ROWS, 1))
}

fn start() -> Pair {
    Pair::start_with(laid_out, |spec| spec)
}

/// Kept rows are the table's, dropped ones zero; how many were kept.
fn assert_rows(table: &Table, ids: &[u64], bag: &Bag) -> usize {
    assert_eq!((bag.kept.len(), bag.rows.len()), (ids.len(), ids.len() * table.row_bytes()));
    for ((&id, &kept), found) in ids.iter().zip(&bag.kept).zip(bag.rows.chunks(table.row_bytes())) {
        let expected = if kept { row(table, id) } else { vec![0; table.row_bytes()] };
        assert_eq!(found, expected, "row {id}, kept: {kept}");
    }
    bag.kept.iter().filter(|&&kept| kept).count()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bags_rows_come_back_and_every_bag_costs_the_same() {
    let servers = start();
    let table = laid_out();
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let layout = client.layout().unwrap().unwrap();
    assert_eq!(layout.version(), table.layout().unwrap().version());

    let geometry = Geometry::new(&layout);
    let sent = Side::BOTH.map(|side| geometry.request_bytes(side) as u64).iter().sum::<u64>();
    let received = 2 * geometry.answer_bytes() as u64;
    let bags: [&[u64]; 6] = [
        &[],
        &[999],
        &[7, 8, 7, 500, 39, 0],
        &[5; 64],
        &(0..64).collect::<Vec<_>>(),
        &(900..964).collect::<Vec<_>>(),
    ];
    let mut dropped = 0;
    for ids in bags {
        let bag = client.fetch_bag(ids).await.unwrap();
        let kept = assert_rows(&table, ids, &bag);
        assert_eq!((bag.stats.sent_bytes, bag.stats.received_bytes), (sent, received));
        assert_eq!(bag.dropped == 0, kept == ids.len());
        dropped += bag.dropped;
        if ids.len() <= 6 {
            assert_eq!(bag.dropped, 0, "{ids:?}");
        }
    }
    assert!(dropped > 0, "64 rows fit 24 keys?");

    // Plain lookups go on beside bags.
    assert_eq!(client.lookup(&[3], 1).await.unwrap().rows, row(&table, 3));
    assert_eq!(servers.left.metric("hushtable_answered_bags_total").await, 6.0);
    assert_eq!(servers.right.metric("hushtable_layout_keys").await, 24.0);
    servers.left.comes_to("hushtable_inflight_bytes", 0.0).await;
}

/// Bags of all kinds: empty ones, repeats, more rows than fit.
fn some_bags(count: u64) -> Vec<Vec<u64>> {
    let bag = |at: u64| match at % 4 {
        0 => vec![],
        1 => vec![at; 5],
        2 => (0..64).map(|i| (i * 15 + at) % ROWS).collect(),
        _ => vec![999 - at, at],
    };
    (0..count).map(bag).collect()
}

const ANSWERS_OK: &str = r#"hushtable_requests_total{method="AnswerBags",code="OK"}"#;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_bags_go_in_one_request() {
    // Passes of fewer bags than a request holds.
    let servers = Pair::start_with(laid_out, |spec| ServerSpec { batch_bags_max: Some(3), ..spec });
    let table = laid_out();
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let none = client.fetch_bags(&[]).await.unwrap();
    assert_eq!((none.bags.len(), none.requests, none.keys), (0, 0, 0));
    assert_eq!(servers.left.metric("hushtable_answered_bags_total").await, 0.0);

    let bags = some_bags(32);
    let found = client.fetch_bags(&bags).await.unwrap();
    let geometry = Geometry::new(table.layout().unwrap());
    assert_eq!((found.requests, found.keys), (1, 32 * geometry.keys()));
    let sent = Side::BOTH.map(|side| 32 * geometry.request_bytes(side) as u64).iter().sum::<u64>();
    assert_eq!(found.stats.sent_bytes, sent);
    assert_eq!(found.stats.received_bytes, 2 * 32 * geometry.answer_bytes() as u64);
    for server in [&servers.left, &servers.right] {
        assert_eq!(server.metric("hushtable_answered_bags_total").await, 32.0);
        assert_eq!(server.metric(ANSWERS_OK).await, 1.0);
        server.comes_to("hushtable_inflight_bytes", 0.0).await;
    }

    // Each is what it is alone: the layout drops the most frequent, not by chance.
    assert_eq!(found.bags.len(), bags.len());
    let mut numbers = Vec::new();
    for (ids, part) in bags.iter().zip(&found.bags) {
        let alone = client.fetch_bag(ids).await.unwrap();
        assert_rows(&table, ids, &alone);
        assert_eq!((&part.rows, &part.kept), (&alone.rows, &alone.kept), "{ids:?}");
        assert_eq!(part.dropped, alone.dropped, "{ids:?}");
        numbers.extend(alone.to_f32().unwrap());
    }
    assert_eq!(found.to_f32().unwrap(), numbers);
    assert!(found.bags.iter().any(|part| part.dropped > 0), "64 rows fit 24 keys?");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_take_fewer_bags_get_more_requests() {
    let taking = |bags| ServerSpec { bags_per_request_max: Some(bags), ..spec(Side::Left) };
    let left = Running::start(Server::of_table(taking(3), laid_out()).unwrap());
    let right = Running::start(Server::of_table(spec(Side::Right), laid_out()).unwrap());
    let spec =
        ClientSpec::new(EndpointSpec::new(left.url(), None), EndpointSpec::new(right.url(), None));
    let client = LookupClient::connect(&spec).await.unwrap();
    let bags = some_bags(7);
    let found = client.fetch_bags(&bags).await.unwrap();
    assert_eq!((found.requests, found.bags.len()), (3, 7));
    for server in [&left, &right] {
        assert_eq!(server.metric(ANSWERS_OK).await, 3.0);
        assert_eq!(server.metric("hushtable_answered_bags_total").await, 7.0);
    }
    let rows = |found: &hushtable_serve::FetchedBags| found.to_f32().unwrap();
    let expected = rows(&found);

    // One comes back that takes fewer still: it is asked what it takes, and gets that.
    let addr = left.addr;
    left.stop().unwrap();
    let left = ServerSpec { addr, ..taking(1) };
    let left = Running::start(Server::of_table(left, laid_out()).unwrap());
    let found = client.fetch_bags(&bags).await.unwrap();
    assert_eq!((found.requests, rows(&found)), (7, expected));
    assert_eq!(left.metric(ANSWERS_OK).await, 7.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bags_in_a_request_are_counted_before_they_are_read() {
    let limits = |spec| ServerSpec { bags_per_request_max: Some(3), ..spec };
    let servers = Pair::start_with(laid_out, limits);
    let version = *laid_out().layout().unwrap().version().as_bytes();
    let one = keys(Side::Right, PrgKind::Aes128);
    let reply = ask(&servers.right, &version, one.repeat(3)).await.unwrap();
    let geometry = Geometry::new(laid_out().layout().unwrap());
    assert_eq!(reply.answers.len(), 3 * geometry.answer_bytes());

    let mut second_is_bad = one.repeat(2);
    second_is_bad[one.len()] = 9;
    let longer = [one.repeat(2), vec![0]].concat();
    let cases = [
        (one.repeat(4), "TOO_MANY_BAGS", "bags_max", "3"),
        (second_is_bad, "BAD_BAG", "defect", "format"),
        (longer, "BAD_BAG", "defect", "length"),
    ];
    for (keys, reason, fact, value) in cases {
        let status = ask(&servers.right, &version, keys).await.unwrap_err();
        assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
        let details = status.get_error_details();
        let info = details.error_info().unwrap();
        assert_eq!((info.reason.as_str(), info.metadata[fact].as_str()), (reason, value));
    }
    assert_eq!(servers.right.metric("hushtable_answered_bags_total").await, 3.0);
    servers.right.comes_to("hushtable_inflight_bytes", 0.0).await;
}

#[test]
fn numbers_of_bags_that_no_queue_holds_are_refused() {
    for (bags, queue) in [(0, 100), (101, 100), (4097, 5000)] {
        let spec = ServerSpec {
            bags_per_request_max: Some(bags),
            queue_bags_max: queue,
            ..spec(Side::Left)
        };
        let error = Server::of_table(spec, laid_out()).err().expect("a limit refused");
        assert!(error.to_string().contains("bags_per_request_max"), "{error}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bags_go_through_tls_with_every_generator_that_servers_take() {
    let certificates = Certificates::new();
    let change = |spec| ServerSpec {
        tls: Some(certificates.tls()),
        prgs: vec!["aes128".into(), "chacha20".into()],
        ..spec
    };
    // Bins of several leaves, which take keys of distributed point functions.
    let spec = LayoutSpec {
        full: Some(PartSpec { rows: 5000, bins: 2, queries: 3, hashes: 2, companions: 0 }),
        ..layout_spec(5000, 3)
    };
    let servers = Pair::start_with(|| lay_out(table(5000, 8, 3), spec.clone()), change);
    let table = table(5000, 8, 3);
    let endpoint =
        |server: &Running| EndpointSpec::new(server.tls_url(), Some(certificates.ca_pem()));
    for prg in [PrgKind::Aes128, PrgKind::ChaCha20] {
        let spec = ClientSpec {
            prg,
            ..ClientSpec::new(endpoint(&servers.left), endpoint(&servers.right))
        };
        let client = LookupClient::connect(&spec).await.unwrap();
        let ids = [4999, 1, 2, 2048, 4999];
        let bag = client.fetch_bag(&ids).await.unwrap();
        assert_eq!(assert_rows(&table, &ids, &bag), 5, "{prg}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bags_of_all_number_types_are_fetched() {
    let codes = ["int8", "int4", "int4/32", "int2", "fp8_e4m3", "fp8_e5m2"];
    let codes = codes.map(|name| name.parse().unwrap());
    for dtype in [DType::F16, DType::Bf16].into_iter().chain(codes) {
        let values: Vec<f32> = (0..ROWS * 3).map(|i| (i % 89) as f32 - 40.0).collect();
        let table = || {
            let table = Table::from_weight("edge", ROWS, 3, dtype, &values).unwrap();
            lay_out(table, layout_spec(ROWS, 9))
        };
        let servers = Pair::start_with(table, |spec| spec);
        let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
        assert_eq!(client.layout().unwrap().unwrap().ids_max(), 64);
        let ids: Vec<u64> = (0..64).map(|i| i * 15).collect();
        let bag = client.fetch_bag(&ids).await.unwrap();
        let kept = assert_rows(&table(), &ids, &bag);
        assert!((1..64).contains(&kept), "{kept}");
        for (numbers, &kept) in bag.to_f32().unwrap().chunks(3).zip(&bag.kept) {
            assert!(kept || numbers == [0.0; 3]);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bag_that_cannot_be_is_refused_before_it_is_sent() {
    let servers = start();
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let error = client.fetch_bag(&[0, ROWS]).await.unwrap_err();
    let expected = LayoutError::IdRange { id: ROWS, rows: ROWS };
    assert!(matches!(&error, Error::Bag(e) if *e == expected), "{error:?}");
    let error = client.fetch_bags(&[vec![1], vec![0, ROWS]]).await.unwrap_err();
    let range = LayoutError::IdRange { id: ROWS, rows: ROWS };
    assert!(matches!(&error, Error::Bag(e) if *e == range), "{error:?}");
    let error = client.fetch_bag(&[0; 65]).await.unwrap_err();
    let expected = LayoutError::TooManyIds { ids: 65, ids_max: 64 };
    assert!(matches!(&error, Error::Bag(e) if *e == expected), "{error:?}");
    assert_eq!(servers.left.metric("hushtable_answered_bags_total").await, 0.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn layouts_that_cannot_be_asked_by_spare_lookups() {
    // None at all.
    let plain = Pair::start(ROWS, 4);
    let client = LookupClient::connect(&plain.client_spec()).await.unwrap();
    assert!(client.layout().unwrap().is_none());
    let error = client.fetch_bag(&[1]).await.unwrap_err();
    assert!(matches!(error, Error::NoLayout { .. }), "{error:?}");

    // Only one, or different ones.
    let one = Running::start(Server::of_table(spec(Side::Left), laid_out()).unwrap());
    let other = lay_out(table(ROWS, 4, 1), layout_spec(ROWS, 2));
    let other_version = other.layout().unwrap().version();
    let two = Running::start(Server::of_table(spec(Side::Right), other).unwrap());
    for (right, version) in [(&plain.right, None), (&two, Some(other_version))] {
        let spec = ClientSpec::new(
            EndpointSpec::new(one.url(), None),
            EndpointSpec::new(right.url(), None),
        );
        let client = LookupClient::connect(&spec).await.unwrap();
        let error = client.fetch_bag(&[1]).await.unwrap_err();
        let Error::LayoutsDiffer { versions, .. } = &error else { panic!("{error:?}") };
        let left = laid_out().layout().map(|layout| layout.version());
        assert_eq!(**versions, [left, version]);
        assert!(client.layout().is_err());
        assert_eq!(client.lookup(&[1], 1).await.unwrap().rows, row(&table(ROWS, 4, 1), 1));
    }

    // One larger than this client fetches.
    let servers = start();
    let bytes = laid_out().layout().unwrap().to_bytes().len() as u64;
    let small = ClientSpec { layout_bytes_max: bytes - 1, ..servers.client_spec() };
    let client = LookupClient::connect(&small).await.unwrap();
    let error = client.fetch_bag(&[1]).await.unwrap_err();
    let Error::LayoutBytes { bytes: found, bytes_max, .. } = error else { panic!("{error:?}") };
    assert_eq!((found, bytes_max), (bytes, bytes - 1));
    assert_eq!(client.lookup(&[1], 1).await.unwrap().rows, row(&table(ROWS, 4, 1), 1));
    let enough = ClientSpec { layout_bytes_max: bytes, ..servers.client_spec() };
    LookupClient::connect(&enough).await.unwrap().fetch_bag(&[1]).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_layout_is_fetched_once_both_servers_have_it() {
    let Pair { left, right } = start();
    let spec_of = |left: &Running, right: &Running| {
        ClientSpec::new(EndpointSpec::new(left.url(), None), EndpointSpec::new(right.url(), None))
    };
    let client = LookupClient::connect(&spec_of(&left, &right)).await.unwrap();
    let old = client.fetch_bag(&[1, 999]).await.unwrap();

    // The same ports and table, another layout.
    let new = || {
        let spec = LayoutSpec { ids_max: 5, ..layout_spec(ROWS, 7) };
        lay_out(table(ROWS, 4, 1), spec)
    };
    let restart = |server: Running, side, table| {
        let addr = server.addr;
        server.stop().unwrap();
        Running::start(Server::of_table(ServerSpec { addr, ..spec(side) }, table).unwrap())
    };
    let left = restart(left, Side::Left, new());
    let error = client.fetch_bag(&[1, 999]).await.unwrap_err();
    assert!(matches!(error, Error::LayoutsDiffer { .. }), "{error:?}");
    let right = restart(right, Side::Right, new());
    let client = Arc::new(client);
    let bags: Vec<_> = (0..10)
        .map(|_| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.fetch_bag(&[1, 999]).await })
        })
        .collect();
    for bag in bags {
        assert_eq!(bag.await.unwrap().unwrap().rows, old.rows);
    }
    assert_eq!(client.layout().unwrap().unwrap().ids_max(), 5);
    // However many bags found it changed.
    let fetched = r#"hushtable_requests_total{method="Layout",code="OK"}"#;
    assert_eq!(left.metric(fetched).await, 1.0);

    // No layout any more, then one again.
    let left = restart(left, Side::Left, table(ROWS, 4, 1));
    let right = restart(right, Side::Right, table(ROWS, 4, 1));
    let error = client.fetch_bag(&[1, 999]).await.unwrap_err();
    assert!(matches!(error, Error::NoLayout { .. }), "{error:?}");
    let _left = restart(left, Side::Left, laid_out());
    let _right = restart(right, Side::Right, laid_out());
    assert_eq!(client.fetch_bag(&[1, 999]).await.unwrap().rows, old.rows);
}

/// Keys of an empty bag for `laid_out`.
fn keys(side: Side, prg: PrgKind) -> Vec<u8> {
    let geometry = Geometry::new(laid_out().layout().unwrap());
    let plan = Plan::empty(geometry.keys());
    let (request, _) = Client::new(geometry, prg).query(&plan).unwrap();
    match side {
        Side::Left => request.left.clone(),
        Side::Right => request.right.clone(),
    }
}

async fn ask(
    server: &Running,
    version: &[u8],
    keys: Vec<u8>,
) -> Result<hushtable_serve::wire::AnswerBagsReply, Status> {
    let layout_version = Bytes::copy_from_slice(version);
    let request = AnswerBagsRequest { layout_version, keys: keys.into() };
    Ok(raw(server).await.answer_bags(request).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_that_are_none_are_refused_for_what_they_are() {
    let servers = start();
    let version = *laid_out().layout().unwrap().version().as_bytes();
    let good = |side| keys(side, PrgKind::Aes128);
    for (server, side) in [(&servers.left, Side::Left), (&servers.right, Side::Right)] {
        let reply = ask(server, &version, good(side)).await.unwrap();
        assert_eq!(reply.layout_version, version.to_vec());
        let geometry = Geometry::new(laid_out().layout().unwrap());
        assert_eq!(reply.answers.len(), geometry.answer_bytes());
        assert!(reply.queue_us.is_some() && reply.answer_us.is_some());
    }
    let right = || good(Side::Right);
    let with = |at: usize, value: u8| {
        let mut keys = right();
        keys[at] = value;
        keys
    };
    let mut longer = right();
    longer.push(0);
    type Case<'a> = (&'a str, &'a [u8], Vec<u8>, Code, &'a str, &'a str);
    let cases: [Case<'_>; 12] = [
        ("empty", &version, vec![], Code::InvalidArgument, "BAD_BAG", "length"),
        ("short", &version, right()[1..].into(), Code::InvalidArgument, "BAD_BAG", "length"),
        ("long", &version, longer, Code::InvalidArgument, "BAD_BAG", "length"),
        ("format", &version, with(0, 2), Code::InvalidArgument, "BAD_BAG", "format"),
        ("side", &version, with(1, 7), Code::InvalidArgument, "BAD_BAG", "other"),
        ("left's", &version, with(1, 0), Code::FailedPrecondition, "WRONG_SIDE", ""),
        ("prg", &version, with(2, 99), Code::InvalidArgument, "BAD_BAG", "prg"),
        (
            "dear prg",
            &version,
            keys(Side::Right, PrgKind::SipHash24),
            Code::InvalidArgument,
            "BAD_BAG",
            "prg",
        ),
        ("reserved", &version, with(3, 1), Code::InvalidArgument, "BAD_BAG", "padding"),
        ("version", &version[1..], right(), Code::InvalidArgument, "BAD_VERSION", ""),
        ("no version", &[], right(), Code::InvalidArgument, "BAD_VERSION", ""),
        ("other version", &[9; 32], right(), Code::FailedPrecondition, "LAYOUT_SKEW", ""),
    ];
    for (name, version, keys, code, reason, defect) in cases {
        let status = ask(&servers.right, version, keys).await.unwrap_err();
        let details = status.get_error_details();
        let info = details.error_info().unwrap_or_else(|| panic!("{name}: {status:?}"));
        assert_eq!((status.code(), info.reason.as_str()), (code, reason), "{name}: {status:?}");
        let found = info.metadata.get("defect").map_or("", String::as_str);
        assert_eq!(found, defect, "{name}: {status:?}");
    }

    // A server without a layout has none to give.
    let plain = Running::start(Server::of_table(spec(Side::Right), table(ROWS, 4, 1)).unwrap());
    let status = ask(&plain, &version, right()).await.unwrap_err();
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "NO_LAYOUT");
    let status = raw(&plain).await.layout(LayoutRequest::default()).await.unwrap_err();
    assert_eq!(status.get_error_details().error_info().unwrap().reason, "NO_LAYOUT");
    let info =
        raw(&plain).await.table_info(TableInfoRequest::default()).await.unwrap().into_inner();
    assert!(info.layout_version.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_layout_comes_in_chunks() {
    // Companions of every row: 1.2 MB of map.
    let rows = 30_000;
    let spec = LayoutSpec {
        hot: None,
        full: Some(PartSpec { rows, bins: 50, queries: 1, hashes: 1, companions: 10 }),
        ..layout_spec(rows, 4)
    };
    let table = lay_out(table(rows, 1, 5), spec);
    let bytes = table.layout().unwrap().to_bytes();
    let server = Running::start(Server::of_table(crate::common::spec(Side::Left), table).unwrap());
    let mut chunks =
        raw(&server).await.layout(LayoutRequest::default()).await.unwrap().into_inner();
    let mut found = Vec::new();
    while let Some(chunk) = chunks.message().await.unwrap() {
        assert!((1..=1 << 20).contains(&chunk.bytes.len()));
        found.extend_from_slice(&chunk.bytes);
    }
    assert!(found == bytes, "{} bytes where {} were expected", found.len(), bytes.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn busy_servers_are_asked_again() {
    let limits = |spec| ServerSpec { queue_bags_max: 1, batch_bags_max: Some(1), ..spec };
    let servers = GatedPair::start_with(laid_out, limits);
    let client = Arc::new(LookupClient::connect(&servers.pair.client_spec()).await.unwrap());
    let held = servers.hold();
    let bags: Vec<_> = (0..8u64)
        .map(|id| {
            let client = Arc::clone(&client);
            tokio::spawn(async move { client.fetch_bag(&[id]).await.unwrap() })
        })
        .collect();
    // One is in a pass, one waits: there is no room for more.
    servers.pair.left.refuses_busy("AnswerBags").await;
    drop(held);
    let mut retries = 0;
    for (id, bag) in (0..).zip(bags) {
        let bag = bag.await.unwrap();
        assert_eq!(bag.rows, row(&table(ROWS, 4, 1), id));
        retries += bag.stats.retries;
    }
    assert!(retries > 0, "eight bags fit a queue of one?");
}

#[test]
fn a_load_of_bags_is_answered_without_errors() {
    let servers = start();
    let spec = BagLoadSpec {
        clients: 4,
        warmup: Duration::ZERO,
        duration: Duration::from_millis(200),
        ..BagLoadSpec::new(
            EndpointSpec::new(servers.left.url(), None),
            EndpointSpec::new(servers.right.url(), None),
        )
    };
    let mut requests = 0;
    block_until("requests are answered", || {
        let report = spec.run_blocking().unwrap();
        assert_eq!((report.errors, report.rejected), (0, 0), "{report:?}");
        requests += report.requests;
        requests > 10
    });
}

/// The real engine, which flips a bit of left's answers if told to.
struct Faulty {
    engine: BatchEngine,
    flips: bool,
}

impl BatchBackend for Faulty {
    fn geometry(&self) -> &Geometry {
        self.engine.geometry()
    }

    fn answer(
        &self,
        requests: &[BatchKeys],
        answers: &mut [u8],
    ) -> Result<(), hushtable_pir::Error> {
        self.engine.answer(requests, answers)?;
        if self.flips && requests[0].side() == Side::Left {
            answers.iter_mut().for_each(|byte| *byte ^= 1);
        }
        Ok(())
    }

    fn batch_requests_best(&self) -> usize {
        self.engine.batch_requests_best()
    }

    fn description(&self) -> String {
        self.engine.description()
    }
}

fn faulty(flips: bool, other: Option<Layout>) -> Server {
    let server = Server::of_table(spec(Side::Left), laid_out()).unwrap();
    server.with_batch_backend(move |table, layout| {
        let layout = other.as_ref().unwrap_or(layout);
        let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
        let engine = BatchEngine::from_table(table, layout, &spec)?;
        Ok(Arc::new(Faulty { engine, flips }))
    })
}

#[test]
fn a_backend_of_bags_is_checked_before_it_serves() {
    let run = |server: Server| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        runtime.block_on(async {
            let bound = server.bind().await.unwrap();
            let ready = bound.ready();
            bound.run(ready).await
        })
    };
    run(faulty(false, None)).unwrap();
    let error = run(faulty(true, None)).unwrap_err();
    assert!(matches!(error, Error::SelfCheck { .. }), "{error:?}");
    let other = lay_out(table(ROWS, 4, 1), layout_spec(ROWS, 2)).layout().unwrap().as_ref().clone();
    let versions = (laid_out().layout().unwrap().version(), other.version());
    let error = run(faulty(false, Some(other))).unwrap_err();
    let Error::BackendLayout { expected, found } = error else { panic!("{error:?}") };
    assert_eq!((expected, found), versions);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_answers_the_bags_that_came_before() {
    let patient = |spec| ServerSpec { drain_ms_max: 3_600_000, ..spec };
    let mut servers = GatedPair::start_with(laid_out, patient);
    let client = Arc::new(LookupClient::connect(&servers.pair.client_spec()).await.unwrap());
    let held = servers.hold();
    let ask = |id: u64| {
        let client = Arc::clone(&client);
        tokio::spawn(async move { client.fetch_bag(&[id]).await })
    };
    // One in a pass, and one that waits for the next.
    let answering = ask(7);
    until("passes are under way", async || servers.waiting() == [1, 1]).await;
    let waiting = ask(3);
    let Pair { left, right } = &mut servers.pair;
    for server in [left, right] {
        server.comes_to("hushtable_queue_bags", 1.0).await;
        server.signal();
        until("it drains", async || server.page("/readyz").await.0 != 200).await;
    }
    drop(held);
    for (asked, id) in [(answering, 7), (waiting, 3)] {
        assert_eq!(asked.await.unwrap().unwrap().rows, row(&table(ROWS, 4, 1), id));
    }
    let error = client.fetch_bag(&[3]).await.unwrap_err();
    let gone = matches!(
        &error,
        Error::Unavailable { .. } | Error::Refused { refusal: Refusal::Draining, .. }
    );
    assert!(gone, "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_bag_at_swapped_servers_is_refused_as_a_lookup_is() {
    let servers = start();
    let client = LookupClient::connect(&servers.client_spec()).await.unwrap();
    let addrs = [servers.left.addr, servers.right.addr];
    servers.left.stop().unwrap();
    servers.right.stop().unwrap();
    // The same addresses, with the sides the other way round.
    let swapped = [(Side::Right, addrs[0]), (Side::Left, addrs[1])].map(|(side, addr)| {
        let spec = ServerSpec { addr, ..spec(side) };
        Running::start(Server::of_table(spec, laid_out()).unwrap())
    });
    let is_wrong_side =
        |error: &Error| matches!(error.refused(), Some(PairRefusal::WrongSide { .. }));
    let error = client.lookup(&[3], 1).await.unwrap_err();
    assert!(is_wrong_side(&error), "{error:?}");
    let error = client.fetch_bag(&[3, 500]).await.unwrap_err();
    assert!(is_wrong_side(&error), "{error:?}");
    drop(swapped);
}
