//! Two requests, two answers, a bag's rows: every backend and kind of bin.

use std::sync::Arc;

use hushtable_pir::batch::{
    BatchBackend, BatchEngine, BatchKeys, Client, Geometry, Server, reference,
};
use hushtable_pir::dpf::{Reply, Side};
use hushtable_pir::{EngineSpec, Error, Platform, PrgKind};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec, Plan, Planner};
use hushtable_table::{DType, Shape, Table, Version};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

const ROWS: u64 = 3_000;

fn part(rows: u64, bins: u32, queries: u32, hashes: u32, companions: u32) -> PartSpec {
    PartSpec { rows, bins, queries, hashes, companions }
}

/// A layout with random hot rows and companions.
fn layout(table: &Table, hot: Option<PartSpec>, full: Option<PartSpec>) -> Arc<Layout> {
    let mut rng = ChaCha12Rng::seed_from_u64(5);
    let rows = table.rows() as u32;
    let mut random = |part: Option<PartSpec>| -> Vec<u32> {
        let count = part.map_or(0, |part| part.rows * u64::from(part.companions));
        (0..count).map(|_| rng.random_range(0..rows)).collect()
    };
    let map = LayoutMap {
        hot_ids: hot.map_or(Vec::new(), |hot| (0..hot.rows as u32).map(|i| rows - 1 - i).collect()),
        hot_companions: random(hot),
        full_companions: random(full),
    };
    let spec = LayoutSpec { hot, full, ids_max: 200, drop: DropRule::MostFrequent, seed: [3; 32] };
    Arc::new(Layout::new(spec, map, table.shape(), table.version()).unwrap())
}

fn table(dim: usize) -> Table {
    let mut rng = ChaCha12Rng::seed_from_u64(6);
    let values: Vec<f32> = (0..ROWS as usize * dim).map(|_| rng.random()).collect();
    Table::from_weight("films", ROWS, dim, DType::F32, &values).unwrap()
}

/// Layouts with bins of one leaf (whole, short) and of several, alone and together.
fn layouts(table: &Table) -> Vec<Arc<Layout>> {
    [
        (None, Some(part(ROWS, 40, 1, 1, 0))),
        (None, Some(part(ROWS, 7, 2, 1, 1))),
        (None, Some(part(ROWS, 2, 3, 3, 0))),
        (None, Some(part(ROWS, 1, 1, 1, 0))),
        (Some(part(100, 10, 1, 1, 2)), None),
        (Some(part(1_000, 1, 9, 1, 0)), Some(part(ROWS, 33, 1, 3, 0))),
        (Some(part(5, 5, 1, 2, 0)), Some(part(ROWS, 3_000, 1, 1, 0))),
    ]
    .into_iter()
    .map(|(hot, full)| layout(table, hot, full))
    .collect()
}

fn engine(table: &Table, layout: &Layout, platform: Platform) -> Arc<BatchEngine> {
    let spec = EngineSpec { threads: 2, platform, ..EngineSpec::default() };
    Arc::new(BatchEngine::from_table(table, layout, &spec).unwrap())
}

fn bag(rng: &mut ChaCha12Rng, count: usize) -> Vec<u64> {
    (0..count).map(|_| rng.random_range(0..ROWS)).collect()
}

#[test]
fn every_backend_returns_the_rows_that_the_plan_promises() {
    let table = table(11);
    let mut rng = ChaCha12Rng::seed_from_u64(7);
    for layout in layouts(&table) {
        let planner = Planner::new(Arc::clone(&layout));
        let geometry = Geometry::new(&layout);
        for platform in Platform::available() {
            let engine = engine(&table, &layout, platform);
            let servers = Side::BOTH.map(|side| Server::new(side, engine.clone()));
            // One request alone takes another path than several; two generators share no pass.
            for requests in [1, 2, 9] {
                let mut sent = Vec::new();
                let (mut left, mut right) = (Vec::new(), Vec::new());
                for i in 0..requests {
                    let prg = if i % 3 == 2 { PrgKind::ChaCha12 } else { PrgKind::Aes128 };
                    let ids = bag(&mut rng, [0, 1, 60, 200][i % 4]);
                    let plan = planner.plan_vartime(&ids, 0).unwrap();
                    let client = Client::new(geometry.clone(), prg);
                    let (request, pending) = client.query(&plan).unwrap();
                    left.push(servers[0].accept(request.left.clone()).unwrap());
                    right.push(servers[1].accept(request.right.clone()).unwrap());
                    sent.push((ids, plan, pending));
                }
                let answer_bytes = geometry.answer_bytes();
                let mut answers = [0, 1].map(|_| vec![0; requests * answer_bytes]);
                servers[0].answer(&left, &mut answers[0]).unwrap();
                servers[1].answer(&right, &mut answers[1]).unwrap();
                for (i, (ids, plan, pending)) in sent.iter().enumerate() {
                    let [l, r] = answers.each_ref().map(|answers| Reply {
                        version: layout.version(),
                        answers: &answers[i * answer_bytes..][..answer_bytes],
                    });
                    let entries = pending.combine(l, r).unwrap();
                    let rows = pending.rows(plan, &entries, table.row_bytes());
                    for ((&id, found), row) in
                        ids.iter().zip(&plan.found).zip(rows.chunks(table.row_bytes()))
                    {
                        let mut expected = vec![0; table.row_bytes()];
                        if found.is_some() {
                            table.copy_rows(id, &mut expected).unwrap();
                        }
                        assert_eq!(row, expected, "row {id}, {requests} requests, {layout:?}");
                    }
                }
            }
        }
    }
}

