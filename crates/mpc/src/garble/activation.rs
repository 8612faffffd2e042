//! What a layer's activation is as a circuit: the sum of two shares, the largest of a window, rectified,
//! with fraction bits dropped.

use std::sync::Arc;

use super::circuit::{Builder, Circuit, Wire};
use super::{LANES, groups};

/// The most numbers of a window.
pub const WINDOW_MAX: usize = 64;

/// What is computed on the shares of one number, or of the numbers of a window.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct ActivationSpec {
    /// k: shares and results are modulo 2^this; 16 to 64.
    pub bits: u32,
    /// d: lowest bits of both shares that are left out of the sum; at most `shift`.
    pub dropped: u32,
    /// Lowest bits of the sum that are dropped, `dropped` ones included; at most `bits` − 2.
    pub shift: u32,
    /// Numbers of which the largest is taken; 1 to [`WINDOW_MAX`].
    pub window: usize,
    /// Whether a negative number becomes 0.
    pub rectify: bool,
    /// The largest number that comes out, where what is rectified has one: both parties know it.
    pub most: Option<u64>,
}

/// A checked [`ActivationSpec`] with its circuit.
#[derive(Clone, Debug)]
pub struct Activation {
    spec: ActivationSpec,
    circuit: Arc<Circuit>,
}

/// Why there is no such activation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// k is out of range.
    #[error("numbers of {0} bits: 16 to 64 can be garbled")]
    Bits(u32),
    /// Nothing would be left, or more would be left out of the sum than is dropped in all.
    #[error(
        "{dropped} bits left out of the sum and {shift} dropped in all, of {bits}: the first is to be at \
         most the second, and that at most {most}", most = bits - 2
    )]
    Shift {
        /// k
        bits: u32,
        /// d
        dropped: u32,
        /// Bits dropped in all.
        shift: u32,
    },
    /// The window is empty or too large.
    #[error("the largest of {0} numbers: a window has 1 to {WINDOW_MAX}")]
    Window(usize),
    /// The largest number is 0, or that of what is not rectified.
    #[error("{0} as the largest number: 1 or more of what is rectified can be garbled")]
    Most(u64),
}

impl Activation {
    /// Checks `spec` and builds its circuit.
    ///
    /// # Errors
    /// If a field is out of range.
    pub fn new(spec: ActivationSpec) -> Result<Self, Error> {
        let ActivationSpec { bits, dropped, shift, window, rectify, most } = spec;
        if !(16..=64).contains(&bits) {
            return Err(Error::Bits(bits));
        }
        if dropped > shift || shift > bits - 2 {
            return Err(Error::Shift { bits, dropped, shift });
        }
        if !(1..=WINDOW_MAX).contains(&window) {
            return Err(Error::Window(window));
        }
        if let Some(most) = most.filter(|&most| most == 0 || !rectify) {
            return Err(Error::Most(most));
        }
        let share_bits = (bits - dropped) as usize;
        let mut builder = Builder::new(window * share_bits, window * share_bits);
        // Dropping low bits keeps the order of numbers, so the largest is found among what is left.
        let below = (shift - dropped) as usize;
        let mut numbers: Vec<Vec<Wire>> = (0..window)
            .map(|index| {
                let a = builder.evaluator(index * share_bits, share_bits);
                let b = builder.garbler(index * share_bits, share_bits);
                let (sum, _) = builder.add(&a, &b, Wire::ZERO);
                sum[below..].to_vec()
            })
            .collect();
        while numbers.len() > 1 {
            let pairs = numbers.chunks(2);
            let winners = pairs.map(|pair| match pair {
                [a, b] => {
                    let is_less = builder.is_less(a, b);
                    builder.choose(is_less, b, a)
                }
                rest => rest[0].clone(),
            });
            numbers = winners.collect();
        }
        let (sign, magnitude) = numbers[0].split_last().expect("two bits or more are left");
        let mut unless = if rectify { *sign } else { Wire::ZERO };
        if let Some(most) = most.filter(|most| most >> magnitude.len() == 0) {
            let is_over = builder.is_at_least(magnitude, most);
            builder.project(is_over, *sign, most);
            unless = builder.or(*sign, is_over);
        }
        for (bit, &wire) in magnitude.iter().enumerate() {
            builder.project(wire, unless, 1 << bit);
        }
        if !rectify {
            builder.project(*sign, Wire::ZERO, (1u64 << magnitude.len()).wrapping_neg());
        }
        Ok(Self { spec, circuit: Arc::new(builder.finish(bits)) })
    }

