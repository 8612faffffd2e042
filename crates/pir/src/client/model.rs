//! A client of one model at two servers: all features of an inference in one round trip.

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::{Ask, Bell, Connect, Opening, Operation, Shared, Timed};
use hushtable_prg::PrgKind;
use hushtable_table::layout::Layout;
use hushtable_table::model::{Feature, ModelManifest};
use hushtable_table::{Error as TableError, Version};

use super::bags::{BagScript, BagsScript};
use super::inference::InferenceScript;
use super::model_opening::ModelOpening;
use super::table::{
    KEYS_IN_PLACE_MAX, LookupScript, PairTable, is_layout_change, is_version_change,
};
use super::{
    BagRows, BagsRows, Failure, LookupStats, Machine, Place, Retrieval, RowFormat, Rows, TableInfo,
};

/// How a client asks two servers for a model's rows.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ModelSpec {
    /// Servers of the left side, and of the right side; one of each is asked.
    pub servers: [usize; 2],
    /// The model's name; `None` for the only one that the servers hold.
    pub model: Option<String>,
    /// The only version of the model to ask for; `None` for whatever both servers hold.
    pub version: Option<Version>,
    /// The generator that keys use.
    pub prg: PrgKind,
    /// Most bytes of all its tables' layouts to fetch.
    pub layout_bytes_max: u64,
    /// How long one call to one server may take.
    pub call_max: Duration,
    /// How long an inference may take, retries included.
    pub lookup_max: Duration,
}

/// What both servers hold of a model.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ModelFacts {
    /// The model's manifest, which hashes to its version.
    pub manifest: ModelManifest,
    /// Its tables, in the manifest's order, as the left server announced them; the limits are those
    /// of the stricter.
    pub tables: Vec<TableInfo>,
    /// Bytes of keys of every inference, to left and to right.
    pub request_bytes: [u64; 2],
    /// Bytes of the answers to every inference, from each server.
    pub answer_bytes: u64,
}

impl ModelFacts {
    /// The model's version.
    pub fn version(&self) -> Version {
        self.manifest.version()
    }

    /// The table of a feature.
    pub fn table_of(&self, feature: &Feature) -> &TableInfo {
        &self.tables[feature.table]
    }
}

/// What an inference fetched.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ModelRows {
    /// The features asked for, in the order in which they were.
    pub features: Vec<FeatureRows>,
    /// The model that answered.
    pub facts: Arc<ModelFacts>,
    /// What it cost; its version is the model's.
    pub stats: LookupStats,
}

/// The rows of one feature.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FeatureRows {
    /// Which of the manifest's features.
    pub feature: usize,
    /// `ids × row_bytes` bytes, in the ids' order: zero where an id was dropped.
    pub rows: Vec<u8>,
    /// For each id whether its row is there: always, but where a layout drops some.
    pub kept: Vec<bool>,
    /// Distinct ids that were dropped.
    pub dropped: usize,
    /// How a row's bytes make numbers.
    pub format: RowFormat,
}

impl FeatureRows {
    /// The rows as `ids × dim` numbers, zero where an id was dropped.
    ///
    /// # Errors
    /// Those of [`RowFormat::decode`].
    pub fn to_f32(&self) -> Result<Vec<f32>, TableError> {
        self.format.decode(&self.rows)
    }
}

impl Timed for ModelRows {
    fn took(&mut self, elapsed: Duration, moves: u32) {
        self.stats.elapsed = elapsed;
        self.stats.retries += moves;
    }
}

/// A client of one model at two servers. Clones share its session.
#[derive(Clone)]
pub struct ModelClient(Arc<Shared<Model>>);

impl ModelClient {
    /// Asks both servers what they hold, checks that they are a left and a right one with one model,
    /// and that its manifest is the one that its version says, matches its tables one by one, and
    /// fetches their layouts. `bell` is rung for machines that wait for each other; `random` spreads
    /// retries.
    pub fn open<E: Send>(
        spec: ModelSpec,
        random: u64,
        bell: Bell,
    ) -> impl Machine<E, Protocol = Retrieval, Output = Self> + use<E> {
        Opening::new(Model(spec), bell, random, Self)
    }

    /// What both servers hold.
    pub fn facts(&self) -> Arc<ModelFacts> {
        Arc::clone(&self.0.session().facts)
    }

    /// Fetches the rows of the ids asked for of each feature, by its name. Both servers see the same
    /// whatever is asked: every feature's keys, as many as the manifest says. `random` spreads
    /// retries and drops.
    pub fn lookup<E: Send>(
        &self,
        asked: &[(&str, &[u64])],
        random: u64,
    ) -> impl Machine<E, Protocol = Retrieval, Output = ModelRows> + use<E> {
        let asked = asked.iter().map(|&(name, ids)| (name.to_owned(), ids.to_vec()));
        Operation::new(&self.0, InferenceAsk { asked: asked.collect() }, random)
    }

    /// The table of a feature.
    ///
    /// # Errors
    /// [`Failure::Model`] for a feature that the model does not have.
    pub fn table_info(&self, feature: &str) -> Result<TableInfo, Failure> {
        Ok(self.0.session().table_of(feature)?.info())
    }

