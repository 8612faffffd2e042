//! CKKS: approximate arithmetic on vectors of real numbers (Cheon, Kim, Kim and Song, ASIACRYPT
//! 2017), in residue form (Cheon, Han, Kim, Kim and Song, SAC 2018), leveled.
//!
//! [`ParameterSpec`] is a set as written down, [`Parameters`] one whose security was checked. A
//! ciphertext holds N/2 slots at a *level* (how many primes can still be divided off) and a *scale*
//! (what its numbers were multiplied with). Circuits are written against [`Evaluate`], which one
//! type does on ciphertexts and others in the clear.

mod approximation;
mod bootstrap;
mod chebyshev;
mod ciphertext;
mod clear;
mod crew;
mod diagonals;
mod encoder;
mod encrypt;
mod encrypted;
mod error;
mod evaluate;
mod fft;
mod key_reader;
mod keys;
mod noise;
mod params;
mod plaintext;
mod polynomial;
mod residues;
mod rotations;
mod rules;
mod simulated;
mod switch;
mod switch_key;
mod transform;
pub mod wire;
mod work;

pub use approximation::{Approximation, Function};
pub use bootstrap::{Bootstrap, BootstrapLevels, PreparedBootstrap, reduction_failure_log2};
pub use ciphertext::Ciphertext;
pub use clear::{Clear, ClearPlaintext, ClearTransform, ClearVector};
pub use diagonals::{Diagonals, Split, Steps};
pub use encoder::Encoder;
pub use encrypt::{decrypt, encrypt};
pub use encrypted::Encrypted;
pub use error::Error;
pub use evaluate::Evaluate;
pub use key_reader::KeyReader;
pub use keys::{
    EvaluationKeys, PublishedKey, key_bytes, key_memory_bytes, published_keys, write_keys,
};
pub use noise::Noise;
pub use params::{ModulusBits, ParameterSpec, Parameters};
pub use plaintext::Plaintext;
pub use polynomial::{Basis, Polynomial};
pub use rotations::{KeySpec, Rotations};
pub use simulated::{Simulated, SimulatedVector};
pub use switch_key::Masks;
pub use transform::Transform;
pub use work::Work;

// What a caller must name beside these.
pub use num_complex::Complex64;
