//! Traces: what a request and the pass that answered it took, as spans of OpenTelemetry.
//!
//! Off unless an operator names a collector. A [`Tracer`] keeps spans in a queue that is bounded, and
//! [`export`] sends them from a thread of its own: a collector that is slow or gone costs spans, never a
//! request.
//!
//! No span holds anything of a query. What a span may hold is a [`Value`]: a number, or a name that is this
//! server's own. Trace ids are made here; a client's are not taken, since one that it sent to both servers
//! would say which two requests are one lookup. A front's are, by its own shards: see [`parent`].

mod collector;
#[cfg(feature = "otlp")]
mod export;
mod fraction;
mod parent;
mod pass;
mod request;
mod tracing;
#[cfg(feature = "otlp")]
mod wire;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use prometheus_client::metrics::counter::Counter;
use prometheus_client::registry::Registry;
use tokio::sync::Notify;

use crate::Error;

pub(crate) use self::tracing::Tracing;
pub(crate) use collector::Collector;
pub use collector::NoCollector;
#[cfg(feature = "otlp")]
use export::Exporter;
pub use fraction::{Fraction, NoFraction};
pub(crate) use parent::{join, traceparent};
pub(crate) use pass::{PassFacts, TracedPass};
pub(crate) use request::{Traced, current, note_version};

/// Makes spans of the requests that are sampled, and keeps them until they are sent.
pub(crate) struct Tracer {
    /// A trace whose number is below it is sampled, of [`NUMBERS`].
    sampled_below: u64,
    /// What ids of this process have in common, and what its numbers begin at.
    own: [u64; 2],
    count: AtomicU64,
    waiting: Mutex<VecDeque<Span>>,
    /// Says that a batch waits.
    full: Notify,
    counts: SpanCounts,
    /// What answers, in a line; set once it is loaded.
    engine: Arc<OnceLock<String>>,
}

/// How many spans were sent, and how many were not.
#[derive(Clone, Debug, Default)]
pub(crate) struct SpanCounts {
    sent: Counter,
    dropped: Counter,
}

/// Which span: ids as they travel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Context {
    pub trace: [u8; 16],
    pub span: [u8; 8],
}

/// Something that took its time.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub context: Context,
    pub parent: Option<[u8; 8]>,
    pub name: &'static str,
    pub is_request: bool,
    pub is_failed: bool,
    /// Nanoseconds since 1970.
    pub started_ns: u64,
    pub ended_ns: u64,
    pub attributes: Vec<(&'static str, Value)>,
    pub links: Vec<Context>,
}

/// What a span may say. Bytes that came with a request have no place in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    Count(u64),
    /// From a closed list.
    Word(&'static str),
    /// Of this server's: a table, a version that it holds, its engine.
    Own(Arc<str>),
}

impl SpanCounts {
    pub fn register(&self, registry: &mut Registry) {
        registry.register("spans_sent", "Spans that a collector took", self.sent.clone());
        registry.register(
            "spans_dropped",
            "Spans that did not reach the collector: it was slow or gone, or refused them",
            self.dropped.clone(),
        );
    }
}

impl Tracer {
    /// One that samples `sample` of all requests.
    ///
    /// # Errors
    /// [`Error::Pir`] where the system gives no random bytes.
    pub fn new(
        sample: Fraction,
        counts: SpanCounts,
        engine: Arc<OnceLock<String>>,
    ) -> Result<Arc<Self>, Error> {
        let mut own = [[0; 8]; 2];
        getrandom::fill(own.as_flattened_mut())
            .map_err(|_| Error::Pir(hushtable_pir::Error::Entropy))?;
        Ok(Arc::new(Self {
            sampled_below: (sample.number() * NUMBERS as f64) as u64,
            own: own.map(u64::from_le_bytes),
            count: AtomicU64::new(0),
            waiting: Mutex::default(),
            full: Notify::new(),
            counts,
            engine,
        }))
    }

    /// A trace for one more request, where it is sampled.
    pub fn begin(self: &Arc<Self>) -> Option<Arc<Traced>> {
        let number = self.number();
        self.is_sampled(number).then(|| Traced::new(Arc::clone(self), number, true))
    }

    /// The same for a request that may turn out to be part of a trace that a front began.
    pub fn offer(self: &Arc<Self>) -> Arc<Traced> {
        let number = self.number();
        Traced::new(Arc::clone(self), number, self.is_sampled(number))
    }

