//! Secrets for the cases.

use hushtable_prg::valgrind::{self, Plain};
use rand::{Rng, SeedableRng, TryCryptoRng, TryRng};
use rand_chacha::ChaCha20Rng;
use std::convert::Infallible;

/// These values, marked as secret.
pub fn secret<T: Plain>(values: impl IntoIterator<Item = T>) -> Vec<T> {
    let mut values: Vec<T> = values.into_iter().collect();
    valgrind::mark_secret(&mut values);
    values
}

/// Numbers that depend on nothing but their index.
pub fn numbers(count: usize) -> impl Iterator<Item = u64> {
    (1..=count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23))
}

/// A generator all of whose output is secret.
pub struct SecretRng(ChaCha20Rng);

impl SecretRng {
    pub fn new(seed: u64) -> Self {
        Self(ChaCha20Rng::seed_from_u64(seed))
    }
}

impl TryRng for SecretRng {
    type Error = Infallible;

    fn try_next_u32(&mut self) -> Result<u32, Infallible> {
        let mut value = [self.0.next_u32()];
        valgrind::mark_secret(&mut value);
        Ok(value[0])
    }

    fn try_next_u64(&mut self) -> Result<u64, Infallible> {
        let mut value = [self.0.next_u64()];
        valgrind::mark_secret(&mut value);
        Ok(value[0])
    }

    fn try_fill_bytes(&mut self, bytes: &mut [u8]) -> Result<(), Infallible> {
        self.0.fill_bytes(bytes);
        valgrind::mark_secret(bytes);
        Ok(())
    }
}

impl TryCryptoRng for SecretRng {}
