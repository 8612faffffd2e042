//! VAES on 256-bit registers, for processors that have it without AVX-512 (Zen 3, Alder Lake): two nodes a register,
//! eight registers in flight.
//!
//! As in [`avx2`], the control bit becomes a full-width mask by arithmetic: no branch and no address depends on a node.

use super::{ROUND_KEYS, avx2, sigma_of_tweak};
use std::arch::asm;
use std::arch::x86_64::*;

/// Nodes in one register.
const LANES: usize = 2;

/// Whether this processor has it.
pub(super) fn is_available() -> bool {
    is_x86_feature_detected!("vaes")
}

#[target_feature(enable = "avx2,aes,vaes")]
pub(super) fn expand(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    let done = hash_tweaked::<4, 2>(nodes, [0, 1], correction, children);
    avx2::expand(&nodes[done..], correction, &mut children[2 * done..]);
}

#[target_feature(enable = "avx2,aes,vaes")]
pub(super) fn convert(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    let done = hash_tweaked::<2, 4>(nodes, [2, 3, 4, 5], correction, leaves);
    avx2::convert(&nodes[done..], correction, &mut leaves[4 * done..]);
}

/// `out[N * i + j] = H(seed_i ^ tweaks[j]) ^ (correction[j] if t_i)`, `G` registers of nodes at a time, and how many nodes
/// they make.
#[inline]
#[target_feature(enable = "avx2,aes,vaes")]
fn hash_tweaked<const G: usize, const N: usize>(
    nodes: &[u128],
    tweaks: [u64; N],
    correction: &[u128; N],
    out: &mut [u128],
) -> usize {
    let keys = Keys::new(tweaks, correction);
    let (chunks, out) = (nodes.chunks_exact(LANES * G), out.chunks_exact_mut(N * LANES * G));
    let done = LANES * G * chunks.len();
    for (nodes, out) in chunks.zip(out) {
        let (nodes, _) = nodes.as_chunks::<LANES>();
        let mut registers = [_mm256_setzero_si256(); G];
        for (register, nodes) in registers.iter_mut().zip(nodes) {
            *register = load(nodes);
        }
        let hashes = keys.hash(registers);
        // One after the other, the hashes of a register's first node, then those of its second.
        let (out, _) = out.as_chunks_mut::<LANES>();
        for (hashes, out) in hashes.iter().zip(out.chunks_exact_mut(N)) {
            let (first, second) = out.split_at_mut(N / LANES);
            let (pairs, _) = hashes.as_chunks::<2>();
            for (([a, b], first), second) in pairs.iter().zip(first).zip(second) {
                store(first, _mm256_permute2x128_si256::<0x20>(*a, *b));
                store(second, _mm256_permute2x128_si256::<0x31>(*a, *b));
            }
        }
    }
    done
}

/// Everything that does not depend on the nodes, in both lanes.
struct Keys<const N: usize> {
    inner: [__m256i; 9],
    /// σ(tweak) ⊕ k0
    first: [__m256i; N],
    /// σ(tweak) ⊕ k10
    last: [__m256i; N],
    correction: [__m256i; N],
}

impl<const N: usize> Keys<N> {
    #[inline]
    #[target_feature(enable = "avx2,aes,vaes")]
    fn new(tweaks: [u64; N], correction: &[u128; N]) -> Self {
        let tweaks = tweaks.map(sigma_of_tweak);
        Self {
            inner: std::array::from_fn(|round| load(&[ROUND_KEYS[round + 1]; LANES])),
            first: tweaks.map(|tweak| load(&[tweak ^ ROUND_KEYS[0]; LANES])),
            last: tweaks.map(|tweak| load(&[tweak ^ ROUND_KEYS[10]; LANES])),
            correction: std::array::from_fn(|j| load(&[correction[j]; LANES])),
        }
    }

