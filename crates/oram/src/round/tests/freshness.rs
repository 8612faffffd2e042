//! Pages, files and whole folders put back by whoever may write to the disk, at every I/O at which a
//! round can be cut: refused, or the state is bit for bit that of before or after the round.

use super::*;

/// A round that moves rows 1 to 3 and 20 to 29 by `gradient`.
fn round_of(controller: &mut Controller, gradient: f32) -> Result<(), Error> {
    let ids: Vec<u32> = [1, 2, 3, 1, 2].into_iter().chain(20..30).collect();
    controller.begin(3, &ids)?;
    for user in 0..3 {
        controller.add(user, &vec![gradient; 5 * DIM], 1.0)?;
    }
    controller.commit().map(drop)
}

fn all_rows(controller: &mut Controller) -> Result<Vec<u32>, Error> {
    let mut all = Vec::new();
    let mut take = |_, rows: &[f32]| {
        all.extend(rows.iter().map(|number| number.to_bits()));
        Ok(())
    };
    controller.export(&mut take, &mut |_, _| {})?;
    Ok(all)
}

/// Rounds committed and every row's bits.
type Rows = (u64, Vec<u32>);

/// What a folder holds, if it can be opened and read.
fn state(at: &Path) -> Result<Rows, Error> {
    let mut controller = open(at, &Faults::none())?;
    Ok((controller.round(), all_rows(&mut controller)?))
}

fn tree(at: &Path) -> Vec<u8> {
    fs::read(at.join("t/tree")).unwrap()
}

const PAGE: usize = crate::disk::PAGE_BYTES;

fn page(tree: &[u8], page: usize) -> &[u8] {
    &tree[page * PAGE..][..PAGE]
}

/// How attempts to put something back ended.
#[derive(Debug, Default)]
struct Tally {
    refused: usize,
    /// What was put back is not in force, so that nothing reads it: nor is a flipped bit found there.
    unread: usize,
    /// What was put back is in force, and was taken for what was written last.
    taken: usize,
    /// And rows came out of it that were not those that were written last.
    wrong: usize,
}

impl Tally {
    fn note(
        &mut self,
        found: Result<Rows, Error>,
        expected: &Rows,
        is_read: impl FnOnce() -> bool,
    ) {
        match found {
            Err(_) => self.refused += 1,
            Ok(found) if found != *expected => self.wrong += 1,
            Ok(_) if is_read() => self.taken += 1,
            Ok(_) => self.unread += 1,
        }
    }
}

/// Opens the folder `at` with its tree as `bytes`.
fn with_tree(at: &Path, bytes: &[u8]) -> Result<Rows, Error> {
    let changed = folder();
    copy_but(at, changed.path(), "tree");
    fs::write(changed.path().join("t/tree"), bytes).unwrap();
    state(changed.path())
}

/// Swaps pages of the tree of a controller at work, between rounds, and lets it go on.
fn with_tree_at_work(at: &Path, bytes: &[u8]) -> Result<Rows, Error> {
    let changed = folder();
    copy(at, changed.path());
    let mut controller = open(changed.path(), &Faults::none())?;
    let now = tree(changed.path());
    let file = fs::OpenOptions::new().write(true).open(changed.path().join("t/tree")).unwrap();
    for at in (0..now.len()).step_by(PAGE).filter(|&at| now[at..][..PAGE] != bytes[at..][..PAGE]) {
        std::os::unix::fs::FileExt::write_all_at(&file, &bytes[at..][..PAGE], at as u64).unwrap();
    }
    round_of(&mut controller, 0.0)?;
    Ok((controller.round() - 1, all_rows(&mut controller)?))
}

#[test]
fn a_page_that_a_cut_attempt_wrote_is_refused_wherever_it_was_cut() {
    let base = folder();
    let mut controller = create(base.path(), &spec(0.0));
    round_of(&mut controller, 1.0).unwrap();
    drop(controller);
    let sibling = folder();
    drop(create(sibling.path(), &spec(0.0)));
    let before = tree(base.path());
    let sibling = tree(sibling.path());
    let (mut single, mut whole) = (Tally::default(), Tally::default());
    let mut cuts = 0;
    for kill_at in 0.. {
        let at = folder();
        copy(base.path(), at.path());
        // The attempt that is cut: opening, or a round.
        let tear = [Tear::Everything, Tear::Half, Tear::Scattered(kill_at)][kill_at as usize % 3];
        let unsynced = Unsynced::Kept;
        let faults = Faults::new(FaultSpec { kill_at: Some(kill_at), tear, unsynced });
        let _ = open(at.path(), &faults).and_then(|mut cut| round_of(&mut cut, 2.0));
        if !faults.is_killed() {
            break;
        }
        cuts += 1;
        let cut = tree(at.path());
        // The attempt that stands, itself cut in the middle of its opening now and then.
        if kill_at % 3 == 0 {
            let faults = Faults::new(FaultSpec { kill_at: Some(kill_at / 2), tear, unsynced });
            let _ = open(at.path(), &faults);
        }
        let cut_again = tree(at.path());
        let mut controller = open(at.path(), &Faults::none()).unwrap();
        let opened = tree(at.path());
        round_of(&mut controller, 4.0).unwrap();
        // What a round wrote is in the journal too, until the next checkpoint.
        if kill_at % 2 == 0 {
            controller.close().unwrap();
        } else {
            drop(controller);
        }
        let now = tree(at.path());
        let kept = folder();
        copy(at.path(), kept.path());
        let expected = state(kept.path()).unwrap();
        // Of each page whether anything reads it now.
        let mut read = BTreeMap::new();
        for (version, old) in [&cut, &cut_again, &opened, &before, &sibling].into_iter().enumerate()
        {
            let differ: Vec<usize> =
                (0..now.len() / PAGE).filter(|&p| page(&now, p) != page(old, p)).collect();
            if differ.is_empty() {
                continue;
            }
            // What cut attempts left, page by page; of the others some.
            let (skip, step) = if version < 2 { (0, 1) } else { (kill_at as usize % 9, 9) };
            for &which in differ.iter().skip(skip).step_by(step) {
                let place = which * PAGE..(which + 1) * PAGE;
                let mut swapped = now.clone();
                swapped[place.clone()].copy_from_slice(page(old, which));
                let is_read = || {
                    *read.entry(which).or_insert_with(|| {
                        let mut flipped = now.clone();
                        flipped[place.start + 40] ^= 1;
                        with_tree(at.path(), &flipped).is_err()
                    })
                };
                single.note(with_tree(at.path(), &swapped), &expected, is_read);
            }
            whole.note(with_tree(at.path(), old), &expected, || true);
            whole.note(with_tree_at_work(at.path(), old), &expected, || true);
        }
    }
    println!("{cuts} cuts: single pages {single:?}, whole files {whole:?}");
    assert_eq!((single.taken, single.wrong), (0, 0), "single pages {single:?}");
    assert_eq!((whole.taken, whole.wrong), (0, 0), "whole files {whole:?}");
    assert!(
        cuts > 30 && single.refused > 10 * cuts && whole.refused > cuts,
        "{single:?} {whole:?}"
    );
}

