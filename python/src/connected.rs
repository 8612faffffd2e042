//! A client that threads and forked children share: its connections, its thread, its end.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::errors::Failure;

/// A client that connects as its spec says.
pub(crate) trait Connect: Sized + Send + Sync + 'static {
    /// Whom to connect to, and how.
    type Spec: Send + Sync + 'static;

    /// Connects, with the error that a caller of `hushtable.connect` should see.
    fn connect(spec: &Self::Spec) -> impl Future<Output = Result<Self, Failure>> + Send;
}

/// A client and what it was connected by: in a forked child it connects anew, at its first use.
pub(crate) struct Connected<C: Connect> {
    spec: C::Spec,
    // Only locked by threads that hold the interpreter lock, and never across a call that lets go
    // of it: a fork, which takes the interpreter lock too, can then not copy it locked.
    session: Mutex<Option<Arc<Session<C>>>>,
}

impl<C: Connect> Connected<C> {
    /// Connects now.
    pub(crate) fn open(py: Python<'_>, spec: C::Spec) -> PyResult<Self> {
        let session = Session::<C>::open(py, &spec)?;
        Ok(Self { spec, session: Mutex::new(Some(Arc::new(session))) })
    }

    /// This process's session.
    pub(crate) fn session(&self, py: Python<'_>) -> PyResult<Arc<Session<C>>> {
        let Some(found) = self.locked().clone() else {
            return Err(Failure::config("the client is closed: connect again").into());
        };
        if found.is_own() {
            return Ok(found);
        }
        let own = Arc::new(Session::open(py, &self.spec)?);
        // Another thread may have connected meanwhile: the last one stays, the other closes when
        // its calls are done.
        *self.locked() = Some(Arc::clone(&own));
        Ok(own)
    }

    /// Starts `call` on the client's thread. What it ends with becomes Python's objects by `finish`
    /// once the interpreter is at hand, and goes to `done(result, error)`.
    pub(crate) fn start<F, T, E>(
        &self,
        py: Python<'_>,
        done: Py<PyAny>,
        call: impl FnOnce(Arc<C>) -> F,
        finish: impl FnOnce(Python<'_>, T) -> PyResult<Py<PyAny>> + Send + 'static,
    ) -> PyResult<NativeCall>
    where
        F: Future<Output = Result<T, E>> + Send + 'static,
        T: Send + 'static,
        E: Into<Failure> + Send + 'static,
    {
        let session = self.session(py)?;
        let call = call(Arc::clone(session.client()));
        let task = session.spawn(async move {
            let result = call.await;
            // An interpreter that is shutting down waits for no call.
            Python::try_attach(|py| {
                let result = result.map_err(|error| PyErr::from(error.into()));
                let called = match result.and_then(|result| finish(py, result)) {
                    Ok(result) => done.call1(py, (result, py.None())),
                    Err(error) => done.call1(py, (py.None(), error)),
                };
                if let Err(error) = called {
                    error.write_unraisable(py, None);
                }
            });
        });
        Ok(NativeCall { task })
    }

    /// Closes the connections; calls under way finish.
    pub(crate) fn close(&self) {
        self.locked().take();
    }

    fn locked(&self) -> MutexGuard<'_, Option<Arc<Session<C>>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Connections, and the thread that looks after them.
pub(crate) struct Session<C> {
    process: u32,
    // Empty only while it is dropped.
    live: Option<(Runtime, Arc<C>)>,
}

impl<C> Session<C> {
    fn open(py: Python<'_>, spec: &C::Spec) -> PyResult<Self>
    where
        C: Connect,
    {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("hushtable-client")
            .enable_all()
            .build()
            .map_err(|error| Failure::new("Error", format!("no thread for a client: {error}")))?;
        match run(py, &runtime, C::connect(spec)) {
            Ok(client) => {
                Ok(Self { process: process::id(), live: Some((runtime, Arc::new(client))) })
            }
            Err(error) => {
                // A name that is still looked up must not hold whoever has given up.
                runtime.shutdown_background();
                Err(error)
            }
        }
    }

    /// Whether this process made the connections: a forked child has neither their thread nor the
    /// right to their sockets.
    fn is_own(&self) -> bool {
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

    fn spawn(&self, call: impl Future<Output = ()> + Send + 'static) -> AbortHandle {
        self.live().0.spawn(call).abort_handle()
    }

    /// Makes a call by [`run`].
    pub(crate) fn run<T: Send, E: Into<Failure> + Send>(
        &self,
        py: Python<'_>,
        call: impl Future<Output = Result<T, E>> + Send,
    ) -> PyResult<T> {
        run(py, &self.live().0, call)
    }
}

/// Makes a call on the calling thread, which turns to the interpreter's signals now and then.
pub(crate) fn run<T: Send, E: Into<Failure> + Send>(
    py: Python<'_>,
    runtime: &Runtime,
    call: impl Future<Output = Result<T, E>> + Send,
) -> PyResult<T> {
    let mut call = Box::pin(call);
    loop {
        let turn =
            py.detach(|| runtime.block_on(async { timeout(SIGNALS_EVERY, call.as_mut()).await }));
        match turn {
            Ok(result) => return Ok(result.map_err(Into::into)?),
            Err(_) => py.check_signals()?,
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

/// A call under way.
#[pyclass(frozen, module = "hushtable._native", name = "Call")]
pub(crate) struct NativeCall {
    task: AbortHandle,
}

#[pymethods]
impl NativeCall {
    /// Gives the call up; its callback may still be called.
    fn cancel(&self) {
        self.task.abort();
    }
}

const SIGNALS_EVERY: Duration = Duration::from_millis(100);
