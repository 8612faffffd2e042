//! The batch scheduler: a simulator over the queue's own code, then the real thread.

use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use hushtable_serve::batch::{
    Answerer, Next, Origin, Pass, PassMetrics, Queue, QueueLimits, Scheduler, SchedulerSpec,
    Unanswered,
};
use hushtable_serve::host::Vitals;

use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

/// A simulated request: its number, how many queries it has, when it came.
struct Sent {
    queries: usize,
    answered: usize,
    arrived: Duration,
    gone: bool,
}

/// A query: its request's number, and which of the request's it is.
type Asked = (u64, usize);

/// What one simulated server and its clients do, by a clock that only the simulator moves.
struct Simulation {
    rng: ChaCha8Rng,
    limits: QueueLimits,
    queue: Queue<Asked, u64>,
    start: Instant,
    now: Duration,
    running: Option<(Duration, Pass<Asked, u64>)>,
    sent: HashMap<u64, Sent>,
    refused: u64,
    passes: Vec<usize>,
    latencies: Vec<Duration>,
}

impl Simulation {
    fn new(seed: u64, limits: QueueLimits) -> Self {
        Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            limits,
            queue: Queue::new(limits),
            start: Instant::now(),
            now: Duration::ZERO,
            running: None,
            sent: HashMap::new(),
            refused: 0,
            passes: Vec::new(),
            latencies: Vec::new(),
        }
    }

    /// A pass reads the table once and then works for each query.
    fn pass_time(queries: usize) -> Duration {
        Duration::from_micros(6000 + 100 * queries as u64)
    }

    fn arrive(&mut self, id: u64, queries: usize) {
        let before = self.queue.queries();
        let list = (0..queries).map(|i| (id, i)).collect();
        match self.queue.push(list, Origin::default(), id, self.start + self.now) {
            Ok(pushed) => {
                assert!(pushed.displaced.is_empty(), "there is one peer alone");
                assert!(before == 0 || before + queries <= self.limits.queue_queries_max);
                let arrived = self.now;
                self.sent.insert(id, Sent { queries, answered: 0, arrived, gone: false });
            }
            Err((full, returned)) => {
                assert_eq!((full.queries, returned), (before, id));
                assert!(before + queries > self.limits.queue_queries_max);
                self.refused += 1;
            }
        }
    }

    /// Lets the free worker take its next step; when it wants to be woken by itself.
    fn step(&mut self) -> Option<Duration> {
        assert!(self.running.is_none());
        let sent = &self.sent;
        match self.queue.next(self.start + self.now, |id| sent[id].gone) {
            Next::Idle => None,
            Next::Wait(until) => {
                let until = until - self.start;
                assert!(until > self.now && until <= self.now + self.limits.window);
                Some(until)
            }
            Next::Pass(pass) => {
                assert!((1..=self.limits.batch_queries_max).contains(&pass.queries.len()));
                assert!(pass.queries.iter().all(|(id, _)| !sent[id].gone));
                let end = self.now + Self::pass_time(pass.queries.len());
                self.passes.push(pass.queries.len());
                self.running = Some((end, pass));
                None
            }
        }
    }

    fn finish_pass(&mut self) {
        let (_, pass) = self.running.take().unwrap();
        let mut queries = pass.queries.into_iter();
        let shares = pass.requests.len();
        let mut finished = 0;
        for (i, (request, taken)) in pass.requests.into_iter().enumerate() {
            let id = request.receiver;
            let sent = self.sent.get_mut(&id).unwrap();
            for _ in 0..taken {
                // Each query once, and in order.
                assert_eq!(queries.next(), Some((id, sent.answered)));
                sent.answered += 1;
            }
            if request.is_taken() {
                assert_eq!(sent.answered, sent.queries);
                self.latencies.push(self.now - sent.arrived);
                self.sent.remove(&id);
                finished += 1;
            } else {
                assert_eq!(i, shares - 1, "only a pass's last request goes on in the next");
                self.queue.resume(request);
            }
        }
        assert_eq!(queries.next(), None);
        self.queue.pass_ended(finished, self.start + self.now);
    }

    /// Runs `clients` that ask again `think` after each answer, until `end`.
    fn run_closed(&mut self, clients: u64, think: impl Fn(u64) -> Duration, end: Duration) {
        // When each client asks next.
        let mut asks: HashMap<u64, Duration> = (0..clients).map(|id| (id, think(id))).collect();
        while self.now < end {
            let wake = if self.running.is_none() { self.step() } else { None };
            let ends = self.running.as_ref().map(|(end, _)| *end);
            let asker = asks.iter().map(|(&id, &at)| (at, id)).min();
            let arrives = asker.map(|(at, _)| at);
            let event = [ends, arrives, wake].into_iter().flatten().min().unwrap();
            self.now = event.max(self.now);
            if ends == Some(event) {
                self.finish_pass();
                for id in 0..clients {
                    if !self.sent.contains_key(&id) && !asks.contains_key(&id) {
                        asks.insert(id, self.now + think(id));
                    }
                }
            } else if let Some((_, id)) = asker.filter(|(at, _)| *at == event) {
                asks.remove(&id);
                self.arrive(id, 1);
            }
        }
    }

    /// Runs `requests` that come `gap` apart on average.
    fn run(&mut self, requests: u64, gap: Duration, queries_max: usize, leave: f64) {
        let mut next_arrival = Duration::ZERO;
        let mut id = 0;
        loop {
            let wake = if self.running.is_none() { self.step() } else { None };
            let ends = self.running.as_ref().map(|(end, _)| *end);
            let arrives = (id < requests).then_some(next_arrival);
            let Some(event) = [ends, arrives, wake].into_iter().flatten().min() else { break };
            assert!(event >= self.now, "time runs forward");
            self.now = event;
            if ends == Some(event) {
                self.finish_pass();
            } else if arrives == Some(event) {
                let queries = self.rng.random_range(1..=queries_max);
                self.arrive(id, queries);
                if self.rng.random_bool(leave) {
                    // Some client leaves, perhaps this one, perhaps in the middle of its pass.
                    let leaver = self.rng.random_range(0..=id);
                    if let Some(sent) = self.sent.get_mut(&leaver) {
                        sent.gone = true;
                    }
                }
                id += 1;
                // Bursts: half of the requests come right after the one before.
                let burst = self.rng.random_bool(0.5);
                let mean = gap.as_nanos() as u64 * 2;
                let wait = if burst { 0 } else { self.rng.random_range(0..=2 * mean) };
                next_arrival += Duration::from_nanos(wait);
            }
        }
        assert_eq!(self.queue.queries(), 0);
        assert!(self.sent.values().all(|sent| sent.gone), "a request was forgotten");
    }
}

