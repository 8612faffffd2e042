//! Words that may not stand in the tree: unfinished marks, and names that say nothing.

use std::path::Path;

/// Marks of unfinished work. Written in halves, so that this file does not break its own rule.
const UNFINISHED: [&str; 9] = [
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("XX", "X"),
    concat!("HA", "CK"),
    concat!("todo", "!("),
    concat!("unimplemented", "!("),
    concat!("NotImplemented", "Error"),
    concat!("#[ig", "nore"),
    concat!("pytest.mark.", "skip("),
];

/// Endings of a type's name that say nothing of what it is.
const EMPTY_ENDINGS: [&str; 3] = ["Manager", "Helper", "Util"];
const EMPTY_FILES: [&str; 5] = ["common", "helpers", "misc", "util", "utils"];

/// Turns of phrase that leave the noun to be guessed. In halves, as above.
const VAGUE: [&str; 4] = [
    concat!("of one ", "that"),
    concat!("where one ", "was"),
    concat!("that one ", "of is"),
    concat!("tells of ", "one"),
];

/// Largest errors that leave out what is no number. In halves, as above.
const MAXIMA: [&str; 2] = [concat!("f64", "::max)"), concat!("f32", "::max)")];

/// Largest differences by a maximum of doubles: NaN is left out of it, and passes for no error.
pub fn check_errors(file: &Path, text: &str) -> Vec<String> {
    if file.extension().is_none_or(|ending| ending != "rs") {
        return Vec::new();
    }
    let mut found = Vec::new();
    let mut statement = String::new();
    for (index, line) in text.lines().enumerate() {
        statement.push_str(line);
        let is_maximum = MAXIMA.into_iter().any(|maximum| line.contains(maximum));
        if is_maximum && (statement.contains(".abs()") || statement.contains(".norm()")) {
            let at = format!("{}:{}", file.display(), index + 1);
            found.push(format!("{at}: NaN is left out: take hushtable_rlwe::largest"));
        }
        if line.trim_end().ends_with([';', '{', '}']) {
            statement.clear();
        }
    }
    found
}

/// Turns of phrase whose noun a reader has to guess, in source and pages.
pub fn check_phrases(file: &Path, text: &str) -> Vec<String> {
    let ending = file.extension().and_then(|ending| ending.to_str());
    if !ending.is_some_and(|ending| ["md", "proto", "py", "rs", "toml"].contains(&ending)) {
        return Vec::new();
    }
    let lines = text.lines().enumerate();
    let found = lines.flat_map(|(index, line)| {
        let line = line.to_lowercase();
        let phrases = VAGUE.into_iter().filter(move |phrase| contains_word(&line, phrase));
        phrases.map(move |phrase| {
            format!("{}:{}: {phrase:?}: name the thing", file.display(), index + 1)
        })
    });
    found.collect()
}

/// Unfinished marks and empty names in a file of source.
pub fn check_words(file: &Path, text: &str) -> Vec<String> {
    let (Some(path), Some(ending)) = (file.to_str(), file.extension().and_then(|e| e.to_str()))
    else {
        return Vec::new();
    };
    if !["cu", "js", "proto", "py", "pyi", "rs", "ts"].contains(&ending) {
        return Vec::new();
    }
    let mut found = Vec::new();
    let stem = file.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default();
    if EMPTY_FILES.contains(&stem) {
        found.push(format!("{path}: name the file after the noun it holds"));
    }
    for (index, line) in text.lines().enumerate() {
        let at = format!("{path}:{}", index + 1);
        for mark in UNFINISHED {
            if contains_word(line, mark) {
                found.push(format!("{at}: {mark}: finish it, or write down why not"));
            }
        }
        let mut words = line.split_whitespace().peekable();
        while let Some(word) = words.next() {
            let name: String = words
                .peek()
                .map(|next| next.chars().take_while(|c| c.is_alphanumeric() || *c == '_').collect())
                .unwrap_or_default();
            let is_verb = ["fn", "def"].contains(&word) && name.starts_with("get_");
            let is_noun = ["struct", "enum", "trait", "class"].contains(&word)
                && EMPTY_ENDINGS.iter().any(|ending| name.ends_with(ending));
            if is_verb {
                found.push(format!("{at}: {name}: drop get_"));
            } else if is_noun {
                found.push(format!("{at}: {name}: name what it is"));
            }
        }
    }
    found
}

/// Whether `mark` stands in `line` as a word of its own.
fn contains_word(line: &str, mark: &str) -> bool {
    let is_part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(mark).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + mark.len()..].chars().next();
        let starts = !mark.starts_with(is_part) || !before.is_some_and(is_part);
        let ends = !mark.ends_with(is_part) || !after.is_some_and(is_part);
        starts && ends
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{MAXIMA, UNFINISHED, VAGUE, check_errors, check_phrases, check_words};

    #[test]
    fn every_vague_phrase_is_found() {
        for phrase in VAGUE {
            let found = check_phrases(Path::new("a/b.md"), &format!("So it is {phrase} else.\n"));
            assert_eq!(found.len(), 1, "{phrase}: {found:?}");
        }
        assert!(check_phrases(Path::new("a/b.md"), "One of one hundred, that is.\n").is_empty());
    }

    #[test]
    fn errors_without_what_is_no_number_are_found() {
        for maximum in MAXIMA {
            for text in [
                format!("let e = x.map(|x| x.abs()).fold(0.0, {maximum};"),
                format!("x\n    .map(|x| x.norm())\n    .fold(0.0, {maximum}"),
            ] {
                assert_eq!(check_errors(Path::new("a/b.rs"), &text).len(), 1, "{text}");
            }
            let times = format!("let x = y.abs();\nlet z = times.fold(0.0, {maximum};");
            assert!(check_errors(Path::new("a/b.rs"), &times).is_empty());
        }
    }

    #[test]
    fn every_mark_is_found() {
        for mark in UNFINISHED {
            let found = check_words(Path::new("a/b.rs"), &format!("fn f() {{ // {mark} later\n"));
            assert_eq!(found.len(), 1, "{mark}: {found:?}");
        }
    }

    #[test]
    fn words_around_a_mark_are_no_mark() {
        let text = format!("let x{} = method_{};", UNFINISHED[0], UNFINISHED[2]);
        assert!(check_words(Path::new("a/b.rs"), &text).is_empty());
        assert!(check_words(Path::new("a/b.md"), UNFINISHED[0]).is_empty());
    }

    #[test]
    fn empty_names_are_found() {
        assert_eq!(check_words(Path::new("a/utils.py"), "").len(), 1);
        assert_eq!(check_words(Path::new("a/b.py"), "def get_rows(self):").len(), 1);
        assert_eq!(
            check_words(Path::new("a/b.rs"), concat!("pub struct Table", "Manager {")).len(),
            1
        );
        assert!(check_words(Path::new("a/b.rs"), "pub fn gets(target: u8) {}").is_empty());
    }
}