    /// The layout of a feature's table.
    ///
    /// # Errors
    /// [`Failure::Model`] for a feature that the model does not have.
    pub fn layout(&self, feature: &str) -> Result<Option<Arc<Layout>>, Failure> {
        self.0.session().table_of(feature)?.layout()
    }

    /// Fetches rows of a feature's table alone, as [`PairClient::lookup`](super::PairClient::lookup).
    pub fn table_lookup<E: Send>(
        &self,
        feature: &str,
        ids: &[u64],
        max_ids: usize,
        random: u64,
    ) -> impl Machine<E, Protocol = Retrieval, Output = Rows> + use<E> {
        let ask = TableAsk { feature: feature.into(), ids: ids.to_vec(), max_ids };
        Operation::new(&self.0, ask, random)
    }

    /// Fetches a bag of rows of a feature's table alone, as
    /// [`PairClient::bag`](super::PairClient::bag).
    pub fn table_bag<E: Send>(
        &self,
        feature: &str,
        ids: &[u64],
        random: u64,
    ) -> impl Machine<E, Protocol = Retrieval, Output = BagRows> + use<E> {
        Operation::new(&self.0, BagAsk { feature: feature.into(), ids: ids.to_vec() }, random)
    }

    /// Fetches several bags of rows of a feature's table alone, as
    /// [`PairClient::bags`](super::PairClient::bags).
    pub fn table_bags<E: Send>(
        &self,
        feature: &str,
        bags: &[Vec<u64>],
        random: u64,
    ) -> impl Machine<E, Protocol = Retrieval, Output = BagsRows> + use<E> {
        Operation::new(&self.0, BagsAsk { feature: feature.into(), bags: bags.to_vec() }, random)
    }
}

/// One version of a model, as both servers announced it.
pub(super) struct Session {
    pub facts: Arc<ModelFacts>,
    /// In the manifest's order.
    pub tables: Vec<PairTable>,
    /// Keys of an inference, about: the sum of the features' `max_ids`.
    pub keys: usize,
}

impl Session {
    fn table_of(&self, feature: &str) -> Result<&PairTable, Failure> {
        let manifest = &self.facts.manifest;
        let feature = manifest.find_feature(feature)?;
        Ok(&self.tables[manifest.features()[feature].table])
    }
}

/// How a client of a model comes to its sessions.
pub(super) struct Model(ModelSpec);

impl Connect for Model {
    type Protocol = Retrieval;
    type Session = Session;
    type Opening = ModelOpening;

    fn opening(&self, known: Option<&Arc<Session>>) -> ModelOpening {
        ModelOpening::new(self.0.clone(), known.cloned())
    }

    fn first(&self) -> Place {
        Place::Left
    }

    fn servers(&self) -> [usize; 3] {
        let [left, right] = self.0.servers;
        [left, right, 0]
    }

    fn limits(&self) -> (Duration, Duration) {
        (self.0.call_max, self.0.lookup_max)
    }

    fn is_misfit(&self, failure: &Failure) -> bool {
        failure.is_misfit()
    }
}

/// One inference.
struct InferenceAsk {
    /// Features' names, which mean the same in another version of the model, and their ids.
    asked: Vec<(String, Vec<u64>)>,
}

impl Ask<Model> for InferenceAsk {
    type Output = ModelRows;
    type Script = InferenceScript;

    fn script(&self, session: &Arc<Session>, random: u64) -> Result<InferenceScript, Failure> {
        InferenceScript::new(session, &self.asked, random)
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        is_version_change(failure)
    }

    // Some microseconds a key: more of them are not for the threads of connections.
    fn computes(&self, session: &Session) -> bool {
        session.keys > KEYS_IN_PLACE_MAX
    }
}

struct TableAsk {
    feature: String,
    ids: Vec<u64>,
    max_ids: usize,
}

impl Ask<Model> for TableAsk {
    type Output = Rows;
    type Script = LookupScript;

    fn script(&self, session: &Arc<Session>, _: u64) -> Result<LookupScript, Failure> {
        session.table_of(&self.feature)?.lookup(&self.ids, self.max_ids)
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        is_version_change(failure)
    }
}

struct BagAsk {
    feature: String,
    ids: Vec<u64>,
}

impl Ask<Model> for BagAsk {
    type Output = BagRows;
    type Script = BagScript;

    fn script(&self, session: &Arc<Session>, random: u64) -> Result<BagScript, Failure> {
        session.table_of(&self.feature)?.bag(&self.ids, random)
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        is_layout_change(failure)
    }
}

struct BagsAsk {
    feature: String,
    bags: Vec<Vec<u64>>,
}

impl Ask<Model> for BagsAsk {
    type Output = BagsRows;
    type Script = BagsScript;

    fn script(&self, session: &Arc<Session>, random: u64) -> Result<BagsScript, Failure> {
        BagsScript::new(session.table_of(&self.feature)?.bags()?, &self.bags, random)
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        is_layout_change(failure)
    }

    fn computes(&self, session: &Session) -> bool {
        session.keys * self.bags.len() > KEYS_IN_PLACE_MAX
    }
}
