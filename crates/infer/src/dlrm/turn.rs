//! Linear maps of a plan: their diagonals, how these are split, and what is folded after.

use std::collections::BTreeMap;

use hushtable_rlwe::ckks::Split;
use serde::{Deserialize, Serialize};

use super::layout::Layout;

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
    /// A baby step is two rotations, the first by a multiple of this many; 0 where it is one.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inner_steps: usize,
    /// Whether one key rotates each giant step's sum, with those above it.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_chained: bool,
    /// The sum after it: of rotations by 0, `fold_step`, 2 `fold_step`, ...
    pub fold_step: usize,
    /// How many are summed; 1 for none.
    pub fold_count: usize,
}

fn is_zero(number: &usize) -> bool {
    *number == 0
}

/// How a map's diagonals are split, in numbers of them ([`Split`] has slots).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct TurnSplit {
    /// As [`Turn::baby_steps`].
    pub baby_steps: usize,
    /// As [`Turn::inner_steps`].
    #[serde(default, skip_serializing_if = "is_zero")]
    pub inner_steps: usize,
    /// As [`Turn::is_chained`].
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub is_chained: bool,
}

impl TurnSplit {
    /// One rotation a step.
    pub(super) fn new(baby_steps: usize) -> Self {
        Self { baby_steps, inner_steps: 0, is_chained: false }
    }

    /// Splits that maps of several sizes can share, and so keys.
    pub(super) fn shared() -> Vec<Self> {
        let of = |(baby_steps, inner_steps)| Self { baby_steps, inner_steps, is_chained: true };
        [(4, 0), (8, 0), (16, 0), (32, 0), (4, 2), (8, 2), (8, 4), (16, 4), (32, 4), (32, 8)]
            .map(of)
            .to_vec()
    }

    /// Every split of `diagonals` (a power of two) diagonals.
    pub(super) fn all(diagonals: usize) -> Vec<Self> {
        let powers = || (0..=diagonals.trailing_zeros()).map(|log2| 1 << log2);
        let mut all = Vec::new();
        for baby_steps in powers() {
            let inner = powers().skip(1).take_while(move |&inner| inner < baby_steps);
            for inner_steps in std::iter::once(0).chain(inner) {
                let one = Self { baby_steps, inner_steps, is_chained: false };
                // A chain of one is a giant step as any other.
                let is_long = diagonals > 2 * baby_steps;
                all.push(one);
                all.extend(is_long.then_some(Self { is_chained: true, ..one }));
            }
        }
        all
    }
}

/// A map of a plan.
pub(super) struct Map {
    pub turn: Turn,
    /// The level of what it takes.
    pub level: usize,
    /// How many ciphertexts it takes.
    pub ciphertexts: usize,
    /// After how many of a user's slots its diagonals repeat.
    pub period: usize,
    /// Into how many ciphertexts it looks up, each with diagonals of its own, where it is of parts.
    pub outputs: Option<usize>,
}

impl Map {
    /// Every split that it can have.
    pub fn splits(&self) -> impl Iterator<Item = TurnSplit> + use<> {
        // Parts are rotated by all baby steps at once.
        let is_parts = self.outputs.is_some();
        let all = TurnSplit::all(self.turn.diagonals).into_iter();
        all.filter(move |split| !is_parts || split.inner_steps == 0)
    }
}

impl Turn {
    /// The map from a vector of period `inputs` to one of period `outputs`. The last map of a circuit is
    /// not folded: whoever opens the answer reads the mean of the slots.
    pub fn between(inputs: usize, outputs: usize, is_last: bool) -> Self {
        let diagonals = inputs.min(outputs);
        let fold_count = if is_last { 1 } else { (inputs / outputs).max(1) };
        Self::new((1, diagonals), (outputs, fold_count))
    }

    fn new((step, diagonals): (usize, usize), (fold_step, fold_count): (usize, usize)) -> Self {
        let (baby_steps, inner_steps, is_chained) = (1, 0, false);
        Self { step, diagonals, baby_steps, inner_steps, is_chained, fold_step, fold_count }
    }

    /// The map of an input's ciphertexts.
    pub(super) fn of_input(layout: &Layout, slots: usize, is_last: bool) -> Self {
        match *layout {
            Layout::Packed { period, diagonals, copies } => {
                let fold_count = if is_last { 1 } else { slots / period / copies };
                Self::new((1, diagonals), (period, fold_count))
            }
            Layout::Lanes { lanes, width, .. } => {
                let fold_step = lanes * width;
                let fold_count = slots / fold_step;
                Self::new((lanes, width), (fold_step, fold_count))
            }
            // A row in a group meets the whole column; what is looked up is not folded.
            Layout::Parts { columns, .. } => Self::new((columns, slots / columns), (slots, 1)),
        }
    }

    /// How its rotations are split, `users` slots standing for one.
    pub fn split(&self, users: usize) -> Split {
        let slots = self.step * users;
        let baby_steps = self.baby_steps * slots;
        let inner_steps = if self.inner_steps > 0 { self.inner_steps * slots } else { baby_steps };
        Split { baby_steps, inner_steps, is_chained: self.is_chained }
    }

    /// With its diagonals split so.
    pub(super) fn with(self, split: TurnSplit) -> Self {
        let TurnSplit { baby_steps, inner_steps, is_chained } = split;
        Self { baby_steps, inner_steps, is_chained, ..self }
    }

    /// With so many baby steps, one rotation a step.
    pub(super) fn with_babies(self, baby_steps: usize) -> Self {
        self.with(TurnSplit::new(baby_steps))
    }

    /// How its diagonals are split.
    pub(super) fn own_split(&self) -> TurnSplit {
        let &Self { baby_steps, inner_steps, is_chained, .. } = self;
        TurnSplit { baby_steps, inner_steps, is_chained }
    }

    /// The rotations that keys must have of it, folds left out.
    pub(super) fn rotations(&self, users: usize) -> Vec<usize> {
        let steps = self.steps().map(|step| step * users);
        let (babies, giants) = self.split(users).rotations(steps);
        babies.into_iter().chain(giants).collect()
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

    /// Adds the fold's rotations to those that keys must have, the map being at `level`.
    pub(super) fn collect_folds(
        &self,
        (users, slots): (usize, usize),
        level: usize,
        rotations: &mut Rotated,
    ) {
        // What is folded was rescaled.
        let folds = self.folds().map(|step| step * users % slots);
        folds.for_each(|steps| rotate(rotations, steps, level - 1));
    }
}

/// Rotations to the left, with the highest level of each.
pub(super) type Rotated = BTreeMap<usize, usize>;

pub(super) fn rotate(rotations: &mut Rotated, steps: usize, level: usize) {
    if steps > 0 {
        let most = rotations.entry(steps).or_insert(level);
        *most = level.max(*most);
    }
}

/// A map in words.
pub(super) fn describe(turn: &Turn) -> String {
    let giants = turn.diagonals.div_ceil(turn.baby_steps);
    let folds = turn.fold_count.trailing_zeros();
    let babies = match turn.inner_steps {
        0 => turn.baby_steps.to_string(),
        inner => format!("{} · {inner}", turn.baby_steps / inner),
    };
    let chained = if turn.is_chained { " in a chain" } else { "" };
    format!("{} diagonals ({babies} × {giants}{chained}), {folds} folds", turn.diagonals)
}

/// The power of two by the root of `diagonals`: baby steps share one decomposition, so that there may be
/// more of them than of giant steps.
pub(super) fn baby_steps(diagonals: usize) -> usize {
    let log2 = diagonals.trailing_zeros();
    1 << log2.div_ceil(2)
}
