//! Linear maps of slots by their generalised diagonals (Halevi and Shoup, CRYPTO 2014).

use std::collections::{BTreeMap, BTreeSet};

use num_complex::Complex64;

use super::Error;

/// A linear map of `slots` slots, of real or complex numbers: `out[i] = Σ_d diagonals[d][i] · in[(i + d) mod slots]`.
///
/// A diagonal that is not there is zero: it costs nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Diagonals {
    slots: usize,
    /// By rotation to the left; each of a power of two of numbers, repeated over all slots.
    diagonals: BTreeMap<usize, Diagonal>,
}

/// The parts of one diagonal's numbers.
#[derive(Clone, Debug, PartialEq)]
struct Diagonal {
    real: Vec<f64>,
    /// None where all are zero.
    imaginary: Vec<f64>,
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
        self.put(steps, values, Vec::new());
        Ok(())
    }

    /// Puts a diagonal of complex numbers, as [`insert`](Self::insert).
    ///
    /// # Errors
    /// As [`insert`](Self::insert).
    pub fn insert_complex(&mut self, steps: usize, values: &[Complex64]) -> Result<(), Error> {
        let mut imaginary: Vec<f64> = values.iter().map(|value| value.im).collect();
        if let Some(index) = imaginary.iter().position(|value| !value.is_finite()) {
            return Err(Error::Value { index, value: imaginary[index], limit_log2: 1024.0 });
        }
        if imaginary.iter().all(|&value| value == 0.0) {
            imaginary.clear();
        }
        self.insert(steps, values.iter().map(|value| value.re).collect())?;
        if !imaginary.is_empty() {
            self.put(steps, values.iter().map(|value| value.re).collect(), imaginary);
        }
        Ok(())
    }

    fn put(&mut self, steps: usize, real: Vec<f64>, imaginary: Vec<f64>) {
        let steps = steps % self.slots;
        if imaginary.is_empty() && real.iter().all(|&value| value == 0.0) {
            self.diagonals.remove(&steps);
        } else {
            self.diagonals.insert(steps, Diagonal { real, imaginary });
        }
    }

    /// The rotations (to the left) that have a diagonal, ascending.
    pub fn steps(&self) -> impl ExactSizeIterator<Item = usize> + '_ {
        self.diagonals.keys().copied()
    }

    /// The real parts of one diagonal: a power of two of numbers that repeat.
    pub fn diagonal(&self, steps: usize) -> Option<&[f64]> {
        self.diagonals.get(&steps).map(|diagonal| diagonal.real.as_slice())
    }

    /// The imaginary parts of one diagonal, as many as real ones; `None` where all are zero.
    pub fn imaginary(&self, steps: usize) -> Option<&[f64]> {
        let parts = self.diagonals.get(&steps).map(|diagonal| diagonal.imaginary.as_slice());
        parts.filter(|parts| !parts.is_empty())
    }

    /// One diagonal's numbers.
    pub fn complex(&self, steps: usize) -> Option<Vec<Complex64>> {
        let real = self.diagonal(steps)?.iter();
        Some(match self.imaginary(steps) {
            None => real.map(|&re| Complex64::new(re, 0.0)).collect(),
            Some(parts) => real.zip(parts).map(|(&re, &im)| Complex64::new(re, im)).collect(),
        })
    }

    /// What the map makes of `values`, which repeat over the slots: the real parts of
    /// [`apply_complex`](Self::apply_complex).
    pub fn apply(&self, values: &[f64]) -> Vec<f64> {
        let mut out = vec![0.0; self.slots];
        for (&steps, Diagonal { real, .. }) in &self.diagonals {
            for (index, out) in out.iter_mut().enumerate() {
                let from = (index + steps) % self.slots;
                *out += real[index % real.len()] * values[from % values.len()];
            }
        }
        out
    }

    /// What the map makes of `values`, which repeat over the slots: the specification.
    pub fn apply_complex(&self, values: &[Complex64]) -> Vec<Complex64> {
        let mut out = vec![Complex64::ZERO; self.slots];
        for steps in self.steps() {
            let diagonal = self.complex(steps).expect("of steps that it has");
            for (index, out) in out.iter_mut().enumerate() {
                let from = (index + steps) % self.slots;
                *out += diagonal[index % diagonal.len()] * values[from % values.len()];
            }
        }
        out
    }

    /// The largest absolute value of a part of a number.
    pub fn max_abs(&self) -> f64 {
        let parts = self.diagonals.values().flat_map(|own| own.real.iter().chain(&own.imaginary));
        parts.fold(0.0, |max: f64, value| max.max(value.abs()))
    }
}

