//! Which tensors of a checkpoint are tables, and what they are called.

use std::collections::BTreeMap;

use super::error::{LISTED_MAX, ModelError};
use super::manifest::check_name;
use crate::source::{Checkpoint, CheckpointFormat, Stored, TensorInfo};

/// What training code wraps a state dict in; not part of a table's name.
const WRAPPERS: [&str; 5] = ["model", "model_state_dict", "module", "state_dict", "_orig_mod"];

/// How names begin that hold an optimizer's state and not the model's.
const OPTIMIZERS: [&str; 4] = ["optim", "optimizer", "opt_state_dict", "optimizer_state_dict"];

/// Whether a tensor belongs to an optimizer.
pub(super) fn is_optimizer_state(name: &str) -> bool {
    name.split('.').next().is_some_and(|first| OPTIMIZERS.contains(&first))
}

/// Whether a tensor could be a table: two dimensions of floats, and at least one row.
pub(super) fn is_table(info: &TensorInfo) -> bool {
    info.is_table() && info.shape.iter().all(|size| *size > 0)
}

/// Whether a tensor is named as embeddings are: `emb_l.0.weight` (DLRM), `item_embedding.weight`,
/// `….embedding_bags.T.weight` (torchrec), `….embeddings.T…`, `embed_tokens.weight`, and in arrays
/// without a `weight` `….embedding` (flax).
pub(super) fn is_named_as_embedding(name: &str) -> bool {
    if is_optimizer_state(name) {
        return false;
    }
    let lower = name.to_lowercase();
    let parts: Vec<&str> = lower.split(['.', '/']).collect();
    let Some((last, before)) = parts.split_last() else { return false };
    let says_embedding = |part: &&str| part.contains("embedding");
    match *last {
        "weight" => before.iter().any(|part| part.contains("embedding") || part.starts_with("emb")),
        _ => says_embedding(last) || before.contains(&"embeddings"),
    }
}

/// The tensors that are chosen as tables: those that match one of `patterns`, or without any all
/// that are named as embeddings.
pub(super) fn choose<'a>(
    checkpoint: &'a Checkpoint,
    patterns: &[String],
) -> Result<Vec<&'a Stored>, ModelError> {
    let mut chosen = Vec::new();
    let scales = checkpoint.scales();
    for stored in checkpoint.stored() {
        let name = &stored.info.name;
        let is_wanted = match patterns {
            // In a folder of tables, what could be one is one.
            [] if checkpoint.format() == CheckpointFormat::Folder => is_table(&stored.info),
            [] => is_named_as_embedding(name) && is_table(&stored.info) && !scales.contains(name),
            _ => patterns.iter().any(|pattern| matches(pattern, name)),
        };
        if is_wanted {
            check_table(stored)?;
            chosen.push(stored);
        }
    }
    let of_tables = || checkpoint.tensors().filter(|info| is_table(info));
    let tensors = || of_tables().take(LISTED_MAX).map(describe).collect();
    let tensor_count = of_tables().count();
    let idle = patterns
        .iter()
        .find(|pattern| !checkpoint.tensors().any(|info| matches(pattern, &info.name)));
    if let Some(pattern) = idle {
        let pattern = pattern.chars().take(160).collect();
        return Err(ModelError::NoMatch { pattern, tensors: tensors(), tensor_count });
    }
    match chosen.is_empty() {
        false => Ok(in_order_of_numbers(chosen)),
        true => Err(ModelError::NoEmbeddings { tensors: tensors(), tensor_count }),
    }
}

/// The tensors in their order, but that names which differ in numbers alone stand by their numbers: formats that sort
/// names have `emb_l.10` before `emb_l.2`.
fn in_order_of_numbers(chosen: Vec<&Stored>) -> Vec<&Stored> {
    let mut kinds: BTreeMap<String, Vec<(Vec<Number>, usize)>> = BTreeMap::new();
    for (at, stored) in chosen.iter().enumerate() {
        let (kind, numbers) = numbers_of(&stored.info.name);
        kinds.entry(kind).or_default().push((numbers, at));
    }
    let mut ordered = chosen.clone();
    for mut of_kind in kinds.into_values() {
        let places: Vec<usize> = of_kind.iter().map(|(_, at)| *at).collect();
        of_kind.sort();
        for (place, (_, at)) in places.into_iter().zip(of_kind) {
            ordered[place] = chosen[at];
        }
    }
    ordered
}

/// A number in a name: how many digits it has after zeros at its begin, and those.
type Number = (usize, String);

/// A name with `#` for its numbers, and the numbers.
fn numbers_of(name: &str) -> (String, Vec<Number>) {
    let (mut kind, mut numbers, mut rest) = (String::new(), Vec::new(), name);
    while let Some(start) = rest.find(|c: char| c.is_ascii_digit()) {
        let (before, from) = rest.split_at(start);
        let end = from.find(|c: char| !c.is_ascii_digit()).unwrap_or(from.len());
        let digits = from[..end].trim_start_matches('0');
        kind.push_str(before);
        kind.push('#');
        numbers.push((digits.len(), digits.to_owned()));
        rest = &from[end..];
    }
    kind.push_str(rest);
    (kind, numbers)
}

/// The tensor of this name.
pub(super) fn find<'a>(checkpoint: &'a Checkpoint, key: &str) -> Result<&'a Stored, ModelError> {
    let found = checkpoint.stored().iter().find(|stored| stored.info.name == key);
    let stored = found.ok_or_else(|| ModelError::UnknownTensor {
        key: key.chars().take(160).collect(),
        tensors: {
            let tables = checkpoint.tensors().filter(|info| is_table(info));
            tables.take(LISTED_MAX).map(describe).collect()
        },
        tensor_count: checkpoint.tensors().filter(|info| is_table(info)).count(),
    })?;
    check_table(stored)?;
    Ok(stored)
}

