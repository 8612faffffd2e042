//! Which nodes a tree has, which leaf each eviction clears, and when it last passed a node.
//!
//! The root has `fan` children; every other inner node has two. So a tree may have 3, 5 or 7 times a
//! power of two of leaves, and a file need not be up to twice as long as its rows ask for. Evictions go
//! round the root's children, and within each in reverse-lexicographic order (Ring ORAM, USENIX Security
//! 2015): any consecutive evictions, as many as a level has nodes, pass each of them once.
//!
//! All of it is public: shapes, leaves that are read, and how many evictions there were.

use rand::Rng;

/// The nodes of a tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    levels: u32,
    fan: u32,
}

impl Shape {
    /// A tree of `levels` levels, root and leaves included, whose root has `fan` children.
    ///
    /// # Panics
    ///
    /// With no level, or a root of fewer than two children.
    pub const fn new(levels: u32, fan: u32) -> Self {
        assert!(levels > 0 && fan > 1, "a tree has a level and two children of its root");
        Self { levels, fan }
    }

    /// A tree of two children at every node.
    pub const fn binary(levels: u32) -> Self {
        Self::new(levels, 2)
    }

    /// Levels.
    pub const fn levels(&self) -> u32 {
        self.levels
    }

    /// Children of the root.
    pub const fn fan(&self) -> u32 {
        self.fan
    }

    /// Nodes of a level.
    pub const fn nodes(&self, level: u32) -> u64 {
        if level == 0 { 1 } else { (self.fan as u64) << (level - 1) }
    }

    /// Leaves.
    pub const fn leaves(&self) -> u64 {
        self.nodes(self.levels - 1)
    }

    /// Nodes of all levels above `level`.
    pub const fn above(&self, level: u32) -> u64 {
        if level == 0 { 0 } else { 1 + self.fan as u64 * ((1 << (level - 1)) - 1) }
    }

    /// Nodes of the tree, and buckets.
    pub const fn buckets(&self) -> u64 {
        self.above(self.levels)
    }

    /// The number of a node: level order, the root 0.
    pub const fn number(&self, level: u32, index: u64) -> u64 {
        self.above(level) + index
    }

    /// The level and index of a node.
    pub const fn place(&self, number: u64) -> (u32, u64) {
        if number == 0 {
            return (0, 0);
        }
        let level = ((number - 1) / self.fan as u64 + 1).ilog2() + 1;
        (level, number - self.above(level))
    }

    /// The index of the node of `level` on the path of `leaf`.
    pub const fn ancestor(&self, leaf: u64, level: u32) -> u64 {
        if level == 0 { 0 } else { leaf >> (self.levels - 1 - level) }
    }

    /// The numbers of the nodes on the path of `leaf`, the root's first.
    pub fn path(self, leaf: u32) -> impl Iterator<Item = u64> {
        (0..self.levels).map(move |level| self.number(level, self.ancestor(u64::from(leaf), level)))
    }

    /// The numbers of the nodes on the paths of `leaves`, each once, ascending.
    pub fn union_of_paths(&self, leaves: &[u32]) -> Vec<u64> {
        let mut leaves = leaves.to_vec();
        leaves.sort_unstable();
        let mut numbers = Vec::new();
        for level in 0..self.levels {
            let mut last = None;
            for &leaf in &leaves {
                let index = self.ancestor(u64::from(leaf), level);
                if last != Some(index) {
                    numbers.push(self.number(level, index));
                    last = Some(index);
                }
            }
        }
        numbers
    }

    /// The leaf that eviction number `eviction` clears.
    pub fn eviction_leaf(&self, eviction: u64) -> u32 {
        if self.levels == 1 {
            return 0;
        }
        let (fan, bits) = (u64::from(self.fan), self.levels - 2);
        let child = (eviction % fan) as u32;
        let within = (eviction / fan) as u32 & ((1 << bits) - 1);
        child << bits | reversed(within, bits)
    }

    /// How many of the first `evictions` evictions passed the node `index` of `level`: the counter that
    /// its bucket is sealed under, which the one root counter gives for every bucket (FEDORA 5.2).
    pub fn passes(&self, evictions: u64, level: u32, index: u64) -> u64 {
        let first = self.first_pass(level, index);
        if evictions > first { (evictions - first - 1) / self.nodes(level) + 1 } else { 0 }
    }

