use std::collections::HashMap;

use crate::geometry::stash_bound;
use proptest::prelude::*;

use super::*;

fn random() -> Leaves {
    Leaves::new().unwrap()
}

/// A memory with the leaves of its blocks, as a position map would keep them.
struct Tracked {
    memory: MemoryOram,
    leaves: HashMap<u32, u32>,
    random: Leaves,
    read: Vec<u32>,
}

impl Tracked {
    fn new(memory: MemoryOram) -> Self {
        Self { memory, leaves: HashMap::new(), random: random(), read: Vec::new() }
    }

    fn access<R>(
        &mut self,
        id: u32,
        change: impl FnOnce(&mut [u8]) -> R,
    ) -> Result<R, MemoryError> {
        let (stray, new) =
            (self.random.draw(self.memory.leaves()), self.random.draw(self.memory.leaves()));
        let old = self.leaves.get(&id).copied().unwrap_or(stray);
        let result = self.memory.access(id, old, new, change)?;
        self.read.push(old);
        if id != DUMMY {
            self.leaves.insert(id, new);
        }
        Ok(result)
    }

    fn insert(&mut self, id: u32, payload: &[u8]) -> Result<(), MemoryError> {
        let leaf = self.random.draw(self.memory.leaves());
        self.memory.insert(id, leaf, payload)?;
        self.leaves.insert(id, leaf);
        Ok(())
    }

    /// Blocks that an eviction left in the stash.
    fn stash_load(&self) -> usize {
        let from = self.memory.shape.path_slots();
        self.memory.keys[from..][..self.memory.shape.stash]
            .iter()
            .filter(|&&key| key != EMPTY)
            .count()
    }
}

fn shapes() -> impl Strategy<Value = Shape> {
    let slots = prop::sample::select(vec![(4, 2), (5, 4), (8, 8), (16, 20)]);
    (1usize..200, 1usize..40, slots).prop_map(|(capacity, bytes, (slots, period))| {
        Shape::of(capacity, bytes, slots, period).unwrap()
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(40))]

    #[test]
    fn a_memory_is_a_map_of_blocks(
        shape in shapes(),
        steps in prop::collection::vec((any::<u32>(), any::<u8>(), 0..8u8), 1..400),
    ) {
        let mut tracked = Tracked::new(MemoryOram::with_shape(shape, &Key::random().unwrap()).unwrap());
        let bytes = shape.payload_bytes;
        let mut model: HashMap<u32, Vec<u8>> = HashMap::new();
        for (id, value, kind) in steps {
            let id = id % shape.capacity as u32;
            if kind == 0 {
                // A dummy sees zeros, and what it writes is nowhere.
                let seen = tracked.access(DUMMY, |payload| {
                    let seen = payload.to_vec();
                    payload.fill(value);
                    seen
                }).unwrap();
                prop_assert_eq!(seen, vec![0; bytes]);
            } else if kind < 3 && !model.contains_key(&id) {
                let payload: Vec<u8> = (0..bytes).map(|i| value.wrapping_add(i as u8)).collect();
                tracked.insert(id, &payload).unwrap();
                model.insert(id, payload);
            } else {
                let expected = model.entry(id).or_insert_with(|| vec![0; bytes]);
                let seen = tracked.access(id, |payload| {
                    let seen = payload.to_vec();
                    payload[usize::from(kind) % bytes] ^= value;
                    seen
                }).unwrap();
                prop_assert_eq!(&seen, &*expected);
                expected[usize::from(kind) % bytes] ^= value;
            }
        }
        let Blocks { ids, payload } = tracked.memory.into_blocks().unwrap();
        let mut expected: Vec<(u32, Vec<u8>)> = model.into_iter().collect();
        expected.sort();
        let found: Vec<(u32, Vec<u8>)> = ids
            .iter()
            .zip(payload.chunks(bytes))
            .filter(|(id, _)| **id != u64::MAX)
            .map(|(id, payload)| (*id as u32, payload.to_vec()))
            .collect();
        prop_assert_eq!(found, expected);
    }

    #[test]
    fn blocks_get_the_deepest_places_that_are_free(
        leaves in prop::collection::vec(0u32..16, 0..60), slots in 1usize..5, evicted in 0u32..16,
    ) {
        // Five levels. The model fills buckets from the leaf up, as Path ORAM says.
        let mut keys: Vec<u64> =
            leaves.iter().enumerate().map(|(id, leaf)| u64::from(*leaf) << 32 | id as u64).collect();
        keys.resize(leaves.len() + 7, EMPTY);
        let mut left: Vec<u32> = leaves.clone();
        let mut model = Vec::new();
        for level in (0..5).rev() {
            let fits = |leaf: &u32| leaf >> (4 - level) == evicted >> (4 - level);
            let before = left.len();
            for _ in 0..slots {
                if let Some(at) = left.iter().position(fits) {
                    left.remove(at);
                }
            }
            model.push(before - left.len());
        }
        let mut destinations = vec![0; keys.len()];
        let mut places = Places::new(Platform::detect(), keys.len()).unwrap();
        let end = places.assign(&keys, evicted, (5, slots), &mut destinations);
        let mut found = vec![0; 5];
        let mut stashed = 0;
        for (key, destination) in keys.iter().zip(&destinations) {
            if *key == EMPTY {
                continue;
            }
            let level = 4usize.checked_sub(*destination as usize / slots);
            match level {
                Some(level) => {
                    let leaf = (*key >> 32) as u32;
                    prop_assert_eq!(leaf >> (4 - level), evicted >> (4 - level));
                    found[4 - level] += 1;
                }
                None => stashed += 1,
            }
        }
        prop_assert_eq!(found, model);
        prop_assert_eq!(stashed, left.len());
        prop_assert_eq!(stashed > 0, end > 5 * slots as u64);
    }
}

