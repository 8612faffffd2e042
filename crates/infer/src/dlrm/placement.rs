//! Where bootstraps go: the cheapest way through a chain's levels.
//!
//! Levels are counted from where a way ends: from the logit, or from the maps that a bootstrap begins
//! with. So what lies between two bootstraps costs the same whatever is around it, and the cheapest way
//! is a shortest path from bootstrap to bootstrap ("HE-LRM", section 5.3, places them by the same kind of
//! graph).

use hushtable_rlwe::ckks::{BootstrapLevels, ParameterSpec, Parameters};
use hushtable_rlwe::ring::Platform;

use super::chain::Chain;
use super::cost::{self, CostTable, Kind};
use super::error::Error;
use super::gate;
use super::layout::Values;
use super::plan::{EmbeddingPlan, Fusion, Plan, Restored};
use super::restore::BootstrapPlan;
use super::spec::Dlrm;
use super::turn::Map;

/// A set that bootstraps, with its degree.
#[derive(Clone, Copy, Debug)]
pub(super) struct Base {
    pub degree: usize,
    pub levels: BootstrapLevels,
}

/// The sets of 128 bits that there are, each with as many levels left as it has room for.
pub(super) const BASES: [Base; 4] = [
    Base { degree: 32_768, levels: BootstrapLevels::Y15 },
    Base { degree: 65_536, levels: BootstrapLevels::R16 },
    Base { degree: 65_536, levels: BootstrapLevels::L16 },
    Base { degree: 65_536, levels: BootstrapLevels::F16 },
];

/// A way through a chain.
#[derive(Clone, Debug, PartialEq)]
struct Way {
    ms: f64,
    /// By link: whether there is a bootstrap before its gate.
    before: Vec<bool>,
}

/// A chain with what its parts cost by their level.
struct Priced<'a> {
    chain: &'a Chain,
    /// By link: its maps, each with by how much it is above the link's level.
    maps: Vec<Vec<(Map, usize)>>,
    /// A plan of the chain without bootstraps, of whatever set.
    plan: &'a Plan,
    costs: &'a CostTable,
    levels: BootstrapLevels,
    bootstrap_ms: f64,
}

impl<'a> Priced<'a> {
    fn new(
        plan: &'a Plan,
        costs: &'a CostTable,
        levels: BootstrapLevels,
        bootstrap_ms: f64,
    ) -> Self {
        let chain = &plan.chain;
        let mut maps: Vec<Vec<(Map, usize)>> = chain.links.iter().map(|_| Vec::new()).collect();
        let of_inputs = plan.inputs.iter().map(|input| match input.values {
            Values::Onehot | Values::Parts => chain.join,
            _ => 0,
        });
        let turned = plan.links.iter().enumerate().filter(|(_, link)| link.turn.is_some());
        let of_embeddings: &[usize] = match plan.embedding {
            EmbeddingPlan::Lookup { .. } => &[chain.join],
            EmbeddingPlan::Dot { .. } => &[chain.join + 1; 2],
            _ => &[],
        };
        let links = of_inputs.chain(turned.map(|(index, _)| index));
        let links = links.chain(of_embeddings.iter().copied());
        for (map, link) in plan.maps().into_iter().zip(links) {
            let above = map.level.saturating_sub(plan.links[link].level);
            maps[link].push((map, above));
        }
        Self { chain, maps, plan, costs, levels, bootstrap_ms }
    }

    /// Milliseconds of a link's maps at `level`.
    fn maps_ms(&self, link: usize, level: usize) -> f64 {
        let ms = |(map, above): &(Map, usize)| {
            let map = Map { level: level + above, ..*map };
            self.costs.map_ms(self.plan, &map, &map.turn)
        };
        self.maps[link].iter().map(ms).sum()
    }

    /// Milliseconds of a link's gate at `level`.
    fn gate_ms(&self, link: usize, level: usize) -> f64 {
        let Some(gate) = &self.chain.links[link].gate else { return 0.0 };
        let parameters = &self.plan.parameters;
        let (degree, special) = (parameters.degree, parameters.special_moduli.len());
        self.costs.operations_ms((degree, special), cost::gate_operations(gate, level))
    }

