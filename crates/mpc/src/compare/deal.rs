//! Dealing keys, in time that does not depend on the points.

use std::hint::black_box;

use hushtable_prg::Prg;
use zeroize::Zeroize;

use super::Comparisons;

/// The correction words of keys at `points`, whose roots are the `roots` of left and of right. The lowest bit of a
/// root is ignored.
///
/// Roots must be uniform, independent and used once: whoever knows both knows the point.
///
/// # Panics
/// Unless there are as many points and roots as keys. Of a point, the lowest bits count.
///
/// # Security
/// Time and memory accesses depend on the count and bits of the keys alone.
pub fn deal(prg: Prg, keys: Comparisons, points: &[u64], roots: &[[u128; 2]]) -> Vec<u8> {
    assert_eq!(points.len(), keys.count, "a point for each key");
    assert_eq!(roots.len(), keys.count, "two roots for each key");
    let mut words = Vec::with_capacity(keys.words_bytes());
    let mut nodes: Vec<[u128; 2]> =
        roots.iter().map(|[left, right]| [left & !1, right | 1]).collect();
    let mut turns = vec![0; keys.count];
    let mut corrections = vec![[0; 2]; keys.count];
    for level in 0..keys.levels() {
        for (turn, point) in turns.iter_mut().zip(points) {
            *turn = keys.turn(*point, level);
        }
        prg.descend(&mut nodes, &turns, &mut corrections);
        corrections.iter().for_each(|[left, _]| words.extend(left.to_le_bytes()));
        words.extend(corrections.chunks(8).map(|corrections| {
            let bits =
                corrections.iter().enumerate().map(|(bit, [_, right])| ((right & 1) as u8) << bit);
            bits.fold(0, |byte, bit| byte | bit)
        }));
    }
    let mut leaves = vec![0; 8 * keys.count];
    prg.convert(nodes.as_flattened(), &[0; 4], &mut leaves);
    let (both, _) = leaves.as_chunks::<8>();
    for (leaves, point) in both.iter().zip(points) {
        let [left, right] = [leaves[0], leaves[4]];
        let correction = (left ^ right ^ unit(keys.position(*point))) & keys.leaf_mask();
        words.extend(&correction.to_le_bytes()[..keys.leaf_bytes()]);
    }
    nodes.zeroize();
    turns.zeroize();
    leaves.zeroize();
    words
}

/// A one at `position`, below 128. Halves are shifted alone: a shift of 128 bits may branch.
fn unit(position: u32) -> u128 {
    let position = u64::from(position);
    let is_high = black_box(position >> 6);
    let one = 1_u64 << (position & 63);
    u128::from(one & is_high.wrapping_sub(1)) | u128::from(one & is_high.wrapping_neg()) << 64
}
