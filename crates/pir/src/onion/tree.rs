//! The two trees of a retrieval, in the orders that Kim et al. ("IVE", section IV-A) compare.
//!
//! Expansion splits a query into leaves, a tournament joins columns into one. What is computed on
//! each ciphertext is the same in every order; what differs is how long results and keys stay near
//! the processor. [`traffic`](super::traffic) counts that.

use std::ops::Range;

use hushtable_rlwe::bfv::scheme::Scheme;

/// The order in which a tree's steps are taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Schedule {
    /// Level by level: one key at a time, all nodes of a level in memory.
    BreadthFirst,
    /// Down to a leaf (or up from one) as soon as possible: few nodes, all keys.
    DepthFirst,
    /// Subtrees of `depth` levels, depth-first inside.
    Hierarchical {
        /// Levels of a subtree: 1 or more.
        depth: u32,
    },
    /// Subtrees of `depth` levels, breadth-first inside.
    HierarchicalBreadth {
        /// Levels of a subtree: 1 or more.
        depth: u32,
    },
}

impl Schedule {
    /// Levels of a subtree, of `levels` in all, and whether it is taken breadth-first.
    fn subtree(self, levels: u32) -> (u32, bool) {
        let (depth, is_breadth_first) = match self {
            Self::BreadthFirst => (levels, true),
            Self::DepthFirst => (levels, false),
            Self::Hierarchical { depth } => (depth, false),
            Self::HierarchicalBreadth { depth } => (depth, true),
        };
        (depth.clamp(1, levels.max(1)), is_breadth_first)
    }
}

/// A node of an expansion: its ciphertext, and which residue of the leaves' indices it holds.
pub struct Node<C> {
    /// The leaves below it are those whose index is `residue` modulo 2^level.
    pub residue: usize,
    /// The node.
    pub ciphertext: C,
}

/// Expands `nodes` from level `from` to level `to`, leaving out what has no leaf below `leaves`.
///
/// `nodes` are consumed in order; each result goes to `sink` as soon as it is there.
pub fn expand<S: Scheme>(
    scheme: &mut S,
    schedule: Schedule,
    nodes: Vec<Node<S::Ciphertext>>,
    (from, to): (u32, u32),
    leaves: usize,
    sink: &mut dyn FnMut(&mut S, Node<S::Ciphertext>),
) {
    if from == to {
        return nodes.into_iter().for_each(|node| sink(scheme, node));
    }
    let (depth, is_breadth_first) = schedule.subtree(to - from);
    // The remainder goes first: subtrees at the leaves, where most nodes are, have full depth.
    let mut next = from + ((to - from - 1) % depth + 1);
    let (mut nodes, mut level) = (nodes, from);
    while level < to {
        let mut below = Vec::new();
        let mut emit = |scheme: &mut S, node| match next == to {
            true => sink(scheme, node),
            false => below.push(node),
        };
        for node in nodes {
            match is_breadth_first {
                true => widen(scheme, (level, next), node, leaves, &mut emit),
                false => descend(scheme, (level, next), node, leaves, &mut emit),
            }
        }
        (nodes, level, next) = (below, next, next + depth);
    }
}

fn widen<S: Scheme>(
    scheme: &mut S,
    (level, to): (u32, u32),
    node: Node<S::Ciphertext>,
    leaves: usize,
    emit: &mut dyn FnMut(&mut S, Node<S::Ciphertext>),
) {
    let mut nodes = vec![node];
    for level in level..to {
        let mut below = Vec::with_capacity(2 * nodes.len());
        for mut node in nodes {
            let odd = split(scheme, level, &mut node, leaves);
            below.push(node);
            below.extend(odd);
        }
        nodes = below;
    }
    nodes.into_iter().for_each(|node| emit(scheme, node));
}

fn split<S: Scheme>(
    scheme: &mut S,
    level: u32,
    node: &mut Node<S::Ciphertext>,
    leaves: usize,
) -> Option<Node<S::Ciphertext>> {
    let residue = node.residue + (1 << level);
    let ciphertext = scheme.split(level, &mut node.ciphertext);
    (residue < leaves).then_some(Node { residue, ciphertext })
}

fn descend<S: Scheme>(
    scheme: &mut S,
    (level, to): (u32, u32),
    mut node: Node<S::Ciphertext>,
    leaves: usize,
    emit: &mut dyn FnMut(&mut S, Node<S::Ciphertext>),
) {
    if level == to {
        return emit(scheme, node);
    }
    let odd = split(scheme, level, &mut node, leaves);
    descend(scheme, (level + 1, to), node, leaves, emit);
    if let Some(odd) = odd {
        descend(scheme, (level + 1, to), odd, leaves, emit);
    }
}

