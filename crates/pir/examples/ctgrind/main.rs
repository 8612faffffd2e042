//! Each part of a client, and a server's answers, once, with their secrets marked, for valgrind to watch;
//! and several times, with other secrets, for divisions.
//!
//! `valgrind -q --error-exitcode=99 target/release/examples/ctgrind CASE` exits with 0 if no branch
//! and no address depended on a secret. `ctgrind divisions CASE`, without valgrind, exits with 0 if the
//! same divisions of the same numbers are executed for all secrets, with 98 if not. `ctgrind list`
//! names the cases, those that are planted to be caught behind a `!` (by valgrind) or a `/` (by their
//! divisions). `crates/pir/tests/ctgrind.rs` runs them all.
//!
//! To add a case: a function that takes the number of a secret, prepares, and returns what is watched;
//! that returns what checks the results (a case that did nothing would pass).

mod answer;
mod bag;
mod ckks;
mod onion;
mod pair;
mod planted;
mod secret;

use std::process::ExitCode;

use hushtable_prg::divisions::{self, Division};
use hushtable_prg::valgrind;

/// What checks a case's results.
type Check = Box<dyn FnOnce()>;
/// What is watched.
type Work = Box<dyn FnOnce() -> Check>;
/// From the number of a secret.
type Case = fn(u64) -> Work;

/// Cases that must be clean.
const CASES: &[(&str, Case)] = &[
    ("pair-keys", pair::keys),
    ("pair-answers", answer::pair),
    ("bag-request", bag::request),
    ("onion-keys", onion::keys),
    ("onion-query", onion::query),
    ("onion-decode", onion::decode),
    ("ckks-encrypt", ckks::encrypt),
    ("ckks-decrypt", ckks::decrypt),
    ("ckks-raise-keys", ckks::raise_keys),
];

/// Cases that valgrind must catch: else the method, or the build, is broken.
const PLANTED: &[(&str, Case)] = &[
    ("branch", planted::branches),
    ("index", planted::indexes),
    ("plan-vartime", planted::plans),
    ("decode-reads-one-row", planted::reads_one_row),
];

/// Cases whose divisions must be caught.
const DIVIDED: &[(&str, Case)] =
    &[("division", planted::divides), ("remainder", planted::divides_bytes)];

/// Secrets that divisions are compared between.
const SECRETS: u64 = 2;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let case = |name: &str| {
        let mut all = CASES.iter().chain(PLANTED).chain(DIVIDED);
        all.find(|(known, _)| *known == name).map(|(_, case)| *case)
    };
    match arguments[..] {
        ["list"] => {
            CASES.iter().for_each(|(name, _)| println!("{name}"));
            PLANTED.iter().for_each(|(name, _)| println!("!{name}"));
            DIVIDED.iter().for_each(|(name, _)| println!("/{name}"));
            ExitCode::SUCCESS
        }
        ["divisions", name] if case(name).is_some() => {
            compare_divisions(case(name).expect("known"))
        }
        [name] if case(name).is_some() => {
            if !valgrind::is_running() {
                eprintln!("ctgrind: not under valgrind, so nothing would be checked");
                return ExitCode::from(3);
            }
            case(name).expect("known")(1)()();
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("ctgrind: no case {arguments:?}; `ctgrind list` names them");
            ExitCode::from(2)
        }
    }
}

fn compare_divisions(case: Case) -> ExitCode {
    // What is made at first use is made before.
    case(0)()();
    let mut first: Option<Vec<Division>> = None;
    for secret in 0..SECRETS {
        let work = case(secret);
        let mut check: Option<Check> = None;
        let Some(found) = divisions::during(|| check = Some(work())) else {
            eprintln!("ctgrind: this machine does not trap, so nothing would be checked");
            return ExitCode::from(3);
        };
        check.expect("it ran")();
        let Some(first) = &first else {
            first = Some(found);
            continue;
        };
        if *first != found {
            let pair = first.iter().zip(&found).find(|(one, other)| one != other);
            eprintln!(
                "secrets 0 and {secret}: {} and {} divisions; the first that differ: {pair:x?} \
                 (`addr2line -i -f -e` says where)",
                first.len(),
                found.len(),
            );
            return ExitCode::from(98);
        }
    }
    println!("{} divisions, the same for {SECRETS} secrets", first.map_or(0, |first| first.len()));
    ExitCode::SUCCESS
}
