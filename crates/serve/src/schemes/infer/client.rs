//! Has a model computed on features that the server never sees.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hushtable_infer::dlrm::{self, Client};
use hushtable_client::{CallFault, Moves};
use hushtable_table::Version;
use tokio::sync::{Mutex, mpsc};
use tokio::time::{Instant, sleep};
use tonic::codegen::tokio_stream::wrappers::ReceiverStream;
use tonic::transport::Channel;

use super::InferInfo;
use super::info::TERMS_BYTES_MAX;
use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::peer::random_u64;
use crate::peer::session::{self, Patience};
use crate::wire::encrypted_inference_client::EncryptedInferenceClient;
use crate::wire::{
    HaveKeysRequest, InferInfoRequest, PredictReply, PredictRequest, UploadHead, UploadKeysRequest,
};
use crate::{EndpointSpec, Error, Refusal, ReplyDefect};

/// How a client reaches its server.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct InferClientSpec {
    /// The server, or several of one operator.
    pub server: EndpointSpec,
    /// The only version of the model to ask; `None` for whatever the server has.
    pub version: Option<Version>,
    /// Reach other machines over plain HTTP: for when something else encrypts the way.
    pub insecure: bool,
    /// How long a connection may take.
    pub connect_max: Duration,
    /// How long one call may take, other than an upload.
    pub call_max: Duration,
    /// How long an upload of keys may take.
    pub upload_max: Duration,
    /// Most bytes of keys that this client makes and uploads.
    pub key_bytes_max: u64,
}

impl InferClientSpec {
    /// The defaults: any version, 5 s to connect, 60 s a call, 10 minutes an upload, keys of 4 GiB.
    pub fn new(server: EndpointSpec) -> Self {
        Self {
            server,
            version: None,
            insecure: false,
            connect_max: Duration::from_secs(5),
            call_max: Duration::from_secs(60),
            upload_max: Duration::from_secs(600),
            key_bytes_max: 4 << 30,
        }
    }
}

/// Told the bytes of keys that are uploaded, and all of them.
pub type Progress = Arc<dyn Fn(u64, u64) + Send + Sync>;

/// What a model says of some users.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Prediction {
    /// One a user, in their order.
    pub logits: Vec<f64>,
    /// What it cost.
    pub stats: PredictionStats,
}

/// What a prediction cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct PredictionStats {
    /// Queries that were sent.
    pub queries: usize,
    /// Bytes of keys and queries sent.
    pub sent_bytes: u64,
    /// Bytes of answers received.
    pub received_bytes: u64,
    /// From the call to its end.
    pub elapsed: Duration,
    /// What encrypting and decrypting took of it.
    pub client: Duration,
    /// How long queries waited at the server.
    pub queue: Duration,
    /// How long they were computed on.
    pub answer: Duration,
    /// How often a busy server was asked again, or another server because the first drained or was out of reach.
    pub retries: u32,
}

/// A client of one model at one server. It has a secret of its own, and keys for the server's plan.
pub struct InferClient {
    servers: Vec<Server>,
    /// Which of them is asked.
    asked: AtomicUsize,
    spec: InferClientSpec,
    info: InferInfo,
    client: Arc<Client>,
    key_id: Bytes,
    progress: Option<Progress>,
}

/// One of the servers, and what it has of this client.
struct Server {
    peer: Peer,
    /// Whether it has said that it computes by the plan that the keys are for.
    is_checked: AtomicBool,
    /// How often the keys were found at the server or brought there. One call looks after that at a time.
    uploads: Mutex<()>,
    uploaded: AtomicU64,
}

