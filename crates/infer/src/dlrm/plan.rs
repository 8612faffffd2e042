//! A plan: everything about a circuit but its numbers.

use std::collections::BTreeMap;

use hushtable_rlwe::ckks::{KeySpec, ParameterSpec, Parameters};
use hushtable_rlwe::ring::Platform;
use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::error::Error;
use super::features::{FEATURE_LEAST, FEATURE_MAX};
use super::gate;
use super::layout::{Input, Layout, Values};
pub use super::restore::{BootstrapMap, BootstrapPlan};
use super::spec::{Dlrm, DlrmSpec};
use super::turn::{Map, Rotated, baby_steps, rotate};
pub use super::turn::{Turn, TurnSplit};

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
    /// The level at which the gate gets what a bootstrap made of the map's image; `None` where there is
    /// none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restored: Option<usize>,
}

impl LinkPlan {
    /// The level of what the gate gets.
    pub fn gate_level(&self) -> usize {
        self.restored.unwrap_or(self.level - 1)
    }
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
    /// 3, or 4 with one-hot vectors in parts; 1 in plans from before there were `input_splits`, 2 before
    /// there were bootstraps.
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
    /// By input: how its map's diagonals are split; none where as [`with_baby_steps`](Self::with_baby_steps)
    /// does.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub input_splits: Vec<TurnSplit>,
    /// How embeddings get in.
    pub embedding: EmbeddingPlan,
    /// By link: how it is computed.
    pub links: Vec<LinkPlan>,
    /// What restores levels, where some link's is [`restored`](LinkPlan::restored).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bootstrap: Option<BootstrapPlan>,
    /// By dense feature: the largest absolute value that it can hold, a power of two; none where nobody said.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub dense_max: Vec<f32>,
}

/// The bootstraps of a plan that is to be made.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Restored {
    pub bootstrap: BootstrapPlan,
    /// By link: whether there is one before its gate.
    pub before: Vec<bool>,
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
    /// As none, with the one-hot vectors of the largest tables in parts.
    Parts {
        /// How many tables.
        features: usize,
        /// How many columns they share.
        columns: usize,
    },
}

impl Fusion {
    /// Whether embeddings are looked up.
    pub(super) fn is_none(self) -> bool {
        matches!(self, Self::None | Self::Parts { .. })
    }
}

/// Levels that a chain takes with this fusion.
pub fn levels(chain: &Chain, fusion: Fusion) -> usize {
    let own = link_levels(chain, None);
    own[0].0.max(own[chain.join].0 + lookup_levels(chain, fusion))
}

/// Levels that a lookup takes in front of the join.
fn lookup_levels(chain: &Chain, fusion: Fusion) -> usize {
    match fusion {
        Fusion::None if !chain.is_dot => 1,
        Fusion::Parts { .. } => 2,
        _ => 0,
    }
}

/// By link: the level of what comes in, and that which is restored before its gate. What comes out at last
/// is of level 0, and what is bootstrapped of the level that its maps start at.
pub(super) fn link_levels(
    chain: &Chain,
    restored: Option<&Restored>,
) -> Vec<(usize, Option<usize>)> {
    let (mut levels, mut after) = (Vec::with_capacity(chain.links.len()), 0);
    for (index, link) in chain.links.iter().enumerate().rev() {
        // Dot products take a level after their link.
        let is_dot = chain.is_dot && index == chain.join;
        let gate = after + usize::from(is_dot) + link.gate.as_ref().map_or(0, gate::depth);
        let own = restored.filter(|restored| restored.before.get(index) == Some(&true));
        let before = own.map_or(gate, |own| own.bootstrap.to_coefficients);
        after = before.saturating_add(1);
        levels.push((after, own.map(|_| gate)));
    }
    levels.reverse();
    levels
}

