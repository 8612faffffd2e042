//! Engines of shards answer, together, as one of the whole table.

use std::sync::Arc;

use hushtable_pir::dpf::{Domain, Group, Key, KeyPair};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Patched, Platform, Prg, PrgKind, Threads};
use hushtable_table::{DType, Table, encode_rows, patch};

/// Cuts of tables: equal ones, unequal ones, a last piece that is no whole block.
const CUTS: [(u64, usize, &[u64]); 6] = [
    (1_024, 5, &[0, 512, 1_024]),
    (1_300, 5, &[0, 1_024, 1_300]),
    (70_000, 4, &[0, 512, 33_280, 69_632, 70_000]),
    (200_000, 2, &[0, 65_536, 131_072, 200_000]),
    (200_000, 2, &[0, 100_352, 200_000]),
    (40, 1, &[0, 40]),
];

fn keys(rows: u64, group: Group, ids: &[u64]) -> Vec<Key> {
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let domain = Domain::new(rows, group).unwrap();
    let pair = |&id| KeyPair::generate(prg, domain, id).unwrap();
    ids.iter().map(pair).flat_map(|pair| [pair.left, pair.right]).collect()
}

fn sum(group: Group, parts: &[Arc<dyn Backend>], keys: &[Key], bytes: usize) -> Vec<u8> {
    let mut sum = vec![0; bytes];
    for part in parts {
        let mut answers = vec![0; bytes];
        part.answer(keys, &mut answers).unwrap();
        for (to, from) in
            sum.chunks_mut(part.shape().row_bytes()).zip(answers.chunks(part.shape().row_bytes()))
        {
            group.add(to, from);
        }
    }
    sum
}

#[test]
fn ranges_add_up_to_the_table_with_and_without_changed_rows() {
    for (rows, dim, cuts) in CUTS {
        let folder = tempfile::tempdir().unwrap();
        let (base, next) = (folder.path().join("base"), folder.path().join("next"));
        let values: Vec<f32> = (0..rows as usize * dim).map(|i| (i % 977) as f32).collect();
        Table::from_weight("t", rows, dim, DType::F32, &values).unwrap().save(&base).unwrap();
        let mut ids: Vec<u64> = (0..rows).step_by(rows as usize / 23).collect();
        ids.extend([1, rows - 1]);
        ids.sort_unstable();
        ids.dedup();
        let changed: Vec<f32> = (0..ids.len() * dim).map(|i| -0.5 - i as f32).collect();
        let mut new = vec![0; ids.len() * 4 * dim];
        encode_rows(DType::F32, dim, &changed, &mut new).unwrap();
        patch::patch(&base, &ids, &new, &next).unwrap();
        let (old, table) = (Table::open(&base).unwrap(), Table::open(&next).unwrap());

        for threads in [1, 3] {
            let spec = EngineSpec { threads, ..EngineSpec::default() };
            let whole: [Arc<dyn Backend>; 2] = [&old, &table]
                .map(|table| Arc::new(CpuEngine::from_table(table, &spec).unwrap()) as _);
            let range = |cut: &[u64]| -> Arc<dyn Backend> {
                Arc::new(CpuEngine::from_range(&old, cut[0]..cut[1], &spec).unwrap())
            };
            let parts: Vec<_> = cuts.windows(2).map(range).collect();
            let over = |(cut, part): (&[u64], &Arc<dyn Backend>)| -> Arc<dyn Backend> {
                let (threads, platform) = (Threads::new(threads).unwrap(), Platform::detect());
                let part = Arc::clone(part);
                Arc::new(
                    Patched::over_range(part, &table, cut[0]..cut[1], platform, threads).unwrap(),
                )
            };
            let patched: Vec<_> = cuts.windows(2).zip(&parts).map(over).collect();
            for group in Group::ALL {
                // One key alone is scanned for, several are a product.
                for ids in [
                    vec![rows / 2],
                    vec![0, 1, ids[3], rows - 2, rows - 1, cuts[1] - 1, cuts[1] % rows],
                ] {
                    let keys = &keys(rows, group, &ids)[ids.len() % 2..];
                    let bytes = keys.len() * 4 * dim;
                    for (whole, parts) in [(&whole[0], &parts), (&whole[1], &patched)] {
                        let mut expected = vec![0; bytes];
                        whole.answer(keys, &mut expected).unwrap();
                        let found = sum(group, parts, keys, bytes);
                        assert_eq!(found, expected, "{rows} × {dim} at {cuts:?}, {}", group.name());
                    }
                }
            }
        }
    }
}

#[test]
fn a_range_is_whole_blocks_of_the_table() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("t");
    let values = vec![0.5; 3_000];
    Table::from_weight("t", 3_000, 1, DType::F32, &values).unwrap().save(&path).unwrap();
    let table = Table::open(&path).unwrap();
    for range in [0..0, 256..1_024, 0..600, 2_560..3_001, 3_072..3_584] {
        let error = CpuEngine::from_range(&table, range.clone(), &EngineSpec::default()).err();
        let text = error.expect("no shard's").to_string();
        assert!(text.contains("hushtable shard plan"), "{range:?}: {text}");
    }
}
