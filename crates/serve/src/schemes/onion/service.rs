//! The methods of `OnionLookup`.

use std::sync::Arc;

use bytes::Bytes;
use hushtable_pir::onion::{self, Asked, EvaluationKeys, KeyId};
use tokio::sync::Semaphore;
use tonic::{Request, Response, Status, Streaming};

use super::OnionInfo;
use super::keys::{KeyParser, KeyStore, KeysError, Stored};
use super::spec::{held_bytes, upload_bytes};
use crate::batch::{Answered, Scheduler};
use crate::host::admission::Admission;
use crate::host::budget::Reservation;
use crate::host::door::Service;
use crate::peer::values::{microseconds, version_from_wire};
use crate::wire::onion_lookup_server::OnionLookup;
use crate::wire::{KeysChunk, PutKeysReply};
use crate::wire::{OnionAnswerReply, OnionAnswerRequest, OnionInfoReply, OnionInfoRequest};
use crate::{Error, KeyDefect, Limit, Refusal};

impl KeyParser for onion::Server {
    type Keys = EvaluationKeys;
    type Error = onion::Error;

    fn parse(&self, bytes: &[u8]) -> Result<EvaluationKeys, onion::Error> {
        self.accept_keys(bytes)
    }

    fn memory_bytes(&self, keys: &EvaluationKeys) -> usize {
        keys.memory_bytes()
    }
}

pub(super) struct OnionService {
    server: onion::Server,
    info: OnionInfo,
    info_reply: OnionInfoReply,
    version: Bytes,
    keys: Arc<KeyStore<onion::Server>>,
    scheduler: Scheduler<onion::Server>,
    admission: Admission,
    /// Keys and queries are parsed off the threads of connections, and by few at a time: passes
    /// need the processors.
    parsers: Semaphore,
}

impl OnionService {
    pub fn new(
        server: onion::Server,
        info: OnionInfo,
        keys: KeyStore<onion::Server>,
        scheduler: Scheduler<onion::Server>,
    ) -> Arc<Self> {
        let version = Bytes::copy_from_slice(info.version.as_bytes());
        let info_reply = OnionInfoReply::from(&info);
        let admission = Admission::new(info.window);
        let (keys, parsers) = (Arc::new(keys), Semaphore::new(PARSERS_MAX));
        Arc::new(Self { server, info, info_reply, version, keys, scheduler, admission, parsers })
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
        self.admission.hold(reservation, upload_bytes(&self.info.geometry))?;
        let mut bytes = Vec::with_capacity(self.info.geometry.key_bytes());
        while let Some(chunk) = chunks.message().await? {
            let found = bytes.len() + chunk.bytes.len();
            if found > self.keys.key_bytes_max() {
                let message = format!(
                    "{found} bytes and more to come, where keys for this table have {}",
                    self.info.geometry.key_bytes()
                );
                return Err(Refusal::BadKeys { defect: KeyDefect::Length, message }.into());
            }
            bytes.extend_from_slice(&chunk.bytes);
        }
        let keys = Arc::clone(&self.keys);
        Ok(self.parse(move || keys.put(&bytes).map_err(refuse)).await?)
    }

    /// Checks all of a request that can be checked without its keys.
    fn check(&self, request: &OnionAnswerRequest) -> Result<KeyId, Refusal> {
        self.admission.check_open()?;
        let found = version_from_wire(&request.table_version)
            .map_err(|_| Refusal::BadVersion { bytes: request.table_version.len() })?;
        let expected = self.info.version;
        if found != expected {
            return Err(Refusal::VersionSkew { expected, found });
        }
        let key_id = <[u8; 32]>::try_from(&*request.key_id)
            .map_err(|_| Refusal::BadKeyId { bytes: request.key_id.len() })?;
        let (queries, queries_max) = (request.queries.len(), self.info.queries_per_request_max);
        match queries {
            0 => Err(Refusal::NoQueries),
            _ if queries > queries_max => Err(Refusal::TooManyQueries { queries, queries_max }),
            _ => Ok(KeyId::from(key_id)),
        }
    }

    /// Finds a request's keys and parses its queries.
    async fn accept(&self, key_id: KeyId, queries: Vec<Bytes>) -> Result<Vec<Asked>, Refusal> {
        let (server, keys) = (self.server.clone(), Arc::clone(&self.keys));
        let accept = move || {
            let keys = keys.fetch(&key_id).map_err(refuse)?;
            let keys = keys.ok_or(Refusal::UnknownKeys { key_id })?;
            let accept = |(i, query): (usize, &Bytes)| {
                server.accept(&keys, query).map_err(|error| Refusal::of_query(i, &error))
            };
            queries.iter().enumerate().map(accept).collect()
        };
        self.parse(accept).await
    }

    async fn answer_queries(
        &self,
        request: OnionAnswerRequest,
        reservation: Option<&Reservation>,
    ) -> Result<OnionAnswerReply, Refusal> {
        let key_id = self.check(&request)?;
        let held = request.queries.len() * held_bytes(&self.info.geometry);
        self.admission.hold(reservation, held)?;
        let asked = self.accept(key_id, request.queries).await?;
        let Answered { answers, queued, answering } = self
            .scheduler
            .answer(asked)
            .await
            .map_err(|error| Refusal::of_unanswered(error, Limit::QueueQueries))?;
        Ok(OnionAnswerReply {
            table_version: self.version.clone(),
            responses: answers.into(),
            queue_us: Some(microseconds(queued)),
            answer_us: Some(microseconds(answering)),
        })
    }
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
        Ok(self.server.backend().check()?)
    }
}

#[tonic::async_trait]
impl OnionLookup for OnionService {
    async fn info(
        &self,
        _request: Request<OnionInfoRequest>,
    ) -> Result<Response<OnionInfoReply>, Status> {
        Ok(Response::new(self.info_reply.clone()))
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
