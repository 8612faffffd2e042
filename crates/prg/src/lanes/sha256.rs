//! SHA-256 of the seed and a counter byte, over the `sha2` crate.

use super::Core;
use super::group::each_seed;
use super::vector::Vector;
use sha2::block_api::compress256;

/// Children are SHA-256(seed ‖ 0); the leaf is SHA-256(seed ‖ 1) ‖ SHA-256(seed ‖ 2).
///
/// The crate picks SHA instructions where the machine has them, whatever the tier.
pub(crate) struct Sha256;

impl Core for Sha256 {
    fn expand<V: Vector>(nodes: &[u128], correction: &[u128; 2], children: &mut [u128]) {
        each_seed(nodes, correction, children, |seed| digest(seed, 0));
    }

    fn convert<V: Vector>(nodes: &[u128], correction: &[u128; 4], leaves: &mut [u128]) {
        each_seed(nodes, correction, leaves, |seed| {
            let ([a, b], [c, d]) = (digest(seed, 1), digest(seed, 2));
            [a, b, c, d]
        });
    }
}

/// SHA-256 of the 17 bytes seed ‖ counter: one padded block, so one compression (FIPS 180-4,
/// section 5.1.1).
fn digest(seed: u128, counter: u8) -> [u128; 2] {
    let mut block = [0; 64];
    block[..16].copy_from_slice(&seed.to_le_bytes());
    block[16] = counter;
    block[17] = 0x80;
    block[56..].copy_from_slice(&(8 * 17u64).to_be_bytes());
    let mut state = INITIAL;
    compress256(&mut state, &[block]);
    std::array::from_fn(|half| {
        // The digest is the state in big-endian words; read as a little-endian number.
        (0..4).fold(0, |word, k| word | u128::from(state[4 * half + k].swap_bytes()) << (32 * k))
    })
}

/// FIPS 180-4, section 5.3.3.
const INITIAL: [u32; 8] = [
    0x6a09_e667,
    0xbb67_ae85,
    0x3c6e_f372,
    0xa54f_f53a,
    0x510e_527f,
    0x9b05_688c,
    0x1f83_d9ab,
    0x5be0_cd19,
];

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use sha2::Digest;

    #[test]
    fn the_crate_is_sha_256_as_fips_180_has_it() {
        assert_eq!(
            hex::encode(sha2::Sha256::digest(b"abc")),
            "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
        );
    }

    proptest! {
        #[test]
        fn one_compression_is_the_whole_hash(seed: u128, counter: u8) {
            let expected = sha2::Sha256::digest([&seed.to_le_bytes()[..], &[counter]].concat());
            let digest = digest(seed, counter).map(u128::to_le_bytes);
            prop_assert_eq!(digest.as_flattened(), &expected[..]);
        }
    }
}
