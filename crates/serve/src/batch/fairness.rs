//! Whose request goes next where more waits than a pass takes.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};

/// Whose a request is: a peer's, and which of its connections'. Numbers that are never used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
#[allow(clippy::exhaustive_structs, reason = "it is made of its two parts")]
pub struct Origin {
    /// The peer.
    pub peer: u64,
    /// The connection.
    pub connection: u64,
}

/// How many queries of each peer, and of each of its connections, passes have taken.
///
/// Whoever has had the least goes next, a peer among peers, then a connection among the peer's. One
/// that comes back after a rest begins at the least that the others have: it goes soon, but cannot
/// claim what it did not use. So a request that comes beside many others of one peer is in the next
/// pass, however many these are.
#[derive(Clone, Debug, Default)]
pub(super) struct Fairness {
    peers: Taken,
    connections: Taken,
}

/// What each has had, by its number.
#[derive(Clone, Debug, Default)]
struct Taken {
    by: HashMap<u64, u64>,
    /// What the one had that went last.
    least: u64,
}

impl Taken {
    fn of(&self, number: u64) -> u64 {
        self.by.get(&number).copied().unwrap_or_default().max(self.least)
    }

    fn add(&mut self, number: u64, from: u64, queries: usize) {
        self.by.insert(number, from + queries as u64);
    }

    /// Forgets whom the least that all have tells as much of.
    fn prune(&mut self) {
        let least = self.least;
        self.by.retain(|_, had| *had > least);
        if self.by.len() > REMEMBERED_MAX {
            self.by.clear();
        }
    }
}

/// Requests of one peer that wait, by their connections.
#[derive(Default)]
struct Line {
    connections: HashMap<u64, VecDeque<usize>>,
    /// Queries of it that the pass takes.
    taken: usize,
    /// What each connection has had, and its oldest request.
    heads: BinaryHeap<Reverse<(u64, usize, u64)>>,
}

impl Fairness {
    /// Which of the requests, oldest first with the numbers of their queries, a pass of `size`
    /// queries takes, in which order, and how many queries of each. Of one peer's it takes
    /// `peer_size` at most; only a peer's last request is not taken whole.
    pub fn choose(
        &mut self,
        waiting: impl ExactSizeIterator<Item = (Origin, usize)> + Clone,
        size: usize,
        peer_size: usize,
    ) -> Vec<(usize, usize)> {
        let counts: Vec<usize> = waiting.clone().map(|(_, queries)| queries).collect();
        let mut lines: HashMap<u64, Line> = HashMap::new();
        for (index, (origin, _)) in waiting.enumerate() {
            let line = lines.entry(origin.peer).or_default();
            line.connections.entry(origin.connection).or_default().push_back(index);
        }
        let mut heads = BinaryHeap::with_capacity(lines.len());
        for (&peer, line) in &mut lines {
            for (&connection, indices) in &line.connections {
                if let Some(&index) = indices.front() {
                    line.heads.push(Reverse((self.connections.of(connection), index, connection)));
                }
            }
            // Of equals the oldest goes first.
            if let Some(Reverse((_, index, _))) = line.heads.peek() {
                heads.push(Reverse((self.peers.of(peer), *index, peer)));
            }
        }
        let (mut chosen, mut taken) = (Vec::new(), 0);
        while taken < size
            && let Some(Reverse((had, _, peer))) = heads.pop()
        {
            let Some(line) = lines.get_mut(&peer) else { continue };
            let Some(Reverse((of_connection, index, connection))) = line.heads.pop() else {
                continue;
            };
            let queries = counts[index].min(size - taken).min(peer_size - line.taken);
            taken += queries;
            line.taken += queries;
            chosen.push((index, queries));
            (self.peers.least, self.connections.least) =
                (self.peers.least.max(had), self.connections.least.max(of_connection));
            self.peers.add(peer, had, queries);
            self.connections.add(connection, of_connection, queries);
            if let Some(indices) = line.connections.get_mut(&connection) {
                indices.pop_front();
                if let Some(&next) = indices.front() {
                    let had = of_connection + queries as u64;
                    line.heads.push(Reverse((had, next, connection)));
                }
            }
            if line.taken < peer_size
                && let Some(Reverse((_, index, _))) = line.heads.peek()
            {
                heads.push(Reverse((had + queries as u64, *index, peer)));
            }
        }
        self.peers.prune();
        self.connections.prune();
        chosen
    }
}

/// Whom a pass may find remembered: more are told apart by their requests alone.
const REMEMBERED_MAX: usize = 4096;

#[cfg(test)]
mod tests {
    use super::*;

    fn choose(fairness: &mut Fairness, waiting: &[(u64, u64, usize)], size: usize) -> Vec<usize> {
        let waiting = waiting
            .iter()
            .map(|&(peer, connection, queries)| (Origin { peer, connection }, queries));
        let chosen = fairness.choose(waiting, size, usize::MAX);
        chosen.into_iter().map(|(index, _)| index).collect()
    }

    #[test]
    fn what_one_peer_gets_of_a_pass_has_an_end() {
        let of = |peer| Origin { peer, connection: peer };
        let waiting = [(of(1), 30), (of(1), 30), (of(2), 8), (of(1), 30)];
        let chosen = Fairness::default().choose(waiting.into_iter(), 256, 40);
        assert_eq!(chosen, [(0, 30), (2, 8), (1, 10)]);
        // A pass that is full all the same ends there.
        let chosen = Fairness::default().choose(waiting.into_iter(), 35, 40);
        assert_eq!(chosen, [(0, 30), (2, 5)]);
    }

    #[test]
    fn peers_take_turns_then_their_connections() {
        let mut fairness = Fairness::default();
        let waiting = [(1, 1, 4), (1, 1, 4), (1, 2, 4), (2, 3, 4), (2, 3, 4)];
        assert_eq!(choose(&mut fairness, &waiting, 20), [0, 3, 2, 4, 1]);
        // Alone, in the order in which they came.
        assert_eq!(choose(&mut Fairness::default(), &[(1, 1, 1); 4], 3), [0, 1, 2]);
    }

    #[test]
    fn a_small_request_beside_a_crowd_is_in_the_next_pass_of_each_round() {
        let mut fairness = Fairness::default();
        for round in 0..100 {
            let mut waiting = vec![(1, 1, 100); 32];
            waiting.push((2, 2, 8));
            let chosen = choose(&mut fairness, &waiting, 256);
            assert!(chosen.contains(&32), "round {round}: {chosen:?}");
        }
        // Who rested for long takes no more than its share.
        let waiting = [[(1, 1, 100); 4], [(3, 3, 100); 4]].concat();
        let chosen = choose(&mut fairness, &waiting, 400);
        let of_crowd = chosen.iter().filter(|&&index| index < 4).count();
        assert!((1..=3).contains(&of_crowd), "{chosen:?}");
    }

    #[test]
    fn nobody_is_remembered_for_ever() {
        let mut fairness = Fairness::default();
        for peer in 0..10_000 {
            choose(&mut fairness, &[(peer, peer, 1), (peer, peer, 1)], 1);
        }
        assert!(fairness.peers.by.len() <= REMEMBERED_MAX, "{}", fairness.peers.by.len());
    }
}
