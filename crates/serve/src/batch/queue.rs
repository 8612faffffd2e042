//! Which queries share the next pass, and when it starts: a state machine over given times.
//!
//! It reads no clock and starts no thread, so that the simulator in `tests/schedule.rs` and the
//! worker thread run the same code.

use std::collections::VecDeque;
use std::time::{Duration, Instant};
use std::vec;

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
    /// The last pass's end, and how many requests had been answered by it or waited then.
    last_pass: Option<(Instant, usize)>,
}

/// A request with queries that no pass has taken yet.
pub struct Waiting<Q, R> {
    queries: vec::IntoIter<Q>,
    arrived: Instant,
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
    /// All queries, in the order of `shares`.
    pub queries: Vec<Q>,
    /// Each request with how many of the queries are its own.
    pub shares: Vec<(Waiting<Q, R>, usize)>,
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
        Self { limits, waiting: VecDeque::new(), queries: 0, last_pass: None }
    }

    /// Queries that wait.
    pub fn queries(&self) -> usize {
        self.queries
    }

    /// Adds a request of at least one query.
    ///
    /// # Errors
    /// [`Full`] where its queries would pass `queue_queries_max`. A request that alone is larger
    /// gets in while nothing waits, so that no request is refused for ever.
    pub fn push(&mut self, queries: Vec<Q>, receiver: R, now: Instant) -> Result<Wake, (Full, R)> {
        let before = self.queries;
        if before > 0 && before.saturating_add(queries.len()) > self.limits.queue_queries_max {
            return Err((Full { queries: before }, receiver));
        }
        self.queries += queries.len();
        self.waiting.push_back(Waiting { queries: queries.into_iter(), arrived: now, receiver });
        let full = self.limits.batch_queries_max;
        let fills = before < full && self.queries >= full;
        let completes = self.crowd().is_some_and(|crowd| crowd == self.waiting.len());
        Ok(match before == 0 || fills || completes {
            true => Wake::Worker,
            false => Wake::Nobody,
        })
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
        let mut queries = 0;
        self.waiting.retain(|request| {
            let gone = is_gone(&request.receiver);
            queries += if gone { request.queries.len() } else { 0 };
            !gone
        });
        self.queries -= queries;
    }

    /// When the next pass is due: when it is full, when all have come that are likely to (at once,
    /// where nothing came for a window), or when its oldest request has waited for the window with
    /// no pass running. Requests whose receiver is gone are dropped unanswered.
    pub fn due(&mut self, now: Instant, is_gone: impl Fn(&R) -> bool) -> Due {
        self.purge(is_gone);
        let Some(oldest) = self.waiting.front() else { return Due::Never };
        let since = self.last_pass.map_or(oldest.arrived, |(ended, _)| ended.max(oldest.arrived));
        let due = since + self.limits.window;
        let complete = match self.crowd() {
            Some(crowd) => self.waiting.len() >= crowd,
            None => !self.limits.lone_waits,
        };
        match self.queries < self.limits.batch_queries_max && !complete && now < due {
            true => Due::At(due),
            false => Due::Now,
        }
    }

    /// The next step of a free worker: a pass where one is [`due`](Self::due). A worker that has
    /// other queues' passes to run may come later: until then more may join.
    pub fn next(&mut self, now: Instant, is_gone: impl Fn(&R) -> bool) -> Next<Q, R> {
        match self.due(now, is_gone) {
            Due::Never => Next::Idle,
            Due::At(until) => Next::Wait(until),
            Due::Now => Next::Pass(self.take()),
        }
    }

    /// As much as one pass takes of what waits.
    fn take(&mut self) -> Pass<Q, R> {
        let size = self.queries.min(self.limits.batch_queries_max);
        let mut pass = Pass { queries: Vec::with_capacity(size), shares: Vec::new() };
        while pass.queries.len() < size {
            let Some(mut request) = self.waiting.pop_front() else { break };
            let before = pass.queries.len();
            pass.queries.extend(request.queries.by_ref().take(size - before));
            let taken = pass.queries.len() - before;
            pass.shares.push((request, taken));
        }
        self.queries -= pass.queries.len();
        pass
    }

    /// Takes back a request that its pass did not finish: it goes on in the next one.
    pub fn resume(&mut self, request: Waiting<Q, R>) {
        self.waiting.push_front(request);
    }

    /// Gives up a request that a pass took in part and that will not go on.
    pub fn abandon(&mut self, request: Waiting<Q, R>) -> R {
        self.queries -= request.queries.len();
        request.receiver
    }

    /// Empties the queue: the receivers of all that wait.
    pub fn drain(&mut self) -> impl Iterator<Item = R> {
        self.queries = 0;
        std::mem::take(&mut self.waiting).into_iter().map(|request| request.receiver)
    }
}
