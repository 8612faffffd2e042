//! The engine on the host shim, and with HUSHTABLE_TEST_DEVICE=cuda on a GPU: byte for byte what the
//! engine for processors answers.

use std::sync::Arc;

use hushtable_gpu::shim::{Shim, under_test};
use hushtable_gpu::{Error, GpuEngine, GpuSpec, Residence, Strategy};
use hushtable_pir::dpf::{Domain, Group, Key, KeyPair};
use hushtable_pir::{
    Backend, CpuEngine, DType, EngineSpec, Platform, Prg, PrgKind, Table, TableShape,
};
use proptest::prelude::*;
use proptest::strategy::Strategy as _;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// A table, and what is to be answered from it.
struct Case {
    shape: TableShape,
    bytes: Vec<u8>,
    cpu: CpuEngine,
    random: ChaCha12Rng,
}

impl Case {
    fn new(rows: u64, row_bytes: usize, seed: u64) -> Self {
        let shape = TableShape::new(rows, row_bytes).expect("a shape");
        let mut random = ChaCha12Rng::seed_from_u64(seed);
        let mut bytes = vec![0; rows as usize * row_bytes];
        random.fill(&mut bytes[..]);
        let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
        let cpu = CpuEngine::from_rows(shape, &bytes, &spec).expect("a table");
        Self { shape, bytes, cpu, random }
    }

    fn gpu(&self, seed: u64, spec: &GpuSpec) -> GpuEngine {
        GpuEngine::from_rows(under_test(seed), self.shape, &self.bytes, spec).expect("a table")
    }

    /// Keys of random rows, the first and last among them; those rows, and the left and right keys.
    fn keys(&mut self, kinds: &[(PrgKind, Group)], count: usize) -> (Vec<u64>, Vec<Key>, Vec<Key>) {
        let rows = self.shape.rows();
        let mut ids = Vec::new();
        let (mut left, mut right) = (Vec::new(), Vec::new());
        for i in 0..count {
            let (prg, group) = kinds[i % kinds.len()];
            let id = match i {
                0 => rows - 1,
                1 => 0,
                _ => self.random.random_range(0..rows),
            };
            let seeds = self.random.random();
            let domain = Domain::new(rows, group).expect("a domain");
            let prg = Prg::new(prg, Platform::detect());
            let pair = KeyPair::from_seeds(prg, domain, id, &seeds).expect("keys");
            ids.push(id);
            left.push(pair.left);
            right.push(pair.right);
        }
        (ids, left, right)
    }

    /// Holds an engine to the processor's answers and to the rows.
    fn check(&mut self, gpu: &GpuEngine, kinds: &[(PrgKind, Group)], count: usize) {
        let row_bytes = self.shape.row_bytes();
        let (ids, left, right) = self.keys(kinds, count);
        let said = format!("{gpu:?} {kinds:?} {count} keys");
        let [left, right] = [left, right].map(|keys| {
            let mut answers = vec![0xee; keys.len() * row_bytes];
            gpu.answer(&keys, &mut answers).expect(&said);
            let mut expected = vec![0; answers.len()];
            self.cpu.answer(&keys, &mut expected).expect(&said);
            assert!(answers == expected, "{said}");
            answers
        });
        let pairs = left.chunks_exact(row_bytes).zip(right.chunks_exact(row_bytes));
        for (i, ((left, right), id)) in pairs.zip(ids).enumerate() {
            let row = combine(kinds[i % kinds.len()].1, left, right);
            assert!(row == self.bytes[id as usize * row_bytes..][..row_bytes], "{said}: row {id}");
        }
    }
}

/// Left's answer plus right's, in the group.
fn combine(group: Group, left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut sum = left.to_vec();
    group.add(&mut sum, right);
    sum
}

fn spec(strategy: Strategy) -> GpuSpec {
    GpuSpec { strategy, ..GpuSpec::default() }
}

const CHACHA: PrgKind = PrgKind::ChaCha20;

