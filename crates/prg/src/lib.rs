//! Seeds to pseudorandom bytes, on every instruction set.
//!
//! The trees under a distributed point function ask one thing of their generator: from each of
//! many seeds, two seeds, or 512 bits. [`Prg`] does that for a slice of nodes at a time, with one
//! of eight constructions ([`PrgKind`]) and the instructions of one [`Platform`]. Keys and seeds
//! come from the operating system by [`fill_random`], and secrets are kept in a [`Secret`].
//!
//! ```
//! use hushtable_prg::{Platform, Prg, PrgKind};
//!
//! let prg = Prg::new(PrgKind::Aes128, Platform::detect());
//! let root = 0x0123_4567_89ab_cdef_0123_4567_89ab_cdee_u128;
//! let mut children = [0; 2];
//! prg.expand(&[root], &[0, 0], &mut children);
//! let mut grandchildren = [0; 4];
//! prg.expand(&children, &[0, 0], &mut grandchildren);
//!
//! // Every platform computes the same.
//! let mut same = [0; 2];
//! Prg::new(PrgKind::Aes128, Platform::PORTABLE).expand(&[root], &[0, 0], &mut same);
//! assert_eq!(children, same);
//! ```
//!
//! # The eight generators
//!
//! A seed s is a `u128` with bit 0 clear, so 127 bits are secret. Bytes and integers correspond in
//! little-endian order throughout. L and R are the two children, C the leaf of four `u128`.
//!
//! | kind | id | L ‖ R | C |
//! |---|---|---|---|
//! | `aes128` | 1 | H(s) ‖ H(s ⊕ 1) | H(s ⊕ 2) ‖ H(s ⊕ 3) ‖ H(s ⊕ 4) ‖ H(s ⊕ 5) |
//! | `chacha20`, `chacha12` | 2, 3 | bytes 0..32 of block 0 | block 1 |
//! | `salsa20`, `salsa12` | 4, 5 | bytes 0..32 of block 0 | block 1 |
//! | `sha256` | 6 | SHA-256(s ‖ 0) | SHA-256(s ‖ 1) ‖ SHA-256(s ‖ 2) |
//! | `siphash24` | 7 | tags of the messages 0 to 3 | tags of the messages 4 to 11 |
//! | `highwayhash` | 8 | tag of the message 0 | tags of the messages 1 and 2 |
//!
//! - **aes128**: H(x) = π(σ(x)) ⊕ σ(x), where σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi on 64-bit halves and π is
//!   AES-128 under one public key, the first 128 bits of the fraction of π (243f6a88 85a308d3
//!   13198a2e 03707344). The tweaks 0 to 5 are 128-bit integers.
//! - **ChaCha and Salsa20**: the designer's own form for 128-bit keys, with the constants "expand
//!   16-byte k" and the seed in both key halves, a nonce of 64 zero bits and a block counter of 64
//!   bits.
//! - **sha256**: s as 16 bytes, then one byte.
//! - **siphash24**: SipHash-2-4 keyed with s; a message is one byte, a tag 8 bytes.
//! - **highwayhash**: HighwayHash-256 with the key s ‖ s; a message is 32 bytes, the first as said
//!   and the others zero; a tag is 32 bytes.
//!
//! `vectors/prg.json` holds known answers for all of them.
//!
//! # What they promise
//!
//! To whoever does not know s, L, R and C look random and independent, for seeds that are uniform
//! and independent as the seeds of a tree are. (Do not number seeds: under `aes128` the seeds s and
//! s ⊕ 2 share outputs, as C(s) begins with H(s ⊕ 2) = L(s ⊕ 2).) For `aes128` this is the
//! circular correlation robustness of MMO^σ with π an ideal permutation (Guo, Katz, Wang and Yu,
//! "Efficient and Secure Multiparty Computation from Fixed-Key Block Ciphers", IEEE S&P 2020,
//! section 7.3), and it is claimed for just the six public offsets above. The other kinds rest on
//! their primitive as a pseudorandom function. ChaCha12, Salsa20/12, SipHash and HighwayHash have a
//! thinner margin or less study than the others; they are here to be compared (Lam et al.,
//! "GPU-based Private Information Retrieval for On-Device Machine Learning Inference", table V).
//!
//! **Many targets.** No kind mixes a per-key salt in, so that one guess is checked against every
//! seed that an attacker has outputs of. After q guesses against n secret seeds the advantage is
//! about 6 · n · q / 2^127 for `aes128`, where every offset of every seed is a target and the
//! permutation is the same for all, and n · q / 2^127 for the others. A key for 2^20 rows has 12
//! secret seeds: 2^30 keys together leave about 90 bits of work to find one seed under `aes128`
//! (2^127 / (6 · 12 · 2^30) = 2^90.8), and 93 under the others.
//!
//! # Constant time
//!
//! Time and memory addresses depend on the number of nodes, never on a node or a correction word.
//!
//! - A control bit is turned to a mask by arithmetic (portable, AVX2, NEON) or moved to a mask
//!   register (AVX-512), and the correction is ANDed with it or XORed under it. In scalar code an
//!   optimisation barrier keeps the compiler from making a branch of it.
//! - AES on AVX2, AVX-512 and NEON is the processor's AES instruction, whose time is fixed. The
//!   portable path is the `aes` crate: the same instructions where it finds them, and bit-sliced
//!   code without tables elsewhere.
//! - ChaCha, Salsa20, SipHash, SHA-256 and HighwayHash are additions, rotations, XORs, and, in
//!   HighwayHash alone, multiplications, which take fixed time on the processors that have a tier
//!   here; a processor with an early-out multiplier must not run HighwayHash on secrets.
//!
//! What a compiler makes of the portable path is not promised by the language; the engines' timing
//! tests run over it.

// Where there are no vector kernels, nothing chooses among them.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, unreachable_patterns, unused_imports, unused_mut)
)]

mod aes;
mod bits;
#[cfg(test)]
mod check;
#[doc(hidden)]
pub mod divisions;
mod entropy;
mod kind;
mod lanes;
mod platform;
mod prg;
mod secret;
#[doc(hidden)]
pub mod timing;
mod tree;
#[doc(hidden)]
pub mod valgrind;

#[doc(hidden)]
pub use aes::round_keys;
pub use entropy::{EntropyError, fill_random};
pub use kind::{PrgKind, UnknownPrg};
pub use platform::{Platform, Tier, Vectorised};
pub use prg::Prg;
pub use secret::Secret;