const WINDOW: Duration = Duration::from_micros(6000);

#[test]
fn every_query_is_answered_once_and_in_order_whatever_comes() {
    for seed in 0..400 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let limits = QueueLimits {
            window: Duration::from_micros(rng.random_range(0..20_000)),
            lone_waits: false,
            batch_queries_max: rng.random_range(1..200),
            queue_queries_max: rng.random_range(1..400),
        };
        let mut simulation = Simulation::new(seed, limits);
        let gap = Duration::from_micros(rng.random_range(1..20_000));
        let queries_max = rng.random_range(1..100);
        println!("seed {seed}: {limits:?}, {gap:?}, {queries_max}");
        simulation.run(500, gap, queries_max, 0.1);
    }
}

#[test]
fn below_its_capacity_a_request_waits_a_window_and_two_passes_at_most() {
    for seed in 0..50 {
        let limits = QueueLimits {
            window: WINDOW,
            lone_waits: false,
            batch_queries_max: 256,
            queue_queries_max: 1 << 14,
        };
        let mut simulation = Simulation::new(seed, limits);
        // About 2,000 queries a second, where a full pass makes 8,100.
        simulation.run(5000, Duration::from_micros(1000), 3, 0.0);
        let worst = *simulation.latencies.iter().max().unwrap();
        let pass = Simulation::pass_time(*simulation.passes.iter().max().unwrap());
        assert!(worst <= WINDOW + 2 * pass, "seed {seed}: {worst:?} against {pass:?}");
        assert_eq!(simulation.refused, 0);
    }
}

#[test]
fn under_load_passes_are_full_and_follow_each_other() {
    let limits = QueueLimits {
        window: WINDOW,
        lone_waits: false,
        batch_queries_max: 256,
        queue_queries_max: 4096,
    };
    let mut simulation = Simulation::new(1, limits);
    // About four times what full passes answer.
    simulation.run(100_000, Duration::from_micros(60), 3, 0.0);
    assert!(simulation.refused > 0);
    let busy: Duration = simulation.passes.iter().map(|&q| Simulation::pass_time(q)).sum();
    assert!(busy.as_secs_f64() > 0.99 * simulation.now.as_secs_f64(), "{busy:?}");
    let full = simulation.passes.iter().filter(|&&queries| queries == 256).count();
    assert!(full as f64 > 0.98 * simulation.passes.len() as f64, "{full}");
}

