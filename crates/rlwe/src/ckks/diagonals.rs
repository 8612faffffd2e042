//! Linear maps of slots by their generalised diagonals (Halevi and Shoup, CRYPTO 2014).

use std::collections::{BTreeMap, BTreeSet};

use super::Error;

/// A linear map of `slots` slots: `out[i] = Σ_d diagonals[d][i] · in[(i + d) mod slots]`.
///
/// A diagonal that is not there is zero: it costs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagonals {
    slots: usize,
    /// By rotation to the left; each of a power of two of numbers, repeated over all slots.
    diagonals: BTreeMap<usize, Vec<f64>>,
}

impl Diagonals {
    /// The zero map of `slots` (a power of two) slots.
    pub fn new(slots: usize) -> Self {
        assert!(slots.is_power_of_two(), "slots are a power of two");
        Self { slots, diagonals: BTreeMap::new() }
    }

    /// Slots.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Puts a diagonal: `values`, a power of two of numbers, repeated. One of zeros is left out.
    ///
    /// # Errors
    /// [`Error::Slots`] for another count, [`Error::Value`] for a number that is not finite.
    pub fn insert(&mut self, steps: usize, values: Vec<f64>) -> Result<(), Error> {
        if !values.len().is_power_of_two() || values.len() > self.slots {
            return Err(Error::Slots { found: values.len(), slots: self.slots });
        }
        if let Some(index) = values.iter().position(|value| !value.is_finite()) {
            return Err(Error::Value { index, value: values[index], limit_log2: 1024.0 });
        }
        let steps = steps % self.slots;
        if values.iter().all(|&value| value == 0.0) {
            self.diagonals.remove(&steps);
        } else {
            self.diagonals.insert(steps, values);
        }
        Ok(())
    }

    /// The rotations (to the left) that have a diagonal, ascending.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.diagonals.keys().copied()
    }

    /// One diagonal: a power of two of numbers that repeat.
    pub fn diagonal(&self, steps: usize) -> Option<&[f64]> {
        self.diagonals.get(&steps).map(Vec::as_slice)
    }

    /// What the map makes of `values`, which repeat over the slots: the specification.
    pub fn apply(&self, values: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.slots];
        for (&steps, diagonal) in &self.diagonals {
            for (index, out) in out.iter_mut().enumerate() {
                let from = (index + steps) % self.slots;
                *out += diagonal[index % diagonal.len()] * values[from % values.len()];
            }
        }
        out
    }

    /// The largest absolute value.
    pub fn max_abs(&self) -> f64 {
        self.diagonals.values().flatten().fold(0.0, |max: f64, value| max.max(value.abs()))
    }
}

/// How a map's rotations are split in baby steps and giant steps: d = baby + giant, the giants
/// multiples of `baby_steps`.
///
/// Baby steps rotate what comes in (all from one decomposition), giant steps rotate sums of
/// products.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// Rotations from 0 to below this are baby steps; 1 leaves giant steps only.
    pub baby_steps: usize,
}

impl Split {
    /// Baby and giant steps, 0 left out, of the rotations `steps` of `slots` slots.
    pub fn rotations(self, steps: impl Iterator<Item = usize>) -> (Vec<usize>, Vec<usize>) {
        let (mut babies, mut giants) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            let baby = step % self.baby_steps;
            babies.insert(baby);
            giants.insert(step - baby);
        }
        babies.remove(&0);
        giants.remove(&0);
        (babies.into_iter().collect(), giants.into_iter().collect())
    }
}
