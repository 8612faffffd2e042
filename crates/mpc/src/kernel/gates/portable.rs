//! The specification, over the `aes` crate.
//!
//! W⁰ is a wire's label of 0 and W¹ = W⁰ ⊕ Δ; a label's colour is its lowest bit, and Δ's is 1. The
//! garbler knows which bit each colour stands for; the evaluator only sees the colours of the labels
//! that it has.
//!
//! Tables are a group's steps one after the other. An AND has the generator half of each lane and then
//! the evaluator half of each, blocks in little-endian order; a projection has its [rows];
//! what is revealed has a colour bit for each lane, lane 0 lowest.

use super::{Hash, KEY, colour, mask, rows, sigma, tweak};
use crate::garble::{Inputs, ONE_SLOT, Op, Slot};
use crate::{Block, LANES};
use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use std::array::from_fn;
use std::sync::LazyLock;
use zeroize::Zeroize;

/// The labels of one wire, of a group's instances.
pub(super) type Labels = [Block; LANES];

/// Hashes blocks in place, each under its tweak.
pub(super) type HashFunction = fn(&mut [Labels], &[Labels]);

/// π. The schedule of a fixed key is made once a process.
static PERMUTATION: LazyLock<Aes128> = LazyLock::new(|| Aes128::new(&KEY.into()));

/// What computes `hash`.
pub(super) fn function(hash: Hash) -> HashFunction {
    match hash {
        Hash::Tmmo => tmmo,
        #[cfg(any(test, feature = "bench"))]
        Hash::Mmo => mmo,
    }
}

/// π(π(x) ⊕ tweak) ⊕ π(x)
pub(super) fn tmmo(blocks: &mut [Labels], tweaks: &[Labels]) {
    permute(blocks);
    for (blocks, tweaks) in blocks.iter_mut().zip(tweaks) {
        let first = *blocks;
        *blocks = from_fn(|lane| first[lane] ^ tweaks[lane]);
        permute(std::slice::from_mut(blocks));
        *blocks = from_fn(|lane| blocks[lane] ^ first[lane]);
    }
}

/// π(σ(x ⊕ tweak)) ⊕ σ(x ⊕ tweak)
#[cfg(any(test, feature = "bench"))]
fn mmo(blocks: &mut [Labels], tweaks: &[Labels]) {
    for (blocks, tweaks) in blocks.iter_mut().zip(tweaks) {
        let whitened: Labels = from_fn(|lane| sigma(blocks[lane] ^ tweaks[lane]));
        *blocks = whitened;
        permute(std::slice::from_mut(blocks));
        *blocks = from_fn(|lane| blocks[lane] ^ whitened[lane]);
    }
}

fn permute(blocks: &mut [Labels]) {
    for blocks in blocks {
        let mut bytes = blocks.map(|block| Array::from(block.to_le_bytes()));
        PERMUTATION.encrypt_blocks(&mut bytes);
        *blocks = bytes.map(|block| Block::from_le_bytes(block.into()));
    }
}

#[cfg(any(test, feature = "bench"))]
pub(super) fn churn(block: Block, blocks: u64) -> Block {
    let mut state = [from_fn(|lane| block.wrapping_add(lane as u128))];
    for _ in 0..blocks.div_ceil(LANES as u64) {
        permute(&mut state);
    }
    state[0].into_iter().fold(0, |sum, block| sum ^ block)
}