    /// Milliseconds from the bootstrap before the gate of link `from`, or from what the client sends, to the
    /// bootstrap before that of link `to`, or to the logit; `None` where that takes more levels than a
    /// bootstrap leaves.
    fn stretch_ms(&self, from: Option<usize>, to: Option<usize>) -> Option<f64> {
        let output = self.levels.output();
        let (mut level, mut ms) = (to.map_or(0, |_| self.levels.to_coefficients), 0.0);
        let last = to.unwrap_or(self.chain.links.len() - 1);
        for index in (from.unwrap_or(0)..=last).rev() {
            if to != Some(index) {
                let is_dot = self.chain.is_dot && index == self.chain.join;
                let gate = self.chain.links[index].gate.as_ref().map_or(0, gate::depth);
                level += usize::from(is_dot) + gate;
                ms += self.gate_ms(index, level);
                // Above, primes are longer than scales.
                if level > output {
                    return None;
                }
            }
            if from != Some(index) {
                level += 1;
                ms += self.maps_ms(index, level);
            }
        }
        Some(ms)
    }

    /// The cheapest way with at least one bootstrap, if there is any.
    fn way(&self) -> Option<Way> {
        let links = &self.chain.links;
        let places = |from: usize| {
            let gates = links.iter().enumerate().skip(from);
            let gates = gates.filter(|(_, link)| link.gate.is_some_and(|g| g.range().is_some()));
            gates.map(|(index, _)| index)
        };
        // By link: the cheapest way on from a bootstrap before its gate, and the next.
        let mut on: Vec<Option<(f64, Option<usize>)>> = vec![None; links.len()];
        let cheapest = |from: Option<usize>, on: &[Option<(f64, Option<usize>)>]| {
            let next = places(from.map_or(0, |from| from + 1)).filter_map(|to| {
                let (rest, _) = on[to]?;
                Some((self.stretch_ms(from, Some(to))? + self.bootstrap_ms + rest, Some(to)))
            });
            let end = from.and_then(|_| Some((self.stretch_ms(from, None)?, None)));
            next.chain(end).min_by(|(a, _), (b, _)| a.total_cmp(b))
        };
        for from in places(0).collect::<Vec<_>>().into_iter().rev() {
            on[from] = cheapest(Some(from), &on);
        }
        let (ms, mut next) = cheapest(None, &on)?;
        let mut before = vec![false; links.len()];
        while let Some(link) = next {
            before[link] = true;
            next = on[link].and_then(|(_, next)| next);
        }
        Some(Way { ms, before })
    }
}

/// So many numbers two maps each way take in less time than three.
const FEW_SLOTS: usize = 2048;

impl Base {
    /// Whether a bootstrap of so many numbers takes about as little as with any set of the degree.
    pub fn is_for(&self, slots: usize) -> bool {
        self.degree < 65_536 || (slots <= FEW_SLOTS) == (self.levels.to_slots < 3)
    }

    /// What rotations alone take of a bootstrap: a floor under its time.
    pub fn floor_ms(&self, slots: usize, costs: &CostTable) -> f64 {
        let (limbs, (_, special)) = (self.levels.top() + 1, self.levels.special);
        let rotations = 2 + (self.degree / slots).trailing_zeros();
        f64::from(rotations) * costs.cost_ms(Kind::Rotate, self.degree, limbs, special)
    }

    /// The plan of `chain` with bootstraps that is predicted to take the least time, if the set carries it.
    /// `sketched` makes a plan without any of a set's degree and primes of P.
    pub fn plan(
        &self,
        dlrm: &Dlrm,
        sketched: &Plan,
        fusion: Fusion,
        costs: &CostTable,
    ) -> Result<Option<Plan>, Error> {
        let (chain, users) = (&sketched.chain, sketched.users);
        let slots = widest(chain, users, |_| true);
        let (_, own) = self.made(self.levels, slots)?;
        let Some(Way { before, .. }) = self.way(sketched, &own, costs) else { return Ok(None) };
        // No more levels than it takes, and no more numbers: the bootstraps cost the less.
        let slots = widest(chain, users, |link| before[link]);
        let restored = Restored { bootstrap: own, before };
        let levels = super::plan::link_levels(chain, Some(&restored));
        let needed = levels.iter().map(|&(level, restored)| restored.unwrap_or(level - 1)).max();
        let left = needed.unwrap_or(0).saturating_sub(self.levels.to_coefficients).max(1);
        let (spec, bootstrap) = self.made(BootstrapLevels { left, ..self.levels }, slots)?;
        let restored = Restored { bootstrap, ..restored };
        let chain = chain.clone();
        Plan::with_restored(dlrm, chain, &spec, users, fusion, Some(&restored)).map(Some)
    }

    fn way(&self, sketched: &Plan, own: &BootstrapPlan, costs: &CostTable) -> Option<Way> {
        let parameters = &sketched.parameters;
        let (degree, special) = (parameters.degree, parameters.special_moduli.len());
        let ms = costs.operations_ms((degree, special), own.counted(self.degree, self.levels));
        Priced::new(sketched, costs, self.levels, ms).way()
    }

