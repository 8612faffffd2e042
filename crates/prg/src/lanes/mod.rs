//! The generators that key a primitive with every seed, many seeds side by side.
//!
//! A core is written once, over [`Vector`]: a register holds one word of several seeds, and every
//! operation is the same for all of them. The drivers here cut the nodes into groups, and are
//! compiled once a tier, over that tier's registers. Over
//! [`vector::Portable`] they are their own specification.

mod chacha;
mod group;
mod highway;
mod salsa;
mod sha256;
mod siphash;
mod vector;

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
#[cfg(all(target_arch = "aarch64", target_endian = "little"))]
mod neon;

pub(crate) use chacha::ChaCha;
pub(crate) use highway::HighwayHash;
pub(crate) use salsa::Salsa;
pub(crate) use sha256::Sha256;
pub(crate) use siphash::SipHash24;

use crate::{Platform, Tier};
use vector::Vector;

/// A pseudorandom function keyed with seeds.
pub(crate) trait Core {
    /// As [`crate::Prg::expand`], on the registers `V`.
    fn expand<V: Vector>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]);
    /// As [`crate::Prg::convert`], on the registers `V`.
    fn convert<V: Vector>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]);
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
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        Tier::Neon => C::expand::<neon::Neon>(nodes, correction, children),
        _ => C::expand::<vector::Portable>(nodes, correction, children),
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
        #[cfg(all(target_arch = "aarch64", target_endian = "little"))]
        Tier::Neon => C::convert::<neon::Neon>(nodes, correction, leaves),
        _ => C::convert::<vector::Portable>(nodes, correction, leaves),
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn expand_avx512<C: Core>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    C::expand::<avx512::Avx512>(nodes, correction, children);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl")]
fn convert_avx512<C: Core>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    C::convert::<avx512::Avx512>(nodes, correction, leaves);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn expand_avx2<C: Core>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    C::expand::<avx2::Avx2>(nodes, correction, children);
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
fn convert_avx2<C: Core>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    C::convert::<avx2::Avx2>(nodes, correction, leaves);
}

#[cfg(test)]
mod tests {
    use crate::{PrgKind, Tier, check};

    #[test]
    fn every_kind_agrees_with_portable_on_every_tier() {
        for kind in PrgKind::ALL {
            for tier in [Tier::Neon, Tier::Avx2, Tier::Avx512] {
                check::agrees_with_portable(kind, tier);
            }
        }
    }
}
