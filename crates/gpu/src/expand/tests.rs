//! On the shim, and with HUSHTABLE_TEST_DEVICE=cuda on a GPU.

use std::sync::Arc;

use hushtable_pir::dpf::{Domain, Group, Key, KeyPair, Side, expand_leaves};
use hushtable_prg::{Platform, Prg, PrgKind};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use serde_json::Value;

use super::{ExpandStrategy, Expander, Subtree, module};
use crate::shim::{Shim, under_test};
use crate::{
    Arg, Buffer, Device, DeviceKeys, Error, KeyKind, Launch, ModuleSpec, PrgTuning, Stream, alloc,
};

const STRATEGIES: [ExpandStrategy; 5] = [
    ExpandStrategy::BlockPerKey,
    ExpandStrategy::LevelByLevel,
    ExpandStrategy::Hybrid { k: 1 },
    ExpandStrategy::Hybrid { k: 6 },
    ExpandStrategy::Hybrid { k: 1 << 20 },
];

struct Bench {
    device: Arc<dyn Device>,
    stream: Stream,
    expander: Expander,
}

impl Bench {
    fn new(seed: u64, tuning: PrgTuning) -> Self {
        Self::on(under_test(seed), tuning)
    }

    fn on(device: Arc<dyn Device>, tuning: PrgTuning) -> Self {
        let stream = device.stream().expect("a stream");
        let expander = Expander::new(Arc::clone(&device)).with_tuning(tuning);
        Self { device, stream, expander }
    }

    fn upload(&self, keys: &[&Key]) -> DeviceKeys {
        DeviceKeys::upload(&self.device, self.stream, keys).expect("keys of one kind")
    }

    fn zeros(&self, bytes: usize) -> Buffer {
        let buffer = alloc(&self.device, bytes).expect("memory");
        self.device.clear(self.stream, &buffer, 0, bytes).expect("in bounds");
        buffer
    }

    fn words(&self, buffer: &Buffer) -> Vec<u32> {
        let mut bytes = vec![0; buffer.bytes()];
        self.device.copy_out(self.stream, &mut bytes, buffer, 0).expect("in bounds");
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4"))).collect()
    }

    fn shares(&self, keys: &DeviceKeys, strategy: ExpandStrategy, subtree: Subtree) -> Vec<u32> {
        let bytes = Expander::share_bytes(keys.kind(), keys.count(), subtree).expect("a subtree");
        let shares = self.zeros(bytes);
        self.expander.expand(self.stream, keys, strategy, subtree, &shares).expect("a launch");
        self.words(&shares)
    }
}

/// Keys as they come: of both sides, the first two of one pair. One key alone is right's.
fn batch(prg: PrgKind, domain: Domain, keys: usize) -> (Vec<Key>, u64) {
    let mut rng = ChaCha8Rng::seed_from_u64(domain.rows() + 1000 * u64::from(prg.id()));
    let prg = Prg::new(prg, Platform::detect());
    let mut all = Vec::new();
    let mut first = 0;
    while all.len() < keys {
        let index = rng.random_range(0..domain.rows());
        let pair = KeyPair::from_seeds(prg, domain, index, &rng.random()).expect("a row");
        if all.is_empty() {
            first = index;
        }
        all.extend([pair.right, pair.left]);
    }
    all.truncate(keys);
    (all, first)
}

/// What the processor makes of a key, but for the negation that the device leaves out; padded with
/// zeros to a power of two of leaves.
fn expected(key: &Key) -> Vec<u32> {
    let params = key.params();
    let mut words = Vec::new();
    expand_leaves(key, Platform::detect(), 4, |_, leaves| {
        words.extend(leaves.iter().flat_map(|w| [0, 32, 64, 96].map(|bit| (w >> bit) as u32)));
    });
    if params.side == Side::Right {
        words.iter_mut().for_each(|word| *word = negate(params.domain.group(), *word));
    }
    words.truncate(16 * params.domain.leaf_count() as usize);
    words.resize(16 << params.domain.depth(), 0);
    words
}

fn negate(group: Group, word: u32) -> u32 {
    match group {
        Group::Z8 => u32::from_le_bytes(word.to_le_bytes().map(u8::wrapping_neg)),
        Group::Z32 => word.wrapping_neg(),
        _ => word,
    }
}

/// Both sides' shares of a row, added up.
fn sum(group: Group, right: &[u32], left: &[u32], row: u64) -> u32 {
    let row = row as usize;
    match group {
        Group::Bits => (right[row / 32] ^ left[row / 32]) >> (row % 32) & 1,
        Group::Z8 => {
            let byte = |words: &[u32]| words[row / 4].to_le_bytes()[row % 4];
            u32::from(byte(left).wrapping_sub(byte(right)))
        }
        _ => left[row].wrapping_sub(right[row]),
    }
}

