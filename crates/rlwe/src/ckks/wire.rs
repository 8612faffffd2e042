//! Ciphertexts as bytes.
//!
//! All numbers are little-endian. A header of 16 bytes (format 1, kind, level as u16, four zeros, scale
//! as f64); then, for kind 0 (fresh), the mask's seed (32 bytes) and its number (u64); for kind 1
//! (computed), the mask; then the body. Polynomials are in evaluations, packed (`crate::pack`).

use hushtable_ring::{Evaluations, Poly, Ring, Seed};

use super::{Ciphertext, Error, Parameters, rules};
use crate::pack::{pack_poly, poly_bytes, unpack_poly};

/// What a ciphertext's bytes hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Form {
    /// A seed for the mask, and the body: what `encrypt` made.
    Fresh,
    /// Mask and body: what was computed.
    Computed,
}

/// Bytes of a ciphertext of `level`.
///
/// # Panics
/// If there are fewer levels.
pub fn ciphertext_bytes(parameters: &Parameters, level: usize, form: Form) -> usize {
    let poly = poly_bytes(parameters.ring(level));
    match form {
        Form::Fresh => HEADER_BYTES + SEED_BYTES + poly,
        Form::Computed => HEADER_BYTES + 2 * poly,
    }
}

impl Ciphertext {
    /// Mask and body as bytes.
    pub fn to_bytes(&self, parameters: &Parameters) -> Vec<u8> {
        let mut bytes = self.header(parameters, Form::Computed);
        let ring = parameters.ring(self.level);
        pack_poly(ring, &self.parts.mask, &mut bytes);
        pack_poly(ring, &self.parts.body, &mut bytes);
        bytes
    }

    /// The bytes of a ciphertext that `encrypt` made with this `seed` and `index`: the body alone.
    ///
    /// # Errors
    /// [`Error::Bytes`] where the mask is not of that seed, as after any computation.
    pub fn to_fresh_bytes(
        &self,
        parameters: &Parameters,
        seed: &Seed,
        index: u64,
    ) -> Result<Vec<u8>, Error> {
        // A limb's numbers do not depend on how many limbs there are.
        let first = parameters.ring(0).uniform(seed, index);
        if first.limb(0) != self.parts.mask.limb(0) {
            let why = "its mask is not of this seed: send it with to_bytes".to_owned();
            return Err(Error::Bytes { why });
        }
        let mut bytes = self.header(parameters, Form::Fresh);
        bytes.extend(seed);
        bytes.extend(index.to_le_bytes());
        pack_poly(parameters.ring(self.level), &self.parts.body, &mut bytes);
        Ok(bytes)
    }

    /// Reads a ciphertext of either form. Its level and scale are possible ones, not yet those that a
    /// circuit wants: see [`Ciphertext::expect`].
    ///
    /// # Errors
    /// [`Error::Bytes`] for a header that is none, or another length than the header asks for;
    /// [`Error::Scale`] for a scale that the level does not hold; [`Error::Core`] for numbers that are
    /// no residues.
    pub fn parse(parameters: &Parameters, bytes: &[u8]) -> Result<Self, Error> {
        let refused = |why: String| Err(Error::Bytes { why });
        let Some((header, mut rest)) = bytes.split_first_chunk::<HEADER_BYTES>() else {
            return refused(format!("{} bytes, the header has {HEADER_BYTES}", bytes.len()));
        };
        let form = match header[..2] {
            [FORMAT, 0] => Form::Fresh,
            [FORMAT, 1] => Form::Computed,
            [format, kind] => {
                return refused(format!(
                    "format {format} and kind {kind}, expected format {FORMAT} and kind 0 or 1"
                ));
            }
            _ => unreachable!("two bytes"),
        };
        let level = usize::from(u16::from_le_bytes([header[2], header[3]]));
        if level > parameters.levels() || header[4..8] != [0; 4] {
            let name = parameters.name();
            let levels = parameters.levels();
            return refused(format!("level {level}, the set {name:?} has {levels}"));
        }
        let scale = f64::from_le_bytes(header[8..].try_into().expect("8 bytes"));
        let ring = parameters.ring(level);
        rules::scale_fits("read a ciphertext", ring, scale)?;
        let expected = ciphertext_bytes(parameters, level, form);
        if bytes.len() != expected {
            let found = bytes.len();
            return refused(format!("{found} bytes at level {level}, expected {expected}"));
        }
        let mask = match form {
            Form::Fresh => expand(ring, &mut rest),
            Form::Computed => unpack_poly("ciphertext", ring, &mut rest)?,
        };
        let body = unpack_poly("ciphertext", ring, &mut rest)?;
        Ok(Self { parts: crate::Ciphertext { mask, body }, level, scale })
    }

    fn header(&self, parameters: &Parameters, form: Form) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(ciphertext_bytes(parameters, self.level, form));
        bytes.extend([FORMAT, form as u8]);
        bytes.extend((self.level as u16).to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.scale.to_le_bytes());
        bytes
    }
}

/// The mask of the seed and number at the front of `bytes`, which were counted.
fn expand(ring: &Ring, bytes: &mut &[u8]) -> Poly<Evaluations> {
    let (seed, rest) = bytes.split_first_chunk::<32>().expect("a length that was checked");
    let (index, rest) = rest.split_first_chunk::<8>().expect("a length that was checked");
    *bytes = rest;
    ring.uniform(seed, u64::from_le_bytes(*index))
}

const FORMAT: u8 = 1;
const HEADER_BYTES: usize = 16;
const SEED_BYTES: usize = 40;