/// A full memory, which is what the bound of `Shape::of` is about: loads stay far below 2^-80's.
#[test]
fn the_stash_stays_below_its_bound_for_100_000_accesses() {
    let shape = Shape::of(8 * 128 - 4, 8, 8, 8).unwrap();
    assert_eq!((shape.leaves(), shape.stash), (256, 58));
    let mut tracked = Tracked::new(MemoryOram::with_shape(shape, &Key::random().unwrap()).unwrap());
    for id in 0..shape.capacity as u32 {
        tracked.insert(id, &id.to_le_bytes().repeat(2)).unwrap();
    }
    let mut loads = HashMap::new();
    // Of some keys' leaves, 100,000 accesses need no stash at all: then until it is in use.
    for step in 0..2_000_000u32 {
        if step >= 100_000 && loads.len() > 1 {
            break;
        }
        // In turn, the worst order for Path ORAM's stash: no block is met twice before all are.
        let id = step % shape.capacity as u32;
        let seen = tracked.access(id, |payload| payload.to_vec()).unwrap();
        assert_eq!(seen, id.to_le_bytes().repeat(2));
        *loads.entry(tracked.stash_load()).or_insert(0u32) += 1;
    }
    // What an eviction exceeds once in 2^25 times.
    let rare = stash_bound(shape.tree(), (8, 8), shape.capacity as u64, 25).unwrap();
    let peak = loads.keys().max().unwrap();
    assert!(*peak <= rare && rare < shape.stash, "{peak} blocks in the stash, {rare} expected");
    assert!(loads.len() > 1, "the stash is in use, or nothing was tested");
}

/// Whether leaves could be uniform and independent: counts, and how often one comes twice running, are within
/// six standard deviations.
fn look_uniform(read: &[u32], leaves: u32) -> bool {
    let mut counts = vec![0u32; leaves as usize];
    for leaf in read {
        counts[*leaf as usize] += 1;
    }
    let mean = read.len() as f64 / f64::from(leaves);
    let chi: f64 = counts.iter().map(|&n| (f64::from(n) - mean).powi(2) / mean).sum();
    let freedom = f64::from(leaves) - 1.0;
    let twice = read.windows(2).filter(|pair| pair[0] == pair[1]).count() as f64;
    (chi - freedom).abs() < 6.0 * (2.0 * freedom).sqrt() && (twice - mean).abs() < 6.0 * mean.sqrt()
}

#[test]
fn leaves_read_are_uniform_whatever_is_asked_for() {
    let patterns: [fn(u32) -> u32; 3] =
        [|_| 7, |step| step % 500, |step| if step.is_multiple_of(3) { DUMMY } else { step % 2 }];
    for pattern in patterns {
        let mut tracked = Tracked::new(MemoryOram::new(500, 16, &Key::random().unwrap()).unwrap());
        for id in 0..500 {
            tracked.insert(id, &[0; 16]).unwrap();
        }
        for step in 0..40_000 {
            tracked.access(pattern(step), |_| ()).unwrap();
        }
        let leaves = tracked.memory.leaves();
        assert!(look_uniform(&tracked.read, leaves));
        // The planted leak, a hundred dummies that are skipped and read one path: it is found.
        let mut leaky = tracked.read.clone();
        let stray = leaky[0];
        leaky[..400].fill(stray);
        assert!(!look_uniform(&leaky, leaves));
    }
}

#[test]
fn changed_and_replayed_buckets_are_found() {
    let shape = Shape::of(300, 12, 8, 8).unwrap();
    let mut tracked = Tracked::new(MemoryOram::with_shape(shape, &Key::random().unwrap()).unwrap());
    for id in 0..300 {
        tracked.insert(id, &[id as u8; 12]).unwrap();
    }
    let stride = shape.bucket_bytes() + TAG_BYTES;
    let old = tracked.memory.sealed.clone();
    for _ in 0..shape.period * shape.leaves() {
        tracked.access(DUMMY, |_| ()).unwrap();
    }
    let new = tracked.memory.sealed.clone();
    for level in 0..shape.levels {
        let bucket = (1usize << level) - 1;
        let range = bucket * stride..(bucket + 1) * stride;
        assert_ne!(old[range.clone()], new[range.clone()], "every bucket was written since");
        let refused = |tracked: &mut Tracked| {
            let result = tracked.memory.access(1, 0, 0, |_| panic!("nothing is to be seen"));
            assert!(matches!(result, Err(MemoryError::Forged(Forged))));
        };
        tracked.memory.sealed[range.clone()].copy_from_slice(&old[range.clone()]);
        refused(&mut tracked);
        for at in [range.start, range.start + 70, range.end - 1] {
            tracked.memory.sealed.copy_from_slice(&new);
            tracked.memory.sealed[at] ^= 0x10;
            refused(&mut tracked);
        }
        // Another bucket of the same content's length.
        tracked.memory.sealed.copy_from_slice(&new);
        let other = (bucket + 1) % (2 * shape.leaves() - 1) * stride;
        tracked.memory.sealed.copy_within(other..other + stride, range.start);
        refused(&mut tracked);
        tracked.memory.sealed.copy_from_slice(&new);
    }
    for id in 0..300 {
        assert_eq!(tracked.access(id, |payload| payload.to_vec()).unwrap(), [id as u8; 12]);
    }
}

