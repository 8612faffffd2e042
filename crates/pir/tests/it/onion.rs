//! Single-server retrieval, from query to row.

use std::sync::Arc;

use hushtable_pir::onion::{
    Asked, Client, CopyRows, Engine, Error, EvaluationKeys, Geometry, KeyId, OnionBackend,
    OnionSpec, ParameterSet, Partial, Schedule, Server, Shard, prepare,
};
use hushtable_pir::{DType, TableShape};
use hushtable_table::{Table, Version};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

const VERSION: [u8; 32] = [7; 32];

/// A table of bytes that differ from row to row, the largest and smallest coefficients among them.
fn bytes(shape: TableShape) -> Vec<u8> {
    let mut random = ChaCha20Rng::seed_from_u64(shape.rows() ^ shape.row_bytes() as u64);
    let mut bytes = vec![0; shape.table_bytes() as usize];
    random.fill(&mut bytes[..]);
    let part = bytes.len() / 8;
    bytes[..part].fill(0xff);
    bytes[part..2 * part].chunks_exact_mut(2).for_each(|pair| pair.copy_from_slice(&[0, 0x80]));
    bytes
}

struct World {
    table: Vec<u8>,
    geometry: Geometry,
    client: Client,
    server: Server,
    keys: Arc<EvaluationKeys>,
}

impl World {
    fn new(set: ParameterSet, rows: u64, row_bytes: usize, spec: &OnionSpec) -> Self {
        let shape = TableShape::new(rows, row_bytes).unwrap();
        Self::with(Geometry::new(set, shape).unwrap(), spec)
    }

    fn with(geometry: Geometry, spec: &OnionSpec) -> Self {
        let table = bytes(geometry.shape());
        let engine = with_rows(&table, &geometry, |copy| {
            Engine::from_rows(geometry.clone(), VERSION.into(), spec, copy)
        });
        let server = Server::new(Arc::new(engine.unwrap()));
        let client = Client::new(geometry.clone(), VERSION.into()).unwrap();
        let keys = Arc::new(server.accept_keys(client.keys()).unwrap());
        Self { table, geometry, client, server, keys }
    }

    fn row(&self, id: u64) -> &[u8] {
        let row_bytes = self.geometry.shape().row_bytes();
        &self.table[id as usize * row_bytes..][..row_bytes]
    }

    /// Asks for `ids`, answers by `answer`, and compares.
    fn check_by(&self, ids: &[u64], answer: impl FnOnce(&[Asked], &mut [u8])) {
        let (queries, pending) = self.client.query(ids, ids.len()).unwrap();
        let accept = |query: &Vec<u8>| self.server.accept(&self.keys, query).unwrap();
        let asked: Vec<_> = queries.iter().map(accept).collect();
        let mut responses = vec![0; ids.len() * self.geometry.response_bytes()];
        answer(&asked, &mut responses);
        let rows = self.client.decode(&pending, VERSION.into(), &responses).unwrap();
        let row_bytes = self.geometry.shape().row_bytes();
        for (&id, row) in ids.iter().zip(rows.chunks_exact(row_bytes)) {
            assert!(row == self.row(id), "row {id} of {:?}", self.geometry.shape());
        }
    }

    fn check(&self, ids: &[u64]) {
        self.check_by(ids, |asked, responses| self.server.answer(asked, responses).unwrap());
    }
}

