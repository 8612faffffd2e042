//! The calls of `EncryptedInference`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{CallFault, Place};
use hushtable_infer::dlrm::session::{Answer, Call, Failure, Inference, Progress, Reply};
use hushtable_infer::dlrm::{Client, TERMS_BYTES_MAX};
use hushtable_pir::client::version;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use super::info::{announced, defect};
use crate::keys::refusal::KeysRefusal;
use crate::peer::drive::{Outgoing, Servers, Wire, outgoing, unforeseen};
use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::wire::encrypted_inference_client::EncryptedInferenceClient;
use crate::wire::{
    HaveKeysRequest, InferInfoRequest, PredictReply, PredictRequest, UploadHead, UploadKeysRequest,
};
use crate::{Error, Refusal, ReplyDefect};

/// `EncryptedInference` as the wire of encrypted inference.
pub(super) enum CkksWire {}

impl Wire for CkksWire {
    type Protocol = Inference;

    fn send(peer: &Peer, call: Call) -> Outgoing<Reply> {
        let peer = peer.clone();
        match call {
            Call::Info => outgoing(async move {
                let mut client = client(&peer, TERMS_BYTES_MAX + REPLY_OVERHEAD_BYTES);
                let reply = peer.call(client.info(InferInfoRequest {})).await?.into_inner();
                let announced = announced(reply).map_err(|defect| peer.reply_error(defect))?;
                Ok(Reply::Info(Box::new(announced)))
            }),
            Call::HaveKeys { plan, key_id } => outgoing(async move {
                let request =
                    HaveKeysRequest { plan: bytes(plan.as_bytes()), key_id: bytes(key_id) };
                let mut client = client(&peer, REPLY_OVERHEAD_BYTES);
                let reply = peer.call(client.have_keys(request)).await?.into_inner();
                Ok(Reply::KeysHeld(reply.held()))
            }),
            Call::UploadKeys { plan, bytes: all, client: keys, progress, .. } => {
                outgoing(async move {
                    let head = UploadHead {
                        plan: bytes(plan.as_bytes()),
                        key_id: bytes(keys.key_id()),
                        bytes: all,
                    };
                    let mut client = client(&peer, REPLY_OVERHEAD_BYTES);
                    let call = client.upload_keys(upload(keys, head, progress));
                    let reply = peer.call(call).await?.into_inner();
                    let key_id = <[u8; 32]>::try_from(&reply.key_id[..])
                        .map_err(|_| peer.reply_error(ReplyDefect::KeyId))?;
                    Ok(Reply::KeysKept(key_id))
                })
            }
            Call::Predict { plan, key_id, query, answer_bytes } => outgoing(async move {
                let request =
                    PredictRequest { plan: bytes(plan.as_bytes()), key_id: bytes(key_id), query };
                let mut client = client(&peer, answer_bytes + REPLY_OVERHEAD_BYTES);
                let reply = peer.call(client.predict(request)).await?.into_inner();
                let PredictReply { plan, answer, queue_us, answer_us, .. } = reply;
                let plan = version(&plan).map_err(|defect| peer.reply_error(defect))?;
                let [queue, took] =
                    [queue_us, answer_us].map(|us| Duration::from_micros(us.unwrap_or_default()));
                Ok(Reply::Answer(Answer { plan, answer, queue, took }))
            }),
            _ => unforeseen(&peer),
        }
    }

    fn fault(refusal: &Refusal) -> CallFault {
        match refusal.of() {
            Some(KeysRefusal::UnknownKeys { .. }) => CallFault::UnknownKeys,
            _ => CallFault::Other,
        }
    }

    fn error(failure: Failure, servers: &Servers) -> Error {
        let url = servers.url(Place::Single);
        let reply = |defect| servers.peer(Place::Single).reply_error(defect);
        match failure {
            Failure::Timeout { after } => Error::Timeout { url, after },
            Failure::OtherCall => reply(ReplyDefect::OtherCall),
            Failure::Info(found) => reply(defect(&found)),
            Failure::VersionMismatch { expected, found } => {
                Error::VersionMismatch { urls: vec![url], expected, found: Some(found) }
            }
            Failure::KeyBytes { bytes, bytes_max } => Error::KeyBytes { url, bytes, bytes_max },
            Failure::KeyId => reply(ReplyDefect::KeyId),
            Failure::AnswerBytes { expected, found } => {
                reply(ReplyDefect::AnswerBytes { expected, found })
            }
            Failure::Dlrm(error) => error.into(),
            other => reply(ReplyDefect::Other { reason: other.to_string() }),
        }
    }
}

fn client(peer: &Peer, reply_bytes_max: usize) -> EncryptedInferenceClient<Channel> {
    EncryptedInferenceClient::new(peer.channel.clone()).max_decoding_message_size(reply_bytes_max)
}

fn bytes(of: impl AsRef<[u8]>) -> Bytes {
    Bytes::copy_from_slice(of.as_ref())
}

/// The messages of an upload, which a thread makes as they are sent. Whoever drops the stream ends it.
fn upload(
    client: Arc<Client>,
    head: UploadHead,
    progress: Option<Progress>,
) -> ReceiverStream<UploadKeysRequest> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let (all, mut done, mut head) = (head.bytes, 0, Some(head));
        let tell = |done: u64| progress.iter().for_each(|progress| progress(done, all));
        tell(0);
        for chunk in client.keys() {
            let bytes = Bytes::copy_from_slice(chunk);
            done += bytes.len() as u64;
            if sender.blocking_send(UploadKeysRequest { head: head.take(), bytes }).is_err() {
                return;
            }
            tell(done);
        }
    });
    ReceiverStream::new(receiver)
}

/// Chunks of keys that are made before they can be sent.
const CHUNKS_AHEAD: usize = 4;
