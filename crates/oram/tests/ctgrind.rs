//! The optimised code under valgrind, with secrets marked as undefined: no branch and no address may
//! depend on one. The cases are in `examples/ctgrind`.
//!
//! It takes an optimised build and valgrind, so it runs by `make test-oblivious` (which sets
//! `HUSHTABLE_NEEDS_VALGRIND=1`: then a missing valgrind is a failure), or by
//! `cargo test --release -p hushtable-oram --test ctgrind` where valgrind is installed.
#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What valgrind exits with if it has something to report; no panic (101) and no case exits so.
const REPORTED: i32 = 99;

/// Why nothing can be checked here, if so.
fn obstacle() -> Option<&'static str> {
    let version = Command::new("valgrind").arg("--version").output();
    let is_installed = version.is_ok_and(|output| output.status.success());
    if std::env::var("HUSHTABLE_NEEDS_VALGRIND").is_ok_and(|value| value == "1") {
        assert!(is_installed, "valgrind is missing: `make setup` installs it where it may");
        return None;
    }
    if cfg!(debug_assertions) {
        return Some("this build is not optimised, and it is the optimiser that makes branches");
    }
    (!is_installed).then_some("valgrind is not installed")
}

/// Builds the example as it is shipped, optimised, and says where it is. Cargo lets go of the target
/// folder before it runs tests.
fn build() -> PathBuf {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--message-format=json", "--example", "ctgrind"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "ctgrind")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo says where it put the example")
}

fn under_valgrind(program: &Path, case: &str) -> Output {
    Command::new("valgrind")
        .args(["-q", "--error-limit=no", &format!("--error-exitcode={REPORTED}")])
        .arg(program)
        .arg(case)
        .output()
        .expect("valgrind runs")
}

#[test]
fn nothing_depends_on_a_secret() {
    if let Some(why) = obstacle() {
        eprintln!("skipped: {why}; `make test-oblivious` checks it");
        return;
    }
    let program = build();
    let list = Command::new(&program).arg("list").output().expect("the example runs").stdout;
    let list = String::from_utf8(list).expect("names");
    let (planted, clean): (Vec<&str>, Vec<&str>) = list.lines().partition(|n| n.starts_with('!'));
    assert!(clean.len() >= 19 && planted.len() >= 7, "too few cases: {list}");

    let mut wrong = Vec::new();
    for name in clean {
        let output = under_valgrind(&program, name);
        if output.status.code() != Some(0) {
            let report = String::from_utf8_lossy(&output.stderr);
            let head: Vec<&str> = report.lines().take(40).collect();
            wrong.push(format!("{name}: {}\n{}", output.status, head.join("\n")));
        }
    }
    for name in planted {
        let output = under_valgrind(&program, name.trim_start_matches('!'));
        if output.status.code() != Some(REPORTED) {
            wrong.push(format!("{name}: this leak was not caught: {}", output.status));
        }
    }
    assert!(wrong.is_empty(), "\n{}", wrong.join("\n\n"));
}
