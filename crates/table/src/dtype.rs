//! How one value of a row is stored and served.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// How one value of a row is stored and served.
///
/// `f32`, `f16` and `bf16` are the values themselves, little-endian. The others are codes beside
/// scales, a scale for a [`Group`] of a row's values: a value is its code times its scale.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
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
    /// Four bits a value, -8 to 7, times a bfloat16 scale.
    Int4(Group),
    /// Two bits a value, -2 to 1, times a bfloat16 scale.
    Int2(Group),
    /// An 8-bit float of 4 exponent bits and 3 mantissa bits (`float8_e4m3fn`), times an f32 scale.
    Fp8E4m3(Group),
    /// An 8-bit float of 5 exponent bits and 2 mantissa bits (`float8_e5m2`), times an f32 scale.
    Fp8E5m2(Group),
}

/// How many values of a row share a scale. The last group of a row may be shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_enums, reason = "a new group is a new bundle format")]
pub enum Group {
    /// All of them.
    Row,
    /// 32.
    Of32,
    /// 64.
    Of64,
    /// 128.
    Of128,
}

impl Group {
    /// Every group, in the order of numbers in patches.
    pub(crate) const ALL: [Self; 4] = [Self::Row, Self::Of32, Self::Of64, Self::Of128];

    /// Values of one group in a row of `dim`.
    pub(crate) const fn len(self, dim: usize) -> usize {
        match self {
            Self::Row => dim,
            Self::Of32 => 32,
            Self::Of64 => 64,
            Self::Of128 => 128,
        }
    }

    /// Groups of a row of `dim` values.
    pub(crate) const fn count(self, dim: usize) -> usize {
        match dim {
            0 => 0,
            _ => dim.div_ceil(self.len(dim)),
        }
    }
}

/// What the values of a row with scales are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Code {
    Int8,
    Int4,
    Int2,
    E4m3,
    E5m2,
}

impl Code {
    /// Bits of one.
    pub(crate) const fn bits(self) -> usize {
        match self {
            Self::Int8 | Self::E4m3 | Self::E5m2 => 8,
            Self::Int4 => 4,
            Self::Int2 => 2,
        }
    }

    /// Bytes of a scale: an f32, or a bfloat16 where an f32 would cost as much as eight values.
    pub(crate) const fn scale_bytes(self) -> usize {
        match self {
            Self::Int8 | Self::E4m3 | Self::E5m2 => 4,
            Self::Int4 | Self::Int2 => 2,
        }
    }

    /// Bytes of the codes of `dim` values; what is left of the last is 0.
    pub(crate) const fn codes_bytes(self, dim: usize) -> usize {
        // Without dim × bits, which may wrap.
        dim.div_ceil(8 / self.bits())
    }
}

/// The fewest values of a row whose codes carry its scale: sixteen codes or more a bit of it, which
/// costs some hundredths of the squared error.
const CARRYING_DIM_MIN: usize = 256;

/// The names of all types, for errors.
pub(crate) const NAMES: &str = "f32, f16, bf16, int8, int4, int2, fp8_e4m3 or fp8_e5m2 (of the last four also with /32, /64 or \
     /128: a scale for so many values)";

impl DType {
    /// Every type; the four first are those of earlier releases.
    pub const ALL: [Self; 20] = {
        let mut all = [Self::Bf16; 20];
        all[1] = Self::F16;
        all[2] = Self::F32;
        all[3] = Self::Int8;
        let mut group = 0;
        while group < 4 {
            all[4 + group] = Self::Int4(Group::ALL[group]);
            all[8 + group] = Self::Int2(Group::ALL[group]);
            all[12 + group] = Self::Fp8E4m3(Group::ALL[group]);
            all[16 + group] = Self::Fp8E5m2(Group::ALL[group]);
            group += 1;
        }
        all
    };

    /// Bytes of one served row of `dim` values; saturates instead of wrapping.
    ///
    /// A row with scales is its scales (little-endian, in the order of the groups) and then its
    /// codes; `int4` and `int2` rows of 256 values or more with one scale are their codes alone, which
    /// carry it in their low bits' parities.
    pub const fn row_bytes(self, dim: usize) -> usize {
        match self {
            Self::F32 => dim.saturating_mul(4),
            Self::F16 | Self::Bf16 => dim.saturating_mul(2),
            _ => self.scales_bytes(dim).saturating_add(self.codes_bytes(dim)),
        }
    }

    /// The codes of a row with scales, and which of them share one; `None` for plain values.
    pub(crate) const fn coding(self) -> Option<(Code, Group)> {
        match self {
            Self::Bf16 | Self::F16 | Self::F32 => None,
            Self::Int8 => Some((Code::Int8, Group::Row)),
            Self::Int4(group) => Some((Code::Int4, group)),
            Self::Int2(group) => Some((Code::Int2, group)),
            Self::Fp8E4m3(group) => Some((Code::E4m3, group)),
            Self::Fp8E5m2(group) => Some((Code::E5m2, group)),
        }
    }

