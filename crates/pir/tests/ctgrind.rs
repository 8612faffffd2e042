//! The client's optimised code, and a server's answers, with their secrets marked: no branch and no
//! address may depend on one (under valgrind), and no division (by its operands, for several secrets).
//! The cases are in `examples/ctgrind`.
//!
//! It takes an optimised build and valgrind, so it runs by `make test-oblivious` (which sets
//! `HUSHTABLE_NEEDS_VALGRIND=1`: then a missing valgrind is a failure), or by
//! `cargo test --release -p hushtable-pir --test ctgrind` where valgrind is installed.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "../../prg/tests/under_valgrind/mod.rs"]
mod under_valgrind;

use std::process::Command;

/// What the example exits with where the operands of a division depend on a secret.
const DIVIDED: i32 = 98;

/// The tiers of kernels by which `HUSHTABLE_ISA` caps detection.
const ISAS: [&str; 3] = ["portable", "avx2", "avx512"];

#[test]
fn nothing_that_a_client_does_depends_on_a_secret() {
    if let Some(why) = under_valgrind::obstacle() {
        eprintln!("skipped: {why}; `make test-oblivious` checks it");
        return;
    }
    let (program, names) = under_valgrind::build();
    let (divisions, names): (Vec<_>, Vec<_>) = names.into_iter().partition(|n| n.starts_with('/'));
    let planted = names.iter().filter(|name| name.starts_with('!')).count();
    assert!(names.len() >= 5 + planted && planted >= 4 && !divisions.is_empty(), "{names:?}");
    let mut wrong = under_valgrind::run(&program, &names);

    // A client on another machine runs other kernels: each tier is looked at that this one can run.
    let divided = |isa: &str, case: &str| {
        let mut run = Command::new(&program);
        run.args(["divisions", case]).env("HUSHTABLE_ISA", isa);
        run.output().expect("the example runs")
    };
    // What makes keys, sampling and encryption, makes queries too, in a tenth of the steps.
    let is_stepped = |name: &&String| !name.starts_with('!') && *name != "onion-keys";
    let stepped = names.iter().filter(is_stepped);
    let cases: Vec<_> = stepped.flat_map(|name| ISAS.map(|isa| (isa, name))).collect();
    wrong.extend(under_valgrind::side_by_side(&cases, |(isa, name)| {
        let output = divided(isa, name);
        let said = under_valgrind::head(&output);
        (output.status.code() != Some(0))
            .then(|| format!("divisions {name} ({isa}): {}\n{said}", output.status))
    }));
    for name in &divisions {
        let output = divided("portable", name.trim_start_matches('/'));
        if output.status.code() != Some(DIVIDED) {
            wrong.push(format!("{name}: this leak was not caught: {}", output.status));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}
