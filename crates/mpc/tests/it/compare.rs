//! Comparison keys: shares add up to the comparison, fast and slow path agree, and one server's key says nothing.

use hushtable_mpc::Platform;
use hushtable_mpc::compare::{Comparisons, Half, WordsError, deal, evaluate, reference};
use hushtable_prg::{Prg, PrgKind};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

const HALVES: [Half; 2] = [Half::Left, Half::Right];

fn roots(rng: &mut ChaCha12Rng, count: usize) -> Vec<[u128; 2]> {
    (0..count).map(|_| rng.random()).collect()
}

fn opened(prg: Prg, keys: Comparisons, points: &[u64], roots: &[[u128; 2]], at: &[u64]) -> Vec<u8> {
    let words = deal(prg, keys, points, roots);
    assert_eq!(words.len(), keys.words_bytes());
    let of = |side: usize| {
        let roots: Vec<u128> = roots.iter().map(|roots| roots[side]).collect();
        evaluate(prg, HALVES[side], keys, &roots, &words, at).unwrap()
    };
    of(0).iter().zip(of(1)).map(|(left, right)| left ^ right).collect()
}

#[test]
fn every_pair_of_small_numbers_is_compared_rightly() {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    for bits in [0, 1, 2, 5, 7, 8, 9] {
        let numbers = 1_u64 << bits;
        let at: Vec<u64> = (0..numbers).collect();
        let keys = Comparisons::new(at.len(), bits);
        for point in 0..numbers {
            let points = vec![point; at.len()];
            let roots = roots(&mut rng, at.len());
            let found = opened(prg, keys, &points, &roots, &at);
            let expected: Vec<u8> = at.iter().map(|&at| u8::from(at < point)).collect();
            assert_eq!(found, expected, "{bits} bits, point {point}");
        }
    }
}

#[test]
fn large_numbers_are_compared_rightly_near_and_far() {
    let mut rng = ChaCha12Rng::seed_from_u64(2);
    for platform in Platform::available() {
        for bits in [19, 23, 31, 63] {
            let prg = Prg::new(PrgKind::Aes128, platform);
            let mask = (1_u64 << bits) - 1;
            let points: Vec<u64> = (0..500).map(|_| rng.random::<u64>() & mask).collect();
            // Equal, one off, a leaf off, and anywhere.
            let at: Vec<u64> = points
                .iter()
                .enumerate()
                .map(|(i, &point)| match i % 5 {
                    0 => point,
                    1 => point.wrapping_sub(1) & mask,
                    2 => point.wrapping_add(1) & mask,
                    3 => point.wrapping_add(128) & mask,
                    _ => rng.random::<u64>() & mask,
                })
                .collect();
            let keys = Comparisons::new(points.len(), bits);
            let roots = roots(&mut rng, points.len());
            let found = opened(prg, keys, &points, &roots, &at);
            let expected: Vec<u8> =
                at.iter().zip(&points).map(|(at, r)| u8::from(at < r)).collect();
            assert_eq!(found, expected, "{bits} bits, {platform:?}");
        }
    }
}

#[test]
fn the_fast_path_gives_each_server_the_share_of_the_slow_one() {
    let mut rng = ChaCha12Rng::seed_from_u64(3);
    for kind in [PrgKind::Aes128, PrgKind::ChaCha12] {
        for bits in [3, 7, 10] {
            let keys = Comparisons::new(11, bits);
            let points: Vec<u64> = (0..11).map(|_| rng.random_range(0..1 << bits)).collect();
            let at: Vec<u64> = (0..11).map(|_| rng.random_range(0..1 << bits)).collect();
            let roots = roots(&mut rng, 11);
            let words = deal(Prg::new(kind, Platform::detect()), keys, &points, &roots);
            for platform in Platform::available() {
                for (side, half) in HALVES.into_iter().enumerate() {
                    let own: Vec<u128> = roots.iter().map(|roots| roots[side]).collect();
                    let prg = Prg::new(kind, platform);
                    let found = evaluate(prg, half, keys, &own, &words, &at).unwrap();
                    let expected: Vec<u8> = (0..11)
                        .map(|key| {
                            reference::evaluate(kind, half, keys, (key, own[key]), &words, at[key])
                        })
                        .collect();
                    assert_eq!(found, expected, "{kind}, {bits} bits, {half:?}");
                }
            }
        }
    }
}

