//! A server's life: bind, load, serve, drain. Which service it offers is its scheme's affair.
//!
//! A scheme plugs in by one value, its [`Scheme`]: which gRPC services it offers and
//! what the metrics call their methods, what its server calls its part, what it counts, and how it
//! loads. A scheme's server checks its own spec, then makes an [`Unbound`] of that and the checked
//! [`Network`], and has all else from here:
//!
//! ```ignore
//! fn unbound(self) -> Unbound {
//!     let Self { network, .. } = self;
//!     let metrics = EchoMetrics::default();
//!     let register = {
//!         let metrics = metrics.clone();
//!         Box::new(move |registry: &mut Registry| metrics.register(registry))
//!     };
//!     let load = Box::new(move |_: &Loading| {
//!         let service = Arc::new(EchoService::new(metrics.table("words")));
//!         let grpc = EchoServer::from_arc(Arc::clone(&service));
//!         Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
//!     });
//!     Unbound::new(network, Scheme { services: &SERVICES, side: "parrot", register, load })
//! }
//! ```
//!
//! `tests/it/toy_scheme.rs` is this in full, outside of the crate. What is counted a table is a family labelled by [`TableLabel`]: the scheme's
//! metrics are made and registered before the load, and the load asks them for one table's by name.

pub(crate) mod address;
pub(crate) mod admin;
pub(crate) mod admission;
pub(crate) mod budget;
pub mod certificate;
pub(crate) mod connection;
pub(crate) mod door;
pub(crate) mod expiry;
pub(crate) mod frames;
pub(crate) mod gather;
pub(crate) mod metrics;
mod named;
pub(crate) mod network;
pub(crate) mod peers;
pub(crate) mod places;
pub(crate) mod push;
pub(crate) mod quota;
pub(crate) mod reload;
pub(crate) mod scheme;
pub(crate) mod tls;
pub(crate) mod turns;

pub use crate::labels::TableLabel;
pub use crate::vital::{Vital, Vitals};
pub use admission::Admission;
pub use budget::Reservation;
pub use door::{CountedBody, Routed, Routes, Service, Stopping, Visiting};
pub use metrics::TableSizes;
pub use network::Network;
pub use push::{PushDefect, PushRefusal};
pub use reload::{Next, Reload, ReloadError, Reloaded};
pub use scheme::{GrpcService, Load, Loading, Method, Scheme};

use std::convert::Infallible;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use rustix::process::{
    Resource, Rlimit, Signal, getrlimit, set_parent_process_death_signal, setrlimit,
};
use tokio::net::TcpListener;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::watch;
use tonic_health::ServingStatus;
use tonic_health::pb::health_server::HealthServer;
use tonic_health::server::{HealthReporter, HealthService};

use self::admin::{Admin, Phase};
use self::budget::Budget;
use self::connection::ConnectionRules;
use self::door::Door;
use self::metrics::Metrics;
use self::peers::Peers;
use self::push::{Push, PushTo};
use self::reload::{Certificate, Changes, Watched};
use crate::trace::{SpanCounts, Tracing};
use crate::{Error, Limit, NetworkSpec};

/// A checked server that has not started yet.
pub struct Unbound {
    pub(crate) network: Network,
    pub(crate) scheme: Scheme,
    /// Folders whose newest bundle is served.
    pub(crate) watched: Vec<PathBuf>,
    /// Where an operator's pushes go.
    pub(crate) push: Option<PushTo>,
    /// Whether those that ask say which of their traces a request is part of.
    pub(crate) is_joined: bool,
}

/// A server with its ports: clients may connect, and wait until [`run`](Self::run) has loaded the
/// table.
pub struct BoundServer {
    unbound: Unbound,
    listener: TcpListener,
    metrics_listener: Option<TcpListener>,
    /// Where lookups are answered.
    pub addr: SocketAddr,
    /// Where metrics and probes are answered.
    pub metrics_addr: Option<SocketAddr>,
    /// What answers lookups, in a line; said once it is ready, by schemes that have
    /// several kinds of engine.
    pub engine: Arc<OnceLock<String>>,
    phase: watch::Sender<Phase>,
    reload: Reload,
    asked: UnboundedReceiver<reload::Asked>,
}

impl Unbound {
    /// A server of `scheme` at the addresses of `network`.
    pub fn new(network: Network, scheme: Scheme) -> Self {
        Self { network, scheme, watched: Vec::new(), push: None, is_joined: false }
    }

    /// Takes an operator's pushes.
    pub(crate) fn taking(mut self, push: Option<PushTo>) -> Self {
        self.push = push;
        self
    }

    /// Has requests be part of the traces of those that ask, who are servers of the same operator: never of clients.
    pub(crate) fn joined(mut self) -> Self {
        self.is_joined = true;
        self
    }

