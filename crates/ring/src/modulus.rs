//! Arithmetic modulo one prime.

use crate::Error;

/// An odd modulus of 2 to 51 bits, with what its reductions need.
///
/// All functions take and return values in `0..value` unless they say otherwise, in constant time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Modulus {
    value: u64,
    bits: u32,
    /// floor(2^(2 bits + 3) / value): Barrett's quotient estimate.
    barrett: u64,
}

impl Modulus {
    /// Most bits of a modulus: lazy butterflies keep values below twice the modulus in 52 bits.
    pub const BITS_MAX: u32 = 51;

    /// Checks `value`: odd, 2 to 51 bits. Whether it is prime matters to the NTT only.
    ///
    /// # Errors
    /// [`Error::Modulus`].
    pub const fn new(value: u64) -> Result<Self, Error> {
        let bits = 64 - value.leading_zeros();
        if value.is_multiple_of(2) || bits < 2 || bits > Self::BITS_MAX {
            return Err(Error::Modulus { modulus: value });
        }
        let barrett = ((1u128 << (2 * bits + 3)) / value as u128) as u64;
        Ok(Self { value, bits, barrett })
    }

    /// The modulus.
    pub const fn value(self) -> u64 {
        self.value
    }

    /// Its length in bits.
    pub const fn bits(self) -> u32 {
        self.bits
    }

    /// x + y.
    #[inline(always)]
    pub const fn add(self, x: u64, y: u64) -> u64 {
        self.correct(x + y)
    }

    /// x − y.
    #[inline(always)]
    pub const fn sub(self, x: u64, y: u64) -> u64 {
        self.correct(x + self.value - y)
    }

    /// −x.
    #[inline(always)]
    pub const fn neg(self, x: u64) -> u64 {
        self.correct(self.value - x)
    }

    /// x · y, by Barrett's reduction.
    #[inline(always)]
    pub const fn mul(self, x: u64, y: u64) -> u64 {
        self.reduce_product(x as u128 * y as u128)
    }

    /// `x` modulo the modulus, for x < 4 · value².
    #[inline(always)]
    pub const fn reduce_product(self, x: u128) -> u64 {
        // The estimate is at most two short of the quotient: floor(x / 2^(bits-2)) has at most
        // bits + 4 bits, so its product with the 52..56-bit constant fits.
        let high = (x >> (self.bits - 2)) as u64;
        let quotient = ((high as u128 * self.barrett as u128) >> (self.bits + 5)) as u64;
        let rest = (x as u64).wrapping_sub(quotient.wrapping_mul(self.value));
        self.correct(self.correct(rest))
    }

    /// Any 128-bit integer modulo the modulus; slower than [`mul`](Self::mul).
    pub const fn reduce_u128(self, x: u128) -> u64 {
        (x % self.value as u128) as u64
    }

    /// base^exponent; time depends on the exponent.
    pub const fn pow_vartime(self, base: u64, mut exponent: u64) -> u64 {
        let (mut power, mut square) = (1 % self.value, base % self.value);
        while exponent > 0 {
            if exponent & 1 == 1 {
                power = self.mul(power, square);
            }
            square = self.mul(square, square);
            exponent >>= 1;
        }
        power
    }

    /// 1 / x for a prime modulus; time depends on the modulus only.
    pub const fn inv(self, x: u64) -> u64 {
        self.pow_vartime(x, self.value - 2)
    }

    /// floor(w · 2^52 / value): what [`mul_shoup`](Self::mul_shoup) wants beside `w`.
    pub const fn shoup(self, w: u64) -> u64 {
        (((w as u128) << 52) / self.value as u128) as u64
    }

    /// x · w by Shoup's method, lazily: for x < 2^52, a value below 2 · value.
    #[inline(always)]
    pub const fn mul_shoup_lazy(self, x: u64, w: u64, w_shoup: u64) -> u64 {
        let quotient = ((x as u128 * w_shoup as u128) >> 52) as u64;
        x.wrapping_mul(w).wrapping_sub(quotient.wrapping_mul(self.value))
    }

    /// x · w by Shoup's method, for x < 2^52.
    #[inline(always)]
    pub const fn mul_shoup(self, x: u64, w: u64, w_shoup: u64) -> u64 {
        self.correct(self.mul_shoup_lazy(x, w, w_shoup))
    }

    /// Takes the modulus off once if it fits, without a branch.
    #[inline(always)]
    pub const fn correct(self, x: u64) -> u64 {
        let less = x.wrapping_sub(self.value);
        // All ones where the subtraction borrowed: values stay below 2^63.
        let borrowed = ((less as i64) >> 63) as u64;
        less.wrapping_add(self.value & borrowed)
    }

    /// The residue of a signed number of absolute value below the modulus.
    #[inline(always)]
    pub const fn from_signed(self, x: i64) -> u64 {
        (x as u64).wrapping_add(self.value & ((x >> 63) as u64))
    }

    /// The residue of any signed number; time may depend on it.
    #[inline(always)]
    pub const fn from_signed_vartime(self, x: i64) -> u64 {
        x.rem_euclid(self.value as i64) as u64
    }

    /// The representative in −value/2..value/2.
    #[inline(always)]
    pub const fn to_signed(self, x: u64) -> i64 {
        let above = (((self.value >> 1).wrapping_sub(x) as i64) >> 63) as u64;
        x.wrapping_sub(self.value & above) as i64
    }

    /// Whether the modulus is prime, by Miller and Rabin with bases that decide every u64.
    pub const fn is_prime(self) -> bool {
        const BASES: [u64; 12] = [2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37];
        let shift = (self.value - 1).trailing_zeros();
        let odd = (self.value - 1) >> shift;
        let mut index = 0;
        while index < BASES.len() {
            let base = BASES[index] % self.value;
            index += 1;
            if base == 0 {
                continue;
            }
            let mut power = self.pow_vartime(base, odd);
            let mut round = 0;
            let mut composite = power != 1;
            while round < shift && composite {
                composite = power != self.value - 1;
                power = self.mul(power, power);
                round += 1;
            }
            if composite {
                return false;
            }
        }
        true
    }

    /// A root of unity of exact order `order`, the smallest power of two generator found first.
    ///
    /// `None` where the modulus is no prime or `order` (a power of two) does not divide value − 1.
    pub fn root_of_unity(self, order: u64) -> Option<u64> {
        if !self.is_prime() || !order.is_power_of_two() || !(self.value - 1).is_multiple_of(order) {
            return None;
        }
        // x^((q-1)/order) has order exactly `order` where its order/2-th power is -1: half of all x.
        (2..self.value)
            .map(|x| self.pow_vartime(x, (self.value - 1) / order))
            .find(|&root| order == 1 || self.pow_vartime(root, order / 2) == self.value - 1)
    }
}

/// The largest `count` primes of `bits` bits (3 to 51) that are 1 modulo `2 · degree`, falling.
///
/// Fewer where there are no more.
pub fn ntt_primes(bits: u32, degree: usize, count: usize) -> Vec<u64> {
    let step = 2 * degree as u64;
    let (low, high) = (1u64 << (bits - 1), 1u64 << bits);
    let first = (high - 1) / step * step + 1;
    let candidates = (0..).map(|k| first.checked_sub(k * step));
    candidates
        .map_while(|value| value.filter(|&value| value > low))
        .filter(|&value| Modulus::new(value).is_ok_and(Modulus::is_prime))
        .take(count)
        .collect()
}
