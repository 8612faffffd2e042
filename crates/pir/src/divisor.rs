//! Divisions of a client's secrets by what is public.

/// A public divisor below 2^31.
///
/// A processor's division takes a time that depends on its operands, and the client divides ids. So
/// its reciprocal is made once, and a quotient is a multiplication.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Divisor {
    divisor: u64,
    /// Above 2^64 / divisor by at most 1.
    reciprocal: u128,
}

impl Divisor {
    /// # Panics
    /// For zero.
    pub(crate) fn new(divisor: u64) -> Self {
        debug_assert!(divisor < 1 << 31, "{divisor}");
        Self { divisor, reciprocal: (1 << 64) / u128::from(divisor) + 1 }
    }

    /// Quotient and remainder of x ≤ 2^32, in constant time: the reciprocal's error, times x and
    /// divided by 2^64, is less than 1 / divisor, so it carries into no quotient.
    pub(crate) fn divide(&self, x: u64) -> (u64, u64) {
        debug_assert!(x <= 1 << 32, "{x}");
        let quotient = ((u128::from(x) * self.reciprocal) >> 64) as u64;
        (quotient, x - quotient * self.divisor)
    }
}

#[cfg(test)]
mod tests {
    use super::Divisor;

    #[test]
    fn quotients_are_those_of_a_division() {
        let near = |x: u64| x.saturating_sub(2)..=x + 2;
        let divisors = (1..700).chain([4095, 4096, 65_537, (1 << 30) + 3, (1 << 31) - 1]);
        for divisor in divisors {
            let made = Divisor::new(divisor);
            let last = (1u64 << 32) / divisor;
            let multiples = [0, 1, 2, 3, last / 3, last / 2, last.saturating_sub(1), last];
            for x in multiples.into_iter().flat_map(|n| near(n * divisor)).chain(near(1 << 32)) {
                let x = x.min(1 << 32);
                assert_eq!(made.divide(x), (x / divisor, x % divisor), "{x} / {divisor}");
            }
        }
    }
}
