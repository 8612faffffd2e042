//! Masks, conditional moves, sorting, compaction and distribution.

use crate::secret::{numbers, secret};
use hushtable_oram::oblivious::{self, Mask, NOWHERE, copy_if, or_into_if, swap_if};
use hushtable_prg::valgrind::mark_public;

/// Lengths with every shape of network: blocks, odd ends, rows beyond the cache, two threads.
const LENS: [usize; 5] = [1, 8, 777, 4_001, (1 << 16) + 9];
const STRIDES: [usize; 3] = [3, 64, 83];

pub fn masks() {
    for len in [0, 7, 8, 63, 64, 83, 200] {
        for (i, value) in numbers(40).enumerate() {
            let values = secret([value, if i % 3 == 0 { value } else { !value }]);
            let (a, b) = (values[0], values[1]);
            let equal = Mask::equal(a, b);
            let mask = (equal | Mask::less(a, b)) & !(Mask::from_bit(a) ^ Mask::from_bit(b));
            let mut results = [mask.select_u64(a, b), equal.select_u64(a, b), mask.bit()];
            let mut narrow = [mask.select_u32(a as u32, b as u32)];
            let mut rows: Vec<Vec<u8>> = (0..4).map(|i| secret(vec![i as u8; len])).collect();
            let [x, y, z, w] = &mut rows[..] else { unreachable!("four rows") };
            copy_if(mask, x, y);
            or_into_if(equal, y, z);
            swap_if(equal, z, w);
            mark_public(&mut results);
            mark_public(&mut narrow);
            rows.iter_mut().for_each(|row| mark_public(row));
            assert_eq!(results[1], if i % 3 == 0 { value } else { !value });
            assert!(rows[3].iter().all(|byte| *byte == if i % 3 == 0 { 2 } else { 3 }));
        }
    }
}

pub fn sorts() {
    for len in LENS {
        let mut expected: Vec<u64> = numbers(len).collect();
        expected.sort_unstable();
        let check = |mut keys: Vec<u64>| {
            mark_public(&mut keys);
            assert!(keys == expected);
        };
        let mut keys = secret(numbers(len));
        oblivious::sort(&mut keys, &mut [], 0);
        check(keys);
        let mut keys = secret(numbers(len));
        let mut values = secret(numbers(len));
        oblivious::sort_pairs(&mut keys, &mut values);
        check(keys);
        check(values);
        for stride in STRIDES.into_iter().filter(|_| len < 5_000) {
            let mut keys = secret(numbers(len));
            let mut payload = secret(numbers(len).flat_map(|key| vec![key as u8; stride]));
            oblivious::sort(&mut keys, &mut payload, stride);
            mark_public(&mut payload);
            assert!(payload.chunks(stride).zip(&expected).all(|(row, key)| row[0] == *key as u8));
            check(keys);
        }
    }
}

pub fn compacts() {
    for len in LENS {
        let flags = || -> Vec<Mask> {
            secret(numbers(len)).iter().map(|number| Mask::from_bit(*number)).collect()
        };
        let expected: Vec<u64> = numbers(len).filter(|number| number % 2 == 1).collect();
        let check = |mut keys: Vec<u64>, count: u64| {
            mark_public(&mut keys);
            let mut count = [count];
            mark_public(&mut count);
            assert!(keys[..count[0] as usize] == expected);
        };
        let mut keys = secret(numbers(len));
        let count = oblivious::compact(&mut flags(), &mut keys, &mut [], 0);
        check(keys, count);
        let (mut keys, mut values) = (secret(numbers(len)), secret(numbers(len)));
        let count = oblivious::compact_pairs(&mut flags(), &mut keys, &mut values);
        check(keys, count);
        check(values, count);
        for stride in STRIDES.into_iter().filter(|_| len < 5_000) {
            let (mut keys, mut payload) = (secret(numbers(len)), secret(vec![1u8; len * stride]));
            let count = oblivious::compact(&mut flags(), &mut keys, &mut payload, stride);
            check(keys, count);
        }
    }
}

pub fn distributes() {
    for len in LENS {
        let places: Vec<usize> =
            numbers(len).enumerate().filter(|(_, n)| n % 3 == 0).map(|(i, _)| i).collect();
        let destinations = || {
            let mut to: Vec<u64> = places.iter().map(|place| *place as u64).collect();
            to.resize(len, NOWHERE);
            secret(to)
        };
        let check = |mut keys: Vec<u64>| {
            mark_public(&mut keys);
            assert!(places.iter().zip(numbers(len)).all(|(place, key)| keys[*place] == key));
        };
        let mut keys = secret(numbers(len));
        oblivious::distribute(&mut destinations(), &mut keys, &mut [], 0);
        check(keys);
        let (mut keys, mut values) = (secret(numbers(len)), secret(numbers(len)));
        oblivious::distribute_pairs(&mut destinations(), &mut keys, &mut values);
        check(keys);
        check(values);
        for stride in STRIDES.into_iter().filter(|_| len < 5_000) {
            let (mut keys, mut payload) = (secret(numbers(len)), secret(vec![1u8; len * stride]));
            oblivious::distribute(&mut destinations(), &mut keys, &mut payload, stride);
            check(keys);
        }
    }
}
