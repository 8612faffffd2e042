//! Paths that are joined from what others say: by the one function that cannot leave its folder.

mod known;

use std::path::Path;

use known::KNOWN;

/// Where what is shipped is. A path of a server's tests or of measurements is nobody else's.
const SHIPPED: [&str; 2] = ["crates/", "python/src/"];
const NOT_SHIPPED: [&str; 2] = ["crates/house/", "python/src/bench/"];

/// The file of that function.
const HOME: &str = "crates/table/src/within.rs";

/// What a file joins to a path that is neither a literal, nor a constant, nor on the list.
pub fn check_joins(file: &Path, text: &str) -> Vec<String> {
    let Some(path) = shipped(file) else { return Vec::new() };
    let known =
        KNOWN.iter().find(|(file, ..)| *file == path).map_or(&[][..], |(_, known, _)| known);
    joins(text)
        .filter(|(_, joined)| !known.contains(&joined.as_str()))
        .map(|(line, joined)| {
            format!(
                "{path}:{line}: joins {joined:?}: hushtable_table::within joins what others say; what nobody \
                 else says goes on the list in crates/house/src/paths/known.rs, with why"
            )
        })
        .collect()
}

/// Lines of the list that no file needs.
pub fn check_known(sources: &[(std::path::PathBuf, String)]) -> Vec<String> {
    let mut found = Vec::new();
    for (file, known, reason) in KNOWN {
        if reason.is_empty() {
            found.push(format!("paths/known.rs: {file} has no reason"));
        }
        let text = sources.iter().find(|(path, _)| path.to_str() == Some(*file));
        let Some((_, text)) = text else {
            found.push(format!("paths/known.rs: there is no {file}"));
            continue;
        };
        for one in *known {
            if !joins(text).any(|(_, joined)| joined == *one) {
                found.push(format!("paths/known.rs: {file} does not join {one:?}"));
            }
        }
    }
    found
}

fn shipped(file: &Path) -> Option<&str> {
    let path = file.to_str()?;
    let is_test =
        path.contains("tests/") || path.ends_with("/tests.rs") || path.ends_with("bench.rs");
    let is_shipped = SHIPPED.iter().any(|folder| path.starts_with(folder))
        && path.contains("/src/")
        && !NOT_SHIPPED.iter().any(|folder| path.starts_with(folder));
    (path.ends_with(".rs") && is_shipped && !is_test && path != HOME).then_some(path)
}

/// Each call that may join something to a path, and what: by line.
fn joins(text: &str) -> impl Iterator<Item = (usize, String)> {
    let code = text.split("#[cfg(test)]\nmod ").next().unwrap_or_default();
    let mut found = Vec::new();
    for call in [".join(", ".with_file_name("] {
        for (at, _) in code.match_indices(call) {
            let start = at + call.len();
            let line_start = code[..at].rfind('\n').map_or(0, |at| at + 1);
            if code[line_start..].trim_start().starts_with("//") {
                continue;
            }
            let joined = argument(&code[start..]);
            if !is_plain(&joined) {
                found.push((code[..at].matches('\n').count() + 1, joined));
            }
        }
    }
    found.sort();
    found.into_iter()
}

/// What stands up to the bracket that closes a call, on one line.
fn argument(text: &str) -> String {
    let mut depth = 0;
    let end = text.find(|c| {
        match c {
            '(' | '[' | '{' => depth += 1,
            ')' | ']' | '}' => depth -= 1,
            _ => {}
        }
        depth < 0
    });
    text[..end.unwrap_or(text.len())].split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Nothing, a literal, a constant, or a place in a model bundle, which the function makes.
fn is_plain(joined: &str) -> bool {
    let joined = joined.trim_start_matches('&').trim_end_matches(',');
    let last = joined.rsplit("::").next().unwrap_or(joined);
    let is_constant =
        last.chars().all(|c| c.is_ascii_uppercase() || c.is_ascii_digit() || c == '_');
    let quotes = joined.trim_start_matches('b');
    let is_literal =
        (quotes.starts_with('"') && quotes.ends_with('"') && quotes.matches('"').count() == 2)
            || quotes.starts_with('\'');
    let is_place = joined.starts_with("places::") && !joined.contains("..");
    joined.is_empty() || is_literal || is_constant || is_place
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_joined_from_outside_is_found() {
        let text = "
            let a = folder.join(\"model.json\").join(places::TABLES).join(&MANIFEST).join(places::table(name));
            // folder.join(name) is spoken of.
            let b = folder.join(name);
            let c = folder
                .join(format!(
                    \"{name}.onion\"
                ));
            let d = thread.join().unwrap();
            let e = lines.join(&b'\\n');
            let f = path.with_file_name(entry.name());
        \n#[cfg(test)]\nmod tests { fn of(name: &str) { folder.join(name); } }";
        let found: Vec<_> = joins(text).map(|(_, joined)| joined).collect();
        assert_eq!(found, ["name", "format!( \"{name}.onion\" )", "entry.name()"]);
        let of = |file: &str| check_joins(Path::new(file), text).len();
        assert_eq!(of("crates/serve/src/made_up.rs"), 3);
        assert_eq!(of("python/src/made_up.rs"), 3);
        for elsewhere in
            [HOME, "crates/serve/tests/it/made_up.rs", "crates/table/src/tests.rs", "web/x.ts"]
        {
            assert_eq!(of(elsewhere), 0, "{elsewhere}");
        }
    }
}
