//! Which queries share the next pass, and when it starts: a state machine over given times.
//!
//! It reads no clock and starts no thread, so that the simulator in `tests/it/schedule.rs` and the
//! worker thread run the same code.

use std::collections::{HashMap, VecDeque};
use std::time::{Duration, Instant};
use std::vec;

use super::fairness::{Fairness, Origin};

/// When passes start and how much waits for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueLimits {
    /// A pass is due no later than this after its oldest request came or the last pass ended,
    /// whichever is later. Where no other queue's passes are in between, a request thus has its
    /// answer after a window and two passes at most, unless more comes than passes can answer.
    pub window: Duration,
    /// Whether a request that comes after a quiet window waits for others all the same, as where an
    /// operator has set the window. Otherwise it starts a pass at once: nobody else is likely to come.
    pub lone_waits: bool,
    /// Most queries in one pass; at least 1.
    pub batch_queries_max: usize,
    /// Most queries that wait; at least 1.
    pub queue_queries_max: usize,
}

/// Requests that wait, oldest first. `Q` is a query, `R` where a request's answers go.
pub struct Queue<Q, R> {
    limits: QueueLimits,
    waiting: VecDeque<Waiting<Q, R>>,
    /// Queries in `waiting`, and those still to come of a request that is in the current pass.
    queries: usize,
    /// What waits of each peer, and of each of its connections.
    held: HashMap<u64, Held>,
    fairness: Fairness,
    /// Most queries of one peer in a pass while others are about.
    peer_queries_max: usize,
    /// The peer that asked last, and the last other one, with the times.
    recent: [Option<(u64, Instant)>; 2],
    /// The last pass's end, and how many requests had been answered by it or waited then.
    last_pass: Option<(Instant, usize)>,
}

/// Queries of a peer that wait.
#[derive(Default)]
struct Held {
    queries: usize,
    by_connection: HashMap<u64, usize>,
}

/// A request with queries that no pass has taken yet.
pub struct Waiting<Q, R> {
    queries: vec::IntoIter<Q>,
    arrived: Instant,
    origin: Origin,
    /// Whether a pass has taken a part of it.
    is_begun: bool,
    /// Where the answers go.
    pub receiver: R,
}

impl<Q, R> Waiting<Q, R> {
    /// Whether passes have taken all queries.
    pub fn is_taken(&self) -> bool {
        self.queries.len() == 0
    }

    /// When the request came.
    pub fn arrived(&self) -> Instant {
        self.arrived
    }
}

/// What a worker that is free does next.
pub enum Next<Q, R> {
    /// Wait for a request.
    Idle,
    /// Wait for a request, but no longer than this.
    Wait(Instant),
    /// Answer these.
    Pass(Pass<Q, R>),
}

/// When a pass is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a pass is due never, then or now")]
pub enum Due {
    /// Not before a request comes.
    Never,
    /// Then, or once more requests have come.
    At(Instant),
    /// Now.
    Now,
}

/// The queries of one pass.
pub struct Pass<Q, R> {
    /// All queries, in the order of `requests`.
    pub queries: Vec<Q>,
    /// Each request with how many of the queries are its own.
    pub requests: Vec<(Waiting<Q, R>, usize)>,
}

/// What became of a push.
#[allow(clippy::exhaustive_structs, reason = "it is made of its two parts")]
pub struct Pushed<R> {
    /// Whether it calls for the worker.
    pub wake: Wake,
    /// The receivers of requests that made room for it: the newest of who has the most in the queue.
    pub displaced: Vec<R>,
}

/// The queue has no room for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Full {
    /// Queries that wait already.
    pub queries: usize,
}

/// Whether a push calls for the worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "a worker is woken or left asleep")]
pub enum Wake {
    /// The worker's next step has changed: the queue was empty, or a pass is now full.
    Worker,
    /// The worker will find the request when it wakes by itself.
    Nobody,
}

impl<Q, R> Queue<Q, R> {
    /// An empty queue.
    pub fn new(limits: QueueLimits) -> Self {
        Self {
            limits,
            waiting: VecDeque::new(),
            queries: 0,
            held: HashMap::new(),
            fairness: Fairness::default(),
            peer_queries_max: usize::MAX,
            recent: [None; 2],
            last_pass: None,
        }
    }

    /// Queries that wait.
    pub fn queries(&self) -> usize {
        self.queries
    }

    /// Bounds what one peer gets of a pass while others are about, so that these do not wait for
    /// passes of its queries alone; at least 1.
    pub fn bound_peers(&mut self, queries_max: usize) {
        self.peer_queries_max = queries_max.max(1);
    }

    /// Whether more than one peer has asked of late.
    fn are_others_about(&self, now: Instant) -> bool {
        let [_, other] = self.recent;
        other.is_some_and(|(_, at)| now.saturating_duration_since(at) < ABOUT)
    }

