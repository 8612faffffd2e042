//! A plan: everything about a circuit but its numbers.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use hushtable_rlwe::ckks::{ParameterSpec, Parameters, Split};
use hushtable_rlwe::ring::Platform;
use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::error::Error;
use super::features::{FEATURE_LEAST, FEATURE_MAX};
use super::gate;
use super::gate::Gate;
use super::layout::{Input, Layout, Values};
use super::spec::{Dlrm, DlrmSpec};

/// A parameter set in a file.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "the fields of a parameter set")]
pub struct ParametersSpec {
    /// The set's name.
    pub name: String,
    /// N.
    pub degree: usize,
    /// q_0, then a prime a level.
    pub moduli: Vec<u64>,
    /// The primes of P.
    pub special_moduli: Vec<u64>,
    /// log2 of the scale.
    pub scale_log2: u32,
}

impl ParametersSpec {
    /// Of a set as the arithmetic has it.
    pub fn of(spec: &ParameterSpec) -> Self {
        let ParameterSpec { name, degree, moduli, special_moduli, scale_log2 } = spec.clone();
        Self { name, degree, moduli, special_moduli, scale_log2 }
    }

    /// Checks the set; one below 128 bits is refused whatever its name.
    ///
    /// # Errors
    /// [`Error::Ckks`], [`Error::Terms`].
    pub fn check(&self, platform: Platform) -> Result<Parameters, Error> {
        let Self { name, degree, moduli, special_moduli, scale_log2 } = self.clone();
        if name.ends_with("_paper") || name.ends_with("_test") {
            let why = format!("the set {name:?} says that it is below 128 bits");
            return Err(Error::Terms { why });
        }
        let spec = ParameterSpec { name, degree, moduli, special_moduli, scale_log2 };
        Ok(Parameters::new(spec, platform)?)
    }
}

/// Whether these can be the largest absolute values of so many dense features: powers of two, none so tight that
/// whether a query comes would tell much.
pub(super) fn is_dense_max(dense_max: &[f32], dense: usize) -> bool {
    let is_power = |end: f32| end.log2().fract() == 0.0;
    let is_end = |&end: &f32| (FEATURE_LEAST..=FEATURE_MAX).contains(&end) && is_power(end);
    dense_max.is_empty() || dense_max.len() == dense && dense_max.iter().all(is_end)
}

/// A linear map between vectors with a period, in rotations and products.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Turn {
    /// How far apart the diagonals are.
    pub step: usize,
    /// How many diagonals: rotations by 0, `step`, 2 `step`, ...
    pub diagonals: usize,
    /// How many of the rotations are baby steps.
    pub baby_steps: usize,
    /// The sum after it: of rotations by 0, `fold_step`, 2 `fold_step`, ...
    pub fold_step: usize,
    /// How many are summed; 1 for none.
    pub fold_count: usize,
}

impl Turn {
    /// The map from a vector of period `inputs` to one of period `outputs`. The last map of a circuit is
    /// not folded: whoever opens the answer reads the mean of the slots.
    pub fn between(inputs: usize, outputs: usize, is_last: bool) -> Self {
        let diagonals = inputs.min(outputs);
        let fold_count = if is_last { 1 } else { (inputs / outputs).max(1) };
        Self { step: 1, diagonals, baby_steps: 1, fold_step: outputs, fold_count }
    }

    /// The map of an input's ciphertexts.
    fn of_input(layout: &Layout, slots: usize, is_last: bool) -> Self {
        match *layout {
            Layout::Packed { period, diagonals } => {
                let fold_count = if is_last { 1 } else { slots / period };
                Self { step: 1, diagonals, baby_steps: 1, fold_step: period, fold_count }
            }
            Layout::Lanes { lanes, width, .. } => {
                let fold_step = lanes * width;
                let fold_count = slots / fold_step;
                Self { step: lanes, diagonals: width, baby_steps: 1, fold_step, fold_count }
            }
        }
    }

    /// How its rotations are split, `users` slots standing for one.
    pub fn split(&self, users: usize) -> Split {
        Split::new(self.baby_steps * self.step * users)
    }

    /// The diagonals' rotations of one user's slots.
    pub fn steps(&self) -> impl Iterator<Item = usize> + use<> {
        let step = self.step;
        (0..self.diagonals).map(move |index| index * step)
    }