/// How a map's rotations are split in baby steps and giant steps: d = baby + giant, the giants
/// multiples of `baby_steps`.
///
/// Baby steps rotate what comes in (all from one decomposition), giant steps rotate sums of
/// products. What saves keys takes little more time: [`steps`](Self::steps) counts it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_structs, reason = "how a map is computed; new splits are new fields")]
pub struct Split {
    /// Rotations from 0 to below this are baby steps; 1 leaves giant steps only.
    pub baby_steps: usize,
    /// A baby step is two rotations, by a multiple of this and by what is left, below this: few keys, and
    /// another decomposition for each multiple. With `baby_steps` of them or more it is one rotation.
    pub inner_steps: usize,
    /// Whether each giant step's sum is rotated by `baby_steps` at a time, together with all sums above
    /// it (Horner): one key. It is for giant steps that follow each other: a gap is walked through.
    pub is_chained: bool,
}

/// What a map's rotations take.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Steps {
    /// Key switches of digits that are cut already.
    pub babies: usize,
    /// Times that digits are cut for them.
    pub cuts: usize,
    /// Key switches of sums, whose digits are cut for each.
    pub giants: usize,
    /// Masks that are divided by P before their digits are cut.
    pub divisions: usize,
}

impl Split {
    /// One rotation a baby step, and one a giant step.
    pub const fn new(baby_steps: usize) -> Self {
        Self { baby_steps, inner_steps: baby_steps, is_chained: false }
    }

    /// The giant step of a rotation, and its baby step's two rotations, that by a multiple first.
    pub(super) fn cut(self, steps: usize) -> (usize, [usize; 2]) {
        let baby = steps % self.baby_steps;
        (steps - baby, self.cut_baby(baby))
    }

    /// A baby step's two rotations, that by a multiple first.
    pub(super) fn cut_baby(self, baby: usize) -> [usize; 2] {
        match self.inner_steps >= self.baby_steps {
            true => [0, baby],
            false => [baby - baby % self.inner_steps, baby % self.inner_steps],
        }
    }

    /// The rotations that keys must have, 0 left out, of a map of diagonals `steps`: those of baby steps
    /// and those of giant steps. What needs fewer diagonals needs no other.
    pub fn rotations(self, steps: impl Iterator<Item = usize>) -> (Vec<usize>, Vec<usize>) {
        let (mut babies, mut giants) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            let (giant, baby) = self.cut(step);
            babies.extend(baby);
            giants.insert(if self.is_chained { giant.min(self.baby_steps) } else { giant });
        }
        babies.remove(&0);
        giants.remove(&0);
        (babies.into_iter().collect(), giants.into_iter().collect())
    }

    /// What the rotations of a map of diagonals `steps` take.
    pub fn steps(self, steps: impl Iterator<Item = usize>) -> Steps {
        let (mut babies, mut giants) = (BTreeSet::new(), BTreeSet::new());
        for step in steps {
            let (giant, [outer, inner]) = self.cut(step);
            babies.extend([[outer, 0], [outer, inner]]);
            giants.insert(giant);
        }
        babies.remove(&[0, 0]);
        let again: BTreeSet<usize> = babies
            .iter()
            .filter(|&&[outer, inner]| outer > 0 && inner > 0)
            .map(|&[outer, _]| outer)
            .collect();
        let Steps { giants, divisions, .. } = self.giants(giants.into_iter(), !babies.is_empty());
        Steps {
            babies: babies.len(),
            cuts: again.len() + usize::from(!babies.is_empty()),
            giants,
            divisions: divisions + again.len(),
        }
    }

    /// What giant steps take, behind baby steps that leave sums modulo Q · P or behind none.
    pub(super) fn giants(self, giants: impl Iterator<Item = usize>, has_babies: bool) -> Steps {
        let giants: BTreeSet<usize> = giants.filter(|&giant| giant > 0).collect();
        let top = giants.last().copied().unwrap_or(0);
        let giants = if self.is_chained { top / self.baby_steps } else { giants.len() };
        let divisions = match (has_babies, self.is_chained) {
            (true, _) => giants,
            (false, false) => 0,
            // The first sum of a chain is modulo Q alone.
            (false, true) => giants.saturating_sub(1),
        };
        Steps { giants, divisions, ..Steps::default() }
    }
}
