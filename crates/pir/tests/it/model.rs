//! A whole model's pass against its tables, each answered alone.

use std::sync::Arc;

use hushtable_pir::dpf::{self, Domain, Group, Key, KeyPair, Side};
use hushtable_pir::model::{Feature, Server};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, TableShape, Threads};
use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::Version;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

/// A table's rows, its bytes a row, and its keys an inference.
type Asked = (u64, usize, usize);

/// The model's answers and the tables' own, for each of the inferences, feature after feature.
fn answer_both_ways(
    tables: &[Asked],
    inferences: usize,
    prg: PrgKind,
    threads: usize,
    platform: Platform,
) -> [Vec<u8>; 2] {
    let threads = Threads::new(threads).unwrap();
    let spec = EngineSpec { shared: Some(threads.clone()), platform, ..EngineSpec::default() };
    let mut random = ChaCha12Rng::seed_from_u64(3);
    let version = Version::from([0; 32]);
    let (mut features, mut engines) = (Vec::new(), Vec::new());
    for &(rows, row_bytes, keys) in tables {
        let shape = TableShape::new(rows, row_bytes).unwrap();
        let mut bytes = vec![0; shape.table_bytes() as usize];
        random.fill(&mut bytes[..]);
        let engine = Arc::new(CpuEngine::from_rows(shape, &bytes, &spec).unwrap());
        engines.push(Arc::clone(&engine));
        features
            .push(Feature::Rows { server: dpf::Server::new(Side::Left, version, engine), keys });
    }
    let server = Server::new(version, features, threads);
    let prg = Prg::new(prg, platform);
    let (mut accepted, mut alone) = (Vec::new(), Vec::new());
    for _ in 0..inferences {
        let mut parts: Vec<Vec<u8>> = Vec::new();
        for (&(rows, row_bytes, count), engine) in tables.iter().zip(&engines) {
            let domain = Domain::new(rows, Group::Bits).unwrap();
            let keys: Vec<Key> = (0..count)
                .map(|_| KeyPair::generate(prg, domain, random.random_range(0..rows)).unwrap().left)
                .collect();
            for key in &keys {
                let mut answer = vec![0; row_bytes];
                engine.answer(std::slice::from_ref(key), &mut answer).unwrap();
                alone.extend(answer);
            }
            parts.push(keys.iter().flat_map(Key::to_bytes).collect());
        }
        accepted.push(server.accept(parts).unwrap());
    }
    let mut together = vec![0; inferences * server.answer_bytes()];
    server.answer(&accepted, &mut together).unwrap();
    [together, alone]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn a_pass_over_all_tables_is_each_table_s_own(
        tables in prop::collection::vec((1u64..3000, 1usize..80, 1usize..3), 1..8),
        inferences in 1usize..4,
        prg in prop::sample::select(&[PrgKind::Aes128, PrgKind::ChaCha12][..]),
        threads in 1usize..3,
    ) {
        for platform in Platform::available() {
            let [together, alone] =
                answer_both_ways(&tables, inferences, prg, threads, platform);
            prop_assert_eq!(together, alone);
        }
    }
}

/// Tables that are shared out over threads, where there are some, and ones that are not worth it.
#[test]
fn large_and_small_tables_are_answered_by_one_thread_as_by_several() {
    let tables = [(40_000, 33, 1), (3, 1, 2), (600, 64, 1), (9_000, 48, 1), (1, 7, 1)];
    for threads in [1, 2, 3] {
        let [together, alone] =
            answer_both_ways(&tables, 2, PrgKind::Aes128, threads, Platform::detect());
        assert_eq!(together, alone, "{threads} threads");
    }
}
