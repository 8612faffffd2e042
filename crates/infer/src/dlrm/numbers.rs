//! A plan's numbers: what its maps multiply with.

use hushtable_rlwe::ckks::{Diagonals, Error as CkksError};

use super::chain::{Folded, Limit};
use super::digits::Digits;
use super::error::Error;
use super::layout::{Input, Layout, Values, starts};
use super::plan::{EmbeddingPlan, Plan, Turn};
use super::spec::Dlrm;
use super::weights::Weights;

/// A model's numbers in the layout of a plan.
pub(super) struct Numbers {
    plan: Plan,
    digits: Vec<Digits>,
    folded: Folded,
    /// All stored tables' rows, one after the other.
    rows: Vec<f32>,
    /// The join's map of one-hot vectors, outputs × rows, where it is fused.
    fused: Vec<f64>,
}

impl Numbers {
    /// Of the model that `plan` was made for.
    ///
    /// # Errors
    /// [`Error::Plan`] for weights whose chain is another.
    pub fn new(plan: &Plan, weights: &Weights) -> Result<Self, Error> {
        let dlrm = Dlrm::new(plan.model.clone())?;
        let chain = super::chain::Chain::new(&dlrm, weights, plan.chain.is_lifted)?;
        if chain != plan.chain {
            return Err(Error::Plan { why: "its gates are not those of these weights".into() });
        }
        let folded = plan.chain.fold(&dlrm, weights);
        let rows: Vec<f32> = weights.tables.concat();
        let mut fused = Vec::new();
        if !plan.fusion().is_none() && !dlrm.digits().is_empty() {
            fused = fuse(&dlrm, &folded, &rows);
        }
        Ok(Self { plan: plan.clone(), digits: dlrm.digits().to_vec(), folded, rows, fused })
    }

    /// What a link's gate must be given, if the training says so.
    pub fn limit(&self, link: usize) -> Option<Limit> {
        self.folded.limits[link]
    }

    /// A polynomial gate's coefficients.
    pub fn coefficients(&self, link: usize) -> &[f64] {
        &self.folded.coefficients[link]
    }

    /// The map of ciphertext `number` of an input; of parts, that of output ⌊number / babies⌋ of the first
    /// ciphertext as baby step number mod babies rotates it, which is left with the giant steps.
    pub fn input_map(&self, input: usize, number: usize) -> Result<Diagonals, Error> {
        let (slots, turn) = (self.plan.slots(), self.plan.input_turn(input));
        let own = &self.plan.inputs[input];
        if let Layout::Parts { columns, width, .. } = own.layout {
            return self.parts_map(own, [columns, width], turn.baby_steps, number);
        }
        let places = own.places(slots, number, &self.digits);
        match own.layout {
            Layout::Packed { period, copies, .. } => {
                let factor = (slots / period / copies / turn.fold_count) as f64;
                self.turn_map(&turn, slots / copies, |to, from| {
                    let place = places[from % slots];
                    place.map_or(0.0, |place| factor * self.weight(own.values, to % period, place))
                })
            }
            Layout::Lanes { lanes, width, .. } => {
                let dim = self.plan.model.dim;
                self.turn_map(&turn, slots, |to, from| {
                    let value = to / lanes % width;
                    match places[from % slots] {
                        Some(place) if value < dim => f64::from(self.rows[place * dim + value]),
                        _ => 0.0,
                    }
                })
            }
            Layout::Parts { .. } => Err(Error::Plan { why: "its parts are mapped whole".into() }),
        }
    }

