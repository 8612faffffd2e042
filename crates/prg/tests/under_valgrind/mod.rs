//! Builds a crate's example `ctgrind`, optimised, and runs its cases under valgrind. Tests of several
//! crates include this file.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

/// What valgrind exits with if it has something to report; no panic (101) and no case exits so.
const REPORTED: i32 = 99;

/// Why nothing can be checked here, if so.
pub fn obstacle() -> Option<&'static str> {
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

/// The example of the crate whose test this is, and the names of its cases. Cargo lets go of the
/// target folder before it runs tests.
pub fn build() -> (PathBuf, Vec<String>) {
    let output = Command::new(env!("CARGO"))
        .args(["build", "--release", "--quiet", "--message-format=json", "--example", "ctgrind"])
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .output()
        .expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let program = String::from_utf8_lossy(&output.stdout)
        .lines()
        .filter_map(|line| serde_json::from_str::<serde_json::Value>(line).ok())
        .filter(|message| message["target"]["name"] == "ctgrind")
        .find_map(|message| message["executable"].as_str().map(PathBuf::from))
        .expect("cargo says where it put the example");
    let list = Command::new(&program).arg("list").output().expect("the example runs").stdout;
    let list = String::from_utf8(list).expect("names");
    (program, list.lines().map(str::to_owned).collect())
}

/// What a run said, up to a length.
pub fn head(output: &Output) -> String {
    let report = String::from_utf8_lossy(&output.stderr);
    report.lines().take(40).collect::<Vec<_>>().join("\n")
}

/// Runs every case; returns what is wrong: a report on a case, or none on a planted leak (`!name`).
pub fn run(program: &Path, names: &[String]) -> Vec<String> {
    let wrong_of = |name: &String| {
        let (is_planted, case) = match name.strip_prefix('!') {
            Some(case) => (true, case),
            None => (false, name.as_str()),
        };
        let output = Command::new("valgrind")
            .args(["-q", "--error-limit=no", &format!("--error-exitcode={REPORTED}")])
            .arg(program)
            .arg(case)
            .output()
            .expect("valgrind runs");
        match (output.status.code(), is_planted) {
            (Some(0), false) | (Some(REPORTED), true) => None,
            (_, false) => Some(format!("{name}: {}\n{}", output.status, head(&output))),
            (_, true) => Some(format!("{name}: this leak was not caught: {}", output.status)),
        }
    };
    side_by_side(names, wrong_of)
}

/// What `wrong_of` says of `all`, of which as many run at once as there are processors: under valgrind a program
/// has one of them.
pub fn side_by_side<T: Sync>(
    all: &[T],
    wrong_of: impl Fn(&T) -> Option<String> + Sync,
) -> Vec<String> {
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = wrong_of(one);
                    wrong.lock().expect("nobody panicked").extend(found);
                }
            });
        }
    });
    wrong.into_inner().expect("nobody panicked")
}