/// Garbles every group of instances.
pub(super) fn garble(
    hash: HashFunction,
    inputs: &Inputs<'_>,
    delta: Block,
    tables: &mut [u8],
    masks: &mut [u64],
) {
    let circuit = inputs.circuit;
    let mut work = vec![[0; LANES]; circuit.work_slots];
    work[usize::from(ONE_SLOT)] = [delta; LANES];
    let mut table = tables;
    for (group, masks) in masks.chunks_mut(LANES).enumerate() {
        let mut numbers = 0;
        let mut sum = [0u64; LANES];
        for op in &circuit.ops {
            let own;
            (own, table) = table.split_at_mut(op.group_bytes(circuit.row_bytes));
            let mut tweaks = || next_tweaks(inputs, group, &mut numbers);
            let read = |slot| labels(inputs, group, &work, slot);
            match *op {
                Op::Xor { x, out } => {
                    let sum = xor(x.map(read));
                    write(&mut work, out, sum);
                }
                Op::And { x, y, z, out } => {
                    let (a, b, z) = (xor(x.map(read)), xor(y.map(read)), read(z));
                    let tweaks = [tweaks(), tweaks()];
                    let product = garble_and(hash, delta, &a, &b, &tweaks, own);
                    write(&mut work, out, xor([product, z]));
                }
                Op::Project { bit, weight } => {
                    let [key, bits] = by_colour(read(bit), delta);
                    let mut pads = [key, key.map(|key| key ^ delta)];
                    let tweaks = tweaks();
                    hash(&mut pads, &[tweaks; 2]);
                    // The value of each colour: the mask, plus the weight if it stands for 1.
                    let value =
                        |colour: u64, lane: usize| weight & mask(bits[lane] as u64 ^ colour);
                    let zero: [u64; LANES] =
                        from_fn(|lane| (pads[0][lane] as u64).wrapping_sub(value(0, lane)));
                    sum = from_fn(|lane| sum[lane].wrapping_add(zero[lane]));
                    let row = from_fn(|lane| {
                        let masked = zero[lane].wrapping_add(value(1, lane));
                        (masked ^ pads[1][lane] as u64) & circuit.mask()
                    });
                    rows::write(&row, circuit.row_bytes, own);
                }
                Op::ProjectUnless { bit, unless, weight } => {
                    let [a, a_bits] = by_colour(read(bit), delta);
                    let [b, b_bits] = by_colour(read(unless), delta);
                    let key: Labels = from_fn(|lane| sigma(a[lane]) ^ b[lane]);
                    let offsets = [0, delta, sigma(delta), sigma(delta) ^ delta];
                    let mut pads = offsets.map(|offset| key.map(|key| key ^ offset));
                    let tweaks = tweaks();
                    hash(&mut pads, &[tweaks; 4]);
                    // Of the colours of the two labels: that of `bit` is the higher bit.
                    let value = |colours: u64, lane: usize| {
                        let is_set = mask(a_bits[lane] as u64 ^ colours >> 1);
                        let is_unless = mask(b_bits[lane] as u64 ^ colours);
                        weight & is_set & !is_unless
                    };
                    let zero: [u64; LANES] =
                        from_fn(|lane| (pads[0][lane] as u64).wrapping_sub(value(0, lane)));
                    sum = from_fn(|lane| sum[lane].wrapping_add(zero[lane]));
                    for (colours, own) in (1..4).zip(own.chunks_mut(LANES * circuit.row_bytes)) {
                        let row = from_fn(|lane| {
                            let masked = zero[lane].wrapping_add(value(colours, lane));
                            (masked ^ pads[colours as usize][lane] as u64) & circuit.mask()
                        });
                        rows::write(&row, circuit.row_bytes, own);
                    }
                }
                Op::Reveal { bit, .. } => {
                    own.copy_from_slice(&colours(&read(bit)).to_le_bytes());
                }
            }
        }
        for (mask, sum) in masks.iter_mut().zip(sum) {
            *mask = sum & circuit.mask();
        }
    }
    work.as_flattened_mut().zeroize();
}

