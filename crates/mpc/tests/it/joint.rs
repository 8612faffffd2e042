//! Products over transfers both ways, and comparison keys that two servers make themselves: they are the dealer's.

use hushtable_mpc::compare::joint::{Made, Making, MakingError, Units, words};
use hushtable_mpc::compare::{Comparisons, Half, deal, evaluate};
use hushtable_mpc::ot::{Error, Group, Mutual, MutualSetup, SetupStep, SharedBits, choice_bytes};
use hushtable_prg::{Platform, Prg, PrgKind};
use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

const HALVES: [Half; 2] = [Half::Left, Half::Right];

/// Both ends of a new setup.
fn mutuals() -> [Mutual; 2] {
    let mut setups = [(); 2].map(|()| MutualSetup::new().unwrap());
    loop {
        let [(left, to_right), (right, to_left)] = setups;
        setups = match (left.step(&to_left).unwrap(), right.step(&to_right).unwrap()) {
            (SetupStep::Send(left, to_right), SetupStep::Send(right, to_left)) => {
                [(left, to_right), (right, to_left)]
            }
            (SetupStep::Done(left), SetupStep::Done(right)) => return [*left, *right],
            _ => panic!("both are done at once"),
        };
    }
}

/// Both ends of bits that they share.
fn shared(mutuals: &mut [Mutual; 2], own: [&[u8]; 2]) -> [SharedBits; 2] {
    let [(left, to_right), (right, to_left)] = [0, 1].map(|side| mutuals[side].choose(own[side]));
    assert_eq!(to_right.len(), choice_bytes(own[0].len()));
    let offered = [
        mutuals[0].chosen(own[1].len(), &to_left).unwrap(),
        mutuals[1].chosen(own[0].len(), &to_right).unwrap(),
    ];
    [SharedBits::new(own[0], &left, &offered[0]), SharedBits::new(own[1], &right, &offered[1])]
}

fn product(
    group: Group,
    mutuals: &mut [Mutual; 2],
    bits: &[SharedBits; 2],
    x: [&[u32]; 2],
) -> Vec<u32> {
    let [(mut left, to_right), (mut right, to_left)] =
        [0, 1].map(|side| mutuals[side].multiply(group, &bits[side], x[side]));
    mutuals[0].multiplied(group, &bits[0], &mut left, &to_left).unwrap();
    mutuals[1].multiplied(group, &bits[1], &mut right, &to_right).unwrap();
    let sum = |(x, y): (&u32, &u32)| match group {
        Group::Xor => x ^ y,
        Group::Add => x.wrapping_add(*y),
    };
    left.iter().zip(right.iter()).map(sum).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn shared_bits_times_shared_vectors(seed: u64, count in 0..40_usize, width in 1..9_usize) {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut mutuals = mutuals();
        let own: [Vec<u8>; 2] = [(); 2].map(|()| (0..count).map(|_| rng.random_range(0..2)).collect());
        let bits = shared(&mut mutuals, [&own[0], &own[1]]);
        // The same labels again and again: each product has pads of its own.
        for round in 0..4 {
            let x: [Vec<u32>; 2] = [(); 2].map(|()| (0..count * width).map(|_| rng.random()).collect());
            let group = [Group::Xor, Group::Add][round % 2];
            let found = product(group, &mut mutuals, &bits, [&x[0], &x[1]]);
            for (place, found) in found.into_iter().enumerate() {
                let bit = u32::from(own[0][place / width] ^ own[1][place / width]);
                let value = match group {
                    Group::Xor => x[0][place] ^ x[1][place],
                    Group::Add => x[0][place].wrapping_add(x[1][place]),
                };
                prop_assert_eq!(found, bit * value, "round {}, place {}", round, place);
            }
        }
    }
}

