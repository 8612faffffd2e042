//! Calls of a training server: the operator's and the users'.

use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{CallFault, Limits};
use hushtable_oram::wire::{Context, Credential, Pin, UserSession};
use tokio::time::Instant;
use tonic::Request;
use tonic::metadata::{Ascii, MetadataValue};
use tonic::transport::Channel;

use super::refusal::REFUSALS;
use super::{RoundReport, RoundSpec, TrainError, TrainInfo, TrainRefusal};
use crate::peer::direct::{Again, Faults, never};
use crate::peer::endpoint::{INFO_BYTES_MAX, Peer, REPLY_OVERHEAD_BYTES};
use crate::wire::federated_training_client::FederatedTrainingClient;
use crate::wire::{
    AbandonRequest, BackupReply, BackupRequest, CloseRequestsRequest, FinishRequest,
    OpenRoundRequest, RowsRequest, TrainInfoRequest, UploadRequest, UserRequest,
};
use crate::{EndpointSpec, Error, Refusal};

/// How a client reaches a training server.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct TrainClientSpec {
    /// The server.
    pub server: EndpointSpec,
    /// Reach other machines over plain HTTP: for when something else encrypts the way. What users
    /// seal stays sealed; the operator's token does not.
    pub insecure: bool,
    /// How long a connection may take.
    pub connect_max: Duration,
    /// How long one call may take that waits for nobody.
    pub call_max: Duration,
    /// What the operator's calls carry.
    pub operator_token: Option<String>,
    /// The controller that this must be, from somebody other than whoever runs the server. Users
    /// need it, wherever the server is: whoever takes a port of this machine first may answer there.
    pub pin: Option<Pin>,
    /// Without a pin, believe whatever is announced at the connection: whoever runs the server can
    /// then read the ids.
    pub trust_announced: bool,
}

impl TrainClientSpec {
    /// The defaults: 5 s to connect, 60 s a call, no token.
    pub fn new(server: EndpointSpec) -> Self {
        Self {
            server,
            insecure: false,
            connect_max: Duration::from_secs(5),
            call_max: Duration::from_secs(60),
            operator_token: None,
            pin: None,
            trust_announced: false,
        }
    }
}

/// A backup that a server wrote.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct BackupMade {
    /// Rounds committed.
    pub rounds: u64,
    /// Rounds that were ever begun.
    pub rounds_begun: u64,
    /// Bytes of its files.
    pub bytes: u64,
}

/// A client of a training server, for the operator and for users alike.
pub struct TrainClient {
    peer: Peer,
    call_max: Duration,
    token: Option<MetadataValue<Ascii>>,
    info: TrainInfo,
    /// What users seal to; None where nobody has vouched for what is announced.
    pin: Option<Pin>,
}

impl TrainClient {
    /// Connects, and asks what is trained.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`],
    /// [`Error::TokenText`] for what is wrong with `spec`; [`Error::Unavailable`] or
    /// [`Error::Timeout`] for a server out of reach; [`Error::Unserved`] for a server that trains
    /// nothing; [`Error::Reply`]; [`Error::Sealed`] for a controller other than the pinned one.
    pub async fn connect(spec: &TrainClientSpec) -> Result<Self, Error> {
        let token = spec.operator_token.as_deref().map(bearer).transpose()?;
        let peer = Peer::new(&spec.server, spec.insecure, spec.connect_max, REFUSALS)?;
        let info = fetch_info(&peer, spec.call_max).await?;
        if spec.pin.is_some_and(|pin| pin != info.pin()) {
            return Err(hushtable_oram::wire::Error::Pinned.into());
        }
        let is_trusted = spec.pin.is_some() || spec.trust_announced;
        let pin = is_trusted.then(|| info.pin());
        Ok(Self { peer, call_max: spec.call_max, token, info, pin })
    }

    /// The controller that users' messages are sealed to: the pinned one, or the announced one where
    /// the spec trusts it.
    ///
    /// # Errors
    /// [`TrainError::NoPin`].
    pub fn pin(&self) -> Result<Pin, Error> {
        self.pin.ok_or_else(|| TrainError::NoPin { url: self.peer.url().to_owned() }.into())
    }

    /// What is trained, as it was announced at the connection. A server's key and shape do not
    /// change while it runs.
    pub fn connected(&self) -> &TrainInfo {
        &self.info
    }

    /// Asks what is trained, and how far it is.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`].
    pub async fn info(&self) -> Result<TrainInfo, Error> {
        fetch_info(&self.peer, self.call_max).await
    }