#[test]
fn clients_that_ask_again_at_once_share_every_pass_and_leave_no_idle_window() {
    let limits = QueueLimits {
        window: WINDOW,
        lone_waits: false,
        batch_queries_max: 256,
        queue_queries_max: 4096,
    };
    // They begin all at once, or spread over several passes, which first makes groups of them.
    for spread_us in [0, 700] {
        let mut simulation = Simulation::new(1, limits);
        let think = |id: u64| Duration::from_micros(200 + 20 * id);
        let begun = std::cell::RefCell::new(HashSet::new());
        let think = |id: u64| match begun.borrow_mut().insert(id) {
            true => think(id) + Duration::from_micros(spread_us * id),
            false => think(id),
        };
        simulation.run_closed(64, think, Duration::from_secs(2));
        let late = &simulation.passes[simulation.passes.len() / 2..];
        assert!(late.iter().all(|&queries| queries == 64), "{late:?}");
        // The last client is back 1,460 microseconds after a pass: nothing else is waited for.
        let cycle = Simulation::pass_time(64) + Duration::from_micros(200 + 20 * 63);
        let worst = *simulation.latencies.last_chunk::<64>().unwrap().iter().max().unwrap();
        assert!(worst <= cycle, "{worst:?} against {cycle:?}");
    }
}

#[test]
fn a_client_alone_that_asks_again_at_once_waits_for_nothing() {
    let limits = QueueLimits {
        window: WINDOW,
        lone_waits: false,
        batch_queries_max: 256,
        queue_queries_max: 4096,
    };
    let mut simulation = Simulation::new(1, limits);
    simulation.run_closed(1, |_| Duration::from_micros(50), Duration::from_millis(200));
    let pass = Simulation::pass_time(1);
    assert!(simulation.latencies.iter().all(|&latency| latency == pass));
    assert!(simulation.latencies.len() > 20);
}

#[test]
fn a_crowd_that_does_not_come_back_is_waited_for_no_longer_than_a_window() {
    let limits = QueueLimits {
        window: WINDOW,
        lone_waits: false,
        batch_queries_max: 256,
        queue_queries_max: 4096,
    };
    let mut simulation = Simulation::new(1, limits);
    // Of ten clients nine leave after their first request, which they make while the tenth's pass runs.
    let begun = std::cell::RefCell::new(HashSet::new());
    let think = |id: u64| match begun.borrow_mut().insert(id) || id == 0 {
        true => Duration::from_micros(10),
        false => Duration::from_secs(100),
    };
    simulation.run_closed(10, think, Duration::from_millis(200));
    let pass = Simulation::pass_time(1);
    assert_eq!(simulation.passes[..2], [1, 10]);
    assert_eq!(simulation.latencies[11], WINDOW + pass);
    assert!(simulation.latencies[12..].iter().all(|&latency| latency == pass));
}

#[test]
fn a_lone_client_waits_for_a_window_that_was_set() {
    let limits = QueueLimits {
        window: WINDOW,
        lone_waits: true,
        batch_queries_max: 256,
        queue_queries_max: 4096,
    };
    let mut simulation = Simulation::new(1, limits);
    simulation.run_closed(1, |_| 2 * WINDOW, 100 * WINDOW);
    let expected = WINDOW + Simulation::pass_time(1);
    assert!(simulation.latencies.iter().all(|&latency| latency == expected));
    assert!(simulation.latencies.len() >= 9);
}

#[test]
fn a_lone_client_waits_for_nothing_however_seldom_it_asks() {
    let limits = QueueLimits {
        window: WINDOW,
        lone_waits: false,
        batch_queries_max: 256,
        queue_queries_max: 4096,
    };
    let pass = Simulation::pass_time(1);
    for think in [Duration::ZERO, WINDOW / 2, WINDOW, 2 * WINDOW, 100 * WINDOW] {
        let mut simulation = Simulation::new(1, limits);
        simulation.run_closed(1, |_| think, 1000 * WINDOW);
        assert!(simulation.latencies.len() >= 9, "{think:?}");
        assert!(simulation.latencies.iter().all(|&latency| latency == pass), "{think:?}");
    }
}

