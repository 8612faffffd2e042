//! Garbled circuits: half gates with free XOR, many instances of one circuit in lockstep.
//!
//! The garbler draws a Δ and two labels for each wire, which stand for 0 and 1 and are Δ apart; the
//! evaluator has one label of each input wire, and from the tables learns one label of every other. XOR is
//! free (Kolesnikov and Schneider, ICALP 2008), an AND takes two blocks of table (Zahur, Rosulek and Evans,
//! "Two Halves Make a Whole", EUROCRYPT 2015). A label's lowest bit is its *colour*, Δ's is 1: the evaluator
//! sees colours, which only the garbler can read.
//!
//! ```
//! use hushtable_mpc::garble::{Activation, ActivationSpec, evaluate, garble, labels, select};
//! use hushtable_mpc::{LANES, Platform};
//!
//! // The larger of x and 0, with 4 fraction bits dropped, on shares modulo 2^16 of −1.5 and 2.25.
//! let relu = Activation::new(ActivationSpec {
//!     bits: 16, dropped: 0, shift: 4, window: 1, rectify: true, most: None,
//! })?;
//! let platform = Platform::detect();
//! let delta = 0x9d02_7f0e_8a4c_11b3_5c6e_02d9_f0a1_7735;
//! let [mut a, mut b] = [(); 2].map(|()| vec![0; relu.wires() * LANES]);
//! labels(platform, b"garbler's seed..", 0, &mut a);
//! labels(platform, b"evaluator's seed", 0, &mut b);
//! let (mut tables, mut masks) = (vec![0; LANES * relu.table_bytes()], [0; 2]);
//! garble(&relu, platform, delta, 0, &a, &b, &mut tables, &mut masks);
//!
//! let (garbler, evaluator) = ([1000u64, 500], [(-1024i64 - 1000) as u64, 1476 - 500]);
//! let [mut own, mut others] = [vec![0; a.len()], vec![0; b.len()]];
//! select(platform, delta, &a, &relu.choices(&garbler), &mut own);
//! select(platform, delta, &b, &relu.choices(&evaluator), &mut others);
//! let mut out = [0; 2];
//! evaluate(&relu, platform, 0, &own, &others, &tables, &mut out);
//! let results = [0, 1].map(|i: usize| out[i].wrapping_sub(masks[i]) & 0xffff);
//! assert_eq!(results, [0, 1476 >> 4]);
//! # Ok::<(), hushtable_mpc::garble::Error>(())
//! ```
//!
//! # Activations
//!
//! An [`Activation`] adds the parties' shares (one AND a bit, but the top one), takes the largest of a window
//! (two a bit and number), and gives the evaluator M + x' modulo 2^k for a mask M that only the garbler knows:
//! additive shares of x'. That costs no gates. For each output bit i, of weight 2^i, the garbler encrypts M_i
//! and M_i + 2^i under the labels of the bit; where negative numbers become 0, under pairs of labels of bit and
//! sign. The evaluator opens one row for each bit and adds up; M is the sum of the M_i. The rows of a bit are
//! ordered by colour, and M_i is chosen so that the first is 0 and left out (row reduction; Naor, Pinkas and
//! Sumner, EC 1999): one row of ⌈k/8⌉ bytes, or three. Bits that are dropped have no rows, and the arithmetic
//! is exact: no result depends on how a number was shared but for the bits that `dropped` says.
//!
//! # Hash
//!
//! H(x, t) = π(π(x) ⊕ t) ⊕ π(x), TMMO of Guo, Katz, Wang and Yu ("Efficient and Secure Multiparty Computation
//! from Fixed-Key Block Ciphers", IEEE S&P 2020, ePrint 2019/074, section 7.4): tweakable circular correlation
//! robust, with π an ideal permutation. π is AES-128 under a public key, the second 128 bits of the fraction of
//! the number π (a4093822 299f31d0 082efa98 ec4e6c89). t is the instance in the high half and the hash's place
//! among the circuit's in the low one (an AND takes two places, a projection one), so that under one Δ no tweak
//! comes twice, as long as no instance number does.
//!
//! Under a pair of labels the key is σ(A) ⊕ B, σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi. With the pair that the evaluator has,
//! the other three keys are Δ, σ(Δ) and σ(Δ) ⊕ Δ away: linear permutations of Δ, as are the differences of any
//! two of them (σ² = σ ⊕ 1). So each is as hard to guess as Δ, no two coincide, and the argument for offsets of
//! Δ itself goes through for all of them. A label is never hashed twice with one tweak, and the pads of rows
//! touch neither labels nor Δ. (Doubling in GF(2^128), as JustGarble has it, gives 2Δ, 4Δ and 6Δ; σ costs one
//! shuffle.)
//!
//! # What it promises
//!
//! To an evaluator who follows the protocol, labels, tables and rows say nothing of the garbler's bits, and its
//! output is uniform. Let p be the calls of π that it makes, and q the hashes under labels that it lacks (two an
//! AND, three a rectified bit: 120 a ReLU of k = 37 and f = 12, 2^28 for ResNet-18 on 64 × 64). Only if a call
//! meets one of those inputs of π, or two of these each other, is anything learnt: of the order of
//! (p·q + q²) / 2^127.
//!
//! **Many instances.** The proof counts q over all circuits ever garbled: 2^20 such inferences make p·q / 2^127 no
//! small number from p = 2^79 on. The best attack known to us is worse: a guess of a label is tried under one
//! tweak, and only meets gates that have it, so that it takes 2^127 over the Δs that share a tweak, 2^107 here,
//! and all of 2^127 if each Δ's instances are numbered from a random place on. A hash of one AES block,
//! π(σ(x ⊕ t)) ⊕ σ(x ⊕ t), would lose this: every guess would be tried against all q at once (Guo, Katz, Wang,
//! Weng and Yu, CRYPTO 2020, show the attack). It is there to be compared
//! with, behind the feature `bench`.
//!
//! # Constant time
//!
//! Time and addresses depend on the circuit and on counts, never on labels, Δ, shares or colours: a colour
//! becomes a mask by arithmetic or a mask register. AES is the processor's instruction, or bit-sliced.

