//! Whole rounds: ids, gradients and weights are secret, and all that was ever sealed.

use crate::secret::secret;
use hushtable_oram::aggregate::{AggregateSpec, ClipPer, ClipSpec};
use hushtable_oram::bucket::DUMMY;
use hushtable_oram::fdp::FdpSpec;
use hushtable_oram::round::{Controller, ControllerSpec, DefaultRow, RoundName};
use hushtable_oram::seal::Key;
use hushtable_prg::valgrind::{mark_public, mark_secret};
use tempfile::TempDir;

const ROWS: usize = 90;
/// 500 bytes a row: 8 blocks a bucket, so that a few rows make a tree of some height.
const DIM: usize = 125;
const SLOTS: usize = 5;
const USERS: usize = 4;
const REFUSED: usize = 2;
const SILENT: usize = 3;

fn key() -> Key {
    Key::from_bytes([9; 32])
}

fn ids(round: usize) -> Vec<u32> {
    let id = |slot: usize| match slot % 7 {
        6 => DUMMY,
        // Asked for by several users.
        0 | 1 => (slot % 3) as u32,
        _ => ((31 * slot + 17 * round) % ROWS) as u32,
    };
    let mut ids: Vec<u32> = (0..USERS * SLOTS).map(id).collect();
    ids[REFUSED * SLOTS + 1] = ROWS as u32;
    ids
}

/// One round, whose users take one from each row that they are served; `plain` is what the table holds then.
fn round(controller: &mut Controller, number: usize, plain: &mut [f32], end: End) {
    let wanted = ids(number);
    let name = RoundName { number: number as u64, requested: USERS };
    let start = controller.begin_named(name, USERS, &secret(wanted.clone())).expect("a round");
    assert_eq!(start.refused, [REFUSED]);
    let mut is_trained = vec![false; ROWS];
    for user in 0..USERS {
        let (mut rows, mut found) = (vec![0.0; SLOTS * DIM], [false; SLOTS]);
        controller.rows(user, &mut rows, &mut found).expect("rows");
        let mut found = found.map(u8::from);
        mark_public(&mut rows);
        mark_public(&mut found);
        let own = &wanted[user * SLOTS..][..SLOTS];
        for ((&id, row), found) in own.iter().zip(rows.chunks_exact(DIM)).zip(found) {
            assert!(found == 0 || id != DUMMY && user != REFUSED);
            if found == 1 {
                assert!(row.iter().all(|value| *value == plain[id as usize]));
                is_trained[id as usize] |= user != SILENT && matches!(end, End::Commit);
            }
        }
        if user != SILENT {
            let mut weight = 2.0f32;
            mark_secret(std::slice::from_mut(&mut weight));
            let gradients = secret(vec![1.0f32; SLOTS * DIM]);
            controller.add(user, &gradients, weight).expect("gradients");
        }
    }
    for (value, _) in plain.iter_mut().zip(&is_trained).filter(|(_, trained)| **trained) {
        *value -= 1.0;
    }
    match end {
        End::Commit => {
            assert!(is_trained.contains(&true));
            assert_eq!(controller.commit().expect("a commit").uploaded, USERS - 1);
        }
        End::Abandon => drop(controller.abandon().expect("an end")),
        End::None => (),
    }
}

enum End {
    Commit,
    Abandon,
    /// As by a crash.
    None,
}

pub fn rounds() {
    let at = TempDir::new().expect("a folder");
    let (folder, counter) = (at.path().join("t"), at.path().join("counter"));
    let mut spec = ControllerSpec::new("toys", (ROWS as u64, DIM), (USERS, SLOTS));
    spec.fdp = FdpSpec { epsilon: 1.0, ..FdpSpec::default() };
    spec.default_row = DefaultRow::Zero;
    // It goes over all that is sent, and changes nothing of it.
    spec.clip = Some(ClipSpec { norm: 100.0, value: 1.0, weight: 2.0 });
    spec.cached_levels = 2;
    let mut fill = |first: u64, rows: &mut [f32]| {
        for (at, row) in rows.chunks_exact_mut(DIM).enumerate() {
            row.fill((first as usize + at) as f32 * 8.0);
        }
        Ok(())
    };
    let controller =
        Controller::create(&folder, &key(), &counter, &spec, &mut fill, &mut |_, _| ());
    let mut controller = controller.expect("a controller");
    let mut plain: Vec<f32> = (0..ROWS).map(|row| row as f32 * 8.0).collect();
    round(&mut controller, 1, &mut plain, End::Commit);
    round(&mut controller, 2, &mut plain, End::Abandon);
    round(&mut controller, 3, &mut plain, End::Commit);
    round(&mut controller, 4, &mut plain, End::None);
    drop(controller);
    let controller = Controller::open(&folder, &key(), &counter, &mut |_, _| ());
    let mut controller = controller.expect("what was committed");
    assert_eq!(controller.round(), 2);
    round(&mut controller, 5, &mut plain, End::Commit);
    let mut rows = 0;
    controller
        .export(
            &mut |first, table| {
                let mut table = table.to_vec();
                mark_public(&mut table);
                for (row, value) in table.chunks_exact(DIM).zip(&plain[first as usize..]) {
                    assert!(row.iter().all(|number| number == value));
                    rows += 1;
                }
                Ok(())
            },
            &mut |_, _| (),
        )
        .expect("the table");
    assert_eq!(rows, ROWS);
}

/// Rows that are owed noise: it is added before users are served, through an end and a crash.
pub fn settles() {
    let at = TempDir::new().expect("a folder");
    let (folder, counter) = (at.path().join("t"), at.path().join("counter"));
    let mut spec = ControllerSpec::new("toys", (ROWS as u64, DIM), (USERS, SLOTS));
    spec.fdp = FdpSpec { epsilon: 1.0, ..FdpSpec::default() };
    spec.aggregate = AggregateSpec::LazyDp {
        learning_rate: 1.0,
        clip: 1.0,
        clip_per: ClipPer::Row,
        noise_multiplier: 0.5,
        users: 1.0,
    };
    spec.cached_levels = 2;
    let mut fill = |_: u64, rows: &mut [f32]| {
        rows.fill(0.25);
        Ok(())
    };
    let controller =
        Controller::create(&folder, &key(), &counter, &spec, &mut fill, &mut |_, _| ());
    let mut controller = controller.expect("a controller");
    for number in 0..3 {
        controller.begin(USERS, &secret(ids(number))).expect("a round");
        let (mut rows, mut found) = (vec![0.0; SLOTS * DIM], [false; SLOTS]);
        controller.rows(0, &mut rows, &mut found).expect("rows");
        let gradients = secret(vec![1.0f32; SLOTS * DIM]);
        controller.add(0, &gradients, 1.0).expect("gradients");
        match number {
            0 => drop(controller.commit().expect("a commit")),
            1 => drop(controller.abandon().expect("an end")),
            _ => (),
        }
    }
    drop(controller);
    let controller = Controller::open(&folder, &key(), &counter, &mut |_, _| ());
    let mut controller = controller.expect("what was committed");
    assert_eq!((controller.round(), controller.spent().rounds), (1, 3));
    let mut changed = 0;
    controller
        .export(
            &mut |_, table| {
                let mut table = table.to_vec();
                mark_public(&mut table);
                assert!(table.iter().all(|number| number.is_finite() && *number != 0.25));
                changed += table.len();
                Ok(())
            },
            &mut |_, _| (),
        )
        .expect("the table");
    assert_eq!(changed, ROWS * DIM);
}
