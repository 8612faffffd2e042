//! Which file of a crate takes names from which: what `use` and paths say, through what modules hand on.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// The files of a crate, and of each those that it takes names from.
pub type Imports = BTreeMap<PathBuf, BTreeSet<PathBuf>>;

type Names = Vec<String>;

/// What tests in a file begin with.
const TESTS: &str = "#[cfg(test)]\nmod ";

/// Whose a name is that one module has and another hands on (`pub use`).
#[derive(Clone, Copy, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a rule of the house chooses one of them")]
pub enum Owner {
    /// The file that defines it.
    Definer,
    /// The module that its path names.
    Named,
}

/// What the files below `src` take from each other, tests left out.
pub fn imports(src: &Path, sources: &[(PathBuf, String)], owner: Owner) -> Imports {
    let mut modules = BTreeMap::new();
    for (file, text) in sources {
        if let Some(path) = module_of(src, file) {
            modules.insert(path.clone(), Module { file, path, text: code(text) });
        }
    }
    let crate_ = Crate { modules, owner };
    let mut found = Imports::new();
    for module in crate_.modules.values() {
        let used = paths(&module.text).into_iter().filter(|path| !path.is_handed_on);
        let used = used.filter_map(|path| crate_.resolve(module, &path.names, 0));
        let used = used.filter(|file| file != module.file).collect();
        found.insert(module.file.clone(), used);
    }
    found
}

/// The circles among files: each a list of those that need each other.
pub fn knots(imports: &Imports) -> Vec<Vec<PathBuf>> {
    let reach = |start: &PathBuf| {
        let (mut seen, mut next) = (BTreeSet::new(), vec![start]);
        while let Some(file) = next.pop() {
            let used = imports.get(file).into_iter().flatten();
            next.extend(used.filter(|file| seen.insert((*file).clone())));
        }
        seen
    };
    let reached: BTreeMap<_, _> = imports.keys().map(|file| (file, reach(file))).collect();
    let mut found: Vec<Vec<PathBuf>> = Vec::new();
    for (file, files) in &reached {
        if found.iter().flatten().any(|other| other == *file) || !files.contains(*file) {
            continue;
        }
        let back =
            files.iter().filter(|other| reached.get(other).is_some_and(|r| r.contains(*file)));
        found.push(back.cloned().collect());
    }
    found
}

/// The arrows between rooms that run up, each as "low -> high".
///
/// A room is a module of the crate's root. In the modules that `halls` names, each child module is a room of its own.
/// `floors` lists the rooms from the lowest to the highest. Every arrow from or to a room that it lacks counts too.
pub fn arrows_up(
    src: &Path,
    imports: &Imports,
    halls: &[&str],
    floors: &[&str],
) -> BTreeSet<String> {
    let room = |file: &Path| {
        let mut names = file.strip_prefix(src).ok()?.iter().filter_map(|part| part.to_str());
        let first = names.next()?.trim_end_matches(".rs");
        let within = halls.contains(&first).then(|| names.next()).flatten();
        Some(within.unwrap_or(first).trim_end_matches(".rs").to_owned())
    };
    let floor = |room: &str| floors.iter().position(|known| *known == room);
    let mut found = BTreeSet::new();
    for (from, to) in imports.iter().flat_map(|(from, used)| used.iter().map(move |to| (from, to)))
    {
        let (Some(from), Some(to)) = (room(from), room(to)) else { continue };
        let is_up = match (floor(&from), floor(&to)) {
            (Some(from), Some(to)) => from < to,
            _ => true,
        };
        if from != to && to != "lib" && is_up {
            found.insert(format!("{from} -> {to}"));
        }
    }
    found
}

struct Module<'a> {
    file: &'a PathBuf,
    path: Names,
    text: String,
}

struct Crate<'a> {
    modules: BTreeMap<Names, Module<'a>>,
    owner: Owner,
}

