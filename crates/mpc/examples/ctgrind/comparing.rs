//! Comparison keys.

use hushtable_mpc::Platform;
use hushtable_mpc::compare::joint::{Making, Units, words};
use hushtable_mpc::compare::{Comparisons, Half, Prg, PrgKind, deal, evaluate};
use hushtable_mpc::ot::{Mutual, MutualSetup, SetupStep, SharedBits};
use hushtable_prg::valgrind::{mark_public, mark_secret};

/// The dealer's points and roots, and what either server does with its own.
pub fn compares() {
    for bits in [5, 19] {
        let keys = Comparisons::new(40, bits);
        let public: Vec<u64> = (0..40).map(|key| (key * 0x9E37_79B9) & ((1 << bits) - 1)).collect();
        let at: Vec<u64> = public.iter().map(|point| (point ^ 1) & ((1 << bits) - 1)).collect();
        let mut points = public.clone();
        let mut roots: Vec<[u128; 2]> =
            (1..=40).map(|key| [(key << 100) | key, (key << 90) | (3 * key)]).collect();
        mark_secret(&mut points);
        mark_secret(roots.as_flattened_mut());
        let prg = Prg::new(PrgKind::Aes128, Platform::detect());
        let mut words = deal(prg, keys, &points, &roots);
        mark_public(&mut words);
        let share = |half, side: usize| {
            let own: Vec<u128> = roots.iter().map(|roots| roots[side]).collect();
            let mut share = evaluate(prg, half, keys, &own, &words, &at).expect("all words");
            mark_public(&mut share);
            share
        };
        let (left, right) = (share(Half::Left, 0), share(Half::Right, 1));
        for (key, (left, right)) in left.iter().zip(right).enumerate() {
            assert_eq!(left ^ right, u8::from(at[key] < public[key]), "key {key}");
        }
    }
}

/// Both servers' bits and roots, where the two make keys themselves.
pub fn makes() {
    const HALVES: [Half; 2] = [Half::Left, Half::Right];
    let mut mutuals = meet();
    for bits in [5, 10] {
        let keys = Comparisons::new(5, bits);
        let count = 5 * bits as usize;
        let public: [Vec<u8>; 2] =
            [3, 7].map(|step| (0..count).map(|bit| (bit * step / 5 % 2) as u8).collect());
        let mut own = public.clone();
        let mut roots: [Vec<u128>; 2] =
            [90, 100].map(|at| (1..=5).map(|key| key << at | key).collect());
        own.iter_mut().for_each(|own| mark_secret(own));
        roots.iter_mut().for_each(|roots| mark_secret(roots));
        let mut chosen = [0, 1].map(|side| mutuals[side].choose(&own[side]));
        chosen.iter_mut().for_each(|(_, message)| mark_public(message));
        let points = [0, 1].map(|side| {
            let offered = mutuals[side].chosen(count, &chosen[1 - side].1).expect("choices");
            SharedBits::new(&own[side], &chosen[side].0, &offered)
        });
        let mut units = [0, 1].map(|side| Units::new(HALVES[side], keys, &points[side]));
        while !units[0].is_done() {
            let mut sent = [0, 1].map(|side| units[side].send(&mut mutuals[side], &points[side]));
            sent.iter_mut().for_each(|sent| mark_public(sent));
            for side in 0..2 {
                let (mutual, message) = (&mut mutuals[side], &sent[1 - side]);
                units[side].take(mutual, &points[side], message).expect("products");
            }
        }
        let prg = Prg::new(PrgKind::Aes128, Platform::detect());
        let mut making = [0, 1].map(|side| {
            let points = points[side].clone();
            Making::new(prg, HALVES[side], keys, points, &roots[side], units[side].shares())
        });
        while !making[0].is_done() {
            let mut sent = [0, 1].map(|side| making[side].send(&mut mutuals[side]));
            sent.iter_mut().for_each(|sent| mark_public(sent));
            for side in 0..2 {
                making[side].take(&mut mutuals[side], &sent[1 - side]).expect("words");
            }
        }
        let mut made = making.map(|making| words(keys, &[making.made()]));
        made.iter_mut().for_each(|made| mark_public(made));
        mark_public(&mut roots[0]);
        mark_public(&mut roots[1]);
        let points: Vec<u64> = (0..5)
            .map(|key| {
                let at = |bit: usize| u64::from(public[0][bit] ^ public[1][bit]);
                let bits = bits as usize;
                (0..bits).fold(0, |all, bit| all | at(key * bits + bit) << bit)
            })
            .collect();
        let roots: Vec<[u128; 2]> = (0..5).map(|key| [roots[0][key], roots[1][key]]).collect();
        assert_eq!(made, [(); 2].map(|()| deal(prg, keys, &points, &roots)));
    }
}

/// Transfers both ways.
fn meet() -> [Mutual; 2] {
    let mut setups = [(); 2].map(|()| MutualSetup::new().expect("randomness"));
    loop {
        let [(left, to_right), (right, to_left)] = setups;
        let steps = (left.step(&to_left).expect("a message"), right.step(&to_right).expect("one"));
        setups = match steps {
            (SetupStep::Send(left, to_right), SetupStep::Send(right, to_left)) => {
                [(left, to_right), (right, to_left)]
            }
            (SetupStep::Done(left), SetupStep::Done(right)) => return [*left, *right],
            _ => panic!("both are done at once"),
        };
    }
}
