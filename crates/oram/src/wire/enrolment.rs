//! Who may take part: users whom an authority has enrolled.
//!
//! An authority is a key pair whose public half is in a controller's terms, so in every user's pin. It
//! enrols a user by a *ticket* for the user's public key: nothing, sealed to the controller by HPKE
//! in its authenticated mode (RFC 9180, section 5.1.3), under the terms' hash and with that public
//! key as associated data. Only the authority can make it, only this controller can check it, and
//! no list of users lies on the operator's disk to be edited. Whoever has the controller's secret key
//! could make tickets too (section 9.1.1), but has all that tickets guard.
//!
//! A user's requests are sealed in the authenticated mode as well, by the key that the ticket is for.

use hpke::aead::ChaCha20Poly1305;
use hpke::kdf::HkdfSha256;
use hpke::kem::X25519HkdfSha256;
use hpke::setup_sender_with_rng;
use hpke::{Deserializable, Kem, OpModeR, OpModeS, Serializable, setup_receiver};
use hushtable_prg::{Secret, fill_random};
use rand_chacha::ChaCha20Rng;
use rand_chacha::rand_core::SeedableRng;
use std::fmt;
use std::str::FromStr;

use super::key::{ControllerKey, Hex, read_hex};
use super::{Error, Pin, PublicKey, Terms};

/// A user's key pair.
#[derive(Clone)]
pub struct UserKey(ControllerKey);

/// The key pair of whoever enrols users.
pub struct AuthorityKey(ControllerKey);

/// That an authority has enrolled a user with a controller. Useless without the user's secret key. As
/// text, `ticket1:` and 96 hex digits.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Ticket([u8; TICKET_BYTES]);

/// What a user takes part by.
#[derive(Clone)]
pub struct Credential {
    key: UserKey,
    ticket: Ticket,
}

impl UserKey {
    /// The pair that follows from 32 secret bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ControllerKey::from_seed(seed))
    }

    /// What the authority is shown.
    pub fn public(&self) -> PublicKey {
        self.0.public()
    }

    pub(super) fn pair(&self) -> Result<SenderPair, Error> {
        Ok((self.0.secret.clone(), self.public().to_kem()?))
    }
}

impl AuthorityKey {
    /// The pair that follows from 32 secret bytes.
    pub fn from_seed(seed: &[u8; 32]) -> Self {
        Self(ControllerKey::from_seed(seed))
    }

    /// What a controller is created with.
    pub fn public(&self) -> PublicKey {
        self.0.public()
    }

    /// Enrols the user of `user` with the controller of `pin`.
    ///
    /// # Errors
    /// [`Error::PublicKey`] for keys that no secret can be shared with, [`Error::Entropy`].
    pub fn enrol(&self, pin: &Pin, user: &PublicKey) -> Result<Ticket, Error> {
        let mut seed = Secret::new([0; 32]);
        fill_random(seed.expose_mut())?;
        // A key that no secret can be shared with is found now, not by the user.
        user.to_kem()?;
        let unusable = |_| Error::PublicKey { bytes: 32 };
        let pair = (self.0.secret.clone(), self.public().to_kem()?);
        let (encapsulated, mut sender) =
            setup_sender_with_rng::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
                &OpModeS::Auth(pair),
                &pin.key().to_kem()?,
                &ticket_info(pin.terms()),
                &mut ChaCha20Rng::from_seed(*seed.expose()),
            )
            .map_err(unusable)?;
        let sealed = sender.seal(&[], user.as_bytes()).map_err(unusable)?;
        let mut ticket = [0; TICKET_BYTES];
        ticket[..32].copy_from_slice(&encapsulated.to_bytes());
        ticket[32..].copy_from_slice(&sealed);
        Ok(Ticket(ticket))
    }
}

impl Credential {
    /// The user of `key`, enrolled by `ticket`.
    pub fn new(key: UserKey, ticket: Ticket) -> Self {
        Self { key, ticket }
    }

    /// The user's key.
    pub fn key(&self) -> &UserKey {
        &self.key
    }

    /// What goes before a request: public key and ticket.
    pub(super) fn to_bytes(&self) -> [u8; CREDENTIAL_BYTES] {
        let mut bytes = [0; CREDENTIAL_BYTES];
        bytes[..32].copy_from_slice(self.key.public().as_bytes());
        bytes[32..].copy_from_slice(&self.ticket.0);
        bytes
    }
}

/// The user of `credential`, if `authority` has enrolled it with the controller of these terms.
pub(super) fn check_credential(
    key: &ControllerKey,
    terms: &Terms,
    authority: &PublicKey,
    credential: &[u8],
) -> Option<PublicKey> {
    let (user, ticket) = credential.split_at_checked(32)?;
    let (encapsulated, sealed) = ticket.split_at_checked(32)?;
    let encapsulated = <X25519HkdfSha256 as Kem>::EncappedKey::from_bytes(encapsulated).ok()?;
    let mut receiver = setup_receiver::<ChaCha20Poly1305, HkdfSha256, X25519HkdfSha256>(
        &OpModeR::Auth(authority.to_kem().ok()?),
        &key.secret,
        &encapsulated,
        &ticket_info(terms.hash()),
    )
    .ok()?;
    receiver.open(sealed, user).ok()?;
    PublicKey::from_bytes(user).ok()
}

fn ticket_info(terms: &[u8; 32]) -> Vec<u8> {
    [TICKET_LABEL, terms].concat()
}

impl fmt::Display for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{TICKET_PREFIX}{}", Hex(&self.0))
    }
}

impl fmt::Debug for Ticket {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Ticket({self})")
    }
}

impl FromStr for Ticket {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self, Error> {
        let digits = text.trim().strip_prefix(TICKET_PREFIX).ok_or(Error::Ticket)?;
        Ok(Self(read_hex(digits).ok_or(Error::Ticket)?))
    }
}

impl fmt::Debug for UserKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "UserKey({})", self.public())
    }
}

impl fmt::Debug for AuthorityKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AuthorityKey({})", self.public())
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Credential({})", self.key.public())
    }
}

type SenderPair = (<X25519HkdfSha256 as Kem>::PrivateKey, <X25519HkdfSha256 as Kem>::PublicKey);

const TICKET_LABEL: &[u8] = b"hushtable enrolment 1\0";
const TICKET_PREFIX: &str = "ticket1:";
/// An encapsulated key and a tag.
const TICKET_BYTES: usize = 32 + 16;
/// A user's public key and its ticket.
pub(super) const CREDENTIAL_BYTES: usize = 32 + TICKET_BYTES;
