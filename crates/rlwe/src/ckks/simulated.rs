//! Arithmetic in the clear, with the noise that ciphertexts would have.

use std::f64::consts::TAU;

use hushtable_ring::{NoiseSource, Seed};
use num_complex::Complex64;

use super::keys::SPARSE_WEIGHT;
use super::{
    Clear, ClearPlaintext, ClearTransform, ClearVector, Diagonals, Error, Evaluate, Noise,
    Parameters, Split, rules,
};
use crate::largest;

/// Computes on doubles and adds, at every operation, Gaussian noise of the variance that [`Noise`] gives:
/// what precision a circuit will have is seen without encrypting. It hides nothing.
pub struct Simulated {
    clear: Clear,
    noise: Noise,
    source: NoiseSource,
    /// Numbers drawn and not yet used.
    spare: Vec<f64>,
}

/// A vector of all slots, with and without noise.
#[derive(Clone, Debug, PartialEq)]
pub struct SimulatedVector {
    exact: ClearVector,
    noisy: ClearVector,
}

impl SimulatedVector {
    /// The numbers that a ciphertext would hold.
    pub fn values(&self) -> &[f64] {
        self.noisy.values()
    }

    /// The numbers without noise.
    pub fn exact(&self) -> &[f64] {
        self.exact.values()
    }

    /// The numbers that a ciphertext would hold, with their imaginary parts.
    pub fn complex(&self) -> Vec<Complex64> {
        self.noisy.complex()
    }

    /// The largest error of a slot.
    pub fn largest_error(&self) -> f64 {
        largest(self.values().iter().zip(self.exact()).map(|(noisy, exact)| noisy - exact))
    }

    /// Bits behind the binary point that are right in every slot: −log2 of the largest error.
    pub fn precision_bits(&self) -> f64 {
        -self.largest_error().log2()
    }
}

impl Simulated {
    /// Over `clear`'s parameters and rotations, with noise from `seed`.
    pub fn new(clear: Clear, seed: &Seed) -> Self {
        let noise = Noise::new(clear.parameters());
        Self { clear, noise, source: NoiseSource::from_seed(seed), spare: Vec::new() }
    }

    /// What a fresh encryption of `values`, repeated over the slots, would hold.
    ///
    /// # Errors
    /// As [`encode`](Evaluate::encode).
    pub fn vector(
        &mut self,
        values: &[f64],
        level: usize,
        scale: f64,
    ) -> Result<SimulatedVector, Error> {
        let exact = self.clear.vector(values, level, scale)?;
        let plain = self.clear.encode(values, level, scale)?;
        let rounded = self.rounded(&plain).values;
        let values = rounded.iter().copied().cycle().take(exact.values.len()).collect();
        let noisy = ClearVector { values, imaginary: Vec::new(), ..exact };
        let mut out = SimulatedVector { exact, noisy };
        self.disturb(&mut out, self.noise.fresh(scale));
        Ok(out)
    }

    /// A number of the standard normal distribution (Box and Muller, 1958).
    fn gaussian(&mut self) -> f64 {
        if self.spare.is_empty() {
            for words in self.source.seed().chunks_exact(16) {
                let uniform = |bytes: &[u8]| {
                    let word = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
                    ((word >> 11) as f64 + 0.5) * 2f64.powi(-53)
                };
                let radius = (-2.0 * uniform(&words[..8]).ln()).sqrt();
                let (sin, cos) = (TAU * uniform(&words[8..])).sin_cos();
                self.spare.extend([radius * sin, radius * cos]);
            }
        }
        self.spare.pop().expect("four were drawn")
    }

    /// How many times q_0 comes to a coefficient of `share` times q_0 when the modulus is raised: the
    /// nearest whole number to the sum of the secret's 32 products with uniform numbers, less it.
    fn wraps(&mut self, share: f64) -> f64 {
        let mut words = [0; SPARSE_WEIGHT];
        self.source.words(&mut words);
        let uniform = |&word: &u64| (word >> 11) as f64 * 2f64.powi(-53) - 0.5;
        let sum: f64 = words.iter().map(uniform).sum();
        (sum - share).round()
    }

    /// `count` errors of one variance.
    fn periodic(&mut self, count: usize, variance: f64) -> Vec<f64> {
        let deviation = variance.sqrt();
        (0..count).map(|_| deviation * self.gaussian()).collect()
    }

    /// Adds an error of `variance` to each slot.
    fn disturb(&mut self, x: &mut SimulatedVector, variance: f64) {
        let deviation = variance.sqrt();
        for part in x.noisy.parts_mut() {
            part.iter_mut().for_each(|value| *value += deviation * self.gaussian());
        }
    }

    /// Adds to each slot's parts an error of their own variance.
    fn disturb_each(&mut self, x: &mut SimulatedVector, variances: &[Vec<f64>; 2]) {
        for (part, variances) in x.noisy.parts_mut().zip(variances) {
            for (value, variance) in part.iter_mut().zip(variances) {
                *value += variance.sqrt() * self.gaussian();
            }
        }
    }