#[test]
fn every_strategy_answers_every_group() {
    let mut case = Case::new(4097, 100, 1);
    for strategy in [
        Strategy::Auto,
        Strategy::BlockPerKey,
        Strategy::LevelByLevel,
        Strategy::Hybrid { k: 8 },
        Strategy::Fused { k: 16 },
        Strategy::Cooperative,
        Strategy::Tensor,
    ] {
        let gpu = case.gpu(2, &spec(strategy));
        assert!(gpu.is_resident());
        for group in Group::ALL {
            for count in [1, 17] {
                case.check(&gpu, &[(CHACHA, group)], count);
            }
        }
    }
}

#[test]
fn every_generator_is_answered() {
    let mut case = Case::new(1000, 8, 3);
    for strategy in [Strategy::Tensor, Strategy::Fused { k: 4 }] {
        let gpu = case.gpu(4, &spec(strategy));
        for prg in PrgKind::ALL {
            case.check(&gpu, &[(prg, Group::Z8)], 3);
        }
    }
}

#[test]
fn odd_row_counts_and_widths() {
    // Widths of 1, 33 (two strips of 17 tiles) and 32 tiles: each compiles its own kernels.
    for (rows, row_bytes) in
        [(1, 1), (5, 3), (63, 8), (64, 3), (65, 260), (255, 8), (256, 1), (257, 260), (1000, 3)]
    {
        let mut case = Case::new(rows, row_bytes, rows);
        for strategy in [Strategy::Auto, Strategy::Tensor] {
            let gpu = case.gpu(rows, &spec(strategy));
            for group in Group::ALL {
                case.check(&gpu, &[(CHACHA, group)], 2);
            }
        }
    }
}

#[test]
fn batches_of_every_size_on_tensor_cores() {
    let mut case = Case::new(4097, 8, 5);
    for seed in 0..3 {
        let gpu = case.gpu(seed, &spec(Strategy::Tensor));
        for count in [1, 2, 15, 16, 17, 130] {
            case.check(&gpu, &[(CHACHA, Group::Z8)], count);
        }
    }
}

#[test]
fn a_full_block_walks_high_subtrees() {
    // 20,000 rows: superblocks of 8 steps, lanes that walk up to three levels.
    let mut case = Case::new(20_000, 256, 6);
    let gpu = case.gpu(7, &spec(Strategy::Auto));
    case.check(&gpu, &[(CHACHA, Group::Z8)], 130);
    case.check(&gpu, &[(CHACHA, Group::Bits)], 9);
    case.check(&gpu, &[(CHACHA, Group::Bits)], 1);
}

#[test]
fn the_highest_walks_and_the_largest_superblocks() {
    // Eight superblocks of 64 steps, the last one short: two groups of keys on the shim's four
    // multiprocessors are equal work for all if lanes walk six levels.
    let mut case = Case::new(131_070, 8, 24);
    let gpu = case.gpu(25, &spec(Strategy::Tensor));
    case.check(&gpu, &[(CHACHA, Group::Z8)], 130);
    case.check(&gpu, &[(CHACHA, Group::Bits)], 2);
    let spec = GpuSpec { memory_bytes_max: Some(4 << 20), ..spec(Strategy::Tensor) };
    let streamed = case.gpu(26, &GpuSpec { residence: Residence::Streamed, ..spec });
    case.check(&streamed, &[(CHACHA, Group::Z8)], 3);
}

#[test]
fn wide_rows_are_expanded_once() {
    let mut case = Case::new(3000, 600, 8);
    let gpu = case.gpu(9, &spec(Strategy::Tensor));
    for group in Group::ALL {
        case.check(&gpu, &[(CHACHA, group)], 17);
    }
    let narrow = case.gpu(9, &spec(Strategy::Fused { k: 64 }));
    case.check(&narrow, &[(CHACHA, Group::Z8)], 2);
}

