//! Places of a round that change hands before it begins, and a full round that waits for that.

use std::time::Instant;

use super::{Open, Refused, Rounds};

impl Rounds {
    /// Takes a user's request in place of the one that was taken before, which another sender made; see
    /// [`SealedRound::displace`](crate::wire::SealedRound::displace). Whether anything has changed.
    ///
    /// # Errors
    /// As [`request`](Self::request); the place stays as it was.
    pub fn displace(&mut self, round: u64, user: u32, sealed: &[u8]) -> Result<bool, Refused> {
        self.check_open(round)?;
        let Some(open) = &mut self.open else { return Err(Refused::NoRound { round }) };
        let taken = open.sealed.displace(&self.key, user, sealed);
        taken.map_err(|source| open.refuse("request", user, source))
    }

    /// Whether all places of the open round are taken, and it has not begun.
    pub fn is_full(&self) -> bool {
        self.open.as_ref().is_some_and(|open| {
            !open.sealed.is_closed() && open.sealed.requested() == open.sealed.users()
        })
    }

    /// Has the open round, once it is full, wait until then for whoever may take a place from another; where
    /// it waits already, for no longer. None has it wait for nobody. Its deadline for requests holds all the
    /// same, and so does its operator's word.
    pub fn hold(&mut self, until: Option<Instant>) {
        if let Some(open) = &mut self.open {
            open.held_until = until.map(|until| open.held_until.unwrap_or(until).min(until));
        }
    }
}

impl Open {
    /// Whether it waits though it is full.
    pub(super) fn is_held(&self, now: Instant) -> bool {
        self.held_until.is_some_and(|until| until > now)
    }

    /// When time alone makes it go on, at the latest.
    pub(super) fn wait_until(&self, now: Instant) -> Option<Instant> {
        let held_until = self.held_until.filter(|until| *until > now);
        [self.requests_until, held_until].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::*;
    use crate::round::ControllerSpec;
    use crate::wire::{
        AuthorityKey, Context, Credential, DUMMY, OrderError, Pin, UserKey, UserSession,
    };

    const SECOND: Duration = Duration::from_secs(1);

    /// An open round of two users, and what makes their requests.
    fn round(
        change: impl FnOnce(ControllerSpec) -> ControllerSpec,
        now: Instant,
    ) -> (Rounds, impl Fn(u32, u32) -> Vec<u8>) {
        let spec = change(ControllerSpec::new("films", (30, 1), (4, 2)));
        let (terms, key) = (Terms::of(&spec).unwrap(), ControllerKey::from_seed(&[3; 32]));
        let (pin, at) = (Pin::new(key.public(), &terms), terms.clone());
        let mut rounds = Rounds::new(terms, key, 0, None, &[]);
        let request_max = Some(SECOND * 10);
        let limits =
            RoundLimits { users: 2, users_min: 1, request_max, upload_max: None, finish_max: None };
        rounds.open(&limits, 7, now).unwrap();
        let request = move |user, id| {
            let mut session = UserSession::new(&pin, Context::new(&at, 7, user), None).unwrap();
            session.request(&[id]).unwrap()
        };
        (rounds, request)
    }

    fn order<T: std::fmt::Debug>(refused: Result<T, Refused>) -> OrderError {
        match refused {
            Err(Refused::Message { source: wire::Error::Order(order), .. }) => order,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_place_changes_hands_until_the_round_begins_and_not_after() {
        let now = Instant::now();
        let (mut rounds, request) = round(|spec| spec, now);
        let (one, two) = (request(0, 5), request(0, 6));
        rounds.request(7, 0, &one).unwrap();
        // What does not open takes nothing from anybody, and the same bytes change nothing.
        let mut rubbish = two.clone();
        rubbish[40] ^= 1;
        assert!(rounds.displace(7, 0, &rubbish).is_err());
        assert!(!rounds.displace(7, 0, &one).unwrap());
        assert!(rounds.displace(7, 0, &two).unwrap());
        assert_eq!(order(rounds.request(7, 0, &one)), OrderError::AlreadyRequested { user: 0 });
        rounds.request(7, 0, &two).unwrap();
        // A place that nobody has is taken like any other.
        assert!(rounds.displace(7, 1, &request(1, 9)).unwrap());
        let Next::Begin { ids, .. } = rounds.next(now) else { panic!("it is full") };
        assert_eq!(ids[..], [6, DUMMY, 9, DUMMY]);
        assert_eq!(order(rounds.displace(7, 0, &one)), OrderError::Closed { user: 0 });
        assert!(!rounds.displace(7, 0, &two).unwrap());
        assert!(matches!(rounds.displace(8, 0, &two), Err(Refused::NoRound { round: 8 })));
    }

    #[test]
    fn an_enrolled_user_keeps_its_place() {
        let authority = Some(AuthorityKey::from_seed(&[6; 32]).public());
        let of = |seed: u8| UserKey::from_seed(&[seed; 32]);
        let (mut rounds, _) = round(|spec| ControllerSpec { authority, ..spec }, Instant::now());
        let authority = AuthorityKey::from_seed(&[6; 32]);
        let pin = Pin::new(rounds.key().public(), rounds.terms());
        let request = |rounds: &Rounds, seed| {
            let ticket = authority.enrol(&pin, &of(seed).public()).unwrap();
            let credential = Credential::new(of(seed), ticket);
            let context = Context::new(rounds.terms(), 7, 0);
            let mut session = UserSession::new(&pin, context, Some(&credential)).unwrap();
            session.request(&[5]).unwrap()
        };
        let (one, two) = (request(&rounds, 1), request(&rounds, 2));
        rounds.request(7, 0, &one).unwrap();
        assert_eq!(order(rounds.displace(7, 0, &two)), OrderError::AlreadyRequested { user: 0 });
    }

    #[test]
    fn a_full_round_waits_as_long_as_it_is_held_and_no_longer_than_its_deadline() {
        let start = Instant::now();
        for (held, released, deadline) in [(3u32, None, 3u32), (60, None, 10), (60, Some(2), 2)] {
            let (mut rounds, request) = round(|spec| spec, start);
            rounds.request(7, 0, &request(0, 5)).unwrap();
            assert!(!rounds.is_full());
            rounds.request(7, 1, &request(1, 6)).unwrap();
            assert!(rounds.is_full());
            rounds.hold(Some(start + SECOND * held));
            // It is not held for longer by who comes later.
            rounds.hold(Some(start + SECOND * 100));
            let first = held.min(10);
            match rounds.next(start) {
                Next::Wait { until } => assert_eq!(until, Some(start + SECOND * first)),
                other => panic!("{other:?}"),
            }
            if let Some(at) = released {
                assert!(!rounds.is_due(start + SECOND * at));
                rounds.hold(None);
            }
            assert!(!rounds.is_due(start + SECOND * (deadline - 1)) || released.is_some());
            assert!(matches!(rounds.next(start + SECOND * deadline), Next::Begin { .. }));
            assert!(!rounds.is_full(), "it has begun");
        }
        // The operator's word holds at once.
        let (mut rounds, request) = round(|spec| spec, start);
        for user in 0..2 {
            rounds.request(7, user, &request(user, 5)).unwrap();
        }
        rounds.hold(Some(start + SECOND * 5));
        rounds.close(7).unwrap();
        assert!(matches!(rounds.next(start), Next::Begin { .. }));
    }
}
