//! Whole inferences on the host shim, and with HUSHTABLE_TEST_DEVICE=cuda on a GPU: byte for byte what
//! the engine for processors answers.

use std::sync::Arc;

use hushtable_gpu::shim::{Shim, under_test};
use hushtable_gpu::{BinsSpec, Error, GpuBatchEngine};
use hushtable_pir::batch::{BatchBackend, BatchEngine, BatchKeys, Client, Geometry};
use hushtable_pir::dpf::{Reply, Side};
use hushtable_pir::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec, Planner};
use hushtable_pir::{DType, EngineSpec, PrgKind, Table};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

const ROWS: u64 = 3_000;

fn part(rows: u64, bins: u32, queries: u32, hashes: u32, companions: u32) -> PartSpec {
    PartSpec { rows, bins, queries, hashes, companions }
}

/// A layout with random hot rows and companions.
fn layout(table: &Table, hot: Option<PartSpec>, full: Option<PartSpec>) -> Arc<Layout> {
    let mut random = ChaCha12Rng::seed_from_u64(5);
    let rows = table.rows() as u32;
    let mut companions = |part: Option<PartSpec>| -> Vec<u32> {
        let count = part.map_or(0, |part| part.rows * u64::from(part.companions));
        (0..count).map(|_| random.random_range(0..rows)).collect()
    };
    let map = LayoutMap {
        hot_ids: hot.map_or(Vec::new(), |hot| (0..hot.rows as u32).map(|i| rows - 1 - i).collect()),
        hot_companions: companions(hot),
        full_companions: companions(full),
    };
    let spec = LayoutSpec { hot, full, ids_max: 40, drop: DropRule::MostFrequent, seed: [3; 32] };
    Arc::new(Layout::new(spec, map, table.shape(), table.version()).expect("a layout"))
}

fn table(rows: u64, dim: usize) -> Table {
    let mut random = ChaCha12Rng::seed_from_u64(6);
    let values: Vec<f32> = (0..rows as usize * dim).map(|_| random.random()).collect();
    Table::from_weight("films", rows, dim, DType::F32, &values).expect("a table")
}

/// Requests of both sides, and what is expected of them.
struct Asked {
    requests: [Vec<BatchKeys>; 2],
    ids: Vec<Vec<u64>>,
    plans: Vec<hushtable_pir::layout::Plan>,
    pending: Vec<hushtable_pir::batch::Pending>,
}

fn ask(layout: &Arc<Layout>, rows: u64, prgs: &[PrgKind], count: usize, seed: u64) -> Asked {
    let mut random = ChaCha12Rng::seed_from_u64(seed);
    let planner = Planner::new(Arc::clone(layout));
    let geometry = Geometry::new(layout);
    let mut asked = Asked {
        requests: Default::default(),
        ids: Vec::new(),
        plans: Vec::new(),
        pending: Vec::new(),
    };
    for i in 0..count {
        let ids = [40, 0, 1, 9][i % 4];
        let ids: Vec<u64> = (0..ids).map(|_| random.random_range(0..rows)).collect();
        let plan = planner.plan_vartime(&ids, 0).expect("a plan");
        let client = Client::new(geometry.clone(), prgs[i % prgs.len()]);
        let (request, pending) = client.query(&plan).expect("a request");
        for (side, bytes) in [(Side::Left, &request.left), (Side::Right, &request.right)] {
            let keys = BatchKeys::parse(&geometry, side, bytes.clone()).expect("a request");
            asked.requests[usize::from(side.id())].push(keys);
        }
        asked.ids.push(ids);
        asked.plans.push(plan);
        asked.pending.push(pending);
    }
    asked
}

