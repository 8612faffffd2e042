//! The specification of the AES generator, over the `aes` crate.
//!
//! The crate itself picks AES instructions where the machine has them and a bit-sliced,
//! table-free AES elsewhere; both run in constant time.

use super::KEY;
use crate::bits::mask;
use aes::Aes128;
use aes::cipher::{Array, BlockCipherEncrypt, KeyInit};
use std::sync::LazyLock;

/// π. The schedule of a fixed key is made once a process.
static PERMUTATION: LazyLock<Aes128> = LazyLock::new(|| Aes128::new(&KEY.into()));

/// Nodes hashed in one call of the cipher: enough for the crate's widest backend (64 blocks).
const NODES_A_CHUNK: usize = 32;

pub(super) fn expand(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
    hash_tweaked::<0, 2>(nodes, correction, children);
}

pub(super) fn convert(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
    hash_tweaked::<2, 4>(nodes, correction, leaves);
}

/// `out[N * i + j] = H(seed_i ^ (FIRST + j)) ^ (correction[j] if t_i)`
fn hash_tweaked<const FIRST: u128, const N: usize>(
    nodes: &[u128],
    correction: &[u128; N],
    out: &mut [u128],
) {
    let mut whitened = [[0u128; N]; NODES_A_CHUNK];
    let mut blocks = [[Array::from([0u8; 16]); N]; NODES_A_CHUNK];
    for (nodes, out) in nodes.chunks(NODES_A_CHUNK).zip(out.chunks_mut(N * NODES_A_CHUNK)) {
        for (i, &node) in nodes.iter().enumerate() {
            for j in 0..N {
                whitened[i][j] = sigma((node & !1) ^ (FIRST + j as u128));
                blocks[i][j] = Array::from(whitened[i][j].to_le_bytes());
            }
        }
        PERMUTATION.encrypt_blocks(blocks[..nodes.len()].as_flattened_mut());
        for (i, (&node, out)) in nodes.iter().zip(out.chunks_exact_mut(N)).enumerate() {
            for j in 0..N {
                let hash = u128::from_le_bytes(blocks[i][j].into()) ^ whitened[i][j];
                out[j] = hash ^ (correction[j] & mask(node));
            }
        }
    }
}

/// σ(hi‖lo) = (hi ⊕ lo)‖hi
fn sigma(x: u128) -> u128 {
    let (hi, lo) = ((x >> 64) as u64, x as u64);
    u128::from(hi ^ lo) << 64 | u128::from(hi)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_permutation_is_aes_as_fips_197_appendix_b_has_it() {
        let key: [u8; 16] =
            hex::decode("2b7e151628aed2a6abf7158809cf4f3c").unwrap()[..].try_into().unwrap();
        let mut block = Array::from([0u8; 16]);
        block.copy_from_slice(&hex::decode("3243f6a8885a308d313198a2e0370734").unwrap());
        Aes128::new(&key.into()).encrypt_block(&mut block);
        assert_eq!(hex::encode(block), "3925841d02dc09fbdc118597196a0b32");
    }

    #[test]
    fn sigma_is_an_orthomorphism() {
        // σ and σ + 1 are linear: they are permutations if and only if their matrices have full
        // rank over GF(2).
        for map in [sigma as fn(u128) -> u128, |x| sigma(x) ^ x] {
            let mut basis: Vec<u128> = Vec::new();
            for bit in 0..128 {
                let reduced = basis.iter().fold(map(1 << bit), |v, &b| v.min(v ^ b));
                assert_ne!(reduced, 0, "column {bit} depends on those before it");
                basis.push(reduced);
                basis.sort_unstable_by(|a, b| b.cmp(a));
            }
        }
    }

    #[test]
    fn one_node_by_hand() {
        // L = π(σ(s)) ⊕ σ(s), with σ worked out on paper and π the raw block cipher.
        let node = 0x0123456789abcdef_1111111111111111_u128;
        let sigma_s = 0x1032547698badcff_0123456789abcdef_u128;
        let mut block = Array::from(sigma_s.to_le_bytes());
        Aes128::new(&KEY.into()).encrypt_block(&mut block);
        let left = u128::from_le_bytes(block.into()) ^ sigma_s ^ 7;
        let mut children = [0; 2];
        expand(&[node], &[7, 0], &mut children);
        assert_eq!(children[0], left);
    }
}
