//! Garbling and evaluating a circuit's steps, 16 instances at a time.
//!
//! [`portable`] is the specification. [`lockstep`] does the same over the registers of a [`Machine`]:
//! AVX-512, AVX2 or NEON.
//!
//! π is AES-128 under one public key, the *second* 128 bits of the fraction of π: the first are the
//! key of `hushtable_prg`, so that the two permutations are independent ones.

mod portable;
mod rows;

use crate::garble::Inputs;
use crate::{Block, Platform};
use std::hint::black_box;

/// The fixed key as bytes in reading order. Nobody chose it.
const KEY: [u8; 16] = [
    0xa4, 0x09, 0x38, 0x22, 0x29, 0x9f, 0x31, 0xd0, 0x08, 0x2e, 0xfa, 0x98, 0xec, 0x4e, 0x6c, 0x89,
];

/// How labels are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    /// π(π(x) ⊕ tweak) ⊕ π(x): what all circuits use.
    Tmmo,
    /// π(σ(x ⊕ tweak)) ⊕ σ(x ⊕ tweak): half the work and a weaker bound, to be compared.
    Mmo,
}

/// The tweak of hash `number` of an instance.
fn tweak(instance: u64, number: u64) -> Block {
    u128::from(instance) << 64 | u128::from(number)
}

/// σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi: as is σ ⊕ 1, a linear permutation.
fn sigma(x: Block) -> Block {
    let (hi, lo) = ((x >> 64) as u64, x as u64);
    u128::from(hi ^ lo) << 64 | u128::from(hi)
}

/// A label's colour: 0 or 1.
fn colour(label: Block) -> u64 {
    label as u64 & 1
}

/// All ones if the lowest bit is set, else zero.
///
/// The optimiser must not know that the result is one of two values: it would be free to make a branch
/// of it.
fn mask(bit: u64) -> u64 {
    black_box(0u64.wrapping_sub(bit & 1))
}

pub(crate) fn garble(
    platform: Platform,
    hash: Hash,
    inputs: &Inputs<'_>,
    delta: Block,
    tables: &mut [u8],
    masks: &mut [u64],
) {
    let _ = platform;
    match () {
        () => match hash {
            Hash::Tmmo => portable::garble(portable::tmmo, inputs, delta, tables, masks),
            Hash::Mmo => portable::garble(portable::mmo, inputs, delta, tables, masks),
        },
    }
}

pub(crate) fn evaluate(
    platform: Platform,
    hash: Hash,
    inputs: &Inputs<'_>,
    tables: &[u8],
    out: &mut [u64],
) {
    let _ = platform;
    match () {
        () => match hash {
            Hash::Tmmo => portable::evaluate(portable::tmmo, inputs, tables, out),
            Hash::Mmo => portable::evaluate(portable::mmo, inputs, tables, out),
        },
    }
}

pub(crate) fn select(
    platform: Platform,
    delta: Block,
    zeros: &[Block],
    choices: &[u16],
    out: &mut [Block],
) {
    let _ = platform;
    portable::select(delta, zeros, choices, out);
}
