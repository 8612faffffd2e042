//! Two ways to look a compressed embedding up under encryption: the one that came before, and ours.
//!
//! In CodedHELUT (Kim et al., ICML 2024) the client encrypts tokens, the server turns each into its
//! one-hot form ([`Indicator`]) and, for every number of the embedding, multiplies with a column and
//! adds up by rotations. HE-LRM's client encrypts the one-hot form itself; the lookup is one linear
//! map of one level (sections 4.2 to 5.1 of "HE-LRM"). [`compare`] measures both, as its figure 5 does.
//!
//! The one-hot form takes ten levels and more. Where a chain has too few, CodedHELUT bootstraps: a
//! [`Schedule`] says where.

mod compare;
mod indicator;
mod schedule;
mod steps;
#[cfg(test)]
mod tests;

pub use compare::{Asked, Beside, Comparison, Figures, compare};
pub use indicator::Indicator;
pub use schedule::Schedule;

use hushtable_rlwe::ckks::{
    Bootstrap, BootstrapLevels, Diagonals, Error, Evaluate, KeySpec, Parameters, PreparedBootstrap,
    Split,
};

/// An embedding that is a sum of rows, one of each of `digits` tables of `base` rows.
#[derive(Clone, Debug)]
pub struct DigitTables {
    base: usize,
    digits: usize,
    dim: usize,
    /// Row k of table t is at (t · base + k) · dim.
    rows: Vec<f64>,
}

impl DigitTables {
    /// Tables from their rows: `digits` × `base` × `dim` numbers.
    ///
    /// # Panics
    /// If there are not as many.
    pub fn new(base: usize, digits: usize, dim: usize, rows: Vec<f64>) -> Self {
        assert_eq!(rows.len(), base * digits * dim, "digits x base x dim numbers");
        Self { base, digits, dim, rows }
    }

    /// Slots that a one-hot form takes: digits · base, up to a power of two.
    pub fn width(&self) -> usize {
        (self.digits * self.base).next_power_of_two()
    }

    /// Slots that an embedding takes: its numbers, up to a power of two, and no less than its input.
    pub fn period(&self) -> usize {
        self.dim.next_power_of_two().max(self.width())
    }

    /// The embedding of a token for each table: the specification.
    pub fn lookup(&self, tokens: &[usize]) -> Vec<f64> {
        let mut out = vec![0.0; self.dim];
        for (table, &token) in tokens.iter().enumerate() {
            let row = &self.rows[(table * self.base + token) * self.dim..][..self.dim];
            out.iter_mut().zip(row).for_each(|(out, value)| *out += value);
        }
        out
    }

    /// What a client of ours encrypts: a 1 in each table's place.
    pub fn one_hot(&self, tokens: &[usize]) -> Vec<f64> {
        let mut out = vec![0.0; self.width()];
        for (table, &token) in tokens.iter().enumerate() {
            out[table * self.base + token] = 1.0;
        }
        out
    }

    /// What a client of CodedHELUT encrypts: each token over p, once for every row that it may be.
    pub fn repeated(&self, tokens: &[usize]) -> Vec<f64> {
        let mut out = vec![0.0; self.width()];
        for (table, &token) in tokens.iter().enumerate() {
            out[table * self.base..][..self.base].fill(token as f64 / self.base as f64);
        }
        out
    }

    /// The tokens that the slots of [`repeated`](Self::repeated) are compared with, over p; beyond
    /// the tables, what no token equals.
    fn candidates(&self) -> Vec<f64> {
        let rows = self.base * self.digits;
        let candidate = |slot: usize| match slot < rows {
            true => (slot % self.base) as f64 / self.base as f64,
            false => 1.0 - 1.0 / self.base as f64,
        };
        (0..self.width()).map(candidate).collect()
    }

    /// Number `index` of every row, in the slots of a one-hot form.
    fn column(&self, index: usize) -> Vec<f64> {
        let mut out = vec![0.0; self.width()];
        for (row, out) in out.iter_mut().take(self.base * self.digits).enumerate() {
            *out = self.rows[row * self.dim + index];
        }
        out
    }

