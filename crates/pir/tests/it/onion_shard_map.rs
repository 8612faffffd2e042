//! A model's shards that hold columns: the map, the bytes that each needs, and answers from those alone.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hushtable_pir::onion::{
    Client, Engine, Error, Geometry, OnionBackend, OnionSpec, ParameterSet, Partial, Server, Shard,
    check_map, plan_shards, prepare, shard_pieces, verify_shard,
};
use hushtable_pir::{DType, TableShape};
use hushtable_table::model::{
    Feature, MapError, MapScheme, Model, Pooling, ShardMap, ShardMapSpec, write,
};
use hushtable_table::{Error as TableError, Table, encode_rows, patch};
use tempfile::TempDir;

const SET: ParameterSet = ParameterSet::N256Test;
/// Of the first, a shard of two takes its part of the prepared file; of the second it makes its own rows.
const TABLES: [(&str, u64); 2] = [("films", 300_000), ("genres", 9_000)];
const DIM: usize = 16;

fn spec() -> OnionSpec {
    OnionSpec { threads: 2, ..OnionSpec::new() }
}

fn of(shards: usize) -> ShardMapSpec {
    ShardMapSpec { shards: Some(shards), ..ShardMapSpec::default() }
}

fn made(rows: u64) -> Table {
    let values: Vec<f32> = (0..rows * DIM as u64).map(|index| (index % 1013) as f32).collect();
    Table::from_weight("t", rows, DIM, DType::F32, &values).unwrap()
}

/// A model of tables of so many rows.
fn model(folder: &Path, tables: &[(&str, u64)]) -> Model {
    let made: Vec<Table> = tables.iter().map(|&(_, rows)| made(rows)).collect();
    let named: Vec<_> = tables.iter().map(|&(name, _)| name).zip(&made).collect();
    let feature = |table: usize| Feature {
        name: tables[table].0.into(),
        table,
        pooling: Pooling::Sum,
        max_ids: 1,
    };
    let features: Vec<_> = (0..tables.len()).map(feature).collect();
    let path = folder.join("model");
    write(&path, "m", &named, &features, None).unwrap();
    Model::open(&path).unwrap()
}

fn prepare_all(model: &Model) {
    for index in 0..model.manifest().tables().len() {
        let path = model.prepared_path(index);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        prepare(&model.table(index).unwrap(), &path, SET, &spec(), &|_, _| true).unwrap();
    }
}

/// A copy of what a shard needs and of nothing else, as a fetch makes it; and its bytes.
fn copy(map: &ShardMap, model: &Model, shard: Option<usize>, to: &Path) -> (Model, u64) {
    let open = |path: &Path, bytes: u64| {
        let to = to.join(path);
        fs::create_dir_all(to.parent().unwrap()).unwrap();
        let file = File::options().create(true).truncate(false).write(true).open(to).unwrap();
        file.set_len(bytes).unwrap();
        file
    };
    let mut copied = 0;
    let mut take = |path: &PathBuf, first: u64, bytes: u64| {
        let from = File::open(model.path().join(path)).unwrap();
        let all = from.metadata().unwrap().len();
        let mut part = vec![0; bytes as usize];
        from.read_exact_at(&mut part, first).unwrap();
        open(path, all).write_all_at(&part, first).unwrap();
        copied += bytes;
        all
    };
    for head in map.heads(model.manifest()) {
        let all = model.path().join(&head.path).metadata().unwrap().len();
        take(&head.path, 0, head.bytes.unwrap_or(all).min(all));
    }
    // What opens says what else there is to be.
    let opened = Model::open(to).unwrap();
    for piece in shard_pieces(map, &opened, shard).unwrap() {
        assert_eq!(take(&piece.path, piece.first, piece.bytes), piece.file_bytes);
    }
    (Model::open(to).unwrap(), copied)
}

