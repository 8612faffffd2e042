//! What a server knows of the places of its open round beside what was sealed: whose certificate has
//! each, and the sealed rows that it was given.
//!
//! A reply is sealed once, and the same bytes are given again. Who asks again has lost the reply, and
//! one that was seen twice tells no more than one; sealed anew, each time under another random nonce,
//! it would be another message under the same key, as many as somebody on the way cares to ask for,
//! each after another walk through the memory. Sealed bytes are no secret, so nothing is wiped here.

use std::collections::{HashMap, HashSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use tonic::Request;

use crate::host::quota::{Holder, Quota};
use crate::host::tls::PeerCertificate;

/// Which place of which round a call is about, and who makes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub round: u64,
    pub user: u32,
    /// None of a client without one, which is all of them where the server asks for none.
    pub certificate: Option<PeerCertificate>,
    /// Whose the place counts as, where places are shared out.
    pub holder: Holder,
}

impl Place {
    /// That of a call.
    pub fn of<T>(request: &Request<T>, round: u64, user: u32) -> Self {
        let extensions = request.extensions();
        let (certificate, holder) = (extensions.get().copied(), Holder::of(extensions));
        Self { round, user, certificate, holder }
    }
}

/// The taken places of the open round.
pub(super) struct Seats {
    round: u64,
    seats: HashMap<u32, Seat>,
    /// Whose they are.
    quota: Quota<u32>,
    /// Who came for a place of this round or an earlier one, too late or where others have as few, and has come
    /// to each since.
    expected: HashSet<Holder>,
    /// Bytes of replies that are kept, and how many may be.
    bytes: usize,
    bytes_max: usize,
}

struct Seat {
    certificate: Option<PeerCertificate>,
    /// Who had the place before, and lost it.
    before: Vec<Holder>,
    reply: Option<Bytes>,
    /// When its rows were sealed last.
    sealed_at: Option<Instant>,
}

/// What a user was given before.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Given {
    /// These bytes.
    Kept(Bytes),
    /// Nothing, or nothing that is kept: its rows are to be sealed.
    Nothing,
    /// Rows that are not kept, a moment ago.
    Lately { retry_after: Duration },
}

impl Seats {
    /// Places whose replies take `bytes_max` at most.
    pub fn new(bytes_max: usize) -> Self {
        let (quota, expected) = (Quota::new(0), HashSet::new());
        Self { round: 0, seats: HashMap::new(), quota, expected, bytes: 0, bytes_max }
    }

    /// The round is over: nothing of it is kept.
    pub fn clear(&mut self) {
        self.seats = HashMap::new();
        self.quota = Quota::new(0);
        self.bytes = 0;
    }

    /// Why the place is another's than this caller's, if it is.
    pub fn is_anothers(&self, place: &Place) -> Option<&'static str> {
        let seat = self.seat(place.round, place.user)?;
        match seat.certificate == place.certificate {
            false => Some(OTHER_CERTIFICATE),
            true => seat.before.contains(&place.holder).then_some(DISPLACED),
        }
    }

    /// Whether another has the place, and more places than the caller would have then.
    pub fn gives_way(&self, place: &Place) -> bool {
        let is_taken = self.seat(place.round, place.user).is_some();
        let holder = self.quota.holder(&place.user);
        is_taken && holder != Some(place.holder) && self.quota.gives_way(&place.user, place.holder)
    }

    /// The place of a round of `users` is taken, if it was not before.
    pub fn take(&mut self, place: &Place, users: usize) {
        if self.round != place.round {
            self.clear();
            self.round = place.round;
            self.quota = Quota::new(users as u64);
        }
        if !self.seats.contains_key(&place.user) {
            self.sit(place, Vec::new());
        }
    }

    /// The place goes from whoever had it to the caller.
    pub fn give(&mut self, place: &Place) {
        let mut before = self.seats.remove(&place.user).map(|seat| seat.before).unwrap_or_default();
        before.extend(self.quota.holder(&place.user));
        before.retain(|before| *before != place.holder);
        self.sit(place, before);
    }

    fn sit(&mut self, place: &Place, before: Vec<Holder>) {
        let Place { user, certificate, holder, .. } = *place;
        self.seats.insert(user, Seat { certificate, before, reply: None, sealed_at: None });
        // There is room for as many as have a number, and each number is there once.
        let _ = self.quota.enter(user, holder, 1, Instant::now().into_std());
    }

    /// The caller came for the place and did not get it.
    pub fn leave_out(&mut self, place: &Place) {
        let has_one = self.round == place.round && self.quota.of(place.holder) > 0;
        if !has_one && self.expected.len() < EXPECTED_MAX {
            self.expected.insert(place.holder);
        }
    }

    /// Whether somebody is expected who could take a place from one that has several.
    pub fn awaits(&self) -> bool {
        self.quota.has_much(1) && self.expected.iter().any(|holder| self.quota.of(*holder) == 0)
    }

    /// The round begins: whoever was expected and has not come is expected no more.
    pub fn begin(&mut self) {
        self.expected.retain(|holder| self.quota.of(*holder) > 0);
    }

    /// What the user was given before.
    pub fn given(&self, round: u64, user: u32, now: Instant) -> Given {
        let Some(Seat { reply, sealed_at: Some(at), .. }) = self.seat(round, user) else {
            return Given::Nothing;
        };
        let retry_after = (*at + AGAIN_AFTER).saturating_duration_since(now);
        match reply {
            Some(reply) => Given::Kept(reply.clone()),
            None if retry_after.is_zero() => Given::Nothing,
            None => Given::Lately { retry_after },
        }
    }

    /// The user is given this, which is kept where there is room.
    pub fn keep(&mut self, round: u64, user: u32, reply: &Bytes, now: Instant) {
        let has_room = self.bytes + reply.len() <= self.bytes_max;
        let Some(seat) = self.seats.get_mut(&user).filter(|_| self.round == round) else { return };
        seat.sealed_at = Some(now);
        if has_room && seat.reply.is_none() {
            self.bytes += reply.len();
            seat.reply = Some(reply.clone());
        }
    }

    fn seat(&self, round: u64, user: u32) -> Option<&Seat> {
        self.seats.get(&user).filter(|_| self.round == round)
    }
}

