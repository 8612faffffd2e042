//! The clients' parts that wait for a pass, and the places of those under way: each client has its part of both.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use hushtable_infer::shares::exchange::Name;

use super::driver::Asked;
use crate::host::quota::{Full, Holder, Quota};
use crate::host::turns::Rota;

pub(super) struct Crowd {
    waiting: Rota<Box<Asked>>,
    places: Quota<Name>,
    /// Who has asked of late, and when last.
    seen: HashMap<Holder, Instant>,
    batch_max: usize,
}

impl Crowd {
    /// With so many places, and so many parts in a pass.
    pub fn new(places: usize, batch_max: usize) -> Self {
        let (waiting, places) = (Rota::new(), Quota::new(places as u64));
        Self { waiting, places, seen: HashMap::new(), batch_max }
    }

    /// A part has come.
    pub fn push(&mut self, one: Box<Asked>, now: Instant) {
        self.seen.insert(one.holder, now);
        self.waiting.push(one.holder, one, |one| is_live(one));
    }

    /// Whether parts wait.
    pub fn is_waiting(&self) -> bool {
        !self.waiting.is_empty()
    }

    /// Those that are next. While others are about, a client has a small part of each pass, so that none takes much
    /// longer for it.
    pub fn next_pass(&mut self, now: Instant) -> Vec<Asked> {
        let size = self.batch_max;
        self.seen.retain(|_, at| now.saturating_duration_since(*at) <= ABOUT);
        let each = if self.seen.len() > 1 { size.div_ceil(CROWDED) } else { size };
        self.waiting.take(size, each, |one| is_live(one)).into_iter().map(|one| *one).collect()
    }

    /// A place for one: which gave theirs up for it.
    pub fn enter(&mut self, name: Name, holder: Holder, now: Instant) -> Result<Vec<Name>, Full> {
        self.places.enter(name, holder, 1, now)
    }

    /// Both servers have their part of it.
    pub fn met(&mut self, name: &Name, now: Instant) {
        self.places.touch(name, now);
    }

    /// A place is given back.
    pub fn leave(&mut self, name: &Name) {
        self.places.leave(name);
    }
}

/// A client that has gone needs no answer.
fn is_live(one: &Asked) -> bool {
    !one.reply.is_closed()
}

/// Who has asked within this time is about.
const ABOUT: Duration = Duration::from_secs(1);
/// Which part of a pass a client has then.
const CROWDED: usize = 32;
