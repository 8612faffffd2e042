//! Receivers that lie, and as well as they can: what a sender takes of them, and what a lie costs.

use proptest::prelude::*;

use super::consistency::{ANSWER_BYTES, BLIND, Hashed, Hashing};
use super::*;
use crate::kernel::sums::SUMS;
use crate::kernel::transpose::{DEPTH, Row, TILE, TREES};
use crate::{Block, Platform};

const DELTA: Block = 0x0123_4567_89AB_CDEF_0F1E_2D3C_4B5A_6979;

fn pair(seed: u8) -> (CotReceiver, CotSender) {
    let (receiver, opening) = ReceiverSetup::new(&[seed; 32]);
    let (sender, points) = SenderSetup::new(&[!seed; 32], DELTA, &opening).unwrap();
    let (receiver, corrections) = receiver.finish(&points).unwrap();
    (receiver, sender.finish(&corrections).unwrap())
}

/// A sender that has refused nothing yet.
fn fresh(sender: &CotSender) -> CotSender {
    CotSender::from_bytes(&sender.to_bytes()).unwrap()
}

/// What a receiver sends that changes its choice of label `label` in some trees, and answers as if the sender's bits of
/// Δ there were these guesses.
fn lie(receiver: &CotReceiver, choices: &[u16], label: usize, guesses: &[(usize, u8)]) -> Vec<u8> {
    let mut labels = vec![0; 16 * choices.len()];
    let (mut corrections, _) =
        receiver.choose(Platform::detect(), 1, choices, &mut labels).unwrap();
    let all = labels.len() + BLIND;
    // Bytes of a tree's row: in whole tiles, or in the last.
    let (tile, place) = (label / TILE, label % TILE);
    let row = TILE.min(all - tile * TILE) / 8;
    for (tree, _) in guesses {
        corrections[tile * TILE / 8 * TREES + row * tree + place / 8] ^= 1 << (place % 8);
    }
    // What a column that has this one bit adds to a hash.
    let of_bit = difference(receiver, choices, label, &corrections);
    let mut hashes = receiver.hashes(1, choices, &corrections);
    for &(tree, guess) in guesses {
        for bit in (0..DEPTH).filter(|bit| guess >> bit & 1 == 1) {
            for (word, of_bit) in hashes.columns[DEPTH * tree + bit].iter_mut().zip(of_bit) {
                *word ^= of_bit;
            }
        }
    }
    corrections.extend(hashes.answer());
    corrections
}

/// What the choices' hash changes by when one choice does, under the same corrections.
fn difference(receiver: &CotReceiver, choices: &[u16], label: usize, corrections: &[u8]) -> Hashed {
    let mut others = choices.to_vec();
    others[label / 16] ^= 1 << (label % 16);
    let [x, y] = [choices, &others].map(|it| receiver.hashes(1, it, corrections).choices);
    std::array::from_fn(|sum| x[sum] ^ y[sum])
}

/// Whether a sender takes it.
fn is_taken(sender: &CotSender, labels: usize, message: &[u8]) -> bool {
    let mut zeros = vec![0; labels];
    match fresh(sender).extend(Platform::detect(), 1, message, &mut zeros) {
        Ok(()) => true,
        Err(error) => {
            assert_eq!(error, Error::Inconsistent);
            assert!(zeros.iter().all(|zero| *zero == 0), "labels of what was refused");
            false
        }
    }
}

fn bits_of(tree: usize) -> u8 {
    (DELTA >> (DEPTH * tree)) as u8 & 15
}

#[test]
fn a_lie_is_taken_for_one_guess_of_sixteen() {
    let (receiver, sender) = pair(1);
    for (groups, label) in [(1, 0), (1, 15), (3, 40), (131, 2047), (131, 2048), (131, 2095)] {
        let choices: Vec<u16> = (0..groups).map(|i| (i * 40_503 + 11) as u16).collect();
        for tree in [0, 13, 31] {
            let taken = (0..16).filter(|guess| {
                let message = lie(&receiver, &choices, label, &[(tree, *guess)]);
                is_taken(&sender, 16 * groups, &message)
            });
            assert_eq!(taken.collect::<Vec<_>>(), [bits_of(tree)], "label {label}");
        }
    }
}

