//! Random numbers from a seed, in the order in which both who deals and who is dealt to draw them.

use hushtable_mpc::compare::{Half, PrgKind};
use hushtable_mpc::{Secret, fill_random};
use zeroize::Zeroize;

use super::Error;

/// What expands comparison keys.
pub(super) const PRG: PrgKind = PrgKind::Aes128;
const DEALT: &str = "hushtable shares 2026-11 dealt";
const ZEROS: &str = "hushtable shares 2026-11 zeros";

/// Seeds from the operating system, each for one use.
pub(super) fn random_seed() -> Result<Secret<[u8; 32]>, Error> {
    let mut seed = Secret::new([0; 32]);
    fill_random(seed.expose_mut())?;
    Ok(seed)
}

/// What a seed becomes.
pub(super) struct Stream(blake3::OutputReader);

impl Stream {
    /// Numbers for one use of the seed.
    pub fn new(seed: &[u8; 32], context: &str) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key(context);
        let stream = hasher.update(seed).finalize_xof();
        hasher.zeroize();
        Self(stream)
    }

    fn bytes(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = vec![0; count];
        self.0.fill(&mut bytes);
        bytes
    }

    pub fn words(&mut self, count: usize) -> Vec<u32> {
        let mut bytes = self.bytes(4 * count);
        let words = bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect();
        bytes.zeroize();
        words
    }

    pub fn blocks(&mut self, count: usize) -> Vec<u128> {
        let mut bytes = self.bytes(16 * count);
        let blocks = bytes.as_chunks().0.iter().map(|block| u128::from_le_bytes(*block)).collect();
        bytes.zeroize();
        blocks
    }

    /// Bits, one a byte.
    pub fn bits(&mut self, count: usize) -> Vec<u8> {
        let mut packed = self.bytes(count.div_ceil(8));
        let bits = (0..count).map(|bit| packed[bit / 8] >> (bit % 8) & 1).collect();
        packed.zeroize();
        bits
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// What a server makes of its seed.
pub(super) fn dealt_stream(seed: &[u8; 32]) -> Stream {
    Stream::new(seed, DEALT)
}

/// What both servers make of a seed that they share.
pub(super) fn zero_stream(seed: &[u8; 32], half: Half) -> Zeros {
    Zeros { stream: Stream::new(seed, ZEROS), half }
}

/// Shares of zero: what left adds, right takes away.
pub(super) struct Zeros {
    stream: Stream,
    half: Half,
}

impl Zeros {
    pub fn refresh(&mut self, shares: &mut [u32]) {
        let mut zeros = self.stream.words(shares.len());
        for (share, zero) in shares.iter_mut().zip(&zeros) {
            *share = match self.half {
                Half::Left => share.wrapping_add(*zero),
                Half::Right => share.wrapping_sub(*zero),
            };
        }
        zeros.zeroize();
    }
}
