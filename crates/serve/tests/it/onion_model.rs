//! A single server of several tables and a model, by the bare wire contract: one upload of keys
//! serves all.

use crate::common::{Running, metric_of, network, row, table};
use crate::onion_model_common::Clicks;
use bytes::Bytes;
use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Geometry, ParameterSet};
use hushtable_serve::wire::onion_lookup_client::OnionLookupClient;
use hushtable_serve::wire::{
    KeysChunk, OnionAnswerModelReply, OnionAnswerModelRequest, OnionAnswerRequest,
    OnionCatalogRequest, OnionInfoRequest,
};
use hushtable_serve::{Error, OnionServer, OnionServerSpec};
use hushtable_table::Table;
use hushtable_table::model::{ModelManifest, places};
use tonic::codegen::tokio_stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt;

fn spec() -> OnionServerSpec {
    OnionServerSpec { network: network(), threads: 2, ..OnionServerSpec::new("") }
}

async fn raw(server: &Running) -> OnionLookupClient<Channel> {
    let endpoint = Endpoint::from_shared(server.url()).unwrap();
    OnionLookupClient::new(endpoint.connect().await.unwrap())
        .max_decoding_message_size(64 << 20)
        .max_encoding_message_size(64 << 20)
}

fn geometry(table: &Table) -> Geometry {
    let shape = TableShape::new(table.rows(), table.row_bytes()).unwrap();
    Geometry::new(ParameterSet::N4096128, shape).unwrap()
}

/// Clients of the tables, all with the keys of the one with the most levels.
fn clients(tables: &[&Table]) -> Vec<Client> {
    let deepest = tables.iter().max_by_key(|table| geometry(table).levels()).unwrap();
    let first = Client::new(geometry(deepest), deepest.version()).unwrap();
    tables.iter().map(|it| first.of_table(geometry(it), it.version()).unwrap()).collect()
}

async fn put_keys(server: &Running, keys: &[u8]) -> Bytes {
    let chunks: Vec<_> = keys
        .chunks(1 << 20)
        .map(|bytes| KeysChunk { bytes: Bytes::copy_from_slice(bytes) })
        .collect();
    let reply = raw(server).await.put_keys(tokio_stream::iter(chunks)).await.unwrap();
    reply.into_inner().key_id
}

fn reason(status: &Status) -> (Code, String) {
    let details = status.get_error_details();
    (status.code(), details.error_info().map_or_else(String::new, |info| info.reason.clone()))
}

/// A small and a large table.
fn world() -> Clicks {
    Clicks::new([table(300, 4, 1), table(40_000, 16, 2)])
}

fn spec_of(world: &Clicks) -> OnionServerSpec {
    OnionServerSpec { table: world.path.clone(), ..spec() }
}

