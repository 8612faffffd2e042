//! What every platform is held to.

use proptest::prelude::*;

use super::super::transpose::ROW;
use super::*;

/// The product of two polynomials over GF(2), a bit at a time.
fn product(x: u64, y: u64) -> u128 {
    (0..64).filter(|bit| y >> bit & 1 == 1).fold(0, |sum, bit| sum ^ u128::from(x) << bit)
}

/// The rest of a division by x^64 + x^4 + x^3 + x + 1, a bit at a time.
fn rest(mut x: u128) -> u64 {
    for bit in (64..128).rev().filter(|bit| *bit < 127) {
        if x >> bit & 1 == 1 {
            x ^= (1_u128 << 64 | 0b1_1011) << (bit - 64);
        }
    }
    x as u64
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn every_platform_adds_the_products_up(seed: u64, count in 0..9_usize) {
        let mut bytes = blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof();
        let mut number = || {
            let mut number = [0; 16];
            bytes.fill(&mut number);
            u128::from_le_bytes(number)
        };
        let rows: Vec<Row> = (0..count).map(|_| std::array::from_fn::<_, ROW, _>(|_| number())).collect();
        let factors: Factors = std::array::from_fn(|_| std::array::from_fn(|_| number() as u64));
        // Of degree 126.
        let before: Vec<Sums> =
            (0..count).map(|_| std::array::from_fn(|_| number() >> 1)).collect();
        for platform in Platform::available() {
            let mut sums = before.clone();
            add(platform, &rows, &factors, &mut sums);
            for ((row, sums), before) in rows.iter().zip(&sums).zip(&before) {
                for (sum, factors) in sums.iter().zip(&factors).map(|(sum, own)| (*sum, own)).zip(before).map(|((sum, own), before)| (sum ^ before, own)) {
                    let words = row.iter().flat_map(|it| [*it as u64, (*it >> 64) as u64]);
                    let expected = words.zip(factors).fold(0, |sum, (x, y)| sum ^ product(x, *y));
                    prop_assert_eq!(sum, expected, "{:?}", platform);
                    prop_assert_eq!(reduce(sum), rest(sum));
                }
            }
        }
    }
}
