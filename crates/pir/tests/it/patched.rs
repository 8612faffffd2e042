//! An engine over another with some rows changed answers as one that was loaded with them.

use std::sync::Arc;

use hushtable_pir::dpf::{Domain, Group, KeyPair};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Patched, Platform, Prg, PrgKind, Threads};
use hushtable_table::{DType, Table, encode_rows, patch};

#[test]
fn it_answers_as_one_that_was_loaded_whole() {
    for (rows, dim) in [(1_300_u64, 5), (70_000, 16), (40, 1)] {
        let folder = tempfile::tempdir().unwrap();
        let (base, next) = (folder.path().join("base"), folder.path().join("next"));
        let values: Vec<f32> = (0..rows as usize * dim).map(|i| (i % 977) as f32).collect();
        Table::from_weight("t", rows, dim, DType::F32, &values).unwrap().save(&base).unwrap();
        let mut ids: Vec<u64> = (0..rows).step_by(rows as usize / 37).collect();
        ids.extend([1, rows - 1]);
        ids.sort_unstable();
        ids.dedup();
        let mut new = vec![0; ids.len() * 4 * dim];
        let changed: Vec<f32> = (0..ids.len() * dim).map(|i| -0.5 - i as f32).collect();
        encode_rows(DType::F32, dim, &changed, &mut new).unwrap();
        patch::patch(&base, &ids, &new, &next).unwrap();
        let (old, table) = (Table::open(&base).unwrap(), Table::open(&next).unwrap());

        let spec = EngineSpec::default();
        let engine: Arc<dyn Backend> = Arc::new(CpuEngine::from_table(&old, &spec).unwrap());
        let whole = CpuEngine::from_table(&table, &spec).unwrap();
        let threads = Threads::new(2).unwrap();
        let patched =
            Patched::new(Arc::clone(&engine), &table, Platform::detect(), threads).unwrap();
        let below = patched.below().unwrap();
        assert_eq!(below.version, old.version());
        assert_eq!(below.changed_bytes, Patched::bytes(ids.len() as u64, 4 * dim));
        for group in Group::ALL {
            let prg = Prg::new(PrgKind::Aes128, Platform::detect());
            let domain = Domain::new(rows, group).unwrap();
            let mut keys = Vec::new();
            for id in [0, 1, ids[3], ids[3] + 1, rows - 2, rows - 1] {
                let pair = KeyPair::generate(prg, domain, id).unwrap();
                keys.extend([pair.left, pair.right]);
            }
            let mut answers = [(); 3].map(|()| vec![0; keys.len() * 4 * dim]);
            whole.answer(&keys, &mut answers[0]).unwrap();
            patched.answer(&keys, &mut answers[1]).unwrap();
            engine.answer(&keys, &mut answers[2]).unwrap();
            assert_eq!(answers[0], answers[1], "{rows} × {dim}, {}", group.name());
            assert_ne!(answers[0], answers[2]);
        }
    }
}