    /// The fold's rotations of one user's slots.
    pub fn folds(&self) -> impl Iterator<Item = usize> + use<> {
        let step = self.fold_step;
        (0..self.fold_count.trailing_zeros()).map(move |doubling| step << doubling)
    }

    /// Adds its rotations to those that keys must have, the map's at `level`.
    fn collect(&self, (users, slots): (usize, usize), level: usize, rotations: &mut Rotated) {
        let steps = self.steps().map(|step| step * users);
        let (babies, giants) = self.split(users).rotations(steps);
        babies.into_iter().chain(giants).for_each(|steps| rotate(rotations, steps, level));
        // What is folded was rescaled.
        let folds = self.folds().map(|step| step * users % slots);
        folds.for_each(|steps| rotate(rotations, steps, level - 1));
    }
}

/// Rotations to the left, with the highest level of each.
type Rotated = BTreeMap<usize, usize>;

fn rotate(rotations: &mut Rotated, steps: usize, level: usize) {
    if steps > 0 {
        let most = rotations.entry(steps).or_insert(level);
        *most = level.max(*most);
    }
}

/// How one link is computed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct LinkPlan {
    /// The level of what comes in.
    pub level: usize,
    /// Values in, rounded up to a period; of what the client sends, the slots.
    pub inputs: usize,
    /// Values out, rounded up to a period.
    pub outputs: usize,
    /// The map, of a ciphertext between links; `None` for the first link, whose map is the input's.
    pub turn: Option<Turn>,
}

/// How embeddings get in.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "lowercase", deny_unknown_fields)]
#[non_exhaustive]
pub enum EmbeddingPlan {
    /// There are none, or they are fused with the join and come in the first input.
    Joined,
    /// They are fused with the join: its map is of one-hot vectors.
    Fused,
    /// They are looked up, and the join's map is of embeddings.
    Lookup {
        /// The join's map of the lanes.
        turn: Turn,
    },
    /// They are looked up into the lanes that dot products are taken of.
    Dot {
        /// The map of the bottom perceptron's vector to the link after.
        own: Turn,
        /// The map of each pair's products to the link after.
        pairs: Turn,
    },
}

/// Everything about a circuit but its numbers.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Plan {
    /// 1.
    pub format: u32,
    /// The model's architecture.
    pub model: DlrmSpec,
    /// Its links.
    pub chain: Chain,
    /// The parameter set.
    pub parameters: ParametersSpec,
    /// Users of a ciphertext, a power of two.
    pub users: usize,
    /// What the client sends.
    pub inputs: Vec<Input>,
    /// How embeddings get in.
    pub embedding: EmbeddingPlan,
    /// By link: how it is computed.
    pub links: Vec<LinkPlan>,
    /// By dense feature: the largest absolute value that it can hold, a power of two; none where nobody said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dense_max: Vec<f32>,
}

/// How embeddings are to get in: what a planner chooses from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fusion {
    /// With the dense features, in the first link.
    First,
    /// One-hot vectors are mapped to the join's outputs.
    Join,
    /// One-hot vectors are mapped to embeddings, which another level maps on.
    None,
}

/// Levels that a chain takes with this fusion.
pub fn levels(chain: &Chain, fusion: Fusion) -> usize {
    let gates = chain.links.iter().filter_map(|link| link.gate.as_ref());
    let sum = chain.links.len() + gates.map(gate::depth).sum::<usize>();
    // A lookup in front of the first link takes a level of its own, as dot products do.
    let is_late = fusion == Fusion::None && chain.join == 0 && !chain.is_dot;
    sum + usize::from(is_late) + usize::from(chain.is_dot)
}

