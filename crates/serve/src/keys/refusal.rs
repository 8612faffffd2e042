//! Why a server refuses a client's keys, by any scheme that keeps them.

use hushtable_pir::onion::KeyId;
use hushtable_table::Version;

use crate::refusal::{Fact, Facts, KeyDefect};
use crate::refusals;

refusals! {
    /// Why a server did not take a client's keys, or a question under them.
    pub enum KeysRefusal {
        /// A key id that is not 32 bytes.
        #[error("a key id has 32 bytes, this one {bytes}: send the one that the upload returned")]
        BadKeyId = InvalidArgument "BAD_KEY_ID" {
            /// Bytes received.
            bytes: usize,
        },
        /// A client's uploaded keys that do not parse, or are of other parameters than the
        /// server's.
        #[error("the keys are not usable ({defect}): {message}")]
        BadKeys = InvalidArgument "BAD_KEYS" {
            /// What is wrong with them.
            defect: KeyDefect,
            /// The server's explanation.
            message: String,
        },
        /// A client's keys that are larger than all that the server keeps.
        #[error(
            "the keys take {bytes} bytes, the server keeps {bytes_max} in all: its operator \
             must raise keys_memory_bytes_max (`--keys-memory-bytes-max`)"
        )]
        KeysBudget = ResourceExhausted "KEYS_BUDGET" {
            /// Bytes that the keys take.
            bytes: usize,
            /// Bytes that the server keeps.
            bytes_max: usize,
        },
        /// Queries under keys that the server does not hold: never uploaded, or dropped to make
        /// room.
        #[error("the server holds no keys {key_id}: upload them, then ask again")]
        UnknownKeys = NotFound "UNKNOWN_KEYS" {
            /// The request's key id.
            key_id: KeyId,
        },
    }
}

impl KeysRefusal {
    /// The key id that a client names.
    pub(crate) fn parse_id(id: &[u8]) -> Result<KeyId, Self> {
        let parsed = <[u8; 32]>::try_from(id).map(KeyId::from);
        parsed.map_err(|_| Self::BadKeyId { bytes: id.len() })
    }
}

/// Written as a version is: 32 bytes in hex.
impl Fact for KeyId {
    const KIND: &'static str = "key id";

    fn write(&self, name: &'static str, facts: &mut Facts) {
        facts.put(name, self.to_string());
    }

    fn read(name: &str, facts: &Facts) -> Option<Self> {
        Version::read(name, facts).map(|id| Self::from(*id.as_bytes()))
    }

    fn samples() -> Vec<Self> {
        vec![Self::from([0xa5; 32])]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hint_of_a_small_budget_names_what_an_operator_types() {
        let text = KeysRefusal::KeysBudget { bytes: 9, bytes_max: 8 }.to_string();
        assert!(text.contains("--keys-memory-bytes-max"), "{text}");
    }
}
