//! The crates whose modules are held to point one way.

use std::path::{Path, PathBuf};

use hushtable_house::{circles, read, root, walk};

/// Those that have no circle today; a crate is added once it has none.
const CRATES: [&str; 6] = ["gpu", "house", "pir", "prg", "ring", "rlwe"];

#[test]
fn modules_point_one_way() {
    let root = root();
    let files = walk(&root).expect("the repository can be read");
    let sources: Vec<(PathBuf, String)> = files
        .into_iter()
        .filter_map(|file| read(&root, &file).expect("readable").map(|text| (file, text)))
        .collect();
    let mut found = Vec::new();
    for name in CRATES {
        found.extend(circles::circles(&Path::new("crates").join(name).join("src"), &sources));
    }
    assert!(found.is_empty(), "\n{}", found.join("\n"));
}
