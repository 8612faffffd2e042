//! Has a model computed by two servers, neither of which sees the features or what they look up.

use std::time::Duration;

use futures_util::future::try_join_all;
use hushtable_client::Place;
use hushtable_infer::dlrm::Error as FeatureError;
use hushtable_infer::shares::DealtBy;
use hushtable_infer::shares::client::check_dense;
use hushtable_infer::shares::session::{Answered, Predictor, SessionSpec};
use hushtable_table::Version;
use tokio::sync::Semaphore;
use tokio::time::Instant;

use super::SharesInfo;
use super::peer::SharesWire;
use super::refusal::REFUSALS;
use crate::peer::drive::Driver;
use crate::peer::endpoint::Peer;
use crate::peer::random_u64;
use crate::{EndpointSpec, Error};

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
    driver: Driver<SharesWire>,
    predictor: Predictor,
    turns: Semaphore,
}

impl SharesClient {
    /// Connects, asks both servers what they compute, and checks that it is the same.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for
    /// what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a server out of
    /// reach; [`Error::Unserved`] if a server speaks another scheme; [`Error::Reply`] if one announces
    /// what cannot be; [`Error::SidesSwapped`], [`Error::SameSide`]; [`Error::VersionMismatch`] for servers of
    /// different models or plans, or another than `spec` names.
    pub async fn connect(spec: &SharesClientSpec) -> Result<Self, Error> {
        let peer = |endpoint| Peer::new(endpoint, spec.insecure, spec.connect_max, REFUSALS);
        let (left, right) = (peer(&spec.left)?, peer(&spec.right)?);
        let &SharesClientSpec { version, dealer, call_max, .. } = spec;
        let driver = Driver::new([(Place::Left, vec![left]), (Place::Right, vec![right])]);
        let session = SessionSpec { version, dealer, call_max };
        let opening = Predictor::open(session, random_u64()?, driver.bell());
        let predictor = driver.run(opening).await?;
        let turns = Semaphore::new(spec.inferences_max.max(1));
        Ok(Self { driver, predictor, turns })
    }

    /// What the servers compute.
    pub fn info(&self) -> &SharesInfo {
        self.predictor.info()
    }

    /// The model's logits for `users`: `dense` has the model's numbers for each of them, one user after the other,
    /// `indices` their rows: as many a feature as its bag has room for, [`hushtable_infer::dlrm::spec::ABSENT`]
    /// where there is none. All are checked before anything of any is sent. Each inference is dealt for apart; one
    /// that the servers lose is dealt anew.
    ///
    /// # Errors
    /// [`hushtable_infer::dlrm::Error`] and [`hushtable_infer::shares::Error`] for features that are none of the model's; [`Error::Refused`],
    /// [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`].
    pub async fn predict(
        &self,
        users: usize,
        dense: &[f64],
        indices: &[u64],
    ) -> Result<SharesPrediction, Error> {
        let started = Instant::now();
        let info = self.info();
        let (dense_each, indices_each) = (info.outline.dense, info.dlrm.indices());
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
            check_dense(dense, info.outline.fraction_bits, user)?;
            info.dlrm.places(indices).map_err(|error| of_user(error, user))?;
        }
        let one = |user: usize| {
            let (dense, indices) = of(user);
            self.predict_one(dense, indices)
        };
        let found = try_join_all((0..users).map(one)).await?;
        let (mut logits, mut stats) = (Vec::with_capacity(users), SharesStats::default());
        for (answered, computed) in found {
            logits.push(answered.logit);
            stats.key_bytes += answered.key_bytes;
            stats.dealt_bytes += answered.dealt_bytes;
            stats.received_bytes += answered.received_bytes;
            stats.deal += computed;
            stats.queue += answered.queue;
            stats.answer += answered.answer;
            stats.retries += answered.retries;
        }
        stats.elapsed = started.elapsed();
        Ok(SharesPrediction { logits, stats })
    }

    /// An inference, and how long dealing took.
    async fn predict_one(
        &self,
        dense: &[f64],
        indices: &[u64],
    ) -> Result<(Answered, Duration), Error> {
        // The semaphore is never closed.
        let _turn = self.turns.acquire().await;
        let (dense, indices) = (dense.to_vec(), indices.to_vec());
        self.driver.run_timed(self.predictor.predict_one(dense, indices, random_u64()?)).await
    }
}

fn of_user(error: FeatureError, user: usize) -> Error {
    match error {
        FeatureError::Index { feature, index, rows, .. } => {
            FeatureError::Index { user, feature, index, rows }.into()
        }
        error => error.into(),
    }
}
