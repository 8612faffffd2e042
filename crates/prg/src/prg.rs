//! The generator as its users see it.

use crate::lanes::{ChaCha, HighwayHash, Salsa, Sha256, SipHash24};
use crate::{Platform, PrgKind, aes, lanes};

/// A length-quadrupling generator for trees of nodes: one kind on one platform.
///
/// A **node** is a `u128`: bit 0 is the control bit t, the other 127 bits are the seed (the `u128`
/// with bit 0 cleared). Bytes and `u128` correspond in little-endian order.
///
/// The functions are deterministic, allocate nothing, and their time and memory addresses depend
/// on the number of nodes only ([constant time](crate#constant-time)). The result does not depend
/// on the platform.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prg {
    kind: PrgKind,
    platform: Platform,
}

impl Prg {
    /// The generator `kind`, run with the instructions of `platform`.
    pub fn new(kind: PrgKind, platform: Platform) -> Self {
        Self { kind, platform }
    }

    /// Which generator this is.
    pub fn kind(&self) -> PrgKind {
        self.kind
    }

    /// Where it runs.
    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// One level of a tree with correction words (Boyle, Gilboa and Ishai, "Function Secret
    /// Sharing: Improvements and Extensions", CCS 2016, figure 1).
    ///
    /// With `seed_i = nodes[i] & !1` and `t_i = nodes[i] & 1`:
    ///
    /// - `children[2 * i] = L(seed_i) ^ (correction[0] if t_i)`
    /// - `children[2 * i + 1] = R(seed_i) ^ (correction[1] if t_i)`
    ///
    /// Bit 0 of a child is its own control bit, so that the result is the next call's `nodes`.
    /// 64 nodes or more a call reach full speed.
    ///
    /// # Panics
    /// If `children.len() != 2 * nodes.len()`.
    pub fn expand(&self, nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
        assert_eq!(
            Some(children.len()),
            nodes.len().checked_mul(2),
            "expand: {} nodes have two children each, but there is room for {}",
            nodes.len(),
            children.len(),
        );
        let expand = match self.kind {
            PrgKind::Aes128 => aes::expand,
            PrgKind::ChaCha20 => lanes::expand::<ChaCha<20>>,
            PrgKind::ChaCha12 => lanes::expand::<ChaCha<12>>,
            PrgKind::Salsa20 => lanes::expand::<Salsa<20>>,
            PrgKind::Salsa12 => lanes::expand::<Salsa<12>>,
            PrgKind::Sha256 => lanes::expand::<Sha256>,
            PrgKind::SipHash24 => lanes::expand::<SipHash24>,
            PrgKind::HighwayHash => lanes::expand::<HighwayHash>,
        };
        expand(self.platform, nodes, correction, children);
    }

    /// The leaf blocks, 512 bits each, under the last level of a tree.
    ///
    /// `leaves[4 * i..4 * i + 4] = C(seed_i) ^ (correction if t_i)`, with seed and t as in
    /// [`expand`](Self::expand). C is independent of L and R.
    ///
    /// # Panics
    /// If `leaves.len() != 4 * nodes.len()`.
    pub fn convert(&self, nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
        assert_eq!(
            Some(leaves.len()),
            nodes.len().checked_mul(4),
            "convert: {} nodes have four words each, but there is room for {}",
            nodes.len(),
            leaves.len(),
        );
        let convert = match self.kind {
            PrgKind::Aes128 => aes::convert,
            PrgKind::ChaCha20 => lanes::convert::<ChaCha<20>>,
            PrgKind::ChaCha12 => lanes::convert::<ChaCha<12>>,
            PrgKind::Salsa20 => lanes::convert::<Salsa<20>>,
            PrgKind::Salsa12 => lanes::convert::<Salsa<12>>,
            PrgKind::Sha256 => lanes::convert::<Sha256>,
            PrgKind::SipHash24 => lanes::convert::<SipHash24>,
            PrgKind::HighwayHash => lanes::convert::<HighwayHash>,
        };
        convert(self.platform, nodes, correction, leaves);
    }
}
