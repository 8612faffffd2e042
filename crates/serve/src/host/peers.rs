//! Who is connected: how many connections each peer has, what it holds, and how often it asks.
//!
//! A peer is an IPv4 address, or an IPv6 network of 64 bits, which is what one host is given.

use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use crate::Limit;
use crate::batch::Origin;
use crate::host::budget::Budget;

/// All peers that have a connection now, or asked much a moment ago.
pub(crate) struct Peers {
    state: Mutex<State>,
    /// By which peers get their numbers: the same one each time, that tells nobody their address.
    numbers: RandomState,
    connections_max: usize,
    requests_per_s_max: u32,
    bytes_max: usize,
    budget: Arc<Budget>,
}

struct State {
    held: HashMap<IpAddr, Held>,
    /// Numbers that were given to connections.
    numbers: u64,
    /// How many peers there may be before those that are gone are looked for.
    sweep_at: usize,
}

struct Held {
    connections: usize,
    number: u64,
    budget: Arc<Budget>,
    rate: Arc<Rate>,
}

/// How often a peer may ask: so many requests at once, and as many each second.
pub(crate) struct Rate {
    per_s_max: u32,
    left: Mutex<Remaining>,
}

struct Remaining {
    requests: f64,
    at: Instant,
}

/// A connection's place among its peer's; given back when dropped.
pub(crate) struct Place {
    peers: Arc<Peers>,
    peer: IpAddr,
    /// Whose requests wait in queues.
    pub origin: Origin,
    /// Bytes that the peer may hold.
    pub budget: Arc<Budget>,
    /// Requests that it may make.
    pub rate: Arc<Rate>,
}

impl Rate {
    fn new(per_s_max: u32, now: Instant) -> Arc<Self> {
        let left = Mutex::new(Remaining { requests: per_s_max.into(), at: now });
        Arc::new(Self { per_s_max, left })
    }

    /// Takes one request of the peer's.
    ///
    /// # Errors
    /// When to ask again, where it has made all that it may for now.
    pub fn take(&self, now: Instant) -> Result<(), Duration> {
        let mut left = self.refilled(now);
        if left.requests >= 1.0 {
            left.requests -= 1.0;
            return Ok(());
        }
        Err(Duration::from_secs_f64((1.0 - left.requests) / f64::from(self.per_s_max)))
    }

    /// Whether the peer has made none of late: forgetting it gives it nothing.
    fn is_full(&self, now: Instant) -> bool {
        self.refilled(now).requests >= f64::from(self.per_s_max)
    }

    fn refilled(&self, now: Instant) -> MutexGuard<'_, Remaining> {
        let mut left = self.left.lock().unwrap_or_else(PoisonError::into_inner);
        let since = now.saturating_duration_since(left.at).as_secs_f64();
        let per_s_max = f64::from(self.per_s_max);
        *left = Remaining {
            requests: (left.requests + since * per_s_max).min(per_s_max),
            at: now.max(left.at),
        };
        left
    }
}

impl Peers {
    /// Peers with so many connections, requests a second and bytes each at most, the latter within
    /// `budget`.
    pub fn new(
        connections_max: usize,
        requests_per_s_max: u32,
        bytes_max: usize,
        budget: Arc<Budget>,
    ) -> Arc<Self> {
        let state = State { held: HashMap::new(), numbers: 0, sweep_at: SWEEP_MIN };
        let (state, numbers) = (Mutex::new(state), RandomState::new());
        Arc::new(Self { state, numbers, connections_max, requests_per_s_max, bytes_max, budget })
    }

