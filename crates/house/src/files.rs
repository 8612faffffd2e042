//! How long a file may be, and where `unsafe` may stand.

use std::path::{Path, PathBuf};

const LINES_MAX: usize = 700;
/// A kernel or a test is read in one piece more often than in parts.
const LONG_LINES_MAX: usize = 1000;

/// Where `unsafe` may stand: SIMD, CUDA, and the mapping of a file, which is unsafe by its nature
/// because another process may change the file or cut it short. SECURITY.md has the same list.
pub const UNSAFE_AT: [&str; 7] = [
    "crates/gpu/",
    "crates/oram/src/disk/",
    "crates/mpc/src/kernel/",
    "crates/pir/src/kernel/",
    "crates/prg/src/",
    "crates/ring/src/kernel/",
    "crates/table/src/mapping.rs",
];

/// A file of source that is longer than it may be.
pub fn check_length(file: &Path, text: &str) -> Option<String> {
    let path = file.to_str()?;
    if !["cu", "py", "rs", "ts"].contains(&file.extension()?.to_str()?) {
        return None;
    }
    let name = file.file_stem()?.to_str()?;
    let is_test = path.contains("tests/") || name.starts_with("test_") || name == "tests";
    let is_kernel = path.contains("/kernel") || ["avx2", "avx512", "neon"].contains(&name);
    let max = if is_test || is_kernel { LONG_LINES_MAX } else { LINES_MAX };
    let lines = text.lines().count();
    (lines > max).then(|| format!("{path}: {lines} lines, at most {max}: does it hold one noun?"))
}

/// Lines of Rust with `unsafe` where none may be, and library roots that neither forbid nor deny it.
pub fn check_unsafe(file: &Path, text: &str) -> Vec<String> {
    let Some(path) = file.to_str() else { return Vec::new() };
    if !path.ends_with(".rs") {
        return Vec::new();
    }
    let mut found = Vec::new();
    if !UNSAFE_AT.iter().any(|at| path.starts_with(at)) {
        let lines = unsafe_lines(text);
        found.extend(lines.map(|line| format!("{path}:{line}: unsafe is not allowed here")));
    }
    let is_root = path == "python/src/lib.rs"
        || (path.starts_with("crates/") && path.ends_with("/src/lib.rs"));
    // The crates that are all SIMD or all CUDA have nothing to forbid.
    let exempt = ["crates/gpu/", "crates/prg/", "crates/ring/"];
    if is_root && !exempt.iter().any(|at| path.starts_with(at)) {
        let guarded =
            ["forbid", "deny"].iter().any(|how| text.contains(&format!("#![{how}(unsafe_code")));
        if !guarded {
            found.push(format!("{path}: a library must forbid or deny unsafe_code"));
        }
    }
    found
}

/// Places of [`UNSAFE_AT`] that `page` does not list, those that it lists beside them, and those where
/// no file has `unsafe`. A list item begins with the place in backticks and a colon.
pub fn check_unsafe_list(page: &str, sources: &[(PathBuf, String)]) -> Vec<String> {
    let listed: Vec<&str> = page
        .lines()
        .filter_map(|line| line.trim_start().strip_prefix("- `crates/")?.split_once("`: "))
        .map(|(place, _)| place)
        .collect();
    let known =
        |place: &&str| UNSAFE_AT.iter().any(|at| at.strip_prefix("crates/") == Some(*place));
    let mut found: Vec<String> = listed
        .iter()
        .filter(|place| !known(place))
        .map(|place| format!("SECURITY.md lists crates/{place}, where unsafe may not be"))
        .collect();
    for at in UNSAFE_AT {
        if !listed.iter().any(|place| at.strip_prefix("crates/") == Some(*place)) {
            found.push(format!("SECURITY.md lacks {at} among the places with unsafe"));
        }
        let is_used = |(file, text): &(PathBuf, String)| {
            let path = file.to_str().unwrap_or_default();
            path.starts_with(at) && path.ends_with(".rs") && unsafe_lines(text).next().is_some()
        };
        if !sources.iter().any(is_used) {
            found.push(format!("{at} has no unsafe any more: take it off the list"));
        }
    }
    found
}

/// The numbers of lines with `unsafe`.
fn unsafe_lines(text: &str) -> impl Iterator<Item = usize> {
    let is_unsafe = |line: &str| code_words(line).any(|word| word == "unsafe");
    text.lines().zip(1..).filter(move |(line, _)| is_unsafe(line)).map(|(_, number)| number)
}

