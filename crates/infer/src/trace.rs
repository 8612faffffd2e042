//! The static trace: every homomorphic operation of a circuit, with its level.
//!
//! Levels, scales and rotations depend on the circuit alone, so a run in the clear records just what a
//! run on ciphertexts does.

use hushtable_rlwe::ckks::{Diagonals, Error, Evaluate, Parameters, Split};
use serde::{Deserialize, Serialize};

/// What was done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// Two ciphertexts were added or subtracted.
    Add,
    /// A plaintext was added.
    AddPlain,
    /// A number was added to every slot.
    AddConstant,
    /// A ciphertext was multiplied with a plaintext.
    MultiplyPlain,
    /// Every slot was multiplied with a number.
    MultiplyConstant,
    /// Two ciphertexts were multiplied and the product relinearised.
    Multiply,
    /// A ciphertext was squared and the square relinearised.
    Square,
    /// The level's prime was divided off.
    Rescale,
    /// Limbs were taken off.
    Drop,
    /// A ciphertext was rotated by itself.
    Rotate,
    /// A ciphertext was rotated several times from one decomposition.
    RotateMany,
    /// A linear map was applied to one or more ciphertexts.
    Transform,
    /// A modulus was raised to the level: what a bootstrap restores levels by. Its other operations are
    /// those around it.
    Raise,
    /// Levels were restored, as one operation: in traces of others' circuits.
    Bootstrap,
}

/// One operation, or `count` equal ones in a row.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Operation {
    /// The layer that it belongs to.
    pub layer: String,
    /// What was done.
    pub kind: Kind,
    /// How often, one after the other.
    pub count: usize,
    /// The operands' level: one less than their limbs.
    pub level: usize,
    /// log2 of the scale of the (first) operand.
    pub scale_log2: f64,
    /// Ciphertexts that come in: more than one for a map of several.
    #[serde(default = "one")]
    pub inputs: usize,
    /// Products with a plaintext, for a map: its diagonals, over all inputs.
    #[serde(default)]
    pub diagonals: usize,
    /// Rotations of what comes in, each with a key switch from one decomposition an input.
    #[serde(default)]
    pub baby_rotations: usize,
    /// Rotations of sums, each with a whole key switch.
    #[serde(default)]
    pub giant_rotations: usize,
}

fn one() -> usize {
    1
}

/// A circuit's operations in order, and the parameters that they are at.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Trace {
    /// What was traced.
    pub name: String,
    /// N.
    pub degree: usize,
    /// Levels of a fresh ciphertext.
    pub levels: usize,
    /// Primes of P.
    pub special_limbs: usize,
    /// log2 of the product of all primes that something is published under.
    pub modulus_log2: f64,
    /// In order.
    pub operations: Vec<Operation>,
}

impl Trace {
    /// As JSON, an operation a line.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("numbers and strings")
    }

    /// From JSON.
    ///
    /// # Errors
    /// What `serde_json` says of it.
    pub fn parse(json: &str) -> Result<Self, serde_json::Error> {
        serde_json::from_str(json)
    }

    /// How many operations of a kind there are; a map counts once.
    pub fn count(&self, kind: Kind) -> usize {
        let of_kind = self.operations.iter().filter(|operation| operation.kind == kind);
        of_kind.map(|operation| operation.count).sum()
    }
}

/// An evaluator that records what is asked of another.
pub struct Traced<E> {
    inner: E,
    layer: String,
    operations: Vec<Operation>,
}

/// A map of another evaluator, and what applying it takes.
pub struct TracedMap<T> {
    inner: T,
    steps: Vec<usize>,
    split: Split,
}

impl<E: Evaluate> Traced<E> {
    /// Records what is asked of `inner`.
    pub fn new(inner: E) -> Self {
        Self { inner, layer: String::new(), operations: Vec::new() }
    }

    /// What was recorded.
    pub fn finish(self, name: &str) -> Trace {
        let params = self.inner.parameters();
        Trace {
            name: name.to_owned(),
            degree: params.degree(),
            levels: params.levels(),
            special_limbs: params.special_limbs(),
            modulus_log2: params.lattice().key_ring().modulus_log2(),
            operations: self.operations,
        }
    }

    fn record(&mut self, kind: Kind, x: &E::Ciphertext) -> &mut Operation {
        let (level, scale_log2) = (self.inner.level(x), self.inner.scale(x).log2());
        let operation = Operation {
            layer: self.layer.clone(),
            kind,
            count: 1,
            level,
            scale_log2,
            inputs: 1,
            diagonals: 0,
            baby_rotations: 0,
            giant_rotations: 0,
        };
        match self.operations.last() {
            Some(last) if Operation { count: 1, ..last.clone() } == operation => {}
            _ => self.operations.push(Operation { count: 0, ..operation }),
        }
        let last = self.operations.last_mut().expect("one was pushed, or was there");
        last.count += 1;
        last
    }
}

