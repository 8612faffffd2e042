//! A client that threads and forked children share: its connections, its thread, its end.

use std::process;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hushtable_serve::{Deadline, Error as ServeError};
use pyo3::prelude::*;
use tokio::runtime::{Builder, Runtime};
use tokio::task::AbortHandle;
use tokio::time::timeout;

use crate::asked::Answer;
use crate::errors::Failure;

/// A client that connects as its spec says.
pub(crate) trait Connect: Sized + Send + Sync + 'static {
    /// Whom to connect to, and how.
    type Spec: Send + Sync + 'static;

    /// Connects.
    fn connect(spec: &Self::Spec) -> impl Future<Output = Result<Self, ServeError>> + Send;
}

/// A client and what it was connected by: in a forked child it connects anew, at its first use.
pub(crate) struct Connected<C: Connect> {
    spec: C::Spec,
    // Whether servers that ask for a certificate are shown one: what a connection that they close is about.
    has_certificate: bool,
    // Only locked by threads that hold the interpreter lock, and never across a call that lets go
    // of it: a fork, which takes the interpreter lock too, can then not copy it locked.
    session: Mutex<Option<Arc<Session<C>>>>,
}

impl<C: Connect> Connected<C> {
    /// Connects now.
    pub(crate) fn open(py: Python<'_>, spec: C::Spec, has_certificate: bool) -> PyResult<Self> {
        let session = Session::<C>::open(py, &spec, has_certificate, None)?;
        Ok(Self { spec, has_certificate, session: Mutex::new(Some(Arc::new(session))) })
    }

    /// This process's session.
    pub(crate) fn session(&self, py: Python<'_>) -> PyResult<Arc<Session<C>>> {
        self.session_by(py, None)
    }

    /// This process's session; made by the deadline, where there is none yet.
    pub(crate) fn session_by(
        &self,
        py: Python<'_>,
        deadline: Option<Deadline>,
    ) -> PyResult<Arc<Session<C>>> {
        let Some(found) = self.locked().clone() else {
            return Err(Failure::config("the client is closed: connect again").into());
        };
        if found.is_own() {
            return Ok(found);
        }
        let own = Arc::new(Session::open(py, &self.spec, self.has_certificate, deadline)?);
        // Another thread may have connected meanwhile: the last one stays, the other closes when
        // its calls are done.
        *self.locked() = Some(Arc::clone(&own));
        Ok(own)
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
    fn open(
        py: Python<'_>,
        spec: &C::Spec,
        has_certificate: bool,
        deadline: Option<Deadline>,
    ) -> PyResult<Self>
    where
        C: Connect,
    {
        let runtime = Builder::new_multi_thread()
            .worker_threads(1)
            .thread_name("hushtable-client")
            .enable_all()
            .build()
            .map_err(|error| Failure::new("Error", format!("no thread for a client: {error}")))?;
        let connecting = async {
            let connected = match deadline {
                Some(deadline) => deadline.hold(C::connect(spec)).await,
                None => C::connect(spec).await,
            };
            connected.map_err(|error| Failure::at_connect(error, has_certificate))
        };
        match run(py, &runtime, connecting) {
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

    /// Starts `call` on the client's thread; what it ends with goes to `done(result, error)`.
    pub(crate) fn start(&self, done: Py<PyAny>, call: Answer<'static>) -> NativeCall {
        let called = async move {
            let result = call.await;
            // An interpreter that is shutting down waits for no call.
            Python::try_attach(|py| {
                let result = result.map_err(PyErr::from);
                let called = match result.and_then(|finish| finish(py)) {
                    Ok(result) => done.call1(py, (result, py.None())),
                    Err(error) => done.call1(py, (py.None(), error)),
                };
                if let Err(error) = called {
                    error.write_unraisable(py, None);
                }
            });
        };
        NativeCall { task: self.live().0.spawn(called).abort_handle() }
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
