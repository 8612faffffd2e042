//! A value that is wiped when it goes out of scope and never printed.

use std::fmt;
use zeroize::Zeroize;

/// A secret: zeroised on drop, and with a `Debug` that shows nothing.
///
/// It is neither `Copy` nor `Clone`, so that each copy in memory is one that somebody wrote out.
/// A move may leave the old bytes behind, as every Rust move may: put large secrets in a `Box`
/// (`Secret<Box<[u8; N]>>`) where that matters.
pub struct Secret<T: Zeroize>(T);

impl<T: Zeroize> Secret<T> {
    /// Takes charge of `value`.
    pub fn new(value: T) -> Self {
        Self(value)
    }

    /// Reads the value; the name is long enough to find in a review.
    pub fn expose(&self) -> &T {
        &self.0
    }

    /// Changes the value in place.
    pub fn expose_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

impl<T: Zeroize> From<T> for Secret<T> {
    fn from(value: T) -> Self {
        Self(value)
    }
}

impl<T: Zeroize> fmt::Debug for Secret<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(..)")
    }
}

impl<T: Zeroize> Drop for Secret<T> {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

impl<T: Zeroize> zeroize::ZeroizeOnDrop for Secret<T> {}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::Cell;

    struct Witness<'a>(&'a Cell<u32>);

    impl Zeroize for Witness<'_> {
        fn zeroize(&mut self) {
            self.0.set(self.0.get() + 1);
        }
    }

    #[test]
    fn dropping_zeroises_once() {
        let wiped = Cell::new(0);
        let secret = Secret::new(Witness(&wiped));
        assert_eq!(wiped.get(), 0);
        drop(secret);
        assert_eq!(wiped.get(), 1);
    }

    #[test]
    fn debug_shows_nothing_of_the_value() {
        let mut secret = Secret::from([0xabu8; 4]);
        assert_eq!(format!("{secret:?} {secret:#?}"), "Secret(..) Secret(..)");
        secret.expose_mut()[0] = 1;
        assert_eq!(secret.expose(), &[1, 0xab, 0xab, 0xab]);
    }
}
