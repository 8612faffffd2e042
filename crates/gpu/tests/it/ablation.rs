//! The paper's steps on the host shim, and with HUSHTABLE_TEST_DEVICE=cuda on a GPU: byte for byte what
//! the engine for processors answers; and on the shim, what each step is said to save, counted.

use hushtable_gpu::shim::{Counts, Shim, under_test};
use hushtable_gpu::{
    Ablation, Error, GpuEngine, GpuSpec, KeyKind, Strategy, row_domain, row_index,
};
use hushtable_pir::dpf::{Domain, Group, Key, KeyPair};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Platform, Prg, PrgKind, TableShape};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

const STEPS: [Strategy; 5] = [
    Strategy::BlockPerKey,
    Strategy::LevelByLevel,
    Strategy::Hybrid { k: 64 },
    Strategy::Fused { k: 64 },
    Strategy::Cooperative,
];
const REFUSED: Option<Ablation> = Some(Ablation { streams: false });
const STREAMED: Option<Ablation> = Some(Ablation { streams: true });

struct Case {
    shape: TableShape,
    bytes: Vec<u8>,
    random: ChaCha12Rng,
}

impl Case {
    fn new(rows: u64, row_bytes: usize) -> Self {
        let mut random = ChaCha12Rng::seed_from_u64(rows);
        let mut bytes = vec![0; rows as usize * row_bytes];
        random.fill(&mut bytes[..]);
        Self { shape: TableShape::new(rows, row_bytes).expect("a shape"), bytes, random }
    }

    /// The engine for processors that answers keys of `domain`.
    fn reference(&self, domain: Domain) -> CpuEngine {
        let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
        let row_bytes = self.shape.row_bytes();
        // Of a leaf a row, the other rows of a leaf are there and empty.
        let apart = (domain.rows() / self.shape.rows()) as usize;
        let mut rows = vec![0; domain.rows() as usize * row_bytes];
        let stored = rows.chunks_mut(apart * row_bytes).zip(self.bytes.chunks(row_bytes));
        stored.for_each(|(to, row)| to[..row_bytes].copy_from_slice(row));
        let shape = TableShape::new(domain.rows(), row_bytes).expect("a shape");
        CpuEngine::from_rows(shape, &rows, &spec).expect("a table")
    }

    fn keys(&mut self, domain: Domain, prg: PrgKind, count: usize) -> (Vec<u64>, [Vec<Key>; 2]) {
        let rows = self.shape.rows();
        let apart = domain.rows() / rows;
        let mut keys = [Vec::new(), Vec::new()];
        let ids: Vec<u64> = (0..count)
            .map(|i| if i == 0 { rows - 1 } else { self.random.random_range(0..rows) })
            .collect();
        for &id in &ids {
            let prg = Prg::new(prg, Platform::detect());
            let pair = KeyPair::from_seeds(prg, domain, id * apart, &self.random.random());
            let pair = pair.expect("keys");
            keys[0].push(pair.left);
            keys[1].push(pair.right);
        }
        (ids, keys)
    }

    fn check(&mut self, gpu: &GpuEngine, domain: Domain, prg: PrgKind, count: usize, said: &str) {
        let (ids, keys) = self.keys(domain, prg, count);
        let cpu = self.reference(domain);
        let row_bytes = self.shape.row_bytes();
        let [mut sums, others] = keys.map(|keys| {
            let mut found = vec![0xee; count * row_bytes];
            gpu.answer(&keys, &mut found).expect(said);
            let mut expected = vec![0; found.len()];
            cpu.answer(&keys, &mut expected).expect(said);
            assert!(found == expected, "{said}");
            found
        });
        let answers = sums.chunks_exact_mut(row_bytes).zip(others.chunks_exact(row_bytes));
        for ((sum, other), id) in answers.zip(ids) {
            domain.group().add(sum, other);
            assert!(sum == &self.bytes[id as usize * row_bytes..][..row_bytes], "{said}: {id}");
        }
    }
}

#[test]
fn every_step_answers_as_the_processor_does() {
    // A leaf a row and leaves of many; a row of a word, of an odd number of tiles, of two strips.
    for (rows, row_bytes) in [(64, 4), (700, 40), (1000, 300)] {
        let mut case = Case::new(rows, row_bytes);
        let domains = Group::ALL.map(|group| Domain::new(rows, group).expect("a domain"));
        let own = row_domain(case.shape).expect("a domain");
        let mut gpu =
            GpuEngine::from_rows(under_test(rows), case.shape, &case.bytes, &GpuSpec::default())
                .expect("a table");
        gpu.set_ablation(REFUSED);
        for step in STEPS {
            gpu.set_strategy(step);
            for domain in domains.into_iter().chain([own]) {
                let said = format!("{rows} x {row_bytes}, {step}, {domain:?}");
                case.check(&gpu, domain, PrgKind::Salsa12, 3, &said);
            }
        }
        // Another generator, which takes shared memory for itself.
        gpu.set_strategy(Strategy::Hybrid { k: 256 });
        case.check(&gpu, own, PrgKind::Aes128, 2, "AES-128");
    }
}

