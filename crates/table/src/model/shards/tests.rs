use std::os::unix::fs::FileExt;

use std::path::Path;

use super::*;
use crate::dtype::DType;
use crate::model::{Feature, Pooling, write};
use crate::table::Table;

fn of_tables(tables: &[(u64, usize)], spec: &ShardMapSpec) -> Result<ShardMap, Error> {
    let folder = tempfile::tempdir().unwrap();
    ShardMap::plan(&model(folder.path(), tables), spec)
}

fn model(folder: &Path, tables: &[(u64, usize)]) -> Model {
    let mut made = Vec::new();
    for (index, &(rows, dim)) in tables.iter().enumerate() {
        let values: Vec<f32> =
            (0..rows * dim as u64).map(|i| ((i * 7 + index as u64) % 1_000) as f32).collect();
        made.push(Table::from_weight("t", rows, dim, DType::F32, &values).unwrap());
    }
    let names: Vec<String> = (0..tables.len()).map(|index| format!("t{index}")).collect();
    let named: Vec<_> = names.iter().map(String::as_str).zip(&made).collect();
    let features: Vec<_> = (0..tables.len())
        .map(|table| Feature {
            name: names[table].clone(),
            table,
            pooling: Pooling::Sum,
            max_ids: 1,
        })
        .collect();
    let out = folder.join("model");
    write(&out, "m", &named, &features, None).unwrap();
    Model::open(&out).unwrap()
}

fn spec(shards: usize) -> ShardMapSpec {
    ShardMapSpec { shards: Some(shards), ..ShardMapSpec::default() }
}

#[test]
fn shards_are_equal_and_every_row_is_on_one() {
    for (tables, counts) in [
        (vec![(100_000, 4)], vec![1, 2, 3, 4, 7]),
        (vec![(100_000, 4), (50_000, 8), (300, 4), (5_000, 1)], vec![1, 2, 5, 8]),
    ] {
        for shards in counts {
            // `new` checks that every row is there once.
            let map = of_tables(&tables, &spec(shards)).unwrap();
            assert_eq!(map.shards().len(), shards);
            let bytes: Vec<u64> = map.shards().iter().map(|shard| shard.bytes).collect();
            let mean = bytes.iter().sum::<u64>() / shards as u64;
            for bytes in bytes {
                assert!(bytes.abs_diff(mean) <= mean / 10 + 16 * 512 * 32, "{bytes} of {mean}");
            }
        }
    }
}

#[test]
fn as_many_shards_are_made_as_the_memory_takes() {
    let tables = [(400_000, 4)];
    let bytes = 400_000 * 16;
    let memory = |versions: u64, shards: u64| ShardMapSpec {
        memory_bytes: Some((256 << 20) + versions * (bytes / shards + (1 << 17))),
        versions,
        ..ShardMapSpec::default()
    };
    assert_eq!(of_tables(&tables, &memory(2, 4)).unwrap().shards().len(), 4);
    assert_eq!(of_tables(&tables, &memory(1, 3)).unwrap().shards().len(), 3);
    let map = of_tables(&tables, &memory(2, 4)).unwrap();
    assert!(map.shards().iter().all(|shard| 2 * shard.bytes <= 2 * (bytes / 4 + (1 << 17))));
    let small = ShardMapSpec { memory_bytes: Some(1 << 20), ..ShardMapSpec::default() };
    let error = of_tables(&tables, &small).unwrap_err().to_string();
    assert!(error.contains("give shards more memory"), "{error}");
    let error = of_tables(&[(600, 4)], &spec(3)).unwrap_err().to_string();
    assert!(error.contains("must be 1 to 2, not 3"), "{error}");
    assert_eq!(of_tables(&[(600, 4)], &spec(2)).unwrap().shards()[1].parts[0].rows(), 512..600);
}

#[test]
fn a_map_in_a_bundle_is_of_its_version() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), &[(3_000, 4)]);
    let missing = ShardMap::read(&model).unwrap_err().to_string();
    assert!(missing.contains("hushtable shard plan"), "{missing}");
    let map = ShardMap::plan(&model, &spec(2)).unwrap();
    map.write(&model).unwrap();
    assert_eq!(ShardMap::read(&model).unwrap(), map);
    // A model may be built over one with a map.
    let other = self::model(folder.path(), &[(3_001, 4)]);
    assert!(map.write(&other).unwrap_err().to_string().contains("is of version"));
    fs::write(other.path().join(places::SHARDS), map.to_json()).unwrap();
    assert!(ShardMap::read(&other).unwrap_err().to_string().contains("is of version"));
}

