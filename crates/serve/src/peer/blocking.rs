//! The clients without an asynchronous runtime, for callers such as Python.

use std::process;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hushtable_oram::wire::{Credential, UserSession};
use hushtable_table::layout::Layout;
use tokio::runtime::{Builder, Runtime};

use crate::{Bag, ClientSpec, Error, Lookup, LookupClient, TableInfo};
use crate::{OnionClient, OnionClientSpec, OnionInfo};
use crate::{RoundReport, RoundSpec, TrainClient, TrainClientSpec, TrainInfo};

/// A [`LookupClient`] on a runtime of its own. Safe to use from many threads, and in a child after
/// `fork`: the child gets a runtime and connections of its own.
pub struct BlockingClient(Forked<LookupClient>);

/// An [`OnionClient`] on a runtime of its own, with the same safety as [`BlockingClient`]. A forked
/// child makes and uploads keys of its own.
pub struct BlockingOnionClient(Forked<OnionClient>);

/// A [`TrainClient`] on a runtime of its own, with the same safety as [`BlockingClient`].
pub struct BlockingTrainClient(Forked<TrainClient>);

/// A client that connects as its spec says.
trait Connect: Sized {
    type Spec;

    fn connect(spec: &Self::Spec) -> impl Future<Output = Result<Self, Error>>;
}

impl Connect for LookupClient {
    type Spec = ClientSpec;

    fn connect(spec: &ClientSpec) -> impl Future<Output = Result<Self, Error>> {
        Self::connect(spec)
    }
}

impl Connect for OnionClient {
    type Spec = OnionClientSpec;

    fn connect(spec: &OnionClientSpec) -> impl Future<Output = Result<Self, Error>> {
        Self::connect(spec)
    }
}

impl Connect for TrainClient {
    type Spec = TrainClientSpec;

    fn connect(spec: &TrainClientSpec) -> impl Future<Output = Result<Self, Error>> {
        Self::connect(spec)
    }
}

/// A client with its runtime, one for each process.
struct Forked<C: Connect> {
    spec: C::Spec,
    first: Generation<C>,
}

/// What one process made of the client. A forked child finds its parent's generation, whose threads
/// it does not have and whose sockets it must not touch, and starts its own. Generations form a
/// list of `OnceLock`s: to find one's own takes no lock that a fork could have left taken.
struct Generation<C> {
    process: u32,
    live: OnceLock<Live<C>>,
    next: OnceLock<Box<Self>>,
}

struct Live<C> {
    runtime: Runtime,
    client: C,
}

impl<C> Generation<C> {
    fn new(live: OnceLock<Live<C>>) -> Self {
        Self { process: process::id(), live, next: OnceLock::new() }
    }

    fn own(&self) -> &Self {
        let mut generation = self;
        while generation.process != process::id() {
            generation = generation.next.get_or_init(|| Box::new(Self::new(OnceLock::new())));
        }
        generation
    }
}

impl BlockingClient {
    /// As [`LookupClient::connect`].
    ///
    /// # Errors
    /// As [`LookupClient::connect`], and [`Error::Io`] where the system gives no thread.
    pub fn connect(spec: ClientSpec) -> Result<Self, Error> {
        Forked::connect(spec).map(Self)
    }

    /// As [`LookupClient::info`].
    ///
    /// # Errors
    /// In a forked child at its first use, as [`connect`](Self::connect).
    pub fn info(&self) -> Result<TableInfo, Error> {
        Ok(self.0.live()?.client.info())
    }

    /// As [`LookupClient::lookup`].
    ///
    /// # Errors
    /// As [`LookupClient::lookup`], and in a forked child at its first use as
    /// [`connect`](Self::connect).
    pub fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<Lookup, Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.lookup(ids, max_ids))
    }

    /// As [`LookupClient::layout`].
    ///
    /// # Errors
    /// As [`LookupClient::layout`], and in a forked child at its first use as
    /// [`connect`](Self::connect).
    pub fn layout(&self) -> Result<Option<Arc<Layout>>, Error> {
        self.0.live()?.client.layout()
    }

    /// As [`LookupClient::fetch_bag`].
    ///
    /// # Errors
    /// As [`LookupClient::fetch_bag`], and in a forked child at its first use as
    /// [`connect`](Self::connect).
    pub fn fetch_bag(&self, ids: &[u64]) -> Result<Bag, Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.fetch_bag(ids))
    }
}

