//! Servers, and the certificates that local ones need.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use hushtable_pir::dpf::Side;
use hushtable_serve::certificate::{CertificatePem, LocalCa, Validity, validities};
use hushtable_serve::host::Reload;
use hushtable_serve::{
    BoundServer, CkksServer, CkksServerSpec, ControllerPlace, CounterSpec, Error, HybridServer,
    HybridServerSpec, OnionServer, OnionServerSpec, Owner, Server, ServerSpec, SharesServer,
    SharesServerSpec, TrainServer, TrainServerSpec, front_name, peer_name, raise_file_limit,
    shard_name,
};
use hushtable_table::Table;
use hushtable_table::model::{ModelManifest, places};
use pyo3::prelude::*;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::errors::Failure;
use crate::facts::{LayoutFacts, ModelFacts, OnionFacts, TableFacts};
use crate::prepare::parameter_set;
use crate::schemes::ckks::CkksFacts;
use crate::schemes::hybrid::HybridFacts;
use crate::schemes::shares::SharesFacts;

/// A server on threads of its own: what all kinds of them have.
#[pyclass(frozen, subclass, module = "hushtable._native", name = "Server")]
pub(crate) struct NativeServer {
    addr: SocketAddr,
    metrics_addr: Option<SocketAddr>,
    progress: Arc<Progress>,
    engine: Arc<OnceLock<String>>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    reload: Reload,
    events: Mutex<Receiver<Event>>,
}

/// A server of a pair.
#[pyclass(frozen, get_all, extends = NativeServer, module = "hushtable._native", name = "PairServer")]
pub(crate) struct NativePairServer {
    /// Of bundles of tables.
    tables: Vec<TableFacts>,
    /// Of bundles of models.
    models: Vec<ModelFacts>,
    /// Of the table, where there is one alone.
    layout: Option<LayoutFacts>,
}

/// A single server.
#[pyclass(frozen, get_all, extends = NativeServer, module = "hushtable._native", name = "OnionServer")]
pub(crate) struct NativeOnionServer {
    /// Of bundles of tables.
    tables: Vec<TableFacts>,
    /// Of bundles of models.
    models: Vec<ModelFacts>,
    /// What a lookup in the first table costs.
    onion: Option<OnionFacts>,
}

/// A server of encrypted inference.
#[pyclass(frozen, get_all, extends = NativeServer, module = "hushtable._native", name = "CkksServer")]
pub(crate) struct NativeCkksServer {
    info: CkksFacts,
}

/// A server of hybrid inference.
#[pyclass(frozen, get_all, extends = NativeServer, module = "hushtable._native", name = "HybridServer")]
pub(crate) struct NativeHybridServer {
    info: HybridFacts,
}

/// A server of predictions on shares.
#[pyclass(frozen, get_all, extends = NativeServer, module = "hushtable._native", name = "SharesServer")]
pub(crate) struct NativeSharesServer {
    info: SharesFacts,
}

/// A server of training rounds.
#[pyclass(frozen, get_all, extends = NativeServer, module = "hushtable._native", name = "TrainServer")]
pub(crate) struct NativeTrainServer {
    /// The table's name.
    table: String,
    /// What users know the controller by.
    pin: String,
}

/// Work at a server's start that is done, and all of it.
#[derive(Default)]
struct Progress {
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

#[pymethods]
impl NativeServer {
    /// Where calls are answered.
    #[getter]
    fn addr(&self) -> String {
        self.addr.to_string()
    }

    /// Where metrics and probes are answered.
    #[getter]
    fn metrics_addr(&self) -> Option<String> {
        self.metrics_addr.map(|addr| addr.to_string())
    }

    /// What answers lookups, in a line; None until a server of a pair is ready, and of others.
    #[getter]
    fn engine(&self) -> Option<String> {
        self.engine.get().cloned()
    }

    /// `(done, all)`: bytes of the table that a single server has prepared since its start, or work
    /// of opening a controller; zeros where nothing has to be done.
    #[getter]
    fn progress(&self) -> (u64, u64) {
        let Progress { done, all } = &*self.progress;
        (done.load(Ordering::Relaxed), all.load(Ordering::Relaxed))
    }

