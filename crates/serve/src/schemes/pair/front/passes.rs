//! One pass over all shards: the least loaded server of each is asked, another where it is late or dead, and
//! either every shard answers by the same map or the pass fails.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{Sender, channel};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hushtable_table::Version;

use super::fleet::{Fleet, InUse, ShardState, Shared};
use super::metrics::Outcome;
use super::replica::{Replica, Unheld};
use crate::wire::{AnswerPassReply, AnswerPassRequest, TableKeys};

/// What a pass asks of one shard.
pub(super) struct ShardAsk {
    pub shard: usize,
    pub tables: Vec<TableKeys>,
    /// Bytes that come back for each of them.
    pub expected: Vec<usize>,
}

/// What one shard answered, for each table that it was asked for.
pub(super) struct ShardAnswers {
    pub shard: usize,
    pub answers: Vec<Bytes>,
}

/// What came of one shard's part.
type Won = Result<(ShardAnswers, Duration), hushtable_pir::Error>;

impl Fleet {
    /// Asks every shard of `asks` at once, and hands each one's answers to `take` as they come. Blocks.
    ///
    /// # Errors
    /// [`hushtable_pir::Error::Absent`] for a shard of which no server answers; what was taken then is to be dropped.
    pub(super) fn ask(
        &self,
        map: &InUse,
        asks: Vec<ShardAsk>,
        mut take: impl FnMut(ShardAnswers),
    ) -> Result<(), hushtable_pir::Error> {
        let started = Instant::now();
        let count = asks.len();
        let (sender, answers) = channel();
        let mut tasks = Vec::with_capacity(count);
        let state = self.shared.state();
        for ask in asks {
            let Some(shard) = state.shards.get(ask.shard) else {
                let (shard, reason) =
                    (ask.shard, "the file of shards has no such shard".to_owned());
                return Err(absent(shard, reason));
            };
            let part = Part {
                fleet: Arc::clone(&self.shared),
                shard: Arc::clone(shard),
                map: map.map_version,
                pass_max: state.file.pass_max(),
                per_mille: state.file.hedge_per_mille,
                ask,
            };
            tasks.push(Ending(self.handle().spawn(part.run(sender.clone()))));
        }
        drop(sender);
        let mut shards = Duration::ZERO;
        for _ in 0..count {
            // One that ends without a word has panicked: it is in the log.
            let won: Won =
                answers.recv().unwrap_or_else(|_| Err(absent(0, "its task ended".into())));
            let (won, took) = won.inspect_err(|_| {
                self.shared.metrics.absent.inc();
            })?;
            shards = shards.max(took);
            take(won);
        }
        let own = started.elapsed().saturating_sub(shards);
        self.shared.metrics.own.observe(own.as_secs_f64());
        Ok(())
    }
}

