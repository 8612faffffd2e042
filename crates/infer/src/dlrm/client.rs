//! The client's half: features to queries, answers to logits.

use std::f64::consts::PI;

use hushtable_rlwe::ckks::{Encoder, encrypt, write_keys};
use hushtable_rlwe::pack::{poly_bytes, unpack, unpack_poly};
use hushtable_rlwe::ring::{Modulus, NoiseSource, Platform};
use hushtable_rlwe::{Ciphertext, SecretKey};

use super::error::Error;
use super::terms::Terms;

/// The most bytes of one piece of keys.
pub const KEY_CHUNK_BYTES: usize = 1 << 20;
/// The step that [`shareable`] rounds logits to: 2^−6.
pub const SHARED_STEP: f64 = 1.0 / 64.0;

/// A client of one plan, with its secret.
pub struct Client {
    terms: Terms,
    encoder: Encoder,
    secret: SecretKey,
    /// None where they were given away as they were made.
    keys: Vec<u8>,
    key_id: [u8; 32],
}

impl Client {
    /// Draws a secret and makes its keys.
    ///
    /// # Errors
    /// [`Error::Entropy`], [`Error::Ckks`].
    pub fn new(terms: Terms) -> Result<Self, Error> {
        Self::draw(terms, &mut NoiseSource::from_os()?)
    }

    /// As [`new`](Self::new), but the keys are given to `sink` as they are made, in pieces of any length, and
    /// are not kept: [`keys`](Self::keys) has none. For who has the server in its own process.
    ///
    /// # Errors
    /// As [`new`](Self::new), and what `sink` says first, after which it gets no more.
    pub fn giving(
        terms: Terms,
        sink: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        Self::draw_to(terms, &mut NoiseSource::from_os()?, sink)
    }

    /// The client that `source` gives, for known answers.
    ///
    /// # Errors
    /// [`Error::Ckks`].
    #[doc(hidden)]
    pub fn draw(terms: Terms, source: &mut NoiseSource) -> Result<Self, Error> {
        let mut keys = Vec::with_capacity(terms.key_bytes()?);
        let client = Self::draw_to(terms, source, |piece| {
            keys.extend_from_slice(piece);
            Ok(())
        })?;
        Ok(Self { keys, ..client })
    }

    fn draw_to(
        terms: Terms,
        source: &mut NoiseSource,
        mut sink: impl FnMut(&[u8]) -> Result<(), Error>,
    ) -> Result<Self, Error> {
        let parameters = terms.parameters();
        let secret = SecretKey::draw(parameters.lattice().key_ring(), source);
        let encoder = Encoder::new(parameters);
        let (mut hasher, mut taken) = (blake3::Hasher::new(), Ok(()));
        let mut give = |piece: &[u8]| {
            if taken.is_ok() {
                hasher.update(piece);
                taken = sink(piece);
            }
        };
        give(&terms.plan());
        // Keys and this have seeds of their own: no two masks are the same.
        let (seed, zero) = (source.seed(), encoder.encode_real(&[0.0], 0, parameters.scale())?);
        let zero = encrypt(parameters, &secret, &zero, &seed, 0, source)?;
        give(&zero.to_fresh_bytes(parameters, &seed, 0)?);
        let seed = source.seed();
        write_keys(parameters, &secret, terms.key_spec(), &seed, source, give)?;
        taken?;
        let key_id = *hasher.finalize().as_bytes();
        Ok(Self { terms, encoder, secret, keys: Vec::new(), key_id })
    }

    /// A client of the terms that a server announced.
    ///
    /// # Errors
    /// As [`Terms::parse`] and [`Client::new`].
    pub fn of_announced(bytes: &[u8], platform: Platform) -> Result<Self, Error> {
        Self::new(Terms::parse(bytes, platform)?)
    }

    /// What the server announced.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// BLAKE3 of the keys' bytes: what the server knows them by.
    pub fn key_id(&self) -> [u8; 32] {
        self.key_id
    }

    /// The keys that are uploaded once, in pieces of at most [`KEY_CHUNK_BYTES`]; none of a client that was made by
    /// [`giving`](Self::giving) them.
    pub fn keys(&self) -> impl ExactSizeIterator<Item = &[u8]> {
        self.keys.chunks(KEY_CHUNK_BYTES)
    }

    /// Encrypts the features of one user or several, user by user: `dense` features and `indices` of
    /// the sparse ones. How many users there are does not show.
    ///
    /// Encoding takes a time that depends on no feature but through what a processor makes of numbers
    /// below 2^−1022, and no address depends on one; indices are divided by the base.
    ///
    /// # Errors
    /// [`Error::Users`], [`Error::Count`], [`Error::Feature`], [`Error::Index`], [`Error::Entropy`].
    pub fn query(&self, dense: &[f32], indices: &[u64]) -> Result<Vec<u8>, Error> {
        self.query_from(dense, indices, &mut NoiseSource::from_os()?)
    }

