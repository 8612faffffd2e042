//! Damages the file of a good journal: whatever then opens holds the first of its records, and what
//! is appended next is read again.

#![no_main]

use std::fs;
use std::path::Path;

use arbitrary::Arbitrary;
use hushtable_fuzz::{Damage, with_folder};
use hushtable_oram::disk::{DiskError, Faults};
use hushtable_oram::journal::{CounterValue, Entry, Journal, JournalError};
use hushtable_oram::seal::Key;
use libfuzzer_sys::fuzz_target;

#[derive(Arbitrary, Debug)]
struct Input {
    steps: Vec<Step>,
    damages: Vec<Damage>,
    bytes: Option<Vec<u8>>,
}

#[derive(Arbitrary, Debug)]
enum Step {
    Append(u32, u64, Vec<u8>),
    Sync,
    StartAnew(u32, u64, Vec<u8>),
}

type Plain = (u32, u64, Vec<u8>);

fuzz_target!(|input: Input| {
    with_folder(|folder| {
        let path = folder.join("journal");
        let _ = fs::remove_file(&path);
        let mut journal = Journal::create(&path, &key(), &Faults::none()).expect("a new journal");
        let mut plain: Vec<Plain> = Vec::new();
        for step in input.steps {
            match step {
                Step::Append(kind, round, payload) => {
                    journal.append(kind, round, &payload).expect("space");
                    plain.push((kind, round, payload));
                }
                Step::Sync => journal.sync().expect("a disk that works"),
                Step::StartAnew(kind, round, payload) => {
                    let entry = Entry { kind, round, payload: &payload };
                    journal.start_anew(&[entry]).expect("space");
                    plain = vec![(kind, round, payload)];
                }
            }
        }
        let (instance, head) = (*journal.instance(), journal.head());
        let last = CounterValue { instance, head, ..CounterValue::default() };
        drop(journal);
        for damage in &input.damages {
            damage.inflict(&path);
        }
        if let Some(bytes) = input.bytes {
            fs::write(&path, bytes).expect("write a file");
        }
        let (mut journal, found) = match open(&path) {
            Ok(opened) => opened,
            Err(
                JournalError::Damaged { .. }
                | JournalError::Disk(DiskError::Missing { .. })
                | JournalError::Forged { .. }
                | JournalError::NotAJournal { .. }
                | JournalError::Unfinished { .. },
            ) => return,
            Err(other) => panic!("{other}"),
        };
        assert!(plain.starts_with(&found));
        let whole = found.len() == plain.len();
        assert_eq!(journal.reconcile(&last, 0).is_ok(), whole, "the counter knows the last record");
        journal.append(1, 2, b"more").expect("space");
        let mut expected = found;
        expected.push((1, 2, b"more".to_vec()));
        drop(journal);
        assert_eq!(open(&path).expect("a sound journal").1, expected);
    });
});

fn open(path: &Path) -> Result<(Journal, Vec<Plain>), JournalError> {
    let mut records = Vec::new();
    let journal = Journal::open(path, &key(), &Faults::none(), &mut |record| {
        records.push((record.kind, record.round, record.payload.to_vec()));
    })?;
    Ok((journal, records))
}

fn key() -> Key {
    Key::from_bytes([7; 32])
}
