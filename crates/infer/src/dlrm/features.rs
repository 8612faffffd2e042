//! From features to the vectors that are encrypted.

use super::chain::monomials;
use super::digits::Digits;
use super::error::Error;
use super::layout::{Input, Layout, Values, part_sizes};

/// The largest absolute value of a dense feature.
pub const FEATURE_MAX: f32 = 256.0;
/// The least that a plan may hold them to, which normalised features keep to: of a tighter end, that no query comes
/// would tell the server that a feature is beyond it.
pub(super) const FEATURE_LEAST: f32 = 4.0;

/// What a client knows of a model: sizes alone.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Sizes {
    /// Dense features.
    pub dense: usize,
    /// Whether their monomials are sent too.
    pub is_lifted: bool,
    /// By feature: name and digits.
    pub features: Vec<(String, Digits)>,
    /// Users of a ciphertext, and slots of each.
    pub users: usize,
    pub slots: usize,
    /// By dense feature: its largest absolute value, where the plan says.
    pub dense_max: Vec<f32>,
}

impl Sizes {
    /// Values of the dense features that are sent.
    pub fn dense_values(&self) -> usize {
        self.dense + if self.is_lifted { self.dense * (self.dense + 1) / 2 } else { 0 }
    }

    /// The decompositions alone.
    pub fn digits(&self) -> Vec<Digits> {
        self.features.iter().map(|&(_, digits)| digits).collect()
    }

    /// How many users there are features of; checks all of them.
    ///
    /// # Errors
    /// [`Error::Users`], [`Error::Count`], [`Error::Feature`], [`Error::Index`].
    pub fn check(&self, dense: &[f32], indices: &[u64]) -> Result<usize, Error> {
        let found = dense.len() / self.dense;
        if found == 0 || found > self.users {
            return Err(Error::Users { found, users_max: self.users });
        }
        self.check_values(dense, indices)?;
        Ok(found)
    }

    /// Checks the features of any number of users.
    ///
    /// # Errors
    /// [`Error::Count`], [`Error::Feature`], [`Error::Index`].
    pub fn check_values(&self, dense: &[f32], indices: &[u64]) -> Result<(), Error> {
        let found = dense.len() / self.dense;
        if dense.len() != found * self.dense {
            let expected = found * self.dense;
            return Err(Error::Count { what: "dense features", expected, found: dense.len() });
        }
        let count = self.features.len();
        if indices.len() != found * count {
            let (expected, found) = (found * count, indices.len());
            return Err(Error::Count { what: "indices", expected, found });
        }
        for (at, &value) in dense.iter().enumerate() {
            let (user, index) = (at / self.dense, at % self.dense);
            let max = self.dense_max.get(index).copied().unwrap_or(FEATURE_MAX);
            // What is no number is not below either.
            let is_inside = value.abs() <= max;
            if !is_inside {
                return Err(Error::Feature { user, index, value, max });
            }
        }
        for (at, &index) in indices.iter().enumerate() {
            let (user, (name, digits)) = (at / count, &self.features[at % count]);
            let rows = digits.rows();
            if index >= rows {
                return Err(Error::Index { user, feature: name.clone(), index, rows });
            }
        }
        Ok(())
    }

    /// One user's values: dense, and one-hot.
    fn values(&self, dense: &[f32], indices: &[u64]) -> (Vec<f64>, Vec<f64>) {
        let dense: Vec<f64> = dense.iter().map(|&value| f64::from(value)).collect();
        let dense = if self.is_lifted { monomials(&dense) } else { dense };
        let mut onehot = Vec::new();
        for ((_, digits), &index) in self.features.iter().zip(indices) {
            let places = digits.places(index);
            let each = digits.slots() / places.len();
            for (digit, place) in places.into_iter().enumerate() {
                // Every slot is written, so that no address depends on which is 1.
                let rows = digit * each..(digit + 1) * each;
                onehot.extend(rows.map(|row| f64::from(u8::from(row == place))));
            }
        }
        (dense, onehot)
    }

    /// One user's one-hot vectors in parts: of each feature that has any, that of a row inside its group,
    /// and that of the group.
    fn parts(&self, layout: &Layout, indices: &[u64]) -> Vec<f64> {
        let mut parts = Vec::new();
        let sizes = part_sizes(layout, self.slots, &self.digits());
        for (&index, (rows, groups)) in indices.iter().zip(sizes).filter(|(_, own)| own.0 > 0) {
            // Every slot is written, as of whole vectors; a group's rows are a power of two.
            let (row, group) = (index as usize & (rows - 1), index as usize >> rows.ilog2());
            parts.extend((0..rows).map(|own| f64::from(u8::from(own == row))));
            parts.extend((0..groups).map(|own| f64::from(u8::from(own == group))));
        }
        parts
    }

    /// The vectors of an input's ciphertexts, one by one; the features were checked.
    pub fn fill_input<'s>(
        &'s self,
        input: &'s Input,
        dense: &[f32],
        indices: &[u64],
    ) -> impl Iterator<Item = Vec<f64>> + 's {
        let (digits, count) = (self.digits(), self.features.len());
        let of_user = |user: usize| {
            let indices = &indices[user * count..(user + 1) * count];
            match input.values {
                Values::Parts => (Vec::new(), self.parts(&input.layout, indices)),
                _ => self.values(&dense[user * self.dense..(user + 1) * self.dense], indices),
            }
        };
        let all: Vec<_> = (0..dense.len() / self.dense).map(of_user).collect();
        (0..input.ciphertexts).map(move |number| {
            let mut vector = vec![0.0; self.slots * self.users];
            let places = input.places(self.slots, number, &digits);
            for (user, (dense, onehot)) in all.iter().enumerate() {
                let own = vector.iter_mut().skip(user).step_by(self.users);
                for (slot, &place) in own.zip(&places) {
                    let Some(place) = place else { continue };
                    let value = match input.values {
                        Values::Dense => dense.get(place),
                        Values::Onehot | Values::Parts => onehot.get(place),
                        Values::Both if place < dense.len() => dense.get(place),
                        Values::Both => onehot.get(place - dense.len()),
                    };
                    *slot = value.copied().unwrap_or(0.0);
                }
            }
            vector
        })
    }
}
