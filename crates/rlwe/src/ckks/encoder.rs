//! Vectors to polynomials and back.

use std::sync::{Arc, OnceLock};

use hushtable_ring::{Evaluations, Modulus, NttTable, Poly, Ring, declassify};
use num_complex::Complex64;

use super::fft::Roots;
use super::residues::{COEFFICIENT_LOG2_MAX, Rounding, Width, centred};
use super::{Error, Parameters, Plaintext, rules};

/// Encodes vectors as polynomials; cheap to clone.
///
/// Vectors of n values, a power of two, are repeated over all N/2 slots: the polynomial is then one in
/// X^(N / 2n), and costs n's arithmetic instead of N's. Numbers are doubles: what they hold beyond 53
/// bits is lost.
///
/// Time does not depend on the values that are encoded, but for three things: whether the largest of
/// them times the scale is above 2^50 or 2^90 (then coefficients are cut in parts), whether one is refused, and
/// what a processor itself makes of numbers below 2^-1022.
#[derive(Clone, Debug)]
pub struct Encoder {
    parameters: Parameters,
    roots: Arc<Roots>,
    /// By log2 of their degree: roots modulo each prime of Q and P, made at first use.
    tables: Arc<[OnceLock<Vec<NttTable>>]>,
}

impl Encoder {
    /// For `parameters`.
    pub fn new(parameters: &Parameters) -> Self {
        let degrees = parameters.degree().trailing_zeros() as usize;
        Self {
            parameters: parameters.clone(),
            roots: Arc::new(Roots::new(parameters.slots())),
            tables: (0..degrees).map(|_| OnceLock::new()).collect(),
        }
    }

    /// The parameters.
    pub fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    /// Encodes complex `values`, a power of two of them.
    ///
    /// # Errors
    /// [`Error::Slots`] for another count or more than there are slots; [`Error::Value`] for one that
    /// is not finite, or too large for the level and the scale; [`Error::Scale`] for a scale that the
    /// level's modulus does not hold; [`Error::Level`] for a level that there is not.
    pub fn encode(
        &self,
        values: &[Complex64],
        level: usize,
        scale: f64,
    ) -> Result<Plaintext, Error> {
        let poly = self.encode_slots(self.ring_at(level)?, values.to_vec(), scale)?;
        Ok(Plaintext { poly, level, scale })
    }

    /// Encodes real `values`, a power of two of them.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    pub fn encode_real(
        &self,
        values: &[f64],
        level: usize,
        scale: f64,
    ) -> Result<Plaintext, Error> {
        let poly = self.encode_over(self.ring_at(level)?, values, scale)?;
        Ok(Plaintext { poly, level, scale })
    }

    /// Encodes real `values`, a power of two of them, over `ring`: one whose primes are among those of
    /// Q and P, in any order.
    ///
    /// # Errors
    /// As [`encode`](Self::encode).
    ///
    /// # Panics
    /// For a ring of other primes.
    pub fn encode_over(
        &self,
        ring: &Ring,
        values: &[f64],
        scale: f64,
    ) -> Result<Poly<Evaluations>, Error> {
        let values = values.iter().map(|&value| Complex64::new(value, 0.0)).collect();
        self.encode_slots(ring, values, scale)
    }

    /// The residues over `ring` of `value` · `scale`, rounded: what a constant in every slot is.
    ///
    /// # Errors
    /// [`Error::Value`].
    pub fn constant(&self, ring: &Ring, value: f64, scale: f64) -> Result<Vec<u64>, Error> {
        check_constant(ring, value, scale)?;
        let rounded = |modulus| Rounding::new(modulus, Width::Three).residue(value * scale);
        Ok(ring.moduli().map(rounded).collect())
    }

    /// The vector in all slots.
    pub fn decode(&self, plaintext: &Plaintext) -> Vec<Complex64> {
        let ring = self.parameters.ring(plaintext.level);
        let coefficients = centred(ring, &ring.inverse(plaintext.poly.clone()));
        let (low, high) = coefficients.split_at(self.parameters.slots());
        let share = plaintext.scale.recip();
        let mut slots: Vec<Complex64> =
            low.iter().zip(high).map(|(&re, &im)| Complex64::new(re * share, im * share)).collect();
        self.roots.forward(&mut slots);
        slots
    }

    /// The real parts of the vector in all slots.
    pub fn decode_real(&self, plaintext: &Plaintext) -> Vec<f64> {
        self.decode(plaintext).into_iter().map(|slot| slot.re).collect()
    }

    fn ring_at(&self, level: usize) -> Result<&Ring, Error> {
        let expected = self.parameters.levels();
        if level > expected {
            return Err(Error::Level { operation: "encode", found: level, expected });
        }
        Ok(self.parameters.ring(level))
    }

    fn encode_slots(
        &self,
        ring: &Ring,
        mut values: Vec<Complex64>,
        scale: f64,
    ) -> Result<Poly<Evaluations>, Error> {
        let slots = self.parameters.slots();
        let found = values.len();
        if !found.is_power_of_two() || found > slots {
            return Err(Error::Slots { found, slots });
        }
        let largest = largest(ring, &values, scale)?;
        // The smallest degree that has a transform is 8.
        while values.len() < 4 {
            values.extend_from_within(..);
        }
        self.roots.inverse(&mut values);
        for value in &mut values {
            *value *= scale;
        }
        let width = Width::of(1.001 * largest * scale);
        Ok(self.expand(ring, &values, width))
    }

    /// The polynomial of X^(N / 2n) whose coefficients are the real parts of the n `coefficients` and
    /// then their imaginary parts: a transform of degree 2n, of which each evaluation is one of N / 2n
    /// neighbours of the whole one.
    fn expand(&self, ring: &Ring, coefficients: &[Complex64], width: Width) -> Poly<Evaluations> {
        let small_degree = 2 * coefficients.len();
        let repeat = ring.degree() / small_degree;
        let mut out: Poly<Evaluations> = ring.zero();
        let mut small = vec![0; small_degree];
        for (limb, modulus) in ring.moduli().enumerate() {
            let rounding = Rounding::new(modulus, width);
            let to = if repeat == 1 { out.limb_mut(limb) } else { small.as_mut_slice() };
            let (low, high) = to.split_at_mut(coefficients.len());
            for ((low, high), coefficient) in low.iter_mut().zip(high).zip(coefficients) {
                *low = rounding.residue(coefficient.re);
                *high = rounding.residue(coefficient.im);
            }
            if repeat == 1 {
                ring.kernel().forward(ring.table(limb), to);
                continue;
            }
            ring.kernel().forward(self.table(small_degree, modulus), to);
            for (out, &value) in out.limb_mut(limb).chunks_exact_mut(repeat).zip(&small) {
                out.fill(value);
            }
        }
        out
    }

    /// Roots of `degree` modulo `modulus`. They are powers of the whole ring's: both start from the
    /// first number that is no square.
    fn table(&self, degree: usize, modulus: Modulus) -> &NttTable {
        let tables = self.tables[degree.trailing_zeros() as usize].get_or_init(|| {
            let moduli = self.parameters.lattice().key_ring().moduli();
            let table = |modulus| NttTable::new(modulus, degree);
            moduli.map(|modulus| table(modulus).expect("a power of two below the ring's")).collect()
        });
        let table = tables.iter().find(|table| table.modulus() == modulus);
        table.expect("a ring of other primes than the parameters'")
    }
}

