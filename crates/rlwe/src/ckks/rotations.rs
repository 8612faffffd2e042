//! Which keys a circuit needs.

use std::collections::BTreeMap;

use super::keys::SPARSE_WEIGHT;
use super::{Error, Parameters};

/// Rotations, by steps to the left, each with the highest level that it is done at: a key for low
/// levels only is a small one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rotations(BTreeMap<usize, usize>);

impl Rotations {
    /// None.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds the rotation by `steps` at `level`. One by 0 needs no key.
    pub fn insert(&mut self, steps: usize, level: usize) {
        if steps > 0 {
            let most = self.0.entry(steps).or_insert(level);
            *most = level.max(*most);
        }
    }

    /// The level up to which there is a rotation by `steps`.
    pub fn level(&self, steps: usize) -> Option<usize> {
        self.0.get(&steps).copied()
    }

    /// Steps and levels, ascending by steps.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (usize, usize)> + '_ {
        self.0.iter().map(|(&steps, &level)| (steps, level))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Extend<(usize, usize)> for Rotations {
    fn extend<T: IntoIterator<Item = (usize, usize)>>(&mut self, rotations: T) {
        rotations.into_iter().for_each(|(steps, level)| self.insert(steps, level));
    }
}

impl FromIterator<(usize, usize)> for Rotations {
    fn from_iter<T: IntoIterator<Item = (usize, usize)>>(rotations: T) -> Self {
        let mut all = Self::new();
        all.extend(rotations);
        all
    }
}

/// The evaluation keys that a circuit needs, with the highest level of each.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KeySpec {
    /// Level of the highest product of ciphertexts, where there is one.
    pub products: Option<usize>,
    /// Rotations.
    pub rotations: Rotations,
    /// Level of the highest conjugation, where there is one.
    pub conjugation: Option<usize>,
    /// Level of the highest modulus raise, where there is one.
    pub raise: Option<usize>,
}

impl KeySpec {
    /// Products and `rotations` at every level of `parameters`.
    pub fn at_every_level(
        parameters: &Parameters,
        rotations: impl IntoIterator<Item = usize>,
    ) -> Self {
        let level = parameters.levels();
        let rotations = rotations.into_iter().map(|steps| (steps, level)).collect();
        Self { products: Some(level), rotations, ..Self::default() }
    }

    /// The levels of the keys.
    fn levels(&self) -> impl Iterator<Item = usize> + '_ {
        let rotations = self.rotations.iter().map(|(_, level)| level);
        let others = self.conjugation.into_iter().chain(self.raise);
        self.products.into_iter().chain(rotations).chain(others)
    }

    /// # Errors
    /// [`Error::Level`] for a level, [`Error::Slots`] for a rotation that there is not;
    /// [`Error::Bootstrap`] for a raise at a degree below the sparse secret's weight.
    pub(super) fn check(&self, parameters: &Parameters) -> Result<(), Error> {
        let (expected, slots) = (parameters.levels(), parameters.slots());
        if let Some(found) = self.levels().find(|&level| level > expected) {
            return Err(Error::Level { operation: "make evaluation keys", found, expected });
        }
        let degree = parameters.degree();
        if self.raise.is_some() && degree < SPARSE_WEIGHT {
            let why =
                format!("degree {degree} is below {SPARSE_WEIGHT}, the sparse secret's weight");
            return Err(Error::Bootstrap { why });
        }
        if let Some((found, _)) = self.rotations.iter().find(|&(steps, _)| steps >= slots) {
            return Err(Error::Slots { found, slots });
        }
        Ok(())
    }
}
