//! Polynomials of ciphertexts, at the smallest depth.

use std::collections::{BTreeMap, BTreeSet};

use super::{Error, Evaluate, chebyshev};

/// What the coefficients of a polynomial are multiplied with.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Basis {
    /// 1, t, t², ...: for low degrees.
    Monomial,
    /// Chebyshev's T_0, T_1, T_2, ...: for t from −1 to 1, where they stay as small.
    Chebyshev,
}

/// A polynomial with real coefficients, and how it is evaluated: by Paterson and Stockmeyer's method
/// (SIAM Journal on Computing 2(1), 1973), as it is for residue CKKS (Bossuat, Mouchet,
/// Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021, section 4).
#[derive(Clone, Debug, PartialEq)]
pub struct Polynomial {
    basis: Basis,
    coefficients: Vec<f64>,
    plan: Node,
    products: usize,
}

/// A part of a polynomial, as a sum of few products of ciphertexts.
#[derive(Clone, Debug, PartialEq)]
enum Node {
    Constant(f64),
    /// A sum of powers times numbers.
    Leaf(Vec<f64>),
    /// quotient · power + remainder.
    Split {
        giant: usize,
        quotient: Box<Node>,
        remainder: Box<Node>,
    },
}

impl Polynomial {
    /// The polynomial with these `coefficients`, that of 1 first.
    ///
    /// # Errors
    /// [`Error::Value`] for a number that is not finite.
    pub fn new(basis: Basis, mut coefficients: Vec<f64>) -> Result<Self, Error> {
        if let Some(index) = coefficients.iter().position(|value| !value.is_finite()) {
            return Err(Error::Value { index, value: coefficients[index], limit_log2: 1024.0 });
        }
        let is_used = |&value: &f64| value != 0.0;
        coefficients.truncate(coefficients.iter().rposition(is_used).map_or(0, |last| last + 1));
        coefficients.resize(coefficients.len().max(2), 0.0);
        let depth = ceil_log2(coefficients.len());
        // Sums of up to `babies` powers are leaves: the fewest products win.
        let plans = (0..=depth).map(|babies_log2| {
            let plan = Node::of(basis, coefficients.clone(), depth, 1, 1 << babies_log2);
            let products = plan.products() + plan.powers(basis).iter().filter(|&&p| p > 1).count();
            (products, plan)
        });
        let (products, plan) = plans.min_by_key(|&(products, _)| products).expect("at least one");
        Ok(Self { basis, coefficients, plan, products })
    }

    /// The polynomial that is `function` at Chebyshev's `degree` + 1 nodes in [−1, 1].
    ///
    /// # Errors
    /// [`Error::Value`] where the function is not finite there.
    pub fn interpolate(function: impl Fn(f64) -> f64, degree: usize) -> Result<Self, Error> {
        Self::new(Basis::Chebyshev, chebyshev::interpolate(function, degree))
    }

    /// The basis.
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// The coefficients, that of 1 first; at least two.
    pub fn coefficients(&self) -> &[f64] {
        &self.coefficients
    }

    /// The degree, at least 1.
    pub fn degree(&self) -> usize {
        self.coefficients.len() - 1
    }

    /// Levels that it takes: log2 of the degree and one, rounded up.
    pub fn depth(&self) -> usize {
        ceil_log2(self.coefficients.len())
    }

    /// Products of two ciphertexts that it takes.
    pub fn products(&self) -> usize {
        self.products
    }

    /// Its value at `t`: the specification.
    pub fn at(&self, t: f64) -> f64 {
        match self.basis {
            Basis::Monomial => self.coefficients.iter().rev().fold(0.0, |sum, c| sum * t + c),
            Basis::Chebyshev => chebyshev::sum(&self.coefficients, t),
        }
    }

