//! Bitonic sorting (Batcher, "Sorting networks and their applications", AFIPS 1968) of any length.
//!
//! The form in which every comparator puts the larger key to the right: two sorted halves are merged
//! by comparing mirror images, then ever closer neighbours. An array whose length is no power of two
//! is then one with infinite keys to its right, which no comparator would ever move, so those
//! comparators are left out. The recursion goes depth first, and a part is finished while it is in
//! the cache. Short arrays of rows are merged by Batcher's odd-even network (same paper) instead,
//! which has a seventh fewer comparators, but goes over the whole in each of its steps.

use super::column::{Alone, Bytes, Column, Columns, Words, check_payload, half, join, split};
use super::mask::less;

/// Sorts `keys` in ascending order, the `stride` bytes of `payload` along with each.
///
/// It is a network of n/4 · log n · (log n + 1) comparators for n keys. Equal keys may change
/// places: make keys distinct (an index in the low bits) where that matters.
///
/// # Panics
///
/// If the payload is not `stride` bytes a key.
pub fn sort(keys: &mut [u64], payload: &mut [u8], stride: usize) {
    check_payload(keys, payload, stride);
    match stride {
        0 => sort_columns(Alone, (keys, payload)),
        _ => sort_columns(Bytes { stride }, (keys, payload)),
    }
}

/// Sorts `keys` in ascending order, the word of `values` along with each, as [`sort`] does.
///
/// # Panics
///
/// If there are not as many values as keys.
pub fn sort_pairs(keys: &mut [u64], values: &mut [u64]) {
    assert_eq!(keys.len(), values.len(), "keys and values");
    sort_columns(Words, (keys, values));
}

fn sort_columns<C: Column>(column: C, columns: Columns<'_, C::Rows>) {
    let len = columns.0.len();
    if len < 2 || column.sort_block((&mut *columns.0, &mut *columns.1)) {
        return;
    }
    let middle = half(len);
    let (keys, rows) = columns;
    let (low, high) = split(column, (&mut *keys, &mut *rows), middle);
    join(len, || sort_columns(column, low), || sort_columns(column, high));
    if column.is_small(len) {
        return merge_odd_even(column, (keys, rows), middle);
    }
    let (low, high) = split(column, (keys, rows), middle);
    // What has no mirror image in the right half is less than infinity, and stays.
    let alone = 2 * middle - len;
    let (_, paired) = split(column, (&mut *low.0, &mut *low.1), alone);
    column.swap_where_mirrored(paired, (&mut *high.0, &mut *high.1), |_, a, b| less(b, a));
    join(len, || merge(column, low), || merge(column, high));
}

/// Sorts a bitonic sequence.
fn merge<C: Column>(column: C, columns: Columns<'_, C::Rows>) {
    let len = columns.0.len();
    if len < 2 || column.merge_block((&mut *columns.0, &mut *columns.1)) {
        return;
    }
    let middle = half(len);
    let (low, high) = split(column, columns, middle);
    let (paired, _) = split(column, (&mut *low.0, &mut *low.1), len - middle);
    column.swap_where(paired, (&mut *high.0, &mut *high.1), |_, a, b| less(b, a));
    join(len, || merge(column, low), || merge(column, high));
}

