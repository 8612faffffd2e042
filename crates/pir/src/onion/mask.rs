//! The public mask over a prepared table's plaintexts: to the noise, every table is a random one.
//!
//! # Why
//!
//! RowSel multiplies the noise of expanded leaves with the table's plaintexts. Whoever chooses the
//! table could choose plaintexts that add the noise up instead of mixing it: under a constant table
//! its variance was up to five times the prediction, for secrets that nobody can tell beforehand.
//! Masked plaintexts are uniform, whatever the table is. Their products with *any* noise, however
//! its coefficients hang together, have the variance ‖noise‖² · P² / 12 and a Gaussian's tail or a
//! thinner one, as every sum of independent uniform numbers has (Hoeffding's lemma; the uniform
//! distribution is strictly sub-Gaussian). So the bound of
//! [`noise`](hushtable_rlwe::bfv::noise) holds for any table.
//!
//! The mask's key is a hash of the table's version, which is a hash of all of its rows: a table that
//! is chosen to suit its mask has another version, and another mask. All one can do is try tables:
//! over the choice of the key, a table's chance of failure exceeds 2^t times the bound with chance at
//! most 2^-t (Markov's inequality), so 2^t tries buy t bits, each of them at the cost of hashing a
//! table, and without showing for which secrets it was won. The mask hides nothing and is no secret:
//! who knows the version can take it off. A server that lies about its version gains nothing that it
//! could not have by answering wrongly.
//!
//! # What it is
//!
//! For a table of version V (32 bytes) under the parameter set named S (ASCII, such as `n4096_128`):
//!
//! 1. K = BLAKE3 in its `derive_key` mode, with the context string
//!    `hushtable onion plaintext mask v1` and the key material V ‖ S: 32 bytes.
//! 2. Plaintexts are numbered: chunk c of item i has the number n = i · chunks + c, where
//!    i = column · D0 + matrix row, which is ⌊row id / rows per item⌋, and chunks is how many
//!    plaintexts a row takes (1 unless rows are longer than a plaintext). Items past the table's last
//!    row have numbers too.
//! 3. The mask of plaintext n is the first N · `plain_bits` / 8 bytes of the keystream of ChaCha20
//!    (RFC 8439) under K, with the block counter starting at 0 and the nonce of 12 bytes
//!    n (8 bytes, little-endian) ‖ 0 0 0 0.
//! 4. The server stores plaintext ⊕ mask, byte by byte, where the plaintext is the item's chunk,
//!    filled up with zeros to N · `plain_bits` / 8 bytes. Every plaintext of the matrix is masked:
//!    behind the end of a row's chunk, of an item and of the table it is zeros that are.
//! 5. The client decodes N numbers of `plain_bits` bits, writes them as little-endian bytes, and
//!    takes the same ⊕ of the plaintext that it asked for.
//!
//! On the client the number is secret. ChaCha20 takes the same time for every nonce.

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use hushtable_table::Version;

use super::ParameterSet;

/// The masks of one table's plaintexts under one parameter set.
///
/// ```
/// use hushtable_pir::onion::{Mask, ParameterSet};
/// use hushtable_table::Version;
///
/// let mask = Mask::new(Version::from([7; 32]), ParameterSet::N4096128);
/// let mut plaintext = *b"a row of a table";
/// mask.apply(3, &mut plaintext);
/// assert_ne!(plaintext, *b"a row of a table");
/// mask.apply(3, &mut plaintext);
/// assert_eq!(plaintext, *b"a row of a table");
/// ```
#[derive(Clone, Debug)]
pub struct Mask {
    key: [u8; 32],
}

impl Mask {
    /// The masks of the table of this version.
    pub fn new(version: Version, set: ParameterSet) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(CONTEXT);
        hasher.update(version.as_bytes()).update(set.name().as_bytes());
        Self { key: *hasher.finalize().as_bytes() }
    }

    /// Puts the mask of plaintext `number` on its bytes, or takes it off. Time does not depend on
    /// the number.
    pub fn apply(&self, number: u64, plaintext: &mut [u8]) {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&number.to_le_bytes());
        ChaCha20::new(&self.key.into(), &nonce.into()).apply_keystream(plaintext);
    }
}

const CONTEXT: &str = "hushtable onion plaintext mask v1";

#[cfg(test)]
mod tests {
    use super::*;

    /// Against ChaCha20's blocks as RFC 8439, section 2.3, describes them.
    #[test]
    fn the_mask_is_the_keystream_that_its_specification_says() {
        let version = Version::from([9; 32]);
        let mask = Mask::new(version, ParameterSet::IvePaper);
        let material = [&[9; 32][..], b"ive_paper"].concat();
        let key = blake3::derive_key("hushtable onion plaintext mask v1", &material);
        let number = 0x0102_0304_0506_0708u64;
        let mut bytes = [0; 200];
        mask.apply(number, &mut bytes);
        for (counter, found) in bytes.chunks(64).enumerate() {
            assert_eq!(found, &block(&key, counter as u32, number)[..found.len()]);
        }
    }

    #[test]
    fn each_table_set_and_plaintext_has_a_mask_of_its_own() {
        let of = |version: u8, set, number| {
            let mut bytes = [0; 32];
            Mask::new(Version::from([version; 32]), set).apply(number, &mut bytes);
            bytes
        };
        let first = of(1, ParameterSet::N4096128, 0);
        assert_eq!(first, of(1, ParameterSet::N4096128, 0));
        for other in [
            of(2, ParameterSet::N4096128, 0),
            of(1, ParameterSet::IvePaper, 0),
            of(1, ParameterSet::N4096128, 1),
            of(1, ParameterSet::N4096128, 1 << 32),
        ] {
            assert_ne!(first, other);
        }
    }

    fn block(key: &[u8; 32], counter: u32, number: u64) -> [u8; 64] {
        let mut start = [0u32; 16];
        start[..4].copy_from_slice(&[0x6170_7865, 0x3320_646e, 0x7962_2d32, 0x6b20_6574]);
        for (word, bytes) in start[4..12].iter_mut().zip(key.as_chunks().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        start[12..].copy_from_slice(&[counter, number as u32, (number >> 32) as u32, 0]);
        let mut state = start;
        for _ in 0..10 {
            for [a, b, c, d] in [
                [0, 4, 8, 12],
                [1, 5, 9, 13],
                [2, 6, 10, 14],
                [3, 7, 11, 15],
                [0, 5, 10, 15],
                [1, 6, 11, 12],
                [2, 7, 8, 13],
                [3, 4, 9, 14],
            ] {
                for [x, y, z, bits] in [[a, b, d, 16], [c, d, b, 12], [a, b, d, 8], [c, d, b, 7]] {
                    state[x] = state[x].wrapping_add(state[y]);
                    state[z] = (state[z] ^ state[x]).rotate_left(bits as u32);
                }
            }
        }
        let mut out = [0; 64];
        for ((bytes, state), start) in out.as_chunks_mut().0.iter_mut().zip(state).zip(start) {
            *bytes = state.wrapping_add(start).to_le_bytes();
        }
        out
    }
}
