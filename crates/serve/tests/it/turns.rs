//! Fairness between the queues of one server: a simulator over the machine's own code, then real
//! schedulers on one runner.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use crate::common::until;

use hushtable_serve::batch::{
    Answerer, Due, Next, Origin, PassMetrics, Queue, QueueLimits, Runner, Scheduler, SchedulerSpec,
    Turns,
};
use hushtable_serve::host::Vitals;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::task::JoinSet;

/// A simulated table or model.
struct Lane {
    queue: Queue<u64, u64>,
    pass: Duration,
    /// When requests come.
    arrivals: VecDeque<Duration>,
    served: Duration,
    latencies: Vec<Duration>,
}

/// One thread that runs the lanes' passes, by a clock that only the simulator moves.
struct Simulation {
    start: Instant,
    now: Duration,
    turns: Turns,
    lanes: Vec<Lane>,
}

impl Simulation {
    fn new() -> Self {
        Self {
            start: Instant::now(),
            now: Duration::ZERO,
            turns: Turns::default(),
            lanes: Vec::new(),
        }
    }

    /// A lane whose passes of up to `batch` requests take `pass`.
    fn lane(&mut self, pass: Duration, batch: usize, arrivals: Vec<Duration>) {
        let limits = QueueLimits {
            window: WINDOW,
            lone_waits: false,
            batch_queries_max: batch,
            queue_queries_max: 1 << 20,
        };
        let number = self.turns.join();
        assert_eq!(number, self.lanes.len());
        self.lanes.push(Lane {
            queue: Queue::new(limits),
            pass,
            arrivals: arrivals.into(),
            served: Duration::ZERO,
            latencies: Vec::new(),
        });
    }

    fn arrive(&mut self) {
        for lane in &mut self.lanes {
            while let Some(&at) = lane.arrivals.front().filter(|&&at| at <= self.now) {
                lane.arrivals.pop_front();
                let origin = Origin::default();
                let pushed =
                    lane.queue.push(vec![0], origin, at.as_nanos() as u64, self.start + at);
                assert!(pushed.is_ok());
            }
        }
    }

    /// Runs until `end`, or until nothing is left to do. `choose` takes the next of those due.
    fn run(&mut self, end: Duration, choose: impl Fn(&mut Turns, &[usize]) -> Option<usize>) {
        while self.now < end {
            self.arrive();
            let now = self.start + self.now;
            let mut due = Vec::new();
            let mut wakes = Vec::new();
            for (number, lane) in self.lanes.iter_mut().enumerate() {
                match lane.queue.due(now, |_| false) {
                    Due::Never => {}
                    Due::At(at) => wakes.push(at - self.start),
                    Due::Now => due.push(number),
                }
                wakes.extend(lane.arrivals.front().copied());
            }
            let Some(number) = choose(&mut self.turns, &due) else {
                let Some(wake) = wakes.into_iter().min() else { return };
                assert!(wake > self.now, "time runs forward");
                self.now = wake;
                continue;
            };
            assert!(due.contains(&number));
            let lane = &mut self.lanes[number];
            let Next::Pass(pass) = lane.queue.next(now, |_| false) else { panic!("not due") };
            self.now += lane.pass;
            lane.served += lane.pass;
            let finished = pass.requests.len();
            for (request, _) in pass.requests {
                let arrived = Duration::from_nanos(request.receiver);
                lane.latencies.push(self.now - arrived);
            }
            lane.queue.pass_ended(finished, self.start + self.now);
            self.turns.served(number, lane.pass);
        }
    }
}

fn fairly(turns: &mut Turns, due: &[usize]) -> Option<usize> {
    turns.next(due.iter().copied())
}

/// `count` arrivals, `gap` apart on average.
fn arrivals(rng: &mut ChaCha8Rng, count: usize, gap: Duration) -> Vec<Duration> {
    let mut at = Duration::ZERO;
    (0..count)
        .map(|_| {
            at += Duration::from_nanos(rng.random_range(0..=2 * gap.as_nanos() as u64));
            at
        })
        .collect()
}

