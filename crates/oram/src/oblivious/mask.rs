//! A decision on a secret, as 64 equal bits.

use std::hint::black_box;
use std::ops::{BitAnd, BitOr, BitXor, Not};

/// All ones ("yes") or all zeros ("no"); there is no way to branch on it but to take its bits.
///
/// It has no `Debug` and no `PartialEq`: what it says is a secret.
#[derive(Clone, Copy, Default)]
#[repr(transparent)]
pub struct Mask(u64);

impl zeroize::DefaultIsZeroes for Mask {}

impl Mask {
    /// All ones.
    pub const YES: Self = Self(u64::MAX);
    /// All zeros.
    pub const NO: Self = Self(0);

    /// Hides from the optimiser that the mask is one of two values: knowing it, LLVM has turned the
    /// AND that follows into a branch.
    #[inline(always)]
    fn opaque(mask: u64) -> Self {
        Self(black_box(mask))
    }

    /// Yes if the lowest bit of `bit` is set; the others are ignored.
    #[inline(always)]
    pub fn from_bit(bit: u64) -> Self {
        Self::opaque(0u64.wrapping_sub(bit & 1))
    }

    /// Yes if a = b.
    #[inline(always)]
    pub fn equal(a: u64, b: u64) -> Self {
        let difference = a ^ b;
        let any = difference | difference.wrapping_neg();
        Self::opaque(!sign(any))
    }

    /// Yes if a < b.
    #[inline(always)]
    pub fn less(a: u64, b: u64) -> Self {
        Self::opaque(less(a, b))
    }

    /// Yes if both are.
    #[inline(always)]
    pub fn and(self, other: Self) -> Self {
        Self(self.0 & other.0)
    }

    /// Yes if one or both are.
    #[inline(always)]
    pub fn or(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Yes if this is not.
    #[inline(always)]
    #[expect(
        clippy::should_implement_trait,
        reason = "it is implemented too; this needs no import"
    )]
    pub fn not(self) -> Self {
        Self(!self.0)
    }

    /// `yes` if it is, else `no`.
    #[inline(always)]
    pub fn select_u64(self, yes: u64, no: u64) -> u64 {
        no ^ ((yes ^ no) & self.0)
    }

    /// `yes` if it is, else `no`.
    #[inline(always)]
    pub fn select_u32(self, yes: u32, no: u32) -> u32 {
        no ^ ((yes ^ no) & self.0 as u32)
    }

    /// All 64 bits, to AND something with.
    #[inline(always)]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// 1 or 0, to count with.
    #[inline(always)]
    pub fn bit(self) -> u64 {
        self.0 & 1
    }
}

impl BitAnd for Mask {
    type Output = Self;
    #[inline(always)]
    fn bitand(self, other: Self) -> Self {
        self.and(other)
    }
}

impl BitOr for Mask {
    type Output = Self;
    #[inline(always)]
    fn bitor(self, other: Self) -> Self {
        self.or(other)
    }
}

impl BitXor for Mask {
    type Output = Self;
    #[inline(always)]
    fn bitxor(self, other: Self) -> Self {
        Self(self.0 ^ other.0)
    }
}

impl Not for Mask {
    type Output = Self;
    #[inline(always)]
    fn not(self) -> Self {
        Self(!self.0)
    }
}

/// All ones if the top bit is set.
#[inline(always)]
pub(super) fn sign(value: u64) -> u64 {
    (value as i64 >> 63) as u64
}

/// All ones if a < b: the borrow of a - b, by bit arithmetic (Warren, "Hacker's Delight", 2-13).
///
/// Without the barrier of [`Mask::less`], so that loops over columns become vector code; SSE2 has no
/// comparison of 64-bit integers, and the optimiser knows no shorter form to make a branch of.
#[inline(always)]
pub(super) fn less(a: u64, b: u64) -> u64 {
    sign((!a & b) | (!(a ^ b) & a.wrapping_sub(b)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn edges() -> impl Strategy<Value = u64> {
        prop_oneof![
            any::<u64>(),
            Just(0),
            Just(1),
            Just(u64::MAX),
            Just(1 << 63),
            Just((1 << 63) - 1),
            0u64..4
        ]
    }

    proptest! {
        #[test]
        fn masks_say_what_comparisons_say(a in edges(), b in edges(), c in any::<u32>()) {
            let whole = |yes: bool| if yes { u64::MAX } else { 0 };
            prop_assert_eq!(Mask::equal(a, b).bits(), whole(a == b));
            prop_assert_eq!(Mask::less(a, b).bits(), whole(a < b));
            prop_assert_eq!(Mask::from_bit(a).bits(), whole(a % 2 == 1));
            let (p, q) = (Mask::from_bit(a), Mask::from_bit(b));
            prop_assert_eq!((p & q).bits(), p.bits() & q.bits());
            prop_assert_eq!((p | q).bits(), p.bits() | q.bits());
            prop_assert_eq!((p ^ q).bits(), p.bits() ^ q.bits());
            prop_assert_eq!((!p).bits(), p.not().bits());
            prop_assert_eq!(p.not().bits(), !p.bits());
            prop_assert_eq!(p.bit(), a % 2);
            prop_assert_eq!(p.select_u64(a, b), if a % 2 == 1 { a } else { b });
            prop_assert_eq!(p.select_u32(c, !c), if a % 2 == 1 { c } else { !c });
        }
    }
}
