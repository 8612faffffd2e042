//! A plan's bootstraps: what its set's levels are for, and what one bootstrap takes.

use hushtable_rlwe::ckks::{Bootstrap, BootstrapLevels, ParameterSpec, Parameters};
use serde::{Deserialize, Serialize};

use super::chain::Chain;
use super::cost::{self, Kind};
use super::error::Error;
use super::plan::{ParametersSpec, Restored};

/// What all bootstraps of a plan are: of one set and so many numbers. [`LinkPlan::restored`] says where
/// they are.
///
/// [`LinkPlan::restored`]: super::plan::LinkPlan::restored
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct BootstrapPlan {
    /// The lowest levels, of the maps from slots to coefficients.
    pub to_coefficients: usize,
    /// Levels above, which are left to the model.
    pub left: usize,
    /// The highest levels, of the maps from coefficients to slots.
    pub to_slots: usize,
    /// Numbers that a bootstrap is of: the widest period that is restored, of all users.
    pub slots: usize,
    /// The maps.
    pub maps: Vec<BootstrapMap>,
    /// Products of two ciphertexts.
    pub products: usize,
    /// Rotations that keys must have: steps to the left, and the highest level of each.
    pub rotations: Vec<(usize, usize)>,
}

/// A map of a bootstrap.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "counts in a file")]
pub struct BootstrapMap {
    /// The level of what it takes.
    pub level: usize,
    /// Its diagonals.
    pub diagonals: usize,
    /// After how many numbers they repeat.
    pub period: usize,
    /// Rotations of what comes in.
    pub babies: usize,
    /// How often its digits are cut.
    pub cuts: usize,
    /// Rotations of sums.
    pub giants: usize,
}

impl BootstrapPlan {
    /// Of a set that was made of `levels`, for `slots` numbers.
    ///
    /// # Errors
    /// [`Error::Ckks`] for a set of other levels, or as many slots as it does not have.
    pub(super) fn new(
        parameters: &Parameters,
        levels: BootstrapLevels,
        slots: usize,
    ) -> Result<Self, Error> {
        let bootstrap = Bootstrap::new(parameters, levels, slots, RANGE)?;
        let maps = bootstrap.maps().map(|(map, split, level)| {
            let steps = split.steps(map.steps());
            let periods = map.steps().filter_map(|step| Some(map.diagonal(step)?.len()));
            BootstrapMap {
                level,
                diagonals: map.steps().len(),
                period: periods.max().unwrap_or(1),
                babies: steps.babies,
                cuts: steps.cuts,
                giants: steps.giants,
            }
        });
        Ok(Self {
            to_coefficients: levels.to_coefficients,
            left: levels.left,
            to_slots: levels.to_slots,
            slots,
            maps: maps.collect(),
            products: bootstrap.products(),
            rotations: bootstrap.key_spec().rotations.iter().collect(),
        })
    }

    /// What the levels of its set are for.
    pub(super) fn levels(&self, parameters: &ParametersSpec) -> BootstrapLevels {
        let bits = |prime: Option<&u64>| prime.map_or(0, |prime| 64 - prime.leading_zeros());
        let special = &parameters.special_moduli;
        BootstrapLevels {
            first: bits(parameters.moduli.first()),
            scale: parameters.scale_log2,
            to_coefficients: self.to_coefficients,
            left: self.left,
            reduction: bits(parameters.moduli.last()),
            to_slots: self.to_slots,
            special: (bits(special.first()), special.len()),
        }
    }

    /// The bootstrap itself.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub(super) fn bootstrap(&self, parameters: &Parameters) -> Result<Bootstrap, Error> {
        let levels = self.levels(&ParametersSpec::of(parameters.spec()));
        Ok(Bootstrap::new(parameters, levels, self.slots, RANGE)?)
    }

    /// The level that ciphertexts have afterwards.
    pub fn output(&self) -> usize {
        self.to_coefficients.saturating_add(self.left)
    }

    /// What a bootstrap does: kinds, levels and how often.
    pub(super) fn operations(&self, parameters: &ParametersSpec) -> Vec<(Kind, usize, usize)> {
        self.counted(parameters.degree, self.levels(parameters))
    }

    /// As [`operations`](Self::operations), of a set of `degree` that was made of `levels`.
    pub(super) fn counted(
        &self,
        degree: usize,
        levels: BootstrapLevels,
    ) -> Vec<(Kind, usize, usize)> {
        let (top, reduced) = (levels.top(), levels.reduced_from());
        let trace = (degree / self.slots.max(1)).max(1).ilog2() as usize;
        let mut all = vec![(Kind::Raise, top, 1), (Kind::Rotate, top, trace)];
        all.push((Kind::Add, top, trace));
        all.extend(self.maps.iter().flat_map(|map| map_operations(degree, map)));
        // A conjugation makes the numbers real.
        all.extend([(Kind::Rotate, reduced, 1), (Kind::Add, reduced, 1)]);
        all.extend(cost::reduction_operations(reduced));
        all.retain(|&(_, _, count)| count > 0);
        all
    }
}

