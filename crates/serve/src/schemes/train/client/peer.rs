//! The calls of `FederatedTraining` that clients make.

use std::time::Duration;

use hushtable_client::{CallFault, Place};
use hushtable_oram::rounds::RoundLimits;
use hushtable_oram::session::{BackupMade, Call, Failure, Reply, Token, Training};
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::super::{TrainInfo, TrainRefusal};
use crate::peer::drive::{Outgoing, Servers, Wire, outgoing, unforeseen};
use crate::peer::endpoint::{INFO_BYTES_MAX, Peer, REPLY_OVERHEAD_BYTES};
use crate::wire::federated_training_client::FederatedTrainingClient;
use crate::wire::{
    AbandonRequest, BackupReply, BackupRequest, CloseRequestsRequest, FinishRequest,
    OpenRoundRequest, RowsRequest, TrainInfoRequest, UploadRequest, UserRequest,
};
use crate::{Error, Refusal, ReplyDefect};

/// `FederatedTraining` as the wire of training.
pub(super) enum TrainWire {}

impl Wire for TrainWire {
    type Protocol = Training;

    fn send(peer: &Peer, call: Call) -> Outgoing<Reply> {
        let peer = peer.clone();
        let mut short = client(&peer, REPLY_OVERHEAD_BYTES);
        match call {
            Call::Info => outgoing(async move {
                let mut client = client(&peer, INFO_BYTES_MAX);
                let reply = peer.call(client.info(TrainInfoRequest {})).await?.into_inner();
                let info = TrainInfo::try_from(reply).map_err(|defect| peer.reply_error(defect))?;
                Ok(Reply::Info(Box::new(info)))
            }),
            Call::OpenRound { limits, token } => outgoing(async move {
                let request = signed(token.as_ref(), opening(limits))?;
                let reply = peer.call(short.open_round(request)).await?.into_inner();
                Ok(Reply::Opened(reply.round))
            }),
            Call::CloseRequests { round, token } => outgoing(async move {
                let request = signed(token.as_ref(), CloseRequestsRequest { round })?;
                let reply = peer.call(short.close_requests(request)).await?.into_inner();
                Ok(Reply::Closed(reply.users as usize))
            }),
            Call::Finish { round, now, within, token } => outgoing(async move {
                let wait_ms = Some(milliseconds(within));
                let request = signed(token.as_ref(), FinishRequest { round, now, wait_ms })?;
                let mut client = client(&peer, INFO_BYTES_MAX);
                let reply = peer.call(client.finish(request)).await?.into_inner();
                Ok(Reply::Finished(Box::new(reply.into())))
            }),
            Call::Abandon { round, token } => outgoing(async move {
                let request = signed(token.as_ref(), AbandonRequest { round })?;
                peer.call(short.abandon(request)).await.map(|_| Reply::Done)
            }),
            Call::Backup { name, within, token } => outgoing(async move {
                let (name, wait_ms) = (name.to_string(), Some(milliseconds(within)));
                let request = signed(token.as_ref(), BackupRequest { name, wait_ms })?;
                let reply = peer.call(short.backup(request)).await?.into_inner();
                let BackupReply { rounds, rounds_begun, bytes } = reply;
                Ok(Reply::Backup(BackupMade { rounds, rounds_begun, bytes }))
            }),
            Call::Request { round, user, sealed } => outgoing(async move {
                let call = short.request(UserRequest { round, user, sealed });
                peer.call(call).await.map(|_| Reply::Done)
            }),
            Call::Rows { round, user, within, reply_bytes } => outgoing(async move {
                let request = RowsRequest { round, user, wait_ms: Some(milliseconds(within)) };
                let mut client = client(&peer, reply_bytes + REPLY_OVERHEAD_BYTES);
                Ok(Reply::Rows(peer.call(client.rows(request)).await?.into_inner().sealed))
            }),
            Call::Upload { round, user, sealed } => outgoing(async move {
                let call = short.upload(UploadRequest { round, user, sealed });
                peer.call(call).await.map(|_| Reply::Done)
            }),
            _ => unforeseen(&peer),
        }
    }

    fn fault(refusal: &Refusal) -> CallFault {
        match refusal.of() {
            Some(&TrainRefusal::Pending { retry_after, .. }) => CallFault::Pending { retry_after },
            _ => CallFault::Other,
        }
    }

    fn error(failure: Failure, servers: &Servers) -> Error {
        let peer = servers.peer(Place::Single);
        match failure {
            Failure::Timeout { after } => Error::Timeout { url: peer.url().to_owned(), after },
            Failure::Pinned => hushtable_oram::wire::Error::Pinned.into(),
            _ => peer.reply_error(ReplyDefect::OtherCall),
        }
    }
}

fn client(peer: &Peer, reply_bytes_max: usize) -> FederatedTrainingClient<Channel> {
    FederatedTrainingClient::new(peer.channel.clone()).max_decoding_message_size(reply_bytes_max)
}

fn opening(limits: RoundLimits) -> OpenRoundRequest {
    let limit_ms =
        |time: Option<Duration>| time.map_or(0, |time| u64::from(milliseconds(time).max(1)));
    OpenRoundRequest {
        users: limits.users.try_into().unwrap_or(u32::MAX),
        users_min: limits.users_min.try_into().unwrap_or(u32::MAX),
        request_ms: limit_ms(limits.request_max),
        upload_ms: limit_ms(limits.upload_max),
        finish_ms: limit_ms(limits.finish_max),
    }
}

/// A message with the operator's token.
fn signed<T>(token: Option<&Token>, message: T) -> Result<Request<T>, Error> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", bearer(token.expose())?);
    }
    Ok(request)
}

pub(super) fn bearer(token: &str) -> Result<MetadataValue<Ascii>, Error> {
    let mut value: MetadataValue<Ascii> =
        format!("Bearer {}", token.trim_end()).parse().map_err(|_| Error::TokenText)?;
    value.set_sensitive(true);
    Ok(value)
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}