impl InferClient {
    /// Connects, asks what the server computes, checks it, and makes a secret and keys for it. The keys
    /// are uploaded by the first prediction, or by [`upload`](Self::upload); `progress` is told then.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for
    /// what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a server out of
    /// reach; [`Error::Unserved`] for a server of another scheme; [`Error::Reply`] for one that announces
    /// what cannot be, [`Error::KeyBytes`] for a plan of larger keys than `spec` allows,
    /// [`Error::VersionMismatch`] for another version than it names; [`Error::Infer`] where no secret can
    /// be made.
    pub async fn connect(
        spec: &InferClientSpec,
        progress: Option<Progress>,
    ) -> Result<Self, Error> {
        let peers = Peer::each(&spec.server, spec.insecure, spec.connect_max)?;
        let (mut first, mut moves) = (0, Moves::new(peers.len()));
        let deadline = Instant::now() + spec.call_max;
        let info = loop {
            let error = match fetch_info(&peers[first], spec.call_max).await {
                Ok(info) => match spec.version.filter(|&expected| expected != info.version) {
                    None => break info,
                    Some(expected) => {
                        let (urls, found) = (vec![peers[first].url().to_owned()], info.version);
                        Error::VersionMismatch { urls, expected, found: Some(found) }
                    }
                },
                Err(error) => error,
            };
            pause_after(&mut moves, error, deadline).await?;
            first = (first + 1) % peers.len();
        };
        let peer = &peers[first];
        let (bytes, bytes_max) = (info.key_bytes() as u64, spec.key_bytes_max);
        if bytes > bytes_max {
            return Err(Error::KeyBytes { url: peer.url().to_owned(), bytes, bytes_max });
        }
        let terms = info.terms.clone();
        let client = off_thread(move || Client::new(terms)).await?;
        let key_id = Bytes::copy_from_slice(&client.key_id());
        let server = |(number, peer)| Server {
            peer,
            is_checked: AtomicBool::new(number == first),
            uploads: Mutex::new(()),
            uploaded: AtomicU64::new(0),
        };
        Ok(Self {
            servers: peers.into_iter().enumerate().map(server).collect(),
            asked: AtomicUsize::new(first),
            spec: spec.clone(),
            info,
            client: Arc::new(client),
            key_id,
            progress,
        })
    }

    /// What the server computes, as it announced it and it was checked.
    pub fn info(&self) -> &InferInfo {
        &self.info
    }

    /// Brings the keys to the server, where they are not there yet; the bytes sent.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`].
    pub async fn upload(&self) -> Result<u64, Error> {
        let uploaded = self.anywhere(|server| async move {
            self.upload_after(server, server.uploaded.load(Ordering::Relaxed)).await
        });
        Ok(uploaded.await?.0)
    }

    /// As [`upload`](Self::upload), unless they were uploaded since there were `seen` uploads.
    async fn upload_after(&self, server: &Server, seen: u64) -> Result<u64, Error> {
        let _turn = server.uploads.lock().await;
        if server.uploaded.load(Ordering::Relaxed) > seen {
            return Ok(0);
        }
        let is_held = self.are_keys_held(server).await?;
        let sent = if is_held { 0 } else { self.upload_now(server).await? };
        server.uploaded.fetch_add(1, Ordering::Relaxed);
        Ok(sent)
    }

    async fn are_keys_held(&self, Server { peer, .. }: &Server) -> Result<bool, Error> {
        let message = HaveKeysRequest { plan: self.plan(), key_id: self.key_id.clone() };
        let held = self.patiently(peer, self.spec.call_max, |limit| {
            let message = message.clone();
            async move {
                let mut client = client(peer, REPLY_OVERHEAD_BYTES);
                Ok(peer.within(limit, client.have_keys(message)).await?.into_inner())
            }
        });
        Ok(held.await?.0.held())
    }

    async fn upload_now(&self, Server { peer, .. }: &Server) -> Result<u64, Error> {
        let all = self.info.key_bytes() as u64;
        let reply = self.patiently(peer, self.spec.upload_max, |limit| async move {
            let head = UploadHead { plan: self.plan(), key_id: self.key_id.clone(), bytes: all };
            let messages = upload_messages(Arc::clone(&self.client), head, self.progress.clone());
            let mut client = client(peer, REPLY_OVERHEAD_BYTES);
            let call = client.upload_keys(messages);
            Ok(peer.within(limit, call).await?.into_inner())
        });
        let reply = reply.await?.0;
        match reply.key_id == self.key_id {
            true => Ok(all),
            false => Err(peer.reply_error(ReplyDefect::KeyId)),
        }
    }

