//! Each part of either party once, with its secrets marked, for valgrind to watch.
//!
//! `valgrind -q --error-exitcode=99 target/release/examples/ctgrind CASE` exits with 0 if no branch and no
//! address depended on a secret; `ctgrind list` names the cases, those that are planted to be caught behind
//! a `!`. `crates/mpc/tests/ctgrind.rs` runs them all. To add a case: a function in a file beside this one
//! and a line in [`CASES`]; see `crates/oram/examples/ctgrind`.

mod comparing;
mod garbling;
mod transfer;

use hushtable_prg::valgrind;
use std::process::ExitCode;

/// Cases that must be clean.
const CASES: &[(&str, fn())] = &[
    ("garble", garbling::garbles),
    ("evaluate", garbling::evaluates),
    ("select", garbling::selects),
    ("choices", garbling::chooses),
    ("labels", garbling::labels_of_a_seed),
    ("transfer-choices", transfer::choices),
    ("transfer-delta", transfer::delta),
    ("shares", transfer::shares),
    ("compare", comparing::compares),
    ("make-keys", comparing::makes),
];

/// Cases that must be caught: else the method, or the build, is broken.
const PLANTED: &[(&str, fn())] = &[
    ("select-branches", garbling::selects_by_branch),
    ("select-indexes", garbling::selects_by_address),
];

fn main() -> ExitCode {
    let name = std::env::args().nth(1).unwrap_or_default();
    if name == "list" {
        CASES.iter().for_each(|(name, _)| println!("{name}"));
        PLANTED.iter().for_each(|(name, _)| println!("!{name}"));
        return ExitCode::SUCCESS;
    }
    let Some((_, case)) = CASES.iter().chain(PLANTED).find(|(known, _)| *known == name) else {
        eprintln!("ctgrind: no case {name:?}; `ctgrind list` names them");
        return ExitCode::from(2);
    };
    if !valgrind::is_running() {
        eprintln!("ctgrind: not under valgrind, so nothing would be checked");
        return ExitCode::from(3);
    }
    case();
    ExitCode::SUCCESS
}
