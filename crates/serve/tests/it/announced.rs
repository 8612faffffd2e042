//! Servers that announce what no honest one would: whatever the field, a client refuses, says why,
//! and has sent neither a key nor a query. `docs/security/clients.md` lists what each field is held against;
//! here that list is held complete.

use crate::common;
use crate::fake;
use crate::hybrid_common;
use crate::infer_common;

use std::collections::BTreeSet;

use bytes::Bytes;
use common::{lay_out, layout_spec, table};
use fake::Fake;
use hushtable_pir::TableShape;
use hushtable_pir::onion::{Geometry, ParameterSet};
use hushtable_serve::wire::{
    CatalogReply, DType, HybridInfoReply, InferInfoReply, ModelInfo, OnionInfoReply, Side,
    TableInfoReply,
};
use hushtable_serve::{
    CkksClient, CkksClientSpec, ClientSpec, Error, Garbler, HybridClient, HybridClientSpec,
    HybridError, LookupClient, ModelClient, ModelPin, OnionClient, OnionClientSpec, ReplyDefect,
};
use hushtable_table::layout::{Layout, LayoutMap, LayoutSpec, PartSpec};
use hushtable_table::model::{Feature, ModelManifest, ModelSpec, Pooling, TableRef};
use hushtable_table::{Shape, Version};

const ROWS: u64 = 2000;
const ROW_BYTES: usize = 64;

/// What two servers say, and the layout that both hand out.
#[derive(Clone)]
struct Pair {
    left: TableInfoReply,
    right: TableInfoReply,
    layout: Vec<Bytes>,
}

impl Pair {
    fn honest() -> Self {
        let table = lay_out(table(ROWS, 16, 1), layout_spec(ROWS, 1));
        Self::of(table.layout().unwrap(), ROWS, 16)
    }

    /// Servers of the table that `layout` is for.
    fn of(layout: &Layout, rows: u64, dim: u32) -> Self {
        let bytes = layout.to_bytes();
        let info = |side: Side| TableInfoReply {
            name: "films".into(),
            version: Bytes::copy_from_slice(layout.table_version().as_bytes()),
            versions: vec![Bytes::copy_from_slice(layout.table_version().as_bytes())],
            rows,
            dim,
            dtype: DType::DtypeF32.into(),
            row_bytes: 4 * dim,
            side: side.into(),
            keys_per_request_max: 1024,
            request_bytes_max: 1 << 20,
            prgs: vec![1, 2, 3],
            window_us: 0,
            software: "hushtable/0.1.0".into(),
            layout_version: Bytes::copy_from_slice(layout.version().as_bytes()),
            layout_bytes: bytes.len() as u64,
            bags_window_us: 0,
            bags_per_request_max: 0,
            groups: vec![0, 1, 2],
            state: Some(1),
        };
        let layout = bytes.chunks(1000).map(Bytes::copy_from_slice).collect();
        Self { left: info(Side::Left), right: info(Side::Right), layout }
    }

    fn both(&mut self, change: impl Fn(&mut TableInfoReply)) {
        change(&mut self.left);
        change(&mut self.right);
    }

    /// Connects, and asks for a bag and then a row until something is refused. What that was, and
    /// what the servers got.
    async fn ask(self) -> (Option<Error>, Vec<&'static str>) {
        let left = Fake::pair(self.left, self.layout.clone()).await;
        let right = Fake::pair(self.right, self.layout).await;
        let spec = ClientSpec::new(left.endpoint(), right.endpoint());
        let error = match LookupClient::connect(&spec).await {
            Ok(client) => client.fetch_bag(&[5]).await.err(),
            Err(error) => Some(error),
        };
        (error, [left.received(), right.received()].concat())
    }
}

/// What two servers of one model say.
#[derive(Clone)]
struct Catalogs {
    left: CatalogReply,
    right: CatalogReply,
}

/// A manifest of the model `name`, of one table without a layout.
fn manifest(name: &str, max_ids: usize) -> ModelManifest {
    let shape = Shape::new(ROWS, 16, hushtable_table::DType::F32).unwrap();
    let version = Version::from([7; 32]);
    let table = TableRef { name: "films".into(), version, shape, layout: None };
    let (name, pooling) = (name.to_owned(), Pooling::Sum);
    let feature = Feature { name: "film".into(), table: 0, pooling, max_ids };
    let spec = ModelSpec { name, tables: vec![table], features: vec![feature], dense: None };
    ModelManifest::new(spec).unwrap()
}

fn model_info(manifest: &ModelManifest) -> ModelInfo {
    ModelInfo {
        name: manifest.name().into(),
        versions: vec![Bytes::copy_from_slice(manifest.version().as_bytes())],
        manifest: manifest.to_json().into(),
        window_us: 0,
        request_bytes_max: 1 << 20,
    }
}

impl Catalogs {
    fn honest() -> Self {
        let Pair { mut left, mut right, .. } = Pair::honest();
        for info in [&mut left, &mut right] {
            of_version(info, 7);
            (info.layout_version, info.layout_bytes) = (Bytes::new(), 0);
        }
        let models = vec![model_info(&manifest("clicks", 3))];
        let catalog = |info| CatalogReply {
            tables: vec![info],
            models: models.clone(),
            older: Vec::new(),
            state: Some(1),
        };
        Self { left: catalog(left), right: catalog(right) }
    }

    fn both(&mut self, change: impl Fn(&mut CatalogReply)) {
        change(&mut self.left);
        change(&mut self.right);
    }

    /// Connects and makes an inference. What was refused, and what the servers got.
    async fn ask(self) -> (Error, Vec<&'static str>) {
        let (left, right) = (Fake::model(self.left).await, Fake::model(self.right).await);
        let spec = ClientSpec::new(left.endpoint(), right.endpoint());
        let error = match ModelClient::connect(&spec, &ModelPin::default()).await {
            Ok(client) => client.lookup(&[("film", &[5])]).await.unwrap_err(),
            Err(error) => error,
        };
        (error, [left.received(), right.received()].concat())
    }
}

