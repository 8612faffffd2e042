//! One server of a shard, as a front sees it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_pir::dpf::Side;
use hushtable_table::Version;
use tokio::sync::Notify;

use super::Owner;
use crate::peer::lane::{Body, Lane};
use crate::peer::values::version_from_wire;
use crate::wire::{self, HoldsReply, HoldsRequest};
use crate::{Error, Refusal};

/// A server of a shard.
pub(crate) struct Replica {
    shard: usize,
    lane: Lane,
    /// Parts of passes that it is asked for now.
    inflight: AtomicUsize,
    state: Mutex<State>,
    /// Wakes what asks it how it is.
    pub doubted: Arc<Notify>,
}

#[derive(Clone)]
struct State {
    /// Maps that it answers by.
    maps: Vec<Version>,
    request_bytes_max: usize,
    /// Why it is not asked, where it is not; or why it has no newer version.
    reason: String,
    /// A moving average of what parts took it.
    average: Duration,
    /// When the last of them was there.
    answered: Instant,
    /// How often in a row it did not say how it is.
    misses: u32,
    owner: Option<Owner>,
}

/// A part that is asked for.
pub(super) struct InFlight<'a>(&'a Replica);

/// Why a server did not answer its part.
pub(crate) enum Unheld {
    /// It goes by another map, or is another shard.
    Skew(String),
    Busy(Duration),
    Failed(String),
}

impl Replica {
    pub fn new(shard: usize, lane: Lane) -> Self {
        let state = State {
            maps: Vec::new(),
            request_bytes_max: 0,
            reason: "it has not answered yet".into(),
            average: Duration::ZERO,
            answered: Instant::now(),
            misses: 0,
            owner: None,
        };
        Self {
            shard,
            lane,
            inflight: AtomicUsize::new(0),
            state: Mutex::new(state),
            doubted: Arc::default(),
        }
    }

    pub fn url(&self) -> &str {
        self.lane.url()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it holds the lock half-way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what is known of the server at the same address.
    pub fn know(&self, before: &Self) {
        let known = before.state().clone();
        *self.state() = known;
    }

    /// Whether it answers by `map`.
    pub fn holds(&self, map: Version) -> bool {
        self.state().maps.contains(&map)
    }

    /// Whether it answers at all.
    pub fn is_up(&self) -> bool {
        !self.state().maps.is_empty()
    }

    /// Whose it says that it is.
    pub fn owner(&self) -> Option<Owner> {
        self.state().owner
    }

    /// The shard that it is one of the servers of.
    pub fn shard(&self) -> usize {
        self.shard
    }

    /// The way to it.
    pub fn lane(&self) -> &Lane {
        &self.lane
    }

    /// Why it is not ready, in words.
    pub fn reason(&self) -> String {
        let state = self.state();
        match (state.reason.is_empty(), state.maps.is_empty()) {
            (false, _) => state.reason.clone(),
            (true, true) => "it holds nothing".into(),
            (true, false) => "it holds other versions".into(),
        }
    }

    pub fn request_bytes_max(&self) -> usize {
        self.state().request_bytes_max
    }

    /// How much it has to do for this front, and what that took lately. What it took fades: else a server that was
    /// slow once would never be asked again, where another is quicker.
    pub fn load(&self) -> (usize, Duration) {
        let (average, answered) = {
            let state = self.state();
            (state.average, state.answered)
        };
        let half_lives = answered.elapsed().as_secs_f64() / HALF_LIFE.as_secs_f64();
        (self.inflight.load(Ordering::Relaxed), average.mul_f64(0.5f64.powf(half_lives)))
    }

    pub(super) fn begin(&self) -> InFlight<'_> {
        self.inflight.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }

    pub fn took(&self, took: Duration) {
        let mut state = self.state();
        state.average = match state.average {
            Duration::ZERO => took,
            average => (average * 7 + took) / 8,
        };
        state.answered = Instant::now();
    }

    /// Leaves it out until it has said again what it holds.
    pub fn doubt(&self, reason: &str) {
        self.leave_out(reason);
        self.doubted.notify_one();
    }

    fn leave_out(&self, reason: &str) {
        let mut state = self.state();
        if !state.maps.is_empty() {
            let (shard, url) = (self.shard, self.url());
            tracing::warn!(shard, url, reason, "a shard's server is left out");
        }
        state.maps.clear();
        reason.clone_into(&mut state.reason);
    }

    /// Asks it what it holds, by the method at `path`.
    pub async fn ask_holds(&self, path: &'static str, owner: Owner, in_use: Vec<Bytes>) {
        let body = Body::of(&HoldsRequest { in_use });
        match self.lane.call::<HoldsReply>(path, body, HOLDS_BYTES_MAX, HOLDS_MAX).await {
            Ok(reply) => self.told(owner, &reply),
            Err(error) => self.missed(&error),
        }
    }

