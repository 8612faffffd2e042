//! Two keys, two answers, one row: every backend and group against the reference.

use hushtable_pir::dpf::{Client, Domain, Group, Key, KeyPair, Reply, Side, reference};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Error, TableShape};
use hushtable_prg::{Platform, Prg, PrgKind};
use hushtable_table::Version;
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

fn table(rows: u64, row_bytes: usize, seed: u64) -> (TableShape, Vec<u8>) {
    let shape = TableShape::new(rows, row_bytes).unwrap();
    let mut bytes = vec![0; rows as usize * row_bytes];
    ChaCha12Rng::seed_from_u64(seed).fill(&mut bytes[..]);
    (shape, bytes)
}

fn pair(prg: PrgKind, group: Group, rows: u64, index: u64) -> KeyPair {
    let domain = Domain::new(rows, group).unwrap();
    KeyPair::generate(Prg::new(prg, Platform::detect()), domain, index).unwrap()
}

/// Left's answer plus right's, in the group.
fn combine(group: Group, left: &[u8], right: &[u8]) -> Vec<u8> {
    let mut sum = left.to_vec();
    group.add(&mut sum, right);
    sum
}

#[test]
fn reference_shares_make_the_unit_vector() {
    for prg in PrgKind::ALL {
        for group in Group::ALL {
            for (rows, index) in [(1, 0), (2, 1), (511, 510), (513, 512), (1500, 37)] {
                let pair = pair(prg, group, rows, index);
                for row in 0..rows {
                    let (l, r) =
                        (reference::share(&pair.left, row), reference::share(&pair.right, row));
                    let sum = match group {
                        Group::Bits => l ^ r,
                        Group::Z8 => (l + r) % 256,
                        _ => l.wrapping_add(r),
                    };
                    assert_eq!(
                        sum,
                        u32::from(row == index),
                        "{prg:?} {group:?} {rows} {index} {row}"
                    );
                }
            }
        }
    }
}

#[test]
fn every_row_of_odd_tables_comes_back() {
    for platform in Platform::available() {
        for (rows, row_bytes) in [(1, 1), (2, 3), (513, 33), (700, 40)] {
            let (shape, bytes) = table(rows, row_bytes, 1);
            let spec = EngineSpec { threads: 2, platform, ..EngineSpec::default() };
            let engine = CpuEngine::from_rows(shape, &bytes, &spec).unwrap();
            let pairs: Vec<_> =
                (0..rows).map(|i| pair(PrgKind::Aes128, Group::Bits, rows, i)).collect();
            let (left, right): (Vec<Key>, Vec<Key>) =
                pairs.into_iter().map(|p| (p.left, p.right)).unzip();
            let mut answers = [vec![0; bytes.len()], vec![0; bytes.len()]];
            engine.answer(&left, &mut answers[0]).unwrap();
            engine.answer(&right, &mut answers[1]).unwrap();
            assert_eq!(combine(Group::Bits, &answers[0], &answers[1]), bytes);
        }
    }
}

#[test]
fn long_rows_and_many_subtrees() {
    for platform in Platform::available() {
        for (rows, row_bytes) in [(3, 65_536), (70_001, 8), (40_000, 200)] {
            let (shape, bytes) = table(rows, row_bytes, 2);
            let spec =
                EngineSpec { threads: 2, platform, batch_keys_max: 5, ..EngineSpec::default() };
            let engine = CpuEngine::from_rows(shape, &bytes, &spec).unwrap();
            for keys in [1, 2, 7] {
                let ids: Vec<u64> = (0..keys).map(|i| (i * 7919 + rows - 1) % rows).collect();
                let (left, right): (Vec<Key>, Vec<Key>) = ids
                    .iter()
                    .map(|&id| pair(PrgKind::Aes128, Group::Bits, rows, id))
                    .map(|p| (p.left, p.right))
                    .unzip();
                let mut answers = vec![vec![0; ids.len() * row_bytes]; 2];
                engine.answer(&left, &mut answers[0]).unwrap();
                engine.answer(&right, &mut answers[1]).unwrap();
                let rows_back = combine(Group::Bits, &answers[0], &answers[1]);
                for (row, id) in rows_back.chunks_exact(row_bytes).zip(ids) {
                    assert_eq!(row, &bytes[id as usize * row_bytes..][..row_bytes]);
                }
            }
        }
    }
}

