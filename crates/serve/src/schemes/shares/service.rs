//! The methods of `SharedInference`.

use std::pin::Pin;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_infer::shares::exchange::Hello;
use hushtable_infer::shares::{DealtBy, Half};
use tokio::sync::mpsc::unbounded_channel;
use tokio::sync::{oneshot, watch};
use tokio::task::AbortHandle;
use tonic::codegen::tokio_stream::{Stream, StreamExt as _};
use tonic::{Request, Response, Status, Streaming};

use super::driver::{Asked, Event};
use super::link::{Link, first, listen_dealing, outgoing};
use super::refusal::bad_part;
use super::{SharesInfo, SharesRefusal};
use crate::Refusal;
use crate::host::admission::Admission;
use crate::host::budget::Reservation;
use crate::host::door::{Service, Stopping};
use crate::host::quota::Holder;
use crate::host::tls::PeerNames;
use crate::peer::values::{microseconds, version_from_wire};
use crate::trace::note_version;
use crate::vital::Vitals;
use crate::wire::shared_inference_server::SharedInference;
use crate::wire::{
    SharesFrame, SharesInfoReply, SharesInfoRequest, SharesPredictReply, SharesPredictRequest,
};

pub(super) struct SharesService {
    link: Arc<Link>,
    reply: SharesInfoReply,
    /// The name that the other server's certificate must have, where anybody may try.
    peer_name: Option<String>,
    admission: Arc<Admission>,
    is_met: watch::Receiver<bool>,
    working: Mutex<Option<Working>>,
}

/// What goes on beside the requests.
pub(super) struct Working {
    pub driver: JoinHandle<()>,
    /// Left's calls of right.
    pub calls: Vec<AbortHandle>,
}

impl SharesService {
    pub fn new(
        link: Arc<Link>,
        peer_name: Option<String>,
        is_met: watch::Receiver<bool>,
        working: Working,
    ) -> Arc<Self> {
        let reply = SharesInfoReply::from(link.info());
        let admission = Arc::new(Admission::new(PASS));
        let working = Mutex::new(Some(working));
        Arc::new(Self { link, reply, peer_name, admission, is_met, working })
    }

    fn info(&self) -> &SharesInfo {
        self.link.info()
    }

    fn check_plan(&self, plan: &[u8]) -> Result<(), Refusal> {
        let bytes = plan.len();
        let found = version_from_wire(plan).map_err(|_| Refusal::BadVersion { bytes })?;
        let expected = self.info().plan;
        match found == expected {
            true => {
                note_version(expected);
                Ok(())
            }
            false => Err(SharesRefusal::OtherPlan { expected, found }.into()),
        }
    }

    async fn answer(
        &self,
        request: SharesPredictRequest,
        holder: Holder,
        reservation: Option<Arc<Reservation>>,
    ) -> Result<SharesPredictReply, Refusal> {
        let arrived = Instant::now();
        self.admission.check_open()?;
        let SharesPredictRequest { plan, name, keys, common, dealt } = request;
        let precompute = None;
        self.check_plan(&plan)?;
        let bytes = name.len();
        let name = name[..].try_into();
        let name = name.map_err(|_| bad_part(format!("a name of {bytes} bytes, it has 16")))?;
        let model = &self.link.model;
        let outline = &model.info.outline;
        let checked = match model.info.dealer {
            DealtBy::Client => outline.check_part(model.info.half, &common, &dealt),
            DealtBy::Servers => outline.check_shared(model.info.half, &common, &dealt),
        };
        checked.map_err(|error| bad_part(error.to_string()))?;
        let keys = model.accept(&keys).map_err(bad_part)?;
        let (reply, answered) = oneshot::channel();
        let asked = Asked {
            name,
            holder,
            keys,
            common,
            dealt,
            precompute,
            arrived,
            _reservation: reservation,
            reply,
        };
        self.link.tell(Event::Ask(Box::new(asked)));
        // Without an answer the thread has ended.
        let answered = answered.await.map_err(|_| Refusal::Draining)??;
        Ok(SharesPredictReply {
            plan,
            share: answered.share.into(),
            queue_us: Some(microseconds(answered.queued)),
            answer_us: Some(microseconds(answered.answering)),
        })
    }

    fn check_peer(&self, names: Option<&PeerNames>) -> Result<(), Refusal> {
        let Some(name) = &self.peer_name else { return Ok(()) };
        match names.is_some_and(|names| names.has(name)) {
            true => Ok(()),
            false => Err(SharesRefusal::NotThePeer { name: name.clone() }.into()),
        }
    }
}

impl Service for SharesService {
    fn admission(&self) -> &Admission {
        &self.admission
    }

    fn readiness(&self) -> Option<watch::Receiver<bool>> {
        Some(self.is_met.clone())
    }