#[test]
fn a_request_larger_than_the_queue_gets_in_alone() {
    let limits = QueueLimits {
        window: WINDOW,
        lone_waits: false,
        batch_queries_max: 4,
        queue_queries_max: 8,
    };
    let mut simulation = Simulation::new(1, limits);
    simulation.arrive(0, 100);
    simulation.arrive(1, 1);
    assert_eq!(simulation.refused, 1);
    simulation.step();
    assert_eq!(simulation.passes, [4]);
}

/// Answers each query with its own bytes; can be held, and told to fail.
struct Echo {
    gate: (Mutex<bool>, Condvar),
    panics: AtomicBool,
    fails: AtomicBool,
    passes: AtomicUsize,
    seen: Mutex<HashSet<u32>>,
}

#[derive(Debug, thiserror::Error)]
#[error("told to fail")]
struct Told;

impl Echo {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            gate: (Mutex::new(true), Condvar::new()),
            panics: AtomicBool::new(false),
            fails: AtomicBool::new(false),
            passes: AtomicUsize::new(0),
            seen: Mutex::new(HashSet::new()),
        })
    }

    fn hold(&self, hold: bool) {
        *self.gate.0.lock().unwrap() = !hold;
        self.gate.1.notify_all();
    }
}

impl Answerer for Echo {
    type Query = u32;
    type Error = Told;

    fn answer_bytes(&self) -> usize {
        4
    }

    fn answer(&self, queries: &[u32], answers: &mut [u8]) -> Result<(), Told> {
        self.passes.fetch_add(1, Ordering::SeqCst);
        let open = self.gate.0.lock().unwrap();
        drop(self.gate.1.wait_while(open, |open| !*open).unwrap());
        self.seen.lock().unwrap().extend(queries);
        assert!(!self.panics.load(Ordering::SeqCst), "told to panic");
        if self.fails.load(Ordering::SeqCst) {
            return Err(Told);
        }
        for (query, answer) in queries.iter().zip(answers.chunks_exact_mut(4)) {
            answer.copy_from_slice(&query.to_le_bytes());
        }
        Ok(())
    }
}

fn start(echo: &Arc<Echo>, limits: QueueLimits) -> Arc<Scheduler<Echo>> {
    let pass = Duration::from_millis(1);
    let spec = SchedulerSpec { limits, pass, metrics: PassMetrics::default() };
    Arc::new(Scheduler::start(&Vitals::default(), Arc::clone(echo), spec).unwrap())
}

fn limits(window_ms: u64) -> QueueLimits {
    QueueLimits {
        window: Duration::from_millis(window_ms),
        lone_waits: false,
        batch_queries_max: 16,
        queue_queries_max: 64,
    }
}

fn bytes(queries: impl IntoIterator<Item = u32>) -> Vec<u8> {
    queries.into_iter().flat_map(u32::to_le_bytes).collect()
}

async fn until(condition: impl Fn() -> bool) {
    crate::common::until("it comes true", async || condition()).await;
}

#[tokio::test]
async fn requests_that_come_together_share_a_pass() {
    let echo = Echo::new();
    echo.hold(true);
    let scheduler = start(&echo, limits(200));
    let ask = |i: u32| {
        let scheduler = Arc::clone(&scheduler);
        tokio::spawn(async move { scheduler.answer(vec![i, 100 + i]).await.unwrap() })
    };
    // Nobody was there before the first one: it waits for nobody.
    let mut answers = vec![ask(0)];
    until(|| echo.passes.load(Ordering::SeqCst) == 1).await;
    answers.extend((1..5).map(ask));
    until(|| scheduler.queued() == 8).await;
    echo.hold(false);
    for (i, answer) in (0..).zip(answers) {
        assert_eq!(answer.await.unwrap().answers, bytes([i, 100 + i]));
    }
    assert_eq!(echo.passes.load(Ordering::SeqCst), 2);
}

#[tokio::test]
async fn a_request_longer_than_a_pass_is_put_together_again() {
    let echo = Echo::new();
    let scheduler = start(&echo, limits(0));
    let answered = scheduler.answer((0..50).collect()).await.unwrap();
    assert_eq!(answered.answers, bytes(0..50));
    assert_eq!(echo.passes.load(Ordering::SeqCst), 4);
    assert!(scheduler.answer(vec![]).await.unwrap().answers.is_empty());
}

