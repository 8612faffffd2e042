//! Has a model computed by two servers, neither of which sees the features or what they look up.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::{join, try_join, try_join_all};
use hushtable_infer::dlrm::Error as FeatureError;
use hushtable_infer::shares::client::{check_dense, deal, open, share};
use hushtable_infer::shares::{self, DealtBy, Half};
use hushtable_client::pause;
use hushtable_pir::dpf::{Domain, KeyPair};
use hushtable_pir::{Platform, Prg};
use hushtable_table::Version;
use tokio::sync::Semaphore;
use tokio::time::{Instant, sleep};
use tonic::transport::Channel;

use super::info::TERMS_BYTES_MAX;
use super::model::{PRG, side_of};
use super::{SharesInfo, SharesRefusal};
use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::peer::random_u64;
use crate::wire::shared_inference_client::SharedInferenceClient;
use crate::wire::{SharesInfoRequest, SharesPredictReply, SharesPredictRequest};
use crate::{EndpointSpec, Error, Refusal, ReplyDefect};

/// How a client reaches its two servers.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct SharesClientSpec {
    /// The server that is left.
    pub left: EndpointSpec,
    /// The server that is right, of an operator who does not collude with left's.
    pub right: EndpointSpec,
    /// The only version of the model to ask; `None` for whatever the servers have.
    pub version: Option<Version>,
    /// Reach other machines over plain HTTP: for when something else encrypts the way.
    pub insecure: bool,
    /// How long a connection may take.
    pub connect_max: Duration,
    /// How long an inference may take, those dealt anew included.
    pub call_max: Duration,
    /// Most inferences under way at once.
    pub inferences_max: usize,
    /// The only dealer to send anything to; `None` for whichever the servers announce.
    pub dealer: Option<DealtBy>,
}

impl SharesClientSpec {
    /// The defaults: any version, 5 s to connect, 30 s an inference, 32 at once.
    pub fn new(left: EndpointSpec, right: EndpointSpec) -> Self {
        Self {
            left,
            right,
            version: None,
            insecure: false,
            connect_max: Duration::from_secs(5),
            call_max: Duration::from_secs(30),
            inferences_max: 32,
            dealer: None,
        }
    }
}

/// What a model says of some users.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct SharesPrediction {
    /// One a user, in their order.
    pub logits: Vec<f64>,
    /// What it cost.
    pub stats: SharesStats,
}

/// What predictions cost.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct SharesStats {
    /// Bytes of lookup keys sent to both servers.
    pub key_bytes: u64,
    /// Bytes of what was dealt to both servers.
    pub dealt_bytes: u64,
    /// Bytes of shares received.
    pub received_bytes: u64,
    /// From the call to its end.
    pub elapsed: Duration,
    /// What dealing took, keys included, summed over users.
    pub deal: Duration,
    /// How long parts waited at the slower server, summed over users.
    pub queue: Duration,
    /// How long the slower server took from then on, summed over users.
    pub answer: Duration,
    /// How often an inference was dealt anew.
    pub retries: u32,
}

/// A client of one model at two servers.
pub struct SharesClient {
    peers: [Peer; 2],
    spec: SharesClientSpec,
    info: SharesInfo,
    domains: Vec<Domain>,
    turns: Semaphore,
}

/// One inference's parts.
struct Parts {
    requests: [SharesPredictRequest; 2],
    key_bytes: u64,
    dealt_bytes: u64,
}

impl SharesClient {
    /// Connects, asks both servers what they compute, and checks that it is the same.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for
    /// what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a server out of
    /// reach; [`Error::Unserved`] for a server of another scheme; [`Error::Reply`] for one that announces
    /// what cannot be; [`Error::SidesSwapped`], [`Error::SameSide`]; [`Error::VersionMismatch`] for servers of
    /// different models or plans, or another than `spec` names.
    pub async fn connect(spec: &SharesClientSpec) -> Result<Self, Error> {
        let peer = |endpoint| Peer::new(endpoint, spec.insecure, spec.connect_max);
        let peers = [peer(&spec.left)?, peer(&spec.right)?];
        let [left, right] = peers.each_ref().map(|peer| fetch_info(peer, spec.call_max));
        let (left, right) = join(left, right).await;
        let [info, right] = [left?, right?];
        let urls = peers.each_ref().map(|peer| peer.url().to_owned());
        match (info.half, right.half) {
            (Half::Left, Half::Right) => {}
            (Half::Right, Half::Left) => {
                let [left, right] = urls;
                return Err(Error::SidesSwapped { left, right });
            }
            (half, _) => {
                let ([left, right], side) = (urls, side_of(half));
                return Err(Error::SameSide { left, right, side });
            }
        }
        let urls = || urls.to_vec();
        for (expected, found) in [(info.version, right.version), (info.plan, right.plan)] {
            if expected != found {
                return Err(Error::VersionMismatch { urls: urls(), expected, found: Some(found) });
            }
        }
        if let Some(expected) = spec.version.filter(|&expected| expected != info.version) {
            let found = Some(info.version);
            return Err(Error::VersionMismatch { urls: urls(), expected, found });
        }
        if let Some(expected) = spec.dealer.filter(|&expected| expected != info.dealer) {
            let reason = format!(
                "it takes what is dealt by {}, and this client was told to accept what is dealt by {expected} alone",
                info.dealer
            );
            return Err(peers[0].reply_error(ReplyDefect::Other { reason }));
        }
        if (&info.outline, info.dealer) != (&right.outline, right.dealer) || info.dlrm != right.dlrm
        {
            let reason = "its terms are not the left one's, of the same plan".to_owned();
            return Err(peers[1].reply_error(ReplyDefect::Other { reason }));
        }
        let domains = info.domains()?;
        let turns = Semaphore::new(spec.inferences_max.max(1));
        Ok(Self { peers, spec: spec.clone(), info, domains, turns })
    }

