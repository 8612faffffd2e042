//! Picking a row out of many, all of which are read. It is compiled for each platform's instructions.

use std::hint::black_box;

use hushtable_prg::{Platform, Vectorised};

/// ORs into `into` every row whose mask is all ones, of parts that are given as masks, all ones or all zeros,
/// and as many rows of `into`'s length.
///
/// # Panics
///
/// If a part has not as many rows as masks.
pub fn pick<'a>(
    platform: Platform,
    parts: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    into: &mut [u8],
) {
    platform.run(Pick { parts, into });
}

struct Pick<'a, P> {
    parts: P,
    into: &'a mut [u8],
}

impl<'a, P: Iterator<Item = (&'a [u8], &'a [u8])>> Vectorised for Pick<'_, P> {
    type Output = ();

    #[inline(always)]
    fn run(self) {
        let Self { parts, into } = self;
        let bytes = into.len();
        let parts = parts.inspect(|(masks, rows)| {
            assert_eq!(rows.len(), masks.len() * bytes, "rows of {bytes} bytes");
        });
        // So that the optimiser does not know what a mask can be, and makes no branch of it.
        let parts = parts.map(|(masks, rows)| (black_box(masks), rows));
        // The sizes of a position map's blocks are summed up in registers.
        match bytes {
            64 => fixed::<64>(parts, into),
            128 => fixed::<128>(parts, into),
            0 => parts.for_each(drop),
            _ => {
                for (masks, rows) in parts {
                    for (&mask, row) in masks.iter().zip(rows.chunks_exact(bytes)) {
                        for (into, &byte) in into.iter_mut().zip(row) {
                            *into |= byte & mask;
                        }
                    }
                }
            }
        }
    }
}

#[inline(always)]
fn fixed<'a, const BYTES: usize>(
    parts: impl Iterator<Item = (&'a [u8], &'a [u8])>,
    into: &mut [u8],
) {
    let Ok(into) = <&mut [u8; BYTES]>::try_from(into) else { return };
    let mut sum = *into;
    for (masks, rows) in parts {
        for (&mask, row) in masks.iter().zip(rows.as_chunks::<BYTES>().0) {
            for (sum, &byte) in sum.iter_mut().zip(row) {
                *sum |= byte & mask;
            }
        }
    }
    *into = sum;
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn the_rows_asked_for_are_ored(
            parts in vec(vec(any::<bool>(), 0..20), 0..5),
            bytes in prop_oneof![0usize..200, Just(64), Just(128)],
            first in any::<u8>(),
        ) {
            let mut number = 0u8;
            let mut next = || { number = number.wrapping_mul(13).wrapping_add(5); number & 0x7e };
            let parts: Vec<(Vec<u8>, Vec<u8>)> = parts
                .iter()
                .map(|taken| {
                    let masks = taken.iter().map(|&taken| if taken { 255 } else { 0 }).collect();
                    (masks, (0..taken.len() * bytes).map(|_| next()).collect())
                })
                .collect();
            let mut expected = vec![first; bytes];
            for (masks, rows) in &parts {
                for (i, &byte) in rows.iter().enumerate() {
                    if masks[i / bytes] == 255 {
                        expected[i % bytes] |= byte;
                    }
                }
            }
            for platform in Platform::available() {
                let mut found = vec![first; bytes];
                pick(platform, parts.iter().map(|(masks, rows)| (&masks[..], &rows[..])), &mut found);
                prop_assert_eq!(&found, &expected, "{:?}", platform);
            }
        }
    }
}
