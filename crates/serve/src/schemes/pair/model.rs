//! Fetches all features of an inference from two servers, so that neither learns which rows.

use std::sync::Arc;

use hushtable_pir::client::{self, FeatureRows, ModelFacts, ModelRows, ModelSpec};
use hushtable_table::Version;
use tokio::task::JoinSet;

use super::client::Source;
use super::peer::PairWire;
use crate::peer::deadline::Deadline;
use crate::peer::drive::Driver;
use crate::peer::random_u64;
use crate::{ClientSpec, Error, LookupClient, LookupStats};

/// Which model a client asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ModelPin {
    /// Its name; `None` for the only one that the servers hold.
    pub model: Option<String>,
    /// The only version of it to ask for; `None` for whatever both servers hold.
    pub version: Option<Version>,
}

/// A client of one model at two servers.
#[derive(Clone)]
pub struct ModelClient {
    driver: Driver<PairWire>,
    client: client::ModelClient,
}

/// What an inference fetched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelLookup {
    /// The features asked for, in the order in which they were.
    pub features: Vec<FeatureRows>,
    /// The version of the model that answered.
    pub version: Version,
    /// That model.
    pub facts: Arc<ModelFacts>,
    /// What it cost.
    pub stats: LookupStats,
}

impl From<ModelRows> for ModelLookup {
    fn from(ModelRows { features, facts, stats, .. }: ModelRows) -> Self {
        Self { features, version: facts.version(), facts, stats }
    }
}

impl ModelClient {
    /// Connects to both servers, checks that they are a left and a right one with one model, and
    /// fetches the layouts of its tables. `pin` says which model; the version that `spec` has is of a
    /// single table and means nothing here.
    ///
    /// # Errors
    /// Those of [`LookupClient::connect`], and [`Error::ModelUnserved`], [`Error::ModelsDiffer`],
    /// [`Error::VersionMismatch`] for servers of other models; [`Error::Reply`] for a model that is
    /// not what its version says.
    pub async fn connect(spec: &ClientSpec, pin: &ModelPin) -> Result<Self, Error> {
        let driver = spec.driver()?;
        let &ClientSpec { prg, layout_bytes_max, call_max, lookup_max, .. } = spec;
        let ModelPin { model, version } = pin.clone();
        let servers = spec.servers();
        let spec =
            ModelSpec { servers, model, version, prg, layout_bytes_max, call_max, lookup_max };
        let opening = client::ModelClient::open(spec, random_u64()?, driver.bell());
        let client = driver.run(opening).await?;
        Ok(Self { driver, client })
    }

    /// What both servers hold.
    pub fn info(&self) -> Arc<ModelFacts> {
        self.client.facts()
    }

    /// Fetches the rows of features, each by its name, in one round trip to each server, at the same
    /// time. What the servers see is the same for every inference: the keys of all features, as many
    /// as the model bundle says, whichever are asked for.
    ///
    /// A busy server is asked again after the delay that it names, with the same keys. If the model
    /// changed since the last inference, it is matched anew and the inference made once more; the
    /// stats say which version answered.
    ///
    /// # Errors
    /// [`Error::Manifest`] for a feature that the model does not have, [`Error::FeatureIds`],
    /// [`Error::FeatureIdRange`], [`Error::FeatureTwice`] for ids that cannot be asked for;
    /// [`Error::VersionMismatch`] where the client asks for one version alone and the servers hold
    /// another, [`Error::Refused`], [`Error::Unavailable`], [`Error::Timeout`], [`Error::Reply`] for
    /// what servers do.
    pub async fn lookup(&self, asked: &[(&str, &[u64])]) -> Result<ModelLookup, Error> {
        let lookup = self.client.lookup(asked, random_u64()?);
        self.driver.run(lookup).await.map(ModelLookup::from)
    }

    /// Makes several inferences at once over the same connections, a message to each server for each,
    /// and returns what they fetched in their order.
    ///
    /// # Errors
    /// The first of those of [`lookup`](Self::lookup).
    pub async fn lookup_many(
        &self,
        inferences: &[&[(&str, &[u64])]],
    ) -> Result<Vec<ModelLookup>, Error> {
        let mut done: Vec<Option<ModelLookup>> = inferences.iter().map(|_| None).collect();
        let mut waiting = inferences.iter().enumerate();
        let mut under_way = JoinSet::new();
        loop {
            while under_way.len() < INFERENCES_AT_ONCE
                && let Some((number, asked)) = waiting.next()
            {
                let lookup = self.client.lookup(asked, random_u64()?);
                let driver = self.driver.clone();
                let call = async move { (number, driver.run(lookup).await) };
                under_way.spawn(Deadline::carry(Deadline::held(), call));
            }
            match under_way.join_next().await {
                Some(Ok((number, lookup))) => done[number] = Some(lookup?.into()),
                Some(Err(panic)) => std::panic::resume_unwind(panic.into_panic()),
                None => return Ok(done.into_iter().flatten().collect()),
            }
        }
    }

    /// A client of the table that a feature reads, over the same connections. It follows the model:
    /// where that changes, the table is that of the feature of this name.
    ///
    /// # Errors
    /// [`Error::Manifest`] for a feature that the model does not have.
    pub fn table(&self, feature: &str) -> Result<LookupClient, Error> {
        let info = self.client.table_info(feature);
        let info = info.map_err(|failure| self.driver.failure(failure))?;
        let source = Source::Feature(self.client.clone(), feature.to_owned(), Box::new(info));
        Ok(LookupClient::of(self.driver.clone(), source))
    }
}

/// More would fill the servers' queues.
const INFERENCES_AT_ONCE: usize = 64;