/// log2 of the first absolute value that `ring` does not hold at `scale`.
fn value_limit_log2(ring: &Ring, scale: f64) -> f64 {
    (ring.modulus_log2() - 1.0).min(COEFFICIENT_LOG2_MAX) - scale.log2()
}

/// The largest absolute value; every one of them must be finite and below what `ring` holds at `scale`.
fn largest(ring: &Ring, values: &[Complex64], scale: f64) -> Result<f64, Error> {
    rules::scale_fits("encode", ring, scale)?;
    let limit_log2 = value_limit_log2(ring, scale);
    let size = |value: &Complex64| value.re.abs() + value.im.abs();
    // The sum is not finite where a value is not.
    let (largest, sum) = values.iter().fold((0.0f64, 0.0f64), |(largest, sum), value| {
        (largest.max(size(value)), sum + size(value))
    });
    let limit = limit_log2.exp2();
    let mut is_refused = u8::from(largest >= limit) | u8::from(!sum.is_finite());
    // Whether a vector is refused is what the caller is told, and nobody else.
    declassify(&mut is_refused);
    let is_outside = |size: f64| !(size.is_finite() && size < limit);
    if is_refused != 0
        && let Some(index) = values.iter().position(|value| is_outside(size(value)))
    {
        let Complex64 { re, im } = values[index];
        let value = if re.abs() >= im.abs() || re.is_nan() { re } else { im };
        return Err(Error::Value { index, value, limit_log2 });
    }
    Ok(largest)
}

/// What encoding real `values` at `level` would refuse.
pub(super) fn check(
    parameters: &Parameters,
    values: &[f64],
    level: usize,
    scale: f64,
) -> Result<(), Error> {
    let (found, slots, expected) = (values.len(), parameters.slots(), parameters.levels());
    if level > expected {
        return Err(Error::Level { operation: "encode", found: level, expected });
    }
    if !found.is_power_of_two() || found > slots {
        return Err(Error::Slots { found, slots });
    }
    let values: Vec<_> = values.iter().map(|&value| Complex64::new(value, 0.0)).collect();
    largest(parameters.ring(level), &values, scale).map(|_| ())
}

/// What a constant in every slot is refused for.
pub(super) fn check_constant(ring: &Ring, value: f64, scale: f64) -> Result<(), Error> {
    let limit_log2 = value_limit_log2(ring, scale);
    // Written so that what is no number is refused.
    if !(value.is_finite() && value.abs().log2() < limit_log2) {
        return Err(Error::Value { index: 0, value, limit_log2 });
    }
    Ok(())
}
