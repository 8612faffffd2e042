//! Bits that the two servers share, and numbers of them.

use hushtable_mpc::Block;
use hushtable_mpc::compare::Half;
use hushtable_mpc::ot::{Group, Mutual, SharedBits};
use zeroize::Zeroizing;

use super::error::{DealError, taken};

/// Bits of a part, each drawn by both servers: what is shared is their XOR, or each server's bits are its own.
pub(super) struct Bits {
    own: Zeroizing<Vec<u8>>,
    /// Whether left chooses by its bits as well: right always does.
    is_mutual: bool,
    chosen: Zeroizing<Vec<Block>>,
    /// Once both have chosen.
    pub shared: SharedBits,
}

impl Bits {
    pub fn new(own: Vec<u8>, is_mutual: bool) -> Self {
        let (chosen, shared) = Default::default();
        Self { own: Zeroizing::new(own), is_mutual, chosen, shared }
    }

    /// The bits that `half` chooses by.
    pub fn choices(&self, half: Half) -> usize {
        if half == Half::Right || self.is_mutual { self.own.len() } else { 0 }
    }

    pub fn own(&self) -> &[u8] {
        &self.own
    }

    /// Takes its labels off those of all bits.
    pub fn choose(&mut self, half: Half, labels: &mut &[Block]) {
        let (own, rest) = labels.split_at(self.choices(half));
        self.chosen = Zeroizing::new(own.to_vec());
        *labels = rest;
    }

    /// The same of the other server's.
    pub fn offer(&mut self, other: Half, zeros: &mut &[Block]) {
        let (offered, rest) = zeros.split_at(self.choices(other));
        self.shared = SharedBits::new(&self.own, &self.chosen, offered);
        self.chosen = Zeroizing::default();
        *zeros = rest;
    }
}

/// Shared bits that become shares modulo 2^32 of numbers: bit i of each period stands for 2^i. Left offers, right has
/// chosen.
pub(super) struct Numbers {
    pub bits: Bits,
    period: usize,
    /// Of each bit's number.
    pub shares: Zeroizing<Vec<u32>>,
}

impl Numbers {
    pub fn new(bits: Bits, period: usize) -> Self {
        Self { bits, period, shares: Zeroizing::default() }
    }

    pub fn send(&mut self, half: Half, mutual: &mut Mutual) -> Vec<u8> {
        let count = self.bits.own().len();
        match half {
            Half::Left => {
                let values: Vec<u32> = (0..count).map(|bit| 1 << (bit % self.period)).collect();
                let message;
                (self.shares, message) = mutual.multiply(Group::Add, &self.bits.shared, &values);
                message
            }
            Half::Right => {
                self.shares = Zeroizing::new(vec![0; count]);
                Vec::new()
            }
        }
    }

    pub fn take(
        &mut self,
        half: Half,
        mutual: &mut Mutual,
        message: &mut &[u8],
    ) -> Result<(), DealError> {
        if half == Half::Right {
            let message = taken(message, 4 * self.shares.len())?;
            mutual.multiplied(Group::Add, &self.bits.shared, &mut self.shares, message)?;
        }
        Ok(())
    }

    /// This server's shares of A0 and A1 of each period's number r: −r + 2^K · r̂, with r̂ its highest bit, and −r.
    pub fn lowered(&self) -> [Vec<u32>; 2] {
        let of = |bits: &[u32]| {
            let a1 = bits.iter().fold(0_u32, |sum, bit| sum.wrapping_sub(*bit));
            let top = bits.last().copied().unwrap_or_default();
            (a1.wrapping_add(top.wrapping_mul(2)), a1)
        };
        let (zeros, ones) = self.shares.chunks_exact(self.period).map(of).unzip();
        [zeros, ones]
    }
}

/// Bits of numbers, the lowest first, one a byte.
pub(super) fn bits_of(numbers: &[u32], bits: u32) -> Vec<u8> {
    numbers.iter().flat_map(|it| (0..bits).map(move |bit| (it >> bit & 1) as u8)).collect()
}
