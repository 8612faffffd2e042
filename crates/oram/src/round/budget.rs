//! What rounds may cost together.
//!
//! A round shows how many rows it reads, which costs ε ([`fdp`](crate::fdp)) as soon as that is drawn:
//! abandoned rounds, rounds that a crash cut short and those that only evaluate cost as much as those
//! that are committed. The controller does not know which of its users are the same person, so it
//! counts as if somebody took part in all of them: nobody has lost more.
//!
//! What the update tells (the noise of an aggregate) is another matter, and is not counted here.

use serde::{Deserialize, Serialize};

use super::Error;
use crate::fdp::{FdpSpec, MechanismSpec};

/// What rounds may cost together.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct BudgetSpec {
    /// The ε of all rounds, for what the spec's `fdp.protects` names. No round begins that would
    /// take them past it.
    pub epsilon: f64,
    /// The δ that it holds with. 0, if not given: rounds then add up by their sum. With more, as
    /// zero-concentrated differential privacy, where that is less.
    #[serde(default)]
    pub delta: f64,
}

/// What rounds have cost.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Spent {
    /// Rounds that were ever begun.
    pub rounds: u64,
    /// Their ε.
    pub epsilon: f64,
    /// What it may come to; None for no budget.
    pub budget: Option<f64>,
    /// The δ that both hold with.
    pub delta: f64,
    /// Rounds that may still begin; None where there is no end to them.
    pub rounds_left: Option<u64>,
}

/// A checked [`BudgetSpec`], with what a round costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Budget {
    /// ε of one round.
    epsilon: f64,
    /// ρ of one round, in zero-concentrated differential privacy.
    rho: f64,
    limit: Option<BudgetSpec>,
}

impl Budget {
    /// The budget of rounds at `fdp`.
    ///
    /// # Errors
    ///
    /// A limit that is negative or no number, a δ outside 0..1, rounds whose ε is infinite.
    pub fn new(limit: Option<BudgetSpec>, fdp: &FdpSpec) -> Result<Self, Error> {
        let refuse = |field, expected| Err(Error::Spec { field, expected });
        if let Some(limit) = limit {
            if !limit.epsilon.is_finite() || limit.epsilon < 0.0 {
                return refuse("budget.epsilon", "a finite number, 0 or more");
            }
            if !(0.0..1.0).contains(&limit.delta) {
                return refuse("budget.delta", "0 or more, and less than 1");
            }
            if fdp.epsilon.is_infinite() {
                return refuse(
                    "budget",
                    "none where fdp.epsilon is infinite: no budget is enough for a round",
                );
            }
        }
        let epsilon = fdp.spent();
        // As hushtable.fl.accountant has it, which cites the sources.
        let rho = epsilon * (epsilon / 2.0).tanh();
        let rho = match fdp.mechanism {
            // Losses lie in a range as wide as the spec's ε, whatever the largest of them is.
            MechanismSpec::Exponential { .. } => rho.min(fdp.epsilon * fdp.epsilon / 8.0),
            _ => rho,
        };
        Ok(Self { epsilon, rho, limit })
    }

    /// ε of so many rounds.
    fn sum(&self, rounds: u64) -> f64 {
        if rounds == 0 {
            return 0.0;
        }
        let rounds = rounds as f64;
        let basic = rounds * self.epsilon;
        match self.limit {
            Some(BudgetSpec { delta, .. }) if delta > 0.0 => {
                let rho = rounds * self.rho;
                basic.min(rho + 2.0 * (rho * -delta.ln()).sqrt())
            }
            _ => basic,
        }
    }

    /// Whether so many rounds may be; a sum of tenths may be off in its last places.
    fn allows(&self, rounds: u64) -> bool {
        self.limit.is_none_or(|limit| self.sum(rounds) <= limit.epsilon * (1.0 + 1e-12))
    }

    /// What `rounds` rounds have cost.
    pub fn spent(&self, rounds: u64) -> Spent {
        Spent {
            rounds,
            epsilon: self.sum(rounds),
            budget: self.limit.map(|limit| limit.epsilon),
            delta: self.limit.map_or(0.0, |limit| limit.delta),
            rounds_left: self.rounds_left(rounds),
        }
    }

    /// How many rounds may be begun after `rounds`.
    fn rounds_left(&self, rounds: u64) -> Option<u64> {
        if self.allows(ROUNDS_MAX) {
            return None;
        }
        // What rounds cost grows with their number: the most that may be lies in low..high.
        let (mut low, mut high) = (0, ROUNDS_MAX);
        while high - low > 1 {
            let middle = low + (high - low) / 2;
            *(if self.allows(middle) { &mut low } else { &mut high }) = middle;
        }
        Some(low.saturating_sub(rounds))
    }

