//! The methods of `HybridInference`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_table::Version;
use prost::Message as _;
use tokio::runtime::Handle;
use tokio::sync::mpsc;
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status, Streaming};

use super::exchange::{Broken, exchange};
use super::keep::Half;
use super::machines::{Error as MachineError, HybridModel, OnlineServer, RecordError};
use super::metrics::HybridMetrics;
use super::places::{Place, Predictions};
use super::precomputes::Precomputes;
use super::refusal::{Garbler, of_step};
use super::spec::HELD_BYTES;
use super::{FRAMES_AHEAD, HybridInfo, HybridRefusal, PrecomputeId, StepDefect};
use crate::host::admission::Admission;
use crate::host::budget::Reservation;
use crate::host::door::Service;
use crate::host::quota::{Full, Holder};
use crate::host::turns::FairTurns;
use crate::peer::values::version_from_wire;
use crate::wire::hybrid_inference_server::HybridInference;
use crate::wire::{
    HybridBeginReply, HybridBeginRequest, HybridFinishReply, HybridFinishRequest, HybridInfoReply,
    HybridInfoRequest, HybridStepReply, HybridStepRequest, PredictFrame, PredictOpen,
};
use crate::{Error, Limit, Refusal};

pub(super) struct HybridService {
    model: Arc<HybridModel>,
    info: HybridInfo,
    reply: HybridInfoReply,
    precomputes: Arc<Precomputes>,
    metrics: HybridMetrics,
    admission: Admission,
    /// Steps that are computed.
    steps: FairTurns,
    /// Frames of predictions that are computed.
    frames: Arc<FairTurns>,
    predictions: Arc<Predictions>,
    /// How long the other side of a prediction may be silent.
    pause_max: Duration,
}

/// How much a server does at once.
pub(super) struct Room {
    pub steps: usize,
    pub predictions: usize,
    pub pause_max: Duration,
}

impl HybridService {
    pub fn new(
        model: Arc<HybridModel>,
        info: HybridInfo,
        precomputes: Precomputes,
        metrics: HybridMetrics,
        room: Room,
    ) -> Arc<Self> {
        let reply = HybridInfoReply::from(&info);
        let displaced = metrics.displaced.clone();
        Arc::new(Self {
            model,
            info,
            reply,
            precomputes: Arc::new(precomputes),
            metrics,
            admission: Admission::new(STEP),
            steps: FairTurns::new(room.steps),
            frames: Arc::new(FairTurns::new(room.steps)),
            predictions: Predictions::new(room.predictions, displaced),
            pause_max: room.pause_max,
        })
    }

    fn check_plan(&self, plan: &[u8]) -> Result<(), Refusal> {
        let bytes = plan.len();
        let found = version_from_wire(plan).map_err(|_| Refusal::BadVersion { bytes })?;
        let expected: Version = self.info.plan;
        match found == expected {
            true => Ok(()),
            false => Err(HybridRefusal::OtherPlan { expected, found }.into()),
        }
    }

    fn check_garbler(&self, client_garbles: bool) -> Result<(), Refusal> {
        let HybridInfo { client_garbles: client, server_garbles: server, .. } = self.info;
        match if client_garbles { client } else { server } {
            true => Ok(()),
            false => {
                let garbler = Garbler::of_client(client_garbles);
                Err(HybridRefusal::OtherGarbler { garbler }.into())
            }
        }
    }

    async fn answer(
        &self,
        request: HybridStepRequest,
        holder: Holder,
        reservation: Option<Arc<Reservation>>,
    ) -> Result<Vec<u8>, Refusal> {
        self.admission.check_open()?;
        let id = parse_id(&request.id)?;
        self.admission.hold(reservation.as_deref(), super::CHUNK_BYTES)?;
        self.precomputes.arrived(&id);
        let turn = self.steps.take(holder).await;
        let precomputes = Arc::clone(&self.precomputes);
        let began = Instant::now();
        let HybridStepRequest { step, payload, .. } = request;
        let reply = off_thread(move || {
            // A client that gives the call up has it computed all the same.
            let _held = (turn, reservation);
            precomputes.answer(&id, step, &payload)
        });
        let reply = reply.await;
        self.metrics.step_seconds.observe(began.elapsed().as_secs_f64());
        reply
    }

