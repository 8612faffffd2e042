//! Functions that are no polynomials, by ones that come near.

use super::chebyshev::{Target, nearest};
use super::{Basis, Error, Evaluate, Polynomial};
use crate::largest;

/// A function on [−range, range] by polynomials, and how far from it they get.
///
/// Ciphertexts hold t = x / range, which the linear map before is to divide by; what comes out is the
/// function of x itself.
#[derive(Clone, Debug, PartialEq)]
pub struct Approximation {
    function: Function,
    range: f64,
    /// Each of what the one before gives.
    stages: Vec<Polynomial>,
    /// Whether what comes out of the stages is multiplied with t.
    is_product: bool,
    error: f64,
}

/// A function that is approximated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Function {
    /// x / (1 + e^−x).
    Silu,
    /// 1 / (1 + e^−x).
    Sigmoid,
    /// The larger of x and 0.
    Relu,
}

impl Function {
    /// Its value at `x`.
    pub fn at(self, x: f64) -> f64 {
        match self {
            Self::Silu => x / (1.0 + (-x).exp()),
            Self::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            Self::Relu => x.max(0.0),
        }
    }
}

impl Approximation {
    /// SiLU on [−`range`, `range`] by Chebyshev's interpolation of `degree`.
    ///
    /// # Errors
    /// [`Error::Range`] for a range that is not positive and finite.
    pub fn silu(degree: usize, range: f64) -> Result<Self, Error> {
        Self::interpolated(Function::Silu, degree, range)
    }

    /// The sigmoid on [−`range`, `range`] by Chebyshev's interpolation of `degree`.
    ///
    /// # Errors
    /// [`Error::Range`] for a range that is not positive and finite.
    pub fn sigmoid(degree: usize, range: f64) -> Result<Self, Error> {
        Self::interpolated(Function::Sigmoid, degree, range)
    }

    fn interpolated(function: Function, degree: usize, range: f64) -> Result<Self, Error> {
        check_range(range)?;
        let polynomial = Polynomial::interpolate(|t| function.at(range * t), degree)?;
        Ok(Self::one(function, range, polynomial))
    }

    fn one(function: Function, range: f64, polynomial: Polynomial) -> Self {
        let stages = vec![polynomial];
        Self { function, range, stages, is_product: false, error: 0.0 }.measured()
    }

    /// ReLU on [−`range`, `range`] by the one polynomial of at most `degree` that comes nearest to it:
    /// x / 2 + |x| / 2, where that of |x| is even. It gets about 0.14 `range` / `degree` from ReLU
    /// (Bernstein, "Sur la meilleure approximation de |x| par des polynomes de degrés donnés", Acta
    /// Mathematica 37, 1914), which is for models that were trained with it.
    ///
    /// # Errors
    /// [`Error::Range`] for a range that is not positive and finite, [`Error::Degree`] for a degree below 2
    /// or above 255.
    pub fn nearest_relu(degree: usize, range: f64) -> Result<Self, Error> {
        check_range(range)?;
        if !(2..=DEGREE_MAX).contains(&degree) {
            return Err(Error::Degree { found: degree, least: 2, most: DEGREE_MAX });
        }
        let (mut coefficients, _) = nearest(Target::Magnitude, degree, 0.0);
        coefficients[1] = 1.0;
        coefficients.iter_mut().for_each(|coefficient| *coefficient *= range / 2.0);
        let polynomial = Polynomial::new(Basis::Chebyshev, coefficients)?;
        Ok(Self::one(Function::Relu, range, polynomial))
    }

    /// ReLU on [−`range`, `range`] as x · (1 + sign x) / 2, the sign by a composition of odd polynomials
    /// of `degrees`, each the nearest to 1 on what the one before leaves of [ε, 1] (Lee, Lee, No and
    /// Kim, "Minimax Approximation of Sign Function by Composite Polynomial for Homomorphic Comparison",
    /// IEEE TDSC 2022). With degrees 15, 15 and 27 it is the ReLU of Lee, Kang, Lee, Choi, Eom,
    /// Deryabin, Lee, Lee, Yoo, Kim and No ("Privacy-Preserving Machine Learning With Fully Homomorphic
    /// Encryption for Deep Neural Network", IEEE Access 2022).
    ///
    /// ε is the one with which ReLU's error is least.
    ///
    /// # Errors
    /// [`Error::Range`] for a range that is not positive and finite, [`Error::Degrees`] for degrees that
    /// are not odd or none at all.
    pub fn relu(degrees: &[usize], range: f64) -> Result<Self, Error> {
        check_range(range)?;
        if degrees.is_empty() || degrees.iter().any(|degree| degree % 2 == 0) {
            return Err(Error::Degrees { found: degrees.to_vec() });
        }
        // A smaller ε leaves a larger error above it, and a larger one more numbers below it: the
        // least is found by thirds, in ε's logarithm.
        let of = |low_log2: f64| Self::composed(degrees, range, low_log2.exp2());
        let (mut from, mut to) = (-24.0f64, 0.0f64);
        for _ in 0..24 {
            let (a, b) = (from + (to - from) / 3.0, to - (to - from) / 3.0);
            if of(a)?.largest_error(2000) < of(b)?.largest_error(2000) { to = b } else { from = a }
        }
        Ok(of((from + to) / 2.0)?.measured())
    }

