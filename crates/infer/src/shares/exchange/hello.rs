//! How two servers meet.

use std::fmt;

use hushtable_mpc::Secret;
use hushtable_mpc::compare::Half;

use crate::shares::stream::random_seed;
use crate::shares::{DealtBy, Error};

/// What a server says of itself at the start of a session. Its nonce is half of the session's secret: it goes to the
/// other server alone.
pub struct Hello {
    pub(super) half: Half,
    pub(super) dealt_by: DealtBy,
    plan: [u8; 32],
    model: [u8; 32],
    nonce: Secret<[u8; 32]>,
}

/// Why two servers do not go together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HelloError {
    /// No hello.
    #[error(
        "a hello of {found} bytes, where there are {HELLO_BYTES}: the other server is of another version, or none"
    )]
    Bytes {
        /// Bytes that came.
        found: usize,
    },
    /// A hello of another format.
    #[error(
        "a hello of format {found}, this build has {FORMAT}: both servers must be of one version"
    )]
    Format {
        /// What came.
        found: u8,
    },
    /// A side that there is not.
    #[error(
        "a hello of side {found}: there are 0, left, and 1, right, and 2 and 3, those of servers that deal"
    )]
    Side {
        /// What came.
        found: u8,
    },
    /// The other server is this one.
    #[error("the other server is this one: give the address of the {other} one")]
    Itself {
        /// Which it should be.
        other: SideName,
    },
    /// Both are of one side.
    #[error(
        "the other server is {side} as well: one must be left and one right, of operators that do not collude"
    )]
    SameSide {
        /// Which both are.
        side: SideName,
    },
    /// They hold different models.
    #[error(
        "the other server has the model of version {found}, this one {expected}: both must have the same"
    )]
    Model {
        /// This server's.
        expected: Hex,
        /// The other one's.
        found: Hex,
    },
    /// They take what is dealt from others.
    #[error(
        "the other server takes what is dealt by {found}, this one what is dealt by {expected}: give both the same dealer"
    )]
    Dealer {
        /// This server's.
        expected: DealtBy,
        /// The other one's.
        found: DealtBy,
    },
    /// They compute by different plans.
    #[error(
        "the other server computes by plan {found}, this one by {expected}: both must have the same"
    )]
    Plan {
        /// This server's.
        expected: Hex,
        /// The other one's.
        found: Hex,
    },
}

/// A side's name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SideName(Half);

impl fmt::Display for SideName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            Half::Left => "left",
            Half::Right => "right",
        })
    }
}

/// A hash, in hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hex([u8; 32]);

impl fmt::Display for Hex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl Hello {
    /// A server's hello for one session: `plan` and `model` are the hashes of what it computes.
    ///
    /// # Errors
    /// [`Error::Entropy`].
    pub fn new(half: Half, plan: [u8; 32], model: [u8; 32]) -> Result<Self, Error> {
        Ok(Self { half, dealt_by: DealtBy::Client, plan, model, nonce: random_seed()? })
    }

    /// The same of a server that takes what these deal.
    #[must_use]
    pub fn dealt_by(self, dealt_by: DealtBy) -> Self {
        Self { dealt_by, ..self }
    }

    /// As it is sent.
    pub fn to_bytes(&self) -> Vec<u8> {
        let half = match (self.half, self.dealt_by) {
            (Half::Left, DealtBy::Client) => 0,
            (Half::Right, DealtBy::Client) => 1,
            (Half::Left, DealtBy::Servers) => 2,
            (Half::Right, DealtBy::Servers) => 3,
        };
        let parts: [&[u8]; 4] = [&[FORMAT, half], &self.plan, &self.model, self.nonce.expose()];
        parts.concat()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// [`HelloError`].
    pub fn parse(bytes: &[u8]) -> Result<Self, HelloError> {
        let wrong = HelloError::Bytes { found: bytes.len() };
        let (head, rest) = bytes.split_first_chunk::<2>().ok_or(wrong)?;
        let &[format, half] = head;
        if format != FORMAT {
            return Err(HelloError::Format { found: format });
        }
        let (half, dealt_by) = match half {
            0 => (Half::Left, DealtBy::Client),
            1 => (Half::Right, DealtBy::Client),
            2 => (Half::Left, DealtBy::Servers),
            3 => (Half::Right, DealtBy::Servers),
            found => return Err(HelloError::Side { found }),
        };
        let (plan, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let (model, rest) = rest.split_first_chunk().ok_or(wrong)?;
        let nonce = Secret::new(rest.try_into().map_err(|_| wrong)?);
        Ok(Self { half, dealt_by, plan: *plan, model: *model, nonce })
    }

    /// The secret of a session of both.
    pub(super) fn meet(&self, other: &Self) -> Result<Secret<[u8; 32]>, HelloError> {
        if self.nonce.expose() == other.nonce.expose() {
            let other = match self.half {
                Half::Left => Half::Right,
                Half::Right => Half::Left,
            };
            return Err(HelloError::Itself { other: SideName(other) });
        }
        let [left, right] = match (self.half, other.half) {
            (Half::Left, Half::Right) => [self, other],
            (Half::Right, Half::Left) => [other, self],
            _ => return Err(HelloError::SameSide { side: SideName(self.half) }),
        };
        if self.model != other.model {
            let (expected, found) = (Hex(self.model), Hex(other.model));
            return Err(HelloError::Model { expected, found });
        }
        if self.dealt_by != other.dealt_by {
            let (expected, found) = (self.dealt_by, other.dealt_by);
            return Err(HelloError::Dealer { expected, found });
        }
        if self.plan != other.plan {
            let (expected, found) = (Hex(self.plan), Hex(other.plan));
            return Err(HelloError::Plan { expected, found });
        }
        let mut hasher = blake3::Hasher::new_derive_key(SESSION);
        [&self.model, &self.plan, left.nonce.expose(), right.nonce.expose()].iter().for_each(
            |part| {
                hasher.update(*part);
            },
        );
        let secret = Secret::new(hasher.finalize().into());
        zeroize::Zeroize::zeroize(&mut hasher);
        Ok(secret)
    }
}

/// The seed of an inference's shares of zero.
pub(super) fn zero_seed(secret: &Secret<[u8; 32]>, number: u64) -> Secret<[u8; 32]> {
    Secret::new(blake3::keyed_hash(secret.expose(), &number.to_le_bytes()).into())
}

const FORMAT: u8 = 1;
const HELLO_BYTES: usize = 2 + 3 * 32;
const SESSION: &str = "hushtable shares 2026-11 session";