    /// See [`input_map`](Self::input_map).
    fn parts_map(
        &self,
        own: &Input,
        [columns, width]: [usize; 2],
        babies: usize,
        number: usize,
    ) -> Result<Diagonals, Error> {
        let (slots, dim) = (self.plan.slots(), self.plan.model.dim);
        let (lanes, height) = (slots / width, slots / columns);
        let starts = starts(self.digits.iter().map(Digits::slots));
        let groups = own.groups(slots, number / babies);
        let weight = |slot: usize, step: usize| {
            let (value, from) = (slot / lanes, (slot / columns + step) % height);
            let Some((feature, group)) = groups[slot].filter(|_| value < dim) else { return 0.0 };
            match group * height + from {
                row if row < self.digits[feature].slots() => {
                    f64::from(self.rows[(starts[feature] + row) * dim + value])
                }
                _ => 0.0,
            }
        };
        let (users, users_log2) = (self.plan.users, self.plan.users.trailing_zeros());
        let mut map = Diagonals::new(self.plan.parameters.degree / 2);
        for giant in (0..height).step_by(babies) {
            let step = giant + number % babies;
            // One closure: of the largest tables these are hundreds of millions of numbers.
            let values = (0..slots * users).map(|slot| weight(slot >> users_log2, step));
            map.insert(giant * columns * users, values.collect()).map_err(Error::from)?;
        }
        Ok(map)
    }

    /// What output `to` of the first link, or of the join, has of an input's value.
    fn weight(&self, values: Values, to: usize, place: usize) -> f64 {
        let first = &self.folded.affines[0];
        let fused = |place: usize| {
            let rows = self.rows.len() / self.plan.model.dim;
            let is_inside = place < rows && to * rows < self.fused.len();
            if is_inside { self.fused[to * rows + place] } else { 0.0 }
        };
        let dense = |place: usize| match self.output(0, to) {
            Some(to) if place < first.inputs && to < first.outputs => first.row(to)[place],
            _ => 0.0,
        };
        match values {
            Values::Dense => dense(place),
            Values::Onehot => fused(place),
            Values::Both if place < first.inputs => dense(place),
            Values::Both => fused(place - first.inputs),
            // They are looked up.
            Values::Parts => 0.0,
        }
    }

    /// The map of a link that is not the first, nor the one after dot products.
    pub fn link_map(&self, link: usize, turn: &Turn) -> Result<Diagonals, Error> {
        let plan = &self.plan.links[link];
        let affine = &self.folded.affines[link];
        self.between(turn, plan.inputs, plan.outputs, |to, from| {
            let to = self.output(link, to)?;
            (to < affine.outputs && from < affine.inputs).then(|| affine.row(to)[from])
        })
    }

    /// The join's map of the embeddings that are looked up in input `input`.
    pub fn lookup_map(&self, turn: &Turn, input: usize) -> Result<Diagonals, Error> {
        let (own, slots) = (&self.plan.inputs[input], self.plan.slots());
        let (Layout::Lanes { width, .. } | Layout::Parts { width, .. }) = own.layout else {
            return Err(Error::Plan { why: "it looks up in no lanes".into() });
        };
        let owners = own.owners(slots);
        let lanes = match own.layout {
            Layout::Lanes { lanes, .. } => lanes,
            _ => slots / width,
        };
        let dim = self.plan.model.dim;
        let outputs = self.plan.links[self.plan.chain.join].outputs;
        let embedding = self.folded.embedding.as_ref();
        self.between(turn, lanes * width, outputs, |to, from| {
            let (embedding, (feature, _)) = (embedding?, owners[from % lanes % owners.len()]?);
            let value = from / lanes;
            let is_inside = value < dim && to < embedding.outputs;
            is_inside.then(|| embedding.row(to)[feature * dim + value])
        })
    }

    /// The map of the bottom perceptron's vector, in lane 0, past dot products.
    pub fn own_map(&self, turn: &Turn) -> Result<Diagonals, Error> {
        let (lanes, width) = self.plan.dot_lanes();
        let link = self.plan.chain.join + 1;
        let affine = &self.folded.affines[link];
        self.between(turn, lanes * width, self.plan.links[link].outputs, |to, from| {
            let value = from / lanes;
            let is_inside = to < affine.outputs && value < self.plan.model.dim;
            (from.is_multiple_of(lanes) && is_inside).then(|| affine.row(to)[value])
        })
    }

