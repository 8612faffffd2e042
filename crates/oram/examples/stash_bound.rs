//! How full the stash gets, over as many accesses as you like, beside the bound that the geometry states.
//!
//!     cargo run --release -p hushtable-oram --example stash_bound -- 10000000 64 10000000
//!
//! (rows, bytes of a row, accesses; then, for other trees than ours, A, L and the root's children:
//! `92 18 2` is FEDORA's.) A plain simulation of the same rule as the oblivious eviction's:
//! the path's blocks and the stash's fill the path bottom up, each level with as many as may lie there.
//! First the tree as it is built (rows written in order), then in rounds of 10,000 that read first and
//! write after: of rows drawn uniformly, twice, by a Zipf law, and of all rows in turn. One line of JSON
//! for each; it fails if the stash was over its bound.

use hushtable_oram::geometry::{Geometry, GeometrySpec, stash_bound};
use hushtable_oram::shape;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha12Rng;

const ROUND: usize = 10_000;
const STASH: u32 = u32::MAX;

#[derive(Clone, Copy)]
struct Shape {
    rows: u64,
    slots: usize,
    period: usize,
    nodes: shape::Shape,
    bound: Option<usize>,
}

struct Simulation {
    shape: Shape,
    /// Rows of each bucket, level order.
    buckets: Vec<Vec<u32>>,
    stash: Vec<u32>,
    leaves: Vec<u32>,
    /// The bucket that holds each row.
    held: Vec<u32>,
    evictions: u64,
    waiting: usize,
    most: usize,
    counts: Vec<u64>,
    random: ChaCha12Rng,
}

impl Simulation {
    fn new(shape: Shape) -> Self {
        let mut random = ChaCha12Rng::seed_from_u64(1);
        let rows = shape.rows as usize;
        let leaves_count = shape.nodes.leaves() as u32;
        Self {
            buckets: vec![Vec::new(); shape.nodes.buckets() as usize],
            stash: Vec::new(),
            leaves: (0..rows).map(|_| random.random_range(0..leaves_count)).collect(),
            held: vec![STASH; rows],
            evictions: 0,
            waiting: 0,
            most: 0,
            counts: Vec::new(),
            shape,
            random,
        }
    }

    fn bucket(&self, level: u32, leaf: u32) -> usize {
        let nodes = self.shape.nodes;
        nodes.number(level, nodes.ancestor(leaf.into(), level)) as usize
    }

    fn enter(&mut self, row: u32) {
        self.held[row as usize] = STASH;
        self.stash.push(row);
        self.waiting += 1;
        if self.waiting == self.shape.period {
            self.waiting = 0;
            self.evict();
        }
    }

    fn take(&mut self, row: u32) {
        let held = self.held[row as usize];
        let place = if held == STASH { &mut self.stash } else { &mut self.buckets[held as usize] };
        let at = place.iter().position(|&other| other == row).expect("the row is where it is held");
        place.swap_remove(at);
    }

    fn evict(&mut self) {
        let (nodes, levels) = (self.shape.nodes, self.shape.nodes.levels());
        let target = nodes.eviction_leaf(self.evictions);
        self.evictions += 1;
        let mut by_depth: Vec<Vec<u32>> = vec![Vec::new(); levels as usize];
        let mut all = std::mem::take(&mut self.stash);
        for level in 0..levels {
            let bucket = self.bucket(level, target);
            all.append(&mut self.buckets[bucket]);
        }
        for row in all {
            let leaf = self.leaves[row as usize];
            let shared = |&level: &u32| {
                nodes.ancestor(leaf.into(), level) == nodes.ancestor(target.into(), level)
            };
            let depth = (0..levels).rev().find(shared).expect("the root");
            by_depth[depth as usize].push(row);
        }
        let mut carried = Vec::new();
        for level in (0..levels).rev() {
            carried.append(&mut by_depth[level as usize]);
            let bucket = self.bucket(level, target);
            for _ in 0..self.shape.slots.min(carried.len()) {
                let row = carried.pop().expect("a row");
                self.held[row as usize] = bucket as u32;
                self.buckets[bucket].push(row);
            }
        }
        for &row in &carried {
            self.held[row as usize] = STASH;
        }
        self.most = self.most.max(carried.len());
        let bin = carried.len();
        if self.counts.len() <= bin {
            self.counts.resize(bin + 1, 0);
        }
        self.counts[bin] += 1;
        self.stash = carried;
    }