#[tokio::test]
async fn a_full_queue_says_so_and_one_that_leaves_makes_room() {
    let echo = Echo::new();
    echo.hold(true);
    let scheduler = start(&echo, limits(0));
    let ask = |queries: std::ops::Range<u32>| {
        let scheduler = Arc::clone(&scheduler);
        tokio::spawn(async move { scheduler.answer(queries.collect()).await })
    };
    let running = ask(0..16);
    until(|| echo.passes.load(Ordering::SeqCst) == 1).await;
    let waiting = ask(100..164);
    until(|| scheduler.queued() == 64).await;
    let refused = scheduler.answer(vec![1]).await.unwrap_err();
    let Unanswered::Busy { queries: 64, retry_after } = refused else { panic!("{refused:?}") };
    assert!(retry_after >= Duration::from_millis(1));

    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    let next = ask(200..210);
    until(|| scheduler.queued() == 10).await;
    echo.hold(false);
    assert_eq!(running.await.unwrap().unwrap().answers, bytes(0..16));
    assert_eq!(next.await.unwrap().unwrap().answers, bytes(200..210));
    let seen = echo.seen.lock().unwrap();
    assert!(seen.contains(&205) && !seen.contains(&100), "the one that left was answered");
}

#[tokio::test]
async fn a_pass_that_fails_or_panics_fails_its_requests_only() {
    let echo = Echo::new();
    let scheduler = start(&echo, limits(0));
    echo.panics.store(true, Ordering::SeqCst);
    // Longer than a pass: what is left of it is not tried.
    let error = scheduler.answer((0..40).collect()).await.unwrap_err();
    assert_eq!(error, Unanswered::Failed);
    assert_eq!(scheduler.queued(), 0);
    assert_eq!(echo.passes.load(Ordering::SeqCst), 1);
    echo.panics.store(false, Ordering::SeqCst);
    echo.fails.store(true, Ordering::SeqCst);
    assert_eq!(scheduler.answer(vec![1]).await.unwrap_err(), Unanswered::Failed);
    echo.fails.store(false, Ordering::SeqCst);
    assert_eq!(scheduler.answer(vec![7]).await.unwrap().answers, bytes([7]));
}

#[tokio::test]
async fn closing_answers_what_waits_and_refuses_the_rest() {
    let echo = Echo::new();
    echo.hold(true);
    let scheduler = start(&echo, limits(0));
    let ask = |i: u32| {
        let scheduler = Arc::clone(&scheduler);
        tokio::spawn(async move { scheduler.answer(vec![i]).await })
    };
    let running = ask(0);
    until(|| echo.passes.load(Ordering::SeqCst) == 1).await;
    let waiting = [running, ask(1), ask(2)];
    until(|| scheduler.queued() == 2).await;
    scheduler.close();
    assert_eq!(scheduler.answer(vec![9]).await.unwrap_err(), Unanswered::Closed);
    echo.hold(false);
    for (i, answer) in (0..).zip(waiting) {
        assert_eq!(answer.await.unwrap().unwrap().answers, bytes([i]));
    }
}

/// The requests that a pass takes, in its order.
fn pass_of(queue: &mut Queue<u64, u64>, now: Instant) -> Vec<u64> {
    let Next::Pass(pass) = queue.next(now, |_| false) else { panic!("no pass is due") };
    let mut finished = 0;
    let mut taken = Vec::new();
    for (request, _) in pass.requests {
        taken.push(request.receiver);
        match request.is_taken() {
            true => finished += 1,
            false => queue.resume(request),
        }
    }
    queue.pass_ended(finished, now);
    taken
}

#[test]
fn one_request_beside_a_crowd_of_another_peer_is_in_the_next_pass() {
    let limits = QueueLimits {
        window: Duration::ZERO,
        lone_waits: false,
        batch_queries_max: 256,
        queue_queries_max: 1 << 14,
    };
    let hog = |connection| Origin { peer: 1, connection };
    let other = Origin { peer: 2, connection: 100 };
    let now = Instant::now();
    let mut queue = Queue::new(limits);
    let push = |queue: &mut Queue<u64, u64>, origin, queries, id| {
        let pushed = queue.push(vec![id; queries], origin, id, now);
        assert!(pushed.is_ok_and(|pushed| pushed.displaced.is_empty()));
    };
    for round in 0..50 {
        // 32 threads ask again as soon as they are answered: ever so many wait.
        while queue.queries() + 400 < 1 << 14 {
            push(&mut queue, hog(round % 32), 128, 7);
        }
        push(&mut queue, other, 8, 1000 + round);
        let taken = pass_of(&mut queue, now);
        assert!(taken.contains(&(1000 + round)), "round {round}: {taken:?}");
        assert!(taken.contains(&7), "the pass is full all the same");
    }
}