/// The winner of the columns `index << level..(index + 1) << level`.
pub struct Subtree<C> {
    /// Games behind it.
    pub level: u32,
    /// Which subtree of that level.
    pub index: u64,
    /// The ciphertext.
    pub ciphertext: C,
}

/// The subtrees that a tournament of `games` rounds leaves of `columns`, as level and index, from left to right:
/// the largest that lie wholly within them.
pub fn subtrees(columns: Range<u64>, games: u32) -> impl Iterator<Item = (u32, u64)> {
    let mut next = columns.start;
    std::iter::from_fn(move || {
        let left = columns.end.checked_sub(next).filter(|&left| left > 0)?;
        let level = left.ilog2().min(next.trailing_zeros()).min(games);
        let subtree = (level, next >> level);
        next += 1 << level;
        Some(subtree)
    })
}

/// A tournament over columns that arrive in order.
pub struct Tournament<C> {
    schedule: Schedule,
    /// Games between a column and the winner of all.
    levels: u32,
    /// Up to here, neighbours meet as soon as they can; results then wait for the others.
    depth: u32,
    /// The subtree under way, in order.
    open: Vec<Subtree<C>>,
    /// Subtrees that wait.
    done: Vec<Subtree<C>>,
}

impl<C> Tournament<C> {
    /// A tournament of up to 2^`levels` columns.
    pub fn new(schedule: Schedule, levels: u32) -> Self {
        let (depth, _) = schedule.subtree(levels);
        Self { schedule, levels, depth, open: Vec::new(), done: Vec::new() }
    }

    /// Takes the next column, or subtree of columns, and plays what the schedule plays at once.
    pub fn push<S: Scheme<Ciphertext = C>>(
        &mut self,
        scheme: &mut S,
        bits: &[S::Selector],
        entry: Subtree<C>,
    ) {
        let is_breadth_first = self.schedule.subtree(self.levels).1;
        if entry.level >= self.depth {
            return self.done.push(entry);
        }
        let ends = (entry.index + 1) << entry.level;
        self.open.push(entry);
        if is_breadth_first {
            if ends.is_multiple_of(1 << self.depth) {
                let open = std::mem::take(&mut self.open);
                self.done.extend(join(scheme, bits, open, self.depth, Alone::Waits));
            }
            return;
        }
        while let [.., left, right] = self.open.as_slice()
            && left.level < self.depth
            && left.is_neighbour(right)
        {
            let (right, left) = (self.open.pop(), self.open.pop());
            if let (Some(mut left), Some(right)) = (left, right) {
                left.meet(scheme, bits, right);
                self.open.push(left);
            }
        }
        if let Some(winner) = self.open.pop_if(|winner| winner.level == self.depth) {
            self.done.push(winner);
        }
    }

    /// What was won, in order: one subtree where the columns seen make one, else a few.
    pub fn finish<S: Scheme<Ciphertext = C>>(
        mut self,
        scheme: &mut S,
        bits: &[S::Selector],
    ) -> Vec<Subtree<C>> {
        loop {
            let is_breadth_first = self.schedule.subtree(self.levels).1;
            let mut open = std::mem::take(&mut self.open);
            if is_breadth_first {
                open = join(scheme, bits, open, self.depth, Alone::Waits);
            }
            let mut entries = std::mem::take(&mut self.done);
            entries.append(&mut open);
            // A shard may start within a subtree: what it left open comes first then.
            entries.sort_by_key(|entry| entry.index << entry.level);
            if self.depth >= self.levels {
                return entries;
            }
            self.depth = (self.depth + self.schedule.subtree(self.levels).0).min(self.levels);
            for entry in entries {
                self.push(scheme, bits, entry);
            }
        }
    }
}

impl<C> Subtree<C> {
    fn is_neighbour(&self, right: &Self) -> bool {
        let is_left = self.index.is_multiple_of(2);
        is_left && self.level == right.level && self.index + 1 == right.index
    }

    /// Becomes the winner of both.
    fn meet<S: Scheme<Ciphertext = C>>(
        &mut self,
        scheme: &mut S,
        bits: &[S::Selector],
        right: Self,
    ) {
        scheme.select(&bits[self.level as usize], &mut self.ciphertext, right.ciphertext);
        (self.level, self.index) = (self.level + 1, self.index / 2);
    }
}

/// The rule for a subtree that has no neighbour.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Alone {
    /// It goes up alone: the table ends here, so there is nobody whom it could lose to.
    Advances,
    /// It waits: the neighbour may be in another shard.
    Waits,
}

