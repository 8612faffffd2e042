//! Choices among floats without branches.

use std::hint::black_box;

/// All ones where a row takes part, else all zeros.
#[derive(Clone, Copy, Debug)]
pub(super) struct Lane(u32);

impl Lane {
    /// As `choice`, which is public.
    pub(super) fn of(choice: bool) -> Self {
        Self(0_u32.wrapping_sub(u32::from(choice)))
    }

    /// For a weight: whether it is not zero (of either sign).
    pub(super) fn is_nonzero(weight: f32) -> Self {
        let bits = weight.to_bits() << 1;
        Self(black_box(0_u32.wrapping_sub((bits | bits.wrapping_neg()) >> 31)))
    }

    /// Whether `left` is less than `right`, both below 2^31.
    pub(super) fn is_less(left: u32, right: u32) -> Self {
        Self(black_box(0_u32.wrapping_sub(left.wrapping_sub(right) >> 31)))
    }

    /// Whether no value is infinite or no number.
    pub(super) fn is_finite(values: &[f32]) -> Self {
        let mut bad = 0;
        for value in values {
            // The exponent's eight ones, plus one, carry out.
            bad |= ((value.to_bits() & 0x7fff_ffff) + 0x0080_0000) >> 31;
        }
        Self(black_box(bad.wrapping_sub(1)))
    }

    /// Whether it is set, for what is told from here on: the caller says why it may be.
    pub(super) fn declassified(mut self) -> bool {
        hushtable_prg::valgrind::declassify(&mut self.0);
        self.0 != 0
    }

    pub(super) fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    pub(super) fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    pub(super) fn select(self, then: f32, otherwise: f32) -> f32 {
        f32::from_bits(then.to_bits() & self.0 | otherwise.to_bits() & !self.0)
    }

    pub(super) fn select_u32(self, then: u32, otherwise: u32) -> u32 {
        then & self.0 | otherwise & !self.0
    }
}

#[cfg(test)]
mod tests {
    use super::Lane;

    #[test]
    fn tells_zero_from_all_else() {
        for value in [1.0, -1.0, f32::MIN_POSITIVE, 1e-45, f32::MAX, f32::INFINITY, f32::NAN] {
            assert_eq!(Lane::is_nonzero(value).select(1.0, 2.0), 1.0, "{value}");
        }
        for value in [0.0, -0.0] {
            assert_eq!(Lane::is_nonzero(value).select(1.0, 2.0), 2.0);
        }
    }

    #[test]
    fn tells_finite_from_all_else() {
        assert_eq!(Lane::is_finite(&[0.0, -0.0, f32::MAX, f32::MIN, 1e-45]).0, u32::MAX);
        for value in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
            assert_eq!(Lane::is_finite(&[1.0, value, 1.0]).0, 0, "{value}");
        }
        let both = Lane::is_nonzero(1.0).and(Lane::is_finite(&[f32::NAN]));
        assert_eq!(both.select_u32(7, 9), 9);
    }
}