/// What a client gets of shards' answers.
fn fetched(table: &Table, shards: Vec<Shard>, ids: &[u64]) -> Vec<u8> {
    let shape = TableShape::new(table.rows(), table.row_bytes()).unwrap();
    let geometry = Geometry::new(SET, shape).unwrap();
    let client = Client::new(geometry.clone(), table.version()).unwrap();
    let shards: Vec<_> = shards.into_iter().map(Arc::new).collect();
    let server = Server::new(Arc::clone(&shards[0]) as _);
    let keys = Arc::new(server.accept_keys(client.keys()).unwrap());
    let (queries, pending) = client.query(ids, ids.len()).unwrap();
    let asked = queries.iter().map(|query| server.accept(&keys, query).unwrap());
    let asked: Vec<_> = asked.collect();
    let part = |shard: &Arc<Shard>| {
        let mut bytes = vec![0; asked.len() * shard.answer_bytes()];
        shard.answer(&asked, &mut bytes).unwrap();
        Partial::parse(&geometry, asked.len(), &bytes).unwrap()
    };
    let parts = shards.iter().map(part).collect();
    let front = Engine::without_rows(geometry.clone(), table.version(), &spec()).unwrap();
    let mut joined = vec![0; asked.len() * geometry.response_bytes()];
    front.combine(&front.expansions(&asked), parts, &mut joined).unwrap();
    client.decode(&pending, table.version(), &joined).unwrap()
}

fn rows(table: &Table, ids: &[u64]) -> Vec<u8> {
    let row = |&id: &u64| {
        let mut row = vec![0; table.row_bytes()];
        table.copy_rows(id, &mut row).unwrap();
        row
    };
    ids.iter().flat_map(row).collect()
}

fn disk_bytes(path: &Path) -> u64 {
    path.metadata().unwrap().blocks() * 512
}

/// Checks the answers of shards which have each a copy of its own part.
fn check_answers(whole: &Model, copies: &[Model], load: bool) {
    for index in 0..whole.manifest().tables().len() {
        let table = whole.table(index).unwrap();
        let spec = OnionSpec { load, is_patch_checked: true, ..spec() };
        let shard = |(number, copy): (usize, &Model)| {
            let (own, of) = (copy.table(index).unwrap(), (number as u32, copies.len() as u32));
            let path = copy.prepared_path(index);
            let engine = match path.exists() {
                true => Engine::open_shard(&path, &own, of, SET, &spec),
                false => Engine::shard_from_table(&own, of, SET, &spec),
            };
            Shard::new(engine.unwrap())
        };
        let ids = [0, table.rows() / 2, 300, table.rows() - 1];
        let found = fetched(&table, copies.iter().enumerate().map(shard).collect(), &ids);
        assert!(found == rows(&table, &ids), "table {index}, load {load}");
    }
}

#[test]
fn shards_answer_from_copies_of_their_parts_of_the_prepared_file() {
    let home = TempDir::new().unwrap();
    let whole = model(home.path(), &TABLES);
    prepare_all(&whole);
    let map = plan_shards(&whole, SET, &of(2)).unwrap();
    assert_eq!((map.scheme(), map.parameters()), (MapScheme::Onion, Some("n256_test")));
    // Of the small table's file, no shard has a part.
    let prepared = map.tables().iter().map(|table| table.prepared.is_some());
    assert_eq!(prepared.collect::<Vec<_>>(), [true, false]);
    map.write(&whole).unwrap();
    assert_eq!(ShardMap::read_of(&whole, MapScheme::Onion).unwrap(), map);
    let copies: Vec<Model> = (0..2)
        .map(|shard| {
            let path = home.path().join(shard.to_string());
            let (copy, bytes) = copy(&map, &whole, Some(shard), &path);
            let own = map.shards()[shard].bytes;
            assert!(bytes > own, "{bytes} with rows, of {own} prepared");
            assert!(bytes < own * 3 / 2 + (1 << 20), "{bytes} of {own}");
            let file = disk_bytes(&copy.prepared_path(0));
            assert!(file < own + (1 << 20), "{file} bytes on the disk of {own}");
            verify_shard(&map, &copy, Some(shard), &mut |_, _| ()).unwrap();
            // What is a hole is not taken for rows.
            verify_shard(&map, &copy, Some(1 - shard), &mut |_, _| ()).unwrap_err();
            copy
        })
        .collect();
    check_answers(&whole, &copies, true);
    check_answers(&whole, &copies, false);
    // The other's part of the file is a hole here.
    let table = copies[0].table(0).unwrap();
    let error = Engine::open_shard(&copies[0].prepared_path(0), &table, (1, 2), SET, &spec());
    assert!(matches!(error, Err(Error::Prepared(_))));
    let error = Engine::shard_from_table(&table, (1, 2), SET, &spec());
    assert!(matches!(error, Err(Error::Table(TableError::Rows { .. }))));
    // A front has no rows, and opens.
    let (front, bytes) = copy(&map, &whole, None, &home.path().join("front"));
    verify_shard(&map, &front, None, &mut |_, _| ()).unwrap();
    assert!(bytes < 100_000, "{bytes}");
    // A bit of its own part is seen.
    let (path, geometry) = (copies[1].prepared_path(0), geometry(TABLES[0].1));
    let at = 4_096 + geometry.prepared_bytes() - 100_000;
    let file = File::options().read(true).write(true).open(&path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ 1], at).unwrap();
    let error = verify_shard(&map, &copies[1], Some(1), &mut |_, _| ()).unwrap_err();
    assert!(matches!(error, Error::Prepared(_)), "{error}");
}

