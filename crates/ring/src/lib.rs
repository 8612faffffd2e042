//! Polynomials modulo X^N + 1 over products of NTT-friendly primes.
//!
//! What lattice cryptography computes with: [`Modulus`] (one prime of at most 51 bits), [`NttTable`]
//! (its negacyclic transform), [`Ring`] (several primes, "limbs", and the kernels of a machine) and
//! [`Poly`], whose form, [`Coefficients`] or [`Evaluations`], is in its type. [`Gadget`] cuts
//! numbers into digits, [`Automorphism`] is X → X^r, [`NoiseSource`] draws keys and errors in
//! constant time. Limbs lie one after another, so that BFV with one to four and CKKS with dozens of
//! them share everything.
//!
//! ```
//! use hushtable_ring::{Ring, ntt_primes};
//! use hushtable_prg::Platform;
//!
//! let ring = Ring::new(16, &ntt_primes(50, 16, 2), Platform::detect()).unwrap();
//! let mut x = ring.forward(ring.from_signed_vartime(&[3, 1]));
//! let y = ring.forward(ring.from_signed_vartime(&[-1, 2]));
//! ring.mul_assign(&mut x, &y);
//! let product = ring.inverse(x); // (3 + X)(−1 + 2X) = −3 + 5X + 2X²
//! assert_eq!(ring.modulus(0).to_signed(product.limb(0)[0]), -3);
//! assert_eq!(product.limb(1)[..3][1..], [5, 2]);
//! ```

#![deny(unsafe_code)]
// Where there are no vector kernels, nothing chooses among them.
#![cfg_attr(
    not(any(target_arch = "x86_64", target_arch = "aarch64")),
    allow(dead_code, unreachable_patterns, unused_imports, unused_mut)
)]

mod automorphism;
mod buffer;
mod crt;
mod error;
mod gadget;
pub mod kernel;
mod modulus;
mod ntt;
mod poly;
pub mod reference;
mod ring;
mod sample;
#[cfg(test)]
mod sampling_time;

pub use automorphism::Automorphism;
pub use buffer::Buffer;
pub use crt::Crt;
pub use error::Error;
pub use gadget::{Gadget, GadgetSpec};
pub use kernel::Kernel;
pub use modulus::{Modulus, ntt_primes};
pub use ntt::{NttTable, reverse_bits};
pub use poly::{Coefficients, Evaluations, Form, Poly};
pub use ring::Ring;
pub use sample::{NoiseSource, SIGMA, Seed, Stream};

// What a caller must name to make a ring.
pub use hushtable_prg::{EntropyError, Platform, Secret, timing};

// What a scheme says of the bits that it reveals.
pub use hushtable_prg::valgrind::declassify;
