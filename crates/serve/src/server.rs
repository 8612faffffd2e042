//! A server's life: open the table, bind, load, serve, drain.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::Backend;
use hushtable_pir::batch::BatchBackend;
use hushtable_table::Table;
use hushtable_table::layout::Layout;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_rustls::TlsAcceptor;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use crate::admin::{self, Phase};
use crate::bags::Bags;
use crate::budget::Budget;
use crate::connection::{self, ConnectionRules};
use crate::door::Door;
use crate::engine::{self, Bins, Engine};
use crate::observe::Metrics;
use crate::schedule::{QueueLimits, Scheduler, SchedulerSpec};
use crate::service::LookupService;
use crate::spec::Settings;
use crate::{Error, Limit, ServerSpec, TableInfo};

type MakeBatchBackend =
    Box<dyn FnOnce(&Table, &Layout) -> Result<Arc<dyn BatchBackend>, Error> + Send>;
type MakeBackend = Box<dyn FnOnce(&Table) -> Result<Arc<dyn Backend>, Error> + Send>;

/// A checked server that has not started yet.
pub struct Server {
    settings: Settings,
    table: Table,
    make_backend: MakeBackend,
    make_batch_backend: MakeBatchBackend,
}

/// A server with its ports: clients may connect, and wait until [`run`](Self::run) has loaded the
/// table.
pub struct BoundServer {
    server: Server,
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
    /// Where lookups are answered.
    pub addr: SocketAddr,
    /// Where metrics and probes are answered.
    pub metrics_addr: Option<SocketAddr>,
    phase: watch::Sender<Phase>,
}

impl Server {
    /// Opens `spec.table` and checks the rest against it. The rows are not read yet.
    ///
    /// # Errors
    /// [`Error::Table`] for a bundle that does not open, [`Error::Exposed`], [`Error::Setting`],
    /// [`Error::PrgName`], [`Error::Pem`], [`Error::Tls`] for what else is wrong with `spec`.
    pub fn open(spec: ServerSpec) -> Result<Self, Error> {
        let table = Table::open(&spec.table)
            .map_err(|source| Error::Table { path: spec.table.clone(), source })?;
        Self::of_table(spec, table)
    }

    /// As [`open`](Self::open), for a table that is open already or in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_table(spec: ServerSpec, table: Table) -> Result<Self, Error> {
        let engine_spec = spec.clone();
        let batch_spec = spec.clone();
        let settings = Settings::check(spec, &table)?;
        let make_backend: MakeBackend = Box::new(move |table| engine::load(&engine_spec, table));
        let make_batch_backend: MakeBatchBackend =
            Box::new(move |table, layout| engine::load_batch(&batch_spec, table, layout));
        Ok(Self { settings, table, make_backend, make_batch_backend })
    }

    /// Answers from what `make` loads, instead of from processors. It is called once, on a thread
    /// that may block, and what it makes is checked against the table before it serves.
    pub fn with_backend(
        mut self,
        make: impl FnOnce(&Table) -> Result<Arc<dyn Backend>, Error> + Send + 'static,
    ) -> Self {
        self.make_backend = Box::new(make);
        self
    }

    /// As [`with_backend`](Self::with_backend), for the bins of the table's layout. Not called where
    /// the table has none.
    pub fn with_batch_backend(
        mut self,
        make: impl FnOnce(&Table, &Layout) -> Result<Arc<dyn BatchBackend>, Error> + Send + 'static,
    ) -> Self {
        self.make_batch_backend = Box::new(make);
        self
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        let (listener, addr) = bind(self.settings.spec.addr).await?;
        let (metrics_listener, metrics_addr) = match self.settings.spec.metrics_addr {
            None => (None, None),
            Some(addr) => {
                let (listener, addr) = bind(addr).await?;
                (Some(listener), Some(addr))
            }
        };
        let (phase, _) = watch::channel(Phase::Loading);
        Ok(BoundServer { server: self, listener, metrics_listener, addr, metrics_addr, phase })
    }

    /// Serves until SIGTERM or SIGINT on a runtime of its own; `on_bound` is told the addresses
    /// before the table is loaded. Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        let io_threads = self.settings.spec.io_threads;
        let files = raise_file_limit();
        if files < self.settings.spec.connections_max as u64 + 64 {
            tracing::warn!(
                files,
                connections_max = self.settings.spec.connections_max,
                "fewer files may be open than connections are allowed: raise the limit (ulimit -n)"
            );
        }
        let mut builder = match io_threads {
            1 => tokio::runtime::Builder::new_current_thread(),
            _ => tokio::runtime::Builder::new_multi_thread(),
        };
        let runtime =
            builder.worker_threads(io_threads).enable_all().build().map_err(|source| {
                Error::Io { what: "start the server's threads".into(), source }
            })?;
        runtime.block_on(async {
            let bound = self.bind().await?;
            on_bound(&bound);
            bound.run_until_signal().await
        })
    }
}

