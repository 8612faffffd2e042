//! What a message is bound to, how large it is, and how it is sealed.

use std::hint::black_box;

use chacha20poly1305::aead::{AeadInOut, KeyInit};
use chacha20poly1305::{Tag, XChaCha20Poly1305, XNonce};
use hushtable_prg::Secret;
use hushtable_prg::valgrind::{declassify, mark_public, mark_secret};
use zeroize::Zeroizing;

use super::{Error, RefusedReason, Terms};
use crate::aggregate::WEIGHT_MAX;

/// Slots of a user and numbers of a row: what the sizes of messages follow from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    slots: usize,
    dim: usize,
}

impl Shape {
    /// A shape of `slots` (1 to 2^20) rows of `dim` (1 to 2^16) numbers.
    ///
    /// # Errors
    /// [`Error::Setting`] outside these, and where slots × dim numbers pass 1 GiB.
    pub fn new(slots: usize, dim: usize) -> Result<Self, Error> {
        within("slots", slots as u64, SLOTS_MAX)?;
        within("dim", dim as u64, DIM_MAX)?;
        within("slots x dim", (slots * dim) as u64, NUMBERS_MAX)?;
        Ok(Self { slots, dim })
    }

    /// Rows that a user may ask for.
    pub fn slots(self) -> usize {
        self.slots
    }

    /// Numbers of a row.
    pub fn dim(self) -> usize {
        self.dim
    }

    /// Numbers of a user's rows: slots × dim.
    pub fn numbers(self) -> usize {
        self.slots * self.dim
    }

    /// Bytes of a sealed reply.
    pub fn reply_bytes(self) -> usize {
        NONCE_BYTES + self.reply_text_bytes() + TAG_BYTES
    }

    /// Bytes of a sealed upload.
    pub fn upload_bytes(self) -> usize {
        NONCE_BYTES + self.upload_text_bytes() + TAG_BYTES
    }

    pub(super) fn request_text_bytes(self) -> usize {
        8 + 4 + 4 * self.slots
    }

    pub(super) fn reply_text_bytes(self) -> usize {
        self.slots + 4 * self.numbers()
    }

    pub(super) fn upload_text_bytes(self) -> usize {
        4 + 4 * self.numbers()
    }
}

/// Under which terms, and of which round and user a message is. Both ends must agree on all of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    terms: Terms,
    round: u64,
    user: u32,
}

impl Context {
    /// The messages of `user` in `round`, under `terms`.
    pub fn new(terms: &Terms, round: u64, user: u32) -> Self {
        Self { terms: terms.clone(), round, user }
    }

    /// What the controller is.
    pub fn terms(&self) -> &Terms {
        &self.terms
    }

    /// Slots and dim.
    pub fn shape(&self) -> Shape {
        self.terms.shape()
    }

    /// The round.
    pub fn round(&self) -> u64 {
        self.round
    }

    /// The user's number in the round.
    pub fn user(&self) -> u32 {
        self.user
    }

    /// HPKE's `info`: the hash stands for all that the terms say.
    pub(super) fn info(&self) -> Vec<u8> {
        let (round, user) = (self.round.to_le_bytes(), self.user.to_le_bytes());
        [LABEL, self.terms.hash(), &round, &user].concat()
    }
}

/// A direction's key after the request.
pub(super) struct MessageKey {
    what: &'static str,
    key: Secret<[u8; 32]>,
}

impl MessageKey {
    pub fn new(what: &'static str, key: Secret<[u8; 32]>) -> Self {
        Self { what, key }
    }

    /// The key itself: to keep a session.
    pub fn expose(&self) -> &[u8; 32] {
        self.key.expose()
    }

    fn cipher(&self) -> XChaCha20Poly1305 {
        XChaCha20Poly1305::new(self.key.expose().into())
    }

    fn not_opened(&self) -> Error {
        Error::Refused { what: self.what, reason: RefusedReason::NotOpened }
    }

    /// Seals `text`: nonce, cipher text, tag.
    pub fn seal(&self, nonce: &[u8; NONCE_BYTES], text: &[u8]) -> Result<Vec<u8>, Error> {
        let mut sealed = Vec::with_capacity(NONCE_BYTES + text.len() + TAG_BYTES);
        sealed.extend_from_slice(nonce);
        sealed.extend_from_slice(text);
        let body = &mut sealed[NONCE_BYTES..];
        // Fails only for texts of 256 GiB.
        let tag = self
            .cipher()
            .encrypt_inout_detached(&XNonce::from(*nonce), &[], body.into())
            .map_err(|_| self.not_opened())?;
        sealed.extend_from_slice(&tag);
        // For everyone to see, from here on.
        mark_public(&mut sealed);
        Ok(sealed)
    }

    /// Opens what [`seal`](Self::seal) made of a text of `text_bytes`.
    pub fn open(&self, sealed: &[u8], text_bytes: usize) -> Result<Zeroizing<Vec<u8>>, Error> {
        let refused = || self.not_opened();
        if sealed.len() != NONCE_BYTES + text_bytes + TAG_BYTES {
            return Err(refused());
        }
        let (nonce, rest) = sealed.split_first_chunk::<NONCE_BYTES>().ok_or_else(refused)?;
        let (body, tag) = rest.split_last_chunk::<TAG_BYTES>().ok_or_else(refused)?;
        let mut text = Zeroizing::new(body.to_vec());
        self.cipher()
            .decrypt_inout_detached(
                &XNonce::from(*nonce),
                &[],
                text.as_mut_slice().into(),
                &Tag::from(*tag),
            )
            .map_err(|_| refused())?;
        mark_secret(&mut text);
        Ok(text)
    }
}

/// Numbers from little-endian bytes.
pub(super) fn read_numbers(bytes: &[u8]) -> Vec<f32> {
    let (chunks, _) = bytes.as_chunks::<4>();
    chunks.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect()
}

/// Whether all numbers are finite, by one pass that looks at each alike.
pub(super) fn all_finite(numbers: &[f32]) -> bool {
    let exponents = |number: &f32| number.to_bits() & 0x7F80_0000;
    // 1 in the top bit where an exponent is all ones.
    let bad = numbers.iter().fold(0u32, |bad, number| bad | (exponents(number) + 0x0080_0000));
    // That an upload is refused is told.
    let mut bad = black_box(bad >> 31);
    declassify(&mut bad);
    bad == 0
}

/// Whether a controller takes this weight. No NaN is in the range.
pub(super) fn is_weight(weight: f32) -> bool {
    let good = u8::from(weight >= 0.0) & u8::from(weight <= WEIGHT_MAX);
    // That an upload is refused is told.
    let mut good = black_box(good);
    declassify(&mut good);
    good == 1
}

pub(super) fn within(name: &'static str, value: u64, max: u64) -> Result<(), Error> {
    match (1..=max).contains(&value) {
        true => Ok(()),
        false => Err(Error::Setting { name, value, min: 1, max }),
    }
}

const LABEL: &[u8] = b"hushtable train 2\0";
/// What the reply's and the upload's keys are exported by.
pub(super) const REPLY_LABEL: &[u8] = b"reply";
pub(super) const UPLOAD_LABEL: &[u8] = b"upload";
pub(super) const ENCAPSULATED_BYTES: usize = 32;
pub(super) const NONCE_BYTES: usize = 24;
pub(super) const TAG_BYTES: usize = 16;
const SLOTS_MAX: u64 = 1 << 20;
const DIM_MAX: u64 = 1 << 16;
const NUMBERS_MAX: u64 = 1 << 28;
