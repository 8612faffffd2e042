//! Names in a header of JSON, each of which stands for one thing.

use std::collections::HashSet;
use std::fmt;

use serde::Deserializer as _;
use serde::de::{IgnoredAny, MapAccess, Visitor};

/// The first name that an object of JSON has twice, however its letters are written; None of what is no object.
/// Readers of maps take the last one and say nothing.
pub fn repeated_name(json: &[u8]) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    reader.deserialize_map(Names).ok().flatten()
}

struct Names;

impl<'de> Visitor<'de> for Names {
    type Value = Option<String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let (mut names, mut repeated) = (HashSet::new(), None);
        while let Some(name) = map.next_key::<String>()? {
            map.next_value::<IgnoredAny>()?;
            if repeated.is_none() && names.contains(&name) {
                repeated = Some(name);
            } else {
                names.insert(name);
            }
        }
        Ok(repeated)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_that_is_there_twice_is_found_in_any_spelling() {
        let found = |json: &str| repeated_name(json.as_bytes());
        assert_eq!(found(r#"{"a": {"a": 1}, "b": 2}  "#), None);
        assert_eq!(found(r#"{"a": 1, "b": 2, "a": 3}"#).as_deref(), Some("a"));
        assert_eq!(found(r#"{"a": 1, "\u0061": 3}"#).as_deref(), Some("a"));
        assert_eq!(found(r#"{"a\/b": 1, "a/b": 3}"#).as_deref(), Some("a/b"));
        assert_eq!(found("[1, 2]"), None);
        assert_eq!(found("no JSON"), None);
    }
}