#[test]
fn an_eviction_that_meets_a_forgery_stops_the_memory() {
    let shape = Shape::of(300, 12, 8, 8).unwrap();
    let mut memory = MemoryOram::with_shape(shape, &Key::random().unwrap()).unwrap();
    for id in 0..7 {
        memory.insert(id, 0, &[0; 12]).unwrap();
    }
    memory.sealed[0] ^= 1;
    assert!(matches!(memory.insert(7, 0, &[0; 12]), Err(MemoryError::Forged(Forged))));
    memory.sealed[0] ^= 1;
    assert!(matches!(memory.insert(8, 0, &[0; 12]), Err(MemoryError::Stopped)));
    assert!(matches!(memory.access(0, 0, 0, |_| ()), Err(MemoryError::Stopped)));
}

#[test]
fn a_full_stash_is_an_error_and_not_a_loss() {
    let shape = Shape::of(300, 12, 8, 8).unwrap();
    let mut memory = MemoryOram::with_shape(shape, &Key::random().unwrap()).unwrap();
    // All blocks on one leaf: its path holds few of them.
    let mut entered = 0;
    let error = loop {
        match memory.insert(entered, 1, &[entered as u8; 12]) {
            Ok(()) => entered += 1,
            Err(error) => break error,
        }
    };
    assert!(
        matches!(error, MemoryError::StashFull { stash, capacity: 300 } if stash == shape.stash)
    );
    assert!(entered as usize > shape.stash);
    assert!(matches!(memory.insert(0, 1, &[0; 12]), Err(MemoryError::Stopped)));
    // Every block is in the stash, on the path that was to be evicted, or in a bucket off it.
    let path = shape.tree().eviction_leaf(memory.evictions);
    let mut words = vec![0; shape.levels as usize];
    let mut held = memory.keys.iter().filter(|&&key| key != EMPTY).count();
    for leaf in 0..memory.leaves() {
        memory.vtree.read_path(leaf.into(), &mut words).unwrap();
        for (level, word) in words.iter().enumerate() {
            let below = shape.levels as usize - 1 - level;
            let first = leaf & ((1 << below) - 1) == 0;
            if first && leaf >> below != path >> below {
                held += word.count_ones() as usize;
            }
        }
    }
    assert_eq!(held, entered as usize + 1);
}

#[test]
fn what_cannot_be_is_refused() {
    let key = Key::random().unwrap();
    assert!(matches!(MemoryOram::new(0, 8, &key), Err(MemoryError::Capacity { capacity: 0 })));
    assert!(matches!(MemoryOram::new(usize::MAX, 8, &key), Err(MemoryError::Capacity { .. })));
    assert!(matches!(
        MemoryOram::new(8, 0, &key),
        Err(MemoryError::PayloadBytes { payload_bytes: 0 })
    ));
    assert!(matches!(MemoryOram::new(8, usize::MAX, &key), Err(MemoryError::PayloadBytes { .. })));
    for (slots, period) in [(0, 1), (8, 0), (8, 15), (8, 16), (65, 1), (usize::MAX, 1)] {
        let refused = Shape::of(100, 8, slots, period);
        assert!(matches!(refused, Err(MemoryError::Eviction { .. })), "{slots} {period}");
    }
    let mut memory = MemoryOram::new(100, 8, &key).unwrap();
    let leaves = memory.leaves();
    assert!(matches!(memory.access(0, leaves, 0, |_| ()), Err(MemoryError::Leaf { .. })));
    assert!(matches!(
        memory.insert(0, 0, &[0; 7]),
        Err(MemoryError::Length { length: 7, expected: 8, .. })
    ));
}

#[test]
fn the_fastest_shape_keeps_to_the_bound() {
    for capacity in [1, 2, 17, 1000, 39_063, 625_000] {
        for payload in [8, 64, 136, 1000] {
            let shape = Shape::fastest(capacity, payload).unwrap();
            assert_eq!(Shape::of(capacity, payload, shape.slots, shape.period).unwrap(), shape);
            let bound = stash_bound(shape.tree(), (shape.slots, shape.period), capacity as u64, 80);
            assert_eq!(shape.stash, bound.unwrap().min(capacity));
        }
    }
}
