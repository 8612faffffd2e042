//! Which crate may use which: the arrows of the architecture, held against every Cargo.toml.

use toml::Table;

/// Folder, and the folders it may depend on. What is not here is forbidden.
const ARROWS: [(&str, &[&str]); 14] = [
    ("client", &[]),
    ("gpu", &["pir", "prg", "ring", "rlwe"]),
    ("house", &[]),
    ("infer", &["client", "mpc", "pir", "rlwe", "table"]),
    ("mpc", &["prg", "rlwe"]),
    ("oram", &["client", "prg", "table"]),
    ("pir", &["client", "prg", "rlwe", "table"]),
    ("prg", &[]),
    ("python", &["infer", "mpc", "oram", "pir", "prg", "ring", "rlwe", "serve", "table", "gpu"]),
    ("ring", &["prg"]),
    ("rlwe", &["ring"]),
    ("serve", &["client", "gpu", "infer", "oram", "pir", "table"]),
    ("table", &[]),
    // Its own workspace: it may reach every decoder.
    ("fuzz", &["infer", "mpc", "oram", "pir", "prg", "ring", "rlwe", "serve", "table"]),
];

/// Crates that open sockets, and the folder that alone may depend on one.
const SOCKET_CRATES: [&str; 5] = ["axum", "hyper", "mio", "tokio-rustls", "tonic"];
const SOCKET_FOLDER: &str = "serve";
/// The event loop runs what has sockets: `python` drives serve's futures by it.
const EVENT_LOOP: &str = "tokio";
const EVENT_LOOP_FOLDERS: [&str; 3] = ["fuzz", "python", "serve"];

/// What nothing that is shipped has: parameter sets without security, what measures, what describes the native module.
/// Only features of the same name turn them on, and dev-dependencies, the fuzz workspace, and who builds.
const UNSHIPPED: [&str; 3] = ["test-sets", "bench", "stub"];
/// What builds what is shipped.
const SHIPS: &str = "maturin build";

/// What in the manifest of the crate in `folder` ("crates/pir", "python") breaks a rule: its name,
/// an arrow that is not drawn, a provider that is not behind a feature, sockets outside `serve`, a
/// feature that is not shipped and is turned on.
pub fn check_manifest(folder: &str, manifest: &str) -> Vec<String> {
    let manifest: Table = match manifest.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{folder}/Cargo.toml: {error}")],
    };
    let short = folder.rsplit('/').next().unwrap_or(folder);
    let Some((_, allowed)) = ARROWS.iter().find(|(from, _)| *from == short) else {
        return vec![format!("{folder}: no arrows are drawn for this crate: add it to the design")];
    };
    let mut found = Vec::new();
    let name = manifest.get("package").and_then(|package| package.get("name"));
    if name.and_then(|name| name.as_str()) != Some(&format!("hushtable-{short}")) {
        found.push(format!("{folder}: the package must be named hushtable-{short}"));
    }
    if folder != "fuzz" && !inherits_lints(&manifest) {
        found.push(format!("{folder}: [lints] must say workspace = true"));
    }
    if folder != "fuzz" {
        found.extend(unshipped(folder, &manifest));
    }
    for (section, name, optional) in dependencies(&manifest) {
        if let Some(to) = name.strip_prefix("hushtable-") {
            // A crate's own name is its tests asking for its features.
            if to != short && !allowed.contains(&to) {
                found.push(format!("{folder} -> {to} ({section}): this arrow is not drawn"));
            }
            if short == "serve" && to == "gpu" && !optional {
                found.push(format!("{folder} -> gpu: must be optional, behind the gpu feature"));
            }
        } else if (SOCKET_CRATES.contains(&name.as_str()) && short != SOCKET_FOLDER)
            || (name == EVENT_LOOP && !EVENT_LOOP_FOLDERS.contains(&short))
        {
            found.push(format!("{folder} -> {name} ({section}): only serve has sockets"));
        }
    }
    found
}

