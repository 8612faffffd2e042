//! The clients without an asynchronous runtime, for callers such as Python.

use std::process;
use std::sync::{Arc, OnceLock};

use hushtable_table::layout::Layout;
use tokio::runtime::{Builder, Runtime};

use crate::{Bag, ClientSpec, Error, Lookup, LookupClient, TableInfo};
use crate::{OnionClient, OnionClientSpec, OnionInfo};

/// A [`LookupClient`] on a runtime of its own. Safe to use from many threads, and in a child after
/// `fork`: the child gets a runtime and connections of its own.
pub struct BlockingClient(Forked<LookupClient>);

/// An [`OnionClient`] on a runtime of its own, with the same safety as [`BlockingClient`]. A forked
/// child makes and uploads keys of its own.
pub struct BlockingOnionClient(Forked<OnionClient>);

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
