//! Which of a side's servers are asked, and when an operation goes on to the next.
//!
//! A side may be several servers of one operator that hold the same. A client asks one of each side, its
//! *route*, and leaves it for the next of the same side where that one drains or is out of reach. What makes
//! that harmless:
//!
//! - A route is made by an opening and by nothing else. An opening asks the servers of *this* route what they are,
//!   so that no key goes to a server before it has said that it is of the side that it is addressed as.
//! - What was asked on one route is not asked on another. A lookup that moves is made afresh, with new keys for
//!   both sides: to an operator it is a second lookup, which says nothing about the first. (The same key could
//!   go to another server of its own side, whose operator has it already; the other key of the same query must
//!   not, and a lookup that is made afresh cannot mistake the two.)
//! - Versions are matched by each opening and are in each answer, so that servers of which only some have changed
//!   are never mixed.

use std::time::Duration;

use super::{CallFault, Place, pause};

/// Which of the servers at each place is asked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Route([usize; Place::ALL.len()]);

impl Route {
    pub fn at(self, place: Place) -> usize {
        self.0[place as usize]
    }
}

/// How often a client leaves the servers of one place in one operation, and how long it waits before it asks the
/// next.
#[derive(Clone, Copy, Debug)]
pub struct Moves {
    servers: u32,
    made: u32,
    has_drained: bool,
}

impl Moves {
    /// Of a place with so many servers: at least one.
    pub fn new(servers: usize) -> Self {
        Self { servers: servers.clamp(1, 1 << 16) as u32, made: 0, has_drained: false }
    }

    /// How long to wait before the next server is asked, after a call to this one ended with `fault`; `None` where
    /// it is no reason to ask another, or all have been tried for long enough. `random` spreads many clients.
    ///
    /// The next is asked at once, and all of them again after a pause. A server that drains says that another one
    /// comes: from then on it is waited for, also where it is out of reach meanwhile. Where none drains and all
    /// are out of reach, it is over soon, with a single server at once.
    pub fn next(&mut self, fault: &CallFault, random: u64) -> Option<Duration> {
        match fault {
            CallFault::Draining => self.has_drained = true,
            CallFault::Unreachable if self.has_drained => {}
            CallFault::Unreachable if self.servers > 1 => {
                if self.made + 1 >= self.servers * CYCLES_MAX {
                    return None;
                }
            }
            _ => return None,
        }
        self.made += 1;
        let cycles = self.made / self.servers;
        Some(match self.made % self.servers {
            0 => pause(RETURN_AFTER, cycles - 1, random),
            _ => Duration::ZERO,
        })
    }
}

/// The moves of one operation.
pub(super) struct Travel {
    servers: [usize; Place::ALL.len()],
    moves: [Moves; Place::ALL.len()],
    /// Routes whose servers did not fit each other, or what is asked for.
    misfits: usize,
    pub made: u32,
}

impl Travel {
    /// Of an operation with so many servers at each place.
    pub fn new(servers: [usize; Place::ALL.len()]) -> Self {
        let servers = servers.map(|servers| servers.max(1));
        Self { servers, moves: servers.map(Moves::new), misfits: 0, made: 0 }
    }

    /// The route that leaves the server at `place`, and how long to wait before; as [`Moves::next`].
    pub fn leave(
        &mut self,
        from: Route,
        place: Place,
        fault: &CallFault,
        random: u64,
    ) -> Option<(Route, Duration)> {
        let pause = self.moves[place as usize].next(fault, random)?;
        self.made += 1;
        let mut to = from;
        to.0[place as usize] = (from.at(place) + 1) % self.servers[place as usize];
        Some((to, pause))
    }

