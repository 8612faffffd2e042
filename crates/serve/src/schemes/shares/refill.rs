//! Where the servers deal: a thread at each that agrees with the other one on what both hold, and makes more.
//!
//! Frames of a `Deal` stream, after both hellos: a byte of kind, then
//!
//! ```text
//! HELD   a byte, 1 where it is the last; ids       both, first: what each has in its folder
//! BATCH  inferences, 4 bytes                       left: shall be dealt for; right: it has room for so many, or 0
//! PART   a byte, 1 where it is the last; bytes     both: a message of dealing, in pieces
//! KEPT   ids                                       both: what each has durably of the batch
//! ```

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_infer::shares::exchange::Supply;
use hushtable_infer::shares::joint::{
    DealError, Dealer, Id, Precompute, Progress, Stock, StockError,
};
use hushtable_infer::shares::{Half, Outline};
use tokio::sync::mpsc::UnboundedSender;

use super::FRAME_BYTES_MAX;
use super::metrics::SharesMetrics;
use crate::schemes::dropped::tell;
use crate::vital::{Vital, Vitals};

/// What a server has of inferences to come, and how it makes more.
pub(super) struct Refill {
    stock: Stock,
    half: Half,
    outline: Outline,
    /// Inferences of a batch.
    batch: usize,
    /// Hundredths of a core that it may take.
    percent: u64,
    metrics: SharesMetrics,
    /// The number of the session that may add to the stock: a new one ends the one before.
    session: AtomicU64,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// The thread that takes some ahead of their use; none once it is stopped.
    fetcher: Mutex<Option<JoinHandle<()>>>,
    is_stopping: AtomicBool,
    /// What is told of panics.
    vitals: Vitals,
}

