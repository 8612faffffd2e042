//! Words of 32 bits: reading them, and their lowest bits.

use super::Error;

/// `bits` ones, up to 32.
pub(super) fn mask(bits: u32) -> u32 {
    (1_u64 << bits).wrapping_sub(1) as u32
}

/// Takes so many bytes off.
pub(super) fn take<'a>(from: &mut &'a [u8], count: usize) -> Result<&'a [u8], Error> {
    let found = from.len();
    let cut = Error::Bytes { what: "dealt keys", expected: count, found };
    let (taken, rest) = from.split_at_checked(count).ok_or(cut)?;
    *from = rest;
    Ok(taken)
}

/// Words of their bytes, the lowest first.
pub(super) fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}
