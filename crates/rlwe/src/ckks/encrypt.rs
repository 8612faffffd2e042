//! Encryption and decryption.

use hushtable_ring::{NoiseSource, Seed};

use super::{Ciphertext, Error, Parameters, Plaintext, rules};
use crate::SecretKey;

/// Encrypts under a secret over Q · P's ring: the mask is polynomial number `index` of `seed`, which no
/// other ciphertext of this secret may have, so that it need not be sent.
///
/// Time does not depend on what is encrypted.
///
/// # Errors
/// [`Error::Level`] for a plaintext of a level that the parameters do not have.
pub fn encrypt(
    parameters: &Parameters,
    secret: &SecretKey,
    plaintext: &Plaintext,
    seed: &Seed,
    index: u64,
    source: &mut NoiseSource,
) -> Result<Ciphertext, Error> {
    let Plaintext { ref poly, level, scale } = *plaintext;
    has_level("encrypt", parameters, level)?;
    let parts = secret.encrypt(parameters.ring(level), seed, index, poly, source);
    Ok(Ciphertext { parts, level, scale })
}

/// Decrypts: what comes out holds the message and the noise, which tells of the secret where it is
/// given away exactly (Li and Micciancio, EUROCRYPT 2021).
///
/// # Errors
/// [`Error::Level`] for a ciphertext of a level that the parameters do not have.
pub fn decrypt(
    parameters: &Parameters,
    secret: &SecretKey,
    ciphertext: &Ciphertext,
) -> Result<Plaintext, Error> {
    let Ciphertext { ref parts, level, scale } = *ciphertext;
    has_level("decrypt", parameters, level)?;
    let ring = parameters.ring(level);
    Ok(Plaintext { poly: ring.forward(secret.phase(ring, parts)), level, scale })
}

fn has_level(operation: &'static str, parameters: &Parameters, found: usize) -> Result<(), Error> {
    if found > parameters.levels() {
        return rules::same_level(operation, found, parameters.levels());
    }
    Ok(())
}
