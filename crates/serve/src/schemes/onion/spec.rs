//! How a server that is asked alone runs: [`OnionServerSpec`], checked into `Settings`.

use std::path::PathBuf;

use hushtable_pir::TableShape;
use hushtable_pir::client::{ONION_REQUEST_BYTES, QUERIES_PER_REQUEST_MAX, QUERY_OVERHEAD_BYTES};
use hushtable_pir::onion::{Geometry, ParameterSet};
use hushtable_table::Table;
use serde::{Deserialize, Serialize};

use super::role::{ShardOf, stored_bytes};
use crate::host::network::{Network, check_window, within};
use crate::keys::{KeyStoreSpec, PeerShare};
use crate::schemes::bundles::Bundles;
use crate::schemes::versions::ChangeSpec;
use crate::{Error, NetworkSpec};

/// How a server that is asked alone runs. Every field but `table` has a default.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct OnionServerSpec {
    /// A table bundle's or a model bundle's folder.
    pub table: PathBuf,
    /// More bundles, of tables or of models, to be served beside `table` at the same address. What
    /// several of them hold is loaded once.
    #[serde(default)]
    pub tables: Vec<PathBuf>,
    /// Be one of the servers of this shard, of each table's columns, for fronts alone. Goes with `shards`.
    #[serde(default)]
    pub shard: Option<usize>,
    /// How many shards there are.
    #[serde(default)]
    pub shards: Option<usize>,
    /// Be a front, which has no columns itself: this TOML file says where each shard's servers are.
    #[serde(default)]
    pub shards_file: Option<PathBuf>,
    /// Most bytes that all tables may take in memory, in the form in which queries multiply them;
    /// none for no limit. Tables that take more are refused at the start, before any is loaded.
    #[serde(default)]
    pub tables_bytes_max: Option<u64>,
    /// The file of the table in the form in which queries multiply it, three to four times the
    /// table's bytes. Where it is missing or of another version of the table, it is made at the
    /// start. None to make it in memory at every start: for small tables. Of several tables it is
    /// the first one's; a model's are answered from the files that are prepared in its folder.
    #[serde(default)]
    pub prepared: Option<PathBuf>,
    /// Answer from the prepared file itself, so that the system may drop what is not read, instead
    /// of a copy in memory of huge pages, which answers faster.
    #[serde(default)]
    pub mapped: bool,
    /// The parameter set; "n4096_128" by default.
    #[serde(default = "default_parameters")]
    pub parameters: String,
    /// Ports, TLS, limits of connections.
    #[serde(flatten)]
    pub network: NetworkSpec,
    /// Threads that share a pass over the table; 0 (the default) for one a core.
    #[serde(default)]
    pub threads: usize,
    /// How long a request may wait for others to share its pass, in microseconds, at most one
    /// minute. The default is the time in which the table is read once, measured at the start
    /// (Kim et al., "IVE", section V); a client that is alone then waits for nobody, unless the window
    /// is set.
    #[serde(default)]
    pub window_us: Option<u64>,
    /// Most queries in one pass; the default is what the engine answers best.
    #[serde(default)]
    pub batch_queries_max: Option<usize>,
    /// Most queries in one request. The default is 64, less where responses would pass 8 MiB.
    #[serde(default)]
    pub queries_per_request_max: Option<usize>,
    /// Most queries that wait; beyond, requests are refused with a hint when to retry.
    #[serde(default = "default_queue_queries_max")]
    pub queue_queries_max: usize,
    /// Where clients' keys are kept through restarts: a folder that no other server uses. None to
    /// keep them in memory only.
    #[serde(default)]
    pub keys_folder: Option<PathBuf>,
    /// Most bytes of clients' keys in memory, where a client's take almost four times what it
    /// uploads. 1 GiB by default.
    #[serde(default = "default_keys_memory_bytes_max")]
    pub keys_memory_bytes_max: usize,
    /// Most bytes of clients' keys in the folder. 16 GiB by default.
    #[serde(default = "default_keys_folder_bytes_max")]
    pub keys_folder_bytes_max: usize,
    /// Most bytes of the keys of one peer's clients (an IPv4 address, or an IPv6 network of 64 bits), in
    /// memory and in the folder; half of each by default. A peer that has more to keep loses its own.
    #[serde(default)]
    pub keys_bytes_per_peer_max: Option<usize>,
    /// How it changes to next versions of what it holds.
    #[serde(flatten)]
    pub change: ChangeSpec,
}

