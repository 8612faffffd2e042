//! VAES: four blocks a register, four registers in flight.
//!
//! One `vaesenc zmm` a cycle with a latency of four (Zen 4) needs no fewer. More leave no room for
//! the round keys and constants in the 32 registers, and the spills cost more than the slack gains.
//! The last nodes, fewer than a register holds, take the narrower path: they come alone only near
//! the root of a tree, where a whole register would mostly wait.
//!
//! A control bit becomes a mask register that selects the correction: no branch and no address
//! depends on a node.

use super::{ROUND_KEYS, avx2, sigma_of_tweak};
use std::arch::asm;
use std::arch::x86_64::*;

/// Nodes in one register.
const LANES: usize = 4;

/// Shuffle that swaps the two 64-bit halves of every 128-bit lane.
const SWAP_HALVES: i32 = 0b01_00_11_10;

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
pub(super) fn expand(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    let keys = ExpandKeys::new(correction);
    let (chunks, nodes) = nodes.as_chunks::<{ 2 * LANES }>();
    let (out_chunks, children) = children.split_at_mut(2 * 2 * LANES * chunks.len());
    let (out_chunks, _) = out_chunks.as_chunks_mut::<{ 2 * 2 * LANES }>();
    for (chunk, out) in chunks.iter().zip(out_chunks) {
        let (groups, _) = chunk.as_chunks::<LANES>();
        let x = [load(&groups[0]), load(&groups[1])];
        let (out, _) = out.as_chunks_mut::<LANES>();
        for (out, pair) in out.chunks_exact_mut(2).zip(keys.hash(x)) {
            store(&mut out[0], pair[0]);
            store(&mut out[1], pair[1]);
        }
    }
    let (groups, rest) = nodes.as_chunks::<LANES>();
    let (out_groups, out_rest) = children.split_at_mut(2 * LANES * groups.len());
    let (out_groups, _) = out_groups.as_chunks_mut::<LANES>();
    for (group, out) in groups.iter().zip(out_groups.chunks_exact_mut(2)) {
        let [[first, second]] = keys.hash([load(group)]);
        store(&mut out[0], first);
        store(&mut out[1], second);
    }
    avx2::expand(rest, correction, out_rest);
}

#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
pub(super) fn convert(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    let keys = ConvertKeys::new(correction);
    let (leaves, _) = leaves.as_chunks_mut::<4>();
    let (chunks, nodes) = nodes.as_chunks::<LANES>();
    let (out_chunks, leaves) = leaves.split_at_mut(LANES * chunks.len());
    for (chunk, out) in chunks.iter().zip(out_chunks.chunks_exact_mut(LANES)) {
        for (out, leaf) in out.iter_mut().zip(keys.hash(chunk)) {
            store(out, leaf);
        }
    }
    avx2::convert(nodes, correction, leaves.as_flattened_mut());
}

/// Everything of an expansion that does not depend on the nodes.
struct ExpandKeys {
    inner: [__m512i; 9],
    /// σ(j) ⊕ k0 for the left (j = 0) and the right (j = 1) child.
    first: [__m512i; 2],
    /// σ(j) ⊕ k10, likewise.
    last: [__m512i; 2],
    correction: [__m512i; 2],
}

impl ExpandKeys {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
    fn new(correction: &[u128; 2]) -> Self {
        let whitened =
            |key: u128| [load(&[key ^ sigma_of_tweak(0); 4]), load(&[key ^ sigma_of_tweak(1); 4])];
        Self {
            inner: inner_keys(),
            first: whitened(ROUND_KEYS[0]),
            last: whitened(ROUND_KEYS[10]),
            correction: [load(&[correction[0]; 4]), load(&[correction[1]; 4])],
        }
    }

    /// The children of `4 * G` nodes, in order: `[L0, R0, L1, R1]` and `[L2, R2, L3, R3]`.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
    fn hash<const G: usize>(&self, nodes: [__m512i; G]) -> [[__m512i; 2]; G] {
        // Loops, not closures: a closure does not always inherit the target features, and is then
        // called instead of inlined.
        let mut sigmas = nodes;
        let mut state = [[_mm512_setzero_si512(); 2]; G];
        for (sigma_of, state) in sigmas.iter_mut().zip(&mut state) {
            *sigma_of = sigma(*sigma_of);
            for (state, key) in state.iter_mut().zip(&self.first) {
                *state = _mm512_xor_si512(*sigma_of, *key);
            }
        }
        for &key in &self.inner {
            for state in state.as_flattened_mut() {
                *state = _mm512_aesenc_epi128(*state, key);
            }
            keep_abreast(state.as_flattened_mut());
        }
        let low = _mm512_setr_epi64(0, 1, 8, 9, 2, 3, 10, 11);
        let high = _mm512_setr_epi64(4, 5, 12, 13, 6, 7, 14, 15);
        for (g, state) in state.iter_mut().enumerate() {
            let low_halves = _mm512_unpacklo_epi64(nodes[g], nodes[g]);
            let control = _mm512_test_epi64_mask(low_halves, _mm512_set1_epi64(1));
            for (side, state) in state.iter_mut().enumerate() {
                let key = _mm512_xor_si512(sigmas[g], self.last[side]);
                let key = _mm512_mask_xor_epi64(key, control, key, self.correction[side]);
                *state = _mm512_aesenclast_epi128(*state, key);
            }
            let [left, right] = *state;
            *state = [
                _mm512_permutex2var_epi64(left, low, right),
                _mm512_permutex2var_epi64(left, high, right),
            ];
        }
        state
    }
}

