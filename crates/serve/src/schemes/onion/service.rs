//! The methods of `OnionLookup`.

use std::future::poll_fn;
use std::path::Path;
use std::pin::Pin;
use std::sync::{Arc, PoisonError, RwLock};
use std::task::Poll;
use std::time::{Duration, Instant};

use bytes::{Bytes, BytesMut};
use hushtable_pir::onion::{self, Asked, EvaluationKeys, Geometry, KeyId};
use hushtable_table::Version;
use tonic::{Request, Response, Status, Streaming};

use super::OnionRefusal;
use super::held::{Held, HeldModel, HeldTable};
use super::loader::Loader;
use super::refusal::of_keys;
use super::spec::{held_bytes, upload_bytes};
use crate::batch::{Answered, Origin, Unanswered};
use crate::host::admission::Admission;
use crate::host::budget::{Reservation, origin_of};
use crate::host::door::Service;
use crate::host::quota::Holder;
use crate::host::scheme::Loading;
use crate::host::turns::FairTurns;
use crate::host::{Next, Reloaded};
use crate::keys::refusal::KeysRefusal;
use crate::keys::{KeyParser, KeyStore, KeysError, Stored};
use crate::peer::values::{microseconds, version_from_wire};
use crate::schemes::versions::examine;
use crate::trace::note_version;
use crate::wire::onion_lookup_server::OnionLookup;
use crate::wire::{KeyedQueries, KeysChunk, PutKeysReply};
use crate::wire::{OnionAnswerModelReply, OnionAnswerModelRequest};
use crate::wire::{OnionAnswerReply, OnionAnswerRequest, OnionInfoReply, OnionInfoRequest};
use crate::wire::{OnionCatalogReply, OnionCatalogRequest};
use crate::{Error, KeyDefect, Limit, Refusal};

/// Reads keys for any of the tables that a server holds. Clones are of the same tables.
#[derive(Clone)]
pub(super) struct Depths(Arc<RwLock<Vec<Geometry>>>);

impl Depths {
    pub fn new(geometries: Vec<Geometry>) -> Self {
        Self(Arc::new(RwLock::new(geometries)))
    }

    fn set(&self, geometries: Vec<Geometry>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = geometries;
    }
}

impl KeyParser for Depths {
    type Keys = EvaluationKeys;
    type Error = onion::Error;

    fn parse(&self, bytes: &[u8]) -> Result<EvaluationKeys, onion::Error> {
        let geometries = self.0.read().unwrap_or_else(PoisonError::into_inner).clone();
        EvaluationKeys::parse_any(&geometries, bytes)
    }

    fn memory_bytes(&self, keys: &EvaluationKeys) -> usize {
        keys.memory_bytes()
    }
}

pub(super) struct OnionService {
    held: RwLock<Arc<Held>>,
    loader: Loader,
    keys: Arc<KeyStore<Depths>>,
    depths: Depths,
    admission: Admission,
    /// Keys and queries are parsed off the threads of connections, and by few at a time: passes
    /// need the processors. Each peer's in turn: keys take longer than many queries.
    parsers: FairTurns,
}

impl OnionService {
    pub fn new(held: Held, loader: Loader, keys: KeyStore<Depths>, depths: Depths) -> Arc<Self> {
        let windows = held.tables().map(|table| table.info.window);
        let admission = Admission::new(windows.min().unwrap_or_default());
        let (keys, parsers) = (Arc::new(keys), FairTurns::new(PARSERS_MAX));
        let held = RwLock::new(Arc::new(held));
        Arc::new(Self { held, loader, keys, depths, admission, parsers })
    }

    /// What is held now: a request goes by it to its end, whatever comes meanwhile.
    pub fn held(&self) -> Arc<Held> {
        Arc::clone(&self.held.read().unwrap_or_else(PoisonError::into_inner))
    }

