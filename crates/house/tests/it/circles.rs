//! The crates whose modules are held to point one way.

use std::path::{Path, PathBuf};

use hushtable_house::imports::Owner;
use hushtable_house::{circles, imports, read, root, walk};

/// Those that have no circle today; a crate is added once it has none.
const CRATES: [&str; 7] = ["client", "gpu", "house", "pir", "prg", "ring", "rlwe"];

#[test]
fn modules_point_one_way() {
    let sources = sources();
    let mut found = Vec::new();
    for name in CRATES {
        found.extend(circles::circles(&src(name), &sources));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The crates of which no two files need each other.
const CRATES_OF_FILES: [&str; 3] = ["client", "infer", "prg"];

#[test]
fn no_two_files_need_each_other() {
    let sources = sources();
    let mut found = Vec::new();
    for name in CRATES_OF_FILES {
        let taken = imports::imports(&src(name), &sources, Owner::Definer);
        assert!(taken.values().flatten().count() > taken.len() / 2, "{name} imports nothing");
        found.extend(imports::knots(&taken).into_iter().map(|knot| format!("{knot:#?}")));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}

/// The rooms of the server, the lowest first.
const FLOORS: [&str; 30] = [
    "wire",
    "refusal",
    "labels",
    "error",
    "endpoint",
    "vital",
    "trace",
    "batch",
    "peer",
    "keys",
    "host",
    "shards",
    "settings",
    "described",
    "side_name",
    "lookup",
    "bundles",
    "plans",
    "dropped",
    "retrieval",
    "versions",
    "pair",
    "onion",
    "ckks",
    "hybrid",
    "shares",
    "train",
    "all",
    "offered",
    "lib",
];

#[test]
fn no_arrow_of_the_server_runs_up() {
    let src = src("serve");
    let taken = imports::imports(&src, &sources(), Owner::Definer);
    let found = imports::arrows_up(&src, &taken, &["schemes"], &FLOORS);
    assert!(taken.len() > 150, "the server imports nothing");
    assert!(found.is_empty(), "{found:#?}");
}

fn src(name: &str) -> PathBuf {
    Path::new("crates").join(name).join("src")
}

fn sources() -> Vec<(PathBuf, String)> {
    let root = root();
    let files = walk(&root).expect("the repository can be read").into_iter();
    files
        .filter_map(|file| read(&root, &file).expect("readable").map(|text| (file, text)))
        .collect()
}
