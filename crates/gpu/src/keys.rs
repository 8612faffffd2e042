//! Keys on a device.

use std::sync::Arc;

use hushtable_pir::dpf::{Domain, Key};
use hushtable_prg::{PrgKind, Secret};

use crate::{Buffer, Device, Error, Stream, alloc};

/// The parameters that all keys of one expansion share.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct KeyKind {
    /// Rows and output group.
    pub domain: Domain,
    /// The generator of their trees.
    pub prg: PrgKind,
}

impl KeyKind {
    /// The kind of a key.
    pub fn of(key: &Key) -> Self {
        let params = key.params();
        Self { domain: params.domain, prg: params.prg }
    }

    /// 32-bit words of a key on a device, as [`Key::device_words`] has them.
    pub fn key_words(&self) -> usize {
        20 + 8 * self.domain.depth() as usize
    }
}

/// A batch of keys of one kind in device memory: [`KeyKind::key_words`] words each, one key after
/// the other.
pub struct DeviceKeys {
    kind: KeyKind,
    count: u32,
    words: Buffer,
}

impl DeviceKeys {
    /// Copies keys to the device, in the stream's order. What the host had of them in between is
    /// wiped.
    ///
    /// # Errors
    /// [`Error::Geometry`] for no keys or keys of several kinds; the device's.
    pub fn upload(device: &Arc<dyn Device>, stream: Stream, keys: &[&Key]) -> Result<Self, Error> {
        let kind = common_kind(keys)?;
        let mut bytes = Secret::new(vec![0; 4 * kind.key_words() * keys.len()]);
        pack(keys, bytes.expose_mut());
        let words = alloc(device, bytes.expose().len())?;
        device.copy_in(stream, &words, 0, bytes.expose())?;
        Self::from_words(kind, keys.len(), words)
    }

    /// Keys whose words are in `words` already, or will be when the stream comes to them: those that
    /// [`pack`] wrote.
    ///
    /// # Errors
    /// [`Error::Geometry`] for no keys, more than 2^32, or a buffer that is too short.
    pub fn from_words(kind: KeyKind, count: usize, words: Buffer) -> Result<Self, Error> {
        let needed = 4 * kind.key_words() * count;
        let Some(count) = u32::try_from(count).ok().filter(|count| *count > 0) else {
            return Err(Error::Geometry { reason: format!("a batch of {count} keys") });
        };
        if words.bytes() < needed {
            return Err(Error::Geometry {
                reason: format!(
                    "{count} keys take {needed} bytes of device memory, not {}",
                    words.bytes()
                ),
            });
        }
        Ok(Self { kind, count, words })
    }

    /// What the keys have in common.
    pub fn kind(&self) -> KeyKind {
        self.kind
    }

    /// How many there are: at least one.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// The buffer, for other keys.
    pub fn into_words(self) -> Buffer {
        self.words
    }

    /// The words: key i begins at byte 4 × [`KeyKind::key_words`] × i.
    pub fn words(&self) -> &Buffer {
        &self.words
    }
}

/// The kind of all keys of a batch.
///
/// # Errors
/// [`Error::Geometry`] for no keys or keys of several kinds.
pub fn common_kind(keys: &[&Key]) -> Result<KeyKind, Error> {
    let Some((first, rest)) = keys.split_first() else {
        return Err(Error::Geometry { reason: "a batch of no keys".to_owned() });
    };
    let kind = KeyKind::of(first);
    match rest.iter().map(|key| KeyKind::of(key)).find(|other| *other != kind) {
        None => Ok(kind),
        Some(other) => Err(Error::Geometry {
            reason: format!(
                "keys of one batch have one kind, not {kind:?} and {other:?}: expand them apart"
            ),
        }),
    }
}

/// Writes keys as a device has them, `4 × key_words` bytes each, to `to`, which the caller wipes.
///
/// # Panics
/// Unless the keys are of one kind and `to` has just their bytes.
pub fn pack(keys: &[&Key], to: &mut [u8]) {
    let mut rest = to;
    for key in keys {
        let words = key.device_words();
        let (bytes, behind) = rest.split_at_mut(4 * words.expose().len());
        for (to, word) in bytes.chunks_exact_mut(4).zip(words.expose()) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        rest = behind;
    }
    assert!(rest.is_empty(), "{} bytes more than the keys have", rest.len());
}
