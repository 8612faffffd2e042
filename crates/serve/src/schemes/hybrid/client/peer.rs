//! The calls of `HybridInference` that clients make.

use bytes::Bytes;
use hushtable_client::{CallFault, Place};
use hushtable_infer::hybrid::session::{Call, Failure, Inference, PrecomputeId, Reply, Stream};
use hushtable_table::Version;
use tokio::sync::{Mutex, mpsc};
use tonic::Streaming;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use super::super::info::{TERMS_BYTES_MAX, check};
use super::super::machines::{Error as MachineError, Party};
use super::super::spec::MESSAGE_BYTES_MAX;
use super::super::{FRAMES_AHEAD, Garbler, HybridError, HybridRefusal};
use crate::peer::drive::{Outgoing, Servers, Wire, outgoing, unforeseen};
use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::wire::hybrid_inference_client::HybridInferenceClient;
use crate::wire::{
    HybridBeginRequest, HybridFinishRequest, HybridInfoRequest, HybridStepRequest, PredictFrame,
    PredictOpen,
};
use crate::{Error, Refusal, ReplyDefect};

/// `HybridInference` as the wire of hybrid inference.
pub(super) enum HybridWire {}

impl Wire for HybridWire {
    type Protocol = Inference;

    fn send(peer: &Peer, call: Call) -> Outgoing<Reply> {
        let peer = peer.clone();
        match call {
            Call::Info => outgoing(async move {
                let mut client = client(&peer, TERMS_BYTES_MAX + REPLY_OVERHEAD_BYTES);
                let reply = peer.call(client.info(HybridInfoRequest {})).await?.into_inner();
                let info = check(reply).map_err(|defect| peer.reply_error(defect))?;
                Ok(Reply::Info(Box::new(info)))
            }),
            Call::Begin { plan, id, client_garbles } => outgoing(async move {
                let (plan, id) = (of_version(plan), of_id(id));
                let request = HybridBeginRequest { plan, id, client_garbles };
                let mut client = client(&peer, MESSAGE_BYTES_MAX);
                peer.call(client.begin(request)).await.map(|_| Reply::Done)
            }),
            Call::Step { id, step, payload } => outgoing(async move {
                let request = HybridStepRequest { id: of_id(id), step, payload };
                let mut client = client(&peer, MESSAGE_BYTES_MAX);
                Ok(Reply::Step(peer.call(client.step(request)).await?.into_inner().payload))
            }),
            Call::Finish { id } => outgoing(async move {
                let mut client = client(&peer, MESSAGE_BYTES_MAX);
                let request = HybridFinishRequest { id: of_id(id) };
                peer.call(client.finish(request)).await.map(|_| Reply::Done)
            }),
            Call::Open { plan, id } => outgoing(async move {
                let open = Some(PredictOpen { plan: of_version(plan), id: of_id(id) });
                Ok(Reply::Opened(Stream::new(Frames::open(&peer, open).await?)))
            }),
            Call::Exchange { stream, frames } => match stream.wire::<Frames>() {
                Some(wire) => {
                    outgoing(async move { wire.exchange(&peer, frames).await.map(Reply::Frame) })
                }
                None => unforeseen(&peer),
            },
            _ => unforeseen(&peer),
        }
    }

    fn fault(refusal: &Refusal) -> CallFault {
        match refusal.of() {
            // Another precompute may be made.
            Some(HybridRefusal::UnknownPrecompute | HybridRefusal::DamagedPrecompute) => {
                CallFault::Gone
            }
            _ => CallFault::Other,
        }
    }

    fn error(failure: Failure, servers: &Servers) -> Error {
        let peer = servers.peer(Place::Single);
        let url = peer.url().to_owned();
        match failure {
            Failure::Timeout { after } => Error::Timeout { url, after },
            Failure::VersionMismatch { expected, found } => {
                Error::VersionMismatch { urls: vec![url], expected, found: Some(found) }
            }
            Failure::Garbler { garbler } => {
                let garbler = Garbler::of_client(garbler == Party::Client);
                HybridError::GarblerRefused { url, garbler }.into()
            }
            Failure::PrecomputeBytes { bytes, bytes_max } => {
                HybridError::PrecomputeBytes { url, bytes, bytes_max }.into()
            }
            Failure::Protocol(error) => (*error).into(),
            Failure::Frame(error) => {
                peer.reply_error(ReplyDefect::Other { reason: error.to_string() })
            }
            Failure::Halves(error) => HybridError::of_keep(error),
            Failure::Stuck => Error::Client { reason: failure.to_string() },
            _ => peer.reply_error(ReplyDefect::OtherCall),
        }
    }
}

/// A prediction that the server has taken its half for.
struct Frames {
    outgoing: mpsc::Sender<PredictFrame>,
    incoming: Mutex<Streaming<PredictFrame>>,
}

impl Frames {
    /// Has the server take its half: its headers say that it has.
    async fn open(peer: &Peer, open: Option<PredictOpen>) -> Result<Self, Error> {
        let (outgoing, receiver) = mpsc::channel(FRAMES_AHEAD);
        // It has room for the first.
        drop(outgoing.send(PredictFrame { open, payload: Bytes::new() }).await);
        let mut client = client(peer, MESSAGE_BYTES_MAX);
        let reply = peer.call(client.predict(ReceiverStream::new(receiver))).await?;
        Ok(Self { outgoing, incoming: Mutex::new(reply.into_inner()) })
    }

    /// Sends frames as there is room for them, and waits for the next one meanwhile: two sides that only sent would wait
    /// for each other.
    async fn exchange(&self, peer: &Peer, frames: Vec<Bytes>) -> Result<Bytes, Error> {
        let send = async {
            for payload in frames {
                // A server that takes no more says why, or that it has ended.
                if self.outgoing.send(PredictFrame { open: None, payload }).await.is_err() {
                    break;
                }
            }
        };
        let receive = async { self.incoming.lock().await.message().await };
        let ((), message) = tokio::join!(send, receive);
        let Some(message) = message.map_err(|status| peer.error(&status))? else {
            let reason = "it ended the prediction early".to_owned();
            return Err(Error::Unavailable { url: peer.url().to_owned(), reason });
        };
        if message.open.is_some() {
            let (what, why) = ("a second opening".to_owned(), "nothing: it was opened");
            let reason = MachineError::Order { what, why }.to_string();
            return Err(peer.reply_error(ReplyDefect::Other { reason }));
        }
        Ok(message.payload)
    }
}

fn client(peer: &Peer, reply_bytes_max: usize) -> HybridInferenceClient<Channel> {
    HybridInferenceClient::new(peer.channel.clone()).max_decoding_message_size(reply_bytes_max)
}

fn of_version(version: Version) -> Bytes {
    Bytes::copy_from_slice(version.as_bytes())
}

fn of_id(id: PrecomputeId) -> Bytes {
    Bytes::copy_from_slice(&id)
}
