//! Every platform gives the known answers of `vectors/garble.json`.

use hushtable_mpc::garble::{Activation, ActivationSpec, evaluate, garble, groups, labels, select};
use hushtable_mpc::{Block, LANES, Platform};
use serde::Deserialize;

#[derive(Deserialize)]
struct Vectors {
    format: u32,
    delta: String,
    first_instance: u64,
    garbler_seed: String,
    evaluator_seed: String,
    shares: Vec<String>,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    bits: u32,
    dropped: u32,
    shift: u32,
    window: usize,
    rectify: bool,
    most: Option<u64>,
    count: usize,
    and_gates: usize,
    table_bytes: usize,
    tables: Option<String>,
    tables_blake3: String,
    masks: Vec<String>,
    evaluated: Vec<String>,
}

fn words(texts: &[String]) -> Vec<u64> {
    texts.iter().map(|text| u64::from_str_radix(text, 16).unwrap()).collect()
}

#[test]
fn known_answers() {
    let file = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/garble.json");
    let vectors: Vectors = serde_json::from_slice(&std::fs::read(file).unwrap()).unwrap();
    assert_eq!(vectors.format, 1);
    assert!(vectors.cases.len() >= 7);
    let delta = Block::from_str_radix(&vectors.delta, 16).unwrap();
    let shares = words(&vectors.shares);
    for platform in Platform::available() {
        for case in &vectors.cases {
            let Case { bits, dropped, shift, window, rectify, most, count, .. } = *case;
            let spec = ActivationSpec { bits, dropped, shift, window, rectify, most };
            let activation = Activation::new(spec).unwrap();
            let counts = (activation.and_gates(), activation.table_bytes());
            assert_eq!(counts, (case.and_gates, case.table_bytes), "{spec:?}");
            let groups = groups(count);
            let zeros = [&vectors.garbler_seed, &vectors.evaluator_seed].map(|seed| {
                let seed = hex::decode(seed).unwrap().try_into().unwrap();
                let mut zeros = vec![0; groups * activation.wires() * LANES];
                labels(platform, &seed, 0, &mut zeros);
                zeros
            });
            let [garbler, evaluator] = &zeros;
            let first = vectors.first_instance;
            let mut tables = vec![0; groups * LANES * activation.table_bytes()];
            let mut masks = vec![0; count];
            garble(
                &activation,
                platform,
                delta,
                first,
                garbler,
                evaluator,
                &mut tables,
                &mut masks,
            );
            if let Some(expected) = &case.tables {
                assert_eq!(&hex::encode(&tables), expected, "{platform:?} {spec:?}");
            }
            assert_eq!(
                blake3::hash(&tables).to_string(),
                case.tables_blake3,
                "{platform:?} {spec:?}"
            );
            assert_eq!(masks, words(&case.masks), "{platform:?} {spec:?}");
            let own = [&shares[..count * window], &shares[count * window..][..count * window]];
            let mut active = zeros.clone();
            for ((active, zeros), own) in active.iter_mut().zip(&zeros).zip(own) {
                select(platform, delta, zeros, &activation.choices(own), active);
            }
            let mut out = vec![0; count];
            evaluate(&activation, platform, first, &active[0], &active[1], &tables, &mut out);
            assert_eq!(out, words(&case.evaluated), "{platform:?} {spec:?}");
            let mask = u64::MAX >> (64 - bits);
            let results: Vec<u64> =
                out.iter().zip(&masks).map(|(out, m)| out.wrapping_sub(*m) & mask).collect();
            assert_eq!(results, activation.clear(own[1], own[0]), "{platform:?} {spec:?}");
        }
    }
}
