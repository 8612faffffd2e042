//! Servers of a simulation: real tables, engines and answers, no sockets.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::simulation::Refused;
use hushtable_client::{CallError, CallFault};
use hushtable_pir::batch::{self, BatchEngine};
use hushtable_pir::client::{
    AnnouncedCatalog, AnnouncedModel, AnnouncedOnion, AnnouncedTable, Answers, Call, Reply,
};
use hushtable_pir::dpf::{self, Side};
use hushtable_pir::onion::{self, EvaluationKeys, Geometry, KeyId, OnionSpec, ParameterSet};
use hushtable_pir::{CpuEngine, EngineSpec, TableShape, Threads, model};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec};
use hushtable_table::model::{Feature, ModelManifest, ModelSpec, Pooling, TableRef};
use hushtable_table::{DType, Table, Version};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

type Outcome = Result<Reply, Refused>;

/// A table at both servers.
pub struct Held {
    pub table: Table,
    rows: [dpf::Server; 2],
    bins: Option<[batch::Server; 2]>,
}

/// What the servers hold at one time.
pub struct State {
    pub tables: Vec<Arc<Held>>,
    pub model: Option<(ModelManifest, [model::Server; 2])>,
}

fn refused(fault: CallFault) -> Refused {
    CallError { fault, error: "refused" }
}

fn changed(found: Option<Version>) -> Refused {
    refused(CallFault::Changed { found: found.map(|found| *found.as_bytes()) })
}

fn bytes(version: Version) -> Bytes {
    Bytes::copy_from_slice(version.as_bytes())
}

fn threads() -> Threads {
    static THREADS: OnceLock<Threads> = OnceLock::new();
    THREADS.get_or_init(|| Threads::new(1).unwrap()).clone()
}

impl Held {
    pub fn new(name: &str, rows: u64, dim: usize, seed: u64, layout: Option<u8>) -> Arc<Self> {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let values: Vec<f32> = (0..rows as usize * dim).map(|_| rng.random()).collect();
        let mut table = Table::from_weight(name, rows, dim, DType::F32, &values).unwrap();
        if let Some(seed) = layout {
            let part = |rows, bins, queries| {
                Some(PartSpec { rows, bins, queries, hashes: 1, companions: 0 })
            };
            let (hot, full) = (part(20, 4, 2), part(rows, 8, 2));
            let drop = DropRule::MostFrequent;
            let spec = LayoutSpec { hot, full, ids_max: 16, drop, seed: [seed; 32] };
            let map = LayoutMap { hot_ids: (0..20).collect(), ..LayoutMap::default() };
            let layout = Layout::new(spec, map, table.shape(), table.version()).unwrap();
            table = table.with_layout(Arc::new(layout)).unwrap();
        }
        let spec = EngineSpec { shared: Some(threads()), ..EngineSpec::default() };
        let engine = Arc::new(CpuEngine::from_table(&table, &spec).unwrap());
        let rows = Side::BOTH.map(|side| dpf::Server::new(side, table.version(), engine.clone()));
        let bins = table.layout().map(|layout| {
            let engine = Arc::new(BatchEngine::from_table(&table, layout, &spec).unwrap());
            Side::BOTH.map(|side| batch::Server::new(side, engine.clone()))
        });
        Arc::new(Self { table, rows, bins })
    }

    pub fn version(&self) -> Version {
        self.table.version()
    }

    fn layout_version(&self) -> Option<Version> {
        self.table.layout().map(|layout| layout.version())
    }

    pub fn row(&self, id: u64) -> Vec<u8> {
        let mut row = vec![0; self.table.row_bytes()];
        self.table.copy_rows(id, &mut row).unwrap();
        row
    }

    fn announced(&self, side: Side) -> AnnouncedTable {
        let layout = self.table.layout();
        AnnouncedTable {
            name: self.table.name().into(),
            version: bytes(self.version()),
            versions: vec![bytes(self.version())],
            rows: self.table.rows(),
            dim: self.table.dim() as u32,
            dtype: self.table.dtype(),
            row_bytes: self.table.row_bytes() as u32,
            side,
            keys_per_request_max: 64,
            request_bytes_max: 1 << 20,
            prgs: vec![1],
            groups: vec![0],
            window_us: 0,
            software: "simulated".into(),
            layout_version: layout.map_or_else(Bytes::new, |layout| bytes(layout.version())),
            layout_bytes: layout.map_or(0, |layout| layout.to_bytes().len() as u64),
            bags_window_us: 0,
            bags_per_request_max: 0,
            state: None,
        }
    }
}

impl State {
    pub fn of_table(table: Arc<Held>) -> Self {
        Self { tables: vec![table], model: None }
    }

