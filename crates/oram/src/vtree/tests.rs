use proptest::prelude::*;

use super::*;

fn tree(levels: u32, words: usize) -> Vtree {
    of_shape(Shape::binary(levels), words)
}

fn of_shape(shape: Shape, words: usize) -> Vtree {
    Vtree::build(shape, words, &Key::random().unwrap(), |level, index, to| {
        for (w, to) in to.iter_mut().enumerate() {
            *to = word_at(level, index, w);
        }
    })
    .unwrap()
}

fn word_at(level: u32, index: u64, w: usize) -> u64 {
    (u64::from(level) << 48) + (index << 8) + w as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn paths_are_those_of_an_array_of_words(
        levels in 2u32..12,
        fan in prop::sample::select(vec![2u32, 2, 3, 5, 7]),
        words in 1usize..4,
        steps in prop::collection::vec((any::<u64>(), any::<u64>(), 0..3u8), 1..60),
    ) {
        let shape = Shape::new(levels, fan);
        let mut vtree = of_shape(shape, words);
        let mut model: Vec<Vec<Vec<u64>>> = (0..levels)
            .map(|l| (0..shape.nodes(l)).map(|b| (0..words).map(|w| word_at(l, b, w)).collect()).collect())
            .collect();
        let mut path = vec![0; vtree.path_words()];
        for (leaf, value, kind) in steps {
            let leaf = leaf % shape.leaves();
            let bucket = |l: u32| shape.ancestor(leaf, l) as usize;
            let expected: Vec<u64> =
                (0..levels).flat_map(|l| model[l as usize][bucket(l)].clone()).collect();
            let new: Vec<u64> = (0..path.len() as u64).map(|i| value.wrapping_mul(2 * i + 1)).collect();
            match kind {
                0 => vtree.write_path(leaf, &new).unwrap(),
                1 => vtree.update_path(leaf, |path| {
                    assert_eq!(path, &expected[..]);
                    path.copy_from_slice(&new);
                }).unwrap(),
                _ => {
                    vtree.read_path(leaf, &mut path).unwrap();
                    prop_assert_eq!(&path, &expected);
                }
            }
            if kind < 2 {
                for l in 0..levels {
                    model[l as usize][bucket(l)].copy_from_slice(&new[l as usize * words..][..words]);
                }
            }
        }
    }

    #[test]
    fn a_flipped_bit_of_a_path_is_found(
        levels in 1u32..12, leaf in any::<u64>(), pick in any::<prop::sample::Index>(), bit in 0..8u8,
    ) {
        let mut vtree = tree(levels, 1);
        let leaf = leaf & ((1 << (levels - 1)) - 1);
        vtree.update_path(leaf, |path| path.fill(7)).unwrap();
        let on_path: Vec<usize> =
            vtree.layers.iter().flat_map(|layer| vtree.group(layer, leaf).1).collect();
        let at = on_path[pick.index(on_path.len())];
        vtree.sealed[at] ^= 1u8 << bit;
        let before = vtree.sealed.clone();
        let mut path = vec![0; vtree.path_words()];
        prop_assert_eq!(vtree.read_path(leaf, &mut path), Err(Forged));
        prop_assert_eq!(vtree.update_path(leaf, |_| panic!("nothing may be changed")), Err(Forged));
        prop_assert_eq!(&vtree.sealed, &before);
        vtree.sealed[at] ^= 1u8 << bit;
        prop_assert_eq!(vtree.read_path(leaf, &mut path), Ok(()));
        prop_assert_eq!(path, vec![7; levels as usize]);
    }
}

#[test]
fn a_replayed_group_is_found_in_every_layer() {
    let mut vtree = tree(16, 1);
    let leaf = 0x5a5a & 0x7fff;
    vtree.update_path(leaf, |path| path.fill(1)).unwrap();
    let old = vtree.sealed.clone();
    vtree.update_path(leaf, |path| path.fill(2)).unwrap();
    let new = vtree.sealed.clone();
    assert!(vtree.layers.len() > 2);
    for layer in vtree.layers.clone() {
        let range = vtree.group(&layer, leaf).1;
        vtree.sealed[range.clone()].copy_from_slice(&old[range.clone()]);
        assert_eq!(vtree.read_path(leaf, &mut [0; 16]), Err(Forged));
        vtree.sealed.copy_from_slice(&new);
    }
    // The whole memory put back: only the counter beside the key tells.
    vtree.sealed.copy_from_slice(&old);
    assert_eq!(vtree.read_path(leaf, &mut [0; 16]), Err(Forged));
    vtree.sealed.copy_from_slice(&new);
    assert_eq!(vtree.read_path(leaf, &mut [0; 16]), Ok(()));
}

#[test]
fn groups_of_a_layer_are_no_substitutes_for_each_other() {
    let mut vtree =
        Vtree::build(Shape::binary(12), 1, &Key::random().unwrap(), |_, _, _| ()).unwrap();
    let layer = *vtree.layers.last().unwrap();
    let (left, right) = (vtree.group(&layer, 0).1, vtree.group(&layer, 2047).1);
    let moved = vtree.sealed[right].to_vec();
    assert_ne!(vtree.sealed[left.clone()], moved[..], "the same words are sealed differently");
    vtree.sealed[left].copy_from_slice(&moved);
    assert_eq!(vtree.read_path(0, &mut [0; 12]), Err(Forged));
}

#[test]
fn an_update_seals_every_group_of_its_path_anew() {
    let mut vtree = tree(14, 1);
    let before = vtree.sealed.clone();
    vtree.update_path(77, |_| ()).unwrap();
    for layer in vtree.layers.clone() {
        for other in [77, 77 ^ 8191] {
            let range = vtree.group(&layer, other).1;
            let same_group = vtree.group(&layer, 77).1 == range;
            assert_eq!(before[range.clone()] != vtree.sealed[range], same_group);
        }
    }
}

#[test]
fn groups_are_small_and_cover_every_level() {
    for levels in 1..=LEVELS_MAX {
        for words in 1..=WORDS_MAX {
            let heights = binary_heights(levels, words);
            assert_eq!(heights.iter().sum::<u32>(), levels);
            for (which, &height) in heights.iter().enumerate() {
                let (words, counters) = group_bytes(height, words, which + 1 < heights.len());
                assert!(height == 1 || words + counters <= GROUP_BYTES);
            }
        }
    }
    // FEDORA 6.1's Small table: 18 levels, 58 slots a bucket.
    assert_eq!(heights(Shape::binary(18), 1), [4, 4, 4, 6]);
    assert_eq!(heights(Shape::new(19, 5), 1), [1, 4, 4, 4, 6]);
    let small = Vtree::build(Shape::binary(18), 1, &Key::random().unwrap(), |_, _, _| ()).unwrap();
    assert!(small.memory_bytes() < 3 << 20);
}

#[test]
fn shapes_out_of_bounds_are_refused() {
    let key = Key::random().unwrap();
    for (levels, words) in [(LEVELS_MAX + 1, 1), (3, 0), (3, WORDS_MAX + 1)] {
        let error = Vtree::build(Shape::binary(levels), words, &key, |_, _, _| ()).err().unwrap();
        assert!(matches!(error, VtreeError::Shape { .. }));
    }
}