fn onion_of(set: ParameterSet) -> OnionInfoReply {
    let geometry = Geometry::new(set, TableShape::new(ROWS, ROW_BYTES).unwrap()).unwrap();
    OnionInfoReply {
        name: "films".into(),
        version: vec![7; 32].into(),
        versions: Vec::new(),
        state: Some(1),
        rows: ROWS,
        dim: 16,
        dtype: DType::DtypeF32.into(),
        row_bytes: ROW_BYTES as u32,
        geometry: geometry.to_bytes().into(),
        parameters: set.name().into(),
        key_bytes: geometry.key_bytes() as u64,
        query_bytes: geometry.query_bytes() as u64,
        response_bytes: geometry.response_bytes() as u64,
        queries_per_request_max: 64,
        request_bytes_max: 1 << 22,
        window_us: 0,
        software: "hushtable/0.1.0".into(),
    }
}

fn onion() -> OnionInfoReply {
    onion_of(ParameterSet::N4096128)
}

/// What the test set of N = 256 made of this table while servers could announce it.
fn test_set() -> OnionInfoReply {
    let geometry = [1, 255, 5, 4, 64, 0, 0, 0, 0xd0, 7, 0, 0, 0, 0, 0, 0];
    OnionInfoReply {
        geometry: geometry.to_vec().into(),
        parameters: "n256_test".into(),
        key_bytes: 38_436,
        query_bytes: 1_636,
        response_bytes: 1_440,
        ..onion()
    }
}

/// Connects and asks for a row. What was refused, and what the server got.
async fn ask_onion(
    infos: Vec<OnionInfoReply>,
    accepted: &[ParameterSet],
) -> (Error, Vec<&'static str>) {
    let server = Fake::onion(infos).await;
    let parameter_sets = accepted.to_vec();
    let spec = OnionClientSpec { parameter_sets, ..OnionClientSpec::new(server.endpoint()) };
    let error = match OnionClient::connect(&spec).await {
        Ok(client) => client.lookup(&[5], 1).await.unwrap_err(),
        Err(error) => error,
    };
    (error, server.received())
}

/// A hostile value: of which field, what it does to an honest announcement, how it is refused.
struct Case<A> {
    field: &'static str,
    change: Box<dyn Fn(&mut A)>,
    is_refusal: fn(&Error) -> bool,
}

fn case<A>(
    field: &'static str,
    is_refusal: fn(&Error) -> bool,
    change: impl Fn(&mut A) + 'static,
) -> Case<A> {
    Case { field, change: Box::new(change), is_refusal }
}

macro_rules! reply {
    ($defect:pat) => {
        |error: &Error| matches!(error, Error::Reply { defect: $defect, .. })
    };
}

macro_rules! differ {
    ($name:literal) => {
        |error: &Error| matches!(error, Error::AnnouncementsDiffer { field: $name, .. })
    };
}

/// A layout of one part, for a table of `rows` rows of `dim` numbers.
fn lone_layout(rows: u64, dim: u32, bins: u32, queries: u32, version: Version) -> Layout {
    let part = PartSpec { rows: 2000, bins, queries, hashes: 1, companions: 0 };
    let spec = LayoutSpec { hot: Some(part), full: None, ..layout_spec(rows, 1) };
    let map = LayoutMap { hot_ids: (0..2000).collect(), ..LayoutMap::default() };
    let shape = Shape::new(rows, dim as usize, hushtable_table::DType::F32).unwrap();
    Layout::new(spec, map, shape, version).unwrap()
}

/// Announces another version, in the list as well.
fn of_version(info: &mut TableInfoReply, byte: u8) {
    info.version = vec![byte; 32].into();
    info.versions = vec![info.version.clone()];
}

fn long() -> String {
    "x".repeat(129)
}

/// A text that clears the terminal of whoever prints it.
fn clearing() -> String {
    "films\u{1b}[2J".into()
}

