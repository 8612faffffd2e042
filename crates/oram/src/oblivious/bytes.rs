//! Conditional moves of rows of bytes.

use super::mask::Mask;

/// Bytes of a block. All of it is read before any is written, and it is changed a byte at a time: so
/// the compiler sees that it may use vectors, with words it does not.
const BLOCK_BYTES: usize = 64;

/// Two slices of one length, changed by `change`, which works bit by bit: on a word, or on a byte in
/// a word's lowest bits.
#[inline(always)]
fn both(a: &mut [u8], b: &mut [u8], change: impl Fn(u64, u64) -> (u64, u64)) {
    assert_eq!(a.len(), b.len(), "rows of two lengths");
    let bytes = |x: &mut u8, y: &mut u8| {
        let (a, b) = change(u64::from(*x), u64::from(*y));
        (*x, *y) = (a as u8, b as u8);
    };
    let (a_blocks, a) = a.as_chunks_mut::<BLOCK_BYTES>();
    let (b_blocks, b) = b.as_chunks_mut::<BLOCK_BYTES>();
    for (a, b) in a_blocks.iter_mut().zip(b_blocks) {
        let (mut x, mut y) = (*a, *b);
        x.iter_mut().zip(&mut y).for_each(|(x, y)| bytes(x, y));
        (*a, *b) = (x, y);
    }
    let (a_words, a) = a.as_chunks_mut();
    let (b_words, b) = b.as_chunks_mut();
    for (a, b) in a_words.iter_mut().zip(b_words) {
        let (x, y) = change(u64::from_le_bytes(*a), u64::from_le_bytes(*b));
        (*a, *b) = (x.to_le_bytes(), y.to_le_bytes());
    }
    a.iter_mut().zip(b).for_each(|(a, b)| bytes(a, b));
}

/// `to`, changed by `change` of it and `from`, as [`both`] does.
#[inline(always)]
fn into(to: &mut [u8], from: &[u8], change: impl Fn(u64, u64) -> u64) {
    assert_eq!(to.len(), from.len(), "rows of two lengths");
    let byte = |to: &mut u8, from: &u8| *to = change(u64::from(*to), u64::from(*from)) as u8;
    let (to_blocks, to) = to.as_chunks_mut::<BLOCK_BYTES>();
    let (from_blocks, from) = from.as_chunks::<BLOCK_BYTES>();
    for (to, from) in to_blocks.iter_mut().zip(from_blocks) {
        let (mut x, y) = (*to, *from);
        x.iter_mut().zip(&y).for_each(|(x, y)| byte(x, y));
        *to = x;
    }
    let (to_words, to) = to.as_chunks_mut();
    let (from_words, from) = from.as_chunks();
    for (to, from) in to_words.iter_mut().zip(from_words) {
        *to = change(u64::from_le_bytes(*to), u64::from_le_bytes(*from)).to_le_bytes();
    }
    to.iter_mut().zip(from).for_each(|(to, from)| byte(to, from));
}

/// `to` becomes `from` if the mask says so; both are read, and `to` is written, either way.
///
/// # Panics
///
/// If the lengths, which are public, differ.
#[inline]
pub fn copy_if(mask: Mask, to: &mut [u8], from: &[u8]) {
    let bits = mask.bits();
    into(to, from, |to, from| to ^ ((to ^ from) & bits));
}

/// `to` becomes `to | from` if the mask says so: for a row picked out of many, from zeros.
///
/// # Panics
///
/// If the lengths, which are public, differ.
#[inline]
pub fn or_into_if(mask: Mask, to: &mut [u8], from: &[u8]) {
    let bits = mask.bits();
    into(to, from, |to, from| to | (from & bits));
}

/// `a` and `b` change places if the mask says so; both are read and written either way.
///
/// # Panics
///
/// If the lengths, which are public, differ.
#[inline]
pub fn swap_if(mask: Mask, a: &mut [u8], b: &mut [u8]) {
    let bits = mask.bits();
    both(a, b, |x, y| {
        let change = (x ^ y) & bits;
        (x ^ change, y ^ change)
    });
}

/// [`swap_if`] of rows of a length known beforehand, by a byte that is all ones or all zeros, for vector code
/// of the platform that it is compiled for. Who calls it keeps the mask's making from the optimiser.
#[inline(always)]
pub(super) fn swap_bits<const BYTES: usize>(mask: u8, a: &mut [u8; BYTES], b: &mut [u8; BYTES]) {
    let (mut x, mut y) = (*a, *b);
    for (x, y) in x.iter_mut().zip(&mut y) {
        let change = (*x ^ *y) & mask;
        (*x, *y) = (*x ^ change, *y ^ change);
    }
    (*a, *b) = (x, y);
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn rows_move_if_the_mask_says_so(
            pairs in vec(any::<(u8, u8)>(), 0..200),
            yes in any::<bool>(),
        ) {
            let (a, b): (Vec<u8>, Vec<u8>) = pairs.into_iter().unzip();
            let mask = Mask::from_bit(u64::from(yes));

            let mut copied = a.clone();
            copy_if(mask, &mut copied, &b);
            prop_assert_eq!(&copied, if yes { &b } else { &a });

            let mut joined = a.clone();
            or_into_if(mask, &mut joined, &b);
            let both: Vec<u8> = a.iter().zip(&b).map(|(a, b)| a | b).collect();
            prop_assert_eq!(&joined, if yes { &both } else { &a });

            let (mut left, mut right) = (a.clone(), b.clone());
            swap_if(mask, &mut left, &mut right);
            prop_assert_eq!((left, right), if yes { (b, a) } else { (a, b) });
        }
    }

    #[test]
    #[should_panic(expected = "rows of two lengths")]
    fn rows_of_two_lengths_are_refused() {
        swap_if(Mask::YES, &mut [0; 3], &mut [0; 4]);
    }
}