fn geometry(rows: u64) -> Geometry {
    Geometry::new(SET, TableShape::new(rows, 4 * DIM).unwrap()).unwrap()
}

#[test]
fn shards_make_their_rows_of_copies_without_a_prepared_file_and_with_changed_rows() {
    let home = TempDir::new().unwrap();
    let whole = model(home.path(), &TABLES[1..]);
    // The model's version is of the rows below: what a patch makes of them is another model's.
    for count in [1, 3] {
        let map = plan_shards(&whole, SET, &of(count)).unwrap();
        let copies: Vec<_> = (0..count)
            .map(|shard| {
                let path = home.path().join(format!("{shard} of {count}"));
                map.write(&whole).unwrap();
                let (copy, bytes) = copy(&map, &whole, Some(shard), &path);
                let all = whole.table(0).unwrap().rows() * 4 * DIM as u64;
                assert!(bytes < all / count as u64 + 60_000, "{bytes} of {all}");
                verify_shard(&map, &copy, Some(shard), &mut |_, _| ()).unwrap();
                copy
            })
            .collect();
        check_answers(&whole, &copies, true);
    }
    let (base, next) = (home.path().join("base"), home.path().join("next"));
    made(9_000).save(&base).unwrap();
    let ids: Vec<u64> = vec![0, 299, 300, 4_500, 8_999];
    let mut changed = vec![0; ids.len() * 4 * DIM];
    encode_rows(DType::F32, DIM, &vec![-0.5; ids.len() * DIM], &mut changed).unwrap();
    patch::patch(&base, &ids, &changed, &next).unwrap();
    let table = Table::open(&next).unwrap();
    let shard =
        |number| Shard::new(Engine::shard_from_table(&table, (number, 3), SET, &spec()).unwrap());
    let found = fetched(&table, (0..3).map(shard).collect(), &[299, 301, 8_999]);
    assert_eq!(found, rows(&table, &[299, 301, 8_999]));
}

#[test]
fn there_are_as_many_shards_as_the_memory_takes() {
    let home = TempDir::new().unwrap();
    let whole = model(home.path(), &TABLES);
    let (mut found, mut before) = (Vec::new(), usize::MAX);
    let all = geometry(TABLES[0].1).prepared_bytes() + geometry(TABLES[1].1).prepared_bytes();
    let least = (256 << 20) + (1 << 30);
    for share in [2, 3, 5] {
        for versions in [1, 2] {
            let bytes = least + (48 << 20) + versions * all / share;
            let memory_bytes = Some(bytes);
            let spec = ShardMapSpec { memory_bytes, versions, ..ShardMapSpec::default() };
            let map = plan_shards(&whole, SET, &spec).unwrap();
            let largest = map.shards().iter().map(|shard| shard.bytes).max().unwrap();
            assert!(versions * largest <= bytes - least);
            found.push(map.shards().len());
        }
    }
    println!("{found:?}");
    for pair in found.chunks(2).rev() {
        assert!(pair[0] <= before && pair[0] >= 1, "{found:?}");
        before = pair[0];
    }
    let map = plan_shards(&whole, SET, &ShardMapSpec::default()).unwrap();
    assert_eq!(map.shards().len(), 1);
    let refuse = |spec: ShardMapSpec| match plan_shards(&whole, SET, &spec) {
        Err(Error::Table(TableError::ShardMap { source, .. })) => source,
        other => panic!("{other:?}"),
    };
    let of_memory = |bytes: u64, shards: Option<usize>| {
        refuse(ShardMapSpec { shards, memory_bytes: Some(bytes), ..ShardMapSpec::default() })
    };
    assert!(matches!(of_memory(1 << 30, None), MapError::Besides { .. }));
    let MapError::Besides { besides_bytes, .. } = of_memory(1 << 30, Some(2)) else { panic!() };
    assert!(matches!(of_memory(besides_bytes + 1_000, None), MapError::Memory { .. }));
    assert!(matches!(of_memory(besides_bytes + all / 3, Some(2)), MapError::Memory { .. }));
    for shards in [0, 4_097] {
        let error = refuse(of(shards));
        assert!(matches!(error, MapError::Count { found, .. } if found == shards), "{error}");
    }
}

