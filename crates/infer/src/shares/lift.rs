//! Shared numbers of few bits become shares modulo 2^32 of the same numbers.
//!
//! The first half of a [`gate`](super::gate), for numbers of either sign: x is between −2^(K−2) and 2^(K−2), left adds
//! 2^(K−2) to its share, and what results is not negative and below 2^(K−1). So X = x + 2^(K−2) + r modulo 2^K is
//! opened, and X + A_X̂ − 2^(K−2) is x modulo 2^32. Only A0 and A1 are dealt, and there is no second message.
//!
//! **What a server sees** is X, which is uniform, for r is and is used once.

use hushtable_mpc::compare::Half;
use zeroize::Zeroize;

use super::Error;
use super::dealt::Dealt;
use super::stream::Stream;
use super::words::mask;

/// A step's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Lifts {
    pub count: usize,
    pub bits: u32,
}

impl Lifts {
    pub fn given_bytes(self) -> usize {
        4 * 2 * self.count
    }

    /// Adds the masks of these numbers to what right is given; `own` is the dealer's randomness.
    pub fn deal(self, own: &mut Stream, left: &mut Stream, given: &mut Vec<u8>) {
        let mut r = own.words(self.count);
        let [mut zeros, mut ones] = [(); 2].map(|()| left.words(self.count));
        for (r, share) in r.iter().zip(&zeros) {
            given.extend(
                lowered(r & mask(self.bits), self.bits)[0].wrapping_sub(*share).to_le_bytes(),
            );
        }
        for (r, share) in r.iter().zip(&ones) {
            given.extend(
                lowered(r & mask(self.bits), self.bits)[1].wrapping_sub(*share).to_le_bytes(),
            );
        }
        r.zeroize();
        zeros.zeroize();
        ones.zeroize();
    }
}

/// A0 and A1 of r: −r as a number of `bits` bits and a sign, and −r.
pub(super) fn lowered(r: u32, bits: u32) -> [u32; 2] {
    let top = r >> (bits - 1) & 1;
    let a1 = r.wrapping_neg();
    // 2^K is 0 modulo 2^32 where K is 32.
    [a1.wrapping_add((u64::from(top) << bits) as u32), a1]
}

/// What one server has for a step: used once.
pub(super) struct Keys {
    lifts: Lifts,
    half: Half,
    /// Shares of A0 and of A1.
    masks: [Vec<u32>; 2],
}

impl Keys {
    pub fn take(lifts: Lifts, half: Half, dealt: &mut Dealt<'_>) -> Result<Self, Error> {
        let masks = [dealt.numbers(lifts.count)?, dealt.numbers(lifts.count)?];
        Ok(Self { lifts, half, masks })
    }

    /// What left adds, so that no number is negative.
    fn offset(&self) -> u32 {
        match self.half {
            Half::Left => 1 << (self.lifts.bits - 2),
            Half::Right => 0,
        }
    }

    /// This server's share of X for its share of x.
    pub fn reveal(&self, x: &[u32]) -> Vec<u64> {
        let masked = x
            .iter()
            .zip(&self.masks[1])
            .map(|(x, a1)| x.wrapping_add(self.offset()).wrapping_sub(*a1) & mask(self.lifts.bits));
        masked.map(u64::from).collect()
    }

    /// This server's share of x, modulo 2^32.
    pub fn finish(&self, opened: &[u64]) -> Vec<u32> {
        let of = |(place, &opened): (usize, &u64)| {
            let mask = self.masks[(opened >> (self.lifts.bits - 1) & 1) as usize][place];
            match self.half {
                Half::Left => mask.wrapping_add(opened as u32).wrapping_sub(self.offset()),
                Half::Right => mask,
            }
        };
        opened.iter().enumerate().map(of).collect()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.masks.iter_mut().for_each(Zeroize::zeroize);
    }
}