fn pair_cases() -> Vec<Case<Pair>> {
    let mut cases = vec![];
    let mut add = |field, is_refusal: fn(&Error) -> bool, change: fn(&mut Pair)| {
        cases.push(case(field, is_refusal, change));
    };
    let text = reply!(ReplyDefect::Text { .. });
    let range = reply!(ReplyDefect::Range { .. });
    let version = reply!(ReplyDefect::VersionBytes { .. });

    add("TableInfoReply.name", text, |pair| pair.left.name = long());
    add("TableInfoReply.name", text, |pair| pair.right.name = clearing());
    add("TableInfoReply.version", version, |pair| pair.left.version = vec![7; 31].into());
    add("TableInfoReply.version", version, |pair| pair.right.version = Bytes::new());
    let differs = |error: &Error| matches!(error, Error::TablesDiffer { .. });
    add("TableInfoReply.version", differs, |pair| of_version(&mut pair.left, 7));
    let other = reply!(ReplyDefect::Layout(_));
    add("TableInfoReply.version", other, |pair| {
        pair.both(|info| of_version(info, 7));
    });
    add("TableInfoReply.versions", version, |pair| pair.left.versions.push(Bytes::new()));
    add("TableInfoReply.versions", reply!(ReplyDefect::Versions { .. }), |pair| {
        pair.right.versions.insert(0, vec![7; 32].into());
    });
    // It announces what the other server holds, and then tells of another.
    add("TableInfoReply.versions", reply!(ReplyDefect::TableVersion { .. }), |pair| {
        let common = pair.left.version.clone();
        pair.right.version = vec![9; 32].into();
        pair.right.versions = vec![pair.right.version.clone(), common];
    });
    add("TableInfoReply.versions", range, |pair| {
        pair.left.versions = vec![pair.left.version.clone(); 65];
    });
    let shape = reply!(ReplyDefect::Shape(_));
    add("TableInfoReply.rows", shape, |pair| pair.left.rows = 0);
    add("TableInfoReply.rows", shape, |pair| pair.both(|info| info.rows = (1 << 32) + 1));
    add("TableInfoReply.rows", shape, |pair| pair.right.rows = u64::MAX);
    add("TableInfoReply.rows", differ!("rows"), |pair| pair.right.rows -= 1);
    add("TableInfoReply.rows", other, |pair| pair.both(|info| info.rows = 1 << 31));
    let row_bytes = reply!(ReplyDefect::RowBytes { .. });
    for dim in [0, 15, 17, u32::MAX] {
        cases.push(case("TableInfoReply.dim", row_bytes, move |pair: &mut Pair| {
            pair.both(|info| info.dim = dim);
        }));
    }
    let mut add = |field, is_refusal: fn(&Error) -> bool, change: fn(&mut Pair)| {
        cases.push(case(field, is_refusal, change));
    };
    add("TableInfoReply.dim", differ!("dim"), |pair| {
        (pair.left.dim, pair.left.dtype) = (32, DType::DtypeF16.into());
    });
    let dtype = reply!(ReplyDefect::DType { .. });
    add("TableInfoReply.dtype", dtype, |pair| pair.left.dtype = 0);
    add("TableInfoReply.dtype", dtype, |pair| pair.right.dtype = i32::MAX);
    add("TableInfoReply.dtype", row_bytes, |pair| pair.left.dtype = DType::DtypeInt8.into());
    add("TableInfoReply.dtype", differ!("dtype"), |pair| {
        (pair.left.dim, pair.left.dtype) = (16, DType::DtypeF16.into());
        (pair.right.dim, pair.right.dtype) = (16, DType::DtypeBf16.into());
        pair.both(|info| info.row_bytes = 32);
    });
    add("TableInfoReply.row_bytes", shape, |pair| pair.left.row_bytes = 0);
    add("TableInfoReply.row_bytes", shape, |pair| pair.both(|info| info.row_bytes = u32::MAX));
    add("TableInfoReply.row_bytes", row_bytes, |pair| pair.right.row_bytes = 63);
    add("TableInfoReply.row_bytes", differ!("row_bytes"), |pair| {
        (pair.left.row_bytes, pair.left.dim) = (32, 8);
    });
    add("TableInfoReply.side", reply!(ReplyDefect::Side { .. }), |pair| pair.left.side = 0);
    add("TableInfoReply.side", reply!(ReplyDefect::Side { .. }), |pair| pair.right.side = 3);
    let same = |error: &Error| matches!(error, Error::SameSide { .. });
    add("TableInfoReply.side", same, |pair| pair.left.side = Side::Right.into());
    let swapped = |error: &Error| matches!(error, Error::SidesSwapped { .. });
    add("TableInfoReply.side", swapped, |pair| {
        std::mem::swap(&mut pair.left.side, &mut pair.right.side);
    });
    add("TableInfoReply.keys_per_request_max", range, |pair| pair.left.keys_per_request_max = 0);
    add("TableInfoReply.keys_per_request_max", range, |pair| {
        pair.right.keys_per_request_max = u32::MAX;
    });
    for bytes in [0, 100, u64::MAX] {
        cases.push(case("TableInfoReply.request_bytes_max", range, move |pair: &mut Pair| {
            pair.left.request_bytes_max = bytes;
        }));
    }
    let mut add = |field, is_refusal: fn(&Error) -> bool, change: fn(&mut Pair)| {
        cases.push(case(field, is_refusal, change));
    };
    // Room for a key, not for an inference.
    add("TableInfoReply.request_bytes_max", range, |pair| {
        pair.both(|info| info.request_bytes_max = 300);
    });
    let prg = |error: &Error| matches!(error, Error::Prg { .. });
    add("TableInfoReply.prgs", prg, |pair| pair.left.prgs = vec![]);
    add("TableInfoReply.prgs", prg, |pair| pair.right.prgs = vec![77, 2, u32::MAX]);
    let groups = reply!(ReplyDefect::Groups);
    add("TableInfoReply.groups", groups, |pair| pair.left.groups = vec![]);
    add("TableInfoReply.groups", groups, |pair| pair.right.groups = vec![1, 2, 77]);
    add("TableInfoReply.window_us", range, |pair| pair.left.window_us = 60_000_001);
    add("TableInfoReply.window_us", range, |pair| pair.right.window_us = u64::MAX);
    add("TableInfoReply.software", text, |pair| pair.left.software = long());
    add("TableInfoReply.software", text, |pair| pair.right.software = clearing());
    add("TableInfoReply.layout_version", version, |pair| {
        pair.left.layout_version = vec![9; 33].into();
    });
    let layouts = |error: &Error| matches!(error, Error::LayoutsDiffer { .. });
    add("TableInfoReply.layout_version", layouts, |pair| {
        pair.left.layout_version = vec![9; 32].into();
    });
    add("TableInfoReply.layout_version", range, |pair| pair.left.layout_version = Bytes::new());
    add("TableInfoReply.layout_version", reply!(ReplyDefect::LayoutVersion { .. }), |pair| {
        pair.both(|info| info.layout_version = vec![9; 32].into());
    });
    add("TableInfoReply.layout_bytes", range, |pair| pair.left.layout_bytes = 0);
    add("TableInfoReply.layout_bytes", range, |pair| pair.right.layout_bytes = u64::MAX);
    add("TableInfoReply.layout_bytes", differ!("layout_bytes"), |pair| pair.left.layout_bytes += 1);
    let too_large = |error: &Error| matches!(error, Error::LayoutBytes { .. });
    add("TableInfoReply.layout_bytes", too_large, |pair| {
        pair.both(|info| info.layout_bytes = 1 << 40);
    });
    let length = reply!(ReplyDefect::LayoutBytes { .. });
    add("TableInfoReply.layout_bytes", length, |pair| pair.both(|info| info.layout_bytes += 1));
    add("TableInfoReply.bags_window_us", range, |pair| pair.left.bags_window_us = u64::MAX);
    add("TableInfoReply.bags_window_us", range, |pair| {
        pair.both(|info| {
            (info.layout_version, info.layout_bytes, info.bags_window_us) = (Bytes::new(), 0, 1);
        });
    });
    add("TableInfoReply.bags_per_request_max", range, |pair| {
        pair.right.bags_per_request_max = u32::MAX;
    });
    add("TableInfoReply.bags_per_request_max", range, |pair| {
        pair.both(|info| {
            (info.layout_version, info.layout_bytes) = (Bytes::new(), 0);
            info.bags_per_request_max = 1;
        });
    });
    add("LayoutChunk.bytes", length, |pair| {
        pair.layout.pop();
    });
    add("LayoutChunk.bytes", length, |pair| pair.layout.push(Bytes::from_static(b"more")));
    add("LayoutChunk.bytes", other, |pair| {
        let mut chunk = pair.layout.pop().unwrap().to_vec();
        *chunk.last_mut().unwrap() ^= 1;
        pair.layout.push(chunk.into());
    });
    // A whole layout, but not the announced one.
    add("LayoutChunk.bytes", reply!(ReplyDefect::LayoutVersion { .. }), |pair| {
        let table = lay_out(table(ROWS, 16, 1), layout_spec(ROWS, 2));
        pair.layout = vec![table.layout().unwrap().to_bytes().into()];
        pair.both(|info| info.layout_bytes = table.layout().unwrap().to_bytes().len() as u64);
    });
    // The announced one, of another table than the announced.
    add("LayoutChunk.bytes", other, |pair| {
        *pair = Pair::of(&lone_layout(ROWS, 16, 4, 1, Version::from([3; 32])), ROWS, 16);
        pair.both(|info| of_version(info, 4));
    });
    // Whose answers would take 4,000 MiB of this client's memory.
    add("LayoutChunk.bytes", range, |pair| {
        let dim = 1 << 14;
        *pair = Pair::of(&lone_layout(ROWS, dim, 2000, 32, Version::from([3; 32])), ROWS, dim);
        pair.both(|info| info.request_bytes_max = 1 << 30);
    });
    cases
}

