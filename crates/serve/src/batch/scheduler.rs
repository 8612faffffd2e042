//! The asynchronous door to passes.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::mpsc::error::SendError;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::sync::{Notify, oneshot};

use super::PassMetrics;
use super::runner::{Passes, Runner, Visited, Visitor};
use super::{Absent, Answerer, Due, Next, Origin, Pass, Pushed, Queue, QueueLimits, Waiting, Wake};
use crate::error::Error;
use crate::refusal::{Limit, Refusal};
use crate::trace::{self, PassFacts, Traced, TracedPass};
use crate::vital::Vitals;

/// How a [`Scheduler`] runs.
#[derive(Clone, Debug)]
pub struct SchedulerSpec {
    /// When passes start and how much may wait.
    pub limits: QueueLimits,
    /// How long one pass is expected to take, until passes have been measured: retry hints are made
    /// of it.
    pub pass: Duration,
    /// Where passes are counted.
    pub metrics: PassMetrics,
}

/// Answers requests in shared passes, which its [`Runner`] runs.
pub struct Scheduler<A: Answerer> {
    shared: Arc<Shared<A>>,
    runner: Runner,
    lane: usize,
}

/// The answers to one request.
#[derive(Debug)]
pub struct Answered {
    /// `queries × answer_bytes` bytes.
    pub answers: Vec<u8>,
    /// From the request's arrival to the start of its last pass.
    pub queued: Duration,
    /// What its passes took.
    pub answering: Duration,
}

/// Why a request was not answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unanswered {
    /// Too much waits already.
    #[error("{queries} queries wait already: retry in {} ms", retry_after.as_millis())]
    Busy {
        /// Queries that wait.
        queries: usize,
        /// When there should be room.
        retry_after: Duration,
    },
    /// The scheduler was closed.
    #[error("the scheduler is closed")]
    Closed,
    /// A part of what answers is not there.
    #[error("shard {} is not there: retry in {} ms", .0.shard, .0.retry_after.as_millis())]
    Absent(Absent),
    /// The answerer failed or panicked; the log says why.
    #[error("the pass failed")]
    Failed,
}

impl Unanswered {
    /// The refusal of a request that was not answered; `queue` is what the scheduler has room in.
    pub(crate) fn refusal(self, queue: Limit) -> Refusal {
        match self {
            Self::Busy { retry_after, .. } => Refusal::Busy { limit: queue, retry_after },
            Self::Closed => Refusal::Draining,
            Self::Absent(Absent { shard, retry_after }) => {
                Refusal::ShardAbsent { shard, retry_after }
            }
            Self::Failed => Refusal::Backend,
        }
    }
}

struct Shared<A: Answerer> {
    answerer: Arc<A>,
    spec: SchedulerSpec,
    state: Mutex<State<A::Query>>,
    courier: Option<UnboundedSender<Vec<Delivery>>>,
    /// Tells the courier that a short pass may be due, where it runs these itself.
    short: Option<Arc<Notify>>,
    /// What is told of passes that panic.
    vitals: Vitals,
}

type Answer = Result<Answered, Unanswered>;
/// An answer and who waits for it.
type Delivery = (oneshot::Sender<Answer>, Answer);

struct State<Q> {
    queue: Queue<Q, Receiver>,
    /// A moving average over passes.
    pass: Duration,
    /// The same of what each query after the first adds to a pass.
    each: Duration,
    closed: bool,
}

/// Where one request's answers gather: passes append to `answers`, the last one sends.
struct Receiver {
    answers: Vec<u8>,
    answering: Duration,
    sender: oneshot::Sender<Answer>,
    traced: Option<Arc<Traced>>,
}

impl<A: Answerer> Scheduler<A> {
    /// As [`start_on`](Self::start_on), with a runner of its own, of which `vitals` is told.
    ///
    /// # Errors
    /// [`Error::Io`] where the system gives no thread.
    pub fn start(vitals: &Vitals, answerer: Arc<A>, spec: SchedulerSpec) -> Result<Self, Error> {
        Ok(Self::start_on(&Runner::start(vitals)?, answerer, spec))
    }