    /// Adds a request of at least one query. Where there is no room, those make some who have more in
    /// the queue than `origin` would have: their newest requests that no pass has begun.
    ///
    /// # Errors
    /// [`Full`] where its queries would pass `queue_queries_max` all the same. A request that alone is
    /// larger gets in while nothing waits, so that no request is refused for ever.
    pub fn push(
        &mut self,
        queries: Vec<Q>,
        origin: Origin,
        receiver: R,
        now: Instant,
    ) -> Result<Pushed<R>, (Full, R)> {
        let before = self.queries;
        let mut displaced = Vec::new();
        let excess = before.saturating_add(queries.len());
        let excess = excess.saturating_sub(self.limits.queue_queries_max);
        if before > 0 && excess > 0 {
            match self.displaceable(origin, queries.len(), excess) {
                Some(chosen) => self.displace(&chosen, &mut displaced),
                None => return Err((Full { queries: before }, receiver)),
            }
        }
        match &mut self.recent {
            [Some((peer, at)), _] if *peer == origin.peer => *at = now,
            [last, other] => (*other, *last) = (*last, Some((origin.peer, now))),
        }
        let was_empty = self.queries == 0;
        let before = self.queries;
        self.queries += queries.len();
        self.hold(origin, queries.len());
        let queries = queries.into_iter();
        self.waiting.push_back(Waiting {
            queries,
            arrived: now,
            origin,
            is_begun: false,
            receiver,
        });
        let full = self.limits.batch_queries_max;
        let fills = before < full && self.queries >= full;
        let completes = self.crowd().is_some_and(|crowd| crowd == self.waiting.len());
        let wake = match was_empty || fills || completes {
            true => Wake::Worker,
            false => Wake::Nobody,
        };
        Ok(Pushed { wake, displaced })
    }

    /// The requests, newest first, that make room for `excess` queries; `None` where nobody has so
    /// much more than `origin` that this would be fair.
    fn displaceable(&self, origin: Origin, queries: usize, excess: usize) -> Option<Vec<usize>> {
        let (&peer, most) = self.held.iter().max_by_key(|(_, held)| held.queries)?;
        let own = self.held.get(&origin.peer);
        let of = |connection| move |held: &Held| held.by_connection.get(&connection).copied();
        let own_connection = own.and_then(of(origin.connection)).unwrap_or_default();
        let is_victim: Box<dyn Fn(Origin) -> bool>;
        let spare;
        if peer == origin.peer {
            let (&connection, &held) = most.by_connection.iter().max_by_key(|(_, held)| **held)?;
            spare = held.checked_sub(own_connection + queries)?;
            is_victim = Box::new(move |other| other.connection == connection);
        } else {
            let own = own.map_or(0, |held| held.queries);
            spare = most.queries.checked_sub(own + queries)?;
            is_victim = Box::new(move |other| other.peer == peer);
        }
        if spare < excess {
            return None;
        }
        let (mut chosen, mut freed) = (Vec::new(), 0);
        for (index, request) in self.waiting.iter().enumerate().rev() {
            if freed >= excess {
                break;
            }
            if is_victim(request.origin) && !request.is_begun {
                freed += request.queries.len();
                chosen.push(index);
            }
        }
        (freed >= excess).then_some(chosen)
    }

    fn displace(&mut self, chosen: &[usize], displaced: &mut Vec<R>) {
        for &index in chosen {
            if let Some(request) = self.waiting.remove(index) {
                self.queries -= request.queries.len();
                self.let_go(request.origin, request.queries.len());
                displaced.push(request.receiver);
            }
        }
    }

    fn hold(&mut self, origin: Origin, queries: usize) {
        let held = self.held.entry(origin.peer).or_default();
        held.queries += queries;
        *held.by_connection.entry(origin.connection).or_default() += queries;
    }

    fn let_go(&mut self, origin: Origin, queries: usize) {
        let Some(held) = self.held.get_mut(&origin.peer) else { return };
        held.queries = held.queries.saturating_sub(queries);
        if let Some(of_connection) = held.by_connection.get_mut(&origin.connection) {
            *of_connection = of_connection.saturating_sub(queries);
            if *of_connection == 0 {
                held.by_connection.remove(&origin.connection);
            }
        }
        if held.queries == 0 {
            self.held.remove(&origin.peer);
        }
    }

    /// How many requests make it pointless to wait for more: those of the last pass's clients,
    /// answered or waiting. `None` where nothing came for so long that it says nothing.
    ///
    /// Clients that wait for one answer before they ask again (most do) come back together after a
    /// pass. Without this, the server would idle for the rest of a window that nobody else is going
    /// to use. Where nothing came for a window, a client is most likely alone, and waits for nobody
    /// unless it [has to](QueueLimits::lone_waits): who comes while its pass runs shares the next.
    fn crowd(&self) -> Option<usize> {
        let (ended, crowd) = self.last_pass?;
        let oldest = self.waiting.front()?;
        (oldest.arrived <= ended + self.limits.window).then_some(crowd)
    }

