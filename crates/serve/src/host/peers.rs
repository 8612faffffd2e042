//! Who is connected: how many connections each peer has, and what it holds.
//!
//! A peer is an IPv4 address, or an IPv6 network of 64 bits, which is what one host is given.

use std::collections::HashMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::Limit;
use crate::batch::Origin;
use crate::host::budget::Budget;

/// All peers that have a connection now.
pub(crate) struct Peers {
    state: Mutex<State>,
    connections_max: usize,
    bytes_max: usize,
    budget: Arc<Budget>,
}

struct State {
    held: HashMap<IpAddr, Held>,
    /// Numbers that were given to peers and connections.
    numbers: u64,
}

struct Held {
    connections: usize,
    number: u64,
    budget: Arc<Budget>,
}

/// A connection's place among its peer's; given back when dropped.
pub(crate) struct Place {
    peers: Arc<Peers>,
    peer: IpAddr,
    /// Whose requests wait in queues.
    pub origin: Origin,
    /// Bytes that the peer may hold.
    pub budget: Arc<Budget>,
}

impl Peers {
    /// Peers with so many connections and bytes each at most, the latter within `budget`.
    pub fn new(connections_max: usize, bytes_max: usize, budget: Arc<Budget>) -> Arc<Self> {
        let state = Mutex::new(State { held: HashMap::new(), numbers: 0 });
        Arc::new(Self { state, connections_max, bytes_max, budget })
    }

    /// Takes in one more connection from `addr`; `None` where its peer has all that it may have.
    pub fn enter(self: &Arc<Self>, addr: IpAddr) -> Option<Place> {
        let peer = peer_of(addr);
        let mut state = self.lock();
        let connection = state.numbers + 1;
        state.numbers += 2;
        let held = state.held.entry(peer).or_insert_with(|| Held {
            connections: 0,
            number: connection + 1,
            budget: Budget::new(Limit::PeerBytes, self.bytes_max, Some(Arc::clone(&self.budget))),
        });
        if held.connections >= self.connections_max {
            return None;
        }
        held.connections += 1;
        let origin = Origin { peer: held.number, connection };
        let budget = Arc::clone(&held.budget);
        drop(state);
        Some(Place { peers: Arc::clone(self), peer, origin, budget })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut state = self.peers.lock();
        if let Some(held) = state.held.get_mut(&self.peer) {
            held.connections -= 1;
            if held.connections == 0 {
                state.held.remove(&self.peer);
            }
        }
    }
}

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
        let peers = Peers::new(2, 60, Arc::clone(&all));
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
}
