//! Real numbers to residues and back.

use hushtable_ring::{Coefficients, Modulus, Poly, Ring, declassify};

/// log2 of the largest coefficient that is rounded: three parts, the highest of at most 2^50.
pub(super) const COEFFICIENT_LOG2_MAX: f64 = Width::Three.limit_log2();

/// In how many parts, of 40 bits but for the highest, numbers are rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    One,
    Two,
    Three,
}

impl Width {
    /// The parts that numbers of up to `largest` need. Which, and nothing else of it, is revealed.
    pub(super) fn of(largest: f64) -> Self {
        let exceeds = |width: Self| u8::from(largest > width.limit_log2().exp2());
        let mut more = exceeds(Self::One) + exceeds(Self::Two);
        // The time that rounding takes shows it, as documented for the encoder.
        declassify(&mut more);
        match more {
            0 => Self::One,
            1 => Self::Two,
            _ => Self::Three,
        }
    }

    /// log2 of the largest number.
    const fn limit_log2(self) -> f64 {
        match self {
            Self::One => 50.0,
            Self::Two => 90.0,
            Self::Three => 130.0,
        }
    }
}

/// Rounds reals to integers modulo one prime, to the nearest (and even) integer.
///
/// The same instructions for all values of one width: rounding is an addition of 1.5 · 2^52, after
/// which a double's low bits are the integer. For primes below 2^26 the reduction is a division,
/// whose time on some processors depends on what it divides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Rounding {
    modulus: Modulus,
    /// 2^51 and 2^40 modulo the prime.
    offset: u64,
    step: u64,
    width: Width,
}

impl Rounding {
    /// For numbers that `width` holds.
    pub(super) fn new(modulus: Modulus, width: Width) -> Self {
        let offset = modulus.reduce_u128(OFFSET.into());
        Self { modulus, offset, step: modulus.reduce_u128(1 << STEP_BITS), width }
    }

    /// The residue of the integer nearest to `x`.
    #[inline(always)]
    pub(super) fn residue(self, x: f64) -> u64 {
        match self.width {
            Width::One => self.reduce(nearest(x)),
            Width::Two => {
                let (high, rest) = cut(x, STEP);
                self.join(self.reduce(high), rest)
            }
            Width::Three => {
                let (high, rest) = cut(x, STEP * STEP);
                let (middle, rest) = cut(rest, STEP);
                self.join(self.join(self.reduce(high), middle as f64), rest)
            }
        }
    }

    /// high · 2^40 + the integer nearest to `low`.
    #[inline(always)]
    fn join(self, high: u64, low: f64) -> u64 {
        self.modulus.add(self.modulus.mul(high, self.step), self.reduce(nearest(low)))
    }

    /// The residue of a number of at most 2^51 in absolute value.
    #[inline(always)]
    fn reduce(self, x: i64) -> u64 {
        let shifted = (x + OFFSET as i64) as u64;
        let residue = if self.modulus.bits() >= 26 {
            self.modulus.reduce_product(shifted.into())
        } else {
            shifted % self.modulus.value()
        };
        self.modulus.sub(residue, self.offset)
    }
}

/// The number of `unit`s nearest to `x`, and the rest, exactly: it has no bits that x does not have.
#[inline(always)]
fn cut(x: f64, unit: f64) -> (i64, f64) {
    let high = nearest(x * unit.recip());
    (high, x - high as f64 * unit)
}

/// The integer nearest to `x`, of at most 2^51 in absolute value; the even one of two.
#[inline(always)]
fn nearest(x: f64) -> i64 {
    (x + MAGIC).to_bits().wrapping_sub(MAGIC.to_bits()) as i64
}

/// The coefficients of `poly` over `ring`, each from −Q/2..Q/2, as the nearest doubles (within 2^-51
/// of themselves): by digits in balanced mixed radix, of which small numbers have few. Time depends on
/// the ring alone.
pub(super) fn centred(ring: &Ring, poly: &Poly<Coefficients>) -> Vec<f64> {
    let moduli: Vec<Modulus> = ring.moduli().collect();
    let limbs: Vec<Limb> = (0..moduli.len()).map(|limb| Limb::new(&moduli, limb)).collect();
    let mut digits = vec![0i64; moduli.len()];
    let mut out = vec![0.0; ring.degree()];
    for (index, out) in out.iter_mut().enumerate() {
        for (number, limb) in limbs.iter().enumerate() {
            digits[number] = limb.digit(poly.limb(number)[index], &digits[..number]);
        }
        // From the highest digit down: a product of all primes may be more than a double holds, though the
        // number is not.
        let steps = digits.iter().zip(&limbs).rev();
        *out = steps.fold(0.0, |high, (&digit, limb)| high * limb.modulus + digit as f64);
    }
    out
}

