//! What one server has of one inference beforehand.

use hushtable_mpc::compare::Half;
use zeroize::Zeroizing;

use super::PrecomputeError;
use crate::shares::dealt::Dealt;
use crate::shares::outline::{Outline, SEED_BYTES};
use crate::shares::stream::dealt_stream;

/// What both servers call a precompute.
pub type Id = [u8; 16];

/// One server's half of what an inference takes: used once, with the other server's half of the same id. Wiped when it
/// is dropped.
#[derive(Clone)]
pub struct Precompute {
    /// Format, half, id, the outline's hash, bytes of the correction words; then the seed, the words and the shares.
    bytes: Zeroizing<Vec<u8>>,
}

impl Precompute {
    pub(super) fn new(
        half: Half,
        id: Id,
        outline: &[u8; 32],
        [seed, common, given]: [&[u8]; 3],
    ) -> Self {
        let bytes = HEAD_BYTES + seed.len() + common.len() + given.len();
        let mut bytes = Zeroizing::new(Vec::with_capacity(bytes));
        bytes.extend([FORMAT, half as u8]);
        bytes.extend(id);
        bytes.extend(outline);
        // An outline is bounded: some megabytes at most.
        bytes.extend((common.len() as u32).to_le_bytes());
        bytes.extend_from_slice(seed);
        bytes.extend_from_slice(common);
        bytes.extend_from_slice(given);
        Self { bytes }
    }

    /// Bytes that a server keeps of each inference.
    pub fn bytes_of(outline: &Outline) -> usize {
        HEAD_BYTES + SEED_BYTES + outline.common_bytes() + outline.given_bytes()
    }

    /// As it is kept. They are secret.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Of kept bytes, which must be of the id that was asked for.
    ///
    /// # Errors
    /// [`PrecomputeError`] for bytes that are none, or of another id.
    pub fn from_bytes(bytes: Vec<u8>, id: &Id) -> Result<Self, PrecomputeError> {
        let own = Self { bytes: Zeroizing::new(bytes) };
        let format = PrecomputeError::Format { found: own.bytes.len() };
        match own.bytes.get(..2) {
            Some([FORMAT, 0 | 1]) => {}
            _ => return Err(format),
        }
        if own.bytes.len() < HEAD_BYTES + SEED_BYTES + own.common_bytes().ok_or(format)? {
            return Err(format);
        }
        if own.id() != *id {
            return Err(PrecomputeError::Id);
        }
        Ok(own)
    }

    /// What both servers call it.
    pub fn id(&self) -> Id {
        std::array::from_fn(|place| self.bytes[2 + place])
    }

    /// The hash of the outline that it was made for ([`Outline::hash`]).
    pub fn outline(&self) -> [u8; 32] {
        std::array::from_fn(|place| self.bytes[18 + place])
    }

    /// Whose half it is.
    pub fn half(&self) -> Half {
        if self.bytes[1] == 0 { Half::Left } else { Half::Right }
    }

    /// That it is this server's and of this model.
    ///
    /// # Errors
    /// [`PrecomputeError`].
    pub fn check(&self, outline: &Outline, half: Half) -> Result<(), PrecomputeError> {
        if self.half() != half {
            return Err(PrecomputeError::Half);
        }
        if self.outline() != outline.hash() {
            return Err(PrecomputeError::Outline);
        }
        let is_whole = self.bytes.len() == Self::bytes_of(outline)
            && self.common_bytes() == Some(outline.common_bytes());
        match is_whole {
            true => Ok(()),
            false => Err(PrecomputeError::Format { found: self.bytes.len() }),
        }
    }

    /// What is in it; it was [checked](Self::check).
    pub(in crate::shares) fn dealt(&self) -> Dealt<'_> {
        let (seed, rest) = self.bytes[HEAD_BYTES..].split_at(SEED_BYTES);
        let (common, given) = rest.split_at(self.common_bytes().unwrap_or_default());
        let mut own = Zeroizing::new([0; SEED_BYTES]);
        own.copy_from_slice(seed);
        Dealt::new(dealt_stream(&own), common, Some(given))
    }

    /// The correction words, which both servers have.
    pub(super) fn common(&self) -> &[u8] {
        let bytes = self.common_bytes().unwrap_or_default();
        &self.bytes[HEAD_BYTES + SEED_BYTES..][..bytes]
    }

    fn common_bytes(&self) -> Option<usize> {
        let bytes = self.bytes.get(50..HEAD_BYTES)?.try_into().ok()?;
        Some(u32::from_le_bytes(bytes) as usize)
    }
}

const FORMAT: u8 = 1;
/// Format, half, id, outline, bytes of the words.
const HEAD_BYTES: usize = 1 + 1 + 16 + 32 + 4;
