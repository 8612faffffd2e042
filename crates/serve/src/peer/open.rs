//! Loads servers with requests that arrive when they arrive (an open loop).
//!
//! Arrivals are given beforehand and wait for no answer: a server that falls behind meets as many
//! requests as one that does not. A request's latency counts from when it was to arrive, so that what
//! waits in the load, for a connection or for the load's own turn, is in it and nothing is left out
//! (no "coordinated omission").

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use tokio::sync::Mutex;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinSet;
use tokio::time::timeout_at;

use super::load::{LoadClient, at_fraction};
use crate::{Error, Refusal};

/// When requests arrive.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct Arrivals {
    /// Of each request, from the load's start, in order.
    pub at: Vec<Duration>,
    /// Requests that arrive earlier warm up: they are sent, and counted nowhere.
    pub measured_from: Duration,
    /// What has no answer so long after the last arrival is given up, and counts as unanswered.
    pub give_up: Duration,
}

/// What a load of given arrivals measured. A request is one query of the scheme.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct OpenReport {
    /// Requests that arrived while measuring.
    pub arrived: u64,
    /// Of these, answered rightly.
    pub answered: u64,
    /// Refused by the server for being busy.
    pub rejected: u64,
    /// Failed, or came back wrong.
    pub errors: u64,
    /// Given up after the load's end.
    pub unanswered: u64,
    /// Found no idle connection, and waited for one within the load.
    pub waited: u64,
    /// Half of the requests were answered within so many milliseconds. What was refused, failed or
    /// given up took longer than any other in these five figures; where that is the figure, it is
    /// infinite.
    pub p50_ms: f64,
    /// 90 of 100.
    pub p90_ms: f64,
    /// 99 of 100.
    pub p99_ms: f64,
    /// 999 of 1,000.
    pub p999_ms: f64,
    /// All.
    pub max_ms: f64,
    /// The mean over what was answered.
    pub mean_ms: f64,
    /// What a request's pass took at the server on average, in milliseconds.
    pub answer_ms_mean: f64,
    /// How long after its time the load's clock handed on half of the arrivals, in milliseconds.
    pub lag_p50_ms: f64,
    /// 99 of 100 arrivals.
    pub lag_p99_ms: f64,
    /// All arrivals.
    pub lag_max_ms: f64,
    /// The server's waiting window, in milliseconds.
    pub window_ms: f64,
    /// From the first measured arrival to the last, in seconds.
    pub elapsed_s: f64,
}

/// A request that has arrived.
#[derive(Clone, Copy)]
struct Arrival {
    due: Instant,
    is_measured: bool,
}

#[derive(Default)]
struct Outcomes {
    latencies_us: Vec<u64>,
    answer_us: u64,
    rejected: u64,
    errors: u64,
}

/// What the clock saw.
#[derive(Default)]
struct Handed {
    lags_us: Vec<u64>,
    waited: u64,
}

/// Sends the requests through `clients`, whose connections are open: each takes the next that has
/// arrived as soon as it is idle.
pub(crate) async fn run<C: LoadClient + 'static>(
    clients: Vec<C>,
    arrivals: &Arrivals,
    window: Duration,
) -> OpenReport {
    let (sender, receiver) = unbounded_channel();
    let receiver = Arc::new(Mutex::new(receiver));
    let idle = Arc::new(AtomicUsize::new(clients.len()));
    let start = Instant::now() + START_PAUSE;
    let last = arrivals.at.last().copied().unwrap_or_default();
    let end = start + last + arrivals.give_up;
    let mut running = JoinSet::new();
    for client in clients {
        running.spawn(serve(client, Arc::clone(&receiver), Arc::clone(&idle), end));
    }
    // A thread's sleep is finer than the runtime's timers, which count whole milliseconds.
    let clock = {
        let (arrivals, idle) = (arrivals.clone(), Arc::clone(&idle));
        thread::spawn(move || hand_on(&arrivals, start, &sender, &idle))
    };
    let mut all = Outcomes::default();
    while let Some(done) = running.join_next().await {
        match done {
            Ok(one) => all.add(one),
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
    let handed = clock.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic));
    report(arrivals, all, handed, window)
}

/// Hands each arrival on at its time.
fn hand_on(
    arrivals: &Arrivals,
    start: Instant,
    sender: &UnboundedSender<Arrival>,
    idle: &AtomicUsize,
) -> Handed {
    let mut handed = Handed::default();
    for &at in &arrivals.at {
        let due = start + at;
        if let Some(early) = due.checked_duration_since(Instant::now()) {
            thread::sleep(early);
        }
        let is_measured = at >= arrivals.measured_from;
        // Down to one for each arrival, up again where a client is done with it: below zero is a
        // queue in the load.
        let was_idle = idle.fetch_sub(1, Ordering::Relaxed) as isize;
        if is_measured {
            handed.lags_us.push(due.elapsed().as_micros() as u64);
            handed.waited += u64::from(was_idle <= 0);
        }
        if sender.send(Arrival { due, is_measured }).is_err() {
            break;
        }
    }
    handed
}

async fn serve(
    mut client: impl LoadClient,
    arrivals: Arc<Mutex<UnboundedReceiver<Arrival>>>,
    idle: Arc<AtomicUsize>,
    end: Instant,
) -> Outcomes {
    let mut outcomes = Outcomes::default();
    let end = tokio::time::Instant::from_std(end);
    for turn in 0.. {
        let next = async { arrivals.lock().await.recv().await };
        let Ok(Some(arrival)) = timeout_at(end, next).await else { break };
        let Ok(result) = timeout_at(end, client.ask(turn)).await else { break };
        idle.fetch_add(1, Ordering::Relaxed);
        if !arrival.is_measured {
            continue;
        }
        match result {
            Ok(Some(answer_us)) => {
                outcomes.latencies_us.push(arrival.due.elapsed().as_micros() as u64);
                outcomes.answer_us += answer_us;
            }
            Err(Error::Refused { refusal: Refusal::Busy { .. }, .. }) => outcomes.rejected += 1,
            Ok(None) | Err(_) => outcomes.errors += 1,
        }
    }
    outcomes
}

