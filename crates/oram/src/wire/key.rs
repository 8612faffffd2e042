//! The controller's key pair.

use std::fmt;
use std::str::FromStr;

use hpke::kem::X25519HkdfSha256;
use hpke::{Deserializable, Kem, Serializable};
use hushtable_prg::{Secret, fill_random};
use serde::{Deserialize, Serialize};
use zeroize::Zeroizing;

use super::Error;

pub(super) type SecretKey = <X25519HkdfSha256 as Kem>::PrivateKey;
pub(super) type KemPublicKey = <X25519HkdfSha256 as Kem>::PublicKey;

/// The controller's secret key, with the public one.
#[derive(Clone)]
pub struct ControllerKey {
    pub(super) secret: SecretKey,
    public: PublicKey,
}

/// What users seal their requests to, and what users are known by. 32 bytes; as text, 64 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct PublicKey([u8; 32]);

impl ControllerKey {
    /// The pair that follows from 32 secret bytes (RFC 9180, section 7.1.3, DeriveKeyPair).
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        let (secret, public) = X25519HkdfSha256::derive_keypair(seed);
        Self { secret, public: PublicKey(public.to_bytes().into()) }
    }

    /// The pair that belongs to a controller's master key. It tells nothing of that key, nor of
    /// others that are derived from it.
    pub fn of_master(master: &[u8; 32]) -> Self {
        Self::from_seed(Secret::new(blake3::derive_key(MASTER_CONTEXT, master)).expose())
    }

    /// A new random pair.
    ///
    /// # Errors
    /// [`Error::Entropy`].
    pub fn generate() -> Result<Self, Error> {
        let mut seed = Secret::new([0; 32]);
        fill_random(seed.expose_mut())?;
        Ok(Self::from_seed(seed.expose()))
    }

    /// A key for one purpose, which `context` names in a way that no other use does. It tells nothing of
    /// this key, nor of those of other contexts.
    pub fn derive(&self, context: &str) -> Zeroizing<[u8; 32]> {
        let secret = Zeroizing::new(<[u8; 32]>::from(self.secret.to_bytes()));
        Zeroizing::new(blake3::derive_key(context, &*secret))
    }

    /// What users seal to.
    pub fn public(&self) -> PublicKey {
        self.public
    }
}

impl PublicKey {
    /// Reads 32 bytes.
    ///
    /// # Errors
    /// [`Error::PublicKey`] for another number of them.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, Error> {
        let bytes: [u8; 32] =
            bytes.try_into().map_err(|_| Error::PublicKey { bytes: bytes.len() })?;
        Ok(Self(bytes))
    }

    /// Its 32 bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }

    pub(super) fn to_kem(self) -> Result<KemPublicKey, Error> {
        KemPublicKey::from_bytes(&self.0).map_err(|_| Error::PublicKey { bytes: self.0.len() })
    }
}

impl fmt::Display for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        Hex(&self.0).fmt(f)
    }
}

impl fmt::Debug for PublicKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PublicKey({self})")
    }
}

impl FromStr for PublicKey {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        read_hex(text).map(Self).ok_or(Error::PublicKey { bytes: text.len() / 2 })
    }
}

impl TryFrom<String> for PublicKey {
    type Error = Error;

    fn try_from(text: String) -> Result<Self, Error> {
        text.parse()
    }
}

impl From<PublicKey> for String {
    fn from(key: PublicKey) -> Self {
        key.to_string()
    }
}

/// Bytes as lower-case hex digits.
pub(super) struct Hex<'a>(pub &'a [u8]);

impl fmt::Display for Hex<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Exactly `N` bytes from twice as many hex digits.
pub(super) fn read_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    if text.len() != 2 * N || !text.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        return None;
    }
    let mut bytes = [0; N];
    for (index, byte) in bytes.iter_mut().enumerate() {
        *byte = u8::from_str_radix(&text[2 * index..2 * index + 2], 16).ok()?;
    }
    Some(bytes)
}

impl fmt::Debug for ControllerKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ControllerKey({})", self.public)
    }
}

const MASTER_CONTEXT: &str = "hushtable train 1: the key pair that users seal their requests to";
