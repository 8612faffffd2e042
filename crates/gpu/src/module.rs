//! The kernels' sources, and which modules are made of them.
//!
//! A module is a source of `kernels/` and what is defined for it. Headers are named from `kernels/`
//! on, as in `#include "prg/chacha.cuh"`.

pub use crate::listed::Listed;
use crate::{Error, ModuleSpec, bins, expand, plan};

macro_rules! sources {
    ($($name:literal),* $(,)?) => {
        /// Every file of `kernels/`, by its name there. A test holds this to the folder.
        const SOURCES: &[(&str, &str)] =
            &[$(($name, include_str!(concat!("../kernels/", $name)))),*];
    };
}

sources![
    "ablation.cu",
    "bins.cu",
    "chunks.cuh",
    "cooperative.cu",
    "expand.cu",
    "finish.cu",
    "fused.cu",
    "layout.cuh",
    "multiply.cu",
    "platform.cuh",
    "prg/aes.cuh",
    "prg/chacha.cuh",
    "prg/highway.cuh",
    "prg/salsa.cuh",
    "prg/sha256.cuh",
    "prg/siphash.cuh",
    "prg_check.cu",
    "probe.cu",
    "product.cuh",
    "tensor.cu",
    "tree.cuh",
];

/// Sources that only tests of devices run.
#[cfg(any(test, feature = "shim"))]
const CHECKS: &[(&str, &str)] = &[("check.cu", include_str!("../shim/check.cu"))];
#[cfg(not(any(test, feature = "shim")))]
const CHECKS: &[(&str, &str)] = &[];

/// The header that the shim alone defines; `kernels/` has no such file.
const SHIM_HEADER: &str = "shim.h";

/// Every module that an engine may ask for. Tests compile each for every architecture.
pub fn all() -> Vec<Listed> {
    let mut all = vec![Listed {
        spec: ModuleSpec { source: "probe.cu", defines: vec![] },
        spill_free: &["probe_read", "probe_alu", "probe_mma"],
    }];
    all.extend(expand::modules());
    all.extend(plan::modules());
    all.extend(bins::modules());
    all
}

/// The text of a file of `kernels/`.
pub(crate) fn text(name: &str) -> Option<&'static str> {
    SOURCES.iter().chain(CHECKS).find(|(source, _)| *source == name).map(|(_, text)| *text)
}

/// A source and all that it includes, headers of headers too: the source first, the rest by name.
///
/// # Errors
/// [`Error::Compile`] for a name that is not in `kernels/`.
pub(crate) fn files(source: &'static str) -> Result<Vec<(&'static str, &'static str)>, Error> {
    let mut found: Vec<(&'static str, &'static str)> = Vec::new();
    let mut wanted = vec![source];
    while let Some(name) = wanted.pop() {
        if found.iter().any(|(known, _)| *known == name) {
            continue;
        }
        let text = text(name).ok_or_else(|| Error::Compile {
            module: source,
            target: "any target".to_owned(),
            log: format!("kernels/{name} is not among the crate's sources"),
        })?;
        found.push((name, text));
        wanted.extend(included(text).filter(|header| *header != SHIM_HEADER));
    }
    found[1..].sort_unstable();
    Ok(found)
}

/// The files that a text includes in quotes.
fn included(text: &'static str) -> impl Iterator<Item = &'static str> {
    text.lines().filter_map(|line| {
        let directive = line.trim_start().strip_prefix('#')?.trim_start();
        let name = directive.strip_prefix("include")?.trim_start().strip_prefix('"')?;
        name.split_once('"').map(|(name, _)| name)
    })
}

/// Names what compiling `spec` by `how` gives: the same sources, macros and `how` are the same name,
/// and nothing else is.
pub(crate) fn hash(spec: &ModuleSpec, how: &[&str]) -> Result<blake3::Hash, Error> {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable-gpu module v1");
    let mut part = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    for (name, text) in files(spec.source)? {
        part(name.as_bytes());
        part(text.as_bytes());
    }
    part(&[]);
    for (name, value) in &spec.defines {
        part(name.as_bytes());
        part(&value.to_le_bytes());
    }
    part(&[]);
    for word in how {
        part(word.as_bytes());
    }
    Ok(hasher.finalize())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::{SOURCES, all, files, hash, included};
    use crate::ModuleSpec;

    fn on_disk(folder: &Path, prefix: &str, names: &mut BTreeSet<String>) {
        for entry in std::fs::read_dir(folder).expect("the folder") {
            let entry = entry.expect("an entry");
            let name = format!("{prefix}{}", entry.file_name().to_str().expect("a name"));
            if entry.path().is_dir() {
                on_disk(&entry.path(), &format!("{name}/"), names);
            } else {
                names.insert(name);
            }
        }
    }

    #[test]
    fn every_kernel_file_is_a_source() {
        let mut names = BTreeSet::new();
        on_disk(&Path::new(env!("CARGO_MANIFEST_DIR")).join("kernels"), "", &mut names);
        let known: BTreeSet<String> = SOURCES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(known, names);
        for (name, _) in SOURCES.iter().filter(|(name, _)| name.ends_with(".cu")) {
            assert!(all().iter().any(|listed| listed.spec.source == *name), "{name} is not listed");
        }
    }

    #[test]
    fn headers_of_headers_come_along_once() {
        let names: Vec<_> =
            files("probe.cu").expect("known").into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, ["probe.cu", "platform.cuh"]);
        let text = "#include <a>\n # include \"b/c.cuh\" // why\nint include;\n#include\"d\"";
        assert_eq!(included(text).collect::<Vec<_>>(), ["b/c.cuh", "d"]);
        let error = files("no.cu").expect_err("no such source");
        assert!(error.to_string().contains("kernels/no.cu"), "{error}");
    }

    #[test]
    fn a_name_depends_on_everything() {
        let spec = |defines: &[(&'static str, u32)]| ModuleSpec {
            source: "probe.cu",
            defines: defines.to_vec(),
        };
        let name = |defines: &[_], how: &[&str]| hash(&spec(defines), how).expect("known");
        let names = [
            name(&[], &[]),
            name(&[("A", 1)], &[]),
            name(&[("A", 2)], &[]),
            name(&[("B", 1)], &[]),
            name(&[("A", 1), ("B", 1)], &[]),
            name(&[], &["sm_80"]),
            name(&[], &["sm_80", "x"]),
            name(&[], &["sm_80x"]),
        ];
        for (i, one) in names.iter().enumerate() {
            assert!(names[..i].iter().all(|other| other != one), "{i}");
        }
        assert_eq!(name(&[("A", 1)], &["x"]), name(&[("A", 1)], &["x"]));
    }
}