impl Outcomes {
    fn add(&mut self, other: Self) {
        self.latencies_us.extend(other.latencies_us);
        self.answer_us += other.answer_us;
        self.rejected += other.rejected;
        self.errors += other.errors;
    }
}

fn report(
    arrivals: &Arrivals,
    mut all: Outcomes,
    mut handed: Handed,
    window: Duration,
) -> OpenReport {
    let first = arrivals.at.partition_point(|&at| at < arrivals.measured_from);
    let measured = &arrivals.at[first..];
    let (arrived, answered) = (measured.len(), all.latencies_us.len());
    let elapsed = match measured {
        [first, .., last] => *last - *first,
        _ => Duration::ZERO,
    };
    all.latencies_us.sort_unstable();
    handed.lags_us.sort_unstable();
    let latency = |fraction| at_fraction(&all.latencies_us, arrived, fraction);
    let lag = |fraction| at_fraction(&handed.lags_us, handed.lags_us.len(), fraction);
    let known = answered as u64 + all.rejected + all.errors;
    OpenReport {
        arrived: arrived as u64,
        answered: answered as u64,
        rejected: all.rejected,
        errors: all.errors,
        unanswered: (arrived as u64).saturating_sub(known),
        waited: handed.waited,
        p50_ms: latency(0.5),
        p90_ms: latency(0.9),
        p99_ms: latency(0.99),
        p999_ms: latency(0.999),
        max_ms: latency(1.0),
        mean_ms: all.latencies_us.iter().sum::<u64>() as f64 / 1e3 / answered.max(1) as f64,
        answer_ms_mean: all.answer_us as f64 / 1e3 / answered.max(1) as f64,
        lag_p50_ms: lag(0.5),
        lag_p99_ms: lag(0.99),
        lag_max_ms: lag(1.0),
        window_ms: window.as_secs_f64() * 1e3,
        elapsed_s: elapsed.as_secs_f64(),
    }
}

/// So that all clients wait for arrivals when the first one comes.
const START_PAUSE: Duration = Duration::from_millis(20);

#[cfg(test)]
mod tests {
    use super::*;

    /// A server that answers one request at a time, each in `service`.
    struct Slow {
        turn: Arc<Mutex<()>>,
        service: Duration,
        refuses: bool,
    }

    impl LoadClient for Slow {
        async fn ask(&mut self, _: usize) -> Result<Option<u64>, Error> {
            if self.refuses {
                return Ok(None);
            }
            let _turn = self.turn.lock().await;
            tokio::time::sleep(self.service).await;
            Ok(Some(self.service.as_micros() as u64))
        }
    }

    fn clients(count: usize, service: Duration, refuses: bool) -> Vec<Slow> {
        let turn = Arc::new(Mutex::new(()));
        (0..count).map(|_| Slow { turn: Arc::clone(&turn), service, refuses }).collect()
    }

    fn every(gap: Duration, count: u32, measured_from: Duration) -> Arrivals {
        let at = (0..count).map(|index| gap * index).collect();
        Arrivals { at, measured_from, give_up: Duration::from_secs(120) }
    }

    #[tokio::test]
    async fn a_server_that_falls_behind_makes_each_request_later_than_the_last() {
        // Ten requests at once, 10 ms each: the last is answered after 100 ms, though a closed loop
        // of one client would have seen 10 ms ten times.
        let arrivals = every(Duration::ZERO, 10, Duration::ZERO);
        let service = Duration::from_millis(10);
        let found = run(clients(1, service, false), &arrivals, Duration::ZERO).await;
        assert_eq!((found.arrived, found.answered, found.unanswered), (10, 10, 0), "{found:?}");
        assert_eq!(found.waited, 9, "{found:?}");
        assert!(found.p50_ms >= 50.0 && found.max_ms >= 100.0, "{found:?}");
        assert!(found.answer_ms_mean >= 10.0 && found.answer_ms_mean < 11.0, "{found:?}");
    }

    #[tokio::test]
    async fn what_warms_up_is_not_counted_and_what_fails_is_later_than_all() {
        let gap = Duration::from_millis(2);
        let arrivals = every(gap, 20, gap * 10);
        let found = run(clients(4, gap, false), &arrivals, Duration::ZERO).await;
        assert_eq!((found.arrived, found.answered, found.errors), (10, 10, 0), "{found:?}");
        let found = run(clients(4, gap, true), &arrivals, Duration::ZERO).await;
        assert_eq!((found.answered, found.errors), (0, 10), "{found:?}");
        assert!(found.p50_ms.is_infinite(), "{found:?}");
    }

    #[tokio::test]
    async fn what_is_given_up_is_counted() {
        let arrivals = Arrivals {
            give_up: Duration::from_millis(30),
            ..every(Duration::ZERO, 5, Duration::ZERO)
        };
        let service = Duration::from_millis(20);
        let found = run(clients(2, service, false), &arrivals, Duration::ZERO).await;
        assert!(found.answered < 5 && found.unanswered == 5 - found.answered, "{found:?}");
        assert!(found.max_ms.is_infinite(), "{found:?}");
    }
}