    /// Takes what a prediction uses up.
    async fn open(
        &self,
        frames: &mut Streaming<PredictFrame>,
        holder: Holder,
        reservation: Option<&Reservation>,
    ) -> Result<(OnlineServer, Place), Status> {
        self.admission.check_open()?;
        let first = tokio::time::timeout(self.pause_max, frames.message());
        let first = first.await.map_err(|_| Status::deadline_exceeded("no first frame came"))?;
        let first = first?.unwrap_or_default();
        let Some(PredictOpen { plan, id }) = first.open else {
            return Err(order("the first frame opens nothing").into());
        };
        if !first.payload.is_empty() {
            return Err(order("the first frame has a payload").into());
        }
        self.check_plan(&plan)?;
        let id = parse_id(&id)?;
        self.admission.hold(reservation, HELD_BYTES)?;
        // Nobody gives up a place to a prediction that has nothing to use.
        if !self.precomputes.has(&id) || self.predictions.uses(&id) {
            return Err(Refusal::from(HybridRefusal::UnknownPrecompute).into());
        }
        let place = self.predictions.enter(id, holder).map_err(|Full| no_place())?;
        let (precomputes, model) = (Arc::clone(&self.precomputes), Arc::clone(&self.model));
        let take = move || {
            let Half { head, records } = precomputes.take(&id)?;
            let garbler = Garbler::of_client(head.client_garbles).party();
            OnlineServer::new(model, garbler, records).map_err(|error| of_prediction(&error))
        };
        let machine = off_thread(take).await?;
        self.metrics.used.inc();
        self.metrics.describe(&self.precomputes);
        Ok((machine, place))
    }
}

fn no_place() -> Refusal {
    Refusal::Busy { limit: Limit::Predictions, retry_after: PREDICTION_RETRY }
}

/// What has a prediction go on after its handler has returned.
struct Prediction {
    machine: OnlineServer,
    frames: Streaming<PredictFrame>,
    sender: mpsc::Sender<Result<PredictFrame, Status>>,
    reservation: Option<Arc<Reservation>>,
    metrics: HybridMetrics,
    pause_max: Duration,
    turns: Arc<FairTurns>,
    holder: Holder,
    place: Place,
}

impl Prediction {
    /// On a thread of its own: frames are computed where they are sent.
    async fn run(mut self) {
        let began = Instant::now();
        let reservation = self.reservation.as_deref();
        // What came was counted as it came; it is held no longer.
        let taken = |message: &PredictFrame| {
            if let Some(reservation) = reservation {
                reservation.shrink(message.encoded_len() + GRPC_HEAD_BYTES);
            }
        };
        let (frames, sender) = (&mut self.frames, &self.sender);
        let turn = async || self.turns.take(self.holder).await;
        let whole = exchange(&mut self.machine, frames, sender, turn, self.pause_max, taken);
        let done = tokio::select! {
            done = whole => done,
            () = self.place.lost() => Err(Broken::Displaced),
        };
        let last = match done {
            Ok(_) => {
                self.metrics.predicted.inc();
                self.metrics.prediction_seconds.observe(began.elapsed().as_secs_f64());
                return;
            }
            Err(Broken::Machine(error)) => of_prediction(&error).into(),
            Err(Broken::Silent(after)) => {
                let words = format!("no frame came within {} ms", after.as_millis());
                Status::deadline_exceeded(words)
            }
            Err(Broken::Displaced) => no_place().into(),
            Err(Broken::Status(status)) => {
                tracing::debug!(%status, "a prediction broke off");
                status
            }
            Err(Broken::Ended) => {
                tracing::debug!("a client ended its prediction early");
                return;
            }
        };
        // A client that reads nothing keeps no thread for it.
        drop(tokio::time::timeout(LAST_WORDS, sender.send(Err(last))).await);
    }
}

/// The refusal of a prediction: what is kept may be damaged.
fn of_prediction(error: &MachineError) -> Refusal {
    match error {
        MachineError::Record(RecordError::Damaged { .. } | RecordError::Missing { .. }) => {
            tracing::error!(%error, "a precompute is damaged");
            HybridRefusal::DamagedPrecompute.into()
        }
        error => of_step(error),
    }
}

