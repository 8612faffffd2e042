//! Random polynomials: uniform from a public seed, ternary and Gaussian from secret randomness.

use std::hint::black_box;

use chacha20::ChaCha20;
use chacha20::cipher::{KeyIvInit, StreamCipher};
use hushtable_prg::valgrind::{declassify, mark_public};
use hushtable_prg::{EntropyError, Secret, fill_random};
use zeroize::Zeroize;

use crate::{Coefficients, Evaluations, Poly, Ring};

/// 32 bytes that a uniform polynomial is expanded from; public.
pub type Seed = [u8; 32];

/// Standard deviation of [`NoiseSource::gaussian`], as the homomorphic encryption standards take it.
pub const SIGMA: f64 = 3.2;

impl Ring {
    /// The uniform polynomial number `index` of `seed`: for each limb ℓ, the words (little-endian
    /// u64) of ChaCha20 under `seed` with the nonce `index` (8 bytes) ‖ ℓ (4 bytes), cut to the
    /// modulus' length and taken where they are below the modulus. Time depends on the seed, which
    /// is public.
    pub fn uniform(&self, seed: &Seed, index: u64) -> Poly<Evaluations> {
        let mut poly = self.zero();
        self.uniform_into(seed, index, &mut poly);
        poly
    }

    /// As [`uniform`](Self::uniform), over what `poly` held.
    pub fn uniform_into(&self, seed: &Seed, index: u64, poly: &mut Poly<Evaluations>) {
        for (limb, modulus) in self.moduli().enumerate() {
            let stream = Stream { seed, index, limb: limb as u32 };
            self.kernel().uniform(modulus, stream, 1, poly.limb_mut(limb));
        }
    }
}

/// Which words of a seed one limb of a uniform polynomial is drawn from.
#[derive(Clone, Copy)]
pub struct Stream<'a> {
    /// The seed.
    pub seed: &'a Seed,
    /// The polynomial's number.
    pub index: u64,
    /// The limb's number in the polynomial's ring.
    pub limb: u32,
}

impl Stream<'_> {
    /// ChaCha20's nonce.
    pub(crate) fn nonce(self) -> [u8; 12] {
        let mut nonce = [0; 12];
        nonce[..8].copy_from_slice(&self.index.to_le_bytes());
        nonce[8..].copy_from_slice(&self.limb.to_le_bytes());
        nonce
    }
}

/// Secret randomness for keys and errors: ChaCha20 under a seed from the operating system.
pub struct NoiseSource(Words);

impl NoiseSource {
    /// A source seeded by the operating system.
    ///
    /// # Errors
    /// [`EntropyError`].
    pub fn from_os() -> Result<Self, EntropyError> {
        let mut seed = Secret::new([0; 32]);
        fill_random(seed.expose_mut())?;
        Ok(Self::from_seed(seed.expose()))
    }

    /// The source of a given seed, for tests and known answers.
    pub fn from_seed(seed: &Seed) -> Self {
        Self(Words::new(seed, &[0xff; 12]))
    }

    /// A fresh public seed.
    pub fn seed(&mut self) -> Seed {
        let mut seed = [0; 32];
        for chunk in seed.chunks_exact_mut(8) {
            chunk.copy_from_slice(&self.0.next().to_le_bytes());
        }
        // It is sent, and masks are drawn from it in a time that depends on it.
        mark_public(&mut seed);
        seed
    }

    /// Uniform words.
    pub fn words(&mut self, out: &mut [u64]) {
        out.fill_with(|| self.0.next());
    }

    /// Coefficients of −1, 0 and 1, each with chance one third (within 2^-63); in constant time.
    pub fn ternary(&mut self, ring: &Ring) -> Poly<Coefficients> {
        self.fill(ring, |words| ((u128::from(words.next()) * 3) >> 64) as i64 - 1)
    }

    /// `weight` coefficients of −1 or 1 at places drawn uniformly, the others 0; in constant time, but
    /// for how often a place was taken already and drawn again, which tells of none.
    ///
    /// # Panics
    /// For more coefficients than there are.
    pub fn sparse(&mut self, ring: &Ring, weight: usize) -> Poly<Coefficients> {
        let degree = ring.degree();
        assert!(weight <= degree, "no more coefficients than there are");
        // The place in the low bits, as many as the degree's, and the sign in the highest.
        let mut draws = Secret::new(vec![0u64; weight]);
        for number in 0..weight {
            let (taken, rest) = draws.expose_mut().split_at_mut(number);
            loop {
                rest[0] = self.0.next();
                let is_same = |taken: &u64| u8::from((taken ^ rest[0]) & (degree as u64 - 1) == 0);
                let mut same = taken.iter().map(is_same).fold(0, |same, own| same | own);
                declassify(&mut same);
                if same == 0 {
                    break;
                }
            }
        }
        let mut poly = ring.zero();
        for index in 0..degree {
            let value = draws.expose().iter().fold(0, |value, &draw| {
                let distance = (draw ^ index as u64) & (degree as u64 - 1);
                // All ones where the distance is 0.
                let is_here = (distance.wrapping_sub(1) as i64) >> 63;
                let sign = ((draw >> 63) as i64) * 2 - 1;
                value + (sign & is_here)
            });
            let (value, negative) = black_box((value as u64, (value >> 63) as u64));
            for (limb, modulus) in ring.moduli().enumerate() {
                poly.limb_mut(limb)[index] = value.wrapping_add(modulus.value() & negative);
            }
        }
        poly
    }