/// Of tables wider than a panel of rows, with a narrower strip at its end and without; of more keys than
/// are multiplied with at once, and of more subtrees than one.
#[test]
fn additive_answers_of_wide_and_long_tables() {
    for platform in Platform::available() {
        for (rows, row_bytes) in [(1_500, 301), (30_000, 8), (9_000, 64)] {
            let (shape, bytes) = table(rows, row_bytes, 4);
            let spec = EngineSpec { threads: 2, platform, ..EngineSpec::default() };
            let engine = CpuEngine::from_rows(shape, &bytes, &spec).unwrap();
            for (group, keys) in
                [(Group::Z8, 1), (Group::Z32, 1), (Group::Z8, 61), (Group::Z32, 61)]
            {
                let ids: Vec<u64> = (0..keys).map(|i| (i * 7919 + rows - 1) % rows).collect();
                let (left, right): (Vec<Key>, Vec<Key>) = ids
                    .iter()
                    .map(|&id| pair(PrgKind::Aes128, group, rows, id))
                    .map(|p| (p.left, p.right))
                    .unzip();
                let mut answers = vec![vec![0; ids.len() * row_bytes]; 2];
                engine.answer(&left, &mut answers[0]).unwrap();
                engine.answer(&right, &mut answers[1]).unwrap();
                let answers = answers[0].chunks(row_bytes).zip(answers[1].chunks(row_bytes));
                for ((left, right), id) in answers.zip(ids) {
                    let row = &bytes[id as usize * row_bytes..][..row_bytes];
                    assert_eq!(combine(group, left, right), row, "{platform:?} {group:?} {id}");
                }
            }
        }
    }
}

#[test]
fn a_mixed_batch_is_answered_key_by_key() {
    let (shape, bytes) = table(1300, 21, 3);
    let engine = CpuEngine::from_rows(shape, &bytes, &EngineSpec::default()).unwrap();
    let mut keys = Vec::new();
    for prg in PrgKind::ALL {
        for group in Group::ALL {
            keys.push(pair(prg, group, 1300, 777).right);
        }
    }
    let mut answers = vec![0; keys.len() * 21];
    engine.answer(&keys, &mut answers).unwrap();
    for (key, answer) in keys.iter().zip(answers.chunks_exact(21)) {
        assert_eq!(answer, reference::answer(key, &bytes, 21), "{:?}", key.params());
    }
}

#[test]
fn a_client_of_each_group_reads_rows_of_any_length() {
    let version = Version::from([3; 32]);
    for (rows, row_bytes) in [(700, 7), (65, 8), (1, 1)] {
        let (shape, bytes) = table(rows, row_bytes, 5);
        let engine = CpuEngine::from_rows(shape, &bytes, &EngineSpec::default()).unwrap();
        for group in Group::ALL {
            let client = Client::with_group(shape, version, PrgKind::ChaCha12, group).unwrap();
            let ids = [rows - 1, 0];
            let (request, pending) = client.query(&ids, 3).unwrap();
            let answers = [&request.left, &request.right].map(|keys| {
                let keys: Vec<_> = keys.iter().map(|key| Key::parse(key).unwrap()).collect();
                assert!(keys.iter().all(|key| key.params().domain.group() == group));
                let mut answers = vec![0; 3 * row_bytes];
                engine.answer(&keys, &mut answers).unwrap();
                answers
            });
            let [left, right] = answers.each_ref().map(|answers| Reply { version, answers });
            let expected: Vec<u8> = ids
                .iter()
                .flat_map(|&id| &bytes[id as usize * row_bytes..][..row_bytes])
                .copied()
                .collect();
            assert_eq!(pending.combine(left, right).unwrap(), expected, "{group:?}");
        }
    }
}