fn order(message: &str) -> Refusal {
    HybridRefusal::BadStep { defect: StepDefect::Order, message: message.to_owned() }.into()
}

fn parse_id(id: &[u8]) -> Result<PrecomputeId, Refusal> {
    let bytes = id.len();
    id.try_into().map_err(|_| HybridRefusal::BadPrecomputeId { bytes }.into())
}

/// Runs `work` where it may compute and read files.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, Refusal> + Send + 'static,
) -> Result<T, Refusal> {
    // A panic was logged where it happened.
    tokio::task::spawn_blocking(work).await.unwrap_or(Err(Refusal::Backend))
}

impl Service for HybridService {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn check(&self) -> Result<(), Error> {
        self.precomputes.sweep();
        match self.precomputes.drop_old() {
            Ok(0) => {}
            Ok(dropped) => tracing::info!(dropped, "dropped precomputes that nobody used in time"),
            Err(error) => tracing::warn!(%error, "an old precompute cannot be dropped"),
        }
        self.metrics.describe(&self.precomputes);
        Ok(())
    }
}

#[tonic::async_trait]
impl HybridInference for HybridService {
    type PredictStream = ReceiverStream<Result<PredictFrame, Status>>;

    async fn info(
        &self,
        _request: Request<HybridInfoRequest>,
    ) -> Result<Response<HybridInfoReply>, Status> {
        Ok(Response::new(self.reply.clone()))
    }

    async fn begin(
        &self,
        request: Request<HybridBeginRequest>,
    ) -> Result<Response<HybridBeginReply>, Status> {
        self.admission.check_open()?;
        let holder = Holder::of(request.extensions());
        let HybridBeginRequest { plan, id, client_garbles } = request.into_inner();
        self.check_plan(&plan)?;
        let id = parse_id(&id)?;
        self.check_garbler(client_garbles)?;
        let precomputes = Arc::clone(&self.precomputes);
        let garbler = Garbler::of_client(client_garbles).party();
        let resumed = off_thread(move || precomputes.begin(id, garbler, holder)).await?;
        self.metrics.describe(&self.precomputes);
        Ok(Response::new(HybridBeginReply { resumed: Some(resumed) }))
    }

    async fn step(
        &self,
        mut request: Request<HybridStepRequest>,
    ) -> Result<Response<HybridStepReply>, Status> {
        let holder = Holder::of(request.extensions());
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let reply = self.answer(request.into_inner(), holder, reservation).await?;
        Ok(Response::new(HybridStepReply { payload: Bytes::from(reply) }))
    }

    async fn finish(
        &self,
        request: Request<HybridFinishRequest>,
    ) -> Result<Response<HybridFinishReply>, Status> {
        let id = parse_id(&request.into_inner().id)?;
        let precomputes = Arc::clone(&self.precomputes);
        off_thread(move || precomputes.finish(&id)).await?;
        self.metrics.finished.inc();
        self.metrics.describe(&self.precomputes);
        Ok(Response::new(HybridFinishReply {}))
    }

    async fn predict(
        &self,
        mut request: Request<Streaming<PredictFrame>>,
    ) -> Result<Response<Self::PredictStream>, Status> {
        let holder = Holder::of(request.extensions());
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let mut frames = request.into_inner();
        let (machine, place) = self.open(&mut frames, holder, reservation.as_deref()).await?;
        let (sender, receiver) = mpsc::channel(FRAMES_AHEAD);
        let prediction = Prediction {
            machine,
            frames,
            sender,
            reservation,
            metrics: self.metrics.clone(),
            pause_max: self.pause_max,
            turns: Arc::clone(&self.frames),
            holder,
            place,
        };
        let runtime = Handle::current();
        tokio::task::spawn_blocking(move || runtime.block_on(prediction.run()));
        Ok(Response::new(ReceiverStream::new(receiver)))
    }
}

/// About what a step takes: how soon one of a busy server is worth another try.
const STEP: Duration = Duration::from_millis(50);
const PREDICTION_RETRY: Duration = Duration::from_millis(200);
/// How long a client has to take why its prediction ended.
const LAST_WORDS: Duration = Duration::from_secs(1);
/// What gRPC puts before a message.
const GRPC_HEAD_BYTES: usize = 5;
