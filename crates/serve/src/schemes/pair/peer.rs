//! The calls of `PrivateLookup`, as a client makes them.

use std::time::{Duration, Instant};

use bytes::Bytes;
use tonic::transport::Channel;

use crate::peer::endpoint::{INFO_BYTES_MAX, Peer, REPLY_OVERHEAD_BYTES};
use crate::wire::private_lookup_client::PrivateLookupClient;
use crate::wire::{AnswerBagsReply, AnswerBagsRequest, AnswerReply, AnswerRequest};
use crate::wire::{LayoutRequest, TableInfoRequest};
use crate::{Error, LayoutInfo, ReplyDefect, TableInfo};

impl Peer {
    /// Asks what the server holds.
    pub async fn table_info(&self, limit: Duration) -> Result<TableInfo, Error> {
        self.reconnecting(|| self.table_info_once(limit)).await
    }

    /// Sends keys; `answer_bytes` is what comes back if all is well.
    pub async fn answer(
        &self,
        version: Bytes,
        keys: Vec<Bytes>,
        answer_bytes: usize,
        limit: Duration,
    ) -> Result<AnswerReply, Error> {
        let request = AnswerRequest { table_version: version, keys };
        self.reconnecting(|| self.answer_once(request.clone(), answer_bytes, limit)).await
    }

    /// Sends an inference's keys; `answer_bytes` is what comes back if all is well.
    pub async fn answer_bags(
        &self,
        version: Bytes,
        keys: Bytes,
        answer_bytes: usize,
        limit: Duration,
    ) -> Result<AnswerBagsReply, Error> {
        let request = AnswerBagsRequest { layout_version: version, keys };
        self.reconnecting(|| async {
            let mut client = self.client(answer_bytes + REPLY_OVERHEAD_BYTES);
            Ok(self.within(limit, client.answer_bags(request.clone())).await?.into_inner())
        })
        .await
    }

    /// Fetches the bytes of the announced layout; `limit` is how long the next of them may take.
    /// Memory is bounded by what has come and what was announced.
    pub async fn layout(&self, info: LayoutInfo, limit: Duration) -> Result<Vec<u8>, Error> {
        let slowest = Duration::from_secs(info.bytes / LAYOUT_BYTES_PER_S_MIN);
        let deadline = Instant::now() + limit + slowest;
        let mut client = self.client(LAYOUT_MESSAGE_BYTES_MAX);
        let chunks = self.within(limit, client.layout(LayoutRequest::default())).await?;
        let mut chunks = chunks.into_inner();
        let mut bytes = Vec::new();
        while bytes.len() as u64 <= info.bytes {
            let limit = limit.min(deadline.saturating_duration_since(Instant::now()));
            let Some(chunk) = self.within(limit, chunks.message()).await? else { break };
            bytes.extend_from_slice(&chunk.bytes);
        }
        let (expected, found) = (info.bytes, bytes.len() as u64);
        match found == expected {
            true => Ok(bytes),
            false => Err(self.reply_error(ReplyDefect::LayoutBytes { expected, found })),
        }
    }

    fn client(&self, reply_bytes_max: usize) -> PrivateLookupClient<Channel> {
        PrivateLookupClient::new(self.channel.clone()).max_decoding_message_size(reply_bytes_max)
    }

    async fn table_info_once(&self, limit: Duration) -> Result<TableInfo, Error> {
        let mut client = self.client(INFO_BYTES_MAX);
        let reply = self.within(limit, client.table_info(TableInfoRequest::default())).await?;
        TableInfo::try_from(reply.into_inner()).map_err(|defect| self.reply_error(defect))
    }

    async fn answer_once(
        &self,
        request: AnswerRequest,
        answer_bytes: usize,
        limit: Duration,
    ) -> Result<AnswerReply, Error> {
        let mut client = self.client(answer_bytes + REPLY_OVERHEAD_BYTES);
        Ok(self.within(limit, client.answer(request)).await?.into_inner())
    }
}

/// A chunk of a layout is at most 1 MiB.
const LAYOUT_MESSAGE_BYTES_MAX: usize = (1 << 20) + 64;
/// A server that sends a layout slower than this is given up.
const LAYOUT_BYTES_PER_S_MIN: u64 = 64 << 10;