const WINDOW: Duration = Duration::from_micros(500);
const MS: Duration = Duration::from_millis(1);

#[test]
fn a_large_tables_load_does_not_starve_a_small_one() {
    for seed in 0..50 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let large = 40 * MS;
        let small = Duration::from_micros(rng.random_range(50..1000));
        let mut simulation = Simulation::new();
        // Five times what its passes can answer, from the start to the end.
        simulation.lane(large, 16, arrivals(&mut rng, 6_000, MS / 2));
        simulation.lane(small, 16, arrivals(&mut rng, 300, 10 * MS));
        simulation.run(Duration::from_secs(3), fairly);
        let [of_large, of_small] = simulation.lanes.as_slice() else { unreachable!() };
        assert!(of_small.latencies.len() >= 250, "seed {seed}");
        // A window, the large table's pass that is running, and its own with the one before.
        let worst = *of_small.latencies.iter().max().unwrap();
        assert!(worst <= WINDOW + large + 2 * small, "seed {seed}: {worst:?}");
        // The large table has the rest.
        assert!(of_large.served + of_small.served > simulation.now * 9 / 10);
    }
}

#[test]
fn the_same_order_every_time_starves_a_small_table() {
    // What the turns are for: without them, this is what a server would do.
    let in_order = |_: &mut Turns, due: &[usize]| due.first().copied();
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut simulation = Simulation::new();
    simulation.lane(40 * MS, 16, arrivals(&mut rng, 6_000, MS / 2));
    simulation.lane(MS, 16, arrivals(&mut rng, 300, 10 * MS));
    simulation.run(Duration::from_secs(3), in_order);
    assert!(simulation.lanes[1].latencies.is_empty());
}

#[test]
fn lanes_that_always_have_a_pass_due_get_the_same_time() {
    for seed in 0..50 {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut simulation = Simulation::new();
        let lanes = rng.random_range(2..8);
        let passes: Vec<_> = (0..lanes).map(|_| MS * rng.random_range(1..60)).collect();
        let end = Duration::from_secs(4);
        for &pass in &passes {
            // More than it could answer if it were alone.
            let requests = end.div_duration_f64(pass) as usize + 2;
            simulation.lane(pass, 1, vec![Duration::ZERO; requests]);
        }
        simulation.run(end, fairly);
        let served = simulation.lanes.iter().map(|lane| lane.served);
        let (least, most) = (served.clone().min().unwrap(), served.max().unwrap());
        let longest = *passes.iter().max().unwrap();
        assert!(most - least <= longest, "seed {seed}: {least:?} to {most:?}, {passes:?}");
    }
}

#[test]
fn a_lane_that_rested_cannot_claim_what_it_did_not_use() {
    let mut simulation = Simulation::new();
    simulation.lane(10 * MS, 1, vec![Duration::ZERO; 1000]);
    // Comes after a second, with as much to do.
    simulation.lane(10 * MS, 1, vec![Duration::from_secs(1); 1000]);
    simulation.run(Duration::from_secs(1), fairly);
    let before = simulation.lanes[0].served;
    simulation.run(Duration::from_secs(2), fairly);
    let [first, late] = simulation.lanes.as_slice() else { unreachable!() };
    let (first, late) = (first.served - before, late.served);
    assert!(first.abs_diff(late) <= 10 * MS, "{first:?} and {late:?}");
}

