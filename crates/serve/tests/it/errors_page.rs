//! `docs/errors.md` and the heads of the protos are held against the table of reasons, and the page's
//! classes against those of the Python package.

use std::collections::BTreeSet;

use hushtable_serve::reasons;
use hushtable_serve::refusal::Reason;

const PAGE: &str = include_str!("../../../../docs/errors.md");
const CLASSES: &str = include_str!("../../../../python/hushtable/errors.py");
const PROTOS: [&str; 9] = [
    include_str!("../../../../proto/hushtable/v1/hybrid.proto"),
    include_str!("../../../../proto/hushtable/v1/infer.proto"),
    include_str!("../../../../proto/hushtable/v1/lookup.proto"),
    include_str!("../../../../proto/hushtable/v1/onion.proto"),
    include_str!("../../../../proto/hushtable/v1/onion_shard.proto"),
    include_str!("../../../../proto/hushtable/v1/operate.proto"),
    include_str!("../../../../proto/hushtable/v1/shard.proto"),
    include_str!("../../../../proto/hushtable/v1/shares.proto"),
    include_str!("../../../../proto/hushtable/v1/train.proto"),
];
/// What tonic and the door answer with where no handler has been asked: no reason comes with these.
const BARE: [&str; 4] = ["UNIMPLEMENTED", "DEADLINE_EXCEEDED", "OUT_OF_RANGE", "INTERNAL"];

/// What a proto's head says of its errors, as one line.
fn head(proto: &str) -> String {
    let lines = proto.lines().map_while(|line| line.strip_prefix("//"));
    let text = lines.map(str::trim).collect::<Vec<_>>().join(" ");
    let (_, errors) = text.split_once("their metadata in parentheses:").expect("a list of errors");
    errors.to_owned()
}

/// Words of capitals and underscores: statuses and reasons.
fn capitals(text: &str) -> impl Iterator<Item = &str> {
    let is_part = |c: char| c.is_ascii_uppercase() || c == '_';
    text.split(move |c: char| !c.is_ascii_alphanumeric() && c != '_')
        .filter(move |word| word.len() > 3 && word.chars().all(is_part))
}

/// The names of the facts that a head lists after `reason`; `None` where it does not name it.
fn listed_facts(head: &str, reason: &str) -> Option<Vec<String>> {
    let is_part = |c: char| c.is_ascii_alphanumeric() || c == '_';
    let (at, _) = head.match_indices(reason).find(|(at, found)| {
        let (before, after) = (&head[..*at], &head[at + found.len()..]);
        !before.ends_with(is_part) && !after.starts_with(is_part)
    })?;
    let rest = &head[at + reason.len()..];
    let Some(facts) = rest.strip_prefix(" (") else { return Some(Vec::new()) };
    let (facts, _) = facts.split_once(')').expect("facts end");
    // "expected: the server's, found: the request's, both in hex": a name stands first in its part.
    let named = facts.split([',', ';']).map(str::trim).filter_map(|part| {
        let name = part.split(':').next().expect("a first part");
        name.chars().all(is_part).then(|| name.to_owned())
    });
    Some(named.collect())
}

/// The rows of the page's tables: the first cell, and what is in backticks in the others.
fn rows() -> Vec<(String, BTreeSet<String>)> {
    PAGE.lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once('`'))
        .map(|(first, rest)| (first.to_owned(), quoted(rest).map(str::to_owned).collect()))
        .collect()
}

fn quoted(text: &str) -> impl Iterator<Item = &str> {
    text.split('`').skip(1).step_by(2)
}

/// The page's chapter of that name.
fn chapter(name: &str) -> &'static str {
    let (_, rest) = PAGE.split_once(&format!("\n## {name}\n")).expect("a chapter");
    rest.split("\n## ").next().expect("a first part")
}

