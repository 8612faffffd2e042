//! The client without an asynchronous runtime, for callers such as Python.

use std::process;
use std::sync::{Arc, OnceLock};

use hushtable_table::layout::Layout;
use tokio::runtime::{Builder, Runtime};

use crate::{Bag, ClientSpec, Error, Lookup, LookupClient, TableInfo};

/// A [`LookupClient`] on a runtime of its own. Safe to use from many threads, and in a child after
/// `fork`: the child gets a runtime and connections of its own.
pub struct BlockingClient {
    spec: ClientSpec,
    first: Generation,
}

/// What one process made of the client. A forked child finds its parent's generation, whose threads
/// it does not have and whose sockets it must not touch, and starts its own. Generations form a
/// list of `OnceLock`s: to find one's own takes no lock that a fork could have left taken.
struct Generation {
    process: u32,
    live: OnceLock<Live>,
    next: OnceLock<Box<Generation>>,
}

struct Live {
    runtime: Runtime,
    client: LookupClient,
}

impl Generation {
    fn new(live: OnceLock<Live>) -> Self {
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
        let live = OnceLock::from(Live::connect(&spec)?);
        Ok(Self { spec, first: Generation::new(live) })
    }

    /// As [`LookupClient::info`].
    ///
    /// # Errors
    /// In a forked child at its first use, as [`connect`](Self::connect).
    pub fn info(&self) -> Result<TableInfo, Error> {
        Ok(self.live()?.client.info())
    }

    /// As [`LookupClient::lookup`].
    ///
    /// # Errors
    /// As [`LookupClient::lookup`], and in a forked child at its first use as
    /// [`connect`](Self::connect).
    pub fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<Lookup, Error> {
        let live = self.live()?;
        live.runtime.block_on(live.client.lookup(ids, max_ids))
    }

    /// As [`LookupClient::layout`].
    ///
    /// # Errors
    /// As [`LookupClient::layout`], and in a forked child at its first use as
    /// [`connect`](Self::connect).
    pub fn layout(&self) -> Result<Option<Arc<Layout>>, Error> {
        self.live()?.client.layout()
    }

    /// As [`LookupClient::fetch_bag`].
    ///
    /// # Errors
    /// As [`LookupClient::fetch_bag`], and in a forked child at its first use as
    /// [`connect`](Self::connect).
    pub fn fetch_bag(&self, ids: &[u64]) -> Result<Bag, Error> {
        let live = self.live()?;
        live.runtime.block_on(live.client.fetch_bag(ids))
    }

    fn live(&self) -> Result<&Live, Error> {
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

impl Live {
    fn connect(spec: &ClientSpec) -> Result<Self, Error> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("hushtable-client")
            .enable_all()
            .build()
            .map_err(|source| Error::Io { what: "start the client's thread".into(), source })?;
        let client = runtime.block_on(LookupClient::connect(spec))?;
        Ok(Self { runtime, client })
    }
}

impl Drop for BlockingClient {
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
