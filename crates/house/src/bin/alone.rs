//! Runs one test's process and holds it to leave nothing behind: `alone TEST_BINARY ARGUMENTS`
//!
//! The test gets a folder of its own for temporary files. When it has ended, no process that it started may
//! run (a port that is held is a process that runs), and the folder must be empty. Otherwise the test has
//! failed, and what it left is named and removed. `make test-rust` has cargo run every test through it.
#![forbid(unsafe_code)]

use std::ffi::OsString;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, ExitStatus};
use std::time::{Duration, Instant};
use std::{env, fs, io, process, thread};

use rustix::process::{Pid, Signal, WaitOptions, kill_process, set_child_subreaper, wait};

/// What a test that left something behind ends with.
const LEFT: u8 = 97;
/// How long children may take to go, in ms, where not as long as `GRACE`.
const GRACE_VARIABLE: &str = "HUSHTABLE_ALONE_GRACE_MS";
/// Children that were killed take a moment to go, on a machine that does other work a long one.
const GRACE: Duration = Duration::from_secs(20);

fn main() -> ExitCode {
    let mut arguments = env::args_os().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("alone: expected a test's program and its arguments");
        return ExitCode::from(2);
    };
    match run(program, arguments.collect()) {
        Ok(code) => code,
        Err(error) => {
            eprintln!("alone: {error}");
            ExitCode::from(2)
        }
    }
}

fn run(program: OsString, arguments: Vec<OsString>) -> io::Result<ExitCode> {
    // What a test's child starts, and leaves when it ends, is ours from then on.
    set_child_subreaper(Some(rustix::process::getpid()))?;
    let folder = folder_of(&env::temp_dir())?;
    // What a test would leave in this machine's own state is left in the folder instead, where it is found.
    let mut command = Command::new(program);
    command.args(arguments).env("TMPDIR", &folder).env("XDG_STATE_HOME", &folder);
    let status = command.status();
    let processes = processes_left()?;
    let files = files_left(&folder)?;
    fs::remove_dir_all(&folder)?;
    let code = code_of(status?);
    if processes.is_empty() && files.is_empty() {
        return Ok(ExitCode::from(code));
    }
    for process in &processes {
        eprintln!("alone: this test left a process behind: {process}");
    }
    for file in &files {
        eprintln!("alone: this test left a file behind: {}", file.display());
    }
    Ok(ExitCode::from(if code == 0 { LEFT } else { code }))
}

/// A folder that was not there: a run that was killed may have left one of the same process number.
fn folder_of(all: &Path) -> io::Result<PathBuf> {
    let named = |at: u32| all.join(format!("hushtable-test-{}-{at}", process::id()));
    let made = (0..1000).map(named).find_map(|folder| match fs::create_dir(&folder) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => None,
        made => Some(made.map(|()| folder)),
    });
    made.unwrap_or_else(|| Err(io::ErrorKind::AlreadyExists.into()))
}

fn code_of(status: ExitStatus) -> u8 {
    let killed = || 128 + status.signal().unwrap_or_default();
    status.code().unwrap_or_else(killed) as u8
}

/// The command lines of children that still run; they are killed.
fn processes_left() -> io::Result<Vec<String>> {
    let given = env::var(GRACE_VARIABLE).ok().and_then(|text| text.parse().ok());
    let by = Instant::now() + given.map_or(GRACE, Duration::from_millis);
    loop {
        match wait(WaitOptions::NOHANG) {
            Ok(Some(_)) => {}
            Ok(None) if Instant::now() < by => thread::sleep(Duration::from_millis(5)),
            Ok(None) => break,
            Err(rustix::io::Errno::CHILD) => return Ok(Vec::new()),
            Err(error) => return Err(error.into()),
        }
    }
    let children = fs::read_to_string(format!("/proc/self/task/{}/children", process::id()))?;
    let mut left = Vec::new();
    for number in children.split_whitespace() {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        let words: Vec<_> = line.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        left.push(format!("{number} {}", words.join(" ")));
        if let Some(pid) = number.parse().ok().and_then(Pid::from_raw) {
            let _ = kill_process(pid, Signal::KILL);
        }
    }
    Ok(left)
}

fn files_left(folder: &Path) -> io::Result<Vec<PathBuf>> {
    fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect()
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::{GRACE_VARIABLE, LEFT, code_of, folder_of};

    /// The program itself, over a shell's command line, and what it says.
    fn alone(line: &str) -> (u8, String) {
        // Beside the program of these tests: target/PROFILE/deps/alone-HASH.
        let program = std::env::current_exe().unwrap();
        let program = program.ancestors().nth(2).unwrap().join("alone");
        let mut command = Command::new(program);
        if line.contains("987") {
            command.env(GRACE_VARIABLE, "100");
        }
        let output = command.args(["sh", "-c", line]).output().expect("it is built");
        (code_of(output.status), String::from_utf8(output.stderr).unwrap())
    }

    #[test]
    fn a_test_that_leaves_nothing_ends_as_it_ends() {
        assert_eq!(alone("exit 0"), (0, String::new()));
        assert_eq!(alone("exit 3"), (3, String::new()));
        assert_eq!(alone("kill -9 $$").0, 137);
        assert_eq!(alone("sleep 0.2 &"), (0, String::new()));
    }

    #[test]
    fn a_folder_that_a_killed_run_left_is_passed_over() {
        let all = std::env::temp_dir();
        let (left, own) = (folder_of(&all).unwrap(), folder_of(&all).unwrap());
        assert_ne!(left, own);
        assert!(left.is_dir() && own.is_dir());
        [left, own].iter().for_each(|folder| std::fs::remove_dir(folder).unwrap());
    }

    #[test]
    fn a_file_that_is_left_is_named() {
        let (code, said) = alone("touch \"$TMPDIR/forgotten\"");
        assert_eq!(code, LEFT);
        assert!(said.contains("left a file behind") && said.contains("/forgotten"), "{said}");
    }

    #[test]
    fn a_process_that_is_left_is_named_and_killed() {
        // Not a child of the shell any more: what its parent left is found too.
        let (code, said) = alone("setsid sh -c 'exec sleep 987' >/dev/null 2>&1 &");
        assert_eq!(code, LEFT);
        assert!(said.contains("left a process behind") && said.contains("sleep 987"), "{said}");
    }
}