    /// Bytes of the scales that a served row of `dim` values begins with; saturates.
    pub(crate) const fn scales_bytes(self, dim: usize) -> usize {
        match self.coding() {
            Some(_) if self.carries_scale(dim) => 0,
            Some((code, group)) => group.count(dim).saturating_mul(code.scale_bytes()),
            None => 0,
        }
    }

    /// Whether a row's scale is in the parities of its codes: where it is one scale of many packed
    /// codes. Its two bytes would fill a word of a scan alone, an eighth of a row of 256 `int4`.
    pub(crate) const fn carries_scale(self, dim: usize) -> bool {
        matches!(self, Self::Int4(Group::Row) | Self::Int2(Group::Row)) && dim >= CARRYING_DIM_MIN
    }

    /// Bytes of what follows the scales.
    pub(crate) const fn codes_bytes(self, dim: usize) -> usize {
        match self.coding() {
            Some((code, _)) => code.codes_bytes(dim),
            None => self.row_bytes(dim),
        }
    }

    /// The name in manifests and on the command line, such as `f32`, `int4` or `int4/32`.
    pub const fn name(self) -> &'static str {
        const fn of(group: Group, names: [&'static str; 4]) -> &'static str {
            names[group as usize]
        }
        match self {
            Self::Bf16 => "bf16",
            Self::F16 => "f16",
            Self::F32 => "f32",
            Self::Int8 => "int8",
            Self::Int4(group) => of(group, ["int4", "int4/32", "int4/64", "int4/128"]),
            Self::Int2(group) => of(group, ["int2", "int2/32", "int2/64", "int2/128"]),
            Self::Fp8E4m3(group) => {
                of(group, ["fp8_e4m3", "fp8_e4m3/32", "fp8_e4m3/64", "fp8_e4m3/128"])
            }
            Self::Fp8E5m2(group) => {
                of(group, ["fp8_e5m2", "fp8_e5m2/32", "fp8_e5m2/64", "fp8_e5m2/128"])
            }
        }
    }

    /// The name that a safetensors header uses for the `weight` tensor: of packed codes, bytes.
    pub(crate) const fn safetensors_name(self) -> &'static str {
        match self {
            Self::Bf16 => "BF16",
            Self::F16 => "F16",
            Self::F32 => "F32",
            Self::Int8 => "I8",
            Self::Int4(_) | Self::Int2(_) => "U8",
            Self::Fp8E4m3(_) => "F8_E4M3",
            Self::Fp8E5m2(_) => "F8_E5M2",
        }
    }
}

impl Serialize for DType {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

impl<'de> Deserialize<'de> for DType {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let name = String::deserialize(deserializer)?;
        name.parse().map_err(serde::de::Error::custom)
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
#[error("`{name}` is not a table dtype; use {NAMES}")]
#[non_exhaustive]
pub struct UnknownDType {
    /// The name as given, cut to 32 characters.
    pub name: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_back_and_no_two_are_alike() {
        for (place, dtype) in DType::ALL.into_iter().enumerate() {
            assert_eq!(dtype.name().parse(), Ok(dtype));
            assert_eq!(DType::ALL.iter().position(|other| *other == dtype), Some(place));
            let json = serde_json::to_string(&dtype).unwrap();
            assert_eq!(json, format!("\"{}\"", dtype.name()));
            assert_eq!(serde_json::from_str::<DType>(&json).unwrap(), dtype);
        }
        for wrong in ["int4/", "int4/16", "int8/32", "INT4", "f8_e4m3", ""] {
            assert_eq!(wrong.parse::<DType>().unwrap_err().name, wrong);
        }
    }

    #[test]
    fn rows_have_the_bytes_of_their_scales_and_codes() {
        for (name, dim, expected) in [
            ("int8", 256, 260),
            ("int4", 256, 128),
            ("int4", 257, 129),
            ("int4", 255, 130),
            ("int4/128", 256, 132),
            ("int4", 1, 3),
            ("int4/32", 256, 144),
            ("int4/128", 129, 69),
            ("int2", 256, 64),
            ("int2", 255, 66),
            ("int2", 5, 4),
            ("int2/64", 65, 21),
            ("fp8_e4m3", 256, 260),
            ("fp8_e5m2/32", 33, 41),
        ] {
            let dtype: DType = name.parse().unwrap();
            assert_eq!(dtype.row_bytes(dim), expected, "{name} of {dim}");
        }
        for dtype in DType::ALL {
            assert!(dtype.row_bytes(usize::MAX) > 1 << 60, "{dtype}");
        }
    }
}