impl Plan {
    /// Lays a chain out. Baby steps are all 1: the planner chooses them.
    ///
    /// # Errors
    /// [`Error::Layout`] where slots are too few; [`Error::Depth`] is the planner's.
    pub fn new(
        dlrm: &Dlrm,
        chain: Chain,
        parameters: &ParameterSpec,
        users: usize,
        fusion: Fusion,
    ) -> Result<Self, Error> {
        dlrm.check_single()?;
        let refuse = |why: String| Err(Error::Layout { why });
        let slots = parameters.degree / 2 / users;
        let (digits, dim) = (dlrm.digits(), dlrm.spec().dim);
        let (last, count) = (chain.links.len() - 1, levels(&chain, fusion));
        if parameters.moduli.len() != count + 1 {
            let (moduli, found) = (count + 1, parameters.moduli.len());
            return refuse(format!("{count} levels take {moduli} moduli, the set has {found}"));
        }
        let widest = chain.links.iter().map(|link| link.outputs.next_power_of_two()).max();
        if widest.is_none_or(|widest| widest > slots) || slots == 0 {
            return refuse(format!("a layer of more than the {slots} slots of a user"));
        }
        let has_features = !digits.is_empty();
        let fusion = if has_features { fusion } else { Fusion::First };
        let allowed = match fusion {
            Fusion::First => chain.join == 0 && !chain.is_dot || !has_features,
            Fusion::Join => chain.join > 0 && !chain.is_dot,
            Fusion::None => true,
        };
        if !allowed {
            return refuse("this fusion is of another model".into());
        }
        let is_late = fusion == Fusion::None && chain.join == 0 && !chain.is_dot;
        let mut level = count - usize::from(is_late);
        let mut plan = Self {
            format: FORMAT,
            model: dlrm.spec().clone(),
            parameters: ParametersSpec::of(parameters),
            users,
            inputs: Vec::new(),
            embedding: EmbeddingPlan::Joined,
            links: Vec::new(),
            dense_max: Vec::new(),
            chain,
        };
        for index in 0..=last {
            let link = &plan.chain.links[index];
            let mut outputs = if index == last { 1 } else { link.outputs.next_power_of_two() };
            let is_join = index == plan.chain.join;
            let mut lanes = None;
            if is_join && fusion == Fusion::None {
                let found = match plan.chain.is_dot {
                    true => super::layout::own_lanes(slots, dim, 1, digits),
                    false => super::layout::share_lanes(slots, dim, digits),
                };
                let Some((ciphertexts, layout)) = found else {
                    let found = digits.len();
                    return refuse(format!("{found} embeddings of {dim} in {slots} slots"));
                };
                let Layout::Lanes { lanes: own, width, .. } = layout else {
                    return refuse("lanes that are none".into());
                };
                if plan.chain.is_dot {
                    outputs = own * width;
                }
                lanes = Some(own * width);
                let level = if plan.chain.is_dot { level } else { level + 1 };
                plan.inputs.push(Input { values: Values::Onehot, level, ciphertexts, layout });
            }
            if is_join && fusion == Fusion::Join {
                let count = dlrm.onehot_slots();
                let (ciphertexts, layout) = super::layout::pack_values(slots, count, outputs);
                plan.inputs.push(Input { values: Values::Onehot, level, ciphertexts, layout });
                plan.embedding = EmbeddingPlan::Fused;
            }
            if let Some(period) = lanes.filter(|_| !plan.chain.is_dot) {
                let turn = Turn::between(period, outputs, index == last);
                plan.embedding = EmbeddingPlan::Lookup { turn };
            }
            let mut inputs = slots;
            let mut turn = None;
            if index == 0 {
                let is_both = fusion == Fusion::First && has_features;
                let values = if is_both { Values::Both } else { Values::Dense };
                let count = link.inputs + if is_both { dlrm.onehot_slots() } else { 0 };
                let (ciphertexts, layout) = super::layout::pack_values(slots, count, outputs);
                plan.inputs.insert(0, Input { values, level, ciphertexts, layout });
            } else {
                inputs = link.inputs.next_power_of_two();
                turn = Some(Turn::between(inputs, outputs, index == last));
            }
            if plan.chain.is_dot && index == plan.chain.join + 1 {
                let period = plan.links[index - 1].outputs;
                let (lanes, width) = (period / dim.next_power_of_two(), dim.next_power_of_two());
                debug_assert_eq!(lanes * width, period);
                plan.embedding = EmbeddingPlan::Dot {
                    own: Turn::between(period, outputs, index == last),
                    pairs: Turn::between(lanes, outputs, index == last),
                };
                (inputs, turn) = (period, None);
            }
            plan.links.push(LinkPlan { level, inputs, outputs, turn });
            level -= 1 + link.gate.as_ref().map_or(0, gate::depth);
            level -= usize::from(plan.chain.is_dot && is_join);
        }
        if plan.inputs.iter().any(|input| input.ciphertexts > super::layout::CIPHERTEXTS_MAX) {
            return refuse("too many ciphertexts: lower the threshold".into());
        }
        Ok(plan)
    }

    /// Slots of one user.
    pub fn slots(&self) -> usize {
        self.parameters.degree / 2 / self.users
    }

