//! The calls of `OnionLookup`.

use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::onion::ParameterSet;
use tonic::codegen::tokio_stream;
use tonic::transport::Channel;

use super::{CHUNK_BYTES_MAX, OnionInfo};
use crate::Error;
use crate::peer::endpoint::{INFO_BYTES_MAX, Peer, REPLY_OVERHEAD_BYTES};
use crate::wire::onion_lookup_client::OnionLookupClient;
use crate::wire::{
    KeysChunk, OnionAnswerReply, OnionAnswerRequest, OnionInfoRequest, PutKeysReply,
};

impl Peer {
    fn onion(&self, reply_bytes_max: usize) -> OnionLookupClient<Channel> {
        OnionLookupClient::new(self.channel.clone()).max_decoding_message_size(reply_bytes_max)
    }

    /// Asks what the server holds, and checks it against the `accepted` sets.
    pub async fn onion_info(
        &self,
        accepted: &[ParameterSet],
        limit: Duration,
    ) -> Result<OnionInfo, Error> {
        self.reconnecting(|| async {
            let mut client = self.onion(INFO_BYTES_MAX);
            let reply = self.within(limit, client.info(OnionInfoRequest::default())).await?;
            OnionInfo::check(reply.into_inner(), accepted)
                .map_err(|defect| self.reply_error(defect))
        })
        .await
    }

    /// Uploads a client's keys.
    pub async fn put_keys(&self, keys: Bytes, limit: Duration) -> Result<PutKeysReply, Error> {
        self.reconnecting(|| async {
            let mut client = self.onion(REPLY_OVERHEAD_BYTES);
            let chunks = tokio_stream::iter(Chunks(keys.clone()));
            Ok(self.within(limit, client.put_keys(chunks)).await?.into_inner())
        })
        .await
    }

    /// Sends queries; `response_bytes` is what comes back for all of them if all is well.
    pub async fn onion_answer(
        &self,
        request: OnionAnswerRequest,
        response_bytes: usize,
        limit: Duration,
    ) -> Result<OnionAnswerReply, Error> {
        self.reconnecting(|| async {
            let mut client = self.onion(response_bytes + REPLY_OVERHEAD_BYTES);
            Ok(self.within(limit, client.answer(request.clone())).await?.into_inner())
        })
        .await
    }
}

/// An upload's messages.
struct Chunks(Bytes);

impl Iterator for Chunks {
    type Item = KeysChunk;

    fn next(&mut self) -> Option<KeysChunk> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = self.0.split_to(CHUNK_BYTES_MAX.min(self.0.len()));
        Some(KeysChunk { bytes })
    }
}