    /// Runs `operation` on both vectors.
    fn both<T>(
        &mut self,
        x: &mut SimulatedVector,
        operation: impl Fn(&mut Clear, &mut ClearVector) -> Result<T, Error>,
    ) -> Result<(), Error> {
        operation(&mut self.clear, &mut x.exact)?;
        operation(&mut self.clear, &mut x.noisy)?;
        Ok(())
    }

    /// `y` as it is after its coefficients were rounded: a single number's is the number.
    fn rounded(&mut self, y: &ClearPlaintext) -> ClearPlaintext {
        let count = y.values.len();
        if count == 1 {
            return ClearPlaintext { values: vec![nearest(y.values[0], y.scale)], ..*y };
        }
        let errors = self.periodic(count, self.noise.encoding(count, y.scale));
        let values = y.values.iter().zip(errors).map(|(value, error)| value + error).collect();
        ClearPlaintext { values, ..*y }
    }

    /// The variances that a transform adds to each slot's parts.
    fn transform_noise(
        &self,
        maps: &[&ClearTransform],
        xs: &[&SimulatedVector],
        out: &ClearVector,
    ) -> [Vec<f64>; 2] {
        let slots = out.values.len();
        let (level, noise) = (out.level, &self.noise);
        let parts = [slots, out.imaginary.len()];
        let mut variances = parts.map(|count| vec![noise.division(out.scale); count]);
        for (map, x) in maps.iter().zip(xs) {
            let switch = noise.switch_sum(level, x.noisy.scale);
            let again = noise.mask_division(x.noisy.scale);
            for steps in map.map.steps() {
                let real = map.map.diagonal(steps).expect("of steps that it has");
                let other = map.map.imaginary(steps).unwrap_or_default();
                let rounding = noise.encoding(real.len(), map.scale);
                // A mask is divided by P before it is switched again.
                let baby = match map.split.cut(steps).1 {
                    [0, 0] => 0.0,
                    [0, _] | [_, 0] => switch,
                    [_, _] => 2.0 * switch + again,
                };
                let (re, im) = (&x.noisy.values, &x.noisy.imaginary);
                // A real diagonal's rounding is real; of another one's, either part has half.
                let roundings = match other {
                    [] => [[rounding, 0.0], [0.0, rounding]],
                    _ => [[rounding / 2.0; 2]; 2],
                };
                for (variances, roundings) in variances.iter_mut().zip(roundings) {
                    add_squares(variances, baby, real, 0);
                    add_squares(variances, baby, other, 0);
                    add_squares(variances, roundings[0], re, steps);
                    add_squares(variances, roundings[1], im, steps);
                }
            }
        }
        // Giant steps are taken once for all maps. A chain's errors add up: each stays as large as it is
        // when it is rotated on.
        let split = rules::one_split(maps.iter().map(|map| map.split));
        let all = || maps.iter().flat_map(|map| map.map.steps().map(|steps| split.cut(steps)));
        let has_babies = all().any(|(_, baby)| baby != [0, 0]);
        let steps = split.giants(all().map(|(giant, _)| giant), has_babies);
        let giants = steps.giants as f64 * noise.switch_sum(level, out.scale)
            + steps.divisions as f64 * noise.mask_division(out.scale);
        variances.iter_mut().flatten().for_each(|variance| *variance += giants);
        variances
    }
}

/// variances[i] += weight · x[i + steps]², x repeated.
fn add_squares(variances: &mut [f64], weight: f64, x: &[f64], steps: usize) {
    let turned = x.iter().cycle().skip(steps);
    variances.iter_mut().zip(turned).for_each(|(variance, x)| *variance += weight * x * x);
}

/// `value` as it is once it was rounded at `scale`.
fn nearest(value: f64, scale: f64) -> f64 {
    (value * scale).round_ties_even() / scale
}

impl Evaluate for Simulated {
    type Ciphertext = SimulatedVector;
    type Plaintext = ClearPlaintext;
    type Transform = ClearTransform;

    fn parameters(&self) -> &Parameters {
        self.clear.parameters()
    }

    fn level(&self, x: &SimulatedVector) -> usize {
        x.exact.level
    }

    fn scale(&self, x: &SimulatedVector) -> f64 {
        x.exact.scale
    }

    fn encode(&self, values: &[f64], level: usize, scale: f64) -> Result<ClearPlaintext, Error> {
        self.clear.encode(values, level, scale)
    }

    fn prepare(
        &self,
        map: &Diagonals,
        split: Split,
        level: usize,
        scale: f64,
    ) -> Result<ClearTransform, Error> {
        self.clear.prepare(map, split, level, scale)
    }

    fn add_assign(&mut self, x: &mut SimulatedVector, y: &SimulatedVector) -> Result<(), Error> {
        self.clear.add_assign(&mut x.exact, &y.exact)?;
        self.clear.add_assign(&mut x.noisy, &y.noisy)
    }

    fn sub_assign(&mut self, x: &mut SimulatedVector, y: &SimulatedVector) -> Result<(), Error> {
        self.clear.sub_assign(&mut x.exact, &y.exact)?;
        self.clear.sub_assign(&mut x.noisy, &y.noisy)
    }