    /// The hashes of `G` registers' nodes by each tweak, in the nodes' lanes.
    #[inline]
    #[target_feature(enable = "avx2,aes,vaes")]
    fn hash<const G: usize>(&self, nodes: [__m256i; G]) -> [[__m256i; N]; G] {
        // Loops, not closures: a closure does not always inherit the target features, and is then
        // called instead of inlined.
        let mut sigmas = nodes;
        let mut state = [[_mm256_setzero_si256(); N]; G];
        for (sigma_of, state) in sigmas.iter_mut().zip(&mut state) {
            *sigma_of = sigma(*sigma_of);
            for (state, key) in state.iter_mut().zip(&self.first) {
                *state = _mm256_xor_si256(*sigma_of, *key);
            }
        }
        for &key in &self.inner {
            for state in state.as_flattened_mut() {
                *state = _mm256_aesenc_epi128(*state, key);
            }
            keep_abreast(state.as_flattened_mut());
        }
        for (g, state) in state.iter_mut().enumerate() {
            let control = control(nodes[g]);
            for (j, state) in state.iter_mut().enumerate() {
                let key = _mm256_xor_si256(sigmas[g], self.last[j]);
                let key = _mm256_xor_si256(key, _mm256_and_si256(self.correction[j], control));
                *state = _mm256_aesenclast_epi128(*state, key);
            }
        }
        state
    }
}

/// Holds the compiler to one round of all blocks before the next round of any, as in [`avx2`].
#[inline]
#[target_feature(enable = "avx2,aes,vaes")]
fn keep_abreast(state: &mut [__m256i]) {
    let (fours, _) = state.as_chunks_mut::<4>();
    for [a, b, c, d] in fours {
        // SAFETY: no instruction is emitted; the operands stay as they are.
        unsafe {
            asm!(
                "/* {} {} {} {} */",
                inout(ymm_reg) * a,
                inout(ymm_reg) * b,
                inout(ymm_reg) * c,
                inout(ymm_reg) * d,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

/// σ of each node's seed: hi ⊕ (lo & !1) in the high half, hi in the low half.
#[inline]
#[target_feature(enable = "avx2,aes,vaes")]
fn sigma(nodes: __m256i) -> __m256i {
    const SWAP_HALVES: i32 = 0b01_00_11_10;
    let seeds = _mm256_and_si256(nodes, _mm256_set_epi64x(-1, !1, -1, !1));
    let swapped = _mm256_shuffle_epi32::<SWAP_HALVES>(seeds);
    _mm256_xor_si256(swapped, _mm256_and_si256(seeds, _mm256_set_epi64x(-1, 0, -1, 0)))
}

/// All ones in the lane of a node whose control bit is set, else zero.
#[inline]
#[target_feature(enable = "avx2,aes,vaes")]
fn control(nodes: __m256i) -> __m256i {
    let low_words = _mm256_shuffle_epi32::<0>(nodes);
    _mm256_srai_epi32::<31>(_mm256_slli_epi32::<31>(low_words))
}

#[inline]
#[target_feature(enable = "avx2,aes,vaes")]
fn load(x: &[u128; LANES]) -> __m256i {
    // SAFETY: two u128 are 32 readable bytes; the load needs no alignment.
    unsafe { _mm256_loadu_si256(x.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx2,aes,vaes")]
fn store(out: &mut [u128; LANES], x: __m256i) {
    // SAFETY: two u128 are 32 writable bytes; the store needs no alignment.
    unsafe { _mm256_storeu_si256(out.as_mut_ptr().cast(), x) }
}

#[cfg(test)]
mod tests {
    use super::{convert, expand, is_available};
    use crate::{PrgKind, check};

    #[test]
    fn agrees_with_portable() {
        if !is_available() {
            eprintln!("this machine has no VAES: nothing to compare");
            return;
        }
        check::functions_agree_with_portable(
            PrgKind::Aes128,
            "VAES",
            // SAFETY: VAES was detected, which no processor has without AVX2 and AES-NI.
            |nodes, correction, children| unsafe { expand(nodes, correction, children) },
            // SAFETY: as above.
            |nodes, correction, leaves| unsafe { convert(nodes, correction, leaves) },
        );
    }
}
