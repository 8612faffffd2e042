//! Fetches rows from one server, which does not learn which.

use std::time::Duration;

use hushtable_pir::client::{self, OnionSpec, Place};
use hushtable_pir::onion::ParameterSet;
use hushtable_table::Version;

use super::OnionInfo;
use super::peer::OnionWire;
use super::refusal::REFUSALS;
use crate::peer::drive::Driver;
use crate::peer::endpoint::Peer;
use crate::peer::random_u64;
use crate::{EndpointSpec, Error, Lookup};

/// How a client reaches its server.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct OnionClientSpec {
    /// The server, or several of one operator.
    pub server: EndpointSpec,
    /// The parameter sets that the server may serve by; [`ParameterSet::IvePaper`] has less than 128
    /// bits by the 2024 guidelines. A server of another set gets neither keys nor queries.
    pub parameter_sets: Vec<ParameterSet>,
    /// The only version of the table to ask for; `None` for whatever the server holds.
    pub version: Option<Version>,
    /// Send queries to other machines over plain HTTP: for when something else encrypts the way.
    pub insecure: bool,
    /// How long a connection may take.
    pub connect_max: Duration,
    /// How long one call may take.
    pub call_max: Duration,
    /// How long a lookup may take, uploads of keys and retries included.
    pub lookup_max: Duration,
}

impl OnionClientSpec {
    /// The defaults: the set `n4096_128` alone, any version, 5 s to connect, 30 s a call, 60 s a lookup.
    pub fn new(server: EndpointSpec) -> Self {
        Self {
            server,
            parameter_sets: vec![ParameterSet::N4096128],
            version: None,
            insecure: false,
            connect_max: Duration::from_secs(5),
            call_max: Duration::from_secs(30),
            lookup_max: Duration::from_secs(60),
        }
    }
}

/// A client of one table at one server.
pub struct OnionClient {
    driver: Driver<OnionWire>,
    client: client::OnionClient,
}

impl OnionClient {
    /// Connects, asks what the server holds, and makes a secret and keys for it. The keys are
    /// uploaded by the first lookup.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for
    /// what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a server out of
    /// reach; [`Error::Unserved`] if the server speaks another scheme; [`Error::ParametersRefused`] and
    /// [`Error::Reply`] for one that announces what this client does not accept.
    pub async fn connect(spec: &OnionClientSpec) -> Result<Self, Error> {
        let peers = Peer::each(&spec.server, spec.insecure, spec.connect_max, REFUSALS)?;
        let servers = peers.len();
        let driver = Driver::new([(Place::Single, peers)]);
        let &OnionClientSpec { ref parameter_sets, version, call_max, lookup_max, .. } = spec;
        let parameter_sets = parameter_sets.clone();
        let spec = OnionSpec { servers, parameter_sets, version, call_max, lookup_max };
        let opening = client::OnionClient::open(spec, random_u64()?, driver.bell());
        let client = driver.run(opening).await?;
        Ok(Self { driver, client })
    }

    /// What the server holds, as it announced it.
    pub fn info(&self) -> OnionInfo {
        self.client.info()
    }

    /// Fetches the rows `ids` in one round trip, and one more where the server does not have this
    /// client's keys. It sees `max_ids` queries, whatever the number of ids.
    ///
    /// A busy server is asked again after the delay that it names, with the same queries. If the
    /// table changed since the last lookup, new keys are made and the lookup made once more; the
    /// stats say which version answered. Where the server drains or is out of reach, the next one gets the keys
    /// and new queries; one that drains is waited for, within `lookup_max`, where it is the only one.
    ///
    /// # Errors
    /// [`hushtable_pir::onion::Error`] for an id that is no row or more than `max_ids` ids, [`Error::MaxIds`] where
    /// the server takes fewer queries, [`Error::Refused`], [`Error::Unavailable`],
    /// [`Error::Timeout`], [`Error::Reply`], and after a change of the table [`Error::VersionMismatch`],
    /// [`Error::ParametersRefused`], for what the server does.
    pub async fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<Lookup, Error> {
        let lookup = self.client.lookup(ids, max_ids, random_u64()?);
        self.driver.run(lookup).await.map(Lookup::from)
    }

    /// As [`lookup`](Self::lookup), with rows as `ids × dim` numbers.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup), and [`Error::Rows`].
    pub async fn lookup_f32(&self, ids: &[u64], max_ids: usize) -> Result<Vec<f32>, Error> {
        self.lookup(ids, max_ids).await?.to_f32()
    }
}
