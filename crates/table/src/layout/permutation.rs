//! A keyed permutation of `0..size`, the same in every process and on every machine.

/// A permutation of `0..size` made from a key by a Feistel network.
///
/// It spreads rows over bins, so it needs to look random and be cheap to compute both ways; it
/// hides nothing (the key stands in the layout, which every client and server has).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Permutation {
    size: u64,
    /// Numbers are split into (high, low) below (`highs`, `lows`), whose product is `size` or a
    /// little more: what falls beyond is permuted again until it is inside.
    highs: u64,
    lows: u64,
    keys: [u64; ROUNDS],
}

const ROUNDS: usize = 6;

impl Permutation {
    /// The permutation of `0..size` (1 to 2^32) that `seed` and `purpose` select.
    ///
    /// # Panics
    /// For a `size` outside that range.
    pub fn new(size: u64, seed: &[u8; 32], purpose: &[u8]) -> Self {
        assert!((1..=1 << 32).contains(&size), "a permutation of {size} numbers");
        let mut hasher = blake3::Hasher::new_keyed(seed);
        hasher.update(purpose);
        let mut bytes = hasher.finalize_xof();
        let keys = std::array::from_fn(|_| {
            let mut key = [0; 8];
            bytes.fill(&mut key);
            u64::from_le_bytes(key)
        });
        let lows = size.isqrt() + u64::from(size.isqrt().pow(2) < size);
        Self { size, highs: size.div_ceil(lows), lows, keys }
    }

    /// How many numbers are permuted.
    pub fn size(&self) -> u64 {
        self.size
    }

    /// Where `number` goes.
    ///
    /// # Panics
    /// Unless `number` is below the size.
    pub fn apply(&self, number: u64) -> u64 {
        assert!(number < self.size, "{number} is not below {}", self.size);
        let mut at = number;
        loop {
            let (mut high, mut low) = (at / self.lows, at % self.lows);
            for (round, key) in self.keys.iter().enumerate() {
                match round % 2 {
                    0 => high = (high + below(mix(low ^ key), self.highs)) % self.highs,
                    _ => low = (low + below(mix(high ^ key), self.lows)) % self.lows,
                }
            }
            at = high * self.lows + low;
            if at < self.size {
                return at;
            }
        }
    }
}

/// A number below `bound` (at most 2^32), by the high half of a product.
fn below(random: u64, bound: u64) -> u64 {
    ((u128::from(random) * u128::from(bound)) >> 64) as u64
}

/// The finaliser of SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
pub(crate) fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_is_hit_once() {
        for size in [1, 2, 3, 7, 16, 100, 4_095, 4_096, 4_097, 65_537] {
            let permutation = Permutation::new(size, &[7; 32], b"test");
            let mut seen = vec![false; size as usize];
            for number in 0..size {
                let to = permutation.apply(number) as usize;
                assert!(!std::mem::replace(&mut seen[to], true), "{size}: {to} twice");
            }
        }
    }

    #[test]
    fn the_largest_size_stays_inside() {
        let permutation = Permutation::new(1 << 32, &[1; 32], b"");
        for number in [0, 1, (1 << 32) - 1, 12_345_678] {
            assert!(permutation.apply(number) < 1 << 32);
        }
    }

    #[test]
    fn it_is_the_same_everywhere() {
        // Recorded: a change here moves every row of every layout ever written.
        let permutation = Permutation::new(1_000, &[9; 32], b"full 0");
        let found: Vec<u64> = (0..8).map(|i| permutation.apply(i)).collect();
        assert_eq!(found, RECORDED);
    }

    const RECORDED: [u64; 8] = [494, 772, 532, 433, 180, 89, 449, 512];

    #[test]
    fn bins_fill_as_at_random() {
        // 64 neighbours over 64 bins of 1,024: the expected number of empty bins is 64/e = 23.5,
        // its standard deviation under 3.
        for seed in 0..8 {
            let permutation = Permutation::new(65_536, &[seed; 32], b"full 0");
            let mut bins = [false; 64];
            (0..64).for_each(|i| bins[(permutation.apply(i) / 1_024) as usize] = true);
            let empty = bins.iter().filter(|bin| !**bin).count();
            assert!((12..=35).contains(&empty), "{empty} empty bins");
        }
    }
}
