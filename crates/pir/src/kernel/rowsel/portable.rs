//! The specification of RowSel.

use super::{CHUNK_VECTORS, GROUP_COLUMNS, LANES, Packing, Task, out_index};

/// See [`RowSelect::multiply`](super::RowSelect::multiply).
pub(super) fn multiply(task: &Task<'_>, out: &mut [u64]) {
    let vector_bytes = task.packing.vector_bytes();
    for vector in 0..CHUNK_VECTORS {
        for column in 0..task.groups * GROUP_COLUMNS {
            let group = (vector * task.groups + column / GROUP_COLUMNS) * task.group_bytes();
            for (client, query) in task.queries.iter().enumerate() {
                let query = &query[vector * task.query_vector()..][..task.query_vector()];
                let mut sums = [[0u128; LANES]; 2];
                for (row, sides) in query.chunks_exact(2 * LANES).enumerate() {
                    let at = row * GROUP_COLUMNS + column % GROUP_COLUMNS;
                    let bytes = &task.table[group + at * vector_bytes..][..vector_bytes];
                    let numbers = unpack(task.packing, bytes);
                    for (sums, side) in sums.iter_mut().zip(sides.chunks_exact(LANES)) {
                        for ((sum, number), &factor) in sums.iter_mut().zip(numbers).zip(side) {
                            *sum += u128::from(number) * u128::from(factor);
                        }
                    }
                }
                for (side, sums) in sums.iter().enumerate() {
                    let at = out_index(task, client, column, side, vector);
                    for (out, &sum) in out[at..at + LANES].iter_mut().zip(sums) {
                        *out = task.modulus.reduce_u128(sum);
                    }
                }
            }
        }
    }
}

fn unpack(packing: Packing, bytes: &[u8]) -> [u64; LANES] {
    let number = |lane: usize| {
        let (first, shift, bits) = match packing {
            Packing::Narrow => (lane * 4, 0, 32),
            Packing::Wide => (lane * 52 / 8, lane * 52 % 8, 52),
        };
        let mut word = [0; 8];
        let rest = &bytes[first..];
        let count = rest.len().min(8);
        word[..count].copy_from_slice(&rest[..count]);
        (u64::from_le_bytes(word) >> shift) & (u64::MAX >> (64 - bits))
    };
    std::array::from_fn(number)
}
