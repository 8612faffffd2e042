//! The AES instructions of Armv8: one block a register.
//!
//! `aese` adds the round key *before* SubBytes, so round i uses k(i-1) and the last key is added by
//! hand.

use super::lockstep::{self, Machine};
use crate::Block;
use crate::garble::Inputs;
use std::arch::aarch64::*;

struct Neon;

// SAFETY: it needs neon and aes.
unsafe impl Machine for Neon {
    type Register = uint8x16_t;
    type Mask = uint8x16_t;
    const BLOCKS: usize = 1;

    #[inline(always)]
    unsafe fn load(from: *const u8) -> uint8x16_t {
        // SAFETY: the caller lends 16 bytes.
        unsafe { vld1q_u8(from) }
    }

    #[inline(always)]
    unsafe fn store(to: *mut u8, x: uint8x16_t) {
        // SAFETY: the caller lends 16 bytes.
        unsafe { vst1q_u8(to, x) }
    }

    #[inline(always)]
    unsafe fn store_low(to: *mut u64, [x, y]: [uint8x16_t; 2]) {
        // SAFETY: the caller lends 2 words.
        unsafe { vst1q_u64(to, vzip1q_u64(vreinterpretq_u64_u8(x), vreinterpretq_u64_u8(y))) }
    }

    #[inline(always)]
    unsafe fn broadcast(x: Block) -> uint8x16_t {
        // SAFETY: a block is 16 readable bytes; the caller has the features, so below.
        unsafe { vld1q_u8(std::ptr::from_ref(&x).cast()) }
    }

    #[inline(always)]
    unsafe fn xor(x: uint8x16_t, y: uint8x16_t) -> uint8x16_t {
        // SAFETY: as above.
        unsafe { veorq_u8(x, y) }
    }

    #[inline(always)]
    unsafe fn colour(x: uint8x16_t) -> uint8x16_t {
        // SAFETY: as above.
        unsafe {
            let low_bytes = vdupq_laneq_u8::<0>(x);
            vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(vshlq_n_u8::<7>(low_bytes))))
        }
    }

    #[inline(always)]
    unsafe fn chosen(bits: u16) -> uint8x16_t {
        // SAFETY: as above.
        unsafe { Self::colour(vdupq_n_u8(bits as u8)) }
    }

    #[inline(always)]
    unsafe fn xor_where(mask: uint8x16_t, x: uint8x16_t, y: uint8x16_t) -> uint8x16_t {
        // SAFETY: as above.
        unsafe { veorq_u8(x, vandq_u8(mask, y)) }
    }

    #[inline(always)]
    unsafe fn sigma(x: uint8x16_t) -> uint8x16_t {
        // SAFETY: as above.
        unsafe {
            let high_half = Self::broadcast(u128::from(u64::MAX) << 64);
            veorq_u8(vextq_u8::<8>(x, x), vandq_u8(x, high_half))
        }
    }

    #[inline(always)]
    unsafe fn permute<const N: usize>(
        keys: &[uint8x16_t; 11],
        mut x: [uint8x16_t; N],
        y: [uint8x16_t; N],
    ) -> [uint8x16_t; N] {
        let [rounds @ .., ninth, last] = keys;
        for &key in rounds {
            for x in &mut x {
                // SAFETY: as above.
                *x = unsafe { round(*x, key) };
            }
        }
        for (x, y) in x.iter_mut().zip(y) {
            // SAFETY: as above.
            *x = unsafe { veorq_u8(last_round(*x, *ninth), veorq_u8(y, *last)) };
        }
        x
    }
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn round(x: uint8x16_t, key: uint8x16_t) -> uint8x16_t {
    vaesmcq_u8(vaeseq_u8(x, key))
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn last_round(x: uint8x16_t, key: uint8x16_t) -> uint8x16_t {
    vaeseq_u8(x, key)
}

#[target_feature(enable = "neon,aes")]
pub(super) fn garble<const TMMO: bool>(
    inputs: &Inputs<'_>,
    delta: Block,
    tables: &mut [u8],
    masks: &mut [u64],
) {
    // SAFETY: this function has the features.
    unsafe { lockstep::garble::<Neon, TMMO>(inputs, delta, tables, masks) }
}

#[target_feature(enable = "neon,aes")]
pub(super) fn evaluate<const TMMO: bool>(inputs: &Inputs<'_>, tables: &[u8], out: &mut [u64]) {
    // SAFETY: this function has the features.
    unsafe { lockstep::evaluate::<Neon, TMMO>(inputs, tables, out) }
}

#[target_feature(enable = "neon,aes")]
pub(super) fn select(delta: Block, zeros: &[Block], choices: &[u16], out: &mut [Block]) {
    // SAFETY: this function has the features.
    unsafe { lockstep::select::<Neon>(delta, zeros, choices, out) }
}

#[cfg(any(test, feature = "bench"))]
#[target_feature(enable = "neon,aes")]
pub(super) fn churn(block: Block, blocks: u64) -> Block {
    // SAFETY: this function has the features.
    unsafe { lockstep::churn::<Neon>(block, blocks) }
}

#[cfg(test)]
mod tests {
    #[test]
    fn agrees_with_portable() {
        super::super::check::agrees_with_portable(hushtable_prg::Tier::Neon);
    }
}