    fn stop(self: Arc<Self>) -> Stopping {
        Box::pin(async move {
            let working = self.working.lock().unwrap_or_else(PoisonError::into_inner).take();
            let Some(Working { driver, calls }) = working else { return };
            calls.iter().for_each(AbortHandle::abort);
            self.link.tell(Event::Stop);
            // A panic was logged where it happened.
            let refill = self.link.refill.clone();
            let join = move || {
                drop(driver.join());
                refill.iter().for_each(|refill| refill.stop());
            };
            drop(tokio::task::spawn_blocking(join).await);
        })
    }
}

type Frames = Pin<Box<dyn Stream<Item = Result<SharesFrame, Status>> + Send>>;

#[tonic::async_trait]
impl SharedInference for SharesService {
    type ExchangeStream = Frames;
    type DealStream = Frames;

    async fn info(
        &self,
        _request: Request<SharesInfoRequest>,
    ) -> Result<Response<SharesInfoReply>, Status> {
        Ok(Response::new(self.reply.clone()))
    }

    async fn predict(
        &self,
        request: Request<SharesPredictRequest>,
    ) -> Result<Response<SharesPredictReply>, Status> {
        let holder = Holder::of(request.extensions());
        let reservation = request.extensions().get().cloned();
        Ok(Response::new(self.answer(request.into_inner(), holder, reservation).await?))
    }

    async fn exchange(
        &self,
        request: Request<Streaming<SharesFrame>>,
    ) -> Result<Response<Frames>, Status> {
        let Met { own, hello, reservation, incoming } = self.meet(request).await?;
        let (sender, receiver) = unbounded_channel();
        drop(sender.send(own.to_bytes()));
        let session = self.link.meet(&own, &hello, sender)?;
        let (link, admission) = (Arc::clone(&self.link), Arc::clone(&self.admission));
        tokio::spawn(async move {
            let taken = |bytes| shrink(reservation.as_ref(), bytes);
            let is_over = || admission.check_open().is_err();
            link.listen(session, incoming, taken, is_over).await;
        });
        Ok(Response::new(Box::pin(outgoing(receiver).map(Ok))))
    }

    async fn deal(
        &self,
        request: Request<Streaming<SharesFrame>>,
    ) -> Result<Response<Frames>, Status> {
        let Met { own, reservation, incoming, .. } = self.meet(request).await?;
        let Some(refill) = &self.link.refill else {
            let message = "clients deal for these servers".to_owned();
            return Err(Refusal::from(SharesRefusal::PeerMismatch { message }).into());
        };
        let (sender, receiver) = unbounded_channel();
        drop(sender.send(own.to_bytes()));
        let alive = sender.downgrade();
        let frames = refill.begin(sender).map_err(|error| {
            tracing::error!(%error, "no thread that deals");
            Refusal::Backend
        })?;
        let admission = Arc::clone(&self.admission);
        tokio::spawn(async move {
            let taken = |bytes| shrink(reservation.as_ref(), bytes);
            let is_over = || admission.check_open().is_err();
            listen_dealing(incoming, (frames, alive), taken, is_over).await;
        });
        Ok(Response::new(Box::pin(outgoing(receiver).map(Ok))))
    }
}

impl SharesService {
    /// Right: lets a stream of left's in, and takes its first frame.
    async fn meet(&self, mut request: Request<Streaming<SharesFrame>>) -> Result<Met, Status> {
        self.admission.check_open()?;
        self.check_peer(request.extensions().get::<PeerNames>())?;
        let reservation = request.extensions_mut().remove::<Arc<Reservation>>();
        let mut incoming = request.into_inner();
        let hello = first(&mut incoming).await?;
        let own = self.link.hello()?;
        // Says what is wrong with it, at left too, where nothing could be right.
        self.link.check(&own, &hello)?;
        if self.info().half == Half::Left {
            let message = "this server is left, which calls right and is not called".to_owned();
            return Err(Refusal::from(SharesRefusal::PeerMismatch { message }).into());
        }
        Ok(Met { own, hello, reservation, incoming })
    }
}

/// A stream of the other server that was let in.
struct Met {
    own: Hello,
    hello: Bytes,
    reservation: Option<Arc<Reservation>>,
    incoming: Streaming<SharesFrame>,
}

/// What came was counted as it came; it is held no longer.
fn shrink(reservation: Option<&Arc<Reservation>>, bytes: usize) {
    if let Some(reservation) = reservation {
        reservation.shrink(bytes + HEAD_BYTES);
    }
}

/// Starts a thread that computes, without which the server can do nothing.
pub(super) fn spawn(
    driver: super::driver::Inferences,
    vitals: &Vitals,
) -> std::io::Result<(Sender<Event>, JoinHandle<()>)> {
    let (sender, events) = std::sync::mpsc::channel();
    let thread = std::thread::Builder::new().name(DRIVER.into());
    let vital = vitals.hold(DRIVER);
    let thread = thread.spawn(move || driver.run(&events, &vital))?;
    Ok((sender, thread))
}

pub(super) const DRIVER: &str = "hushtable-shares";
/// About what a pass takes.
const PASS: Duration = Duration::from_millis(5);
/// What protobuf and gRPC put before a frame's payload.
const HEAD_BYTES: usize = 5 + 6;