fn catalog_cases() -> Vec<Case<Catalogs>> {
    let mut cases = vec![];
    let mut add = |field, is_refusal: fn(&Error) -> bool, change: fn(&mut Catalogs)| {
        cases.push(case(field, is_refusal, change));
    };
    let text = reply!(ReplyDefect::Text { .. });
    let range = reply!(ReplyDefect::Range { .. });
    let bytes = reply!(ReplyDefect::VersionBytes { .. });
    let table = reply!(ReplyDefect::ManifestTable { .. });

    add("CatalogReply.tables", table, |both| both.left.tables.clear());
    add("CatalogReply.tables", table, |both| of_version(&mut both.right.tables[0], 8));
    add("CatalogReply.tables", table, |both| both.left.tables[0].rows -= 1);
    add("CatalogReply.tables", table, |both| {
        both.both(|catalog| {
            let info = &mut catalog.tables[0];
            (info.layout_version, info.layout_bytes) = (vec![9; 32].into(), 10);
        });
    });
    add("CatalogReply.tables", table, |both| both.right.tables[0].dtype = 99);
    add("CatalogReply.tables", range, |both| {
        both.left.tables = vec![both.left.tables[0].clone(); 1025];
    });
    let unserved = |error: &Error| matches!(error, Error::ModelUnserved { .. });
    add("CatalogReply.models", unserved, |both| both.left.models.clear());
    // Which of them? The client must name one.
    add("CatalogReply.models", unserved, |both| {
        both.right.models.push(model_info(&manifest("views", 3)));
    });
    add("CatalogReply.models", range, |both| {
        both.left.models = vec![both.left.models[0].clone(); 65];
    });
    add("CatalogReply.older", range, |both| {
        both.left.older = vec![both.left.models[0].clone(); 64 * 64 + 1];
    });
    add("CatalogReply.older", text, |both| {
        let mut older = both.right.models[0].clone();
        older.name = clearing();
        both.right.older = vec![older];
    });
    add("CatalogReply.older", bytes, |both| {
        let mut older = both.right.models[0].clone();
        older.versions.clear();
        both.right.older = vec![older];
    });
    // It says that it holds what the other one does, of a manifest that is another.
    add("CatalogReply.older", reply!(ReplyDefect::ManifestVersion { .. }), |both| {
        let other = manifest("clicks", 4);
        let mut older = both.right.models[0].clone();
        older.manifest = other.to_json().into();
        (both.right.older, both.right.models) = (vec![older], vec![model_info(&other)]);
    });
    add("ModelInfo.name", text, |both| both.left.models[0].name = long());
    add("ModelInfo.name", text, |both| both.right.models[0].name = clearing());
    add("ModelInfo.name", reply!(ReplyDefect::ManifestName { .. }), |both| {
        both.both(|catalog| catalog.models[0].name = "views".into());
    });
    add("ModelInfo.versions", bytes, |both| both.left.models[0].versions.clear());
    add("ModelInfo.versions", bytes, |both| both.left.models[0].versions.push(Bytes::new()));
    add("ModelInfo.versions", reply!(ReplyDefect::ManifestVersion { .. }), |both| {
        both.both(|catalog| catalog.models[0].versions[0] = vec![9; 32].into());
    });
    add("ModelInfo.versions", range, |both| {
        let versions = &mut both.right.models[0].versions;
        *versions = vec![versions[0].clone(); 65];
    });
    let differ = |error: &Error| matches!(error, Error::ModelsDiffer { .. });
    add("ModelInfo.versions", differ, |both| {
        both.left.models[0] = model_info(&manifest("clicks", 4));
    });
    let none = reply!(ReplyDefect::Manifest { .. });
    add("ModelInfo.manifest", range, |both| both.left.models[0].manifest = Bytes::new());
    add("ModelInfo.manifest", none, |both| {
        both.both(|catalog| {
            let mut manifest = catalog.models[0].manifest.to_vec();
            manifest.push(b' ');
            catalog.models[0].manifest = manifest.into();
        });
    });
    add("ModelInfo.manifest", range, |both| {
        both.right.models[0].manifest = vec![b' '; (1 << 20) + 1].into();
    });
    add("ModelInfo.manifest", reply!(ReplyDefect::ManifestVersion { .. }), |both| {
        let other = manifest("clicks", 4).to_json();
        both.both(|catalog| catalog.models[0].manifest = other.clone().into());
    });
    add("ModelInfo.window_us", range, |both| both.left.models[0].window_us = 60_000_001);
    for room in [0, 300, u64::MAX] {
        cases.push(case("ModelInfo.request_bytes_max", range, move |both: &mut Catalogs| {
            both.right.models[0].request_bytes_max = room;
        }));
    }
    cases
}

