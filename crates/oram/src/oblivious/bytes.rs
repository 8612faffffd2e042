//! Conditional moves of rows of bytes.

use super::mask::Mask;

/// A block's moves are written out, without a loop; most rows are a few blocks and a word or two.
const BLOCK_BYTES: usize = 64;

/// Runs `word` on the words of two slices of one length, then `byte` on the bytes left over.
#[inline(always)]
fn both(
    a: &mut [u8],
    b: &mut [u8],
    mut word: impl FnMut(&mut u64, &mut u64),
    mut byte: impl FnMut(&mut u8, &mut u8),
) {
    assert_eq!(a.len(), b.len(), "rows of two lengths");
    let (a_blocks, a_rest) = a.as_chunks_mut::<BLOCK_BYTES>();
    let (b_blocks, b_rest) = b.as_chunks_mut::<BLOCK_BYTES>();
    let mut words = |a: &mut [[u8; 8]], b: &mut [[u8; 8]]| {
        for (a, b) in a.iter_mut().zip(b) {
            let (mut x, mut y) = (u64::from_le_bytes(*a), u64::from_le_bytes(*b));
            word(&mut x, &mut y);
            (*a, *b) = (x.to_le_bytes(), y.to_le_bytes());
        }
    };
    for (a, b) in a_blocks.iter_mut().zip(b_blocks) {
        words(a.as_chunks_mut().0, b.as_chunks_mut().0);
    }
    let (a_words, a_rest) = a_rest.as_chunks_mut::<8>();
    let (b_words, b_rest) = b_rest.as_chunks_mut::<8>();
    words(a_words, b_words);
    for (a, b) in a_rest.iter_mut().zip(b_rest) {
        byte(a, b);
    }
}

/// Runs `word` and `byte` on the words and bytes of `from`, changing those of `into`.
#[inline(always)]
fn into(
    into: &mut [u8],
    from: &[u8],
    mut word: impl FnMut(u64, u64) -> u64,
    mut byte: impl FnMut(u8, u8) -> u8,
) {
    assert_eq!(into.len(), from.len(), "rows of two lengths");
    let (into_blocks, into_rest) = into.as_chunks_mut::<BLOCK_BYTES>();
    let (from_blocks, from_rest) = from.as_chunks::<BLOCK_BYTES>();
    let mut words = |into: &mut [[u8; 8]], from: &[[u8; 8]]| {
        for (into, from) in into.iter_mut().zip(from) {
            *into = word(u64::from_le_bytes(*into), u64::from_le_bytes(*from)).to_le_bytes();
        }
    };
    for (into, from) in into_blocks.iter_mut().zip(from_blocks) {
        words(into.as_chunks_mut().0, from.as_chunks().0);
    }
    let (into_words, into_rest) = into_rest.as_chunks_mut::<8>();
    let (from_words, from_rest) = from_rest.as_chunks::<8>();
    words(into_words, from_words);
    for (into, from) in into_rest.iter_mut().zip(from_rest) {
        *into = byte(*into, *from);
    }
}

/// `to` becomes `from` if the mask says so; both are read, and `to` is written, either way.
///
/// # Panics
///
/// If the lengths, which are public, differ.
#[inline]
pub fn copy_if(mask: Mask, to: &mut [u8], from: &[u8]) {
    let bits = mask.bits();
    into(
        to,
        from,
        |to, from| to ^ ((to ^ from) & bits),
        |to, from| to ^ ((to ^ from) & bits as u8),
    );
}

/// `to` becomes `to | from` if the mask says so: for a row picked out of many, from zeros.
///
/// # Panics
///
/// If the lengths, which are public, differ.
#[inline]
pub fn or_into_if(mask: Mask, to: &mut [u8], from: &[u8]) {
    let bits = mask.bits();
    into(to, from, |to, from| to | (from & bits), |to, from| to | (from & bits as u8));
}

/// `a` and `b` change places if the mask says so; both are read and written either way.
///
/// # Panics
///
/// If the lengths, which are public, differ.
#[inline]
pub fn swap_if(mask: Mask, a: &mut [u8], b: &mut [u8]) {
    let bits = mask.bits();
    both(
        a,
        b,
        |x, y| {
            let change = (*x ^ *y) & bits;
            *x ^= change;
            *y ^= change;
        },
        |x, y| {
            let change = (*x ^ *y) & bits as u8;
            *x ^= change;
            *y ^= change;
        },
    );
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
