//! Leaks, to see that they are seen.

use crate::secret::{numbers, secret};
use hushtable_oram::union::Union;
use hushtable_prg::valgrind::declassify;
use std::hint::black_box;

/// A branch on a secret.
pub fn branches() {
    let secrets = secret(numbers(10));
    for value in &secrets {
        if value & 1 == 1 {
            black_box(value);
        }
    }
}

/// An address made of a secret.
pub fn indexes() {
    let table: Vec<u64> = numbers(256).collect();
    for value in secret(numbers(10)) {
        black_box(table[usize::from(value as u8)]);
    }
}

/// A sort that looks.
pub fn sorts() {
    let mut keys = secret(numbers(100));
    keys.sort_unstable();
    black_box(keys);
}

/// A decision on a count that is only revealed after it.
pub fn declassifies_late() {
    let union = Union::new(&secret([3u32, 1, 3, 7])).expect("few slots");
    let mut count = union.count();
    let rows = vec![0u8; black_box(count as usize)];
    if black_box(count) > 2 {
        black_box(&rows);
    }
    declassify(&mut count);
    black_box(count);
}
