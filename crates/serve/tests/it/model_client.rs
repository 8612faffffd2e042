//! Whole inferences of a model from two real servers, through TLS on loopback.

use crate::common::{Certificates, Running, row, spec};
use crate::model_common::Bundle;
use hushtable_pir::dpf::Side;
use hushtable_serve::{
    ClientSpec, EndpointSpec, Error, LookupClient, ModelClient, ModelPin, Server, ServerSpec,
};
use hushtable_table::model::ModelError;
use tempfile::TempDir;

struct Servers {
    certificates: Certificates,
    left: Running,
    right: Running,
}

impl Servers {
    fn start(left: &[&Bundle], right: &[&Bundle]) -> Self {
        let certificates = Certificates::new();
        let [left, right] = [(left, Side::Left), (right, Side::Right)]
            .map(|(models, side)| Running::start(server(&certificates, models, spec(side))));
        Self { certificates, left, right }
    }

    fn spec(&self) -> ClientSpec {
        let endpoint = |server: &Running| {
            EndpointSpec::new(server.tls_url(), Some(self.certificates.ca_pem()))
        };
        ClientSpec::new(endpoint(&self.left), endpoint(&self.right))
    }

    /// Both servers again at their addresses, with another model.
    fn restart(self, bundle: &Bundle) -> Self {
        let Self { certificates, left, right } = self;
        let restart = |server: Running, side| {
            let addr = server.addr;
            server.stop().unwrap();
            let spec = ServerSpec { addr, ..spec(side) };
            Running::start(self::server(&certificates, &[bundle], spec))
        };
        let (left, right) = (restart(left, Side::Left), restart(right, Side::Right));
        Self { certificates, left, right }
    }
}

fn server(certificates: &Certificates, models: &[&Bundle], spec: ServerSpec) -> Server {
    let path = |bundle: &&Bundle| bundle.path.clone();
    let spec = ServerSpec {
        table: models[0].path.clone(),
        tables: models[1..].iter().map(path).collect(),
        tls: Some(certificates.tls()),
        ..spec
    };
    Server::open(spec).unwrap()
}

async fn connect(servers: &Servers) -> ModelClient {
    ModelClient::connect(&servers.spec(), &ModelPin::default()).await.unwrap()
}

