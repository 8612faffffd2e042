//! Garbled circuits: half gates with free XOR, many instances of one circuit in lockstep.
//!
//! PLACEHOLDER

mod activation;
mod circuit;
mod delphi;

pub use activation::{Activation, ActivationSpec, Error};
pub use circuit::{Builder, Circuit, Wire};
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
/// the block i, a 128-bit integer.
pub fn labels(_platform: Platform, seed: &[u8; 16], first: u64, out: &mut [Block]) {
    const BLOCKS: usize = 64;
    let cipher = Aes128::new(&(*seed).into());
    let mut blocks = [Array::from([0u8; 16]); BLOCKS];
    let mut counter = u128::from(first);
    for out in out.chunks_mut(BLOCKS) {
        let blocks = &mut blocks[..out.len()];
        for block in blocks.iter_mut() {
            *block = Array::from(counter.to_le_bytes());
            counter += 1;
        }
        cipher.encrypt_blocks(blocks);
        for (out, block) in out.iter_mut().zip(blocks) {
            *out = Block::from_le_bytes((*block).into());
        }
    }
    for block in &mut blocks {
        block.zeroize();
    }
}
