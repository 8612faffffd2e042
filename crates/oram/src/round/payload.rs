//! Payloads of blocks: a row's numbers, then what the aggregate keeps of it.

use rand_chacha::ChaCha20Rng;
use zeroize::Zeroizing;

use super::Error;
use crate::aggregate::{Aggregate, Batch};

/// The numbers of a row.
pub fn numbers(bytes: &[u8]) -> impl Iterator<Item = f32> {
    bytes.chunks_exact(4).map(|b| f32::from_le_bytes(b.try_into().expect("four bytes")))
}

/// Adds to rows what they are owed up to `round`.
pub fn settle_rows(
    aggregate: &dyn Aggregate,
    dim: usize,
    payload_bytes: usize,
    payloads: &mut [u8],
    round: u64,
    noise: &mut ChaCha20Rng,
) -> Result<(), Error> {
    // Public: the spec.
    if !aggregate.owes_noise() {
        return Ok(());
    }
    let round = u32::try_from(round).unwrap_or(u32::MAX);
    update_rows(payloads, dim, payload_bytes, |rows, state| {
        let (sums, weights) = (&[][..], &[][..]);
        Ok(aggregate.settle(&mut Batch { dim, round, rows, state, sums, weights, noise })?)
    })
}

/// Parts payloads into rows and state for `update`, and puts them together again.
pub fn update_rows<E>(
    payloads: &mut [u8],
    dim: usize,
    payload_bytes: usize,
    update: impl FnOnce(&mut [f32], &mut [u8]) -> Result<(), E>,
) -> Result<(), E> {
    let row_bytes = 4 * dim;
    let mut rows = Zeroizing::new(Vec::with_capacity(payloads.len() / payload_bytes * dim));
    let mut state = Zeroizing::new(Vec::new());
    for payload in payloads.chunks_exact(payload_bytes) {
        rows.extend(numbers(&payload[..row_bytes]));
        state.extend_from_slice(&payload[row_bytes..]);
    }
    update(&mut rows, &mut state)?;
    let state_bytes = payload_bytes - row_bytes;
    for (at, payload) in payloads.chunks_exact_mut(payload_bytes).enumerate() {
        for (bytes, number) in payload[..row_bytes].chunks_exact_mut(4).zip(&rows[at * dim..]) {
            bytes.copy_from_slice(&number.to_le_bytes());
        }
        payload[row_bytes..].copy_from_slice(&state[at * state_bytes..][..state_bytes]);
    }
    Ok(())
}
