//! Leaks, to see that they are seen.

use crate::secret::{numbers, secret};
use hushtable_oram::bucket::{DUMMY, block_bytes, id, set_head};
use hushtable_oram::oblivious::Mask;
use hushtable_oram::union::Union;
use hushtable_prg::valgrind::declassify;
use std::hint::black_box;

/// A branch on a secret.
pub fn branches() {
    let secrets = secret(numbers(10));
    for value in &secrets {
        if value & 1 == 1 {
            black_box(value);
        }
    }
}

/// An address made of a secret.
pub fn indexes() {
    let table: Vec<u64> = numbers(256).collect();
    for value in secret(numbers(10)) {
        black_box(table[usize::from(value as u8)]);
    }
}

/// A sort that looks.
pub fn sorts() {
    let mut keys = secret(numbers(100));
    keys.sort_unstable();
    black_box(keys);
}

/// A decision on a count that is only revealed after it.
pub fn declassifies_late() {
    let union = Union::new(&secret([3u32, 1, 3, 7])).expect("few slots");
    let mut count = union.count();
    let rows = vec![0u8; black_box(count as usize)];
    if black_box(count) > 2 {
        black_box(&rows);
    }
    declassify(&mut count);
    black_box(count);
}

/// Blocks with ids of their own, every third a dummy.
fn blocks(count: usize) -> Vec<u8> {
    let mut blocks = vec![0; count * block_bytes(24)];
    for (at, block) in blocks.chunks_exact_mut(block_bytes(24)).enumerate() {
        set_head(block, if at % 3 == 0 { DUMMY } else { at as u32 }, at as u32);
    }
    secret(blocks)
}

/// An eviction that takes the stash's blocks to a bucket one by one, and leaves dummies out.
pub fn evicts_blocks_only() {
    let stash = blocks(20);
    let mut bucket = vec![0; stash.len()];
    let mut room = bucket.chunks_exact_mut(block_bytes(24));
    for block in stash.chunks_exact(block_bytes(24)) {
        if id(block) != DUMMY {
            room.next().expect("as many").copy_from_slice(block);
        }
    }
    black_box(bucket);
}

/// A search for a block that ends where it is, as the published artifact's does when the stash has it.
pub fn stops_when_found() {
    let wanted = secret([7u32])[0];
    for block in blocks(20).chunks_exact(block_bytes(24)) {
        if Mask::equal(id(block).into(), wanted.into()).bit() == 1 {
            black_box(block);
            break;
        }
    }
}

/// A draw from a table of sums by a binary search.
pub fn searches() {
    let sums: Vec<u64> = (0..64).map(|i| i << 58).collect();
    let draw = secret(numbers(1))[0];
    black_box(sums.partition_point(|sum| *sum <= draw));
}