#[test]
fn keys_and_buffers_that_do_not_fit_are_refused() {
    let (shape, bytes) = table(100, 4, 4);
    let engine = CpuEngine::from_rows(shape, &bytes, &EngineSpec::default()).unwrap();
    let key = pair(PrgKind::Aes128, Group::Bits, 101, 0).left;
    let error = engine.answer(std::slice::from_ref(&key), &mut [0; 4]).unwrap_err();
    assert_eq!(error, Error::Domain { expected: 100, found: 101 });
    let key = pair(PrgKind::Aes128, Group::Bits, 100, 0).left;
    let error = engine.answer(&[key], &mut [0; 5]).unwrap_err();
    assert_eq!(error, Error::AnswerBytes { expected: 4, found: 5 });
    let spec = EngineSpec::default();
    let error = CpuEngine::from_rows(shape, &bytes[1..], &spec).err().unwrap();
    assert_eq!(error, Error::TableBytes { expected: 400, found: 399 });
    assert_eq!(TableShape::new(0, 1).unwrap_err(), Error::Rows { rows: 0 });
    assert_eq!(TableShape::new(1 << 40, 1).unwrap_err(), Error::Rows { rows: 1 << 40 });
    assert_eq!(TableShape::new(1, 65_537).unwrap_err(), Error::RowBytes { row_bytes: 65_537 });
}

#[test]
fn key_bytes_round_trip_and_every_defect_has_its_error() {
    for group in Group::ALL {
        for rows in [1, 512, 513, 1 << 20, 1 << 32] {
            let pair = pair(PrgKind::ChaCha12, group, rows, rows - 1);
            for key in [pair.left, pair.right] {
                let bytes = key.to_bytes();
                assert_eq!(bytes.len(), key.params().key_bytes());
                assert_eq!(Key::parse(&bytes).unwrap().to_bytes(), bytes);
            }
        }
    }
    let good = pair(PrgKind::Aes128, Group::Bits, 1 << 20, 5).left.to_bytes();
    assert_eq!(good.len(), 266);
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] = value;
        Key::parse(&bytes).err()
    };
    let (expected, rows) = (266, 1 << 20);
    assert_eq!(Key::parse(&[]).err(), Some(Error::KeyHeader { expected: 8, found: 0 }));
    assert_eq!(
        Key::parse(&good[..265]).err(),
        Some(Error::KeyBytes { rows, expected, found: 265 })
    );
    assert_eq!(with(0, 2), Some(Error::KeyFormat { expected: 1, found: 2 }));
    assert_eq!(with(1, 2), Some(Error::UnknownSide { found: 2 }));
    assert_eq!(with(2, 3), Some(Error::UnknownGroup { found: 3 }));
    assert_eq!(with(3, 99), Some(Error::UnknownPrg { found: 99 }));
    assert_eq!(with(8, good[8] | 1), Some(Error::KeyPadding));
    assert_eq!(with(8 + 16 * 12 + 1, 0xFF), Some(Error::KeyPadding));
    assert_eq!(Key::parse(&good).unwrap().params().side, Side::Left);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn engine_matches_reference(
        rows in 1u64..3000, row_bytes in 1usize..90, at in 0.0f64..1.0, prg in 0usize..8,
        group in 0usize..3, tier in 0usize..4, threads in 1usize..4, count in 1usize..20,
    ) {
        let tiers = Platform::available();
        let platform = tiers[tier % tiers.len()];
        let (group, prg) = (Group::ALL[group], PrgKind::ALL[prg]);
        let (shape, bytes) = table(rows, row_bytes, rows);
        let spec = EngineSpec { threads, platform, ..EngineSpec::default() };
        let engine = CpuEngine::from_rows(shape, &bytes, &spec).unwrap();
        let index = (at * rows as f64) as u64 % rows;
        let keys: Vec<Key> = (0..count).map(|i| {
            let pair = pair(prg, group, rows, (index + i as u64) % rows);
            if i % 2 == 0 { pair.left } else { pair.right }
        }).collect();
        let mut answers = vec![0; keys.len() * row_bytes];
        engine.answer(&keys, &mut answers).unwrap();
        let first = reference::answer(&keys[0], &bytes, row_bytes);
        prop_assert_eq!(&answers[..row_bytes], &first[..]);
        let last = reference::answer(&keys[count - 1], &bytes, row_bytes);
        prop_assert_eq!(&answers[(count - 1) * row_bytes..], &last[..]);
    }

    #[test]
    fn parsing_any_bytes_never_panics(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        if let Ok(key) = Key::parse(&bytes) {
            prop_assert_eq!(key.to_bytes(), bytes);
        }
    }
}