    /// As [`query`](Self::query), with randomness from `source`.
    ///
    /// # Errors
    /// As [`query`](Self::query).
    #[doc(hidden)]
    pub fn query_from(
        &self,
        dense: &[f32],
        indices: &[u64],
        source: &mut NoiseSource,
    ) -> Result<Vec<u8>, Error> {
        let (terms, parameters) = (&self.terms, self.terms.parameters());
        terms.sizes().check(dense, indices)?;
        let seed = source.seed();
        let mut bytes = Vec::with_capacity(terms.query_bytes());
        bytes.extend(terms.plan());
        let mut number = 0;
        for input in terms.inputs() {
            let vectors = terms.sizes().fill_input(input, dense, indices);
            for (values, level) in vectors.zip(input.levels()) {
                let plain = self.encoder.encode_real(&values, level, parameters.scale())?;
                let sealed = encrypt(parameters, &self.secret, &plain, &seed, number, source)?;
                bytes.extend(sealed.to_fresh_bytes(parameters, &seed, number)?);
                number += 1;
            }
        }
        Ok(bytes)
    }

    /// Opens an answer: the logit of each of the [`Terms::users`], of which the first are those that
    /// were asked for.
    ///
    /// A logit that anybody else sees is to be [`shareable`] first.
    ///
    /// # Errors
    /// [`Error::Bytes`], [`Error::OtherPlan`], [`Error::Core`]; [`Error::Answer`] for one that holds no
    /// real numbers.
    pub fn open(&self, answer: &[u8]) -> Result<Vec<f64>, Error> {
        let (terms, parameters) = (&self.terms, self.terms.parameters());
        let mut rest = terms.open("answer", terms.answer_bytes(), answer)?;
        let ring = parameters.ring(0);
        debug_assert!(rest.len() > poly_bytes(ring));
        let mask = unpack_poly("answer", ring, &mut rest)?;
        let modulus = ring.modulus(0);
        let mut body = vec![0; 2 * terms.users()];
        unpack("answer", rest, modulus.bits(), &mut body)?;
        if body.iter().any(|&value| value >= modulus.value()) {
            return Err(Error::Answer);
        }
        let product = self.secret.phase(ring, &Ciphertext { mask, body: ring.zero() });
        let apart = ring.degree() / body.len();
        let sums = body.iter().enumerate().map(|(index, &body)| {
            let sum = modulus.add(body, product.limb(0)[index * apart]);
            centre(modulus, sum) / parameters.scale()
        });
        let slots = slots_of(&sums.collect::<Vec<f64>>());
        // An honest answer's imaginary parts are its noise alone.
        if slots.iter().any(|&(_, im)| im.abs() > IMAGINARY_MAX) {
            return Err(Error::Answer);
        }
        Ok(slots.into_iter().map(|(re, _)| re).collect())
    }
}

/// What may be given away of a logit.
///
/// A decrypted logit holds the noise, and who sees enough of that learns of the secret (Li and
/// Micciancio, EUROCRYPT 2021). This adds a fresh uniform number of ±1/2 step and rounds to a step of
/// 2^−6: two logits that differ by a noise of 2^−k give the same with chance 1 − 2^(6 − k). It is a
/// policy for logits that are shown, such as a score, and no proof: who shares many logits of one key,
/// each chosen by the other side, must change keys.
///
/// # Errors
/// [`Error::Entropy`].
pub fn shareable(logit: f64) -> Result<f64, Error> {
    let seed = NoiseSource::from_os()?.seed();
    let word = u64::from_le_bytes(*seed.first_chunk().unwrap_or(&[0; 8]));
    let uniform = (word >> 11) as f64 / 2f64.powi(53) - 0.5;
    Ok((logit / SHARED_STEP + uniform).round() * SHARED_STEP)
}

/// `value` modulo the prime, nearest to 0; without a branch.
fn centre(modulus: Modulus, value: u64) -> f64 {
    let prime = modulus.value() as i64;
    let is_high = ((prime / 2 - value as i64) >> 63) & prime;
    (value as i64 - is_high) as f64
}

/// The slots of the polynomial with these coefficients in X^(N / 2n), n of them, real and imaginary:
/// its values at ζ^(5^j), ζ a root of order 4n.
fn slots_of(coefficients: &[f64]) -> Vec<(f64, f64)> {
    let order = 2 * coefficients.len();
    let mut exponent = 1;
    let mut slots = Vec::with_capacity(coefficients.len() / 2);
    for _ in 0..coefficients.len() / 2 {
        let terms = coefficients.iter().enumerate().map(|(k, c)| {
            let angle = 2.0 * PI * (k * exponent % order) as f64 / order as f64;
            (c * angle.cos(), c * angle.sin())
        });
        slots.push(terms.fold((0.0, 0.0), |sum, term| (sum.0 + term.0, sum.1 + term.1)));
        exponent = exponent * 5 % order;
    }
    slots
}

/// The largest imaginary part of an honest answer.
const IMAGINARY_MAX: f64 = 1.0 / 256.0;
