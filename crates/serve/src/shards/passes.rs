//! One pass over all shards: the least loaded server of each is asked, another where it is late or dead, and
//! either every shard answers by the same map or the pass fails.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use hushtable_table::Version;

use super::fleet::{Fleet, InUse, ShardState, Shared};
use super::metrics::PartOutcome;
use super::replica::{Replica, Unheld};

/// What a pass asks of one shard.
pub(crate) trait ShardQuestion: Send + Sync + 'static {
    /// What comes back.
    type Answers: Send + 'static;

    /// Bytes of keys in it: parts with about as many take about as long.
    fn key_bytes(&self) -> usize;

    /// Asks a server of the shard, which goes by `map`.
    fn ask(
        &self,
        replica: &Replica,
        map: Version,
        limit: Duration,
    ) -> impl Future<Output = Result<Won<Self::Answers>, Unheld>> + Send;
}

/// What one server answered.
pub(crate) struct Won<T> {
    pub answers: T,
    /// How long that took it by its own clock.
    pub took: Duration,
    /// How long the call took that brought the answers, without what the server had to be given before.
    pub call: Duration,
}

/// A shard without which there is no answer, and of which no server answers.
#[derive(Debug)]
pub(crate) struct NoShard {
    pub shard: usize,
    /// What the last server that was asked said, or why none was.
    pub reason: String,
    /// When one may be there again.
    pub retry_after: Duration,
}

/// What came of one shard's part.
type Ended<T> = Result<(usize, Won<T>), NoShard>;

/// A pass that all shards were asked for.
pub(crate) struct Passing<T> {
    fleet: Arc<Shared>,
    started: Instant,
    arrivals: Arc<Arrivals<T>>,
    tasks: Vec<Ending>,
}

/// What has come back and was not taken yet. Whoever waits is not woken for every one: to wake a thread takes as long
/// as to read an answer.
struct Arrivals<T> {
    state: Mutex<Arrived<T>>,
    enough: Condvar,
}

struct Arrived<T> {
    ended: Vec<Ended<T>>,
    /// Parts that have not ended.
    left: usize,
}

impl<T> Arrivals<T> {
    fn state(&self) -> MutexGuard<'_, Arrived<T>> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, ended: Ended<T>) {
        let mut state = self.state();
        state.left -= 1;
        let is_enough = ended.is_err() || state.left == 0 || state.ended.len() + 1 >= WAKE_AT;
        state.ended.push(ended);
        drop(state);
        if is_enough {
            self.enough.notify_one();
        }
    }

    /// Those that there are once they are worth it; none once all were taken.
    fn take(&self) -> Vec<Ended<T>> {
        let is_few = |state: &mut Arrived<T>| {
            let has_failed = state.ended.iter().any(Result::is_err);
            state.left > 0 && state.ended.len() < WAKE_AT && !has_failed
        };
        let waited = self.enough.wait_while(self.state(), is_few);
        std::mem::take(&mut waited.unwrap_or_else(PoisonError::into_inner).ended)
    }
}

/// Where a part says how it ended: by being dropped, where it says nothing.
struct Told<T>(Option<(usize, Arc<Arrivals<T>>)>);

impl<T> Told<T> {
    fn tell(mut self, ended: Ended<T>) {
        if let Some((_, arrivals)) = self.0.take() {
            arrivals.add(ended);
        }
    }
}

impl<T> Drop for Told<T> {
    fn drop(&mut self) {
        // One that ends without a word has panicked: it is in the log.
        if let Some((shard, arrivals)) = self.0.take() {
            arrivals.add(Err(absent(shard, "its task ended".into())));
        }
    }
}

impl Fleet {
    /// Asks every shard of `asks` at once.
    ///
    /// # Errors
    /// [`NoShard`] for one that the file does not have.
    pub fn begin<A: ShardQuestion>(
        &self,
        map: &InUse,
        asks: Vec<(usize, A)>,
    ) -> Result<Passing<A::Answers>, NoShard> {
        let started = Instant::now();
        let state = Mutex::new(Arrived { ended: Vec::new(), left: asks.len() });
        let arrivals = Arc::new(Arrivals { state, enough: Condvar::new() });
        let mut tasks = Vec::with_capacity(asks.len());
        let state = self.shared.state();
        for (number, ask) in asks {
            let Some(shard) = state.shards.get(number) else {
                return Err(absent(number, "the file of shards has no such shard".to_owned()));
            };
            let part = Part {
                fleet: Arc::clone(&self.shared),
                shard: Arc::clone(shard),
                map: map.map_version,
                pass_max: state.file.pass_max(),
                per_mille: state.file.hedge_per_mille,
                ask,
            };
            let told = Told(Some((number, Arc::clone(&arrivals))));
            tasks.push(Ending(self.handle().spawn(part.run(told))));
        }
        let fleet = Arc::clone(&self.shared);
        Ok(Passing { fleet, started, arrivals, tasks })
    }