#[test]
fn the_engine_agrees_with_the_reference() {
    let table = table(2);
    for layout in layouts(&table) {
        let geometry = Geometry::new(&layout);
        let engine = engine(&table, &layout, Platform::detect());
        let (request, _) = Client::new(geometry.clone(), PrgKind::Aes128)
            .query(&Plan::empty(geometry.keys()))
            .unwrap();
        let bytes = [(Side::Left, request.left.clone()), (Side::Right, request.right.clone())];
        for (side, bytes) in bytes {
            let keys = BatchKeys::parse(&geometry, side, bytes).unwrap();
            let mut answer = vec![0; geometry.answer_bytes()];
            engine.answer(std::slice::from_ref(&keys), &mut answer).unwrap();
            // The first, a middle and the last key: their entries by the definition.
            for key in [0, geometry.keys() / 2, geometry.keys() - 1] {
                assert_eq!(entry(&geometry, &answer, key), expected(&table, &layout, &keys, key));
            }
        }
    }
}

#[test]
fn the_bins_of_shards_make_the_answer_of_all() {
    let table = table(2);
    for layout in layouts(&table) {
        let geometry = Geometry::new(&layout);
        let whole = engine(&table, &layout, Platform::detect());
        let spec = EngineSpec { threads: 2, ..EngineSpec::default() };
        let plan = Plan::empty(geometry.keys());
        let client = Client::new(geometry.clone(), PrgKind::Aes128);
        for count in [1, 2, 7] {
            let bins = |index| geometry.bins_of_shard(index, count);
            let shards: Vec<_> = (0..count)
                .map(|index| BatchEngine::from_bins(&table, &layout, &bins(index), &spec).unwrap())
                .collect();
            let (request, _) = client.query(&plan).unwrap();
            for (side, bytes) in
                [(Side::Left, request.left.clone()), (Side::Right, request.right.clone())]
            {
                let keys = [BatchKeys::parse(&geometry, side, bytes).unwrap()];
                let mut expected = vec![0; geometry.answer_bytes()];
                whole.answer(&keys, &mut expected).unwrap();
                let (mut put, mut sum) = (vec![7; expected.len()], vec![0; expected.len()]);
                for (index, shard) in shards.iter().enumerate() {
                    let mut own = vec![1; expected.len()];
                    shard.answer(&keys, &mut own).unwrap();
                    sum.iter_mut().zip(&own).for_each(|(sum, own)| *sum ^= own);
                    for range in geometry.answers_of_bins(&bins(index)) {
                        put[range.clone()].copy_from_slice(&own[range]);
                    }
                }
                assert_eq!((&put, &sum), (&expected, &expected), "{count} shards, {layout:?}");
            }
        }
        for bad in [
            vec![],
            vec![0..1; geometry.parts().len() + 1],
            vec![0..usize::MAX; geometry.parts().len()],
        ] {
            assert!(matches!(
                BatchEngine::from_bins(&table, &layout, &bad, &spec).err(),
                Some(Error::BinRange { .. })
            ));
        }
    }
}

/// Key number `key`'s entry in an answer.
fn entry<'a>(geometry: &Geometry, answer: &'a [u8], key: usize) -> &'a [u8] {
    let (mut first, mut start) = (0, 0);
    for part in geometry.parts() {
        if key < first + part.keys() {
            return &answer[start + (key - first) * part.entry_bytes..][..part.entry_bytes];
        }
        first += part.keys();
        start += part.keys() * part.entry_bytes;
    }
    unreachable!("a key of the request")
}

/// The XOR of the bin's entries whose share bit is set.
fn expected(table: &Table, layout: &Layout, keys: &BatchKeys, key: usize) -> Vec<u8> {
    let geometry = Geometry::new(layout);
    let mut first = 0;
    for part in layout.parts() {
        if key >= first + part.keys() {
            first += part.keys();
            continue;
        }
        let bin = ((key - first) / part.queries()) as u32;
        let mut sum = vec![0; table.row_bytes() * part.entry_rows()];
        for index in 0..part.spec().rows {
            for place in part.places(index).filter(|place| place.bin == bin) {
                if reference::share(&geometry, keys, key, place.offset as usize) == 0 {
                    continue;
                }
                let mut row = vec![0; table.row_bytes()];
                let ids = layout.entry_ids(part, index);
                for (id, sum) in ids.zip(sum.chunks_exact_mut(table.row_bytes())) {
                    table.copy_rows(id, &mut row).unwrap();
                    sum.iter_mut().zip(&row).for_each(|(sum, byte)| *sum ^= byte);
                }
            }
        }
        return sum;
    }
    unreachable!("a key of the request")
}