    fn made(
        &self,
        levels: BootstrapLevels,
        slots: usize,
    ) -> Result<(ParameterSpec, BootstrapPlan), Error> {
        let name = format!("ckks_{}_{}x{}_restored", self.degree, levels.left, levels.scale);
        let spec = levels.spec(&name, self.degree)?;
        let parameters = Parameters::new(spec.clone(), Platform::detect())?;
        Ok((spec, BootstrapPlan::new(&parameters, levels, slots)?))
    }
}

/// The widest period before a gate with a range, of the links that are `taken`, of all users.
pub(super) fn widest(chain: &Chain, users: usize, taken: impl Fn(usize) -> bool) -> usize {
    let links = chain.links.iter().enumerate();
    let gated = links.filter(|(_, link)| link.gate.is_some_and(|gate| gate.range().is_some()));
    let taken = gated.filter(|&(index, _)| taken(index));
    let widest = taken.map(|(_, link)| link.outputs.next_power_of_two()).max();
    widest.map_or(0, |widest| (widest * users).max(2))
}

#[cfg(test)]
mod tests {
    use super::super::bench::{Published, synthetic_weights};
    use super::super::planner::Goal;
    use super::*;

    /// A model's sketch for a set, and what its bootstraps are.
    fn sketched(name: &str, base: Base) -> (Dlrm, Plan, BootstrapPlan) {
        let model = Published::named(name).unwrap();
        let dlrm = model.dlrm().unwrap();
        let weights = synthetic_weights(&dlrm, model.range, 1).unwrap();
        let chain = Chain::new(&dlrm, &weights, Goal::default().lift).unwrap();
        let count = super::super::plan::levels(&chain, Fusion::Join);
        let spec = ParameterSpec {
            name: "sketch".into(),
            degree: base.degree,
            moduli: vec![1 << base.levels.scale; count + 1],
            special_moduli: vec![1 << base.levels.special.0; base.levels.special.1],
            scale_log2: base.levels.scale,
        };
        let plan = Plan::new(&dlrm, chain, &spec, 1, Fusion::Join).unwrap();
        let slots = widest(&plan.chain, 1, |_| true);
        let (_, own) = base.made(base.levels, slots).unwrap();
        (dlrm, plan.with_baby_steps(), own)
    }

    #[test]
    fn no_other_way_is_cheaper() {
        let costs = CostTable::shipped().unwrap();
        for (name, base) in [
            ("criteo-relu", BASES[1]),
            ("criteo-relu", BASES[2]),
            ("criteo-silu", BASES[1]),
            ("criteo-relu-composite", BASES[1]),
            ("uci-relu", BASES[0]),
        ] {
            let (_, plan, own) = sketched(name, base);
            // Where bootstraps cost nothing, a little, what they do, and more than anything else.
            for bootstrap_ms in [0.0, 100.0, 2_500.0, 1e6] {
                let priced = Priced::new(&plan, &costs, base.levels, bootstrap_ms);
                let found = priced.way();
                let links = plan.chain.links.len();
                let all = (1u32..1 << links).filter_map(|chosen| {
                    let taken: Vec<usize> =
                        (0..links).filter(|link| chosen >> link & 1 == 1).collect();
                    if taken.iter().any(|&link| plan.chain.links[link].gate.is_none()) {
                        return None;
                    }
                    let starts = std::iter::once(None).chain(taken.iter().copied().map(Some));
                    let ends = taken.iter().copied().map(Some).chain([None]);
                    let ms = starts.zip(ends).map(|(from, to)| priced.stretch_ms(from, to));
                    let ms = ms.sum::<Option<f64>>()?;
                    Some(ms + bootstrap_ms * taken.len() as f64)
                });
                let least = all.min_by(f64::total_cmp);
                match (&found, least) {
                    (Some(way), Some(least)) => {
                        assert!((way.ms / least - 1.0).abs() < 1e-9, "{name}: {way:?} {least}");
                    }
                    (found, least) => assert!(found.is_none() && least.is_none(), "{name}"),
                }
                // What it prices is what is laid out: no level is missing, and none is left.
                let Some(Way { before, .. }) = found else { continue };
                let restored = Restored { bootstrap: own.clone(), before };
                let levels = super::super::plan::link_levels(&plan.chain, Some(&restored));
                let most = levels.iter().filter_map(|&(_, restored)| restored).max().unwrap();
                assert!(most <= base.levels.output() && levels.last().unwrap().0 == 1, "{name}");
            }
        }
    }
}
