//! One of the servers of a shard: answers the fronts of its side, by `shard.proto`, from the rows and bins
//! that its map gives it.

mod held;
mod loader;
mod service;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::registry::Registry;

use self::held::HeldShards;
use self::loader::ShardLoader;
use self::service::ShardService;
use super::metrics::PairMetrics;
use super::sharded::Sharded;
use crate::host::Unbound;
use crate::host::admission::Admission;
use crate::host::door::{Fresh, Routed, Routes};
use crate::host::network::Network;
use crate::host::scheme::{GrpcService, Loading, Method, Scheme};
use crate::schemes::versions::Sources;
use crate::shards::{ShardError, front_name};
use crate::wire::private_shard_server::PrivateShardServer;
use crate::{Error, ServerSpec};

/// What a shard offers.
pub(super) const SERVICES: &[GrpcService] = &[SERVICE];
const SERVICE: GrpcService = GrpcService {
    name: "hushtable.v1.PrivateShard",
    methods: &[Method::named("AnswerPass"), Method::named("Holds")],
};

/// A checked shard that has not started yet.
pub(super) struct ShardServer {
    network: Network,
    spec: ServerSpec,
    sharded: Sharded,
    sources: Sources,
}

impl ShardServer {
    /// Opens the model that `spec` names and checks the rest against its map.
    pub fn open(mut spec: ServerSpec, number: usize) -> Result<Self, Error> {
        if !spec.tables.is_empty() {
            return Err(ShardError::NotAModel { path: spec.tables[0].clone() }.into());
        }
        let sources = Sources::of([&spec.table])?;
        let sharded = Sharded::open(&spec.table)?;
        sharded.check_number(number)?;
        let is_exposed = !spec.addr.ip().is_loopback() && !spec.insecure;
        match &mut spec.tls {
            Some(tls) if tls.client_ca.is_some() => tls.client_name = Some(front_name(spec.side)),
            Some(_) if is_exposed => return Err(ShardError::NoClientCa.into()),
            _ => {}
        }
        let (network, _) = loader::check(&spec, number, &sharded)?;
        Ok(Self { network, spec, sharded, sources })
    }

    pub fn unbound(self, number: usize) -> Result<Unbound, Error> {
        let Self { network, spec, sharded, sources } = self;
        let metrics = PairMetrics::default();
        let register = {
            let metrics = metrics.clone();
            Box::new(move |registry: &mut Registry| metrics.register(registry))
        };
        let (watched, side) = (spec.change.watched(), spec.side.name());
        let push = spec.change.push()?;
        let load = move |loading: &Loading| {
            let loader = ShardLoader::new(spec, number, metrics, sources, &loading.vitals)?;
            let held = loader.load(&sharded, &HeldShards::default())?;
            // Loaded once, so said once.
            let _ = loading.engine.set(held.description());
            let held = HeldShards::default().followed_by(held);
            let service = ShardService::new(held, loader, Admission::new(Duration::ZERO));
            let grpc = Fresh({
                let service = Arc::clone(&service);
                move || {
                    PrivateShardServer::from_arc(Arc::clone(&service))
                        .max_decoding_message_size(service.request_bytes_max())
                }
            });
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        };
        let scheme = Scheme { services: SERVICES, side, register, load: Box::new(load) };
        Ok(Unbound::new(network, scheme).watching(watched).taking(push).joined())
    }
}

#[cfg(test)]
mod tests {
    use super::SERVICE;

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../../proto/hushtable/v1/shard.proto"));
    }
}
