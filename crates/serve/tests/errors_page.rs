//! `docs/errors.md` and the heads of the protos name every status and reason that the code has.

use std::collections::BTreeSet;

const PAGE: &str = include_str!("../../../docs/errors.md");
const SOURCES: [&str; 2] =
    [include_str!("../src/peer/refusal.rs"), include_str!("../src/schemes/train/refusal.rs")];
const PROTOS: [&str; 3] = [
    include_str!("../../../proto/hushtable/v1/lookup.proto"),
    include_str!("../../../proto/hushtable/v1/onion.proto"),
    include_str!("../../../proto/hushtable/v1/train.proto"),
];
/// What tonic and the door answer with where no handler has been asked: no reason comes with these.
const BARE: [&str; 4] = ["UNIMPLEMENTED", "DEADLINE_EXCEEDED", "OUT_OF_RANGE", "INTERNAL"];

/// A code's name as it is written on the wire: `InvalidArgument` is `INVALID_ARGUMENT`.
fn wire_name(code: &str) -> String {
    let mut name = String::new();
    for (at, letter) in code.char_indices() {
        if at > 0 && letter.is_uppercase() {
            name.push('_');
        }
        name.push(letter.to_ascii_uppercase());
    }
    name
}

/// (status, reason) of every refusal: a reason stands behind its code in the source.
fn reasons() -> BTreeSet<(String, String)> {
    let mut found = BTreeSet::new();
    for source in SOURCES {
        let code = source.split("#[cfg(test)]\nmod tests").next().expect("a first part");
        for part in code.split("Code::").skip(1) {
            let (code, rest) = part.split_once(',').expect("something follows a code");
            let Some(reason) = rest.trim_start().strip_prefix('"') else { continue };
            let reason = reason.split('"').next().expect("a first part");
            found.insert((wire_name(code), reason.to_owned()));
        }
    }
    found
}

/// The words that facts are made of: defects, limits, outcomes, what is waited for.
fn words() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for source in SOURCES {
        for line in source.lines().map(str::trim) {
            let named = line.strip_prefix("Self::").and_then(|line| line.split_once(" => \""));
            let listed = line.split("(Self::").skip(1).filter_map(|part| part.split_once(", \""));
            for (_, word) in named.into_iter().chain(listed) {
                let word = word.split('"').next().expect("a first part");
                if word.chars().all(|c| c.is_ascii_lowercase() || c == '_') {
                    found.insert(word.to_owned());
                }
            }
        }
    }
    found
}

/// The rows of the page's tables: the first cell, and what is in backticks in the others.
fn rows() -> Vec<(String, BTreeSet<String>)> {
    let quoted = |text: &str| text.split('`').skip(1).step_by(2).map(str::to_owned).collect();
    PAGE.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once("` |"))
        .map(|(first, rest)| (first.to_owned(), quoted(rest)))
        .collect()
}

#[test]
fn every_status_and_reason_is_on_the_page() {
    let (reasons, rows) = (reasons(), rows());
    assert!(reasons.len() >= 30, "found only {reasons:?}");
    for (status, reason) in &reasons {
        let is_there = rows.iter().any(|(first, rest)| first == status && rest.contains(reason));
        assert!(is_there, "docs/errors.md lacks {reason} beside {status}");
        assert!(PROTOS.iter().any(|proto| proto.contains(reason)), "no proto names {reason}");
    }
    let (page, _) = PAGE
        .split_once("## On the wire")
        .and_then(|(_, wire)| wire.split_once("\n## "))
        .expect("a chapter");
    for word in page.split('`').skip(1).step_by(2) {
        let is_reason =
            word.contains('_') && word.chars().all(|c| c.is_ascii_uppercase() || c == '_');
        let is_known = reasons.iter().any(|(status, reason)| word == status || word == reason);
        assert!(!is_reason || is_known || BARE.contains(&word), "{word} occurs nowhere");
    }
}

#[test]
fn statuses_without_a_reason_are_on_the_page() {
    let (_, bare) = PAGE.split_once("Without a reason").expect("a table");
    for status in BARE {
        assert!(bare.contains(&format!("| `{status}` |")), "docs/errors.md lacks a bare {status}");
    }
}

#[test]
fn every_defect_limit_and_outcome_is_on_the_page() {
    let words = words();
    assert!(words.len() >= 19, "found only {words:?}");
    for word in words {
        assert!(PAGE.contains(&format!("`{word}`")), "docs/errors.md lacks {word}");
    }
}
