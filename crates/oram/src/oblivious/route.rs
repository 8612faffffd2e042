//! Routing: every element goes to a place of its own, by Batcher's merge exchange (Knuth, TAOCP 3, 5.2.2,
//! algorithm M) over the places, which has the fewest comparators of the networks for any length.
//!
//! For short arrays whose places were worked out beforehand: it moves the rows a third fewer times than
//! to sort them and spread them afterwards. It is compiled for each platform's instructions.

use std::hint::black_box;

use hushtable_prg::{Platform, Vectorised};

use super::bytes::swap_bits;
use super::column::check_payload;

/// The comparators for arrays of one length, and the platform that they are made on.
pub struct Router {
    platform: Platform,
    len: usize,
    /// The two places of each.
    comparators: Vec<[u16; 2]>,
}

impl Router {
    /// For arrays of `len` elements.
    ///
    /// # Panics
    ///
    /// If those are more than 2^16.
    pub fn new(platform: Platform, len: usize) -> Self {
        assert!(len <= 1 << 16, "{len} elements are sorted and spread instead");
        let mut comparators = Vec::new();
        let top = len.next_power_of_two() / 2;
        let mut part = top;
        while part > 0 && len > 1 {
            let (mut next, mut residue, mut distance) = (top, 0, part);
            loop {
                let low = (0..len - distance).filter(|i| i & part == residue);
                comparators.extend(low.map(|i| [i as u16, (i + distance) as u16]));
                if next == part {
                    break;
                }
                distance = next - part;
                next /= 2;
                residue = part;
            }
            part /= 2;
        }
        Self { platform, len, comparators }
    }

    /// Moves element i, its key and the `stride` bytes of its payload, to place `destinations[i]`, whichever
    /// that is: what moves where is secret. Destinations are every place once, and come out in order.
    ///
    /// # Panics
    ///
    /// If there are not as many destinations and keys as were declared, or the payload is not `stride` bytes
    /// a key.
    pub fn route(
        &self,
        destinations: &mut [u64],
        keys: &mut [u64],
        payload: &mut [u8],
        stride: usize,
    ) {
        check_payload(keys, payload, stride);
        assert_eq!((destinations.len(), keys.len()), (self.len, self.len), "destinations, keys");
        let comparators = &self.comparators;
        self.platform.run(Route { comparators, destinations, keys, payload, stride });
    }
}

struct Route<'a> {
    comparators: &'a [[u16; 2]],
    destinations: &'a mut [u64],
    keys: &'a mut [u64],
    payload: &'a mut [u8],
    stride: usize,
}

impl Vectorised for Route<'_> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { comparators, destinations, keys, payload, stride } = self;
        // The sizes of blocks that are met most get loops of their own, without counts.
        match stride {
            0 => exchange(comparators, destinations, keys, |_, _, _| ()),
            64 => {
                let rows = payload.as_chunks_mut::<64>().0;
                exchange(comparators, destinations, keys, |i, j, mask| {
                    swap_rows(mask, rows, i, j);
                });
            }
            128 => {
                let rows = payload.as_chunks_mut::<128>().0;
                exchange(comparators, destinations, keys, |i, j, mask| {
                    swap_rows(mask, rows, i, j);
                });
            }
            _ => exchange(comparators, destinations, keys, |i, j, mask| {
                let (low, high) = payload.split_at_mut(j * stride);
                let (a, b) = (&mut low[i * stride..][..stride], &mut high[..stride]);
                let (a_blocks, a) = a.as_chunks_mut::<32>();
                let (b_blocks, b) = b.as_chunks_mut::<32>();
                for (a, b) in a_blocks.iter_mut().zip(b_blocks) {
                    swap_bits(mask, a, b);
                }
                let (a_words, a) = a.as_chunks_mut::<8>();
                let (b_words, b) = b.as_chunks_mut::<8>();
                for (a, b) in a_words.iter_mut().zip(b_words) {
                    swap_bits(mask, a, b);
                }
                for (a, b) in a.iter_mut().zip(b) {
                    let change = (*a ^ *b) & mask;
                    (*a, *b) = (*a ^ change, *b ^ change);
                }
            }),
        }
    }
}

#[inline(always)]
fn swap_rows<const BYTES: usize>(mask: u8, rows: &mut [[u8; BYTES]], i: usize, j: usize) {
    let (low, high) = rows.split_at_mut(j);
    swap_bits(mask, &mut low[i], &mut high[0]);
}

/// The network: `swap(i, j, mask)` is to swap rows i < j where `mask` is all ones.
#[inline(always)]
fn exchange(
    comparators: &[[u16; 2]],
    destinations: &mut [u64],
    keys: &mut [u64],
    mut swap: impl FnMut(usize, usize, u8),
) {
    for &[i, j] in comparators {
        let (i, j) = (usize::from(i), usize::from(j));
        let (a, b) = (destinations[i], destinations[j]);
        // Both are below 2^63. The optimiser is not to know what a mask can be, and makes no branch of it.
        let mask = black_box((b.wrapping_sub(a) as i64 >> 63) as u64);
        let change = (a ^ b) & mask;
        (destinations[i], destinations[j]) = (a ^ change, b ^ change);
        let change = (keys[i] ^ keys[j]) & mask;
        keys[i] ^= change;
        keys[j] ^= change;
        swap(i, j, mask as u8);
    }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    /// What a router is to do, on every platform.
    fn check(destinations: &[u64], stride: usize) {
        let len = destinations.len();
        let row = |i: usize| (0..stride).map(move |j| (i >> (8 * (j % 2))) as u8 ^ (j / 2) as u8);
        let keys: Vec<u64> = (0..len as u64).map(|i| !(i << 40)).collect();
        let payload: Vec<u8> = (0..len).flat_map(row).collect();
        let (mut expected_keys, mut expected) = (keys.clone(), payload.clone());
        for (i, &place) in destinations.iter().enumerate() {
            let place = place as usize;
            expected_keys[place] = keys[i];
            expected[place * stride..][..stride].copy_from_slice(&payload[i * stride..][..stride]);
        }
        for platform in Platform::available() {
            let (mut to, mut keys) = (destinations.to_vec(), keys.clone());
            let mut payload = payload.clone();
            let router = Router::new(platform, len);
            router.route(&mut to, &mut keys, &mut payload, stride);
            assert!(to.into_iter().eq(0..len as u64), "{platform:?} {destinations:?}");
            assert!(keys == expected_keys && payload == expected, "{platform:?}, rows of {stride}");
        }
    }

    proptest! {
        #[test]
        fn elements_go_to_their_places(
            order in vec(any::<u32>(), 0..400),
            stride in prop_oneof![0usize..100, Just(64), Just(128), Just(72)],
        ) {
            let mut destinations: Vec<u64> = (0..order.len() as u64).collect();
            destinations.sort_by_key(|&i| order[i as usize]);
            check(&destinations, stride);
        }
    }

    /// The zero-one principle: a network that sorts every sequence of zeros and ones sorts every sequence.
    #[test]
    fn the_network_sorts_zeros_and_ones() {
        for len in 0..=16u32 {
            let router = Router::new(Platform::PORTABLE, len as usize);
            for word in 0..1u32 << len {
                let mut bits: Vec<u64> = (0..len).map(|i| u64::from(word >> i & 1)).collect();
                let mut keys = bits.clone();
                exchange(&router.comparators, &mut bits, &mut keys, |_, _, _| ());
                assert!(bits.is_sorted() && keys == bits, "{len} {word:b}");
            }
        }
    }
}