    pub(super) fn told(&self, owner: Owner, reply: &HoldsReply) {
        let found = match wire::Side::try_from(reply.side) {
            Ok(wire::Side::Left) => Some(Owner::Side(Side::Left)),
            Ok(wire::Side::Right) => Some(Owner::Side(Side::Right)),
            Ok(wire::Side::Unspecified) => Some(Owner::Single),
            Err(_) => None,
        };
        let (maps, reason) = if found != Some(owner) {
            let found = found.map_or("no", Owner::name);
            let reason = format!(
                "it is a shard of the {found} server, and this is a front of the {owner} one: the two \
                 sides' shards must never meet"
            );
            (Vec::new(), reason)
        } else if reply.shard as usize != self.shard {
            let reason = format!(
                "it is shard {}, not {}: put the servers in the order of their shards",
                reply.shard, self.shard
            );
            (Vec::new(), reason)
        } else if reply.is_draining {
            (Vec::new(), "it is shutting down".into())
        } else {
            let maps =
                reply.held.iter().filter_map(|held| version_from_wire(&held.map_version).ok());
            (maps.collect(), reply.refused.chars().take(REASON_CHARS_MAX).collect())
        };
        let mut state = self.state();
        let was_up = !state.maps.is_empty();
        let is_up = !maps.is_empty();
        if was_up != is_up || (!is_up && state.reason != reason) {
            match is_up {
                true => {
                    tracing::info!(
                        shard = self.shard,
                        url = self.url(),
                        "a shard's server is ready"
                    )
                }
                false => tracing::warn!(
                    shard = self.shard,
                    url = self.url(),
                    reason,
                    "a shard's server is left out"
                ),
            }
        }
        let request_bytes_max = reply.request_bytes_max.try_into().unwrap_or(usize::MAX);
        *state = State { maps, request_bytes_max, reason, misses: 0, owner: found, ..*state };
    }

    /// A server that is slow to say how it is may have much to do: it is left out after the second time.
    fn missed(&self, error: &Error) {
        let is_slow = matches!(error, Error::Timeout { .. });
        let misses = {
            let mut state = self.state();
            state.misses += 1;
            state.misses
        };
        if !is_slow || misses >= MISSES_MAX || !self.is_up() {
            self.leave_out(&error.to_string());
        }
    }
}

impl Unheld {
    /// What came of a call that failed.
    pub fn of(url: &str, error: Error) -> Self {
        let Error::Refused { refusal, .. } = error else { return Self::Failed(error.to_string()) };
        let text = format!("{url}: {refusal}");
        match refusal {
            Refusal::Busy { retry_after, .. } => Self::Busy(retry_after),
            Refusal::UnknownMap { .. } | Refusal::WrongShard { .. } => Self::Skew(text),
            _ => Self::Failed(text),
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.inflight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// After how long unasked half of what a server took is forgotten.
const HALF_LIFE: Duration = Duration::from_secs(2);
/// How often each server is asked what it holds.
pub(super) const HOLDS_EVERY: Duration = Duration::from_millis(300);
const HOLDS_MAX: Duration = Duration::from_secs(2);
const MISSES_MAX: u32 = 3;
const HOLDS_BYTES_MAX: usize = 64 << 10;
const REASON_CHARS_MAX: usize = 512;

#[cfg(test)]
mod tests {
    use crate::EndpointSpec;

    use super::*;

    #[tokio::test]
    async fn what_a_server_took_fades() {
        let spec = EndpointSpec::new("http://127.0.0.1:1", None);
        let replica = Replica::new(0, Lane::new(&spec, false, HALF_LIFE, &[]).unwrap());
        // What is left of 100 ms after so many half-lives, and those that this machine takes itself.
        let assert_faded = |half_lives: f64, answered: Instant| {
            let found = replica.load().1.as_secs_f64();
            let more = answered.elapsed().as_secs_f64() / HALF_LIFE.as_secs_f64();
            let [most, least] = [half_lives, more].map(|count| 0.1 * 0.5f64.powf(count));
            assert!(found <= most * 1.01 && found >= least * 0.99, "{found}: {least} to {most}");
        };
        let began = Instant::now();
        replica.took(Duration::from_millis(100));
        assert_faded(0.0, began);
        let long_ago = Instant::now().checked_sub(4 * HALF_LIFE).unwrap();
        replica.state().answered = long_ago;
        assert_faded(4.0, long_ago);
        // An answer brings what is known back.
        let began = Instant::now();
        replica.took(Duration::from_millis(100));
        assert_faded(0.0, began);
    }
}
