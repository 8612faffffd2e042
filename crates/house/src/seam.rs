//! The seam of `serve`: what all schemes share names none of them, and none uses another.

use std::path::Path;

/// What all schemes share.
const SHARED: [&str; 3] =
    ["crates/serve/src/batch/", "crates/serve/src/host/", "crates/serve/src/peer/"];
const SCHEMES: &str = "crates/serve/src/schemes/";
/// What belongs to a scheme, in any case and in any name: `QueueBags`, `pair_reasons`.
const SCHEME_WORDS: [&str; 10] =
    ["bag", "bags", "ckks", "dpf", "hybrid", "infer", "onion", "pair", "train", "training"];
/// What belongs to a scheme as it is written here. "What is left" is English, `Left` is a server.
const SCHEME_NAMES: [&str; 5] = ["Left", "Right", "Side", "`left`", "`right`"];
/// Where the schemes are in code.
const SCHEMES_PATH: &str = "schemes::";
/// What others have named.
const OTHERS_NAMES: [&str; 1] = ["KeyPair"];

/// Lines of what all schemes share that name a scheme.
pub fn check_shared(file: &Path, text: &str) -> Vec<String> {
    let Some(path) = file.to_str().filter(|path| SHARED.iter().any(|at| path.starts_with(at)))
    else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        let names = identifiers(line).filter(|name| !OTHERS_NAMES.contains(name));
        let named = names
            .filter(|name| {
                let is_word = |word: &String| SCHEME_WORDS.contains(&word.as_str());
                words(name).iter().any(is_word)
            })
            .chain(SCHEME_NAMES.into_iter().filter(|name| has_name(line, name)))
            .chain(line.contains(SCHEMES_PATH).then_some(SCHEMES_PATH));
        for name in named {
            found.push(format!("{path}:{number}: {name}: belongs to a scheme, keep it there"));
        }
    }
    found
}

/// Lines of a scheme that use another; `schemes` are the names of their folders.
pub fn check_schemes(file: &Path, text: &str, schemes: &[&str]) -> Vec<String> {
    let Some(path) = file.to_str() else { return Vec::new() };
    let Some(own) = path.strip_prefix(SCHEMES).and_then(|rest| rest.split_once('/')) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for (line, number) in text.lines().zip(1..) {
        for other in schemes.iter().filter(|other| **other != own.0) {
            if has_name(line, &format!("schemes::{other}")) {
                let at = format!("{path}:{number}");
                found.push(format!("{at}: uses {other}: move what both need beside them"));
            }
        }
    }
    found
}

/// The folders of the schemes among `files`.
pub fn schemes<'a>(files: impl IntoIterator<Item = &'a Path>) -> Vec<&'a str> {
    let mut found: Vec<_> = files
        .into_iter()
        .filter_map(|file| Some(file.to_str()?.strip_prefix(SCHEMES)?.split_once('/')?.0))
        .collect();
    found.sort_unstable();
    found.dedup();
    found
}

fn is_part(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn identifiers(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c| !is_part(c)).filter(|name| !name.is_empty())
}

/// The words of a name in any case: `QueueBags` and `queue_bags` have `queue` and `bags`.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        if c != '_' {
            words.last_mut().expect("one at least").extend(c.to_lowercase());
        }
        was_lower = c.is_lowercase() || c.is_ascii_digit();
    }
    words
}

/// Whether `name` stands in `line`, not as a part of a longer one.
fn has_name(line: &str, name: &str) -> bool {
    line.match_indices(name).any(|(at, _)| {
        let (before, after) = (&line[..at], &line[at + name.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_way_to_name_a_scheme_is_found() {
        for line in [
            "use crate::schemes::{refusal, sharded};",
            "use crate::pair::Server;",
            "use hushtable_pir::dpf;",
            "use hushtable_pir::{Side, Table};",
            "    QueueBags,",
            "    \"queue_bags\" => None,",
            "/// Of the [`OnionLoadSpec`].",
            "//! Federated training.",
            "/// What the `left` server says.",
            "match place { Place::Left => 0 }",
            "fn register_TRAIN() {}",
        ] {
            let found = check_shared(Path::new("crates/serve/src/host/a.rs"), line);
            assert!(!found.is_empty(), "{line}");
            assert!(found[0].starts_with("crates/serve/src/host/a.rs:1: "), "{found:?}");
            assert!(check_shared(Path::new("crates/serve/src/error.rs"), line).is_empty());
        }
    }

    #[test]
    fn english_and_other_peoples_names_are_no_schemes() {
        for line in [
            "let left = deadline - now; // what is left",
            "/// A side that is right, constrained and trained; a repair.",
            "let key = rcgen::KeyPair::generate();",
            "let unpaired = bagpipe; // what the schemes share",
        ] {
            let found = check_shared(Path::new("crates/serve/src/peer/a.rs"), line);
            assert!(found.is_empty(), "{found:?}");
        }
    }

    #[test]
    fn a_scheme_that_uses_another_is_found() {
        let files = ["pair/mod.rs", "onion/keys/lru.rs", "onion/mod.rs", "mod.rs"];
        let files = files.map(|file| format!("{SCHEMES}{file}"));
        let schemes = schemes(files.iter().map(Path::new));
        assert_eq!(schemes, ["onion", "pair"]);
        let file = Path::new("crates/serve/src/schemes/onion/keys/lru.rs");
        let check = |line| check_schemes(file, line, &schemes);
        assert_eq!(check("use crate::schemes::pair::Bag;").len(), 1);
        assert!(check("use crate::schemes::onion::spec;").is_empty());
        assert!(check("use crate::schemes::plans::Plan;").is_empty());
        assert!(check("use crate::schemes::pairs;").is_empty());
        let beside = Path::new("crates/serve/src/schemes/all.rs");
        let line = "use crate::schemes::pair::refusal::pair_reasons;";
        assert!(check_schemes(beside, line, &schemes).is_empty());
    }
}