    /// Opens a round. The operator's.
    ///
    /// # Errors
    /// [`Error::Refused`] where another round is open, for more users than the controller was made
    /// for, and without the operator's token; [`Error::Unavailable`], [`Error::Timeout`].
    pub async fn open_round(&self, spec: RoundSpec) -> Result<u64, Error> {
        let limit_ms =
            |time: Option<Duration>| time.map_or(0, |time| u64::from(milliseconds(time).max(1)));
        let message = OpenRoundRequest {
            users: spec.users.try_into().unwrap_or(u32::MAX),
            users_min: spec.users_min.try_into().unwrap_or(u32::MAX),
            request_ms: limit_ms(spec.request),
            upload_ms: limit_ms(spec.upload),
            finish_ms: limit_ms(spec.finish),
        };
        // Not made again by itself: where the reply is lost, the round is open.
        let mut client = client(&self.peer, REPLY_OVERHEAD_BYTES);
        let call = client.open_round(signed(&self.token, message));
        Ok(self.peer.within(self.call_max, call).await?.into_inner().round)
    }

    /// Begins the round with the users that have come; returns their number. The operator's.
    ///
    /// # Errors
    /// [`Error::Refused`] with too few users; as [`open_round`](Self::open_round).
    pub async fn close_requests(&self, round: u64) -> Result<usize, Error> {
        let token = self.token.clone();
        let reply = self.ask(None, move |peer| {
            let message = signed(&token, CloseRequestsRequest { round });
            async move {
                let mut client = client(&peer, REPLY_OVERHEAD_BYTES);
                Ok(peer.call(client.close_requests(message)).await?.into_inner())
            }
        });
        Ok(reply.await?.users as usize)
    }

    /// Commits the round, once all that asked have uploaded or the deadline for uploads is over, at
    /// once where `now`. Waits for that at most `within`. The operator's.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`TrainRefusal::Pending`] once `within` is over: it may be called
    /// again; as [`open_round`](Self::open_round).
    pub async fn finish(
        &self,
        round: u64,
        now: bool,
        within: Duration,
    ) -> Result<RoundReport, Error> {
        let (token, until) = (self.token.clone(), Instant::now() + within);
        let reply = self.ask(Some(until), move |peer| {
            let wait_ms = Some(milliseconds_until(until));
            let message = signed(&token, FinishRequest { round, now, wait_ms });
            async move {
                let mut client = client(&peer, INFO_BYTES_MAX);
                Ok(peer.call(client.finish(message)).await?.into_inner())
            }
        });
        Ok(reply.await?.into())
    }

    /// Ends the round without an update. The operator's.
    ///
    /// # Errors
    /// As [`open_round`](Self::open_round).
    pub async fn abandon(&self, round: u64) -> Result<(), Error> {
        let token = self.token.clone();
        self.ask(None, move |peer| {
            let message = signed(&token, AbandonRequest { round });
            async move {
                let mut client = client(&peer, REPLY_OVERHEAD_BYTES);
                peer.call(client.abandon(message)).await.map(|_| ())
            }
        })
        .await
    }

    /// Has the server write the backup `name` of the state between two rounds, and waits for it at most
    /// `within`; the round that is open, if any, has ended by then. Where there is a backup of that name
    /// already, says what it is of. The operator's.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`TrainRefusal::Pending`] once `within` is over: it may be called again;
    /// with [`TrainRefusal::BackupRefused`] by a server without `backup_dir`, or whose disk has no room;
    /// as [`open_round`](Self::open_round).
    pub async fn backup(&self, name: &str, within: Duration) -> Result<BackupMade, Error> {
        let (token, name) = (self.token.clone(), name.to_owned());
        let until = Instant::now() + within;
        let reply = self.ask(Some(until), move |peer| {
            let wait_ms = Some(milliseconds_until(until));
            let message = signed(&token, BackupRequest { name: name.clone(), wait_ms });
            async move {
                let mut client = client(&peer, REPLY_OVERHEAD_BYTES);
                Ok(peer.call(client.backup(message)).await?.into_inner())
            }
        });
        let BackupReply { rounds, rounds_begun, bytes } = reply.await?;
        Ok(BackupMade { rounds, rounds_begun, bytes })
    }

    /// A session for a user of the round, which seals and opens what the calls below carry.
    ///
    /// # Errors
    /// [`TrainError::NoPin`] where nobody has vouched for what the server announces; [`Error::Sealed`],
    /// among others where users are enrolled and no credential is given.
    pub fn session(
        &self,
        round: u64,
        user: u32,
        credential: Option<&Credential>,
    ) -> Result<UserSession, Error> {
        let context = Context::new(&self.info.terms, round, user);
        Ok(UserSession::new(&self.pin()?, context, credential)?)
    }

    /// Sends a user's sealed request.
    ///
    /// # Errors
    /// [`Error::Refused`] for a request that does not open, a number that is taken or that the round
    /// does not have, and once requests are closed; [`Error::Unavailable`], [`Error::Timeout`].
    pub async fn request(&self, round: u64, user: u32, sealed: Bytes) -> Result<(), Error> {
        let message = UserRequest { round, user, sealed };
        self.ask(None, move |peer| {
            let message = message.clone();
            async move {
                let mut client = client(&peer, REPLY_OVERHEAD_BYTES);
                peer.call(client.request(message)).await.map(|_| ())
            }
        })
        .await
    }