#[test]
fn lies_in_two_trees_are_taken_for_one_guess_of_256() {
    let (receiver, sender) = pair(2);
    let choices = [0xA5C3; 2];
    let guesses = (0..=255_u8).map(|both| [(3, both & 15), (20, both >> 4)]);
    let taken =
        guesses.filter(|guesses| is_taken(&sender, 32, &lie(&receiver, &choices, 7, guesses)));
    assert_eq!(taken.collect::<Vec<_>>(), [[(3, bits_of(3)), (20, bits_of(20))]]);
}

#[test]
fn a_choice_that_is_changed_in_every_tree_is_another_choice() {
    let (receiver, sender) = pair(3);
    // Not a lie: who sends it has chosen so, and its answer must say so.
    let message = {
        let mut labels = [0; 16];
        receiver.extend(Platform::detect(), 1, &[1 << 7], &mut labels)
    };
    assert!(is_taken(&sender, 16, &message));
    let all: Vec<(usize, u8)> = (0..TREES).map(|tree| (tree, bits_of(tree))).collect();
    // With all of Δ known nothing is hidden from the receiver, and with all but four bits it is found out.
    assert!(is_taken(&sender, 16, &lie(&receiver, &[0], 7, &all)));
    let mut wrong = all;
    wrong[9].1 ^= 4;
    assert!(!is_taken(&sender, 16, &lie(&receiver, &[0], 7, &wrong)));
}

#[test]
fn one_refusal_ends_a_setup() {
    let (receiver, sender) = pair(4);
    let mut labels = [0; 32];
    let sent = receiver.extend(Platform::detect(), 1, &[5; 2], &mut labels);
    let other = receiver.extend(Platform::detect(), 2, &[6; 2], &mut labels);
    let sender = fresh(&sender);
    let mut zeros = [0; 32];
    // A length says nothing of Δ.
    let cut = sender.extend(Platform::detect(), 1, &sent[1..], &mut zeros);
    assert!(matches!(cut, Err(Error::Length { .. })));
    sender.extend(Platform::detect(), 1, &sent, &mut zeros).unwrap();
    let mut changed = other.clone();
    changed[100] ^= 1;
    assert_eq!(
        sender.extend(Platform::detect(), 2, &changed, &mut zeros),
        Err(Error::Inconsistent)
    );
    for (batch, message) in [(2, &other), (1, &sent)] {
        let found = sender.extend(Platform::detect(), batch, message, &mut zeros);
        assert_eq!(found, Err(Error::Inconsistent));
    }
}

#[test]
fn every_byte_that_is_altered_is_found() {
    let (receiver, sender) = pair(5);
    let mut labels = [0; 32];
    let sent = receiver.extend(Platform::detect(), 1, &[0x1234, 0xFEDC], &mut labels);
    assert_eq!(sent.len(), correction_bytes(32));
    assert!(is_taken(&sender, 32, &sent));
    for byte in 0..sent.len() {
        for bit in [byte % 8, (byte + 3) % 8] {
            let mut altered = sent.clone();
            altered[byte] ^= 1 << bit;
            assert!(!is_taken(&sender, 32, &altered), "byte {byte}");
        }
    }
    // The challenge is of the batch and of the setup: neither can be another.
    let mut zeros = [0; 32];
    let of_other = fresh(&sender).extend(Platform::detect(), 2, &sent, &mut zeros);
    assert_eq!(of_other, Err(Error::Inconsistent));
    assert!(!is_taken(&pair(6).1, 32, &sent));
    let mut kept = sender.to_bytes();
    kept[1 + 32] ^= 1;
    assert!(!is_taken(&CotSender::from_bytes(&kept).unwrap(), 32, &sent));
}

/// A setup whose receiver gives one tree another leaf than it has: the sender's labels fit for the paths that do not need
/// that sum, and nothing is taken for the others.
#[test]
fn a_setup_that_lies_is_taken_for_the_paths_that_it_fits_alone() {
    let mut taken = 0;
    for path in 0..16 {
        let delta = DELTA & !15 | path;
        let (receiver, opening) = ReceiverSetup::new(&[7; 32]);
        let (sender, points) = SenderSetup::new(&[8; 32], delta, &opening).unwrap();
        let (receiver, mut corrections) = receiver.finish(&points).unwrap();
        // The sum of the right nodes at the level of the lowest bit: read by who goes left.
        corrections[16] ^= 1;
        let sender = sender.finish(&corrections).unwrap();
        // The receiver hashes what it sent, as who lies would.
        let mut kept = receiver.to_bytes();
        kept[33..65].copy_from_slice(&sender.to_bytes()[33..65]);
        let receiver = CotReceiver::from_bytes(&kept).unwrap();
        let mut labels = [0; 32];
        let sent = receiver.extend(Platform::detect(), 1, &[9; 2], &mut labels);
        let is_taken = is_taken(&sender, 32, &sent);
        assert_eq!(is_taken, path & 1 == 1, "path {path}");
        taken += u32::from(is_taken);
    }
    assert_eq!(taken, 8);
}