    /// What the servers compute.
    pub fn info(&self) -> &SharesInfo {
        &self.info
    }

    /// The model's logits for `users`: `dense` has the model's numbers for each of them, one user after the other,
    /// `indices` their rows: as many a feature as its bag has room for, [`hushtable_infer::dlrm::spec::ABSENT`]
    /// where there is none. All are checked before anything of any is sent. Each inference is dealt for apart; one
    /// that the servers lose is dealt anew.
    ///
    /// # Errors
    /// [`Error::Infer`] and [`Error::Shares`] for features that are none of the model's; [`Error::Refused`],
    /// [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`].
    pub async fn predict(
        &self,
        users: usize,
        dense: &[f64],
        indices: &[u64],
    ) -> Result<SharesPrediction, Error> {
        let started = Instant::now();
        let (dense_each, indices_each) = (self.info.outline.dense, self.info.dlrm.indices());
        for (what, expected, found) in [
            ("dense features", users * dense_each, dense.len()),
            ("indices", users * indices_each, indices.len()),
        ] {
            if expected != found {
                return Err(FeatureError::Count { what, expected, found }.into());
            }
        }
        let of = |user: usize| {
            let dense = &dense[user * dense_each..][..dense_each];
            (dense, &indices[user * indices_each..][..indices_each])
        };
        for user in 0..users {
            let (dense, indices) = of(user);
            check_dense(dense, self.info.outline.fraction_bits, user)?;
            self.info.dlrm.places(indices).map_err(|error| of_user(error, user))?;
        }
        let one = |user: usize| {
            let (dense, indices) = of(user);
            self.predict_one(dense, indices)
        };
        let found = try_join_all((0..users).map(one)).await?;
        let (mut logits, mut stats) = (Vec::with_capacity(users), SharesStats::default());
        for (logit, own) in found {
            logits.push(logit);
            stats.key_bytes += own.key_bytes;
            stats.dealt_bytes += own.dealt_bytes;
            stats.received_bytes += own.received_bytes;
            stats.deal += own.deal;
            stats.queue += own.queue;
            stats.answer += own.answer;
            stats.retries += own.retries;
        }
        stats.elapsed = started.elapsed();
        Ok(SharesPrediction { logits, stats })
    }

