//! Servers of several tables and models, by the bare wire contract.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use crate::common::{Running, block_until, lay_out, layout_spec, metric_of, raw, row, spec, until};
use bytes::Bytes;
use hushtable_pir::batch::{self, Geometry};
use hushtable_pir::dpf::{self, Reply, Side};
use hushtable_pir::{PrgKind, TableShape};
use hushtable_serve::load::{ModelEngineSpec, ModelLoadSpec};
use hushtable_serve::wire::{
    AnswerBagsRequest, AnswerModelReply, AnswerModelRequest, AnswerRequest, CatalogRequest,
    LayoutRequest, TableInfoRequest,
};
use hushtable_serve::{EndpointSpec, Error, Server, ServerSpec};
use hushtable_table::layout::{Plan, Planner};
use hushtable_table::model::{self, Feature, ModelManifest, Pooling, places};
use hushtable_table::{DType, Table, Version};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// A table called `name` of pseudorandom numbers.
fn table(name: &str, rows: u64, dim: usize) -> Table {
    let mut rng = ChaCha8Rng::seed_from_u64(rows);
    let values: Vec<f32> = (0..rows as usize * dim).map(|_| rng.random_range(-1.0..1.0)).collect();
    Table::from_weight(name, rows, dim, DType::F32, &values).unwrap()
}

fn users() -> Table {
    table("users", 3000, 4)
}

/// The table with a layout.
fn items() -> Table {
    lay_out(table("items", 1000, 4), layout_spec(1000, 1))
}

fn tags() -> Table {
    table("tags", 5, 2)
}

fn feature(name: &str, table: usize, max_ids: usize) -> Feature {
    Feature { name: name.to_owned(), table, pooling: Pooling::Sum, max_ids }
}

/// Three tables, four features: two of them read one table, one a table with a layout.
fn write_clicks(folder: &Path) -> (PathBuf, ModelManifest) {
    let features = [
        feature("user", 0, 1),
        feature("cart", 1, 64),
        feature("friend", 0, 3),
        feature("tag", 2, 2),
    ];
    let (users, items, tags) = (users(), items(), tags());
    let tables = [("users", &users), ("items", &items), ("tags", &tags)];
    let out = folder.join("clicks");
    let manifest = model::write(&out, "clicks", &tables, &features, None).unwrap();
    (out, manifest)
}

/// A model of one of the same tables and of one more.
fn write_views(folder: &Path) -> (PathBuf, ModelManifest) {
    let (users, places) = (users(), table("places", 700, 8));
    let tables = [("users", &users), ("places", &places)];
    let features = [feature("place", 1, 2), feature("user", 0, 1)];
    let out = folder.join("views");
    let manifest = model::write(&out, "views", &tables, &features, None).unwrap();
    (out, manifest)
}

fn spec_of(paths: &[&PathBuf], side: Side) -> ServerSpec {
    let tables = paths[1..].iter().map(|path| (*path).clone()).collect();
    ServerSpec { table: paths[0].clone(), tables, threads: 2, ..spec(side) }
}

struct Both([Running; 2]);

impl Both {
    fn start(paths: &[&PathBuf]) -> Self {
        let start = |side| Running::start(Server::open(spec_of(paths, side)).unwrap());
        Self(Side::BOTH.map(start))
    }
}

/// One inference: what goes to each side, and how to read the answers.
struct Asked<'a> {
    parts: [Vec<Bytes>; 2],
    pending: Vec<Pending<'a>>,
}

enum Pending<'a> {
    Rows(&'a Table, Vec<u64>, usize, dpf::Pending),
    Bins(&'a Table, Plan, Vec<u64>, batch::Pending),
}

/// Asks for `ids`, feature by feature.
fn ask<'a>(manifest: &ModelManifest, tables: &[&'a Table], ids: &[&[u64]]) -> Asked<'a> {
    let mut asked = Asked { parts: Default::default(), pending: Vec::new() };
    for (feature, ids) in manifest.features().iter().zip(ids) {
        let table = tables[feature.table];
        let [left, right] = match table.layout() {
            Some(layout) => {
                let plan = Planner::new(Arc::clone(layout)).plan_vartime(ids, 7).unwrap();
                let client = batch::Client::new(Geometry::new(layout), PrgKind::Aes128);
                let (request, pending) = client.query(&plan).unwrap();
                let sides = [request.left.clone(), request.right.clone()];
                asked.pending.push(Pending::Bins(table, plan, ids.to_vec(), pending));
                sides
            }
            None => {
                let shape = TableShape::new(table.rows(), table.row_bytes()).unwrap();
                let client = dpf::Client::new(shape, table.version(), PrgKind::Aes128).unwrap();
                let (request, pending) = client.query(ids, feature.max_ids).unwrap();
                let keys = feature.max_ids;
                asked.pending.push(Pending::Rows(table, ids.to_vec(), keys, pending));
                [request.left.concat(), request.right.concat()]
            }
        };
        asked.parts[0].push(left.into());
        asked.parts[1].push(right.into());
    }
    asked
}

