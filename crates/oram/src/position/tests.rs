use proptest::prelude::*;

use super::*;
use crate::memory::MemoryError;

fn key() -> Key {
    Key::random().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_map_is_an_array(
        positions in prop::collection::vec(0u32..1 << 20, 1..700),
        pack_bits in 1u32..6,
        scanned in 1usize..40,
        steps in prop::collection::vec((any::<u32>(), 0u32..1 << 20), 1..200),
    ) {
        let mut model = positions.clone();
        let mut map =
            PositionMap::build_packed(&positions, 1 << 20, &key(), pack_bits, scanned).unwrap();
        for (id, fresh) in steps {
            if id % 5 == 0 {
                prop_assert!(map.exchange(DUMMY, fresh).unwrap() < 1 << 20);
            } else {
                let id = id % model.len() as u32;
                let old = std::mem::replace(&mut model[id as usize], fresh);
                prop_assert_eq!(map.exchange(id, fresh).unwrap(), old);
            }
        }
        for (id, entry) in model.iter().enumerate() {
            prop_assert_eq!(map.exchange(id as u32, 0).unwrap(), *entry);
        }
    }
}

#[test]
fn ids_that_are_no_entries_get_random_leaves() {
    let mut map = PositionMap::build_packed(&[5; 1000], 16, &key(), 3, 4).unwrap();
    assert_eq!(map.depth(), 3);
    let mut counts = [0; 16];
    for step in 0..4000u32 {
        let id = if step % 2 == 0 { DUMMY } else { 1000 + step };
        counts[map.exchange(id, 3).unwrap() as usize] += 1;
    }
    // 250 each; six standard deviations are 92.
    assert!(counts.iter().all(|&count| (158..342).contains(&count)), "{counts:?}");
    for id in 0..1000 {
        assert_eq!(map.exchange(id, 0).unwrap(), 5);
    }
}

#[test]
fn a_map_of_a_hundred_thousand_keeps_every_entry() {
    let positions: Vec<u32> = (0..100_000u32).map(|i| i.wrapping_mul(0x9e37_79b9) >> 12).collect();
    let mut map = PositionMap::build_packed(&positions, 1 << 20, &key(), 4, 1000).unwrap();
    assert_eq!(map.depth(), 2);
    for id in (0..100_000).step_by(7) {
        assert_eq!(map.exchange(id, id).unwrap(), positions[id as usize]);
    }
    for id in 0..100_000 {
        let expected = if id % 7 == 0 { id } else { positions[id as usize] };
        assert_eq!(map.exchange(id, 0).unwrap(), expected);
    }
}

#[test]
fn what_cannot_be_is_refused() {
    assert!(matches!(
        PositionMap::build(&[], 8, &key()),
        Err(MemoryError::Capacity { capacity: 0 })
    ));
    assert!(matches!(PositionMap::build(&[1], 0, &key()), Err(MemoryError::Leaf { .. })));
    let mut map = PositionMap::build(&[1, 2, 3], 8, &key()).unwrap();
    assert_eq!((map.entries(), map.depth(), map.memory_bytes()), (3, 0, 12));
    assert_eq!(map.exchange(2, 7).unwrap(), 3);
}

#[test]
fn a_dummys_leaf_is_one_of_a_tree_of_any_number_of_leaves() {
    let mut map = PositionMap::build(&[0; 40], 10, &key()).unwrap();
    let mut seen = [0; 10];
    for _ in 0..2000 {
        seen[map.exchange(DUMMY, 3).unwrap() as usize] += 1;
    }
    assert!(seen.iter().all(|&count| count > 100), "{seen:?}");
}

#[test]
fn equality_of_words_is_a_mask() {
    for a in [0, 1, 2, 1 << 31, u32::MAX, u32::MAX - 1] {
        for b in [0, 1, 2, 1 << 31, u32::MAX, u32::MAX - 1] {
            assert_eq!(equal_u32(a, b), if a == b { u32::MAX } else { 0 });
        }
    }
}