/// What in the workspace's manifest, in `pyproject.toml`, or in a command of a file that builds wheels turns a feature on
/// that is not shipped.
pub fn check_shipped(file: &str, text: &str) -> Vec<String> {
    if !file.ends_with(".toml") {
        // A command goes on behind a backslash.
        let commands = text.replace("\\\n", " ");
        let builds = commands.lines().filter(|line| line.contains(SHIPS));
        let told = builds.filter(|line| line.contains("--features") || line.contains("-F "));
        return told.map(|line| format!("{file}: {SHIPS} has features: {}", line.trim())).collect();
    }
    let manifest: Table = match text.parse() {
        Ok(manifest) => manifest,
        Err(error) => return vec![format!("{file}: {error}")],
    };
    let mut found = Vec::new();
    if let Some(workspace) = manifest.get("workspace").and_then(|it| it.as_table()) {
        found.extend(unshipped(file, workspace));
    }
    let maturin = manifest.get("tool").and_then(|tool| tool.get("maturin"));
    if let Some(maturin) = maturin {
        let turned_on = maturin.get("features").map(names).unwrap_or_default();
        let is_all = maturin.get("all-features").and_then(|it| it.as_bool()) == Some(true);
        let is_told = |feature: &&str| is_all || turned_on.iter().any(|name| is(name, feature));
        let told = UNSHIPPED.iter().filter(|feature| is_told(feature));
        found.extend(told.map(|feature| format!("{file}: maturin turns on {feature}")));
    }
    found
}

/// Where a manifest turns on a feature that is not shipped, other than for its own tests.
fn unshipped(folder: &str, manifest: &Table) -> Vec<String> {
    let mut found = Vec::new();
    for unshipped in UNSHIPPED {
        let features = manifest.get("features").and_then(|features| features.as_table());
        for (feature, turned_on) in features.into_iter().flatten() {
            if feature != unshipped && names(turned_on).iter().any(|name| is(name, unshipped)) {
                found.push(format!("{folder}: the feature {feature} turns on {unshipped}"));
            }
        }
        for table in for_platforms(manifest) {
            for kind in ["dependencies", "build-dependencies"] {
                let table = table.get(kind).and_then(|kind| kind.as_table());
                for (name, value) in table.into_iter().flatten() {
                    let turned_on = value.get("features").map(names).unwrap_or_default();
                    if turned_on.iter().any(|name| is(name, unshipped)) {
                        found.push(format!(
                            "{folder} -> {name}: {unshipped} is for dev-dependencies"
                        ));
                    }
                }
            }
        }
    }
    found
}

/// Whether what a list of features names is this one, its own or a dependency's.
fn is(name: &str, feature: &str) -> bool {
    name.rsplit('/').next() == Some(feature)
}

/// The strings of a list.
fn names(value: &toml::Value) -> Vec<String> {
    let list = value.as_array().into_iter().flatten();
    list.filter_map(|name| Some(name.as_str()?.to_owned())).collect()
}

fn inherits_lints(manifest: &Table) -> bool {
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    lints.and_then(|lints| lints.as_bool()) == Some(true)
}

/// (section, package, optional) of every dependency of any kind, for any platform.
fn dependencies(manifest: &Table) -> Vec<(String, String, bool)> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let mut found = Vec::new();
    for table in for_platforms(manifest) {
        for kind in KINDS {
            for (key, value) in
                table.get(kind).and_then(|kind| kind.as_table()).into_iter().flatten()
            {
                // `alias = { package = "name" }` depends on name.
                let package = value.get("package").and_then(|package| package.as_str());
                let optional = value.get("optional").and_then(|optional| optional.as_bool());
                let name = package.unwrap_or(key).to_owned();
                found.push((kind.to_owned(), name, optional.unwrap_or(false)));
            }
        }
    }
    found
}

/// A manifest, and what it says for some platforms alone.
fn for_platforms(manifest: &Table) -> impl Iterator<Item = &Table> {
    let targets = manifest.get("target").and_then(|targets| targets.as_table());
    let platforms = targets.into_iter().flatten().filter_map(|(_, table)| table.as_table());
    [manifest].into_iter().chain(platforms)
}

