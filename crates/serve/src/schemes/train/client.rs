//! Calls of a training server: the operator's and the users'.

mod peer;

use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{Called, Machine, Place};
use hushtable_oram::rounds::RoundLimits;
use hushtable_oram::session::{SessionSpec, Token, Trainer, Training};
use hushtable_oram::wire::{Context, Credential, Pin, UserSession};

use super::refusal::REFUSALS;
use super::{RoundReport, RoundSpec, TrainError, TrainInfo};
use crate::peer::drive::Driver;
use crate::peer::endpoint::Peer;
use crate::peer::random_u64;
use crate::{EndpointSpec, Error};

pub use hushtable_oram::session::BackupMade;

use peer::{TrainWire, bearer};

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

/// A client of a training server, for the operator and for users alike.
pub struct TrainClient {
    driver: Driver<TrainWire>,
    trainer: Trainer,
    url: String,
}

impl TrainClient {
    /// Connects, and asks what is trained.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`],
    /// [`Error::TokenText`] for what is wrong with `spec`; [`Error::Unavailable`] or
    /// [`Error::Timeout`] for a server out of reach; [`Error::Unserved`] for a server that trains
    /// nothing; [`Error::Reply`]; [`hushtable_oram::wire::Error`] for a controller other than the pinned one.
    pub async fn connect(spec: &TrainClientSpec) -> Result<Self, Error> {
        // A token that no header can carry is found before anything is sent.
        spec.operator_token.as_deref().map(bearer).transpose()?;
        let peer = Peer::new(&spec.server, spec.insecure, spec.connect_max, REFUSALS)?;
        let url = peer.url().to_owned();
        let session = SessionSpec {
            pin: spec.pin,
            trusts_announced: spec.trust_announced,
            operator_token: spec.operator_token.as_deref().map(Token::new),
            call_max: spec.call_max,
        };
        let driver = Driver::new([(Place::Single, vec![peer])]);
        let trainer = driver.run(Trainer::open(session, random_u64()?, driver.bell())).await?;
        Ok(Self { driver, trainer, url })
    }

    /// The controller that users' messages are sealed to: the pinned one, or the announced one where
    /// the spec trusts it.
    ///
    /// # Errors
    /// [`TrainError::NoPin`].
    pub fn pin(&self) -> Result<Pin, Error> {
        self.trainer.pin().ok_or_else(|| TrainError::NoPin { url: self.url.clone() }.into())
    }

    /// What is trained, as it was announced at the connection. A server's key and shape do not
    /// change while it runs.
    pub fn connected(&self) -> &TrainInfo {
        self.trainer.announced()
    }

    /// Asks what is trained, and how far it is.
    ///
    /// # Errors
    /// [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`].
    pub async fn info(&self) -> Result<TrainInfo, Error> {
        Ok(*self.run(self.trainer.info(random_u64()?)).await?)
    }

    /// Opens a round. The operator's.
    ///
    /// # Errors
    /// [`Error::Refused`] where another round is open, for more users than the controller was made
    /// for, and without the operator's token; [`Error::Unavailable`], [`Error::Timeout`].
    pub async fn open_round(&self, spec: RoundSpec) -> Result<u64, Error> {
        let limits = RoundLimits {
            users: spec.users,
            users_min: spec.users_min,
            request_max: spec.request,
            upload_max: spec.upload,
            finish_max: spec.finish,
        };
        self.run(self.trainer.open_round(limits, random_u64()?)).await
    }

    /// Begins the round with the users that have come; returns their number. The operator's.
    ///
    /// # Errors
    /// [`Error::Refused`] with too few users; as [`open_round`](Self::open_round).
    pub async fn close_requests(&self, round: u64) -> Result<usize, Error> {
        self.run(self.trainer.close_requests(round, random_u64()?)).await
    }

    /// Commits the round, once all that asked have uploaded or the deadline for uploads is over, at
    /// once where `now`. Waits for that at most `within`. The operator's.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`TrainRefusal::Pending`](super::TrainRefusal::Pending) once `within` is
    /// over: it may be called again; as [`open_round`](Self::open_round).
    pub async fn finish(
        &self,
        round: u64,
        now: bool,
        within: Duration,
    ) -> Result<RoundReport, Error> {
        self.run(self.trainer.finish(round, now, within, random_u64()?)).await
    }

    /// Ends the round without an update. The operator's.
    ///
    /// # Errors
    /// As [`open_round`](Self::open_round).
    pub async fn abandon(&self, round: u64) -> Result<(), Error> {
        self.run(self.trainer.abandon(round, random_u64()?)).await
    }

    /// Has the server write the backup `name` of the state between two rounds, and waits for it at most
    /// `within`; the round that is open, if any, has ended by then. Where there is a backup of that name
    /// already, says what it is of. The operator's.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`TrainRefusal::Pending`](super::TrainRefusal::Pending) once `within` is
    /// over: it may be called again; with
    /// [`TrainRefusal::BackupRefused`](super::TrainRefusal::BackupRefused) by a server without
    /// `backup_dir`, or whose disk has no room; as [`open_round`](Self::open_round).
    pub async fn backup(&self, name: &str, within: Duration) -> Result<BackupMade, Error> {
        self.run(self.trainer.backup(name.into(), within, random_u64()?)).await
    }

    /// A session for a user of the round, which seals and opens what the calls below carry.
    ///
    /// # Errors
    /// [`TrainError::NoPin`] where nobody has vouched for what the server announces; [`hushtable_oram::wire::Error`],
    /// among others where users are enrolled and no credential is given.
    pub fn session(
        &self,
        round: u64,
        user: u32,
        credential: Option<&Credential>,
    ) -> Result<UserSession, Error> {
        let context = Context::new(&self.trainer.announced().terms, round, user);
        Ok(UserSession::new(&self.pin()?, context, credential)?)
    }

    /// Sends a user's sealed request.
    ///
    /// # Errors
    /// [`Error::Refused`] for a request that does not open, a number that is taken or that the round
    /// does not have, and once requests are closed; [`Error::Unavailable`], [`Error::Timeout`].
    pub async fn request(&self, round: u64, user: u32, sealed: Bytes) -> Result<(), Error> {
        self.run(self.trainer.request(round, user, sealed, random_u64()?)).await
    }

    /// Fetches a user's sealed rows, waiting at most `within` for the round to begin.
    ///
    /// # Errors
    /// [`Error::Refused`] with [`TrainRefusal::Pending`](super::TrainRefusal::Pending) once `within` is
    /// over; for a user whose request was not taken, and once the round is over; [`Error::Unavailable`],
    /// [`Error::Timeout`].
    pub async fn rows(&self, round: u64, user: u32, within: Duration) -> Result<Bytes, Error> {
        self.run(self.trainer.rows(round, user, within, random_u64()?)).await
    }

    /// Sends a user's sealed upload.
    ///
    /// # Errors
    /// [`Error::Refused`] for an upload that does not open, for another than the one taken, and once
    /// the round is over; [`Error::Unavailable`], [`Error::Timeout`].
    pub async fn upload(&self, round: u64, user: u32, sealed: Bytes) -> Result<(), Error> {
        self.run(self.trainer.upload(round, user, sealed, random_u64()?)).await
    }

    async fn run<T, M>(&self, machine: M) -> Result<T, Error>
    where
        T: Send + 'static,
        M: Machine<Error, Protocol = Training, Output = Called<T>> + 'static,
    {
        Ok(self.driver.run(machine).await?.reply)
    }
}
