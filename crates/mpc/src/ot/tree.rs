//! Trees of 16 leaves (Goldreich, Goldwasser, Micali), of which one party may have all leaves but one.
//!
//! At each level the sums of all left and of all right nodes are transferred, of which the other party
//! takes that of the side where its path does not go: less the nodes that it knows, it is the node beside
//! its path.

use zeroize::{Zeroize, Zeroizing};

use crate::kernel::transpose::{DEPTH, LEAVES};

/// Sums of the left and of the right nodes, of each level; the level of bit b of a leaf's number, whose
/// lowest bit is its last turn, is at b.
pub(super) type Sums = [[u128; 2]; DEPTH];

/// The leaves below `root`, in order, and the sums of each level.
pub(super) fn grow(
    session: &[u8; 32],
    tree: usize,
    root: u128,
) -> (Zeroizing<[u128; LEAVES]>, Sums) {
    let mut nodes = Zeroizing::new([0; LEAVES]);
    nodes[0] = root;
    let mut sums = [[0; 2]; DEPTH];
    for level in 0..DEPTH {
        double(session, tree, level, &mut nodes);
        for (node, value) in nodes.iter().take(2 << level).enumerate() {
            sums[DEPTH - 1 - level][node & 1] ^= value;
        }
    }
    (nodes, sums)
}

/// All leaves but number `path`, of the sum at each level of the side where the path does not go. The
/// leaf number `y` of what comes back is number `y` ⊕ `path` of the tree; the first is 0. Its time does
/// not depend on any of this.
pub(super) fn puncture(
    session: &[u8; 32],
    tree: usize,
    path: u8,
    sums: &[u128; DEPTH],
) -> Zeroizing<[u128; LEAVES]> {
    let mut nodes = Zeroizing::new([0; LEAVES]);
    for level in 0..DEPTH {
        let bit = DEPTH - 1 - level;
        let above = path >> (bit + 1);
        double(session, tree, level, &mut nodes);
        let other = path >> bit & 1 ^ 1;
        // What is below the path is not known: the node of the path, and the one beside it.
        let mut beside = sums[bit];
        for (node, value) in nodes.iter_mut().take(2 << level).enumerate() {
            *value &= !equal(node as u8 >> 1, above);
            beside ^= *value & equal(node as u8 & 1, other);
        }
        for (node, value) in nodes.iter_mut().take(2 << level).enumerate() {
            *value |= beside & equal(node as u8, above << 1 | other);
        }
        beside.zeroize();
    }
    // Number y ⊕ path to place y, bit by bit of the path.
    for bit in 0..DEPTH {
        let swaps = equal(path >> bit & 1, 1);
        for low in (0..LEAVES).filter(|y| y >> bit & 1 == 0) {
            let difference = (nodes[low] ^ nodes[low | 1 << bit]) & swaps;
            nodes[low] ^= difference;
            nodes[low | 1 << bit] ^= difference;
        }
    }
    nodes
}

/// Replaces each of the first 2^level nodes by its two children.
fn double(session: &[u8; 32], tree: usize, level: usize, nodes: &mut [u128; LEAVES]) {
    for node in (0..1 << level).rev() {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable transfer tree v1");
        let parent = Zeroizing::new(nodes[node].to_le_bytes());
        hasher.update(session).update(&[tree as u8, level as u8, node as u8]).update(&*parent);
        let mut children = Zeroizing::new([0; 32]);
        hasher.finalize_xof().fill(&mut *children);
        hasher.zeroize();
        let (halves, _) = children.as_chunks::<16>();
        nodes[2 * node] = u128::from_le_bytes(halves[0]);
        nodes[2 * node + 1] = u128::from_le_bytes(halves[1]);
    }
}

/// All ones where `x` is `y`, both below 128; else 0.
fn equal(x: u8, y: u8) -> u128 {
    // The difference less 1 borrows where there is none.
    let borrow = std::hint::black_box((x ^ y).wrapping_sub(1) >> 7);
    u128::from(borrow).wrapping_neg()
}
