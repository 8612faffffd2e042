//! A server that is asked alone: opens the table, prepares and loads it, offers `OnionLookup`.

use std::sync::Arc;

use hushtable_pir::onion::OnionBackend;
use hushtable_table::Table;
use prometheus_client::registry::Registry;

use super::front::HOLDS_PATH;
use super::held::Held;
use super::loader::Loader;
use super::metrics::OnionMetrics;
use super::refusal::REFUSALS;
use super::role::{Role, ShardOf, check_front, guard, map_of, take_count};
use super::service::{Depths, OnionService};
use super::shard::{self, ShardService};
use super::spec::Settings;
use super::{CHUNK_BYTES_MAX, OnionServerSpec, SERVICE};
use crate::host::Unbound;
use crate::host::door::{Fresh, Routed, Routes};
use crate::host::network::Network;
use crate::host::push::PushTo;
use crate::host::scheme::{GrpcService, Loading, Scheme};
use crate::keys::KeyStore;
use crate::schemes::bundles::Bundles;
use crate::schemes::versions::Sources;
use crate::shards::{Fleet, FleetSpec, FrontMetrics, Owner};
use crate::wire::onion_lookup_server::OnionLookupServer;
use crate::wire::onion_shard_server::OnionShardServer;
use crate::{BoundServer, Error};

pub(super) type MakeBackend =
    Box<dyn FnOnce(&Table) -> Result<Arc<dyn OnionBackend>, Error> + Send>;
pub(super) type Progress = Box<dyn Fn(u64, u64) + Send + Sync>;

/// A checked server, to be asked alone, that has not started yet.
pub struct OnionServer {
    network: Network,
    settings: Settings,
    bundles: Bundles,
    sources: Sources,
    push: Option<PushTo>,
    /// Instead of processors.
    make_backend: Option<MakeBackend>,
    progress: Progress,
}

impl OnionServer {
    /// Opens the bundles that `spec` names and checks the rest against them. The rows are not read
    /// yet.
    ///
    /// # Errors
    /// [`Error::Table`] for a bundle that does not open; [`Error::Model`], [`Error::ModelTable`],
    /// [`Error::ModelTwice`] for a model's; [`Error::TablesBudget`]; [`Error::Exposed`], [`Error::Setting`],
    /// [`Error::ParameterSet`], [`hushtable_pir::onion::Error`] for a table that the parameters do not hold,
    /// [`Error::Pem`], [`Error::Tls`] for what else is wrong with `spec`; [`ShardError`](crate::ShardError) for a shard or a front that
    /// cannot be what it says.
    pub fn open(spec: OnionServerSpec) -> Result<Self, Error> {
        let paths = || std::iter::once(&spec.table).chain(&spec.tables);
        let (bundles, sources) = (Bundles::open(paths())?, Sources::of(paths())?);
        Self::of_bundles(spec, bundles, sources)
    }