impl BoundServer {
    /// Loads the table, checks a row, then serves until `shutdown` is over: then lookups that are
    /// under way are answered, new ones refused, for at most `drain_ms_max`.
    ///
    /// # Errors
    /// [`Error::Pir`] for a table that cannot be loaded, [`Error::SelfCheck`], [`Error::Io`].
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let Self { server, listener, metrics_listener, phase, addr, metrics_addr } = self;
        let Server { settings, table, make_backend, make_batch_backend } = server;
        let budget = Budget::new(Limit::InflightBytes, settings.spec.inflight_bytes_max, None);
        let metrics = Metrics::new(settings.spec.side.name(), Arc::clone(&budget));
        let admin = metrics_listener.map(|listener| {
            let phase = phase.subscribe();
            Aborted(tokio::spawn(admin::serve(listener, Arc::clone(&metrics), phase)))
        });
        let mut shutdown = std::pin::pin!(shutdown);

        let side = settings.spec.side;
        let load = tokio::task::spawn_blocking(move || {
            let backend = make_backend(&table)?;
            let engine = engine::check(side, &table, backend)?;
            let bins = match table.layout() {
                Some(layout) => {
                    let backend = make_batch_backend(&table, layout)?;
                    Some(engine::check_batch(side, &table, layout, backend)?)
                }
                None => None,
            };
            Ok::<_, Error>((engine, bins, table))
        });
        let (Engine { server, scan }, bins, table) = tokio::select! {
            loaded = load => match loaded {
                Ok(loaded) => loaded?,
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            },
            () = &mut shutdown => return Ok(()),
        };
        let shape = server.backend().shape();
        metrics.describe_table(shape.rows(), shape.table_bytes(), scan);

        let window = settings.spec.window_us.map_or(scan, Duration::from_micros);
        let best = server.backend().batch_keys_best().max(1);
        let limits = QueueLimits {
            window,
            batch_queries_max: settings.spec.batch_keys_max.unwrap_or(best),
            queue_queries_max: settings.spec.queue_keys_max,
        };
        tracing::info!(
            %addr,
            metrics_addr = metrics_addr.map(tracing::field::display),
            %side,
            tls = settings.tls.is_some(),
            table = table.name(),
            version = %table.version(),
            rows = shape.rows(),
            row_bytes = shape.row_bytes(),
            backend = server.backend().description(),
            scan_us = scan.as_micros() as u64,
            window_us = window.as_micros() as u64,
            batch_keys_max = limits.batch_queries_max,
            "serving"
        );
        let bags = match (bins, table.layout()) {
            (Some(bins), Some(layout)) => Some(start_bags(&settings, bins, layout, &metrics)?),
            _ => None,
        };
        let info = TableInfo {
            name: table.name().into(),
            version: table.version(),
            shape,
            dim: table.dim(),
            dtype: table.dtype(),
            side,
            keys_per_request_max: settings.keys_per_request_max,
            request_bytes_max: settings.request_bytes_max as u64,
            prgs: settings.prgs.clone(),
            window,
            software: concat!("hushtable/", env!("CARGO_PKG_VERSION")).into(),
            layout: bags.as_ref().map(Bags::info),
        };
        let spec = SchedulerSpec { limits, pass: scan, metrics: metrics.passes.clone() };
        let scheduler = Scheduler::start(Arc::new(server.clone()), spec)?;
        let service = LookupService::new(server, info, scheduler, bags);

        let health = HealthReporter::new();
        let door = Door::new(
            &service,
            HealthServer::new(HealthService::from_health_reporter(health.clone()))
                .max_decoding_message_size(HEALTH_BYTES_MAX),
            Arc::clone(&metrics),
            settings.request_bytes_max,
            settings.request_max,
            Arc::clone(&budget),
        );
        let rules = ConnectionRules {
            tls: settings.tls.map(TlsAcceptor::from),
            connections_max: settings.spec.connections_max,
            connection_bytes_max: settings.connection_bytes_max,
            streams_max: settings.spec.streams_per_connection_max,
            handshake_max: settings.handshake_max,
            keep_alive: settings.keep_alive,
            // A request is answered within `request_max`; its answer gets as long to be read.
            stuck_max: settings.request_max * 2,
        };
        set_health(&health, ServingStatus::Serving).await;
        phase.send_replace(Phase::Serving);
        let (drain, draining) = watch::channel(false);
        let mut serving = Aborted(tokio::spawn(connection::serve(
            listener, rules, door, budget, metrics, draining,
        )));
        shutdown.await;

