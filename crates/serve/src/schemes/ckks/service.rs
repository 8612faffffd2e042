//! The methods of `EncryptedInference`.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hushtable_infer::dlrm::{self, Keys};
use hushtable_pir::onion::KeyId;
use prometheus_client::metrics::counter::Counter;
use tonic::{Request, Response, Status, Streaming};

use super::CkksRefusal;
use super::answerer::{Asked, Computing};
use super::engine::Computation;
use super::refusal::of_keys;
use super::spec::{held_bytes, upload_bytes};
use crate::batch::{Answered, Scheduler};
use crate::host::admission::Admission;
use crate::host::budget::{Reservation, origin_of};
use crate::host::door::Service;
use crate::host::places::Places;
use crate::host::quota::{Full, Holder};
use crate::keys::refusal::KeysRefusal;
use crate::keys::{KeyParser, KeyStore, KeysError, Stored};
use crate::peer::values::{microseconds, version_from_wire};
use crate::trace::note_version;
use crate::wire::encrypted_inference_server::EncryptedInference;
use crate::wire::{
    HaveKeysReply, HaveKeysRequest, InferInfoReply, InferInfoRequest, PredictReply, PredictRequest,
    UploadHead, UploadKeysReply, UploadKeysRequest,
};
use crate::{KeyDefect, Limit, Refusal};

impl KeyParser for Computation {
    type Keys = Keys;
    type Error = dlrm::Error;

    fn parse(&self, bytes: &[u8]) -> Result<Keys, dlrm::Error> {
        let mut reader = self.engine.key_reader(self.masks)?;
        reader.push(bytes)?;
        reader.finish()
    }

    fn memory_bytes(&self, keys: &Keys) -> usize {
        keys.memory_bytes()
    }
}

/// Keys are parsed by the model that they are for.
impl<P: KeyParser> KeyParser for Arc<P> {
    type Keys = P::Keys;
    type Error = P::Error;

    fn parse(&self, bytes: &[u8]) -> Result<P::Keys, P::Error> {
        P::parse(self, bytes)
    }

    fn memory_bytes(&self, keys: &P::Keys) -> usize {
        P::memory_bytes(self, keys)
    }
}

pub(super) struct CkksService {
    computation: Arc<Computation>,
    keys: Arc<KeyStore<Arc<Computation>>>,
    scheduler: Scheduler<Computing>,
    info: InferInfoReply,
    plan: Bytes,
    admission: Admission,
    /// Uploads under way: each holds hundreds of megabytes, for as long as its client likes to send.
    uploads: Arc<Places>,
}

impl CkksService {
    pub fn new(
        computation: Arc<Computation>,
        keys: KeyStore<Arc<Computation>>,
        scheduler: Scheduler<Computing>,
        pass: Duration,
        displaced: Counter,
    ) -> Arc<Self> {
        let info = InferInfoReply::from(&computation.info);
        let plan = info.plan.clone();
        let (keys, admission) = (Arc::new(keys), Admission::new(pass));
        let uploads = Places::new(UPLOADS_MAX, displaced);
        Arc::new(Self { computation, keys, scheduler, info, plan, admission, uploads })
    }

    /// Refuses what was made for another plan.
    fn check_plan(&self, plan: &[u8]) -> Result<(), Refusal> {
        let bytes = plan.len();
        let found = version_from_wire(plan).map_err(|_| Refusal::BadVersion { bytes })?;
        let expected = self.computation.info.plan;
        match found == expected {
            true => {
                note_version(expected);
                Ok(())
            }
            false => Err(CkksRefusal::PlanSkew { expected, found }.into()),
        }
    }

    async fn upload(
        &self,
        mut chunks: Streaming<UploadKeysRequest>,
        holder: Holder,
        reservation: Option<&Reservation>,
    ) -> Result<Stored, Status> {
        self.admission.check_open()?;
        let key_bytes = self.computation.info.key_bytes();
        let wrong = |message: String| {
            let defect = KeyDefect::Length;
            Status::from(KeysRefusal::BadKeys { defect, message })
        };
        let first = chunks.message().await?.unwrap_or_default();
        let Some(UploadHead { plan, key_id, bytes: announced }) = first.head else {
            let (defect, message) = (KeyDefect::Format, "the first message has no head".to_owned());
            return Err(KeysRefusal::BadKeys { defect, message }.into());
        };
        self.check_plan(&plan)?;
        let id = KeysRefusal::parse_id(&key_id)?;
        if announced != key_bytes as u64 {
            return Err(wrong(format!(
                "{announced} bytes, where keys of this plan have {key_bytes}"
            )));
        }
        if self.keys.holds(&id) {
            // Read to its end: a client that is cut off while it sends may not see the reply.
            while chunks.message().await?.is_some() {}
            return Ok(Stored { id, evicted: 0, held: true });
        }
        let busy = || Refusal::Busy { limit: Limit::Uploads, retry_after: UPLOAD_RETRY };
        let mut place = self.uploads.enter(holder).map_err(|Full| busy())?;
        self.admission.hold(reservation, upload_bytes(&self.computation.info))?;
        let read = async {
            let mut bytes = Vec::with_capacity(key_bytes);
            let mut next = Some(first.bytes);
            while let Some(chunk) = next {
                let found = bytes.len() + chunk.len();
                if found > key_bytes {
                    return Err(wrong(format!(
                        "{found} bytes and more, where there should be {key_bytes}"
                    )));
                }
                bytes.extend_from_slice(&chunk);
                next = chunks.message().await?.map(|message| message.bytes);
            }
            Ok::<_, Status>(bytes)
        };
        let bytes = tokio::select! {
            bytes = read => bytes?,
            () = place.lost() => return Err(busy().into()),
        };
        if bytes.len() != key_bytes {
            let found = bytes.len();
            return Err(wrong(format!("{found} bytes, where keys of this plan have {key_bytes}")));
        }
        let (keys, origin) = (Arc::clone(&self.keys), origin_of(reservation));
        let put = move || {
            if KeyId::of(&bytes) != id {
                let message = "the bytes do not hash to the id that was announced".to_owned();
                return Err(KeysRefusal::BadKeys { defect: KeyDefect::Other, message }.into());
            }
            keys.put(&bytes, origin).map_err(refuse)
        };
        Ok(off_thread(put).await?)
    }