#[test]
fn an_empty_bag_and_a_full_one_are_the_same_size() {
    let table = table(4);
    for layout in layouts(&table) {
        let planner = Planner::new(Arc::clone(&layout));
        let geometry = Geometry::new(&layout);
        let client = Client::new(geometry.clone(), PrgKind::Aes128);
        let sizes = |ids: &[u64]| {
            let plan = planner.plan_vartime(ids, 0).unwrap();
            let (request, _) = client.query(&plan).unwrap();
            (request.left.len(), request.right.len())
        };
        let full: Vec<u64> = (0..200).collect();
        let expected = Side::BOTH.map(|side| geometry.request_bytes(side));
        assert_eq!(sizes(&[]), (expected[0], expected[1]));
        assert_eq!(sizes(&full), sizes(&[]));
        assert_eq!(sizes(&[7; 200]), sizes(&[]));
    }
}

#[test]
fn requests_that_are_not_by_the_layout_are_refused() {
    let table = table(4);
    let layout = layout(&table, Some(part(64, 4, 1, 1, 0)), Some(part(ROWS, 2, 1, 1, 0)));
    let geometry = Geometry::new(&layout);
    let client = Client::new(geometry.clone(), PrgKind::Aes128);
    let (request, _) = client.query(&Plan::empty(geometry.keys())).unwrap();
    let good = request.right.clone();
    let refusal = |edit: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        edit(&mut bytes);
        BatchKeys::parse(&geometry, Side::Right, bytes).err()
    };
    let expected = geometry.request_bytes(Side::Right);
    assert_eq!(refusal(&|_| ()), None);
    for found in [0, 3, 19, 20, expected - 1] {
        let error = Error::RequestBytes { expected, found };
        assert_eq!(refusal(&|bytes| bytes.truncate(found)), Some(error));
    }
    let error = Error::RequestBytes { expected, found: expected + 1 };
    assert_eq!(refusal(&|bytes| bytes.push(0)), Some(error));
    let error = Error::KeyFormat { expected: 1, found: 2 };
    assert_eq!(refusal(&|bytes| bytes[0] = 2), Some(error));
    let error = Error::Side { expected: Side::Right, found: Side::Left };
    assert_eq!(refusal(&|bytes| bytes[1] = 0), Some(error));
    assert_eq!(refusal(&|bytes| bytes[1] = 9), Some(Error::UnknownSide { found: 9 }));
    assert_eq!(refusal(&|bytes| bytes[2] = 99), Some(Error::UnknownPrg { found: 99 }));
    assert_eq!(refusal(&|bytes| bytes[3] = 1), Some(Error::KeyPadding));
    // The last key: two levels of right control bits in one byte before the leaf's correction.
    let leaf = geometry.parts()[1].leaf_rows / 8;
    assert_eq!(refusal(&|bytes| bytes[expected - leaf - 1] |= 0x80), Some(Error::KeyPadding));
}

#[test]
fn what_belongs_to_another_layout_or_table_is_refused() {
    let table = table(4);
    let small = layout(&table, None, Some(part(ROWS, 2, 1, 1, 0)));
    let large = layout(&table, None, Some(part(ROWS, 3, 1, 1, 0)));
    let client = Client::new(Geometry::new(&small), PrgKind::Aes128);
    let plan = Plan::empty(Geometry::new(&large).keys());
    assert_eq!(client.query(&plan).err(), Some(Error::Plan { expected: 2, found: 3 }));

    let other = Table::from_weight("other", 2, 1, DType::F32, &[1.0, 2.0]).unwrap();
    let spec = EngineSpec::default();
    let error = BatchEngine::from_table(&other, &small, &spec).err();
    assert!(matches!(error, Some(Error::LayoutTable { .. })), "{error:?}");

    let engine = engine(&table, &small, Platform::detect());
    let error = engine.answer(&[], &mut [0]).err();
    assert_eq!(error, Some(Error::AnswerBytes { expected: 0, found: 1 }));
}

proptest! {
    #[test]
    fn any_bytes_are_a_request_or_an_error(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let shape = Shape::new(600, 1, DType::F32).unwrap();
        let spec = LayoutSpec {
            hot: None,
            full: Some(part(600, 1, 2, 1, 0)),
            ids_max: 1,
            drop: DropRule::Earliest,
            seed: [0; 32],
        };
        let version = Version::from([0; 32]);
        let layout = Layout::new(spec, LayoutMap::default(), shape, version).unwrap();
        let geometry = Geometry::new(&layout);
        for side in Side::BOTH {
            let _ = BatchKeys::parse(&geometry, side, bytes.clone());
        }
    }
}
