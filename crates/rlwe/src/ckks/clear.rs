//! Arithmetic in the clear, with the levels and scales that ciphertexts would have.

use std::sync::{Arc, OnceLock};

use num_complex::Complex64;

use super::fft::Roots;
use super::{Diagonals, Error, Evaluate, KeySpec, Parameters, Split, rules};

/// Computes on doubles: circuits are tested on it without cryptography's cost or noise. It hides
/// nothing.
///
/// It refuses what ciphertexts would be refused for, and reads a summand's numbers at the scale of what
/// it is added to, as ciphertexts do.
#[derive(Clone, Debug)]
pub struct Clear {
    parameters: Parameters,
    /// The keys that there would be; every one where this is not said.
    keys: Option<KeySpec>,
    /// Made at first use.
    roots: Arc<OnceLock<Roots>>,
}

/// A vector of all slots, at a level and a scale.
#[derive(Clone, Debug, PartialEq)]
pub struct ClearVector {
    pub(super) values: Vec<f64>,
    /// The imaginary parts; none where all are zero.
    pub(super) imaginary: Vec<f64>,
    pub(super) level: usize,
    pub(super) scale: f64,
}

impl ClearVector {
    /// The numbers' real parts, one a slot.
    pub fn values(&self) -> &[f64] {
        &self.values
    }

    /// The numbers, one a slot.
    pub fn complex(&self) -> Vec<Complex64> {
        let imaginary = self.imaginary.iter().copied().chain(std::iter::repeat(0.0));
        self.values.iter().zip(imaginary).map(|(&re, im)| Complex64::new(re, im)).collect()
    }

    /// The vector with other numbers.
    pub(super) fn with(&self, values: &[Complex64]) -> Self {
        let mut out = Self {
            values: values.iter().map(|value| value.re).collect(),
            imaginary: values.iter().map(|value| value.im).collect(),
            ..*self
        };
        out.settle();
        out
    }

    /// Leaves imaginary parts out that are all zero.
    fn settle(&mut self) {
        if self.imaginary.iter().all(|&value| value == 0.0) {
            self.imaginary = Vec::new();
        }
    }

    /// The real parts, and the imaginary ones where there are any.
    pub(super) fn parts_mut(&mut self) -> impl Iterator<Item = &mut Vec<f64>> {
        let has_two = !self.imaginary.is_empty();
        [&mut self.values, &mut self.imaginary].into_iter().take(1 + usize::from(has_two))
    }
}

/// What an encoded vector would hold.
#[derive(Clone, Debug, PartialEq)]
pub struct ClearPlaintext {
    /// A power of two of numbers, repeated over the slots.
    pub(super) values: Vec<f64>,
    pub(super) level: usize,
    pub(super) scale: f64,
}

/// A linear map with the level and scale it would be prepared for.
#[derive(Clone, Debug, PartialEq)]
pub struct ClearTransform {
    pub(super) map: Diagonals,
    pub(super) split: Split,
    pub(super) level: usize,
    pub(super) scale: f64,
}

impl Clear {
    /// With every key.
    pub fn new(parameters: &Parameters) -> Self {
        Self { parameters: parameters.clone(), keys: None, roots: Arc::default() }
    }

    /// With the keys of `spec` alone.
    pub fn with_keys(parameters: &Parameters, spec: &KeySpec) -> Self {
        Self { keys: Some(spec.clone()), ..Self::new(parameters) }
    }

    /// With keys for products and for the rotations by `steps`, at every level.
    pub fn with_rotations(parameters: &Parameters, steps: impl IntoIterator<Item = usize>) -> Self {
        let slots = parameters.slots();
        let steps = steps.into_iter().map(|steps| steps % slots);
        Self::with_keys(parameters, &KeySpec::at_every_level(parameters, steps))
    }

    /// What a fresh encryption of `values`, repeated over the slots, would hold.
    ///
    /// # Errors
    /// As [`encode`](Evaluate::encode).
    pub fn vector(&self, values: &[f64], level: usize, scale: f64) -> Result<ClearVector, Error> {
        rules::vector(&self.parameters, values, level, scale)?;
        let values = values.iter().copied().cycle().take(self.parameters.slots()).collect();
        Ok(ClearVector { values, imaginary: Vec::new(), level, scale })
    }

    /// The coefficients of the polynomial that x's slots are the values of: those of X^j and, as imaginary
    /// parts, of X^(N/2 + j).
    pub(super) fn coefficients(&self, x: &ClearVector) -> Vec<Complex64> {
        let mut values = x.complex();
        self.roots().inverse(&mut values);
        values
    }

    pub(super) fn roots(&self) -> &Roots {
        self.roots.get_or_init(|| Roots::new(self.parameters.slots()))
    }

    /// Refuses a rotation at `level` that there is no key for.
    fn has_rotation(&self, steps: usize, level: usize) -> Result<(), Error> {
        let steps = steps % self.parameters.slots();
        let found = |keys: &KeySpec| keys.rotations.level(steps) >= Some(level);
        if steps == 0 || self.keys.as_ref().is_none_or(found) {
            return Ok(());
        }
        Err(Error::MissingRotation { steps })
    }

