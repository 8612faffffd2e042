//! A model on shards of the server that is asked alone, behind a front: one upload of keys and one message answer a
//! whole inference, as they do at a server that holds all tables.

use crate::common;
use crate::onion_model_common;

use bytes::Bytes;
use common::{Running, network, row, table};
use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Geometry, ParameterSet, Pending};
use hushtable_serve::wire::onion_lookup_client::OnionLookupClient;
use hushtable_serve::wire::{
    KeysChunk, OnionAnswerModelReply, OnionAnswerModelRequest, OnionCatalogRequest,
};
use hushtable_serve::{OnionServer, OnionServerSpec};
use hushtable_table::Table;
use onion_model_common::Clicks;
use tonic::codegen::tokio_stream;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt;

const SHARDS: u32 = 2;

/// A table that lies on the first shard alone, and one with columns on both; three features.
struct World {
    clicks: Clicks,
    clients: Vec<Client>,
}

fn geometry(table: &Table) -> Geometry {
    let shape = TableShape::new(table.rows(), table.row_bytes()).unwrap();
    Geometry::new(ParameterSet::N4096128, shape).unwrap()
}

impl World {
    fn new() -> Self {
        let clicks = Clicks::new([table(300, 4, 1), table(4096, 256, 2)]);
        let tables = &clicks.tables;
        // All have the keys of the one with the most levels.
        let deepest = tables.iter().max_by_key(|table| geometry(table).levels()).unwrap();
        let first = Client::new(geometry(deepest), deepest.version()).unwrap();
        let client = |it: &Table| first.of_table(geometry(it), it.version()).unwrap();
        let clients = tables.iter().map(client).collect();
        Self { clicks, clients }
    }

    fn start(&self, change: impl Fn(OnionServerSpec) -> OnionServerSpec) -> Running {
        let network = network();
        let spec =
            OnionServerSpec { network, threads: 1, ..OnionServerSpec::new(&self.clicks.path) };
        Running::start(OnionServer::open(change(spec)).unwrap())
    }

    fn shard(&self, number: u32) -> Running {
        let (shard, shards) = (Some(number as usize), Some(SHARDS as usize));
        self.start(|spec| OnionServerSpec { shard, shards, ..spec })
    }

    fn front(&self, shards: &[Running]) -> Running {
        let file = self.clicks.path.with_file_name("shards.toml");
        let servers = shards.iter().map(|it| format!("[[shard]]\nreplicas = [\"{}\"]\n", it.url()));
        std::fs::write(&file, servers.collect::<String>()).unwrap();
        self.start(|spec| OnionServerSpec { shards_file: Some(file.clone()), ..spec })
    }

    fn ask(&self, ids: [&[u64]; 3]) -> (Vec<Bytes>, Vec<Pending>) {
        self.clicks.ask(&self.clients, ids)
    }

    async fn answer(
        &self,
        server: &Running,
        key_id: &Bytes,
        parts: Vec<Bytes>,
    ) -> Result<OnionAnswerModelReply, Status> {
        let model_version = Bytes::copy_from_slice(self.clicks.manifest.version().as_bytes());
        let request = OnionAnswerModelRequest { model_version, key_id: key_id.clone(), parts };
        Ok(raw(server).await.answer_model(request).await?.into_inner())
    }

    /// Looks ids up at a server, and holds every row against the tables.
    async fn check(&self, server: &Running, key_id: &Bytes, ids: [&[u64]; 3]) {
        let (parts, pending) = self.ask(ids);
        let reply = self.answer(server, key_id, parts).await.unwrap();
        assert_eq!(reply.model_version, self.clicks.manifest.version().as_bytes().as_slice());
        let mut responses = reply.responses;
        for ((feature, pending), ids) in
            self.clicks.manifest.features().iter().zip(&pending).zip(ids)
        {
            let (table, client) =
                (&self.clicks.tables[feature.table], &self.clients[feature.table]);
            let own = responses.split_to(feature.max_ids * client.geometry().response_bytes());
            let rows = client.decode(pending, table.version(), &own).unwrap();
            let expected: Vec<u8> = ids.iter().flat_map(|&id| row(table, id)).collect();
            assert_eq!(rows, expected, "{} {ids:?}", feature.name);
        }
        assert!(responses.is_empty());
    }
}