/// Merges the sorted first `middle`, a power of two and the larger part, and the sorted others.
fn merge_odd_even<C: Column>(column: C, columns: Columns<'_, C::Rows>, middle: usize) {
    let (keys, rows) = columns;
    debug_assert!(keys.len() <= 2 * middle, "the first part is the larger");
    let mut step = middle;
    while step > 0 {
        // Runs of `step` against the next `step`: after the first step, the two halves' outer runs
        // are in place already.
        let (_, mut rest) = split(column, (&mut *keys, &mut *rows), step % middle);
        while rest.0.len() > step {
            let (low, after) = split(column, rest, step);
            let run = step.min(after.0.len());
            let (high, after) = split(column, after, run);
            let (low, _) = split(column, low, run);
            column.swap_where(low, high, |_, a, b| less(b, a));
            rest = after;
        }
        step /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn keys() -> impl Strategy<Value = Vec<u64>> {
        let key = prop_oneof![any::<u64>(), 0u64..8, Just(u64::MAX)];
        vec(key, 0..300)
    }

    proptest! {
        #[test]
        fn keys_are_sorted(keys in keys()) {
            let mut sorted = keys.clone();
            sort(&mut sorted, &mut [], 0);
            let mut expected = keys;
            expected.sort_unstable();
            prop_assert_eq!(sorted, expected);
        }

        #[test]
        fn rows_go_along(keys in keys(), stride in 1usize..40) {
            // A row tells where it comes from, so that pairs can be compared as sets.
            let row = |i: usize| (0..stride).map(move |j| (i >> (8 * (j % 2))) as u8 ^ (j / 2) as u8);
            let mut payload: Vec<u8> = (0..keys.len()).flat_map(row).collect();
            let mut expected: Vec<(u64, Vec<u8>)> =
                keys.iter().enumerate().map(|(i, key)| (*key, row(i).collect())).collect();
            let mut sorted = keys.clone();
            sort(&mut sorted, &mut payload, stride);
            prop_assert!(sorted.is_sorted());
            let mut found: Vec<(u64, Vec<u8>)> =
                sorted.into_iter().zip(payload.chunks(stride).map(<[u8]>::to_vec)).collect();
            found.sort();
            expected.sort();
            prop_assert_eq!(found, expected);
        }

        #[test]
        fn values_go_along(keys in keys()) {
            let mut sorted = keys.clone();
            let mut values: Vec<u64> = (0..keys.len() as u64).collect();
            sort_pairs(&mut sorted, &mut values);
            prop_assert!(sorted.is_sorted());
            for (key, value) in sorted.iter().zip(&values) {
                prop_assert_eq!(*key, keys[*value as usize]);
            }
            values.sort_unstable();
            prop_assert!(values.into_iter().eq(0..keys.len() as u64));
        }
    }

    /// The zero-one principle (Knuth, TAOCP 3, 5.3.4, theorem Z): a network that sorts every
    /// sequence of zeros and ones sorts every sequence.
    #[test]
    fn every_sequence_of_zeros_and_ones_is_sorted() {
        for len in 0..=17u32 {
            for word in 0..1u32 << len {
                let mut keys: Vec<u64> = (0..len).map(|i| u64::from(word >> i & 1)).collect();
                let mut rows: Vec<u8> = keys.iter().map(|key| *key as u8).collect();
                let mut keyed = keys.clone();
                sort(&mut keys, &mut [], 0);
                assert!(keys.is_sorted(), "{len} {word:b}");
                sort(&mut keyed, &mut rows, 1);
                assert!(keyed == keys && rows.is_sorted(), "{len} {word:b}, with rows");
            }
        }
    }

    #[test]
    fn large_arrays_are_sorted_by_several_threads() {
        let key = |i: u64| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(17);
        for len in [(1 << 17) + 77, 100_000u64] {
            let mut keys: Vec<u64> = (0..len).map(key).collect();
            let mut values = keys.clone();
            let mut expected = keys.clone();
            expected.sort_unstable();
            let mut alone = keys.clone();
            sort(&mut alone, &mut [], 0);
            assert!(alone == expected);
            sort_pairs(&mut keys, &mut values);
            assert!(keys == expected && values == expected);
        }
    }

    #[test]
    fn rows_beyond_the_cache_are_sorted() {
        let mut keys: Vec<u64> = (0..5_000u64).map(|i| i * 2_654_435_761 % 4_999).collect();
        let mut payload: Vec<u8> = keys.iter().flat_map(|key| [*key as u8; 80]).collect();
        let mut expected = keys.clone();
        expected.sort_unstable();
        sort(&mut keys, &mut payload, 80);
        assert!(keys == expected);
        assert!(keys.iter().zip(payload.chunks(80)).all(|(key, row)| row == [*key as u8; 80]));
    }

    #[test]
    #[should_panic(expected = "3 keys with 2 bytes each, but 5 bytes of payload")]
    fn payloads_of_another_size_are_refused() {
        sort(&mut [1, 2, 3], &mut [0; 5], 2);
    }
}