/// Evaluates every group of instances.
pub(super) fn evaluate(hash: HashFunction, inputs: &Inputs<'_>, tables: &[u8], out: &mut [u64]) {
    let circuit = inputs.circuit;
    // The label of the wire that is always 1 is 0 here, and Δ is that of its 0.
    let mut work = vec![[0; LANES]; circuit.work_slots];
    let mut table = tables;
    for (group, results) in out.chunks_mut(LANES).enumerate() {
        let mut numbers = 0;
        let mut sum = [0u64; LANES];
        for op in &circuit.ops {
            let own;
            (own, table) = table.split_at(op.group_bytes(circuit.row_bytes));
            let mut tweaks = || next_tweaks(inputs, group, &mut numbers);
            let read = |slot| labels(inputs, group, &work, slot);
            match *op {
                Op::Xor { x, out } => {
                    let sum = xor(x.map(read));
                    write(&mut work, out, sum);
                }
                Op::And { x, y, z, out } => {
                    let (a, b, z) = (xor(x.map(read)), xor(y.map(read)), read(z));
                    let tweaks = [tweaks(), tweaks()];
                    let product = evaluate_and(hash, &a, &b, &tweaks, own);
                    write(&mut work, out, xor([product, z]));
                }
                Op::Project { bit, .. } => {
                    let a = read(bit);
                    let mut pads = [a];
                    hash(&mut pads, &[tweaks()]);
                    let row = rows::read(own, circuit.row_bytes);
                    sum = from_fn(|lane| {
                        let value = pads[0][lane] as u64 ^ row[lane] & mask(colour(a[lane]));
                        sum[lane].wrapping_add(value)
                    });
                }
                Op::ProjectUnless { bit, unless, .. } => {
                    let (a, b) = (read(bit), read(unless));
                    let mut pads = [from_fn(|lane| sigma(a[lane]) ^ b[lane])];
                    hash(&mut pads, &[tweaks()]);
                    let row_bytes = LANES * circuit.row_bytes;
                    let row = |row: usize| {
                        rows::read(&own[(row - 1) * row_bytes..][..row_bytes], circuit.row_bytes)
                    };
                    let rows = [row(1), row(2), row(3)];
                    sum = from_fn(|lane| {
                        let (a, b) = (mask(colour(a[lane])), mask(colour(b[lane])));
                        let [r1, r2, r3] = rows.map(|row| row[lane]);
                        let row = r1 & !a & b | r2 & a & !b | r3 & a & b;
                        sum[lane].wrapping_add(pads[0][lane] as u64 ^ row)
                    });
                }
                Op::Reveal { bit, weight } => {
                    let bits = colours(&read(bit)) ^ u16::from_le_bytes([own[0], own[1]]);
                    sum = from_fn(|lane| {
                        sum[lane].wrapping_add(weight & mask(u64::from(bits >> lane)))
                    });
                }
            }
        }
        for (result, sum) in results.iter_mut().zip(sum) {
            *result = sum & circuit.mask();
        }
    }
    work.as_flattened_mut().zeroize();
}

pub(super) fn select(delta: Block, zeros: &[Block], choices: &[u16], out: &mut [Block]) {
    let (zeros, _) = zeros.as_chunks::<LANES>();
    let (out, _) = out.as_chunks_mut::<LANES>();
    for ((zeros, &choices), out) in zeros.iter().zip(choices).zip(out) {
        *out = from_fn(|lane| zeros[lane] ^ chosen(delta, u64::from(choices >> lane)));
    }
}

/// A half-gates AND (Zahur, Rosulek, Evans, EUROCRYPT 2015, figure 2): the label of its 0.
fn garble_and(
    hash: HashFunction,
    delta: Block,
    a: &Labels,
    b: &Labels,
    tweaks: &[Labels; 2],
    table: &mut [u8],
) -> Labels {
    let mut hashes = [*a, a.map(|a| a ^ delta), *b, b.map(|b| b ^ delta)];
    hash(&mut hashes, &[tweaks[0], tweaks[0], tweaks[1], tweaks[1]]);
    let [a0, a1, b0, b1] = hashes;
    let generator: Labels = from_fn(|lane| a0[lane] ^ a1[lane] ^ chosen(delta, colour(b[lane])));
    let evaluator: Labels = from_fn(|lane| b0[lane] ^ b1[lane] ^ a[lane]);
    let (first, second) = table.split_at_mut(size_of::<Labels>());
    write_blocks(&generator, first);
    write_blocks(&evaluator, second);
    from_fn(|lane| {
        let generator = a0[lane] ^ chosen(generator[lane], colour(a[lane]));
        let evaluator = b0[lane] ^ chosen(evaluator[lane] ^ a[lane], colour(b[lane]));
        generator ^ evaluator
    })
}