    /// The map from a one-hot form to the embedding, repeated with [`period`](Self::period).
    ///
    /// # Errors
    /// [`Error::Slots`] where an embedding does not fit.
    pub fn map(&self, slots: usize) -> Result<Diagonals, Error> {
        let (width, period, rows) = (self.width(), self.period(), self.base * self.digits);
        let mut map = Diagonals::new(slots);
        for steps in 0..width {
            let entry = |out: usize| {
                let row = (out + steps) % width;
                match row < rows && out < self.dim {
                    true => self.rows[row * self.dim + out],
                    false => 0.0,
                }
            };
            map.insert(steps, (0..period).map(entry).collect())?;
        }
        Ok(map)
    }

    /// Baby and giant steps of [`map`](Self::map): about as many of either.
    pub fn split(&self) -> Split {
        Split::new(1 << self.width().ilog2().div_ceil(2))
    }

    /// The bootstrap of a set for what a lookup computes on: numbers from −1 to 1.
    ///
    /// # Errors
    /// [`Error::Bootstrap`].
    pub fn bootstrap(
        &self,
        parameters: &Parameters,
        levels: BootstrapLevels,
    ) -> Result<Bootstrap, Error> {
        Bootstrap::new(parameters, levels, self.width().max(2), RANGE)
    }

    /// The keys that CodedHELUT needs for a schedule, and for the bootstrap where there is one.
    pub fn keys_coded(&self, schedule: &Schedule, bootstrap: Option<&Bootstrap>) -> KeySpec {
        let mut spec = bootstrap.map(Bootstrap::key_spec).unwrap_or_default();
        spec.products = spec.products.max(Some(schedule.start().0));
        // Sums are rotated when all is multiplied.
        let doublings = (0..self.width().ilog2()).map(|doubling| 1 << doubling);
        spec.rotations.extend(doublings.map(|steps| (steps, schedule.end().0 - 1)));
        spec
    }

    /// CodedHELUT's first half: the one-hot form of `repeated`, which is at the level and scale that the
    /// schedule starts with.
    ///
    /// # Errors
    /// [`Error::Level`] and [`Error::Scale`] for others; [`Error::Bootstrap`] where the schedule
    /// bootstraps and there is no `bootstrap`; [`Error::MissingKey`] and [`Error::MissingRotation`].
    pub fn one_hot_coded<E: Evaluate>(
        &self,
        evaluator: &mut E,
        schedule: &Schedule,
        bootstrap: Option<&PreparedBootstrap<E::Transform>>,
        repeated: &E::Ciphertext,
    ) -> Result<E::Ciphertext, Error> {
        let (level, scale) = schedule.start();
        let negated: Vec<_> = self.candidates().iter().map(|candidate| -candidate).collect();
        let candidates = evaluator.encode(&negated, level, scale)?;
        let mut difference = repeated.clone();
        evaluator.add_plain(&mut difference, &candidates)?;
        steps::apply(evaluator, schedule, bootstrap, difference)
    }

    /// Column `index`, which [`number_coded`](Self::number_coded) multiplies with, at the scale that makes
    /// the number's that of fresh ciphertexts.
    ///
    /// # Errors
    /// [`Error::Value`].
    pub fn column_coded<E: Evaluate>(
        &self,
        evaluator: &E,
        schedule: &Schedule,
        index: usize,
    ) -> Result<E::Plaintext, Error> {
        let (level, scale) = schedule.end();
        let parameters = evaluator.parameters();
        let prime = parameters.modulus(level).value() as f64;
        evaluator.encode(&self.column(index), level, parameters.scale() * prime / scale)
    }

    /// CodedHELUT's second half: the number of one column, in every slot of a ciphertext.
    ///
    /// # Errors
    /// [`Error::MissingRotation`]; what the evaluator refuses.
    pub fn number_coded<E: Evaluate>(
        &self,
        evaluator: &mut E,
        one_hot: &E::Ciphertext,
        column: &E::Plaintext,
    ) -> Result<E::Ciphertext, Error> {
        let mut product = one_hot.clone();
        evaluator.multiply_plain(&mut product, column)?;
        evaluator.rescale(&mut product)?;
        evaluator.fold(&mut product, 1, self.width())?;
        Ok(product)
    }
}

/// Values of an indicator are within −1 and 1, but for errors.
const RANGE: f64 = 1.25;