/// How long a user whose rows are not kept waits until they are made again.
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// How many peers are expected at most.
const EXPECTED_MAX: usize = 1024;

/// Why a place is refused to another certificate than its own, beside the reasons of the messages.
const OTHER_CERTIFICATE: &str = "certificate";
/// Why to whoever had it before, and why a request is given up that was taken.
pub(super) const DISPLACED: &str = "displaced";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_past_the_bytes_are_made_again_and_not_at_once() {
        let mut seats = Seats::new(10);
        let (now, sealed) = (Instant::now(), Bytes::from_static(b"sealed"));
        for user in [0, 1] {
            let place = Place { round: 7, user, certificate: None, holder: Holder::of_number(1) };
            seats.take(&place, 2);
            assert_eq!(seats.given(7, user, now), Given::Nothing);
            seats.keep(7, user, &sealed, now);
        }
        assert_eq!(seats.given(7, 0, now), Given::Kept(sealed.clone()));
        let half = AGAIN_AFTER / 2;
        assert_eq!(seats.given(7, 1, now + half), Given::Lately { retry_after: half });
        assert_eq!(seats.given(7, 1, now + AGAIN_AFTER), Given::Nothing);
        // Another round's, and the same once it is over.
        assert_eq!(seats.given(8, 0, now), Given::Nothing);
        seats.clear();
        assert_eq!((seats.given(7, 0, now), seats.bytes), (Given::Nothing, 0));
    }
    #[test]
    fn whoever_is_left_out_is_waited_for_and_takes_from_whoever_has_more() {
        let place = |number, user| {
            let holder = Holder::of_number(number);
            Place { round: 7, user, certificate: None, holder }
        };
        let mut seats = Seats::new(10);
        for user in 0..3 {
            assert!(!seats.gives_way(&place(1, user)));
            seats.take(&place(1, user), 3);
        }
        assert!(!seats.awaits(), "nobody else has come");
        // One that has a place is not left out, nor is a place its holder's own to take.
        seats.leave_out(&place(1, 2));
        assert!(!seats.awaits() && !seats.gives_way(&place(1, 0)));
        seats.leave_out(&place(2, 2));
        assert!(seats.awaits() && seats.gives_way(&place(2, 2)));
        seats.give(&place(2, 2));
        assert!(!seats.awaits());
        assert_eq!(seats.is_anothers(&place(1, 2)), Some(DISPLACED));
        assert_eq!(
            (seats.is_anothers(&place(2, 2)), seats.is_anothers(&place(3, 2))),
            (None, None)
        );
        // Two and one now.
        assert!(!seats.gives_way(&place(1, 2)) && !seats.gives_way(&place(2, 0)));
        // A third takes one of the two, after which nobody has several.
        assert!(seats.gives_way(&place(3, 0)) && !seats.gives_way(&place(3, 2)));
        seats.give(&place(3, 0));
        seats.leave_out(&place(4, 0));
        assert!(!seats.awaits(), "it could take nothing");
        // Whoever was left out is waited for as long as it comes, and in vain once.
        seats.begin();
        for (round, comes) in [(8, true), (9, true), (10, false)] {
            seats.clear();
            for user in 0..3 {
                seats.take(&Place { round, ..place(1, user) }, 3);
            }
            assert!(seats.awaits());
            if comes {
                seats.give(&Place { round, ..place(2, 1) });
            }
            assert_ne!(seats.awaits(), comes);
            seats.begin();
        }
        assert!(!seats.awaits() && seats.expected.is_empty());
        for holder in 0..2 * EXPECTED_MAX as u64 {
            seats.leave_out(&place(10 + holder, 0));
        }
        assert_eq!(seats.expected.len(), EXPECTED_MAX);
    }
}
