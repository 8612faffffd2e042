//! Secrets for the cases.

use hushtable_prg::valgrind::{self, Plain};

/// These values, marked as secret.
pub fn secret<T: Plain, const N: usize>(mut values: [T; N]) -> [T; N] {
    valgrind::mark_secret(&mut values);
    values
}

/// Below `end`: 0 for secret 0, the last for secret 1, else something between.
pub fn below(end: u64, secret: u64) -> u64 {
    match secret {
        0 => 0,
        1 => end - 1,
        _ => number(secret) % end,
    }
}

/// A number that depends on nothing but its index.
pub fn number(index: u64) -> u64 {
    (index + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23)
}

/// Bytes that depend on nothing but the secret's number and theirs.
pub fn bytes<const N: usize>(secret: u64, index: u64) -> [u8; N] {
    std::array::from_fn(|i| number(1_000 * secret + 100 * index + i as u64) as u8)
}
