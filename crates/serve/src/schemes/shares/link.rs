//! Sessions between the servers: left calls, right is called.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::Sender;
use std::time::Duration;

use bytes::Bytes;
use hushtable_infer::shares::exchange::{Exchange, ExchangeSpec, Hello, HelloError};
use tokio::sync::mpsc::{
    UnboundedReceiver, UnboundedSender, WeakUnboundedSender, unbounded_channel,
};
use tokio::sync::watch;
use tokio::time::{Instant, interval_at, sleep, timeout};
use tonic::codegen::tokio_stream::StreamExt as _;
use tonic::codegen::tokio_stream::wrappers::UnboundedReceiverStream;
use tonic::{Status, Streaming};

use super::driver::{Event, Opened};
use super::model::SharedModel;
use super::refill::Refill;
use super::refusal::REFUSALS;
use super::{FRAME_BYTES_MAX, SharesInfo, SharesRefusal};
use crate::peer::endpoint::Peer;
use crate::wire::SharesFrame;
use crate::wire::shared_inference_client::SharedInferenceClient;
use crate::{EndpointSpec, Error, Refusal};

/// What both ends of a session need.
pub(super) struct Link {
    pub model: Arc<SharedModel>,
    spec: ExchangeSpec,
    events: Sender<Event>,
    /// How many inferences are under way.
    inferences: Arc<AtomicUsize>,
    sessions: AtomicU64,
    /// Where the servers deal.
    pub refill: Option<Arc<Refill>>,
}

impl Link {
    pub fn new(
        model: Arc<SharedModel>,
        spec: ExchangeSpec,
        events: Sender<Event>,
        inferences: Arc<AtomicUsize>,
        refill: Option<Arc<Refill>>,
    ) -> Self {
        Self { model, spec, events, inferences, sessions: AtomicU64::new(0), refill }
    }

    pub fn info(&self) -> &SharesInfo {
        &self.model.info
    }

    /// Tells the thread; one that has ended hears nothing.
    pub fn tell(&self, event: Event) {
        drop(self.events.send(event));
    }

    pub fn hello(&self) -> Result<Hello, Refusal> {
        let info = &self.model.info;
        let (plan, model) = (*info.plan.as_bytes(), *info.version.as_bytes());
        let hello = Hello::new(info.half, plan, model).map(|hello| hello.dealt_by(info.dealer));
        hello.map_err(|error| {
            tracing::error!(%error, "no hello");
            Refusal::Backend
        })
    }

    /// Begins a session of two servers that said hello; it sends to `frames`, which it drops where it ends.
    pub fn meet(
        &self,
        own: &Hello,
        other: &[u8],
        frames: UnboundedSender<Vec<u8>>,
    ) -> Result<Session, Refusal> {
        let exchange = self.check(own, other)?;
        let number = 1 + self.sessions.fetch_add(1, Ordering::Relaxed);
        let session = Session { number, frames: frames.downgrade() };
        let opened = Opened { session: number, exchange, frames };
        // Where nobody takes it, the server stops.
        self.tell(Event::Opens(Box::new(opened)));
        Ok(session)
    }

    /// Holds another server's hello against this one's.
    pub fn check(&self, own: &Hello, other: &[u8]) -> Result<Exchange<Bytes>, Refusal> {
        let mismatch =
            |error: HelloError| SharesRefusal::PeerMismatch { message: error.to_string() };
        let other = Hello::parse(other).map_err(mismatch)?;
        let network = Arc::clone(&self.model.network);
        let exchange = Exchange::new(network, own, &other, self.spec).map_err(mismatch)?;
        Ok(match &self.refill {
            Some(refill) => exchange.supplied(Arc::clone(refill) as _),
            None => exchange,
        })
    }

    /// Passes an exchange's frames on until the session ends.
    pub async fn listen(
        &self,
        Session { number: session, frames }: Session,
        incoming: Streaming<SharesFrame>,
        taken: impl Fn(usize),
        is_over: impl Fn() -> bool,
    ) {
        let pass = |payload: Bytes| {
            taken(payload.len());
            if !payload.is_empty() {
                self.tell(Event::Frame { session, bytes: payload });
            }
            true
        };
        let is_over = || is_over() && self.inferences.load(Ordering::Relaxed) == 0;
        pass_on(incoming, frames, pass, is_over).await;
        self.tell(Event::Closes { session });
    }