impl Asked<'_> {
    /// Sends it to both servers and compares what comes back with the tables' rows.
    async fn check(&self, servers: &Both, version: Version) {
        let mut replies = Vec::new();
        for (server, parts) in servers.0.iter().zip(&self.parts) {
            replies.push(answer(server, version, parts.clone()).await.unwrap());
        }
        let [left, right] = replies.as_slice() else { unreachable!() };
        for reply in [left, right] {
            assert_eq!(reply.model_version, version.as_bytes().as_slice());
            assert!(reply.queue_us.is_some() && reply.answer_us.is_some());
        }
        let (mut left, mut right) = (left.answers.clone(), right.answers.clone());
        for pending in &self.pending {
            match pending {
                Pending::Rows(table, ids, keys, pending) => {
                    let bytes = keys * table.row_bytes();
                    let (own_left, own_right) = (left.split_to(bytes), right.split_to(bytes));
                    let version = table.version();
                    let reply = |answers| Reply { version, answers };
                    let rows = pending.combine(reply(&own_left), reply(&own_right)).unwrap();
                    let expected: Vec<u8> = ids.iter().flat_map(|&id| row(table, id)).collect();
                    assert_eq!(rows, expected);
                }
                Pending::Bins(table, plan, ids, pending) => {
                    let layout = table.layout().unwrap();
                    let bytes = Geometry::new(layout).answer_bytes();
                    let (own_left, own_right) = (left.split_to(bytes), right.split_to(bytes));
                    let version = layout.version();
                    let reply = |answers| Reply { version, answers };
                    let entries = pending.combine(reply(&own_left), reply(&own_right)).unwrap();
                    let rows = pending.rows(plan, &entries, table.row_bytes());
                    let kept = plan.found.iter().filter(|found| found.is_some()).count();
                    assert!(kept > 0 || ids.is_empty());
                    for ((found, &id), bytes) in
                        plan.found.iter().zip(ids).zip(rows.chunks(table.row_bytes()))
                    {
                        if found.is_some() {
                            assert_eq!(bytes, row(table, id));
                        }
                    }
                }
            }
        }
        assert!(left.is_empty() && right.is_empty());
    }
}

async fn answer(
    server: &Running,
    version: Version,
    parts: Vec<Bytes>,
) -> Result<AnswerModelReply, Status> {
    let model_version = Bytes::copy_from_slice(version.as_bytes());
    let request = AnswerModelRequest { model_version, parts };
    Ok(raw(server).await.answer_model(request).await?.into_inner())
}

fn bytes(version: Version) -> Bytes {
    Bytes::copy_from_slice(version.as_bytes())
}