    /// Serves the newest bundle of each of these folders too, as it comes.
    pub(crate) fn watching(mut self, folders: impl IntoIterator<Item = PathBuf>) -> Self {
        self.watched.extend(folders);
        self
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        let (listener, addr) = bind(self.network.spec.addr).await?;
        let (metrics_listener, metrics_addr) = match self.network.spec.metrics_addr {
            None => (None, None),
            Some(addr) => {
                let (listener, addr) = bind(addr).await?;
                (Some(listener), Some(addr))
            }
        };
        let (phase, _) = watch::channel(Phase::Loading);
        let (reload, asked) = Reload::new();
        Ok(BoundServer {
            unbound: self,
            listener,
            metrics_listener,
            addr,
            metrics_addr,
            engine: Arc::default(),
            phase,
            reload,
            asked,
        })
    }

    /// Binds and runs on a runtime of its own, until SIGTERM or SIGINT; `on_bound` is told the addresses
    /// before the load. Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        let NetworkSpec { io_threads, connections_max, .. } = self.network.spec;
        let files = raise_file_limit();
        if files < connections_max as u64 + 64 {
            tracing::warn!(
                files,
                connections_max,
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
    /// What the scheme's load fails with, [`Error::SelfCheck`], [`Error::Io`]; and once what is answered
    /// from was written to or cut short, what the scheme says of that: nothing is answered any more.
    pub async fn run(self, shutdown: impl Future<Output = ()>) -> Result<(), Error> {
        let Self { unbound, listener, metrics_listener, phase, addr, metrics_addr, engine, .. } =
            self;
        // Held, so that whoever asks does not find the end of a channel.
        let (reload, asked) = (self.reload, self.asked);
        let Unbound { network, scheme, watched, push, is_joined } = unbound;
        let Scheme { services, side, register, load } = scheme;
        let budget = Budget::new(Limit::InflightBytes, network.spec.inflight_bytes_max, None);
        let expiry = expiry::Gauge::default();
        let spans = SpanCounts::default();
        let vitals = Vitals::default();
        let metrics = Metrics::new(side, Arc::clone(&budget), |registry| {
            if network.tls.is_some() {
                expiry::register(&expiry, registry);
            }
            if network.collector.is_some() {
                spans.register(registry);
            }
            vitals.register(registry);
            register(registry);
        });
        let admin = metrics_listener
            .map(|listener| Admin::start(listener, Arc::clone(&metrics), phase.subscribe()))
            .transpose()?;
        let collector = network.collector.clone();
        let who = (network.spec.otlp_service.as_str(), network.spec.otlp_sample);
        let traces = Tracing::start(collector, who, side, spans, Arc::clone(&engine))?;
        let mut shutdown = std::pin::pin!(shutdown);

        let is_abandoned = Arc::new(AtomicBool::new(false));
        let abandon = Abandon(Arc::clone(&is_abandoned));
        let loading = Loading { is_abandoned, engine, vitals: vitals.clone() };
        let load = tokio::task::spawn_blocking(move || load(&loading));
        let routes = tokio::select! {
            loaded = load => match loaded {
                Ok(loaded) => loaded?,
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            },
            () = &mut shutdown => return Ok(()),
        };
        drop(abandon);

        let health = HealthReporter::new();
        let door = Door::new(
            services,
            Arc::clone(&routes),
            HealthServer::new(HealthService::from_health_reporter(health.clone()))
                .max_decoding_message_size(HEALTH_BYTES_MAX),
            Arc::clone(&metrics),
            [network.request_max, network.body_idle_max],
            Arc::clone(&budget),
        );
        let push = push.map(|to| Push::new(to, Arc::clone(&routes), reload.clone()));
        let door = door.taking(push).traced(traces.tracer(), is_joined);
        let tls = network.spec.tls.clone().zip(network.tls.clone());
        let certificate = tls.map(|(spec, tls)| Certificate::new(spec, tls, expiry));
        let rules = ConnectionRules {
            tls: certificate.as_ref().map(Certificate::config),
            connections_max: network.spec.connections_max,
            connection_bytes_max: network.connection_bytes_max,
            streams_max: network.spec.streams_per_connection_max,
            handshake_max: network.handshake_max,
            keep_alive: network.keep_alive,
            peers: Peers::new(
                network.connections_per_peer_max,
                network.spec.requests_per_s_per_peer_max,
                network.peer_bytes_max,
                budget,
            ),
            idle_max: network.idle_max,
            headers_max: network.headers_max,
            pings_max: network.spec.pings_per_s_max,
            // A request is answered within `request_max`; its answer gets as long to be read.
            stuck_max: network.request_max * 2,
        };
        set_health(&health, services, ServingStatus::Serving).await;
        tracing::info!(
            %addr,
            metrics_addr = metrics_addr.map(tracing::field::display),
            services = names(services),
            tls = network.tls.is_some(),
            "serving"
        );
        phase.send_replace(Phase::Serving);
        let (drain, draining) = watch::channel(false);
        let changes = Changes {
            routes: Arc::clone(&routes),
            metrics: Arc::clone(&metrics),
            asked,
            certificate,
            watched: watched.into_iter().map(Watched::new).collect(),
            waiting: None,
            vitals: vitals.clone(),
        };
        let changing = Aborted(tokio::spawn(changes.run()));
        let accepting = vitals.hold("that accepts connections");
        let mut serving = Aborted(tokio::spawn(async move {
            connection::serve(listener, rules, door, metrics, draining).await;
            drop(accepting);
        }));
        let failure = tokio::select! {
            () = shutdown => None,
            failure = first_failure(Arc::clone(&routes)) => Some(failure),
            lost = vitals.lost() => Some(lost),
            never = follow_readiness(routes.readiness(), &phase, &health, services) => match never {},
        };

        drop(changing);
        let drain_ms_max = network.spec.drain_ms_max;
        match &failure {
            None => tracing::info!(drain_ms_max, "shutting down"),
            Some(error) => tracing::error!(%error, drain_ms_max, "nothing more can be answered"),
        }
        phase.send_replace(if failure.is_some() { Phase::Failed } else { Phase::Draining });
        routes.admission().drain();
        set_health(&health, services, ServingStatus::NotServing).await;
        drain.send_replace(true);
        let drained = tokio::time::timeout(network.drain_max, async {
            // Whoever watches has been told; a watch that stays open would hold its connection.
            tokio::time::sleep(WATCH_GRACE).await;
            let mut health = health;
            health.clear_service_status("").await;
            for service in services {
                health.clear_service_status(service.name).await;
            }
            (&mut serving.0).await
        })
        .await;
        match drained {
            Ok(_) => tracing::info!("all requests are answered"),
            Err(_) => tracing::warn!("some requests were not answered in time"),
        }
        routes.stop().await;
        traces.flush().await;
        drop(admin);
        failure.map_or(Ok(()), Err)
    }

    /// As [`run`](Self::run), until the process gets SIGTERM or SIGINT. SIGHUP has it see what its bundles and
    /// its certificate's files hold now.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::Io`] where signals cannot be received.
    pub async fn run_until_signal(self) -> Result<(), Error> {
        use tokio::signal::unix::{SignalKind, signal};
        let failed = |source| Error::Io { what: "listen for signals".into(), source };
        let mut terminate = signal(SignalKind::terminate()).map_err(failed)?;
        let mut interrupt = signal(SignalKind::interrupt()).map_err(failed)?;
        let mut hangup = signal(SignalKind::hangup()).map_err(failed)?;
        let reload = self.reload();
        let hung_up = async move {
            while hangup.recv().await.is_some() {
                reload.ask();
            }
            std::future::pending::<()>().await;
        };
        self.run(async move {
            tokio::select! {
                _ = terminate.recv() => {}
                _ = interrupt.recv() => {}
                () = hung_up => {}
            }
        })
        .await
    }

    /// What asks this server to take what is new.
    pub fn reload(&self) -> Reload {
        self.reload.clone()
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

/// Resolves once what is answered from is no longer what was loaded.
async fn first_failure(routes: Arc<dyn Routes>) -> Error {
    loop {
        tokio::time::sleep(CHECK_EVERY).await;
        let routes = Arc::clone(&routes);
        match tokio::task::spawn_blocking(move || routes.check()).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => return error,
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

/// Tells probes and watchers as it changes whether the service can do its work.
async fn follow_readiness(
    readiness: Option<watch::Receiver<bool>>,
    phase: &watch::Sender<Phase>,
    health: &HealthReporter,
    services: &[GrpcService],
) -> Infallible {
    if let Some(mut readiness) = readiness {
        while readiness.changed().await.is_ok() {
            let is_ready = *readiness.borrow_and_update();
            phase.send_replace(if is_ready { Phase::Serving } else { Phase::Unready });
            let status = if is_ready { ServingStatus::Serving } else { ServingStatus::NotServing };
            set_health(health, services, status).await;
        }
    }
    std::future::pending().await
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

/// Has the system end this process, without a word, once the thread that started it has ended: what keeps a server
/// must not leave it behind. Only what happens from now on counts; whether the parent is still there is for the
/// caller to see.
///
/// # Errors
/// [`Error::Io`] where the system does not do that.
pub fn exit_with_parent() -> Result<(), Error> {
    set_parent_process_death_signal(Some(Signal::KILL)).map_err(|source| Error::Io {
        what: "be ended with the parent process".into(),
        source: source.into(),
    })
}

/// Tells a load, when dropped, that nobody waits for it any more: a runtime waits for its threads.
struct Abandon(Arc<AtomicBool>);

impl Drop for Abandon {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
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

async fn set_health(health: &HealthReporter, services: &[GrpcService], status: ServingStatus) {
    health.set_service_status("", status).await;
    for service in services {
        health.set_service_status(service.name, status).await;
    }
}

fn names(services: &[GrpcService]) -> String {
    services.iter().map(|service| service.name).collect::<Vec<_>>().join(", ")
}

/// A health request holds a service's name.
const HEALTH_BYTES_MAX: usize = 1024;
/// How soon an idle server learns that it cannot answer; a pass asks for itself.
const CHECK_EVERY: Duration = Duration::from_millis(500);
const WATCH_GRACE: Duration = Duration::from_millis(50);
