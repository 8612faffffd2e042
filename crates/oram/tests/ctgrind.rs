//! The optimised code under valgrind, with secrets marked as undefined: no branch and no address may
//! depend on one. The cases are in `examples/ctgrind`.
//!
//! It takes an optimised build and valgrind, so it runs by `make test-oblivious` (which sets
//! `HUSHTABLE_NEEDS_VALGRIND=1`: then a missing valgrind is a failure), or by
//! `cargo test --release -p hushtable-oram --test ctgrind` where valgrind is installed.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

#[path = "../../prg/tests/under_valgrind/mod.rs"]
mod under_valgrind;

#[test]
fn nothing_depends_on_a_secret() {
    if let Some(why) = under_valgrind::obstacle() {
        eprintln!("skipped: {why}; `make test-oblivious` checks it");
        return;
    }
    let (program, names) = under_valgrind::build();
    let planted = names.iter().filter(|name| name.starts_with('!')).count();
    assert!(names.len() >= 20 + planted && planted >= 7, "too few cases: {names:?}");
    let wrong = under_valgrind::run(&program, &names);
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}
