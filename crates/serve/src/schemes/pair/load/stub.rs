//! Shards without rows, which answer after a given time: what a front costs by itself is measured with as many of
//! them as no one machine could hold shards.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_pir::dpf::Side;
use prometheus_client::registry::Registry;
use tonic::{Request, Response, Status};

use super::super::shard;
use super::super::sharded::Sharded;
use crate::host::Unbound;
use crate::host::admission::Admission;
use crate::host::door::{Routed, Routes, Service};
use crate::host::network::Network;
use crate::host::scheme::Scheme;
use crate::peer::values::microseconds;
use crate::wire::private_shard_server::{PrivateShard, PrivateShardServer};
use crate::wire::{self, AnswerPassReply, AnswerPassRequest, HeldMap, HoldsReply, HoldsRequest};
use crate::{Error, NetworkSpec};

/// A shard that answers zeros after a given time.
struct Stub {
    side: Side,
    number: usize,
    model_version: Bytes,
    map_version: Bytes,
    shards: u32,
    row_bytes: Vec<usize>,
    answer: Duration,
    request_bytes_max: usize,
    admission: Admission,
}

/// Serves every shard of the model at `path` by one that answers after `answer`, each at a port of its own, until
/// the process ends; `on_bound` is told the addresses, in the shards' order. Tables must have no layouts.
///
/// # Errors
/// [`Error::Model`] for a model without a map; [`Error::Io`] for ports that are not to be had.
pub fn serve_stub_shards(
    path: &Path,
    side: Side,
    network: &NetworkSpec,
    answer: Duration,
    on_bound: impl FnOnce(&[SocketAddr]),
) -> Result<(), Error> {
    let sharded = Sharded::open(path)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime =
        runtime.map_err(|source| Error::Io { what: "start the stubs' thread".into(), source })?;
    runtime.block_on(async {
        let (mut addrs, mut running) = (Vec::new(), Vec::new());
        for number in 0..sharded.map.shards().len() {
            let spec = NetworkSpec { metrics_addr: None, ..network.clone() };
            let stub = Stub {
                side,
                number,
                model_version: Bytes::copy_from_slice(sharded.map.model().as_bytes()),
                map_version: Bytes::copy_from_slice(sharded.map_version.as_bytes()),
                shards: sharded.map.shards().len() as u32,
                row_bytes: sharded.map.tables().iter().map(|table| table.row_bytes).collect(),
                answer,
                request_bytes_max: spec.inflight_bytes_max / 4,
                admission: Admission::new(Duration::ZERO),
            };
            let bound = stub.unbound(spec)?.bind().await?;
            addrs.push(bound.addr);
            running.push(tokio::spawn(bound.run(std::future::pending())));
        }
        on_bound(&addrs);
        for server in running {
            if let Ok(ended) = server.await {
                ended?;
            }
        }
        Ok(())
    })
}

impl Stub {
    fn unbound(self, spec: NetworkSpec) -> Result<Unbound, Error> {
        let (side, bytes_max) = (self.side.name(), self.request_bytes_max);
        let network = Network::check(spec, bytes_max)?;
        let load = move |_: &_| {
            let service = Arc::new(self);
            let grpc = PrivateShardServer::from_arc(Arc::clone(&service))
                .max_decoding_message_size(bytes_max);
            Ok(Arc::new(Routed { grpc, service }) as Arc<dyn Routes>)
        };
        let register = Box::new(|_: &mut Registry| {});
        let services = shard::SERVICES;
        Ok(Unbound::new(network, Scheme { services, side, register, load: Box::new(load) }))
    }
}

impl Service for Stub {
    fn admission(&self) -> &Admission {
        &self.admission
    }
}

#[tonic::async_trait]
impl PrivateShard for Stub {
    async fn holds(&self, _: Request<HoldsRequest>) -> Result<Response<HoldsReply>, Status> {
        let side = match self.side {
            Side::Left => wire::Side::Left,
            Side::Right => wire::Side::Right,
        };
        let held = HeldMap {
            model_version: self.model_version.clone(),
            map_version: self.map_version.clone(),
            shards: self.shards,
        };
        Ok(Response::new(HoldsReply {
            side: side.into(),
            shard: self.number as u32,
            held: vec![held],
            software: "stub".into(),
            request_bytes_max: self.request_bytes_max as u64,
            refused: String::new(),
            is_draining: false,
        }))
    }

    async fn answer_pass(
        &self,
        request: Request<AnswerPassRequest>,
    ) -> Result<Response<AnswerPassReply>, Status> {
        let started = Instant::now();
        let AnswerPassRequest { map_version, tables, .. } = request.into_inner();
        let answers = tables.iter().map(|table| {
            let keys = table.runs.iter().map(|run| run.keys.len() / run.key_bytes.max(1) as usize);
            let row_bytes = self.row_bytes.get(table.table as usize).copied().unwrap_or_default();
            Bytes::from(vec![0; keys.sum::<usize>() * row_bytes])
        });
        let answers = answers.collect();
        tokio::time::sleep_until((started + self.answer).into()).await;
        let (shard, answer_us) = (self.number as u32, microseconds(started.elapsed()));
        let reply = AnswerPassReply { map_version, shard, answers, queue_us: 0, answer_us };
        Ok(Response::new(reply))
    }
}