fn with_rows<T>(table: &[u8], geometry: &Geometry, run: impl FnOnce(CopyRows<'_>) -> T) -> T {
    let row_bytes = geometry.shape().row_bytes();
    run(&|first, out| {
        let first = first as usize * row_bytes;
        out.copy_from_slice(&table[first..first + out.len()]);
        Ok(())
    })
}

#[test]
fn every_row_of_small_tables_is_found() {
    for (rows, row_bytes) in [(1, 16), (300, 16), (1000, 64), (77, 200), (40, 600), (9, 32 << 10)] {
        let world = World::new(ParameterSet::N256Test, rows, row_bytes, &OnionSpec::new());
        let ids: Vec<u64> = (0..rows).collect();
        ids.chunks(7).for_each(|ids| world.check(ids));
    }
}

#[test]
fn the_offered_sets_find_every_item_of_a_table() {
    // Some columns, the last one not full, and every item asked for once.
    for (set, rows) in [(ParameterSet::N4096128, 600), (ParameterSet::IvePaper, 150)] {
        let world = World::new(set, rows, 4096, &OnionSpec::new());
        let ids: Vec<u64> = (0..rows).collect();
        ids.chunks(16).for_each(|ids| world.check(ids));
    }
}

/// 10,000 rows of a table of half a million, by the small set, whose lookups take a millisecond.
#[test]
fn ten_thousand_random_rows_of_a_large_table_are_found() {
    let rows = 1 << 19;
    let spec = OnionSpec { threads: 2, ..OnionSpec::new() };
    let world = World::new(ParameterSet::N256Test, rows, 16, &spec);
    let mut random = ChaCha20Rng::seed_from_u64(1);
    let ids: Vec<u64> = (0..10_000).map(|_| random.random_range(0..rows)).collect();
    ids.chunks(100).for_each(|ids| world.check(ids));
}

#[test]
fn random_rows_of_a_larger_table_are_found_by_the_default_set() {
    let rows = 1 << 19;
    let world = World::new(ParameterSet::N4096128, rows, 64, &OnionSpec::new());
    let mut random = ChaCha20Rng::seed_from_u64(1);
    let ids: Vec<u64> = (0..128).map(|_| random.random_range(0..rows)).collect();
    ids.chunks(32).for_each(|ids| world.check(ids));
}

#[test]
fn every_schedule_and_number_of_threads_answers_alike() {
    let schedules = [
        Schedule::BreadthFirst,
        Schedule::DepthFirst,
        Schedule::Hierarchical { depth: 1 },
        Schedule::Hierarchical { depth: 3 },
        Schedule::HierarchicalBreadth { depth: 2 },
        Schedule::Hierarchical { depth: 40 },
    ];
    let shape = TableShape::new(9000, 64).unwrap();
    for levels in [5, 6] {
        let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, levels).unwrap();
        assert!(geometry.columns() > 16 && !geometry.columns().is_power_of_two());
        for (expand, threads) in schedules.into_iter().zip([1, 2, 3, 1, 4, 2]) {
            for tournament in schedules {
                let overlap = tournament == Schedule::DepthFirst;
                let spec = OnionSpec { expand, tournament, overlap, threads, ..OnionSpec::new() };
                World::with(geometry.clone(), &spec).check(&[0, 8_999, 3_333, 517]);
            }
        }
    }
}

#[test]
fn shards_answer_as_the_whole_does() {
    let spec = OnionSpec { threads: 2, ..OnionSpec::new() };
    let world = World::new(ParameterSet::N256Test, 9000, 64, &spec);
    let geometry = &world.geometry;
    for count in [1, 2, 3, 8] {
        let shard = |index| {
            with_rows(&world.table, geometry, |copy| {
                let of = (index, count);
                Engine::shard_from_rows(geometry.clone(), VERSION.into(), of, &spec, copy)
            })
        };
        let shards: Vec<Engine> = (0..count).map(|index| shard(index).unwrap()).collect();
        world.check_by(&[0, 8_999, 4_567, 1], |asked, responses| {
            let expansions = shards[0].expansions(asked);
            let mut parts: Vec<Partial> =
                shards.iter().map(|shard| shard.partial(&expansions).unwrap()).collect();
            parts.reverse();
            shards[0].combine(&expansions, parts, responses).unwrap();
        });
        assert!(matches!(shard(count), Err(Error::Shard { .. })));
    }
}