/// A status's code and reason, and one of its facts.
fn reason(status: &Status, fact: &str) -> (Code, String, String) {
    let details = status.get_error_details();
    let info = details.error_info().unwrap();
    let fact = info.metadata.get(fact).cloned().unwrap_or_default();
    (status.code(), info.reason.clone(), fact)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_inferences_of_several_models_come_back_from_one_address() {
    let folder = TempDir::new().unwrap();
    let (clicks_path, clicks) = write_clicks(folder.path());
    let (views_path, views) = write_views(folder.path());
    let alone = folder.path().join("alone");
    let lone = table("alone", 40, 3);
    lone.save(&alone).unwrap();
    let servers = Both::start(&[&clicks_path, &views_path, &alone]);
    let (users, items, tags) = (users(), items(), tags());
    let views_tables = [users.clone(), table("places", 700, 8)];

    for turn in 0..3 {
        let cart: Vec<u64> = (turn..turn + 20).collect();
        let ids: [&[u64]; 4] = [&[2999 - turn], &cart, &[1, 2], &[]];
        let asked = ask(&clicks, &[&users, &items, &tags], &ids);
        asked.check(&servers, clicks.version()).await;
        let asked = ask(&views, &[&views_tables[0], &views_tables[1]], &[&[699, turn], &[7]]);
        asked.check(&servers, views.version()).await;
    }

    // The table that both models read is held once, and there for lookups by itself, as all are.
    let [left, _] = &servers.0;
    let catalog = raw(left).await.catalog(CatalogRequest {}).await.unwrap().into_inner();
    let names: Vec<_> = catalog.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["users", "items", "tags", "places", "alone"]);
    for info in &catalog.tables {
        assert_eq!(info.versions, std::slice::from_ref(&info.version));
        let request = TableInfoRequest { table_version: info.version.clone() };
        let alone = raw(left).await.table_info(request).await.unwrap().into_inner();
        assert_eq!(alone, *info);
        assert_eq!(info.layout_version.is_empty(), info.name != "items");
    }
    let models: Vec<_> = catalog.models.iter().map(|model| model.name.as_str()).collect();
    assert_eq!(models, ["clicks", "views"]);
    for (info, manifest) in catalog.models.iter().zip([&clicks, &views]) {
        assert_eq!(info.versions, [bytes(manifest.version())]);
        assert_eq!(ModelManifest::from_json(&info.manifest).unwrap(), *manifest);
        assert!(info.request_bytes_max > 0);
    }
    let shape = TableShape::new(lone.rows(), lone.row_bytes()).unwrap();
    let client = dpf::Client::new(shape, lone.version(), PrgKind::Aes128).unwrap();
    let (request, pending) = client.query(&[39], 2).unwrap();
    let mut answers = Vec::new();
    for (server, keys) in servers.0.iter().zip([&request.left, &request.right]) {
        let keys = keys.iter().map(|key| key.clone().into()).collect();
        let request = AnswerRequest { table_version: bytes(lone.version()), keys };
        answers.push(raw(server).await.answer(request).await.unwrap().into_inner().answers);
    }
    let reply = |answers| Reply { version: lone.version(), answers };
    assert_eq!(pending.combine(reply(&answers[0]), reply(&answers[1])).unwrap(), row(&lone, 39));

    // The layout is found by its version, and by none only where there is one.
    let layout_version = bytes(items.layout().unwrap().version());
    for version in [layout_version.clone(), Bytes::new()] {
        let request = LayoutRequest { layout_version: version };
        let mut chunks = raw(left).await.layout(request).await.unwrap().into_inner();
        let mut found = Vec::new();
        while let Some(chunk) = chunks.message().await.unwrap() {
            found.extend_from_slice(&chunk.bytes);
        }
        assert_eq!(found, items.layout().unwrap().to_bytes());
    }
    let metrics = left.page("/metrics").await.1;
    let inferences = |model: &str| {
        metric_of(&metrics, &format!("hushtable_answered_inferences_total{{table=\"{model}\"}}"))
    };
    assert_eq!((inferences("clicks"), inferences("views")), (3.0, 3.0));
    let rows =
        |name: &str| metric_of(&metrics, &format!("hushtable_table_rows{{table=\"{name}\"}}"));
    assert_eq!((rows("users"), rows("alone")), (3000.0, 40.0));
    let keys = |name: &str| {
        metric_of(&metrics, &format!("hushtable_answered_keys_total{{table=\"{name}\"}}"))
    };
    assert_eq!((keys("users"), keys("alone")), (0.0, 2.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn inferences_sent_together_share_passes_and_stay_apart() {
    let folder = TempDir::new().unwrap();
    let (path, clicks) = write_clicks(folder.path());
    let servers = Side::BOTH.map(|side| {
        let spec = ServerSpec { window_us: Some(50_000), ..spec_of(&[&path], side) };
        Running::start(Server::open(spec).unwrap())
    });
    let servers = Both(servers);
    let (users, items, tags) = (users(), items(), tags());
    let tables = [&users, &items, &tags];
    let asked: Vec<_> = (0..24u64)
        .map(|i| ask(&clicks, &tables, &[&[i], &[i, i + 500], &[i + 7, 9], &[i % 5, 3]]))
        .collect();
    let checks = asked.iter().map(|asked| asked.check(&servers, clicks.version()));
    let mut checks: Vec<_> = checks.map(Box::pin).collect();
    // All at once, on this task.
    std::future::poll_fn(|cx| {
        checks.retain_mut(|check| check.as_mut().poll(cx).is_pending());
        if checks.is_empty() { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    let metrics = servers.0[0].page("/metrics").await.1;
    let answered = metric_of(&metrics, "hushtable_answered_inferences_total{table=\"clicks\"}");
    let passes = metric_of(&metrics, "hushtable_model_passes_total{table=\"clicks\"}");
    assert_eq!(answered, 24.0);
    assert!(passes < 12.0, "{passes} passes for 24 inferences");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_server_does_not_hold_is_said() {
    let folder = TempDir::new().unwrap();
    let (path, clicks) = write_clicks(folder.path());
    let servers = Both::start(&[&path]);
    let [left, right] = &servers.0;
    let unknown = Version::from([9; 32]);
    let hex = unknown.to_string();
    let expected = |reason: &str, fact: &str| (Code::NotFound, reason.to_owned(), fact.to_owned());

    let status = answer(left, unknown, Vec::new()).await.unwrap_err();
    assert_eq!(reason(&status, "found"), expected("UNKNOWN_MODEL", &hex));
    let keys = vec![Bytes::from_static(&[0; 40])];
    let request = AnswerRequest { table_version: bytes(unknown), keys };
    let status = raw(left).await.answer(request).await.unwrap_err();
    assert_eq!(reason(&status, "found"), expected("UNKNOWN_TABLE", &hex));
    assert_eq!(reason(&status, "tables").2, "3");
    let request = AnswerBagsRequest { layout_version: bytes(unknown), keys: Bytes::new() };
    let status = raw(left).await.answer_bags(request).await.unwrap_err();
    assert_eq!(reason(&status, "found"), expected("UNKNOWN_TABLE", &hex));
    let request = LayoutRequest { layout_version: bytes(unknown) };
    let status = raw(left).await.layout(request).await.unwrap_err();
    assert_eq!(reason(&status, "found"), expected("UNKNOWN_TABLE", &hex));
    for version in [Bytes::new(), bytes(unknown)] {
        let fact = if version.is_empty() { "" } else { &hex };
        let request = TableInfoRequest { table_version: version };
        let status = raw(left).await.table_info(request).await.unwrap_err();
        assert_eq!(reason(&status, "found"), expected("UNKNOWN_TABLE", fact));
    }
    let request = AnswerModelRequest { model_version: Bytes::from_static(b"x"), parts: Vec::new() };
    let status = raw(left).await.answer_model(request).await.unwrap_err();
    assert_eq!(reason(&status, "bytes").1, "BAD_VERSION");

    // The parts are exactly what the manifest says, or nothing is answered.
    let (users, items, tags) = (users(), items(), tags());
    let asked = ask(&clicks, &[&users, &items, &tags], &[&[1], &[2], &[3], &[4]]);
    let [good, others] = asked.parts;
    let bag = |parts: Vec<Bytes>, defect: &str, names: &str| {
        let (defect, names) = (defect.to_owned(), names.to_owned());
        let version = clicks.version();
        async move {
            let status = answer(left, version, parts).await.unwrap_err();
            let found = reason(&status, "defect");
            assert_eq!(found, (Code::InvalidArgument, "BAD_BAG".to_owned(), defect));
            assert!(status.message().contains(&names), "{}", status.message());
        }
    };
    let with = |part: usize, bytes: Bytes| {
        let mut parts = good.clone();
        parts[part] = bytes;
        parts
    };
    bag(Vec::new(), "length", "4 features").await;
    bag(good[..3].to_vec(), "length", "4 features").await;
    bag([good.clone(), good.clone()].concat(), "length", "4 features").await;
    bag(with(0, Bytes::new()), "length", "\"user\"").await;
    bag(with(2, good[2].slice(1..)), "length", "\"friend\"").await;
    bag(with(1, good[1].slice(1..)), "length", "\"cart\"").await;
    bag(with(0, Bytes::from(vec![7; good[0].len()])), "format", "\"user\"").await;
    // One key of another table's, of the right number.
    bag(with(0, good[3].slice(..good[3].len() / 2)), "other", "\"user\"").await;
    let status = answer(left, clicks.version(), others.clone()).await.unwrap_err();
    assert_eq!(
        reason(&status, "expected"),
        (Code::FailedPrecondition, "WRONG_SIDE".to_owned(), "left".to_owned())
    );
    // A generator that this server leaves out.
    let spec = ServerSpec { prgs: vec!["chacha20".into()], ..spec_of(&[&path], Side::Left) };
    let picky = Running::start(Server::open(spec).unwrap());
    let status = answer(&picky, clicks.version(), good.clone()).await.unwrap_err();
    assert_eq!(reason(&status, "defect").2, "prg");
    // Both still answer.
    let (left, right) =
        (answer(left, clicks.version(), good), answer(right, clicks.version(), others));
    assert_eq!(left.await.unwrap().answers.len(), right.await.unwrap().answers.len());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_one_table_refuses_as_ever_and_holds_no_model() {
    let server = Running::start(Server::of_table(spec(Side::Left), users()).unwrap());
    let unknown = Version::from([9; 32]);
    let status = answer(&server, unknown, Vec::new()).await.unwrap_err();
    assert_eq!(reason(&status, "found").1, "UNKNOWN_MODEL");
    let request = TableInfoRequest { table_version: bytes(unknown) };
    let status = raw(&server).await.table_info(request).await.unwrap_err();
    assert_eq!(
        reason(&status, "expected"),
        (Code::FailedPrecondition, "VERSION_SKEW".to_owned(), users().version().to_string())
    );
    let catalog = raw(&server).await.catalog(CatalogRequest {}).await.unwrap().into_inner();
    assert_eq!((catalog.tables.len(), catalog.models.len()), (1, 0));
    let request = TableInfoRequest::default();
    let info = raw(&server).await.table_info(request).await.unwrap().into_inner();
    assert_eq!(catalog.tables, [info]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_draining_server_refuses_inferences_and_another_goes_on() {
    let folder = TempDir::new().unwrap();
    let (path, clicks) = write_clicks(folder.path());
    let (users, items, tags) = (users(), items(), tags());
    let asked = ask(&clicks, &[&users, &items, &tags], &[&[1], &[2], &[3], &[4]]);
    let mut server = Running::start(Server::open(spec_of(&[&path], Side::Left)).unwrap());
    let mut client = raw(&server).await;
    let request = AnswerModelRequest {
        model_version: bytes(clicks.version()),
        parts: asked.parts[0].clone(),
    };
    client.answer_model(request.clone()).await.unwrap();
    server.signal();
    let mut refused = None;
    until("it refuses", async || {
        refused = client.answer_model(request.clone()).await.err();
        // The connection may end just while a request is written to it, or be reset: that is no answer. The next one is.
        refused.as_ref().is_some_and(|status| {
            std::error::Error::source(status).is_none() || status.code() == Code::Unavailable
        })
    })
    .await;
    let status = refused.unwrap();
    assert_eq!(status.code(), Code::Unavailable, "{status}");
    server.stop().unwrap();
    // After a restart the same model is there under the same version.
    let servers = Both::start(&[&path]);
    asked.check(&servers, clicks.version()).await;
}

#[test]
fn models_that_cannot_be_served_say_why_before_anything_is_loaded() {
    let folder = TempDir::new().unwrap();
    let (path, clicks) = write_clicks(folder.path());
    let open = |spec: ServerSpec| match Server::open(spec) {
        Ok(_) => panic!("it was opened"),
        Err(error) => error,
    };
    let left = |paths: &[&PathBuf]| spec_of(paths, Side::Left);

    // 3,000 rows of 16 bytes are 6 blocks of 512, and 1,000 rows two, with 7,168 bytes of bins or so.
    let budget = |bytes| ServerSpec { tables_bytes_max: Some(bytes), ..left(&[&path]) };
    let error = open(budget(50_000));
    assert!(matches!(error, Error::TablesBudget { bytes_max: 50_000, .. }), "{error}");
    let text = error.to_string();
    for part in ["items", "cart", "clicks", "50000", "--tables-bytes-max"] {
        assert!(text.contains(part), "{text}: {part}");
    }
    let error = open(budget(0));
    assert!(error.to_string().contains("\"user\""), "{error}");
    Server::open(budget(1 << 20)).unwrap();
    // The same tables twice count once.
    let (views_path, _) = write_views(folder.path());
    let Error::TablesBudget { bytes, .. } =
        open(ServerSpec { tables_bytes_max: Some(6 * 512 * 16), ..left(&[&views_path]) })
    else {
        panic!("the second table fits?")
    };
    assert_eq!(bytes, 6 * 512 * 16 + 2 * 512 * 32);

    // A table that is another than the manifest means, and one that is missing.
    let place = path.join(places::table("tags"));
    std::fs::rename(&place, folder.path().join("aside")).unwrap();
    let error = open(left(&[&path]));
    assert!(matches!(&error, Error::ModelTable { feature, .. } if feature == "tag"), "{error}");
    assert!(error.to_string().contains("tags"), "{error}");
    table("tags", 6, 2).save(&place).unwrap();
    let error = open(left(&[&path]));
    assert!(matches!(&error, Error::ModelTable { feature, .. } if feature == "tag"), "{error}");
    std::fs::remove_dir_all(&place).unwrap();
    std::fs::rename(folder.path().join("aside"), &place).unwrap();
    Server::open(left(&[&path])).unwrap();

    // Another version of the model that is served already; the same one twice is one.
    let other = folder.path().join("other");
    let (users, tags) = (users(), tags());
    let features = [feature("user", 0, 1), feature("tag", 1, 1)];
    let tables = [("users", &users), ("tags", &tags)];
    let found = model::write(&other, "clicks", &tables, &features, None).unwrap();
    let error = open(left(&[&path, &other]));
    let expected = (clicks.version(), found.version());
    assert!(
        matches!(&error, Error::ModelTwice { expected: e, found: f, .. } if (*e, *f) == expected),
        "{error}"
    );
    Server::open(left(&[&path, &path])).unwrap();

    // A damaged manifest, a folder that is neither.
    std::fs::write(path.join(places::MANIFEST), b"{}").unwrap();
    let error = open(left(&[&path]));
    assert!(matches!(&error, Error::Model { path: at, .. } if *at == path), "{error}");
    let nothing = folder.path().join("nothing");
    let error = open(left(&[&nothing]));
    assert!(matches!(error, Error::Table { .. }), "{error}");
}

#[test]
fn a_load_of_whole_inferences_counts_what_comes_back_right() {
    let folder = TempDir::new().unwrap();
    let (path, manifest) = write_clicks(folder.path());
    let servers = Both::start(&[&path]);
    let [left, right] = servers.0.each_ref().map(|server| EndpointSpec::new(server.url(), None));
    let load = ModelLoadSpec {
        clients: 3,
        warmup: Duration::from_millis(50),
        duration: Duration::from_millis(200),
        ..ModelLoadSpec::new(left.clone(), right.clone(), manifest)
    };
    block_until("requests are answered", || {
        let report = load.run_blocking().unwrap();
        assert_eq!(report.errors, 0, "{report:?}");
        let are_answered = report.requests > 0;
        assert_eq!(report.p50_ms > 0.0, are_answered, "{report:?}");
        assert!(report.p50_ms <= report.p99_ms, "{report:?}");
        are_answered
    });

    // A model that the servers do not hold, and sides the wrong way round.
    let (_, views) = write_views(folder.path());
    let other = ModelLoadSpec { manifest: views, ..load.clone() };
    let error = other.run_blocking().unwrap_err();
    assert!(matches!(&error, Error::Refused { .. }), "{error}");
    let swapped = ModelLoadSpec { left: right, right: left, ..load };
    let error = swapped.run_blocking().unwrap_err();
    assert!(matches!(&error, Error::Refused { .. }), "{error}");
}

#[test]
fn a_models_engine_is_measured_without_servers() {
    let spec = ModelEngineSpec {
        rows: vec![3, 5000, 700, 1],
        row_bytes: 64,
        keys: 2,
        batch: 3,
        threads: 2,
        passes: 4,
    };
    let report = spec.run().unwrap();
    assert_eq!((report.pass_s.len(), report.threads), (4, 2));
    assert_eq!(report.read_bytes, 5704 * 64);
    assert_eq!(report.product_bytes, 2 * 5704 * 64);
    let none = ModelEngineSpec { row_bytes: 0, ..spec };
    assert!(matches!(none.run().unwrap_err(), Error::Pir(_)));
}