#[test]
fn rows_that_two_shards_have_or_none_are_named() {
    let map = of_tables(&[(3_000, 4)], &spec(3)).unwrap();
    let with = |change: &dyn Fn(&mut Vec<Shard>)| {
        let mut document = map.document.clone();
        change(&mut document.shards);
        let json = ShardMap::sealed(document).to_json();
        ShardMap::from_json(&json).unwrap_err()
    };
    let (end, start) = (map.shards()[0].parts[0].end, map.shards()[1].parts[0].first);
    assert_eq!(end, start);
    assert_eq!(
        with(&|shards| shards[0].parts[0].end += 512),
        MapError::Rows { shard: Some(1), table: "t0".into(), first: start, end: start + 512 }
    );
    assert_eq!(
        with(&|shards| shards[1].parts[0].first += 512),
        MapError::Rows { shard: None, table: "t0".into(), first: start, end: start + 512 }
    );
    assert!(matches!(with(&|shards| drop(shards.pop())), MapError::Rows { shard: None, .. }));
    assert!(matches!(
        with(&|shards| shards[0].parts[0].first = 1),
        MapError::Part { shard: 0, table: 0, first: 1, .. }
    ));
    assert!(matches!(with(&|shards| shards[0].parts[0].table = 1), MapError::Part { .. }));
    assert!(matches!(with(&|shards| shards.clear()), MapError::Count { .. }));
    let twice = |shards: &mut Vec<Shard>| {
        let part = shards[0].parts[0].clone();
        shards[0].parts.push(part);
    };
    assert!(matches!(with(&twice), MapError::Part { shard: 0, .. }));
    for at in (0..map.to_json().len()).step_by(7) {
        let mut bytes = map.to_json();
        bytes[at] ^= 1;
        assert!(ShardMap::from_json(&bytes).is_err(), "{at}");
    }
}

#[test]
fn what_is_copied_for_a_shard_opens_and_is_checked() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), &[(3_000, 4), (700, 2)]);
    let map = ShardMap::plan(&model, &spec(3)).unwrap();
    map.write(&model).unwrap();
    let whole: u64 = map.pieces(&model, Some(0)).unwrap().iter().map(|piece| piece.bytes).sum();
    assert!(whole < 60_000, "{whole} bytes");
    for shard in [None, Some(0), Some(1), Some(2)] {
        let to = folder.path().join(format!("copy-{shard:?}"));
        for piece in map.pieces(&model, shard).unwrap() {
            let (from, to) = (model.path().join(&piece.path), to.join(&piece.path));
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            let target =
                fs::OpenOptions::new().create(true).truncate(false).write(true).open(to).unwrap();
            target.set_len(piece.file_bytes).unwrap();
            let mut bytes = vec![0; piece.bytes as usize];
            File::open(from).unwrap().read_exact_at(&mut bytes, piece.first).unwrap();
            target.write_all_at(&bytes, piece.first).unwrap();
        }
        let copy = Model::open(&to).unwrap();
        assert_eq!(ShardMap::read(&copy).unwrap(), map);
        assert_eq!(verified(&map, &copy, shard).unwrap(), map.pieces(&copy, shard).unwrap());
        for other in 0..3 {
            assert!(shard == Some(other) || verified(&map, &copy, Some(other)).is_err());
        }
        for index in 0..2 {
            let table = copy.table(index).unwrap();
            let check = |rows: Range<u64>| {
                let reading = table.reading_of(rows.clone()).unwrap();
                let mut out = vec![0; (rows.end - rows.start) as usize * table.row_bytes()];
                reading.copy_rows(rows.start, &mut out).unwrap();
                reading.finish()
            };
            if let Some(rows) = shard.and_then(|shard| map.rows_of(shard, index)) {
                check(rows).unwrap();
            }
            assert!(
                check(0..table.rows()).is_err()
                    || map.rows_of(shard.unwrap(), index) == Some(0..table.rows())
            );
        }
    }
}

/// What a shard of a copy needs, once the copy is verified.
fn verified(map: &ShardMap, copy: &Model, shard: Option<usize>) -> Result<Vec<FilePiece>, Error> {
    let mut last = (0, 0);
    map.verify(copy, shard, &mut |done, all| {
        assert!(last.0 <= done && done <= all);
        last = (done, all);
    })?;
    assert_eq!((last.0, shard.is_some()), (last.1, last.1 > 0));
    let heads = map.heads(copy.manifest());
    let pieces = map.pieces(copy, shard)?;
    // What opens a model is among what its shards need, and no file is left out.
    for head in &heads {
        let bytes =
            head.bytes.unwrap_or_else(|| copy.path().join(&head.path).metadata().unwrap().len());
        assert!(pieces.iter().any(|it| it.path == head.path && it.first == 0 && it.bytes >= bytes));
    }
    assert!(pieces.iter().all(|piece| heads.iter().any(|head| head.path == piece.path)));
    Ok(pieces)
}

