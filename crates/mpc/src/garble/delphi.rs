//! The textbook circuit of a ReLU modulo a prime, to compare bytes and time with.

use super::circuit::{Builder, Circuit, Wire};

/// ReLU on shares modulo a prime, as DELPHI garbles it (Mishra et al., USENIX Security 2020, section
/// 4.3): x = a + g modulo p, 0 if x is in the upper half, and less the garbler's mask r, modulo p; the
/// evaluator sees the difference.
///
/// The evaluator's inputs are a, the garbler's g and then r, [`Delphi::BITS`] bits each.
#[derive(Debug)]
pub struct Delphi {
    circuit: Circuit,
}

impl Delphi {
    /// The prime.
    pub const MODULUS: u64 = 2_061_584_302_081;
    /// Bits of a number modulo it.
    pub const BITS: usize = 41;

    /// Builds the circuit.
    pub fn new() -> Self {
        const BITS: usize = Delphi::BITS;
        let mut builder = Builder::new(2 * BITS, BITS);
        let (a, g, r) =
            (builder.evaluator(0, BITS), builder.garbler(0, BITS), builder.garbler(BITS, BITS));
        let modulus = builder.constant(Self::MODULUS, BITS + 1);

        let (mut sum, carry) = builder.add(&a, &g, Wire::ZERO);
        sum.push(carry);
        let (reduced, is_below) = builder.subtract(&sum, &modulus);
        let x = builder.choose(is_below, &sum[..BITS], &reduced[..BITS]);

        let largest = builder.constant(Self::MODULUS / 2, BITS);
        let (_, is_negative) = builder.subtract(&largest, &x);
        let zero = builder.constant(0, BITS);
        let rectified = builder.choose(is_negative, &zero, &x);

        let (difference, is_below) = builder.subtract(&rectified, &r);
        let (wrapped, _) = builder.add(&difference, &modulus[..BITS], Wire::ZERO);
        let out = builder.choose(is_below, &wrapped, &difference);
        for (bit, &wire) in out.iter().enumerate() {
            builder.reveal(wire, 1 << bit);
        }
        Self { circuit: builder.finish(BITS as u32) }
    }

    /// The circuit.
    pub fn circuit(&self) -> &Circuit {
        &self.circuit
    }

    /// What it computes, in the clear, of numbers below the modulus.
    pub fn clear(a: u64, g: u64, r: u64) -> u64 {
        let x = (a + g) % Self::MODULUS;
        let rectified = if x > Self::MODULUS / 2 { 0 } else { x };
        (rectified + Self::MODULUS - r) % Self::MODULUS
    }
}

impl Default for Delphi {
    fn default() -> Self {
        Self::new()
    }
}
