//! One of two servers: opens the table, loads it, offers `PrivateLookup`.

use std::sync::Arc;

use hushtable_pir::Backend;
use hushtable_pir::batch::BatchBackend;
use hushtable_table::Table;
use hushtable_table::layout::Layout;
use prometheus_client::registry::Registry;

use super::SERVICE;
use super::front::HOLDS_PATH;
use super::held::Held;
use super::loader::{self, Loader, describe};
use super::metrics::PairMetrics;
use super::refusal::REFUSALS;
use super::service::LookupService;
use super::shard::ShardServer;
use super::spec::Settings;
use crate::host::admission::Admission;
use crate::host::door::{Fresh, Routed, Routes};
use crate::host::network::Network;
use crate::host::push::PushTo;
use crate::host::scheme::{Loading, Scheme};
use crate::host::{BoundServer, Unbound};
use crate::schemes::bundles::Bundles;
use crate::schemes::versions::Sources;
use crate::shards::{Fleet, FleetSpec, FrontMetrics, ShardError};
use crate::wire::private_lookup_server::PrivateLookupServer;
use crate::{Error, ServerSpec};

pub(super) type MakeBatchBackend =
    Box<dyn FnOnce(&Table, &Layout) -> Result<Arc<dyn BatchBackend>, Error> + Send>;
pub(super) type MakeBackend = Box<dyn FnOnce(&Table) -> Result<Arc<dyn Backend>, Error> + Send>;

/// A checked server that has not started yet.
pub struct Server(Kind);

enum Kind {
    /// Of tables and models, which it holds or, as a front, has shards of.
    Whole(Box<Whole>),
    /// Of a part of a model.
    Shard(usize, Box<ShardServer>),
}

struct Whole {
    network: Network,
    settings: Settings,
    bundles: Bundles,
    sources: Sources,
    push: Option<PushTo>,
    make_backend: Option<MakeBackend>,
    make_batch_backend: Option<MakeBatchBackend>,
}

impl Server {
    /// Opens the bundles that `spec` names and checks the rest against them. The rows are not read
    /// yet.
    ///
    /// # Errors
    /// [`Error::Table`] for a bundle that does not open; [`Error::Model`], [`Error::ModelTable`],
    /// [`Error::ModelTwice`] for a model's; [`Error::TablesBudget`] for tables that take more memory
    /// than they may; [`Error::Exposed`], [`Error::Setting`], [`Error::PrgName`], [`Error::Pem`],
    /// [`Error::Tls`] for what else is wrong with `spec`; [`ShardError`](crate::ShardError) for a shard or a front of a model
    /// without a map, or that cannot be what `spec` says.
    pub fn open(spec: ServerSpec) -> Result<Self, Error> {
        match (spec.shard, &spec.shards_file) {
            (Some(_), Some(_)) => return Err(ShardError::Both.into()),
            (Some(number), None) => {
                let shard = Box::new(ShardServer::open(spec, number)?);
                return Ok(Self(Kind::Shard(number, shard)));
            }
            (None, _) => {}
        }
        let paths = || std::iter::once(&spec.table).chain(&spec.tables);
        let (bundles, sources) = (Bundles::open(paths())?, Sources::of(paths())?);
        Self::of_bundles(spec, bundles, sources)
    }

    /// As [`open`](Self::open), for one table that is open already or in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_table(spec: ServerSpec, table: Table) -> Result<Self, Error> {
        Self::of_bundles(spec, Bundles::of_table(table), Sources::default())
    }

    fn of_bundles(spec: ServerSpec, bundles: Bundles, sources: Sources) -> Result<Self, Error> {
        let (settings, network) = Settings::check(spec, &bundles)?;
        let push = settings.spec.change.push()?;
        if settings.spec.shards_file.is_some() {
            loader::sharded(&bundles)?;
        }
        let (make_backend, make_batch_backend) = (None, None);
        let whole =
            Whole { network, settings, bundles, sources, push, make_backend, make_batch_backend };
        Ok(Self(Kind::Whole(Box::new(whole))))
    }

    /// Answers from what `make` loads, instead of from processors. It is called once, on a thread
    /// that may block, and what it makes is checked against the table before it serves. A server of
    /// several tables answers the first of them so; a shard or a front none.
    pub fn with_backend(
        mut self,
        make: impl FnOnce(&Table) -> Result<Arc<dyn Backend>, Error> + Send + 'static,
    ) -> Self {
        if let Kind::Whole(whole) = &mut self.0 {
            whole.make_backend = Some(Box::new(make));
        }
        self
    }

    /// As [`with_backend`](Self::with_backend), for the bins of the table's layout. Not called where
    /// no table has one.
    pub fn with_batch_backend(
        mut self,
        make: impl FnOnce(&Table, &Layout) -> Result<Arc<dyn BatchBackend>, Error> + Send + 'static,
    ) -> Self {
        if let Kind::Whole(whole) = &mut self.0 {
            whole.make_batch_backend = Some(Box::new(make));
        }
        self
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        self.unbound()?.bind().await
    }

    /// Serves until SIGTERM or SIGINT on a runtime of its own; `on_bound` is told the addresses
    /// before the table is loaded. Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        self.unbound()?.run_blocking(on_bound)
    }

    fn unbound(self) -> Result<Unbound, Error> {
        match self.0 {
            Kind::Whole(whole) => Ok(whole.unbound()),
            Kind::Shard(number, shard) => shard.unbound(number),
        }
    }
}

impl Whole {
    fn unbound(self) -> Unbound {
        let Self { network, settings, bundles, sources, push, make_backend, make_batch_backend } =
            self;
        let side = settings.spec.side;
        let metrics = PairMetrics::default();
        let front = settings.spec.shards_file.is_some().then(FrontMetrics::default);
        let register = {
            let (metrics, front) = (metrics.clone(), front.clone());
            Box::new(move |registry: &mut Registry| {
                metrics.register(registry);
                if let Some(front) = front {
                    front.register(registry);
                }
            })
        };
        let watched = settings.spec.change.watched();
        let load = move |loading: &Loading| {
            let fleet = match (&settings.spec.shards_file, front) {
                (Some(file), Some(metrics)) => {
                    let ServerSpec { side, insecure, io_threads, .. } = settings.spec;
                    let fleet = Fleet::start(FleetSpec {
                        file,
                        owner: side.into(),
                        holds_path: HOLDS_PATH,
                        refusals: REFUSALS,
                        insecure,
                        threads: io_threads,
                        metrics,
                    })?;
                    let sharded = loader::sharded(&bundles)?;
                    let (shards, map) = (sharded.map.shards().len(), sharded.map_version);
                    fleet.wait_ready(shards, map, &loading.is_abandoned)?;
                    Some(fleet)
                }
                _ => None,
            };
            let loader = Loader::new(&settings, metrics, sources, fleet, loading.vitals.clone())?;
            let (holdings, window) =
                loader.load(&settings, &bundles, None, (make_backend, make_batch_backend))?;
            // Loaded once, so said once.
            let _ = loading.engine.set(describe(&holdings));
            let held = Held::new(holdings);
            held.count(loader.metrics());
            let service = LookupService::new(held, loader, Admission::new(window));
            let grpc = Fresh({
                let service = Arc::clone(&service);
                move || {
                    let bytes_max = service.held().request_bytes_max();
                    PrivateLookupServer::from_arc(Arc::clone(&service))
                        .max_decoding_message_size(bytes_max)
                }
            });
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        };
        let (services, side, load) = (&[SERVICE], side.name(), Box::new(load));
        let scheme = Scheme { services, side, register, load };
        Unbound::new(network, scheme).watching(watched).taking(push)
    }
}
