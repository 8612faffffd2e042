//! The specification.

use super::{Factors, Row, Sums};

pub(super) fn add(rows: &[Row], factors: &Factors, sums: &mut [Sums]) {
    for (row, sums) in rows.iter().zip(sums) {
        for (block, bits) in row.iter().enumerate() {
            for (half, word) in [*bits as u64, (*bits >> 64) as u64].into_iter().enumerate() {
                let multiples = multiples(word);
                for (sum, factors) in sums.iter_mut().zip(factors) {
                    *sum ^= product(&multiples, factors[2 * block + half]);
                }
            }
        }
    }
}

/// The products of a word and all polynomials of degree 3 at most.
fn multiples(word: u64) -> [u128; 16] {
    let mut multiples = [0; 16];
    for factor in 1..16 {
        multiples[factor] = match factor & 1 {
            1 => multiples[factor - 1] ^ u128::from(word),
            _ => multiples[factor / 2] << 1,
        };
    }
    multiples
}

/// The product of a word, whose multiples these are, and a factor, which is public.
fn product(multiples: &[u128; 16], factor: u64) -> u128 {
    (0..16)
        .rev()
        .fold(0, |product, place| (product << 4) ^ multiples[(factor >> (4 * place)) as usize & 15])
}
