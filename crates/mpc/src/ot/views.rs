//! What each party sees, given to a distinguisher: it must do no better than chance at the other's
//! secret, and must find what is planted.
//!
//! The distinguisher is given bits that an attacker would compute from the view, learns which of them
//! agrees best with the secret on one half of the samples, and predicts with it on the other.

use super::base::{BaseReceiver, BaseSender, TRANSFERS};
use super::consistency::{ANSWER_BYTES, BLIND};
use super::*;
use crate::kernel::transpose::{DEPTH, LEAVES, ROW, Streams, TREES};
use crate::{Block, Platform};

/// Bits that an attacker has, and the secret bit.
struct Sample(Vec<bool>, bool);

/// The share of right predictions on the second half of the samples.
fn accuracy(samples: &[Sample]) -> f64 {
    let (train, test) = samples.split_at(samples.len() / 2);
    let agreeing = |samples: &[Sample], bit: usize| {
        let agreeing = samples.iter().filter(|Sample(bits, secret)| bits[bit] == *secret).count();
        agreeing as f64 / samples.len() as f64
    };
    let best = (0..samples[0].0.len())
        .max_by(|a, b| {
            let away = |bit| (agreeing(train, bit) - 0.5).abs();
            away(*a).total_cmp(&away(*b))
        })
        .expect("bits");
    let right = agreeing(test, best);
    if agreeing(train, best) < 0.5 { 1.0 - right } else { right }
}

/// Five deviations of a guess on 2,048 samples.
const CHANCE: std::ops::Range<f64> = 0.44..0.56;

fn noise(seed: u64, out: &mut [u8]) {
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(out);
}

fn pair(delta: Block) -> (CotReceiver, CotSender) {
    let (receiver, opening) = ReceiverSetup::new(&[1; 32]);
    let (sender, points) = SenderSetup::new(&[2; 32], delta, &opening).expect("an opening");
    let (receiver, corrections) = receiver.finish(&points).expect("points");
    (receiver, sender.finish(&corrections).expect("corrections"))
}

/// Bytes of a tree's corrections, of 256 labels and of those that hide them.
const ROW_BYTES: usize = (256 + BLIND) / 8;

/// 4,096 transfers, as the sender sees them: of each tree the correction alone, and less all streams of
/// leaves that it knows, and beside the one before, whose choices it is told; and the zero label.
/// `knows_all` lets it know the leaf that it must not, and `batch_of` says which batch each 256 transfers
/// are made in.
fn of_sender(knows_all: bool, batch_of: impl Fn(u64) -> u64) -> Vec<Sample> {
    let delta = 0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6979;
    let (receiver, sender) = pair(delta);
    let mut known = sender.leaves.to_vec();
    if knows_all {
        let kept = receiver.to_bytes();
        for tree in 0..TREES {
            let path = (delta >> (DEPTH * tree)) as usize % LEAVES;
            let leaf = 65 + 16 * (LEAVES * tree + path);
            let bytes: [u8; 16] = kept[leaf..leaf + 16].try_into().expect("a leaf");
            known[LEAVES * tree] = u128::from_le_bytes(bytes);
        }
    }
    let streams = Streams::new(Platform::PORTABLE, &known);
    let mut samples = Vec::new();
    let mut before: Option<(Vec<u8>, [u16; 16])> = None;
    for round in 0..16 {
        let batch = batch_of(round);
        let mut bytes = [0; 32];
        noise(round, &mut bytes);
        let choices: [u16; 16] =
            std::array::from_fn(|i| u16::from_le_bytes([bytes[2 * i], bytes[2 * i + 1]]));
        let mut labels = [0; 256];
        let corrections = receiver.extend(Platform::PORTABLE, batch, &choices, &mut labels);
        let mut zeros = [0; 256];
        sender.extend(Platform::PORTABLE, batch, &corrections, &mut zeros).expect("a batch");
        let mut sums = [[0; ROW]; TREES];
        for (tree, sum) in sums.iter_mut().enumerate() {
            let mut rows = [[0; ROW]; DEPTH];
            streams.fold(tree, sender.nonces.counter(tree, batch, 0), &mut rows, sum);
        }
        let (last, last_choices) = before.unwrap_or_else(|| (vec![0; corrections.len()], [0; 16]));
        for label in 0..256 {
            let bit = |bytes: &[u8], tree: usize| {
                bytes[ROW_BYTES * tree + label / 8] >> (label % 8) & 1 == 1
            };
            let known = |tree: usize| sums[tree][label / 128] >> (label % 128) & 1 == 1;
            let chosen = |choices: &[u16; 16]| choices[label / 16] >> (label % 16) & 1 == 1;
            let mut bits = Vec::new();
            for tree in 0..TREES {
                let now = bit(&corrections, tree);
                bits.extend([
                    now,
                    now ^ known(tree),
                    now ^ bit(&last, tree) ^ chosen(&last_choices),
                ]);
            }
            bits.extend((0..128).map(|row| zeros[label] >> row & 1 == 1));
            samples.push(Sample(bits, chosen(&choices)));
        }
        before = Some((corrections, choices));
    }
    samples
}