impl BlockingOnionClient {
    /// As [`OnionClient::connect`].
    ///
    /// # Errors
    /// As [`OnionClient::connect`], and [`Error::Io`] where the system gives no thread.
    pub fn connect(spec: OnionClientSpec) -> Result<Self, Error> {
        Forked::connect(spec).map(Self)
    }

    /// As [`OnionClient::info`].
    ///
    /// # Errors
    /// In a forked child at its first use, as [`connect`](Self::connect).
    pub fn info(&self) -> Result<OnionInfo, Error> {
        Ok(self.0.live()?.client.info())
    }

    /// As [`OnionClient::lookup`].
    ///
    /// # Errors
    /// As [`OnionClient::lookup`], and in a forked child at its first use as
    /// [`connect`](Self::connect).
    pub fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<Lookup, Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.lookup(ids, max_ids))
    }
}

/// Every method is as the one of [`TrainClient`] of its name; in a forked child the first of them
/// connects, with the errors of that.
#[allow(clippy::missing_errors_doc, reason = "said once, above")]
impl BlockingTrainClient {
    /// As [`TrainClient::connect`].
    pub fn connect(spec: TrainClientSpec) -> Result<Self, Error> {
        Forked::connect(spec).map(Self)
    }

    /// As [`TrainClient::info`].
    pub fn info(&self) -> Result<TrainInfo, Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.info())
    }

    /// As [`TrainClient::open_round`].
    pub fn open_round(&self, spec: RoundSpec) -> Result<u64, Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.open_round(spec))
    }

    /// As [`TrainClient::close_requests`].
    pub fn close_requests(&self, round: u64) -> Result<usize, Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.close_requests(round))
    }

    /// As [`TrainClient::finish`].
    pub fn finish(&self, round: u64, now: bool, within: Duration) -> Result<RoundReport, Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.finish(round, now, within))
    }

    /// As [`TrainClient::abandon`].
    pub fn abandon(&self, round: u64) -> Result<(), Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.abandon(round))
    }

    /// As [`TrainClient::session`].
    pub fn session(
        &self,
        round: u64,
        user: u32,
        credential: Option<&Credential>,
    ) -> Result<UserSession, Error> {
        self.0.live()?.client.session(round, user, credential)
    }

    /// As [`TrainClient::request`].
    pub fn request(&self, round: u64, user: u32, sealed: Bytes) -> Result<(), Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.request(round, user, sealed))
    }

    /// As [`TrainClient::rows`].
    pub fn rows(&self, round: u64, user: u32, within: Duration) -> Result<Bytes, Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.rows(round, user, within))
    }

    /// As [`TrainClient::upload`].
    pub fn upload(&self, round: u64, user: u32, sealed: Bytes) -> Result<(), Error> {
        let live = self.0.live()?;
        live.runtime.block_on(live.client.upload(round, user, sealed))
    }
}

impl<C: Connect> Forked<C> {
    fn connect(spec: C::Spec) -> Result<Self, Error> {
        let live = OnceLock::from(Live::connect(&spec)?);
        Ok(Self { spec, first: Generation::new(live) })
    }

    fn live(&self) -> Result<&Live<C>, Error> {
        let generation = self.first.own();
        if let Some(live) = generation.live.get() {
            return Ok(live);
        }
        let live = Live::connect(&self.spec)?;
        // Another thread may have been faster: then this one's connections close again.
        if let Err(late) = generation.live.set(live) {
            late.runtime.shutdown_background();
        }
        generation.live.get().map_or_else(|| unreachable!("it was set just now"), Ok)
    }
}

impl<C: Connect> Live<C> {
    fn connect(spec: &C::Spec) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("hushtable-client")
            .enable_all()
            .build()
            .map_err(|source| Error::Io { what: "start the client's thread".into(), source })?;
        let client = runtime.block_on(C::connect(spec))?;
        Ok(Self { runtime, client })
    }
}

impl<C: Connect> Drop for Forked<C> {
    fn drop(&mut self) {
        // A parent's runtime must not be shut down in its child: there are no threads to join.
        let mut generation = Some(&mut self.first);
        while let Some(this) = generation {
            if let Some(live) = this.live.take() {
                match this.process == process::id() {
                    true => live.runtime.shutdown_background(),
                    false => std::mem::forget(live),
                }
            }
            generation = this.next.get_mut().map(|next| &mut **next);
        }
    }
}
