//! Random numbers that are no secrets.

/// A generator for made-up models and users, not for secrets (SplitMix64).
pub(super) struct Random(pub(super) u64);

impl Random {
    pub(super) fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Uniform between −1 and 1.
    pub(super) fn unit(&mut self) -> f64 {
        (self.word() >> 11) as f64 / f64::from(1 << 30) / f64::from(1 << 22) - 1.0
    }
}
