//! What a pass asks of one shard, by `shard.proto`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_table::Version;
use prost::Message;

use crate::peer::endpoint::REPLY_OVERHEAD_BYTES;
use crate::peer::lane::Body;
use crate::schemes::pair::PairRefusal;
use crate::shards::{NoShard, Replica, ShardQuestion, Unheld, Won};
use crate::trace;
use crate::wire::{AnswerPassReply, AnswerPassRequest, TableKeys};

/// One table's keys as every shard's request has them: written once for all.
#[derive(Clone)]
pub(super) struct SharedKeys(Bytes);

impl SharedKeys {
    pub fn new(keys: TableKeys) -> Self {
        // A message's fields may come in parts: this is the part of one table.
        let (tables, traceparent) = (vec![keys], trace::traceparent());
        let part = AnswerPassRequest { tables, traceparent, ..AnswerPassRequest::default() };
        Self(part.encode_to_vec().into())
    }
}

/// What a pass asks of one shard.
pub(super) struct ShardAsk {
    pub tables: Vec<SharedKeys>,
    /// Bytes that come back for each of them.
    pub expected: Vec<usize>,
}

impl ShardQuestion for ShardAsk {
    /// For each table that it was asked for.
    type Answers = Vec<Bytes>;

    fn key_bytes(&self) -> usize {
        self.tables.iter().map(|keys| keys.0.len()).sum()
    }

    async fn ask(
        &self,
        replica: &Replica,
        map: Version,
        limit: Duration,
    ) -> Result<Won<Vec<Bytes>>, Unheld> {
        let shard = replica.shard() as u32;
        let map_version = Bytes::copy_from_slice(map.as_bytes());
        let head =
            AnswerPassRequest { map_version: map_version.clone(), shard, ..Default::default() };
        let keys = self.tables.iter().map(|keys| keys.0.clone());
        let body = Body::default().with(std::iter::once(head.encode_to_vec().into()).chain(keys));
        let bytes_max =
            self.expected.iter().map(|bytes| bytes + 16).sum::<usize>() + REPLY_OVERHEAD_BYTES;
        let started = Instant::now();
        let reply = replica.lane().call(ANSWER_PASS_PATH, body, bytes_max, limit).await;
        let reply: AnswerPassReply = match reply {
            Ok(reply) => reply,
            Err(error) => {
                return Err(match error.refused() {
                    Some(refusal @ PairRefusal::WrongSide { .. }) => {
                        Unheld::Skew(format!("{}: {refusal}", replica.url()))
                    }
                    _ => Unheld::of(replica.url(), error),
                });
            }
        };
        if reply.map_version != map_version || reply.shard != shard {
            let url = replica.url();
            let text = format!("{url}: it answered by another map, or as another shard");
            return Err(Unheld::Skew(text));
        }
        let found: Vec<usize> = reply.answers.iter().map(Bytes::len).collect();
        if found != self.expected {
            let (url, expected) = (replica.url(), &self.expected);
            return Err(Unheld::Skew(format!(
                "{url}: answers of {found:?} bytes, not {expected:?}"
            )));
        }
        let took = Duration::from_micros(reply.queue_us.saturating_add(reply.answer_us));
        Ok(Won { answers: reply.answers, took, call: started.elapsed() })
    }
}

impl From<NoShard> for hushtable_pir::Error {
    fn from(NoShard { shard, reason, retry_after }: NoShard) -> Self {
        Self::Absent { shard, reason, retry_after }
    }
}

/// What a shard says by what it holds.
pub(in super::super) const HOLDS_PATH: &str = "/hushtable.v1.PrivateShard/Holds";
const ANSWER_PASS_PATH: &str = "/hushtable.v1.PrivateShard/AnswerPass";
