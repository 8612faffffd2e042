//! One-hot vectors of large tables in two parts, whose product the server takes.
//!
//! A table's rows are in groups of as many as a column has slots. The client sends which row of a group
//! it wants, in one ciphertext for all groups, and which group, in a few more. With the first, a linear
//! map looks that row up in every group; the product with the second keeps one group's. So R rows take
//! about R · width / column slots in place of R, for as many products with diagonals, one product of
//! ciphertexts for each group ciphertext and one level more.

use super::chain::Chain;
use super::cost::{CostTable, Kind, MapShape};
use super::digits::Digits;
use super::layout::{Layout, share_columns, share_lanes};
use super::plan::{Fusion, link_levels};
use super::turn::{Turn, baby_steps};

/// What parts are chosen for.
pub(super) struct Asked<'a> {
    pub chain: &'a Chain,
    pub digits: &'a [Digits],
    pub dim: usize,
    /// N, and slots of one user.
    pub degree: usize,
    pub slots: usize,
    /// Bits of a level's prime, about.
    pub level_bits: u32,
    /// The most bytes of a query, if it is bounded.
    pub query_bytes_max: Option<usize>,
}

/// What one choice of parts takes, about.
struct Choice {
    fusion: Fusion,
    query_bytes: usize,
    ms: f64,
}

impl Asked<'_> {
    /// Parts that may pay, if any: those that count for least (of those that keep the bound, where some
    /// do), and those of the smallest query.
    pub fn choose(&self, costs: &CostTable, price: impl Fn(f64, f64) -> f64) -> Vec<Fusion> {
        let whole = share_lanes(self.slots, self.dim, self.digits, None);
        // Two ciphertexts are the fewest that parts take.
        if self.chain.is_dot || whole.is_some_and(|(ciphertexts, _)| ciphertexts <= 2) {
            return Vec::new();
        }
        let is_large = |digits: &&Digits| !digits.is_cut() && digits.slots() >= ROWS_MIN;
        let most = self.digits.iter().filter(is_large).count().min(FEATURES_MAX);
        let columns = |features: usize| {
            let all = (0..=self.slots.trailing_zeros()).map(|log2| 1 << log2);
            all.skip_while(move |&columns| columns < features)
        };
        let all = (1..=most).flat_map(|features| columns(features).map(move |c| (features, c)));
        let all: Vec<Choice> = all
            .filter_map(|(features, columns)| self.choice(features, columns, costs, &price))
            .collect();
        let bound = self.query_bytes_max.unwrap_or(usize::MAX);
        let kept = all.iter().filter(|choice| choice.query_bytes <= bound);
        let cheapest = kept.min_by(|a, b| a.ms.total_cmp(&b.ms));
        let smallest = all.iter().min_by_key(|choice| choice.query_bytes);
        let mut found: Vec<Fusion> =
            cheapest.into_iter().chain(smallest).map(|it| it.fusion).collect();
        found.dedup();
        found
    }

    fn choice(
        &self,
        features: usize,
        columns: usize,
        costs: &CostTable,
        price: &impl Fn(f64, f64) -> f64,
    ) -> Option<Choice> {
        let (ciphertexts, layout) =
            share_columns(self.slots, self.dim, self.digits, features, columns)?;
        let Layout::Parts { width, .. } = layout else { return None };
        let rest = self.digits.len() > features;
        let whole = match rest {
            true => share_lanes(self.slots, self.dim, self.digits, Some(&layout))?.0,
            false => 0,
        };
        let level = link_levels(self.chain, None)[self.chain.join].0 + 2;
        let outputs = ciphertexts - 1;
        let words = self.degree * ((level + 1) + (outputs + whole) * level);
        let query_bytes = words * self.level_bits as usize / 8;
        let height = self.slots / columns;
        let turn = Turn::of_input(&layout, self.slots, false).with_babies(baby_steps(height));
        let lookup = [(Kind::Diagonal, level - 1, whole * width)];
        let operations =
            MapShape::parts(level, outputs).operations(&turn).into_iter().chain(lookup);
        let ms = costs.operations_ms((self.degree, SPECIAL), operations)
            + price(words as f64, query_bytes as f64);
        Some(Choice { fusion: Fusion::Parts { features, columns }, query_bytes, ms })
    }
}

/// The fewest rows of a table that goes in parts.
const ROWS_MIN: usize = 64;
/// The most features that go in parts: the others' rows are few.
const FEATURES_MAX: usize = 16;
/// Primes of P that choices are compared with.
const SPECIAL: usize = 2;