    fn hold(&self, held: Held) {
        held.count(self.loader.metrics());
        self.depths.set(held.geometries());
        let held = Arc::new(held);
        let mut place = self.held.write().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *place, held);
        // What is dropped is dropped where nobody waits for the lock.
        drop(place);
        drop(before);
    }

    /// The table that is asked. A server of one says which it holds, where another is asked for.
    fn table(&self, held: &Held, version: &[u8]) -> Result<Arc<HeldTable>, Refusal> {
        self.admission.check_open()?;
        let found = parse_version(version)?;
        let table = held.find_table(found).cloned().ok_or_else(|| held.unknown(found))?;
        note_version(found);
        Ok(table)
    }

    fn model(&self, held: &Held, version: &[u8]) -> Result<Arc<HeldModel>, Refusal> {
        self.admission.check_open()?;
        let found = parse_version(version)?;
        let model = held.find_model(found).cloned().ok_or(Refusal::UnknownModel { found })?;
        note_version(found);
        Ok(model)
    }

    /// Runs `work` where it may compute and read files.
    async fn parse<T: Send + 'static>(
        &self,
        holder: Holder,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        let turn = self.parsers.take(holder).await;
        let work = move || {
            // It ends when the work does, whether its caller waits for it or not.
            let _turn = turn;
            work()
        };
        // A panic was logged where it happened.
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(Refusal::Backend))
    }

    pub async fn put(
        &self,
        mut chunks: Streaming<KeysChunk>,
        reservation: Option<&Reservation>,
    ) -> Result<Stored, Status> {
        self.admission.check_open()?;
        let deepest = self.held().deepest().clone();
        self.admission.hold(reservation, upload_bytes(&deepest))?;
        let mut bytes = Vec::with_capacity(deepest.key_bytes());
        while let Some(chunk) = chunks.message().await? {
            let found = bytes.len() + chunk.bytes.len();
            if found > self.keys.key_bytes_max() {
                let message = format!(
                    "{found} bytes and more to come, where keys for this table have {}",
                    deepest.key_bytes()
                );
                return Err(KeysRefusal::BadKeys { defect: KeyDefect::Length, message }.into());
            }
            bytes.extend_from_slice(&chunk.bytes);
        }
        let (keys, origin) = (Arc::clone(&self.keys), origin_of(reservation));
        Ok(self
            .parse(Holder::of_origin(origin), move || keys.put(&bytes, origin).map_err(refuse))
            .await?)
    }

    /// Checks all of a request that can be checked without its keys.
    fn check(
        &self,
        held: &Held,
        request: &OnionAnswerRequest,
    ) -> Result<(Arc<HeldTable>, KeyId), Refusal> {
        let table = self.table(held, &request.table_version)?;
        let key_id = KeysRefusal::parse_id(&request.key_id)?;
        let (queries, queries_max) = (request.queries.len(), table.info.queries_per_request_max);
        match queries {
            0 => Err(OnionRefusal::NoQueries.into()),
            _ if queries > queries_max => {
                Err(OnionRefusal::TooManyQueries { queries, queries_max }.into())
            }
            _ => Ok((table, key_id)),
        }
    }

    /// Finds a request's keys and parses its queries, table by table.
    async fn accept(
        &self,
        key_id: KeyId,
        parts: Vec<(onion::Server, Vec<Bytes>)>,
        origin: Origin,
        refuse_query: impl Fn(usize, usize, &onion::Error) -> OnionRefusal + Send + 'static,
    ) -> Result<Vec<Vec<Asked>>, Refusal> {
        let keys = Arc::clone(&self.keys);
        let accept = move || {
            let keys = keys.fetch(&key_id, origin).map_err(refuse)?;
            let keys = keys.ok_or(KeysRefusal::UnknownKeys { key_id })?;
            let parts = parts.iter().enumerate().map(|(part, (server, queries))| {
                let accept = |(i, query): (usize, &Bytes)| {
                    let accepted = server.accept(&keys, query);
                    accepted.map_err(|error| refuse_query(part, i, &error).into())
                };
                queries.iter().enumerate().map(accept).collect()
            });
            parts.collect()
        };
        self.parse(Holder::of_origin(origin), accept).await
    }

    async fn answer_queries(
        &self,
        request: OnionAnswerRequest,
        reservation: Option<&Reservation>,
    ) -> Result<OnionAnswerReply, Refusal> {
        let now = self.held();
        let (table, key_id) = self.check(&now, &request)?;
        let _using = table.uses.begin();
        let held = request.queries.len() * held_bytes(&table.info.geometry);
        self.admission.hold(reservation, held)?;
        let parts = vec![(table.server.clone(), request.queries)];
        let refuse_query = |_, query, error: &onion::Error| OnionRefusal::of_query(query, error);
        let origin = origin_of(reservation);
        let asked = self.accept(key_id, parts, origin, refuse_query).await?;
        let asked = asked.into_iter().next().unwrap_or_default();
        let Answered { answers, queued, answering } = table
            .scheduler
            .answer_from(origin, asked)
            .await
            .map_err(|error| error.refusal(Limit::QueueQueries))?;
        Ok(OnionAnswerReply {
            table_version: table.version.clone(),
            responses: answers.into(),
            queue_us: Some(microseconds(queued)),
            answer_us: Some(microseconds(answering)),
            state: Some(now.state()),
        })
    }

    /// Answers the queries of one pass of a front's, each client's with its keys.
    pub async fn answer_pass(
        &self,
        table: &HeldTable,
        clients: Vec<KeyedQueries>,
        reservation: Option<&Reservation>,
    ) -> Result<Answered, Refusal> {
        let _using = table.uses.begin();
        let query_bytes = table.info.geometry.query_bytes();
        let mut parts = Vec::with_capacity(clients.len());
        let mut count = 0;
        for KeyedQueries { key_id, queries } in clients {
            let bytes = queries.len();
            if bytes == 0 || !bytes.is_multiple_of(query_bytes) {
                let message = format!("{bytes} bytes are no queries of {query_bytes} each");
                return Err(Refusal::BadPass { message });
            }
            count += bytes / query_bytes;
            parts.push((KeysRefusal::parse_id(&key_id)?, queries));
        }
        if count == 0 {
            return Err(Refusal::BadPass { message: "it has no query".into() });
        }
        self.admission.hold(reservation, count.saturating_mul(pass_bytes(table)))?;
        let (keys, server) = (Arc::clone(&self.keys), table.server.clone());
        let origin = origin_of(reservation);
        let accept = move || {
            // All keys first: what is missing is said before anything is parsed.
            let mut found = Vec::with_capacity(parts.len());
            for (key_id, queries) in parts {
                let keys = keys.fetch(&key_id, origin).map_err(refuse)?;
                found.push((keys.ok_or(KeysRefusal::UnknownKeys { key_id })?, queries));
            }
            let mut asked = Vec::with_capacity(count);
            for (keys, queries) in found {
                for query in queries.chunks_exact(query_bytes) {
                    let accepted = server.accept(&keys, query);
                    let refuse = |error: onion::Error| OnionRefusal::of_query(asked.len(), &error);
                    asked.push(accepted.map_err(refuse)?);
                }
            }
            Ok(asked)
        };
        let asked = self.parse(Holder::of_origin(origin), accept).await?;
        let answered = table.scheduler.answer_from(origin, asked).await;
        answered.map_err(|error| error.refusal(Limit::QueueQueries))
    }

    /// Takes the parts of an inference apart: each feature's queries, in the manifest's order.
    fn check_model(
        &self,
        held: &Held,
        request: &OnionAnswerModelRequest,
    ) -> Result<(Arc<HeldModel>, KeyId, Parts), Refusal> {
        let model = self.model(held, &request.model_version)?;
        let key_id = KeysRefusal::parse_id(&request.key_id)?;
        let features = model.manifest.features();
        let wrong = |query_index, message| -> Refusal {
            let defect = KeyDefect::Length;
            OnionRefusal::BadQuery { query_index, defect, message }.into()
        };
        if request.parts.len() != features.len() {
            return Err(wrong(
                0,
                format!(
                    "the model has {} features, the request has {} parts: one a feature",
                    features.len(),
                    request.parts.len()
                ),
            ));
        }
        let mut parts = Vec::with_capacity(features.len());
        // The number of the feature's first query among all.
        let mut first = 0;
        for ((feature, table), part) in features.iter().zip(&model.tables).zip(&request.parts) {
            let query_bytes = table.info.geometry.query_bytes();
            let expected = feature.max_ids * query_bytes;
            if part.len() != expected {
                return Err(wrong(
                    first,
                    format!(
                        "feature {:?} has {} bytes, where {} queries have {expected}",
                        feature.name,
                        part.len(),
                        feature.max_ids
                    ),
                ));
            }
            first += feature.max_ids;
            let query = |index: usize| part.slice(index * query_bytes..(index + 1) * query_bytes);
            parts.push((0..feature.max_ids).map(query).collect());
        }
        Ok((model, key_id, parts))
    }

    /// Answers a whole inference: its tables' passes take turns, and its queries of one table share
    /// one.
    async fn answer_inference(
        &self,
        request: OnionAnswerModelRequest,
        reservation: Option<&Reservation>,
    ) -> Result<OnionAnswerModelReply, Refusal> {
        let now = self.held();
        let (model, key_id, parts) = self.check_model(&now, &request)?;
        let _using = model.uses.begin();
        let tables = model.tables.iter();
        let held = tables
            .clone()
            .zip(&parts)
            .map(|(table, queries)| queries.len() * held_bytes(&table.info.geometry));
        self.admission.hold(reservation, held.sum())?;
        let features = model.manifest.features().to_vec();
        let refuse_query = move |feature: usize, query: usize, error: &onion::Error| {
            let before: usize = features[..feature].iter().map(|feature| feature.max_ids).sum();
            OnionRefusal::of_inference(before + query, &features[feature].name, error)
        };
        let servers = tables.clone().map(|table| table.server.clone());
        let origin = origin_of(reservation);
        let parts = servers.zip(parts).collect();
        let asked = self.accept(key_id, parts, origin, refuse_query).await?;
        let mut answers: Vec<_> = tables
            .zip(asked)
            .map(|(table, asked)| {
                Answering::Waits(Box::pin(table.scheduler.answer_from(origin, asked)))
            })
            .collect();
        // All at once: what one table's pass takes is not added to another's wait for a window.
        poll_fn(|cx| {
            let mut done = true;
            for answer in &mut answers {
                if let Answering::Waits(waits) = answer {
                    match waits.as_mut().poll(cx) {
                        Poll::Ready(answered) => *answer = Answering::Done(answered),
                        Poll::Pending => done = false,
                    }
                }
            }
            if done { Poll::Ready(()) } else { Poll::Pending }
        })
        .await;
        let mut responses = BytesMut::new();
        let (mut queued_max, mut answering_max) = (Duration::ZERO, Duration::ZERO);
        for answer in answers {
            let Answering::Done(answered) = answer else { return Err(Refusal::Backend) };
            let Answered { answers, queued, answering } =
                answered.map_err(|error| error.refusal(Limit::QueueQueries))?;
            responses.extend_from_slice(&answers);
            queued_max = queued_max.max(queued);
            answering_max = answering_max.max(answering);
        }
        Ok(OnionAnswerModelReply {
            model_version: model.info.versions[0].clone(),
            responses: responses.freeze(),
            queue_us: Some(microseconds(queued_max)),
            answer_us: Some(microseconds(answering_max)),
            state: Some(now.state()),
        })
    }
}