    /// How many of the first `evictions` evictions passed the node `index` of `level`, and the number of
    /// the last that did; none if none has.
    pub fn last_pass(&self, evictions: u64, level: u32, index: u64) -> Option<(u64, u64)> {
        let count = self.passes(evictions, level, index);
        (count > 0)
            .then(|| (count, self.first_pass(level, index) + (count - 1) * self.nodes(level)))
    }

    /// The number of the first eviction that passes a node.
    fn first_pass(&self, level: u32, index: u64) -> u64 {
        if level == 0 {
            return 0;
        }
        let bits = level - 1;
        let within = index as u32 & ((1 << bits) - 1);
        u64::from(reversed(within, bits)) * u64::from(self.fan) + (index >> bits)
    }

    /// A random leaf. Of 2^64 random numbers each leaf gets as many as any other but for one, so the
    /// probabilities of two leaves differ by less than one part in 2^36; no branch and no division
    /// depends on which it is.
    pub fn draw(&self, random: &mut impl Rng) -> u32 {
        uniform(self.leaves() as u32, random)
    }
}

/// A random number below `count`, as [`Shape::draw`] has it.
#[inline]
pub(crate) fn uniform(count: u32, random: &mut impl Rng) -> u32 {
    ((u128::from(random.next_u64()) * u128::from(count)) >> 64) as u32
}

/// The lowest `bits` bits in the other order.
fn reversed(number: u32, bits: u32) -> u32 {
    if bits == 0 { 0 } else { number.reverse_bits() >> (32 - bits) }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;
    use rand_chacha::ChaCha20Rng;

    use super::*;

    #[test]
    fn a_nodes_counter_counts_its_evictions() {
        for (levels, fan) in [(5, 2), (4, 3), (4, 5), (3, 7), (2, 3), (1, 2)] {
            let shape = Shape::new(levels, fan);
            let mut counts = vec![0; shape.buckets() as usize];
            let mut last = vec![None; shape.buckets() as usize];
            for eviction in 0..200 {
                for number in 0..shape.buckets() {
                    let (level, index) = shape.place(number);
                    assert_eq!(shape.number(level, index), number);
                    assert!(index < shape.nodes(level));
                    let found = shape.last_pass(eviction, level, index);
                    assert_eq!(found.map_or(0, |found| found.0), counts[number as usize]);
                    assert_eq!(found.map(|found| found.1), last[number as usize]);
                }
                for number in shape.path(shape.eviction_leaf(eviction)) {
                    counts[number as usize] += 1;
                    last[number as usize] = Some(eviction);
                }
            }
        }
    }

    #[test]
    fn as_many_evictions_as_a_level_has_nodes_pass_each_once() {
        for (levels, fan) in [(6, 2), (5, 3), (5, 5), (4, 7)] {
            let shape = Shape::new(levels, fan);
            for level in 0..levels {
                let count = shape.nodes(level);
                for first in [0, 1, 17, count + 3] {
                    let mut passed: Vec<u64> = (first..first + count)
                        .map(|g| shape.ancestor(u64::from(shape.eviction_leaf(g)), level))
                        .collect();
                    passed.sort_unstable();
                    assert!(passed.into_iter().eq(0..count), "level {level} of fan {fan}");
                }
            }
        }
    }

    #[test]
    fn the_order_of_a_binary_tree_is_that_of_the_leaf_bits_reversed() {
        let shape = Shape::binary(7);
        for eviction in 0..200_u64 {
            let reversed = (eviction as u32 & 63).reverse_bits() >> 26;
            assert_eq!(shape.eviction_leaf(eviction), reversed);
        }
    }

    #[test]
    fn leaves_are_drawn_alike() {
        let shape = Shape::new(3, 5);
        let mut random = ChaCha20Rng::seed_from_u64(1);
        let mut counts = [0_u32; 10];
        let draws = 100_000;
        (0..draws).for_each(|_| counts[shape.draw(&mut random) as usize] += 1);
        // Five standard deviations of a count of mean 10,000.
        let most = 5.0 * (f64::from(draws) * 0.1 * 0.9).sqrt();
        for count in counts {
            assert!((f64::from(count) - f64::from(draws) / 10.0).abs() < most, "{counts:?}");
        }
    }
}
