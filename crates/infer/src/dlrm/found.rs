//! Plans that were found, with what they count for.

use super::cost::CostTable;
use super::error::Error;
use super::goal::Goal;
use super::layout::Input;
use super::plan::Plan;
use super::splits::{self, Choices, Chosen, KeyPrice};

/// A plan with what it counts for.
pub(super) struct Found {
    pub plan: Plan,
    /// Bytes that a client uploads once.
    key_bytes: usize,
    /// Milliseconds of the server, and what keys and queries count for.
    pub cost: f64,
}

impl Found {
    /// Chooses the splits of `plan`: by the keys' price, and where that leaves keys larger than the goal's
    /// bound by prices that grow until they are not, or no smaller ones are found. `None` where it cannot
    /// count for less than `best`.
    fn of(mut plan: Plan, costs: &CostTable, goal: Goal, best: Option<&Self>) -> Option<Self> {
        let choices = Choices::new(&plan, costs);
        let others = costs.server_ms(&plan) - costs.maps_ms(&plan);
        let others = others + query_ms(ciphertext_words(&plan), query_bytes(&plan) as f64);
        if best.is_some_and(|best| others + choices.least_ms() >= best.cost) {
            return None;
        }
        let most = goal.key_bytes_max.unwrap_or(usize::MAX);
        let mut factor = 1.0;
        loop {
            let (splits, Chosen { ms, key_bytes, total }) = choices.choose(KeyPrice(factor));
            let key_bytes = key_bytes + beside_bytes(&plan);
            if key_bytes <= most || factor >= PRICE_FACTOR_MAX {
                plan.set_splits(&splits);
                return Some(Self { plan, key_bytes, cost: others + ms + (total - ms) / factor });
            }
            factor *= 4.0;
        }
    }
}

/// What was found so far.
#[derive(Default)]
pub(super) struct Kept {
    /// What counts for least.
    pub best: Option<Found>,
    /// Of those with keys above the bound, that with the smallest.
    smallest: Option<Found>,
    /// Of those with queries above the bound, bytes of the smallest.
    least_query: Option<usize>,
}

impl Kept {
    /// Keeps `plan` where it is better than what was found.
    pub fn keep(&mut self, plan: Plan, costs: &CostTable, goal: Goal) {
        let query_bytes = query_bytes(&plan);
        if goal.query_bytes_max.is_some_and(|most| query_bytes > most) {
            let least = self.least_query.map_or(query_bytes, |least| least.min(query_bytes));
            self.least_query = Some(least);
            return;
        }
        let Some(found) = Found::of(plan, costs, goal, self.best.as_ref()) else { return };
        if goal.key_bytes_max.is_some_and(|most| found.key_bytes > most) {
            if self.smallest.as_ref().is_none_or(|own| found.key_bytes < own.key_bytes) {
                self.smallest = Some(found);
            }
        } else if self.best.as_ref().is_none_or(|own| found.cost < own.cost) {
            self.best = Some(found);
        }
    }

    /// What to start from for others like it.
    pub fn from(&self) -> Option<&Found> {
        self.best.as_ref().or(self.smallest.as_ref())
    }

    /// The best, if there is any within the goal's bounds.
    ///
    /// # Errors
    /// [`Error::Keys`] and [`Error::Query`] where all are above one of them.
    pub fn best(self, goal: Goal) -> Result<Option<Found>, Error> {
        let Self { best, smallest, least_query } = self;
        if best.is_some() {
            return Ok(best);
        }
        if let (Some(found), Some(max_bytes)) = (&smallest, goal.key_bytes_max) {
            return Err(Error::Keys { least_bytes: found.key_bytes, max_bytes });
        }
        match (least_query, goal.query_bytes_max) {
            (Some(least_bytes), Some(max_bytes)) => Err(Error::Query { least_bytes, max_bytes }),
            _ => Ok(None),
        }
    }
}

/// Bytes, at most, that go up beside keys: an encryption of zero at the last level, and what names them.
pub(super) fn beside_bytes(plan: &Plan) -> usize {
    plan.parameters.degree * 8 + 4096
}

/// Words of a query's ciphertexts.
fn ciphertext_words(plan: &Plan) -> f64 {
    let words = plan.inputs.iter().flat_map(Input::levels).map(|level| level + 1);
    (words.sum::<usize>() * plan.parameters.degree) as f64
}

/// Bytes of a query, at most: primes may be a bit shorter.
pub(super) fn query_bytes(plan: &Plan) -> usize {
    let levels = plan.inputs.iter().flat_map(Input::levels);
    let each = |level| HEADER_BYTES + splits::poly_bytes(plan, level);
    HEADER_BYTES + levels.map(each).sum::<usize>()
}

/// Milliseconds that a query of so many words and bytes counts for.
pub(super) fn query_ms(words: f64, bytes: f64) -> f64 {
    UPLOAD_MS * words + DEAR_QUERY_BYTE_MS * (bytes - QUERY_CHEAP_BYTES).max(0.0)
}

/// How many times their price keys count at most, where they are bounded.
const PRICE_FACTOR_MAX: f64 = 65_536.0;
/// Milliseconds that a word of a query counts for: about what encrypting it takes.
const UPLOAD_MS: f64 = 2e-5;
/// Bytes of a query that any line carries in the time that its answer takes.
const QUERY_CHEAP_BYTES: f64 = 1e7;
/// Milliseconds that a byte above counts for: a line of 80 Mbit/s.
const DEAR_QUERY_BYTE_MS: f64 = 1e-4;
/// Bytes that a ciphertext begins with, and a query, at most.
const HEADER_BYTES: usize = 128;