    /// Waits up to `seconds` for news: "ready", "stopped", or None.
    fn wait(&self, py: Python<'_>, seconds: f64) -> PyResult<Option<&'static str>> {
        let limit = Duration::try_from_secs_f64(seconds).map_err(Failure::config)?;
        let event = py.detach(|| match self.events.lock() {
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
        self.reload.ask();
    }

    /// Starts to drain; `wait` tells when that is done.
    fn stop(&self) {
        if let Ok(mut stop) = self.stop.lock()
            && let Some(stop) = stop.take()
        {
            // A server that is gone needs no telling.
            let _ = stop.send(());
        }
    }
}

#[pymethods]
impl NativePairServer {
    /// Starts the server that `spec` describes: `hushtable_serve::ServerSpec` in JSON.
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<PyClassInitializer<Self>> {
        let spec: ServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        let started = py.detach(|| {
            let paths: Vec<_> = [&spec.table].into_iter().chain(&spec.tables).cloned().collect();
            let io_threads = spec.io_threads;
            let server = Server::open(spec)?;
            let (tables, models, layout) = held(&paths)?;
            let served = Self { tables, models, layout };
            let running = NativeServer::launch(|| server.bind(), io_threads, Arc::default())?;
            Ok::<_, Failure>((running, served))
        });
        let (running, served) = started?;
        Ok(PyClassInitializer::from(running).add_subclass(served))
    }
}

/// What is in bundles that a server has opened and checked; the layout is of the table, where there is
/// one alone.
#[allow(clippy::type_complexity, reason = "used in two places, beside each other")]
fn held(
    paths: &[PathBuf],
) -> Result<(Vec<TableFacts>, Vec<ModelFacts>, Option<LayoutFacts>), Failure> {
    let (mut tables, mut models) = (Vec::new(), Vec::new());
    for path in paths {
        match path.join(places::MANIFEST).is_file() || path.is_file() {
            true => models.push(ModelManifest::read(path)?),
            false => tables.push(Table::open(path)?),
        }
    }
    let layout = match (&tables[..], &models[..]) {
        ([table], []) => table.layout().map(|layout| LayoutFacts::new(layout)),
        _ => None,
    };
    let tables = tables.iter().map(TableFacts::of_table).collect();
    Ok((tables, models.iter().map(ModelFacts::of_manifest).collect(), layout))
}

#[pymethods]
impl NativeOnionServer {
    /// Starts the single server that `spec` describes: `hushtable_serve::OnionServerSpec` in JSON.
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<PyClassInitializer<Self>> {
        let spec: OnionServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        let started = py.detach(|| {
            let paths: Vec<_> = [&spec.table].into_iter().chain(&spec.tables).cloned().collect();
            let set = parameter_set(&spec.parameters)?;
            let (io_threads, progress) = (spec.network.io_threads, Arc::<Progress>::default());
            let told = Arc::clone(&progress);
            let server =
                OnionServer::open(spec)?.with_progress(move |done, all| told.tell(done, all));
            let (tables, models, _) = held(&paths)?;
            let first = tables.iter().chain(models.iter().flat_map(ModelFacts::tables)).next();
            let onion = first.map(|table| table.onion(set)).transpose()?;
            let running = NativeServer::launch(|| server.bind(), io_threads, progress)?;
            Ok::<_, Failure>((running, Self { tables, models, onion }))
        });
        let (running, served) = started?;
        Ok(PyClassInitializer::from(running).add_subclass(served))
    }
}

#[pymethods]
impl NativeCkksServer {
    /// Starts the server that `spec` describes: `hushtable_serve::CkksServerSpec` in JSON.
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<PyClassInitializer<Self>> {
        let spec: CkksServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        let started = py.detach(|| {
            let io_threads = spec.network.io_threads;
            let server = CkksServer::open(spec)?;
            let info = CkksFacts::new(server.info())?;
            let running = NativeServer::launch(|| server.bind(), io_threads, Arc::default())?;
            Ok::<_, Failure>((running, Self { info }))
        });
        let (running, served) = started?;
        Ok(PyClassInitializer::from(running).add_subclass(served))
    }
}

#[pymethods]
impl NativeHybridServer {
    /// Starts the server that `spec` describes: `hushtable_serve::HybridServerSpec` in JSON.
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<PyClassInitializer<Self>> {
        let spec: HybridServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        let started = py.detach(|| {
            let io_threads = spec.network.io_threads;
            let server = HybridServer::open(spec)?;
            let info = HybridFacts::new(server.info(), server.outline());
            let running = NativeServer::launch(|| server.bind(), io_threads, Arc::default())?;
            Ok::<_, Failure>((running, Self { info }))
        });
        let (running, served) = started?;
        Ok(PyClassInitializer::from(running).add_subclass(served))
    }
}

#[pymethods]
impl NativeSharesServer {
    /// Starts the server that `spec` describes: `hushtable_serve::SharesServerSpec` in JSON.
    #[new]
    fn new(py: Python<'_>, spec: &str) -> PyResult<PyClassInitializer<Self>> {
        let spec: SharesServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        let started = py.detach(|| {
            let io_threads = spec.network.io_threads;
            let server = SharesServer::open(spec)?;
            let info = SharesFacts::new(server.info());
            let running = NativeServer::launch(|| server.bind(), io_threads, Arc::default())?;
            Ok::<_, Failure>((running, Self { info }))
        });
        let (running, served) = started?;
        Ok(PyClassInitializer::from(running).add_subclass(served))
    }
}

#[pymethods]
impl NativeTrainServer {
    /// Starts the training server that `spec` describes, `hushtable_serve::TrainServerSpec` in JSON,
    /// of the controller in `folder`.
    #[new]
    #[pyo3(signature = (spec, folder, key, counter, *, key_beside))]
    fn new(
        py: Python<'_>,
        spec: &str,
        folder: PathBuf,
        key: PathBuf,
        counter: PathBuf,
        key_beside: bool,
    ) -> PyResult<PyClassInitializer<Self>> {
        let spec: TrainServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        let counter = CounterSpec::parse(&counter).map_err(Failure::from)?;
        let place = ControllerPlace { folder, key, key_beside, counter };
        let started = py.detach(|| {
            let table = place.terms()?.table().to_owned();
            let served = Self { table, pin: place.pin()?.to_string() };
            let (io_threads, progress) = (spec.network.io_threads, Arc::<Progress>::default());
            let told = Arc::clone(&progress);
            let tell = move |done, all| told.tell(done, all);
            let server = TrainServer::of_controller(spec, place, tell)?;
            let running = NativeServer::launch(|| server.bind(), io_threads, progress)?;
            Ok::<_, Failure>((running, served))
        });
        let (running, served) = started?;
        Ok(PyClassInitializer::from(running).add_subclass(served))
    }
}

impl Progress {
    fn tell(&self, done: u64, all: u64) {
        self.done.fetch_max(done, Ordering::Relaxed);
        self.all.store(all, Ordering::Relaxed);
    }
}

impl NativeServer {
    /// Runs what `bind` binds on a thread of its own, once its ports are there.
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
