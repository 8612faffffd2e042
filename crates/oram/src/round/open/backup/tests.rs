//! A backup holds one moment, whatever is written meanwhile.

use std::fs;
use std::path::Path;
use std::sync::atomic::Ordering;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;
use tempfile::TempDir;

use super::super::Steps;
use super::super::salvage::Salvage;
use super::BackupManifest;
use crate::disk::Faults;
use crate::fdp::{FdpSpec, MechanismSpec};
use crate::round::{Controller, ControllerSpec, Error};
use crate::seal::Key;

const DIM: usize = 60;
const USERS: usize = 8;
const SLOTS: usize = 16;

fn key() -> Key {
    Key::from_bytes([7; 32])
}

/// A table whose file takes longer to copy than a round, with state in each row.
fn create(at: &Path, rows: u64) -> Controller {
    let mut spec = ControllerSpec::new("toys", (rows, DIM), (USERS, SLOTS));
    spec.fdp = FdpSpec { epsilon: 1.0, mechanism: MechanismSpec::Geometric, ..FdpSpec::default() };
    spec.aggregate = serde_json::from_str(r#"{"name":"fed_adagrad","learning_rate":0.5}"#).unwrap();
    spec.cached_levels = 3;
    let fill = &mut |first: u64, rows: &mut [f32]| {
        rows.iter_mut().enumerate().for_each(|(at, n)| *n = first as f32 + at as f32);
        Ok(())
    };
    let counter = at.join("counter");
    Controller::create(&at.join("t"), &key(), &counter, &spec, fill, &mut |_, _| {}).unwrap()
}

fn round(controller: &mut Controller, random: &mut ChaCha20Rng) {
    let rows = controller.spec().rows as u32;
    let ids: Vec<u32> = (0..USERS * SLOTS).map(|_| random.random_range(0..rows)).collect();
    controller.begin(USERS, &ids).unwrap();
    for user in 0..USERS {
        let gradients: Vec<f32> =
            (0..SLOTS * DIM).map(|_| random.random_range(-4..5) as f32).collect();
        controller.add(user, &gradients, 1.0).unwrap();
    }
    controller.commit().unwrap();
}

/// Every row with its state, by rounds that read them all.
fn payloads(controller: &mut Controller) -> Vec<u8> {
    let ids: Vec<u32> = (0..controller.spec().rows as u32).collect();
    let (mut steps, mut all) = (Steps::default(), Vec::new());
    for ids in ids.chunks(controller.spec().rows_at_once()) {
        let mut own = Vec::new();
        let intent = controller.take_positions(ids, &mut steps).unwrap();
        controller
            .take_rows(&intent.entries, &mut steps, &mut |_, payload| {
                own.extend_from_slice(payload);
                Ok(())
            })
            .unwrap();
        let round = controller.round;
        controller.put(&intent.entries, &own, round, None, &mut steps).unwrap();
        all.append(&mut own);
    }
    all
}

fn restored(backup: &Path, at: &Path, name: &str) -> Controller {
    let (folder, counter) = (at.join(name), at.join(format!("{name}.counter")));
    let salvage = Salvage::read(backup, &key(), None).unwrap();
    let (approve, none) = (&mut |_: &_| true, Faults::none());
    let made = salvage.rebuild(&folder, &key(), &counter, 0, approve, &mut |_, _| {}, &none);
    assert!(made.unwrap().unwrap().is_whole());
    Controller::open(&folder, &key(), &counter, &mut |_, _| {}).unwrap()
}

#[test]
fn a_backup_made_while_rounds_commit_is_of_its_moment() {
    let at = TempDir::new().unwrap();
    let mut random = ChaCha20Rng::seed_from_u64(1);
    let mut controller = create(at.path(), 3_000);
    for _ in 0..3 {
        round(&mut controller, &mut random);
    }
    let mut during = 0;
    for name in ["one", "two"] {
        let expected = payloads(&mut controller);
        let (rounds, begun) = (controller.round(), controller.spent().rounds);
        let to = at.path().join(name);
        controller.tap.paused.store(true, Ordering::Relaxed);
        let backup = controller.start_backup(&to).unwrap();
        // A second one has to wait.
        let error = controller.start_backup(&at.path().join("other")).map(drop).unwrap_err();
        assert!(matches!(error, Error::Phase { .. }), "{error}");
        // Before the first page, and from then on.
        for before in 0.. {
            if before == 4 {
                controller.tap.paused.store(false, Ordering::Relaxed);
            }
            if backup.is_done() {
                break;
            }
            round(&mut controller, &mut random);
            during += 1;
            // Checkpoints write the cached levels, and a new journal.
            if during % 2 == 0 {
                controller.checkpoint().unwrap();
            }
        }
        let manifest = backup.finish().unwrap();
        assert_eq!((manifest.rounds, manifest.rounds_begun), (rounds, begun));
        assert_eq!(BackupManifest::read(&to).unwrap(), manifest);
        manifest.verify(&to, &mut |_, _| {}).unwrap();
        let mut back = restored(&to, at.path(), &format!("{name}-restored"));
        assert!(payloads(&mut back) == expected, "{name}");
        assert_eq!((back.round(), back.spent().rounds), (rounds, begun));
        round(&mut back, &mut random);
    }
    assert!(during >= 8, "{during} rounds during two backups show little");
}

#[test]
fn what_is_no_whole_backup_is_refused() {
    let at = TempDir::new().unwrap();
    let mut controller = create(at.path(), 300);
    let to = at.path().join("b");
    controller.begin(1, &[1; SLOTS]).unwrap();
    let error = controller.start_backup(&to).map(drop).unwrap_err();
    assert!(matches!(error, Error::Phase { .. }), "{error}");
    controller.abandon().unwrap();
    controller.start_backup(&to).unwrap().finish().unwrap();
    // Neither a whole backup nor a controller is written over.
    for taken in [to.clone(), at.path().join("t")] {
        let error = controller.start_backup(&taken).map(drop).unwrap_err();
        assert!(matches!(error, Error::Exists { .. }), "{error}");
    }
    let manifest = BackupManifest::read(&to).unwrap();
    for name in ["controller.json", "journal", "tree"] {
        let mut bytes = fs::read(to.join(name)).unwrap();
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(to.join(name), &bytes).unwrap();
        let error = manifest.verify(&to, &mut |_, _| {}).unwrap_err();
        assert!(matches!(error, Error::BackupDamaged { .. }), "{error}");
        bytes[middle] ^= 1;
        fs::write(to.join(name), &bytes).unwrap();
    }
    manifest.verify(&to, &mut |_, _| {}).unwrap();
    assert!(matches!(BackupManifest::read(at.path()), Err(Error::BackupIncomplete { .. })));
    // One that was cut short gives way to the next of its name.
    fs::rename(to.join("backup.json"), to.join("backup.json.new")).unwrap();
    assert!(matches!(BackupManifest::read(&to), Err(Error::BackupIncomplete { .. })));
    controller.start_backup(&to).unwrap().finish().unwrap();
    BackupManifest::read(&to).unwrap().verify(&to, &mut |_, _| {}).unwrap();
}

#[test]
fn a_backup_of_a_controller_that_ends_meanwhile_is_none() {
    let at = TempDir::new().unwrap();
    let mut controller = create(at.path(), 300);
    let to = at.path().join("b");
    let tap = controller.tap.clone();
    tap.paused.store(true, Ordering::Relaxed);
    let backup = controller.start_backup(&to).unwrap();
    assert!(tap.is_open());
    drop(controller);
    tap.paused.store(false, Ordering::Relaxed);
    let error = backup.finish().unwrap_err();
    assert!(matches!(error, Error::BackupCut { .. }), "{error}");
    assert!(BackupManifest::read(&to).is_err());
}