fn onion_cases() -> Vec<Case<OnionInfoReply>> {
    let mut cases = vec![];
    let mut add = |field, is_refusal: fn(&Error) -> bool, change: fn(&mut OnionInfoReply)| {
        cases.push(case(field, is_refusal, change));
    };
    let text = reply!(ReplyDefect::Text { .. });
    let range = reply!(ReplyDefect::Range { .. });
    let version = reply!(ReplyDefect::VersionBytes { .. });
    let shape = reply!(ReplyDefect::Shape(_));
    let row_bytes = reply!(ReplyDefect::RowBytes { .. });
    let geometry = reply!(ReplyDefect::GeometryBytes { .. });
    let size = reply!(ReplyDefect::Size { .. });
    let set = |error: &Error| matches!(error, Error::ParametersRefused { .. });

    add("OnionInfoReply.name", text, |info| info.name = long());
    add("OnionInfoReply.name", text, |info| info.name = clearing());
    add("OnionInfoReply.version", version, |info| info.version = vec![7; 31].into());
    add("OnionInfoReply.version", version, |info| info.version = Bytes::new());
    add("OnionInfoReply.versions", version, |info| {
        info.versions = vec![info.version.clone(), Bytes::new()];
    });
    add("OnionInfoReply.versions", reply!(ReplyDefect::Versions { .. }), |info| {
        info.versions = vec![vec![8; 32].into(), info.version.clone()];
    });
    add("OnionInfoReply.versions", range, |info| info.versions = vec![info.version.clone(); 65]);
    add("OnionInfoReply.rows", shape, |info| info.rows = 0);
    add("OnionInfoReply.rows", shape, |info| info.rows = u64::MAX);
    add("OnionInfoReply.rows", geometry, |info| info.rows += 1);
    add("OnionInfoReply.rows", geometry, |info| info.rows = 1 << 32);
    add("OnionInfoReply.dim", row_bytes, |info| info.dim = 0);
    add("OnionInfoReply.dim", row_bytes, |info| info.dim = u32::MAX);
    add("OnionInfoReply.dtype", reply!(ReplyDefect::DType { .. }), |info| info.dtype = 0);
    add("OnionInfoReply.dtype", row_bytes, |info| info.dtype = DType::DtypeF16.into());
    add("OnionInfoReply.row_bytes", shape, |info| info.row_bytes = 0);
    add("OnionInfoReply.row_bytes", shape, |info| info.row_bytes = u32::MAX);
    add("OnionInfoReply.row_bytes", row_bytes, |info| info.row_bytes = 65);
    add("OnionInfoReply.row_bytes", reply!(ReplyDefect::Geometry { .. }), |info| {
        (info.row_bytes, info.dim) = (64 << 10, 16 << 10);
    });
    add("OnionInfoReply.geometry", geometry, |info| info.geometry = Bytes::new());
    add("OnionInfoReply.geometry", geometry, |info| info.geometry = test_set().geometry);
    add("OnionInfoReply.geometry", geometry, |info| {
        info.geometry = onion_of(ParameterSet::IvePaper).geometry;
    });
    add("OnionInfoReply.geometry", geometry, |info| {
        info.geometry = [&info.geometry[..], &[0]].concat().into();
    });
    // A geometry that holds the table, but not the one that serves it best: its depth would tell
    // this client's keys from others'.
    add("OnionInfoReply.geometry", geometry, |info| {
        let shape = TableShape::new(ROWS, ROW_BYTES).unwrap();
        let levels = u32::from(info.geometry[2]) + 1;
        let deeper = Geometry::with_levels(ParameterSet::N4096128, shape, levels).unwrap();
        info.geometry = deeper.to_bytes().into();
        info.key_bytes = deeper.key_bytes() as u64;
    });
    add("OnionInfoReply.parameters", set, |info| *info = test_set());
    add("OnionInfoReply.parameters", set, |info| *info = onion_of(ParameterSet::IvePaper));
    add("OnionInfoReply.parameters", set, |info| info.parameters = String::new());
    add("OnionInfoReply.parameters", set, |info| info.parameters = clearing().repeat(1000));
    add("OnionInfoReply.key_bytes", size, |info| info.key_bytes = u64::MAX);
    add("OnionInfoReply.key_bytes", size, |info| info.key_bytes -= 1);
    add("OnionInfoReply.query_bytes", size, |info| info.query_bytes = 0);
    add("OnionInfoReply.query_bytes", size, |info| info.query_bytes += 1);
    add("OnionInfoReply.response_bytes", size, |info| info.response_bytes = 0);
    add("OnionInfoReply.response_bytes", size, |info| info.response_bytes = u64::MAX);
    add("OnionInfoReply.queries_per_request_max", range, |info| info.queries_per_request_max = 0);
    add("OnionInfoReply.queries_per_request_max", range, |info| {
        info.queries_per_request_max = u32::MAX;
    });
    add("OnionInfoReply.request_bytes_max", range, |info| info.request_bytes_max = 0);
    add("OnionInfoReply.request_bytes_max", range, |info| {
        info.request_bytes_max = info.query_bytes;
    });
    add("OnionInfoReply.request_bytes_max", range, |info| info.request_bytes_max = u64::MAX);
    add("OnionInfoReply.window_us", range, |info| info.window_us = 60_000_001);
    add("OnionInfoReply.software", text, |info| info.software = long());
    add("OnionInfoReply.software", text, |info| info.software = clearing());
    cases
}