impl Crate<'_> {
    /// The file that has what `names` say in `module`; none for another crate's.
    fn resolve(&self, module: &Module<'_>, names: &[String], depth: usize) -> Option<PathBuf> {
        let mut at = module.path.clone();
        let mut rest = names;
        while let Some((first, others)) = rest.split_first() {
            match first.as_str() {
                "crate" => at.clear(),
                "self" => {}
                "super" => {
                    at.pop()?;
                }
                _ => break,
            }
            rest = others;
        }
        let begins_here = names.len() == rest.len();
        if begins_here {
            at.push(rest.first()?.clone());
            self.modules.get(&at)?;
            rest = &rest[1..];
        }
        while let Some((first, others)) = rest.split_first() {
            at.push(first.clone());
            if !self.modules.contains_key(&at) {
                at.pop();
                break;
            }
            rest = others;
        }
        let found = self.modules.get(&at)?;
        if let Some(name) = rest.first()
            && self.owner == Owner::Definer
            && depth < 8
        {
            let handed = paths(&found.text).into_iter().find(|path| path.name() == Some(name));
            if let Some(file) = handed.and_then(|path| self.resolve(found, &path.names, depth + 1))
            {
                return Some(file);
            }
        }
        Some(found.file.clone())
    }
}

/// The path of the module that a file is; none of a file outside `src`, of tests and of what is no Rust.
fn module_of(src: &Path, file: &Path) -> Option<Names> {
    let inner = file.strip_prefix(src).ok()?;
    let mut names: Names =
        inner.iter().map(|part| part.to_str().map(str::to_owned)).collect::<Option<_>>()?;
    let last = names.pop()?.strip_suffix(".rs")?.to_owned();
    if last == "tests" || names.iter().any(|name| name == "tests" || name == "bin") {
        return None;
    }
    if !matches!(last.as_str(), "mod" | "lib" | "main") {
        names.push(last);
    }
    Some(names)
}

/// A text without comments and without the tests at its end.
fn code(text: &str) -> String {
    // A file of tests is only named, which may be anywhere.
    let begins = |(at, _): &(usize, &str)| {
        let line = text[at + TESTS.len()..].lines().next().unwrap_or_default();
        line.ends_with('{')
    };
    let end = text.match_indices(TESTS).find(begins).map_or(text.len(), |(at, _)| at);
    let text = &text[..end];
    // What tests alone take, to the end of its statement.
    let mut parts = text.split("#[cfg(test)]\nuse ");
    let first = parts.next().unwrap_or_default().to_owned();
    let after =
        |part: &str| part.split_once(';').map_or(String::new(), |(_, rest)| rest.to_owned());
    let text = parts.fold(first, |text, part| text + &after(part));
    let lines = text.lines().map(|line| line.split("//").next().unwrap_or(line));
    lines.collect::<Vec<_>>().join("\n")
}

struct Named {
    names: Names,
    alias: Option<String>,
    /// Whether a module makes another's name its own for others.
    is_handed_on: bool,
}

impl Named {
    /// What it is called where it is taken to.
    fn name(&self) -> Option<&String> {
        self.alias.as_ref().or(self.names.last())
    }
}

/// All paths that a text takes names by: those of `use`, and those that begin with `crate`, `self` or `super`.
fn paths(code: &str) -> Vec<Named> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(rest) = code.get(at..) {
        let begins = at == 0
            || !code[..at].ends_with(|c: char| c == '_' || c == ':' || c.is_ascii_alphanumeric());
        let is_use = begins && rest.starts_with("use ");
        let is_path =
            begins && ["crate::", "self::", "super::"].iter().any(|p| rest.starts_with(p));
        if is_use || is_path {
            let tree = if is_use { &rest[4..] } else { rest };
            let before = code[..at].lines().next_back().unwrap_or_default().trim();
            let is_handed_on = is_use && before.starts_with("pub");
            let mut trees = Vec::new();
            let length = expand(tree, &[], &mut trees);
            found.extend(trees.into_iter().map(|(names, alias)| Named {
                names,
                alias,
                is_handed_on,
            }));
            at += length.max(1) + if is_use { 4 } else { 0 };
            continue;
        }
        at += rest.chars().next().map_or(1, char::len_utf8);
    }
    found
}

