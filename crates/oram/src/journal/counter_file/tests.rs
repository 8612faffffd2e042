//! A counter goes forward only, whoever changes its file, and on a full disk.

use super::*;
use crate::disk::FaultSpec;
use crate::journal::Instance;
use crate::journal::tests::{folder, key};

#[test]
fn a_counter_goes_forward_and_cannot_be_forged() {
    let folder = folder();
    let path = folder.path().join("counter");
    let open = || FileCounter::open(&path, &key(), &Faults::none());
    assert!(matches!(open(), Err(JournalError::Disk(DiskError::Missing { .. }))));
    let instance = Instance::from_bytes([1; 32]);
    let value = CounterValue { instance, round: 5, evictions: 50, head: [3; 32] };
    let mut counter = FileCounter::create(&path, &key(), &value, &Faults::none()).expect("new");
    let again = FileCounter::create(&path, &key(), &value, &Faults::none());
    assert!(matches!(again, Err(JournalError::Disk(DiskError::Exists { .. }))), "{again:?}");
    for (round, evictions) in [(4, 50), (5, 49), (0, 0)] {
        let to = CounterValue { round, evictions, head: [4; 32], ..value };
        let back = counter.advance(&value, &to);
        assert!(matches!(back, Err(JournalError::Backwards { round: 5, evictions: 50, .. })));
    }
    let other = CounterValue { instance: Instance::from_bytes([2; 32]), round: 9, ..value };
    let back = counter.advance(&value, &other);
    assert!(matches!(back, Err(JournalError::Backwards { .. })), "{back:?}");
    let (before, value) = (value, CounterValue { round: 6, head: [5; 32], ..value });
    counter.advance(&before, &value).expect("forward");
    // From where it no longer is: as a second controller would, from a copy.
    let late = counter.advance(&before, &CounterValue { round: 7, ..value });
    let moved =
        matches!(late, Err(JournalError::CounterMoved { expected_round: 5, found_round: 6, .. }));
    assert!(moved, "{late:?}");
    assert!(matches!(open(), Err(JournalError::CounterHeld { .. })));
    drop(counter);
    assert_eq!(open().expect("the same").read().expect("a counter"), value);
    let other_key = FileCounter::open(&path, &Key::from_bytes([8; 32]), &Faults::none());
    assert!(matches!(other_key, Err(JournalError::ForgedCounter { .. })), "{other_key:?}");
    let good = fs::read(&path).expect("a file");
    for bytes in 0..good.len() {
        fs::write(&path, &good[..bytes]).expect("a file");
        match (bytes, open()) {
            // As long as one of an earlier version.
            (COUNTER_BYTES, Err(JournalError::NotACounter { .. })) => {}
            (_, Err(JournalError::NotACounter { bytes: said, .. })) => {
                assert!(said == bytes as u64)
            }
            (_, other) => panic!("{bytes} bytes: {other:?}"),
        }
    }
    // The second slot holds the value. One that is damaged is as if it had not been written yet.
    for at in 0..good.len() {
        let mut bad = good.clone();
        bad[at] ^= 1 << (at % 8);
        fs::write(&path, &bad).expect("a file");
        let found = open().expect("one slot is whole").read().expect("a counter");
        let is_written = (4096..4096 + 16 + COUNTER_BYTES + 48).contains(&at);
        assert_eq!(found, if is_written { before } else { value }, "byte {at}");
        assert_eq!(fs::read(&path).expect("a file"), bad, "opening changes nothing");
        if is_written {
            let mut counter = open().expect("one slot is whole");
            counter.advance(&before, &value).expect("forward");
            drop(counter);
            assert_eq!(open().expect("both").read().expect("a counter"), value);
        }
    }
    for (magic, at) in [(true, 3), (false, 20), (false, 170)] {
        let mut bad = good.clone();
        bad[at] ^= 1;
        bad[4096 + at] ^= 1;
        fs::write(&path, &bad).expect("a file");
        match open() {
            Err(JournalError::NotACounter { .. }) => assert!(magic),
            Err(JournalError::ForgedCounter { .. }) => assert!(!magic),
            other => panic!("byte {at}: {other:?}"),
        }
    }
}

/// A counter's value in one piece, as an earlier version kept it.
#[test]
fn a_counter_of_an_earlier_version_is_replaced() {
    let folder = folder();
    let path = folder.path().join("counter");
    let value = CounterValue { round: 5, ..CounterValue::default() };
    let sealed = CounterSeal::new(&key()).seal(&value).expect("entropy");
    fs::write(&path, sealed).expect("a file");
    let mut counter = FileCounter::open(&path, &key(), &Faults::none()).expect("a counter");
    assert_eq!(counter.read().expect("a counter"), value);
    assert_eq!(fs::metadata(&path).expect("a file").len(), 8192);
    counter.advance(&value, &CounterValue { round: 6, ..value }).expect("forward");
    assert!(matches!(
        FileCounter::open(&path, &key(), &Faults::none()),
        Err(JournalError::CounterHeld { .. })
    ));
}

/// On a full disk a counter goes on.
#[test]
fn a_full_disk_does_not_stop_the_counter() {
    let folder = folder();
    let path = folder.path().join("counter");
    let faults = Faults::new(FaultSpec::default());
    let mut value = CounterValue::default();
    let mut counter = FileCounter::create(&path, &key(), &value, &faults).expect("space");
    faults.fill_from(Some(0));
    for round in 1..5 {
        let next = CounterValue { round, ..value };
        counter.advance(&value, &next).expect("it takes no space");
        value = next;
        drop(counter);
        counter = FileCounter::open(&path, &key(), &faults).expect("it takes no space");
    }
    assert_eq!(counter.read().expect("a counter"), value);
}

/// A file that someone puts in the counter's place is found by the controller that holds the counter,
/// should it say the same.
#[test]
fn a_counter_that_is_replaced_while_it_is_held_is_not_advanced() {
    let folder = folder();
    let (path, copy) = (folder.path().join("counter"), folder.path().join("copy"));
    let value = CounterValue { round: 5, ..CounterValue::default() };
    let next = CounterValue { round: 6, ..value };
    let mut counter = FileCounter::create(&path, &key(), &value, &Faults::none()).expect("new");
    fs::copy(&path, &copy).expect("a copy");
    fs::rename(&copy, &path).expect("in its place");
    // The copy is locked by nobody.
    let mut second = FileCounter::open(&path, &key(), &Faults::none()).expect("a counter");
    let replaced = counter.advance(&value, &next);
    assert!(matches!(replaced, Err(JournalError::CounterReplaced { .. })), "{replaced:?}");
    second.advance(&value, &next).expect("the file that is there");
    let moved = counter.advance(&value, &next);
    assert!(matches!(moved, Err(JournalError::CounterMoved { .. })), "{moved:?}");
}
