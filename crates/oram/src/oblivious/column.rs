//! What may go along with keys when they change places: nothing, words, or rows of bytes.

use super::bytes::swap_if;
use super::mask::{Mask, less};

/// From this many elements on, two halves are worked on by two threads.
pub(super) const PARALLEL_LEN_MIN: usize = 1 << 16;

/// Keys and their rows, side by side.
pub(super) type Columns<'a, R> = (&'a mut [u64], &'a mut R);

/// A kind of rows beside the keys. Rows are split and swapped, never looked at.
pub(super) trait Column: Copy + Send + Sync {
    /// The rows of a range of keys.
    type Rows: ?Sized + Send;

    /// Splits the rows in two: the rows of the first `at` keys, and the rest.
    fn split(self, rows: &mut Self::Rows, at: usize) -> (&mut Self::Rows, &mut Self::Rows);

    /// Swaps `low[i]` with `high[i]` wherever `mask(i, key of low[i], key of high[i])` is all ones.
    /// Both have one length.
    fn swap_where(
        self,
        low: Columns<'_, Self::Rows>,
        high: Columns<'_, Self::Rows>,
        mask: impl FnMut(usize, u64, u64) -> u64,
    );

    /// As [`Column::swap_where`], on `low[len - 1 - i]` and `high[i]`.
    fn swap_where_mirrored(
        self,
        low: Columns<'_, Self::Rows>,
        high: Columns<'_, Self::Rows>,
        mask: impl FnMut(usize, u64, u64) -> u64,
    );

    /// Whether so many rows, which are costly to swap, stay in the cache while a network goes over them
    /// again and again. The answer depends on the shape alone.
    #[inline(always)]
    fn is_small(self, _len: usize) -> bool {
        false
    }

    /// Sorts all of a short part where there is a faster way; says whether there was, which depends
    /// on the length alone.
    #[inline(always)]
    fn sort_block(self, _columns: Columns<'_, Self::Rows>) -> bool {
        false
    }

    /// Sorts all of a short bitonic sequence where there is a faster way, as above.
    #[inline(always)]
    fn merge_block(self, _columns: Columns<'_, Self::Rows>) -> bool {
        false
    }
}

/// Keys and rows of the first `at`, and of the others.
#[inline]
pub(super) fn split<C: Column>(
    column: C,
    (keys, rows): Columns<'_, C::Rows>,
    at: usize,
) -> (Columns<'_, C::Rows>, Columns<'_, C::Rows>) {
    let (low_keys, high_keys) = keys.split_at_mut(at);
    let (low_rows, high_rows) = column.split(rows, at);
    ((low_keys, low_rows), (high_keys, high_rows))
}

/// The largest power of two below `len`, which is 2 or more.
#[inline]
pub(super) fn half(len: usize) -> usize {
    len.next_power_of_two() / 2
}

/// Runs both, on two threads if there is work enough for them.
#[inline]
pub(super) fn join(len: usize, first: impl FnOnce() + Send, second: impl FnOnce() + Send) {
    if len >= PARALLEL_LEN_MIN {
        rayon::join(first, second);
    } else {
        first();
        second();
    }
}

#[inline(always)]
fn swap_words(a: &mut u64, b: &mut u64, mask: u64) {
    let change = (*a ^ *b) & mask;
    *a ^= change;
    *b ^= change;
}

/// What the second cache of every processor holds.
const CACHE_BYTES: usize = 256 << 10;

/// Length of the parts whose networks are written out in registers.
const BLOCK_LEN: usize = 8;

/// The smaller of `keys[i]` and `keys[j]` to i.
#[inline(always)]
fn order(keys: &mut [u64; BLOCK_LEN], i: usize, j: usize) {
    let change = (keys[i] ^ keys[j]) & less(keys[j], keys[i]);
    keys[i] ^= change;
    keys[j] ^= change;
}

