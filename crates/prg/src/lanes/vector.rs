//! The vector that the lane cores are written over, and its registers.

/// A register of 128-bit lanes, each read as four 32-bit or two 64-bit words, the lowest first.
///
/// [`Portable`] is the specification; the others must do the same to every lane.
pub(crate) trait Vector: Copy {
    /// 128-bit lanes in the register.
    const LANES: usize;
    /// Reads `LANES` values.
    fn load(x: &[u128]) -> Self;
    /// Writes lane `lane`.
    fn store_lane(self, lane: usize, out: &mut u128);
    /// `x` in every lane.
    fn splat(x: u128) -> Self;
    fn xor(self, other: Self) -> Self;
    fn and(self, other: Self) -> Self;
    fn add32(self, other: Self) -> Self;
    fn add64(self, other: Self) -> Self;
    fn rotate32<const BITS: i32>(self) -> Self;
    fn rotate64<const BITS: i32>(self) -> Self;
    /// In every lane, the two low 32-bit words of both: `[self0, other0, self1, other1]`.
    fn low32(self, other: Self) -> Self;
    /// In every lane, the two high 32-bit words of both: `[self2, other2, self3, other3]`.
    fn high32(self, other: Self) -> Self;
    /// In every lane, the low 64-bit word of both: `[self0, other0]`.
    fn low64(self, other: Self) -> Self;
    /// In every lane, the high 64-bit word of both: `[self1, other1]`.
    fn high64(self, other: Self) -> Self;

    /// `x` in every 32-bit word.
    #[inline(always)]
    fn splat32(x: u32) -> Self {
        Self::splat(u128::from(x) * 0x1_0000_0001_0000_0001_0000_0001)
    }

    /// `x` in every 64-bit word.
    #[inline(always)]
    fn splat64(x: u64) -> Self {
        Self::splat(u128::from(x) | u128::from(x) << 64)
    }
}

/// One lane, plain arithmetic: the specification of every other register.
///
/// As an array of words rather than a `u128`, so that compilers for machines with 128-bit vectors
/// see them.
#[derive(Clone, Copy)]
pub(super) struct Portable(pub(super) [u32; 4]);

impl Portable {
    #[inline(always)]
    fn join64(low: u64, high: u64) -> Self {
        Self([low as u32, (low >> 32) as u32, high as u32, (high >> 32) as u32])
    }

    #[inline(always)]
    fn split64(self) -> [u64; 2] {
        let [a, b, c, d] = self.0.map(u64::from);
        [a | b << 32, c | d << 32]
    }
}

impl Vector for Portable {
    const LANES: usize = 1;

    #[inline(always)]
    fn load(x: &[u128]) -> Self {
        Self::splat(x[0])
    }

    #[inline(always)]
    fn store_lane(self, _: usize, out: &mut u128) {
        let [low, high] = self.split64().map(u128::from);
        *out = low | high << 64;
    }

    #[inline(always)]
    fn splat(x: u128) -> Self {
        Self::join64(x as u64, (x >> 64) as u64)
    }

    #[inline(always)]
    fn xor(mut self, other: Self) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a ^= b;
        }
        self
    }

    #[inline(always)]
    fn and(mut self, other: Self) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a &= b;
        }
        self
    }

    #[inline(always)]
    fn add32(mut self, other: Self) -> Self {
        for (a, b) in self.0.iter_mut().zip(other.0) {
            *a = a.wrapping_add(b);
        }
        self
    }

    #[inline(always)]
    fn add64(self, other: Self) -> Self {
        let ([a, b], [c, d]) = (self.split64(), other.split64());
        Self::join64(a.wrapping_add(c), b.wrapping_add(d))
    }

    #[inline(always)]
    fn rotate32<const BITS: i32>(mut self) -> Self {
        for word in &mut self.0 {
            *word = word.rotate_left(BITS as u32);
        }
        self
    }

    #[inline(always)]
    fn rotate64<const BITS: i32>(self) -> Self {
        let [low, high] = self.split64();
        Self::join64(low.rotate_left(BITS as u32), high.rotate_left(BITS as u32))
    }

    #[inline(always)]
    fn low32(self, other: Self) -> Self {
        Self([self.0[0], other.0[0], self.0[1], other.0[1]])
    }

    #[inline(always)]
    fn high32(self, other: Self) -> Self {
        Self([self.0[2], other.0[2], self.0[3], other.0[3]])
    }

    #[inline(always)]
    fn low64(self, other: Self) -> Self {
        Self([self.0[0], self.0[1], other.0[0], other.0[1]])
    }

    #[inline(always)]
    fn high64(self, other: Self) -> Self {
        Self([self.0[2], self.0[3], other.0[2], other.0[3]])
    }
}