#[test]
fn no_message_of_a_transfer_comes_twice() {
    let [mut left, _] = mutuals();
    let bits = [1; 64];
    let (labels, first) = left.choose(&bits);
    let (again, second) = left.choose(&bits);
    assert!(labels.iter().all(|label| !again.contains(label)));
    assert_ne!(first, second, "a batch number is used twice");
    let values = [7; 64];
    let offered = [(); 2].map(|()| left.offer(Group::Xor, &labels, &values).1);
    let words = |bytes: &[u8]| bytes.chunks(4).map(<[u8]>::to_vec).collect::<Vec<_>>();
    let (first, second) = (words(&offered[0]), words(&offered[1]));
    assert!(first.iter().zip(&second).all(|(x, y)| x != y), "a tweak is used twice");
    assert!(first.iter().skip(1).all(|x| *x != first[0]));
}

#[test]
fn messages_of_another_length_are_refused() {
    let mut mutuals = mutuals();
    let bits = shared(&mut mutuals, [&[1; 20], &[0; 20]]);
    let [left, right] = &mut mutuals;
    let (mut shares, message) = left.multiply(Group::Add, &bits[0], &[5; 40]);
    for bad in [&message[1..], &[&message[..], &[0]].concat()] {
        let outcome = right.multiplied(Group::Add, &bits[1], &mut shares, bad);
        assert!(matches!(outcome, Err(Error::Length { expected: 160, .. })), "{outcome:?}");
    }
    let (_, choices) = left.choose(&[1; 20]);
    assert!(matches!(right.chosen(20, &choices[1..]), Err(Error::Length { .. })));
    assert!(matches!(right.chosen(40, &choices), Err(Error::Length { .. })));
    let (setup, opening) = MutualSetup::new().unwrap();
    assert!(matches!(setup.step(&opening[1..]), Err(Error::Length { .. })));
}

/// Bits of points, key after key, the lowest first.
fn bits_of(points: &[u64], bits: u32) -> Vec<u8> {
    points.iter().flat_map(|point| (0..bits).map(move |bit| (point >> bit & 1) as u8)).collect()
}

/// What both servers make of points, roots and chunks of so many keys, and all that either was sent.
fn made(
    mutuals: &mut [Mutual; 2],
    rng: &mut ChaCha12Rng,
    keys: Comparisons,
    points: &[u64],
    roots: &[[u128; 2]],
    chunk: usize,
) -> ([Vec<u8>; 2], [Vec<u8>; 2]) {
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let all = bits_of(points, keys.bits());
    let left: Vec<u8> = all.iter().map(|_| rng.random_range(0..2)).collect();
    let right: Vec<u8> = all.iter().zip(&left).map(|(bit, left)| bit ^ left).collect();
    let shared = shared(mutuals, [&left, &right]);
    let mut units = [0, 1].map(|side| Units::new(HALVES[side], keys, &shared[side]));
    let mut seen: [Vec<u8>; 2] = Default::default();
    while !units[0].is_done() {
        let sent = [0, 1].map(|side| units[side].send(&mut mutuals[side], &shared[side]));
        for side in 0..2 {
            assert_eq!(sent[side].len(), units[side].message_bytes());
            units[side].take(&mut mutuals[side], &shared[side], &sent[1 - side]).unwrap();
            seen[side].extend(&sent[1 - side]);
        }
    }
    let mut chunks: [Vec<Made>; 2] = Default::default();
    let bits = keys.bits() as usize;
    for start in (0..keys.count()).step_by(chunk) {
        let end = keys.count().min(start + chunk);
        let keys = Comparisons::new(end - start, keys.bits());
        let mut making = [0, 1].map(|side| {
            let own: Vec<u128> = roots[start..end].iter().map(|roots| roots[side]).collect();
            let points = shared[side].at(start * bits..end * bits);
            let units = &units[side].shares()[start..end];
            Making::new(prg, HALVES[side], keys, points, &own, units)
        });
        let mut rounds = 0;
        while !making[0].is_done() {
            let sent = [0, 1].map(|side| making[side].send(&mut mutuals[side]));
            for side in 0..2 {
                assert_eq!(sent[side].len(), making[side].message_bytes());
                making[side].take(&mut mutuals[side], &sent[1 - side]).unwrap();
                seen[side].extend(&sent[1 - side]);
            }
            rounds += 1;
        }
        assert_eq!(rounds, 2 * keys.levels() + 1);
        making.into_iter().zip(&mut chunks).for_each(|(making, chunks)| chunks.push(making.made()));
    }
    (chunks.map(|chunks| words(keys, &chunks)), seen)
}

