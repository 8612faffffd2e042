//! What one server was dealt, taken off in the order in which it is used.

use super::Error;
use super::stream::Stream;
use super::words::{take, words};

/// Randomness of a seed, correction words that both servers have, and shares: given, or of the same seed.
pub(super) struct Dealt<'a> {
    own: Stream,
    common: &'a [u8],
    /// None where the shares come from the seed.
    given: Option<&'a [u8]>,
}

impl<'a> Dealt<'a> {
    pub fn new(own: Stream, common: &'a [u8], given: Option<&'a [u8]>) -> Self {
        Self { own, common, given }
    }

    /// Shares modulo 2^32.
    pub fn numbers(&mut self, count: usize) -> Result<Vec<u32>, Error> {
        match &mut self.given {
            Some(given) => Ok(words(take(given, 4 * count)?)),
            None => Ok(self.own.words(count)),
        }
    }

    pub fn blocks(&mut self, count: usize) -> Vec<u128> {
        self.own.blocks(count)
    }

    /// Bits, one a byte.
    pub fn bits(&mut self, count: usize) -> Vec<u8> {
        self.own.bits(count)
    }

    /// Correction words.
    pub fn words(&mut self, bytes: usize) -> Result<&'a [u8], Error> {
        take(&mut self.common, bytes)
    }
}
