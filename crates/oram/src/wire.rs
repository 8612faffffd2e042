//! What users and the controller say to each other in a round, sealed end to end: a relay between
//! them (a federated-learning server) sees sizes, and nothing else of ids, rows and gradients.
//!
//! A user seals a request to the controller's public key by HPKE (RFC 9180: X25519, HKDF-SHA256,
//! ChaCha20Poly1305). The reply and the upload are sealed by XChaCha20Poly1305 with a fresh random
//! nonce each, under two keys exported from that HPKE context (RFC 9180, sections 5.3 and 9.8), so a
//! message sealed twice repeats no nonce. The hash of the controller's [`Terms`], the round and the
//! user's number are HPKE's `info`: what was sealed under other terms, or for another round or user,
//! opens under no key, in any of the three directions. Users know a controller by its [`Pin`], its
//! public key and the hash of its terms, which must not reach them through the relay.
//!
//! Where the terms name an authority, users are *enrolled*: requests are sealed in HPKE's authenticated
//! mode by a key that the authority has given a [`Ticket`] for, and a user has one place in a round.
//!
//! | message | sealed bytes |
//! |---|---|
//! | request | (80 if enrolled) + 32 + 12 + 4 · slots + 16 |
//! | reply | 24 + slots · (1 + 4 · dim) + 16 |
//! | upload | 24 + 4 + 4 · slots · dim + 16 |
//!
//! Sizes depend on slots and dim alone. Numbers are little-endian; slots that a user does not fill
//! hold [`DUMMY`]. [`UserSession`] is the user's half, [`ControllerSession`] the controller's half of
//! one user, [`SealedRound`] that of all users of a round. Nothing here does I/O.
//!
//! A round's number must never be used for two rounds, abandoned ones included: it is what makes a
//! request of an earlier round useless to whoever kept it. Draw it with [`random_round`].

mod controller;
mod enrolment;
mod error;
mod key;
mod message;
mod round;
mod terms;
mod user;

pub use controller::{ControllerSession, Upload};
use enrolment::CREDENTIAL_BYTES;
pub use enrolment::{AuthorityKey, Credential, Ticket, UserKey};
pub use error::{Error, OrderError, RefusedReason};
pub use key::{ControllerKey, PublicKey};
pub use message::{Context, Shape};
pub use round::SealedRound;
pub use terms::{Pin, Terms};
pub use user::{Reply, UserSession};

use hushtable_prg::{EntropyError, fill_random};

/// What stands in a slot that asks for nothing. Never a row: tables have at most 2^32 - 1 rows.
pub const DUMMY: u32 = u32::MAX;

/// A number for a new round that no other round has, but for a chance of 2^-64 each.
///
/// # Errors
/// [`EntropyError`] if the system gives no randomness.
pub fn random_round() -> Result<u64, EntropyError> {
    let mut bytes = [0; 8];
    fill_random(&mut bytes)?;
    Ok(u64::from_le_bytes(bytes))
}

#[cfg(test)]
mod tests;
