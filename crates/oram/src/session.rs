//! A whole client of a training server, without sockets: the operator's calls and the users', each made again
//! while the server is busy, restarts, or waits for others.
//!
//! Every operation is a [`Machine`]; what drives machines is said in [`hushtable_client`]. Of a round nothing is
//! known here but its number: what users seal they seal to the controller that the [`Pin`] names, so that a server
//! of another controller, wherever it came from, can neither read it nor answer it.

mod ask;
mod call;
mod scheme;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{Bell, Limits, Machine, Opening, Operation, Shared};

pub use call::{Announced, BackupMade, Call, Failure, Reply, Token, Training};
pub use scheme::SessionSpec;

use crate::round::RoundReport;
use crate::rounds::RoundLimits;
use crate::wire::Pin;
use ask::TrainAsk;
use scheme::{Server, Session};

/// A client of one training server. Clones share what it announced.
#[derive(Clone)]
pub struct Trainer {
    shared: Arc<Shared<Server>>,
    session: Arc<Session>,
}

/// One of a client's operations; what comes of it is a `T`.
pub type Asking<T, E> = Operation<Server, TrainAsk<T>, E>;

impl Trainer {
    /// Asks the server what is trained, and holds it against the pin. `random` spreads retries.
    pub fn open<E: Send>(
        spec: SessionSpec,
        random: u64,
        bell: Bell,
    ) -> impl Machine<E, Protocol = Training, Output = Self> + use<E> {
        Opening::new(Server(spec), bell, random, |shared| {
            let session = shared.session();
            Self { shared, session }
        })
    }

    /// What is trained, as it was announced when the client was opened and held against the pin.
    pub fn announced(&self) -> &Announced {
        &self.session.announced
    }

    /// The controller that users' messages are sealed to: the pinned one, or the announced one where the client
    /// trusts it; none where nobody has vouched for it.
    pub fn pin(&self) -> Option<Pin> {
        self.session.pin
    }

    /// Asks what is trained, and how far it is.
    pub fn info<E: Send>(&self, random: u64) -> Asking<Box<Announced>, E> {
        self.ask(Call::Info, random, |reply| match reply {
            Reply::Info(announced) => Some(announced),
            _ => None,
        })
    }

    /// Opens a round, of which the number comes. Asked once: where the reply is lost, the round is open.
    pub fn open_round<E: Send>(&self, limits: RoundLimits, random: u64) -> Asking<u64, E> {
        let call = Call::OpenRound { limits, token: self.token() };
        self.ask(call, random, |reply| match reply {
            Reply::Opened(round) => Some(round),
            _ => None,
        })
    }

    /// Begins a round with the users that have come, of which the number comes.
    pub fn close_requests<E: Send>(&self, round: u64, random: u64) -> Asking<usize, E> {
        let call = Call::CloseRequests { round, token: self.token() };
        self.ask(call, random, |reply| match reply {
            Reply::Closed(users) => Some(users),
            _ => None,
        })
    }

    /// Commits a round once it may be, at once where `now`, and waits for that for at most `within`.
    pub fn finish<E: Send>(
        &self,
        round: u64,
        now: bool,
        within: Duration,
        random: u64,
    ) -> Asking<RoundReport, E> {
        let call = Call::Finish { round, now, within, token: self.token() };
        self.ask(call, random, |reply| match reply {
            Reply::Finished(report) => Some(*report),
            _ => None,
        })
    }

    /// Ends a round without an update.
    pub fn abandon<E: Send>(&self, round: u64, random: u64) -> Asking<(), E> {
        self.ask(Call::Abandon { round, token: self.token() }, random, Reply::done)
    }

    /// Has the server write the backup `name`, and waits for that for at most `within`.
    pub fn backup<E: Send>(
        &self,
        name: Arc<str>,
        within: Duration,
        random: u64,
    ) -> Asking<BackupMade, E> {
        let call = Call::Backup { name, within, token: self.token() };
        self.ask(call, random, |reply| match reply {
            Reply::Backup(made) => Some(made),
            _ => None,
        })
    }

    /// Sends a user's sealed request.
    pub fn request<E: Send>(
        &self,
        round: u64,
        user: u32,
        sealed: Bytes,
        random: u64,
    ) -> Asking<(), E> {
        self.ask(Call::Request { round, user, sealed }, random, Reply::done)
    }

    /// Fetches a user's sealed rows, and waits for the round to begin for at most `within`.
    pub fn rows<E: Send>(
        &self,
        round: u64,
        user: u32,
        within: Duration,
        random: u64,
    ) -> Asking<Bytes, E> {
        let reply_bytes = self.session.announced.terms.shape().reply_bytes();
        let call = Call::Rows { round, user, within, reply_bytes };
        self.ask(call, random, |reply| match reply {
            Reply::Rows(sealed) => Some(sealed),
            _ => None,
        })
    }

    /// Sends a user's sealed upload.
    pub fn upload<E: Send>(
        &self,
        round: u64,
        user: u32,
        sealed: Bytes,
        random: u64,
    ) -> Asking<(), E> {
        self.ask(Call::Upload { round, user, sealed }, random, Reply::done)
    }

    fn token(&self) -> Option<Token> {
        self.session.spec.operator_token.clone()
    }

    fn ask<T: Send, E: Send>(
        &self,
        call: Call,
        random: u64,
        read: fn(Reply) -> Option<T>,
    ) -> Asking<T, E> {
        let limits = match call.within() {
            None => Limits::of(self.session.spec.call_max),
            Some(within) => Limits {
                whole: within.max(self.session.spec.call_max),
                may_overrun: true,
                ..Limits::of(self.session.spec.call_max)
            },
        };
        Operation::new(&self.shared, TrainAsk { call, limits, read }, random)
    }
}
