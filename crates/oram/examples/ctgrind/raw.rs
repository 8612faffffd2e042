//! The main memory: ids, leaves and payloads of blocks are secret, the leaves that paths are read by
//! are not.

use std::collections::BTreeSet;

use crate::secret::{numbers, secret};
use hushtable_oram::attempt::Attempt;
use hushtable_oram::bucket::{DUMMY, HEAD_BYTES, block_bytes, clear, id, leaf, set_head};
use hushtable_oram::disk::MemoryStore;
use hushtable_oram::evict::Eviction;
use hushtable_oram::geometry::{Geometry, GeometrySpec};
use hushtable_oram::raw::{Fetch, RawOram};
use hushtable_oram::recover::{Entered, recover};
use hushtable_oram::seal::Key;
use hushtable_oram::tree::{Tree, TreePlace, TreeState};
use hushtable_oram::vtree::Vtree;
use hushtable_prg::valgrind::{declassify, mark_public, mark_secret};
use rand::SeedableRng;
use rand_chacha::ChaCha20Rng;

const ROWS: u32 = 90;
/// 8 blocks a bucket, so that a few rows make a tree of some height.
const PAYLOAD_BYTES: usize = 500;
const CACHED_LEVELS: u32 = 2;

fn geometry(rows: u32) -> Geometry {
    Geometry::new(&GeometrySpec::on_disk(rows.into(), PAYLOAD_BYTES)).expect("a tree")
}

/// Fills a block, and makes a secret of it.
fn fill(block: &mut [u8], id: u32, leaf: u32) {
    set_head(block, id, leaf);
    block[HEAD_BYTES..].fill(id as u8);
    mark_secret(block);
}

pub fn evicts() {
    let geometry = geometry(400);
    let (levels, slots) = (geometry.levels(), geometry.slots() as u32);
    let stride = block_bytes(PAYLOAD_BYTES);
    for (boundary, target) in [(0, 0), (2, 5), (levels, geometry.leaves() as u32 - 1)] {
        let mut eviction = Eviction::new(&geometry, boundary);
        let mut random = numbers(1_000).map(|number| (number >> 32) as u32);
        let mut next = 0;
        for level in 0..levels {
            // Below the node that the path has in common with the target, any leaf will do.
            let low = (1 << (levels - 1 - level)) - 1;
            let blocks = eviction.bucket_mut(level as usize).chunks_exact_mut(stride);
            for (block, random) in blocks.zip(&mut random) {
                if random % 3 == 0 {
                    fill(block, DUMMY, 0);
                } else {
                    fill(block, next, target & !low | random & low);
                    next += 1;
                }
            }
        }
        clear(eviction.stash_mut(), stride);
        for (at, block) in eviction.stash_mut().chunks_exact_mut(stride).enumerate() {
            if at < geometry.period() {
                fill(block, next, random.next().expect("enough") % geometry.leaves() as u32);
                next += 1;
            } else {
                fill(block, DUMMY, 0);
            }
        }
        eviction.run(target).expect("room");

        let mut ids = BTreeSet::new();
        for level in 0..levels {
            let bucket = eviction.bucket_mut(level as usize);
            mark_public(bucket);
            assert_eq!(bucket.len(), slots as usize * stride);
            let shift = levels - 1 - level;
            for block in bucket.chunks_exact(stride).filter(|block| id(block) != DUMMY) {
                assert_eq!(leaf(block) >> shift, target >> shift);
                assert!(block[HEAD_BYTES..].iter().all(|byte| *byte == id(block) as u8));
                ids.insert(id(block));
            }
        }
        mark_public(eviction.stash_mut());
        let stash = eviction.stash_mut().chunks_exact(stride).map(id);
        ids.extend(stash.filter(|id| *id != DUMMY));
        assert!(ids.into_iter().eq(0..next));
    }
}

/// Rows at leaves of their own, by the memory's own writes; all that was written is secret.
pub(crate) fn filled(rows: u32) -> (RawOram, Vec<u32>) {
    let geometry = geometry(rows);
    let key = Key::from_bytes([7; 32]);
    let place = TreePlace::new(&geometry, CACHED_LEVELS, rows as usize);
    let store = Box::new(MemoryStore::new(place.pages() as usize));
    let random = ChaCha20Rng::seed_from_u64(1);
    let valid = Vtree::build(geometry.shape(), geometry.valid_words(), &key, |_, _, _| ());
    let state = TreeState::first(&place, Attempt::from_bytes([1; 16]));
    let tree = Tree::new(&place, key, store, state, random);
    // Windows of a few paths: several of them.
    let mut memory = RawOram::new(tree, valid.expect("valid bits"), 0, 1 << 17);
    let count = geometry.leaves();
    let leaves: Vec<u32> = numbers(rows as usize).map(|n| ((n >> 40) % count) as u32).collect();
    memory
        .write(rows as usize, &mut |at, block| fill(block, at as u32, leaves[at]))
        .expect("room for all rows");
    memory.commit();
    (memory, leaves)
}