impl Plan {
    /// Lays a chain out. Baby steps are all 1, but for the inputs': the planner chooses splits.
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
        Self::with_restored(dlrm, chain, parameters, users, fusion, None)
    }

    /// As [`new`](Self::new), with bootstraps.
    pub(super) fn with_restored(
        dlrm: &Dlrm,
        chain: Chain,
        parameters: &ParameterSpec,
        users: usize,
        fusion: Fusion,
        restored: Option<&Restored>,
    ) -> Result<Self, Error> {
        dlrm.check_single()?;
        let refuse = |why: String| Err(Error::Layout { why });
        let slots = parameters.degree / 2 / users;
        let (digits, dim) = (dlrm.digits(), dlrm.spec().dim);
        let (last, own_levels) = (chain.links.len() - 1, link_levels(&chain, restored));
        if let Some(restored) = restored {
            restored.check(&chain, &own_levels, parameters, users)?;
        } else if parameters.moduli.len() != levels(&chain, fusion) + 1 {
            let (count, found) = (levels(&chain, fusion), parameters.moduli.len());
            let moduli = count + 1;
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
            Fusion::Parts { .. } => !chain.is_dot && has_features,
        };
        if !allowed {
            return refuse("this fusion is of another model".into());
        }
        let mut plan = Self {
            format: if matches!(fusion, Fusion::Parts { .. }) { FORMAT } else { WHOLE },
            model: dlrm.spec().clone(),
            parameters: ParametersSpec::of(parameters),
            users,
            inputs: Vec::new(),
            input_splits: Vec::new(),
            embedding: EmbeddingPlan::Joined,
            links: Vec::new(),
            bootstrap: restored.map(|restored| restored.bootstrap.clone()),
            dense_max: Vec::new(),
            chain,
        };
        for (index, (level, restored)) in own_levels.into_iter().enumerate() {
            let link = &plan.chain.links[index];
            let mut outputs = if index == last { 1 } else { link.outputs.next_power_of_two() };
            let is_join = index == plan.chain.join;
            let mut lanes = None;
            let mut parts = None;
            if let (true, Fusion::Parts { features, columns }) = (is_join, fusion) {
                let found = super::layout::share_columns(slots, dim, digits, features, columns);
                let Some((ciphertexts, layout)) = found else {
                    return refuse(format!(
                        "{features} features in {columns} columns of {slots} slots"
                    ));
                };
                let output = plan.bootstrap.as_ref().map(BootstrapPlan::output);
                // Above, primes are longer than scales, and the parts' product would be of such a level.
                if output.is_some_and(|output| level + 1 > output) {
                    return refuse(format!("a product at level {}", level + 1));
                }
                lanes = Some(slots);
                let level = level + 2;
                parts = Some(Input { values: Values::Parts, level, ciphertexts, layout });
            }
            let is_whole =
                parts.is_none() || parts.as_ref().is_some_and(|own| !own.layout.is_all());
            if is_join && fusion.is_none() && is_whole {
                let beside = parts.as_ref().map(|parts| &parts.layout);
                let found = match plan.chain.is_dot {
                    true => super::layout::own_lanes(slots, dim, 1, digits),
                    false => super::layout::share_lanes(slots, dim, digits, beside),
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
            plan.inputs.extend(parts);
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
            plan.links.push(LinkPlan { level, inputs, outputs, turn, restored });
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
        let turn = Turn::of_input(&own.layout, self.slots(), is_last);
        let by_root = || {
            TurnSplit::new(match own.ciphertexts {
                _ if matches!(own.layout, Layout::Parts { .. }) => baby_steps(turn.diagonals),
                1 => baby_steps(turn.diagonals),
                // Sums over all ciphertexts are rotated, not each ciphertext.
                _ => 1,
            })
        };
        turn.with(self.input_splits.get(input).copied().unwrap_or_else(by_root))
    }

    /// The inputs that are looked up into lanes, which the join's map takes together.
    pub(super) fn lookups(&self) -> impl Iterator<Item = (usize, &Input)> {
        let own = self.inputs.iter().enumerate();
        own.filter(|(_, input)| !matches!(input.layout, Layout::Packed { .. }))
    }

    /// All maps: the inputs', the links', those of embeddings.
    pub(super) fn maps(&self) -> Vec<Map> {
        let inputs = self.inputs.iter().enumerate().map(|(index, input)| Map {
            turn: self.input_turn(index),
            level: input.level,
            ciphertexts: match input.layout {
                Layout::Parts { .. } => 1,
                _ => input.ciphertexts,
            },
            period: match input.layout {
                Layout::Packed { copies, .. } => self.slots() / copies,
                Layout::Lanes { .. } | Layout::Parts { .. } => self.slots(),
            },
            outputs: match input.layout {
                Layout::Parts { .. } => Some(input.ciphertexts - 1),
                _ => None,
            },
        });
        let of = |turn: Turn, level: usize, ciphertexts: usize, [inputs, outputs]: [usize; 2]| {
            Map { turn, level, ciphertexts, period: inputs.max(outputs), outputs: None }
        };
        let links = self
            .links
            .iter()
            .filter_map(|link| Some(of(link.turn?, link.level, 1, [link.inputs, link.outputs])));
        let join = self.chain.join;
        let own = match self.embedding {
            EmbeddingPlan::Lookup { turn } => {
                let link = &self.links[join];
                // It may be that of a plan from outside.
                let inputs = turn.diagonals.saturating_mul(turn.fold_count);
                vec![of(turn, link.level, self.lookups().count(), [inputs, link.outputs])]
            }
            EmbeddingPlan::Dot { own, pairs } => {
                let (link, count) = (&self.links[join + 1], self.model.features.len());
                let (inputs, lanes) = (self.links[join].outputs, self.dot_lanes().0);
                vec![
                    of(own, link.level, 1, [inputs, link.outputs]),
                    of(pairs, link.level, count, [lanes, link.outputs]),
                ]
            }
            _ => Vec::new(),
        };
        inputs.chain(links).chain(own).collect()
    }

    /// Puts the splits of all maps, in the order of [`maps`](Self::maps).
    pub(super) fn set_splits(&mut self, splits: &[TurnSplit]) {
        let (inputs, rest) = splits.split_at(self.inputs.len());
        self.input_splits = inputs.to_vec();
        let links = self.links.iter_mut().filter_map(|link| link.turn.as_mut());
        let own = match &mut self.embedding {
            EmbeddingPlan::Lookup { turn } => vec![turn],
            EmbeddingPlan::Dot { own, pairs } => vec![own, pairs],
            _ => Vec::new(),
        };
        links.chain(own).zip(rest).for_each(|(turn, &split)| *turn = turn.with(split));
    }

    /// Chooses baby steps by the count of diagonals alone: about its root.
    #[must_use]
    pub fn with_baby_steps(mut self) -> Self {
        let own = |map: &Map| match map.ciphertexts {
            1 => TurnSplit::new(baby_steps(map.turn.diagonals)),
            _ => TurnSplit::new(1),
        };
        let splits: Vec<_> = self.maps().iter().map(own).collect();
        self.set_splits(&splits);
        self.input_splits.clear();
        self
    }

    /// The rotations that keys must have: steps to the left, and the highest level of each.
    pub fn rotations(&self) -> BTreeMap<usize, usize> {
        let mut rotations = self.fixed_rotations();
        for map in self.maps() {
            let own = map.turn.rotations(self.users);
            own.into_iter().for_each(|steps| rotate(&mut rotations, steps, map.level));
        }
        rotations
    }

    /// Those of the rotations that no split changes.
    pub(super) fn fixed_rotations(&self) -> BTreeMap<usize, usize> {
        let users = self.users;
        let mut rotations = Rotated::new();
        for &(steps, level) in self.bootstrap.iter().flat_map(|own| &own.rotations) {
            rotate(&mut rotations, steps, level);
        }
        let shape = (users, self.parameters.degree / 2);
        for map in self.maps() {
            map.turn.collect_folds(shape, map.level, &mut rotations);
        }
        if let EmbeddingPlan::Dot { .. } = self.embedding {
            let level = self.links[self.chain.join + 1].level;
            let (lanes, width) = self.dot_lanes();
            for lane in 1..=self.model.features.len() {
                rotate(&mut rotations, lane * users, level + 1);
            }
            for fold in 0..width.trailing_zeros() {
                rotate(&mut rotations, (lanes * users) << fold, level);
            }
        }
        rotations
    }

    /// The level of the highest product of ciphertexts, if there is one.
    pub fn products(&self) -> Option<usize> {
        let gates = self.chain.links.iter().zip(&self.links);
        let gates = gates.filter(|(link, _)| link.gate.is_some());
        let gate = gates.map(|(_, plan)| plan.gate_level()).max();
        let dot = self.chain.is_dot.then(|| self.links[self.chain.join].level - 1);
        let parts = self.inputs.iter().find(|input| input.values == Values::Parts);
        let parts = parts.map(|input| input.level_of(1));
        gate.max(dot).max(parts).max(self.reduced_from())
    }

    /// How many bootstraps there are.
    pub fn bootstraps(&self) -> usize {
        self.links.iter().filter(|link| link.restored.is_some()).count()
    }

    /// The level that bootstraps reduce at, and conjugate.
    fn reduced_from(&self) -> Option<usize> {
        let own = self.bootstrap.as_ref()?;
        Some(own.levels(&self.parameters).reduced_from())
    }

    /// The keys that its circuit takes, each with the highest level that it is used at.
    pub fn key_spec(&self) -> KeySpec {
        KeySpec {
            products: self.products(),
            rotations: self.rotations().into_iter().collect(),
            conjugation: self.reduced_from(),
            raise: self.bootstrap.as_ref().map(|own| own.levels(&self.parameters).top()),
        }
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
        // The format first: what a plan of another one says may not be what it means here.
        let Version { format } =
            serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
        if !FORMATS.contains(&format) {
            let (first, last) = (FORMATS.start(), FORMATS.end());
            return Err(wrong(format!("format {format}, this build reads {first} to {last}")));
        }
        let plan: Self = serde_json::from_str(text).map_err(|error| wrong(error.to_string()))?;
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
            && plan
                .chain
                .links
                .iter()
                .all(|link| link.gate.is_none_or(|gate| gate.is_possible(dlrm.spec())));
        if !is_chain {
            return Err(wrong("its links are of no model".into()));
        }
        let spec = ParameterSpec { name, degree, moduli, special_moduli, scale_log2 };
        let fusion = plan.fusion();
        let restored = plan.restored()?;
        let (chain, users) = (plan.chain.clone(), plan.users);
        let restored = restored.as_ref();
        let mut again = Self::with_restored(&dlrm, chain, &spec, users, fusion, restored)?;
        again.format = format;
        again.dense_max.clone_from(&plan.dense_max);
        // Packings and splits are the planner's choice, among those that there are.
        for (made, own) in again.inputs.iter_mut().zip(&plan.inputs) {
            let is_packed = |input: &Input| match input.layout {
                Layout::Packed { period, .. } => Some((period, input.ciphertexts)),
                Layout::Lanes { .. } | Layout::Parts { .. } => None,
            };
            if is_packed(own).is_some() && is_packed(own) == is_packed(made) {
                own.check(plan.slots(), plan.chain.links[0].inputs, dlrm.digits())?;
                made.layout.clone_from(&own.layout);
            }
        }
        let kind = std::mem::discriminant(&again.embedding);
        if again.inputs != plan.inputs
            || again.links.len() != plan.links.len()
            || kind != std::mem::discriminant(&plan.embedding)
        {
            return Err(wrong("its layout is not that of its model".into()));
        }
        let (own, made) = (plan.maps(), again.maps());
        let is_split = |(own, made): (&Map, &Map)| {
            own.turn.with(made.turn.own_split()) == made.turn
                && made.splits().any(|split| split == own.turn.own_split())
        };
        if own.len() == made.len() && own.iter().zip(&made).all(is_split) {
            let splits: Vec<_> = own.iter().map(|map| map.turn.own_split()).collect();
            again.set_splits(&splits);
        }
        if plan.input_splits.is_empty() {
            again.input_splits.clear();
        }
        let is_new = format < FORMAT && matches!(fusion, Fusion::Parts { .. });
        if is_new || again != plan || !is_dense_max(&plan.dense_max, plan.model.dense) {
            return Err(wrong("its layout is not that of its model".into()));
        }
        Ok(plan)
    }

    /// Its bootstraps, made again of its set.
    fn restored(&self) -> Result<Option<Restored>, Error> {
        let before: Vec<bool> = self.links.iter().map(|link| link.restored.is_some()).collect();
        let Some(own) = &self.bootstrap else {
            return match before.contains(&true) {
                true => Err(Error::Plan { why: "it restores levels by no bootstrap".into() }),
                false => Ok(None),
            };
        };
        let parameters = self.parameters.check(Platform::detect())?;
        let levels = own.levels(&self.parameters);
        let bootstrap = BootstrapPlan::new(&parameters, levels, own.slots)?;
        Ok(Some(Restored { bootstrap, before }))
    }

    /// The fusion that it was made with.
    pub fn fusion(&self) -> Fusion {
        match self.embedding {
            EmbeddingPlan::Joined => Fusion::First,
            EmbeddingPlan::Fused => Fusion::Join,
            _ => self.parts().unwrap_or(Fusion::None),
        }
    }

    fn parts(&self) -> Option<Fusion> {
        self.inputs.iter().find_map(|input| match &input.layout {
            Layout::Parts { columns, counts, .. } => {
                let features = counts.iter().filter(|count| **count > 0).count();
                Some(Fusion::Parts { features, columns: *columns })
            }
            _ => None,
        })
    }

    /// BLAKE3 of the plan: what keys and queries are for.
    pub fn hash(&self) -> [u8; 32] {
        *blake3::hash(self.to_json().as_bytes()).as_bytes()
    }
}

const FORMAT: u32 = 4;
/// That of plans without parts, which builds from before parts read.
const WHOLE: u32 = 3;
/// What is read: splits that plans of before do not name are those of then.
const FORMATS: std::ops::RangeInclusive<u32> = 1..=FORMAT;

/// A plan's format, whatever else is in it.
#[derive(Deserialize)]
struct Version {
    format: u32,
}