#[test]
fn every_status_and_reason_is_on_the_page() {
    let (reasons, rows) = (reasons(), rows());
    for Reason { name, .. } in &reasons {
        let status = reasons.iter().find(|reason| reason.name == *name).expect("itself").status();
        let is_there = rows.iter().any(|(first, rest)| first == status && rest.contains(*name));
        assert!(is_there, "docs/errors.md lacks {name} beside {status}");
    }
    for word in quoted(chapter("On the wire")).filter(|word| word.contains('_')) {
        let is_reason = capitals(word).next() == Some(word);
        let is_known = reasons.iter().any(|reason| [reason.status(), reason.name].contains(&word));
        assert!(!is_reason || is_known || BARE.contains(&word), "{word} occurs nowhere");
    }
}

#[test]
fn the_contract_lists_every_reason_with_its_facts() {
    let reasons = reasons();
    for reason in &reasons {
        let facts = reason.facts.iter().filter(|fact| !fact.is_delay());
        let facts: Vec<_> = facts.map(|fact| fact.name.to_owned()).collect();
        let listed: Vec<_> =
            PROTOS.iter().filter_map(|proto| listed_facts(&head(proto), reason.name)).collect();
        assert!(!listed.is_empty(), "no proto names {}", reason.name);
        for listed in listed {
            assert_eq!(listed, facts, "the facts of {} in a proto", reason.name);
        }
    }
    for proto in PROTOS {
        for word in capitals(&head(proto)) {
            let is_known =
                reasons.iter().any(|reason| [reason.status(), reason.name].contains(&word));
            assert!(is_known, "a proto names {word}, which is no reason");
        }
    }
}

#[test]
fn a_reason_that_may_be_tried_again_says_when() {
    for reason in reasons() {
        let has_delay = reason.facts.iter().any(|fact| fact.is_delay());
        let row = PAGE.lines().find(|line| line.contains(&format!("`{}`", reason.name)));
        let says_so = row.is_some_and(|row| row.contains("google.rpc.RetryInfo"));
        assert_eq!(says_so, has_delay, "{}", reason.name);
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
fn every_word_that_a_fact_may_be_is_on_the_page() {
    let kinds = reasons().into_iter().flat_map(|reason| reason.facts);
    let words: BTreeSet<_> = kinds.flat_map(|kind| kind.words.iter().copied()).collect();
    assert!(words.len() >= 20, "found only {words:?}");
    let listed: BTreeSet<_> = quoted(chapter("On the wire")).collect();
    for word in words {
        assert!(listed.contains(word), "docs/errors.md lacks {word}");
    }
}

#[test]
fn the_pages_classes_are_those_of_the_package() {
    let (_, all) = CLASSES.split_once("__all__ = [").expect("a list");
    let all = all.split(']').next().expect("its end");
    let known: BTreeSet<_> = all.split('"').skip(1).step_by(2).filter(|&n| n != "Error").collect();
    assert!(known.len() >= 25, "found only {known:?}");
    // Other modules' own errors are written with their module.
    let rows = chapter("In Python").lines().filter_map(|line| line.strip_prefix("| `"));
    let listed: BTreeSet<_> =
        rows.filter_map(|row| row.split('`').next()).filter(|name| !name.contains('.')).collect();
    assert_eq!(listed, known);
    for line in chapter("In Python").lines().filter(|line| line.starts_with("| `")) {
        let name = quoted(line).next().expect("a name");
        let cells: Vec<_> = line.split(" | ").collect();
        assert_eq!(cells.len(), 3, "{name}");
        let attributes = quoted(cells[1]).filter_map(|word| word.strip_prefix('.'));
        for attribute in attributes.filter(|_| !name.contains('.')) {
            assert!(has_attribute(name, attribute), "{name} has no .{attribute}");
        }
    }
}

/// Whether the class `name` or one that it comes of sets `attribute`.
fn has_attribute(name: &str, attribute: &str) -> bool {
    let Some((_, rest)) = CLASSES.split_once(&format!("\nclass {name}(")) else { return false };
    let (bases, body) = rest.split_once("):").expect("its bases");
    let body = body.split("\nclass ").next().expect("its body");
    body.contains(&format!("self.{attribute} = "))
        || bases.split(", ").any(|base| has_attribute(base, attribute))
}
