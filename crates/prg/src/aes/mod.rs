//! AES-128 under one fixed public key, as a correlation-robust hash.
//!
//! π is AES-128 under [`KEY`]; σ(hi‖lo) = (hi ⊕ lo)‖hi on the two 64-bit halves of the block, an
//! orthomorphism: both σ and x ↦ σ(x) ⊕ x are linear permutations. The hash is
//!
//! > H(x) = π(σ(x)) ⊕ σ(x),
//!
//! MMO^σ of Guo, Katz, Wang and Yu, "Efficient and Secure Multiparty Computation from Fixed-Key
//! Block Ciphers" (IEEE S&P 2020, ePrint 2019/074), section 7.3: circular correlation robust with π
//! an ideal permutation. The tweaks j = 0..=5 are 128-bit integers XORed to the seed:
//! L(s) = H(s), R(s) = H(s ⊕ 1), C(s) = H(s ⊕ 2) ‖ H(s ⊕ 3) ‖ H(s ⊕ 4) ‖ H(s ⊕ 5).
//!
//! σ is linear, so σ(s ⊕ j) = σ(s) ⊕ σ(j) and σ(j) = j·2^64 for j below 2^64. Every SIMD backend
//! computes σ once a seed and folds σ(j) into the first and the last round key:
//! π's input is whitened by `σ(j) ⊕ k0`, and ⊕ σ(x) after the last round becomes part of k10.

mod portable;
mod schedule;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;
#[cfg(target_arch = "x86_64")]
mod vaes;

pub use schedule::round_keys;

use crate::{Platform, Tier};

/// The fixed key: the first 128 bits of the fractional part of π, 0x243F6A88_85A308D3_13198A2E_
/// 03707344, as bytes in reading order. Nobody chose it.
const KEY: [u8; 16] = [
    0x24, 0x3f, 0x6a, 0x88, 0x85, 0xa3, 0x08, 0xd3, 0x13, 0x19, 0x8a, 0x2e, 0x03, 0x70, 0x73, 0x44,
];

/// The round keys of [`KEY`], made by the compiler. Only the SIMD backends read them.
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))),
    allow(dead_code, reason = "only the SIMD backends read them")
)]
const ROUND_KEYS: [u128; 11] = schedule::round_keys(KEY);

/// σ(j) for a tweak below 2^64: its high half is 0, so σ moves it there.
#[cfg_attr(
    not(any(target_arch = "x86_64", all(target_arch = "aarch64", target_endian = "little"))),
    allow(dead_code, reason = "only the SIMD backends fold the tweaks into round keys")
)]
const fn sigma_of_tweak(tweak: u64) -> u128 {
    (tweak as u128) << 64
}

pub(crate) fn expand(
    platform: Platform,
    nodes: &[u128],
    correction: &[u128; 2],
    children: &mut [u128],
) {
    match platform.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx512f, bw, dq, vl and vaes.
        Tier::Avx512 => unsafe { avx512::expand(nodes, correction, children) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2 and aes; VAES was detected here.
        Tier::Avx2 if vaes::is_available() => unsafe { vaes::expand(nodes, correction, children) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2 and aes.
        Tier::Avx2 => unsafe { avx2::expand(nodes, correction, children) },
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        // SAFETY: this tier is only made where detection found neon and aes.
        Tier::Neon => unsafe { neon::expand(nodes, correction, children) },
        _ => portable::expand(nodes, correction, children),
    }
}

pub(crate) fn convert(
    platform: Platform,
    nodes: &[u128],
    correction: &[u128; 4],
    leaves: &mut [u128],
) {
    match platform.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx512f, bw, dq, vl and vaes.
        Tier::Avx512 => unsafe { avx512::convert(nodes, correction, leaves) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2 and aes; VAES was detected here.
        Tier::Avx2 if vaes::is_available() => unsafe { vaes::convert(nodes, correction, leaves) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2 and aes.
        Tier::Avx2 => unsafe { avx2::convert(nodes, correction, leaves) },
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        // SAFETY: this tier is only made where detection found neon and aes.
        Tier::Neon => unsafe { neon::convert(nodes, correction, leaves) },
        _ => portable::convert(nodes, correction, leaves),
    }
}
