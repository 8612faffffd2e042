//! The calls of `OnionLookup`.

use std::time::Duration;

use bytes::Bytes;
use hushtable_client::CallFault;
use hushtable_pir::client::{Call, Failure, Reply, Retrieval};
use hushtable_pir::onion::KeyId;
use tonic::codegen::tokio_stream;
use tonic::transport::Channel;

use super::CHUNK_BYTES_MAX;
use super::OnionRefusal;
use crate::error::QUERIES_SETTING;
use crate::keys::refusal::KeysRefusal;
use crate::peer::drive::{Outgoing, Servers, Wire, outgoing, unforeseen};
use crate::peer::endpoint::{INFO_BYTES_MAX, Peer, REPLY_OVERHEAD_BYTES};
use crate::schemes::retrieval;
use crate::wire::onion_lookup_client::OnionLookupClient;
use crate::wire::{
    KeysChunk, OnionAnswerReply, OnionAnswerRequest, OnionInfoRequest, PutKeysReply,
};
use crate::{Error, Refusal, ReplyDefect};

impl Peer {
    fn onion(&self, reply_bytes_max: usize) -> OnionLookupClient<Channel> {
        OnionLookupClient::new(self.channel.clone()).max_decoding_message_size(reply_bytes_max)
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

/// `OnionLookup` as the wire of private retrieval.
pub(super) enum OnionWire {}

impl Wire for OnionWire {
    type Protocol = Retrieval;

    fn send(peer: &Peer, call: Call) -> Outgoing<Reply> {
        send(peer, call)
    }

    fn fault(refusal: &Refusal) -> CallFault {
        match refusal.of() {
            Some(KeysRefusal::UnknownKeys { .. }) => return CallFault::UnknownKeys,
            Some(KeysRefusal::BadKeys { .. }) => return CallFault::Changed { found: None },
            _ => {}
        }
        match refusal.of() {
            Some(OnionRefusal::BadQuery { .. }) => CallFault::Changed { found: None },
            _ => retrieval::fault(refusal),
        }
    }

    fn error(failure: Failure, servers: &Servers) -> Error {
        retrieval::error(failure, servers, QUERIES_SETTING)
    }
}

/// Makes a machine's call to a server that is asked alone.
fn send(peer: &Peer, call: Call) -> Outgoing<Reply> {
    let peer = peer.clone();
    match call {
        Call::OnionInfo { version } => outgoing(async move {
            let table_version = version.map(|version| Bytes::copy_from_slice(version.as_bytes()));
            let request = OnionInfoRequest { table_version: table_version.unwrap_or_default() };
            let mut client = peer.onion(INFO_BYTES_MAX);
            let reply = peer.call(client.info(request)).await?.into_inner();
            let announced = reply.try_into().map_err(|defect| peer.reply_error(defect))?;
            Ok(Reply::OnionInfo(Box::new(announced)))
        }),
        Call::PutKeys { keys } => outgoing(async move {
            let mut client = peer.onion(REPLY_OVERHEAD_BYTES);
            let chunks = tokio_stream::iter(Chunks(keys));
            let reply = peer.call(client.put_keys(chunks)).await?.into_inner();
            let key_id = <[u8; 32]>::try_from(&reply.key_id[..])
                .map_err(|_| peer.reply_error(ReplyDefect::KeyId))?;
            Ok(Reply::KeysKept(KeyId::from(key_id)))
        }),
        Call::OnionAnswer { version, key_id, queries, response_bytes } => outgoing(async move {
            let request = OnionAnswerRequest {
                table_version: Bytes::copy_from_slice(version.as_bytes()),
                key_id: Bytes::copy_from_slice(key_id.as_bytes()),
                queries,
            };
            let mut client = peer.onion(response_bytes + REPLY_OVERHEAD_BYTES);
            let reply = peer.call(client.answer(request)).await?.into_inner();
            let OnionAnswerReply { table_version, responses, queue_us, answer_us, state } = reply;
            peer.answers(&table_version, responses, [queue_us, answer_us, state])
        }),
        _ => unforeseen(&peer),
    }
}

/// An upload's messages.
pub(super) struct Chunks(Bytes);

impl Chunks {
    pub fn new(keys: Bytes) -> Self {
        Self(keys)
    }
}

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