    /// Begins to answer, in turns with the other schedulers of `runner`. Called within a runtime,
    /// it also starts a task there that hands out the answers of each pass: a runtime is woken once
    /// for all of them, not once for each. In a runtime of one thread that task runs short passes
    /// itself: to wake another thread, and to be woken by it, would take longer than they do.
    pub fn start_on(runner: &Runner, answerer: Arc<A>, spec: SchedulerSpec) -> Self {
        let state = State {
            queue: Queue::new(spec.limits),
            pass: spec.pass,
            each: Duration::ZERO,
            closed: false,
        };
        let state = Mutex::new(state);
        let (mut courier, mut short) = (None, None);
        if let Ok(runtime) = Handle::try_current() {
            let (sender, passes) = unbounded_channel();
            courier = Some(sender);
            if runtime.runtime_flavor() == RuntimeFlavor::CurrentThread {
                let notify = Arc::new(Notify::new());
                short = Some(Arc::clone(&notify));
                runtime.spawn(run_and_deliver(passes, notify, runner.visitor()));
            } else {
                runtime.spawn(deliver_all(passes));
            }
        }
        let vitals = runner.vitals().clone();
        let shared = Arc::new(Shared { answerer, spec, state, courier, short, vitals });
        let lane = runner.join(Arc::clone(&shared) as Arc<dyn Passes>);
        Self { shared, runner: runner.clone(), lane }
    }

    /// Answers `queries` together with others that arrive within the window.
    ///
    /// Dropping the future gives the request up: if no pass has taken it yet, none will.
    ///
    /// # Errors
    /// [`Unanswered::Busy`] at once where the queue is full, [`Unanswered::Closed`],
    /// [`Unanswered::Failed`].
    pub async fn answer(&self, queries: Vec<A::Query>) -> Result<Answered, Unanswered> {
        self.answer_from(Origin::default(), queries).await
    }

    /// As [`answer`](Self::answer), for a request of `origin`. Where more waits than a pass takes, each
    /// peer gets its share of it.
    ///
    /// # Errors
    /// As [`answer`](Self::answer), and [`Unanswered::Busy`] later, where others who have less in the
    /// queue need the room.
    pub async fn answer_from(
        &self,
        origin: Origin,
        queries: Vec<A::Query>,
    ) -> Result<Answered, Unanswered> {
        if queries.is_empty() {
            return Ok(Answered {
                answers: Vec::new(),
                queued: Duration::ZERO,
                answering: Duration::ZERO,
            });
        }
        let (sender, answer) = oneshot::channel();
        let bytes = queries.len() * self.shared.answerer.answer_bytes();
        let traced = trace::current();
        if let Some(traced) = &traced {
            traced.note_queries(queries.len());
        }
        let answers = Vec::with_capacity(bytes);
        let receiver = Receiver { answers, answering: Duration::ZERO, sender, traced };
        let (wake, is_short) = self.shared.push(queries, origin, receiver)?;
        match (wake, &self.shared.short) {
            (Wake::Nobody, _) => {}
            (Wake::Worker, Some(short)) if is_short => short.notify_one(),
            (Wake::Worker, _) => self.runner.wake(),
        }
        answer.await.unwrap_or(Err(Unanswered::Closed))
    }

    /// Queries that wait for a pass.
    pub fn queued(&self) -> usize {
        self.shared.lock().queue.queries()
    }

    /// Refuses new requests and answers the waiting ones.
    pub fn close(&self) {
        self.shared.lock().closed = true;
    }
}

impl<A: Answerer> Drop for Scheduler<A> {
    fn drop(&mut self) {
        {
            let mut state = self.shared.lock();
            state.closed = true;
            // Nobody can wait for these any more: `answer` borrows the scheduler.
            state.queue.drain().for_each(drop);
        }
        self.runner.leave(self.lane);
    }
}

impl<A: Answerer> Passes for Shared<A> {
    fn due(&self, now: Instant) -> Due {
        self.lock().queue.due(now, is_gone)
    }

    fn expected(&self) -> Duration {
        self.lock().expected()
    }

