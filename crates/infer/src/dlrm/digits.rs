//! Digit decomposition: a large table becomes one small table for each digit of the index
//! (Garimella et al., "HE-LRM", section 4; generalised quotient-remainder embeddings).

/// The largest base.
pub const BASE_MAX: u64 = 1 << 16;

/// How one sparse feature's indices become rows of a table that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digits {
    rows: u64,
    /// The base and how many digits, or `None` where the table stays as it is.
    cut: Option<(u64, usize)>,
}

impl Digits {
    /// The decomposition of a feature of `rows` rows: none up to `threshold`, else the digits of
    /// rows − 1 in base `base` (2 to [`BASE_MAX`]).
    ///
    /// # Panics
    /// For no rows or a base out of range.
    pub fn new(rows: u64, threshold: u64, base: u64) -> Self {
        assert!(rows > 0 && (2..=BASE_MAX).contains(&base), "rows and a base of 2 or more");
        if rows <= threshold {
            return Self { rows, cut: None };
        }
        let (mut rest, mut count) = (rows - 1, 1);
        while rest >= base {
            rest /= base;
            count += 1;
        }
        Self { rows, cut: Some((base, count)) }
    }

    /// Rows of the original table: indices are below.
    pub fn rows(&self) -> u64 {
        self.rows
    }

    /// Whether indices are cut in digits.
    pub fn is_cut(&self) -> bool {
        self.cut.is_some()
    }

    /// Rows that are looked up and summed: one a digit.
    pub fn count(&self) -> usize {
        self.cut.map_or(1, |(_, count)| count)
    }

    /// Rows of the table that is stored: slots of the one-hot vector.
    pub fn slots(&self) -> usize {
        match self.cut {
            Some((base, count)) => base as usize * count,
            None => usize::try_from(self.rows).unwrap_or(usize::MAX),
        }
    }

    /// The stored rows that make up the row `index`, digit by digit, the lowest first.
    ///
    /// # Panics
    /// For an index outside the table.
    pub fn places(&self, index: u64) -> Vec<usize> {
        assert!(index < self.rows, "an index inside the table");
        let Some((base, count)) = self.cut else { return vec![index as usize] };
        let mut rest = index;
        let mut digit = |place: usize| {
            let digit = (rest % base) as usize;
            rest /= base;
            place * base as usize + digit
        };
        (0..count).map(&mut digit).collect()
    }
}

/// Rows of the 26 sparse features of Criteo's Kaggle set.
pub const CRITEO_ROWS: [u64; 26] = [
    1460, 583, 10_131_227, 2_202_608, 305, 24, 12_517, 633, 3, 93_145, 5683, 8_351_593, 3194, 27,
    14_992, 5_461_306, 10, 5652, 2173, 4, 7_046_547, 18, 15, 286_181, 105, 142_572,
];

#[cfg(test)]
mod tests {
    use super::*;

    /// (threshold, slots, compression ratio times ten) of the paper's appendix C, recomputed.
    const CRITEO: [(u64, usize, u64); 5] = [
        (500, 1083, 311_750),
        (5_000, 9014, 37_460),
        (50_000, 47_746, 7_070),
        (500_000, 569_532, 593),
        (5_000_000, 2_772_096, 122),
    ];

    #[test]
    fn criteo_has_the_paper_s_slots() {
        let rows: u64 = CRITEO_ROWS.iter().sum();
        assert_eq!(rows, 33_762_577);
        for (threshold, slots, ratio) in CRITEO {
            let found: usize =
                CRITEO_ROWS.iter().map(|&rows| Digits::new(rows, threshold, 4).slots()).sum();
            assert_eq!(found, slots, "threshold {threshold}");
            let found = rows as f64 / slots as f64 * 10.0;
            assert!((found / ratio as f64 - 1.0).abs() < 2e-3, "threshold {threshold}: {found}");
        }
    }

    #[test]
    fn digits_name_each_index_once() {
        for (rows, base) in [(1u64, 2u64), (4, 4), (5, 4), (16, 4), (17, 4), (1000, 10), (777, 3)] {
            let digits = Digits::new(rows, 0, base);
            let mut seen = std::collections::BTreeSet::new();
            for index in 0..rows {
                let places = digits.places(index);
                assert_eq!(places.len(), digits.count());
                assert!(places.iter().all(|&place| place < digits.slots()));
                let back: u64 = places
                    .iter()
                    .enumerate()
                    .map(|(j, &place)| (place as u64 - j as u64 * base) * base.pow(j as u32))
                    .sum();
                assert_eq!(back, index);
                seen.insert(places);
            }
            assert_eq!(seen.len() as u64, rows);
        }
        assert_eq!(Digits::new(500, 500, 4).places(499), [499]);
        assert!(Digits::new(501, 500, 4).is_cut());
    }
}