    /// Coefficients from the discrete Gaussian of standard deviation [`SIGMA`], cut where its tail
    /// falls below 2^-127; in constant time (every threshold is compared with every draw).
    pub fn gaussian(&mut self, ring: &Ring) -> Poly<Coefficients> {
        self.fill(ring, |words| {
            let draw = u128::from(words.next()) << 64 | u128::from(words.next());
            let (sign, draw) = ((draw & 1) as i64, draw >> 1);
            let above = |&threshold: &u128| (threshold.wrapping_sub(draw + 1) >> 127) as i64;
            let magnitude = GAUSSIAN.iter().map(above).sum::<i64>();
            (magnitude ^ -sign) + sign
        })
    }

    fn fill(&mut self, ring: &Ring, mut draw: impl FnMut(&mut Words) -> i64) -> Poly<Coefficients> {
        let mut poly = ring.zero();
        for index in 0..ring.degree() {
            let value = draw(&mut self.0);
            // What the compiler cannot see through it cannot branch on: from a sign that it knew to
            // be a comparison's it made a jump around loading the modulus.
            let (value, negative) = black_box((value as u64, (value >> 63) as u64));
            for (limb, modulus) in ring.moduli().enumerate() {
                poly.limb_mut(limb)[index] = value.wrapping_add(modulus.value() & negative);
            }
        }
        poly
    }
}

/// Words of a ChaCha20 stream.
pub(crate) struct Words {
    cipher: ChaCha20,
    block: [u8; BLOCK_BYTES],
    used: usize,
}

impl Words {
    pub(crate) fn new(seed: &Seed, nonce: &[u8; 12]) -> Self {
        let cipher = ChaCha20::new(seed.into(), nonce.into());
        Self { cipher, block: [0; BLOCK_BYTES], used: BLOCK_BYTES }
    }

    pub(crate) fn next(&mut self) -> u64 {
        if self.used == BLOCK_BYTES {
            self.block.fill(0);
            self.cipher.apply_keystream(&mut self.block);
            self.used = 0;
        }
        let word = &self.block[self.used..self.used + 8];
        self.used += 8;
        u64::from_le_bytes(word.try_into().expect("eight bytes"))
    }
}

impl Drop for Words {
    fn drop(&mut self) {
        self.block.zeroize();
    }
}

const BLOCK_BYTES: usize = 1024;

/// Entry k: 2^127 times the chance that the magnitude is at most k. A draw of 127 bits has the
/// magnitude that counts the entries at or below it.
const GAUSSIAN: [u128; 42] = [
    0x0ff52b40_64a1f258_29df05b2_074b38de,
    0x2e5a25d4_026fff6d_ccddfad0_6fdfe169,
    0x489ae268_2e3db9bb_02313594_4c9227ab,
    0x5d2bc20d_e6f95105_e12ad817_7d81bcff,
    0x6bc8694a_862fcdce_85ebd2a3_b04ab1df,
    0x7532d898_e9d195d9_eb582f25_814fd03c,
    0x7ab396c9_80f5facb_7e61a468_e3da974c,
    0x7d9e4e8f_6717ea70_48938567_2e72a304,
    0x7f054956_150a592b_2439c858_b79cb75d,
    0x7fa1ce99_f8dbf691_3ddf9e01_24ebb99d,
    0x7fdfb3f0_0a8f3398_1403b4a1_d9ac8a1d,
    0x7ff5e6f7_c97d68d8_97531809_587feac4,
    0x7ffd1f95_b372bd35_cf2b62c6_803ffae8,
    0x7fff40f7_f7aedc63_d873b131_1c890d06,
    0x7fffd2e6_2d057ef0_547e4f4e_753d546b,
    0x7ffff650_3aaa2874_c30c66c3_7dd87cb5,
    0x7ffffe1b_ab99a743_e6c7bd71_8e5edc96,
    0x7fffffaa_0140ce52_8b3e56d5_d7ee46d4,
    0x7ffffff2_1f8a3a77_628cabae_19fafb6e,
    0x7ffffffd_f72301f4_1652de72_ddbc2c56,
    0x7fffffff_ba9fd472_4f2c8265_095130f2,
    0x7fffffff_f79b78ce_5f9d1c86_7902f104,
    0x7fffffff_ff13f6f9_61c54c29_89db9c84,
    0x7fffffff_ffe87489_a3b19006_27bfc55b,
    0x7fffffff_fffdde23_e29f768e_b47d3c73,
    0x7fffffff_ffffd31f_d9c536b7_4d56aa23,
    0x7fffffff_fffffca6_b994e9be_34b49892,
    0x7fffffff_ffffffc5_f006d5ab_c817d5e0,
    0x7fffffff_fffffffc_6e588256_69dfeb5f,
    0x7fffffff_ffffffff_cd08f44c_fba829fe,
    0x7fffffff_ffffffff_fd6b947e_cbc32d70,
    0x7fffffff_ffffffff_ffe1aa9e_185b9ca9,
    0x7fffffff_ffffffff_fffebc60_70bda7f9,
    0x7fffffff_ffffffff_fffff3c3_5884064f,
    0x7fffffff_ffffffff_ffffff94_87d94534,
    0x7fffffff_ffffffff_fffffffc_a7b58c82,
    0x7fffffff_ffffffff_ffffffff_e7d24db4,
    0x7fffffff_ffffffff_ffffffff_ff617235,
    0x7fffffff_ffffffff_ffffffff_fffc50c8,
    0x7fffffff_ffffffff_ffffffff_ffffec1e,
    0x7fffffff_ffffffff_ffffffff_ffffff9f,
    0x7fffffff_ffffffff_ffffffff_fffffffe,
];
