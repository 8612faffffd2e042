//! One checker for every backend.

use hushtable_prg::Platform;
use hushtable_rlwe::ring::{Modulus, ntt_primes};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

use super::{CHUNK_VECTORS, GROUP_COLUMNS, LANES, Packing, RowSelect, SLACK_BYTES, Task};

/// Random and extreme numbers, for shapes at the edges of the kernels' tiles.
fn check(backend: RowSelect) {
    let mut random = ChaCha20Rng::seed_from_u64(7);
    for bits in [27, 28, 32, 33, 50, 51] {
        let modulus = Modulus::new(ntt_primes(bits, 64, 1)[0]).unwrap();
        let packing = Packing::of(modulus);
        for (clients, rows, groups) in [
            (0, 2, 1),
            (1, 1, 1),
            (1, 236, 2),
            (2, 3, 1),
            (3, 5, 2),
            (4, 7, 1),
            (5, 33, 1),
            (7, 2047, 1),
            (8, 64, 1),
            (9, 65, 3),
        ] {
            let mut number = || match random.random_range(0..8) {
                0 => 0,
                1 => modulus.value() - 1,
                _ => random.random_range(0..modulus.value()),
            };
            let vectors = CHUNK_VECTORS * groups * rows * GROUP_COLUMNS;
            let mut table = vec![0xff; vectors * packing.vector_bytes() + SLACK_BYTES];
            let (packed, _) = table.split_at_mut(vectors * packing.vector_bytes());
            for bytes in packed.chunks_exact_mut(packing.vector_bytes()) {
                // All rows at their largest, where sums must not overflow.
                let largest = [modulus.value() - 1; LANES];
                let numbers = if rows == 2047 { largest } else { [(); LANES].map(|()| number()) };
                packing.pack(&numbers, bytes);
            }
            let words = packing.query_words();
            let queries: Vec<Vec<u64>> = (0..clients)
                .map(|client| {
                    let mut side = || match client {
                        1 => [modulus.value() - 1; LANES],
                        _ => [(); LANES].map(|()| number()),
                    };
                    let mut query = vec![0; CHUNK_VECTORS * rows * words];
                    for out in query.chunks_exact_mut(words) {
                        packing.pack_query(&side(), &side(), out);
                    }
                    query
                })
                .collect();
            let queries: Vec<&[u64]> = queries.iter().map(Vec::as_slice).collect();
            let task = Task { modulus, packing, rows, groups, table: &table, queries: &queries };
            let mut expected = vec![0; task.out_len()];
            RowSelect::Portable.multiply(&task, &mut expected);
            let mut found = vec![1; task.out_len()];
            backend.multiply(&task, &mut found);
            assert!(expected == found, "{backend:?} {bits} {clients} {rows} {groups}");
        }
    }
}

#[test]
fn every_backend_agrees_with_the_specification() {
    for platform in Platform::available() {
        check(RowSelect::new(platform));
    }
}

#[test]
fn the_specification_multiplies() {
    let modulus = Modulus::new(97).unwrap();
    let packing = Packing::of(modulus);
    let mut table = vec![0; CHUNK_VECTORS * 2 * GROUP_COLUMNS * packing.vector_bytes() + 16];
    // Vector 3, row 1, column 2, lane 5.
    let at = ((3 * 2 + 1) * GROUP_COLUMNS + 2) * packing.vector_bytes() + 5 * 4;
    table[at] = 50;
    let mut query = vec![0; CHUNK_VECTORS * 2 * LANES];
    query[(3 * 2 + 1) * LANES + 5] = 3 | 4 << 32;
    let queries = [query.as_slice()];
    let task = Task { modulus, packing, rows: 2, groups: 1, table: &table, queries: &queries };
    let mut out = vec![0; task.out_len()];
    RowSelect::Portable.multiply(&task, &mut out);
    let set: Vec<_> = out.iter().enumerate().filter(|&(_, &value)| value != 0).collect();
    assert_eq!(
        set,
        [(2 * CHUNK_VECTORS * LANES + 3 * LANES + 5, &((150 % 97) | (200 % 97) << 32))]
    );
}