    /// Its value at the ciphertext `t`, at `level` and `scale`.
    ///
    /// `t` should be at a scale near the primes' of the levels: its powers' scales double their
    /// distance to them from one to the next.
    ///
    /// # Errors
    /// [`Error::Level`] where `t` is not at least [`depth`](Self::depth) above `level`;
    /// [`Error::Value`] and [`Error::Scale`] where a coefficient or a scale is too large.
    pub fn evaluate<E: Evaluate>(
        &self,
        evaluator: &mut E,
        t: &E::Ciphertext,
        level: usize,
        scale: f64,
    ) -> Result<E::Ciphertext, Error> {
        let (found, expected) = (evaluator.level(t), level + self.depth());
        if found < expected {
            return Err(Error::Level { operation: "evaluate a polynomial", found, expected });
        }
        let t = evaluator.lowered(t, expected)?;
        let powers = BTreeMap::from([(1, t)]);
        let mut evaluation = Evaluation { evaluator, basis: self.basis, powers };
        for power in self.plan.powers(self.basis) {
            evaluation.raise(power)?;
        }
        let prime = evaluation.prime(level + 1);
        let mut out = evaluation.combine(&self.plan, level + 1, scale * prime)?;
        evaluation.evaluator.rescale(&mut out)?;
        let Evaluation { evaluator, powers, .. } = evaluation;
        powers.into_values().for_each(|power| evaluator.recycle(power));
        Ok(out)
    }
}

impl Node {
    /// The plan of `coefficients` for a result at relative level `level` that is yet to be rescaled,
    /// where power i is at relative level `depth` − ceil(log2 i).
    ///
    /// With k the degree's bits, k ≤ `depth` − `level` + 1 holds: for the whole polynomial, for a
    /// remainder, and for a quotient, which has a bit less and is wanted a level higher.
    fn of(
        basis: Basis,
        mut coefficients: Vec<f64>,
        depth: usize,
        level: usize,
        babies: usize,
    ) -> Self {
        let degree = coefficients.iter().rposition(|&value| value != 0.0).unwrap_or(0);
        if degree == 0 {
            return Self::Constant(coefficients[0]);
        }
        coefficients.truncate(degree + 1);
        let is_high = |power: usize| ceil_log2(power) + level <= depth;
        let mut used = (1..=degree).filter(|&power| coefficients[power] != 0.0);
        if degree == 1 || degree < babies && used.all(is_high) {
            return Self::Leaf(coefficients);
        }
        let giant = 1 << degree.ilog2();
        let (quotient, remainder) = match basis {
            Basis::Monomial => (coefficients.split_off(giant), coefficients),
            Basis::Chebyshev => chebyshev::divide(&coefficients, giant),
        };
        let part =
            |coefficients, level| Box::new(Self::of(basis, coefficients, depth, level, babies));
        Self::Split {
            giant,
            quotient: part(quotient, level + 1),
            remainder: part(remainder, level),
        }
    }

    /// Products of its splits.
    fn products(&self) -> usize {
        match self {
            Self::Constant(_) | Self::Leaf(_) => 0,
            Self::Split { quotient, remainder, .. } => {
                let own = !matches!(**quotient, Self::Constant(_));
                usize::from(own) + quotient.products() + remainder.products()
            }
        }
    }

    /// The powers that it needs, and those that they need, ascending.
    fn powers(&self, basis: Basis) -> BTreeSet<usize> {
        let mut powers = BTreeSet::new();
        self.collect(&mut powers);
        // Each needs only lower ones.
        let mut out = BTreeSet::new();
        while let Some(power) = powers.pop_last() {
            out.insert(power);
            if let Some((a, b)) = halves(power) {
                powers.extend([a, b]);
                let difference = a - b;
                if basis == Basis::Chebyshev && difference > 0 {
                    powers.insert(difference);
                }
            }
        }
        out
    }

    fn collect(&self, powers: &mut BTreeSet<usize>) {
        match self {
            Self::Constant(_) => {}
            Self::Leaf(coefficients) => {
                let used = (1..coefficients.len()).filter(|&power| coefficients[power] != 0.0);
                powers.extend(used);
            }
            Self::Split { giant, quotient, remainder } => {
                powers.insert(*giant);
                quotient.collect(powers);
                remainder.collect(powers);
            }
        }
    }
}

/// The powers whose product is `power`: the largest power of two below it, and the rest.
fn halves(power: usize) -> Option<(usize, usize)> {
    let high = match power {
        0 | 1 => return None,
        _ => 1 << (power - 1).ilog2(),
    };
    Some((high, power - high))
}

/// The smallest k with 2^k ≥ `value`.
fn ceil_log2(value: usize) -> usize {
    value.next_power_of_two().trailing_zeros() as usize
}

/// A polynomial on its way.
struct Evaluation<'e, E: Evaluate> {
    evaluator: &'e mut E,
    basis: Basis,
    /// Power i (t^i or T_i(t)) at ceil(log2 i) levels below t's.
    powers: BTreeMap<usize, E::Ciphertext>,
}

