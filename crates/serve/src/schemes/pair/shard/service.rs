//! The methods of `PrivateShard`.

use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError, RwLock};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::future::try_join_all;
use hushtable_pir::dpf::Side;
use tonic::{Request, Response, Status};

use super::held::{HeldShard, HeldShards, ShardBins, ShardRows};
use super::loader::{Loaded, ShardLoader};
use crate::batch::{Answered, Origin};
use crate::endpoint::SOFTWARE;
use crate::host::admission::Admission;
use crate::host::budget::{Reservation, origin_of};
use crate::host::door::Service;
use crate::host::scheme::Loading;
use crate::host::{Next, Reloaded};
use crate::peer::values::{microseconds, version_from_wire};
use crate::schemes::pair::PairRefusal;
use crate::schemes::versions::examine;
use crate::trace;
use crate::wire::private_shard_server::PrivateShard;
use crate::wire::{self, AnswerPassReply, AnswerPassRequest, HeldMap, HoldsReply, HoldsRequest};
use crate::wire::{KeyRun, TableKeys};
use crate::{Error, Limit, Refusal};

pub(super) struct ShardService {
    held: RwLock<Arc<HeldShards>>,
    loader: ShardLoader,
    admission: Admission,
    /// Why the next version that was given last was not taken.
    refused: Mutex<String>,
}

/// One table's part of a pass.
type Part<'a> = Pin<Box<dyn Future<Output = Result<Answered, Refusal>> + Send + 'a>>;

impl ShardService {
    pub fn new(held: HeldShards, loader: ShardLoader, admission: Admission) -> Arc<Self> {
        let refused = Mutex::default();
        Arc::new(Self { held: RwLock::new(Arc::new(held)), loader, admission, refused })
    }

    pub fn request_bytes_max(&self) -> usize {
        self.loader.request_bytes_max
    }

