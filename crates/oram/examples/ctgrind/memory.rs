//! The memories in DRAM: ids, ranks, leaves not yet read and payloads are secret.

use hushtable_oram::buffer::BufferOram;
use hushtable_oram::memory::{DUMMY, MemoryOram};
use hushtable_oram::position::PositionMap;
use hushtable_oram::seal::Key;
use hushtable_prg::valgrind::{declassify, mark_public, mark_secret};

/// Not marked: AEGIS branches on whether a tag fits, which all may know. What it opens is marked.
fn key() -> Key {
    Key::from_bytes([7; 32])
}

fn secret(mut value: u32) -> u32 {
    mark_secret(std::slice::from_mut(&mut value));
    value
}

/// Rows of sizes that have loops of their own, and of a size that has none.
pub fn accesses() {
    accesses_of::<20>(60);
    accesses_of::<64>(30);
    accesses_of::<128>(30);
}

fn accesses_of<const BYTES: usize>(blocks: u32) {
    let mut memory = MemoryOram::new(blocks as usize, BYTES, &key()).expect("a memory");
    let leaves = memory.leaves();
    for id in 0..blocks {
        let mut payload = [id as u8; BYTES];
        mark_secret(&mut payload);
        memory.insert(secret(id), secret(id % leaves), &payload).expect("room");
    }
    for id in (0..blocks).chain([DUMMY; 10]) {
        let mut seen = [0; BYTES];
        let leaf = if id == DUMMY { 0 } else { id % leaves };
        memory
            .access(secret(id), leaf, secret(5u32.wrapping_mul(id) % leaves), |payload| {
                seen.copy_from_slice(payload);
                payload[3] ^= 1;
            })
            .expect("an access");
        mark_public(&mut seen);
        assert_eq!(seen, [if id == DUMMY { 0 } else { id as u8 }; BYTES]);
    }
}

pub fn exchanges() {
    let mut positions: Vec<u32> = (0..300).map(|i| 7 * i % 64).collect();
    mark_secret(&mut positions);
    let mut map = PositionMap::build_packed(&positions, 64, &key(), 3, 4).expect("a map");
    assert!(map.depth() > 2);
    for id in (0..300).step_by(3) {
        let mut old = map.exchange(secret(id), secret(9)).expect("an exchange");
        declassify(&mut old);
        assert_eq!(old, 7 * id % 64);
        let mut stray = map.exchange(secret(DUMMY), secret(9)).expect("an exchange");
        declassify(&mut stray);
        assert!(stray < 64);
    }
}

pub fn buffers() {
    let mut buffer = BufferOram::new(50, 12, 3, &key()).expect("a buffer");
    for rank in 0..50 {
        let mut row = [rank as u8; 12];
        mark_secret(&mut row);
        buffer.insert(rank, &row).expect("room");
    }
    for rank in (0..50).chain([DUMMY; 5]) {
        let mut row = [0; 12];
        buffer.row(secret(rank), &mut row).expect("a row");
        mark_public(&mut row);
        assert_eq!(row, [if rank == DUMMY { 0 } else { rank as u8 }; 12]);
        let mut gradient = [1.5f32; 3];
        mark_secret(&mut gradient);
        buffer.add(secret(rank), &gradient, 1.0).expect("a sum");
    }
    let mut rows = 0;
    buffer
        .drain(|drained| {
            let mut count = drained.contributions;
            let mut sum = [drained.gradient[2]];
            declassify(&mut count);
            mark_public(&mut sum);
            assert_eq!((count, sum), (1, [1.5]));
            rows += 1;
        })
        .expect("all rows");
    assert_eq!(rows, 50);
}