    fn add_plain(&mut self, x: &mut SimulatedVector, y: &ClearPlaintext) -> Result<(), Error> {
        self.clear.add_plain(&mut x.exact, y)?;
        let rounded = self.rounded(y);
        self.clear.add_plain(&mut x.noisy, &rounded)
    }

    fn add_constant(&mut self, x: &mut SimulatedVector, y: f64) -> Result<(), Error> {
        self.clear.add_constant(&mut x.exact, y)?;
        let rounded = nearest(y, x.noisy.scale);
        self.clear.add_constant(&mut x.noisy, rounded)
    }

    fn multiply_plain(&mut self, x: &mut SimulatedVector, y: &ClearPlaintext) -> Result<(), Error> {
        self.clear.multiply_plain(&mut x.exact, y)?;
        let rounded = self.rounded(y);
        self.clear.multiply_plain(&mut x.noisy, &rounded)
    }

    fn multiply_constant(
        &mut self,
        x: &mut SimulatedVector,
        y: f64,
        scale: f64,
    ) -> Result<(), Error> {
        self.clear.multiply_constant(&mut x.exact, y, scale)?;
        let rounded = nearest(y, scale);
        self.clear.multiply_constant(&mut x.noisy, rounded, scale)
    }

    fn multiply(
        &mut self,
        x: &SimulatedVector,
        y: &SimulatedVector,
    ) -> Result<SimulatedVector, Error> {
        let exact = self.clear.multiply(&x.exact, &y.exact)?;
        let noisy = self.clear.multiply(&x.noisy, &y.noisy)?;
        let variance = self.noise.switch(exact.level, exact.scale);
        let mut out = SimulatedVector { exact, noisy };
        self.disturb(&mut out, variance);
        Ok(out)
    }

    fn square(&mut self, x: &SimulatedVector) -> Result<SimulatedVector, Error> {
        self.multiply(x, x)
    }

    fn rescale(&mut self, x: &mut SimulatedVector) -> Result<(), Error> {
        self.both(x, Clear::rescale)?;
        self.disturb(x, self.noise.division(x.exact.scale));
        Ok(())
    }

    fn drop_to(&mut self, x: &mut SimulatedVector, level: usize) -> Result<(), Error> {
        self.both(x, |clear, x| clear.drop_to(x, level))
    }

    fn rotate(&mut self, x: &SimulatedVector, steps: usize) -> Result<SimulatedVector, Error> {
        let mut out = x.clone();
        self.both(&mut out, |clear, x| clear.rotate(x, steps).map(|turned| *x = turned))?;
        if !steps.is_multiple_of(self.parameters().slots()) {
            self.disturb(&mut out, self.noise.switch(x.exact.level, x.exact.scale));
        }
        Ok(out)
    }

    fn rotate_many(
        &mut self,
        x: &SimulatedVector,
        steps: &[usize],
    ) -> Result<Vec<SimulatedVector>, Error> {
        steps.iter().map(|&steps| self.rotate(x, steps)).collect()
    }

    fn transform(
        &mut self,
        maps: &[&ClearTransform],
        xs: &[&SimulatedVector],
    ) -> Result<SimulatedVector, Error> {
        let of = |pick: fn(&SimulatedVector) -> &ClearVector| -> Vec<&ClearVector> {
            xs.iter().map(|&x| pick(x)).collect()
        };
        let exact = self.clear.transform(maps, &of(|x| &x.exact))?;
        let noisy = self.clear.transform(maps, &of(|x| &x.noisy))?;
        let variances = self.transform_noise(maps, xs, &noisy);
        let mut out = SimulatedVector { exact, noisy };
        self.disturb_each(&mut out, &variances);
        Ok(out)
    }

    fn conjugate(&mut self, x: &SimulatedVector) -> Result<SimulatedVector, Error> {
        let mut out = x.clone();
        self.both(&mut out, |clear, x| clear.conjugate(x).map(|image| *x = image))?;
        self.disturb(&mut out, self.noise.switch(x.exact.level, x.exact.scale));
        Ok(out)
    }

    fn raise(
        &mut self,
        x: &SimulatedVector,
        level: usize,
        range: f64,
    ) -> Result<SimulatedVector, Error> {
        let exact = self.clear.raise(&x.exact, level, range)?;
        let modulus = self.parameters().modulus(0).value() as f64 / x.noisy.scale;
        let mut coefficients = self.clear.coefficients(&x.noisy);
        for value in &mut coefficients {
            value.re += modulus * self.wraps(value.re / modulus);
            value.im += modulus * self.wraps(value.im / modulus);
        }
        self.clear.roots().forward(&mut coefficients);
        let noisy = ClearVector { level, ..x.noisy.with(&coefficients) };
        let mut out = SimulatedVector { exact, noisy };
        let scale = out.exact.scale;
        let variance = self.noise.encapsulation(scale) + self.noise.switch(level, scale);
        self.disturb(&mut out, variance);
        Ok(out)
    }

    fn weigh(&mut self, x: &mut SimulatedVector, factor: f64) -> Result<(), Error> {
        self.both(x, |clear, x| clear.weigh(x, factor))
    }
}
