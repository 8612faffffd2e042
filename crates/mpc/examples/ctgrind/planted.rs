//! Leaks, to see that they are seen.

use std::hint::black_box;

use hushtable_prg::valgrind::mark_secret;

/// One of two labels by a branch on its bit.
pub fn selects_by_branch() {
    let (mut bits, labels) = ([0b1011_u16], [3_u128, 5]);
    mark_secret(&mut bits);
    for i in 0..16 {
        if bits[0] >> i & 1 == 1 {
            black_box(labels[1]);
        }
    }
}

/// One of two labels by an address made of its bit.
pub fn selects_by_address() {
    let (mut bits, labels) = ([0b1011_u16], black_box([3_u128, 5]));
    mark_secret(&mut bits);
    for i in 0..16 {
        black_box(labels[usize::from(bits[0] >> i & 1)]);
    }
}
