//! What a pass asks of one shard, by `shard.proto`.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_table::Version;
use tonic::Status;
use tonic::transport::Channel;

use crate::peer::endpoint::REPLY_OVERHEAD_BYTES;
use crate::shards::{Ask, NoShard, Replica, Unheld, Won};
use crate::wire::private_shard_client::PrivateShardClient;
use crate::wire::{AnswerPassRequest, HoldsReply, HoldsRequest, TableKeys};
use crate::{Error, Refusal};

/// What a pass asks of one shard.
pub(super) struct ShardAsk {
    pub tables: Vec<TableKeys>,
    /// Bytes that come back for each of them.
    pub expected: Vec<usize>,
}

impl Ask for ShardAsk {
    /// For each table that it was asked for.
    type Answers = Vec<Bytes>;

    fn key_bytes(&self) -> usize {
        let of = |keys: &TableKeys| {
            keys.runs.iter().map(|run| run.keys.len()).sum::<usize>() + keys.bags.len()
        };
        self.tables.iter().map(of).sum()
    }

    async fn ask(
        &self,
        replica: &Replica,
        map: Version,
        limit: Duration,
    ) -> Result<Won<Vec<Bytes>>, Unheld> {
        let (peer, shard) = (replica.peer(), replica.shard() as u32);
        let map_version = Bytes::copy_from_slice(map.as_bytes());
        let request = AnswerPassRequest {
            map_version: map_version.clone(),
            shard,
            tables: self.tables.clone(),
        };
        let bytes_max =
            self.expected.iter().map(|bytes| bytes + 16).sum::<usize>() + REPLY_OVERHEAD_BYTES;
        let mut client =
            PrivateShardClient::new(peer.channel.clone()).max_decoding_message_size(bytes_max);
        let started = Instant::now();
        let reply = match peer.within(limit, client.answer_pass(request)).await {
            Ok(reply) => reply.into_inner(),
            Err(Error::Refused { refusal: refusal @ Refusal::WrongSide { .. }, .. }) => {
                return Err(Unheld::Skew(format!("{}: {refusal}", replica.url())));
            }
            Err(error) => return Err(Unheld::of(replica.url(), error)),
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

/// Asks a shard what it holds.
pub(in super::super) fn ask_holds(
    channel: Channel,
    request: HoldsRequest,
    bytes_max: usize,
) -> std::pin::Pin<Box<dyn Future<Output = Result<HoldsReply, Status>> + Send>> {
    Box::pin(async move {
        let mut client = PrivateShardClient::new(channel).max_decoding_message_size(bytes_max);
        Ok(client.holds(request).await?.into_inner())
    })
}

impl From<NoShard> for hushtable_pir::Error {
    fn from(NoShard { shard, reason, retry_after }: NoShard) -> Self {
        Self::Absent { shard, reason, retry_after }
    }
}
