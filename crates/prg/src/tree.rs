//! One level of the keys of secret points.

use std::hint::black_box;

use zeroize::Zeroize;

use crate::Prg;

impl Prg {
    /// Moves both sides' nodes one level down the paths to secret points, and writes the correction words of that
    /// level (Boyle, Gilboa and Ishai, CCS 2016, figure 1), as [`expand`](Self::expand) takes them: for each key,
    /// those of the left and of the right child, control bits in the low bits.
    ///
    /// `nodes[i]` are the left and the right server's nodes of key i, whose control bits differ; `go_right[i]` is 1
    /// where its path goes to the right child, else 0. The child off the path is corrected to be equal on both sides
    /// (seed and control bit), the child on it keeps independent seeds and unequal control bits. The time depends on
    /// the number of keys alone.
    ///
    /// # Panics
    /// If the slices are not of one length.
    pub fn descend(&self, nodes: &mut [[u128; 2]], go_right: &[u8], corrections: &mut [[u128; 2]]) {
        assert_eq!(nodes.len(), go_right.len(), "descend: a direction for each key");
        assert_eq!(nodes.len(), corrections.len(), "descend: corrections of each key");
        let mut children = [0; 4 * AT_ONCE];
        let keys = nodes.chunks_mut(AT_ONCE).zip(go_right.chunks(AT_ONCE));
        for ((nodes, go_right), corrections) in keys.zip(corrections.chunks_mut(AT_ONCE)) {
            let children = &mut children[..4 * nodes.len()];
            self.expand(nodes.as_flattened(), &[0, 0], children);
            let (children, _) = children.as_chunks();
            let keys = nodes.iter_mut().zip(children).zip(go_right).zip(corrections);
            for (((nodes, children), go_right), correction) in keys {
                *correction = correct(nodes, children, *go_right);
            }
        }
        children.zeroize();
    }
}

/// The same of one key, whose nodes' uncorrected children are the left server's two and then the right one's.
fn correct(nodes: &mut [u128; 2], children: &[u128; 4], go_right: u8) -> [u128; 2] {
    let [left_l, right_l, left_r, right_r] = *children;
    let right = u128::from(black_box(go_right) & 1);
    let (rightwards, choose) = (mask(right), |mask: u128, a: u128, b: u128| b ^ (mask & (a ^ b)));
    let lose = choose(rightwards, left_l ^ left_r, right_l ^ right_r);
    let seed = lose & !1;
    let control_left = (left_l ^ left_r ^ right ^ 1) & 1;
    let control_right = (right_l ^ right_r ^ right) & 1;
    let correction = [seed | control_left, seed | control_right];
    let keep = choose(rightwards, correction[1], correction[0]);
    let kept = [choose(rightwards, right_l, left_l), choose(rightwards, right_r, left_r)];
    for (node, kept) in nodes.iter_mut().zip(kept) {
        *node = kept ^ (keep & mask(*node & 1));
    }
    correction
}

/// All ones of a 1. Opaque to the compiler, which could otherwise branch on the bit.
fn mask(bit: u128) -> u128 {
    black_box(bit).wrapping_neg()
}

/// Keys that are expanded in one call: as many as reach its full speed.
const AT_ONCE: usize = 64;