    /// How many rounds have begun with one more.
    ///
    /// # Errors
    ///
    /// [`Error::BudgetSpent`], if that is one too many.
    pub fn charge(&self, rounds: u64) -> Result<u64, Error> {
        let after = rounds.saturating_add(1);
        match self.limit {
            Some(limit) if !self.allows(after) => {
                let (spent, needed) = (self.sum(rounds), self.sum(after));
                Err(Error::BudgetSpent { rounds, spent, needed, budget: limit.epsilon })
            }
            _ => Ok(after),
        }
    }
}

/// More than any controller begins.
const ROUNDS_MAX: u64 = 1 << 48;

#[cfg(test)]
mod tests {
    use super::{Budget, BudgetSpec, Error, FdpSpec, MechanismSpec};
    use crate::fdp::Shape;

    fn budget(epsilon: f64, delta: f64, fdp: FdpSpec) -> Budget {
        Budget::new(Some(BudgetSpec { epsilon, delta }), &fdp).unwrap()
    }

    #[test]
    fn rounds_add_up_as_the_accountant_has_it() {
        let geometric = FdpSpec::default();
        let uniform = MechanismSpec::Exponential { shape: Shape::Uniform };
        let exponential = FdpSpec { mechanism: uniform, ..FdpSpec::default() };
        let delta = MechanismSpec::Exponential { shape: Shape::Delta { at: None } };
        let constant = FdpSpec { mechanism: delta, ..FdpSpec::default() };
        let shift = MechanismSpec::Shifted { by: 3, least: 2 };
        let shifted = FdpSpec { mechanism: shift, ..FdpSpec::default() };
        // As hushtable.fl.Accountant prints them for 100 rounds of ε = 1 at δ = 1e-6.
        for (fdp, delta, expected) in [
            (geometric.clone(), 0.0, 100.0),
            (exponential.clone(), 0.0, 71.402_3),
            (constant, 0.0, 0.0),
            (shifted, 1e-6, 96.746_4),
            (geometric, 1e-6, 96.746_4),
            (exponential, 1e-6, 38.782_6),
        ] {
            let found = budget(1e3, delta, fdp).spent(100).epsilon;
            assert!((found - expected).abs() < 1e-3, "{found}, expected {expected}");
        }
    }

    #[test]
    fn a_budget_is_spent_to_its_end_and_not_past_it() {
        for (limit, epsilon, rounds) in
            [(0.3, 0.1, 3), (1.0, 0.1, 10), (0.95, 0.1, 9), (0.0, 1.0, 0), (7.0, 7.5, 0)]
        {
            let budget = budget(limit, 0.0, FdpSpec { epsilon, ..FdpSpec::default() });
            let mut begun = 0;
            while begun < 100 {
                assert_eq!(budget.spent(begun).rounds_left, Some(rounds - begun));
                match budget.charge(begun) {
                    Ok(after) => begun = after,
                    Err(error) => {
                        assert!(matches!(error, Error::BudgetSpent { .. }), "{error}");
                        break;
                    }
                }
            }
            assert_eq!(begun, rounds, "{limit} in rounds of {epsilon}");
        }
        let text = budget(2.0, 0.0, FdpSpec::default()).charge(2).unwrap_err().to_string();
        assert!(text.contains("2 rounds") && text.contains("leaves 0"), "{text}");
        // Rounds that cost nothing never end, nor do those without a budget.
        let free = FdpSpec { epsilon: 0.0, ..FdpSpec::default() };
        assert_eq!(budget(0.0, 0.0, free).spent(1000).rounds_left, None);
        let none = Budget::new(None, &FdpSpec::default()).unwrap();
        assert_eq!((none.spent(9).epsilon, none.spent(9).rounds_left), (9.0, None));
    }

    #[test]
    fn refuses_budgets_that_cannot_be() {
        let endless = FdpSpec { epsilon: f64::INFINITY, ..FdpSpec::default() };
        for (epsilon, delta, fdp, field) in [
            (-1.0, 0.0, FdpSpec::default(), "budget.epsilon"),
            (f64::NAN, 0.0, FdpSpec::default(), "budget.epsilon"),
            (f64::INFINITY, 0.0, FdpSpec::default(), "budget.epsilon"),
            (1.0, 1.0, FdpSpec::default(), "budget.delta"),
            (1.0, f64::NAN, FdpSpec::default(), "budget.delta"),
            (1.0, 0.0, endless, "budget"),
        ] {
            let made = Budget::new(Some(BudgetSpec { epsilon, delta }), &fdp);
            assert!(matches!(made, Err(Error::Spec { field: f, .. }) if f == field), "{made:?}");
        }
    }
}
