//! What a controller is to its users, and the pin by which they know it.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use super::message::{ENCAPSULATED_BYTES, Shape, TAG_BYTES, within};
use super::{CREDENTIAL_BYTES, Error, PublicKey};
use crate::round::ControllerSpec;

/// What users are told of a controller: `controller.json`, byte for byte. Its hash is in every key
/// that a user and the controller share, so two that were told different terms share none.
#[derive(Clone)]
pub struct Terms(Arc<Read>);

struct Read {
    text: Vec<u8>,
    hash: [u8; 32],
    spec: ControllerSpec,
    shape: Shape,
}

impl Terms {
    /// Reads the terms that `text` holds, whoever sent it. With a pin at hand, use
    /// [`pinned`](Self::pinned).
    ///
    /// # Errors
    /// [`Error::Terms`] for text that is no controller's, [`Error::Setting`], [`Error::Name`] for
    /// terms that no message can be bound to.
    pub fn read(text: &[u8]) -> Result<Self, Error> {
        if text.len() > TERMS_BYTES_MAX {
            return Err(Error::Terms);
        }
        let spec: ControllerSpec = serde_json::from_slice(text).map_err(|_| Error::Terms)?;
        if spec.name.len() > NAME_BYTES_MAX {
            let (bytes, bytes_max) = (spec.name.len(), NAME_BYTES_MAX);
            return Err(Error::Name { bytes, bytes_max });
        }
        within("rows", spec.rows, u64::from(u32::MAX))?;
        let shape = Shape::new(spec.slots, spec.dim)?;
        let hash = *blake3::hash(text).as_bytes();
        Ok(Self(Arc::new(Read { text: text.to_vec(), hash, spec, shape })))
    }

    /// Reads the terms that `pin` names. The text is hashed before anything of it is believed.
    ///
    /// # Errors
    /// [`Error::Pinned`] for any other text, and those of [`read`](Self::read).
    pub fn pinned(text: &[u8], pin: &Pin) -> Result<Self, Error> {
        match text.len() <= TERMS_BYTES_MAX && *blake3::hash(text).as_bytes() == pin.terms {
            true => Self::read(text),
            false => Err(Error::Pinned),
        }
    }

    /// The terms of a controller that is created as `spec` says.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub fn of(spec: &ControllerSpec) -> Result<Self, Error> {
        Self::read(&spec.to_text().map_err(|_| Error::Terms)?)
    }

    /// The text that was read.
    pub fn text(&self) -> &[u8] {
        &self.0.text
    }

    /// BLAKE3 of the text.
    pub fn hash(&self) -> &[u8; 32] {
        &self.0.hash
    }

    /// What the text says.
    pub fn spec(&self) -> &ControllerSpec {
        &self.0.spec
    }

    /// The table's name.
    pub fn table(&self) -> &str {
        &self.0.spec.name
    }

    /// Rows of the table.
    pub fn rows(&self) -> u64 {
        self.0.spec.rows
    }

    /// Slots and dim.
    pub fn shape(&self) -> Shape {
        self.0.shape
    }

    /// Who enrols the users that may take part; None where everyone may.
    pub fn authority(&self) -> Option<&PublicKey> {
        self.0.spec.authority.as_ref()
    }

    /// Bytes of a sealed request.
    pub fn request_bytes(&self) -> usize {
        let credential = if self.authority().is_some() { CREDENTIAL_BYTES } else { 0 };
        credential + ENCAPSULATED_BYTES + self.shape().request_text_bytes() + TAG_BYTES
    }
}

impl PartialEq for Terms {
    fn eq(&self, other: &Self) -> bool {
        self.0.hash == other.0.hash
    }
}

impl Eq for Terms {}

impl fmt::Debug for Terms {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Terms({})", String::from_utf8_lossy(&self.0.text))
    }
}

/// What a user must be given by somebody other than the operator: the controller's public key and
/// the hash of its terms. As text, `pin1:` and 128 hex digits.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Pin {
    key: PublicKey,
    terms: [u8; 32],
}

impl Pin {
    /// The pin of the controller with this key and these terms.
    pub fn new(key: PublicKey, terms: &Terms) -> Self {
        Self { key, terms: *terms.hash() }
    }

    /// What users seal their requests to.
    pub fn key(&self) -> &PublicKey {
        &self.key
    }

    /// The hash of the terms.
    pub fn terms(&self) -> &[u8; 32] {
        &self.terms
    }
}

impl fmt::Display for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{PIN_PREFIX}{}{}", self.key, super::key::Hex(&self.terms))
    }
}

impl fmt::Debug for Pin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Pin({self})")
    }
}

impl FromStr for Pin {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.trim().strip_prefix(PIN_PREFIX).ok_or(Error::Pin)?;
        let bytes = super::key::read_hex::<64>(digits).ok_or(Error::Pin)?;
        let (key, terms) = bytes.split_at(32);
        let terms = terms.try_into().map_err(|_| Error::Pin)?;
        Ok(Self { key: PublicKey::from_bytes(key)?, terms })
    }
}

const PIN_PREFIX: &str = "pin1:";
/// A `controller.json` has some hundred bytes.
const TERMS_BYTES_MAX: usize = 1 << 16;
const NAME_BYTES_MAX: usize = 4096;