    /// Takes note that a pass is over which answered the last of `finished` requests.
    pub fn pass_ended(&mut self, finished: usize, now: Instant) {
        self.last_pass = Some((now, finished + self.waiting.len()));
    }

    /// Forgets every waiting request whose receiver is gone.
    pub fn purge(&mut self, is_gone: impl Fn(&R) -> bool) {
        let mut gone = Vec::new();
        self.waiting.retain(|request| {
            let is_gone = is_gone(&request.receiver);
            if is_gone {
                gone.push((request.origin, request.queries.len()));
            }
            !is_gone
        });
        for (origin, queries) in gone {
            self.forget(origin, queries);
        }
    }

    fn forget(&mut self, origin: Origin, queries: usize) {
        self.queries -= queries;
        self.let_go(origin, queries);
    }

    /// When the next pass is due: when it is full, when all have come that are likely to (at once,
    /// where nothing came for a window), or when its oldest request has waited for the window with
    /// no pass running. Requests whose receiver is gone are dropped unanswered.
    pub fn due(&mut self, now: Instant, is_gone: impl Fn(&R) -> bool) -> Due {
        while let Some(gone) = self.waiting.pop_front_if(|request| is_gone(&request.receiver)) {
            self.forget(gone.origin, gone.queries.len());
        }
        let Some(oldest) = self.waiting.front() else { return Due::Never };
        let since = self.last_pass.map_or(oldest.arrived, |(ended, _)| ended.max(oldest.arrived));
        let due = since + self.limits.window;
        // However many wait behind it: nobody looks at all of them for each pass of another queue.
        if now >= due {
            return Due::Now;
        }
        self.purge(is_gone);
        let complete = match self.crowd() {
            Some(crowd) => self.waiting.len() >= crowd,
            None => !self.limits.lone_waits,
        };
        // More of one peer's waits than a pass would take: to wait for others is of no use.
        let crowded = self.are_others_about(now)
            && self.held.values().any(|held| held.queries >= self.peer_queries_max);
        let full = crowded || self.queries >= self.limits.batch_queries_max;
        match full || complete {
            true => Due::Now,
            false => Due::At(due),
        }
    }

    /// The next step of a free worker: a pass where one is [`due`](Self::due). A worker that has
    /// other queues' passes to run may come later: until then more may join.
    pub fn next(&mut self, now: Instant, is_gone: impl Fn(&R) -> bool) -> Next<Q, R> {
        self.purge(&is_gone);
        match self.due(now, is_gone) {
            Due::Never => Next::Idle,
            Due::At(until) => Next::Wait(until),
            Due::Now => Next::Pass(self.take(now)),
        }
    }

    /// As much as one pass takes of what waits: all, or from each peer its share.
    fn take(&mut self, now: Instant) -> Pass<Q, R> {
        let size = self.queries.min(self.limits.batch_queries_max);
        // Of one connection's requests a pass takes the oldest, whatever it has taken before: those behind them need
        // no look.
        let seen = if self.is_of_one_connection() { size } else { usize::MAX };
        let all = self.waiting.iter().take(seen);
        let all = all.map(|request| (request.origin, request.queries.len()));
        let peer_size = match self.are_others_about(now) {
            true => self.peer_queries_max,
            false => usize::MAX,
        };
        let chosen = self.fairness.choose(all, size, peer_size);
        let mut pass = Pass { queries: Vec::with_capacity(size), requests: Vec::new() };
        let last = chosen.iter().map(|&(index, _)| index + 1).max().unwrap_or(0);
        let mut oldest: Vec<_> = self.waiting.drain(..last).map(Some).collect();
        for (index, taken) in chosen {
            let Some(mut request) = oldest[index].take() else { continue };
            pass.queries.extend(request.queries.by_ref().take(taken));
            request.is_begun = true;
            self.let_go(request.origin, taken);
            pass.requests.push((request, taken));
        }
        oldest.into_iter().flatten().rev().for_each(|kept| self.waiting.push_front(kept));
        self.queries -= pass.queries.len();
        pass
    }

    fn is_of_one_connection(&self) -> bool {
        self.held.len() == 1 && self.held.values().all(|held| held.by_connection.len() == 1)
    }

    /// Takes back a request that its pass did not finish: it goes on in the next one.
    pub fn resume(&mut self, request: Waiting<Q, R>) {
        self.waiting.push_front(request);
    }

    /// Gives up a request that a pass took in part and that will not go on.
    pub fn abandon(&mut self, request: Waiting<Q, R>) -> R {
        self.queries -= request.queries.len();
        self.let_go(request.origin, request.queries.len());
        request.receiver
    }

    /// Empties the queue: the receivers of all that wait.
    pub fn drain(&mut self) -> impl Iterator<Item = R> {
        self.queries = 0;
        self.held.clear();
        std::mem::take(&mut self.waiting).into_iter().map(|request| request.receiver)
    }
}

/// A peer that has not asked for so long is not counted on: others get whole passes again.
const ABOUT: Duration = Duration::from_secs(1);
