//! Rows' bits, shared by XOR, become numbers, shared modulo 2^32.
//!
//! Lookups answer by XOR: those kernels are several times as fast as any that add, and a server's whole pass stays
//! as it is. For each bit b of a row the dealer shares a random bit ρ twice: by XOR (from the servers' seeds) and
//! modulo 2^32. Left and right open c = b ⊕ ρ, and b is ρ for c = 0 and 1 − ρ for c = 1: linear in the share of ρ. The
//! numbers are two's complement, so the highest bit counts negatively.
//!
//! **What a server sees** is c, which is uniform, for ρ is and is used once.

use hushtable_mpc::compare::Half;
use zeroize::Zeroize;

use super::Error;
use super::dealt::Dealt;
use super::outline::Outline;
use super::stream::Stream;

/// Adds what these rows take to what right is given.
pub(super) fn deal(outline: &Outline, left: &mut Stream, right: &mut Stream, given: &mut Vec<u8>) {
    let count = outline.looked_bits();
    let mut shares = left.words(count);
    let [left_bits, right_bits] = [left, right].map(|it| it.bits(count));
    let bits = left_bits.iter().zip(right_bits).map(|(left, right)| u32::from(left ^ right));
    let rest = bits.zip(&shares).map(|(bit, share)| bit.wrapping_sub(*share));
    given.extend(rest.flat_map(u32::to_le_bytes));
    shares.zeroize();
}

/// What one server has for the rows of an inference: used once.
pub(super) struct Keys {
    half: Half,
    /// Shares of each ρ, modulo 2^32 and by XOR.
    shares: Vec<u32>,
    bits: Vec<u8>,
}

impl Keys {
    pub fn take(outline: &Outline, half: Half, dealt: &mut Dealt<'_>) -> Result<Self, Error> {
        let count = outline.looked_bits();
        Ok(Self { half, shares: dealt.numbers(count)?, bits: dealt.bits(count) })
    }

    /// This server's share of c for its XOR share of the rows.
    pub fn reveal(&self, rows: &[u8]) -> Vec<u64> {
        let bits = (0..self.bits.len()).map(|bit| rows[bit / 8] >> (bit % 8) & 1);
        bits.zip(&self.bits).map(|(bit, own)| u64::from(bit ^ own)).collect()
    }

    /// This server's share of each value: feature after feature, its rows summed.
    pub fn finish(&self, outline: &Outline, opened: &[u64]) -> Vec<u32> {
        let one = u32::from(self.half == Half::Left);
        let mut values = Vec::new();
        let mut at = 0;
        for lookup in &outline.lookups {
            let bits = lookup.value_bits as usize;
            let start = values.len();
            values.resize(start + lookup.dim, 0_u32);
            for value in (0..lookup.rows * lookup.dim).map(|place| start + place % lookup.dim) {
                for bit in 0..bits {
                    let share = self.shares[at];
                    let share = if opened[at] & 1 == 1 { one.wrapping_sub(share) } else { share };
                    let share = share << bit;
                    let sum = &mut values[value];
                    *sum = match bit + 1 == bits {
                        true => sum.wrapping_sub(share),
                        false => sum.wrapping_add(share),
                    };
                    at += 1;
                }
            }
        }
        values
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.shares.zeroize();
        self.bits.zeroize();
    }
}
