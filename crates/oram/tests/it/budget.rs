//! What a controller's rounds may cost together: kept through ends, crashes and reopening, and not
//! to be won back with an old copy of the folder.

use std::fs;
use std::path::Path;

use hushtable_oram::bucket::DUMMY;
use hushtable_oram::disk::{FaultSpec, Faults, Tear, Unsynced};
use hushtable_oram::fdp::FdpSpec;
use hushtable_oram::round::{BudgetSpec, Controller, ControllerSpec, Error};
use hushtable_oram::seal::Key;
use tempfile::TempDir;

const SLOTS: usize = 4;

fn key() -> Key {
    Key::from_bytes([6; 32])
}

fn create(at: &Path, epsilon: f64) -> Controller {
    let mut spec = ControllerSpec::new("films", (60, 16), (2, SLOTS));
    spec.fdp = FdpSpec { epsilon: 0.5, ..FdpSpec::default() };
    spec.budget = Some(BudgetSpec { epsilon, delta: 0.0 });
    spec.cached_levels = 1;
    let mut fill = |_, rows: &mut [f32]| {
        rows.fill(1.0);
        Ok(())
    };
    let counter = at.join("counter");
    Controller::create(&at.join("t"), &key(), &counter, &spec, &mut fill, &mut |_, _| {})
        .expect("a controller")
}

fn open(at: &Path, faults: &Faults) -> Result<Controller, Error> {
    Controller::open_with(&at.join("t"), &key(), &at.join("counter"), &mut |_, _| {}, faults)
}

fn begin(controller: &mut Controller) -> Result<(), Error> {
    let mut ids = [DUMMY; 2 * SLOTS];
    ids[..3].copy_from_slice(&[7, 8, 9]);
    controller.begin(2, &ids).map(drop)
}

#[track_caller]
fn assert_spent(outcome: Result<(), Error>, expected: u64) {
    match outcome {
        Err(Error::BudgetSpent { rounds, spent, needed, budget }) => {
            assert_eq!((rounds, spent, needed), (expected, budget, budget + 0.5));
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn every_round_that_began_counts_whatever_became_of_it() {
    let at = TempDir::new().expect("a folder");
    let mut controller = create(at.path(), 2.0);
    assert_eq!(controller.spent().rounds_left, Some(4));
    // What is refused before it begins costs nothing.
    assert!(matches!(controller.begin(3, &[DUMMY; 12]), Err(Error::Users { .. })));
    assert_eq!(controller.spent().rounds, 0);
    begin(&mut controller).expect("one that is committed");
    controller.commit().expect("a commit");
    begin(&mut controller).expect("one that is abandoned, as those that evaluate are");
    controller.abandon().expect("an end");
    begin(&mut controller).expect("one that a crash cuts short");
    drop(controller);
    let mut controller = open(at.path(), &Faults::none()).expect("what is there");
    assert_eq!((controller.spent().rounds, controller.spent().epsilon), (3, 1.5));
    // An export publishes the table and no k.
    controller.export(&mut |_, _| Ok(()), &mut |_, _| {}).expect("the table");
    begin(&mut controller).expect("the last one");
    controller.commit().expect("a commit");
    assert_spent(begin(&mut controller), 4);
    controller.close().expect("an end");
    let mut controller = open(at.path(), &Faults::none()).expect("what is there");
    assert_spent(begin(&mut controller), 4);
    assert_eq!(controller.spent().rounds_left, Some(0));
    assert!(!controller.is_serving());
    // The table is still there to be published.
    controller.export(&mut |_, _| Ok(()), &mut |_, _| {}).expect("the table");
}

#[test]
fn nothing_of_a_round_is_written_before_it_is_booked() {
    let base = TempDir::new().expect("a folder");
    create(base.path(), 1.0).close().expect("an end");
    let journal_bytes =
        |at: &Path| fs::metadata(at.join("t").join("journal")).expect("a journal").len();
    let (mut before, mut booked) = (0, 0);
    for kill_at in 0.. {
        let at = TempDir::new().expect("a folder");
        fs::create_dir(at.path().join("t")).expect("a folder");
        for file in ["t/controller.json", "t/journal", "t/tree", "counter"] {
            fs::copy(base.path().join(file), at.path().join(file)).expect("a copy");
        }
        let spec = FaultSpec {
            kill_at: Some(kill_at),
            tear: Tear::Half,
            unsynced: if kill_at % 2 == 0 { Unsynced::Lost } else { Unsynced::Kept },
        };
        let faults = Faults::new(spec);
        let mut opened_bytes = 0;
        let outcome = open(at.path(), &faults).and_then(|mut controller| {
            opened_bytes = journal_bytes(at.path());
            begin(&mut controller)
        });
        // A record of one word takes 128 bytes or less: more is the intent, whose length is of k.
        let shows_k =
            opened_bytes > 0 && journal_bytes(at.path()).saturating_sub(opened_bytes) > 128;
        let is_killed = faults.is_killed();
        assert_eq!(outcome.is_err(), is_killed, "{outcome:?}");
        let rounds = open(at.path(), &Faults::none()).expect("what is there").spent().rounds;
        assert!(rounds == 1 || !shows_k && is_killed, "kill at {kill_at}: {rounds} rounds");
        *(if rounds == 0 { &mut before } else { &mut booked }) += 1;
        if !is_killed {
            break;
        }
    }
    assert!(before > 5 && booked > 5, "{before} before and {booked} after show nothing");
}

#[test]
fn an_old_copy_of_the_folder_wins_no_budget_back() {
    let at = TempDir::new().expect("a folder");
    create(at.path(), 1.0).close().expect("an end");
    let files = ["t/controller.json", "t/journal", "t/tree"];
    let old = files.map(|file| fs::read(at.path().join(file)).expect("a file"));
    let mut controller = open(at.path(), &Faults::none()).expect("what is there");
    begin(&mut controller).expect("a round");
    drop(controller);
    for (file, bytes) in files.iter().zip(&old) {
        fs::write(at.path().join(file), bytes).expect("a copy");
    }
    let error = open(at.path(), &Faults::none()).err().expect("an old copy");
    assert!(matches!(error, Error::Journal(_)), "{error}");
    // Nor does a larger budget in the spec.
    let at = TempDir::new().expect("a folder");
    create(at.path(), 1.0).close().expect("an end");
    let spec = at.path().join("t").join("controller.json");
    let text = fs::read_to_string(&spec).expect("a spec");
    assert!(text.contains("\"budget\""));
    fs::write(&spec, text.replace("\"epsilon\": 1.0", "\"epsilon\": 9.0")).expect("a spec");
    assert!(matches!(open(at.path(), &Faults::none()), Err(Error::SpecChanged { .. })));
}