    /// Asks every shard of `asks` at once, and hands each one's answers to `take` as they come. Blocks.
    ///
    /// # Errors
    /// As [`Passing::finish`].
    pub fn ask<A: ShardQuestion>(
        &self,
        map: &InUse,
        asks: Vec<(usize, A)>,
        take: impl FnMut(usize, A::Answers),
    ) -> Result<(), NoShard> {
        self.begin(map, asks)?.finish(take)
    }
}

impl<T> Passing<T> {
    /// Hands each shard's answers to `take` as they come. Blocks.
    ///
    /// # Errors
    /// [`NoShard`] for a shard of which no server answers; what was taken then is to be dropped.
    pub fn finish(self, mut take: impl FnMut(usize, T)) -> Result<(), NoShard> {
        let mut shards = Duration::ZERO;
        let mut taken = 0;
        while taken < self.tasks.len() {
            for ended in self.arrivals.take() {
                let (shard, won) = ended.inspect_err(|_| {
                    self.fleet.metrics.absent.inc();
                })?;
                shards = shards.max(won.took);
                take(shard, won.answers);
                taken += 1;
            }
        }
        let own = self.started.elapsed().saturating_sub(shards);
        self.fleet.metrics.own.observe(own.as_secs_f64());
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

fn absent(shard: usize, reason: String) -> NoShard {
    NoShard { shard, reason, retry_after: RETRY_AFTER }
}

/// One shard's part of a pass.
struct Part<A> {
    fleet: Arc<Shared>,
    shard: Arc<ShardState>,
    map: Version,
    pass_max: Duration,
    per_mille: u32,
    ask: A,
}

impl<A: ShardQuestion> Part<A> {
    async fn run(self, told: Told<A::Answers>) {
        told.tell(self.answer().await);
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

    async fn ask(&self, replica: Arc<Replica>, is_hedge: bool) -> Asked<A::Answers> {
        let outcome = {
            let _inflight = replica.begin();
            self.ask.ask(&replica, self.map, self.pass_max).await
        };
        Asked { replica, is_hedge, outcome }
    }

    async fn answer(&self) -> Ended<A::Answers> {
        let number = self.shard.number;
        let (metrics, budget) = (&self.fleet.metrics, &self.fleet.budget);
        let bytes = self.ask.key_bytes();
        let late_after = self.shard.recent.late_after(bytes);
        budget.earn(self.per_mille);
        let mut asked: Vec<Arc<Replica>> = Vec::new();
        let mut calls = FuturesUnordered::new();
        // Those whose part was no answer; one of them is asked once more, where there is no other.
        let mut doubted = Some(Vec::new());
        let (mut reason, mut retry_after) = (String::new(), RETRY_AFTER);
        let mut may_hedge = late_after.is_some();
        let late = tokio::time::sleep(late_after.unwrap_or(self.pass_max));
        let mut late = std::pin::pin!(late);
        loop {
            if calls.is_empty() {
                let next = match self.choose(&asked) {
                    None => self.again(doubted.take().unwrap_or_default()).await,
                    next => next,
                };
                let Some(next) = next else {
                    if reason.is_empty() {
                        reason = self.reasons();
                    }
                    tracing::error!(shard = number, reason, "no server of the shard answers");
                    return Err(NoShard { shard: number, reason, retry_after });
                };
                asked.push(Arc::clone(&next));
                calls.push(self.ask(next, false));
            }
            tokio::select! {
                Some(Asked { replica, is_hedge, outcome }) = calls.next() => match outcome {
                    Ok(won) => {
                        let took = won.call;
                        replica.took(took);
                        self.shard.recent.note(bytes, took);
                        metrics.took(number, took.as_secs_f64());
                        metrics.asked(number, if is_hedge { PartOutcome::HedgeWon } else { PartOutcome::Ok });
                        for _ in 0..calls.len() {
                            metrics.asked(number, PartOutcome::HedgeLost);
                        }
                        return Ok((number, won));
                    }
                    Err(Unheld::Busy(after)) => {
                        metrics.asked(number, PartOutcome::Failed);
                        retry_after = retry_after.max(after);
                        reason = format!("{} is busy", replica.url());
                    }
                    Err(Unheld::Skew(why)) => {
                        metrics.asked(number, PartOutcome::Skew);
                        replica.doubt(&why);
                        doubted.iter_mut().for_each(|doubted| doubted.push(Arc::clone(&replica)));
                        reason = why;
                    }
                    Err(Unheld::Failed(why)) => {
                        metrics.asked(number, PartOutcome::Failed);
                        replica.doubt(&why);
                        doubted.iter_mut().for_each(|doubted| doubted.push(Arc::clone(&replica)));
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

    /// Of servers that were left out for one part each, the first that says within the retry time that it holds the map:
    /// whoever asked would come back by then, and find it there.
    async fn again(&self, doubted: Vec<Arc<Replica>>) -> Option<Arc<Replica>> {
        let until = Instant::now() + RETRY_AFTER;
        while !doubted.is_empty() && Instant::now() < until {
            if let Some(back) = doubted.iter().find(|replica| replica.holds(self.map)) {
                tracing::info!(
                    shard = self.shard.number,
                    url = back.url(),
                    "asked once more for its part"
                );
                return Some(Arc::clone(back));
            }
            tokio::time::sleep(AGAIN_STEP).await;
        }
        None
    }

    fn reasons(&self) -> String {
        let of = |replica: &Arc<Replica>| format!("{}: {}", replica.url(), replica.reason());
        self.shard.replicas.iter().map(of).collect::<Vec<_>>().join(", ")
    }
}

struct Asked<T> {
    replica: Arc<Replica>,
    is_hedge: bool,
    outcome: Result<Won<T>, Unheld>,
}

/// When a shard without a server may have one again: most that restart are back by then.
const RETRY_AFTER: Duration = Duration::from_millis(500);
const AGAIN_STEP: Duration = Duration::from_millis(10);
/// Answers for which it is worth to wake who adds them up.
const WAKE_AT: usize = 16;
const ALIKE: f64 = 1.25;
const ALIKE_LEAST: Duration = Duration::from_micros(200);

#[cfg(test)]
mod tests {
    use std::sync::atomic::AtomicUsize;

    use hushtable_pir::dpf::Side;

    use super::super::fleet::FleetSpec;
    use super::super::{FrontMetrics, Owner};
    use super::*;
    use crate::EndpointSpec;
    use crate::peer::lane::Lane;
    use crate::wire::{self, HeldMap, HoldsReply};

    const OWNER: Owner = Owner::Side(Side::Left);
    const MAP: [u8; 32] = [7; 32];

    /// A question whose first parts, as many as this, are no answers.
    struct Malformed(Arc<AtomicUsize>);

    impl ShardQuestion for Malformed {
        type Answers = ();

        fn key_bytes(&self) -> usize {
            1
        }

        async fn ask(&self, replica: &Replica, _: Version, _: Duration) -> Result<Won<()>, Unheld> {
            let is_bad = |left: usize| left.checked_sub(1);
            match self.0.fetch_update(Ordering::SeqCst, Ordering::SeqCst, is_bad) {
                Ok(_) => Err(Unheld::Skew(format!("{}: answers of 3 bytes", replica.url()))),
                Err(_) => Ok(Won { answers: (), took: Duration::ZERO, call: Duration::ZERO }),
            }
        }
    }

    /// What a pass comes to of which the only server of a shard, after so many malformed parts, answers, and which says
    /// how it is where it is doubted.
    async fn ended(malformed: usize) -> Ended<()> {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("shards.toml");
        std::fs::write(&file, "[[shard]]\nreplicas = [\"http://127.0.0.1:1\"]\n").unwrap();
        let fleet = Fleet::start(FleetSpec {
            file: &file,
            owner: OWNER,
            holds_path: "/hushtable.v1.PrivateShard/Holds",
            refusals: &[],
            insecure: true,
            threads: 1,
            metrics: FrontMetrics::default(),
        })
        .unwrap();
        let spec = EndpointSpec::new("http://127.0.0.1:1", None);
        let replica = Replica::new(0, Lane::new(&spec, false, Duration::ZERO, &[]).unwrap());
        let held = HeldMap { map_version: MAP.to_vec().into(), ..HeldMap::default() };
        let says =
            HoldsReply { side: wire::Side::Left.into(), held: vec![held], ..HoldsReply::default() };
        replica.told(OWNER, &says);
        let replica = Arc::new(replica);
        let asked = Arc::clone(&replica);
        let following = Ending(tokio::spawn(async move {
            loop {
                asked.doubted.notified().await;
                tokio::time::sleep(Duration::from_millis(50)).await;
                asked.told(OWNER, &says);
            }
        }));
        let (recent, turn) = Default::default();
        let shard = ShardState { number: 0, replicas: vec![replica], recent, turn };
        let part = Part {
            fleet: Arc::clone(&fleet.shared),
            shard: Arc::new(shard),
            map: Version::from(MAP),
            pass_max: Duration::from_secs(120),
            per_mille: 0,
            ask: Malformed(Arc::new(AtomicUsize::new(malformed))),
        };
        let ended = part.answer().await;
        drop(following);
        ended
    }

    #[tokio::test]
    async fn one_malformed_part_of_the_only_server_costs_no_answer_and_two_name_it() {
        for malformed in [0, 1] {
            assert!(ended(malformed).await.is_ok(), "{malformed}");
        }
        let error = ended(2).await.map(|_| ()).unwrap_err();
        assert_eq!((error.shard, error.retry_after), (0, RETRY_AFTER));
        assert!(error.reason.contains("http://127.0.0.1:1: answers of 3 bytes"), "{error:?}");
    }
}
