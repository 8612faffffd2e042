//! Loads servers and measures what they answer: what the schemes' loads share.
//!
//! Each client has a connection of its own and sends its next request when it has the answer to the
//! last (a closed loop); [`open`](super::open) has requests that arrive by themselves.

use std::time::Duration;

use hushtable_pir::TableShape;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::random_u64;
use crate::{Error, Refusal};

/// What a load measured. Each scheme's load says what it counts as a query.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub struct LoadReport {
    /// Queries answered a second.
    pub queries_per_s: f64,
    /// Half the requests took no longer than this many milliseconds.
    pub p50_ms: f64,
    /// 99 of 100 requests took no longer than this many milliseconds.
    pub p99_ms: f64,
    /// The slowest request, in milliseconds.
    pub max_ms: f64,
    /// Requests answered while measuring.
    pub requests: u64,
    /// Requests that failed, or came back wrong.
    pub errors: u64,
    /// Requests that the server refused for being busy.
    pub rejected: u64,
    /// What a request's passes took at the server on average, in milliseconds.
    pub answer_ms_mean: f64,
    /// The server's waiting window, in milliseconds.
    pub window_ms: f64,
    /// Measured time, in seconds.
    pub elapsed_s: f64,
}

pub(crate) fn one_thread() -> Result<tokio::runtime::Runtime, Error> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .map_err(|source| Error::Io { what: "start the load's runtime".into(), source })
}

#[derive(Default)]
pub(crate) struct Tally {
    latencies_us: Vec<u64>,
    answer_us: u64,
    errors: u64,
    rejected: u64,
}

/// One client of a load.
pub(crate) trait LoadClient: Send {
    /// Sends its `turn`th request. What its passes took at the server in microseconds; `None` for
    /// an answer that is not right.
    fn ask(&mut self, turn: usize) -> impl Future<Output = Result<Option<u64>, Error>> + Send;
}

/// Lets a client ask until time is up.
pub(crate) async fn drive(
    mut client: impl LoadClient,
    warmup: Duration,
    duration: Duration,
) -> Tally {
    let measured = Instant::now() + warmup;
    let end = measured + duration;
    let mut tally = Tally::default();
    for turn in 0.. {
        let started = Instant::now();
        if started >= end {
            break;
        }
        let result = client.ask(turn).await;
        let now = Instant::now();
        // A request counts where it ends, so that the rate is of the measured time.
        let counts = (measured..end).contains(&now);
        match result {
            Ok(Some(answer_us)) => {
                if counts {
                    tally.latencies_us.push((now - started).as_micros() as u64);
                    tally.answer_us += answer_us;
                }
            }
            Err(Error::Refused { refusal: Refusal::Busy { retry_after, .. }, .. }) => {
                tally.rejected += u64::from(counts);
                sleep(retry_after).await;
            }
            Ok(None) | Err(_) => {
                tally.errors += 1;
                sleep(ERROR_PAUSE).await;
            }
        }
    }
    tally
}

impl Tally {
    pub async fn of_all(mut clients: JoinSet<Result<Self, Error>>) -> Result<Self, Error> {
        let mut tally = Self::default();
        while let Some(client) = clients.join_next().await {
            match client {
                Ok(client) => tally.add(client?),
                Err(panic) => std::panic::resume_unwind(panic.into_panic()),
            }
        }
        Ok(tally)
    }

    fn add(&mut self, other: Self) {
        self.latencies_us.extend(other.latencies_us);
        self.answer_us += other.answer_us;
        self.errors += other.errors;
        self.rejected += other.rejected;
    }

    pub fn report(mut self, queries: usize, window: Duration, took: Duration) -> LoadReport {
        self.latencies_us.sort_unstable();
        let count = self.latencies_us.len();
        let at = |fraction| match count {
            0 => 0.0,
            _ => at_fraction(&self.latencies_us, count, fraction),
        };
        LoadReport {
            queries_per_s: (count * queries) as f64 / took.as_secs_f64(),
            p50_ms: at(0.5),
            p99_ms: at(0.99),
            max_ms: at(1.0),
            requests: count as u64,
            errors: self.errors,
            rejected: self.rejected,
            answer_ms_mean: self.answer_us as f64 / 1e3 / count.max(1) as f64,
            window_ms: window.as_secs_f64() * 1e3,
            elapsed_s: took.as_secs_f64(),
        }
    }
}

/// Milliseconds that `fraction` of `count` requests took at most, of which `sorted_us` were answered:
/// infinite where that takes in one that was not.
pub(crate) fn at_fraction(sorted_us: &[u64], count: usize, fraction: f64) -> f64 {
    let rank = (count as f64 * fraction).ceil() as usize;
    sorted_us.get(rank.saturating_sub(1)).map_or(f64::INFINITY, |&us| us as f64 / 1e3)
}

pub(crate) fn random_rows(shape: TableShape, count: usize) -> Result<Vec<u64>, Error> {
    (0..count).map(|_| Ok(random_u64()? % shape.rows())).collect()
}

pub(crate) const CONNECT_MAX: Duration = Duration::from_secs(10);
pub(crate) const CALL_MAX: Duration = Duration::from_secs(60);
const ERROR_PAUSE: Duration = Duration::from_millis(10);
