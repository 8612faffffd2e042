//! What a round says of itself: sizes and times, nothing of a user.

use serde::Serialize;

use crate::wire::RefusedReason;

/// A round that has begun.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct RoundStart {
    /// Rounds committed before it, plus 1.
    pub round: u64,
    /// Its users.
    pub users: usize,
    /// K: request slots.
    pub requests: u64,
    /// k: rows read from the main memory.
    pub accesses: u64,
    /// Users who asked for what is no row, and whose slots were taken as padding.
    pub refused: Vec<usize>,
}

/// Microseconds of each step of a round.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Steps {
    /// The union of the requests.
    pub union_us: u64,
    /// Drawing k, and choosing what is kept.
    pub sample_us: u64,
    /// The position map.
    pub position_us: u64,
    /// Journal and root counter.
    pub journal_us: u64,
    /// Reading and opening buckets, those of evictions too.
    pub read_us: u64,
    /// Finding blocks in paths and stash.
    pub find_us: u64,
    /// Filling the buffer.
    pub buffer_us: u64,
    /// Serving users.
    pub serve_us: u64,
    /// Adding gradients.
    pub add_us: u64,
    /// Emptying the buffer.
    pub drain_us: u64,
    /// The aggregate.
    pub update_us: u64,
    /// Evictions.
    pub evict_us: u64,
    /// Sealing, writing and syncing buckets.
    pub write_us: u64,
}

impl Steps {
    /// Name and microseconds of each, in order.
    pub(super) fn named(&self) -> Vec<(String, u64)> {
        let named = [
            ("union", self.union_us),
            ("sample", self.sample_us),
            ("position", self.position_us),
            ("journal", self.journal_us),
            ("read", self.read_us),
            ("find", self.find_us),
            ("buffer", self.buffer_us),
            ("serve", self.serve_us),
            ("add", self.add_us),
            ("drain", self.drain_us),
            ("update", self.update_us),
            ("evict", self.evict_us),
            ("write", self.write_us),
        ];
        named.map(|(name, us)| (name.to_owned(), us)).into()
    }
}

/// What a round did: sizes and times, nothing of a user. The same names everywhere: in `train.proto`,
/// in the clients' types, in Python.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::exhaustive_structs, reason = "memories fill it in")]
pub struct RoundReport {
    /// The round. Where messages are sealed it is the random number that they are bound to, elsewhere
    /// the number of rounds committed before this one, plus 1.
    pub round: u64,
    /// Rounds committed, with this one if it was.
    pub rounds: u64,
    /// Places of users.
    pub users: usize,
    /// Users who asked for rows; all of them where ids are given in the clear.
    pub requested: usize,
    /// Users who uploaded.
    pub uploaded: usize,
    /// K: request slots, users × slots.
    pub requests: u64,
    /// k: rows read and written.
    pub accesses: u64,
    /// Bytes read from the tree's file.
    pub read_bytes: u64,
    /// Bytes written to the tree's file, with a checkpoint's if one was due.
    pub written_bytes: u64,
    /// Bytes written to the journal.
    pub journal_bytes: u64,
    /// Where the time went: steps by name, in order, in microseconds.
    pub steps_us: Vec<(String, u64)>,
    /// Users of whom something was refused in this round, by their numbers in order: of each the reason
    /// that proves most ([`RefusedReason::is_proven`]).
    pub refused: Vec<(u32, RefusedReason)>,
}

/// Of each user the reason that proves most, by user.
pub(crate) fn one_each(mut refused: Vec<(u32, RefusedReason)>) -> Vec<(u32, RefusedReason)> {
    refused.sort_unstable_by_key(|&(user, reason)| (user, std::cmp::Reverse(reason)));
    refused.dedup_by_key(|&mut (user, _)| user);
    refused
}