    /// Left: one session of dealing, to its end.
    async fn call_dealing(&self, peer: Peer, refill: &Arc<Refill>) -> Result<(), Error> {
        let Greeted { own, other, sender, incoming } = self.greet(&peer, Stream::Deal).await?;
        self.check(&own, &other).map_err(|refusal| refused(&peer, refusal))?;
        let alive = sender.downgrade();
        let frames = refill
            .begin(sender)
            .map_err(|source| Error::Io { what: "start a thread that deals".into(), source })?;
        listen_dealing(incoming, (frames, alive), |_| {}, || false).await;
        Ok(())
    }

    /// Left: meets right again whenever there is no session. Never returns.
    pub async fn keep(self: Arc<Self>, reach: Reach) {
        self.again(reach, |peer| self.call(peer)).await;
    }

    /// The same for dealing.
    pub async fn keep_dealing(self: Arc<Self>, reach: Reach, refill: Arc<Refill>) {
        self.again(reach, |peer| self.call_dealing(peer, &refill)).await;
    }

    async fn again<F: Future<Output = Result<(), Error>>>(
        &self,
        mut reach: Reach,
        call: impl Fn(Peer) -> F,
    ) {
        let (mut pause, mut said) = (PAUSE_MIN, String::new());
        loop {
            let peer = reach.peer();
            match call(peer.clone()).await {
                Ok(()) => {
                    tracing::info!(url = peer.url(), "the session with the other server ended");
                    (pause, said) = (PAUSE_MIN, String::new());
                }
                Err(error) => {
                    let text = error.to_string();
                    if text != said {
                        tracing::warn!(
                            url = peer.url(),
                            error = text,
                            "the other server is not met: tried again"
                        );
                        said = text;
                    }
                }
            }
            sleep(pause).await;
            pause = (2 * pause).min(PAUSE_MAX);
        }
    }

    /// One session, to its end.
    async fn call(&self, peer: Peer) -> Result<(), Error> {
        let Greeted { own, other, sender, incoming } = self.greet(&peer, Stream::Exchange).await?;
        let session = self.meet(&own, &other, sender).map_err(|refusal| refused(&peer, refusal))?;
        tracing::info!(url = peer.url(), session = session.number, "met the other server");
        self.listen(session, incoming, |_| {}, || false).await;
        Ok(())
    }

    /// Calls right, says hello, and takes its own.
    async fn greet(&self, peer: &Peer, stream: Stream) -> Result<Greeted, Error> {
        let own = self.hello().map_err(|refusal| refused(peer, refusal))?;
        let (sender, receiver) = unbounded_channel();
        drop(sender.send(own.to_bytes()));
        let mut client = SharedInferenceClient::new(peer.channel.clone())
            .max_decoding_message_size(2 * FRAME_BYTES_MAX);
        let frames = outgoing(receiver);
        let called = match stream {
            Stream::Exchange => peer.within(HELLO_MAX, client.exchange(frames)).await?,
            Stream::Deal => peer.within(HELLO_MAX, client.deal(frames)).await?,
        };
        let mut incoming = called.into_inner();
        let first = peer.within(HELLO_MAX, incoming.message()).await?.unwrap_or_default();
        Ok(Greeted { own, other: first.payload, sender, incoming })
    }
}

/// A connection to right, made anew by what is told of its endpoint.
pub(super) struct Reach {
    told: watch::Receiver<EndpointSpec>,
    insecure: bool,
    peer: Peer,
}

impl Reach {
    /// Must be called within a tokio runtime.
    pub fn new(mut told: watch::Receiver<EndpointSpec>, insecure: bool) -> Result<Self, Error> {
        let peer = Peer::new(&told.borrow_and_update(), insecure, CONNECT_MAX, REFUSALS)?;
        Ok(Self { told, insecure, peer })
    }