fn check_table(stored: &Stored) -> Result<(), ModelError> {
    match is_table(&stored.info) {
        true => Ok(()),
        false => Err(ModelError::NotATable { tensor: describe(&stored.info) }),
    }
}

/// Names for the chosen tensors: without `weight` at their end and without what training code put
/// before all of them; of torchrec's only the table's name.
pub(super) fn table_names(chosen: &[&Stored]) -> Result<Vec<String>, ModelError> {
    let tidy = |name: &str| {
        let mut parts: Vec<&str> = name.split(['.', '/']).collect();
        if parts.len() > 1 && parts.last() == Some(&"weight") {
            parts.pop();
        }
        while parts.len() > 1 && WRAPPERS.contains(&parts[0]) {
            parts.remove(0);
        }
        let bags = parts.iter().position(|part| *part == "embedding_bags");
        if let Some(at) = bags.filter(|at| at + 1 < parts.len()) {
            parts.drain(..=at);
        }
        clean(&parts.join("."))
    };
    let whole = |name: &str| clean(name);
    let short: Vec<String> = chosen.iter().map(|stored| tidy(&stored.info.name)).collect();
    let named = chosen.iter().zip(&short).map(|(stored, name)| {
        let is_shared = short.iter().filter(|other| *other == name).count() > 1;
        let name = if is_shared { whole(&stored.info.name) } else { name.clone() };
        check_name("table", &name).map(|()| name)
    });
    named.collect()
}

/// The name with `_` for what no name has.
fn clean(name: &str) -> String {
    let is_good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    name.chars().map(|c| if is_good(c) { c } else { '_' }).collect()
}

/// A tensor in words, for errors.
pub(super) fn describe(info: &TensorInfo) -> String {
    let sizes: Vec<String> = info.shape.iter().map(u64::to_string).collect();
    format!("{} [{}] {}", info.name, sizes.join(", "), info.dtype)
}

/// Whether `name` matches a shell pattern of `*` and `?`.
fn matches(pattern: &str, name: &str) -> bool {
    let (pattern, name): (Vec<char>, Vec<char>) =
        (pattern.chars().collect(), name.chars().collect());
    let (mut p, mut n) = (0, 0);
    // Where the last star was, and what of the name it has taken so far.
    let mut star: Option<(usize, usize)> = None;
    while n < name.len() {
        match pattern.get(p) {
            Some('*') => {
                star = Some((p, n));
                p += 1;
            }
            Some(c) if *c == '?' || *c == name[n] => {
                p += 1;
                n += 1;
            }
            _ => match star {
                Some((at, taken)) => {
                    star = Some((at, taken + 1));
                    p = at + 1;
                    n = taken + 1;
                }
                None => return false,
            },
        }
    }
    pattern[p..].iter().all(|c| *c == '*')
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Content;

    #[test]
    fn names_that_differ_in_numbers_stand_by_their_numbers() {
        let stored = |name: &&str| Stored {
            info: TensorInfo {
                name: (*name).into(),
                shape: vec![2, 2],
                dtype: "float32".into(),
                element: None,
            },
            kind: None,
            content: Content::Pieces(Vec::new()),
        };
        let names = [
            "b.1", "emb.1.x", "emb.10.x", "a", "emb.2.x", "b.010", "b.9", "emb.3.y", "c9d10",
            "c9d9",
        ];
        let all: Vec<Stored> = names.iter().map(stored).collect();
        let ordered = in_order_of_numbers(all.iter().collect());
        let ordered: Vec<&str> = ordered.iter().map(|stored| &*stored.info.name).collect();
        let expected = [
            "b.1", "emb.1.x", "emb.2.x", "a", "emb.10.x", "b.9", "b.010", "emb.3.y", "c9d9",
            "c9d10",
        ];
        assert_eq!(ordered, expected);
    }

    #[test]
    fn embeddings_are_told_by_their_names() {
        for name in [
            "emb_l.0.weight",
            "state_dict.emb_l.25.weight",
            "item_embedding.weight",
            "embedding.weight",
            "model.embed_tokens.weight",
            "bert.embeddings.word_embeddings.weight",
            "model.sparse_arch.embedding_bag_collection.embedding_bags.t_user.weight",
            "ec.embeddings.t_item.weight",
            "params/Embed_0/embedding",
            "user_embedding",
        ] {
            assert!(is_named_as_embedding(name), "{name}");
        }
        for name in [
            "bot_l.0.weight",
            "top_l.2.bias",
            "embedding.bias",
            "member.weight",
            "optim.state.emb_l.0.weight.exp_avg",
            "optimizer.emb_l.0.weight",
            "weight",
            "",
        ] {
            assert!(!is_named_as_embedding(name), "{name}");
        }
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        for (pattern, name, expected) in [
            ("*", "", true),
            ("*", "emb_l.0.weight", true),
            ("emb_l.*.weight", "emb_l.0.weight", true),
            ("emb_l.?.weight", "emb_l.10.weight", false),
            ("*emb*", "a.emb", true),
            ("emb", "emb_l", false),
            ("", "", true),
            ("", "a", false),
            ("a*b*c", "aXbXbXc", true),
            ("a*b*c", "aXbXbX", false),
            ("[ab]", "a", false),
        ] {
            assert_eq!(matches(pattern, name), expected, "{pattern} {name}");
        }
        // Linear for each star, not exponential.
        assert!(!matches(&"*a".repeat(40), &"a".repeat(39)));
    }
}