    fn is_sampled(&self, number: u64) -> bool {
        // The last 56 bits, as those whose traces begin elsewhere are sampled by.
        number % NUMBERS < self.sampled_below
    }

    /// A trace by its number, and its first span.
    fn context(&self, number: u64) -> Context {
        let trace = (u128::from(self.own[1]) << 64) | u128::from(number);
        Context { trace: trace.to_be_bytes(), span: self.span_id() }
    }

    fn span_id(&self) -> [u8; 8] {
        self.number().to_be_bytes()
    }

    /// A number that this process gives once, spread evenly, and never zero.
    fn number(&self) -> u64 {
        loop {
            let count = self.count.fetch_add(1, Ordering::Relaxed);
            let number = spread(self.own[0].wrapping_add(count));
            if number != 0 {
                return number;
            }
        }
    }

    /// Keeps a span until it is sent, or drops it where too many wait.
    pub fn push(&self, span: Span) {
        let mut waiting = self.waiting();
        if waiting.len() >= WAITING_MAX {
            self.counts.dropped.inc();
            return;
        }
        waiting.push_back(span);
        // Once a batch, so that few requests pay for waking a thread; the others are fetched in time.
        if waiting.len().is_multiple_of(BATCH_MAX) {
            drop(waiting);
            self.full.notify_one();
        }
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<Span>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A time of this process by the clock of the world.
fn unix_ns(at: Instant) -> u64 {
    let mut looks = 0;
    loop {
        let here = Instant::now();
        let there = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        looks += 1;
        // Where this thread stood still between its looks at the two clocks, they do not go together: it looks again.
        if here.elapsed() < APART_MAX || looks == LOOKS_MAX {
            let since = here.saturating_duration_since(at);
            return there.saturating_sub(since).as_nanos().try_into().unwrap_or(u64::MAX);
        }
    }
}

/// A permutation of 64 bits whose outputs look random: the last step of SplitMix64 (Steele, Lea, Flood,
/// OOPSLA 2014). Ids must differ and be sampled evenly; nothing rests on their being hard to guess.
fn spread(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

/// What a trace's number is sampled by.
const NUMBERS: u64 = 1 << 56;
/// Most spans that wait to be sent: some megabytes.
const WAITING_MAX: usize = 8192;
/// Most spans that one links to. A request with more passes, or a pass with more requests, is a large one among many.
const LINKS_MAX: usize = 32;
/// How far apart two clocks may be looked at, and how often that is tried.
const APART_MAX: Duration = Duration::from_millis(1);
const LOOKS_MAX: u32 = 8;
/// Most spans in a message.
const BATCH_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn tracer(sample: f64) -> Arc<Tracer> {
        let sample = Fraction::new(sample).unwrap();
        Tracer::new(sample, SpanCounts::default(), Arc::default()).unwrap()
    }

    #[test]
    fn as_many_are_sampled_as_were_asked_for_and_no_id_comes_twice() {
        for (sample, range) in [(0.0, 0..=0), (0.25, 4600..=5400), (1.0, 20_000..=20_000)] {
            let tracer = tracer(sample);
            let traces: Vec<_> = (0..20_000).filter_map(|_| tracer.begin()).collect();
            assert!(range.contains(&traces.len()), "{sample}: {}", traces.len());
            let ids: HashSet<_> = traces.iter().map(|it| it.context().trace).collect();
            let spans: HashSet<_> = traces.iter().map(|it| it.context().span).collect();
            assert_eq!((ids.len(), spans.len()), (traces.len(), traces.len()));
        }
    }

    #[test]
    fn two_processes_share_no_ids() {
        let traces = |tracer: Arc<Tracer>| -> HashSet<_> {
            (0..1000).filter_map(|_| tracer.begin()).map(|it| it.context().trace).collect()
        };
        assert!(traces(tracer(1.0)).is_disjoint(&traces(tracer(1.0))));
    }

    #[test]
    fn what_finds_no_room_is_counted_and_what_waits_stays() {
        let tracer = tracer(1.0);
        let started = Instant::now();
        for _ in 0..WAITING_MAX + 7 {
            tracer.begin().unwrap().finish("toys.v1.Echo", "Say", tonic::Code::Ok, started);
        }
        assert_eq!(tracer.counts.dropped.get(), 7);
        assert_eq!(tracer.waiting().len(), WAITING_MAX);
    }
}