/// What travels between shards and a front is bytes, and what the front answers is what one server would have, to
/// the bit.
#[test]
fn parts_of_shards_through_bytes_are_the_whole_servers_answer() {
    let sets = [(ParameterSet::N256Test, 9000, 64), (ParameterSet::N256Test, 40, 600)];
    for (set, rows, row_bytes) in sets.into_iter().chain([(ParameterSet::N4096128, 600, 4096)]) {
        let spec = OnionSpec { threads: 2, ..OnionSpec::new() };
        let world = World::new(set, rows, row_bytes, &spec);
        let geometry = &world.geometry;
        let ids = [0, rows - 1, rows / 2];
        let (queries, pending) = world.client.query(&ids, ids.len()).unwrap();
        // A front hands on what it read.
        assert_eq!(world.keys.to_bytes(), world.client.keys());
        assert_eq!(world.keys.id(), world.client.key_id());
        let accept = |query: &Vec<u8>| world.server.accept(&world.keys, query).unwrap();
        let asked: Vec<_> = queries.iter().map(accept).collect();
        for (asked, query) in asked.iter().zip(&queries) {
            assert_eq!(asked.query().to_bytes(geometry), *query);
        }
        let mut whole = vec![0; ids.len() * geometry.response_bytes()];
        world.server.answer(&asked, &mut whole).unwrap();
        let front = Engine::without_rows(geometry.clone(), VERSION.into(), &spec).unwrap();
        for count in [1, 2, 3, 5] {
            let mut parts = Vec::new();
            for index in (0..count).rev() {
                let shard = with_rows(&world.table, geometry, |copy| {
                    let of = (index, count);
                    Engine::shard_from_rows(geometry.clone(), VERSION.into(), of, &spec, copy)
                });
                let shard = Shard::new(shard.unwrap());
                assert_eq!(shard.columns(), geometry.shard_columns((index, count)).unwrap());
                let mut bytes = vec![0; ids.len() * shard.answer_bytes()];
                shard.answer(&asked, &mut bytes).unwrap();
                let part = Partial::parse(geometry, ids.len(), &bytes).unwrap();
                assert_eq!(part.to_bytes(), bytes);
                parts.push(part);
                // A shard finds its own rows by itself, and nobody else's.
                let mut alone = vec![0; whole.len()];
                shard.answer_alone(&asked, &mut alone).unwrap();
                let found = world.client.decode(&pending, VERSION.into(), &alone).unwrap();
                for (&id, row) in ids.iter().zip(found.chunks_exact(row_bytes)) {
                    let is_its = shard.ids().contains(&id);
                    assert_eq!(row == world.row(id), is_its, "row {id} of shard {index}");
                }
            }
            let mut joined = vec![0; whole.len()];
            front.combine(&front.expansions(&asked), parts, &mut joined).unwrap();
            assert!(joined == whole, "{} {rows} of {count} shards", set.name());
        }
    }
}

/// Large tables are cut between a prepared file's blocks, so that a shard reads or copies just its own; of small ones
/// it makes its own in memory.
#[test]
fn shards_of_a_prepared_file_answer_as_the_whole_does() {
    let set = ParameterSet::N256Test;
    let folder = tempfile::tempdir().unwrap();
    for (rows, counts) in [(1u64 << 20, [1, 2]), (9000, [2, 5])] {
        let values: Vec<f32> = (0..rows * 4).map(|index| (index % 1013) as f32).collect();
        let table = Table::from_weight("films", rows, 4, DType::F32, &values).unwrap();
        let path = folder.path().join(format!("{rows}.prepared"));
        let spec = OnionSpec { threads: 2, ..OnionSpec::new() };
        prepare(&table, &path, set, &spec, &|_, _| true).unwrap();
        let whole = Engine::open(&path, &table, set, &spec).unwrap();
        let geometry = whole.geometry().clone();
        let is_large = |count: u32| geometry.columns() >= u64::from(count) * 128;
        assert!(counts.into_iter().all(|count| is_large(count) == (rows > 9000)));
        let client = Client::new(geometry.clone(), table.version()).unwrap();
        let server = Server::new(Arc::new(whole));
        let keys = Arc::new(server.accept_keys(client.keys()).unwrap());
        let ids = [0, rows / 3, rows - 1];
        let (queries, _) = client.query(&ids, 3).unwrap();
        let asked = queries.iter().map(|query| server.accept(&keys, query).unwrap());
        let asked: Vec<_> = asked.collect();
        let mut expected = vec![0; 3 * geometry.response_bytes()];
        server.answer(&asked, &mut expected).unwrap();
        let front = Engine::without_rows(geometry.clone(), table.version(), &spec).unwrap();
        for (count, load) in counts.into_iter().zip([false, true]) {
            let spec = OnionSpec { load, ..spec.clone() };
            let mut bytes = 0;
            let parts = (0..count).map(|index| {
                let of = (index, count);
                let engine = Engine::open_shard(&path, &table, of, set, &spec).unwrap();
                let columns = geometry.shard_columns(of).unwrap();
                assert_eq!(engine.resident_bytes(), geometry.prepared_bytes_of(columns));
                bytes += engine.resident_bytes();
                let shard = Shard::new(engine);
                let mut part = vec![0; 3 * shard.answer_bytes()];
                shard.answer(&asked, &mut part).unwrap();
                Partial::parse(&geometry, 3, &part).unwrap()
            });
            let parts = parts.collect();
            let mut joined = vec![0; expected.len()];
            front.combine(&front.expansions(&asked), parts, &mut joined).unwrap();
            assert!(joined == expected, "{rows} rows on {count} shards");
            // Each column is on one shard.
            assert!(bytes <= geometry.prepared_bytes(), "{bytes}");
        }
    }
}