impl OnionServerSpec {
    /// The defaults for a table.
    pub fn new(table: impl Into<PathBuf>) -> Self {
        Self {
            table: table.into(),
            tables: Vec::new(),
            shard: None,
            shards: None,
            shards_file: None,
            tables_bytes_max: None,
            prepared: None,
            mapped: false,
            parameters: default_parameters(),
            network: NetworkSpec::default(),
            threads: 0,
            window_us: None,
            batch_queries_max: None,
            queries_per_request_max: None,
            queue_queries_max: default_queue_queries_max(),
            keys_folder: None,
            keys_memory_bytes_max: default_keys_memory_bytes_max(),
            keys_folder_bytes_max: default_keys_folder_bytes_max(),
            keys_bytes_per_peer_max: None,
            change: ChangeSpec::default(),
        }
    }
}

/// A checked [`OnionServerSpec`], with what follows from it and the tables' shapes.
pub(super) struct Settings {
    pub spec: OnionServerSpec,
    /// By the tables that are held.
    pub tables: Vec<TableLimits>,
    /// Of the table with the most levels: keys are made for it.
    pub deepest: Geometry,
    /// Bytes that one request to a model may have, by the models that are held.
    pub model_request_bytes_max: Vec<usize>,
    /// Bytes that any request may have.
    pub request_bytes_max: usize,
    pub keys: KeyStoreSpec,
}

/// How a table lies, and what one request to it may hold.
#[derive(Clone)]
pub(super) struct TableLimits {
    pub geometry: Geometry,
    pub queries_per_request_max: usize,
    pub request_bytes_max: usize,
}

impl Settings {
    /// Checks `spec` for a server of what `bundles` hold.
    pub fn check(spec: OnionServerSpec, bundles: &Bundles) -> Result<(Self, Network), Error> {
        let name = &spec.parameters;
        let set = ParameterSet::from_name(name)
            .ok_or_else(|| Error::ParameterSet { name: name.clone() })?;
        within("threads", spec.threads, 0..=4096)?;
        within("batch_queries_max", spec.batch_queries_max.unwrap_or(1), 1..=QUERIES_MAX)?;
        within("queue_queries_max", spec.queue_queries_max, 1..=QUERIES_MAX)?;
        check_window(spec.window_us)?;
        let shard = ShardOf::check(&spec)?;
        spec.change.check()?;
        let tables = bundles
            .tables
            .iter()
            .map(|held| TableLimits::check(&spec, set, &held.table))
            .collect::<Result<Vec<_>, _>>()?;
        bundles.check_budget(spec.tables_bytes_max, |index| {
            match bundles.is_first_of_version(index) {
                true => stored_bytes(&spec, &tables[index].geometry),
                false => Ok(0),
            }
        })?;
        let geometries = || tables.iter().map(|table| &table.geometry);
        let Some(deepest) = geometries().max_by_key(|geometry| geometry.levels()).cloned() else {
            return Err(Error::ParameterSet { name: name.clone() });
        };
        let key_bytes_max = geometries().map(|it| key_bytes_max(it.shape())).max().unwrap_or(0);
        let parsed = MEMORY_PER_KEY_BYTE * deepest.key_bytes();
        within("keys_memory_bytes_max", spec.keys_memory_bytes_max, parsed..=1 << 50)?;
        let of_peer = spec.keys_bytes_per_peer_max.unwrap_or(parsed);
        within("keys_bytes_per_peer_max", of_peer, parsed..=1 << 50)?;
        within("keys_folder_bytes_max", spec.keys_folder_bytes_max, deepest.key_bytes()..=1 << 50)?;
        // Bytes of the largest request, with what it holds until it is answered.
        let mut whole = key_bytes_max + upload_bytes(&deepest);
        for table in &tables {
            let held = table.queries_per_request_max * held_bytes(&table.geometry);
            whole = whole.max(table.request_bytes_max + held);
        }
        let mut model_request_bytes_max = Vec::with_capacity(bundles.models.len());
        for model in &bundles.models {
            let (mut request, mut held) = (ONION_REQUEST_BYTES as usize, 0);
            for feature in model.manifest.features() {
                let geometry = &tables[model.tables[feature.table]].geometry;
                request += feature.max_ids * geometry.query_bytes() + QUERY_OVERHEAD_BYTES as usize;
                held += feature.max_ids * held_bytes(geometry);
            }
            whole = whole.max(request + held);
            model_request_bytes_max.push(request);
        }
        let of_tables = tables.iter().map(|table| table.request_bytes_max);
        let request_bytes_max =
            of_tables.chain(model_request_bytes_max.iter().copied()).max().unwrap_or(0);
        let network = Network::check(spec.network.clone(), whole)?;
        // Of a shard a front is the only peer there is.
        let given = match shard {
            Some(_) if spec.keys_bytes_per_peer_max.is_none() => Some(usize::MAX),
            _ => spec.keys_bytes_per_peer_max,
        };
        let keys = KeyStoreSpec {
            memory_bytes_max: spec.keys_memory_bytes_max,
            folder: spec.keys_folder.clone(),
            folder_bytes_max: spec.keys_folder_bytes_max,
            key_bytes_max,
            peer_bytes_max: PeerShare::of(
                given,
                [spec.keys_memory_bytes_max, spec.keys_folder_bytes_max],
                [parsed, deepest.key_bytes()],
            ),
        };
        let settings =
            Self { tables, deepest, model_request_bytes_max, request_bytes_max, keys, spec };
        Ok((settings, network))
    }
}