    /// Refuses a product at `level` that there is no key for.
    fn has_products(&self, level: usize) -> Result<(), Error> {
        if self.keys.as_ref().is_none_or(|keys| keys.products >= Some(level)) {
            return Ok(());
        }
        Err(Error::MissingKey { operation: rules::MULTIPLY, level })
    }

    fn combine(
        operation: &'static str,
        x: &mut ClearVector,
        y: &ClearVector,
        sign: f64,
    ) -> Result<(), Error> {
        rules::same(operation, (y.level, y.scale), (x.level, x.scale))?;
        let factor = sign * y.scale / x.scale;
        x.values.iter_mut().zip(&y.values).for_each(|(x, y)| *x += factor * y);
        if !y.imaginary.is_empty() {
            x.imaginary.resize(x.values.len(), 0.0);
            x.imaginary.iter_mut().zip(&y.imaginary).for_each(|(x, y)| *x += factor * y);
            x.settle();
        }
        Ok(())
    }
}

impl Evaluate for Clear {
    type Ciphertext = ClearVector;
    type Plaintext = ClearPlaintext;
    type Transform = ClearTransform;

    fn parameters(&self) -> &Parameters {
        &self.parameters
    }

    fn level(&self, x: &ClearVector) -> usize {
        x.level
    }

    fn scale(&self, x: &ClearVector) -> f64 {
        x.scale
    }

    fn encode(&self, values: &[f64], level: usize, scale: f64) -> Result<ClearPlaintext, Error> {
        rules::vector(&self.parameters, values, level, scale)?;
        Ok(ClearPlaintext { values: values.to_vec(), level, scale })
    }

    fn prepare(
        &self,
        map: &Diagonals,
        split: Split,
        level: usize,
        scale: f64,
    ) -> Result<ClearTransform, Error> {
        rules::preparable(&self.parameters, map, split, level, scale)?;
        Ok(ClearTransform { map: map.clone(), split, level, scale })
    }

    fn add_assign(&mut self, x: &mut ClearVector, y: &ClearVector) -> Result<(), Error> {
        Self::combine(rules::ADD, x, y, 1.0)
    }

    fn sub_assign(&mut self, x: &mut ClearVector, y: &ClearVector) -> Result<(), Error> {
        Self::combine(rules::SUBTRACT, x, y, -1.0)
    }

    fn add_plain(&mut self, x: &mut ClearVector, y: &ClearPlaintext) -> Result<(), Error> {
        rules::same(rules::ADD_PLAIN, (y.level, y.scale), (x.level, x.scale))?;
        let factor = y.scale / x.scale;
        x.values.iter_mut().zip(y.values.iter().cycle()).for_each(|(x, y)| *x += factor * y);
        Ok(())
    }

    fn add_constant(&mut self, x: &mut ClearVector, y: f64) -> Result<(), Error> {
        rules::constant(self.parameters.ring(x.level), y, x.scale)?;
        x.values.iter_mut().for_each(|x| *x += y);
        Ok(())
    }

    fn multiply_plain(&mut self, x: &mut ClearVector, y: &ClearPlaintext) -> Result<(), Error> {
        rules::same_level(rules::MULTIPLY_PLAIN, y.level, x.level)?;
        let ring = self.parameters.ring(x.level);
        x.scale = rules::product_scale(rules::MULTIPLY_PLAIN, ring, x.scale, y.scale)?;
        for part in x.parts_mut() {
            part.iter_mut().zip(y.values.iter().cycle()).for_each(|(x, y)| *x *= y);
        }
        Ok(())
    }

    fn multiply_constant(&mut self, x: &mut ClearVector, y: f64, scale: f64) -> Result<(), Error> {
        let ring = self.parameters.ring(x.level);
        rules::constant(ring, y, scale)?;
        x.scale = rules::product_scale(rules::MULTIPLY_CONSTANT, ring, x.scale, scale)?;
        x.parts_mut().flatten().for_each(|x| *x *= y);
        Ok(())
    }

    fn multiply(&mut self, x: &ClearVector, y: &ClearVector) -> Result<ClearVector, Error> {
        rules::same_level(rules::MULTIPLY, y.level, x.level)?;
        let ring = self.parameters.ring(x.level);
        let scale = rules::product_scale(rules::MULTIPLY, ring, x.scale, y.scale)?;
        self.has_products(x.level)?;
        let shape =
            ClearVector { values: Vec::new(), imaginary: Vec::new(), level: x.level, scale };
        if x.imaginary.is_empty() && y.imaginary.is_empty() {
            let values = x.values.iter().zip(&y.values).map(|(x, y)| x * y).collect();
            return Ok(ClearVector { values, ..shape });
        }
        let values: Vec<_> = x.complex().iter().zip(y.complex()).map(|(x, y)| x * y).collect();
        Ok(shape.with(&values))
    }

    fn square(&mut self, x: &ClearVector) -> Result<ClearVector, Error> {
        self.multiply(x, x)
    }