        tracing::info!(drain_ms_max = settings.spec.drain_ms_max, "shutting down");
        phase.send_replace(Phase::Draining);
        service.drain();
        set_health(&health, ServingStatus::NotServing).await;
        drain.send_replace(true);
        let drained = tokio::time::timeout(settings.drain_max, async {
            // Whoever watches has been told; a watch that stays open would hold its connection.
            tokio::time::sleep(WATCH_GRACE).await;
            let mut health = health;
            health.clear_service_status("").await;
            health.clear_service_status(SERVICE).await;
            (&mut serving.0).await
        })
        .await;
        match drained {
            Ok(_) => tracing::info!("all requests are answered"),
            Err(_) => tracing::warn!("some requests were not answered in time"),
        }
        drop(admin);
        Ok(())
    }

    /// As [`run`](Self::run), until the process gets SIGTERM or SIGINT.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::Io`] where signals cannot be received.
    pub async fn run_until_signal(self) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |source| Error::Io { what: "listen for signals".into(), source };
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        self.run(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
            }
        })
        .await
    }

    /// Resolves once the server answers; never if it fails to start.
    pub fn ready(&self) -> impl Future<Output = ()> + Send + 'static {
        let mut phase = self.phase.subscribe();
        async move {
            if phase.wait_for(|phase| *phase != Phase::Loading).await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

/// Puts a layout's bins behind a scheduler with the same rules as the table's.
fn start_bags(
    settings: &Settings,
    bins: Bins,
    layout: &Layout,
    metrics: &Metrics,
) -> Result<Bags, Error> {
    let Bins { server, scan } = bins;
    let costs = server.backend().geometry().costs(layout);
    metrics.describe_layout(costs.keys, costs.stored_bytes, scan);
    let window = settings.spec.window_us.map_or(scan, Duration::from_micros);
    let best = server.backend().batch_requests_best().max(1);
    let limits = QueueLimits {
        window,
        batch_queries_max: settings.spec.batch_bags_max.unwrap_or(best),
        queue_queries_max: settings.spec.queue_bags_max,
    };
    tracing::info!(
        version = %layout.version(),
        keys = costs.keys,
        comm_bytes = costs.comm_bytes,
        map_bytes = costs.map_bytes,
        backend = server.backend().description(),
        scan_us = scan.as_micros() as u64,
        window_us = window.as_micros() as u64,
        batch_bags_max = limits.batch_queries_max,
        "serving bags by the table's layout"
    );
    let spec = SchedulerSpec { limits, pass: scan, metrics: metrics.bag_passes.clone() };
    let scheduler = Scheduler::start(Arc::new(server.clone()), spec)?;
    Ok(Bags::new(server, layout, settings.prgs.clone(), window, scheduler))
}

/// Raises the number of files that this process may have open to what it is allowed at most.
/// Returns that number.
pub fn raise_file_limit() -> u64 {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
    match setrlimit(Resource::Nofile, raised) {
        Ok(()) => limit.maximum.unwrap_or(u64::MAX),
        Err(_) => limit.current.unwrap_or(u64::MAX),
    }
}

/// A task that ends with its owner.
struct Aborted<T>(tokio::task::JoinHandle<T>);

impl<T> Drop for Aborted<T> {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn bind(addr: SocketAddr) -> Result<(TcpListener, SocketAddr), Error> {
    let failed = |source| Error::Io { what: format!("listen on {addr}"), source };
    let listener = TcpListener::bind(addr).await.map_err(failed)?;
    let bound = listener.local_addr().map_err(failed)?;
    Ok((listener, bound))
}

async fn set_health(health: &HealthReporter, status: ServingStatus) {
    health.set_service_status("", status).await;
    health.set_service_status(SERVICE, status).await;
}

const SERVICE: &str = "hushtable.v1.PrivateLookup";
/// A health request holds a service's name.
const HEALTH_BYTES_MAX: usize = 1024;
const WATCH_GRACE: Duration = Duration::from_millis(50);
