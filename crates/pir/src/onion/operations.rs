//! What one query's retrieval computes, counted.
//!
//! Splits and games are counted by the very code of [`tree`] over a scheme that computes
//! nothing; what each of them does follows from the parameters, as in the evaluator. A test holds the
//! transforms and products to those that an engine executes.

use hushtable_rlwe::bfv::Parameters;
use hushtable_rlwe::bfv::scheme::Scheme;

use super::Geometry;
use super::tree::{self, Node, Schedule, Subtree, Tournament};

/// Operations on polynomials modulo one prime, but for the decompositions.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Operations {
    /// Transforms to evaluations.
    pub forward: u64,
    /// Transforms back.
    pub inverse: u64,
    /// Products of two polynomials that are added up before they are reduced: digits with keys.
    pub products: u64,
    /// Such sums.
    pub sums: u64,
    /// Products that are reduced one by one: monomials, constants.
    pub single_products: u64,
    /// Polynomials modulo Q whose digits are taken.
    pub decompositions: u64,
}

/// Those of one query, step by step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Steps {
    /// Nodes of ExpandQuery that are split.
    pub splits: u64,
    /// Games of ColTor, of all chunks.
    pub games: u64,
    /// ExpandQuery.
    pub expand: Operations,
    /// Products of two residues in RowSel, and sums of them that are reduced.
    pub row_select: (u64, u64),
    /// ColTor, without the response's compression.
    pub tournament: Operations,
}

impl Operations {
    fn add(&mut self, count: u64, other: Self) {
        self.forward += count * other.forward;
        self.inverse += count * other.inverse;
        self.products += count * other.products;
        self.sums += count * other.sums;
        self.single_products += count * other.single_products;
        self.decompositions += count * other.decompositions;
    }
}

/// What one query costs under `geometry`.
pub fn of_query(geometry: &Geometry) -> Steps {
    let params = geometry.params();
    let selector_leaves = geometry.selector_leaves();
    let leaves = geometry.rows() + selector_leaves;
    let splits = splits(geometry.levels(), leaves);
    let columns = geometry.columns();
    let games = geometry.chunks() as u64 * games(columns, geometry.games());
    let (limbs, switch) = (params.ring().limbs() as u64, switch(params));
    let mut expand = Operations::default();
    expand.add(splits, Operations { single_products: 2 * limbs, ..switch });
    expand.add(selector_leaves as u64, switch);
    expand.add((leaves + selector_leaves) as u64, drop_limbs(params));
    let mut tournament = Operations::default();
    tournament.add(games, game(params));
    let ring = params.answer_ring();
    // Columns are filled up to whole groups of four.
    let sums = 2
        * (ring.limbs() * ring.degree()) as u64
        * columns.next_multiple_of(4)
        * geometry.chunks() as u64;
    let row_select = (sums * geometry.rows() as u64, sums);
    Steps { splits, games, expand, row_select, tournament }
}

/// Of a key switch.
fn switch(params: &Parameters) -> Operations {
    let limbs = params.ring().limbs() as u64;
    let digits = params.key_switch().digits() as u64;
    Operations {
        forward: digits * limbs,
        inverse: limbs,
        products: 2 * digits * limbs,
        sums: 2 * limbs,
        decompositions: 1,
        ..Operations::default()
    }
}

/// Of taking a ciphertext to the answer's primes.
fn drop_limbs(params: &Parameters) -> Operations {
    let mut all = Operations::default();
    for limbs in params.answer_ring().limbs() as u64..params.ring().limbs() as u64 {
        let one = Operations { forward: 2 * limbs, inverse: 2, ..Operations::default() };
        all.add(1, Operations { single_products: 2 * limbs, ..one });
    }
    all
}

/// Of one game.
fn game(params: &Parameters) -> Operations {
    let limbs = params.answer_ring().limbs() as u64;
    let digits = 2 * params.selector().digits() as u64;
    Operations {
        forward: digits * limbs,
        inverse: 2 * limbs,
        products: 2 * digits * limbs,
        sums: 2 * limbs,
        decompositions: 2,
        ..Operations::default()
    }
}

/// Counts steps.
#[derive(Default)]
struct Counter {
    splits: u64,
    games: u64,
}

impl Scheme for Counter {
    type Ciphertext = ();
    type Selector = ();

    fn split(&mut self, _: u32, (): &mut ()) {
        self.splits += 1;
    }

    fn select(&mut self, (): &(), (): &mut (), (): ()) {
        self.games += 1;
    }
}

fn splits(levels: u32, leaves: usize) -> u64 {
    let mut counter = Counter::default();
    let root = vec![Node { residue: 0, ciphertext: () }];
    let order = Schedule::DepthFirst;
    tree::expand(&mut counter, order, root, (0, levels), leaves, &mut |_, _| {});
    counter.splits
}

fn games(columns: u64, games: u32) -> u64 {
    let mut counter = Counter::default();
    let bits = vec![(); games as usize];
    let mut tournament = Tournament::new(Schedule::DepthFirst, games);
    for index in 0..columns {
        tournament.push(&mut counter, &bits, Subtree { level: 0, index, ciphertext: () });
    }
    let won = tournament.finish(&mut counter, &bits);
    tree::join(&mut counter, &bits, won, games, tree::Alone::Advances);
    counter.games
}
