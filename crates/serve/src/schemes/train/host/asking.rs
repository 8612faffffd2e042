//! Users' requests: who gets a place of the open round, and when it begins.
//!
//! Without enrolment nothing tells users apart but their certificates or addresses. So a round's places are a
//! [`Quota`](crate::host::quota::Quota) as all that a server has only so much of: a peer may have all of them
//! while nobody else asks, as a relay of many users does; whoever asks for a place of somebody's that has more
//! places than the asker has then, gets it.
//!
//! A place changes hands only while requests are taken. Until then the memory has been told no ids: no number of
//! rows was drawn from them, no privacy was charged, and nobody was given rows, so that whoever loses its place is
//! as one that never came. From the moment that the round begins, a place is its user's to its end: k was drawn for
//! these ids and is charged for, and rows are sealed for who sent them; whoever took such a place would leave the
//! table to others' rows, and make the round cost what it gives to nobody.
//!
//! A round begins as soon as it is full, so a peer that fills it at once would leave no time in which to take a
//! place from it. So whoever came too late for a round is waited for in those after it, as long as it comes to each:
//! full, a round in which one has several places begins when they have come, or after [`LEFT_OUT_WAIT`]. Whoever was
//! waited for in vain is not waited for again.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_oram::rounds::Refused;
use hushtable_oram::wire::{Error as WireError, OrderError};
use tokio::time::Instant;

use super::{Host, blocking};
use crate::Refusal;
use crate::schemes::train::TrainRefusal;
use crate::schemes::train::seats::{DISPLACED, Place};

impl Host {
    /// Takes a user's request; the last user's begins the round. Whoever makes it has the place: its
    /// certificate, where it has one, is the only one that may repeat it.
    pub async fn request(self: &Arc<Self>, place: Place, sealed: Bytes) -> Result<(), Refusal> {
        let host = Arc::clone(self);
        blocking(move || host.ask(place, &sealed)).await?;
        self.changed();
        // The reply need not wait for the memory.
        self.drive_if_due();
        Ok(())
    }

    fn ask(self: &Arc<Self>, place: Place, sealed: &[u8]) -> Result<(), Refusal> {
        let Place { round, user, .. } = place;
        let (mut rounds, mut seats) = (self.rounds(), self.seats());
        // An enrolled user has one place whatever its address: none has more than its part.
        let is_shared = rounds.terms().authority().is_none();
        let anothers = seats.is_anothers(&place);
        let asked = match anothers {
            _ if is_shared && seats.gives_way(&place) => rounds.displace(round, user, sealed),
            Some(reason) => {
                seats.leave_out(&place);
                return Err(self.is_taken(place, reason));
            }
            None => rounds.request(round, user, sealed).map(|()| false),
        };
        match (asked, anothers) {
            (Ok(true), _) => {
                seats.give(&place);
                self.note_refused(place, "request", DISPLACED);
            }
            // What another has sent, once more.
            (Ok(false), Some(reason)) => return Err(self.is_taken(place, reason)),
            (Ok(false), None) => {
                let users = rounds.open_round().map_or(0, |open| open.users);
                seats.take(&place, users);
            }
            (Err(refused), _) => {
                if is_late(&refused) {
                    seats.leave_out(&place);
                }
                return Err(self.refuse_of(place, refused));
            }
        }
        let waits = is_shared && rounds.is_full() && seats.awaits();
        let until = waits.then(|| Instant::now() + LEFT_OUT_WAIT);
        rounds.hold(until.map(Instant::into_std));
        if let Some(until) = until {
            self.wake_at(until);
        }
        Ok(())
    }

    fn is_taken(&self, place: Place, reason: &'static str) -> Refusal {
        self.note_refused(place, "request", reason);
        TrainRefusal::AlreadyDone { what: "request".to_owned(), user: place.user }.into()
    }
}

/// Whether a request is refused because others were there first.
fn is_late(refused: &Refused) -> bool {
    match refused {
        Refused::Over { .. } => true,
        Refused::Message { source: WireError::Order(order), .. } => {
            matches!(order, OrderError::Closed { .. } | OrderError::AlreadyRequested { .. })
        }
        _ => false,
    }
}

/// How long a full round waits for whoever had no place in an earlier one. A client that asks for the next round sees
/// it within that; a round itself takes minutes.
const LEFT_OUT_WAIT: Duration = Duration::from_secs(5);