    fn age(&mut self, accesses: usize, mut draw: impl FnMut(&mut ChaCha12Rng) -> u32) {
        let mut done = 0;
        while done < accesses {
            let mut rows: Vec<u32> = (0..ROUND).map(|_| draw(&mut self.random)).collect();
            rows.sort_unstable();
            rows.dedup();
            let leaves_count = self.shape.nodes.leaves() as u32;
            for &row in &rows {
                self.take(row);
                self.leaves[row as usize] = self.random.random_range(0..leaves_count);
            }
            for &row in &rows {
                self.enter(row);
            }
            done += rows.len();
        }
    }

    fn report(&mut self, phase: &str, accesses: usize) {
        let Shape { rows, slots, period, nodes, bound } = self.shape;
        let all: u64 = self.counts.iter().sum();
        let mut above = all;
        let p999 = self.counts.iter().position(|&count| {
            above -= count;
            above * 1000 <= all
        });
        println!(
            "{{\"phase\": \"{phase}\", \"rows\": {rows}, \"Z\": {slots}, \"A\": {period}, \"L\": {}, \"fan\": {}, \
             \"accesses\": {accesses}, \"evictions\": {all}, \"stash_max\": {}, \"stash_p999\": {}, \"bound\": {}}}",
            nodes.levels(),
            nodes.fan(),
            self.most,
            p999.unwrap_or(0),
            bound.map_or("null".to_owned(), |bound| bound.to_string()),
        );
        assert!(bound.is_none_or(|bound| self.most <= bound), "the bound does not hold");
        self.most = 0;
        self.counts.clear();
    }
}

fn main() {
    let mut arguments = std::env::args().skip(1).map(|text| text.parse().expect("a number"));
    let rows = arguments.next().unwrap_or(1_000_000);
    let row_bytes = arguments.next().unwrap_or(64) as usize;
    let accesses = arguments.next().unwrap_or(1_000_000) as usize;
    let geometry =
        Geometry::new(&GeometrySpec::on_disk(rows, row_bytes)).expect("a tree for these rows");
    let slots = geometry.slots();
    let period = arguments.next().map_or(geometry.period(), |period| period as usize);
    let levels = arguments.next().map_or(geometry.levels(), |levels| levels as u32);
    let fan = arguments.next().map_or(geometry.shape().fan(), |fan| fan as u32);
    let nodes = shape::Shape::new(levels, fan);
    let bound = stash_bound(nodes, (slots, period), rows, 80);
    let mut simulation = Simulation::new(Shape { rows, slots, period, nodes, bound });
    (0..rows as u32).for_each(|row| simulation.enter(row));
    simulation.report("build", rows as usize);
    let rows = rows as u32;
    simulation.age(accesses, |random| random.random_range(0..rows));
    simulation.report("fresh tree, uniform", accesses);
    simulation.age(accesses, |random| random.random_range(0..rows));
    simulation.report("aged tree, uniform", accesses);
    // Zipf with exponent near one, by inverting its continuous counterpart.
    let most = f64::from(rows).ln();
    simulation.age(accesses, |random| ((random.random::<f64>() * most).exp() as u32).min(rows) - 1);
    simulation.report("aged tree, zipf", accesses);
    let mut next = 0;
    simulation.age(accesses, |_| {
        next = if next + 1 < rows { next + 1 } else { 0 };
        next
    });
    simulation.report("aged tree, in turn", accesses);
}