    /// A model of these tables, whose features are (name, table, max_ids).
    pub fn of_model(tables: Vec<Arc<Held>>, features: &[(&str, usize, usize)]) -> Self {
        let table_ref = |held: &Arc<Held>| TableRef {
            name: held.table.name().into(),
            version: held.version(),
            shape: held.table.shape(),
            layout: held.layout_version(),
        };
        let feature = |&(name, table, max_ids): &(&str, usize, usize)| Feature {
            name: name.into(),
            table,
            pooling: Pooling::Sum,
            max_ids,
        };
        let spec = ModelSpec {
            name: "clicks".into(),
            tables: tables.iter().map(table_ref).collect(),
            features: features.iter().map(feature).collect(),
            dense: None,
        };
        let manifest = ModelManifest::new(spec).unwrap();
        let servers = [0, 1].map(|side| {
            let features = manifest.features().iter().map(|feature| {
                let held = &tables[feature.table];
                match &held.bins {
                    Some(bins) => model::Feature::Bins(bins[side].clone()),
                    None => {
                        let (server, keys) = (held.rows[side].clone(), feature.max_ids);
                        model::Feature::Rows { server, keys }
                    }
                }
            });
            model::Server::new(manifest.version(), features.collect(), threads())
        });
        Self { tables, model: Some((manifest, servers)) }
    }

    pub fn table(&self, version: Version) -> Option<&Arc<Held>> {
        self.tables.iter().find(|held| held.version() == version)
    }

    fn asked(&self, version: Option<Version>) -> Result<&Arc<Held>, Refused> {
        match (version, &self.tables[..]) {
            (None, [only]) => Ok(only),
            (None, _) => Err(changed(None)),
            (Some(version), [only]) if only.version() != version => {
                Err(changed(Some(only.version())))
            }
            (Some(version), _) => self.table(version).ok_or_else(|| changed(None)),
        }
    }

    fn laid_out(&self, version: Version) -> Result<&Arc<Held>, Refused> {
        let mut tables = self.tables.iter();
        let found = tables.find(|held| held.layout_version() == Some(version));
        found.ok_or_else(|| changed(None))
    }

    /// What the server of `side` replies; a layout comes in several replies.
    pub fn reply(&self, side: Side, call: Call) -> Vec<Outcome> {
        match self.try_reply(side, call) {
            Ok(replies) => replies.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        }
    }

    fn try_reply(&self, side: Side, call: Call) -> Result<Vec<Reply>, Refused> {
        let at = usize::from(side.id());
        let bad = |error: &dyn std::fmt::Display| panic!("an honest client's keys: {error}");
        let answers = |version, answers: Vec<u8>| {
            let (queue, answer) = (Duration::from_micros(3), Duration::from_micros(5));
            Ok(vec![Reply::Answers(Answers {
                version,
                answers: answers.into(),
                queue,
                answer,
                state: None,
            })])
        };
        match call {
            Call::TableInfo { version } => {
                let announced = self.asked(version)?.announced(side);
                Ok(vec![Reply::TableInfo(Box::new(announced))])
            }
            Call::Layout { version, .. } => {
                let held = self.laid_out(version)?;
                let layout = held.table.layout().map(|layout| layout.to_bytes());
                let layout = layout.unwrap_or_default();
                let chunks = layout.chunks(layout.len().div_ceil(3).max(1));
                let chunks = chunks.map(|chunk| Reply::LayoutChunk(Bytes::copy_from_slice(chunk)));
                Ok(chunks.chain([Reply::LayoutEnd]).collect())
            }
            Call::Answer { version, keys, .. } => {
                let server = &self.asked(Some(version))?.rows[at];
                let keys: Result<Vec<_>, _> = keys.iter().map(|key| server.accept(key)).collect();
                // As the wire has it: keys of another side are refused, and the lookup with them.
                let Ok(keys) = keys else { return Err(refused(CallFault::Other)) };
                let row_bytes = server.backend().shape().row_bytes();
                let mut out = vec![0; keys.len() * row_bytes];
                server.answer(&keys, &mut out).unwrap_or_else(|error| bad(&error));
                answers(version, out)
            }
            Call::AnswerBags { version, keys, .. } => {
                let held = self.laid_out(version)?;
                let server = &held.bins.as_ref().expect("it has a layout")[at];
                let Ok(keys) = server.accept(keys.to_vec()) else {
                    return Err(refused(CallFault::Other));
                };
                let mut out = vec![0; server.backend().geometry().answer_bytes()];
                server.answer(&[keys], &mut out).unwrap_or_else(|error| bad(&error));
                answers(version, out)
            }
            Call::Catalog => {
                let tables = self.tables.iter().map(|held| held.announced(side)).collect();
                let models = self.model.iter().map(|(manifest, _)| AnnouncedModel {
                    name: manifest.name().into(),
                    versions: vec![bytes(manifest.version())],
                    manifest: manifest.to_json().into(),
                    window_us: 0,
                    request_bytes_max: 1 << 20,
                });
                let models = models.collect();
                Ok(vec![Reply::Catalog(Box::new(AnnouncedCatalog {
                    tables,
                    models,
                    older: Vec::new(),
                    state: None,
                }))])
            }
            Call::AnswerModel { version, parts, .. } => {
                let Some((manifest, servers)) = &self.model else { return Err(changed(None)) };
                if manifest.version() != version {
                    return Err(changed(None));
                }
                let parts = parts.into_iter().map(|part| part.to_vec()).collect();
                let Ok(inference) = servers[at].accept::<Vec<u8>>(parts) else {
                    return Err(refused(CallFault::Other));
                };
                let mut out = vec![0; servers[at].answer_bytes()];
                servers[at].answer(&[inference], &mut out).unwrap_or_else(|error| bad(&error));
                answers(version, out)
            }
            other => panic!("no call to one of two servers: {other:?}"),
        }
    }
}