/// The paths of a tree like `a::{b, c::D as E}`; how long it is.
fn expand(tree: &str, before: &[String], into: &mut Vec<(Names, Option<String>)>) -> usize {
    let word = |from: usize| {
        let rest = &tree[from..];
        let is_word = |c: char| c == '_' || c.is_ascii_alphanumeric();
        from + rest.find(|c| !is_word(c)).unwrap_or(rest.len())
    };
    let space = |from: usize| tree.len() - tree[from..].trim_start().len();
    let mut names = before.to_vec();
    let mut at = space(0);
    loop {
        if tree[at..].starts_with('{') {
            at += 1;
            loop {
                at += expand(&tree[at..], &names, into);
                at = space(at);
                if !tree[at..].starts_with(',') {
                    break;
                }
                at += 1;
            }
            return at + usize::from(tree[at..].starts_with('}'));
        }
        let end = word(at);
        if end == at {
            return at;
        }
        // `a::{self}` is a itself.
        if &tree[at..end] != "self" || names.is_empty() {
            names.push(tree[at..end].to_owned());
        }
        at = end;
        if !tree[at..].starts_with("::") {
            break;
        }
        at += 2;
    }
    let mut alias = None;
    let next = space(at);
    if tree[next..].starts_with("as ") {
        let start = space(next + 3);
        at = word(start);
        alias = Some(tree[start..at].to_owned());
    }
    into.push((names, alias));
    at
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[(&str, &str)]) -> Imports {
        let file =
            |(file, text): &(&str, &str)| (Path::new("x/src").join(file), (*text).to_owned());
        let files = files.iter().map(file).collect::<Vec<_>>();
        imports(Path::new("x/src"), &files, Owner::Definer)
    }

    fn used(found: &Imports, file: &str) -> Vec<String> {
        let inner =
            |file: &PathBuf| file.strip_prefix("x/src").expect("ours").display().to_string();
        found[&Path::new("x/src").join(file)].iter().map(inner).collect()
    }

    #[test]
    fn names_are_followed_to_who_has_them() {
        let found = of(&[
            ("lib.rs", "mod a;\npub mod b;\npub use b::{Thing, deep::Other as Renamed};"),
            (
                "a.rs",
                "use crate::Renamed;\nuse std::fmt;\nfn f() { super::b::g() } // crate::nothing",
            ),
            ("b/mod.rs", "mod deep;\npub struct Thing;\npub fn g() {}"),
            (
                "b/deep.rs",
                "use super::{Thing, super::a::{self, F}};\n#[cfg(test)]\nmod t { use crate::a; }",
            ),
        ]);
        assert!(used(&found, "lib.rs").is_empty(), "it hands on alone");
        assert_eq!(used(&found, "a.rs"), ["b/deep.rs", "b/mod.rs"]);
        assert_eq!(used(&found, "b/deep.rs"), ["a.rs", "b/mod.rs"]);
        assert_eq!(
            knots(&found),
            [["a.rs", "b/deep.rs"].map(|file| Path::new("x/src").join(file))]
        );
    }

    #[test]
    fn arrows_up_are_counted_by_room() {
        let found = of(&[
            ("low.rs", "use crate::high::A;\nuse crate::schemes::one::B;"),
            ("high/a.rs", "use crate::low::C;"),
            ("high/mod.rs", "pub use a::A;"),
            ("schemes/one/mod.rs", "use crate::low::C;\nuse crate::schemes::two::D;"),
            ("schemes/two.rs", ""),
            ("schemes/mod.rs", "mod one;\nmod two;"),
        ]);
        let of = |floors: &[&str]| arrows_up(Path::new("x/src"), &found, &["schemes"], floors);
        let up = of(&["low", "high", "two", "one"]);
        assert_eq!(up.iter().collect::<Vec<_>>(), ["low -> high", "low -> one"]);
        assert_eq!(of(&["high", "one"]).len(), 5, "what no floor names is up");
    }

    #[test]
    fn a_line_has_no_knot() {
        let found = of(&[
            ("a.rs", "use crate::b::B;"),
            ("b.rs", "use crate::c::C;"),
            ("c.rs", "#[cfg(test)]\nmod tests {\n    use crate::a::A;\n}"),
        ]);
        assert!(knots(&found).is_empty(), "{found:?}");
        let found = of(&[
            ("a.rs", "#[cfg(test)]\nmod tests;\nuse crate::b::B;"),
            ("b.rs", "use crate::a::A;"),
        ]);
        assert_eq!(knots(&found).len(), 1, "tests that are only named end nothing");
    }
}