    /// The model's logits for `users`: `dense` has the model's numbers for each of them, one user after
    /// the other, `indices` their rows, one a table. The keys are uploaded first where the server does not
    /// have them. Each query carries as many users as the plan has room for, whether or not there are as
    /// many. Where the server drains or is out of reach, the next one of the list gets the keys and the query, if
    /// it computes by the same plan: a query is encrypted, so that another server of the same operator learns no
    /// more of it than the first.
    ///
    /// # Errors
    /// [`Error::Infer`] for numbers that are not finite, an index outside its table, or slices of other
    /// lengths; [`Error::Refused`] for a server whose plan has changed, that has no room for the keys, or is
    /// busy until time is up; [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`].
    pub async fn predict(
        &self,
        users: usize,
        dense: &[f32],
        indices: &[u64],
    ) -> Result<Prediction, Error> {
        let started = Instant::now();
        let (dense_each, tables) = (self.info.terms.dense(), self.info.terms.features().len());
        for (what, expected, found) in [
            ("dense features", users * dense_each, dense.len()),
            ("indices", users * tables, indices.len()),
        ] {
            if expected != found {
                return Err(dlrm::Error::Count { what, expected, found }.into());
            }
        }
        let mut found = Prediction { logits: Vec::new(), stats: PredictionStats::default() };
        let step = self.info.terms.users().max(1);
        for first in (0..users).step_by(step) {
            let last = users.min(first + step);
            let dense = dense[first * dense_each..last * dense_each].to_vec();
            let indices = indices[first * tables..last * tables].to_vec();
            self.predict_query(dense, indices, &mut found).await?;
        }
        found.stats.elapsed = started.elapsed();
        Ok(found)
    }

    async fn predict_query(
        &self,
        dense: Vec<f32>,
        indices: Vec<u64>,
        found: &mut Prediction,
    ) -> Result<(), Error> {
        let began = Instant::now();
        let users = dense.len() / self.info.terms.dense();
        let client = Arc::clone(&self.client);
        let query = off_thread(move || client.query(&dense, &indices)).await?;
        let query = Bytes::from(query);
        found.stats.client += began.elapsed();
        let asked = self.anywhere(|server| self.predict_at(server, query.clone()));
        let ((reply, sent_bytes, retries), moves) = asked.await?;
        let PredictReply { answer, queue_us, answer_us, .. } = reply;
        let (stats, length) = (&mut found.stats, answer.len());
        stats.sent_bytes += sent_bytes;
        stats.retries += moves;
        stats.queries += 1;
        stats.sent_bytes += query.len() as u64;
        stats.received_bytes += length as u64;
        stats.queue += Duration::from_micros(queue_us.unwrap_or_default());
        stats.answer += Duration::from_micros(answer_us.unwrap_or_default());
        stats.retries += retries;
        let began = Instant::now();
        let client = Arc::clone(&self.client);
        let opened = off_thread(move || client.open(&answer)).await;
        found.logits.extend(opened?.into_iter().take(users));
        found.stats.client += began.elapsed();
        Ok(())
    }

    /// Asks one server, which gets the keys first where it does not have them. The reply, the bytes of keys and
    /// of queries that were not answered, and how often it was asked again.
    async fn predict_at(
        &self,
        server: &Server,
        query: Bytes,
    ) -> Result<(PredictReply, u64, u32), Error> {
        let (mut seen, mut sent_bytes) = (server.uploaded.load(Ordering::Relaxed), 0);
        if seen == 0 {
            sent_bytes += self.upload_after(server, 0).await?;
            seen = server.uploaded.load(Ordering::Relaxed);
        }
        let (reply, retries) = match self.ask(&server.peer, query.clone()).await {
            Err(Error::Refused { refusal: Refusal::UnknownKeys { .. }, .. }) => {
                sent_bytes += query.len() as u64 + self.upload_after(server, seen).await?;
                self.ask(&server.peer, query).await?
            }
            asked => asked?,
        };
        if reply.plan != self.plan() {
            let reason = "an answer by another plan than the one that was asked".to_owned();
            return Err(server.peer.reply_error(ReplyDefect::Other { reason }));
        }
        let (expected, found) = (self.info.answer_bytes(), reply.answer.len());
        if found != expected {
            return Err(server.peer.reply_error(ReplyDefect::AnswerBytes { expected, found }));
        }
        Ok((reply, sent_bytes, retries))
    }

    /// Works with the server that is asked now, and with the next where it drains or is out of reach. How often
    /// that was comes with the outcome.
    async fn anywhere<'a, T, F: Future<Output = Result<T, Error>>>(
        &'a self,
        work: impl Fn(&'a Server) -> F,
    ) -> Result<(T, u32), Error> {
        let (mut moves, mut made, mut deadline) = (Moves::new(self.servers.len()), 0, None);
        loop {
            let number = self.asked.load(Ordering::Relaxed);
            let server = &self.servers[number];
            let checked = self.check(server).await;
            let error = match checked {
                Ok(()) => match work(server).await {
                    Ok(done) => return Ok((done, made)),
                    Err(error) => error,
                },
                Err(error) => error,
            };
            // An upload may take longer than a call: time is from the first failure on.
            let deadline = *deadline.get_or_insert(Instant::now() + self.spec.call_max);
            pause_after(&mut moves, error, deadline).await?;
            made += 1;
            let next = (number + 1) % self.servers.len();
            // Another call may have gone on already.
            let (done, not) = (Ordering::Relaxed, Ordering::Relaxed);
            let _ = self.asked.compare_exchange(number, next, done, not);
        }
    }