    fn rescale(&mut self, x: &mut ClearVector) -> Result<(), Error> {
        rules::rescalable(&self.parameters, x.level)?;
        x.scale /= self.parameters.modulus(x.level).value() as f64;
        x.level -= 1;
        Ok(())
    }

    fn drop_to(&mut self, x: &mut ClearVector, level: usize) -> Result<(), Error> {
        rules::droppable(&self.parameters, (x.level, x.scale), level)?;
        x.level = level;
        Ok(())
    }

    fn rotate(&mut self, x: &ClearVector, steps: usize) -> Result<ClearVector, Error> {
        self.has_rotation(steps, x.level)?;
        let mut out = x.clone();
        let steps = steps % self.parameters.slots();
        out.parts_mut().for_each(|part| part.rotate_left(steps));
        Ok(out)
    }

    fn rotate_many(&mut self, x: &ClearVector, steps: &[usize]) -> Result<Vec<ClearVector>, Error> {
        steps.iter().map(|&steps| self.rotate(x, steps)).collect()
    }

    fn transform(
        &mut self,
        maps: &[&ClearTransform],
        xs: &[&ClearVector],
    ) -> Result<ClearVector, Error> {
        let of_maps: Vec<_> = maps.iter().map(|map| (map.level, map.scale)).collect();
        let of_xs: Vec<_> = xs.iter().map(|x| (x.level, x.scale)).collect();
        let (level, scale) = rules::transform(&self.parameters, &of_maps, &of_xs)?;
        rules::one_split(maps.iter().map(|map| map.split));
        let is_real =
            |map: &ClearTransform| map.map.steps().all(|d| map.map.imaginary(d).is_none());
        let is_real = maps.iter().all(|map| is_real(map));
        let is_real = is_real && xs.iter().all(|x| x.imaginary.is_empty());
        let slots = self.parameters.slots();
        let (mut values, mut imaginary) = (vec![0.0; slots], Vec::new());
        imaginary.resize(if is_real { 0 } else { slots }, 0.0);
        for (map, x) in maps.iter().zip(xs) {
            let (babies, giants) = map.split.rotations(map.map.steps());
            let mut rotations = babies.into_iter().chain(giants);
            rotations.try_for_each(|steps| self.has_rotation(steps, level))?;
            for steps in map.map.steps() {
                let real = map.map.diagonal(steps).expect("of steps that it has");
                let other = map.map.imaginary(steps).unwrap_or_default();
                let (re, im) = (&x.values, &x.imaginary);
                add_products(&mut values, 1.0, real, re, steps);
                add_products(&mut values, -1.0, other, im, steps);
                add_products(&mut imaginary, 1.0, real, im, steps);
                add_products(&mut imaginary, 1.0, other, re, steps);
            }
        }
        let mut out = ClearVector { values, imaginary, level, scale };
        out.settle();
        Ok(out)
    }

    fn conjugate(&mut self, x: &ClearVector) -> Result<ClearVector, Error> {
        let found = |keys: &KeySpec| keys.conjugation >= Some(x.level);
        if !self.keys.as_ref().is_none_or(found) {
            return Err(Error::MissingKey { operation: rules::CONJUGATE, level: x.level });
        }
        let mut out = x.clone();
        out.imaginary.iter_mut().for_each(|part| *part = -*part);
        Ok(out)
    }

    fn raise(&mut self, x: &ClearVector, level: usize, range: f64) -> Result<ClearVector, Error> {
        rules::raisable(&self.parameters, x.level, level)?;
        if self.keys.as_ref().is_some_and(|keys| keys.raise < Some(level)) {
            return Err(Error::MissingKey { operation: rules::RAISE, level });
        }
        let coefficients = self.coefficients(x);
        let parts = coefficients.iter().flat_map(|value| [value.re, value.im]);
        // By what doubles are off in the maps, numbers at the range's end may be beyond it.
        let most = range * (1.0 + 2f64.powi(-30));
        let is_outside = |part: f64| part.is_nan() || part.abs() > most;
        if let Some((index, value)) = parts.enumerate().find(|&(_, part)| is_outside(part)) {
            return Err(Error::Value { index, value, limit_log2: range.log2() });
        }
        Ok(ClearVector { level, ..x.clone() })
    }

    fn weigh(&mut self, x: &mut ClearVector, factor: f64) -> Result<(), Error> {
        x.scale = rules::weighed(self.parameters.ring(x.level), x.scale, factor)?;
        x.parts_mut().flatten().for_each(|x| *x *= factor);
        Ok(())
    }
}

/// out[i] += sign · diagonal[i] · x[i + steps], where neither part is all zero and left out.
fn add_products(out: &mut [f64], sign: f64, diagonal: &[f64], x: &[f64], steps: usize) {
    if diagonal.is_empty() || x.is_empty() {
        return;
    }
    let (head, tail) = x.split_at(steps);
    let turned = tail.iter().chain(head);
    for ((out, x), d) in out.iter_mut().zip(turned).zip(diagonal.iter().cycle()) {
        *out += sign * d * x;
    }
}