#[test]
fn what_hides_the_sums_is_not_the_same_twice() {
    let (receiver, _) = pair(9);
    let own = |batch, labels| receiver.blind_choices(batch, labels);
    assert_ne!(own(1, 16), own(2, 16));
    assert_ne!(own(1, 16), [0; BLIND / 16]);
    // The choices' sums that are sent do not follow from the choices.
    let sums = |batch| {
        let mut labels = [0; 16];
        let sent = receiver.extend(Platform::detect(), batch, &[0], &mut labels);
        sent[sent.len() - ANSWER_BYTES..][..8 * SUMS].to_vec()
    };
    assert_ne!(sums(1), sums(2));
    assert_ne!(sums(1), vec![0; 8 * SUMS]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]

    /// Against columns that are hashed a bit at a time, by factors that are read one by one.
    #[test]
    fn hashes_are_the_sums_of_words_and_factors(seed: u64, groups in 1..300_usize) {
        let all = groups + BLIND / 16;
        let tiles = all.div_ceil(TILE / 16);
        let mut bytes = vec![0; tiles * 129 * TILE / 8];
        blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
        let blocks = bytes.as_chunks().0.iter().map(|block| Block::from_le_bytes(*block));
        let blocks: Vec<Block> = blocks.collect();
        // Of each tile 128 columns and the choices, with bits after the last that count for nothing.
        let rows: Vec<Row> = blocks.as_chunks().0.to_vec();
        let sent = &bytes[..32 * 2 * all];
        let places = || sent.chunks(32 * TILE / 8);
        let head = [&[1; 32][..], &2_u64.to_le_bytes(), &(16 * groups as u64).to_le_bytes()].concat();
        let key = blake3::derive_key("hushtable transfer challenge v1", &head);
        let mut hasher = blake3::Hasher::new_keyed(&key);
        let mut factors = Vec::new();
        let mut last = Vec::new();
        for place in places() {
            hasher.update(place);
            let mut bytes = [0; 64 + 2 * 3 * 256];
            hasher.finalize_xof().fill(&mut bytes);
            let words = bytes[64..].as_chunks().0.iter().map(|word| u64::from_le_bytes(*word));
            let mut words: Vec<u64> = words.collect();
            last = words.split_off(3 * 32);
            factors.push(words);
        }
        let bit = |column: usize, label: usize| {
            rows[129 * (label / TILE) + column][label % TILE / 128] >> (label % 128) & 1 == 1
        };
        let word = |column: usize, from: usize, to: usize| {
            (from..to.min(from + 64)).rev().fold(0, |word, label| word << 1 | u64::from(bit(column, label)))
        };
        let expected = |column: usize| -> Hashed {
            let mut sums = [0; SUMS];
            for (place, from) in (0..16 * groups).step_by(64).enumerate() {
                for (sum, own) in sums.iter_mut().enumerate() {
                    let factor = factors[place / 32][32 * sum + place % 32];
                    *own ^= times(word(column, from, 16 * groups), factor);
                }
            }
            std::array::from_fn(|sum| {
                let again = (0..SUMS).fold(0, |all, own| all ^ times(sums[own], last[32 * sum + own]));
                again ^ word(column, 16 * groups + 64 * sum, 16 * all)
            })
        };
        for platform in Platform::available() {
            let mut hashing = Hashing::new(platform, &[1; 32], 2, 16 * groups);
            for (rows, place) in rows.chunks(129).zip(places()) {
                let (choices, columns) = rows.split_last().unwrap();
                hashing.tile(columns.try_into().unwrap(), choices, place);
            }
            let found = hashing.finish();
            for column in [0, 1, 63, 64, 127] {
                prop_assert_eq!(found.columns[column], expected(column), "{:?}", platform);
            }
            prop_assert_eq!(found.choices, expected(128), "{:?}", platform);
        }
    }
}

/// The product of two words modulo x^64 + x^4 + x^3 + x + 1, a bit at a time.
fn times(word: u64, factor: u64) -> u64 {
    let double = |word: u64| (word << 1) ^ ((word >> 63) * 0b1_1011);
    (0..64).rev().fold(0, |all, bit| double(all) ^ (word * (factor >> bit & 1)))
}