/// Connects and asks for a prediction. What was refused, and what the server got.
async fn ask_infer(info: InferInfoReply) -> (Error, Vec<&'static str>) {
    let server = Fake::infer(info).await;
    let error = match CkksClient::connect(&CkksClientSpec::new(server.endpoint()), None).await {
        Ok(client) => {
            let (dense, indices) = infer_common::features(1, 1);
            client.predict(1, &dense, &indices).await.unwrap_err()
        }
        Err(error) => error,
    };
    (error, server.received())
}

/// Changes the terms' JSON, without which nothing else fits.
fn terms(info: &mut InferInfoReply, change: impl Fn(&mut serde_json::Value)) {
    let mut terms = serde_json::from_slice(&info.terms).unwrap();
    change(&mut terms);
    info.terms = serde_json::to_vec(&terms).unwrap().into();
}

fn infer_cases() -> Vec<Case<InferInfoReply>> {
    let mut cases = vec![];
    let mut add = |field, is_refusal: fn(&Error) -> bool, change: fn(&mut InferInfoReply)| {
        cases.push(case(field, is_refusal, change));
    };
    let text = reply!(ReplyDefect::Text { .. });
    let bytes = reply!(ReplyDefect::VersionBytes { .. });
    let size = reply!(ReplyDefect::Size { .. });
    let other = reply!(ReplyDefect::Other { .. });
    add("InferInfoReply.name", text, |info| info.name = long());
    add("InferInfoReply.name", text, |info| info.name = clearing());
    add("InferInfoReply.software", text, |info| info.software = long());
    add("InferInfoReply.software", text, |info| info.software = clearing());
    add("InferInfoReply.model_version", bytes, |info| info.model_version = vec![7; 31].into());
    add("InferInfoReply.model_version", bytes, |info| info.model_version = Bytes::new());
    add("InferInfoReply.plan", bytes, |info| info.plan = vec![7; 33].into());
    add("InferInfoReply.plan", other, |info| info.plan = vec![7; 32].into());
    add("InferInfoReply.terms", other, |info| info.terms = Bytes::new());
    add("InferInfoReply.terms", other, |info| info.terms = clearing().into());
    let range = reply!(ReplyDefect::Range { .. });
    add("InferInfoReply.terms", range, |info| info.terms = vec![b' '; (1 << 20) + 1].into());
    add("InferInfoReply.terms", other, |info| terms(info, |terms| terms["more"] = 1.into()));
    // A smaller ring for the same moduli: below 128 bits.
    add("InferInfoReply.terms", other, |info| {
        terms(info, |terms| terms["parameters"]["degree"] = 4096.into());
    });
    // One modulus more: beyond the limit.
    add("InferInfoReply.terms", other, |info| {
        terms(info, |terms| {
            let special = terms["parameters"]["special_moduli"].clone();
            let moduli = terms["parameters"]["moduli"].as_array_mut().unwrap();
            moduli.extend(special.as_array().unwrap().clone());
        });
    });
    add("InferInfoReply.terms", other, |info| {
        terms(info, |terms| terms["parameters"]["name"] = "small_test".into());
    });
    add("InferInfoReply.terms", other, |info| {
        terms(info, |terms| terms["parameters"]["moduli"] = serde_json::json!([]));
    });
    add("InferInfoReply.terms", other, |info| {
        terms(info, |terms| terms["parameters"]["moduli"][0] = u64::MAX.into());
    });
    add("InferInfoReply.terms", other, |info| terms(info, |terms| terms["users"] = 3.into()));
    add("InferInfoReply.terms", other, |info| terms(info, |terms| terms["dense"] = 0.into()));
    add("InferInfoReply.terms", other, |info| terms(info, |terms| terms["base"] = 1.into()));
    // Ends of features that would have the client send where all are small, and stay away else.
    fn ends(info: &mut InferInfoReply, end: f64, more: usize) {
        terms(info, |terms| {
            let dense = terms["dense"].as_u64().unwrap() as usize;
            terms["dense_max"] = vec![end; dense + more].into();
        });
    }
    add("InferInfoReply.terms", other, |info| ends(info, 0.5, 0));
    add("InferInfoReply.terms", other, |info| ends(info, 5.0, 0));
    add("InferInfoReply.terms", other, |info| ends(info, f64::MAX, 0));
    add("InferInfoReply.terms", other, |info| ends(info, 8.0, 1));
    add("InferInfoReply.terms", other, |info| {
        terms(info, |terms| terms["features"][0]["rows"] = 0.into());
    });
    add("InferInfoReply.terms", other, |info| {
        terms(info, |terms| terms["inputs"][0]["level"] = 99.into());
    });
    add("InferInfoReply.terms", other, |info| {
        terms(info, |terms| terms["rotations"] = serde_json::json!([[0, 1]]));
    });
    add("InferInfoReply.key_bytes", size, |info| info.key_bytes -= 1);
    add("InferInfoReply.key_bytes", size, |info| info.key_bytes = u64::MAX);
    add("InferInfoReply.query_bytes", size, |info| info.query_bytes = 0);
    add("InferInfoReply.answer_bytes", size, |info| info.answer_bytes += 1);
    cases
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_inference_gets_nothing_for_a_hostile_value_of_any_field() {
    let honest = infer_common::announced();
    for (number, Case { field, change, is_refusal }) in infer_cases().into_iter().enumerate() {
        let mut info = honest.clone();
        change(&mut info);
        let (error, received) = ask_infer(info).await;
        assert!(is_refusal(&error), "case {number}, {field}: {error:?}");
        assert!(received.is_empty(), "case {number}, {field}: the server got {received:?}");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 2000, "{field}: {text:?}");
    }
    let (error, received) = ask_infer(honest.clone()).await;
    assert!(matches!(error, Error::Remote { .. }), "{error:?}");
    assert_eq!(received, ["HaveKeys", "UploadKeys", "Predict"]);

    // Keys are only made where they are not larger than the caller allows.
    let server = Fake::infer(honest).await;
    let spec = CkksClientSpec { key_bytes_max: 1000, ..CkksClientSpec::new(server.endpoint()) };
    let error = CkksClient::connect(&spec, None).await.err().unwrap();
    assert!(matches!(error, Error::KeyBytes { bytes_max: 1000, .. }), "{error:?}");
    assert!(server.received().is_empty());
}

