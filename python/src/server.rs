//! Servers, and the certificates that local ones need.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use hushtable_pir::dpf::Side;
use hushtable_serve::certificate::{CertificatePem, LocalCa, Validity, validities};
use hushtable_serve::host::Reload;
use hushtable_serve::{
    BoundServer, Error, Owner, front_name, peer_name, raise_file_limit, shard_name,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;
use serde::de::DeserializeOwned;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::asked::Finish;
use crate::errors::Failure;
use crate::schemes::SCHEMES;

/// A server on threads of its own.
#[pyclass(frozen, subclass, module = "hushtable._native", name = "Server")]
pub(crate) struct NativeServer {
    running: Running,
    /// What it serves, as its scheme says it.
    #[pyo3(get)]
    facts: Py<PyAny>,
}

/// A server's thread, and what it tells.
pub(crate) struct Running {
    addr: SocketAddr,
    metrics_addr: Option<SocketAddr>,
    progress: Arc<Progress>,
    engine: Arc<OnceLock<String>>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    reload: Reload,
    events: Mutex<Receiver<Event>>,
}

/// Work at a server's start that is done, and all of it.
#[derive(Default)]
pub(crate) struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

/// What a server's thread tells.
enum Event {
    Bound(SocketAddr, Option<SocketAddr>, Arc<OnceLock<String>>, Reload),
    Ready,
    Failed(Failure),
    Stopped,
}

/// Starts the server of a scheme that its spec in JSON describes, without the interpreter.
pub(crate) type Serve = fn(&str) -> Result<Started, Failure>;

/// A server that runs, and what makes its facts once the interpreter is at hand.
pub(crate) type Started = (Running, Finish);

#[pymethods]
impl NativeServer {
    /// Starts the server of `scheme` that `spec` describes: its spec of `hushtable_serve` in JSON.
    #[new]
    fn new(py: Python<'_>, scheme: &str, spec: &str) -> PyResult<Self> {
        let known = SCHEMES.iter().find(|known| known.name == scheme);
        let serve = known.and_then(|scheme| scheme.serve);
        let serve = serve.ok_or_else(|| Failure::config(format!("no server is of {scheme:?}")))?;
        let (running, facts) = py.detach(|| serve(spec))?;
        Self::of(py, running, facts)
    }

    /// Where calls are answered.
    #[getter]
    fn addr(&self) -> String {
        self.running.addr.to_string()
    }

    /// Where metrics and probes are answered.
    #[getter]
    fn metrics_addr(&self) -> Option<String> {
        self.running.metrics_addr.map(|addr| addr.to_string())
    }

    /// What answers lookups, in a line; None until a server of a pair is ready, and of others.
    #[getter]
    fn engine(&self) -> Option<String> {
        self.running.engine.get().cloned()
    }

    /// `(done, all)`: bytes of the table that a single server has prepared since its start, or work
    /// of opening a controller; zeros where nothing has to be done.
    #[getter]
    fn progress(&self) -> (u64, u64) {
        let Progress { done, all } = &*self.running.progress;
        (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed))
    }

    /// Waits up to `seconds` for news: "ready", "stopped", or None.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<&'static str>> {
        let limit = Duration::try_from_secs_f64(seconds).map_err(Failure::config)?;
        let event = py.detach(|| match self.running.events.lock() {
            Ok(events) => events.recv_timeout(limit),
            Err(_) => Err(RecvTimeoutError::Disconnected),
        });
        match event {
            Ok(Event::Ready) => Ok(Some("ready")),
            Ok(Event::Failed(failure)) => Err(failure.into()),
            Ok(Event::Stopped) | Err(RecvTimeoutError::Disconnected) => Ok(Some("stopped")),
            Ok(Event::Bound(..)) | Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    /// Has the server see what its bundles and its certificate's files hold now. Returns at once; metrics and the
    /// log tell what came of it.
    fn reload(&self) {
        self.running.reload.ask();
    }

    /// Starts to drain; `wait` tells when that is done.
    fn stop(&self) {
        if let Ok(mut stop) = self.running.stop.lock()
            && let Some(stop) = stop.take()
        {
            // A server that is gone needs no telling.
            let _ = stop.send(());
        }
    }
}

impl Progress {
    pub(crate) fn tell(&self, done: u64, all: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }
}

impl NativeServer {
    pub(crate) fn of(py: Python<'_>, running: Running, facts: Finish) -> PyResult<Self> {
        Ok(Self { running, facts: facts(py)? })
    }
}

/// A spec, of JSON.
pub(crate) fn spec<T: DeserializeOwned>(json: &str) -> Result<T, Failure> {
    serde_json::from_str(json).map_err(Failure::config)
}

/// Runs what `bind` binds on a thread of its own, once its ports are there.
pub(crate) fn start<F, T>(
    bind: impl FnOnce() -> F + Send + 'static,
    io_threads: usize,
    progress: Arc<Progress>,
    facts: T,
) -> Result<Started, Failure>
where
    F: Future<Output = Result<BoundServer, Error>>,
    T: for<'py> IntoPyObject<'py> + Send + 'static,
{
    let running = Running::launch(bind, io_threads, progress)?;
    Ok((running, Box::new(move |py| facts.into_py_any(py))))
}

impl Running {
    fn launch<F>(
        bind: impl FnOnce() -> F + Send + 'static,
        io_threads: usize,
        progress: Arc<Progress>,
    ) -> Result<Self, Failure>
    where
        F: Future<Output = Result<BoundServer, Error>>,
    {
        raise_file_limit();
        let (stop, stopped) = oneshot::channel();
        let (news, events) = channel();
        let failed = |error| Failure::new("Error", format!("no thread for a server: {error}"));
        let run = move || {
            let end = match run(bind, io_threads, stopped, &news) {
                Ok(()) => Event::Stopped,
                Err(failure) => Event::Failed(failure),
            };
            drop(news.send(end));
        };
        thread::Builder::new().name("hushtable-server".into()).spawn(run).map_err(failed)?;
        match events.recv() {
            Ok(Event::Bound(addr, metrics_addr, engine, reload)) => Ok(Self {
                addr,
                metrics_addr,
                progress,
                engine,
                stop: Mutex::new(Some(stop)),
                reload,
                events: Mutex::new(events),
            }),
            Ok(Event::Failed(failure)) => Err(failure),
            _ => Err(Failure::new("Error", "the server ended at its start")),
        }
    }
}

/// Serves on this thread until `stopped` is sent to or dropped. That nobody listens to the news is
/// no error: the handle was dropped, and with it the sender of `stopped`.
fn run<F>(
    bind: impl FnOnce() -> F,
    io_threads: usize,
    stopped: oneshot::Receiver<()>,
    news: &Sender<Event>,
) -> Result<(), Failure>
where
    F: Future<Output = Result<BoundServer, Error>>,
{
    let mut builder = match io_threads {
        1 => Builder::new_current_thread(),
        _ => Builder::new_multi_thread(),
    };
    let runtime = builder
        .worker_threads(io_threads)
        .enable_all()
        .build()
        .map_err(|error| Failure::new("Error", format!("no runtime for a server: {error}")))?;
    runtime.block_on(async {
        let bound = bind().await?;
        let engine = Arc::clone(&bound.engine);
        drop(news.send(Event::Bound(bound.addr, bound.metrics_addr, engine, bound.reload())));
        let (ready, news) = (bound.ready(), news.clone());
        tokio::spawn(async move {
            ready.await;
            drop(news.send(Event::Ready));
        });
        let shutdown = async { drop(stopped.await) };
        Ok(bound.run(shutdown).await?)
    })
}

/// A certificate and its key, PEM.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct PemPair {
    certificate: String,
    key: String,
}

