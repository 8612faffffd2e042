//! The generators that key a primitive with every seed, many seeds side by side.
//!
//! A core is written once, over arrays of `N` lanes: lane i is seed i, and every operation is the
//! same for all lanes. The drivers here cut the nodes into groups of `N`, and are compiled once a
//! tier with `N` the lanes of that tier's registers.

#![allow(clippy::needless_range_loop, reason = "a lane number indexes several arrays at once")]

mod chacha;
mod highway;
mod salsa;
mod sha256;
mod siphash;

pub(crate) use chacha::ChaCha;
pub(crate) use highway::HighwayHash;
pub(crate) use salsa::Salsa;
pub(crate) use sha256::Sha256;
pub(crate) use siphash::SipHash24;

use crate::bits::mask;
use crate::{Platform, Tier};

/// A pseudorandom function under `N` seeds at once.
pub(crate) trait Core {
    /// The left and the right child of every seed, before correction.
    fn children<const N: usize>(seeds: &[u128; N]) -> [[u128; 2]; N];
    /// The 512-bit leaf of every seed, before correction.
    fn leaves<const N: usize>(seeds: &[u128; N]) -> [[u128; 4]; N];
}

pub(crate) fn expand<C: Core>(
    platform: Platform,
    nodes: &[u128],
    correction: &[u128; 2],
    children: &mut [u128],
) {
    match platform.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found all of avx512f, bw, dq and vl.
        Tier::Avx512 => unsafe { expand_avx512::<C>(nodes, correction, children) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2.
        Tier::Avx2 => unsafe { expand_avx2::<C>(nodes, correction, children) },
        // Neon is part of the aarch64 baseline: the portable path is compiled to it already.
        _ => each_group::<4, 2>(nodes, correction, children, C::children::<4>),
    }
}

pub(crate) fn convert<C: Core>(
    platform: Platform,
    nodes: &[u128],
    correction: &[u128; 4],
    leaves: &mut [u128],
) {
    match platform.tier() {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found all of avx512f, bw, dq and vl.
        Tier::Avx512 => unsafe { convert_avx512::<C>(nodes, correction, leaves) },
        #[cfg(target_arch = "x86_64")]
        // SAFETY: this tier is only made where detection found avx2.
        Tier::Avx2 => unsafe { convert_avx2::<C>(nodes, correction, leaves) },
        _ => each_group::<4, 4>(nodes, correction, leaves, C::leaves::<4>),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn expand_avx512<C: Core>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    each_group::<16, 2>(nodes, correction, children, C::children::<16>);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn convert_avx512<C: Core>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    each_group::<16, 4>(nodes, correction, leaves, C::leaves::<16>);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn expand_avx2<C: Core>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    each_group::<8, 2>(nodes, correction, children, C::children::<8>);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn convert_avx2<C: Core>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    each_group::<8, 4>(nodes, correction, leaves, C::leaves::<8>);
}

/// `out[W * i..][..W] = core(seed_i) ^ (correction if t_i)`, `N` seeds a call. The last group is
/// filled up with zero seeds, whose output is thrown away.
#[inline(always)]
fn each_group<const N: usize, const W: usize>(
    nodes: &[u128],
    correction: &[u128; W],
    out: &mut [u128],
    core: impl Fn(&[u128; N]) -> [[u128; W]; N],
) {
    let (groups, rest) = nodes.as_chunks::<N>();
    let (out, out_rest) = out.split_at_mut(W * N * groups.len());
    for (group, out) in groups.iter().zip(out.chunks_exact_mut(W * N)) {
        apply(group, correction, out, &core);
    }
    if !rest.is_empty() {
        let mut group = [0; N];
        group[..rest.len()].copy_from_slice(rest);
        apply(&group, correction, out_rest, &core);
    }
}

#[inline(always)]
fn apply<const N: usize, const W: usize>(
    group: &[u128; N],
    correction: &[u128; W],
    out: &mut [u128],
    core: impl Fn(&[u128; N]) -> [[u128; W]; N],
) {
    let blocks = core(&group.map(|node| node & !1));
    for ((node, block), out) in group.iter().zip(&blocks).zip(out.chunks_exact_mut(W)) {
        for j in 0..W {
            out[j] = block[j] ^ (correction[j] & mask(*node));
        }
    }
}
