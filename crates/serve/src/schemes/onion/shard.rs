//! The methods of `OnionShard`: one of the servers of a shard answers fronts, by `onion_shard.proto`.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use tonic::{Request, Response, Status, Streaming};

use super::held::Held;
use super::role::ShardOf;
use super::service::{OnionService, pass_bytes, to_reply};
use crate::Error;
use crate::endpoint::SOFTWARE;
use crate::host::admission::Admission;
use crate::host::budget::Reservation;
use crate::host::door::Service;
use crate::host::scheme::{GrpcService, Loading, Method};
use crate::host::{Next, Reloaded};
use crate::peer::values::{microseconds, version_from_wire};
use crate::wire::onion_shard_server::OnionShard;
use crate::wire::{HeldMap, HoldsReply, HoldsRequest, KeysChunk, PutKeysReply, Side};
use crate::wire::{OnionPassReply, OnionPassRequest};
use crate::{Refusal, batch::Answered};

/// What a shard offers.
pub(super) const SERVICES: &[GrpcService] = &[SERVICE];
const SERVICE: GrpcService = GrpcService {
    name: "hushtable.v1.OnionShard",
    methods: &[Method::named("AnswerPass"), Method::named("Holds"), Method::named("PutKeys")],
};

pub(super) struct ShardService {
    /// Tables, keys, and all that a server of clients has too.
    inner: Arc<OnionService>,
    shard: ShardOf,
    request_bytes_max: usize,
    /// Why the next version that was given last was not taken.
    refused: Mutex<String>,
}

impl ShardService {
    pub fn new(inner: Arc<OnionService>, shard: ShardOf, request_bytes_max: usize) -> Arc<Self> {
        Arc::new(Self { inner, shard, request_bytes_max, refused: Mutex::default() })
    }

    /// Bytes that one request may have, whichever table it is for, so that it fits with all that it holds until it is
    /// answered.
    fn pass_bytes_max(&self, held: &Held) -> usize {
        let fitting = held.tables().map(|table| {
            let query = table.info.geometry.query_bytes();
            let queries = self.request_bytes_max / (query + pass_bytes(table)).max(1);
            queries.max(1) * query + MESSAGE_BYTES
        });
        fitting.min().unwrap_or(self.request_bytes_max)
    }

    fn describe(&self) -> HoldsReply {
        let held = self.inner.held();
        let maps = held.tables().map(|table| HeldMap {
            model_version: table.version.clone(),
            map_version: Bytes::copy_from_slice(table.map.as_bytes()),
            shards: self.shard.count,
        });
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        HoldsReply {
            side: Side::Unspecified.into(),
            shard: self.shard.number,
            held: maps.collect(),
            software: SOFTWARE.into(),
            request_bytes_max: self.pass_bytes_max(&held) as u64,
            refused,
            is_draining: self.inner.admission().check_open().is_err(),
        }
    }

    async fn answer(
        &self,
        request: OnionPassRequest,
        reservation: Option<&Reservation>,
    ) -> Result<OnionPassReply, Refusal> {
        self.inner.admission().check_open()?;
        let OnionPassRequest { map_version, shard: found, clients } = request;
        let bytes = map_version.len();
        let map = version_from_wire(&map_version).map_err(|_| Refusal::BadVersion { bytes })?;
        let shard = self.shard.number;
        if found != shard {
            let (expected, found) = (shard as usize, found as usize);
            return Err(Refusal::WrongShard { expected, found });
        }
        let held = self.inner.held();
        let table = held.tables().find(|table| table.map == map);
        let table = table.cloned().ok_or(Refusal::UnknownMap { found: map })?;
        let answered = self.inner.answer_pass(&table, clients, reservation).await?;
        let Answered { answers, queued, answering } = answered;
        let (queue_us, answer_us) = (microseconds(queued), microseconds(answering));
        Ok(OnionPassReply { map_version, shard, parts: answers.into(), queue_us, answer_us })
    }
}

impl Service for ShardService {
    fn admission(&self) -> &Admission {
        self.inner.admission()
    }

    fn check(&self) -> Result<(), Error> {
        self.inner.check()
    }

    fn reload(&self, next: &Next, loading: &Loading) -> Result<Reloaded, Error> {
        let outcome = self.inner.reload(next, loading);
        let refused = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        outcome
    }

    fn examine(&self, folder: &Path) -> Result<(), Error> {
        self.inner.examine(folder)
    }

    fn retire(&self) {
        self.inner.retire();
    }
}

#[tonic::async_trait]
impl OnionShard for ShardService {
    async fn holds(&self, request: Request<HoldsRequest>) -> Result<Response<HoldsReply>, Status> {
        let held = self.inner.held();
        for map in request.into_inner().in_use.iter().take(IN_USE_MAX) {
            let tables = held.tables().filter(|table| table.map.as_bytes()[..] == map[..]);
            tables.for_each(|table| table.uses.note());
        }
        Ok(Response::new(self.describe()))
    }

    async fn put_keys(
        &self,
        mut request: Request<Streaming<KeysChunk>>,
    ) -> Result<Response<PutKeysReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let stored = self.inner.put(request.into_inner(), reservation.as_deref()).await?;
        Ok(Response::new(to_reply(stored)))
    }

    async fn answer_pass(
        &self,
        mut request: Request<OnionPassRequest>,
    ) -> Result<Response<OnionPassReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let answered = self.answer(request.into_inner(), reservation.as_deref()).await;
        answered.map(Response::new).map_err(|refusal| refusal.to_status())
    }
}

/// What a message has around its queries.
const MESSAGE_BYTES: usize = 64 << 10;
/// More maps than a front can go by.
const IN_USE_MAX: usize = 1024;

#[cfg(test)]
mod tests {
    use super::SERVICE;

    #[test]
    fn the_descriptor_has_the_methods_of_the_contract() {
        SERVICE.check_against(include_str!("../../../../../proto/hushtable/v1/onion_shard.proto"));
    }
}