#[test]
fn a_map_of_something_else_is_refused_for_what_it_is() {
    let home = TempDir::new().unwrap();
    let whole = model(home.path(), &TABLES[1..]);
    let source = |error: TableError| match error {
        TableError::ShardMap { source, .. } => source,
        other => panic!("{other}"),
    };
    let missing = source(ShardMap::read_of(&whole, MapScheme::Onion).unwrap_err());
    assert!(missing.to_string().contains("shard plan MODEL --scheme onion"), "{missing}");
    let map = plan_shards(&whole, SET, &of(2)).unwrap();
    map.write(&whole).unwrap();
    // Each scheme has a file of its own.
    ShardMap::plan(&whole, &of(3)).unwrap().write(&whole).unwrap();
    assert_eq!(ShardMap::read_of(&whole, MapScheme::Onion).unwrap(), map);
    assert_eq!(ShardMap::read(&whole).unwrap().shards().len(), 3);
    let place = |scheme: MapScheme| whole.path().join(scheme.place());
    fs::copy(place(MapScheme::Pair), place(MapScheme::Onion)).unwrap();
    let error = source(ShardMap::read_of(&whole, MapScheme::Onion).unwrap_err());
    let expected = MapError::Scheme { expected: MapScheme::Onion, found: MapScheme::Pair };
    assert_eq!(error, expected);
    // Of another version.
    let other = TempDir::new().unwrap();
    let other = model(other.path(), &TABLES[..1]);
    fs::write(place(MapScheme::Onion), plan_shards(&other, SET, &of(2)).unwrap().to_json())
        .unwrap();
    let error = source(ShardMap::read_of(&whole, MapScheme::Onion).unwrap_err());
    assert!(matches!(error, MapError::Model { .. }), "{error}");
    // Of other parameters, and of columns that are not those.
    let inner = |error: Error| match error {
        Error::Table(error) => source(error),
        other => panic!("{other}"),
    };
    let error = inner(check_map(&map, &whole, ParameterSet::N4096128).unwrap_err());
    assert!(matches!(error, MapError::Parameters { .. }), "{error}");
    let mut shards = map.shards().to_vec();
    let moved = shards[0].parts[0].end - 1;
    (shards[0].parts[0].end, shards[1].parts[0].first) = (moved, moved);
    let name = SET.name();
    let forged =
        ShardMap::of_columns(whole.manifest(), name, map.tables().to_vec(), shards, 2).unwrap();
    let error = inner(shard_pieces(&forged, &whole, Some(0)).unwrap_err());
    assert!(matches!(error, MapError::Columns { shard: 0, .. }), "{error}");
    let error = inner(shard_pieces(&map, &whole, Some(2)).unwrap_err());
    assert_eq!(error, MapError::Shard { found: 2, shards: 2 });
    // A prepared file that was made anew, of other parameters, is no part of it.
    prepare_all(&whole);
    let error = plan_shards(&whole, ParameterSet::N4096128, &of(1)).unwrap_err();
    assert!(matches!(error, Error::Prepared(_)), "{error}");
}