#[test]
fn what_is_no_part_of_an_answer_is_refused() {
    let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
    let world = World::new(ParameterSet::N256Test, 9000, 64, &spec);
    let geometry = &world.geometry;
    let (queries, _) = world.client.query(&[5, 6], 2).unwrap();
    let asked = queries.iter().map(|query| world.server.accept(&world.keys, query).unwrap());
    let asked: Vec<_> = asked.collect();
    let part = |index, version: [u8; 32]| {
        let shard = with_rows(&world.table, geometry, |copy| {
            Engine::shard_from_rows(geometry.clone(), version.into(), (index, 3), &spec, copy)
        });
        let shard = Shard::new(shard.unwrap());
        let mut bytes = vec![0; 2 * shard.answer_bytes()];
        shard.answer(&asked, &mut bytes).unwrap();
        bytes
    };
    let good = part(1, VERSION);
    let parse = |queries, bytes: &[u8]| Partial::parse(geometry, queries, bytes).map(drop);
    let one = good.len() / 2;
    parse(2, &good).unwrap();
    for length in [0, 1, 51, 52, one, one + 30, 2 * one - 1] {
        let error = parse(2, &good[..length]).unwrap_err();
        assert!(matches!(error, Error::PartialBytes { found, .. } if found == length), "{error}");
    }
    for queries in [0, 1, 3, usize::MAX] {
        let error = parse(queries, &good).unwrap_err();
        assert!(matches!(error, Error::PartialBytes { .. }), "{queries}: {error}");
    }
    // The head: parameters, the version, columns.
    for byte in 0..4 {
        let mut other = good.clone();
        other[byte] ^= 1;
        let error = parse(2, &other).unwrap_err();
        let Error::PartialParameters { expected, found } = &error else { panic!("{error}") };
        assert_ne!(expected, found, "byte {byte}");
    }
    let mut beyond = good.clone();
    beyond[44..52].copy_from_slice(&(geometry.columns() + 1).to_le_bytes());
    assert!(matches!(parse(2, &beyond), Err(Error::ShardColumns { .. })));
    beyond[44..52].copy_from_slice(&0u64.to_le_bytes());
    assert!(matches!(parse(2, &beyond), Err(Error::ShardColumns { .. })));
    // Two heads that do not agree.
    let mut mixed = good.clone();
    mixed[one + 4..][..32].fill(8);
    assert!(matches!(parse(2, &mixed), Err(Error::ShardVersion { .. })));
    let mut mixed = good.clone();
    mixed[one + 36..][..8].copy_from_slice(&1u64.to_le_bytes());
    assert!(matches!(parse(2, &mixed), Err(Error::ShardColumns { .. })));
    let mut large = good.clone();
    large[52..90].fill(0xff);
    assert!(matches!(parse(2, &large), Err(Error::Residue { what: "partial answers" })));
    // Whole parts that do not belong together.
    let front = Engine::without_rows(geometry.clone(), VERSION.into(), &spec).unwrap();
    let expansions = front.expansions(&asked);
    let mut out = vec![0; 2 * geometry.response_bytes()];
    let mut join = |parts: [Vec<u8>; 3]| {
        let parts = parts.map(|bytes| Partial::parse(geometry, 2, &bytes).unwrap());
        front.combine(&expansions, parts.into(), &mut out)
    };
    join([0, 1, 2].map(|index| part(index, VERSION))).unwrap();
    let twice = join([part(0, VERSION), good.clone(), good]);
    assert!(matches!(twice, Err(Error::ShardColumns { .. })));
    let skewed = join([part(0, VERSION), part(1, VERSION), part(2, [8; 32])]);
    assert!(matches!(skewed, Err(Error::ShardVersion { .. })));
}