async fn raw(server: &Running) -> OnionLookupClient<Channel> {
    let endpoint = Endpoint::from_shared(server.url()).unwrap();
    OnionLookupClient::new(endpoint.connect().await.unwrap())
        .max_decoding_message_size(64 << 20)
        .max_encoding_message_size(64 << 20)
}

async fn put_keys(server: &Running, keys: &[u8]) -> Bytes {
    let chunk = |bytes| KeysChunk { bytes: Bytes::copy_from_slice(bytes) };
    let chunks: Vec<_> = keys.chunks(1 << 20).map(chunk).collect();
    let reply = raw(server).await.put_keys(tokio_stream::iter(chunks)).await.unwrap();
    reply.into_inner().key_id
}

fn reason(status: &Status) -> (Code, String) {
    let details = status.get_error_details();
    (status.code(), details.error_info().map_or_else(String::new, |info| info.reason.clone()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whole_inferences_through_a_front_are_those_of_one_server() {
    let world = World::new();
    // What it is about: a table with columns on both shards, and one with none on the last.
    let columns = |table: &Table, shard| geometry(table).shard_columns((shard, SHARDS)).unwrap();
    assert!((0..SHARDS).all(|shard| !columns(&world.clicks.tables[1], shard).is_empty()));
    assert!((0..SHARDS).any(|shard| columns(&world.clicks.tables[0], shard).is_empty()));
    let mut shards: Vec<_> = (0..SHARDS).map(|number| world.shard(number)).collect();
    let front = world.front(&shards);
    let whole = world.start(|spec| spec);

    let catalog = async |server: &Running| {
        let reply = raw(server).await.catalog(OnionCatalogRequest {}).await.unwrap().into_inner();
        let tables = reply.tables.into_iter().map(|it| (it.name, it.version, it.rows));
        (tables.collect::<Vec<_>>(), reply.models[0].manifest.clone())
    };
    assert_eq!(catalog(&front).await, catalog(&whole).await);
    let keys = world.clients[0].keys();
    let key_id = put_keys(&front, keys).await;
    assert_eq!(put_keys(&whole, keys).await, key_id);
    let cases: [[&[u64]; 3]; 3] =
        [[&[299], &[4095, 7], &[5]], [&[0], &[0, 2048], &[298, 150]], [&[], &[2047], &[]]];
    for ids in cases {
        for server in [&front, &whole] {
            world.check(server, &key_id, ids).await;
        }
    }
    // Every shard was asked, and has the client's keys from the front.
    for shard in &shards {
        let uploaded = shard.metric("hushtable_client_keys_uploaded_total").await;
        assert!(uploaded >= 1.0, "{uploaded}");
    }

    // What is wrong is said as one server says it.
    let (parts, _) = world.ask([&[1], &[2], &[3]]);
    for server in [&front, &whole] {
        let status = world.answer(server, &key_id, parts[..2].to_vec()).await.unwrap_err();
        assert_eq!(reason(&status), (Code::InvalidArgument, "BAD_QUERY".into()));
        let unknown = Bytes::from(vec![9; 32]);
        let status = world.answer(server, &unknown, parts.clone()).await.unwrap_err();
        assert_eq!(reason(&status), (Code::NotFound, "UNKNOWN_KEYS".into()));
    }
    // Without a shard there is no inference at all, and a time to ask again.
    shards.pop().unwrap().stop().unwrap();
    let status = world.answer(&front, &key_id, parts).await.unwrap_err();
    assert_eq!(reason(&status), (Code::Unavailable, "SHARD_ABSENT".into()));
    assert!(status.get_error_details().retry_info().is_some(), "{status:?}");
}