    /// The map of the products of lanes t and t + `apart`, summed up in lane t.
    pub fn pair_map(&self, turn: &Turn, apart: usize) -> Result<Diagonals, Error> {
        let (lanes, _) = self.plan.dot_lanes();
        let link = self.plan.chain.join + 1;
        let affine = &self.folded.affines[link];
        let vectors = self.plan.model.features.len() + 1;
        self.between(turn, lanes, self.plan.links[link].outputs, |to, lane| {
            let other = lane + apart;
            let is_inside = to < affine.outputs && other < vectors;
            let pair = self.plan.model.dim + other * other.saturating_sub(1) / 2 + lane;
            is_inside.then(|| affine.row(to)[pair])
        })
    }

    /// A link's bias in the layout of its outputs.
    pub fn bias(&self, link: usize) -> Vec<f64> {
        let bias = &self.folded.affines[link].bias;
        let own = |slot: usize| self.output(link, slot).and_then(|to| bias.get(to)).copied();
        let slots = (0..self.plan.links[link].outputs).map(|slot| own(slot).unwrap_or(0.0));
        slots.flat_map(|value| std::iter::repeat_n(value, self.plan.users)).collect()
    }

    /// Which output slot `slot` of a link's vector is.
    fn output(&self, link: usize, slot: usize) -> Option<usize> {
        if !(self.plan.chain.is_dot && link == self.plan.chain.join) {
            return Some(slot);
        }
        let (lanes, _) = self.plan.dot_lanes();
        slot.is_multiple_of(lanes).then(|| slot / lanes)
    }

    /// A map between vectors of periods, `inputs` to `outputs`, with the fold that `turn` leaves out
    /// made up for.
    fn between(
        &self,
        turn: &Turn,
        inputs: usize,
        outputs: usize,
        weight: impl Fn(usize, usize) -> Option<f64>,
    ) -> Result<Diagonals, Error> {
        let factor = ((inputs / outputs).max(1) / turn.fold_count) as f64;
        self.turn_map(turn, inputs.max(outputs), |to, from| {
            factor * weight(to % outputs, from % inputs).unwrap_or(0.0)
        })
    }

    fn turn_map(
        &self,
        turn: &Turn,
        period: usize,
        weight: impl Fn(usize, usize) -> f64,
    ) -> Result<Diagonals, Error> {
        let users = self.plan.users;
        let mut map = Diagonals::new(self.plan.parameters.degree / 2);
        for step in turn.steps() {
            let mut values = Vec::with_capacity(period * users);
            for slot in 0..period {
                values.extend(std::iter::repeat_n(weight(slot, slot + step), users));
            }
            map.insert(step * users, values).map_err(|error: CkksError| Error::from(error))?;
        }
        Ok(map)
    }

    /// How the lanes' vectors go on.
    pub fn embedding(&self) -> &EmbeddingPlan {
        &self.plan.embedding
    }
}

/// outputs × rows: the join's map of embeddings after the tables.
fn fuse(dlrm: &Dlrm, folded: &Folded, rows: &[f32]) -> Vec<f64> {
    let Some(embedding) = &folded.embedding else { return Vec::new() };
    let dim = dlrm.spec().dim;
    let mut fused = Vec::with_capacity(embedding.outputs * rows.len() / dim);
    for output in 0..embedding.outputs {
        let mut rest = rows.chunks_exact(dim);
        let row = embedding.row(output);
        for (digits, weights) in dlrm.digits().iter().zip(row.chunks_exact(dim)) {
            let product = |values: &[f32]| -> f64 {
                weights.iter().zip(values).map(|(w, &value)| w * f64::from(value)).sum()
            };
            fused.extend(rest.by_ref().take(digits.slots()).map(product));
        }
    }
    fused
}