const ASKED: [(&str, &[u64]); 2] = [("cart", &[1, 999, 40, 1]), ("user", &[2999])];

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_inference_looks_alike_and_brings_its_rows() {
    let folder = TempDir::new().unwrap();
    let bundle = Bundle::first(folder.path());
    let servers = Servers::start(&[&bundle], &[&bundle]);
    let client = connect(&servers).await;
    let facts = client.info();
    assert_eq!(facts.manifest, bundle.manifest);
    assert_eq!(facts.tables[0].version, bundle.tables[0].version());
    let mut sizes = Vec::new();
    let full: Vec<u64> = (0..32).map(|i| i * 31).collect();
    let all: [(&str, &[u64]); 3] = [("friend", &[7, 7, 0]), ("user", &[5]), ("cart", &full)];
    for asked in [&ASKED[..], &all, &[("friend", &[])], &[]] {
        let found = client.lookup(asked).await.unwrap();
        bundle.check(asked, &found);
        sizes.push((found.stats.sent_bytes, found.stats.received_bytes));
    }
    let [left, right] = facts.request_bytes;
    assert_eq!(sizes, [(left + right, 2 * facts.answer_bytes); 4]);
    // One message to each server for each.
    let answered = r#"hushtable_requests_total{method="AnswerModel",code="OK"}"#;
    assert_eq!(servers.left.metric(answered).await, 4.0);
    assert_eq!(servers.right.metric(answered).await, 4.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_inferences_go_at_once_and_tables_alone() {
    let folder = TempDir::new().unwrap();
    let bundle = Bundle::first(folder.path());
    let servers = Servers::start(&[&bundle], &[&bundle]);
    let client = connect(&servers).await;
    let ids: Vec<[u64; 1]> = (0..100).map(|i| [i * 29]).collect();
    let inferences: Vec<[(&str, &[u64]); 1]> = ids.iter().map(|ids| [("user", &ids[..])]).collect();
    let asked: Vec<&[(&str, &[u64])]> = inferences.iter().map(|asked| &asked[..]).collect();
    let found = client.lookup_many(&asked).await.unwrap();
    assert_eq!(found.len(), 100);
    for (asked, found) in asked.into_iter().zip(&found) {
        bundle.check(asked, found);
    }
    assert!(client.lookup_many(&[]).await.unwrap().is_empty());

    let users = client.table("friend").unwrap();
    assert_eq!(users.info().version, bundle.tables[0].version());
    let found = users.lookup(&[2999, 3], 5).await.unwrap();
    assert_eq!(found.rows, [row(&bundle.tables[0], 2999), row(&bundle.tables[0], 3)].concat());
    assert_eq!(found.stats.version, bundle.tables[0].version());
    let items = client.table("cart").unwrap();
    assert!(items.layout().unwrap().is_some() && users.layout().unwrap().is_none());
    let bag = items.fetch_bag(&[17, 999]).await.unwrap();
    assert_eq!(bag.rows, [row(&bundle.tables[1], 17), row(&bundle.tables[1], 999)].concat());

    // A client of one table finds it by its version, among several.
    let pinned = ClientSpec { version: Some(users.info().version), ..servers.spec() };
    let alone = LookupClient::connect(&pinned).await.unwrap();
    assert_eq!(alone.lookup(&[8], 1).await.unwrap().rows, row(&bundle.tables[0], 8));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_asked_for_is_refused_by_the_features_name() {
    let folder = TempDir::new().unwrap();
    let bundle = Bundle::first(folder.path());
    let servers = Servers::start(&[&bundle], &[&bundle]);
    let client = connect(&servers).await;
    let error = client.lookup(&[("usr", &[1])]).await.unwrap_err();
    assert!(matches!(error, Error::Manifest(ModelError::UnknownFeature { .. })), "{error:?}");
    let text = error.to_string();
    assert!(text.contains("\"usr\"") && text.contains("user, cart, friend"), "{text}");
    assert!(client.table("usr").is_err());

    let error = client.lookup(&[("user", &[1]), ("friend", &[1, 2, 3, 4])]).await.unwrap_err();
    let expected =
        matches!(&error, Error::FeatureIds { feature, ids: 4, max_ids: 3 } if feature == "friend");
    assert!(expected, "{error:?}");
    let text = error.to_string();
    for part in ["\"friend\"", "model bundle", "max_ids = 3", "larger max_ids"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    let error = client.lookup(&[("cart", &[1000])]).await.unwrap_err();
    let expected = matches!(&error, Error::FeatureIdRange { feature, id: 1000, rows: 1000 } if feature == "cart");
    assert!(expected, "{error:?}");
    let error = client.lookup(&[("user", &[1]), ("user", &[2])]).await.unwrap_err();
    assert!(matches!(error, Error::FeatureTwice { .. }), "{error:?}");
    let answered = r#"hushtable_requests_total{method="AnswerModel",code="OK"}"#;
    assert!(!servers.left.page("/metrics").await.1.contains(answered));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_not_there_is_told_from_those_that_are() {
    let folder = TempDir::new().unwrap();
    let clicks = Bundle::first(folder.path());
    let views = Bundle::write(folder.path(), "views", 30, &[("item", 1, 32), ("user", 0, 1)]);
    let servers = Servers::start(&[&clicks, &views], &[&clicks, &views]);
    let connect = async |model: Option<&str>| {
        let pin = ModelPin { model: model.map(Into::into), version: None };
        ModelClient::connect(&servers.spec(), &pin).await
    };
    for model in [None, Some("likes")] {
        let error = connect(model).await.err().unwrap();
        assert!(matches!(error, Error::ModelUnserved { .. }), "{error:?}");
        assert!(error.to_string().contains("clicks, views"), "{error}");
    }
    let client = connect(Some("views")).await.unwrap();
    let asked: [(&str, &[u64]); 2] = [("item", &[5, 6]), ("user", &[7])];
    views.check(&asked, &client.lookup(&asked).await.unwrap());

    // Different models of one name.
    let other = Bundle::second(folder.path());
    let apart = Servers::start(&[&clicks], &[&other]);
    let error = ModelClient::connect(&apart.spec(), &ModelPin::default()).await.err().unwrap();
    let Error::ModelsDiffer { model, versions, .. } = &error else { panic!("{error:?}") };
    assert_eq!(model, "clicks");
    assert_eq!(**versions, [clicks.manifest.version(), other.manifest.version()]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pins_hold_through_a_restart_and_others_follow_it() {
    let folder = TempDir::new().unwrap();
    let (first, second) = (Bundle::first(folder.path()), Bundle::second(folder.path()));
    let servers = Servers::start(&[&first], &[&first]);
    let pin = |bundle: &Bundle| ModelPin { model: None, version: Some(bundle.manifest.version()) };
    let free = connect(&servers).await;
    let pinned = ModelClient::connect(&servers.spec(), &pin(&first)).await.unwrap();
    let users = free.table("user").unwrap();
    let version = Some(first.tables[0].version());
    let alone = ClientSpec { version, ..servers.spec() };
    let alone = LookupClient::connect(&alone).await.unwrap();
    for client in [&free, &pinned] {
        first.check(&ASKED, &client.lookup(&ASKED).await.unwrap());
    }
    let error = ModelClient::connect(&servers.spec(), &pin(&second)).await.err().unwrap();
    assert!(matches!(error, Error::VersionMismatch { .. }), "{error:?}");

    let servers = servers.restart(&second);
    second.check(&ASKED, &free.lookup(&ASKED).await.unwrap());
    assert_eq!(free.info().manifest, second.manifest);
    assert_eq!(users.lookup(&[4], 1).await.unwrap().rows, row(&second.tables[0], 4));
    for _ in 0..2 {
        let error = pinned.lookup(&ASKED).await.unwrap_err();
        let Error::VersionMismatch { expected, found, .. } = error else { panic!("{error:?}") };
        assert_eq!(expected, first.manifest.version());
        assert_eq!(found, Some(second.manifest.version()));
    }
    let error = alone.lookup(&[4], 1).await.unwrap_err();
    assert!(matches!(error, Error::VersionMismatch { .. }), "{error:?}");

    // And back.
    let _servers = servers.restart(&first);
    first.check(&ASKED, &pinned.lookup(&ASKED).await.unwrap());
    assert_eq!(alone.lookup(&[4], 1).await.unwrap().rows, row(&first.tables[0], 4));
}