/// What a new local authority issued.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct IssuedPems {
    /// The authority's own certificate.
    ca: String,
    server: PemPair,
    client: PemPair,
    /// Of a side's shards, and of its fronts as their clients; None where no side was named.
    shard: Option<PemPair>,
    front: Option<PemPair>,
    /// What left or right shows the other one; None of no side, or of servers that are asked alone.
    peer: Option<PemPair>,
}

/// Has the system end this process with the thread that started it.
#[pyfunction]
pub(crate) fn exit_with_parent() -> PyResult<()> {
    Ok(hushtable_serve::exit_with_parent().map_err(Failure::from)?)
}

/// A certificate's subject, names, and the seconds since 1970 between which it may be used.
type ValidityFacts = (String, Vec<String>, i64, i64);

/// What each certificate of `pem` says of itself: subject, names, and the seconds since 1970 between which it may
/// be used. `source` names it in errors.
#[pyfunction]
pub(crate) fn certificate_validities(pem: &[u8], source: &str) -> PyResult<Vec<ValidityFacts>> {
    let found = validities(pem, source).map_err(Failure::from)?;
    let facts =
        |found: Validity| (found.subject, found.names, found.not_before_s, found.not_after_s);
    Ok(found.into_iter().map(facts).collect())
}

/// A new local authority, with a certificate for a server of `names` and one for a client; and, of a `side`, those
/// that its shards and its fronts show each other, and the one by which left and right know each other: left's as a
/// client, for left calls; right's as a server.
#[pyfunction]
#[pyo3(signature = (names, side=None))]
pub(crate) fn make_certificates(
    py: Python<'_>,
    names: Vec<String>,
    side: Option<&str>,
) -> PyResult<IssuedPems> {
    let owner: Option<Owner> = side.map(str::parse).transpose().map_err(Failure::config)?;
    let made = py.detach(|| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ca = LocalCa::new()?;
        let server = ca.issue_server(&names)?;
        let client = ca.issue_client("hushtable client")?;
        let pair = |pem: CertificatePem| PemPair { certificate: pem.cert, key: pem.key };
        let (mut shard, mut front, mut peer) = (None, None, None);
        if let Some(owner) = owner {
            let role = shard_name(owner);
            let mut of_shard = names.clone();
            of_shard.push(&role);
            shard = Some(pair(ca.issue_server(&of_shard)?));
            front = Some(pair(ca.issue_client(&front_name(owner))?));
            peer = match owner {
                Owner::Side(Side::Left) => Some(pair(ca.issue_client(&peer_name(Side::Left))?)),
                Owner::Side(Side::Right) => {
                    let role = peer_name(Side::Right);
                    let of_right: Vec<&str> = names.iter().copied().chain([&role[..]]).collect();
                    Some(pair(ca.issue_server(&of_right)?))
                }
                Owner::Single => None,
            };
        }
        let (ca, server, client) = (ca.cert_pem(), pair(server), pair(client));
        Ok::<_, Error>(IssuedPems { ca, server, client, shard, front, peer })
    });
    Ok(made.map_err(Failure::from)?)
}