    fn run(&self, answers: &mut Vec<u8>) {
        let started = Instant::now();
        let pass = {
            let mut state = self.lock();
            // Those that it was due for may have gone.
            let Next::Pass(pass) = state.queue.next(started, is_gone) else { return };
            self.spec.metrics.queued.set(state.queue.queries() as i64);
            pass
        };
        let (requests, queries) = (pass.requests.len(), pass.queries.len());
        let mut deliveries = Vec::with_capacity(requests);
        let unfinished = self.run_pass(pass, started, answers, &mut deliveries);
        self.hand_over(deliveries);
        let finished = requests - unfinished.len();
        let mut state = self.lock();
        let took = started.elapsed();
        state.pass = (state.pass * 7 + took) / 8;
        if queries > 1 {
            let each = took.saturating_sub(self.spec.pass) / (queries - 1) as u32;
            state.each = if state.each.is_zero() { each } else { (state.each * 7 + each) / 8 };
        }
        // The oldest goes back last, to the front.
        for unfinished in unfinished.into_iter().rev() {
            match unfinished {
                Unfinished::Resume(request) => state.queue.resume(request),
                Unfinished::Abandon(request, why) => {
                    let receiver = state.queue.abandon(request);
                    deliver(vec![receiver.failed(why)]);
                }
            }
        }
        let each = state.each;
        if !each.is_zero() {
            // What one peer adds to a pass that others share takes no longer than a pass of one query:
            // of several busy peers' passes, at least half is work on queries.
            let part = self.spec.pass.as_nanos() / each.as_nanos().max(1);
            let least = self.spec.limits.batch_queries_max / PEER_PART;
            state.queue.bound_peers(part.try_into().unwrap_or(usize::MAX).max(least));
        }
        state.queue.pass_ended(finished, Instant::now());
    }
}

impl<Q> State<Q> {
    /// What a pass of all that waits is likely to take.
    fn expected(&self) -> Duration {
        self.pass.max(self.each * self.queue.queries().try_into().unwrap_or(u32::MAX))
    }
}

impl<A: Answerer> Shared<A> {
    fn lock(&self) -> MutexGuard<'_, State<A::Query>> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(
        &self,
        queries: Vec<A::Query>,
        origin: Origin,
        mut receiver: Receiver,
    ) -> Result<(Wake, bool), Unanswered> {
        let mut state = self.lock();
        if state.closed {
            return Err(Unanswered::Closed);
        }
        let count = queries.len();
        if state.queue.queries() + count > self.spec.limits.queue_queries_max {
            state.queue.purge(is_gone);
        }
        receiver.answering = Duration::ZERO;
        let waiting = state.queue.queries();
        let passes = (waiting / self.spec.limits.batch_queries_max + 1) as u32;
        let retry_after = (state.pass * passes).clamp(RETRY_MIN, RETRY_MAX);
        let busy = Unanswered::Busy { queries: waiting, retry_after };
        let wake = match state.queue.push(queries, origin, receiver, Instant::now()) {
            Ok(Pushed { wake, displaced }) => {
                let refused = displaced.into_iter().map(|one| (one.sender, Err(busy)));
                deliver(refused.collect());
                wake
            }
            Err(_) => return Err(busy),
        };
        self.spec.metrics.queued.set(state.queue.queries() as i64);
        Ok((wake, state.expected() <= SHORT_MAX))
    }

    /// Sends answers on their way, by the courier where there is one.
    fn hand_over(&self, deliveries: Vec<Delivery>) {
        let undelivered = match &self.courier {
            // A courier that is gone went with its runtime.
            Some(courier) => courier.send(deliveries).err().map(|SendError(back)| back),
            None => Some(deliveries),
        };
        if let Some(deliveries) = undelivered {
            deliver(deliveries);
        }
    }

    /// Runs one pass and sends what it finished. Of each peer's requests, only the last that the pass
    /// took can be left unfinished.
    fn run_pass(
        &self,
        pass: Pass<A::Query, Receiver>,
        started: Instant,
        answers: &mut Vec<u8>,
        deliveries: &mut Vec<Delivery>,
    ) -> Vec<Unfinished<A::Query>> {
        let answer_bytes = self.answerer.answer_bytes();
        let count = pass.queries.len();
        answers.clear();
        answers.resize(count * answer_bytes, 0);
        let of_traced = pass.requests.iter().filter_map(|(it, _)| it.receiver.traced.as_ref());
        let traced = TracedPass::of(of_traced);
        let passing = traced.as_ref().map(TracedPass::enter);
        // A backend that panics must not take the server with it. The answer buffer is overwritten
        // before it is read again, and a backend is required to stay usable behind `&self`.
        let result =
            catch_unwind(AssertUnwindSafe(|| self.answerer.answer(&pass.queries, answers)));
        drop(passing);
        let took = started.elapsed();
        self.spec.metrics.record(count, took);
        let failed = match result {
            Ok(Ok(())) => None,
            Ok(Err(error)) => {
                tracing::error!(%error, queries = count, "a pass failed");
                Some(A::absent(&error).map_or(Unanswered::Failed, Unanswered::Absent))
            }
            Err(_) => {
                tracing::error!(queries = count, "the backend panicked in a pass");
                self.vitals.caught();
                Some(Unanswered::Failed)
            }
        };
        drop(pass.queries);
        if let Some(traced) = traced {
            self.trace(traced, &pass.requests, count, started, took, failed.is_none());
        }
        let mut unfinished = Vec::new();
        let mut rest = answers.as_slice();
        for (mut request, taken) in pass.requests {
            let (own, others) = rest.split_at(taken * answer_bytes);
            rest = others;
            if let Some(why) = failed {
                let request = request.finish_failed(why, deliveries);
                unfinished.extend(request.map(|request| Unfinished::Abandon(request, why)));
                continue;
            }
            request.receiver.answers.extend_from_slice(own);
            request.receiver.answering += took;
            if request.is_taken() {
                let queued = started.saturating_duration_since(request.arrived());
                self.spec.metrics.waited.observe(queued.as_secs_f64());
                deliveries.push(request.receiver.done(queued));
            } else {
                unfinished.push(Unfinished::Resume(request));
            }
        }
        unfinished
    }
}

