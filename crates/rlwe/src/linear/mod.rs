//! Sums of secret polynomials times encrypted ones, modulo 2^k: what a linear layer is made of.
//!
//! The client encrypts polynomials r_j ([`Client::encrypt`]); the server answers with one of
//! Σ ŵ_j · r_j − s ([`Sum`], [`Sum::seal`]), of which the client opens the coefficients that it is sent
//! ([`Client::open`]). There is no rotation and no relinearisation, hence no evaluation key: plaintexts are
//! packed so that products of polynomials are what is wanted (Huang et al., "Cheetah", USENIX Security
//! 2022, section 3). Numbers modulo t = 2^k, 16 ≤ k ≤ 64, are held as round(Q · r / t), so that sums wrap
//! as they do modulo t, and t need not divide Q − 1.
//!
//! # What the server learns
//! Nothing: uploads are a public seed's masks a and bodies e − a · s + round(Q · r / t), and the public key
//! is such an encryption of 0. All are samples of the ring learning-with-errors problem under one ternary
//! secret, at most 2^32 of them, for moduli that [`Lattice`](crate::Lattice) checks.
//!
//! # What the client learns
//! The coefficients that it is sent, and beyond them something of distance below 2^-40 from what it could
//! make itself ("circuit privacy"; the client is taken to follow the protocol). It knows the uploads'
//! masks a_j, so a sum Σ ŵ_j · a_j would give it the weights: the sum of masks is hidden by u · p + e′, of
//! a fresh ternary u, a fresh error e′ and the public key's mask p. For whoever does not know u that is
//! again a sample of the problem, of secret u, whether s is known or not. Given this mask, the body says the
//! coefficient and the noise,
//!
//! Σ ŵ_j · (e_j + δ_j) + u · e_p + e′ · s,
//!
//! δ_j the roundings of uploads and e_p the public key's error, and to it a number is added that is uniform
//! in −2^F..2^F for each coefficient that is sent ("flood"). The noise is at most 2^(F − 40)
//! ([`Parameters::noise_log2_max`]) but for a chance below 2^-70 a coefficient ([`noise_log2`]), whence each
//! coefficient's distance from a flood alone is at most 2^-41: and half of the noise's mean over 2^F, five
//! bits less than the bound says, in truth. What follows, dropping limbs and low bits, is computed from these.
//! Where uploads are proven ([`proof`]) the client may be any, and the noise is bounded by
//! [`proof::verified_noise_log2`] instead, for each that passes: a client that cheats may reach that bound.
//! Distances add up over the coefficients of a network: `linear_4096` has 40 bits for each, as is usual;
//! `linear_8192`, whose floods are the longer by Q's bits, keeps 40 bits for whole networks.
//! F is a constant of the set, so that it says nothing of the weights. Coefficients that are not asked
//! for hold partial sums that no s hides: they are not sent.

mod noise;
mod params;
pub mod proof;
mod scheme;
mod server;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod timing;

pub use noise::{NOISE_DEVIATIONS, noise_log2};
pub use params::{Parameters, names};
pub use scheme::{Client, Errors, PublicKey, Upload};
pub use server::{Plaintexts, Sealed, Sum, add_products};