#[test]
fn a_shard_that_is_missing_doubled_or_of_another_version_is_an_error() {
    let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
    let world = World::new(ParameterSet::N256Test, 9000, 64, &spec);
    let shard = |index, version: [u8; 32]| {
        with_rows(&world.table, &world.geometry, |copy| {
            let geometry = world.geometry.clone();
            Engine::shard_from_rows(geometry, Version::from(version), (index, 3), &spec, copy)
        })
        .unwrap()
    };
    let shards = [0, 1, 2].map(|index| shard(index, VERSION));
    let (queries, _) = world.client.query(&[5], 1).unwrap();
    let asked = [world.server.accept(&world.keys, &queries[0]).unwrap()];
    let expansions = shards[0].expansions(&asked);
    let mut out = vec![0; world.geometry.response_bytes()];
    let part = |index: usize| shards[index].partial(&expansions).unwrap();
    let mut combine = |parts| shards[0].combine(&expansions, parts, &mut out);
    let ends = part(1).columns();
    let error = combine(vec![part(0), part(2)]).unwrap_err();
    assert!(
        matches!(&error, Error::ShardColumns { expected, found: Some(found) }
        if expected.start == ends.start && found.start == ends.end),
        "{error}"
    );
    let error = combine(vec![part(0), part(1)]).unwrap_err();
    assert!(matches!(error, Error::ShardColumns { found: None, .. }), "{error}");
    let error = combine(vec![part(0), part(1), part(1), part(2)]).unwrap_err();
    assert!(matches!(error, Error::ShardColumns { .. }), "{error}");
    let other = shard(2, [8; 32]).partial(&expansions).unwrap();
    let error = combine(vec![part(0), part(1), other]).unwrap_err();
    assert!(matches!(error, Error::ShardVersion { .. }), "{error}");
    combine(vec![part(2), part(0), part(1)]).unwrap();
}

#[test]
fn the_offered_sets_fail_less_often_than_once_in_2_to_the_40() {
    for set in ParameterSet::ALL {
        for (rows, row_bytes) in [(1, 16), (1 << 20, 256), (1 << 22, 256), (1 << 27, 64)] {
            let geometry = Geometry::new(set, TableShape::new(rows, row_bytes).unwrap()).unwrap();
            let failure = geometry.prediction().failure_log2();
            assert!(failure <= Geometry::FAILURE_LOG2_MAX, "{} {rows} {failure}", set.name());
            assert!(geometry.columns() <= 1 << geometry.games());
            assert_eq!(Geometry::from_bytes(&geometry.to_bytes()).unwrap(), geometry);
        }
    }
}

#[test]
fn sizes_of_the_default_set_are_within_their_bars() {
    let shape = TableShape::new(1 << 22, 256).unwrap();
    let geometry = Geometry::new(ParameterSet::N4096128, shape).unwrap();
    assert!(geometry.key_bytes() <= 1_250_000, "{}", geometry.key_bytes());
    assert!(geometry.query_bytes() <= 33_000, "{}", geometry.query_bytes());
    assert!(geometry.response_bytes() <= 29_000, "{}", geometry.response_bytes());
    let ratio = geometry.prepared_bytes() as f64 / shape.table_bytes() as f64;
    assert!(ratio < 3.5, "{ratio}");
}

