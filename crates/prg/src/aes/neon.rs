//! The AES instructions of Armv8: eight blocks in flight.
//!
//! `aese` adds the round key *before* SubBytes, so round i uses k(i-1) and the last key is added
//! by hand. The control bit becomes a full-width mask by arithmetic: no branch and no address
//! depends on a node.

use super::{ROUND_KEYS, sigma_of_tweak};
use std::arch::aarch64::*;

#[target_feature(enable = "neon,aes")]
pub(super) fn expand(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    hash_tweaked::<4, 2>(nodes, [0, 1], correction, children);
}

#[target_feature(enable = "neon,aes")]
pub(super) fn convert(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    hash_tweaked::<2, 4>(nodes, [2, 3, 4, 5], correction, leaves);
}

/// `out[N * i + j] = H(seed_i ^ tweaks[j]) ^ (correction[j] if t_i)`, `G` nodes at a time.
#[inline]
#[target_feature(enable = "neon,aes")]
fn hash_tweaked<const G: usize, const N: usize>(
    nodes: &[u128],
    tweaks: [u64; N],
    correction: &[u128; N],
    out: &mut [u128],
) {
    let keys = Keys::new(tweaks, correction);
    let (chunks, rest) = nodes.as_chunks::<G>();
    let (out, out_rest) = out.split_at_mut(N * G * chunks.len());
    for (chunk, out) in chunks.iter().zip(out.chunks_exact_mut(N * G)) {
        let hashes = keys.hash(chunk);
        for (out, hash) in out.iter_mut().zip(hashes.as_flattened()) {
            store(out, *hash);
        }
    }
    for (node, out) in rest.iter().zip(out_rest.chunks_exact_mut(N)) {
        let [hashes] = keys.hash(&[*node]);
        for (out, hash) in out.iter_mut().zip(hashes) {
            store(out, hash);
        }
    }
}

/// Everything that does not depend on the nodes.
struct Keys<const N: usize> {
    /// k1 to k9, which `aese` adds at the start of rounds 2 to 10.
    inner: [uint8x16_t; 9],
    /// σ(tweak) ⊕ k0, which the first `aese` adds to σ(seed).
    first: [uint8x16_t; N],
    /// σ(tweak) ⊕ k10
    last: [uint8x16_t; N],
    correction: [uint8x16_t; N],
}

impl<const N: usize> Keys<N> {
    #[inline]
    #[target_feature(enable = "neon,aes")]
    fn new(tweaks: [u64; N], correction: &[u128; N]) -> Self {
        let tweaks = tweaks.map(sigma_of_tweak);
        Self {
            inner: std::array::from_fn(|round| load(&ROUND_KEYS[round + 1])),
            first: tweaks.map(|tweak| load(&(tweak ^ ROUND_KEYS[0]))),
            last: tweaks.map(|tweak| load(&(tweak ^ ROUND_KEYS[10]))),
            correction: std::array::from_fn(|j| load(&correction[j])),
        }
    }

    #[inline]
    #[target_feature(enable = "neon,aes")]
    fn hash<const G: usize>(&self, nodes: &[u128; G]) -> [[uint8x16_t; N]; G] {
        // Loops, not closures: a closure does not always inherit the target features, and is then
        // called instead of inlined.
        let mut sigmas = [load(&0); G];
        let mut state = [[load(&0); N]; G];
        for (g, state) in state.iter_mut().enumerate() {
            sigmas[g] = sigma(load(&nodes[g]));
            for (state, key) in state.iter_mut().zip(&self.first) {
                *state = vaesmcq_u8(vaeseq_u8(sigmas[g], *key));
            }
        }
        let [inner @ .., ninth] = &self.inner;
        for &key in inner {
            for state in state.as_flattened_mut() {
                *state = vaesmcq_u8(vaeseq_u8(*state, key));
            }
        }
        for (g, state) in state.iter_mut().enumerate() {
            let control = control(load(&nodes[g]));
            for (j, state) in state.iter_mut().enumerate() {
                let key = veorq_u8(sigmas[g], self.last[j]);
                let key = veorq_u8(key, vandq_u8(self.correction[j], control));
                *state = veorq_u8(vaeseq_u8(*state, *ninth), key);
            }
        }
        state
    }
}

/// σ of the node's seed: hi ⊕ (lo & !1) in the high half, hi in the low half.
#[inline]
#[target_feature(enable = "neon,aes")]
fn sigma(node: uint8x16_t) -> uint8x16_t {
    let seed = vandq_u8(node, load(&!1));
    let swapped = vextq_u8::<8>(seed, seed);
    veorq_u8(swapped, vandq_u8(seed, load(&(u128::from(u64::MAX) << 64))))
}

/// All ones if the node's control bit is set, else zero.
#[inline]
#[target_feature(enable = "neon,aes")]
fn control(node: uint8x16_t) -> uint8x16_t {
    let low_bytes = vdupq_laneq_u8::<0>(node);
    vreinterpretq_u8_s8(vshrq_n_s8::<7>(vreinterpretq_s8_u8(vshlq_n_u8::<7>(low_bytes))))
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn load(x: &u128) -> uint8x16_t {
    // SAFETY: a u128 is 16 readable bytes; the load needs no alignment beyond a byte's.
    unsafe { vld1q_u8(std::ptr::from_ref(x).cast()) }
}

#[inline]
#[target_feature(enable = "neon,aes")]
fn store(out: &mut u128, x: uint8x16_t) {
    // SAFETY: a u128 is 16 writable bytes; the store needs no alignment beyond a byte's.
    unsafe { vst1q_u8(std::ptr::from_mut(out).cast(), x) }
}

#[cfg(test)]
mod tests {
    use crate::{PrgKind, Tier, check};

    #[test]
    fn agrees_with_portable() {
        check::agrees_with_portable(PrgKind::Aes128, Tier::Neon);
    }
}
