//! Sides of several servers: clients go on to the next where one drains or is gone.

use std::time::Duration;

use hushtable_pir::dpf::Side;
use hushtable_serve::{
    ClientSpec, EndpointSpec, Error, LookupClient, OnionClient, OnionClientSpec, OnionServer,
    OnionServerSpec, Server, ServerSpec,
};

use crate::common::{Running, in_time, lay_out, layout_spec, network, row, spec, table};

const ROWS: u64 = 1000;

fn side(servers: &[&Running]) -> EndpointSpec {
    let mut urls = servers.iter().map(|server| server.url());
    let first = EndpointSpec::new(urls.next().unwrap(), None);
    EndpointSpec { others: urls.collect(), ..first }
}

fn start(side: Side) -> Running {
    let table = lay_out(table(ROWS, 4, 1), layout_spec(ROWS, 1));
    Running::start(Server::of_table(spec(side), table).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn lookups_and_bags_go_on_at_the_next_server_of_a_side() {
    let [left, other_left] = [start(Side::Left), start(Side::Left)];
    let [right, other_right] = [start(Side::Right), start(Side::Right)];
    let spec = ClientSpec {
        lookup_max: Duration::from_secs(3600),
        ..ClientSpec::new(side(&[&left, &other_left]), side(&[&right, &other_right]))
    };
    let client = LookupClient::connect(&spec).await.unwrap();
    let table = table(ROWS, 4, 1);
    let ask = async || {
        assert_eq!(client.lookup(&[7], 2).await.unwrap().rows, row(&table, 7));
        assert_eq!(client.fetch_bag(&[3]).await.unwrap().rows, row(&table, 3));
    };
    ask().await;
    assert_eq!(other_left.metric("hushtable_passes_total").await, 0.0);
    left.stop().unwrap();
    ask().await;
    right.stop().unwrap();
    ask().await;
    assert!(other_right.metric("hushtable_passes_total").await > 0.0);
    // A client that comes now finds the same.
    assert_eq!(
        LookupClient::connect(&spec).await.unwrap().lookup(&[7], 2).await.unwrap().rows.len(),
        16
    );
    // With none left it is over, and not after an hour.
    other_left.stop().unwrap();
    let error = in_time(client.lookup(&[7], 2)).await.unwrap_err();
    assert!(matches!(error, Error::Unavailable { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_the_other_side_is_found_out_when_it_is_come_to() {
    let [left, right] = [start(Side::Left), start(Side::Right)];
    let wrong = start(Side::Right);
    let spec = ClientSpec::new(side(&[&left, &wrong]), side(&[&right]));
    let client = LookupClient::connect(&spec).await.unwrap();
    client.lookup(&[7], 2).await.unwrap();
    left.stop().unwrap();
    for _ in 0..2 {
        let error = client.lookup(&[7], 2).await.unwrap_err();
        let is_same = matches!(&error, Error::SameSide { left, side: Side::Right, .. } if *left == wrong.url());
        assert!(is_same, "{error:?}");
    }
    let error = client.fetch_bag(&[7]).await.unwrap_err();
    assert!(matches!(error, Error::SameSide { .. }), "{error:?}");
    assert_eq!(wrong.metric("hushtable_answered_keys_total").await, 0.0);
    wrong.comes_to("hushtable_queue_keys", 0.0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_url_is_not_of_both_sides() {
    let spec = |left: &[&str], right: &[&str]| {
        let side = |urls: &[&str]| EndpointSpec {
            others: urls[1..].iter().map(|url| url.to_string()).collect(),
            ..EndpointSpec::new(urls[0], None)
        };
        ClientSpec::new(side(left), side(right))
    };
    let [a, b, c] = ["http://127.0.0.1:1", "http://127.0.0.1:2", "http://127.0.0.1:3"];
    for spec in [spec(&[a, b], &[c, b]), spec(&[a], &[c, a]), spec(&[a, b], &[b])] {
        let error = LookupClient::connect(&spec).await.err().unwrap();
        assert!(matches!(error, Error::Url { .. }), "{error:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn versions_change_one_server_after_the_other() {
    let of =
        |side, seed| Running::start(Server::of_table(spec(side), table(ROWS, 4, seed)).unwrap());
    let again = |side, server: Running, seed| {
        let spec = ServerSpec { addr: server.addr, ..spec(side) };
        server.stop().unwrap();
        Running::start(Server::of_table(spec, table(ROWS, 4, seed)).unwrap())
    };
    let mut lefts = [Some(of(Side::Left, 1)), Some(of(Side::Left, 1))];
    let mut rights = [Some(of(Side::Right, 1)), Some(of(Side::Right, 1))];
    let sides =
        [&lefts, &rights].map(|servers| side(&servers.each_ref().map(|it| it.as_ref().unwrap())));
    let [left, right] = sides;
    let client = LookupClient::connect(&ClientSpec::new(left, right)).await.unwrap();
    let tables = [table(ROWS, 4, 1), table(ROWS, 4, 2)];
    let ask = async || {
        let found = client.lookup(&[7], 2).await.unwrap();
        let of = tables.iter().find(|table| table.version() == found.stats.version).unwrap();
        assert_eq!(found.rows, row(of, 7));
        found.stats.version
    };
    assert_eq!(ask().await, tables[0].version());
    for number in 0..2 {
        lefts[number] = lefts[number].take().map(|server| again(Side::Left, server, 2));
        ask().await;
        rights[number] = rights[number].take().map(|server| again(Side::Right, server, 2));
        ask().await;
    }
    assert_eq!(ask().await, tables[1].version());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_single_server_that_is_come_to_gets_the_keys_first() {
    let start = || {
        let network = network();
        let spec = OnionServerSpec { network, threads: 1, ..OnionServerSpec::new("") };
        Running::start(OnionServer::of_table(spec, table(100, 4, 1)).unwrap())
    };
    let [one, two] = [start(), start()];
    let client = OnionClient::connect(&OnionClientSpec::new(side(&[&one, &two]))).await.unwrap();
    let table = table(100, 4, 1);
    assert_eq!(client.lookup(&[7], 1).await.unwrap().rows, row(&table, 7));
    one.stop().unwrap();
    let found = client.lookup(&[8], 1).await.unwrap();
    assert_eq!(found.rows, row(&table, 8));
    assert!(found.stats.retries > 0);
    assert_eq!(two.metric("hushtable_client_keys_uploaded_total").await, 1.0);
}