fn agrees(bench: &Bench, prg: PrgKind, group: Group, rows: u64, keys: usize) {
    let domain = Domain::new(rows, group).expect("rows");
    let (keys, index) = batch(prg, domain, keys);
    let refs: Vec<&Key> = keys.iter().collect();
    let uploaded = bench.upload(&refs);
    let expected: Vec<u32> = keys.iter().flat_map(expected).collect();
    for strategy in STRATEGIES {
        let found = bench.shares(&uploaded, strategy, Subtree::WHOLE);
        assert!(found == expected, "{prg} {group:?} {rows} {} {strategy:?}", keys.len());
        if keys.len() > 1 {
            let (right, rest) = found.split_at(16 << domain.depth());
            for row in 0..rows {
                assert_eq!(sum(group, right, rest, row), u32::from(row == index), "row {row}");
            }
        }
    }
}

/// Sizes around those of a leaf, a warp and a block, for a generator.
fn every_strategy_agrees(prg: PrgKind, tuning: PrgTuning) {
    let bench = Bench::new(u64::from(prg.id()), tuning);
    for group in Group::ALL {
        let leaf = group.rows_per_leaf();
        for (rows, keys) in [(1, 1), (leaf + 1, 2), (5 * leaf - 1, 5), (33 * leaf + 7, 2)] {
            agrees(&bench, prg, group, rows, keys);
        }
    }
}

#[test]
fn aes128_agrees_with_the_processor() {
    every_strategy_agrees(PrgKind::Aes128, PrgTuning::default());
}

#[test]
fn aes128_on_bits_agrees_with_the_processor() {
    let tuning = PrgTuning { aes_bitsliced: true, ..PrgTuning::default() };
    every_strategy_agrees(PrgKind::Aes128, tuning);
}

#[test]
fn chacha20_by_multiplications_agrees_with_the_processor() {
    let tuning = PrgTuning { rotate_by_multiply: true, ..PrgTuning::default() };
    every_strategy_agrees(PrgKind::ChaCha20, tuning);
}

#[test]
fn chacha12_agrees_with_the_processor() {
    every_strategy_agrees(PrgKind::ChaCha12, PrgTuning::default());
}

#[test]
fn salsa20_agrees_with_the_processor() {
    every_strategy_agrees(PrgKind::Salsa20, PrgTuning::default());
}

#[test]
fn salsa12_agrees_with_the_processor() {
    every_strategy_agrees(PrgKind::Salsa12, PrgTuning::default());
}

#[test]
fn sha256_agrees_with_the_processor() {
    every_strategy_agrees(PrgKind::Sha256, PrgTuning::default());
}

#[test]
fn siphash24_agrees_with_the_processor() {
    every_strategy_agrees(PrgKind::SipHash24, PrgTuning::default());
}

#[test]
fn highwayhash_agrees_with_the_processor() {
    every_strategy_agrees(PrgKind::HighwayHash, PrgTuning::default());
}

#[test]
fn chacha20_agrees_on_any_rows_in_any_order_of_threads() {
    for seed in 0..3 {
        let bench = Bench::new(seed, PrgTuning::default());
        for group in Group::ALL {
            for rows in [1, 63, 64, 65, 511, 513, 1000, 4097] {
                agrees(&bench, PrgKind::ChaCha20, group, rows, [1, 2, 5][seed as usize]);
            }
        }
    }
}

#[test]
fn batches_are_cut_where_a_launch_or_the_memory_ends() {
    let mut bench = Bench::new(7, PrgTuning::default());
    // Two keys of 33 leaves and half of it, and not quite three.
    bench.expander = bench.expander.with_node_bytes_max(16 * (3 * (33 + 17) - 1));
    bench.expander.keys_per_launch = 2;
    agrees(&bench, PrgKind::ChaCha12, Group::Z8, 33 * 64, 5);
}

#[test]
fn a_block_may_have_more_nodes_than_threads() {
    // 20 keys are blocks enough: each goes breadth first to 256 nodes, of 4 leaves.
    let bench = Bench::new(8, PrgTuning::default());
    let domain = Domain::new(600 * 16, Group::Z32).expect("rows");
    let (keys, _) = batch(PrgKind::ChaCha12, domain, 20);
    let uploaded = bench.upload(&keys.iter().collect::<Vec<_>>());
    let expected: Vec<u32> = keys.iter().flat_map(expected).collect();
    let found = bench.shares(&uploaded, ExpandStrategy::Hybrid { k: 256 }, Subtree::WHOLE);
    assert!(found == expected);
}

