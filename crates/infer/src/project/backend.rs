//! A machine, as a table of what its operations take.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Why a table or a projection was refused.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Not the JSON that it should be.
    #[error("a table of operations: {0}")]
    Json(#[from] serde_json::Error),
    /// A table that cannot be used.
    #[error("the table {name:?}: {why}")]
    Table {
        /// Its name.
        name: String,
        /// What is wrong and what is possible.
        why: String,
    },
    /// An operation that the table has not.
    #[error("the table {name:?} has no times of {primitive:?}, which the trace needs")]
    Missing {
        /// The table's name.
        name: String,
        /// What is missing.
        primitive: Primitive,
    },
}

/// What times are given of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Primitive {
    /// An addition of any kind.
    Add,
    /// A product with a plaintext, not rescaled.
    MultiplyPlain,
    /// A product of ciphertexts, relinearised, not rescaled.
    Multiply,
    /// A rescaling.
    Rescale,
    /// A rotation by itself.
    Rotate,
    /// One of several rotations of one decomposition, its part of that included.
    HoistedRotate,
    /// A bootstrap.
    Bootstrap,
}

/// A table as it is written down.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Spec {
    /// A short name.
    name: String,
    /// The machine, and the library on it.
    device: String,
    /// Where the figures are from, and how those that are not printed anywhere were got.
    sources: Vec<String>,
    /// N that the times are of.
    degree: usize,
    /// (limbs, milliseconds), limbs rising.
    costs: BTreeMap<Primitive, Vec<(usize, f64)>>,
}

/// A machine whose table was checked.
#[derive(Clone, Debug, PartialEq)]
pub struct Backend(Spec);

impl Backend {
    /// From JSON: `name`, `device`, `sources`, `degree`, and `costs`: for each primitive pairs of
    /// limbs and milliseconds, limbs rising.
    ///
    /// # Errors
    /// [`Error::Json`], [`Error::Table`].
    pub fn parse(json: &str) -> Result<Self, Error> {
        let spec: Spec = serde_json::from_str(json)?;
        let refused = |why: String| Error::Table { name: spec.name.clone(), why };
        if !spec.degree.is_power_of_two() {
            return Err(refused(format!("degree is {}, no power of two", spec.degree)));
        }
        if spec.sources.is_empty() {
            return Err(refused("has no sources: say where its times are from".into()));
        }
        for (primitive, times) in &spec.costs {
            let rises = times.windows(2).all(|pair| pair[0].0 < pair[1].0);
            let is_time = |&(limbs, ms): &(usize, f64)| limbs > 0 && ms.is_finite() && ms > 0.0;
            if times.is_empty() || !rises || !times.iter().all(is_time) {
                let why = "must be pairs of limbs (rising) and milliseconds above zero";
                return Err(refused(format!("{primitive:?} {why}")));
            }
        }
        Ok(Self(spec))
    }

    /// The tables that come along: the paper's CPU, a faster one, a GPU and an ASIC.
    pub fn known() -> Vec<Self> {
        KNOWN.iter().map(|json| Self::parse(json).expect("a test parses each of them")).collect()
    }

    /// A short name.
    pub fn name(&self) -> &str {
        &self.0.name
    }

    /// The machine, and the library on it.
    pub fn device(&self) -> &str {
        &self.0.device
    }

    /// Where the figures are from.
    pub fn sources(&self) -> &[String] {
        &self.0.sources
    }

    /// Milliseconds of one operation at `limbs` limbs: on a line through the nearest two entries, both
    /// taken as logarithms; another degree counts as its N log N.
    ///
    /// # Errors
    /// [`Error::Missing`].
    pub fn ms(&self, primitive: Primitive, degree: usize, limbs: usize) -> Result<f64, Error> {
        let missing = || Error::Missing { name: self.0.name.clone(), primitive };
        let times = self.0.costs.get(&primitive).ok_or_else(missing)?;
        let log = |(limbs, ms): (usize, f64)| ((limbs as f64).ln(), ms.ln());
        let above = times.partition_point(|&(entry, _)| entry < limbs);
        let x = (limbs as f64).ln();
        let ms = match times.len() {
            // One entry: a bootstrap, which has its own limbs whatever comes in.
            1 => times[0].1,
            count => {
                let first = above.saturating_sub(1).min(count - 2);
                let ((x0, y0), (x1, y1)) = (log(times[first]), log(times[first + 1]));
                (y0 + (y1 - y0) * (x - x0) / (x1 - x0)).exp()
            }
        };
        let work = |degree: usize| degree as f64 * (degree as f64).log2();
        Ok(ms * work(degree) / work(self.0.degree))
    }
}

const KNOWN: [&str; 4] = [
    include_str!("../../data/xeon-5218.json"),
    include_str!("../../data/lattigo.json"),
    include_str!("../../data/a100.json"),
    include_str!("../../data/osiris.json"),
];