/// Gives a task up where nobody waits for it any more.
struct Ending(tokio::task::JoinHandle<()>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn absent(shard: usize, reason: String) -> hushtable_pir::Error {
    hushtable_pir::Error::Absent { shard, reason, retry_after: RETRY_AFTER }
}

/// One shard's part of a pass.
struct Part {
    fleet: Arc<Shared>,
    shard: Arc<ShardState>,
    map: Version,
    pass_max: Duration,
    per_mille: u32,
    ask: ShardAsk,
}

impl Part {
    async fn run(self, to: Sender<Won>) {
        let won = self.answer().await;
        // A pass that has failed waits for nobody.
        let _ = to.send(won);
    }

    /// The server to ask next, of those that hold the map and were not asked: the one with the least to do for this
    /// front, of several the one that was quicker lately, and of those that hardly differ each in turn.
    fn choose(&self, asked: &[Arc<Replica>]) -> Option<Arc<Replica>> {
        let is_free = |replica: &&Arc<Replica>| {
            replica.holds(self.map) && !asked.iter().any(|it| Arc::ptr_eq(it, replica))
        };
        let free: Vec<_> = self.shard.replicas.iter().filter(is_free).collect();
        let loads: Vec<_> = free.iter().map(|replica| replica.load()).collect();
        let least = loads.iter().map(|load| load.0).min()?;
        let quickest = loads.iter().filter(|load| load.0 == least).map(|load| load.1).min()?;
        let alike = free.iter().zip(&loads).filter(|(_, load)| {
            load.0 == least && load.1 <= quickest.mul_f64(ALIKE).max(quickest + ALIKE_LEAST)
        });
        let alike: Vec<_> = alike.map(|(replica, _)| *replica).collect();
        let turn = self.shard.turn.fetch_add(1, Ordering::Relaxed);
        Some(Arc::clone(alike[turn % alike.len()]))
    }

    async fn ask(&self, replica: Arc<Replica>, is_hedge: bool) -> Asked {
        let started = Instant::now();
        let outcome = {
            let _inflight = replica.begin();
            let request = AnswerPassRequest {
                map_version: Bytes::copy_from_slice(self.map.as_bytes()),
                shard: self.shard.number as u32,
                tables: self.ask.tables.clone(),
            };
            replica.answer(request, &self.ask.expected, self.pass_max).await
        };
        Asked { replica, is_hedge, took: started.elapsed(), outcome }
    }

    async fn answer(&self) -> Won {
        let number = self.shard.number;
        let (metrics, budget) = (&self.fleet.metrics, &self.fleet.budget);
        let bytes = self.ask.tables.iter().map(key_bytes).sum();
        let late_after = self.shard.recent.late_after(bytes);
        budget.earn(self.per_mille);
        let mut asked: Vec<Arc<Replica>> = Vec::new();
        let mut calls = FuturesUnordered::new();
        let (mut reason, mut retry_after) = (String::new(), RETRY_AFTER);
        let mut may_hedge = late_after.is_some();
        let late = tokio::time::sleep(late_after.unwrap_or(self.pass_max));
        let mut late = std::pin::pin!(late);
        loop {
            if calls.is_empty() {
                let Some(next) = self.choose(&asked) else {
                    if reason.is_empty() {
                        reason = self.reasons();
                    }
                    tracing::error!(shard = number, reason, "no server of the shard answers");
                    return Err(hushtable_pir::Error::Absent {
                        shard: number,
                        reason,
                        retry_after,
                    });
                };
                asked.push(Arc::clone(&next));
                calls.push(self.ask(next, false));
            }
            tokio::select! {
                Some(Asked { replica, is_hedge, took, outcome }) = calls.next() => match outcome {
                    Ok(reply) => {
                        replica.took(took);
                        self.shard.recent.note(bytes, took);
                        metrics.took(number, took.as_secs_f64());
                        metrics.asked(number, if is_hedge { Outcome::HedgeWon } else { Outcome::Ok });
                        for _ in 0..calls.len() {
                            metrics.asked(number, Outcome::HedgeLost);
                        }
                        let AnswerPassReply { answers, queue_us, answer_us, .. } = reply;
                        let shards = Duration::from_micros(queue_us.saturating_add(answer_us));
                        return Ok((ShardAnswers { shard: number, answers }, shards));
                    }
                    Err(Unheld::Busy(after)) => {
                        metrics.asked(number, Outcome::Failed);
                        retry_after = retry_after.max(after);
                        reason = format!("{} is busy", replica.url());
                    }
                    Err(Unheld::Skew(why)) => {
                        metrics.asked(number, Outcome::Skew);
                        replica.doubt(&why);
                        reason = why;
                    }
                    Err(Unheld::Failed(why)) => {
                        metrics.asked(number, Outcome::Failed);
                        replica.doubt(&why);
                        reason = why;
                    }
                },
                () = &mut late, if may_hedge => {
                    may_hedge = false;
                    // A second server that has as much to do would be as late.
                    let busy = asked.last().map_or(0, |replica| replica.load().0);
                    let other = self.choose(&asked).filter(|other| other.load().0 < busy.max(1));
                    if let Some(other) = other && budget.spend() {
                        metrics.hedges.inc();
                        asked.push(Arc::clone(&other));
                        calls.push(self.ask(other, true));
                    }
                }
            }
        }
    }

    fn reasons(&self) -> String {
        let of = |replica: &Arc<Replica>| format!("{}: {}", replica.url(), replica.reason());
        self.shard.replicas.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

struct Asked {
    replica: Arc<Replica>,
    is_hedge: bool,
    took: Duration,
    outcome: Result<AnswerPassReply, Unheld>,
}

fn key_bytes(keys: &TableKeys) -> usize {
    keys.runs.iter().map(|run| run.keys.len()).sum::<usize>() + keys.bags.len()
}

/// When a shard without a server may have one again: most that restart are back by then.
const RETRY_AFTER: Duration = Duration::from_millis(500);
const ALIKE: f64 = 1.25;
const ALIKE_LEAST: Duration = Duration::from_micros(200);