/// Holds an engine to the processor's answers, and both sides' to the rows.
fn check(gpu: &GpuBatchEngine, table: &Table, layout: &Layout, asked: &Asked) {
    let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
    let cpu = BatchEngine::from_table(table, layout, &spec).expect("it loads");
    let answer_bytes = cpu.geometry().answer_bytes();
    let said = format!("{layout:?}, {} requests", asked.ids.len());
    let answers = asked.requests.each_ref().map(|requests| {
        let mut found = vec![0xee; requests.len() * answer_bytes];
        gpu.answer(requests, &mut found).expect(&said);
        let mut expected = vec![0; found.len()];
        cpu.answer(requests, &mut expected).expect(&said);
        assert!(found == expected, "{said}");
        found
    });
    let row_bytes = table.row_bytes();
    for (i, pending) in asked.pending.iter().enumerate() {
        let [left, right] = answers.each_ref().map(|answers| Reply {
            version: layout.version(),
            answers: &answers[i * answer_bytes..][..answer_bytes],
        });
        let entries = pending.combine(left, right).expect(&said);
        let rows = pending.rows(&asked.plans[i], &entries, row_bytes);
        let found = asked.plans[i].found.iter().zip(rows.chunks(row_bytes));
        for (&id, (found, row)) in asked.ids[i].iter().zip(found) {
            let mut expected = vec![0; row_bytes];
            if found.is_some() {
                table.copy_rows(id, &mut expected).expect("a row");
            }
            assert_eq!(row, expected, "{said}: row {id}");
        }
    }
}

fn gpu(seed: u64, table: &Table, layout: &Layout, spec: &BinsSpec) -> GpuBatchEngine {
    GpuBatchEngine::from_table(under_test(seed), table, layout, spec).expect("it fits")
}

/// Bins of one leaf (whole, short) and of several (a power of two and not), parts alone and together,
/// several keys a bin, rows in three bins, companions.
#[test]
fn every_shape_of_a_part_is_answered() {
    let table = table(ROWS, 11);
    let shapes = [
        (None, Some(part(ROWS, 40, 1, 1, 0))),
        (None, Some(part(ROWS, 7, 2, 1, 1))),
        (None, Some(part(ROWS, 2, 3, 3, 0))),
        (None, Some(part(ROWS, 1, 1, 1, 0))),
        (Some(part(100, 10, 1, 1, 2)), None),
        (Some(part(1_000, 1, 9, 1, 0)), Some(part(ROWS, 33, 1, 3, 0))),
        (Some(part(5, 5, 1, 2, 0)), Some(part(ROWS, 300, 1, 1, 0))),
    ];
    for (number, (hot, full)) in shapes.into_iter().enumerate() {
        let layout = layout(&table, hot, full);
        let gpu = gpu(number as u64, &table, &layout, &BinsSpec::default());
        for count in [1, 3, 9] {
            let asked = ask(&layout, ROWS, &[PrgKind::Aes128], count, number as u64);
            check(&gpu, &table, &layout, &asked);
        }
    }
}

#[test]
fn every_generator_is_answered_in_one_batch() {
    let table = table(2_000, 3);
    let layout = layout(&table, Some(part(40, 2, 1, 1, 0)), Some(part(2_000, 3, 1, 1, 0)));
    let gpu = gpu(1, &table, &layout, &BinsSpec::default());
    check(&gpu, &table, &layout, &ask(&layout, 2_000, &PrgKind::ALL, 12, 1));
    // Both sides' requests in one batch take a pass each.
    let mut asked = ask(&layout, 2_000, &[PrgKind::ChaCha12], 3, 2);
    let right = std::mem::take(&mut asked.requests[1]);
    let mut mixed = std::mem::take(&mut asked.requests[0]);
    mixed.extend(right);
    let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
    let cpu = BatchEngine::from_table(&table, &layout, &spec).expect("it loads");
    let mut answers = [0, 1].map(|fill| vec![fill; 6 * cpu.geometry().answer_bytes()]);
    cpu.answer(&mixed, &mut answers[0]).expect("answers");
    gpu.answer(&mixed, &mut answers[1]).expect("answers");
    assert_eq!(answers[0], answers[1]);
    gpu.answer(&[], &mut []).expect("nothing");
}

#[test]
fn wide_rows_have_several_strips_and_many_requests_several_blocks() {
    // 600 bytes: 38 vectors, two strips. 70 requests: two blocks of keys, the second nearly empty.
    let table = table(130, 150);
    let layout = layout(&table, None, Some(part(130, 2, 1, 1, 0)));
    let gpu = gpu(2, &table, &layout, &BinsSpec::default());
    check(&gpu, &table, &layout, &ask(&layout, 130, &[PrgKind::ChaCha20], 70, 3));
}

#[test]
fn batches_of_more_requests_than_a_pass_has() {
    let table = table(500, 2);
    let layout = layout(&table, None, Some(part(500, 5, 1, 1, 0)));
    let spec = BinsSpec { batch_requests_max: 3, ..BinsSpec::default() };
    let gpu = gpu(4, &table, &layout, &spec);
    assert_eq!(gpu.batch_requests_best(), 3);
    check(&gpu, &table, &layout, &ask(&layout, 500, &[PrgKind::ChaCha20], 8, 5));
    assert_eq!(
        gpu.description(),
        format!("{}, 5 bins, 0.0 MiB resident", gpu.device().facts().name)
    );
}