    /// Takes in one more connection from `addr`; `None` where its peer has all that it may have.
    pub fn enter(self: &Arc<Self>, addr: IpAddr) -> Option<Place> {
        let peer = peer_of(addr);
        let mut state = self.lock();
        state.numbers += 1;
        let (connection, now) = (state.numbers, Instant::now());
        state.sweep(now);
        let held = state.held.entry(peer).or_insert_with(|| Held {
            connections: 0,
            // Zero is nobody's.
            number: self.numbers.hash_one(peer).max(1),
            budget: Budget::new(Limit::PeerBytes, self.bytes_max, Some(Arc::clone(&self.budget))),
            rate: Rate::new(self.requests_per_s_max, now),
        });
        if held.connections >= self.connections_max {
            return None;
        }
        held.connections += 1;
        let origin = Origin { peer: held.number, connection };
        let (budget, rate) = (Arc::clone(&held.budget), Arc::clone(&held.rate));
        drop(state);
        Some(Place { peers: Arc::clone(self), peer, origin, budget, rate })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Forgets peers without a connection that have asked for nothing of late. Others come back to
    /// what they had left: a new connection gives no new requests.
    fn sweep(&mut self, now: Instant) {
        if self.held.len() >= self.sweep_at {
            self.held.retain(|_, held| held.connections > 0 || !held.rate.is_full(now));
            self.sweep_at = (2 * self.held.len()).max(SWEEP_MIN);
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.peers.lock();
        if let Some(held) = state.held.get_mut(&self.peer) {
            held.connections -= 1;
            if held.connections == 0 && held.rate.is_full(Instant::now()) {
                state.held.remove(&self.peer);
            }
        }
    }
}

/// Peers that are kept before any is looked at.
const SWEEP_MIN: usize = 64;

/// What tells one peer from another.
pub(crate) fn peer_of(addr: IpAddr) -> IpAddr {
    match addr.to_canonical() {
        IpAddr::V6(addr) => {
            let network = addr.to_bits() >> 64 << 64;
            IpAddr::V6(network.into())
        }
        addr => addr,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_network_of_64_bits_is_one_peer_and_an_ipv4_address_another() {
        let peer = |addr: &str| peer_of(addr.parse().unwrap());
        assert_eq!(peer("2001:db8::1"), peer("2001:db8::ffff:1"));
        assert_ne!(peer("2001:db8::1"), peer("2001:db8:0:1::1"));
        assert_eq!(peer("::ffff:10.0.0.1"), peer("10.0.0.1"));
        assert_ne!(peer("10.0.0.1"), peer("10.0.0.2"));
    }

    #[test]
    fn a_peer_has_its_connections_and_bytes_and_no_more() {
        let all = Budget::new(Limit::InflightBytes, 100, None);
        let peers = Peers::new(2, 10, 60, Arc::clone(&all));
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|addr| addr.parse().unwrap());
        let (a, b) = (peers.enter(one).unwrap(), peers.enter(one).unwrap());
        assert!(peers.enter(one).is_none());
        let c = peers.enter(two).unwrap();
        assert!(a.origin.peer == b.origin.peer && a.origin.connection != b.origin.connection);
        assert!(a.origin.peer != c.origin.peer);
        let held = [a.budget.reserve(), b.budget.reserve(), c.budget.reserve()];
        assert_eq!((held[0].grow(50), held[1].grow(11)), (Ok(()), Err(Limit::PeerBytes)));
        assert_eq!(held[2].grow(50), Ok(()));
        drop(a);
        assert!(peers.enter(one).is_some());
        drop((b, c, held));
        assert!(peers.lock().held.is_empty());
        assert_eq!(all.bytes(), 0);
    }

    #[test]
    fn a_peer_asks_so_often_and_a_new_connection_gives_it_nothing() {
        let all = Budget::new(Limit::InflightBytes, 100, None);
        let peers = Peers::new(2, 10, 60, all);
        let [one, two] = ["10.0.0.1", "10.0.0.2"].map(|addr| addr.parse().unwrap());
        let now = Instant::now();
        let later = |ms: u64| now + Duration::from_millis(ms);
        let place = peers.enter(one).unwrap();
        let number = place.origin.peer;
        assert!((0..10).all(|_| place.rate.take(later(100)).is_ok()));
        let wait = place.rate.take(later(100)).unwrap_err();
        assert!(wait <= Duration::from_millis(100) && wait > Duration::from_millis(90), "{wait:?}");
        drop(place);
        let place = peers.enter(one).unwrap();
        assert_eq!(place.origin.peer, number, "it is known again");
        assert!(place.rate.take(later(150)).is_err());
        assert!(peers.enter(two).unwrap().rate.take(later(150)).is_ok());
        assert!((0..5).all(|_| place.rate.take(later(601)).is_ok()));
        assert!(place.rate.take(later(601)).is_err());
        // Time that goes back gives nothing, and what is not used is not saved up.
        assert!(place.rate.take(later(0)).is_err());
        assert!((0..10).all(|_| place.rate.take(later(100_000)).is_ok()));
        assert!(place.rate.take(later(100_000)).is_err());
        drop(place);
        // Those that are gone are forgotten, once they have nothing to come back to.
        let mut state = peers.lock();
        state.sweep_at = 0;
        state.sweep(later(200_000));
        assert!(state.held.is_empty());
    }
}
