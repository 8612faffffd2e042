//! Servers, and the certificates that local ones need.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock};
use std::thread;
use std::time::Duration;

use hushtable_pir::TableShape;
use hushtable_pir::onion::Geometry;
use hushtable_serve::certificate::LocalCa;
use hushtable_serve::{
    BoundServer, ControllerPlace, CounterSpec, Error, OnionServer, OnionServerSpec, Server,
    ServerSpec, TrainServer, TrainServerSpec, raise_file_limit,
};
use hushtable_table::Table;
use pyo3::prelude::*;
use tokio::runtime::Builder;
use tokio::sync::oneshot;

use crate::client::{LayoutFacts, layout_facts};
use crate::errors::Failure;
use crate::lookups::{OnionFacts, onion_facts};
use crate::prepare::parameter_set;

/// A server on threads of its own.
#[pyclass(frozen, module = "hushtable._native", name = "Server")]
pub(crate) struct NativeServer {
    addr: SocketAddr,
    metrics_addr: Option<SocketAddr>,
    facts: ServedFacts,
    prepared: Arc<Progress>,
    engine: Arc<OnceLock<String>>,
    stop: Mutex<Option<oneshot::Sender<()>>>,
    events: Mutex<Receiver<Event>>,
}

/// A server that is not bound yet.
enum AnyServer {
    Two(Server),
    One(OnionServer),
    Train(TrainServer),
}

/// What a server will serve.
struct ServedFacts {
    table: (String, String),
    layout: Option<LayoutFacts>,
    onion: Option<OnionFacts>,
}

/// Bytes of a table that are prepared, and all of them.
#[derive(Default)]
struct Progress {
    done: AtomicU64,
    all: AtomicU64,
}

/// What a server's thread tells.
enum Event {
    Bound(SocketAddr, Option<SocketAddr>, Arc<OnceLock<String>>),
    Ready,
    Failed(Failure),
    Stopped,
}

#[pymethods]
impl NativeServer {
    /// Starts the server that `spec` describes: `hushtable_serve::ServerSpec` in JSON.
    #[staticmethod]
    fn start(py: Python<'_>, spec: &str) -> PyResult<Self> {
        let spec: ServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        py.detach(|| Self::launch_two(spec)).map_err(PyErr::from)
    }

    /// Starts the single server that `spec` describes: `hushtable_serve::OnionServerSpec` in JSON.
    #[staticmethod]
    fn start_onion(py: Python<'_>, spec: &str) -> PyResult<Self> {
        let spec: OnionServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        py.detach(|| Self::launch_one(spec)).map_err(PyErr::from)
    }

    /// Starts the training server that `spec` describes, `hushtable_serve::TrainServerSpec` in JSON,
    /// of the controller in `folder`. As `table` it has the table's name and the controller's public
    /// key, as `prepared` what opening it has done.
    #[staticmethod]
    fn start_train(
        py: Python<'_>,
        spec: &str,
        folder: PathBuf,
        key: PathBuf,
        counter: PathBuf,
    ) -> PyResult<Self> {
        let spec: TrainServerSpec = serde_json::from_str(spec).map_err(Failure::config)?;
        let counter = CounterSpec::parse(&counter).map_err(Failure::from)?;
        let place = ControllerPlace { folder, key, counter };
        py.detach(|| Self::launch_train(spec, place)).map_err(PyErr::from)
    }

    /// Where lookups are answered.
    #[getter]
    fn addr(&self) -> String {
        self.addr.to_string()
    }

    /// Where metrics and probes are answered.
    #[getter]
    fn metrics_addr(&self) -> Option<String> {
        self.metrics_addr.map(|addr| addr.to_string())
    }

    /// `(name, version)` of the table; of a training server, its name and the pin.
    #[getter]
    fn table(&self) -> (String, String) {
        self.facts.table.clone()
    }

    /// The table's layout; see `LayoutFacts`.
    #[getter]
    fn layout(&self) -> Option<LayoutFacts> {
        self.facts.layout.clone()
    }

    /// What a lookup from a single server costs; None for one of two.
    #[getter]
    fn onion(&self) -> Option<OnionFacts> {
        self.facts.onion
    }

    /// What answers lookups, in a line; None until a server of two is ready, and of others.
    #[getter]
    fn engine(&self) -> Option<String> {
        self.engine.get().cloned()
    }

