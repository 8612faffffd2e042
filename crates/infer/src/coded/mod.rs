//! Two ways to look a compressed embedding up under encryption: the one that came before, and ours.
//!
//! In CodedHELUT (Kim et al., ICML 2024) the client encrypts tokens, the server turns each into its
//! one-hot form ([`Indicator`]) and, for every number of the embedding, multiplies with a column and
//! adds up by rotations. HE-LRM's client encrypts the one-hot form itself; the lookup is one linear
//! map of one level (sections 4.2 to 5.1 of "HE-LRM"). [`compare`] measures both, as its figure 5 does.

mod compare;
mod indicator;

pub use compare::{Comparison, Figures, compare};
pub use indicator::Indicator;

use hushtable_rlwe::ckks::{Diagonals, Error, Evaluate, Split};

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

    /// CodedHELUT: one ciphertext for each number of the embedding, in every slot of it.
    ///
    /// # Errors
    /// Too few levels: [`Indicator::depth`] and one more are needed; [`Error::MissingRotation`].
    pub fn lookup_coded<E: Evaluate>(
        &self,
        evaluator: &mut E,
        indicator: Indicator,
        columns: &[E::Plaintext],
        repeated: &E::Ciphertext,
    ) -> Result<Vec<E::Ciphertext>, Error> {
        let negated: Vec<_> = self.candidates().iter().map(|candidate| -candidate).collect();
        let (level, scale) = (evaluator.level(repeated), evaluator.scale(repeated));
        let candidates = evaluator.encode(&negated, level, scale)?;
        let mut difference = repeated.clone();
        evaluator.add_plain(&mut difference, &candidates)?;
        let one_hot = indicator.apply(evaluator, &difference)?;
        let width = self.width();
        let sum = |column: &E::Plaintext| {
            let mut product = one_hot.clone();
            evaluator.multiply_plain(&mut product, column)?;
            evaluator.rescale(&mut product)?;
            evaluator.fold(&mut product, 1, width)?;
            Ok(product)
        };
        columns.iter().map(sum).collect()
    }

    /// The columns that [`lookup_coded`](Self::lookup_coded) multiplies with, for the level that it
    /// multiplies at.
    ///
    /// # Errors
    /// [`Error::Value`].
    pub fn columns<E: Evaluate>(
        &self,
        evaluator: &E,
        level: usize,
        scale: f64,
    ) -> Result<Vec<E::Plaintext>, Error> {
        (0..self.dim).map(|index| evaluator.encode(&self.column(index), level, scale)).collect()
    }
}

#[cfg(test)]
mod tests {
    use hushtable_rlwe::ckks::{Clear, ModulusBits, ParameterSpec, Parameters};
    use hushtable_rlwe::ring::Platform;

    use super::*;

    fn clear(levels: usize) -> Clear {
        let bits = ModulusBits { first: 50, level: 40, special: 50 };
        let spec = ParameterSpec::of_bits("coded_test", 1 << 10, bits, levels, 1).unwrap();
        Clear::new(&Parameters::new(spec, Platform::detect()).unwrap())
    }

    fn tables(base: usize, digits: usize, dim: usize) -> DigitTables {
        let number = |index: usize| ((index * 7919 + 13) % 201) as f64 / 100.0 - 1.0;
        let rows = (0..base * digits * dim).map(number).collect();
        DigitTables::new(base, digits, dim, rows)
    }

    #[test]
    fn an_indicator_tells_zero_from_other_integers() {
        for base in [4, 8, 16, 32, 64] {
            let indicator = Indicator::of_base(base).unwrap();
            assert_eq!(indicator.value(0.0), 1.0);
            for difference in 1..base {
                let value = indicator.value(difference as f64 / base as f64);
                assert!((0.0..0.01).contains(&value), "base {base}: {difference} gives {value}");
            }
        }
        assert_eq!(Indicator::of_base(5), None);
    }

    #[test]
    fn both_ways_look_up_the_same_embedding() {
        for (base, digits, dim) in [(4, 3, 5), (4, 8, 20), (8, 2, 16)] {
            let (tables, indicator) =
                (tables(base, digits, dim), Indicator::of_base(base).unwrap());
            let tokens: Vec<_> = (0..digits).map(|table| (table * 5 + 1) % base).collect();
            let expected = tables.lookup(&tokens);

            let mut evaluator = clear(indicator.depth() + 1);
            let scale = evaluator.parameters().scale();
            let levels = evaluator.parameters().levels();
            let repeated = evaluator.vector(&tables.repeated(&tokens), levels, scale).unwrap();
            let columns = tables.columns(&evaluator, 1, scale).unwrap();
            let found =
                tables.lookup_coded(&mut evaluator, indicator, &columns, &repeated).unwrap();
            for (found, expected) in found.iter().zip(&expected) {
                assert_eq!(evaluator.level(found), 0);
                assert!(found.values().iter().all(|value| (value - expected).abs() < 0.01));
            }

            let mut evaluator = clear(1);
            let map = tables.map(evaluator.parameters().slots()).unwrap();
            let map = evaluator.prepare(&map, tables.split(), 1, scale).unwrap();
            let one_hot = evaluator.vector(&tables.one_hot(&tokens), 1, scale).unwrap();
            let mut found = evaluator.transform(&[&map], &[&one_hot]).unwrap();
            evaluator.rescale(&mut found).unwrap();
            for (found, expected) in found.values().iter().zip(&expected) {
                assert!((found - expected).abs() < 1e-9, "{found} for {expected}");
            }
        }
    }

    #[test]
    fn too_few_levels_are_named() {
        let (tables, indicator) = (tables(4, 2, 1), Indicator::of_base(4).unwrap());
        let mut evaluator = clear(3);
        let scale = evaluator.parameters().scale();
        let repeated = evaluator.vector(&tables.repeated(&[0, 1]), 3, scale).unwrap();
        let error = tables.lookup_coded(&mut evaluator, indicator, &[], &repeated).unwrap_err();
        assert!(matches!(error, Error::Exhausted { .. } | Error::Scale { .. }), "{error}");
    }
}
