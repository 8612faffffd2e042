//! A plan with its numbers, ready to be computed by one kind of evaluator.

use hushtable_rlwe::ckks::{
    Diagonals, Error as CkksError, Evaluate, Parameters, PreparedBootstrap,
};

use super::chain::Limit;
use super::error::Error;
use super::gate::{self, Prepared};
use super::layout::Layout;
use super::numbers::Numbers;
use super::plan::{EmbeddingPlan, Plan, Turn};
use super::weights::Weights;

/// How many ciphertexts' maps are prepared at a time where they are not all kept.
const CHUNK: usize = 16;

/// A circuit: `T` is a prepared linear map, `P` an encoded vector.
pub struct Compiled<P, T> {
    plan: Plan,
    numbers: Numbers,
    /// By input: each ciphertext's map, or none where they are made at each use.
    inputs: Vec<Vec<T>>,
    links: Vec<Link<P, T>>,
    embedding: Embedding<T>,
    bootstrap: Option<PreparedBootstrap<T>>,
}

struct Link<P, T> {
    map: Option<T>,
    bias: P,
    gate: Option<Prepared>,
}

enum Embedding<T> {
    Simple,
    Lookup(Vec<T>),
    Dot { own: T, pairs: Vec<T> },
}

/// What a gate is about to get.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct Before<'a> {
    /// The layers before it.
    pub layer: &'a str,
    /// The range that it is for, if the training says so.
    pub limit: Option<Limit>,
    /// The period of the vector, in a user's slots.
    pub period: usize,
    /// How many of a period's slots hold values; the others hold what nothing reads.
    pub values: usize,
}

/// Sees what gates get, on the way.
pub type Watch<'w, C> = dyn FnMut(Before<'_>, &C) -> Result<(), Error> + 'w;