fn evaluate_and(
    hash: HashFunction,
    a: &Labels,
    b: &Labels,
    tweaks: &[Labels; 2],
    table: &[u8],
) -> Labels {
    let mut hashes = [*a, *b];
    hash(&mut hashes, tweaks);
    let (generator, evaluator) = table.split_at(size_of::<Labels>());
    let (generator, evaluator) = (read_blocks(generator), read_blocks(evaluator));
    from_fn(|lane| {
        let generator = hashes[0][lane] ^ chosen(generator[lane], colour(a[lane]));
        let evaluator = hashes[1][lane] ^ chosen(evaluator[lane] ^ a[lane], colour(b[lane]));
        generator ^ evaluator
    })
}

/// `block` if the lowest bit of `bit` is set, else 0.
fn chosen(block: Block, bit: u64) -> Block {
    let mask = u128::from(mask(bit));
    block & (mask << 64 | mask)
}

/// The labels of colour 0, and the bits that they stand for.
fn by_colour(zeros: Labels, delta: Block) -> [Labels; 2] {
    let bits = zeros.map(|zero| u128::from(colour(zero)));
    [from_fn(|lane| zeros[lane] ^ chosen(delta, bits[lane] as u64)), bits]
}

/// The colours of a wire's labels, lane 0 lowest.
fn colours(labels: &Labels) -> u16 {
    (0..LANES).fold(0, |word, lane| word | (colour(labels[lane]) as u16) << lane)
}

fn xor<const N: usize>(labels: [Labels; N]) -> Labels {
    from_fn(|lane| labels.iter().fold(0, |sum, labels| sum ^ labels[lane]))
}

/// The tweaks of a group's next hash.
fn next_tweaks(inputs: &Inputs<'_>, group: usize, number: &mut u64) -> Labels {
    *number += 1;
    let first = inputs.first_instance.wrapping_add((group * LANES) as u64);
    from_fn(|lane| tweak(first.wrapping_add(lane as u64), *number - 1))
}

fn labels(inputs: &Inputs<'_>, group: usize, work: &[Labels], slot: Slot) -> Labels {
    let circuit = inputs.circuit;
    let (own, at) = match slot {
        Slot::Work(at) => return work[usize::from(at)],
        Slot::Garbler(at) => (inputs.garbler, group * circuit.garbler_wires + usize::from(at)),
        Slot::Evaluator(at) => {
            (inputs.evaluator, group * circuit.evaluator_wires + usize::from(at))
        }
    };
    from_fn(|lane| own[at * LANES + lane])
}

fn write(work: &mut [Labels], slot: Slot, labels: Labels) {
    let Slot::Work(at) = slot else { unreachable!("a step writes no party's input") };
    work[usize::from(at)] = labels;
}

fn read_blocks(bytes: &[u8]) -> Labels {
    let (blocks, _) = bytes.as_chunks::<16>();
    from_fn(|lane| Block::from_le_bytes(blocks[lane]))
}