    async fn answer(
        &self,
        request: PredictRequest,
        reservation: Option<&Reservation>,
    ) -> Result<PredictReply, Refusal> {
        self.admission.check_open()?;
        self.check_plan(&request.plan)?;
        let key_id = KeysRefusal::parse_id(&request.key_id)?;
        let info = &self.computation.info;
        let (expected, found) = (info.query_bytes(), request.query.len());
        if expected != found {
            let message = format!("{found} bytes, where a query of this plan has {expected}");
            return Err(CkksRefusal::BadFeatures { defect: KeyDefect::Length, message }.into());
        }
        self.admission.hold(reservation, held_bytes(info))?;
        let (keys, origin) = (Arc::clone(&self.keys), origin_of(reservation));
        let keys = off_thread(move || keys.fetch(&key_id, origin).map_err(refuse)).await?;
        let keys = keys.ok_or(KeysRefusal::UnknownKeys { key_id })?;
        let refused = Arc::new(OnceLock::new());
        let asked = Asked { keys, query: request.query, refused: Arc::clone(&refused) };
        let Answered { answers, queued, answering } = self
            .scheduler
            .answer_from(origin, vec![asked])
            .await
            .map_err(|error| error.refusal(Limit::QueueQueries))?;
        if let Some(error) = refused.get() {
            return Err(CkksRefusal::of_query(error).into());
        }
        Ok(PredictReply {
            plan: self.plan.clone(),
            answer: answers.into(),
            queue_us: Some(microseconds(queued)),
            answer_us: Some(microseconds(answering)),
        })
    }
}

fn refuse(error: KeysError<dlrm::Error>) -> Refusal {
    match error {
        KeysError::Parse(error) => of_keys(&error).into(),
        KeysError::Budget { bytes, bytes_max } => {
            KeysRefusal::KeysBudget { bytes, bytes_max }.into()
        }
    }
}

/// Runs `work` where it may compute and read files.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // A panic was logged where it happened.
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Refusal::Backend))
}

impl Service for CkksService {
    fn admission(&self) -> &Admission {
        &self.admission
    }
}

#[tonic::async_trait]
impl EncryptedInference for CkksService {
    async fn info(
        &self,
        _request: Request<InferInfoRequest>,
    ) -> Result<Response<InferInfoReply>, Status> {
        Ok(Response::new(self.info.clone()))
    }

    async fn have_keys(
        &self,
        request: Request<HaveKeysRequest>,
    ) -> Result<Response<HaveKeysReply>, Status> {
        self.admission.check_open()?;
        let HaveKeysRequest { plan, key_id } = request.into_inner();
        self.check_plan(&plan)?;
        let held = self.keys.holds(&KeysRefusal::parse_id(&key_id)?);
        Ok(Response::new(HaveKeysReply { held: Some(held) }))
    }

    async fn upload_keys(
        &self,
        mut request: Request<Streaming<UploadKeysRequest>>,
    ) -> Result<Response<UploadKeysReply>, Status> {
        let holder = Holder::of(request.extensions());
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let Stored { id, evicted, held } =
            self.upload(request.into_inner(), holder, reservation.as_deref()).await?;
        Ok(Response::new(UploadKeysReply {
            key_id: Bytes::copy_from_slice(id.as_bytes()),
            evicted: Some(evicted.try_into().unwrap_or(u32::MAX)),
            held: Some(held),
        }))
    }

    async fn predict(
        &self,
        mut request: Request<PredictRequest>,
    ) -> Result<Response<PredictReply>, Status> {
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let answered = self.answer(request.into_inner(), reservation.as_deref()).await;
        Ok(Response::new(answered?))
    }
}

const UPLOADS_MAX: usize = 2;
/// An upload takes seconds.
const UPLOAD_RETRY: Duration = Duration::from_millis(500);
