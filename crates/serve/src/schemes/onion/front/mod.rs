//! A front: what clients ask as they would any server, where the tables' columns lie on shards.
//!
//! The scheduler makes passes here; each goes to a server of every shard as it came ([`ask`]), and the last games
//! between what comes back are played here ([`Remote`]). No shard's choice depends on a query: every pass goes
//! to every shard that has some of its table.

mod ask;

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use hushtable_pir::Threads;
use hushtable_pir::onion::{Asked, Engine, Error, Geometry, OnionBackend, OnionSpec};
use hushtable_table::Version;
use prost::Message;

pub(super) use self::ask::HOLDS_PATH;
use self::ask::{PassQueries, ShardAsk};
use super::role::map_of;
use crate::shards::{Fleet, InUse, NoShard};
use crate::wire::{KeyedQueries, OnionPassRequest};

/// A table whose columns lie on shards.
pub(super) struct Remote {
    fleet: Arc<Fleet>,
    in_use: Arc<InUse>,
    /// Without rows: it expands queries and plays the last games.
    engine: Engine,
    /// Of each shard.
    columns: Vec<Range<u64>>,
}

impl Remote {
    pub fn new(
        fleet: &Arc<Fleet>,
        geometry: &Geometry,
        version: Version,
        threads: &Threads,
        batch_queries_max: Option<usize>,
    ) -> Result<Self, Error> {
        let spec = OnionSpec {
            shared: Some(threads.clone()),
            batch_queries_max: batch_queries_max.unwrap_or(0),
            ..OnionSpec::new()
        };
        let count = fleet.shards() as u32;
        let columns = (0..count).map(|index| geometry.shard_columns((index, count)));
        Ok(Self {
            in_use: fleet.use_map(map_of(version, geometry, count)),
            fleet: Arc::clone(fleet),
            engine: Engine::without_rows(geometry.clone(), version, &spec)?,
            columns: columns.collect::<Result<_, _>>()?,
        })
    }

    /// One message's queries.
    fn answer_some(&self, queries: &[Asked], responses: &mut [u8]) -> Result<(), Error> {
        let geometry = self.geometry();
        let clients = queries.chunk_by(|a, b| a.keys().id() == b.keys().id()).map(|of_client| {
            let mut bytes = Vec::with_capacity(of_client.len() * geometry.query_bytes());
            of_client.iter().for_each(|asked| bytes.extend(asked.query().to_bytes(geometry)));
            let key_id = Bytes::copy_from_slice(of_client[0].keys().id().as_bytes());
            KeyedQueries { key_id, queries: bytes.into() }
        });
        // A message's fields may come in parts: this is the part of the clients.
        let clients = OnionPassRequest { clients: clients.collect(), ..Default::default() };
        let pass = Arc::new(PassQueries {
            clients: clients.encode_to_vec().into(),
            queries: queries.len(),
            keys: queries.iter().map(|asked| Arc::clone(asked.keys())).collect(),
            geometry: geometry.clone(),
            version: self.version(),
        });
        let shards = self.columns.iter().enumerate().filter(|(_, columns)| !columns.is_empty());
        let asks = shards.map(|(shard, columns)| {
            (shard, ShardAsk { pass: Arc::clone(&pass), columns: columns.clone() })
        });
        let passing = self.fleet.begin(&self.in_use, asks.collect())?;
        // Meanwhile: the games that are left need the queries' selectors here too.
        let expansions = self.engine.expansions(queries);
        let mut parts = Vec::with_capacity(self.columns.len());
        passing.finish(|_, part| parts.push(part))?;
        self.engine.combine(&expansions, parts, responses)
    }
}

impl OnionBackend for Remote {
    fn geometry(&self) -> &Geometry {
        self.engine.geometry()
    }

    fn version(&self) -> Version {
        self.engine.version()
    }

    fn answer(&self, queries: &[Asked], responses: &mut [u8]) -> Result<(), Error> {
        let one = self.geometry().response_bytes();
        let (expected, found) = (queries.len() * one, responses.len());
        if expected != found {
            return Err(Error::ResponseBytes { expected, found });
        }
        let query_bytes = self.geometry().query_bytes() + CLIENT_BYTES;
        let room = self.fleet.request_bytes_max().saturating_sub(MESSAGE_BYTES);
        let most = (room / query_bytes).max(1);
        for (queries, responses) in queries.chunks(most).zip(responses.chunks_mut(most * one)) {
            self.answer_some(queries, responses)?;
        }
        Ok(())
    }

    fn batch_queries_best(&self) -> usize {
        self.engine.batch_queries_best()
    }

    fn description(&self) -> String {
        format!("a front of {} shards", self.columns.len())
    }
}

impl From<NoShard> for Error {
    fn from(NoShard { shard, reason, retry_after }: NoShard) -> Self {
        Self::Absent { shard, reason, retry_after }
    }
}

/// What a message has around its queries, and each client's queries around them.
const MESSAGE_BYTES: usize = 4096;
const CLIENT_BYTES: usize = 64;