/// Takes each of `ids` out, and says whether it was there.
fn fetch(memory: &mut RawOram, leaves: &[u32], ids: &[u32]) -> Vec<bool> {
    let of = |id: u32| leaves.get(id as usize).copied().unwrap_or(1);
    let requests: Vec<Fetch> =
        ids.iter().map(|&id| Fetch { id: secret([id])[0], leaf: of(id) }).collect();
    let mut were_there = vec![false; ids.len()];
    memory
        .fetch(&requests, &mut |at, payload, found| {
            let mut found = found.bit();
            declassify(&mut found);
            let mut payload = payload.to_vec();
            mark_public(&mut payload);
            let expected = if found == 1 { ids[at] as u8 } else { 0 };
            assert!(payload.iter().all(|byte| *byte == expected));
            were_there[at] = found == 1;
        })
        .expect("what was written");
    were_there
}

pub fn fetches() {
    let (mut memory, leaves) = filled(ROWS);
    let ids: Vec<u32> = (0..ROWS).step_by(3).chain([DUMMY; 3]).collect();
    let found = fetch(&mut memory, &leaves, &ids);
    assert!(ids.iter().zip(&found).all(|(id, found)| *found == (*id != DUMMY)));
    // Nothing is there twice.
    assert!(!fetch(&mut memory, &leaves, &ids[..5]).contains(&true));
}

pub fn writes() {
    let (mut memory, mut leaves) = filled(ROWS);
    let evictions = memory.evictions();
    let ids: Vec<u32> = (0..ROWS).step_by(2).chain([DUMMY; 9]).collect();
    assert!(fetch(&mut memory, &leaves, &ids).contains(&true));
    for &id in ids.iter().filter(|id| **id != DUMMY) {
        leaves[id as usize] ^= 1;
    }
    let mut fill_at = |at: usize, block: &mut [u8]| {
        let leaf = leaves.get(ids[at] as usize).copied().unwrap_or(0);
        fill(block, ids[at], leaf);
    };
    memory.write(ids.len(), &mut fill_at).expect("room");
    memory.commit();
    assert!(memory.evictions() > evictions + 1);
    let all: Vec<u32> = (0..ROWS).collect();
    assert!(!fetch(&mut memory, &leaves, &all).contains(&false));
}

pub fn recovers() {
    let (mut memory, mut leaves) = filled(ROWS);
    let flushed = memory.evictions();
    memory.tree_mut().flush(flushed).expect("memory");
    memory.commit();
    let mut entered = vec![Entered { evictions: flushed, blocks: memory.stash().to_vec() }];
    // A round behind the checkpoint: older copies of its rows are in buckets all the same.
    let ids: Vec<u32> = (0..ROWS).step_by(4).chain([DUMMY; 5]).collect();
    fetch(&mut memory, &leaves, &ids);
    let mut blocks = Vec::new();
    memory
        .write(ids.len(), &mut |at, block| {
            if let Some(leaf) = leaves.get_mut(ids[at] as usize) {
                *leaf ^= 1;
            }
            fill(block, ids[at], leaves.get(ids[at] as usize).copied().unwrap_or(0));
            blocks.extend_from_slice(block);
        })
        .expect("room");
    memory.commit();
    entered.push(Entered { evictions: flushed, blocks });

    let evictions = memory.evictions();
    let random = &mut ChaCha20Rng::seed_from_u64(3);
    let recovered =
        recover(memory.tree_mut(), (evictions, flushed), entered, random, &mut |_, _| ());
    let mut recovered = recovered.expect("all rows");
    mark_public(&mut recovered.leaves);
    mark_public(&mut recovered.valid);
    mark_public(&mut recovered.upper);
    let upper: BTreeSet<u32> =
        recovered.upper.chunks_exact(block_bytes(PAYLOAD_BYTES)).map(id).collect();
    let on_disk: u32 = recovered.valid.iter().map(|word| word.count_ones()).sum();
    assert_eq!(on_disk as usize + upper.len() - 1, ROWS as usize);
    for (row, (leaf, expected)) in recovered.leaves.iter().zip(&leaves).enumerate() {
        assert!(leaf == expected || upper.contains(&(row as u32)));
    }
}
