//! Kinds of operations, and how often there are some.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use hushtable_rlwe::ckks::{Encoder, Split};
use serde::Serialize;

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Kind {
    /// A rotation, or a conjugation, of a ciphertext by itself.
    Rotate,
    /// A mask's digits cut and extended, for many rotations.
    Cut,
    /// A rotation of a ciphertext whose digits are cut, not divided by P yet.
    Hoisted,
    /// A rotation of a map's sum, not divided by P yet.
    Giant,
    /// A division of one polynomial by P.
    Divide,
    /// The divisions, of mask and body by P and the level's prime, that a map ends with.
    Close,
    /// A product of two ciphertexts, relinearised.
    Multiply,
    /// A product of two ciphertexts, relinearised and rescaled at once.
    MultiplyRescale,
    /// A rescaling by itself.
    Rescale,
    /// A product with one diagonal of a map without baby steps.
    Diagonal,
    /// A product with one diagonal of a map with baby steps, over P's primes too.
    DiagonalOverP,
    /// As [`Diagonal`](Self::Diagonal), of a plaintext that repeats and is small for that.
    Repeated,
    /// As [`DiagonalOverP`](Self::DiagonalOverP), of a plaintext that repeats.
    RepeatedOverP,
    /// A product with a number or a plaintext.
    Constant,
    /// A sum of two ciphertexts.
    Add,
    /// A sum with a number or a plaintext.
    AddPart,
    /// A copy of some limbs.
    Copy,
    /// A modulus raised to the level.
    Raise,
    /// A client's ciphertext read.
    Read,
}

impl Kind {
    /// All of them.
    pub const ALL: [Self; 19] = [
        Self::Rotate,
        Self::Cut,
        Self::Hoisted,
        Self::Giant,
        Self::Divide,
        Self::Close,
        Self::Multiply,
        Self::MultiplyRescale,
        Self::Rescale,
        Self::Diagonal,
        Self::DiagonalOverP,
        Self::Repeated,
        Self::RepeatedOverP,
        Self::Constant,
        Self::Add,
        Self::AddPart,
        Self::Copy,
        Self::Raise,
        Self::Read,
    ];

    /// Whether it switches keys or is a diagonal: what most of a circuit's time goes to.
    pub fn is_main(self) -> bool {
        use Kind::*;
        matches!(self, Rotate | Hoisted | Giant | Multiply | MultiplyRescale | Raise)
            || matches!(self, Diagonal | DiagonalOverP | Repeated | RepeatedOverP)
    }
}

/// One kind of operation at one level of a plan.
#[derive(Clone, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Operation {
    /// The layers that it belongs to.
    pub layer: String,
    /// What is done.
    pub kind: Kind,
    /// At which level.
    pub level: usize,
    /// How often.
    pub count: usize,
}

/// A kind of operation at a level, and how often.
pub(in super::super) type Counts = Vec<(Kind, usize, usize)>;

/// Whether plaintexts of so many numbers are held as one run of many.
pub(in super::super) fn is_repeated(degree: usize, values: usize) -> bool {
    Encoder::run(degree, values) >= REPEATED_RUN
}

/// From so many repetitions on, a plaintext is taken to come from caches.
const REPEATED_RUN: usize = 4;

/// The operations of a map with diagonals of `values` numbers by rotations to the left, of each of some
/// ciphertexts; for whoever has the maps themselves.
pub(super) fn transform_operations(
    (degree, values, level): (usize, usize, usize),
    maps: &[(&[usize], Split)],
) -> Counts {
    let Some((_, split)) = maps.first() else { return Vec::new() };
    let is_repeated = is_repeated(degree, values);
    let steps = |steps: &[usize]| split.steps(steps.iter().copied());
    let own: Vec<_> = maps.iter().map(|(own, _)| steps(own)).collect();
    let all: Vec<usize> = maps.iter().flat_map(|(own, _)| own.iter().copied()).collect();
    let sums = steps(&all);
    let again = own.iter().map(|own| own.cuts.saturating_sub(1)).sum::<usize>();
    let babies = own.iter().map(|own| own.babies).sum();
    let of_sums = sums.divisions - sums.cuts.saturating_sub(1);
    vec![
        (diagonal(is_repeated, babies > 0), level, maps.iter().map(|(own, _)| own.len()).sum()),
        (Kind::Cut, level, own.iter().map(|own| own.cuts).sum()),
        (Kind::Hoisted, level, babies),
        (Kind::Giant, level, sums.giants),
        (Kind::Divide, level, of_sums + again),
        (Kind::Close, level, 1),
    ]
}

/// The kind of a map's diagonals.
pub(in super::super) fn diagonal(is_repeated: bool, has_babies: bool) -> Kind {
    match (is_repeated, has_babies) {
        (false, false) => Kind::Diagonal,
        (false, true) => Kind::DiagonalOverP,
        (true, false) => Kind::Repeated,
        (true, true) => Kind::RepeatedOverP,
    }
}

/// A sum of `count` rotations, by doubling.
pub(super) fn fold(all: &mut Counts, level: usize, count: usize) {
    let folds = count.max(1).ilog2() as usize;
    all.extend([(Kind::Rotate, level, folds), (Kind::Add, level, folds)]);
}

/// Operations by layer, those of one kind and level together.
#[derive(Default)]
pub(super) struct Tally {
    /// In the order in which they come up.
    layers: Vec<(String, LayerCounts)>,
}

/// How often, the highest level first.
type LayerCounts = BTreeMap<(Reverse<usize>, Kind), usize>;

impl Tally {
    pub fn extend(
        &mut self,
        layer: &str,
        operations: impl IntoIterator<Item = (Kind, usize, usize)>,
    ) {
        let found = self.layers.iter().position(|(name, _)| name == layer);
        let index = found.unwrap_or_else(|| {
            self.layers.push((layer.to_owned(), BTreeMap::new()));
            self.layers.len() - 1
        });
        let own = &mut self.layers[index].1;
        for (kind, level, count) in operations {
            if count > 0 {
                *own.entry((Reverse(level), kind)).or_default() += count;
            }
        }
    }

    pub fn finish(self) -> Vec<Operation> {
        let of = |(layer, own): (String, LayerCounts)| {
            own.into_iter().map(move |((Reverse(level), kind), count)| Operation {
                layer: layer.clone(),
                kind,
                level,
                count,
            })
        };
        self.layers.into_iter().flat_map(of).collect()
    }
}