/// One digit of a number in balanced mixed radix: v_0 + q_0 · (v_1 + q_1 · (v_2 + ...)), each v_i
/// from −q_i/2..q_i/2.
struct Limb {
    rounding: Rounding,
    /// The weights of the digits before, modulo this prime, and one over this digit's.
    weights: Vec<u64>,
    weight_inverse: u64,
    /// q_i.
    modulus: f64,
}

impl Limb {
    fn new(moduli: &[Modulus], limb: usize) -> Self {
        let modulus = moduli[limb];
        let mut weights = vec![1 % modulus.value()];
        for before in &moduli[..limb] {
            let last = weights[weights.len() - 1];
            weights.push(modulus.mul(last, before.value() % modulus.value()));
        }
        let own = weights.pop().expect("one more than digits before");
        Self {
            rounding: Rounding::new(modulus, Width::One),
            weights,
            weight_inverse: modulus.inv(own),
            modulus: modulus.value() as f64,
        }
    }

    fn digit(&self, residue: u64, before: &[i64]) -> i64 {
        let modulus = self.rounding.modulus;
        let rest = before.iter().zip(&self.weights).fold(residue, |rest, (&digit, &weight)| {
            modulus.sub(rest, modulus.mul(self.rounding.reduce(digit), weight))
        });
        modulus.to_signed(modulus.mul(rest, self.weight_inverse))
    }
}

/// A double at which steps are of 1, between numbers of as many bits.
const MAGIC: f64 = 1.5 * (1u64 << 52) as f64;

const OFFSET: u64 = 1 << 51;

/// Bits of each part but the highest.
const STEP_BITS: u32 = 40;
const STEP: f64 = (1u64 << STEP_BITS) as f64;

#[cfg(test)]
mod tests {
    use super::*;
    use hushtable_ring::{Platform, ntt_primes};

    #[test]
    fn residues_are_those_of_the_nearest_integer() {
        let numbers = (0..2000).map(|index| {
            let bits = f64::from(index) * 0.065;
            let sign = if index % 2 == 0 { 1.0 } else { -1.0 };
            sign * bits.exp2() * (1.0 + f64::from(index * 7919 % 2000) / 2000.0) / 2.0
        });
        let ends = [0.0, -0.0, 0.5, 1.5, -0.5, -2.5, 2f64.powi(90), -2f64.powi(130)];
        let numbers = numbers.chain(ends);
        for bits in [17, 26, 40, 51] {
            let modulus = Modulus::new(ntt_primes(bits, 8, 1)[0]).unwrap();
            let prime = i128::from(modulus.value());
            for x in numbers.clone() {
                // A double of more than 53 bits is a smaller integer times a power of two.
                let shift = (x.abs().log2() - 60.0).max(0.0) as i32;
                let integer = (x / 2f64.powi(shift)).round_ties_even() as i128;
                let power = (0..shift).fold(1, |power, _| power * 2 % prime);
                let expected = (integer.rem_euclid(prime) * power % prime) as u64;
                let enough = Width::of(x.abs());
                for width in [Width::One, Width::Two, Width::Three] {
                    if width as u8 >= enough as u8 {
                        let found = Rounding::new(modulus, width).residue(x);
                        assert_eq!(found, expected, "{bits} {x} {width:?}");
                    }
                }
            }
        }
    }

    #[test]
    fn centred_numbers_come_back() {
        // The last modulus is more than a double holds.
        for (bits, count) in [(17, 5), (40, 1), (45, 4), (51, 12), (51, 24)] {
            let ring = Ring::new(16, &ntt_primes(bits, 16, count), Platform::detect()).unwrap();
            let limit = (ring.modulus_log2() - 1.01).min(COEFFICIENT_LOG2_MAX);
            let numbers: Vec<f64> = (0..16)
                .map(|index| {
                    let size = (limit * f64::from(index) / 15.0).exp2();
                    if index % 3 == 0 { -size } else { size }.round_ties_even()
                })
                .collect();
            let mut poly = ring.zero();
            for (limb, modulus) in ring.moduli().enumerate() {
                let rounding = Rounding::new(modulus, Width::Three);
                for (out, &x) in poly.limb_mut(limb).iter_mut().zip(&numbers) {
                    *out = rounding.residue(x);
                }
            }
            for (found, expected) in centred(&ring, &poly).into_iter().zip(numbers) {
                assert!(
                    (found - expected).abs() <= expected.abs() * 2f64.powi(-51),
                    "{bits} {count}"
                );
            }
        }
    }
}
