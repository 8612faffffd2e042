//! Keys row by row: as they are drawn, and as their bytes come.

use hushtable_ring::{Evaluations, Poly, Ring, Seed};

use super::bootstrap::SparseKey;
use super::keys::{EvaluationKeys, Kind, SEED_BYTES, key_bytes, kinds};
use super::switch_key::{Masked, Masks, SwitchKey};
use super::{Error, KeySpec, Parameters};
use crate::pack::{poly_bytes, unpack_poly};

/// Reads keys from the bytes that [`write_keys`](super::write_keys) gave, in pieces of any length: of what
/// was read, one row is held beside the keys.
pub struct KeyReader {
    keys: EvaluationKeys,
    masks: Masks,
    /// Level and kind of the keys that were not begun.
    kinds: std::vec::IntoIter<(usize, Kind)>,
    seed: Option<Seed>,
    /// The next mask.
    index: u64,
    open: Option<Open>,
    /// What came of the seed or a row that is not complete.
    part: Vec<u8>,
    expected: usize,
    found: usize,
}

impl KeyReader {
    /// Of the keys of `spec`.
    ///
    /// # Errors
    /// As [`key_bytes`].
    pub fn new(parameters: &Parameters, spec: &KeySpec, masks: Masks) -> Result<Self, Error> {
        Ok(Self {
            expected: key_bytes(parameters, spec)?,
            keys: EvaluationKeys::none(parameters)?,
            masks,
            kinds: kinds(parameters, spec).into_iter(),
            seed: None,
            index: 0,
            open: None,
            part: Vec::new(),
            found: 0,
        })
    }

    /// Takes the next bytes.
    ///
    /// # Errors
    /// [`Error::Core`] for more bytes than the keys have, or a number that is no residue.
    pub fn push(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        self.found += bytes.len();
        if self.found > self.expected {
            return Err(self.length());
        }
        while !bytes.is_empty() {
            let needed = self.needed()?;
            let (own, rest) = bytes.split_at(bytes.len().min(needed - self.part.len()));
            self.part.extend_from_slice(own);
            bytes = rest;
            if self.part.len() == needed {
                let part = std::mem::take(&mut self.part);
                self.take(&part)?;
                self.part = part;
                self.part.clear();
            }
        }
        Ok(())
    }

    /// Bytes of the seed or the row that is being read.
    fn needed(&mut self) -> Result<usize, Error> {
        let Some(seed) = &self.seed else { return Ok(SEED_BYTES) };
        if self.open.is_none() {
            let next = self.kinds.next().ok_or_else(|| self.length())?;
            let masks = (self.masks, seed, self.index);
            self.open = Some(Open::new(self.keys.parameters(), next, masks)?);
        }
        Ok(self.open.iter().map(|open| poly_bytes(&open.ring)).sum())
    }

    /// The keys.
    ///
    /// # Errors
    /// [`Error::Core`] for fewer bytes than they have.
    pub fn finish(self) -> Result<EvaluationKeys, Error> {
        if self.found != self.expected {
            return Err(self.length());
        }
        Ok(self.keys)
    }

    /// Takes the seed, or the next row.
    fn take(&mut self, mut bytes: &[u8]) -> Result<(), Error> {
        let (Some(seed), Some(mut open)) = (self.seed, self.open.take()) else {
            self.seed = bytes.first_chunk().copied();
            return Ok(());
        };
        let body = unpack_poly("evaluation keys", &open.ring, &mut bytes)?;
        let mask = (!open.draws()).then(|| open.ring.uniform(&seed, self.index));
        open.put(mask, body);
        self.index += 1;
        match open.digit == open.digits {
            true => self.keys.insert(open),
            false => self.open = Some(open),
        }
        Ok(())
    }

    fn length(&self) -> Error {
        let (expected, found) = (self.expected, self.found);
        crate::Error::Bytes { what: "evaluation keys", expected, found }.into()
    }
}

/// A key some of whose rows were put.
pub(super) struct Open {
    pub kind: Kind,
    pub ring: Ring,
    /// How many rows there are, and were put.
    pub digits: usize,
    pub digit: usize,
    pub key: Opened,
}

pub(super) enum Opened {
    Switch(SwitchKey),
    Sparse(Option<SparseKey>),
}

impl Open {
    /// A key whose masks are polynomials of `seed` from `first` on.
    pub fn new(
        parameters: &Parameters,
        (level, kind): (usize, Kind),
        (masks, seed, first): (Masks, &Seed, u64),
    ) -> Result<Self, Error> {
        let ring = kind.ring(parameters, level)?;
        let masks = (masks, Masked { seed: *seed, first });
        let key = match kind {
            Kind::ToSparse => Opened::Sparse(None),
            _ => Opened::Switch(SwitchKey::zero(parameters, &ring, level, masks)),
        };
        Ok(Self { kind, ring, digits: kind.digits(parameters, level), digit: 0, key })
    }

    /// Whether it is held without masks.
    pub fn draws(&self) -> bool {
        matches!(&self.key, Opened::Switch(key) if key.draws())
    }

    /// Puts the next row.
    pub fn put(&mut self, mask: Option<Poly<Evaluations>>, body: Poly<Evaluations>) {
        match &mut self.key {
            Opened::Switch(key) => key.put(&self.ring, self.digit, mask, body),
            Opened::Sparse(key) => {
                let mask = mask.expect("a key to the sparse secret holds its mask");
                *key = Some(SparseKey::new(self.ring.clone(), [mask, body]));
            }
        }
        self.digit += 1;
    }
}
