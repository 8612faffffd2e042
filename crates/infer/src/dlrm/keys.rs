//! A client's keys, read as their bytes come.

use hushtable_rlwe::ckks::{Ciphertext, EvaluationKeys, KeyReader, Masks};

use super::error::Error;
use super::terms::{PLAN_BYTES, Terms};

/// A client's keys.
pub struct Keys {
    pub(super) keys: EvaluationKeys,
    /// An encryption of zero at level 0.
    pub(super) zero: Ciphertext,
}

impl Keys {
    /// Bytes of memory that they take.
    pub fn memory_bytes(&self) -> usize {
        self.keys.memory_bytes() + self.zero.memory_bytes()
    }
}

/// Reads a client's keys from the bytes that it uploads, in pieces of any length. Beside the keys it holds one
/// row of them, and never all bytes.
pub struct KeysReader {
    terms: Terms,
    /// The plan's hash and the encryption of zero, as far as they came.
    head: Vec<u8>,
    zero: Option<Ciphertext>,
    keys: KeyReader,
    expected: usize,
    found: usize,
}

impl KeysReader {
    /// Of keys for the plan of `terms`.
    pub(super) fn new(terms: &Terms, masks: Masks) -> Result<Self, Error> {
        Ok(Self {
            head: Vec::new(),
            zero: None,
            keys: KeyReader::new(terms.parameters(), terms.key_spec(), masks)?,
            expected: terms.key_bytes()?,
            found: 0,
            terms: terms.clone(),
        })
    }

    /// Takes the next bytes. After an error there is no use for more.
    ///
    /// # Errors
    /// [`Error::Bytes`] for more bytes than the keys have, [`Error::OtherPlan`] as soon as it shows;
    /// [`Error::Core`] and [`Error::Ckks`] for what is no zero or no key.
    pub fn push(&mut self, bytes: &[u8]) -> Result<(), Error> {
        self.found = self.found.saturating_add(bytes.len());
        if self.found > self.expected {
            return Err(self.length());
        }
        let rest = self.open(bytes)?;
        Ok(self.keys.push(rest)?)
    }

    /// Takes what comes before the keys' rows; the rest of the bytes.
    fn open<'b>(&mut self, bytes: &'b [u8]) -> Result<&'b [u8], Error> {
        if self.zero.is_some() {
            return Ok(bytes);
        }
        let missing = PLAN_BYTES + self.terms.zero_bytes() - self.head.len();
        let (own, rest) = bytes.split_at(bytes.len().min(missing));
        self.head.extend_from_slice(own);
        let Some((plan, zero)) = self.head.split_first_chunk::<PLAN_BYTES>() else {
            return Ok(rest);
        };
        self.terms.check_plan("keys", plan)?;
        if own.len() == missing {
            let parameters = self.terms.parameters();
            let zero = Ciphertext::parse(parameters, zero)?;
            zero.expect("read keys", 0, parameters.scale())?;
            (self.zero, self.head) = (Some(zero), Vec::new());
        }
        Ok(rest)
    }

    /// The keys.
    ///
    /// # Errors
    /// [`Error::Bytes`] for fewer bytes than they have.
    pub fn finish(self) -> Result<Keys, Error> {
        let length = self.length();
        match self.zero {
            Some(zero) if self.found == self.expected => {
                Ok(Keys { keys: self.keys.finish()?, zero })
            }
            _ => Err(length),
        }
    }

    fn length(&self) -> Error {
        Error::Bytes { what: "keys", expected: self.expected, found: self.found }
    }
}