fn hybrid_cases() -> Vec<Case<HybridInfoReply>> {
    let mut cases = vec![];
    let mut add = |field, is_refusal: fn(&Error) -> bool, change: fn(&mut HybridInfoReply)| {
        cases.push(case(field, is_refusal, change));
    };
    let text = reply!(ReplyDefect::Text { .. });
    let bytes = reply!(ReplyDefect::VersionBytes { .. });
    let other = reply!(ReplyDefect::Other { .. });
    let range = reply!(ReplyDefect::Range { .. });
    add("HybridInfoReply.name", text, |info| info.name = long());
    add("HybridInfoReply.name", text, |info| info.name = clearing());
    add("HybridInfoReply.name", other, |info| info.name = "others".into());
    add("HybridInfoReply.software", text, |info| info.software = long());
    add("HybridInfoReply.software", text, |info| info.software = clearing());
    add("HybridInfoReply.model_version", bytes, |info| info.model_version = vec![7; 31].into());
    add("HybridInfoReply.plan", bytes, |info| info.plan = Bytes::new());
    add("HybridInfoReply.plan", other, |info| info.plan = vec![7; 32].into());
    add("HybridInfoReply.client_garbles", other, |info| info.client_garbles = None);
    let refused = |error: &Error| matches!(error.of(), Some(HybridError::GarblerRefused { .. }));
    add("HybridInfoReply.server_garbles", other, |info| info.server_garbles = None);
    add("HybridInfoReply.server_garbles", refused, |info| info.server_garbles = Some(false));
    add("HybridInfoReply.server_garbles", other, |info| {
        (info.client_garbles, info.server_garbles) = (Some(false), Some(false));
    });
    add("HybridInfoReply.terms", other, |info| info.terms = Bytes::new());
    add("HybridInfoReply.terms", other, |info| info.terms = clearing().into());
    add("HybridInfoReply.terms", range, |info| info.terms = vec![b' '; (4 << 20) + 1].into());
    let mut edit = |change: fn(&mut serde_json::Value)| {
        let change = move |info: &mut HybridInfoReply| {
            let mut terms = serde_json::from_slice(&info.terms).unwrap();
            change(&mut terms);
            info.terms = serde_json::to_vec(&terms).unwrap().into();
        };
        cases.push(case("HybridInfoReply.terms", other, change));
    };
    edit(|terms| terms["more"] = 1.into());
    edit(|terms| terms["input_max"] = 0.into());
    edit(|terms| terms["program"]["bits"] = 65.into());
    edit(|terms| terms["program"]["lattice"] = "none".into());
    edit(|terms| terms["program"]["stages"] = serde_json::json!([]));
    edit(|terms| terms["program"]["input"]["channels"] = u32::MAX.into());
    edit(|terms| terms["program"]["stages"][1]["terms"][0]["convolution"]["source"] = 9.into());
    edit(|terms| {
        let convolution = &mut terms["program"]["stages"][0]["terms"][0]["convolution"];
        convolution["convolution"]["stride"] = serde_json::json!([0, 0]);
    });
    edit(|terms| {
        let stage = terms["program"]["stages"][0].clone();
        terms["program"]["stages"] = vec![stage; 2000].into();
    });
    cases
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_hybrid_inference_gets_nothing_for_a_hostile_value_of_any_field() {
    let ask = async |info: HybridInfoReply| {
        let server = Fake::hybrid(info).await;
        let spec = HybridClientSpec {
            garbler: Garbler::Server,
            ..HybridClientSpec::new(server.endpoint())
        };
        let error = match HybridClient::connect(&spec).await {
            Ok(client) => client.predict(&hybrid_common::input(1), None).await.unwrap_err(),
            Err(error) => error,
        };
        (error, server.received())
    };
    let honest = hybrid_common::announced();
    for (number, Case { field, change, is_refusal }) in hybrid_cases().into_iter().enumerate() {
        let mut info = honest.clone();
        change(&mut info);
        let (error, received) = ask(info).await;
        assert!(is_refusal(&error), "case {number}, {field}: {error:?}");
        assert!(received.is_empty(), "case {number}, {field}: the server got {received:?}");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 2000, "{field}: {text:?}");
    }
    let (error, received) = ask(honest).await;
    assert!(matches!(error, Error::Remote { .. }), "{error:?}");
    assert_eq!(received, ["Begin", "Step"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_servers_get_nothing_for_a_hostile_value_of_any_field() {
    for (number, Case { field, change, is_refusal }) in pair_cases().into_iter().enumerate() {
        let mut pair = Pair::honest();
        change(&mut pair);
        let (error, received) = pair.ask().await;
        let error = error.expect("fakes answer nothing");
        assert!(is_refusal(&error), "case {number}, {field}: {error:?}");
        assert!(received.is_empty(), "case {number}, {field}: the servers got {received:?}");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 2000, "{field}: {text:?}");
    }
    // It is the announcement that made the difference.
    let (error, received) = Pair::honest().ask().await;
    assert!(matches!(error, Some(Error::Remote { .. })), "{error:?}");
    assert!(received.contains(&"AnswerBags"), "{received:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_of_a_model_get_nothing_for_a_hostile_value_of_any_field() {
    for (number, Case { field, change, is_refusal }) in catalog_cases().into_iter().enumerate() {
        let mut catalogs = Catalogs::honest();
        change(&mut catalogs);
        let (error, received) = catalogs.ask().await;
        assert!(is_refusal(&error), "case {number}, {field}: {error:?}");
        assert!(received.is_empty(), "case {number}, {field}: the servers got {received:?}");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 2000, "{field}: {text:?}");
    }
    let (error, received) = Catalogs::honest().ask().await;
    assert!(matches!(error, Error::Remote { .. }), "{error:?}");
    assert!(received.contains(&"AnswerModel"), "{received:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_server_gets_nothing_for_a_hostile_value_of_any_field() {
    let accepted = [ParameterSet::N4096128];
    for (number, Case { field, change, is_refusal }) in onion_cases().into_iter().enumerate() {
        let mut info = onion();
        change(&mut info);
        let (error, received) = ask_onion(vec![info], &accepted).await;
        assert!(is_refusal(&error), "case {number}, {field}: {error:?}");
        assert!(received.is_empty(), "case {number}, {field}: the server got {received:?}");
        let text = error.to_string();
        assert!(!text.contains('\u{1b}') && text.len() < 2000, "{field}: {text:?}");
    }
    let (_, received) = ask_onion(vec![onion()], &accepted).await;
    assert_eq!(received[..2], ["PutKeys", "OnionAnswer"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_client_chooses_the_cryptography() {
    let default = OnionClientSpec::new(hushtable_serve::EndpointSpec::new("", None));
    assert_eq!(default.parameter_sets, [ParameterSet::N4096128]);
    // A test set is no set at all, whatever the client accepts.
    for accepted in [&ParameterSet::ALL[..], &[]] {
        let (error, received) = ask_onion(vec![test_set()], accepted).await;
        let Error::ParametersRefused { announced, accepted: names, .. } = &error else {
            panic!("{error:?}")
        };
        assert_eq!((announced.as_str(), names.as_slice()), ("n256_test", accepted));
        assert!(received.is_empty(), "{received:?}");
    }
    // The paper's takes the caller's word, and then is served.
    let paper = || onion_of(ParameterSet::IvePaper);
    let (error, received) = ask_onion(vec![paper()], &[ParameterSet::N4096128]).await;
    let text = error.to_string();
    for part in ["\"ive_paper\"", "accepts n4096_128", "nothing was sent", "--parameter-set"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
    assert!(received.is_empty(), "{received:?}");
    let (_, received) = ask_onion(vec![paper()], &ParameterSet::ALL).await;
    assert_eq!(received[..2], ["PutKeys", "OnionAnswer"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_cannot_change_the_cryptography_later() {
    // It answers the first query that its table has changed, and announces another set.
    for weaker in [test_set(), onion_of(ParameterSet::IvePaper)] {
        let (error, received) = ask_onion(vec![onion(), weaker], &[ParameterSet::N4096128]).await;
        assert!(matches!(error, Error::ParametersRefused { .. }), "{error:?}");
        assert_eq!(received, ["PutKeys", "OnionAnswer"], "what came before, and nothing since");
    }
}

/// The fields of a message, as `Message.field`.
fn fields(proto: &str, message: &str) -> BTreeSet<String> {
    let start = format!("\nmessage {message} {{\n");
    let (_, body) = proto.split_once(&start).unwrap_or_else(|| panic!("no {message}"));
    let (body, _) = body.split_once("\n}").unwrap();
    let lines = body.lines().map(str::trim).filter(|line| !line.starts_with("//"));
    let statements = lines.filter_map(|line| line.split_once('=').map(|(left, _)| left.trim()));
    let names = statements.map(|left| left.rsplit(' ').next().unwrap());
    names.map(|name| format!("{message}.{name}")).collect()
}

#[test]
fn every_announced_field_has_hostile_values_here_and_a_row_on_its_page() {
    let lookup = include_str!("../../../../proto/hushtable/v1/lookup.proto");
    let onion = include_str!("../../../../proto/hushtable/v1/onion.proto");
    let infer = include_str!("../../../../proto/hushtable/v1/infer.proto");
    let hybrid = include_str!("../../../../proto/hushtable/v1/hybrid.proto");
    let announced: BTreeSet<String> = [
        fields(hybrid, "HybridInfoReply"),
        fields(infer, "InferInfoReply"),
        fields(lookup, "TableInfoReply"),
        fields(lookup, "LayoutChunk"),
        fields(lookup, "CatalogReply"),
        fields(lookup, "ModelInfo"),
        fields(onion, "OnionInfoReply"),
    ]
    .into_iter()
    .flatten()
    .collect();
    assert!(announced.len() > 30, "{announced:?}");

    let pair = pair_cases().into_iter().map(|case| case.field.to_owned());
    let pair = pair.chain(catalog_cases().into_iter().map(|case| case.field.to_owned()));
    let single = onion_cases().into_iter().map(|case| case.field.to_owned());
    let infer = infer_cases().into_iter().map(|case| case.field.to_owned());
    let hybrid = hybrid_cases().into_iter().map(|case| case.field.to_owned());
    // Any state does: one that changes with every reply has a test in `shared.rs` of the machines' crate.
    let states = ["TableInfoReply", "CatalogReply", "OnionInfoReply"];
    let states = states.map(|message| format!("{message}.state"));
    let tried = pair.chain(single).chain(infer).chain(hybrid).chain(states);
    assert_eq!(tried.collect::<BTreeSet<_>>(), announced, "fields with hostile values here");

    let page = include_str!("../../../../docs/security/clients.md");
    assert_eq!(listed(page), announced, "rows in docs/security/clients.md");

    // Training's are held against the pin, in `tests/it/train.rs`.
    let train = include_str!("../../../../proto/hushtable/v1/train.proto");
    let page = include_str!("../../../../docs/security/training.md");
    let (_, section) = page.split_once("\n## What a client checks\n").expect("the section");
    let (section, _) = section.split_once("\n#").expect("one after it");
    assert_eq!(listed(section), fields(train, "TrainInfoReply"));
}

/// The fields that a page has in the first column of its table.
fn listed(section: &str) -> BTreeSet<String> {
    let rows = section.lines().filter_map(|line| line.strip_prefix("| "));
    let names = rows.flat_map(|row| row.split(" |").next().unwrap_or_default().split('`'));
    names.filter(|name| name.contains('.') && !name.ends_with(".json")).map(Into::into).collect()
}
