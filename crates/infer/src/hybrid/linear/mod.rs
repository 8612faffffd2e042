//! Linear layers: shares of W · r − s under homomorphic encryption, and W · x in the clear.
//!
//! Offline, the client sends encryptions of its masks r in chunks ([`LinearClient::upload`]), the server
//! answers in units ([`LinearServer::answer`]) of which the client opens W · r − s, modulo 2^bits
//! ([`LinearClient::open`]); `hushtable_rlwe::linear` says what each learns. Online the server computes its
//! share's convolution itself ([`convolve_modulo`]). In the sets whose names say `verified` the server computes nothing
//! on uploads before it was proven that they are encryptions ([`hushtable_rlwe::linear::proof`]), a batch of
//! convolutions at a time ([`Layers::batches`]). How tensors lie in polynomials follows from the program alone
//! ([`Layers`]), so that both parties find the same.

mod client;
mod convolve;
mod error;
mod layers;
mod layout;
mod proofs;
mod proving;
mod server;
#[cfg(test)]
mod tests;
mod verifying;

pub use client::LinearClient;
pub use convolve::{convolve, convolve_modulo};
pub use error::Error;
pub use hushtable_rlwe::linear::proof::{COMMITMENT_BYTES, ROWS, SEED_BYTES};
pub use layers::{Layers, choose, is_verified};
pub use layout::Work;
pub use server::{LinearServer, Prepared};

use hushtable_rlwe::ring::{NoiseSource, Secret};

/// The source of secret randomness number `index` for one `purpose`, from a party's seed.
fn source(seed: &Secret<[u8; 32]>, purpose: &str, index: [usize; 3]) -> NoiseSource {
    let mut hasher = blake3::Hasher::new_keyed(seed.expose());
    hasher.update(purpose.as_bytes());
    for index in index {
        hasher.update(&(index as u64).to_le_bytes());
    }
    NoiseSource::from_seed(Secret::new(*hasher.finalize().as_bytes()).expose())
}