#[test]
fn few_keys_of_a_small_tree_go_from_the_root() {
    let bench = Bench::on(Shim::new(1), PrgTuning::default());
    let strategy = |leaves: u64, keys: u32| {
        let domain = Domain::new(64 * leaves, Group::Z8).expect("rows");
        let kind = KeyKind { domain, prg: PrgKind::ChaCha20 };
        bench.expander.strategy(kind, keys, Subtree::WHOLE).expect("a tree")
    };
    // The shim has four multiprocessors, 512 lanes.
    assert_eq!(strategy(1, 1), ExpandStrategy::BlockPerKey);
    assert_eq!(strategy(512, 1), ExpandStrategy::BlockPerKey);
    for (leaves, keys) in [(4096, 1), (1 << 14, 1), (512, 64), (1 << 14, 512), (1 << 20, 4096)] {
        let strategy = strategy(leaves, keys);
        let ExpandStrategy::Hybrid { k } = strategy else {
            panic!("{leaves} leaves of {keys} keys by {strategy:?}");
        };
        // Lanes enough, but not a thread a leaf where there are more leaves than lanes.
        assert!(k * keys >= 512 && u64::from(k) < leaves, "{leaves} leaves of {keys} keys, {k}");
    }
}

#[test]
fn a_subtree_is_its_part_of_the_tree() {
    let bench = Bench::new(3, PrgTuning::default());
    // 11 leaves of 16: of the last subtree of four none has rows, of the one before three have.
    let domain = Domain::new(11 * 16, Group::Z32).expect("rows");
    let (keys, _) = batch(PrgKind::ChaCha12, domain, 3);
    let uploaded = bench.upload(&keys.iter().collect::<Vec<_>>());
    let whole: Vec<Vec<u32>> = keys.iter().map(expected).collect();
    for strategy in STRATEGIES {
        for (level, index) in [(0, 0), (1, 0), (1, 1), (2, 1), (2, 2), (4, 10)] {
            let leaves = 16 >> level;
            let of_key = |words: &Vec<u32>| words[16 * leaves * index..][..16 * leaves].to_vec();
            let expected: Vec<u32> = whole.iter().flat_map(of_key).collect();
            let subtree = Subtree { level, index: index as u32 };
            assert!(
                bench.shares(&uploaded, strategy, subtree) == expected,
                "{strategy:?} {subtree:?}"
            );
        }
    }
    for (level, index) in [(2, 3), (4, 11), (5, 0), (0, 1)] {
        let subtree = Subtree { level, index };
        let error = Expander::share_bytes(uploaded.kind(), 1, subtree).expect_err("no rows there");
        assert!(error.to_string().contains(&format!("node {index} of level {level}")), "{error}");
    }
}

/// Nodes of a level, from the key's words.
fn level_of(key: &Key, top: u32) -> Vec<u32> {
    let words = key.device_words();
    let word =
        |at: usize| (0..4).fold(0, |word, k| word | u128::from(words.expose()[at + k]) << (32 * k));
    let prg = Prg::new(key.params().prg, Platform::detect());
    let mut nodes = vec![word(0)];
    for level in 0..top as usize {
        let mut children = vec![0; 2 * nodes.len()];
        prg.expand(&nodes, &[word(4 + 8 * level), word(8 + 8 * level)], &mut children);
        nodes = children;
    }
    nodes.iter().flat_map(|node| [0, 32, 64, 96].map(|bit| (node >> bit) as u32)).collect()
}