#[test]
fn streamed_tables_are_answered_part_by_part() {
    let mut case = Case::new(20_000, 100, 10);
    for strategy in [
        Strategy::Auto,
        Strategy::Hybrid { k: 32 },
        Strategy::LevelByLevel,
        Strategy::Fused { k: 16 },
        Strategy::Cooperative,
        Strategy::Tensor,
    ] {
        let spec = GpuSpec { memory_bytes_max: Some(1 << 21), ..spec(strategy) };
        let gpu = case.gpu(11, &spec);
        assert!(!gpu.is_resident() && gpu.description().ends_with("streamed"));
        for group in Group::ALL {
            case.check(&gpu, &[(CHACHA, group)], 5);
        }
    }
    let mut wide = Case::new(3000, 600, 12);
    let spec = GpuSpec { memory_bytes_max: Some(3 << 20), ..spec(Strategy::Tensor) };
    let gpu = wide.gpu(13, &GpuSpec { residence: Residence::Streamed, ..spec });
    wide.check(&gpu, &[(CHACHA, Group::Z8)], 3);
}

#[test]
fn mixed_batches_are_answered_a_kind_at_a_time() {
    let mut case = Case::new(257, 8, 14);
    let kinds: Vec<(PrgKind, Group)> = [CHACHA, PrgKind::Aes128]
        .into_iter()
        .flat_map(|prg| Group::ALL.map(|group| (prg, group)))
        .collect();
    let gpu = case.gpu(15, &GpuSpec::default());
    case.check(&gpu, &kinds, 20);
    case.check(&gpu, &kinds, 0);
}

#[test]
fn large_batches_take_several_passes() {
    let mut case = Case::new(257, 8, 16);
    let spec = GpuSpec { batch_keys_max: 3, ..spec(Strategy::Tensor) };
    let gpu = case.gpu(17, &spec);
    assert_eq!(gpu.batch_keys_best(), 3);
    case.check(&gpu, &[(CHACHA, Group::Z8), (CHACHA, Group::Bits)], 31);
    assert_eq!(case.gpu(17, &GpuSpec::default()).batch_keys_best(), 512);
}

#[test]
fn threads_answer_at_once() {
    let mut case = Case::new(1000, 8, 18);
    let gpu = Arc::new(case.gpu(19, &GpuSpec { batch_keys_max: 2, ..GpuSpec::default() }));
    let batches: Vec<Vec<Key>> = (0..6).map(|_| case.keys(&[(CHACHA, Group::Z8)], 5).1).collect();
    std::thread::scope(|scope| {
        for keys in &batches {
            let (gpu, cpu) = (&gpu, &case.cpu);
            scope.spawn(move || {
                let (mut found, mut expected) = (vec![0; 40], vec![0; 40]);
                gpu.answer(keys, &mut found).expect("answers");
                cpu.answer(keys, &mut expected).expect("answers");
                assert_eq!(found, expected);
            });
        }
    });
}

#[test]
fn what_does_not_fit_is_refused_with_both_numbers() {
    let case = Case::new(20_000, 100, 20);
    let refused = |residence, memory: u64| {
        let spec = GpuSpec { residence, memory_bytes_max: Some(memory), ..GpuSpec::default() };
        GpuEngine::from_rows(Shim::new(0), case.shape, &case.bytes, &spec).expect_err("too little")
    };
    for (residence, memory) in [
        (Residence::Resident, 2 << 20),
        (Residence::Streamed, 64 << 10),
        (Residence::Auto, 64 << 10),
    ] {
        let error = refused(residence, memory);
        let Error::DeviceMemory { asked, free } = error else { panic!("{error}") };
        assert!(free == memory && asked > memory, "{residence:?}: {asked} of {free}");
    }
    // The device's own bound.
    let device = Shim::with_memory(0, 64 << 10);
    let error = GpuEngine::from_rows(device, case.shape, &case.bytes, &GpuSpec::default());
    assert!(matches!(error, Err(Error::DeviceMemory { free: 65_536, .. })), "{error:?}");
}