    fn composed(degrees: &[usize], range: f64, low: f64) -> Result<Self, Error> {
        let mut stages = sign(degrees, low);
        // (1 + sign) · range / 2: what t is multiplied with.
        let last = stages.last_mut().expect("at least one degree");
        last.iter_mut().for_each(|coefficient| *coefficient *= range / 2.0);
        last[0] = range / 2.0;
        let polynomial = |coefficients| Polynomial::new(Basis::Chebyshev, coefficients);
        let stages = stages.into_iter().map(polynomial).collect::<Result<_, _>>()?;
        let function = Function::Relu;
        Ok(Self { function, range, stages, is_product: true, error: 0.0 })
    }

    fn measured(mut self) -> Self {
        self.error = self.largest_error(20_000);
        self
    }

    /// The largest error on a grid of `points`, and of as many that are dense near 0.
    fn largest_error(&self, points: usize) -> f64 {
        let share = |index: usize| index as f64 / points as f64;
        let linear = (0..=points).map(share);
        let near = (0..=points).map(|index| (-20.0 * share(index)).exp2());
        let error = |t: f64| self.at(self.range * t) - self.function.at(self.range * t);
        largest(linear.chain(near).flat_map(|t| [error(t), error(-t)]))
    }

    /// What is approximated.
    pub fn function(&self) -> Function {
        self.function
    }

    /// The largest absolute value of an argument.
    pub fn range(&self) -> f64 {
        self.range
    }

    /// The polynomials: each of what the one before gives, the first of t.
    pub fn stages(&self) -> &[Polynomial] {
        &self.stages
    }

    /// The largest distance to the function, measured on a dense grid of [−range, range].
    pub fn error(&self) -> f64 {
        self.error
    }

    /// Levels that it takes.
    pub fn depth(&self) -> usize {
        let own = usize::from(self.is_product);
        own + self.stages.iter().map(Polynomial::depth).sum::<usize>()
    }

    /// Products of two ciphertexts that it takes.
    pub fn products(&self) -> usize {
        let own = usize::from(self.is_product);
        own + self.stages.iter().map(Polynomial::products).sum::<usize>()
    }

    /// Its value at `x`: the specification.
    pub fn at(&self, x: f64) -> f64 {
        let t = x / self.range;
        let value = self.stages.iter().fold(t, |value, stage| stage.at(value));
        if self.is_product { t * value } else { value }
    }

    /// Its value where the ciphertext `t` holds x / range, at `level` and `scale`.
    ///
    /// # Errors
    /// As [`Polynomial::evaluate`].
    pub fn evaluate<E: Evaluate>(
        &self,
        evaluator: &mut E,
        t: &E::Ciphertext,
        level: usize,
        scale: f64,
    ) -> Result<E::Ciphertext, Error> {
        let (found, expected) = (evaluator.level(t), level + self.depth());
        if found < expected {
            return Err(Error::Level { operation: "evaluate a function", found, expected });
        }
        // The product with t at the end brings it to what was asked for.
        let (mut at, last_scale) = if self.is_product {
            let prime = evaluator.parameters().modulus(level + 1).value() as f64;
            (expected, scale * prime / evaluator.scale(t))
        } else {
            (expected, scale)
        };
        let mut value = None;
        for (index, stage) in self.stages.iter().enumerate() {
            at -= stage.depth();
            let is_last = index + 1 == self.stages.len();
            let between = evaluator.parameters().scale_at(at);
            let scale = if is_last { last_scale } else { between };
            let next = stage.evaluate(evaluator, value.as_ref().unwrap_or(t), at, scale)?;
            value.replace(next).into_iter().for_each(|before| evaluator.recycle(before));
        }
        let value = value.expect("at least one stage");
        if self.is_product {
            let t = evaluator.lowered(t, level + 1)?;
            let product = evaluator.multiply_rescale(&value, &t)?;
            evaluator.recycle(value);
            evaluator.recycle(t);
            return Ok(product);
        }
        Ok(value)
    }
}

/// Coefficients, in Chebyshev's basis, of odd polynomials whose composition is near the sign on
/// [−1, −`low`] and [`low`, 1].
fn sign(degrees: &[usize], mut low: f64) -> Vec<Vec<f64>> {
    let mut stages = Vec::with_capacity(degrees.len());
    for (index, &degree) in degrees.iter().enumerate() {
        let (mut coefficients, error) = nearest(Target::Sign, degree, low);
        if index + 1 < degrees.len() {
            // What goes on stays within [−1, 1].
            coefficients.iter_mut().for_each(|coefficient| *coefficient /= 1.0 + error);
            low = (1.0 - error) / (1.0 + error);
        }
        stages.push(coefficients);
    }
    stages
}

/// The highest degree of ReLU's one polynomial: what exchanges' grid resolves.
const DEGREE_MAX: usize = 255;

fn check_range(range: f64) -> Result<(), Error> {
    if range.is_finite() && range > 0.0 {
        return Ok(());
    }
    Err(Error::Range { range })
}