#[test]
fn a_frontier_is_a_level() {
    let domain = Domain::new(16 << 12, Group::Z32).expect("rows");
    for prg in [PrgKind::ChaCha12, PrgKind::Aes128] {
        let (keys, _) = batch(prg, domain, 5);
        for count in [1, 5] {
            let mut bench = Bench::new(count as u64, PrgTuning::default());
            bench.expander.keys_per_launch = 3;
            let keys = &keys[..count];
            let uploaded = bench.upload(&keys.iter().collect::<Vec<_>>());
            for top in [0, 1, 4, 5, 6, 9, 12] {
                let nodes = bench.zeros((16 * count) << top);
                bench.expander.frontier(bench.stream, &uploaded, top, &nodes).expect("a launch");
                let expected: Vec<u32> = keys.iter().flat_map(|key| level_of(key, top)).collect();
                assert!(bench.words(&nodes) == expected, "{prg} {count} {top}");
            }
        }
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let bench = Bench::new(1, PrgTuning::default());
    let domain = Domain::new(1000, Group::Z8).expect("rows");
    let other = Domain::new(1000, Group::Z32).expect("rows");
    let (keys, _) = batch(PrgKind::ChaCha12, domain, 2);
    let (others, _) = batch(PrgKind::ChaCha12, other, 1);
    let upload = |keys: &[&Key]| DeviceKeys::upload(&bench.device, bench.stream, keys);
    assert!(matches!(upload(&[]), Err(Error::Geometry { .. })));
    assert!(matches!(upload(&[&keys[0], &others[0]]), Err(Error::Geometry { .. })));

    let uploaded = upload(&[&keys[0], &keys[1]]).expect("keys of one kind");
    let kind = KeyKind { domain, prg: PrgKind::ChaCha12 };
    assert_eq!((uploaded.kind(), uploaded.count()), (kind, 2));
    assert_eq!(uploaded.words().bytes(), 2 * 4 * (20 + 8 * 4));
    let short = bench.zeros(2 * 64 * 16 - 1);
    let strategy = ExpandStrategy::BlockPerKey;
    let error = bench
        .expander
        .expand(bench.stream, &uploaded, strategy, Subtree::WHOLE, &short)
        .expect_err("a byte is missing");
    assert!(error.to_string().contains("2048 bytes, the buffer has 2047"), "{error}");
    let error = bench.expander.frontier(bench.stream, &uploaded, 5, &short).expect_err("no level");
    assert!(error.to_string().contains("level 5 of a tree of 4 levels"), "{error}");
    let error = bench.expander.frontier(bench.stream, &uploaded, 4, &bench.zeros(2 * 256 - 1));
    assert!(matches!(error, Err(Error::Geometry { .. })));
    let words = bench.zeros(4 * kind.key_words() * 2 - 1);
    assert!(matches!(DeviceKeys::from_words(kind, 2, words), Err(Error::Geometry { .. })));
}

fn vector(value: &Value) -> Vec<u32> {
    let words = value.as_array().expect("a list").iter().flat_map(|word| {
        let word = u128::from_str_radix(word.as_str().expect("text"), 16).expect("a number");
        [0, 32, 64, 96].map(|bit| (word >> bit) as u32)
    });
    words.collect()
}

/// `vectors/prg.json`, which every implementation reads.
#[test]
fn every_generator_gives_the_known_answers() {
    let file: Value = serde_json::from_str(include_str!("../../../../vectors/prg.json"))
        .expect("the vectors are JSON");
    let nodes = vector(&file["nodes"]);
    let corrections =
        [vector(&file["child_correction"]), vector(&file["leaf_correction"])].concat();
    let count = nodes.len() / 4;
    for (prg, tuning) in PrgTuning::all() {
        let bench = Bench::new(1, tuning);
        let generators = file["generators"].as_array().expect("a list");
        let known = generators.iter().find(|known| known["id"] == prg.id()).expect("known answers");
        let (children, leaves) = (vector(&known["children"]), vector(&known["leaves"]));
        let bytes = |words: &[u32]| words.iter().flat_map(|w| w.to_le_bytes()).collect::<Vec<u8>>();
        let put = |words: &[u32]| {
            let buffer = bench.zeros(4 * words.len());
            bench.device.copy_in(bench.stream, &buffer, 0, &bytes(words)).expect("in bounds");
            buffer
        };
        let (nodes, corrections) = (put(&nodes), put(&corrections));
        let out = bench.zeros(4 * 72 * count);
        let spec = ModuleSpec { source: "prg_check.cu", ..module(prg, tuning) };
        let kernel = bench.device.kernel(&spec, "check_prg").expect("it compiles");
        let launch = Launch {
            blocks: (1, 1),
            threads: 32,
            shared_bytes: tuning.shared_bytes(prg),
            is_cooperative: false,
        };
        let arguments = [nodes.at(0), corrections.at(0), Arg::U32(count as u32), out.at(0)];
        // SAFETY: what the kernel takes, of buffers that are long enough.
        unsafe { bench.device.launch(bench.stream, kernel, launch, &arguments) }.expect("a launch");
        for (i, found) in bench.words(&out).chunks_exact(72).enumerate() {
            let expected = [&children[8 * i..][..8], &leaves[16 * i..][..16]].concat();
            for way in found.chunks_exact(24) {
                assert_eq!(way, expected, "{prg} {tuning:?}, node {i}");
            }
        }
    }
}