#[inline(always)]
fn order_pair(keys: &mut [u64; BLOCK_LEN], words: &mut [u64; BLOCK_LEN], i: usize, j: usize) {
    let mask = less(keys[j], keys[i]);
    let (key, word) = ((keys[i] ^ keys[j]) & mask, (words[i] ^ words[j]) & mask);
    (keys[i], keys[j]) = (keys[i] ^ key, keys[j] ^ key);
    (words[i], words[j]) = (words[i] ^ word, words[j] ^ word);
}

/// The comparators that sort a block.
#[inline(always)]
fn bitonic_sort(mut order: impl FnMut(usize, usize)) {
    for size in [2, 4, BLOCK_LEN] {
        for start in (0..BLOCK_LEN).step_by(size) {
            for i in 0..size / 2 {
                order(start + size / 2 - 1 - i, start + size / 2 + i);
            }
        }
        bitonic_merge(size / 2, &mut order);
    }
}

/// The comparators that sort each bitonic part of `size` of a block.
#[inline(always)]
fn bitonic_merge(size: usize, mut order: impl FnMut(usize, usize)) {
    for step in [4, 2, 1] {
        if step < size {
            for i in (0..BLOCK_LEN).filter(|i| i & step == 0) {
                order(i, i + step);
            }
        }
    }
}

/// No rows.
#[derive(Clone, Copy)]
pub(super) struct Alone;

impl Column for Alone {
    type Rows = [u8];

    #[inline(always)]
    fn split(self, rows: &mut [u8], _at: usize) -> (&mut [u8], &mut [u8]) {
        rows.split_at_mut(0)
    }

    #[inline(always)]
    fn swap_where(
        self,
        (low, _): Columns<'_, [u8]>,
        (high, _): Columns<'_, [u8]>,
        mut mask: impl FnMut(usize, u64, u64) -> u64,
    ) {
        for (i, (a, b)) in low.iter_mut().zip(high).enumerate() {
            let mask = mask(i, *a, *b);
            swap_words(a, b, mask);
        }
    }

    #[inline(always)]
    fn swap_where_mirrored(
        self,
        (low, _): Columns<'_, [u8]>,
        (high, _): Columns<'_, [u8]>,
        mut mask: impl FnMut(usize, u64, u64) -> u64,
    ) {
        for (i, (a, b)) in low.iter_mut().rev().zip(high).enumerate() {
            let mask = mask(i, *a, *b);
            swap_words(a, b, mask);
        }
    }

    #[inline(always)]
    fn sort_block(self, (keys, _): Columns<'_, [u8]>) -> bool {
        let Ok(keys) = <&mut [u64; BLOCK_LEN]>::try_from(keys) else { return false };
        bitonic_sort(|i, j| order(keys, i, j));
        true
    }

    #[inline(always)]
    fn merge_block(self, (keys, _): Columns<'_, [u8]>) -> bool {
        let Ok(keys) = <&mut [u64; BLOCK_LEN]>::try_from(keys) else { return false };
        bitonic_merge(BLOCK_LEN, |i, j| order(keys, i, j));
        true
    }
}

/// One word a key.
#[derive(Clone, Copy)]
pub(super) struct Words;

impl Column for Words {
    type Rows = [u64];

    #[inline(always)]
    fn split(self, rows: &mut [u64], at: usize) -> (&mut [u64], &mut [u64]) {
        rows.split_at_mut(at)
    }

    #[inline(always)]
    fn swap_where(
        self,
        (low_keys, low): Columns<'_, [u64]>,
        (high_keys, high): Columns<'_, [u64]>,
        mut mask: impl FnMut(usize, u64, u64) -> u64,
    ) {
        let keys = low_keys.iter_mut().zip(high_keys);
        for (i, ((a, b), (x, y))) in keys.zip(low.iter_mut().zip(high)).enumerate() {
            let mask = mask(i, *a, *b);
            swap_words(a, b, mask);
            swap_words(x, y, mask);
        }
    }