    /// What it was made of.
    pub fn spec(&self) -> &ActivationSpec {
        &self.spec
    }

    /// Its circuit.
    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    /// m: bits of a share that go into the circuit.
    pub fn share_bits(&self) -> usize {
        (self.spec.bits - self.spec.dropped) as usize
    }

    /// Input bits of an instance, the same number for each party.
    pub fn wires(&self) -> usize {
        self.circuit.garbler_wires
    }

    /// AND gates of an instance.
    pub fn and_gates(&self) -> usize {
        self.circuit.and_gates()
    }

    /// Bytes of table of an instance.
    pub fn table_bytes(&self) -> usize {
        self.circuit.group_bytes / LANES
    }

    /// What the circuit computes, in the clear: its specification.
    ///
    /// Takes shares modulo 2^k, `window` an instance, instance by instance; gives the results modulo
    /// 2^k.
    ///
    /// # Panics
    /// If the lengths differ or are no multiple of the window.
    pub fn clear(&self, evaluator: &[u64], garbler: &[u64]) -> Vec<u64> {
        let ActivationSpec { bits, dropped, shift, window, rectify, most } = self.spec;
        assert_eq!(evaluator.len(), garbler.len(), "two shares of each number");
        assert!(evaluator.len().is_multiple_of(window), "whole windows");
        let mask = self.circuit.mask();
        let share_bits = bits - dropped;
        let number = |(&a, &g): (&u64, &u64)| {
            let sum = ((a & mask) >> dropped).wrapping_add((g & mask) >> dropped);
            let signed = (sum << (64 - share_bits)) as i64 >> (64 - share_bits);
            signed >> (shift - dropped)
        };
        evaluator
            .chunks(window)
            .zip(garbler.chunks(window))
            .map(|(a, g)| {
                let largest = a.iter().zip(g).map(number).max().unwrap_or(0);
                match most {
                    // Above 2^63 − 1 there is no number.
                    Some(most) => (largest.max(0) as u64).min(most),
                    None if rectify => largest.max(0) as u64,
                    None => largest as u64 & mask,
                }
            })
            .collect()
    }

    /// The top m bits of `shares`, as choice bits in the order of labels: a u16 for each group and
    /// wire, whose bit `lane` is that instance's. `shares` has the window's numbers of instance after
    /// instance; lanes without an instance are 0. Constant time.
    ///
    /// # Panics
    /// If the length is no multiple of the window.
    pub fn choices(&self, shares: &[u64]) -> Vec<u16> {
        let ActivationSpec { dropped, window, .. } = self.spec;
        assert!(shares.len().is_multiple_of(window), "whole windows");
        let share_bits = self.share_bits();
        let mut out = vec![0u16; groups(shares.len() / window) * self.wires()];
        for (group, out) in shares.chunks(LANES * window).zip(out.chunks_mut(self.wires())) {
            for (index, out) in out.chunks_mut(share_bits).enumerate() {
                let mut lanes = [0u64; LANES];
                for (lane, instance) in lanes.iter_mut().zip(group.chunks(window)) {
                    *lane = instance[index] >> dropped;
                }
                transpose(&lanes, out);
            }
        }
        out
    }
}

/// `out[bit]`'s bit `lane` is `lanes[lane]`'s bit `bit`.
fn transpose(lanes: &[u64; LANES], out: &mut [u16]) {
    for (bit, out) in out.iter_mut().enumerate() {
        *out = (0..LANES).fold(0, |word, lane| word | ((lanes[lane] >> bit & 1) as u16) << lane);
    }
}
