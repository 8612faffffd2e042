//! Circuits whose operations are counted as they run, and timed where that is asked for.

use std::collections::BTreeMap;

use hushtable_rlwe::ckks::{Diagonals, Error, Evaluate, Parameters, Split};

use super::clock::thread_ms;
use super::kinds::{Counts, Kind, Operation, Tally, transform_operations};

/// An evaluator that counts, by their [`Kind`], what is asked of another: products that are rescaled at once
/// apart from those that are not, and maps by their parts. Of what was asked in the order in which it was,
/// [`Traced`](crate::trace::Traced) tells.
pub struct Counted<E> {
    inner: E,
    layer: String,
    tally: Tally,
    /// By layer and group, where it is timed.
    spent: Option<BTreeMap<(String, Group), f64>>,
}

/// A map of another evaluator, with what applying it takes.
pub struct CountedMap<T> {
    inner: T,
    steps: Vec<usize>,
    split: Split,
    /// Numbers of the longest diagonal.
    values: usize,
}

/// What is timed together: of a map, its parts are not seen from outside.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
#[non_exhaustive]
pub enum Group {
    /// Linear maps, and rotations of one ciphertext by many.
    Maps,
    /// Rotations by themselves, and raises.
    Rotations,
    /// Products of two ciphertexts.
    Products,
    /// Whatever switches no keys.
    Others,
    /// Ciphertexts read.
    Reads,
}

impl Group {
    /// That of a kind.
    pub fn of(kind: Kind) -> Self {
        match kind {
            Kind::Rotate | Kind::Raise => Self::Rotations,
            Kind::Multiply | Kind::MultiplyRescale => Self::Products,
            Kind::Rescale | Kind::Constant | Kind::Add | Kind::AddPart | Kind::Copy => Self::Others,
            Kind::Read => Self::Reads,
            _ => Self::Maps,
        }
    }
}

/// Milliseconds of a layer's operations of one group.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Spent {
    /// The layer.
    pub layer: String,
    /// What was done.
    pub group: Group,
    /// Milliseconds of this thread.
    pub ms: f64,
}

impl<E: Evaluate> Counted<E> {
    /// Counts what is asked of `inner`.
    pub fn new(inner: E) -> Self {
        Self { inner, layer: String::new(), tally: Tally::default(), spent: None }
    }

    /// As [`new`](Self::new), and times it on this thread.
    pub fn timed(inner: E) -> Self {
        Self { spent: Some(BTreeMap::new()), ..Self::new(inner) }
    }

    /// What was counted: by layer, those of one kind and level together.
    pub fn finish(self) -> Vec<Operation> {
        self.tally.finish()
    }

    /// What was timed since it was asked for last; nothing where it is not timed.
    pub fn take_spent(&mut self) -> Vec<Spent> {
        let own = self.spent.as_mut().map(std::mem::take).unwrap_or_default();
        own.into_iter().map(|((layer, group), ms)| Spent { layer, group, ms }).collect()
    }

    /// Counts `counts` as one call that is timed as of `group`.
    fn counted<T>(
        &mut self,
        group: Group,
        counts: Counts,
        run: impl FnOnce(&mut E) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.tally.extend(&self.layer, counts);
        let Some(spent) = &mut self.spent else { return run(&mut self.inner) };
        let start = thread_ms();
        let out = run(&mut self.inner);
        *spent.entry((self.layer.clone(), group)).or_default() += thread_ms() - start;
        out
    }

    fn one<T>(
        &mut self,
        kind: Kind,
        level: usize,
        run: impl FnOnce(&mut E) -> Result<T, Error>,
    ) -> Result<T, Error> {
        self.counted(Group::of(kind), vec![(kind, level, 1)], run)
    }

    fn transform_counts(
        &self,
        maps: &[&CountedMap<E::Transform>],
        xs: &[&E::Ciphertext],
    ) -> Counts {
        let Some(&x) = xs.first() else { return Vec::new() };
        let values = maps.iter().map(|map| map.values).max().unwrap_or(1);
        let shape = (self.inner.parameters().degree(), values, self.inner.level(x));
        let maps: Vec<_> = maps.iter().map(|map| (map.steps.as_slice(), map.split)).collect();
        transform_operations(shape, &maps)
    }
}

impl<E: Evaluate> Evaluate for Counted<E> {
    type Ciphertext = E::Ciphertext;
    type Plaintext = E::Plaintext;
    type Transform = CountedMap<E::Transform>;

    fn parameters(&self) -> &Parameters {
        self.inner.parameters()
    }

    fn enter(&mut self, layer: &str) {
        self.layer = layer.to_owned();
        self.inner.enter(layer);
    }

    fn level(&self, x: &Self::Ciphertext) -> usize {
        self.inner.level(x)
    }

    fn scale(&self, x: &Self::Ciphertext) -> f64 {
        self.inner.scale(x)
    }

    fn encode(&self, values: &[f64], level: usize, scale: f64) -> Result<Self::Plaintext, Error> {
        self.inner.encode(values, level, scale)
    }

    fn prepare(
        &self,
        map: &Diagonals,
        split: Split,
        level: usize,
        scale: f64,
    ) -> Result<Self::Transform, Error> {
        let inner = self.inner.prepare(map, split, level, scale)?;
        let steps: Vec<usize> = map.steps().collect();
        let lengths = steps.iter().filter_map(|&step| Some(map.diagonal(step)?.len()));
        let values = lengths.max().unwrap_or(1);
        Ok(CountedMap { inner, steps, split, values })
    }

    fn add_assign(&mut self, x: &mut Self::Ciphertext, y: &Self::Ciphertext) -> Result<(), Error> {
        self.one(Kind::Add, self.level(x), |inner| inner.add_assign(x, y))
    }

