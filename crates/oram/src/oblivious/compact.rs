//! Compaction that keeps the order (Sasy, Johnson and Goldberg, "Fast Fully Oblivious Compaction and
//! Shuffling", CCS 2022, section 4): n/2 · log n swaps, whose places do not depend on the flags.

use super::column::{Alone, Bytes, Column, Columns, Words, check_payload, half, join, split};
use super::mask::{Mask, less, sign};
use zeroize::Zeroizing;

/// Moves what is flagged to the front, in the order in which it was; says how many that are.
///
/// The result is a permutation: what is not flagged follows, in no stated order. Afterwards `flags`
/// are set for the flagged elements at the front and clear behind. The count is secret.
///
/// # Panics
///
/// If there are not as many flags as keys, or the payload is not `stride` bytes a key.
pub fn compact(flags: &mut [Mask], keys: &mut [u64], payload: &mut [u8], stride: usize) -> u64 {
    check_payload(keys, payload, stride);
    match stride {
        0 => compact_columns(Alone, flags, (keys, payload)),
        _ => compact_columns(Bytes { stride }, flags, (keys, payload)),
    }
}

/// [`compact`] of keys with a word each.
///
/// # Panics
///
/// If there are not as many flags, or values, as keys.
pub fn compact_pairs(flags: &mut [Mask], keys: &mut [u64], values: &mut [u64]) -> u64 {
    assert_eq!(keys.len(), values.len(), "keys and values");
    compact_columns(Words, flags, (keys, values))
}

fn compact_columns<C: Column>(column: C, flags: &mut [Mask], columns: Columns<'_, C::Rows>) -> u64 {
    assert_eq!(flags.len(), columns.0.len(), "flags and keys");
    // before[i]: how many of the first i are flagged.
    let mut before = Zeroizing::new(Vec::with_capacity(flags.len() + 1));
    let mut count = 0;
    before.push(count);
    for flag in flags.iter() {
        count += flag.bit();
        before.push(count);
    }
    any_length(column, &before, columns);
    for (i, flag) in flags.iter_mut().enumerate() {
        *flag = Mask::less(i as u64, count);
    }
    count
}

/// Moves what is flagged to the front. `before` is one longer than the columns; only differences
/// within it count.
fn any_length<C: Column>(column: C, before: &[u64], columns: Columns<'_, C::Rows>) {
    let len = columns.0.len();
    if len < 2 {
        return;
    }
    if len.is_power_of_two() {
        return rotated(column, before, columns, 0);
    }
    // The right part, a power of two, is longer than the left one. It is left rotated, so that its
    // first flagged element comes to lie where, moved by the length of the right part, it will
    // follow the left part's last.
    let right = half(len);
    let left = len - right;
    let count = before[left].wrapping_sub(before[0]);
    let (low, high) = split(column, columns, left);
    let start = (right - left) as u64;
    join(
        len,
        || any_length(column, &before[..=left], (&mut *low.0, &mut *low.1)),
        || {
            let start = start.wrapping_add(count) & (right as u64 - 1);
            rotated(column, &before[left..], (&mut *high.0, &mut *high.1), start);
        },
    );
    let (_, last) = split(column, high, right - left);
    column.swap_where(low, last, |i, _, _| !less(i as u64, count));
}

/// Moves what is flagged to the positions from `start` on, around the end to the front; the length
/// is a power of two, and `start` a secret below it.
fn rotated<C: Column>(column: C, before: &[u64], columns: Columns<'_, C::Rows>, start: u64) {
    let len = columns.0.len();
    if len < 2 {
        return;
    }
    let middle = len / 2;
    let within = middle as u64 - 1;
    let count = before[middle].wrapping_sub(before[0]);
    let (low, high) = split(column, columns, middle);
    join(
        len,
        || rotated(column, &before[..=middle], (&mut *low.0, &mut *low.1), start & within),
        || {
            let start = start.wrapping_add(count) & within;
            rotated(column, &before[middle..], (&mut *high.0, &mut *high.1), start);
        },
    );
    // Each half now has its flagged elements in the right places but for which half they are in:
    // from `turn` on they are in the other one.
    let turn = start.wrapping_add(count) & within;
    let wraps = !less((start & within).wrapping_add(count), middle as u64);
    let starts_right = !less(start, middle as u64);
    let flip = wraps ^ starts_right;
    column.swap_where(low, high, |i, _, _| flip ^ !sign((i as u64).wrapping_sub(turn)));
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn masks(flags: &[bool]) -> Vec<Mask> {
        flags.iter().map(|flag| Mask::from_bit(u64::from(*flag))).collect()
    }

    fn check(flags: &[bool]) {
        let len = flags.len();
        let expected: Vec<u64> = (0..len as u64).filter(|i| flags[*i as usize]).collect();
        let mut keys: Vec<u64> = (0..len as u64).collect();
        let mut payload: Vec<u8> =
            keys.iter().flat_map(|i| [*i as u8, (*i >> 8) as u8, 7]).collect();
        let mut after = masks(flags);
        let count = compact(&mut after, &mut keys, &mut payload, 3);
        assert_eq!(count as usize, expected.len());
        assert_eq!(keys[..expected.len()], expected, "{flags:?}");
        assert!(
            after.iter().enumerate().all(|(i, flag)| flag.bit() == u64::from(i < expected.len()))
        );
        for (key, row) in keys.iter().zip(payload.chunks(3)) {
            assert_eq!(row, [*key as u8, (*key >> 8) as u8, 7]);
        }

        let mut values: Vec<u64> = (0..len as u64).map(|i| !i).collect();
        let mut again: Vec<u64> = (0..len as u64).collect();
        compact_pairs(&mut masks(flags), &mut again, &mut values);
        assert_eq!(again, keys);
        assert!(again.iter().zip(&values).all(|(key, value)| !key == *value));

        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..len as u64), "a permutation");
    }

    #[test]
    fn every_small_set_of_flags_is_compacted() {
        for len in 0..=13u32 {
            for word in 0..1u32 << len {
                check(&(0..len).map(|i| word >> i & 1 == 1).collect::<Vec<_>>());
            }
        }
    }

    proptest! {
        #[test]
        fn flags_are_compacted_in_order(flags in vec(any::<bool>(), 0..600)) {
            check(&flags);
        }
    }

    #[test]
    fn large_arrays_are_compacted_by_several_threads() {
        check(&(0..70_001u64).map(|i| i * i % 7 < 3).collect::<Vec<_>>());
    }
}