#[test]
fn a_full_queue_makes_room_for_who_has_less_in_it() {
    let limits = QueueLimits {
        window: Duration::ZERO,
        lone_waits: false,
        batch_queries_max: 16,
        queue_queries_max: 64,
    };
    let now = Instant::now();
    let of = |peer, connection| Origin { peer, connection };
    let mut queue: Queue<u64, u64> = Queue::new(limits);
    for id in 0..8 {
        assert!(queue.push(vec![id; 8], of(1, 1), id, now).is_ok());
    }
    // Its own newest requests do not make room for the hog's next one.
    let refused = queue.push(vec![8; 8], of(1, 1), 8, now).err().unwrap();
    assert_eq!((refused.0.queries, refused.1), (64, 8));
    // Another peer's request displaces the newest, and as many as it takes.
    let displaced = queue.push(vec![9; 10], of(2, 2), 9, now).ok().unwrap().displaced;
    assert_eq!((displaced, queue.queries()), (vec![7, 6], 58));
    // So does another connection's of the same peer.
    let displaced = queue.push(vec![10; 8], of(1, 3), 10, now).ok().unwrap().displaced;
    assert_eq!((displaced, queue.queries()), (vec![5], 58));
    // None has much more than the other by then.
    assert!(queue.push(vec![11; 30], of(2, 2), 11, now).is_err());
    // What a pass has begun is not given up for others.
    let mut all = Vec::new();
    while queue.queries() > 0 {
        all.extend(pass_of(&mut queue, now));
    }
    all.sort_unstable();
    all.dedup();
    assert_eq!(all, [0, 1, 2, 3, 4, 9, 10]);
}

#[test]
fn a_peer_has_a_bounded_part_of_passes_while_others_are_about() {
    let limits = QueueLimits {
        window: Duration::ZERO,
        lone_waits: false,
        batch_queries_max: 256,
        queue_queries_max: 4096,
    };
    let of = |peer| Origin { peer, connection: peer };
    let start = Instant::now();
    let at = |ms| start + Duration::from_millis(ms);
    let mut queue: Queue<(u64, usize), u64> = Queue::new(limits);
    queue.bound_peers(40);
    let mut finished: HashMap<u64, Vec<usize>> = HashMap::new();
    let mut pass = |queue: &mut Queue<(u64, usize), u64>, now| {
        let Next::Pass(pass) = queue.next(now, |_| false) else { panic!("no pass is due") };
        for &(id, query) in &pass.queries {
            finished.entry(id).or_default().push(query);
        }
        let rest: Vec<_> = pass.requests.into_iter().filter(|(one, _)| !one.is_taken()).collect();
        rest.into_iter().rev().for_each(|(one, _)| queue.resume(one));
        queue.pass_ended(1, now);
        pass.queries.len()
    };
    let push = |queue: &mut Queue<(u64, usize), u64>, peer, id, queries, now| {
        let list = (0..queries).map(|query| (id, query)).collect();
        assert!(queue.push(list, of(peer), id, now).is_ok());
    };
    // Alone, it has whole passes.
    push(&mut queue, 1, 1, 300, at(0));
    assert_eq!(pass(&mut queue, at(0)), 256);
    // Beside others each has its part, and requests go on where they were cut.
    push(&mut queue, 1, 2, 100, at(1));
    push(&mut queue, 2, 3, 8, at(1));
    push(&mut queue, 3, 4, 50, at(1));
    assert_eq!(pass(&mut queue, at(1)), 40 + 8 + 40);
    assert_eq!(pass(&mut queue, at(2)), 40 + 10);
    // Once they are gone for a while, it has whole passes again.
    assert_eq!(pass(&mut queue, at(1500)), 64);
    assert_eq!(queue.queries(), 0);
    for (id, queries) in [(1, 300), (2, 100), (3, 8), (4, 50)] {
        assert_eq!(finished[&id], (0..queries).collect::<Vec<_>>(), "request {id}");
    }
}