#[test]
fn a_batch_that_fails_leaves_the_engine_whole() {
    let mut case = Case::new(1000, 64, 27);
    let device = Shim::with_memory(0, 8 << 20);
    let spec = spec(Strategy::Tensor);
    let gpu = GpuEngine::from_rows(Arc::clone(&device), case.shape, &case.bytes, &spec);
    let gpu = gpu.expect("it fits");
    // Somebody else takes all but a little of the device's memory.
    let free = device.free_bytes().expect("a number") as usize;
    let taken = hushtable_gpu::alloc(&device, free - 1000).expect("memory");
    let (_, keys, _) = case.keys(&[(CHACHA, Group::Z8)], 20);
    for _ in 0..5 {
        let error = gpu.answer(&keys, &mut [0; 20 * 64]).expect_err("too little memory");
        assert!(error.to_string().contains("bytes of device memory were asked for"), "{error}");
    }
    drop(taken);
    case.check(&gpu, &[(CHACHA, Group::Z8)], 20);
}

#[test]
fn a_bundles_rows_are_served() {
    let values: Vec<f32> = (0..200).map(|i| i as f32).collect();
    let table = Table::from_weight("t", 100, 2, DType::F32, &values).expect("a table");
    let gpu = GpuEngine::from_table(Shim::new(0), &table, &GpuSpec::default()).expect("loaded");
    let mut case = Case::new(100, 8, 23);
    table.copy_rows(0, &mut case.bytes).expect("rows");
    let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
    case.cpu = CpuEngine::from_table(&table, &spec).expect("loaded");
    case.check(&gpu, &[(CHACHA, Group::Z8)], 2);
    assert_eq!(gpu.description(), "host shim, auto, 0.0 MiB resident");
}

#[test]
fn wrong_sizes_have_the_traits_errors() {
    let mut case = Case::new(100, 4, 21);
    let error = GpuEngine::from_rows(Shim::new(0), case.shape, &[0; 3], &GpuSpec::default());
    let expected = hushtable_pir::Error::TableBytes { expected: 400, found: 3 };
    assert_eq!(error.map(drop), Err(Error::Pir(expected)));
    let gpu = case.gpu(0, &GpuSpec::default());
    let (_, keys, _) = case.keys(&[(CHACHA, Group::Bits)], 2);
    assert_eq!(
        gpu.answer(&keys, &mut [0; 7]),
        Err(hushtable_pir::Error::AnswerBytes { expected: 8, found: 7 })
    );
    let (_, other, _) = Case::new(101, 4, 22).keys(&[(CHACHA, Group::Z8)], 1);
    assert_eq!(
        gpu.answer(&other, &mut [0; 4]),
        Err(hushtable_pir::Error::Domain { expected: 100, found: 101 })
    );
}

fn strategies() -> impl proptest::strategy::Strategy<Value = Strategy> {
    prop_oneof![
        Just(Strategy::Auto),
        Just(Strategy::Tensor),
        Just(Strategy::BlockPerKey),
        (1u32..40).prop_map(|k| Strategy::Hybrid { k }),
        (1u32..40).prop_map(|k| Strategy::Fused { k }),
        Just(Strategy::Cooperative),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]

    #[test]
    fn small_tables_are_answered(
        rows in 1u64..3000,
        row_bytes in 1usize..9,
        strategy in strategies(),
        group in 0..3usize,
        count in 1usize..20,
        is_streamed in any::<bool>(),
        seed in any::<u64>(),
    ) {
        let mut case = Case::new(rows, row_bytes, seed);
        let residence = if is_streamed { Residence::Streamed } else { Residence::Resident };
        let spec = GpuSpec { residence, memory_bytes_max: Some(2 << 20), ..spec(strategy) };
        let gpu = case.gpu(seed, &spec);
        case.check(&gpu, &[(CHACHA, Group::ALL[group])], count);
    }
}