    /// The next route after one whose servers are of different versions, say, so that a pair is found while some
    /// servers have changed and others not yet; and how long to wait before. `None` when all have been tried for
    /// long enough: at once, where there is but one route, and never where a server drained, which comes back.
    pub fn step(&mut self, from: Route, random: u64) -> Option<(Route, Duration)> {
        self.misfits += 1;
        let routes = self.servers.iter().fold(1usize, |all, &at| all.saturating_mul(at));
        let is_tried = self.misfits >= routes.saturating_mul(CYCLES_MAX as usize);
        let waits = self.moves.iter().any(|moves| moves.has_drained);
        if routes == 1 || (is_tried && !waits) {
            return None;
        }
        // Servers that come and go meanwhile may have hidden the route that fits.
        let pause = match self.misfits % routes {
            0 => pause(RETURN_AFTER, (self.misfits / routes) as u32 - 1, random),
            _ => Duration::ZERO,
        };
        self.made += 1;
        let mut to = from;
        for (at, &servers) in to.0.iter_mut().zip(&self.servers) {
            *at = (*at + 1) % servers;
            if *at != 0 {
                break;
            }
        }
        Some((to, pause))
    }
}

/// How often all servers of a place are tried, where none can be reached, and all routes, where none fits.
const CYCLES_MAX: u32 = 3;
/// How soon a server is asked again that drained, or was out of reach.
const RETURN_AFTER: Duration = Duration::from_millis(100);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_server_out_of_reach_is_not_waited_for_unless_it_drained() {
        let mut moves = Moves::new(1);
        assert_eq!(moves.next(&CallFault::Unreachable, 0), None);
        assert_eq!(moves.next(&CallFault::Draining, 0), Some(RETURN_AFTER));
        assert_eq!(moves.next(&CallFault::Unreachable, 0), Some(2 * RETURN_AFTER));
        assert_eq!(moves.next(&CallFault::Other, 0), None);
    }

    #[test]
    fn the_next_server_is_asked_at_once_and_all_again_after_a_pause() {
        let mut moves = Moves::new(2);
        let pauses: Vec<_> = (0..6).map(|_| moves.next(&CallFault::Unreachable, 0)).collect();
        let (at_once, first) = (Some(Duration::ZERO), Some(RETURN_AFTER));
        let second = Some(2 * RETURN_AFTER);
        assert_eq!(pauses, [at_once, first, at_once, second, at_once, None]);
    }

    #[test]
    fn steps_go_through_all_routes_in_turn() {
        let (mut travel, mut seen) = (Travel::new([2, 3, 0]), vec![Route::default()]);
        while let Some((next, pause)) = travel.step(seen[seen.len() - 1], 0) {
            assert_eq!(pause.is_zero(), seen.len() % 6 != 0, "{}", seen.len());
            seen.push(next);
        }
        assert_eq!(seen.len(), 18);
        for (i, route) in seen.iter().enumerate() {
            assert_eq!(seen.iter().position(|other| other == route), Some(i % 6));
        }
        assert!(Travel::new([1, 1, 0]).step(Route::default(), 0).is_none());
    }

    #[test]
    fn a_server_that_drains_is_waited_for_beside_one_that_does_not_fit() {
        let mut travel = Travel::new([0, 0, 2]);
        let drained = travel.leave(Route::default(), Place::Single, &CallFault::Draining, 0);
        let (mut route, _) = drained.unwrap();
        for _ in 0..100 {
            let (next, _) = travel.step(route, 0).expect("the other one comes back");
            assert_ne!(next, route);
            route = next;
        }
    }

    #[test]
    fn a_move_is_within_its_side() {
        let mut travel = Travel::new([2, 3, 1]);
        let (first, fault) = (Route::default(), CallFault::Draining);
        let (next, _) = travel.leave(first, Place::Right, &fault, 0).unwrap();
        assert_eq!(Place::ALL.map(|place| next.at(place)), [0, 1, 0]);
        let (next, _) = travel.leave(next, Place::Left, &fault, 0).unwrap();
        assert_eq!(Place::ALL.map(|place| next.at(place)), [1, 1, 0]);
    }
}