#[test]
fn a_lane_that_left_is_forgotten() {
    let mut turns = Turns::default();
    let (a, b) = (turns.join(), turns.join());
    turns.served(a, MS);
    assert_eq!(turns.next([a, b]), Some(b));
    turns.leave(b);
    assert_eq!(turns.next([a, b]), Some(a));
    assert_eq!(turns.next([b]), None);
    turns.served(b, MS);
    let c = turns.join();
    assert_eq!(c, b, "its place is another's");
    assert_eq!(turns.next([a, c]), Some(a), "the first of those that are equal");
    turns.served(a, Duration::ZERO);
    assert_eq!(turns.next([a, c]), Some(c), "a pass too short to measure counts too");
}

/// A pass that was run.
#[derive(Clone, Copy)]
struct Ran {
    is_small: bool,
    begun: Instant,
    ended: Instant,
}

/// Takes its time, notes its passes beside another's, and sees whether that works at the same time.
struct Slow {
    pass: Duration,
    is_small: bool,
    works: Arc<AtomicBool>,
    passes: Arc<Mutex<Vec<Ran>>>,
}

impl Answerer for Slow {
    type Query = u8;
    type Error = Infallible;

    fn answer_bytes(&self) -> usize {
        1
    }

    fn answer(&self, queries: &[u8], answers: &mut [u8]) -> Result<(), Self::Error> {
        assert!(!self.works.swap(true, Ordering::SeqCst), "two passes at once");
        let begun = Instant::now();
        let ran = Ran { is_small: self.is_small, begun, ended: begun };
        self.passes.lock().unwrap().push(ran);
        thread::sleep(self.pass);
        answers.copy_from_slice(queries);
        self.passes.lock().unwrap().last_mut().unwrap().ended = Instant::now();
        self.works.store(false, Ordering::SeqCst);
        Ok(())
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn schedulers_of_one_runner_take_turns() {
    let runner = Runner::start(&Vitals::default()).unwrap();
    let works = Arc::new(AtomicBool::new(false));
    let passes = Arc::<Mutex<Vec<Ran>>>::default();
    let of_large = 20 * MS;
    let start = |pass: Duration| {
        let (works, passes) = (Arc::clone(&works), Arc::clone(&passes));
        let slow = Arc::new(Slow { pass, is_small: pass < of_large, works, passes });
        let limits = QueueLimits {
            window: Duration::ZERO,
            lone_waits: false,
            batch_queries_max: 1,
            queue_queries_max: 1 << 10,
        };
        let spec = SchedulerSpec { limits, pass, metrics: PassMetrics::default() };
        Arc::new(Scheduler::start_on(&runner, slow, spec))
    };
    let (large, small) = (start(of_large), start(MS));
    // A hundred passes of the large one wait; the small one is asked beside them.
    let load = tokio::spawn({
        let large = Arc::clone(&large);
        async move { large.answer(vec![7; 100]).await }
    });
    until("a pass of the large one", async || !passes.lock().unwrap().is_empty()).await;
    // How many had begun when each request of the small one was in its queue.
    let mut before = Vec::new();
    for turn in 0..10 {
        let mut asked = pin!(small.answer(vec![turn]));
        let early = poll_fn(|cx| Poll::Ready(asked.as_mut().poll(cx))).await;
        before.push(passes.lock().unwrap().len());
        let answered = match early {
            Poll::Ready(answered) => answered,
            Poll::Pending => asked.await,
        };
        assert_eq!(answered.unwrap().answers, [turn]);
    }
    let passes: Vec<Ran> = passes.lock().unwrap().clone();
    let small_ones: Vec<usize> = (0..passes.len()).filter(|&at| passes[at].is_small).collect();
    assert_eq!(small_ones.len(), 10);
    // Each waited for one pass of the large one, or two: most of them are still to come. Where the machine stood still
    // during a pass of the small one, the large one has as much time before the next.
    let waited: usize =
        small_ones.iter().zip(before).map(|(&at, before)| at.saturating_sub(before)).sum();
    let took = |&at: &usize| {
        let next = passes.get(at + 1).map_or(passes[at].ended, |next| next.begun);
        next - passes[at - 1].ended
    };
    let due = small_ones.iter().map(took).sum::<Duration>().div_duration_f64(of_large);
    assert!(waited <= 2 * 10 + due as usize, "{waited} passes of the large one, {due} due");
    // A scheduler that goes takes its waiting requests along, and leaves the other alone.
    load.abort();
    drop(large);
    assert_eq!(small.answer(vec![3]).await.unwrap().answers, [3]);
}

/// An answerer that notes who runs its passes.
struct Noting {
    pass: Duration,
    works: Arc<AtomicBool>,
    /// The thread of each pass, and its queries.
    passes: Mutex<Vec<(ThreadId, usize)>>,
}

impl Answerer for Noting {
    type Query = u8;
    type Error = Infallible;

    fn answer_bytes(&self) -> usize {
        1
    }

    fn answer(&self, queries: &[u8], answers: &mut [u8]) -> Result<(), Infallible> {
        assert!(!self.works.swap(true, Ordering::SeqCst), "two passes at once");
        self.passes.lock().unwrap().push((thread::current().id(), queries.len()));
        thread::sleep(self.pass);
        answers.copy_from_slice(queries);
        self.works.store(false, Ordering::SeqCst);
        Ok(())
    }
}

type Noted = (Arc<Scheduler<Noting>>, Arc<Noting>);

/// Schedulers of one runner, whose passes are expected to take so long.
fn noting(expected: [Duration; 2]) -> [Noted; 2] {
    let runner = Runner::start(&Vitals::default()).unwrap();
    let works = Arc::new(AtomicBool::new(false));
    expected.map(|expected| {
        let pass = if expected < MS { Duration::ZERO } else { expected };
        let noting = Noting { pass, works: Arc::clone(&works), passes: Mutex::default() };
        let noting = Arc::new(noting);
        let limits = QueueLimits {
            window: Duration::ZERO,
            lone_waits: false,
            batch_queries_max: 64,
            queue_queries_max: 1 << 10,
        };
        let spec = SchedulerSpec { limits, pass: expected, metrics: PassMetrics::default() };
        (Arc::new(Scheduler::start_on(&runner, Arc::clone(&noting), spec)), noting)
    })
}

#[tokio::test]
async fn short_passes_run_on_the_runtime_s_thread_for_all_that_came_together() {
    let [(short, of_short), (long, of_long)] = noting([Duration::from_micros(5), 5 * MS]);
    let mut asking = JoinSet::new();
    for query in 0..32 {
        let short = Arc::clone(&short);
        asking.spawn(async move { (query, short.answer(vec![query]).await.unwrap().answers) });
    }
    while let Some(answered) = asking.join_next().await {
        let (query, answers) = answered.unwrap();
        assert_eq!(answers, [query]);
    }
    let here = thread::current().id();
    assert_eq!(*of_short.passes.lock().unwrap(), [(here, 32)]);
    // What takes longer must not keep the runtime's thread from its work.
    assert_eq!(long.answer(vec![7]).await.unwrap().answers, [7]);
    let passes = of_long.passes.lock().unwrap();
    assert!(passes.len() == 1 && passes[0].0 != here);
}

#[tokio::test]
async fn a_thread_s_passes_and_a_runtime_s_are_never_run_at_once() {
    let [(short, of_short), (long, of_long)] = noting([Duration::from_micros(5), 2 * MS]);
    let load = tokio::spawn(async move {
        for query in 0..50 {
            assert_eq!(long.answer(vec![query]).await.unwrap().answers, [query]);
        }
    });
    let mut turns = 0;
    while !load.is_finished() {
        assert_eq!(short.answer(vec![1, 2]).await.unwrap().answers, [1, 2]);
        turns += 1;
        tokio::time::sleep(MS / 4).await;
    }
    load.await.unwrap();
    assert_eq!(of_long.passes.lock().unwrap().len(), 50);
    assert_eq!(of_short.passes.lock().unwrap().len(), turns);
}