impl<A: Answerer> Shared<A> {
    /// Says what a traced pass was, and to its requests that it was theirs.
    fn trace(
        &self,
        mut pass: TracedPass,
        asked: &[(Waiting<A::Query, Receiver>, usize)],
        queries: usize,
        started: Instant,
        took: Duration,
        ok: bool,
    ) {
        for (request, _) in asked {
            let Some(traced) = &request.receiver.traced else { continue };
            pass.answered(traced);
            if request.is_taken() {
                traced.waited(request.arrived(), started);
            }
        }
        let oldest = asked.iter().map(|(request, _)| request.arrived()).min();
        pass.finish(PassFacts {
            started,
            took,
            oldest: oldest.unwrap_or(started),
            requests: asked.len(),
            queries,
            asked: self.spec.metrics.asked,
            table: self.spec.metrics.table.clone(),
            is_failed: !ok,
        });
    }
}

enum Unfinished<Q> {
    Resume(Waiting<Q, Receiver>),
    Abandon(Waiting<Q, Receiver>, Unanswered),
}

impl<Q> Waiting<Q, Receiver> {
    /// Fails a request whose queries are all taken; hands back one with queries still counted.
    fn finish_failed(self, why: Unanswered, deliveries: &mut Vec<Delivery>) -> Option<Self> {
        if self.is_taken() {
            deliveries.push(self.receiver.failed(why));
            None
        } else {
            Some(self)
        }
    }
}

impl Receiver {
    fn done(self, queued: Duration) -> Delivery {
        let Self { answers, answering, sender, .. } = self;
        (sender, Ok(Answered { answers, queued, answering }))
    }

    fn failed(self, why: Unanswered) -> Delivery {
        (self.sender, Err(why))
    }
}

/// Hands out the answers of each pass.
async fn deliver_all(mut passes: UnboundedReceiver<Vec<Delivery>>) {
    while let Some(deliveries) = passes.recv().await {
        deliver(deliveries);
    }
}

/// As [`deliver_all`], and runs passes that are short. Whoever else is ready on this thread has its
/// turn before: so all requests that came together share one.
async fn run_and_deliver(
    mut passes: UnboundedReceiver<Vec<Delivery>>,
    short: Arc<Notify>,
    visitor: Visitor,
) {
    let mut answers = Vec::new();
    loop {
        tokio::select! {
            biased;
            deliveries = passes.recv() => match deliveries {
                Some(deliveries) => deliver(deliveries),
                None => return,
            },
            () = short.notified() => {
                if visitor.visit(SHORT_MAX, &mut answers) == Visited::Ran {
                    // Another may be due; those that this one answered come first.
                    short.notify_one();
                }
            }
        }
    }
}

fn deliver(deliveries: Vec<Delivery>) {
    for (sender, answer) in deliveries {
        // The client may have gone while the pass ran: its answers go with it.
        let _ = sender.send(answer);
    }
}

fn is_gone(receiver: &Receiver) -> bool {
    receiver.sender.is_closed()
}

/// A pass that is likely to take no longer keeps a runtime's thread from other work for less than it
/// takes to wake a thread that runs it.
const SHORT_MAX: Duration = Duration::from_micros(100);
/// A peer may have this part of a full pass at least, where a pass of one query takes next to nothing.
const PEER_PART: usize = 16;
const RETRY_MIN: Duration = Duration::from_millis(1);
const RETRY_MAX: Duration = Duration::from_secs(10);