    #[inline(always)]
    fn swap_where_mirrored(
        self,
        (low_keys, low): Columns<'_, [u64]>,
        (high_keys, high): Columns<'_, [u64]>,
        mut mask: impl FnMut(usize, u64, u64) -> u64,
    ) {
        let keys = low_keys.iter_mut().rev().zip(high_keys);
        for (i, ((a, b), (x, y))) in keys.zip(low.iter_mut().rev().zip(high)).enumerate() {
            let mask = mask(i, *a, *b);
            swap_words(a, b, mask);
            swap_words(x, y, mask);
        }
    }

    #[inline(always)]
    fn sort_block(self, (keys, words): Columns<'_, [u64]>) -> bool {
        let Ok(keys) = <&mut [u64; BLOCK_LEN]>::try_from(keys) else { return false };
        let Ok(words) = <&mut [u64; BLOCK_LEN]>::try_from(words) else { return false };
        bitonic_sort(|i, j| order_pair(keys, words, i, j));
        true
    }

    #[inline(always)]
    fn merge_block(self, (keys, words): Columns<'_, [u64]>) -> bool {
        let Ok(keys) = <&mut [u64; BLOCK_LEN]>::try_from(keys) else { return false };
        let Ok(words) = <&mut [u64; BLOCK_LEN]>::try_from(words) else { return false };
        bitonic_merge(BLOCK_LEN, |i, j| order_pair(keys, words, i, j));
        true
    }
}

/// As many bytes a key.
#[derive(Clone, Copy)]
pub(super) struct Bytes {
    /// Not zero: that is [`Alone`].
    pub stride: usize,
}

impl Column for Bytes {
    type Rows = [u8];

    #[inline(always)]
    fn split(self, rows: &mut [u8], at: usize) -> (&mut [u8], &mut [u8]) {
        rows.split_at_mut(at * self.stride)
    }

    #[inline(always)]
    fn is_small(self, len: usize) -> bool {
        len * (self.stride + size_of::<u64>()) <= CACHE_BYTES
    }

    #[inline(always)]
    fn swap_where(
        self,
        (low_keys, mut low): Columns<'_, [u8]>,
        (high_keys, mut high): Columns<'_, [u8]>,
        mut mask: impl FnMut(usize, u64, u64) -> u64,
    ) {
        // Not by chunks_exact_mut, which divides: the runs of a network's last steps are short.
        for (i, (a, b)) in low_keys.iter_mut().zip(high_keys).enumerate() {
            let (x, y);
            (x, low) = low.split_at_mut(self.stride);
            (y, high) = high.split_at_mut(self.stride);
            let mask = Mask::from_bit(mask(i, *a, *b));
            swap_words(a, b, mask.bits());
            swap_if(mask, x, y);
        }
    }

    #[inline(always)]
    fn swap_where_mirrored(
        self,
        (low_keys, mut low): Columns<'_, [u8]>,
        (high_keys, mut high): Columns<'_, [u8]>,
        mut mask: impl FnMut(usize, u64, u64) -> u64,
    ) {
        for (i, (a, b)) in low_keys.iter_mut().rev().zip(high_keys).enumerate() {
            let (x, y);
            (low, x) = low.split_at_mut(low.len() - self.stride);
            (y, high) = high.split_at_mut(self.stride);
            let mask = Mask::from_bit(mask(i, *a, *b));
            swap_words(a, b, mask.bits());
            swap_if(mask, x, y);
        }
    }
}

/// Holds the shapes, which are public, against each other.
#[track_caller]
pub(super) fn check_payload(keys: &[u64], payload: &[u8], stride: usize) {
    let expected = keys.len().checked_mul(stride);
    assert!(
        expected == Some(payload.len()),
        "{} keys with {stride} bytes each, but {} bytes of payload",
        keys.len(),
        payload.len()
    );
}
