//! Numbers that nothing secret hangs on.

/// SplitMix64: spreads retries, and what else may be chosen by anyone.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// From a number that the client's driver gives.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The next number.
    pub fn number(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }
}