/// Plays `entries`, in order, level by level up to `level`.
pub fn join<S: Scheme>(
    scheme: &mut S,
    bits: &[S::Selector],
    mut entries: Vec<Subtree<S::Ciphertext>>,
    level: u32,
    alone: Alone,
) -> Vec<Subtree<S::Ciphertext>> {
    for current in 0..level {
        let mut next: Vec<Subtree<S::Ciphertext>> = Vec::with_capacity(entries.len());
        let mut rest = entries.into_iter().peekable();
        while let Some(mut left) = rest.next() {
            if left.level == current {
                match rest.next_if(|right| left.is_neighbour(right)) {
                    Some(right) => left.meet(scheme, bits, right),
                    None if alone == Alone::Advances => {
                        (left.level, left.index) = (current + 1, left.index / 2);
                    }
                    None => {}
                }
            }
            next.push(left);
        }
        entries = next;
    }
    entries
}

#[cfg(test)]
mod tests {
    use hushtable_prg::Platform;
    use hushtable_rlwe::bfv::scheme::NoOp;
    use hushtable_rlwe::ring::{Coefficients, Poly, Ring, ntt_primes};

    use super::*;

    const SCHEDULES: [Schedule; 7] = [
        Schedule::BreadthFirst,
        Schedule::DepthFirst,
        Schedule::Hierarchical { depth: 1 },
        Schedule::Hierarchical { depth: 2 },
        Schedule::Hierarchical { depth: 3 },
        Schedule::HierarchicalBreadth { depth: 2 },
        Schedule::HierarchicalBreadth { depth: 9 },
    ];

    fn noop() -> NoOp {
        NoOp::new(Ring::new(32, &ntt_primes(40, 32, 1), Platform::PORTABLE).unwrap())
    }

    fn constant(scheme: &NoOp, value: i64) -> Poly<Coefficients> {
        scheme.ring().from_signed_vartime(&[value])
    }

    #[test]
    fn every_leaf_holds_its_coefficient() {
        let mut scheme = noop();
        for schedule in SCHEDULES {
            for (levels, leaves) in [(0, 1), (1, 2), (3, 5), (4, 16), (5, 17), (5, 32)] {
                let values: Vec<i64> = (0..leaves as i64).map(|index| 3 * index + 1).collect();
                let ciphertext = scheme.ring().from_signed_vartime(&values);
                let mut found = vec![None; leaves];
                let root = vec![Node { residue: 0, ciphertext }];
                expand(&mut scheme, schedule, root, (0, levels), leaves, &mut |_, node| {
                    assert!(found[node.residue].replace(node.ciphertext).is_none());
                });
                for (found, value) in found.into_iter().zip(values) {
                    let expected = constant(&scheme, value << levels);
                    assert_eq!(found.unwrap().values(), expected.values(), "{schedule:?}");
                }
            }
        }
    }

    #[test]
    fn every_column_can_win() {
        let mut scheme = noop();
        for schedule in SCHEDULES {
            for columns in [1u64, 2, 3, 5, 8, 11, 16] {
                let games = columns.next_power_of_two().trailing_zeros();
                for wanted in 0..columns {
                    let bits: Vec<bool> = (0..games).map(|bit| wanted >> bit & 1 == 1).collect();
                    let mut tournament = Tournament::new(schedule, games);
                    for index in 0..columns {
                        let ciphertext = constant(&scheme, index as i64);
                        let entry = Subtree { level: 0, index, ciphertext };
                        tournament.push(&mut scheme, &bits, entry);
                    }
                    let won = tournament.finish(&mut scheme, &bits);
                    let won = join(&mut scheme, &bits, won, games, Alone::Advances);
                    assert_eq!(won.len(), 1, "{schedule:?} {columns}");
                    let expected = constant(&scheme, wanted as i64);
                    assert_eq!(won[0].ciphertext.values(), expected.values());
                }
            }
        }
    }

    #[test]
    fn columns_cut_anywhere_are_joined() {
        let mut scheme = noop();
        let (columns, games) = (13u64, 4);
        for schedule in SCHEDULES {
            for cut in 0..=columns {
                let wanted = 7 * cut % columns;
                let bits: Vec<bool> = (0..games).map(|bit| wanted >> bit & 1 == 1).collect();
                let mut won = Vec::new();
                for part in [0..cut, cut..columns] {
                    let mut tournament = Tournament::new(schedule, games);
                    for index in part.clone() {
                        let ciphertext = constant(&scheme, index as i64);
                        let entry = Subtree { level: 0, index, ciphertext };
                        tournament.push(&mut scheme, &bits, entry);
                    }
                    let own = tournament.finish(&mut scheme, &bits);
                    let places = own.iter().map(|subtree| (subtree.level, subtree.index));
                    assert!(places.eq(subtrees(part, games)), "{schedule:?} {cut}");
                    won.extend(own);
                }
                let won = join(&mut scheme, &bits, won, games, Alone::Advances);
                let expected = constant(&scheme, wanted as i64);
                assert_eq!(won.len(), 1, "{schedule:?} {cut}");
                assert_eq!(won[0].ciphertext.values(), expected.values(), "{schedule:?} {cut}");
            }
        }
    }
}
