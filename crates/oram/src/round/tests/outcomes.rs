//! What a commit says is what happened: on full disks, with a counter that fails, after crashes.

use super::*;
use crate::disk::DiskError;
use crate::journal::{CounterPlace, CounterValue, RootCounter};
use crate::round::{Ended, RoundName};

/// A round by a number, which changes row 3 by one.
fn named(controller: &mut Controller, number: u64) -> Result<crate::round::RoundReport, Error> {
    controller.begin_named(
        RoundName { number, requested: 1 },
        2,
        &[3, 4, 5, 6, 7, 0, 0, 0, 0, 0],
    )?;
    controller.add(0, &vec![1.0; 5 * DIM], 1.0)?;
    controller.commit()
}

fn ended(controller: &Controller, number: u64) -> Option<Ended> {
    let settled = controller.settled().iter().find(|settled| settled.round == number);
    settled.map(|settled| settled.ended.clone())
}

/// The disk fills at any operation of a round: the round is refused, or stands; what is said is so;
/// and the folder opens on the full disk, with the outcome in its journal.
#[test]
fn a_disk_that_fills_cuts_no_round_short_and_keeps_no_folder_shut() {
    let base = folder();
    let mut controller = create(base.path(), &spec(0.0));
    named(&mut controller, 7).unwrap();
    controller.close().unwrap();
    let operations = {
        let at = folder();
        copy(base.path(), at.path());
        let faults = Faults::new(FaultSpec::default());
        named(&mut open(at.path(), &faults).unwrap(), 8).unwrap();
        faults.operation_count()
    };
    let (mut refused, mut stood) = (0, 0);
    for full_from in 0..=operations {
        let at = folder();
        copy(base.path(), at.path());
        let faults = Faults::new(FaultSpec::default());
        faults.fill_from(Some(full_from));
        let mut controller = open(at.path(), &faults)
            .unwrap_or_else(|error| panic!("full from {full_from}: not opened: {error}"));
        let said = named(&mut controller, 8);
        match &said {
            Ok(report) => assert_eq!((report.round, report.rounds), (8, 2)),
            Err(Error::Journal(JournalError::Disk(DiskError::Full { .. }))) => {
                // Nothing happened: it goes on as soon as there is space.
                assert_eq!(controller.spent().rounds, 1);
                assert!(controller.check_writable(2).is_err());
                faults.fill_from(None);
                controller.check_writable(2).unwrap();
                named(&mut controller, 9).unwrap();
                faults.fill_from(Some(0));
            }
            Err(error) => panic!("full from {full_from}: {error}"),
        }
        drop(controller);
        // The disk is still full.
        for _ in 0..3 {
            let controller = open(at.path(), &faults).unwrap();
            assert_eq!(controller.round(), 2);
            assert!(matches!(ended(&controller, 7), Some(Ended::Committed(_))));
            let (eight, nine) = (ended(&controller, 8), ended(&controller, 9));
            match &said {
                Ok(report) => {
                    let Some(Ended::Committed(kept)) = eight else { panic!("{eight:?}") };
                    let same = |r: &crate::round::RoundReport| {
                        (r.round, r.rounds, r.users, r.requested, r.uploaded, r.accesses)
                    };
                    assert_eq!(same(&kept), same(report));
                    assert_eq!(same(&kept), (8, 2, 2, 1, 1, report.accesses));
                }
                Err(_) => {
                    assert_eq!(eight, None, "it never began");
                    assert!(matches!(nine, Some(Ended::Committed(_))));
                }
            }
        }
        *(if said.is_ok() { &mut stood } else { &mut refused }) += 1;
    }
    assert!(refused > 2 && stood > 2, "{refused} refused, {stood} stood");
}

/// A crash at any operation: what was said before it is what is found after it, by the round's number.
#[test]
fn the_journal_knows_how_a_round_ended() {
    let base = folder();
    let mut controller = create(base.path(), &spec(0.0));
    controller.begin_named(RoundName { number: 5, requested: 2 }, 2, &[DUMMY; 10]).unwrap();
    controller.abandon().unwrap();
    controller.close().unwrap();
    let (mut failed, mut committed, mut unsettled) = (0, 0, 0);
    for kill_at in 0.. {
        let at = folder();
        copy(base.path(), at.path());
        let (tear, unsynced) = (Tear::Scattered(kill_at), Unsynced::Scattered(kill_at));
        let faults = Faults::new(FaultSpec { kill_at: Some(kill_at), tear, unsynced });
        let said = open(at.path(), &faults).and_then(|mut controller| named(&mut controller, 6));
        let mut controller = open(at.path(), &Faults::none()).unwrap();
        let found = ended(&controller, 6);
        let is_changed = table(&mut controller)[3 * DIM] == value(3, 0) - 1.0;
        assert_eq!(matches!(found, Some(Ended::Committed(_))), is_changed, "kill at {kill_at}");
        assert_eq!(controller.round(), u64::from(is_changed));
        assert_eq!(ended(&controller, 5), Some(Ended::Abandoned));
        // It is known from when it has spent of the budget.
        assert_eq!(found.is_some(), controller.spent().rounds == 2, "kill at {kill_at}");
        match said {
            Ok(_) => assert!(is_changed),
            Err(Error::Unsettled { .. }) => unsettled += 1,
            Err(_) => assert!(!is_changed, "kill at {kill_at}: failed, and it stands"),
        }
        failed += u64::from(found == Some(Ended::Failed));
        committed += u64::from(is_changed);
        drop(controller);
        let controller = open(at.path(), &Faults::none()).unwrap();
        assert_eq!(ended(&controller, 6), found, "kill at {kill_at}: another story");
        if !faults.is_killed() {
            break;
        }
    }
    assert!(failed > 10 && committed > 2 && unsettled > 1, "{failed} {committed} {unsettled}");
}

