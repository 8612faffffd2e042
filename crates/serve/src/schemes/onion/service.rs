//! The methods of `OnionLookup`.

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use hushtable_pir::onion::{self, Asked, EvaluationKeys, Geometry, KeyId};
use hushtable_table::Version;
use hushtable_table::model::ModelManifest;
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use super::OnionInfo;
use super::spec::{held_bytes, upload_bytes};
use crate::batch::{Answered, Origin, Scheduler, Unanswered};
use crate::host::admission::Admission;
use crate::host::budget::{Reservation, origin_of};
use crate::host::door::Service;
use crate::keys::{KeyParser, KeyStore, KeysError, Stored};
use crate::peer::values::{microseconds, version_from_wire};
use crate::wire::onion_lookup_server::OnionLookup;
use crate::wire::{KeysChunk, ModelInfo, PutKeysReply};
use crate::wire::{OnionAnswerModelReply, OnionAnswerModelRequest};
use crate::wire::{OnionAnswerReply, OnionAnswerRequest, OnionInfoReply, OnionInfoRequest};
use crate::wire::{OnionCatalogReply, OnionCatalogRequest};
use crate::{Error, KeyDefect, Limit, Refusal};

/// Reads keys for any of the tables that a server holds.
pub(super) struct Depths(pub Vec<Geometry>);

impl KeyParser for Depths {
    type Keys = EvaluationKeys;
    type Error = onion::Error;

    fn parse(&self, bytes: &[u8]) -> Result<EvaluationKeys, onion::Error> {
        EvaluationKeys::parse_any(&self.0, bytes)
    }

    fn memory_bytes(&self, keys: &EvaluationKeys) -> usize {
        keys.memory_bytes()
    }
}

/// A table behind a scheduler.
pub(super) struct HeldTable {
    server: onion::Server,
    info: OnionInfo,
    version: Bytes,
    scheduler: Scheduler<onion::Server>,
}

impl HeldTable {
    pub fn new(
        server: onion::Server,
        info: OnionInfo,
        scheduler: Scheduler<onion::Server>,
    ) -> Self {
        let version = Bytes::copy_from_slice(info.version.as_bytes());
        Self { server, info, version, scheduler }
    }

    pub fn info(&self) -> &OnionInfo {
        &self.info
    }

    pub fn version(&self) -> Version {
        self.info.version
    }
}

/// A model over tables that are held.
pub(super) struct HeldModel {
    pub manifest: ModelManifest,
    /// By feature, its table's place among those that are held.
    pub tables: Vec<usize>,
    pub info: ModelInfo,
}

pub(super) struct OnionService {
    tables: Vec<HeldTable>,
    models: Vec<HeldModel>,
    catalog: OnionCatalogReply,
    keys: Arc<KeyStore<Depths>>,
    /// Of the table with the most levels, whose keys are the largest.
    deepest: Geometry,
    admission: Admission,
    /// Keys and queries are parsed off the threads of connections, and by few at a time: passes
    /// need the processors.
    parsers: Semaphore,
}

/// What a server holds, each table version once.
pub(super) struct Holdings {
    pub tables: Vec<HeldTable>,
    pub models: Vec<HeldModel>,
    /// What is said of each table, once for each name.
    pub infos: Vec<OnionInfoReply>,
    pub deepest: Geometry,
    pub keys: KeyStore<Depths>,
}

impl OnionService {
    pub fn new(holdings: Holdings) -> Arc<Self> {
        let Holdings { tables, models, infos, deepest, keys } = holdings;
        let windows = tables.iter().map(|table| table.info.window);
        let admission = Admission::new(windows.min().unwrap_or_default());
        let catalog = OnionCatalogReply {
            tables: infos,
            models: models.iter().map(|model| model.info.clone()).collect(),
            older: Vec::new(),
            state: None,
        };
        let (keys, parsers) = (Arc::new(keys), Semaphore::new(PARSERS_MAX));
        Arc::new(Self { tables, models, catalog, keys, deepest, admission, parsers })
    }

    /// The table that is asked. A server of one says which it holds, where another is asked for.
    fn table(&self, version: &[u8]) -> Result<&HeldTable, Refusal> {
        self.admission.check_open()?;
        let found = parse_version(version)?;
        let table = self.tables.iter().find(|table| table.info.version == found);
        table.ok_or_else(|| self.unknown(found))
    }