impl<P, T> Compiled<P, T> {
    /// Prepares the maps of `plan` for evaluators of the kind of `evaluator`. Maps of an input that would
    /// together take more than `memory_bytes_max` of memory are prepared at each use instead.
    ///
    /// # Errors
    /// [`Error::Plan`] for weights of another model; [`Error::Ckks`] for weights that are too large.
    pub fn new<E>(
        plan: &Plan,
        weights: &Weights,
        evaluator: &E,
        memory_bytes_max: usize,
    ) -> Result<Self, Error>
    where
        E: Evaluate<Plaintext = P, Transform = T>,
    {
        let numbers = Numbers::new(plan, weights)?;
        let parameters = evaluator.parameters().clone();
        let scale = parameters.scale();
        let mut inputs = Vec::new();
        for index in 0..plan.inputs.len() {
            // All or none, which is known before the first is made.
            inputs.push(match fits(plan, &numbers, evaluator, index, memory_bytes_max)? {
                true => {
                    let make = |number| {
                        prepare_input(plan, evaluator, index, &numbers.input_map(index, number)?)
                    };
                    (0..maps_of(plan, index)).map(make).collect::<Result<_, Error>>()?
                }
                false => Vec::new(),
            });
        }
        let mut links = Vec::new();
        // What a link gets has this scale.
        let mut own = scale;
        for (index, (link, planned)) in plan.chain.links.iter().zip(&plan.links).enumerate() {
            let map = match &planned.turn {
                Some(turn) => {
                    let map = numbers.link_map(index, turn)?;
                    let factor = map_scale(&parameters, planned.level, own);
                    Some(evaluator.prepare(&map, turn.split(plan.users), planned.level, factor)?)
                }
                None => None,
            };
            let bias = evaluator.encode(&numbers.bias(index), planned.level - 1, scale)?;
            let gate = match &link.gate {
                Some(gate) => Some(Prepared::new(gate, numbers.coefficients(index))?),
                None => None,
            };
            own = match gate {
                Some(Prepared::Square) => square_scale(&parameters, planned.level - 1),
                _ => scale,
            };
            links.push(Link { map, bias, gate });
        }
        let prepare = |turn: &Turn, map, level, own| {
            let factor = map_scale(&parameters, level, own);
            evaluator.prepare(&map, turn.split(plan.users), level, factor).map_err(Error::from)
        };
        let join = &plan.links[plan.chain.join];
        let embedding = match numbers.embedding() {
            EmbeddingPlan::Lookup { turn } => {
                let map =
                    |(input, _)| prepare(turn, numbers.lookup_map(turn, input)?, join.level, scale);
                Embedding::Lookup(plan.lookups().map(map).collect::<Result<_, _>>()?)
            }
            EmbeddingPlan::Dot { own, pairs } => {
                let level = join.level - 2;
                let products = square_scale(&parameters, join.level - 1);
                let pair = |apart| prepare(pairs, numbers.pair_map(pairs, apart)?, level, products);
                Embedding::Dot {
                    own: prepare(own, numbers.own_map(own)?, level, scale)?,
                    pairs: (1..=plan.model.features.len()).map(pair).collect::<Result<_, _>>()?,
                }
            }
            _ => Embedding::Simple,
        };
        let bootstrap = match &plan.bootstrap {
            Some(own) => Some(own.bootstrap(&parameters)?.prepare(evaluator)?),
            None => None,
        };
        Ok(Self { plan: plan.clone(), numbers, inputs, links, embedding, bootstrap })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Computes: `xs` are the inputs' ciphertexts, one input after the other, each dropped as soon as it was
    /// used. In the mean of a user's slots is the logit.
    ///
    /// # Errors
    /// [`Error::Count`] for another number of ciphertexts, [`Error::Ckks`] for one of another level or
    /// scale, or a rotation that the keys do not have; what `watch` says.
    pub fn run<E>(
        &self,
        evaluator: &mut E,
        xs: Vec<E::Ciphertext>,
        watch: &mut Watch<'_, E::Ciphertext>,
    ) -> Result<E::Ciphertext, Error>
    where
        E: Evaluate<Plaintext = P, Transform = T>,
    {
        let plan = &self.plan;
        let mut xs = self.split(evaluator, xs)?;
        let mut hidden: Option<E::Ciphertext> = None;
        for (index, (link, planned)) in self.links.iter().zip(&plan.links).enumerate() {
            evaluator.enter(&plan.chain.links[index].name);
            let mut x = match (&link.map, hidden.take()) {
                (Some(map), Some(hidden)) => {
                    let mut x = evaluator.transform_rescale(&[map], &[&hidden])?;
                    evaluator.recycle(hidden);
                    if let Some(turn) = &planned.turn {
                        fold(evaluator, turn, plan.users, &mut x)?;
                    }
                    x
                }
                (None, Some(hidden)) => self.dot(evaluator, hidden)?,
                _ => self.input(evaluator, 0, &std::mem::take(&mut xs[0]))?,
            };
            if index == plan.chain.join && xs.len() > 1 {
                evaluator.enter("embeddings");
                let mut all = Vec::with_capacity(xs.len() - 1);
                for (input, own) in xs.iter_mut().enumerate().skip(1) {
                    all.push(self.input(evaluator, input, &std::mem::take(own))?);
                }
                let looked_up = match (&self.embedding, &plan.embedding) {
                    (Embedding::Lookup(maps), EmbeddingPlan::Lookup { turn }) => {
                        let (maps, all): (Vec<_>, Vec<_>) =
                            (maps.iter().collect(), all.iter().collect());
                        let mut found = evaluator.transform_rescale(&maps, &all)?;
                        fold(evaluator, turn, plan.users, &mut found)?;
                        found
                    }
                    _ => all.swap_remove(0),
                };
                evaluator.enter(&plan.chain.links[index].name);
                evaluator.add_assign(&mut x, &looked_up)?;
            }
            evaluator.add_plain(&mut x, &link.bias)?;
            let own = &plan.chain.links[index];
            if let (Some(gate), Some(kind)) = (&link.gate, &own.gate) {
                let (limit, period) = (self.numbers.limit(index), planned.outputs);
                watch(Before { layer: &own.name, limit, period, values: own.outputs }, &x)?;
                if let (Some(bootstrap), Some(level)) = (&self.bootstrap, planned.restored) {
                    evaluator.enter(&format!("{}, bootstrapped", own.name));
                    let mut restored = bootstrap.run(evaluator, &x)?;
                    evaluator.drop_to(&mut restored, level)?;
                    evaluator.recycle(std::mem::replace(&mut x, restored));
                    evaluator.enter(&own.name);
                }
                let scale = evaluator.parameters().scale();
                x = gate.evaluate(evaluator, &x, gate::depth(kind), scale)?;
            }
            hidden = Some(x);
        }
        hidden.ok_or_else(|| Error::Plan { why: "it has no links".into() })
    }

    /// The ciphertexts of each input, checked.
    fn split<E: Evaluate>(
        &self,
        evaluator: &E,
        xs: Vec<E::Ciphertext>,
    ) -> Result<Vec<Vec<E::Ciphertext>>, Error> {
        let expected = self.plan.inputs.iter().map(|input| input.ciphertexts).sum();
        if xs.len() != expected {
            return Err(Error::Count { what: "ciphertexts", expected, found: xs.len() });
        }
        let (mut rest, mut split) = (xs.into_iter(), Vec::new());
        let scale = evaluator.parameters().scale();
        for input in &self.plan.inputs {
            let own: Vec<_> = rest.by_ref().take(input.ciphertexts).collect();
            for (x, expected) in own.iter().zip(input.levels()) {
                let operation = "read an input";
                let found = evaluator.level(x);
                if found != expected {
                    return Err(CkksError::Level { operation, found, expected }.into());
                }
                let found = evaluator.scale(x);
                let is_same = (found / scale - 1.0).abs() <= 2f64.powi(-20);
                if !is_same {
                    let (found, expected) = (found.log2(), scale.log2());
                    return Err(CkksError::Scale { operation, found, expected }.into());
                }
            }
            split.push(own);
        }
        Ok(split)
    }

    /// What an input's maps make of its ciphertexts.
    fn input<E>(
        &self,
        evaluator: &mut E,
        input: usize,
        xs: &[E::Ciphertext],
    ) -> Result<E::Ciphertext, Error>
    where
        E: Evaluate<Plaintext = P, Transform = T>,
    {
        let xs: Vec<&E::Ciphertext> = xs.iter().collect();
        if let Layout::Parts { columns, .. } = self.plan.inputs[input].layout {
            return self.parts(evaluator, input, columns, &xs);
        }
        let mut sum = self.maps(evaluator, input, 0, &xs)?;
        fold(evaluator, &self.plan.input_turn(input), self.plan.users, &mut sum)?;
        Ok(sum)
    }

    /// The sum of what an input's maps from `first` on make of ciphertexts, one each, rescaled.
    fn maps<E>(
        &self,
        evaluator: &mut E,
        input: usize,
        first: usize,
        xs: &[&E::Ciphertext],
    ) -> Result<E::Ciphertext, Error>
    where
        E: Evaluate<Plaintext = P, Transform = T>,
    {
        if let Some(maps) = self.inputs[input].get(first..first + xs.len()) {
            return Ok(evaluator.transform_rescale(&maps.iter().collect::<Vec<_>>(), xs)?);
        }
        let mut sum: Option<E::Ciphertext> = None;
        for (chunk, xs) in xs.chunks(CHUNK).enumerate() {
            let numbers = first + chunk * CHUNK..first + chunk * CHUNK + xs.len();
            let map = |number| {
                let map = self.numbers.input_map(input, number)?;
                prepare_input(&self.plan, evaluator, input, &map)
            };
            let maps = numbers.map(map).collect::<Result<Vec<T>, Error>>()?;
            let part = evaluator.transform(&maps.iter().collect::<Vec<_>>(), xs)?;
            match &mut sum {
                Some(sum) => evaluator.add_assign(sum, &part)?,
                None => sum = Some(part),
            }
        }
        let mut sum = sum.ok_or_else(|| Error::Plan { why: "an input is empty".into() })?;
        evaluator.rescale(&mut sum)?;
        Ok(sum)
    }

    /// What is looked up by parts: in each group of rows the one that the first ciphertext says, and of
    /// that the group that the others say.
    fn parts<E>(
        &self,
        evaluator: &mut E,
        input: usize,
        columns: usize,
        xs: &[&E::Ciphertext],
    ) -> Result<E::Ciphertext, Error>
    where
        E: Evaluate<Plaintext = P, Transform = T>,
    {
        let empty = || Error::Plan { why: "an input is empty".into() };
        let (&row, groups) = xs.split_first().ok_or_else(empty)?;
        let babies = self.plan.input_turn(input).baby_steps;
        let steps: Vec<usize> = (1..babies).map(|baby| baby * columns * self.plan.users).collect();
        let rotated = evaluator.rotate_many(row, &steps)?;
        let rows: Vec<&E::Ciphertext> = std::iter::once(row).chain(&rotated).collect();
        let mut sum: Option<E::Ciphertext> = None;
        for (output, &group) in groups.iter().enumerate() {
            let found = self.maps(evaluator, input, output * babies, &rows)?;
            let kept = evaluator.multiply_rescale(&found, group)?;
            evaluator.recycle(found);
            match &mut sum {
                Some(sum) => evaluator.add_assign(sum, &kept)?,
                None => sum = Some(kept),
            }
        }
        rotated.into_iter().for_each(|x| evaluator.recycle(x));
        sum.ok_or_else(empty)
    }

    /// Dot products of each pair of lanes, and the link after them.
    fn dot<E>(&self, evaluator: &mut E, lanes: E::Ciphertext) -> Result<E::Ciphertext, Error>
    where
        E: Evaluate<Plaintext = P, Transform = T>,
    {
        let (Embedding::Dot { own, pairs }, EmbeddingPlan::Dot { own: turn, pairs: pairs_turn }) =
            (&self.embedding, &self.plan.embedding)
        else {
            return Err(Error::Plan { why: "a link has no map".into() });
        };
        let users = self.plan.users;
        let (count, width) = self.plan.dot_lanes();
        let steps: Vec<usize> = (1..=pairs.len()).map(|apart| apart * users).collect();
        let mut products = Vec::new();
        for rotated in evaluator.rotate_many(&lanes, &steps)? {
            let mut product = evaluator.multiply_rescale(&lanes, &rotated)?;
            evaluator.fold(&mut product, count * users, width)?;
            products.push(product);
        }
        let maps: Vec<&T> = pairs.iter().collect();
        let products: Vec<&E::Ciphertext> = products.iter().collect();
        let mut out = evaluator.transform_rescale(&maps, &products)?;
        fold(evaluator, pairs_turn, users, &mut out)?;
        let mut lanes = lanes;
        let level = evaluator.level(&lanes) - 1;
        evaluator.drop_to(&mut lanes, level)?;
        let mut bottom = evaluator.transform_rescale(&[own], &[&lanes])?;
        fold(evaluator, turn, users, &mut bottom)?;
        evaluator.add_assign(&mut out, &bottom)?;
        Ok(out)
    }
}

fn fold<E: Evaluate>(
    evaluator: &mut E,
    turn: &Turn,
    users: usize,
    x: &mut E::Ciphertext,
) -> Result<(), Error> {
    if turn.fold_count > 1 {
        evaluator.fold(x, turn.fold_step * users, turn.fold_count)?;
    }
    Ok(())
}

/// Whether all maps of input `input` take no more than `memory_bytes_max` of memory.
fn fits<E: Evaluate>(
    plan: &Plan,
    numbers: &Numbers,
    evaluator: &E,
    input: usize,
    memory_bytes_max: usize,
) -> Result<bool, Error> {
    let (own, split) = (&plan.inputs[input], plan.input_turn(input).split(plan.users));
    let mut room = memory_bytes_max;
    for number in 0..maps_of(plan, input) {
        let bytes =
            evaluator.prepared_bytes(&numbers.input_map(input, number)?, split, own.level)?;
        let Some(rest) = room.checked_sub(bytes) else { return Ok(false) };
        room = rest;
    }
    Ok(true)
}

/// How many maps input `input` has: one a ciphertext; of parts, one for each output and baby step.
fn maps_of(plan: &Plan, input: usize) -> usize {
    let own = &plan.inputs[input];
    match own.layout {
        Layout::Parts { .. } => (own.ciphertexts - 1) * plan.input_turn(input).baby_steps,
        _ => own.ciphertexts,
    }
}

/// Prepares `map`, one of those of input `input`.
fn prepare_input<E: Evaluate>(
    plan: &Plan,
    evaluator: &E,
    input: usize,
    map: &Diagonals,
) -> Result<E::Transform, Error> {
    let (level, split) = (plan.inputs[input].level, plan.input_turn(input).split(plan.users));
    let parameters = evaluator.parameters();
    let mut factor = map_scale(parameters, level, parameters.scale());
    if let Layout::Parts { .. } = plan.inputs[input].layout {
        // The product with the groups is to have the set's scale when it is rescaled.
        factor *= parameters.modulus(level - 1).value() as f64 / parameters.scale();
    }
    Ok(evaluator.prepare(map, split, level, factor)?)
}

/// The scale of a map at `level` that brings a vector from scale `from` to the set's when rescaled.
fn map_scale(parameters: &Parameters, level: usize, from: f64) -> f64 {
    parameters.modulus(level).value() as f64 * parameters.scale() / from
}

/// The scale of a rescaled square at `level`.
fn square_scale(parameters: &Parameters, level: usize) -> f64 {
    parameters.scale() * parameters.scale() / parameters.modulus(level).value() as f64
}
