//! The union of requests, and which of its rows are kept.

use crate::secret::{SecretRng, numbers, secret};
use hushtable_oram::seal::Key;
use hushtable_oram::union::{DUMMY, LOST, LastReads, Loss, Union, scan};
use hushtable_prg::valgrind::mark_public;
use std::collections::BTreeSet;

fn ids(count: usize) -> Vec<u32> {
    numbers(count).map(|n| if n % 5 == 0 { DUMMY } else { (n >> 40) as u32 % 400 }).collect()
}

fn rows(ids: &[u32]) -> BTreeSet<u32> {
    ids.iter().copied().filter(|id| *id != DUMMY).collect()
}

pub fn unites() {
    for count in [1, 900, (1 << 16) + 5] {
        let union = Union::new(&secret(ids(count))).expect("few slots");
        let mut all = union.all();
        let mut size = [union.count()];
        mark_public(&mut size);
        mark_public(&mut all.ids);
        mark_public(&mut all.positions);
        let expected = rows(&ids(count));
        assert_eq!(size[0] as usize, expected.len());
        assert!(all.ids[..expected.len()].iter().eq(&expected));
        for (id, position) in ids(count).iter().zip(all.positions.iter()) {
            assert!(*id == DUMMY && *position == LOST || all.ids[*position as usize] == *id);
        }
    }
}

pub fn keeps() {
    for loss in [Loss::Random, Loss::LeastRequested, Loss::HighestIds] {
        let union = Union::new(&secret(ids(900))).expect("few slots");
        for len in [1, 100, 900] {
            let kept = union.keep(len, loss, &mut SecretRng::new(len as u64));
            let mut kept = kept.expect("from 1 to the number of slots");
            mark_public(&mut kept.ids);
            mark_public(&mut kept.request_counts);
            let expected = rows(&ids(900));
            let found = rows(&kept.ids);
            assert_eq!(found.len(), len.min(expected.len()));
            assert!(found.is_subset(&expected));
            let served: u32 = kept.request_counts.iter().sum();
            let asking = ids(900).into_iter().filter(|id| found.contains(id)).count();
            assert_eq!(served as usize, asking);
        }
    }
}

/// Rounds that go by when rows were read last: the map, the ranks and the marks.
pub fn keeps_unread() {
    let mut reads = LastReads::new(400, &Key::from_bytes([9; 32])).expect("a map");
    let mut before = BTreeSet::new();
    for round in 1..=3 {
        let union = Union::new(&secret(ids(300))).expect("few slots");
        let found = reads.of(&union).expect("a round");
        let random = &mut SecretRng::new(round);
        let (mut kept, masks) = reads.keep(&union, &found, 60, random).expect("60 of 300");
        reads.mark(&found, &masks).expect("a map");
        mark_public(&mut kept.ids);
        let rows = rows(&kept.ids);
        assert_eq!(rows.len(), 60);
        // 300 slots ask for more rows than three rounds read: no row is read twice.
        assert!(rows.is_disjoint(&before), "round {round}");
        before.extend(rows);
    }
}

pub fn scans() {
    let mut scanned = scan::scan(&secret(ids(900)));
    mark_public(&mut scanned[0].ids);
    assert_eq!(rows(&scanned[0].ids), rows(&ids(900)));
}