/// Bytes that a query of a front's pass holds beside its request's.
pub(super) fn pass_bytes(table: &HeldTable) -> usize {
    held_bytes(&table.info.geometry) + table.server.backend().answer_bytes()
}

pub(super) fn to_reply(stored: Stored) -> PutKeysReply {
    let Stored { id, evicted, held } = stored;
    PutKeysReply {
        key_id: Bytes::copy_from_slice(id.as_bytes()),
        evicted: Some(evicted.try_into().unwrap_or(u32::MAX)),
        held: Some(held),
    }
}

/// Queries, by features.
type Parts = Vec<Vec<Bytes>>;

/// A feature's part of an inference, on its way.
enum Answering<F> {
    Waits(Pin<Box<F>>),
    Done(Result<Answered, Unanswered>),
}

fn parse_version(version: &[u8]) -> Result<Version, Refusal> {
    version_from_wire(version).map_err(|_| Refusal::BadVersion { bytes: version.len() })
}

fn refuse(error: KeysError<onion::Error>) -> Refusal {
    match error {
        KeysError::Parse(error) => of_keys(&error).into(),
        KeysError::Budget { bytes, bytes_max } => {
            KeysRefusal::KeysBudget { bytes, bytes_max }.into()
        }
    }
}

impl Service for OnionService {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn check(&self) -> Result<(), Error> {
        for table in self.held().tables() {
            table.server.backend().check()?;
        }
        Ok(())
    }