fn write_blocks(labels: &Labels, bytes: &mut [u8]) {
    let (blocks, _) = bytes.as_chunks_mut::<16>();
    for (block, label) in blocks.iter_mut().zip(labels) {
        *block = label.to_le_bytes();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::garble::Builder;
    use rand::{RngExt, SeedableRng};
    use rand_chacha::ChaCha12Rng;

    /// π by the raw cipher.
    fn pi(x: Block) -> Block {
        let mut block = Array::from(x.to_le_bytes());
        Aes128::new(&KEY.into()).encrypt_block(&mut block);
        Block::from_le_bytes(block.into())
    }

    #[test]
    fn hashes_by_hand() {
        let mut rng = ChaCha12Rng::seed_from_u64(1);
        let x: Labels = from_fn(|_| rng.random());
        let tweaks: Labels = from_fn(|_| rng.random());
        let mut hashed = [x];
        tmmo(&mut hashed, &[tweaks]);
        assert_eq!(hashed[0], from_fn(|i| pi(pi(x[i]) ^ tweaks[i]) ^ pi(x[i])));
        let mut hashed = [x];
        mmo(&mut hashed, &[tweaks]);
        let sigma = |x: Block| (x >> 64 ^ x) << 64 | x >> 64;
        let whitened: Labels = from_fn(|i| sigma(x[i] ^ tweaks[i]));
        assert_eq!(hashed[0], from_fn(|i| pi(whitened[i]) ^ whitened[i]));
    }

    #[test]
    fn an_and_by_hand() {
        // The evaluator's side of "Two Halves Make a Whole", figure 2, for each pair of bits.
        let mut rng = ChaCha12Rng::seed_from_u64(2);
        let delta = rng.random::<Block>() | 1;
        let [a, b, t, u]: [Labels; 4] = from_fn(|_| from_fn(|_| rng.random()));
        let mut table = [0; 2 * size_of::<Labels>()];
        let zero = garble_and(tmmo, delta, &a, &b, &[t, u], &mut table);
        let block = |at: usize| Block::from_le_bytes(table[16 * at..][..16].try_into().unwrap());
        let hash = |x: Block, tweak: Block| pi(pi(x) ^ tweak) ^ pi(x);
        for lane in 0..LANES {
            for (bit_a, bit_b) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                let a = a[lane] ^ (delta * bit_a);
                let b = b[lane] ^ (delta * bit_b);
                let mut c = hash(a, t[lane]) ^ hash(b, u[lane]);
                if a & 1 == 1 {
                    c ^= block(lane);
                }
                if b & 1 == 1 {
                    c ^= block(LANES + lane) ^ a;
                }
                assert_eq!(c, zero[lane] ^ (delta * (bit_a & bit_b)), "{bit_a} {bit_b}");
            }
        }
    }

    /// What an evaluator can try who has x ∧ y0 and x ∧ y1, where the garbler has y: without tweaks the
    /// generator halves of the two differ by 0 or Δ, as the colours of the zero labels of y0 and y1 do, so
    /// that their active colours give y0 ⊕ y1 away.
    fn guessed(hash: HashFunction, rng: &mut ChaCha12Rng) -> [u16; 2] {
        let mut builder = Builder::new(2, 1);
        let (x, y) = (builder.evaluator(0, 1)[0], builder.garbler(0, 2));
        let products = [builder.and(x, y[0]), builder.and(x, y[1])];
        for (product, weight) in products.into_iter().zip([1, 2]) {
            builder.reveal(product, weight);
        }
        let circuit = builder.finish(2);
        let delta = rng.random::<Block>() | 1;
        let zeros: [Labels; 3] = from_fn(|_| from_fn(|_| rng.random()));
        let inputs = Inputs {
            circuit: &circuit,
            first_instance: 0,
            garbler: zeros[..2].as_flattened(),
            evaluator: &zeros[2],
        };
        let mut tables = vec![0; circuit.group_bytes()];
        garble(hash, &inputs, delta, &mut tables, &mut [0; LANES]);
        let bits: [u16; 2] = from_fn(|_| rng.random());
        let active: [Labels; 2] = from_fn(|wire| {
            from_fn(|lane| zeros[wire][lane] ^ chosen(delta, u64::from(bits[wire] >> lane)))
        });
        let [first, second] = [0, 2 * size_of::<Labels>()]
            .map(|at| read_blocks(&tables[at..][..size_of::<Labels>()]));
        let differ =
            (0..LANES).fold(0, |word, lane| word | u16::from(first[lane] != second[lane]) << lane);
        [colours(&active[0]) ^ colours(&active[1]) ^ differ, bits[0] ^ bits[1]]
    }

    #[test]
    fn a_missing_tweak_gives_the_garblers_bits_away() {
        let untweaked: HashFunction = |blocks, tweaks| {
            tmmo(blocks, &vec![[0; LANES]; tweaks.len()]);
        };
        let mut rng = ChaCha12Rng::seed_from_u64(3);
        let mut right = |hash| -> u32 {
            let guesses = (0..100).map(|_| guessed(hash, &mut rng));
            guesses.map(|[guess, bits]| (!(guess ^ bits)).count_ones()).sum()
        };
        assert_eq!(right(untweaked), 1600, "the attack works");
        // Six standard deviations of 1600 coins.
        for hash in [tmmo as HashFunction, mmo] {
            assert!((680..920).contains(&right(hash)), "the attack tells nothing");
        }
    }
}