/// Everything of a conversion that does not depend on the nodes.
struct ConvertKeys {
    inner: [__m512i; 9],
    /// σ(j) ⊕ k0 for j = 2, 3, 4, 5, one a lane.
    first: __m512i,
    /// σ(j) ⊕ k10, likewise.
    last: __m512i,
    correction: __m512i,
}

impl ConvertKeys {
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
    fn new(correction: &[u128; 4]) -> Self {
        const fn tweaked(key: u128) -> [u128; 4] {
            let mut keys = [key; 4];
            let mut lane = 0;
            while lane < 4 {
                keys[lane] ^= sigma_of_tweak(2 + lane as u64);
                lane += 1;
            }
            keys
        }
        static FIRST: [u128; 4] = tweaked(ROUND_KEYS[0]);
        static LAST: [u128; 4] = tweaked(ROUND_KEYS[10]);
        Self {
            inner: inner_keys(),
            first: load(&FIRST),
            last: load(&LAST),
            correction: load(correction),
        }
    }

    /// One leaf a register: the four hashes of one seed are its four lanes.
    #[inline]
    #[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
    fn hash(&self, nodes: &[u128; LANES]) -> [__m512i; LANES] {
        let sigma = sigma(load(nodes));
        let sigmas = [
            _mm512_shuffle_i64x2::<0b00_00_00_00>(sigma, sigma),
            _mm512_shuffle_i64x2::<0b01_01_01_01>(sigma, sigma),
            _mm512_shuffle_i64x2::<0b10_10_10_10>(sigma, sigma),
            _mm512_shuffle_i64x2::<0b11_11_11_11>(sigma, sigma),
        ];
        let mut state = sigmas;
        for state in &mut state {
            *state = _mm512_xor_si512(*state, self.first);
        }
        for &key in &self.inner {
            for state in &mut state {
                *state = _mm512_aesenc_epi128(*state, key);
            }
            keep_abreast(&mut state);
        }
        for (i, state) in state.iter_mut().enumerate() {
            let control = 0u8.wrapping_sub(nodes[i] as u8 & 1);
            let key = _mm512_xor_si512(sigmas[i], self.last);
            let key = _mm512_mask_xor_epi64(key, control, key, self.correction);
            *state = _mm512_aesenclast_epi128(*state, key);
        }
        state
    }
}

/// The inner round keys k1 to k9, each in all four lanes.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn inner_keys() -> [__m512i; 9] {
    let mut keys = [_mm512_setzero_si512(); 9];
    for (key, round_key) in keys.iter_mut().zip(&ROUND_KEYS[1..]) {
        *key = broadcast(*round_key);
    }
    keys
}

/// `x` in all four lanes, straight from its 16 bytes: four stored copies would stall a wide load.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn broadcast(x: u128) -> __m512i {
    _mm512_broadcast_i64x2(_mm_set_epi64x((x >> 64) as i64, x as i64))
}

/// Holds the compiler to one round of all registers before the next round of any. Left to itself
/// it runs some of them alone to save registers, and these then wait for their own latency.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn keep_abreast(state: &mut [__m512i]) {
    let (fours, _) = state.as_chunks_mut::<4>();
    for [a, b, c, d] in fours {
        // SAFETY: no instruction is emitted; the operands stay as they are.
        unsafe {
            asm!(
                "/* {} {} {} {} */",
                inout(zmm_reg) * a,
                inout(zmm_reg) * b,
                inout(zmm_reg) * c,
                inout(zmm_reg) * d,
                options(nomem, nostack, preserves_flags),
            );
        }
    }
}

/// σ of the seeds of four nodes: hi ⊕ (lo & !1) in the high half, hi in the low half.
#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn sigma(nodes: __m512i) -> __m512i {
    /// first ^ (second & third)
    const XOR_AND: i32 = 0x78;
    let seeds = _mm512_and_si512(nodes, load(&[!1; 4]));
    let high_halves = load(&[u128::from(u64::MAX) << 64; 4]);
    let swapped = _mm512_shuffle_epi32::<SWAP_HALVES>(seeds);
    _mm512_ternarylogic_epi64::<XOR_AND>(swapped, seeds, high_halves)
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn load(x: &[u128; 4]) -> __m512i {
    // SAFETY: the array is 64 readable bytes; the load needs no alignment.
    unsafe { _mm512_loadu_si512(x.as_ptr().cast()) }
}

#[inline]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,vaes")]
fn store(out: &mut [u128; 4], x: __m512i) {
    // SAFETY: the array is 64 writable bytes; the store needs no alignment.
    unsafe { _mm512_storeu_si512(out.as_mut_ptr().cast(), x) }
}

#[cfg(test)]
mod tests {
    use crate::{PrgKind, Tier, check};

    #[test]
    fn agrees_with_portable() {
        check::agrees_with_portable(PrgKind::Aes128, Tier::Avx512);
    }
}