/// What a map takes.
fn map_operations(degree: usize, map: &BootstrapMap) -> Vec<(Kind, usize, usize)> {
    let BootstrapMap { level, diagonals, period, babies, cuts, giants } = *map;
    let is_repeated = cost::is_repeated(degree, period);
    // Behind baby steps, sums are modulo Q · P; of two rotations, the first's mask is divided too.
    let divisions = if babies > 0 { giants + cuts.saturating_sub(1) } else { 0 };
    vec![
        (cost::diagonal(is_repeated, babies > 0), level, diagonals),
        (Kind::Cut, level, cuts),
        (Kind::Hoisted, level, babies),
        (Kind::Giant, level, giants),
        (Kind::Divide, level, divisions),
        (Kind::Close, level, 1),
    ]
}

impl Restored {
    /// Refuses bootstraps where there cannot be any.
    ///
    /// # Errors
    /// [`Error::Layout`].
    pub fn check(
        &self,
        chain: &Chain,
        levels: &[(usize, Option<usize>)],
        parameters: &ParameterSpec,
        users: usize,
    ) -> Result<(), Error> {
        let refuse = |why: String| Err(Error::Layout { why });
        let own = self.bootstrap.levels(&ParametersSpec::of(parameters));
        let (output, found) = (own.output(), parameters.moduli.len());
        if found != own.top().saturating_add(1) {
            let top = own.top();
            return refuse(format!("bootstraps of {top} levels in a set of {found} moduli"));
        }
        for (link, &(level, restored)) in chain.links.iter().zip(levels) {
            let widest = link.outputs.next_power_of_two().saturating_mul(users);
            let is_gated = link.gate.is_some_and(|gate| gate.range().is_some());
            if restored.is_some() && (!is_gated || widest > self.bootstrap.slots) {
                let name = &link.name;
                return refuse(format!("a bootstrap after {name}, which it cannot hold"));
            }
            // Above, primes are longer than scales: there a map can be, and no product.
            if restored.is_some_and(|level| level > output) || level > output + 1 {
                return refuse(format!("{level} levels, of which bootstraps leave {output}"));
            }
        }
        Ok(())
    }
}

/// The largest of what is bootstrapped: gates take numbers from -1 to 1, and simulation lets them leave
/// that by a thousandth.
const RANGE: f64 = 1.0 + 1.0 / 64.0;

#[cfg(test)]
mod tests {
    use hushtable_rlwe::ckks::{Encoder, Encrypted, EvaluationKeys, KeySpec, Transform};
    use hushtable_rlwe::ring::Platform;

    use super::super::splits::bootstrap_bytes;
    use super::*;

    #[test]
    fn maps_take_the_memory_that_is_said() {
        let levels = BootstrapLevels::Y15;
        let spec = levels.spec("ckks_restored", 1 << 15).unwrap();
        let parameters = Parameters::new(spec, Platform::detect()).unwrap();
        let encoder = Encoder::new(&parameters);
        let none = EvaluationKeys::parse(&parameters, &KeySpec::default(), &[0; 32]).unwrap();
        let evaluator = Encrypted::new(&encoder, &none);
        // Of few slots, what describes a map takes a tenth of it.
        for slots in [128, 512] {
            let own = BootstrapPlan::new(&parameters, levels, slots).unwrap();
            let prepared = own.bootstrap(&parameters).unwrap().prepare(&evaluator).unwrap();
            let held: usize = prepared.transforms().map(Transform::memory_bytes).sum();
            let said = bootstrap_bytes(&own, &ParametersSpec::of(parameters.spec()));
            let ratio = said as f64 / held as f64;
            assert!((0.95..=1.05).contains(&ratio), "{slots}: {said} said, {held} held");
        }
    }
}