    fn sub_assign(&mut self, x: &mut Self::Ciphertext, y: &Self::Ciphertext) -> Result<(), Error> {
        self.one(Kind::Add, self.level(x), |inner| inner.sub_assign(x, y))
    }

    fn add_plain(&mut self, x: &mut Self::Ciphertext, y: &Self::Plaintext) -> Result<(), Error> {
        self.one(Kind::AddPart, self.level(x), |inner| inner.add_plain(x, y))
    }

    fn add_constant(&mut self, x: &mut Self::Ciphertext, y: f64) -> Result<(), Error> {
        self.one(Kind::AddPart, self.level(x), |inner| inner.add_constant(x, y))
    }

    fn multiply_plain(
        &mut self,
        x: &mut Self::Ciphertext,
        y: &Self::Plaintext,
    ) -> Result<(), Error> {
        self.one(Kind::Constant, self.level(x), |inner| inner.multiply_plain(x, y))
    }

    fn multiply_constant(
        &mut self,
        x: &mut Self::Ciphertext,
        y: f64,
        scale: f64,
    ) -> Result<(), Error> {
        self.one(Kind::Constant, self.level(x), |inner| inner.multiply_constant(x, y, scale))
    }

    fn multiply(
        &mut self,
        x: &Self::Ciphertext,
        y: &Self::Ciphertext,
    ) -> Result<Self::Ciphertext, Error> {
        self.one(Kind::Multiply, self.level(x), |inner| inner.multiply(x, y))
    }

    fn square(&mut self, x: &Self::Ciphertext) -> Result<Self::Ciphertext, Error> {
        self.one(Kind::Multiply, self.level(x), |inner| inner.square(x))
    }

    fn multiply_rescale(
        &mut self,
        x: &Self::Ciphertext,
        y: &Self::Ciphertext,
    ) -> Result<Self::Ciphertext, Error> {
        self.one(Kind::MultiplyRescale, self.level(x), |inner| inner.multiply_rescale(x, y))
    }

    fn square_rescale(&mut self, x: &Self::Ciphertext) -> Result<Self::Ciphertext, Error> {
        self.one(Kind::MultiplyRescale, self.level(x), |inner| inner.square_rescale(x))
    }

    fn rescale(&mut self, x: &mut Self::Ciphertext) -> Result<(), Error> {
        self.one(Kind::Rescale, self.level(x), |inner| inner.rescale(x))
    }

    // To the level that it has, nothing is done.
    fn drop_to(&mut self, x: &mut Self::Ciphertext, level: usize) -> Result<(), Error> {
        match self.level(x) == level {
            true => self.inner.drop_to(x, level),
            false => self.one(Kind::Copy, level, |inner| inner.drop_to(x, level)),
        }
    }

    fn lowered(&mut self, x: &Self::Ciphertext, level: usize) -> Result<Self::Ciphertext, Error> {
        self.one(Kind::Copy, level, |inner| inner.lowered(x, level))
    }

    fn rotate(&mut self, x: &Self::Ciphertext, steps: usize) -> Result<Self::Ciphertext, Error> {
        let is_rotated = !steps.is_multiple_of(self.parameters().slots());
        let kind = if is_rotated { Kind::Rotate } else { Kind::Copy };
        self.one(kind, self.level(x), |inner| inner.rotate(x, steps))
    }

    fn rotate_many(
        &mut self,
        x: &Self::Ciphertext,
        steps: &[usize],
    ) -> Result<Vec<Self::Ciphertext>, Error> {
        let (level, slots) = (self.level(x), self.parameters().slots());
        let rotated = steps.iter().filter(|steps| !steps.is_multiple_of(slots)).count();
        let counts = vec![
            (Kind::Cut, level, rotated.min(1)),
            (Kind::Hoisted, level, rotated),
            (Kind::Divide, level, 2 * rotated),
            (Kind::Copy, level, steps.len() - rotated),
        ];
        self.counted(Group::Maps, counts, |inner| inner.rotate_many(x, steps))
    }

    fn transform(
        &mut self,
        maps: &[&Self::Transform],
        xs: &[&Self::Ciphertext],
    ) -> Result<Self::Ciphertext, Error> {
        let counts = self.transform_counts(maps, xs);
        let own: Vec<_> = maps.iter().map(|map| &map.inner).collect();
        self.counted(Group::Maps, counts, |inner| inner.transform(&own, xs))
    }

    fn transform_rescale(
        &mut self,
        maps: &[&Self::Transform],
        xs: &[&Self::Ciphertext],
    ) -> Result<Self::Ciphertext, Error> {
        let counts = self.transform_counts(maps, xs);
        let own: Vec<_> = maps.iter().map(|map| &map.inner).collect();
        self.counted(Group::Maps, counts, |inner| inner.transform_rescale(&own, xs))
    }

    // It costs what a rotation does.
    fn conjugate(&mut self, x: &Self::Ciphertext) -> Result<Self::Ciphertext, Error> {
        self.one(Kind::Rotate, self.level(x), |inner| inner.conjugate(x))
    }

    fn raise(
        &mut self,
        x: &Self::Ciphertext,
        level: usize,
        range: f64,
    ) -> Result<Self::Ciphertext, Error> {
        self.one(Kind::Raise, level, |inner| inner.raise(x, level, range))
    }

    // It costs nothing.
    fn weigh(&mut self, x: &mut Self::Ciphertext, factor: f64) -> Result<(), Error> {
        self.inner.weigh(x, factor)
    }

    fn recycle(&mut self, x: Self::Ciphertext) {
        self.inner.recycle(x);
    }
}