    fn peer(&mut self) -> &Peer {
        if self.told.has_changed().unwrap_or(false) {
            let endpoint = self.told.borrow_and_update();
            match Peer::new(&endpoint, self.insecure, CONNECT_MAX, REFUSALS) {
                Ok(peer) => self.peer = peer,
                Err(error) => tracing::error!(%error, "right is reached as before"),
            }
        }
        &self.peer
    }
}

/// Which of right's streams.
enum Stream {
    Exchange,
    Deal,
}

/// A stream of which both have said hello.
struct Greeted {
    own: Hello,
    other: Bytes,
    sender: UnboundedSender<Vec<u8>>,
    incoming: Streaming<SharesFrame>,
}

fn refused(peer: &Peer, refusal: Refusal) -> Error {
    Error::Refused { url: peer.url().to_owned(), refusal }
}

/// Passes frames of dealing on until it ends; `alive` gets one now and then.
pub(super) async fn listen_dealing(
    incoming: Streaming<SharesFrame>,
    (frames, alive): (Sender<Bytes>, WeakUnboundedSender<Vec<u8>>),
    taken: impl Fn(usize),
    is_over: impl Fn() -> bool,
) {
    let pass = |payload: Bytes| {
        taken(payload.len());
        // A thread that has ended said why.
        payload.is_empty() || frames.send(payload).is_ok()
    };
    pass_on(incoming, alive, pass, is_over).await;
}

/// Passes on what comes while `pass` takes it, until the other server ends or falls silent, whoever sends to `alive` has
/// ended, or `is_over`.
async fn pass_on(
    mut incoming: Streaming<SharesFrame>,
    alive: WeakUnboundedSender<Vec<u8>>,
    pass: impl Fn(Bytes) -> bool,
    is_over: impl Fn() -> bool,
) {
    let mut tick = interval_at(Instant::now() + LOOKS, LOOKS);
    let (mut heard, mut spoke) = (Instant::now(), Instant::now());
    loop {
        tokio::select! {
            frame = incoming.message() => match frame {
                Ok(Some(SharesFrame { payload })) => {
                    heard = Instant::now();
                    if !pass(payload) {
                        break;
                    }
                }
                Ok(None) => break,
                Err(status) => {
                    tracing::info!(%status, "the other server's frames ended");
                    break;
                }
            },
            _ = tick.tick() => {
                if heard.elapsed() > SILENCE_MAX {
                    tracing::warn!("the other server is silent: the session ends");
                    break;
                }
                let Some(alive) = alive.upgrade() else { break };
                if spoke.elapsed() > KEEP_ALIVE {
                    spoke = Instant::now();
                    drop(alive.send(Vec::new()));
                }
                if is_over() {
                    break;
                }
            }
        }
    }
}

/// A session as those see it who pass its frames on.
pub(super) struct Session {
    number: u64,
    /// Where it sends; gone where it has ended.
    frames: WeakUnboundedSender<Vec<u8>>,
}

/// Frames as they are sent.
pub(super) fn outgoing(
    frames: UnboundedReceiver<Vec<u8>>,
) -> impl tonic::codegen::tokio_stream::Stream<Item = SharesFrame> + Send + 'static {
    UnboundedReceiverStream::new(frames).map(|bytes| SharesFrame { payload: Bytes::from(bytes) })
}

/// The first frame of a session.
pub(super) async fn first(incoming: &mut Streaming<SharesFrame>) -> Result<Bytes, Status> {
    let first = timeout(HELLO_MAX, incoming.message()).await;
    let first = first.map_err(|_| Status::deadline_exceeded("no hello came"))??;
    Ok(first.unwrap_or_default().payload)
}

const CONNECT_MAX: Duration = Duration::from_secs(5);
const HELLO_MAX: Duration = Duration::from_secs(5);
const PAUSE_MIN: Duration = Duration::from_millis(50);
const PAUSE_MAX: Duration = Duration::from_secs(2);
/// A connection's body that brings nothing for ten seconds is cut off.
const KEEP_ALIVE: Duration = Duration::from_secs(3);
const SILENCE_MAX: Duration = Duration::from_secs(15);
const LOOKS: Duration = Duration::from_millis(200);