    /// `(done, all)`: bytes of the table that were prepared since the start; zeros where nothing
    /// has to be.
    #[getter]
    fn prepared(&self) -> (u64, u64) {
        let Progress { done, all } = &*self.prepared;
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

impl NativeServer {
    fn launch_two(spec: ServerSpec) -> Result<Self, Failure> {
        let table = Table::open(&spec.table)?;
        let facts = ServedFacts {
            table: (table.name().to_owned(), table.version().to_string()),
            layout: table.layout().map(|layout| layout_facts(layout)),
            onion: None,
        };
        let io_threads = spec.io_threads;
        let server = AnyServer::Two(Server::of_table(spec, table)?);
        Self::launch(server, io_threads, facts, Arc::default())
    }

    fn launch_one(spec: OnionServerSpec) -> Result<Self, Failure> {
        let table = Table::open(&spec.table)?;
        let shape = TableShape::new(table.rows(), table.row_bytes())?;
        let geometry = Geometry::new(parameter_set(&spec.parameters)?, shape)?;
        let facts = ServedFacts {
            table: (table.name().to_owned(), table.version().to_string()),
            layout: None,
            onion: Some(onion_facts(&geometry)),
        };
        let io_threads = spec.network.io_threads;
        let prepared = Arc::<Progress>::default();
        let told = Arc::clone(&prepared);
        let server = OnionServer::of_table(spec, table)?.with_progress(move |done, all| {
            told.done.fetch_max(done, Ordering::Relaxed);
            told.all.store(all, Ordering::Relaxed);
        });
        Self::launch(AnyServer::One(server), io_threads, facts, prepared)
    }

    fn launch_train(spec: TrainServerSpec, place: ControllerPlace) -> Result<Self, Failure> {
        let name = place.terms()?.table().to_owned();
        let table = (name, place.pin()?.to_string());
        let facts = ServedFacts { table, layout: None, onion: None };
        let io_threads = spec.network.io_threads;
        let opened = Arc::<Progress>::default();
        let told = Arc::clone(&opened);
        let server = TrainServer::of_controller(spec, place, move |done, all| {
            told.done.fetch_max(done, Ordering::Relaxed);
            told.all.store(all, Ordering::Relaxed);
        })?;
        Self::launch(AnyServer::Train(server), io_threads, facts, opened)
    }

    fn launch(
        server: AnyServer,
        io_threads: usize,
        facts: ServedFacts,
        prepared: Arc<Progress>,
    ) -> Result<Self, Failure> {
        raise_file_limit();
        let (stop, stopped) = oneshot::channel();
        let (news, events) = channel();
        let failed = |error| Failure::new("Error", format!("no thread for a server: {error}"));
        let run = move || {
            let end = match run(server, io_threads, stopped, &news) {
                Ok(()) => Event::Stopped,
                Err(failure) => Event::Failed(failure),
            };
            drop(news.send(end));
        };
        thread::Builder::new().name("hushtable-server".into()).spawn(run).map_err(failed)?;
        match events.recv() {
            Ok(Event::Bound(addr, metrics_addr, engine)) => Ok(Self {
                addr,
                metrics_addr,
                facts,
                prepared,
                engine,
                stop: Mutex::new(Some(stop)),
                events: Mutex::new(events),
            }),
            Ok(Event::Failed(failure)) => Err(failure),
            _ => Err(Failure::new("Error", "the server ended at its start")),
        }
    }
}

impl AnyServer {
    async fn bind(self) -> Result<BoundServer, Error> {
        match self {
            Self::Two(server) => server.bind().await,
            Self::One(server) => server.bind().await,
            Self::Train(server) => server.bind().await,
        }
    }
}

/// Serves on this thread until `stopped` is sent to or dropped. That nobody listens to the news is
/// no error: the handle was dropped, and with it the sender of `stopped`.
fn run(
    server: AnyServer,
    io_threads: usize,
    stopped: oneshot::Receiver<()>,
    news: &Sender<Event>,
) -> Result<(), Failure> {
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
        let bound = server.bind().await?;
        let engine = Arc::clone(&bound.engine);
        drop(news.send(Event::Bound(bound.addr, bound.metrics_addr, engine)));
        let (ready, news) = (bound.ready(), news.clone());
        tokio::spawn(async move {
            ready.await;
            drop(news.send(Event::Ready));
        });
        let shutdown = async { drop(stopped.await) };
        Ok(bound.run(shutdown).await?)
    })
}

/// A certificate and its key.
type PemPair = (String, String);

/// A new local authority: its certificate, then certificate and key for a server of `names` and
/// for a client, all PEM.
#[pyfunction]
pub(crate) fn make_certificates(
    py: Python<'_>,
    names: Vec<String>,
) -> PyResult<(String, PemPair, PemPair)> {
    let made = py.detach(|| {
        let names: Vec<&str> = names.iter().map(String::as_str).collect();
        let ca = LocalCa::new()?;
        let server = ca.issue_server(&names)?;
        let client = ca.issue_client("hushtable client")?;
        let pair = |pem: hushtable_serve::certificate::CertificatePem| (pem.cert, pem.key);
        Ok::<_, hushtable_serve::Error>((ca.cert_pem(), pair(server), pair(client)))
    });
    Ok(made.map_err(Failure::from)?)
}
