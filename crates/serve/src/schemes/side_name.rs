//! How specs write a side: by its name.

use hushtable_pir::dpf::Side;
use serde::Deserialize;
use serde::de::Error as _;

pub(crate) fn serialize<S: serde::Serializer>(side: &Side, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(side.name())
}

pub(crate) fn deserialize<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Side, D::Error> {
    String::deserialize(from)?.parse().map_err(D::Error::custom)
}
