//! What a pass asks of one shard, by `onion_shard.proto`.

use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_pir::onion::{EvaluationKeys, Geometry, KeyId, Partial};
use hushtable_table::Version;
use prost::Message;

use super::super::peer::Chunks;
use crate::keys::refusal::KeysRefusal;
use crate::peer::endpoint::REPLY_OVERHEAD_BYTES;
use crate::peer::lane::Body;
use crate::shards::{Replica, ShardQuestion, Unheld, Won};
use crate::wire::{OnionPassReply, OnionPassRequest, PutKeysReply};

/// What a pass asks of every shard.
pub(super) struct PassQueries {
    /// Each client's queries, as every shard's request has them: written once for all.
    pub clients: Bytes,
    pub queries: usize,
    /// Of all clients, some more than once.
    pub keys: Vec<Arc<EvaluationKeys>>,
    pub geometry: Geometry,
    pub version: Version,
}

/// What it asks of one.
pub(super) struct ShardAsk {
    pub pass: Arc<PassQueries>,
    /// Those that the shard has.
    pub columns: Range<u64>,
}

impl ShardAsk {
    /// Sends the queries; and a client's keys, where the server lacks them. How long the last call took.
    async fn send(
        &self,
        replica: &Replica,
        request: Body,
        limit: Duration,
    ) -> Result<(OnionPassReply, Duration), Unheld> {
        let lane = replica.lane();
        let part_bytes = self.pass.geometry.partial_bytes(&self.columns);
        let bytes_max = self.pass.queries * part_bytes + REPLY_OVERHEAD_BYTES;
        // For all of it: a server that asks for keys again and again is as late as one that says nothing.
        let deadline = Instant::now() + limit;
        let left = || deadline.saturating_duration_since(Instant::now());
        let mut missing: Option<KeyId> = None;
        // Each client's keys once, and once more for those that gave way to others meanwhile.
        for _ in 0..=2 * self.pass.keys.len() {
            if let Some(key_id) = missing.take() {
                let known = self.pass.keys.iter().find(|keys| keys.id() == key_id);
                let Some(keys) = known else {
                    let url = replica.url();
                    let text = format!("{url}: it asks for keys that no query is answered with");
                    return Err(Unheld::Failed(text));
                };
                let chunks = Chunks::new(keys.to_bytes().into());
                let chunks = chunks.fold(Body::default(), |body, chunk| body.and(&chunk));
                let put = lane.call(PUT_KEYS_PATH, chunks, REPLY_OVERHEAD_BYTES, left()).await;
                let _: PutKeysReply = put.map_err(|error| Unheld::of(replica.url(), error))?;
            }
            let started = Instant::now();
            match lane.call(ANSWER_PASS_PATH, request.clone(), bytes_max, left()).await {
                Ok(reply) => return Ok((reply, started.elapsed())),
                Err(error) => match error.refused() {
                    Some(&KeysRefusal::UnknownKeys { key_id }) => missing = Some(key_id),
                    _ => return Err(Unheld::of(replica.url(), error)),
                },
            }
        }
        let url = replica.url();
        let text = format!(
            "{url}: it does not keep the keys of one pass: raise its --keys-memory-bytes-max"
        );
        Err(Unheld::Failed(text))
    }
}

impl ShardQuestion for ShardAsk {
    type Answers = Partial;

    fn key_bytes(&self) -> usize {
        self.pass.clients.len()
    }

    async fn ask(
        &self,
        replica: &Replica,
        map: Version,
        limit: Duration,
    ) -> Result<Won<Partial>, Unheld> {
        let shard = replica.shard() as u32;
        let map_version = Bytes::copy_from_slice(map.as_bytes());
        let head =
            OnionPassRequest { map_version: map_version.clone(), shard, ..Default::default() };
        let parts = [head.encode_to_vec().into(), self.pass.clients.clone()];
        let request = Body::default().with(parts);
        let (reply, call) = self.send(replica, request, limit).await?;
        let skew = |what: String| Unheld::Skew(format!("{}: {what}", replica.url()));
        if reply.map_version != map_version || reply.shard != shard {
            return Err(skew("it answered by another map, or as another shard".into()));
        }
        let pass = &self.pass;
        let part = Partial::parse(&pass.geometry, pass.queries, &reply.parts);
        let part = part.map_err(|error| skew(error.to_string()))?;
        if part.columns() != self.columns || part.version() != pass.version {
            let found = part.columns();
            let expected = &self.columns;
            return Err(skew(format!(
                "it answered for columns {found:?} of version {}, not for {expected:?} of {}",
                part.version(),
                pass.version
            )));
        }
        let took = Duration::from_micros(reply.queue_us.saturating_add(reply.answer_us));
        Ok(Won { answers: part, took, call })
    }
}

/// What a shard says by what it holds.
pub(in super::super) const HOLDS_PATH: &str = "/hushtable.v1.OnionShard/Holds";
const ANSWER_PASS_PATH: &str = "/hushtable.v1.OnionShard/AnswerPass";
const PUT_KEYS_PATH: &str = "/hushtable.v1.OnionShard/PutKeys";