    fn unknown(&self, found: Version) -> Refusal {
        match self.tables.as_slice() {
            [only] => Refusal::VersionSkew { expected: only.info.version, found },
            tables => Refusal::UnknownTable { found: Some(found), tables: tables.len() },
        }
    }

    fn info_of(&self, version: &[u8]) -> Result<&OnionInfoReply, Refusal> {
        let infos = &self.catalog.tables;
        if version.is_empty() {
            return match (self.tables.len(), infos.first()) {
                (1, Some(only)) => Ok(only),
                (tables, _) => Err(Refusal::UnknownTable { found: None, tables }),
            };
        }
        let found = parse_version(version)?;
        let info = infos.iter().find(|info| *info.version == *found.as_bytes());
        info.ok_or_else(|| self.unknown(found))
    }

    fn model(&self, version: &[u8]) -> Result<&HeldModel, Refusal> {
        self.admission.check_open()?;
        let found = parse_version(version)?;
        let model = self.models.iter().find(|model| model.manifest.version() == found);
        model.ok_or(Refusal::UnknownModel { found })
    }

    /// Runs `work` where it may compute and read files.
    async fn parse<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
    ) -> Result<T, Refusal> {
        // The semaphore is never closed, and a panic was logged where it happened.
        let _turn = self.parsers.acquire().await.map_err(|_| Refusal::Draining)?;
        tokio::task::spawn_blocking(work).await.unwrap_or(Err(Refusal::Backend))
    }

    async fn put(
        &self,
        mut chunks: Streaming<KeysChunk>,
        reservation: Option<&Reservation>,
    ) -> Result<Stored, Status> {
        self.admission.check_open()?;
        self.admission.hold(reservation, upload_bytes(&self.deepest))?;
        let mut bytes = Vec::with_capacity(self.deepest.key_bytes());
        while let Some(chunk) = chunks.message().await? {
            let found = bytes.len() + chunk.bytes.len();
            if found > self.keys.key_bytes_max() {
                let message = format!(
                    "{found} bytes and more to come, where keys for this table have {}",
                    self.deepest.key_bytes()
                );
                return Err(Refusal::BadKeys { defect: KeyDefect::Length, message }.into());
            }
            bytes.extend_from_slice(&chunk.bytes);
        }
        let (keys, origin) = (Arc::clone(&self.keys), origin_of(reservation));
        Ok(self.parse(move || keys.put(&bytes, origin).map_err(refuse)).await?)
    }

    /// Checks all of a request that can be checked without its keys.
    fn check(&self, request: &OnionAnswerRequest) -> Result<(&HeldTable, KeyId), Refusal> {
        let table = self.table(&request.table_version)?;
        let key_id = parse_key_id(&request.key_id)?;
        let (queries, queries_max) = (request.queries.len(), table.info.queries_per_request_max);
        match queries {
            0 => Err(Refusal::NoQueries),
            _ if queries > queries_max => Err(Refusal::TooManyQueries { queries, queries_max }),
            _ => Ok((table, key_id)),
        }
    }

    /// Finds a request's keys and parses its queries, table by table.
    async fn accept(
        &self,
        key_id: KeyId,
        parts: Vec<(onion::Server, Vec<Bytes>)>,
        origin: Origin,
        refuse_query: impl Fn(usize, usize, &onion::Error) -> Refusal + Send + 'static,
    ) -> Result<Vec<Vec<Asked>>, Refusal> {
        let keys = Arc::clone(&self.keys);
        let accept = move || {
            let keys = keys.fetch(&key_id, origin).map_err(refuse)?;
            let keys = keys.ok_or(Refusal::UnknownKeys { key_id })?;
            let parts = parts.iter().enumerate().map(|(part, (server, queries))| {
                let accept = |(i, query): (usize, &Bytes)| {
                    server.accept(&keys, query).map_err(|error| refuse_query(part, i, &error))
                };
                queries.iter().enumerate().map(accept).collect()
            });
            parts.collect()
        };
        self.parse(accept).await
    }

    async fn answer_queries(
        &self,
        request: OnionAnswerRequest,
        reservation: Option<&Reservation>,
    ) -> Result<OnionAnswerReply, Refusal> {
        let (table, key_id) = self.check(&request)?;
        let held = request.queries.len() * held_bytes(&table.info.geometry);
        self.admission.hold(reservation, held)?;
        let parts = vec![(table.server.clone(), request.queries)];
        let refuse_query = |_, query, error: &onion::Error| Refusal::of_query(query, error);
        let origin = origin_of(reservation);
        let asked = self.accept(key_id, parts, origin, refuse_query).await?;
        let asked = asked.into_iter().next().unwrap_or_default();
        let Answered { answers, queued, answering } = table
            .scheduler
            .answer_from(origin, asked)
            .await
            .map_err(|error| Refusal::of_unanswered(error, Limit::QueueQueries))?;
        Ok(OnionAnswerReply {
            table_version: table.version.clone(),
            responses: answers.into(),
            queue_us: Some(microseconds(queued)),
            answer_us: Some(microseconds(answering)),
            state: None,
        })
    }

    /// Takes the parts of an inference apart: each feature's queries, in the manifest's order.
    fn check_model(
        &self,
        request: &OnionAnswerModelRequest,
    ) -> Result<(&HeldModel, KeyId, Vec<Vec<Bytes>>), Refusal> {
        let model = self.model(&request.model_version)?;
        let key_id = parse_key_id(&request.key_id)?;
        let features = model.manifest.features();
        let wrong = |query_index, message| {
            let defect = KeyDefect::Length;
            Refusal::BadQuery { query_index, defect, message }
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
        for ((feature, &table), part) in features.iter().zip(&model.tables).zip(&request.parts) {
            let query_bytes = self.tables[table].info.geometry.query_bytes();
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
        let (model, key_id, parts) = self.check_model(&request)?;
        let tables = model.tables.iter().map(|&table| &self.tables[table]);
        let held = tables
            .clone()
            .zip(&parts)
            .map(|(table, queries)| queries.len() * held_bytes(&table.info.geometry));
        self.admission.hold(reservation, held.sum())?;
        let features = model.manifest.features().to_vec();
        let refuse_query = move |feature: usize, query: usize, error: &onion::Error| {
            let before: usize = features[..feature].iter().map(|feature| feature.max_ids).sum();
            Refusal::of_inference(before + query, &features[feature].name, error)
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
                answered.map_err(|error| Refusal::of_unanswered(error, Limit::QueueQueries))?;
            responses.extend_from_slice(&answers);
            queued_max = queued_max.max(queued);
            answering_max = answering_max.max(answering);
        }
        Ok(OnionAnswerModelReply {
            model_version: model.info.versions[0].clone(),
            responses: responses.freeze(),
            queue_us: Some(microseconds(queued_max)),
            answer_us: Some(microseconds(answering_max)),
            state: None,
        })
    }
}

/// A feature's part of an inference, on its way.
enum Answering<F> {
    Waits(Pin<Box<F>>),
    Done(Result<Answered, Unanswered>),
}

fn parse_version(version: &[u8]) -> Result<Version, Refusal> {
    version_from_wire(version).map_err(|_| Refusal::BadVersion { bytes: version.len() })
}

fn parse_key_id(id: &[u8]) -> Result<KeyId, Refusal> {
    let parsed = <[u8; 32]>::try_from(id).map(KeyId::from);
    parsed.map_err(|_| Refusal::BadKeyId { bytes: id.len() })
}

fn refuse(error: KeysError<onion::Error>) -> Refusal {
    match error {
        KeysError::Parse(error) => Refusal::of_keys(&error),
        KeysError::Budget { bytes, bytes_max } => Refusal::KeysBudget { bytes, bytes_max },
    }
}

impl Service for OnionService {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn check(&self) -> Result<(), Error> {
        for table in &self.tables {
            table.server.backend().check()?;
        }
        Ok(())
    }
}

#[tonic::async_trait]
impl OnionLookup for OnionService {
    async fn info(
        &self,
        request: Request<OnionInfoRequest>,
    ) -> Result<Response<OnionInfoReply>, Status> {
        Ok(Response::new(self.info_of(&request.get_ref().table_version)?.clone()))
    }

    async fn catalog(
        &self,
        _request: Request<OnionCatalogRequest>,
    ) -> Result<Response<OnionCatalogReply>, Status> {
        Ok(Response::new(self.catalog.clone()))
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
        let Stored { id, evicted, held } =
            self.put(request.into_inner(), reservation.as_deref()).await?;
        Ok(Response::new(PutKeysReply {
            key_id: Bytes::copy_from_slice(id.as_bytes()),
            evicted: Some(evicted.try_into().unwrap_or(u32::MAX)),
            held: Some(held),
        }))
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