    /// Fetches a user's sealed rows, waiting at most `within` for the round to begin.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`TrainRefusal::Pending`] once `within` is over; for a user whose
    /// request was not taken, and once the round is over; [`Error::Unavailable`],
    /// [`Error::Timeout`].
    pub async fn rows(&self, round: u64, user: u32, within: Duration) -> Result<Bytes, Error> {
        let bytes_max = self.info.terms.shape().reply_bytes() + REPLY_OVERHEAD_BYTES;
        let until = Instant::now() + within;
        self.ask(Some(until), move |peer| {
            let wait_ms = Some(milliseconds_until(until));
            async move {
                let mut client = client(&peer, bytes_max);
                let call = client.rows(RowsRequest { round, user, wait_ms });
                Ok(peer.call(call).await?.into_inner().sealed)
            }
        })
        .await
    }

    /// Sends a user's sealed upload.
    ///
    /// # Errors
    /// [`Error::Refused`] for an upload that does not open, for another than the one taken, and once
    /// the round is over; [`Error::Unavailable`], [`Error::Timeout`].
    pub async fn upload(&self, round: u64, user: u32, sealed: Bytes) -> Result<(), Error> {
        let message = UploadRequest { round, user, sealed };
        self.ask(None, move |peer| {
            let message = message.clone();
            async move {
                let mut client = client(&peer, REPLY_OVERHEAD_BYTES);
                peer.call(client.upload(message)).await.map(|_| ())
            }
        })
        .await
    }

    /// Makes a call, each time of at most `call_max`, again within `call_max` or, where the server waits for others,
    /// until `waits`.
    async fn ask<R: Send + 'static, F: Future<Output = Result<R, Error>> + Send + 'static>(
        &self,
        waits: Option<Instant>,
        call: impl Fn(Peer) -> F + Send + Sync + 'static,
    ) -> Result<R, Error> {
        let mut limits = Limits::of(self.call_max);
        if let Some(until) = waits {
            let within = until.saturating_duration_since(Instant::now());
            (limits.whole, limits.may_overrun) = (within.max(self.call_max), true);
        }
        Ok(self.peer.ask::<Training, R, F>(limits, pending(waits), call).await?.reply)
    }
}

/// What machines make of this scheme's refusals.
enum Training {}

impl Faults for Training {
    fn fault(refusal: &Refusal) -> CallFault {
        match refusal.of() {
            Some(&TrainRefusal::Pending { retry_after, .. }) => CallFault::Pending { retry_after },
            _ => CallFault::Other,
        }
    }
}

/// Makes a call again whose server waits for others, until that time.
fn pending(until: Option<Instant>) -> impl Fn(Again<'_>, u32, u64) -> Option<Duration> + Send {
    move |again, _, _| match again {
        Again::Fault(&CallFault::Pending { retry_after })
            if until.is_some_and(|until| Instant::now() < until) =>
        {
            Some(retry_after.clamp(PAUSE_MIN, PAUSE_MAX))
        }
        _ => None,
    }
}

fn client(peer: &Peer, reply_bytes_max: usize) -> FederatedTrainingClient<Channel> {
    FederatedTrainingClient::new(peer.channel.clone()).max_decoding_message_size(reply_bytes_max)
}

/// A message with the operator's token.
fn signed<T>(token: &Option<MetadataValue<Ascii>>, message: T) -> Request<T> {
    let mut request = Request::new(message);
    if let Some(token) = token {
        request.metadata_mut().insert("authorization", token.clone());
    }
    request
}

async fn fetch_info(peer: &Peer, limit: Duration) -> Result<TrainInfo, Error> {
    let info = peer.ask::<Training, _, _>(Limits::of(limit), never, |peer| async move {
        let mut client = client(&peer, INFO_BYTES_MAX);
        let reply = peer.call(client.info(TrainInfoRequest {})).await?;
        TrainInfo::try_from(reply.into_inner()).map_err(|defect| peer.reply_error(defect))
    });
    Ok(info.await?.reply)
}

fn milliseconds(time: Duration) -> u32 {
    u32::try_from(time.as_millis()).unwrap_or(u32::MAX)
}

fn milliseconds_until(deadline: Instant) -> u32 {
    milliseconds(deadline.saturating_duration_since(Instant::now()))
}

fn bearer(token: &str) -> Result<MetadataValue<Ascii>, Error> {
    let mut value: MetadataValue<Ascii> =
        format!("Bearer {}", token.trim_end()).parse().map_err(|_| Error::TokenText)?;
    value.set_sensitive(true);
    Ok(value)
}

const PAUSE_MIN: Duration = Duration::from_millis(1);
const PAUSE_MAX: Duration = Duration::from_secs(10);
