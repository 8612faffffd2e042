//! What a plan's circuit does, operation by operation.

use super::super::plan::{EmbeddingPlan, Plan, Turn};
use super::super::turn::Map;
use super::gates::gate_operations;
use super::kinds::{Counts, Kind, Operation, Tally, diagonal, fold, is_repeated};

/// What decides, beside its split, what a map takes.
#[derive(Clone, Copy, Debug)]
pub(in super::super) struct MapShape {
    /// The level of what it takes.
    level: usize,
    /// How many ciphertexts it takes.
    ciphertexts: usize,
    is_repeated: bool,
    /// Into how many ciphertexts it looks up, where it is of parts.
    outputs: Option<usize>,
}

impl MapShape {
    /// Of a plan's map.
    pub fn of(plan: &Plan, map: &Map) -> Self {
        let (degree, values) = (plan.parameters.degree, map.period.saturating_mul(plan.users));
        let is_repeated = is_repeated(degree, values);
        let (level, ciphertexts, outputs) = (map.level, map.ciphertexts, map.outputs);
        Self { level, ciphertexts, is_repeated, outputs }
    }

    /// Of a lookup by parts into `outputs` ciphertexts.
    pub fn parts(level: usize, outputs: usize) -> Self {
        Self { level, ciphertexts: 1, is_repeated: false, outputs: Some(outputs) }
    }

    /// The operations of the map, split as `turn` is, and of the fold after it.
    pub fn operations(self, turn: &Turn) -> Counts {
        let Self { level, ciphertexts, outputs, .. } = self;
        if let Some(outputs) = outputs {
            return self.part_operations(turn, outputs);
        }
        let steps = turn.split(1).steps(turn.steps());
        let mut all = Vec::with_capacity(8);
        // Sums over all ciphertexts are rotated, and each ciphertext by itself.
        all.push((
            diagonal(self.is_repeated, steps.babies > 0),
            level,
            turn.diagonals * ciphertexts,
        ));
        all.push((Kind::Cut, level, steps.cuts * ciphertexts));
        all.push((Kind::Hoisted, level, steps.babies * ciphertexts));
        all.push((Kind::Giant, level, steps.giants));
        all.push((Kind::Divide, level, steps.divisions));
        all.push((Kind::Close, level, 1));
        fold(&mut all, level.saturating_sub(1), turn.fold_count);
        all
    }

    /// Of parts: the baby steps' rotations are made once, each by itself, and serve all outputs. Of every
    /// output, giant steps rotate the sums, and what comes of it is multiplied by its groups.
    fn part_operations(self, turn: &Turn, outputs: usize) -> Counts {
        let (level, babies) = (self.level, turn.baby_steps.saturating_sub(1));
        let sums = turn.split(1).steps(turn.steps().step_by(babies + 1));
        vec![
            (Kind::Cut, level, babies.min(1)),
            (Kind::Hoisted, level, babies),
            (Kind::Divide, level, 2 * babies + sums.divisions * outputs),
            (diagonal(self.is_repeated, false), level, turn.diagonals * outputs),
            (Kind::Giant, level, sums.giants * outputs),
            (Kind::Close, level, outputs),
            (Kind::MultiplyRescale, level.saturating_sub(1), outputs),
            (Kind::Add, level.saturating_sub(2), outputs.saturating_sub(1)),
        ]
    }
}

/// What a plan does, layer by layer.
pub fn operations(plan: &Plan) -> Vec<Operation> {
    let mut all = Tally::default();
    for input in &plan.inputs {
        all.extend("query", input.levels().map(|level| (Kind::Read, level, 1)));
    }
    // In their order: the inputs', the links', those of embeddings.
    let mut maps = plan.maps().into_iter();
    let input_maps: Vec<Map> = maps.by_ref().take(plan.inputs.len()).collect();
    let turned = plan.links.iter().filter(|link| link.turn.is_some()).count();
    let mut link_maps = maps.by_ref().take(turned).collect::<Vec<_>>().into_iter();
    let of_embeddings: Vec<Map> = maps.collect();
    let of = |map: &Map| MapShape::of(plan, map).operations(&map.turn);
    for (index, (link, planned)) in plan.chain.links.iter().zip(&plan.links).enumerate() {
        let (name, level) = (link.name.as_str(), planned.level.saturating_sub(1));
        match (&planned.turn, &plan.embedding) {
            (Some(_), _) => {
                let map = link_maps.next();
                all.extend(name, map.iter().flat_map(of));
            }
            (None, EmbeddingPlan::Dot { .. }) if index == plan.chain.join + 1 => {
                let (count, folds) = (plan.model.features.len(), plan.dot_lanes().1);
                all.extend(name, dot_operations(planned.level, count, folds));
                // Lanes go down to the products' level, and the images of both are summed up.
                all.extend(name, [(Kind::Copy, planned.level, 1), (Kind::Add, level, 1)]);
                all.extend(name, of_embeddings.iter().flat_map(of));
            }
            _ => all.extend(name, input_maps.first().into_iter().flat_map(of)),
        }
        if index == plan.chain.join && input_maps.len() > 1 {
            all.extend("embeddings", input_maps[1..].iter().flat_map(of));
            if let EmbeddingPlan::Lookup { .. } = plan.embedding {
                all.extend("embeddings", of_embeddings.iter().flat_map(of));
            }
            all.extend(name, [(Kind::Add, level, 1)]);
        }
        // The bias.
        all.extend(name, [(Kind::AddPart, level, 1)]);
        if let (Some(own), Some(restored)) = (&plan.bootstrap, planned.restored) {
            let layer = format!("{name}, bootstrapped");
            all.extend(&layer, own.operations(&plan.parameters));
            let is_dropped = usize::from(own.output() > restored);
            all.extend(&layer, [(Kind::Copy, restored, is_dropped)]);
        }
        if let Some(kind) = &link.gate {
            all.extend(name, gate_operations(kind, planned.gate_level()));
        }
    }
    all.finish()
}

/// The products of each pair of lanes, before the maps after them.
fn dot_operations(level: usize, count: usize, width: usize) -> Counts {
    let above = level + 1;
    let mut all = vec![
        (Kind::Cut, above, 1),
        (Kind::Hoisted, above, count),
        (Kind::Divide, above, 2 * count),
        (Kind::MultiplyRescale, above, count),
    ];
    for _ in 0..count {
        fold(&mut all, level, width);
    }
    all
}