impl TableLimits {
    fn check(spec: &OnionServerSpec, set: ParameterSet, table: &Table) -> Result<Self, Error> {
        let geometry = Geometry::new(set, TableShape::new(table.rows(), table.row_bytes())?)?;
        let queries_per_request_max = match spec.queries_per_request_max {
            Some(queries) => queries,
            None => (RESPONSE_BYTES_TYPICAL_MAX / geometry.response_bytes())
                .clamp(1, QUERIES_PER_REQUEST_DEFAULT.min(spec.queue_queries_max)),
        };
        within("queries_per_request_max", queries_per_request_max, 1..=spec.queue_queries_max)?;
        let query_bytes = geometry.query_bytes() + QUERY_OVERHEAD_BYTES as usize;
        let request_bytes_max =
            queries_per_request_max * query_bytes + ONION_REQUEST_BYTES as usize;
        Ok(Self { geometry, queries_per_request_max, request_bytes_max })
    }
}

/// Bytes of an upload that are read at most: enough to say of keys for other parameters, or for
/// another depth, what they are.
fn key_bytes_max(shape: TableShape) -> usize {
    let of_set = |set| Geometry::new(set, shape).map_or(0, |geometry| geometry.key_bytes());
    2 * ParameterSet::ALL.map(of_set).into_iter().max().unwrap_or(0)
}

/// Bytes that a query holds beside its request's: itself, parsed, and its response.
pub(super) fn held_bytes(geometry: &Geometry) -> usize {
    MEMORY_PER_QUERY_BYTE * geometry.query_bytes() + geometry.response_bytes()
}

/// Bytes that an upload holds beside its messages': the keys in one piece, and parsed.
pub(super) fn upload_bytes(geometry: &Geometry) -> usize {
    (2 + MEMORY_PER_KEY_BYTE) * geometry.key_bytes()
}

fn default_parameters() -> String {
    ParameterSet::N4096128.name().into()
}

fn default_queue_queries_max() -> usize {
    1 << 10
}

fn default_keys_memory_bytes_max() -> usize {
    1 << 30
}

fn default_keys_folder_bytes_max() -> usize {
    16 << 30
}

const QUERIES_MAX: usize = QUERIES_PER_REQUEST_MAX as usize;
const QUERIES_PER_REQUEST_DEFAULT: usize = 64;
const RESPONSE_BYTES_TYPICAL_MAX: usize = 8 << 20;
/// Parsed keys have masks, which travel as a seed, and 64 bits a number.
const MEMORY_PER_KEY_BYTE: usize = 4;
/// The same of queries.
const MEMORY_PER_QUERY_BYTE: usize = 4;
