//! Each oblivious part once, with its secrets marked, for valgrind to watch.
//!
//! `valgrind -q --error-exitcode=99 target/release/examples/ctgrind CASE` exits with 0 if no branch
//! and no address depended on a secret; `ctgrind list` names the cases, those that are planted to be
//! caught behind a `!`. `crates/oram/tests/ctgrind.rs` runs them all.
//!
//! To add a case: a file beside this one with a function that marks its secrets
//! ([`valgrind::mark_secret`]), runs the code, marks the results as public and checks them (a case
//! that did nothing would pass), and a line in [`CASES`]. What the protocol itself reveals on the way
//! must be declassified by the code under test, not here. Sizes should be small: memcheck is some
//! fifty times slower.

mod aggregate;
mod blocks;
mod fdp;
mod memory;
mod planted;
mod raw;
mod round;
mod secret;
mod union;
mod wire;

use hushtable_prg::valgrind;
use std::process::ExitCode;

/// Cases that must be clean.
const CASES: &[(&str, fn())] = &[
    ("mask", blocks::masks),
    ("sort", blocks::sorts),
    ("compact", blocks::compacts),
    ("distribute", blocks::distributes),
    ("union", union::unites),
    ("keep", union::keeps),
    ("keep-unread", union::keeps_unread),
    ("scan", union::scans),
    ("memory", memory::accesses),
    ("position", memory::exchanges),
    ("buffer", memory::buffers),
    ("eviction", raw::evicts),
    ("fetch", raw::fetches),
    ("write", raw::writes),
    ("recover", raw::recovers),
    ("sampling", fdp::samples),
    ("aggregate", aggregate::aggregates),
    ("round", round::rounds),
    ("settle", round::settles),
    ("wire", wire::messages),
];

/// Cases that must be caught: else the method, or the build, is broken.
const PLANTED: &[(&str, fn())] = &[
    ("branch", planted::branches),
    ("index", planted::indexes),
    ("sort-vartime", planted::sorts),
    ("declassified-late", planted::declassifies_late),
    ("eviction-skips-dummies", planted::evicts_blocks_only),
    ("fetch-stops-when-found", planted::stops_when_found),
    ("sampling-searches", planted::searches),
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