/// Counts of one batch by a step.
fn counted(case: &mut Case, step: Strategy, domain: Domain, keys: usize) -> (Counts, u64) {
    let shim = Shim::counting(3, 4 << 30);
    let mut gpu = GpuEngine::from_rows(shim.clone(), case.shape, &case.bytes, &GpuSpec::default())
        .expect("a table");
    gpu.set_ablation(REFUSED);
    gpu.set_strategy(step);
    let (_, [left, _]) = case.keys(domain, PrgKind::Salsa12, keys);
    let needs = gpu.step_needs(KeyKind::of(&left[0]), keys).bytes();
    shim.start_counting();
    gpu.answer(&left, &mut vec![0; keys * case.shape.row_bytes()]).expect("answers");
    (shim.counts(), needs)
}

#[test]
fn each_step_saves_what_it_is_said_to() {
    let (rows, keys) = (1024u64, 3u64);
    let mut case = Case::new(rows, 64);
    let domain = row_domain(case.shape).expect("a domain");
    let (leaves, depth) = (rows, 10);
    let of = |case: &mut Case, step| counted(case, step, domain, keys as usize);
    let [base, levels, hybrid, fused, cooperative] = STEPS.map(|step| of(&mut case, step));
    // Generator calls: from the root to every leaf; each node and leaf once. 2 L as the paper has it.
    assert_eq!(base.0.calls, keys * leaves * (depth + 1));
    assert_eq!(levels.0.calls, keys * (2 * leaves - 1));
    assert_eq!(hybrid.0.calls, levels.0.calls);
    assert_eq!(fused.0.calls, levels.0.calls);
    // Two nodes a multiprocessor of the shim's four: four blocks of a key walk two levels.
    assert_eq!(cooperative.0.calls, keys * (4 * 2 + 4 * (2 * leaves / 4 - 1)));
    // Device memory that a batch takes beside the table: shares, and level by level 24 bytes a leaf.
    assert_eq!(base.1, keys * leaves * 4);
    assert_eq!(levels.1, keys * leaves * (4 + 24));
    assert_eq!(hybrid.1, base.1);
    assert_eq!((fused.1, cooperative.1), (0, 0));
    // Bytes of device memory: all read the table once a key, and add up the same sums; before
    // fusion shares are written and read; level by level so is each of 2 L - 1 nodes.
    let shares = keys * leaves * 4;
    assert_eq!(base.0.read_bytes - fused.0.read_bytes, shares);
    assert_eq!(base.0.written_bytes - fused.0.written_bytes, shares);
    assert_eq!((hybrid.0.read_bytes, hybrid.0.written_bytes), {
        (base.0.read_bytes, base.0.written_bytes)
    });
    let nodes = keys * (2 * leaves - 1) * 16;
    assert_eq!(levels.0.read_bytes - hybrid.0.read_bytes, nodes);
    assert_eq!(levels.0.written_bytes - hybrid.0.written_bytes, nodes);
    assert!(fused.0.read_bytes >= keys * rows * 64);
    // A leaf of many rows is another algorithm: as many times fewer calls as a leaf has rows.
    let wide = Domain::new(rows, Group::Z32).expect("a domain");
    let wide = counted(&mut case, Strategy::Fused { k: 64 }, wide, keys as usize);
    assert_eq!(wide.0.calls, keys * (2 * leaves / 16 - 1));
}

#[test]
fn what_does_not_fit_is_refused_with_its_bytes_or_streamed() {
    let mut case = Case::new(4096, 8);
    let domain = row_domain(case.shape).expect("a domain");
    // Room for the shares and nodes of 18 keys, 28 bytes a leaf, in two passes at once.
    let spec = GpuSpec { memory_bytes_max: Some(2 << 20), ..GpuSpec::default() };
    let mut gpu =
        GpuEngine::from_rows(Shim::new(1), case.shape, &case.bytes, &spec).expect("a table");
    gpu.set_strategy(Strategy::LevelByLevel);
    gpu.set_ablation(REFUSED);
    let (_, [keys, _]) = case.keys(domain, PrgKind::Salsa12, 40);
    let error = gpu.answer(&keys, &mut [0; 320]).expect_err("too much").to_string();
    let bytes = (40u64 * 4096 * 28).to_string();
    assert!(error.contains(&bytes) && error.contains("at most 9 keys"), "{error}");
    gpu.set_ablation(STREAMED);
    case.check(&gpu, domain, PrgKind::Salsa12, 40, "streamed");
    // The next step has room: its nodes are in shared memory.
    gpu.set_ablation(REFUSED);
    gpu.set_strategy(Strategy::Hybrid { k: 128 });
    gpu.answer(&keys, &mut [0; 320]).expect("it fits");
}

#[test]
fn what_is_no_step_is_refused() {
    let mut case = Case::new(100, 8);
    let mut gpu = GpuEngine::from_rows(Shim::new(1), case.shape, &case.bytes, &GpuSpec::default())
        .expect("a table");
    let domain = row_domain(case.shape).expect("a domain");
    let (_, [keys, _]) = case.keys(domain, PrgKind::Salsa12, 1);
    assert_eq!(row_index(7) * case.shape.rows(), 7 * domain.rows());
    // A server's engine does not take such keys.
    assert!(gpu.answer(&keys, &mut [0; 8]).is_err());
    gpu.set_ablation(REFUSED);
    for strategy in [Strategy::Auto, Strategy::Tensor] {
        gpu.set_strategy(strategy);
        let error = gpu.answer(&keys, &mut [0; 8]).expect_err("no step").to_string();
        assert!(error.contains("is no step of the paper's"), "{error}");
    }
    let few = row_domain(TableShape::new(63, 8).expect("a shape"));
    assert!(matches!(few, Err(Error::Geometry { .. })), "{few:?}");
}