impl<E: Evaluate> Evaluation<'_, E> {
    fn prime(&self, level: usize) -> f64 {
        self.evaluator.parameters().modulus(level).value() as f64
    }

    /// Makes a power from lower ones: T_(a + b) = 2 T_a T_b − T_(a − b).
    fn raise(&mut self, power: usize) -> Result<(), Error> {
        let Some((a, b)) = halves(power) else { return Ok(()) };
        let level = self.evaluator.level(&self.powers[&a]);
        let level = level.min(self.evaluator.level(&self.powers[&b]));
        let low = self.evaluator.lowered(&self.powers[&b], level)?;
        let high = match a == b {
            true => None,
            false => Some(self.evaluator.lowered(&self.powers[&a], level)?),
        };
        let factor = high.as_ref().unwrap_or(&low);
        let mut out = match self.basis {
            Basis::Monomial => self.evaluator.multiply_rescale(factor, &low)?,
            Basis::Chebyshev => self.evaluator.multiply(factor, &low)?,
        };
        high.into_iter().chain([low]).for_each(|factor| self.evaluator.recycle(factor));
        if self.basis == Basis::Monomial {
            self.powers.insert(power, out);
            return Ok(());
        }
        // Doubled before it is rescaled, so that rescaling's error is not.
        let product = self.evaluator.lowered(&out, level)?;
        self.evaluator.add_assign(&mut out, &product)?;
        self.evaluator.recycle(product);
        if a == b {
            self.evaluator.add_constant(&mut out, -1.0)?;
        } else {
            let scale = self.evaluator.scale(&out);
            let difference = self.times(a - b, 1.0, level, scale)?;
            self.evaluator.sub_assign(&mut out, &difference)?;
            self.evaluator.recycle(difference);
        }
        self.evaluator.rescale(&mut out)?;
        self.powers.insert(power, out);
        Ok(())
    }

    /// A power times a number, at `level` and `scale`.
    fn times(
        &mut self,
        power: usize,
        number: f64,
        level: usize,
        scale: f64,
    ) -> Result<E::Ciphertext, Error> {
        let mut out = self.evaluator.lowered(&self.powers[&power], level)?;
        let own = self.evaluator.scale(&out);
        self.evaluator.multiply_constant(&mut out, number, scale / own)?;
        Ok(out)
    }

    /// The node's value at `level` and `scale`, yet to be rescaled.
    fn combine(&mut self, node: &Node, level: usize, scale: f64) -> Result<E::Ciphertext, Error> {
        match node {
            Node::Constant(value) => {
                let mut out = self.times(1, 0.0, level, scale)?;
                self.evaluator.add_constant(&mut out, *value)?;
                Ok(out)
            }
            Node::Leaf(coefficients) => {
                let highest = coefficients.len() - 1;
                let mut out = self.times(highest, coefficients[highest], level, scale)?;
                for (power, &coefficient) in coefficients.iter().enumerate().take(highest).skip(1) {
                    if coefficient != 0.0 {
                        let term = self.times(power, coefficient, level, scale)?;
                        self.evaluator.add_assign(&mut out, &term)?;
                        self.evaluator.recycle(term);
                    }
                }
                self.add_constant(&mut out, coefficients[0])?;
                Ok(out)
            }
            Node::Split { giant, quotient, remainder } => {
                let mut out = match **quotient {
                    Node::Constant(value) => self.times(*giant, value, level, scale)?,
                    ref quotient => {
                        let power = self.evaluator.lowered(&self.powers[giant], level)?;
                        let own = self.evaluator.scale(&power);
                        let wanted = scale / own * self.prime(level + 1);
                        let mut quotient = self.combine(quotient, level + 1, wanted)?;
                        self.evaluator.rescale(&mut quotient)?;
                        let product = self.evaluator.multiply(&quotient, &power)?;
                        self.evaluator.recycle(quotient);
                        self.evaluator.recycle(power);
                        product
                    }
                };
                match **remainder {
                    Node::Constant(value) => self.add_constant(&mut out, value)?,
                    ref remainder => {
                        let remainder = self.combine(remainder, level, scale)?;
                        self.evaluator.add_assign(&mut out, &remainder)?;
                        self.evaluator.recycle(remainder);
                    }
                }
                Ok(out)
            }
        }
    }

    fn add_constant(&mut self, x: &mut E::Ciphertext, value: f64) -> Result<(), Error> {
        if value == 0.0 { Ok(()) } else { self.evaluator.add_constant(x, value) }
    }
}