    /// Asks a server that was not asked before whether it computes by the plan that the keys are for.
    async fn check(&self, server: &Server) -> Result<(), Error> {
        if server.is_checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        let info = fetch_info(&server.peer, self.spec.call_max).await?;
        if (info.version, info.plan) != (self.info.version, self.info.plan) {
            let urls = vec![server.peer.url().to_owned()];
            let (expected, found) = (self.info.version, Some(info.version));
            return Err(Error::VersionMismatch { urls, expected, found });
        }
        server.is_checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    async fn ask(&self, peer: &Peer, query: Bytes) -> Result<(PredictReply, u32), Error> {
        let message = PredictRequest { plan: self.plan(), key_id: self.key_id.clone(), query };
        let reply_bytes_max = self.info.answer_bytes() + REPLY_OVERHEAD_BYTES;
        self.patiently(peer, self.spec.call_max, |limit| {
            let message = message.clone();
            async move {
                let mut client = client(peer, reply_bytes_max);
                Ok(peer.within(limit, client.predict(message)).await?.into_inner())
            }
        })
        .await
    }

    fn plan(&self) -> Bytes {
        Bytes::copy_from_slice(self.info.plan.as_bytes())
    }

    /// Makes a call until a server that has no room for it has.
    async fn patiently<T, F: Future<Output = Result<T, Error>>>(
        &self,
        peer: &Peer,
        call_max: Duration,
        call: impl Fn(Duration) -> F,
    ) -> Result<(T, u32), Error> {
        // Whoever asks looks after a server that drains: it may be the only one.
        let deadline = Instant::now() + call_max;
        let patience = Patience { call_max, deadline, has_others: true };
        let call = &call;
        let call = |limit| async move { peer.reconnecting(|| call(limit)).await };
        patience.until_answered(call).await
    }
}

fn client(peer: &Peer, reply_bytes_max: usize) -> EncryptedInferenceClient<Channel> {
    EncryptedInferenceClient::new(peer.channel.clone()).max_decoding_message_size(reply_bytes_max)
}

/// Waits before the next server is asked; the error where there is none to ask.
async fn pause_after(moves: &mut Moves, error: Error, deadline: Instant) -> Result<(), Error> {
    // A server of another plan is as good as none.
    let random = random_u64()?;
    let pause = match &error {
        Error::VersionMismatch { .. } => moves.next(&CallFault::Unreachable, random),
        error => session::next(moves, error, random),
    };
    match pause {
        Some(pause) if Instant::now() + pause < deadline => {
            sleep(pause).await;
            Ok(())
        }
        _ => Err(error),
    }
}

/// The messages of an upload, which a thread makes as they are sent. Whoever drops the stream ends it.
fn upload_messages(
    client: Arc<Client>,
    head: UploadHead,
    progress: Option<Progress>,
) -> ReceiverStream<UploadKeysRequest> {
    let (sender, receiver) = mpsc::channel(CHUNKS_AHEAD);
    tokio::task::spawn_blocking(move || {
        let (all, mut done, mut head) = (head.bytes, 0, Some(head));
        let tell = |done: u64| progress.iter().for_each(|progress| progress(done, all));
        tell(0);
        for chunk in client.keys() {
            let bytes = Bytes::copy_from_slice(chunk);
            done += bytes.len() as u64;
            if sender.blocking_send(UploadKeysRequest { head: head.take(), bytes }).is_err() {
                return;
            }
            tell(done);
        }
    });
    ReceiverStream::new(receiver)
}

async fn fetch_info(peer: &Peer, limit: Duration) -> Result<InferInfo, Error> {
    peer.reconnecting(|| async {
        let mut client = EncryptedInferenceClient::new(peer.channel.clone())
            .max_decoding_message_size(TERMS_BYTES_MAX + REPLY_OVERHEAD_BYTES);
        let reply = peer.within(limit, client.info(InferInfoRequest {})).await?;
        InferInfo::check(reply.into_inner()).map_err(|defect| peer.reply_error(defect))
    })
    .await
}

/// Runs what computes for milliseconds off the threads of connections.
async fn off_thread<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, hushtable_infer::dlrm::Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Chunks of keys that are made before they can be sent.
const CHUNKS_AHEAD: usize = 4;
