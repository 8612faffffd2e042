//! The calls of `SharedInference` that clients make.

use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{CallFault, Place};
use hushtable_infer::dlrm::TERMS_BYTES_MAX;
use hushtable_infer::shares::session::{Call, Failure, LOST, Reply, Share, SharedInference};
use hushtable_pir::client::version;
use tonic::transport::Channel;

use super::SharesRefusal;
use super::info::{announced, defect};
use super::model::side_of;
use crate::peer::drive::{Outgoing, Servers, Wire, outgoing, unforeseen};
use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::wire::shared_inference_client::SharedInferenceClient;
use crate::wire::{SharesInfoRequest, SharesPredictReply, SharesPredictRequest};
use crate::{Error, Refusal, ReplyDefect};

/// `SharedInference` as the wire of predictions on shares.
pub(super) enum SharesWire {}

impl Wire for SharesWire {
    type Protocol = SharedInference;

    fn send(peer: &Peer, call: Call) -> Outgoing<Reply> {
        let peer = peer.clone();
        match call {
            Call::Info => outgoing(async move {
                let mut client = client(&peer, TERMS_BYTES_MAX + REPLY_OVERHEAD_BYTES);
                let reply = peer.call(client.info(SharesInfoRequest {})).await?.into_inner();
                let announced = announced(reply).map_err(|defect| peer.reply_error(defect))?;
                Ok(Reply::Info(Box::new(announced)))
            }),
            Call::Predict { plan, name, keys, common, dealt, share_bytes } => {
                outgoing(async move {
                    let plan = Bytes::copy_from_slice(plan.as_bytes());
                    let name = Bytes::copy_from_slice(&name);
                    let request = SharesPredictRequest { plan, name, keys, common, dealt };
                    let mut client = client(&peer, share_bytes + REPLY_OVERHEAD_BYTES);
                    let reply = peer.call(client.predict(request)).await?.into_inner();
                    let SharesPredictReply { plan, share, queue_us, answer_us } = reply;
                    let plan = version(&plan).map_err(|defect| peer.reply_error(defect))?;
                    let [queue, took] = [queue_us, answer_us]
                        .map(|us| Duration::from_micros(us.unwrap_or_default()));
                    Ok(Reply::Share(Share { plan, share, queue, took }))
                })
            }
            _ => unforeseen(&peer),
        }
    }

    fn fault(refusal: &Refusal) -> CallFault {
        match refusal.of() {
            Some(SharesRefusal::Dry { retry_after }) => {
                CallFault::Pending { retry_after: *retry_after }
            }
            Some(refusal) if refusal.is_passing() => CallFault::Pending { retry_after: LOST },
            _ => CallFault::Other,
        }
    }

    fn error(failure: Failure, servers: &Servers) -> Error {
        let reply = |place, defect| servers.peer(place).reply_error(defect);
        let [left, right] = Place::PAIR.map(|place| servers.url(place));
        match failure {
            Failure::Timeout { place, after } => Error::Timeout { url: servers.url(place), after },
            Failure::OtherCall { place } => reply(place, ReplyDefect::OtherCall),
            Failure::Info { place, defect: found } => reply(place, defect(&found)),
            Failure::SidesSwapped => Error::SidesSwapped { left, right },
            Failure::SameSide { half } => Error::SameSide { left, right, side: side_of(half) },
            Failure::VersionMismatch { expected, found } => {
                Error::VersionMismatch { urls: vec![left, right], expected, found: Some(found) }
            }
            Failure::TermsDiffer => {
                let reason = failure.to_string();
                reply(Place::Right, ReplyDefect::Other { reason })
            }
            Failure::OtherPlan { place } => {
                let reason = failure.to_string();
                reply(place, ReplyDefect::Other { reason })
            }
            Failure::AnswerBytes { place, expected, found } => {
                reply(place, ReplyDefect::AnswerBytes { expected, found })
            }
            Failure::Dlrm(error) => error.into(),
            Failure::Shares(error) => error.into(),
            Failure::Pir(error) => error.into(),
            // Another dealer than the client was told to accept is the left one's to say.
            other => reply(Place::Left, ReplyDefect::Other { reason: other.to_string() }),
        }
    }
}

fn client(peer: &Peer, reply_bytes_max: usize) -> SharedInferenceClient<Channel> {
    SharedInferenceClient::new(peer.channel.clone()).max_decoding_message_size(reply_bytes_max)
}
