//! Garbling and evaluating a circuit's steps, 16 instances at a time.
//!
//! [`portable`] is the specification. [`lockstep`] does the same over the registers of a machine:
//! AVX-512, AVX2 or NEON.
//!
//! π is AES-128 under one public key, the *second* 128 bits of the fraction of π: the first are the
//! key of `hushtable_prg`, so that the two permutations are independent ones.

#[cfg(test)]
mod check;
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))),
    allow(dead_code, reason = "only the SIMD backends use it")
)]
mod lockstep;
mod portable;
mod rows;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;

use crate::garble::Inputs;
use crate::{Block, LANES, Platform};
use hushtable_prg::{Tier, round_keys};
use std::hint::black_box;

/// The fixed key as bytes in reading order. Nobody chose it.
const KEY: [u8; 16] = [
    0xa4, 0x09, 0x38, 0x22, 0x29, 0x9f, 0x31, 0xd0, 0x08, 0x2e, 0xfa, 0x98, 0xec, 0x4e, 0x6c, 0x89,
];

/// The round keys of [`KEY`], made by the compiler. Only the SIMD backends read them.
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))),
    allow(dead_code, reason = "only the SIMD backends read them")
)]
const ROUND_KEYS: [u128; 11] = round_keys(KEY);

/// How labels are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Hash {
    /// π(π(x) ⊕ tweak) ⊕ π(x): what all circuits use.
    Tmmo,
    /// π(σ(x ⊕ tweak)) ⊕ σ(x ⊕ tweak): half the work and a weaker bound, to be compared.
    #[cfg(any(test, feature = "bench"))]
    Mmo,
}

/// Hashes blocks in place by [`Hash::Tmmo`], the first under `tweak` and each other under one more than the one before.
pub(crate) fn hash(blocks: &mut [Block], tweak: u128) {
    let mut next = tweak;
    let mut tweaks = || {
        let first = next;
        next += LANES as u128;
        std::array::from_fn(|lane| first + lane as u128)
    };
    let (groups, rest) = blocks.as_chunks_mut::<LANES>();
    for group in groups {
        portable::tmmo(std::slice::from_mut(group), &[tweaks()]);
    }
    if !rest.is_empty() {
        let mut group = [[0; LANES]];
        group[0][..rest.len()].copy_from_slice(rest);
        portable::tmmo(&mut group, &[tweaks()]);
        rest.copy_from_slice(&group[0][..rest.len()]);
        zeroize::Zeroize::zeroize(&mut group);
    }
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
    match (platform.tier(), hash) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx512f, bw, dq, vl and vaes.
        (Tier::Avx512, Hash::Tmmo) => unsafe {
            avx512::garble::<true>(inputs, delta, tables, masks);
        },
        #[cfg(all(target_arch = "x86_64", any(test, feature = "bench")))]
        // SAFETY: as above.
        (Tier::Avx512, Hash::Mmo) => unsafe {
            avx512::garble::<false>(inputs, delta, tables, masks);
        },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2 and aes.
        (Tier::Avx2, Hash::Tmmo) => unsafe { avx2::garble::<true>(inputs, delta, tables, masks) },
        #[cfg(all(target_arch = "x86_64", any(test, feature = "bench")))]
        // SAFETY: as above.
        (Tier::Avx2, Hash::Mmo) => unsafe { avx2::garble::<false>(inputs, delta, tables, masks) },
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        // SAFETY: this tier is only made where detection found neon and aes.
        (Tier::Neon, Hash::Tmmo) => unsafe { neon::garble::<true>(inputs, delta, tables, masks) },
        #[cfg(all(
            target_arch = "aarch64",
            target_endian = "little",
            any(test, feature = "bench")
        ))]
        // SAFETY: as above.
        (Tier::Neon, Hash::Mmo) => unsafe { neon::garble::<false>(inputs, delta, tables, masks) },
        _ => portable::garble(portable::function(hash), inputs, delta, tables, masks),
    }
}

pub(crate) fn evaluate(
    platform: Platform,
    hash: Hash,
    inputs: &Inputs<'_>,
    tables: &[u8],
    out: &mut [u64],
) {
    match (platform.tier(), hash) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx512f, bw, dq, vl and vaes.
        (Tier::Avx512, Hash::Tmmo) => unsafe { avx512::evaluate::<true>(inputs, tables, out) },
        #[cfg(all(target_arch = "x86_64", any(test, feature = "bench")))]
        // SAFETY: as above.
        (Tier::Avx512, Hash::Mmo) => unsafe { avx512::evaluate::<false>(inputs, tables, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2 and aes.
        (Tier::Avx2, Hash::Tmmo) => unsafe { avx2::evaluate::<true>(inputs, tables, out) },
        #[cfg(all(target_arch = "x86_64", any(test, feature = "bench")))]
        // SAFETY: as above.
        (Tier::Avx2, Hash::Mmo) => unsafe { avx2::evaluate::<false>(inputs, tables, out) },
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        // SAFETY: this tier is only made where detection found neon and aes.
        (Tier::Neon, Hash::Tmmo) => unsafe { neon::evaluate::<true>(inputs, tables, out) },
        #[cfg(all(
            target_arch = "aarch64",
            target_endian = "little",
            any(test, feature = "bench")
        ))]
        // SAFETY: as above.
        (Tier::Neon, Hash::Mmo) => unsafe { neon::evaluate::<false>(inputs, tables, out) },
        _ => portable::evaluate(portable::function(hash), inputs, tables, out),
    }
}

pub(crate) fn select(
    platform: Platform,
    delta: Block,
    zeros: &[Block],
    choices: &[u16],
    out: &mut [Block],
) {
    match platform.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx512f, bw, dq, vl and vaes.
        Tier::Avx512 => unsafe { avx512::select(delta, zeros, choices, out) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2 and aes.
        Tier::Avx2 => unsafe { avx2::select(delta, zeros, choices, out) },
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        // SAFETY: this tier is only made where detection found neon and aes.
        Tier::Neon => unsafe { neon::select(delta, zeros, choices, out) },
        _ => portable::select(delta, zeros, choices, out),
    }
}

/// Permutes `blocks` blocks or a few more, and gives a block that depends on all of them: what AES
/// alone takes.
#[cfg(any(test, feature = "bench"))]
pub(crate) fn churn(platform: Platform, block: Block, blocks: u64) -> Block {
    match platform.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx512f, bw, dq, vl and vaes.
        Tier::Avx512 => unsafe { avx512::churn(block, blocks) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2 and aes.
        Tier::Avx2 => unsafe { avx2::churn(block, blocks) },
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        // SAFETY: this tier is only made where detection found neon and aes.
        Tier::Neon => unsafe { neon::churn(block, blocks) },
        _ => portable::churn(block, blocks),
    }
}