/// Each bit of a key is as often set for one point as for another: a key with 32-bit correction words off the path,
/// which a published artifact has, is told apart by such counts.
#[test]
fn one_servers_key_has_no_bit_that_depends_on_the_point() {
    let mut rng = ChaCha12Rng::seed_from_u64(4);
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    const KEYS: usize = 4000;
    const BITS: u32 = 12;
    let one = Comparisons::new(1, BITS);
    let counts = |rng: &mut ChaCha12Rng, point: u64, planted: bool| {
        let mut counts = vec![0_i32; 8 * one.words_bytes()];
        for _ in 0..KEYS {
            let mut words = deal(prg, one, &[point], &roots(rng, 1));
            if planted {
                // The first level's control bit, uncorrected: it says which half the point is in.
                words[0] = (words[0] & !1) | (point >> (BITS - 1)) as u8;
            }
            for (bit, count) in counts.iter_mut().enumerate() {
                *count += i32::from(words[bit / 8] >> (bit % 8) & 1);
            }
        }
        counts
    };
    // Bits beside the count of keys are zero in each: a level's right control bits fill a byte.
    let furthest =
        |a: &[i32], b: &[i32]| a.iter().zip(b).map(|(a, b)| (a - b).abs()).max().unwrap();
    // Of two counts of 4,000 fair bits the difference has a deviation of 45; 7 of them among 900 bits are chance once
    // in 10^9 runs.
    let bound = (7.0 * (KEYS as f64 / 2.0).sqrt()) as i32;
    let (low, high) = (counts(&mut rng, 0, false), counts(&mut rng, (1 << BITS) - 1, false));
    assert!(furthest(&low, &high) < bound, "{} of {bound}", furthest(&low, &high));
    let (low, high) = (counts(&mut rng, 0, true), counts(&mut rng, (1 << BITS) - 1, true));
    assert!(furthest(&low, &high) > bound, "the planted leak is not seen");
}

#[test]
fn words_of_another_length_are_refused() {
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let keys = Comparisons::new(2, 9);
    let words = deal(prg, keys, &[1, 2], &[[3, 4], [5, 6]]);
    let outcome = evaluate(prg, Half::Left, keys, &[3, 5], &words[1..], &[0, 0]);
    let WordsError { expected, found, .. } = outcome.unwrap_err();
    assert_eq!((expected, found), (words.len(), words.len() - 1));
}

#[test]
fn every_platform_reproduces_the_vectors() {
    let file: serde_json::Value =
        serde_json::from_str(include_str!("../../../../vectors/compare.json")).unwrap();
    assert_eq!(file["format"], 1);
    let numbers = |value: &serde_json::Value| -> Vec<u64> {
        value.as_array().unwrap().iter().map(|number| number.as_u64().unwrap()).collect()
    };
    let vectors = file["vectors"].as_array().unwrap();
    assert_eq!(vectors.len(), 10);
    for vector in vectors {
        let kind: PrgKind = vector["prg"].as_str().unwrap().parse().unwrap();
        let (points, at) = (numbers(&vector["points"]), numbers(&vector["at"]));
        let keys = Comparisons::new(points.len(), vector["bits"].as_u64().unwrap() as u32);
        let root =
            |text: &serde_json::Value| u128::from_str_radix(text.as_str().unwrap(), 16).unwrap();
        let roots: Vec<[u128; 2]> = vector["roots"]
            .as_array()
            .unwrap()
            .iter()
            .map(|roots| [root(&roots[0]), root(&roots[1])])
            .collect();
        for platform in Platform::available() {
            let prg = Prg::new(kind, platform);
            let words = deal(prg, keys, &points, &roots);
            assert_eq!(hex::encode(&words), vector["words"].as_str().unwrap(), "{platform:?}");
            for (side, name) in ["left_shares", "right_shares"].into_iter().enumerate() {
                let own: Vec<u128> = roots.iter().map(|roots| roots[side]).collect();
                let shares = evaluate(prg, HALVES[side], keys, &own, &words, &at).unwrap();
                let shares: Vec<u64> = shares.into_iter().map(u64::from).collect();
                assert_eq!(shares, numbers(&vector[name]), "{name}, {platform:?}");
            }
        }
    }
}
