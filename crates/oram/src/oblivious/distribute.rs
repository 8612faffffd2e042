//! The reverse of compaction (Goodrich, "Data-oblivious external-memory algorithms for the
//! compaction, selection, and sorting of outsourced data", SPAA 2011, section 3, run backwards).

use super::column::{Alone, Bytes, Column, Columns, Words, check_payload, half, split};
use super::mask::sign;

/// The destination of an element that goes nowhere: a gap's filling.
pub const NOWHERE: u64 = u64::MAX;

/// Spreads the elements at the front over the whole array: element i goes to `destinations[i]`.
///
/// The elements that go somewhere come first, and their destinations ascend strictly, below the
/// length; all that follow them say [`NOWHERE`]. Where an element goes, and how many do, is secret.
/// The result is a permutation: elements that go nowhere fill the gaps in no stated order. The
/// destinations go along, so afterwards place i is taken if `destinations[i] == i`, and is a gap if
/// it is [`NOWHERE`]. It takes n · log n swaps. Destinations that do not ascend scramble the array.
///
/// # Panics
///
/// If there are not as many destinations as keys, or the payload is not `stride` bytes a key.
pub fn distribute(destinations: &mut [u64], keys: &mut [u64], payload: &mut [u8], stride: usize) {
    check_payload(keys, payload, stride);
    match stride {
        0 => distribute_columns(Alone, destinations, (keys, payload)),
        _ => distribute_columns(Bytes { stride }, destinations, (keys, payload)),
    }
}

/// [`distribute`] of keys with a word each.
///
/// # Panics
///
/// If there are not as many destinations, or values, as keys.
pub fn distribute_pairs(destinations: &mut [u64], keys: &mut [u64], values: &mut [u64]) {
    assert_eq!(keys.len(), values.len(), "keys and values");
    distribute_columns(Words, destinations, (keys, values));
}

fn distribute_columns<C: Column>(
    column: C,
    destinations: &mut [u64],
    (keys, rows): Columns<'_, C::Rows>,
) {
    let len = keys.len();
    assert_eq!(destinations.len(), len, "destinations and keys");
    if len < 2 {
        return;
    }
    // The bits of the way still to go, from the highest: what moves never lands on what stays, as
    // these are the steps of a compaction, backwards.
    let mut step = half(len);
    while step > 0 {
        let bit = step.trailing_zeros();
        // From the right, that nothing moves twice; in runs as long as the step, that the two sides
        // do not overlap.
        for start in (0..len - step).step_by(step).rev() {
            let length = step.min(len - step - start);
            let (low_to, high_to) = destinations[start..][..step + length].split_at_mut(step);
            let (_, rest) = split(column, (&mut *keys, &mut *rows), start);
            let (low, rest) = split(column, rest, step);
            let (low, _) = split(column, low, length);
            let (high, _) = split(column, rest, length);
            let low_to = &mut low_to[..length];
            column.swap_where(low, high, |i, _, _| {
                let (a, b) = (&mut low_to[i], &mut high_to[i]);
                let way = a.wrapping_sub((start + i) as u64);
                let mask = sign(way << (63 - bit)) & !sign(*a);
                let change = (*a ^ *b) & mask;
                *a ^= change;
                *b ^= change;
                mask
            });
        }
        step /= 2;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn check(taken: &[bool]) {
        let len = taken.len();
        let wanted: Vec<u64> = (0..len as u64).filter(|i| taken[*i as usize]).collect();
        let mut to = wanted.clone();
        to.resize(len, NOWHERE);
        let mut keys: Vec<u64> = (0..len as u64).collect();
        let mut payload: Vec<u8> =
            keys.iter().flat_map(|i| [*i as u8, 9, (*i >> 8) as u8]).collect();
        let mut values: Vec<u64> = keys.iter().map(|i| !i).collect();
        let (mut pair_to, mut pair_keys) = (to.clone(), keys.clone());
        distribute(&mut to, &mut keys, &mut payload, 3);
        for (i, place) in wanted.iter().enumerate() {
            assert_eq!(keys[*place as usize], i as u64, "{taken:?}");
        }
        for (i, to) in to.iter().enumerate() {
            assert_eq!(*to, if taken[i] { i as u64 } else { NOWHERE });
        }
        for (key, row) in keys.iter().zip(payload.chunks(3)) {
            assert_eq!(row, [*key as u8, 9, (*key >> 8) as u8]);
        }

        distribute_pairs(&mut pair_to, &mut pair_keys, &mut values);
        assert_eq!((&pair_to, &pair_keys), (&to, &keys));
        assert!(keys.iter().zip(&values).all(|(key, value)| !key == *value));

        keys.sort_unstable();
        assert!(keys.into_iter().eq(0..len as u64), "a permutation");
    }

    #[test]
    fn every_small_set_of_places_is_filled() {
        for len in 0..=13u32 {
            for word in 0..1u32 << len {
                check(&(0..len).map(|i| word >> i & 1 == 1).collect::<Vec<_>>());
            }
        }
    }

    proptest! {
        #[test]
        fn elements_go_where_they_are_sent(taken in vec(any::<bool>(), 0..600)) {
            check(&taken);
        }
    }
}