    fn held(&self) -> Arc<HeldShards> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn hold(&self, held: HeldShards) {
        let held = Arc::new(held);
        let mut place = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, held);
        // What is dropped is dropped where nobody waits for the lock.
        drop(place);
        drop(before);
    }

    fn take(&self, next: &Next, loading: &Loading) -> Result<Reloaded, Error> {
        let held = self.held();
        Ok(match self.loader.next(next, &held, loading)? {
            Loaded::Unchanged => Reloaded::Unchanged,
            Loaded::Again(known) => {
                self.hold(held.led_by(known));
                Reloaded::Taken
            }
            Loaded::New(next) => {
                self.hold(held.followed_by(next));
                Reloaded::Taken
            }
        })
    }

    fn describe(&self) -> HoldsReply {
        let side = match self.loader.side() {
            Side::Left => wire::Side::Left,
            Side::Right => wire::Side::Right,
        };
        let held = self.held();
        let maps = held.all().iter().map(|held| HeldMap {
            model_version: Bytes::copy_from_slice(held.map.model().as_bytes()),
            map_version: Bytes::copy_from_slice(held.map_version.as_bytes()),
            shards: held.map.shards().len() as u32,
        });
        let refused = self.refused.lock().unwrap_or_else(PoisonError::into_inner).clone();
        HoldsReply {
            side: side.into(),
            shard: self.loader.number as u32,
            held: maps.collect(),
            software: SOFTWARE.into(),
            request_bytes_max: self.loader.request_bytes_max as u64,
            refused,
            is_draining: self.admission.check_open().is_err(),
        }
    }

    async fn answer(
        &self,
        request: AnswerPassRequest,
        reservation: Option<&Reservation>,
    ) -> Result<AnswerPassReply, Refusal> {
        self.admission.check_open()?;
        let AnswerPassRequest { map_version, shard, tables, traceparent } = request;
        trace::join(traceparent.as_deref());
        let bytes = map_version.len();
        let found = version_from_wire(&map_version).map_err(|_| Refusal::BadVersion { bytes })?;
        let (expected, shard) = (self.loader.number, shard as usize);
        if shard != expected {
            return Err(Refusal::WrongShard { expected, found: shard });
        }
        let held = self.held();
        let held = held.find(found).cloned().ok_or(Refusal::UnknownMap { found })?;
        let _using = held.uses.begin();
        let origin = origin_of(reservation);
        // Every key is checked before any is answered.
        let mut parts: Vec<Part<'_>> = Vec::with_capacity(tables.len());
        for keys in tables {
            parts.push(self.part(&held, keys, origin, reservation)?);
        }
        let answered = try_join_all(parts).await?;
        let longest = |of: fn(&Answered) -> Duration| {
            microseconds(answered.iter().map(of).max().unwrap_or_default())
        };
        let (queue_us, answer_us) = (longest(|it| it.queued), longest(|it| it.answering));
        let answers = answered.into_iter().map(|answered| answered.answers.into()).collect();
        Ok(AnswerPassReply { map_version, shard: expected as u32, answers, queue_us, answer_us })
    }

    /// What one table's keys come to.
    fn part<'a>(
        &self,
        held: &'a HeldShard,
        keys: TableKeys,
        origin: Origin,
        reservation: Option<&Reservation>,
    ) -> Result<Part<'a>, Refusal> {
        let TableKeys { table, runs, bags } = keys;
        let bad = |message: String| Refusal::BadPass { message };
        let of_table = held.tables.get(table as usize);
        let of_table = of_table.ok_or_else(|| bad(format!("the model has no table {table}")))?;
        match (&of_table.rows, &of_table.bins) {
            (Some(rows), _) if !runs.is_empty() && bags.is_empty() => {
                self.of_rows(rows, runs, origin, reservation)
            }
            (_, Some(bins)) if runs.is_empty() && !bags.is_empty() => {
                self.of_bins(bins, bags, origin, reservation)
            }
            _ if runs.is_empty() == bags.is_empty() => {
                Err(bad(format!("table {table} is asked for both rows and bins, or for neither")))
            }
            _ => Err(bad(format!("the shard has nothing of table {table} that is asked"))),
        }
    }

    fn of_rows<'a>(
        &self,
        rows: &'a ShardRows,
        runs: Vec<KeyRun>,
        origin: Origin,
        reservation: Option<&Reservation>,
    ) -> Result<Part<'a>, Refusal> {
        let mut keys = Vec::new();
        for KeyRun { key_bytes, keys: run } in runs {
            let key_bytes = key_bytes as usize;
            if key_bytes == 0 || run.is_empty() || !run.len().is_multiple_of(key_bytes) {
                let message =
                    format!("a run of {} bytes is no keys of {key_bytes} each", run.len());
                return Err(Refusal::BadPass { message });
            }
            for bytes in run.chunks_exact(key_bytes) {
                let place = keys.len();
                let key = rows.server.accept(bytes);
                keys.push(key.map_err(|error| PairRefusal::of_key(place, &error))?);
            }
        }
        let row_bytes = rows.server.backend().shape().row_bytes();
        self.admission.hold(reservation, keys.len() * row_bytes)?;
        Ok(Box::pin(async move {
            let answered = rows.scheduler.answer_from(origin, keys).await;
            answered.map_err(|error| error.refusal(Limit::QueueKeys))
        }))
    }

    fn of_bins<'a>(
        &self,
        bins: &'a ShardBins,
        bags: Bytes,
        origin: Origin,
        reservation: Option<&Reservation>,
    ) -> Result<Part<'a>, Refusal> {
        let geometry = bins.server.backend().geometry();
        let one = geometry.request_bytes(self.loader.side());
        if !bags.len().is_multiple_of(one) {
            let message = format!("{} bytes are no inferences of {one} each", bags.len());
            return Err(Refusal::BadPass { message });
        }
        let count = bags.len() / one;
        self.admission.hold(reservation, count * super::super::bags::held_bytes(geometry))?;
        let mut keys = Vec::with_capacity(count);
        let mut rest = bags;
        for _ in 0..count {
            let bytes = rest.split_to(one).into();
            keys.push(bins.server.accept(bytes).map_err(|error| PairRefusal::of_bag(&error))?);
        }
        Ok(Box::pin(async move {
            let answered = bins.scheduler.answer_from(origin, keys).await;
            let answered = answered.map_err(|error| error.refusal(Limit::QueueBags))?;
            let geometry = bins.server.backend().geometry();
            let own = geometry.answers_of_bins(&bins.bins);
            // Entries of other shards' bins are zeros: nobody needs them.
            let cut = answered.answers.chunks_exact(geometry.answer_bytes());
            let cut = cut.flat_map(|answer| own.iter().map(|own| &answer[own.clone()]));
            let answers = cut.collect::<Vec<_>>().concat();
            Ok(Answered { answers, ..answered })
        }))
    }
}

impl Service for ShardService {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn reload(&self, next: &Next, loading: &Loading) -> Result<Reloaded, Error> {
        let outcome = self.take(next, loading);
        let refused = outcome.as_ref().err().map(ToString::to_string).unwrap_or_default();
        *self.refused.lock().unwrap_or_else(PoisonError::into_inner) = refused;
        outcome
    }

    fn examine(&self, folder: &Path) -> Result<(), Error> {
        examine(folder)
    }

    fn retire(&self) {
        let held = self.held();
        if let Some(stays) = held.retired(self.loader.keep(), Instant::now()) {
            let dropped = held.all().len() - stays.all().len();
            tracing::info!(dropped, "dropped versions that no front goes by any more");
            drop(held);
            self.hold(stays);
        }
    }
}

#[tonic::async_trait]
impl PrivateShard for ShardService {
    async fn holds(&self, request: Request<HoldsRequest>) -> Result<Response<HoldsReply>, Status> {
        let held = self.held();
        for map in request.into_inner().in_use.iter().take(IN_USE_MAX) {
            let found = version_from_wire(map).ok().and_then(|map| held.find(map));
            if let Some(found) = found {
                found.uses.note();
            }
        }
        Ok(Response::new(self.describe()))
    }

    async fn answer_pass(
        &self,
        mut request: Request<AnswerPassRequest>,
    ) -> Result<Response<AnswerPassReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let answered = self.answer(request.into_inner(), reservation.as_deref()).await;
        answered.map(Response::new).map_err(|refusal| refusal.to_status())
    }
}

/// More maps than a front can go by.
const IN_USE_MAX: usize = 64;
