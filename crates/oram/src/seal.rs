//! Keys, and groups of bytes sealed under them: AEGIS-256 (draft-irtf-cfrg-aegis-aead), as FEDORA 5.2
//! seals what it keeps off the chip.
//!
//! AEGIS-256 because its nonce of 32 bytes holds a place and a counter, or may be drawn at random, and
//! because it is the fastest AEAD where there are AES instructions, at 128 bits of forgery resistance
//! for each tag of 16 bytes. A nonce must never come twice under a key for different texts.

use aegis::aegis256::Aegis256;
use hushtable_prg::{EntropyError, Secret, fill_random, valgrind};
use thiserror::Error;

use crate::instance::Instance;

/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Bytes of a tag.
pub const TAG_BYTES: usize = 16;

/// A tag that does not fit: the sealed bytes, their tag, their place or their counter is not the one
/// that they were sealed with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "sealed bytes do not fit their tag: they were changed, moved, or replaced by an older version; \
     nothing of them was used. Stop this memory; `hushtable train recover FOLDER` says how to go on"
)]
pub struct Forged;

/// A key of 256 bits, wiped when dropped and never printed.
///
/// ```compile_fail
/// let key = hushtable_oram::seal::Key::from_bytes([0; 32]);
/// println!("{key:?}"); // a key has no Debug
/// ```
pub struct Key(Secret<[u8; 32]>);

impl Key {
    /// The key of these bytes.
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Self(Secret::new(bytes))
    }

    /// A key from the operating system's entropy.
    ///
    /// # Errors
    /// If the operating system gives none.
    pub fn random() -> Result<Self, EntropyError> {
        let mut key = Secret::new([0; 32]);
        fill_random(key.expose_mut())?;
        Ok(Self(key))
    }

    /// A key for one purpose: BLAKE3 keyed with this key, of `context`. Keys of different contexts are
    /// independent, and none tells anything of this one.
    pub fn derive(&self, context: &str) -> Self {
        self.derive_bytes(context.as_bytes())
    }

    /// A key for one purpose of one instance.
    pub fn derive_for(&self, context: &str, instance: &Instance) -> Self {
        self.derive(context).derive_bytes(instance.bytes())
    }

    /// A key for one memory: [`derive`](Self::derive) with a salt from the operating system, so that a
    /// memory that is built anew, from the same key, never meets a nonce of the one before.
    ///
    /// # Errors
    /// If the operating system gives no entropy.
    pub fn fresh(&self, context: &str) -> Result<Self, EntropyError> {
        let mut salt = [0; 32];
        fill_random(&mut salt)?;
        let mut input = salt.to_vec();
        input.extend_from_slice(context.as_bytes());
        Ok(self.derive(context).derive_bytes(&input))
    }

    fn derive_bytes(&self, input: &[u8]) -> Self {
        Self(Secret::new(blake3::keyed_hash(self.0.expose(), input).into()))
    }

    /// Encrypts `text` in place and returns the tag over it and over `ad`. `nonce` must be new for this key.
    #[inline]
    pub fn seal_in_place(
        &self,
        nonce: &[u8; NONCE_BYTES],
        ad: &[u8],
        text: &mut [u8],
    ) -> [u8; TAG_BYTES] {
        let mut tag = Aegis256::<TAG_BYTES>::new(self.0.expose(), nonce).encrypt_in_place(text, ad);
        // Sealed bytes are for everyone to see: what is under them is as good as random without the key.
        valgrind::mark_public(text);
        valgrind::mark_public(&mut tag);
        tag
    }

    /// Decrypts `text` in place; ctgrind tests hold all of it for secret from then on.
    ///
    /// # Errors
    /// [`Forged`] if `text`, `tag`, `ad`, `nonce` or the key is not that of the sealing; `text` then holds
    /// nothing of use.
    #[inline]
    pub fn open_in_place(
        &self,
        nonce: &[u8; NONCE_BYTES],
        ad: &[u8],
        text: &mut [u8],
        tag: &[u8; TAG_BYTES],
    ) -> Result<(), Forged> {
        Aegis256::<TAG_BYTES>::new(self.0.expose(), nonce)
            .decrypt_in_place(text, tag, ad)
            .map_err(|_| Forged)?;
        valgrind::mark_secret(text);
        Ok(())
    }
}

/// The nonce of version `counter` of the sealed group number `group`.
#[inline]
pub(crate) fn group_nonce(group: u64, counter: u64) -> [u8; NONCE_BYTES] {
    let mut nonce = [0; NONCE_BYTES];
    nonce[..8].copy_from_slice(&group.to_le_bytes());
    nonce[8..16].copy_from_slice(&counter.to_le_bytes());
    nonce
}

#[cfg(test)]
mod tests;