/// A counter that can be told to fail: before it is moved, or behind that.
struct Failing {
    inner: std::path::PathBuf,
    fails: std::sync::Arc<std::sync::atomic::AtomicUsize>,
}

struct FailingCounter(Box<dyn RootCounter>, std::sync::Arc<std::sync::atomic::AtomicUsize>);

const BEFORE: usize = 1;
const BEHIND: usize = 2;

fn unreachable_counter() -> JournalError {
    JournalError::CounterUnavailable { place: "here".into(), reason: "told so".into() }
}

impl CounterPlace for Failing {
    fn check_free(&self) -> Result<(), JournalError> {
        self.inner.check_free()
    }
    fn create(
        &self,
        key: &Key,
        value: &CounterValue,
        faults: &Faults,
    ) -> Result<Box<dyn RootCounter>, JournalError> {
        let inner = self.inner.create(key, value, faults)?;
        Ok(Box::new(FailingCounter(inner, self.fails.clone())))
    }
    fn open(&self, key: &Key, faults: &Faults) -> Result<Box<dyn RootCounter>, JournalError> {
        Ok(Box::new(FailingCounter(self.inner.open(key, faults)?, self.fails.clone())))
    }
}

impl RootCounter for FailingCounter {
    fn read(&mut self) -> Result<CounterValue, JournalError> {
        match self.1.load(std::sync::atomic::Ordering::SeqCst) {
            0 => self.0.read(),
            _ => Err(unreachable_counter()),
        }
    }
    fn advance(&mut self, from: &CounterValue, to: &CounterValue) -> Result<(), JournalError> {
        match self.1.load(std::sync::atomic::Ordering::SeqCst) {
            BEFORE => Err(unreachable_counter()),
            BEHIND => self.0.advance(from, to).and(Err(unreachable_counter())),
            _ => self.0.advance(from, to),
        }
    }
}

/// The counter fails at the commit: nobody knows how the round ended until the folder is opened again,
/// and nobody says more.
#[test]
fn a_counter_that_fails_at_the_commit_leaves_the_round_unsettled() {
    for fails in [BEFORE, BEHIND] {
        let at = folder();
        let switch = std::sync::Arc::new(std::sync::atomic::AtomicUsize::new(0));
        let place = Failing { inner: at.path().join("counter"), fails: switch.clone() };
        let folder = at.path().join("t");
        let mut controller =
            Controller::create(&folder, &key(), &place, &spec(0.0), &mut fill, &mut |_, _| {})
                .unwrap();
        controller.begin_named(RoundName { number: 9, requested: 1 }, 1, &[3; 5]).unwrap();
        controller.add(0, &[1.0; 5 * DIM], 1.0).unwrap();
        switch.store(fails, std::sync::atomic::Ordering::SeqCst);
        let said = controller.commit();
        assert!(matches!(said, Err(Error::Unsettled { rounds: 0, .. })), "{said:?}");
        assert!(matches!(controller.check_writable(1), Err(Error::Ended)));
        drop(controller);
        let open = || Controller::open(&folder, &key(), &place, &mut |_, _| {});
        assert!(open().is_err(), "the counter does not answer");
        switch.store(0, std::sync::atomic::Ordering::SeqCst);
        let mut controller = open().unwrap();
        assert!(matches!(ended(&controller, 9), Some(Ended::Committed(_))));
        assert_eq!(controller.round(), 1);
        assert_eq!(table(&mut controller)[3 * DIM], value(3, 0) - 1.0);
        // Between rounds it is told before any user has sent anything.
        switch.store(BEFORE, std::sync::atomic::Ordering::SeqCst);
        let kept = controller.check_writable(1);
        assert!(matches!(kept, Err(Error::Journal(JournalError::CounterUnavailable { .. }))));
        switch.store(0, std::sync::atomic::Ordering::SeqCst);
        controller.check_writable(1).unwrap();
    }
}
