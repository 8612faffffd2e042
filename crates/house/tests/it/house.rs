//! The rules, over this repository.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

use hushtable_house::{arrows, files, links, paths, read, root, seam, walk, words};

fn sources() -> Vec<(PathBuf, String)> {
    let root = root();
    let files = walk(&root).expect("the repository can be read");
    files
        .into_iter()
        .filter_map(|file| read(&root, &file).expect("readable").map(|text| (file, text)))
        .collect()
}

#[track_caller]
fn assert_none(found: Vec<String>) {
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// Folders with a Cargo.toml, the root and the peers that we are timed beside left out: these are others'
/// libraries, which nothing of ours may depend on.
fn crate_folders() -> Vec<String> {
    walk(&root())
        .expect("the repository can be read")
        .iter()
        .filter(|file| file.ends_with("Cargo.toml"))
        .filter_map(|file| Some(file.parent()?.to_str()?.to_owned()))
        .filter(|folder| !folder.is_empty() && !folder.starts_with("bench/peers/"))
        .collect()
}

#[test]
fn crates_use_only_what_the_arrows_allow() {
    let folders = crate_folders();
    assert!(folders.len() >= 5, "found only {folders:?}");
    let mut found = Vec::new();
    for folder in folders {
        let manifest = fs::read_to_string(root().join(&folder).join("Cargo.toml")).expect("text");
        found.extend(arrows::check_manifest(&folder, &manifest));
    }
    assert_none(found);
}

#[test]
fn what_is_shipped_has_no_feature_of_tests_and_measurements() {
    let files = ["Cargo.toml", "pyproject.toml", "Makefile", "Containerfile"];
    let mut found = Vec::new();
    for file in files {
        let text = fs::read_to_string(root().join(file)).expect("text");
        found.extend(arrows::check_shipped(file, &text));
    }
    assert_none(found);
}

#[test]
fn every_crate_is_in_the_workspace() {
    let manifest: toml::Table =
        fs::read_to_string(root().join("Cargo.toml")).expect("text").parse().expect("TOML");
    let names = |key: &str| -> BTreeSet<String> {
        let list = manifest["workspace"][key].as_array().expect("a list");
        list.iter().filter_map(|name| Some(name.as_str()?.to_owned())).collect()
    };
    let listed: BTreeSet<_> = names("members").union(&names("exclude")).cloned().collect();
    assert_eq!(listed, crate_folders().into_iter().collect());
}

#[test]
fn files_stay_short() {
    assert_none(
        sources().iter().filter_map(|(file, text)| files::check_length(file, text)).collect(),
    );
}

#[test]
fn unsafe_stays_where_it_may_be() {
    assert_none(
        sources().iter().flat_map(|(file, text)| files::check_unsafe(file, text)).collect(),
    );
}

#[test]
fn security_md_lists_the_places_with_unsafe() {
    let page = fs::read_to_string(root().join("SECURITY.md")).expect("text");
    assert_none(files::check_unsafe_list(&page, &sources()));
}

#[test]
fn names_say_something_and_work_is_finished() {
    assert_none(sources().iter().flat_map(|(file, text)| words::check_words(file, text)).collect());
}

#[test]
fn no_largest_error_leaves_out_what_is_no_number() {
    assert_none(
        sources().iter().flat_map(|(file, text)| words::check_errors(file, text)).collect(),
    );
}

#[test]
fn sentences_name_the_thing() {
    assert_none(
        sources().iter().flat_map(|(file, text)| words::check_phrases(file, text)).collect(),
    );
}

#[test]
fn what_all_schemes_share_names_none_and_none_uses_another() {
    let sources = sources();
    let schemes = seam::schemes(sources.iter().map(|(file, _)| file.as_path()));
    assert!(schemes.len() >= 3, "found only {schemes:?}");
    let found = sources.iter().flat_map(|(file, text)| {
        let mut found = seam::check_shared(file, text);
        found.extend(seam::check_schemes(file, text, &schemes));
        found
    });
    assert_none(found.collect());
}

#[test]
fn paths_that_others_name_are_joined_by_one_function() {
    let sources = sources();
    let found = sources.iter().flat_map(|(file, text)| paths::check_joins(file, text));
    assert_none(found.chain(paths::check_known(&sources)).collect());
}

#[test]
fn links_lead_somewhere() {
    let root = root();
    let pages: Vec<_> = sources()
        .into_iter()
        .filter(|(file, _)| file.extension().is_some_and(|ending| ending == "md"))
        .collect();
    assert!(pages.len() >= 5, "found only {} pages", pages.len());
    let exists = |path: &Path| root.join(path).exists();
    let text_of = |path: &Path| read(&root, path).ok().flatten();
    assert_none(
        pages
            .iter()
            .flat_map(|(file, text)| links::check_links(file, text, exists, text_of))
            .collect(),
    );
}

/// The last column of the page on attacks names tests: they must be there.
#[test]
fn the_tests_of_what_was_attacked_are_there() {
    let page = fs::read_to_string(root().join("docs/security/attacks.md")).expect("text");
    let cells = page.lines().filter_map(|line| line.strip_suffix(" |")?.rsplit(" | ").next());
    let quoted = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2));
    let tests: BTreeSet<&str> = quoted
        .map(|name| name.rsplit("::").next().unwrap_or(name))
        .filter(|name| name.contains('_') && !name.contains(['/', '.', '-']))
        .collect();
    assert!(tests.len() >= 45, "found only {tests:?}");
    let sources = sources();
    let is_there = |name: &&str| {
        let heads = [format!("fn {name}("), format!("def {name}(")];
        sources.iter().any(|(_, text)| heads.iter().any(|head| text.contains(head)))
    };
    let lost = tests.into_iter().filter(|name| !is_there(name));
    assert_none(
        lost.map(|name| format!("docs/security/attacks.md: there is no test {name}")).collect(),
    );
}
