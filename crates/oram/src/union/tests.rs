use super::*;
use proptest::collection::vec;
use proptest::prelude::*;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use std::collections::{BTreeMap, BTreeSet};

fn requests() -> impl Strategy<Value = Vec<u32>> {
    let id = prop_oneof![4 => 0u32..40, 1 => any::<u32>(), 1 => Just(DUMMY), 1 => Just(DUMMY - 1)];
    vec(id, 1..200)
}

/// How often each row is asked for.
fn counts(ids: &[u32]) -> BTreeMap<u32, u32> {
    let mut counts = BTreeMap::new();
    for id in ids.iter().filter(|id| **id != DUMMY) {
        *counts.entry(*id).or_insert(0) += 1;
    }
    counts
}

/// Holds what must be so whichever rows are kept; says which they are.
fn check(ids: &[u32], kept: &Kept, len: usize, rows_count: usize) -> BTreeSet<u32> {
    let counts = counts(ids);
    assert_eq!(kept.rows_count as usize, rows_count);
    assert_eq!((kept.ids.len(), kept.request_counts.len()), (len, len));
    assert!(kept.ids[..rows_count].is_sorted_by(|a, b| a < b));
    for (id, count) in kept.ids[..rows_count].iter().zip(kept.request_counts.iter()) {
        assert_eq!(counts.get(id), Some(count));
    }
    assert!(kept.ids[rows_count..].iter().all(|id| *id == DUMMY));
    assert!(kept.request_counts[rows_count..].iter().all(|count| *count == 0));
    let rows: BTreeSet<u32> = kept.ids[..rows_count].iter().copied().collect();
    assert_eq!(kept.positions.len(), ids.len());
    for (id, position) in ids.iter().zip(kept.positions.iter()) {
        let expected = kept.ids[..rows_count].iter().position(|row| row == id);
        assert_eq!(*position, expected.map_or(LOST, |position| position as u32), "id {id}");
    }
    rows
}

proptest! {
    #[test]
    fn a_union_is_the_set_of_the_requests(ids in requests()) {
        let union = Union::new(&ids).unwrap();
        let expected = counts(&ids);
        prop_assert_eq!(union.count() as usize, expected.len());
        prop_assert_eq!(union.slots_count(), ids.len());
        let rows = check(&ids, &union.all(), ids.len(), expected.len());
        prop_assert!(rows.iter().eq(expected.keys()));
    }

    #[test]
    fn as_many_rows_are_kept_as_there_are_places(
        ids in requests(),
        part in 0.0f64..1.0,
        seed in any::<u64>(),
    ) {
        let len = 1 + (part * ids.len() as f64) as usize;
        let mut random = ChaCha20Rng::seed_from_u64(seed);
        let union = Union::new(&ids).unwrap();
        let counts = counts(&ids);
        let rows_count = len.min(counts.len());
        for loss in Loss::ALL {
            let kept = union.keep(len, loss, &mut random).unwrap();
            let rows = check(&ids, &kept, len, rows_count);
            let lost: Vec<u32> = counts.keys().filter(|id| !rows.contains(id)).copied().collect();
            match loss {
                Loss::Random | Loss::RecentlyRead => {}
                Loss::LeastRequested => {
                    let least_kept = rows.iter().map(|id| counts[id]).min();
                    let most_lost = lost.iter().map(|id| counts[id]).max();
                    prop_assert!(most_lost.is_none() || most_lost <= least_kept);
                }
                Loss::HighestIds => prop_assert!(lost.first() > rows.last() || lost.is_empty()),
            }
        }
    }

    #[test]
    fn a_scan_finds_the_same_rows(ids in requests()) {
        let scanned = scan::scan(&ids);
        prop_assert_eq!(scanned.len(), 1);
        let count = scanned[0].count as usize;
        let rows: BTreeSet<u32> = scanned[0].ids[..count].iter().copied().collect();
        prop_assert_eq!(rows.len(), count);
        prop_assert!(rows.iter().eq(counts(&ids).keys()));
        prop_assert!(scanned[0].ids[count..].iter().all(|id| *id == DUMMY));
    }
}

/// Every row has the same chance, under either strategy that draws, where all are asked for equally.
#[test]
fn rows_are_lost_at_random() {
    const ROUNDS: u32 = 4_000;
    let ids: Vec<u32> = (0..12).flat_map(|id| [id * 1_000, id * 1_000]).chain([DUMMY; 3]).collect();
    let union = Union::new(&ids).unwrap();
    let mut random = ChaCha20Rng::seed_from_u64(5);
    for loss in [Loss::Random, Loss::LeastRequested] {
        let mut kept_counts = BTreeMap::new();
        for _ in 0..ROUNDS {
            for id in union.keep(3, loss, &mut random).unwrap().ids.iter() {
                *kept_counts.entry(*id).or_insert(0u32) += 1;
            }
        }
        assert_eq!(kept_counts.len(), 12);
        // A quarter of the rounds, within five standard deviations.
        let deviation = (f64::from(ROUNDS) * 0.25 * 0.75).sqrt();
        for (id, count) in kept_counts {
            let off = (f64::from(count) - f64::from(ROUNDS) / 4.0).abs();
            assert!(off < 5.0 * deviation, "{loss:?}: row {id} was kept {count} times");
        }
    }
}

#[test]
fn a_large_union_is_right_too() {
    let mut random = ChaCha20Rng::seed_from_u64(9);
    let ids: Vec<u32> = (0..100_000).map(|_| random.next_u32() >> 15).collect();
    let counts = counts(&ids);
    let union = Union::new(&ids).unwrap();
    assert_eq!(union.count() as usize, counts.len());
    let all = union.all();
    assert!(all.ids.iter().take(counts.len()).eq(counts.keys()));
    for (id, position) in ids.iter().zip(all.positions.iter()) {
        assert_eq!(all.ids[*position as usize], *id);
    }
    let chunks = scan::scan(&ids[..scan::CHUNK_LEN + 5]);
    assert_eq!(chunks.iter().map(|chunk| chunk.ids.len()).collect::<Vec<_>>(), [16_384, 5]);
}

#[test]
fn rounds_out_of_range_are_refused() {
    assert_eq!(Union::new(&[]).err(), Some(UnionError::NoSlots));
    let slots_count = SLOTS_COUNT_MAX + 1;
    let error = Union::new(&vec![1; slots_count]).err();
    assert_eq!(error, Some(UnionError::TooManySlots { slots_count }));
    let union = Union::new(&[1, 2, DUMMY]).unwrap();
    let mut random = ChaCha20Rng::seed_from_u64(0);
    for kept_count in [0, 4, usize::MAX] {
        let error = union.keep(kept_count, Loss::Random, &mut random).err();
        assert_eq!(error, Some(UnionError::KeptCount { kept_count, slots_count: 3 }));
    }
}

#[test]
fn losses_are_found_by_their_names() {
    for loss in Loss::ALL {
        assert_eq!(loss.name().parse(), Ok(loss));
    }
    let error = "first".parse::<Loss>().unwrap_err().to_string();
    assert!(Loss::ALL.iter().all(|loss| error.contains(loss.name())), "{error}");
}