#[test]
fn both_servers_make_the_dealers_keys_byte_for_byte() {
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let mut mutuals = mutuals();
    for (bits, chunk) in [(0, 3), (1, 9), (2, 9), (5, 4), (7, 9), (8, 2), (9, 9), (13, 5)] {
        let keys = Comparisons::new(9, bits);
        let mask = (1_u64 << bits) - 1;
        let mut points: Vec<u64> = (0..9).map(|_| rng.random::<u64>() & mask).collect();
        points[0] = 0;
        points[1] = mask;
        let roots: Vec<[u128; 2]> = (0..9).map(|_| rng.random()).collect();
        let ([left, right], _) = made(&mut mutuals, &mut rng, keys, &points, &roots, chunk);
        let expected = deal(prg, keys, &points, &roots);
        assert_eq!(left, expected, "{bits} bits");
        assert_eq!(right, expected, "{bits} bits");
        let at: Vec<u64> =
            points.iter().map(|point| point.wrapping_sub(rng.random_range(0..3)) & mask).collect();
        let of = |side: usize| {
            let own: Vec<u128> = roots.iter().map(|roots| roots[side]).collect();
            evaluate(prg, HALVES[side], keys, &own, &left, &at).unwrap()
        };
        for (key, (left, right)) in of(0).iter().zip(of(1)).enumerate() {
            assert_eq!(left ^ right, u8::from(at[key] < points[key]), "{bits} bits, key {key}");
        }
    }
}

#[test]
fn a_message_that_is_cut_or_has_bits_after_its_last_ends_the_making() {
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let keys = Comparisons::new(3, 9);
    let mut mutuals = mutuals();
    let shared = shared(&mut mutuals, [&[1; 27], &[0; 27]]);
    let mut making = [0, 1]
        .map(|side| Making::new(prg, HALVES[side], keys, shared[side].clone(), &[5; 3], &[0; 3]));
    let sent = [0, 1].map(|side| making[side].send(&mut mutuals[side]));
    let cut = making[1].take(&mut mutuals[1], &sent[0][1..]);
    assert!(matches!(cut, Err(MakingError::Transfer(Error::Length { .. }))));
    making[0].take(&mut mutuals[0], &sent[1]).unwrap();
    let mut words = making[0].send(&mut mutuals[0]);
    *words.last_mut().unwrap() |= 0x80;
    assert!(matches!(making[0].take(&mut mutuals[0], &words), Err(MakingError::Packed(_))));
}

/// Per bit of what a server is sent, how often it is set for one point and for another: the largest difference.
fn furthest(planted: bool) -> [i32; 2] {
    const RUNS: i32 = 600;
    let keys = Comparisons::new(1, 9);
    let mut rng = ChaCha12Rng::seed_from_u64(6);
    let mut mutuals = mutuals();
    let mut counts: [Vec<i32>; 2] = Default::default();
    for _ in 0..RUNS {
        for (point, sign) in [(0, 1), (0x1ff, -1)] {
            let roots: Vec<[u128; 2]> = vec![rng.random()];
            let (_, mut seen) = made(&mut mutuals, &mut rng, keys, &[point], &roots, 1);
            if planted {
                // A share of a word that is sent without its pad: here, a bit of the point.
                seen.iter_mut().for_each(|seen| seen[3] = seen[3] & !4 | (point as u8 & 4));
            }
            for (seen, counts) in seen.iter().zip(&mut counts) {
                counts.resize(8 * seen.len(), 0);
                for (bit, count) in counts.iter_mut().enumerate() {
                    *count += sign * i32::from(seen[bit / 8] >> (bit % 8) & 1);
                }
            }
        }
    }
    counts.map(|counts| counts.iter().map(|count| count.abs()).max().unwrap())
}

#[test]
fn what_a_server_is_sent_tells_no_two_points_apart() {
    // A difference of two counts of 600 fair bits has a deviation of 17; 7 of them are chance once in 10^8 runs.
    let found = furthest(false);
    assert!(found.iter().all(|it| *it < 120), "{found:?}");
    let planted = furthest(true);
    assert!(planted.iter().all(|it| *it > 120), "{planted:?}");
}