#[test]
fn what_is_no_key_or_query_of_this_table_is_refused() {
    let world = World::new(ParameterSet::N256Test, 100, 64, &OnionSpec::new());
    let (server, client) = (&world.server, &world.client);
    assert_eq!(client.key_id(), KeyId::of(client.keys()));
    let keys = client.keys();
    let accept = |bytes: &[u8]| server.accept_keys(bytes).unwrap_err();
    assert!(matches!(accept(&[]), Error::KeyBytes { found: 0, .. }));
    assert!(matches!(accept(&keys[..keys.len() - 1]), Error::KeyBytes { .. }));
    assert!(matches!(accept(&[keys, &[0]].concat()), Error::KeyBytes { .. }));
    for byte in 0..4 {
        let mut other = keys.to_vec();
        other[byte] ^= 1;
        let error = accept(&other);
        let Error::KeyParameters { expected, found } = &error else { panic!("{byte}: {error}") };
        assert_ne!(expected, found, "byte {byte}");
    }
    let mut large = keys.to_vec();
    large[36..].fill(0xff);
    assert!(matches!(accept(&large), Error::Residue { what: "keys" }));

    let (queries, pending) = client.query(&[3], 1).unwrap();
    let query = &queries[0];
    let accept = |bytes: &[u8]| server.accept(&world.keys, bytes).map(drop).unwrap_err();
    assert!(matches!(accept(&[]), Error::QueryBytes { found: 0, .. }));
    assert!(matches!(accept(&query[1..]), Error::QueryBytes { .. }));
    // A changed header is told as what it is, not as a length.
    for byte in 0..4 {
        let mut other = query.clone();
        other[byte] ^= 1;
        let error = accept(&other);
        let Error::QueryParameters { expected, found } = &error else { panic!("{byte}: {error}") };
        assert_ne!(expected, found, "byte {byte}");
    }
    let mut large = query.clone();
    large[36..].fill(0xff);
    assert!(matches!(accept(&large), Error::Residue { what: "query" }));

    let deeper = World::new(ParameterSet::N256Test, 100_000, 64, &OnionSpec::new());
    assert!(deeper.geometry.levels() > world.geometry.levels());
    let error = deeper.server.accept(&world.keys, query).map(drop).unwrap_err();
    assert!(matches!(error, Error::KeyParameters { .. }), "{error}");

    assert!(matches!(client.query(&[100], 1), Err(Error::IdRange { id: 100, rows: 100 })));
    assert!(matches!(client.query(&[1, 2], 1), Err(Error::TooManyIds { ids: 2, max_ids: 1 })));
    let error = client.decode(&pending, Version::from([1; 32]), &[]).unwrap_err();
    assert!(matches!(error, Error::VersionChanged { .. }));
    let error = client.decode(&pending, VERSION.into(), &[0; 5]).unwrap_err();
    assert!(matches!(error, Error::ResponseBytes { found: 5, .. }));
    let shape = TableShape::new(10, (32 << 10) + 1).unwrap();
    let error = Geometry::new(ParameterSet::N4096128, shape).unwrap_err();
    assert!(matches!(error, Error::RowBytes { row_bytes: 32_769 }));
    for bytes in [&[][..], &[0; 16], &[1; 16], &[0; 17]] {
        assert!(matches!(Geometry::from_bytes(bytes), Err(Error::Geometry { .. })));
    }
}

#[test]
fn padding_is_answered_and_dropped() {
    let world = World::new(ParameterSet::N256Test, 50, 32, &OnionSpec::new());
    let (queries, pending) = world.client.query(&[49], 4).unwrap();
    assert_eq!(queries.len(), 4);
    let accept = |query: &Vec<u8>| world.server.accept(&world.keys, query).unwrap();
    let asked: Vec<_> = queries.iter().map(accept).collect();
    let mut responses = vec![0; 4 * world.geometry.response_bytes()];
    world.server.answer(&asked, &mut responses).unwrap();
    assert_eq!(world.client.decode(&pending, VERSION.into(), &responses).unwrap(), world.row(49));
    let error = world.server.answer(&asked, &mut responses[1..]).unwrap_err();
    assert!(matches!(error, Error::ResponseBytes { .. }));
}

#[test]
fn clients_with_different_keys_share_a_pass() {
    let world = World::new(ParameterSet::N256Test, 2000, 64, &OnionSpec::new());
    let ids = [1999, 0, 77, 1024, 5];
    let others: Vec<Client> =
        ids.iter().map(|_| Client::new(world.geometry.clone(), VERSION.into()).unwrap()).collect();
    let mut asked = Vec::new();
    let mut pendings = Vec::new();
    for (client, &id) in others.iter().zip(&ids) {
        let keys = Arc::new(world.server.accept_keys(client.keys()).unwrap());
        let (queries, pending) = client.query(&[id], 1).unwrap();
        asked.push(world.server.accept(&keys, &queries[0]).unwrap());
        pendings.push(pending);
    }
    let response_bytes = world.geometry.response_bytes();
    let mut responses = vec![0; ids.len() * response_bytes];
    world.server.answer(&asked, &mut responses).unwrap();
    for (((client, pending), &id), response) in
        others.iter().zip(&pendings).zip(&ids).zip(responses.chunks_exact(response_bytes))
    {
        assert_eq!(client.decode(pending, VERSION.into(), response).unwrap(), world.row(id));
    }
}

