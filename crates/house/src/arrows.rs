//! Which crate may use which: the arrows of the architecture, held against every Cargo.toml.

use toml::Table;

/// Folder, and the folders it may depend on. What is not here is forbidden.
const ARROWS: [(&str, &[&str]); 13] = [
    ("gpu", &["pir", "prg", "ring", "rlwe"]),
    ("house", &[]),
    ("infer", &["mpc", "rlwe", "table"]),
    ("mpc", &["prg", "rlwe"]),
    ("oram", &["prg", "table"]),
    ("pir", &["prg", "rlwe", "table"]),
    ("prg", &[]),
    ("python", &["infer", "mpc", "oram", "pir", "prg", "ring", "rlwe", "serve", "table", "gpu"]),
    ("ring", &["prg"]),
    ("rlwe", &["ring"]),
    ("serve", &["gpu", "infer", "oram", "pir", "table"]),
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

/// What in the manifest of the crate in `folder` ("crates/pir", "python") breaks a rule: its name,
/// an arrow that is not drawn, a provider that is not behind a feature, sockets outside `serve`.
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

fn inherits_lints(manifest: &Table) -> bool {
    let lints = manifest.get("lints").and_then(|lints| lints.get("workspace"));
    lints.and_then(|lints| lints.as_bool()) == Some(true)
}

/// (section, package, optional) of every dependency of any kind, for any platform.
fn dependencies(manifest: &Table) -> Vec<(String, String, bool)> {
    const KINDS: [&str; 3] = ["dependencies", "dev-dependencies", "build-dependencies"];
    let targets = manifest.get("target").and_then(|targets| targets.as_table());
    let platforms = targets.into_iter().flatten().filter_map(|(_, table)| table.as_table());
    let mut found = Vec::new();
    for table in [manifest].into_iter().chain(platforms) {
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

#[cfg(test)]
mod tests {
    use super::check_manifest;

    fn manifest(name: &str, rest: &str) -> String {
        format!("[package]\nname = \"{name}\"\n[lints]\nworkspace = true\n{rest}")
    }

    #[test]
    fn drawn_arrows_pass() {
        let text = manifest("hushtable-pir", "[dependencies]\nhushtable-prg.workspace = true\n");
        assert!(check_manifest("crates/pir", &text).is_empty());
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
}