async fn answer(
    server: &Running,
    world: &Clicks,
    key_id: &Bytes,
    parts: Vec<Bytes>,
) -> Result<OnionAnswerModelReply, Status> {
    let model_version = Bytes::copy_from_slice(world.manifest.version().as_bytes());
    let request = OnionAnswerModelRequest { model_version, key_id: key_id.clone(), parts };
    Ok(raw(server).await.answer_model(request).await?.into_inner())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_upload_answers_every_table_and_whole_inferences() {
    let world = world();
    let tables: Vec<&Table> = world.tables.iter().collect();
    assert_ne!(geometry(tables[0]).levels(), geometry(tables[1]).levels(), "depths differ");
    let server = Running::start(OnionServer::open(spec_of(&world)).unwrap());
    // What queries are answered from lies in the model, where a restart finds it.
    for name in ["tags", "items"] {
        assert!(world.path.join(places::prepared(name)).exists(), "{name}");
    }
    let catalog = raw(&server).await.catalog(OnionCatalogRequest {}).await.unwrap().into_inner();
    let names: Vec<_> = catalog.tables.iter().map(|table| table.name.as_str()).collect();
    assert_eq!(names, ["tags", "items"]);
    let manifest = ModelManifest::from_json(&catalog.models[0].manifest).unwrap();
    assert_eq!(manifest, world.manifest);

    let clients = clients(&tables);
    let key_id = put_keys(&server, clients[0].keys()).await;
    let ids: [&[u64]; 3] = [&[299], &[39_999, 7], &[5]];
    let (parts, pending) = world.ask(&clients, ids);
    let reply = answer(&server, &world, &key_id, parts).await.unwrap();
    assert_eq!(reply.model_version, world.manifest.version().as_bytes().as_slice());
    let mut responses = reply.responses;
    for ((feature, pending), ids) in world.manifest.features().iter().zip(&pending).zip(ids) {
        let (table, client) = (tables[feature.table], &clients[feature.table]);
        let own = responses.split_to(feature.max_ids * client.geometry().response_bytes());
        let rows = client.decode(pending, table.version(), &own).unwrap();
        let expected: Vec<u8> = ids.iter().flat_map(|&id| row(table, id)).collect();
        assert_eq!(rows, expected, "{}", feature.name);
    }
    assert!(responses.is_empty());

    // Each table by itself, found by its version.
    for (table, client) in tables.iter().zip(&clients) {
        let table_version = Bytes::copy_from_slice(table.version().as_bytes());
        let request = OnionInfoRequest { table_version: table_version.clone() };
        let info = raw(&server).await.info(request).await.unwrap().into_inner();
        assert_eq!((info.rows, &info.versions), (table.rows(), &vec![table_version.clone()]));
        let (queries, pending) = client.query(&[3], 1).unwrap();
        let queries = queries.into_iter().map(Bytes::from).collect();
        let request = OnionAnswerRequest { table_version, key_id: key_id.clone(), queries };
        let reply = raw(&server).await.answer(request).await.unwrap().into_inner();
        let rows = client.decode(&pending, table.version(), &reply.responses).unwrap();
        assert_eq!(rows, row(table, 3));
    }
    let metrics = server.page("/metrics").await.1;
    let answered = |table: &str| {
        metric_of(&metrics, &format!("hushtable_answered_queries_total{{table=\"{table}\"}}"))
    };
    assert_eq!((answered("tags"), answered("items")), (4.0, 3.0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_single_server_does_not_hold_is_said() {
    let world = world();
    let server = Running::start(OnionServer::open(spec_of(&world)).unwrap());
    let tables: Vec<&Table> = world.tables.iter().collect();
    let clients = clients(&tables);
    let unknown = Bytes::from(vec![9; 32]);
    for table_version in [Bytes::new(), unknown.clone()] {
        let request = OnionInfoRequest { table_version };
        let status = raw(&server).await.info(request).await.unwrap_err();
        assert_eq!(reason(&status), (Code::NotFound, "UNKNOWN_TABLE".into()));
    }
    let request = OnionAnswerRequest {
        table_version: unknown.clone(),
        key_id: unknown.clone(),
        queries: vec![Bytes::new()],
    };
    let status = raw(&server).await.answer(request).await.unwrap_err();
    assert_eq!(reason(&status), (Code::NotFound, "UNKNOWN_TABLE".into()));
    let request = OnionAnswerModelRequest {
        model_version: unknown.clone(),
        key_id: unknown.clone(),
        parts: Vec::new(),
    };
    let status = raw(&server).await.answer_model(request).await.unwrap_err();
    assert_eq!(reason(&status), (Code::NotFound, "UNKNOWN_MODEL".into()));

    let (parts, _) = world.ask(&clients, [&[1], &[2], &[3]]);
    let status = answer(&server, &world, &unknown, parts.clone()).await.unwrap_err();
    assert_eq!(reason(&status), (Code::NotFound, "UNKNOWN_KEYS".into()));
    // The small table's own keys are held too, but are too few for the large one.
    let small = Client::new(geometry(tables[0]), tables[0].version()).unwrap();
    let (own, deepest) = (geometry(tables[0]).levels(), geometry(tables[1]).levels());
    let key_id = put_keys(&server, small.keys()).await;
    let status = answer(&server, &world, &key_id, parts.clone()).await.unwrap_err();
    if own < deepest {
        assert_eq!(reason(&status), (Code::InvalidArgument, "BAD_QUERY".into()));
        assert!(status.message().contains("\"item\""), "{}", status.message());
    }
    let key_id = put_keys(&server, clients[0].keys()).await;
    for (wrong, names) in [
        (Vec::new(), "3 features"),
        (parts[..2].to_vec(), "3 features"),
        (vec![parts[0].clone(), parts[1].slice(1..), parts[2].clone()], "\"item\""),
        (vec![Bytes::new(), parts[1].clone(), parts[2].clone()], "\"tag\""),
        (vec![parts[0].clone(), parts[1].clone(), vec![255; parts[2].len()].into()], "\"other\""),
    ] {
        let status = answer(&server, &world, &key_id, wrong).await.unwrap_err();
        assert_eq!(reason(&status), (Code::InvalidArgument, "BAD_QUERY".into()));
        assert!(status.message().contains(names), "{}", status.message());
    }
    answer(&server, &world, &key_id, parts).await.unwrap();
    // A server of one table holds no model, and says which table it has.
    let one = Running::start(OnionServer::of_table(spec(), table(300, 4, 1)).unwrap());
    let request = OnionInfoRequest { table_version: unknown };
    let status = raw(&one).await.info(request).await.unwrap_err();
    assert_eq!(reason(&status), (Code::FailedPrecondition, "VERSION_SKEW".into()));

    let budget = OnionServerSpec { tables_bytes_max: Some(1 << 20), ..spec_of(&world) };
    let error = OnionServer::open(budget).err().unwrap();
    assert!(matches!(&error, Error::TablesBudget { .. }), "{error}");
    assert!(error.to_string().contains("--tables-bytes-max"), "{error}");
}