/// Ciphertexts wait for the next pass instead of being freed: as many as one pass needs, however many
/// passes there were. Each query once left one more behind.
#[test]
fn ciphertexts_kept_between_passes_do_not_grow_with_queries() {
    let (mut one, mut alone) = (0, 0);
    for (threads, batch) in [(1, 1), (1, 5), (1, 4), (3, 4)] {
        let shape = TableShape::new(2000, 64).unwrap();
        let geometry = Geometry::new(ParameterSet::N256Test, shape).unwrap();
        let (table, spec) = (bytes(shape), OnionSpec { threads, ..OnionSpec::new() });
        let engine = with_rows(&table, &geometry, |copy| {
            Engine::from_rows(geometry.clone(), VERSION.into(), &spec, copy)
        });
        let engine = Arc::new(engine.unwrap());
        let server = Server::new(Arc::clone(&engine) as Arc<dyn OnionBackend>);
        let client = Client::new(geometry.clone(), VERSION.into()).unwrap();
        let keys = Arc::new(server.accept_keys(client.keys()).unwrap());
        let (queries, _) = client.query(&vec![7; batch], batch).unwrap();
        let accept = |query: &Vec<u8>| server.accept(&keys, query).unwrap();
        let asked: Vec<_> = queries.iter().map(accept).collect();
        let mut responses = vec![0; batch * geometry.response_bytes()];
        let mut pass = || {
            server.answer(&asked, &mut responses).unwrap();
            let (idle, lent) = engine.spare_counts();
            assert_eq!(lent, 0, "all that was taken was given back");
            idle
        };
        let first = (0..10).map(|_| pass()).max().unwrap();
        let last = (0..100).map(|_| pass()).max().unwrap();
        if threads == 1 {
            one = if batch == 1 { last } else { one };
            alone = last;
            assert_eq!(last, first, "{batch} queries");
        } else {
            // How much is needed at once depends on which threads meet, which the machine decides: each
            // beside the first adds at most what a query alone needs. A leak adds 400.
            let most = alone + (threads - 1) * one;
            assert!(last <= most, "{last} of {most}: {threads} threads, {batch} queries");
        }
    }
}

#[test]
fn one_upload_serves_tables_of_fewer_levels() {
    let shape = |rows| TableShape::new(rows, 64).unwrap();
    let of =
        |rows, levels| Geometry::with_levels(ParameterSet::N256Test, shape(rows), levels).unwrap();
    let deep = World::with(of(2000, 7), &OnionSpec::new());
    for (rows, levels) in [(700, 7), (700, 6), (900, 5)] {
        let mut shallow = World::with(of(rows, levels), &OnionSpec::new());
        let own = std::mem::replace(
            &mut shallow.client,
            deep.client.of_table(shallow.geometry.clone(), VERSION.into()).unwrap(),
        );
        assert_eq!(shallow.client.key_id(), deep.client.key_id());
        // The keys that the server holds for the deeper table.
        let own_keys = std::mem::replace(&mut shallow.keys, Arc::clone(&deep.keys));
        shallow.check(&[0, 1, rows - 1, rows / 2]);
        // The table's own keys say the same.
        let others = World { client: own, keys: own_keys, ..shallow };
        others.check(&[0, 1, rows - 1, rows / 2]);
        // Keys of fewer levels than a table has answer nothing there.
        if levels < 7 {
            let (queries, _) = deep.client.query(&[1], 1).unwrap();
            let refused = deep.server.accept(&others.keys, &queries[0]);
            assert!(matches!(refused, Err(Error::KeyParameters { .. })));
            let deeper = others.client.of_table(deep.geometry.clone(), VERSION.into());
            assert!(matches!(deeper, Err(Error::KeyParameters { .. })));
        }
    }
    // Which depth it is, the keys say themselves; another depth than any table's is refused.
    let held = [of(700, 5), of(2000, 7)];
    for geometry in &held {
        let keys = Client::new(geometry.clone(), VERSION.into()).unwrap().keys().to_vec();
        assert!(EvaluationKeys::parse_any(&held, &keys).is_ok());
        assert!(EvaluationKeys::parse_any(&held, &keys[..keys.len() - 1]).is_err());
    }
    let other = Client::new(of(700, 6), VERSION.into()).unwrap();
    let refused = EvaluationKeys::parse_any(&held, other.keys());
    assert!(matches!(refused, Err(Error::KeyParameters { .. })));
    for bytes in [&[][..], &[1; 2], &[1; 40]] {
        assert!(EvaluationKeys::parse_any(&held, bytes).is_err());
    }
}
