//! What a server knows of the places of its open round beside what was sealed: whose certificate has
//! each, and the sealed rows that it was given.
//!
//! A reply is sealed once, and the same bytes are given again. Who asks again has lost the reply, and
//! one that was seen twice tells no more than one; sealed anew, each time under another random nonce,
//! it would be another message under the same key, as many as somebody on the way cares to ask for,
//! each after another walk through the memory. Sealed bytes are no secret, so nothing is wiped here.

use std::collections::HashMap;
use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;

use crate::host::tls::PeerCertificate;

/// Which place of which round a call is about, and who makes it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Place {
    pub round: u64,
    pub user: u32,
    /// None of a client without one, which is all of them where the server asks for none.
    pub certificate: Option<PeerCertificate>,
}

/// The taken places of the open round.
pub(super) struct Seats {
    round: u64,
    seats: HashMap<u32, Seat>,
    /// Bytes of replies that are kept, and how many may be.
    bytes: usize,
    bytes_max: usize,
}

struct Seat {
    holder: Option<PeerCertificate>,
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
        Self { round: 0, seats: HashMap::new(), bytes: 0, bytes_max }
    }

    /// The round is over: nothing of it is kept.
    pub fn clear(&mut self) {
        self.seats = HashMap::new();
        self.bytes = 0;
    }

    /// Whether the place was taken under another certificate.
    pub fn is_anothers(&self, round: u64, user: u32, certificate: Option<PeerCertificate>) -> bool {
        self.seat(round, user).is_some_and(|seat| seat.holder != certificate)
    }

    /// The place is taken, if it was not before.
    pub fn take(&mut self, round: u64, user: u32, holder: Option<PeerCertificate>) {
        if self.round != round {
            self.clear();
            self.round = round;
        }
        let seat = || Seat { holder, reply: None, sealed_at: None };
        self.seats.entry(user).or_insert_with(seat);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn replies_past_the_bytes_are_made_again_and_not_at_once() {
        let mut seats = Seats::new(10);
        let (now, sealed) = (Instant::now(), Bytes::from_static(b"sealed"));
        for user in [0, 1] {
            seats.take(7, user, None);
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
}