/// A server that is asked alone, and the keys that it keeps.
pub struct OnionState {
    pub version: Version,
    pub table: Vec<u8>,
    geometry: Geometry,
    server: onion::Server,
}

impl OnionState {
    pub fn new(rows: u64, seed: u8) -> Self {
        let shape = TableShape::new(rows, 16).unwrap();
        let geometry = Geometry::new(ParameterSet::N256Test, shape).unwrap();
        let mut table = vec![0; shape.table_bytes() as usize];
        ChaCha8Rng::seed_from_u64(seed.into()).fill(&mut table[..]);
        let version = Version::from([seed; 32]);
        let copy = |first: u64, out: &mut [u8]| {
            out.copy_from_slice(&table[first as usize * 16..][..out.len()]);
            Ok(())
        };
        let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
        let engine = onion::Engine::from_rows(geometry.clone(), version, &spec, &copy).unwrap();
        let server = onion::Server::new(Arc::new(engine));
        Self { version, table, geometry, server }
    }

    pub fn reply(&self, keys: &mut BTreeMap<KeyId, Arc<EvaluationKeys>>, call: Call) -> Outcome {
        match call {
            Call::OnionInfo { version } if version.is_some_and(|asked| asked != self.version) => {
                Err(changed(Some(self.version)))
            }
            Call::OnionInfo { .. } => Ok(Reply::OnionInfo(Box::new(AnnouncedOnion {
                name: "simulated".into(),
                version: bytes(self.version),
                versions: Vec::new(),
                rows: self.geometry.shape().rows(),
                dim: 4,
                dtype: DType::F32,
                row_bytes: 16,
                geometry: self.geometry.to_bytes().into(),
                parameters: self.geometry.set().name().into(),
                key_bytes: self.geometry.key_bytes() as u64,
                query_bytes: self.geometry.query_bytes() as u64,
                response_bytes: self.geometry.response_bytes() as u64,
                queries_per_request_max: 16,
                request_bytes_max: 1 << 22,
                window_us: 0,
                software: "simulated".into(),
                state: None,
            }))),
            Call::PutKeys { keys: uploaded } => match self.server.accept_keys(&uploaded) {
                Ok(parsed) => {
                    let id = KeyId::of(&uploaded);
                    keys.insert(id, Arc::new(parsed));
                    Ok(Reply::KeysKept(id))
                }
                Err(_) => Err(changed(None)),
            },
            Call::OnionAnswer { version, key_id, queries, .. } => {
                if version != self.version {
                    return Err(changed(Some(self.version)));
                }
                let Some(keys) = keys.get(&key_id) else {
                    return Err(refused(CallFault::UnknownKeys));
                };
                let accepted: Result<Vec<_>, _> =
                    queries.iter().map(|query| self.server.accept(keys, query)).collect();
                let Ok(accepted) = accepted else { return Err(changed(None)) };
                let mut out = vec![0; accepted.len() * self.geometry.response_bytes()];
                self.server.answer(&accepted, &mut out).expect("an honest client's queries");
                let (queue, answer) = (Duration::ZERO, Duration::ZERO);
                Ok(Reply::Answers(Answers {
                    version,
                    answers: out.into(),
                    queue,
                    answer,
                    state: None,
                }))
            }
            other => panic!("no call to a single server: {other:?}"),
        }
    }
}
