//! The calls of `PrivateLookup`, as a client makes them.

use std::time::Duration;

use bytes::Bytes;
use hushtable_client::CallFault;
use hushtable_pir::client::{AnnouncedCatalog, AnnouncedModel, Call, Failure, Reply, Retrieval};
use hushtable_table::Version;
use tonic::Streaming;
use tonic::transport::Channel;

use super::PairRefusal;
use crate::error::KEYS_SETTING;
use crate::peer::drive::{Arrived, Outgoing, Servers, Wire, outgoing, unforeseen};
use crate::peer::endpoint::{INFO_BYTES_MAX, Peer, REPLY_OVERHEAD_BYTES};
use crate::schemes::retrieval;
use crate::wire::private_lookup_client::PrivateLookupClient;
use crate::wire::{AnswerBagsReply, AnswerBagsRequest, AnswerReply, AnswerRequest};
use crate::wire::{AnswerModelReply, AnswerModelRequest, CatalogReply, CatalogRequest};
use crate::wire::{LayoutChunk, LayoutRequest, TableInfoRequest};
use crate::{Error, Refusal, TableInfo};

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

/// `PrivateLookup` as the wire of private retrieval.
pub(super) enum PairWire {}

impl Wire for PairWire {
    type Protocol = Retrieval;

    fn send(peer: &Peer, call: Call) -> Outgoing<Reply> {
        send(peer, call)
    }

    fn fault(refusal: &Refusal) -> CallFault {
        match refusal.of() {
            Some(
                PairRefusal::LayoutSkew { .. }
                | PairRefusal::NoLayout
                | PairRefusal::TooManyBags { .. }
                | PairRefusal::WrongDomain { .. },
            ) => CallFault::Changed { found: None },
            _ => retrieval::fault(refusal),
        }
    }

    fn error(failure: Failure, servers: &Servers) -> Error {
        retrieval::error(failure, servers, KEYS_SETTING)
    }
}

/// Makes a machine's call to a server of a pair.
fn send(peer: &Peer, call: Call) -> Outgoing<Reply> {
    let peer = peer.clone();
    let bytes = |version: Version| Bytes::copy_from_slice(version.as_bytes());
    match call {
        Call::TableInfo { version } => outgoing(async move {
            let request =
                TableInfoRequest { table_version: version.map(bytes).unwrap_or_default() };
            let mut client = peer.client(INFO_BYTES_MAX);
            let reply = peer.call(client.table_info(request)).await?.into_inner();
            let announced = reply.try_into().map_err(|defect| peer.reply_error(defect))?;
            Ok(Reply::TableInfo(Box::new(announced)))
        }),
        Call::Answer { version, keys, answer_bytes } => outgoing(async move {
            let request = AnswerRequest { table_version: bytes(version), keys };
            let mut client = peer.client(answer_bytes + REPLY_OVERHEAD_BYTES);
            let reply = peer.call(client.answer(request)).await?.into_inner();
            let AnswerReply { table_version, answers, queue_us, answer_us, state } = reply;
            peer.answers(&table_version, answers, [queue_us, answer_us, state])
        }),
        Call::AnswerBags { version, keys, answer_bytes } => outgoing(async move {
            let request = AnswerBagsRequest { layout_version: bytes(version), keys };
            let mut client = peer.client(answer_bytes + REPLY_OVERHEAD_BYTES);
            let reply = peer.call(client.answer_bags(request)).await?.into_inner();
            let AnswerBagsReply { layout_version, answers, queue_us, answer_us, state } = reply;
            peer.answers(&layout_version, answers, [queue_us, answer_us, state])
        }),
        Call::Catalog => outgoing(async move {
            let mut client = peer.client(CATALOG_BYTES_MAX);
            let CatalogReply { tables, models, older, state } =
                peer.call(client.catalog(CatalogRequest {})).await?.into_inner();
            // A table of a newer kind is none that this client could ask for.
            let tables = tables.into_iter().filter_map(|table| table.try_into().ok()).collect();
            let models = models.into_iter().map(AnnouncedModel::from).collect();
            let older = older.into_iter().map(AnnouncedModel::from).collect();
            Ok(Reply::Catalog(Box::new(AnnouncedCatalog { tables, models, older, state })))
        }),
        Call::AnswerModel { version, parts, answer_bytes } => outgoing(async move {
            let request = AnswerModelRequest { model_version: bytes(version), parts };
            let mut client = peer.client(answer_bytes + REPLY_OVERHEAD_BYTES);
            let reply = peer.call(client.answer_model(request)).await?.into_inner();
            let AnswerModelReply { model_version, answers, queue_us, answer_us, state } = reply;
            peer.answers(&model_version, answers, [queue_us, answer_us, state])
        }),
        Call::Layout { version, .. } => Box::pin(async move {
            let request = LayoutRequest { layout_version: bytes(version) };
            let mut client = peer.client(LAYOUT_MESSAGE_BYTES_MAX);
            match peer.call(client.layout(request)).await {
                Ok(chunks) => next_chunk(peer, chunks.into_inner()).await,
                Err(error) => Arrived::last(Err(error)),
            }
        }),
        _ => unforeseen(&peer),
    }
}

/// The next bytes of a layout, and the call for those that follow.
fn next_chunk(peer: Peer, mut chunks: Streaming<LayoutChunk>) -> Outgoing<Reply> {
    Box::pin(async move {
        match peer.call(chunks.message()).await {
            Ok(Some(LayoutChunk { bytes })) => Arrived {
                outcome: Ok(Reply::LayoutChunk(bytes)),
                more: Some(next_chunk(peer, chunks)),
            },
            Ok(None) => Arrived::last(Ok(Reply::LayoutEnd)),
            Err(error) => Arrived::last(Err(error)),
        }
    })
}

/// A chunk of a layout is at most 1 MiB.
const LAYOUT_MESSAGE_BYTES_MAX: usize = (1 << 20) + 64;
/// 64 manifests of at most 1 MiB, and what is said of 1,024 tables.
const CATALOG_BYTES_MAX: usize = 68 << 20;