/// The words of a line of Rust that are neither in a comment nor in a string on that line.
fn code_words(line: &str) -> impl Iterator<Item = &str> {
    let mut in_string = false;
    let mut previous = ' ';
    let mut code_end = line.len();
    let mut strings = Vec::new();
    for (at, character) in line.char_indices() {
        match character {
            '"' if previous != '\\' && previous != '\'' => {
                in_string = !in_string;
                strings.push(at);
            }
            '/' if previous == '/' && !in_string => {
                code_end = at - 1;
                break;
            }
            _ => {}
        }
        previous = character;
    }
    let outside = move |at: usize| strings.iter().filter(|quote| **quote < at).count() % 2 == 0;
    let code = &line[..code_end];
    code.split(|character: char| !character.is_alphanumeric() && character != '_')
        .filter(move |word| outside(word.as_ptr() as usize - code.as_ptr() as usize))
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{UNSAFE_AT, check_length, check_unsafe, check_unsafe_list, code_words};

    #[test]
    fn lengths_are_held_by_kind() {
        let long = "\n".repeat(701);
        assert!(check_length(Path::new("crates/pir/src/engine.rs"), &long).is_some());
        assert!(check_length(Path::new("python/hushtable/nn.py"), &long).is_some());
        assert!(check_length(Path::new("crates/pir/tests/it/retrieval.rs"), &long).is_none());
        assert!(check_length(Path::new("crates/pir/src/kernel/avx512.rs"), &long).is_none());
        assert!(check_length(Path::new("README.md"), &long).is_none());
        let very_long = "\n".repeat(1001);
        assert!(check_length(Path::new("crates/pir/src/kernel/avx512.rs"), &very_long).is_some());
    }

    #[test]
    fn unsafe_is_found_in_code_only() {
        let text = "// unsafe\nlet a = \"unsafe\"; // unsafe\nlet b = unsafe { f() };\n";
        let found = check_unsafe(Path::new("crates/pir/src/engine.rs"), text);
        assert_eq!(found, ["crates/pir/src/engine.rs:3: unsafe is not allowed here"]);
        assert!(check_unsafe(Path::new("crates/pir/src/kernel/avx2.rs"), text).is_empty());
    }

    #[test]
    fn a_list_of_unsafe_places_that_is_not_true_is_found() {
        let sources: Vec<_> = UNSAFE_AT
            .iter()
            .map(|at| (Path::new(at).join("a.rs"), "let a = unsafe { f() };".to_owned()))
            .map(|(file, text)| match file.ends_with("mapping.rs/a.rs") {
                true => (file.parent().expect("a file").to_owned(), text),
                false => (file, text),
            })
            .collect();
        let item = |at: &&str| format!("  - `{at}`: why\n");
        let page: String = UNSAFE_AT.iter().map(item).collect();
        assert_eq!(check_unsafe_list(&page, &sources), [""; 0]);
        let short: String = UNSAFE_AT[1..].iter().map(item).collect();
        let found = check_unsafe_list(&short, &sources);
        assert_eq!(found, ["SECURITY.md lacks crates/gpu/ among the places with unsafe"]);
        let long = page.clone() + "  - `crates/pir/src/onion/`: why\n";
        let found = check_unsafe_list(&long, &sources);
        assert_eq!(found, ["SECURITY.md lists crates/pir/src/onion/, where unsafe may not be"]);
        let found = check_unsafe_list(&page, &sources[1..]);
        assert_eq!(found, ["crates/gpu/ has no unsafe any more: take it off the list"]);
    }

    #[test]
    fn a_library_without_the_attribute_is_found() {
        assert_eq!(check_unsafe(Path::new("crates/serve/src/lib.rs"), "mod a;").len(), 1);
        let guarded = "#![forbid(unsafe_code)]";
        assert!(check_unsafe(Path::new("crates/serve/src/lib.rs"), guarded).is_empty());
    }

    #[test]
    fn words_end_at_comments_and_skip_strings() {
        let words: Vec<_> =
            code_words(r#"f("a \" b", c) // d"#).filter(|w| !w.is_empty()).collect();
        assert_eq!(words, ["f", "c"]);
        let address: Vec<_> = code_words(r#"g("http://x", y)"#).filter(|w| !w.is_empty()).collect();
        assert_eq!(address, ["g", "y"]);
    }
}