#[cfg(test)]
mod tests {
    use super::{check_manifest, check_shipped};

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{rest}")
    }

    #[test]
    fn drawn_arrows_pass() {
        let text = manifest("hushtable-pir", "[dependencies]\nhushtable-prg.workspace = true\n");
        assert!(check_manifest("crates/pir", &text).is_empty());
        let tests = "[features]\ntest-sets = [\"hushtable-rlwe/test-sets\"]\n[dev-dependencies]\n\
                     hushtable-pir = { workspace = true, features = [\"test-sets\"] }";
        assert!(check_manifest("crates/pir", &manifest("hushtable-pir", tests)).is_empty());
        let measured = "[features]\nbench = [\"hushtable-mpc/bench\"]\n[dev-dependencies]\n\
                        hushtable-mpc = { workspace = true, features = [\"bench\"] }";
        assert!(check_manifest("crates/infer", &manifest("hushtable-infer", measured)).is_empty());
    }

    #[test]
    fn each_breach_is_found() {
        let cases = [
            ("crates/prg", "[dependencies]\nhushtable-table = \"1\"", "prg -> table"),
            ("crates/pir", "[dev-dependencies]\nhushtable-serve.workspace = true", "pir -> serve"),
            (
                "crates/table",
                "[target.'cfg(unix)'.build-dependencies]\nhushtable-prg = \"1\"",
                "not drawn",
            ),
            ("crates/rlwe", "[dependencies]\np = { package = \"hushtable-prg\" }", "rlwe -> prg"),
            ("crates/serve", "[dependencies]\nhushtable-gpu.workspace = true", "must be optional"),
            ("crates/pir", "[dependencies]\ntokio = \"1\"", "only serve has sockets"),
            ("crates/oram", "[dependencies]\ntonic.workspace = true", "only serve has sockets"),
            ("crates/novel", "", "no arrows are drawn"),
            (
                "crates/serve",
                "[dependencies]\nhushtable-pir = { path = \"p\", features = [\"test-sets\"] }",
                "is for dev-dependencies",
            ),
            ("crates/pir", "[features]\ndefault = [\"test-sets\"]", "turns on test-sets"),
            ("crates/pir", "[features]\nf = [\"hushtable-rlwe/test-sets\"]", "turns on test-sets"),
            (
                "crates/infer",
                "[features]\ndefault = [\"bench\"]\nbench = []",
                "default turns on bench",
            ),
            ("crates/serve", "[features]\nshares = [\"hushtable-infer?/bench\"]", "turns on bench"),
            (
                "crates/infer",
                "[dependencies]\nhushtable-mpc = { workspace = true, features = [\"bench\"] }",
                "is for dev-dependencies",
            ),
            (
                "crates/serve",
                "[target.'cfg(unix)'.dependencies]\nhushtable-infer = { path = \"p\", features = [\"bench\"] }",
                "is for dev-dependencies",
            ),
        ];
        for (folder, rest, expected) in cases {
            let name = folder.replace("crates/", "hushtable-");
            let found = check_manifest(folder, &manifest(&name, rest));
            assert_eq!(found.len(), 1, "{folder}: {found:?}");
            assert!(found[0].contains(expected), "{found:?}");
        }
    }

    #[test]
    fn the_name_and_the_lints_are_checked() {
        let found = check_manifest("crates/prg", "[package]\nname = \"prg\"");
        assert_eq!(found.len(), 2, "{found:?}");
        assert_eq!(check_manifest("crates/prg", "[package").len(), 1);
    }

    #[test]
    fn what_builds_what_is_shipped_turns_nothing_on() {
        let root = "[workspace.dependencies]\nhushtable-mpc = { path = \"p\" }";
        assert!(check_shipped("Cargo.toml", root).is_empty());
        let wheel = "[tool.maturin]\nstrip = true\nfeatures = [\"gpu\"]";
        assert!(check_shipped("pyproject.toml", wheel).is_empty());
        let make =
            "\tmaturin build --release \\\n\t    --out dist\n\tmaturin develop --features bench\n";
        assert!(check_shipped("Makefile", make).is_empty());
        for (file, text) in [
            (
                "Cargo.toml",
                "[workspace.dependencies]\nhushtable-mpc = { path = \"p\", features = [\"bench\"] }",
            ),
            ("pyproject.toml", "[tool.maturin]\nfeatures = [\"hushtable-python/bench\"]"),
            ("Makefile", "\tmaturin build --release \\\n\t    --features bench --out dist\n"),
            ("Containerfile", "RUN maturin build --release -F bench"),
        ] {
            assert_eq!(check_shipped(file, text).len(), 1, "{file}: {text}");
        }
        let all = check_shipped("pyproject.toml", "[tool.maturin]\nall-features = true");
        assert_eq!(all.len(), super::UNSHIPPED.len(), "{all:?}");
    }
}
