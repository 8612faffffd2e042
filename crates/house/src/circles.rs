//! Circles among a crate's modules: two files that need each other can only be read together.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use crate::imports::{Owner, imports};

/// The module of a crate's root that a file is, or is a part of; `None` for the root itself.
fn module(src: &Path, file: &Path) -> Option<String> {
    let inner = file.strip_prefix(src).ok()?;
    let first = inner.components().next()?.as_os_str().to_str()?;
    let name = first.strip_suffix(".rs").unwrap_or(first);
    (!matches!(name, "lib" | "main")).then(|| name.to_owned())
}

/// The circles among the modules of the crate whose sources lie in `src`: each as "a -> b -> a".
pub fn circles(src: &Path, sources: &[(PathBuf, String)]) -> Vec<String> {
    let mut uses: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, taken) in imports(src, sources, Owner::Named) {
        let Some(own) = module(src, &file) else { continue };
        let used = uses.entry(own.clone()).or_default();
        used.extend(
            taken.iter().filter_map(|file| module(src, file)).filter(|other| *other != own),
        );
    }
    let known: BTreeSet<String> = uses.keys().cloned().collect();
    let mut found = Vec::new();
    for start in &known {
        // The shortest way back, told once: from the first of its names.
        let mut ways = vec![vec![start]];
        let mut seen = BTreeSet::new();
        while let Some(way) = (!ways.is_empty()).then(|| ways.remove(0)) {
            let last = way[way.len() - 1];
            if uses[last].contains(start) {
                if way.iter().all(|name| *name >= start) {
                    let names: Vec<&str> = way.iter().map(|name| name.as_str()).collect();
                    found.push(format!("{}: {} -> {start}", src.display(), names.join(" -> ")));
                }
                break;
            }
            for next in uses[last].iter().filter(|next| seen.insert((*next).clone())) {
                ways.push(way.iter().copied().chain([next]).collect());
            }
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sources(files: &[(&str, &str)]) -> Vec<(PathBuf, String)> {
        files.iter().map(|(file, text)| (Path::new("x/src").join(file), (*text).into())).collect()
    }

    #[test]
    fn a_circle_is_found_and_its_tests_are_passed_over() {
        let of = |files: &[(&str, &str)]| circles(Path::new("x/src"), &sources(files));
        let line = [("a.rs", "use crate::b::B;"), ("b/mod.rs", "use crate::c::C;"), ("c.rs", "")];
        assert!(of(&line).is_empty());
        let circle =
            [("a.rs", "use crate::b::B;"), ("b.rs", "crate::c::f()"), ("c.rs", "use crate::a;")];
        assert_eq!(of(&circle), ["x/src: a -> b -> c -> a"]);
        let listed = [("a.rs", "use crate::{X, b::{self, Y}};"), ("b.rs", "use crate::{Z, a};")];
        assert_eq!(of(&listed), ["x/src: a -> b -> a"]);
        let in_tests = [("a.rs", "use crate::b::B;"), ("b.rs", "#[cfg(test)]\nuse crate::a::A;")];
        assert!(of(&in_tests).is_empty());
    }
}
