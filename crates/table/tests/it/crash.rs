//! Builds that are killed, and builds that race: the bundle at the path is always a whole one.

use std::collections::HashSet;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use hushtable_table::{BuildSpec, Source, Table, Version, build, verify};

const ROLE: &str = "HUSHTABLE_TABLE_CRASH_TEST";

/// A `.npy` of `rows` × 64 float32, all of one value.
fn write_npy(path: &Path, rows: usize, value: f32) -> Source {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, 64)}}");
    let mut bytes = b"\x93NUMPY\x01\x00".to_vec();
    bytes.extend((header.len() as u16).to_le_bytes());
    bytes.extend(header.as_bytes());
    for _ in 0..rows * 64 {
        bytes.extend(value.to_le_bytes());
    }
    fs::write(path, bytes).unwrap();
    Source::Npy { path: path.to_owned() }
}

fn spec() -> BuildSpec {
    BuildSpec { name: "t".to_owned(), ..BuildSpec::default() }
}

/// Two sources, the version of each, and a bundle built from the first.
struct Place {
    folder: tempfile::TempDir,
    sources: [Source; 2],
    versions: [Version; 2],
}

impl Place {
    fn new(rows: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let old = write_npy(&folder.path().join("old.npy"), rows, 1.5);
        let new = write_npy(&folder.path().join("new.npy"), rows + 1, 2.5);
        let target = folder.path().join("t");
        let version = |source| build(source, &spec(), &target, &mut |_, _| {}).unwrap().version();
        let versions = [version(&new), version(&old)];
        let versions = [versions[1], versions[0]];
        Self { folder, sources: [old, new], versions }
    }

    fn target(&self) -> PathBuf {
        self.folder.path().join("t")
    }

    /// Asserts that the bundle is whole, and says which of the two it is.
    fn standing(&self) -> usize {
        let report = verify(&self.target(), &mut |_, _| {}).unwrap();
        assert!(report.ok, "{report:?}");
        let version = Table::open(&self.target()).unwrap().version();
        self.versions.iter().position(|it| *it == version).expect("one of the two sources")
    }

    /// What lies in the folder beside the two sources and the bundle.
    fn leftover_count(&self) -> usize {
        fs::read_dir(self.folder.path()).unwrap().count() - 3
    }

    /// Starts this test again, in a process of its own, as the builder.
    fn start_builder(&self, test: &str, role: &str) -> Child {
        Command::new(std::env::current_exe().unwrap())
            .args([&format!("crash::{test}"), "--exact", "--nocapture"])
            .env(ROLE, role)
            .env("HUSHTABLE_TABLE_CRASH_FOLDER", self.folder.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap()
    }
}

/// The builder's side: `None` in the test itself.
fn builder_role() -> Option<(String, PathBuf)> {
    let role = std::env::var(ROLE).ok()?;
    Some((role, PathBuf::from(std::env::var_os("HUSHTABLE_TABLE_CRASH_FOLDER")?)))
}

#[test]
fn a_build_killed_half_way_leaves_the_old_bundle() {
    if let Some((role, folder)) = builder_role() {
        // Waits for the kill at the step that the test wants.
        let source = Source::Npy { path: folder.join("new.npy") };
        let mut left: usize = role.parse().unwrap();
        let mut step = |done: u64, all: u64| {
            println!("at {done} of {all}");
            left -= usize::from(all == 12_701);
            if left == 0 {
                loop {
                    thread::park();
                }
            }
        };
        build(&source, &spec(), &folder.join("t"), &mut step).unwrap();
        return;
    }
    // 3.1 MiB: at 0, three whole chunks, and the rest.
    let place = Place::new(12_700);
    for progress_count in 1..=5 {
        let test = "a_build_killed_half_way_leaves_the_old_bundle";
        let mut builder = place.start_builder(test, &progress_count.to_string());
        let lines = BufReader::new(builder.stdout.take().unwrap()).lines();
        let seen = lines.map(Result::unwrap).filter(|line| line.contains(" of 12701"));
        assert_eq!(seen.take(progress_count).count(), progress_count);
        builder.kill().unwrap();
        assert!(!builder.wait().unwrap().success());
        assert_eq!(place.standing(), 0, "killed at step {progress_count}");
        // The killed build's folder is there until the next build: only one at a time.
        assert_eq!(place.leftover_count(), 1);
    }
    build(&place.sources[1], &spec(), &place.target(), &mut |_, _| {}).unwrap();
    assert_eq!(place.standing(), 1);
    assert_eq!(place.leftover_count(), 0);
}

#[test]
fn a_build_killed_at_any_moment_leaves_a_whole_bundle() {
    if let Some((role, folder)) = builder_role() {
        // Replaces the bundle without end: the kill lands anywhere, the swap included.
        assert_eq!(role, "endless");
        loop {
            for name in ["new.npy", "old.npy"] {
                let source = Source::Npy { path: folder.join(name) };
                build(&source, &spec(), &folder.join("t"), &mut |_, _| {}).unwrap();
                println!("built");
            }
        }
    }
    let place = Place::new(40);
    let mut standing = HashSet::new();
    for round in 0..40_u64 {
        let mut builder =
            place.start_builder("a_build_killed_at_any_moment_leaves_a_whole_bundle", "endless");
        let lines = BufReader::new(builder.stdout.take().unwrap()).lines();
        let built = lines.map(Result::unwrap).filter(|line| line.contains("built"));
        assert_eq!(built.take(1 + round as usize % 2).count(), 1 + round as usize % 2);
        // Steps of a prime number of microseconds, so that no phase of a build is favoured.
        thread::sleep(Duration::from_micros(round * 211 % 5_000));
        builder.kill().unwrap();
        builder.wait().unwrap();
        standing.insert(place.standing());
        assert!(place.leftover_count() <= 1);
    }
    assert_eq!(standing.len(), 2, "both bundles stood at some kill");
    build(&place.sources[1], &spec(), &place.target(), &mut |_, _| {}).unwrap();
    assert_eq!(place.leftover_count(), 0);
}

#[test]
fn builds_that_race_leave_one_whole_bundle_and_readers_never_miss() {
    let place = Place::new(300);
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    let mut seen = HashSet::new();
                    while !done.load(Ordering::Relaxed) {
                        seen.insert(place.standing());
                    }
                    seen.len()
                })
            })
            .collect();
        let builders: Vec<_> = (0..4)
            .map(|i| {
                let place = &place;
                scope.spawn(move || {
                    for round in 0..15 {
                        let source = &place.sources[(i + round) % 2];
                        build(source, &spec(), &place.target(), &mut |_, _| {}).unwrap();
                    }
                })
            })
            .collect();
        for builder in builders {
            builder.join().unwrap();
        }
        done.store(true, Ordering::Relaxed);
        for reader in readers {
            assert!(reader.join().unwrap() >= 1);
        }
    });
    place.standing();
    assert_eq!(place.leftover_count(), 0);
}