    /// The map of an input's ciphertexts.
    pub fn input_turn(&self, input: usize) -> Turn {
        let own = &self.inputs[input];
        let is_last = self.links.len() == 1 && matches!(own.layout, Layout::Packed { .. });
        let mut turn = Turn::of_input(&own.layout, self.slots(), is_last);
        turn.baby_steps = match own.ciphertexts {
            1 => baby_steps(turn.diagonals),
            // Sums over all ciphertexts are rotated, not each ciphertext.
            _ => 1,
        };
        turn
    }

    /// All maps but the inputs', with how many ciphertexts each takes.
    fn turns_mut(&mut self) -> Vec<&mut Turn> {
        let links = self.links.iter_mut().filter_map(|link| link.turn.as_mut());
        let own = match &mut self.embedding {
            EmbeddingPlan::Lookup { turn } => vec![turn],
            EmbeddingPlan::Dot { own, .. } => vec![own],
            _ => Vec::new(),
        };
        links.chain(own).collect()
    }

    /// Chooses baby steps: about the root of how many diagonals there are.
    #[must_use]
    pub fn with_baby_steps(mut self) -> Self {
        self.turns_mut().into_iter().for_each(|turn| turn.baby_steps = baby_steps(turn.diagonals));
        self
    }

    /// The rotations that keys must have: steps to the left, and the highest level of each.
    pub fn rotations(&self) -> BTreeMap<usize, usize> {
        let users = self.users;
        let shape = (users, self.parameters.degree / 2);
        let mut rotations = Rotated::new();
        for (index, input) in self.inputs.iter().enumerate() {
            self.input_turn(index).collect(shape, input.level, &mut rotations);
        }
        for link in &self.links {
            if let Some(turn) = &link.turn {
                turn.collect(shape, link.level, &mut rotations);
            }
        }
        match &self.embedding {
            EmbeddingPlan::Lookup { turn } => {
                turn.collect(shape, self.links[self.chain.join].level, &mut rotations);
            }
            EmbeddingPlan::Dot { own, pairs } => {
                let level = self.links[self.chain.join + 1].level;
                own.collect(shape, level, &mut rotations);
                pairs.collect(shape, level, &mut rotations);
                let (lanes, width) = self.dot_lanes();
                for lane in 1..=self.model.features.len() {
                    rotate(&mut rotations, lane * users, level + 1);
                }
                for fold in 0..width.trailing_zeros() {
                    rotate(&mut rotations, (lanes * users) << fold, level);
                }
            }
            _ => {}
        }
        rotations
    }

    /// The level of the highest product of ciphertexts, if there is one.
    pub fn products(&self) -> Option<usize> {
        let gates = self.chain.links.iter().zip(&self.links);
        let mut gates = gates.filter(|(link, _)| link.gate.is_some());
        let gate = gates.next().map(|(_, plan)| plan.level - 1);
        let dot = self.chain.is_dot.then(|| self.links[self.chain.join].level - 1);
        gate.max(dot)
    }

    /// Lanes and values a lane, of the layout that dot products are taken in.
    pub(super) fn dot_lanes(&self) -> (usize, usize) {
        let width = self.model.dim.next_power_of_two();
        (self.links[self.chain.join].outputs / width, width)
    }

