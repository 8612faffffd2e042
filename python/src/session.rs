//! A connected client, and the process that it is connected in.

use std::process;
use std::sync::Arc;
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::errors::Failure;
use crate::lookups::Lookups;

/// Connections, and the thread that looks after them.
pub(crate) struct Session<C = Lookups> {
    process: u32,
    // Empty only while it is dropped.
    live: Option<(Runtime, Arc<C>)>,
}

impl<C> Session<C> {
    pub(crate) fn open(connect: impl Future<Output = Result<C, Failure>>) -> Result<Self, Failure> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("hushtable-client")
            .enable_all()
            .build()
            .map_err(|error| Failure::new("Error", format!("no thread for a client: {error}")))?;
        let client = runtime.block_on(connect)?;
        Ok(Self { process: process::id(), live: Some((runtime, Arc::new(client))) })
    }

    /// Whether this process made the connections: a forked child has neither their thread nor the
    /// right to their sockets.
    pub(crate) fn is_own(&self) -> bool {
        self.process == process::id()
    }

    pub(crate) fn client(&self) -> &Arc<C> {
        &self.live().1
    }

    fn live(&self) -> &(Runtime, Arc<C>) {
        match &self.live {
            Some(live) => live,
            None => unreachable!("a session is emptied when it is dropped"),
        }
    }

    /// Makes a call on the session's thread.
    pub(crate) fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.live().0.spawn(call).abort_handle()
    }

    /// Makes a call on the calling thread, which turns to the interpreter's signals now and then.
    pub(crate) fn run<T: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> PyResult<T> {
        let runtime = &self.live().0;
        let mut call = Box::pin(call);
        loop {
            let turn = py
                .detach(|| runtime.block_on(async { timeout(SIGNALS_EVERY, call.as_mut()).await }));
            match turn {
                Ok(result) => return Ok(result.map_err(Into::into)?),
                Err(_) => py.check_signals()?,
            }
        }
    }
}

impl<C> Drop for Session<C> {
    fn drop(&mut self) {
        match self.live.take() {
            Some((runtime, _)) if self.is_own() => runtime.shutdown_background(),
            // Shutting a parent's runtime down would wait for threads that are not here.
            live => std::mem::forget(live),
        }
    }
}

const SIGNALS_EVERY: Duration = Duration::from_millis(100);