mod activation;
mod circuit;
#[cfg(any(test, feature = "bench"))]
mod delphi;

pub use activation::{Activation, ActivationSpec, Error, WINDOW_MAX};
pub use circuit::{Builder, Circuit, Wire};
#[cfg(any(test, feature = "bench"))]
pub use delphi::Delphi;

pub(crate) use circuit::{Inputs, ONE_SLOT, Op, Slot};

use crate::kernel::gates;
use crate::{Block, LANES, Platform};
use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use zeroize::Zeroize;

/// Groups of [`LANES`] instances that hold `count` of them.
pub fn groups(count: usize) -> usize {
    count.div_ceil(LANES)
}

/// Garbles `masks.len()` instances of `activation`.
///
/// Labels are in the order ((group · wires + wire) · 16 + lane), where instance = 16 · group + lane and
/// wire = window index · share bits + bit, lowest bit first. `garbler_zeros` and `evaluator_zeros` are
/// the labels of 0, whole groups of them ([`groups`] · [`Activation::wires`] · 16 each); those of 1 are
/// Δ away. Writes the tables, whole groups of [`Activation::table_bytes`] · 16, and the mask M modulo
/// 2^k of each instance. Time and addresses depend on sizes alone.
///
/// The hashes of instance i of this call take the tweaks of instance `first_instance` + i: under one Δ
/// each may come once.
///
/// # Panics
/// If a slice's length does not fit `masks.len()` instances, or if Δ's lowest bit is 0.
#[allow(clippy::too_many_arguments, reason = "what garbling takes and gives")]
pub fn garble(
    activation: &Activation,
    platform: Platform,
    delta: Block,
    first_instance: u64,
    garbler_zeros: &[Block],
    evaluator_zeros: &[Block],
    tables: &mut [u8],
    masks: &mut [u64],
) {
    activation.circuit().garble(
        platform,
        delta,
        first_instance,
        garbler_zeros,
        evaluator_zeros,
        tables,
        masks,
    );
}

/// Evaluates `out.len()` instances: `out` is M + [`Activation::clear`] modulo 2^k of each.
///
/// The labels are those that belong to the bits of the two shares, in the order of [`garble`]; tables
/// and `first_instance` are as they were there. Any labels and any tables give numbers modulo 2^k.
///
/// # Panics
/// If a slice's length does not fit `out.len()` instances.
pub fn evaluate(
    activation: &Activation,
    platform: Platform,
    first_instance: u64,
    garbler_labels: &[Block],
    evaluator_labels: &[Block],
    tables: &[u8],
    out: &mut [u64],
) {
    activation.circuit().evaluate(
        platform,
        first_instance,
        garbler_labels,
        evaluator_labels,
        tables,
        out,
    );
}

/// The labels of the garbler's own bits: each of `zeros`, plus Δ where its bit of `choices`
/// ([`Activation::choices`]) is 1. Time and addresses depend on sizes alone.
///
/// # Panics
/// If `zeros` and `out` are not 16 for each of `choices`.
pub fn select(
    platform: Platform,
    delta: Block,
    zeros: &[Block],
    choices: &[u16],
    out: &mut [Block],
) {
    assert_eq!(zeros.len(), choices.len() * LANES, "16 labels for each word of choices");
    assert_eq!(out.len(), zeros.len(), "as many labels out as in");
    gates::select(platform, delta, zeros, choices, out);
}

/// Pseudorandom labels `first..first + out.len()` of `seed`: label i is AES-128 under the key `seed` of
/// the block i modulo 2^64, a 128-bit integer.
pub fn labels(_platform: Platform, seed: &[u8; 16], first: u64, out: &mut [Block]) {
    /// Hashed in one call of the cipher: as many as its widest backend is fastest with.
    const BLOCKS: usize = 256;
    let cipher = Aes128::new(&(*seed).into());
    let mut blocks = [Array::from([0u8; 16]); BLOCKS];
    let mut counter = first;
    for out in out.chunks_mut(BLOCKS) {
        let blocks = &mut blocks[..out.len()];
        for (block, i) in blocks.iter_mut().zip(0..) {
            *block = Array::from(u128::from(counter.wrapping_add(i)).to_le_bytes());
        }
        counter = counter.wrapping_add(BLOCKS as u64);
        cipher.encrypt_blocks(blocks);
        for (out, block) in out.iter_mut().zip(blocks) {
            *out = Block::from_le_bytes((*block).into());
        }
    }
    for block in &mut blocks {
        block.zeroize();
    }
}
