//! Vectors to polynomials and back.

use std::sync::{Arc, OnceLock};

use hushtable_ring::{Evaluations, Modulus, NttTable, Poly, Ring};
use num_complex::Complex64;

use super::fft::Roots;
use super::residues::{Rounding, Width, centred};
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
        rules::constant(ring, value, scale)?;
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

    /// As [`encode`](Self::encode) over `ring`, of each run of equal evaluations one, limb by limb: 2n of
    /// `values`, or as many as the smallest transform has.
    pub(super) fn encode_runs(
        &self,
        ring: &Ring,
        values: Vec<Complex64>,
        scale: f64,
    ) -> Result<Vec<u64>, Error> {
        let (coefficients, width) = self.coefficients(ring, values, scale)?;
        let mut out = vec![0; 2 * coefficients.len() * ring.limbs()];
        self.evaluate(ring, &coefficients, width, &mut out);
        Ok(out)
    }

    /// How many equal evaluations a vector of `values` numbers has side by side.
    pub fn run(degree: usize, values: usize) -> usize {
        degree / (2 * values.max(VALUES_MIN))
    }

    fn encode_slots(
        &self,
        ring: &Ring,
        values: Vec<Complex64>,
        scale: f64,
    ) -> Result<Poly<Evaluations>, Error> {
        let (coefficients, width) = self.coefficients(ring, values, scale)?;
        let mut out: Poly<Evaluations> = ring.zero();
        let run = Self::run(ring.degree(), coefficients.len());
        if run == 1 {
            self.evaluate(ring, &coefficients, width, out.values_mut());
            return Ok(out);
        }
        let mut words = vec![0; ring.limbs() * ring.degree() / run];
        self.evaluate(ring, &coefficients, width, &mut words);
        for (out, &word) in out.values_mut().chunks_exact_mut(run).zip(&words) {
            out.fill(word);
        }
        Ok(out)
    }

    /// The polynomial of `values`: its coefficients are n real parts, then n imaginary parts, of powers of
    /// X^(N / 2n).
    fn coefficients(
        &self,
        ring: &Ring,
        mut values: Vec<Complex64>,
        scale: f64,
    ) -> Result<(Vec<Complex64>, Width), Error> {
        let slots = self.parameters.slots();
        let found = values.len();
        if !found.is_power_of_two() || found > slots {
            return Err(Error::Slots { found, slots });
        }
        let largest = rules::largest(ring, &values, scale)?;
        while values.len() < VALUES_MIN {
            values.extend_from_within(..);
        }
        self.roots.inverse(&mut values);
        for value in &mut values {
            *value *= scale;
        }
        Ok((values, Width::of(1.001 * largest * scale)))
    }

    /// Evaluations over `ring` of the n `coefficients`: those of a transform of degree 2n, of which each is
    /// one of N / 2n neighbours of the whole one.
    fn evaluate(&self, ring: &Ring, coefficients: &[Complex64], width: Width, out: &mut [u64]) {
        let degree = 2 * coefficients.len();
        for ((limb, modulus), out) in ring.moduli().enumerate().zip(out.chunks_exact_mut(degree)) {
            let rounding = Rounding::new(modulus, width);
            let (low, high) = out.split_at_mut(coefficients.len());
            for ((low, high), coefficient) in low.iter_mut().zip(high).zip(coefficients) {
                *low = rounding.residue(coefficient.re);
                *high = rounding.residue(coefficient.im);
            }
            let is_whole = degree == ring.degree();
            let table = if is_whole { ring.table(limb) } else { self.table(degree, modulus) };
            ring.kernel().forward(table, out);
        }
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

/// Least values that are encoded, repeated where there are fewer: the smallest degree that has a transform
/// is 8.
const VALUES_MIN: usize = 4;