fn at_place(folder: &Path, counter: &Path) -> Result<Controller, Error> {
    Controller::open(folder, &key(), &counter.to_path_buf(), &mut |_, _| {})
}

#[test]
fn a_sibling_of_the_same_key_is_another_instance() {
    let (ours, theirs) = (folder(), folder());
    for at in [&ours, &theirs] {
        let mut controller = create(at.path(), &spec(0.0));
        round_of(&mut controller, 1.0).unwrap();
        controller.close().unwrap();
    }
    // Opening moves things on, so of a copy; ours and theirs have seen the same evictions.
    let kept = folder();
    copy(ours.path(), kept.path());
    let expected = state(kept.path()).unwrap();
    let counter = ours.path().join("counter");
    // Its counter, or its folder, or its journal and tree under our counter.
    for (folder, counter) in [(&ours, theirs.path().join("counter")), (&theirs, counter.clone())] {
        let error = at_place(&folder.path().join("t"), &counter).map(drop).unwrap_err();
        let other = matches!(error, Error::Journal(JournalError::OtherInstance { .. }));
        assert!(other, "{error}");
        assert!(error.to_string().contains("do not mix"), "{error}");
    }
    let error = with_tree(ours.path(), &tree(theirs.path())).unwrap_err();
    assert!(matches!(error, Error::Recover(_)), "{error}");
    assert_eq!(state(ours.path()).unwrap(), expected);
}

/// A copy of the folder and the folder itself, opened from one state with one counter: what either
/// does first, the other cannot go on, and says why; rows are read by one of them only.
#[test]
fn of_two_copies_of_a_folder_one_goes_on() {
    for first in [false, true] {
        let at = folder();
        let mut controller = create(at.path(), &spec(0.0));
        round_of(&mut controller, 1.0).unwrap();
        let copied = at.path().join("copied");
        fs::create_dir(&copied).unwrap();
        for file in ["controller.json", "journal", "tree"] {
            fs::copy(at.path().join("t").join(file), copied.join(file)).unwrap();
        }
        let counter = at.path().join("counter");
        // Two processes: the second does not get the counter.
        let held = at_place(&copied, &counter).map(drop).unwrap_err();
        assert!(matches!(held, Error::Journal(JournalError::CounterHeld { .. })), "{held}");
        // Someone helps it, by another file of the same content.
        let again = at.path().join("again");
        fs::copy(&counter, &again).unwrap();
        fs::rename(&again, &counter).unwrap();
        if first {
            // The one that was here goes on, and learns that its counter is another file.
            let replaced = round_of(&mut controller, 2.0).unwrap_err();
            let error = matches!(replaced, Error::Journal(JournalError::CounterReplaced { .. }));
            assert!(error, "{replaced}");
            assert!(matches!(round_of(&mut controller, 2.0), Err(Error::Ended)));
            continue;
        }
        let mut copy = at_place(&copied, &counter).unwrap();
        round_of(&mut copy, 2.0).unwrap();
        let reads = controller.raw.tree().counters().reads;
        let moved = round_of(&mut controller, 4.0).unwrap_err();
        assert!(matches!(moved, Error::Journal(JournalError::CounterMoved { .. })), "{moved}");
        assert!(moved.to_string().contains("went on from a copy"), "{moved}");
        assert_eq!(controller.raw.tree().counters().reads, reads, "no path was read");
        drop(controller);
        // Nor when it is opened again; the copy is not harmed.
        drop(copy);
        let rolled_back = open(at.path(), &Faults::none()).map(drop).unwrap_err();
        let error = matches!(rolled_back, Error::Journal(JournalError::RolledBack { .. }));
        assert!(error, "{rolled_back}");
        assert_eq!(at_place(&copied, &counter).unwrap().round(), 2);
    }
}