#[test]
fn the_sender_learns_nothing_of_the_choices() {
    let accuracy = accuracy(&of_sender(false, |round| round));
    assert!(CHANCE.contains(&accuracy), "{accuracy}");
}

#[test]
fn a_leaf_that_the_sender_must_not_know_is_caught() {
    assert!(accuracy(&of_sender(true, |round| round)) > 0.99);
}

#[test]
fn a_batch_number_used_twice_is_caught() {
    assert!(accuracy(&of_sender(false, |_| 7)) > 0.99);
}

/// 2,048 batches of 16 transfers by one set of choices or another, as the sender sees their answers: the sums of the
/// choices that it is told, and less those of the first set. `is_open` takes off what hides them.
fn of_answers(is_open: bool) -> Vec<Sample> {
    let (receiver, _) = pair(5);
    let mut samples = Vec::new();
    for batch in 0..2048 {
        let is_first = (batch * 0x9E37_79B9) >> 20 & 1 == 1;
        let choices = if is_first { 0xA5C3 } else { 0x0F1E };
        let mut labels = [0; 16];
        let sent = receiver.extend(Platform::detect(), batch, &[choices], &mut labels);
        let (corrections, answer) = sent.split_at(sent.len() - ANSWER_BYTES);
        let mut told: [u64; 3] = std::array::from_fn(|sum| {
            u64::from_le_bytes(answer[8 * sum..][..8].try_into().expect("a word"))
        });
        if is_open {
            let blind = receiver.blind_choices(batch, 16);
            for (word, blind) in told.iter_mut().zip(blind.chunks(4)) {
                *word ^= blind.iter().rev().fold(0, |all, it| all << 16 | u64::from(*it));
            }
        }
        // Of the first set and of none, under these corrections: what hides them is in both.
        let [first, none] =
            [0xA5C3, 0].map(|it| receiver.hashes(batch, &[it], corrections).choices);
        let first: [u64; 3] = std::array::from_fn(|sum| first[sum] ^ none[sum]);
        let bits = |word: u64| (0..64).map(move |bit| word >> bit & 1 == 1);
        let less = told.iter().zip(first).flat_map(|(told, first)| bits(told ^ first));
        samples.push(Sample(told.iter().flat_map(|it| bits(*it)).chain(less).collect(), is_first));
    }
    samples
}

#[test]
fn the_sender_learns_nothing_of_the_choices_by_their_sums() {
    let accuracy = accuracy(&of_answers(false));
    assert!(CHANCE.contains(&accuracy), "{accuracy}");
}

#[test]
fn sums_that_nothing_hides_are_caught() {
    // A bit of what is 0 for one set of choices and a number that nobody chose for the other.
    assert!(accuracy(&of_answers(true)) > 0.7);
}

/// Transfers as the receiver sees them, 128 of each setup: a point, and whether it is that of a bit with
/// one of 16 seeds. Seeds are drawn from `seeds`.
fn of_receiver(seeds: u64) -> Vec<Sample> {
    let opening = BaseSender::new(&[1; 32]).opening();
    let seed = |number: u64| {
        let mut seed = [0; 32];
        noise(number, &mut seed);
        seed
    };
    let points = |number: u64, choices: u128| {
        BaseReceiver::new(&seed(number), choices, &opening).expect("an opening").1
    };
    let guesses: Vec<Vec<u8>> = (0..2).map(|number| points(number, u128::MAX)).collect();
    let mut samples = Vec::new();
    for round in 0..32_u64 {
        let mut delta = [0; 16];
        noise(round ^ 1 << 40, &mut delta);
        let choices = u128::from_le_bytes(delta);
        let sent = points((round + 1) * 0x9E37_79B9 % seeds, choices);
        for index in 0..TRANSFERS {
            let point = &sent[32 * index..][..32];
            let mut bits: Vec<bool> =
                (0..256).map(|bit| point[bit / 8] >> (bit % 8) & 1 == 1).collect();
            bits.push(guesses.iter().any(|guess| guess[32 * index..][..32] == *point));
            samples.push(Sample(bits, choices >> index & 1 == 1));
        }
    }
    samples
}

#[test]
fn the_receiver_learns_nothing_of_delta() {
    let accuracy = accuracy(&of_receiver(u64::MAX));
    assert!(CHANCE.contains(&accuracy), "{accuracy}");
}

#[test]
fn seeds_that_can_be_guessed_are_caught() {
    assert!(accuracy(&of_receiver(2)) > 0.99);
}