    async fn predict_one(
        &self,
        dense: &[f64],
        indices: &[u64],
    ) -> Result<(f64, SharesStats), Error> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let places = self.info.dlrm.places(indices)?;
        let deadline = Instant::now() + self.spec.call_max;
        let mut stats = SharesStats::default();
        loop {
            let began = Instant::now();
            // What was dealt is sent once: each turn deals anew.
            let Parts { requests, key_bytes, dealt_bytes } = self.deal(dense, &places)?;
            stats.deal += began.elapsed();
            stats.key_bytes += key_bytes;
            stats.dealt_bytes += dealt_bytes;
            let limit = deadline.saturating_duration_since(Instant::now());
            let [left, right] = requests;
            // The first to fail is the cause: the other one only misses it, later.
            let asked =
                try_join(ask(&self.peers[0], limit, left), ask(&self.peers[1], limit, right));
            let error = match asked.await {
                Ok((left, right)) => {
                    let logit = self.open(&left, &right)?;
                    stats.received_bytes += (left.share.len() + right.share.len()) as u64;
                    let slower = |of: fn(&SharesPredictReply) -> Option<u64>| {
                        let us = of(&left).max(of(&right)).unwrap_or_default();
                        Duration::from_micros(us)
                    };
                    stats.queue += slower(|it| it.queue_us);
                    stats.answer += slower(|it| it.answer_us);
                    return Ok((logit, stats));
                }
                Err(error) => error,
            };
            let random = random_u64()?;
            let wait = match &error {
                Error::Refused { refusal: Refusal::Busy { retry_after, .. }, .. } => {
                    Some(pause(*retry_after, stats.retries, random))
                }
                Error::Refused {
                    refusal: Refusal::Shares(SharesRefusal::Dry { retry_after }),
                    ..
                } => Some(pause(*retry_after, stats.retries, random)),
                Error::Refused { refusal: Refusal::Shares(refusal), .. }
                    if refusal.is_passing() =>
                {
                    Some(pause(LOST, stats.retries, random))
                }
                // They were there: one of them restarts.
                Error::Refused { refusal: Refusal::Draining, .. } | Error::Unavailable { .. } => {
                    Some(pause(LOST, stats.retries, random))
                }
                _ => None,
            };
            match wait {
                Some(wait) if Instant::now() + wait < deadline => sleep(wait).await,
                _ => return Err(error),
            }
            stats.retries += 1;
        }
    }

    fn deal(&self, dense: &[f64], places: &[Vec<usize>]) -> Result<Parts, Error> {
        let prg = Prg::new(PRG, Platform::detect());
        let mut keys: [Vec<Bytes>; 2] = Default::default();
        for (domain, places) in self.domains.iter().zip(places) {
            for &place in places {
                let KeyPair { left, right } = KeyPair::generate(prg, *domain, place as u64)?;
                keys[0].push(left.to_bytes().into());
                keys[1].push(right.to_bytes().into());
            }
        }
        let (common, own) = self.dealt(dense)?;
        let key_bytes = keys.iter().flatten().map(|key| key.len() as u64).sum();
        let name = [random_u64()?.to_le_bytes(), random_u64()?.to_le_bytes()].concat();
        let name = Bytes::from(name);
        let plan = Bytes::copy_from_slice(self.info.plan.as_bytes());
        let common = Bytes::from(common);
        let dealt_bytes = (2 * common.len() + own[0].len() + own[1].len()) as u64;
        let [left, right] = own.map(Bytes::from);
        let [left_keys, right_keys] = keys;
        let request = |keys, dealt| SharesPredictRequest {
            plan: plan.clone(),
            name: name.clone(),
            keys,
            common: common.clone(),
            dealt,
        };
        let requests = [request(left_keys, left), request(right_keys, right)];
        Ok(Parts { requests, key_bytes, dealt_bytes })
    }

    /// What goes to both servers, and to each, beside lookup keys.
    fn dealt(&self, dense: &[f64]) -> Result<(Vec<u8>, [Vec<u8>; 2]), Error> {
        let outline = &self.info.outline;
        Ok(match self.info.dealer {
            DealtBy::Client => {
                let mut dealt = deal(outline, dense)?;
                let own = [std::mem::take(&mut dealt.left), std::mem::take(&mut dealt.right)];
                (std::mem::take(&mut dealt.common), own)
            }
            DealtBy::Servers => {
                let mut shared = share(outline, dense)?;
                let own = [std::mem::take(&mut shared.left), std::mem::take(&mut shared.right)];
                (Vec::new(), own)
            }
        })
    }

    fn open(&self, left: &SharesPredictReply, right: &SharesPredictReply) -> Result<f64, Error> {
        let outline = &self.info.outline;
        for (peer, reply) in self.peers.iter().zip([left, right]) {
            if reply.plan != self.info.plan.as_bytes()[..] {
                let reason = "an answer by another plan than the one that was asked".to_owned();
                return Err(peer.reply_error(ReplyDefect::Other { reason }));
            }
            let (expected, found) = (outline.logit_bytes(), reply.share.len());
            if expected != found {
                return Err(peer.reply_error(ReplyDefect::AnswerBytes { expected, found }));
            }
        }
        Ok(open(outline, &left.share, &right.share)?)
    }
}

async fn ask(
    peer: &Peer,
    limit: Duration,
    request: SharesPredictRequest,
) -> Result<SharesPredictReply, Error> {
    let mut client: SharedInferenceClient<Channel> =
        SharedInferenceClient::new(peer.channel.clone());
    Ok(peer.within(limit, client.predict(request)).await?.into_inner())
}

async fn fetch_info(peer: &Peer, limit: Duration) -> Result<SharesInfo, Error> {
    peer.reconnecting(|| async {
        let mut client = SharedInferenceClient::new(peer.channel.clone())
            .max_decoding_message_size(TERMS_BYTES_MAX + REPLY_OVERHEAD_BYTES);
        let reply = peer.within(limit, client.info(SharesInfoRequest {})).await?;
        SharesInfo::check(reply.into_inner()).map_err(|defect| peer.reply_error(defect))
    })
    .await
}

fn of_user(error: FeatureError, user: usize) -> Error {
    match error {
        FeatureError::Index { feature, index, rows, .. } => {
            FeatureError::Index { user, feature, index, rows }.into()
        }
        error => error.into(),
    }
}

impl From<shares::Error> for Error {
    fn from(error: shares::Error) -> Self {
        match error {
            shares::Error::Dlrm(error) => Self::Infer(error),
            error => Self::Shares(error),
        }
    }
}

/// How long servers that have lost each other take to meet again, about.
const LOST: Duration = Duration::from_millis(50);
