//! Each part of a party once, with its secrets marked, for valgrind to watch.
//!
//! `valgrind -q --error-exitcode=99 target/release/examples/ctgrind CASE` exits with 0 if no branch
//! and no address depended on a secret. `ctgrind list` names the cases, those that are planted to be
//! caught behind a `!`. `crates/mpc/tests/ctgrind.rs` runs them all.
//!
//! To add a case: a function that marks its secrets, works, and checks the results (a case that did
//! nothing would pass).

mod garble;
mod planted;
mod transfer;

use std::process::ExitCode;

use hushtable_prg::valgrind;

/// A case by its name.
type Case = (&'static str, fn());

/// Cases that must be clean.
const CASES: &[Case] = &[
    ("transfer-choices", transfer::choices),
    ("transfer-delta", transfer::delta),
    ("shares", transfer::shares),
    ("garble-select", garble::select),
];

/// Cases that valgrind must catch: else the method, or the build, is broken.
const PLANTED: &[Case] = &[
    ("select-by-branch", planted::selects_by_branch),
    ("select-by-address", planted::selects_by_address),
];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let case = |name: &str| CASES.iter().chain(PLANTED).find(|(known, _)| *known == name);
    match arguments[..] {
        ["list"] => {
            CASES.iter().for_each(|(name, _)| println!("{name}"));
            PLANTED.iter().for_each(|(name, _)| println!("!{name}"));
            ExitCode::SUCCESS
        }
        [name] if case(name).is_some() => {
            if !valgrind::is_running() {
                eprintln!("ctgrind: not under valgrind, so nothing would be checked");
                return ExitCode::from(3);
            }
            let (_, run) = case(name).expect("known");
            run();
            ExitCode::SUCCESS
        }
        _ => {
            eprintln!("ctgrind: no case {arguments:?}; `ctgrind list` names them");
            ExitCode::from(2)
        }
    }
}