#[test]
fn a_damaged_byte_of_a_shard_is_found_before_it_is_served() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), &[(3_000, 4)]);
    let map = ShardMap::plan(&model, &spec(2)).unwrap();
    map.write(&model).unwrap();
    let rows = map.rows_of(1, 0).unwrap();
    let path = model.table_path(0).join("rows.safetensors");
    let file = fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
    for row in [rows.start, rows.end - 1] {
        let (at, mut byte) = (4_096 + row * 16, [0]);
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 1], at).unwrap();
        let error = verified(&map, &model, Some(1)).unwrap_err().to_string();
        assert!(error.contains("hash to version"), "{error}");
        verified(&map, &model, Some(0)).unwrap();
        file.write_all_at(&byte, at).unwrap();
        verified(&map, &model, Some(1)).unwrap();
    }
    let error = verified(&map, &model, Some(2)).unwrap_err().to_string();
    assert!(error.contains("there is no shard 2"), "{error}");
}

#[test]
fn a_map_names_no_files_but_the_models() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), &[(3_000, 4)]);
    let map = ShardMap::plan(&model, &spec(2)).unwrap();
    let mut document = map.document.clone();
    document.tables[0].name = "../../elsewhere".into();
    let other = ShardMap::from_json(&ShardMap::sealed(document).to_json()).unwrap();
    assert!(matches!(other.check_model(model.manifest()), Err(MapError::Model { .. })));
    fs::write(model.path().join(places::SHARDS), other.to_json()).unwrap();
    assert!(ShardMap::read(&model).is_err());
    // Its own name becomes a folder's, too.
    for name in ["../victim/planted", "/tmp/planted", "n", "\u{1b}[2J"] {
        let mut document = map.document.clone();
        document.name = name.into();
        let other = ShardMap::from_json(&ShardMap::sealed(document).to_json());
        let checked = other.and_then(|other| other.check_model(model.manifest()));
        let error = checked.expect_err(name).to_string();
        assert!(!error.contains('\u{1b}'), "{error:?}");
    }
}

#[test]
fn a_map_of_columns_begins_anywhere_and_lies_beside_a_pairs() {
    let folder = tempfile::tempdir().unwrap();
    let model = model(folder.path(), &[(1_000, 4), (700, 2)]);
    let pair = ShardMap::plan(&model, &spec(2)).unwrap();
    pair.write(&model).unwrap();
    let part = |table, first, end| ShardPart { table, first, end };
    let columns = |cut: u64| {
        let parts = vec![part(0, 0, cut), part(1, 0, 700)];
        let rest = vec![part(0, cut, 1_000)];
        let shards = [parts, rest].map(|parts| Shard { bytes: 1, parts }).to_vec();
        ShardMap::of_columns(model.manifest(), "set", pair.tables().to_vec(), shards, 3)
    };
    let map = columns(301).unwrap();
    assert_eq!((map.scheme(), map.parameters()), (MapScheme::Onion, Some("set")));
    assert_eq!((map.rows_of(0, 0), map.rows_of(1, 1)), (Some(0..301), None));
    // What is read and checked is whole blocks.
    assert_eq!((map.blocks_of(0, 0), map.blocks_of(1, 0)), (Some(0..512), Some(256..1_000)));
    assert!(matches!(columns(1_001), Err(MapError::Part { .. })));
    map.write(&model).unwrap();
    assert_eq!(ShardMap::read(&model).unwrap(), pair);
    assert_eq!(ShardMap::read_of(&model, MapScheme::Onion).unwrap(), map);
    assert_eq!(ShardMap::from_json(&map.to_json()).unwrap(), map);
    assert_ne!(map.version(), columns(302).unwrap().version());
    // Neither says anything else by being there: the next version takes the model's place, without them.
    let table = Table::from_weight("t", 10, 1, DType::F32, &[0.5; 10]).unwrap();
    let feature = Feature { name: "t".into(), table: 0, pooling: Pooling::Sum, max_ids: 1 };
    write(model.path(), "m", &[("t", &table)], &[feature], None).unwrap();
    let next = Model::open(model.path()).unwrap();
    for scheme in [MapScheme::Pair, MapScheme::Onion] {
        let error = ShardMap::read_of(&next, scheme).unwrap_err();
        let Error::ShardMap { source, .. } = error else { panic!("{error}") };
        assert_eq!(source, MapError::Missing { scheme });
    }
}
