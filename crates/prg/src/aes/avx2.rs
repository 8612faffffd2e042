//! AES-NI: eight blocks in flight, which is what two units of latency four can take (Zen 4).
//!
//! The control bit becomes a full-width mask by arithmetic: no branch and no address depends on a
//! node.

use super::{ROUND_KEYS, sigma_of_tweak};
use std::arch::asm;
use std::arch::x86_64::*;

#[target_feature(enable = "avx2,aes")]
pub(super) fn expand(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    hash_tweaked::<4, 2>(nodes, [0, 1], correction, children);
}

#[target_feature(enable = "avx2,aes")]
pub(super) fn convert(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    hash_tweaked::<2, 4>(nodes, [2, 3, 4, 5], correction, leaves);
}

/// `out[N * i + j] = H(seed_i ^ tweaks[j]) ^ (correction[j] if t_i)`, `G` nodes at a time.
#[inline]
#[target_feature(enable = "avx2,aes")]
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
    inner: [__m128i; 9],
    /// σ(tweak) ⊕ k0
    first: [__m128i; N],
    /// σ(tweak) ⊕ k10
    last: [__m128i; N],
    correction: [__m128i; N],
}

impl<const N: usize> Keys<N> {
    #[inline]
    #[target_feature(enable = "avx2,aes")]
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
    #[target_feature(enable = "avx2,aes")]
    fn hash<const G: usize>(&self, nodes: &[u128; G]) -> [[__m128i; N]; G] {
        // Loops, not closures: a closure does not always inherit the target features, and is then
        // called instead of inlined.
        let mut sigmas = [_mm_setzero_si128(); G];
        let mut state = [[_mm_setzero_si128(); N]; G];
        for (g, state) in state.iter_mut().enumerate() {
            sigmas[g] = sigma(load(&nodes[g]));
            for (state, key) in state.iter_mut().zip(&self.first) {
                *state = _mm_xor_si128(sigmas[g], *key);
            }
        }
        for &key in &self.inner {
            for state in state.as_flattened_mut() {
                *state = _mm_aesenc_si128(*state, key);
            }
            keep_abreast(state.as_flattened_mut());
        }
        for (g, state) in state.iter_mut().enumerate() {
            let control = control(load(&nodes[g]));
            for (j, state) in state.iter_mut().enumerate() {
                let key = _mm_xor_si128(sigmas[g], self.last[j]);
                let key = _mm_xor_si128(key, _mm_and_si128(self.correction[j], control));
                *state = _mm_aesenclast_si128(*state, key);
            }
        }
        state
    }
}

/// Holds the compiler to one round of all blocks before the next round of any. Left to itself it
/// runs blocks one after the other to save registers, and every block then waits for its own
/// latency.
#[inline]
#[target_feature(enable = "avx2,aes")]
fn keep_abreast(state: &mut [__m128i]) {
    let (fours, _) = state.as_chunks_mut::<4>();
    for [a, b, c, d] in fours {
        // SAFETY: no instruction is emitted; the operands stay as they are.
        unsafe {
            asm!(
                "/* {} {} {} {} */",
                inout(xmm_reg) * a,
                inout(xmm_reg) * b,
                inout(xmm_reg) * c,
                inout(xmm_reg) * d,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

/// σ of the node's seed: hi ⊕ (lo & !1) in the high half, hi in the low half.
#[inline]
#[target_feature(enable = "avx2,aes")]
fn sigma(node: __m128i) -> __m128i {
    const SWAP_HALVES: i32 = 0b01_00_11_10;
    let seed = _mm_and_si128(node, _mm_set_epi64x(-1, !1));
    let swapped = _mm_shuffle_epi32::<SWAP_HALVES>(seed);
    _mm_xor_si128(swapped, _mm_and_si128(seed, _mm_set_epi64x(-1, 0)))
}

/// All ones if the node's control bit is set, else zero.
#[inline]
#[target_feature(enable = "avx2,aes")]
fn control(node: __m128i) -> __m128i {
    let low_words = _mm_shuffle_epi32::<0>(node);
    _mm_srai_epi32::<31>(_mm_slli_epi32::<31>(low_words))
}

#[inline]
#[target_feature(enable = "avx2,aes")]
fn load(x: &u128) -> __m128i {
    // SAFETY: a u128 is 16 readable bytes; the load needs no alignment.
    unsafe { _mm_loadu_si128(std::ptr::from_ref(x).cast()) }
}

#[inline]
#[target_feature(enable = "avx2,aes")]
fn store(out: &mut u128, x: __m128i) {
    // SAFETY: a u128 is 16 writable bytes; the store needs no alignment.
    unsafe { _mm_storeu_si128(std::ptr::from_mut(out).cast(), x) }
}

#[cfg(test)]
mod tests {
    use super::{convert, expand};
    use crate::{Platform, PrgKind, Tier, check};

    /// This file itself: where there is VAES, the tier takes it.
    #[test]
    fn agrees_with_portable() {
        if !Platform::available().iter().any(|platform| platform.tier() == Tier::Avx2) {
            eprintln!("this machine has no AVX2: nothing to compare");
            return;
        }
        check::functions_agree_with_portable(
            PrgKind::Aes128,
            "AES-NI",
            // SAFETY: the tier was found, which is only made where detection found avx2 and aes.
            |nodes, correction, children| unsafe { expand(nodes, correction, children) },
            // SAFETY: as above.
            |nodes, correction, leaves| unsafe { convert(nodes, correction, leaves) },
        );
        check::agrees_with_portable(PrgKind::Aes128, Tier::Avx2);
    }
}
