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
                for (row, sides) in query.chunks_exact(task.packing.query_words()).enumerate() {
                    let at = row * GROUP_COLUMNS + column % GROUP_COLUMNS;
                    let bytes = &task.table[group + at * vector_bytes..][..vector_bytes];
                    let numbers = unpack(task.packing, bytes);
                    for (sums, side) in sums.iter_mut().zip(task.packing.unpack_query(sides)) {
                        for ((sum, number), factor) in sums.iter_mut().zip(numbers).zip(side) {
                            *sum += u128::from(number) * u128::from(factor);
                        }
                    }
                }
                let [masks, bodies] =
                    sums.map(|sums| sums.map(|sum| task.modulus.reduce_u128(sum)));
                let [mask, body] = out_index(task, client, column, vector);
                match task.packing {
                    Packing::Narrow => {
                        let both = masks.iter().zip(bodies).map(|(mask, body)| mask | body << 32);
                        out[mask..mask + LANES].iter_mut().zip(both).for_each(|(o, b)| *o = b);
                    }
                    Packing::Wide => {
                        out[mask..mask + LANES].copy_from_slice(&masks);
                        out[body..body + LANES].copy_from_slice(&bodies);
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
