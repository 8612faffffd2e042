//! Has a model computed on features that the server never sees.

use std::time::Duration;

use hushtable_client::Place;
use hushtable_infer::dlrm;
use hushtable_infer::dlrm::session::{Answered, Predictor, Progress, SessionSpec, Uploaded};
use hushtable_table::Version;
use tokio::time::Instant;

use super::CkksInfo;
use super::peer::CkksWire;
use super::refusal::REFUSALS;
use crate::peer::drive::Driver;
use crate::peer::endpoint::Peer;
use crate::peer::random_u64;
use crate::{EndpointSpec, Error};

/// How a client reaches its server.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct CkksClientSpec {
    /// The server, or several of one operator.
    pub server: EndpointSpec,
    /// The only version of the model to ask; `None` for whatever the server has.
    pub version: Option<Version>,
    /// Reach other machines over plain HTTP: for when something else encrypts the way.
    pub insecure: bool,
    /// How long a connection may take.
    pub connect_max: Duration,
    /// How long one call may take, and a query with all that is done for it: but for an upload of keys.
    pub call_max: Duration,
    /// How long an upload of keys may take.
    pub upload_max: Duration,
    /// Most bytes of keys that this client makes and uploads.
    pub key_bytes_max: u64,
}

impl CkksClientSpec {
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
pub struct CkksClient {
    driver: Driver<CkksWire>,
    predictor: Predictor,
}

impl CkksClient {
    /// Connects, asks what the server computes, checks it, and makes a secret and keys for it. The keys
    /// are uploaded by the first prediction, or by [`upload`](Self::upload); `progress` is told then.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for
    /// what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a server out of
    /// reach; [`Error::Unserved`] if the server speaks another scheme; [`Error::Reply`] if it announces
    /// what cannot be, [`Error::KeyBytes`] for a plan of larger keys than `spec` allows,
    /// [`Error::VersionMismatch`] for another version than it names; [`hushtable_infer::dlrm::Error`] where no secret can
    /// be made.
    pub async fn connect(spec: &CkksClientSpec, progress: Option<Progress>) -> Result<Self, Error> {
        let peers = Peer::each(&spec.server, spec.insecure, spec.connect_max, REFUSALS)?;
        let &CkksClientSpec { version, call_max, upload_max, key_bytes_max, .. } = spec;
        let servers = peers.len();
        let spec = SessionSpec { servers, version, call_max, upload_max, key_bytes_max };
        let driver = Driver::new([(Place::Single, peers)]);
        let opening = Predictor::open(spec, progress, random_u64()?, driver.bell());
        let predictor = driver.run(opening).await?;
        Ok(Self { driver, predictor })
    }

    /// What the server computes, as it announced it and it was checked.
    pub fn info(&self) -> &CkksInfo {
        self.predictor.info()
    }

    /// Brings the keys to the server, where they are not there yet; the bytes sent.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`].
    pub async fn upload(&self) -> Result<u64, Error> {
        let Uploaded { sent_bytes, .. } =
            self.driver.run(self.predictor.upload(random_u64()?)).await?;
        Ok(sent_bytes)
    }

    /// The model's logits for `users`: `dense` has the model's numbers for each of them, one user after
    /// the other, `indices` their rows, one a table. The keys are uploaded first where the server does not
    /// have them. Each query carries as many users as the plan has room for, whether or not there are as
    /// many. Where the server drains or is out of reach, the next one of the list gets the keys and the query, if
    /// it computes by the same plan: a query is encrypted, so that another server of the same operator learns no
    /// more of it than the first.
    ///
    /// # Errors
    /// [`hushtable_infer::dlrm::Error`] for numbers that are not finite, an index outside its table, or slices of other
    /// lengths; [`Error::Refused`] for a server whose plan has changed, that has no room for the keys, or is
    /// busy until time is up; [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`].
    pub async fn predict(
        &self,
        users: usize,
        dense: &[f32],
        indices: &[u64],
    ) -> Result<Prediction, Error> {
        let started = Instant::now();
        let terms = &self.info().terms;
        let (dense_each, tables) = (terms.dense(), terms.features().len());
        for (what, expected, found) in [
            ("dense features", users * dense_each, dense.len()),
            ("indices", users * tables, indices.len()),
        ] {
            if expected != found {
                return Err(dlrm::Error::Count { what, expected, found }.into());
            }
        }
        // All of them, before the first query goes.
        terms.check_features(dense, indices)?;
        let mut found = Prediction { logits: Vec::new(), stats: PredictionStats::default() };
        let step = terms.users().max(1);
        for first in (0..users).step_by(step) {
            let last = users.min(first + step);
            let dense = dense[first * dense_each..last * dense_each].to_vec();
            let indices = indices[first * tables..last * tables].to_vec();
            let query = self.predictor.query(dense, indices, random_u64()?);
            let (answered, computed) = self.driver.run_timed(query).await?;
            let Answered { sent_bytes, received_bytes, queue, answer, retries, .. } = answered;
            let stats = &mut found.stats;
            stats.queries += 1;
            stats.sent_bytes += sent_bytes;
            stats.received_bytes += received_bytes;
            stats.client += computed;
            stats.queue += queue;
            stats.answer += answer;
            stats.retries += retries;
            found.logits.extend(answered.logits);
        }
        found.stats.elapsed = started.elapsed();
        Ok(found)
    }
}