#[test]
fn what_is_timed_is_what_is_answered() {
    let table = table(500, 2);
    let layout = layout(&table, None, Some(part(500, 5, 1, 1, 0)));
    let gpu = gpu(4, &table, &layout, &BinsSpec { batch_requests_max: 2, ..BinsSpec::default() });
    gpu.warm_up(PrgKind::ChaCha20).expect("kernels");
    let asked = ask(&layout, 500, &[PrgKind::ChaCha20], 5, 5);
    let bytes = 5 * gpu.geometry().answer_bytes();
    let mut answers = [vec![0; bytes], vec![1; bytes]];
    gpu.answer(&asked.requests[0], &mut answers[0]).expect("answers");
    let ms = gpu.answer_timed(&asked.requests[0], &mut answers[1]).expect("answers");
    assert!(answers[0] == answers[1] && ms > 0.0, "{ms} ms");
    let two = ask(&layout, 500, &[PrgKind::ChaCha20, PrgKind::Aes128], 2, 5);
    let bytes = 2 * gpu.geometry().answer_bytes();
    let error = gpu.answer_timed(&two.requests[0], &mut vec![0; bytes]).expect_err("two kinds");
    assert!(matches!(error, Error::Geometry { .. }), "{error}");
}

#[test]
fn bins_that_do_not_fit_are_refused_with_both_numbers() {
    let table = table(ROWS, 8);
    let layout = layout(&table, None, Some(part(ROWS, 5, 1, 1, 0)));
    let device = Shim::with_memory(0, 64 << 10);
    let refused = GpuBatchEngine::from_table(device, &table, &layout, &BinsSpec::default());
    let Err(Error::DeviceMemory { asked, free }) = refused else { panic!("{refused:?}") };
    assert!(free == 64 << 10 && asked > 32 * ROWS, "{asked} of {free}");
    // With room for few requests, passes are of few.
    let spec = BinsSpec { memory_bytes_max: Some(160 << 10), ..BinsSpec::default() };
    let small = gpu(0, &table, &layout, &spec);
    let requests = small.batch_requests_best();
    assert!((1..64).contains(&requests), "{requests}");
    check(&small, &table, &layout, &ask(&layout, ROWS, &[PrgKind::ChaCha20], requests + 1, 1));
}

#[test]
fn wrong_sizes_and_versions_have_the_traits_errors() {
    let (ours, other) = (table(500, 2), table(501, 2));
    let layout = layout(&ours, None, Some(part(500, 5, 1, 1, 0)));
    let refused = GpuBatchEngine::from_table(Shim::new(0), &other, &layout, &BinsSpec::default());
    let expected =
        hushtable_pir::Error::LayoutTable { expected: other.version(), found: ours.version() };
    assert_eq!(refused.map(drop), Err(Error::Pir(expected)));
    let gpu = gpu(0, &ours, &layout, &BinsSpec::default());
    let asked = ask(&layout, 500, &[PrgKind::ChaCha20], 1, 1);
    let expected = gpu.geometry().answer_bytes();
    assert_eq!(
        gpu.answer(&asked.requests[0], &mut [0; 3]),
        Err(hushtable_pir::Error::AnswerBytes { expected, found: 3 })
    );
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 12, ..ProptestConfig::default() })]

    #[test]
    fn layouts_are_answered(
        rows in 20u64..4000,
        dim in 1usize..9,
        bins in 1u32..60,
        queries in 1u32..4,
        hashes in 1u32..4,
        hot in 0u64..20,
        count in 1usize..12,
        seed in any::<u64>(),
    ) {
        let bins = bins.min(rows as u32);
        let hashes = hashes.min(bins);
        let table = table(rows, dim);
        let hot = (hot > 0).then(|| part(hot, 1 + hot as u32 / 3, 1, 1, 0));
        let layout = layout(&table, hot, Some(part(rows, bins, queries, hashes, 0)));
        let gpu = gpu(seed, &table, &layout, &BinsSpec::default());
        check(&gpu, &table, &layout, &ask(&layout, rows, &[PrgKind::ChaCha20], count, seed));
    }
}