/// Why a session of dealing ended.
#[derive(Debug, thiserror::Error)]
pub(super) enum Ended {
    #[error("the stream ended")]
    Closed,
    #[error("a frame of kind {found:?} and {bytes} bytes, where {expected} was due")]
    Frame { expected: &'static str, found: Option<u8>, bytes: usize },
    #[error(transparent)]
    Deal(#[from] DealError),
    #[error(transparent)]
    Stock(#[from] StockError),
}

impl Refill {
    pub fn new(
        stock: Stock,
        half: Half,
        outline: Outline,
        (batch, percent): (usize, u64),
        metrics: SharesMetrics,
        vitals: &Vitals,
    ) -> std::io::Result<Arc<Self>> {
        let (session, threads, fetcher, is_stopping) = Default::default();
        let own = Arc::new(Self {
            stock,
            half,
            outline,
            batch,
            percent,
            metrics,
            session,
            threads,
            fetcher,
            is_stopping,
            vitals: vitals.clone(),
        });
        own.describe();
        let fetching = Arc::clone(&own);
        let thread = thread::Builder::new().name(FETCH.into());
        let vital = vitals.hold(FETCH);
        let thread = thread.spawn(move || fetching.fetch(&vital))?;
        *own.fetcher() = Some(thread);
        Ok(own)
    }

    fn fetcher(&self) -> MutexGuard<'_, Option<JoinHandle<()>>> {
        self.fetcher.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps some in memory, so that no inference waits for the disk.
    fn fetch(&self, vital: &Vital) {
        while !self.is_stopping.load(Ordering::SeqCst) {
            vital.turn();
            let ahead = self.stock.ahead();
            if ahead <= AHEAD / 2 && self.stock.ready() > ahead {
                if let Err(error) = self.stock.fetch(AHEAD - ahead) {
                    tracing::error!(%error, "precomputes cannot be taken");
                    self.rest(FULL);
                }
                self.describe();
            } else {
                thread::park_timeout(LOOKS);
            }
        }
    }

    /// Left: both servers are to agree anew on what they hold, in a session that begins soon.
    pub fn disagree(&self) {
        self.stock.disagree();
    }

    /// Left: takes the next precompute that both have.
    pub fn take_next(&self) -> Option<Precompute> {
        let taken = self.stock.take_next();
        self.taken(taken)
    }

    fn taken(&self, taken: Result<Option<Precompute>, StockError>) -> Option<Precompute> {
        // Bytes are counted over all that is kept, which is not done for each.
        self.metrics.precomputes_ready.set(self.stock.ready() as u64);
        if let Some(fetcher) = &*self.fetcher() {
            fetcher.thread().unpark();
        }
        match taken {
            Ok(Some(precompute)) => {
                self.metrics.precomputes_used.inc();
                Some(precompute)
            }
            Ok(None) => None,
            Err(error) => {
                tracing::error!(%error, "a precompute cannot be taken");
                None
            }
        }
    }

    fn describe(&self) {
        let counts = self.stock.counts();
        self.metrics.precomputes_ready.set(self.stock.ready() as u64);
        self.metrics.precomputes_bytes.set(counts.bytes);
        self.metrics.precomputes_refused.inc_by(tell(self.stock.store()));
    }

    /// Runs a session on a thread of its own, until its frames end: gives where frames that come are put.
    pub fn begin(
        self: &Arc<Self>,
        frames: UnboundedSender<Vec<u8>>,
    ) -> std::io::Result<Sender<Bytes>> {
        let (sender, incoming) = channel();
        let own = Arc::clone(self);
        let number = 1 + self.session.fetch_add(1, Ordering::SeqCst);
        // Left meets right again where a session ends, however it does.
        let vital = self.vitals.hold_replaced(DEAL);
        let run = move || {
            let mut session = Session { number, incoming, frames };
            match own.run(&mut session, &vital) {
                Err(Ended::Closed) | Ok(()) => tracing::info!("a session of dealing ended"),
                Err(error) => tracing::error!(%error, "a session of dealing is given up"),
            }
        };
        let thread = thread::Builder::new().name(DEAL.into()).spawn(run)?;
        let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
        threads.retain(|thread| !thread.is_finished());
        threads.push(thread);
        Ok(sender)
    }

    /// Waits for its threads, whose streams have ended or are about to.
    pub fn stop(&self) {
        self.session.fetch_add(1, Ordering::SeqCst);
        self.is_stopping.store(true, Ordering::SeqCst);
        let fetcher = self.fetcher().take();
        let threads = {
            let mut threads = self.threads.lock().unwrap_or_else(PoisonError::into_inner);
            std::mem::take(&mut *threads)
        };
        // A panic was logged where it happened.
        for thread in threads.into_iter().chain(fetcher) {
            thread.thread().unpark();
            drop(thread.join());
        }
    }

    fn run(&self, session: &mut Session, vital: &Vital) -> Result<(), Ended> {
        self.stock.has_disagreed();
        session.send_ids(&self.stock.held())?;
        let other = session.ids()?;
        session.check(&self.session)?;
        let dropped = self.stock.agree(&other)?;
        let ready = self.stock.ready();
        tracing::info!(ready, dropped, "agreed with the other server on what was dealt");
        self.describe();
        let (mut dealer, first) = Dealer::start(self.half, &self.outline)?;
        self.settle(session, &mut dealer, first)?;
        loop {
            vital.turn();
            // Right follows: its stream ends too.
            if self.half == Half::Left && self.stock.has_disagreed() {
                return Ok(());
            }
            let count = match self.half {
                Half::Left => self.propose(session)?,
                Half::Right => self.accept(session)?,
            };
            if count == 0 {
                continue;
            }
            let began = Instant::now();
            let first = dealer.deal(count)?;
            self.pace(began);
            let made = self.settle(session, &mut dealer, first)?;
            self.keep(session, &made)?;
        }
    }

    /// Left: how many to deal for, once both servers have room.
    fn propose(&self, session: &mut Session) -> Result<usize, Ended> {
        let count = self.batch.min(self.stock.room());
        if count == 0 {
            self.rest(LOOKS);
            session.check(&self.session)?;
            return Ok(0);
        }
        session.send_batch(count)?;
        let count = session.batch(self.batch)?;
        if count == 0 {
            self.rest(FULL);
        }
        Ok(count)
    }

    /// Right: how many left deals for.
    fn accept(&self, session: &mut Session) -> Result<usize, Ended> {
        let proposed = session.batch(hushtable_infer::shares::joint::BATCH_MAX)?;
        let count = proposed.min(self.stock.room());
        session.send_batch(count)?;
        Ok(count)
    }

    /// Exchanges messages until the dealer is ready.
    fn settle(
        &self,
        session: &mut Session,
        dealer: &mut Dealer,
        first: Vec<u8>,
    ) -> Result<Vec<Precompute>, Ended> {
        let mut own = first;
        loop {
            session.send_part(&own)?;
            let other = session.part()?;
            let began = Instant::now();
            let progress = dealer.step(&other)?;
            self.pace(began);
            match progress {
                Progress::Send(message) => own = message,
                Progress::Ready(made) => return Ok(made),
            }
        }
    }

    /// Rests for as long as its share of a core says after work that began then.
    fn pace(&self, began: Instant) {
        let worked = began.elapsed();
        self.metrics.refill_seconds.inc_by(worked.as_secs_f64());
        self.rest(worked.mul_f64((100 - self.percent) as f64 / self.percent as f64));
    }

    /// Rests for so long, or until it is stopped.
    fn rest(&self, time: Duration) {
        let until = Instant::now() + time;
        while !self.is_stopping.load(Ordering::SeqCst) {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            thread::park_timeout(left);
        }
    }

    /// Keeps a batch where both can, and lets go of what either could not.
    fn keep(&self, session: &mut Session, made: &[Precompute]) -> Result<(), Ended> {
        session.check(&self.session)?;
        if let Err(error) = self.stock.keep(made) {
            tracing::error!(%error, "what was dealt cannot be kept");
        }
        let held: HashSet<Id> = self.stock.held().into_iter().collect();
        let ids: Vec<Id> = made.iter().map(Precompute::id).collect();
        let own: Vec<Id> = ids.iter().copied().filter(|id| held.contains(id)).collect();
        session.send_kept(&own)?;
        let other: HashSet<Id> = session.kept()?.into_iter().collect();
        session.check(&self.session)?;
        let (both, alone): (Vec<Id>, Vec<Id>) = own.into_iter().partition(|id| other.contains(id));
        self.stock.agreed(&both);
        alone.iter().try_for_each(|id| self.stock.take(id).map(drop))?;
        self.metrics.precomputes_made.inc_by(both.len() as u64);
        self.describe();
        if both.is_empty() {
            self.rest(FULL);
        }
        Ok(())
    }
}

impl Supply for Refill {
    fn take(&self, id: &Id) -> Option<Precompute> {
        let taken = self.stock.take(id);
        self.taken(taken)
    }
}

/// The frames of one session.
struct Session {
    number: u64,
    incoming: Receiver<Bytes>,
    frames: UnboundedSender<Vec<u8>>,
}

impl Session {
    /// That it is not over, and there is none after it.
    fn check(&self, newest: &AtomicU64) -> Result<(), Ended> {
        match self.frames.is_closed() || newest.load(Ordering::SeqCst) != self.number {
            true => Err(Ended::Closed),
            false => Ok(()),
        }
    }

    fn send(&self, kind: u8, body: &[&[u8]]) -> Result<(), Ended> {
        let frame = [&[kind], &body.concat()[..]].concat();
        self.frames.send(frame).map_err(|_| Ended::Closed)
    }

    /// The body of the next frame, of this kind.
    fn next(&self, kind: u8, expected: &'static str) -> Result<Bytes, Ended> {
        let mut frame = self.incoming.recv().map_err(|_| Ended::Closed)?;
        match frame.first() {
            Some(found) if *found == kind => Ok(frame.split_off(1)),
            found => Err(Ended::Frame { expected, found: found.copied(), bytes: frame.len() }),
        }
    }

    /// A body in pieces, each with a byte before it, 1 in the last.
    fn send_pieces(&self, kind: u8, body: &[u8]) -> Result<(), Ended> {
        let mut pieces = body.chunks(PIECE_BYTES).peekable();
        loop {
            let piece = pieces.next().unwrap_or_default();
            let is_last = pieces.peek().is_none();
            self.send(kind, &[&[u8::from(is_last)], piece])?;
            if is_last {
                return Ok(());
            }
        }
    }

    fn pieces(&self, kind: u8, expected: &'static str) -> Result<Vec<u8>, Ended> {
        let mut body = Vec::new();
        loop {
            let piece = self.next(kind, expected)?;
            let wrong = Ended::Frame { expected, found: Some(kind), bytes: piece.len() };
            let Some((is_last, piece)) = piece.split_first() else { return Err(wrong) };
            if body.len() + piece.len() > BODY_BYTES_MAX {
                return Err(wrong);
            }
            body.extend_from_slice(piece);
            if *is_last == 1 {
                return Ok(body);
            }
        }
    }

    fn send_ids(&self, ids: &[Id]) -> Result<(), Ended> {
        self.send_pieces(HELD, ids.as_flattened())
    }

    fn ids(&self) -> Result<Vec<Id>, Ended> {
        ids_of(&self.pieces(HELD, "what the other server holds")?)
    }

    fn send_part(&self, message: &[u8]) -> Result<(), Ended> {
        self.send_pieces(PART, message)
    }

    fn part(&self) -> Result<Vec<u8>, Ended> {
        self.pieces(PART, "a message of dealing")
    }

    fn send_batch(&self, count: usize) -> Result<(), Ended> {
        self.send(BATCH, &[&(count as u32).to_le_bytes()])
    }

    /// So many inferences, at most as many as may be.
    fn batch(&self, count_max: usize) -> Result<usize, Ended> {
        let expected = "a count of inferences to deal for";
        let body = self.next(BATCH, expected)?;
        let count = body[..].try_into().map(u32::from_le_bytes);
        match count {
            Ok(count) if count as usize <= count_max => Ok(count as usize),
            _ => Err(Ended::Frame { expected, found: Some(BATCH), bytes: body.len() }),
        }
    }

    fn send_kept(&self, ids: &[Id]) -> Result<(), Ended> {
        self.send(KEPT, &[ids.as_flattened()])
    }

    fn kept(&self) -> Result<Vec<Id>, Ended> {
        ids_of(&self.next(KEPT, "what the other server has kept")?)
    }
}

fn ids_of(bytes: &[u8]) -> Result<Vec<Id>, Ended> {
    match bytes.as_chunks() {
        (ids, []) => Ok(ids.to_vec()),
        _ => Err(Ended::Frame { expected: "ids", found: None, bytes: bytes.len() }),
    }
}

pub(super) const FETCH: &str = "hushtable-fetch";
pub(super) const DEAL: &str = "hushtable-refill";
const HELD: u8 = 1;
const BATCH: u8 = 2;
const PART: u8 = 3;
const KEPT: u8 = 4;
/// Bytes of a piece of a body.
const PIECE_BYTES: usize = FRAME_BYTES_MAX / 2;
/// More than any message of dealing, or list of ids, has.
const BODY_BYTES_MAX: usize = 1 << 28;
/// How late it may be noticed that there is room.
const LOOKS: Duration = Duration::from_millis(50);
/// How many are in memory ahead of their use: what a process that ends loses.
const AHEAD: usize = 32;
/// How long left waits where right has no room.
const FULL: Duration = Duration::from_secs(1);

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hushtable_infer::shares::bench::described;
    use hushtable_infer::shares::price::Model;
    use hushtable_infer::store::{LedgerPlace, StoreSpec};
    use tokio::sync::mpsc::unbounded_channel;

    use super::*;

    fn refill(place: &Path, half: Half, room: u64, percent: u64) -> Arc<Refill> {
        let spec = described(3, &[4, 2], &[5, 1], &[("a", 9, 1)]);
        let outline = Model::synthetic(spec, 8, 8, 1).unwrap().network.outline().clone();
        let each = Precompute::bytes_of(&outline) as u64 + 400;
        let (folder, key) = (place.join(format!("{half:?}")), place.join(format!("{half:?}.key")));
        let ledger = LedgerPlace::Folder(place.join("ledgers"));
        let store = StoreSpec { folder, bytes_max: room * each, key, ledger };
        let stock = Stock::open(&store, half, &outline).unwrap();
        Refill::new(
            stock,
            half,
            outline,
            (1, percent),
            SharesMetrics::default(),
            &Vitals::default(),
        )
        .unwrap()
    }

    /// A session of both, to its end, as streams would have it.
    fn meet(left: &Arc<Refill>, right: &Arc<Refill>) -> [JoinHandle<()>; 2] {
        let [(to_right, mut for_right), (to_left, mut for_left)] =
            [(); 2].map(|()| unbounded_channel::<Vec<u8>>());
        let left = left.begin(to_right).unwrap();
        let right = right.begin(to_left).unwrap();
        let pass = |frame: Option<Vec<u8>>, to: &Sender<Bytes>| {
            frame.is_some_and(|frame| to.send(frame.into()).is_ok())
        };
        [
            thread::spawn(move || while pass(for_right.blocking_recv(), &right) {}),
            thread::spawn(move || while pass(for_left.blocking_recv(), &left) {}),
        ]
    }

    fn until(what: &str, is_so: impl Fn() -> bool) {
        let started = Instant::now();
        while !is_so() {
            assert!(started.elapsed() < Duration::from_secs(120), "{what}");
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// What left takes for an inference that right never hears of stays with right, which has no room for others.
    #[test]
    fn servers_agree_anew_where_left_took_some_in_vain() {
        let place = tempfile::tempdir().unwrap();
        let [left, right] =
            [Half::Left, Half::Right].map(|half| refill(place.path(), half, 4, 100));
        let passing = meet(&left, &right);
        // Right has no room, and fetches nothing more, which would make some.
        until("right is full", || {
            while left.take_next().is_some() {}
            (right.stock.room(), right.stock.ahead() > AHEAD / 2) == (0, true)
        });
        assert!(right.stock.ready() > 4);
        left.disagree();
        passing.into_iter().for_each(|it| it.join().unwrap());
        let passing = meet(&left, &right);
        until("they deal again", || left.stock.ready() > 4);
        assert!(right.stock.ready().abs_diff(left.stock.ready()) <= 1);
        left.stop();
        right.stop();
        drop(passing);
    }

    #[test]
    fn a_thread_that_rests_ends_with_its_server() {
        let place = tempfile::tempdir().unwrap();
        let refill = refill(place.path(), Half::Left, 9, 1);
        // Forty seconds of work are an hour of rest at a hundredth of a core.
        let began = Instant::now() - Duration::from_secs(40);
        let resting = Arc::clone(&refill);
        let thread = thread::spawn(move || resting.pace(began));
        refill.threads.lock().unwrap().push(thread);
        let began = Instant::now();
        refill.stop();
        assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
    }
}