    /// As [`open`](Self::open), for one table that is open already or in memory.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn of_table(spec: OnionServerSpec, table: Table) -> Result<Self, Error> {
        Self::of_bundles(spec, Bundles::of_table(table), Sources::default())
    }

    fn of_bundles(
        mut spec: OnionServerSpec,
        bundles: Bundles,
        sources: Sources,
    ) -> Result<Self, Error> {
        take_count(&mut spec, &bundles)?;
        if ShardOf::check(&spec)?.is_some() {
            guard(&mut spec)?;
        }
        let (settings, network) = Settings::check(spec, &bundles)?;
        let push = settings.spec.change.push()?;
        let (make_backend, progress): (_, Progress) = (None, Box::new(|_, _| {}));
        Ok(Self { network, settings, bundles, sources, push, make_backend, progress })
    }

    /// Answers from what `make` loads, instead of from processors. It is called once, on a thread
    /// that may block, and what it makes is checked against the table before it serves. Its
    /// geometry must be the one that
    /// [`Geometry::new`](hushtable_pir::onion::Geometry::new) chooses. A server of several tables
    /// answers the first of them so; a shard or a front none.
    pub fn with_backend(
        mut self,
        make: impl FnOnce(&Table) -> Result<Arc<dyn OnionBackend>, Error> + Send + 'static,
    ) -> Self {
        self.make_backend = Some(Box::new(make));
        self
    }

    /// Tells `progress` the bytes of the table that are prepared, and all of them, while the table
    /// is prepared. It is called from several threads.
    pub fn with_progress(mut self, progress: impl Fn(u64, u64) + Send + Sync + 'static) -> Self {
        self.progress = Box::new(progress);
        self
    }

    /// Takes the ports.
    ///
    /// # Errors
    /// [`Error::Io`] for a port that is not to be had.
    pub async fn bind(self) -> Result<BoundServer, Error> {
        self.unbound().bind().await
    }

    /// Serves until SIGTERM or SIGINT on a runtime of its own; `on_bound` is told the addresses
    /// before the table is loaded. Raises the process's limit of open files as far as it may.
    ///
    /// # Errors
    /// As [`bind`](Self::bind) and [`BoundServer::run`].
    pub fn run_blocking(self, on_bound: impl FnOnce(&BoundServer)) -> Result<(), Error> {
        self.unbound().run_blocking(on_bound)
    }

    fn unbound(self) -> Unbound {
        let Self { network, settings, bundles, sources, push, make_backend, progress } = self;
        let metrics = OnionMetrics::default();
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
        let services: &[GrpcService] = match settings.spec.shard {
            Some(_) => shard::SERVICES,
            None => &[SERVICE],
        };
        let load = move |loading: &Loading| {
            let role = role_of(&settings, &bundles, front, loading)?;
            let loader = {
                let vitals = loading.vitals.clone();
                Loader::new(&settings, metrics, sources, progress, role.clone(), vitals)?
            };
            let holdings = loader.load(&settings, &bundles, None, make_backend, loading)?;
            let held = Held::new(holdings);
            held.count(loader.metrics());
            let depths = Depths::new(held.geometries());
            let keys = loader.metrics().keys.clone();
            let keys = KeyStore::open(depths.clone(), &settings.keys, keys)?;
            let service = OnionService::new(held, loader, keys, depths);
            if let Some(shard) = role.shard() {
                let bytes_max = settings.spec.network.inflight_bytes_max / 4;
                let service = ShardService::new(service, shard, bytes_max);
                let grpc = Fresh({
                    let service = Arc::clone(&service);
                    move || {
                        OnionShardServer::from_arc(Arc::clone(&service)).max_decoding_message_size(
                            bytes_max.max(CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES),
                        )
                    }
                });
                return Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>);
            }
            let grpc = Fresh({
                let service = Arc::clone(&service);
                move || {
                    let bytes_max = service.held().request_bytes_max();
                    let bytes_max = bytes_max.max(CHUNK_BYTES_MAX + CHUNK_OVERHEAD_BYTES);
                    OnionLookupServer::from_arc(Arc::clone(&service))
                        .max_decoding_message_size(bytes_max)
                }
            });
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        };
        let (side, load) = ("single", Box::new(load));
        let scheme = Scheme { services, side, register, load };
        Unbound::new(network, scheme).watching(watched).taking(push)
    }
}

/// What the server is; of a front, once every shard has a server that is ready.
fn role_of(
    settings: &Settings,
    bundles: &Bundles,
    metrics: Option<FrontMetrics>,
    loading: &Loading,
) -> Result<Role, Error> {
    let spec = &settings.spec;
    if let Some(shard) = ShardOf::check(spec)? {
        return Ok(Role::Shard(shard));
    }
    let (Some(file), Some(metrics)) = (&spec.shards_file, metrics) else { return Ok(Role::Whole) };
    let fleet = Fleet::start(FleetSpec {
        file,
        owner: Owner::Single,
        holds_path: HOLDS_PATH,
        refusals: REFUSALS,
        insecure: spec.network.insecure,
        threads: spec.network.io_threads,
        metrics,
    })?;
    let count = fleet.shards();
    check_front(spec, bundles, count)?;
    for (held, limits) in bundles.tables.iter().zip(&settings.tables) {
        let map = map_of(held.table.version(), &limits.geometry, count as u32);
        fleet.wait_ready(count, map, &loading.is_abandoned)?;
    }
    Ok(Role::Front(fleet))
}

/// What a chunk of keys has around its bytes.
const CHUNK_OVERHEAD_BYTES: usize = 64;