    /// The plan as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// Reads a plan that was written by [`to_json`](Self::to_json), and checks that it is what would be
    /// planned of its own model and parameters.
    ///
    /// # Errors
    /// [`Error::Plan`]; [`Error::Spec`] for the model in it.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = |why: String| Error::Plan { why };
        let plan: Self = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if plan.format != FORMAT {
            return Err(wrong(format!("format {}, this build reads {FORMAT}", plan.format)));
        }
        let dlrm = Dlrm::new(plan.model.clone())?;
        let ParametersSpec { name, degree, moduli, special_moduli, scale_log2 } =
            plan.parameters.clone();
        if !degree.is_power_of_two() || !plan.users.is_power_of_two() || plan.users > degree / 2 {
            return Err(wrong("degree and users are powers of two".into()));
        }
        let is_chain = !plan.chain.links.is_empty()
            && plan.chain.links.len() <= 2 * super::spec::LAYERS_MAX
            && plan.chain.join < plan.chain.links.len()
            && plan.chain.is_dot == dlrm.is_dot()
            && (!plan.chain.is_dot || plan.chain.join + 1 < plan.chain.links.len())
            && plan.chain.links.iter().all(|link| {
                (1..=1 << 20).contains(&link.inputs) && (1..=1 << 13).contains(&link.outputs)
            })
            && plan.chain.links.iter().all(|link| link.gate.is_none_or(Gate::is_possible));
        if !is_chain {
            return Err(wrong("its links are of no model".into()));
        }
        let spec = ParameterSpec { name, degree, moduli, special_moduli, scale_log2 };
        let fusion = plan.fusion();
        let again = Self::new(&dlrm, plan.chain.clone(), &spec, plan.users, fusion)?;
        let again = Self { dense_max: plan.dense_max.clone(), ..again.with_baby_steps() };
        if again != plan || !is_dense_max(&plan.dense_max, plan.model.dense) {
            return Err(wrong("its layout is not that of its model".into()));
        }
        Ok(plan)
    }

    /// The fusion that it was made with.
    pub fn fusion(&self) -> Fusion {
        match self.embedding {
            EmbeddingPlan::Joined => Fusion::First,
            EmbeddingPlan::Fused => Fusion::Join,
            _ => Fusion::None,
        }
    }

    /// BLAKE3 of the plan: what keys and queries are for.
    pub fn hash(&self) -> [u8; 32] {
        *blake3::hash(self.to_json().as_bytes()).as_bytes()
    }

    /// The plan in words: set, inputs, links.
    pub fn describe(&self) -> String {
        let mut text = String::new();
        let ParametersSpec { degree, moduli, special_moduli, scale_log2, .. } = &self.parameters;
        let log2 = |primes: &[u64]| primes.iter().map(|&prime| (prime as f64).log2()).sum::<f64>();
        let _ = writeln!(
            text,
            "parameters   N = {degree}, log2 Q = {:.1} in {} primes, log2 P = {:.1} in {}, scale \
             2^{scale_log2}, {} levels, 128 bits",
            log2(moduli),
            moduli.len(),
            log2(special_moduli),
            special_moduli.len(),
            moduli.len() - 1
        );
        let (users, slots) = (self.users, self.slots());
        let _ = writeln!(text, "users        {users} a ciphertext, {slots} slots each");
        for (index, input) in self.inputs.iter().enumerate() {
            let turn = self.input_turn(index);
            let _ = writeln!(
                text,
                "input {index}      {:?} at level {}: {} ciphertexts, {}; {}",
                input.values,
                input.level,
                input.ciphertexts,
                describe_layout(&input.layout),
                describe_turn(&turn)
            );
        }
        for (index, (link, plan)) in self.chain.links.iter().zip(&self.links).enumerate() {
            let _ = write!(
                text,
                "link {index}       {} at level {}: {} -> {}",
                link.name, plan.level, plan.inputs, plan.outputs
            );
            let _ = match &plan.turn {
                Some(turn) => write!(text, "; {}", describe_turn(turn)),
                None => Ok(()),
            };
            if index == self.chain.join {
                let _ = match &self.embedding {
                    EmbeddingPlan::Joined => Ok(()),
                    EmbeddingPlan::Fused => write!(text, "; embeddings fused in"),
                    EmbeddingPlan::Lookup { turn } => {
                        write!(text, "; of embeddings: {}", describe_turn(turn))
                    }
                    EmbeddingPlan::Dot { .. } => {
                        write!(text, "; then {} dot products", self.model.features.len())
                    }
                };
            }
            let _ = match link.gate {
                Some(gate) => writeln!(text, "; then {}", gate::describe(&gate)),
                None => writeln!(text),
            };
        }
        let _ = writeln!(text, "rotations    {}", self.rotations().len());
        text
    }
}

fn describe_layout(layout: &Layout) -> String {
    match layout {
        Layout::Packed { period, diagonals: 1 } => format!("each value in {period} slots"),
        Layout::Packed { period, .. } => format!("packed for {period} outputs"),
        Layout::Lanes { lanes, counts, .. } => {
            format!("{lanes} lanes, {} in use", counts.iter().sum::<usize>())
        }
    }
}

fn describe_turn(turn: &Turn) -> String {
    let giants = turn.diagonals.div_ceil(turn.baby_steps);
    let folds = turn.fold_count.trailing_zeros();
    format!("{} diagonals ({} × {giants}), {folds} folds", turn.diagonals, turn.baby_steps)
}

/// The power of two by the root of `diagonals`: baby steps share one decomposition, so that there may be
/// more of them than of giant steps.
fn baby_steps(diagonals: usize) -> usize {
    let log2 = diagonals.trailing_zeros();
    1 << log2.div_ceil(2)
}

const FORMAT: u32 = 1;
