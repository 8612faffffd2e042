//! What every platform is held to.

use proptest::prelude::*;

use super::*;

fn noise(seed: u64, out: &mut [u128]) {
    let mut bytes = vec![0; 16 * out.len()];
    blake3::Hasher::new().update(&seed.to_le_bytes()).finalize_xof().fill(&mut bytes);
    for (out, bytes) in out.iter_mut().zip(bytes.chunks_exact(16)) {
        *out = u128::from_le_bytes(bytes.try_into().unwrap());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(8))]

    #[test]
    fn labels_are_the_rows_turned(seed: u64) {
        let mut rows = vec![[0; ROW]; ROWS];
        noise(seed, rows.as_flattened_mut());
        let rows: &[Row; ROWS] = rows[..].try_into().unwrap();
        for platform in Platform::available() {
            let mut labels = [0; TILE];
            transpose(platform, rows, &mut labels);
            for (i, label) in labels.iter().enumerate() {
                for (r, row) in rows.iter().enumerate() {
                    let bit = row[i / 128] >> (i % 128) & 1;
                    prop_assert_eq!(label >> r & 1, bit, "label {} row {} {:?}", i, r, platform);
                }
            }
        }
    }

    #[test]
    fn every_platform_folds_as_the_specification(seed: u64, tree in 0..TREES, start: u64) {
        let mut leaves = vec![0; TREES * LEAVES];
        noise(seed, &mut leaves);
        let counters = (leaves[7] ^ leaves[9], u128::from(start) << 64);
        let of = |platform| {
            let (mut rows, mut sum) = ([[1; ROW]; DEPTH], [1; ROW]);
            Streams::new(platform, &leaves).fold(tree, counters, &mut rows, &mut sum);
            (rows, sum)
        };
        let expected = of(Platform::PORTABLE);
        for platform in Platform::available() {
            prop_assert!(of(platform) == expected, "{:?}", platform);
        }
    }
}