impl<E: Evaluate> Evaluate for Traced<E> {
    type Ciphertext = E::Ciphertext;
    type Plaintext = E::Plaintext;
    type Transform = TracedMap<E::Transform>;

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
        Ok(TracedMap { inner, steps: map.steps().collect(), split })
    }

    fn add_assign(&mut self, x: &mut Self::Ciphertext, y: &Self::Ciphertext) -> Result<(), Error> {
        self.record(Kind::Add, x);
        self.inner.add_assign(x, y)
    }

    fn sub_assign(&mut self, x: &mut Self::Ciphertext, y: &Self::Ciphertext) -> Result<(), Error> {
        self.record(Kind::Add, x);
        self.inner.sub_assign(x, y)
    }

    fn add_plain(&mut self, x: &mut Self::Ciphertext, y: &Self::Plaintext) -> Result<(), Error> {
        self.record(Kind::AddPlain, x);
        self.inner.add_plain(x, y)
    }

    fn add_constant(&mut self, x: &mut Self::Ciphertext, y: f64) -> Result<(), Error> {
        self.record(Kind::AddConstant, x);
        self.inner.add_constant(x, y)
    }

    fn multiply_plain(
        &mut self,
        x: &mut Self::Ciphertext,
        y: &Self::Plaintext,
    ) -> Result<(), Error> {
        self.record(Kind::MultiplyPlain, x);
        self.inner.multiply_plain(x, y)
    }

    fn multiply_constant(
        &mut self,
        x: &mut Self::Ciphertext,
        y: f64,
        scale: f64,
    ) -> Result<(), Error> {
        self.record(Kind::MultiplyConstant, x);
        self.inner.multiply_constant(x, y, scale)
    }

    fn multiply(
        &mut self,
        x: &Self::Ciphertext,
        y: &Self::Ciphertext,
    ) -> Result<Self::Ciphertext, Error> {
        self.record(Kind::Multiply, x);
        self.inner.multiply(x, y)
    }

    fn square(&mut self, x: &Self::Ciphertext) -> Result<Self::Ciphertext, Error> {
        self.record(Kind::Square, x);
        self.inner.square(x)
    }

    fn rescale(&mut self, x: &mut Self::Ciphertext) -> Result<(), Error> {
        self.record(Kind::Rescale, x);
        self.inner.rescale(x)
    }

    fn drop_to(&mut self, x: &mut Self::Ciphertext, level: usize) -> Result<(), Error> {
        self.record(Kind::Drop, x);
        self.inner.drop_to(x, level)
    }

    fn rotate(&mut self, x: &Self::Ciphertext, steps: usize) -> Result<Self::Ciphertext, Error> {
        self.record(Kind::Rotate, x);
        self.inner.rotate(x, steps)
    }

    fn rotate_many(
        &mut self,
        x: &Self::Ciphertext,
        steps: &[usize],
    ) -> Result<Vec<Self::Ciphertext>, Error> {
        self.record(Kind::RotateMany, x).baby_rotations = steps.len();
        self.inner.rotate_many(x, steps)
    }

    fn transform(
        &mut self,
        maps: &[&Self::Transform],
        xs: &[&Self::Ciphertext],
    ) -> Result<Self::Ciphertext, Error> {
        if let (Some(&x), Some(first)) = (xs.first(), maps.first()) {
            let steps = maps.iter().flat_map(|map| map.steps.iter().copied());
            let giants = first.split.steps(steps).giants;
            let babies = |map: &&Self::Transform| map.split.steps(map.steps.iter().copied()).babies;
            let babies = maps.iter().map(babies).sum();
            let diagonals = maps.iter().map(|map| map.steps.len()).sum();
            let operation = self.record(Kind::Transform, x);
            operation.inputs = maps.len();
            operation.diagonals = diagonals;
            operation.baby_rotations = babies;
            operation.giant_rotations = giants;
        }
        let inner: Vec<_> = maps.iter().map(|map| &map.inner).collect();
        self.inner.transform(&inner, xs)
    }

    // It costs what a rotation does.
    fn conjugate(&mut self, x: &Self::Ciphertext) -> Result<Self::Ciphertext, Error> {
        self.record(Kind::Rotate, x);
        self.inner.conjugate(x)
    }

    fn raise(
        &mut self,
        x: &Self::Ciphertext,
        level: usize,
        range: f64,
    ) -> Result<Self::Ciphertext, Error> {
        self.record(Kind::Raise, x).level = level;
        self.inner.raise(x, level, range)
    }

    // It costs nothing.
    fn weigh(&mut self, x: &mut Self::Ciphertext, factor: f64) -> Result<(), Error> {
        self.inner.weigh(x, factor)
    }
}
