//! What a table's content hashes to.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::shape::Shape;

/// BLAKE3 of a table's shape, dtype and rows as served: equal versions mean equal answers.
///
/// It goes with every answer, so that a client never combines shares of different tables. The
/// name, the build's origin and the layout on disk do not enter it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Version([u8; 32]);

impl Version {
    /// The 32 bytes, as they travel on the wire.
    pub const fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl From<[u8; 32]> for Version {
    fn from(bytes: [u8; 32]) -> Self {
        Self(bytes)
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&blake3::Hash::from_bytes(self.0).to_hex())
    }
}

impl fmt::Debug for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Version({self})")
    }
}

impl FromStr for Version {
    type Err = MalformedVersion;

    fn from_str(text: &str) -> Result<Self, MalformedVersion> {
        match blake3::Hash::from_hex(text) {
            Ok(hash) => Ok(Self(*hash.as_bytes())),
            Err(_) => Err(MalformedVersion { byte_count: text.len() }),
        }
    }
}

impl Serialize for Version {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Version {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// Text that is no [`Version`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a table version is 64 hexadecimal digits; got {byte_count} bytes of other text")]
#[non_exhaustive]
pub struct MalformedVersion {
    /// How long the text was, in bytes.
    pub byte_count: usize,
}

/// Hashes rows as served, in order, into a [`Version`].
pub(crate) struct ContentHasher(blake3::Hasher);

impl ContentHasher {
    pub(crate) fn new(shape: Shape) -> Self {
        let mut hasher = blake3::Hasher::new_derive_key("hushtable table content v1");
        let name = shape.dtype().name().as_bytes();
        hasher.update(&shape.rows().to_le_bytes());
        hasher.update(&(shape.dim() as u64).to_le_bytes());
        // The name is length-prefixed, so that no two headers run into each other or the rows.
        hasher.update(&(name.len() as u64).to_le_bytes());
        hasher.update(name);
        Self(hasher)
    }

    pub(crate) fn update(&mut self, served: &[u8]) {
        self.0.update(served);
    }

    pub(crate) fn finish(&self) -> Version {
        Version(*self.0.finalize().as_bytes())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::dtype::DType;

    #[test]
    fn shape_and_dtype_enter_the_hash() {
        let of = |rows, dim, dtype| {
            let mut hasher = ContentHasher::new(Shape::new(rows, dim, dtype).unwrap());
            hasher.update(&[7; 16]);
            hasher.finish()
        };
        let versions = [
            of(2, 4, DType::F16),
            of(4, 2, DType::F16),
            of(2, 4, DType::Bf16),
            of(2, 2, DType::F32),
            of(1, 4, DType::F32),
        ];
        for (i, left) in versions.iter().enumerate() {
            for right in &versions[i + 1..] {
                assert_ne!(left, right);
            }
        }
    }

    #[test]
    fn text_round_trips_and_rejects_what_is_not_hex() {
        let version = Version::from([0xab; 32]);
        assert_eq!(version.to_string(), "ab".repeat(32));
        assert_eq!(version.to_string().parse(), Ok(version));
        assert_eq!("xyz".parse::<Version>(), Err(MalformedVersion { byte_count: 3 }));
        assert!("zz".repeat(32).parse::<Version>().is_err());
    }
}