    fn reload(&self, next: &Next, loading: &Loading) -> Result<Reloaded, Error> {
        let held = self.held();
        let Some(next) = self.loader.next(next, &held, loading)? else {
            return Ok(Reloaded::Unchanged);
        };
        self.hold(held.followed_by(next));
        Ok(Reloaded::Taken)
    }

    fn examine(&self, folder: &Path) -> Result<(), Error> {
        examine(folder)
    }

    fn retire(&self) {
        let held = self.held();
        if let Some(stays) = held.retired(self.loader.keep(), Instant::now()) {
            tracing::info!(
                dropped = held.generations() - stays.generations(),
                "dropped versions that nobody asks for any more"
            );
            drop(held);
            self.hold(stays);
        }
    }
}

#[tonic::async_trait]
impl OnionLookup for OnionService {
    async fn info(
        &self,
        request: Request<OnionInfoRequest>,
    ) -> Result<Response<OnionInfoReply>, Status> {
        let version = &request.get_ref().table_version;
        let version = (!version.is_empty()).then(|| parse_version(version)).transpose()?;
        Ok(Response::new(self.held().info(version)?.clone()))
    }

    async fn catalog(
        &self,
        _request: Request<OnionCatalogRequest>,
    ) -> Result<Response<OnionCatalogReply>, Status> {
        Ok(Response::new(self.held().catalog().clone()))
    }

    async fn answer_model(
        &self,
        mut request: Request<OnionAnswerModelRequest>,
    ) -> Result<Response<OnionAnswerModelReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let answered = self.answer_inference(request.into_inner(), reservation.as_deref()).await;
        Ok(Response::new(answered?))
    }

    async fn put_keys(
        &self,
        mut request: Request<Streaming<KeysChunk>>,
    ) -> Result<Response<PutKeysReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let stored = self.put(request.into_inner(), reservation.as_deref()).await?;
        Ok(Response::new(to_reply(stored)))
    }

    async fn answer(
        &self,
        mut request: Request<OnionAnswerRequest>,
    ) -> Result<Response<OnionAnswerReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let answered = self.answer_queries(request.into_inner(), reservation.as_deref()).await;
        Ok(Response::new(answered?))
    }
}

const PARSERS_MAX: usize = 4;
