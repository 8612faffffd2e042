//! How one value of a row is stored and served.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// How one value of a row is stored and served.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::exhaustive_enums, reason = "a new storage type is a new bundle format")]
pub enum DType {
    /// bfloat16, little-endian.
    Bf16,
    /// IEEE 754 half precision, little-endian.
    F16,
    /// IEEE 754 single precision, little-endian.
    F32,
    /// A signed byte a value, times one f32 scale a row.
    Int8,
}

impl DType {
    /// Every type, in the order of [`DType::name`].
    pub const ALL: [Self; 4] = [Self::Bf16, Self::F16, Self::F32, Self::Int8];

    /// Bytes of one served row of `dim` values; saturates instead of wrapping.
    ///
    /// An `int8` row is its f32 scale (4 bytes, little-endian) and then one byte a value.
    pub const fn row_bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 => dim.saturating_mul(4),
            Self::F16 | Self::Bf16 => dim.saturating_mul(2),
            Self::Int8 => dim.saturating_add(4),
        }
    }

    /// The name in manifests and on the command line: `bf16`, `f16`, `f32` or `int8`.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Int8 => "int8",
        }
    }

    /// The name that a safetensors header uses for the `weight` tensor.
    pub(crate) const fn safetensors_name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
            Self::Int8 => "I8",
        }
    }
}

impl fmt::Display for DType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for DType {
    type Err = UnknownDType;

    fn from_str(name: &str) -> Result<Self, UnknownDType> {
        Self::ALL
            .into_iter()
            .find(|dtype| dtype.name() == name)
            .ok_or_else(|| UnknownDType { name: name.chars().take(32).collect() })
    }
}

/// A name that is no [`DType`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{name}` is not a table dtype; use f32, f16, bf16 or int8")]
#[non_exhaustive]
pub struct UnknownDType {
    /// The name as given, cut to 32 characters.
    pub name: String,
}
