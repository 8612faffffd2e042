//! One server of a shard, as a front sees it.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::dpf::Side;
use hushtable_table::Version;
use tokio::sync::Notify;

use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::peer::values::version_from_wire;
use crate::wire::private_shard_client::PrivateShardClient;
use crate::wire::{self, AnswerPassReply, AnswerPassRequest, HoldsReply, HoldsRequest};
use crate::{Error, Refusal};

/// A server of a shard.
pub(super) struct Replica {
    shard: usize,
    url: String,
    peer: Peer,
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
    /// How often in a row it did not say how it is.
    misses: u32,
    side: Option<Side>,
}

/// A part that is asked for.
pub(super) struct InFlight<'a>(&'a Replica);

/// Why a server did not answer its part.
pub(super) enum Unheld {
    /// It goes by another map, or is another shard.
    Skew(String),
    Busy(Duration),
    Failed(String),
}

impl Replica {
    pub fn new(shard: usize, url: &str, peer: Peer) -> Self {
        let state = State {
            maps: Vec::new(),
            request_bytes_max: 0,
            reason: "it has not answered yet".into(),
            average: Duration::ZERO,
            misses: 0,
            side: None,
        };
        Self {
            shard,
            url: url.into(),
            peer,
            inflight: AtomicUsize::new(0),
            state: Mutex::new(state),
            doubted: Arc::default(),
        }
    }

    pub fn url(&self) -> &str {
        &self.url
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

    /// Which side it says that it is of.
    pub fn side(&self) -> Option<Side> {
        self.state().side
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

    /// How much it has to do for this front, and what that took lately.
    pub fn load(&self) -> (usize, Duration) {
        (self.inflight.load(Ordering::Relaxed), self.state().average)
    }

    pub fn begin(&self) -> InFlight<'_> {
        self.inflight.fetch_add(1, Ordering::Relaxed);
        InFlight(self)
    }

    pub fn took(&self, took: Duration) {
        let mut state = self.state();
        state.average = match state.average {
            Duration::ZERO => took,
            average => (average * 7 + took) / 8,
        };
    }

    /// Leaves it out until it has said again what it holds.
    pub fn doubt(&self, reason: &str) {
        {
            let mut state = self.state();
            if !state.maps.is_empty() {
                tracing::warn!(
                    shard = self.shard,
                    url = self.url,
                    reason,
                    "a shard's server is left out"
                );
            }
            state.maps.clear();
            reason.clone_into(&mut state.reason);
        }
        self.doubted.notify_one();
    }

    /// Asks it what it holds.
    pub async fn ask_holds(&self, side: Side, in_use: Vec<Bytes>) {
        let mut client = PrivateShardClient::new(self.peer.channel.clone())
            .max_decoding_message_size(HOLDS_BYTES_MAX);
        let reply = self.peer.within(HOLDS_MAX, client.holds(HoldsRequest { in_use })).await;
        match reply {
            Ok(reply) => self.told(side, &reply.into_inner()),
            Err(error) => self.missed(&error),
        }
    }

    fn told(&self, side: Side, reply: &HoldsReply) {
        let found = match wire::Side::try_from(reply.side) {
            Ok(wire::Side::Left) => Some(Side::Left),
            Ok(wire::Side::Right) => Some(Side::Right),
            _ => None,
        };
        let (maps, reason) = if found != Some(side) {
            let found = found.map_or("no", Side::name);
            let reason = format!(
                "it is a shard of the {found} server, and this is a front of the {side} one: the two \
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
                    tracing::info!(shard = self.shard, url = self.url, "a shard's server is ready")
                }
                false => tracing::warn!(
                    shard = self.shard,
                    url = self.url,
                    reason,
                    "a shard's server is left out"
                ),
            }
        }
        let request_bytes_max = reply.request_bytes_max.try_into().unwrap_or(usize::MAX);
        *state = State { maps, request_bytes_max, reason, misses: 0, side: found, ..*state };
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
            let was_up = self.is_up();
            let mut state = self.state();
            let reason = error.to_string();
            if was_up {
                tracing::warn!(
                    shard = self.shard,
                    url = self.url,
                    reason,
                    "a shard's server is left out"
                );
            }
            state.maps.clear();
            state.reason = reason;
        }
    }

    /// Asks it for its part of a pass; what comes back has `expected` bytes for each table.
    pub async fn answer(
        &self,
        request: AnswerPassRequest,
        expected: &[usize],
        limit: Duration,
    ) -> Result<AnswerPassReply, Unheld> {
        let map = request.map_version.clone();
        let bytes_max =
            expected.iter().map(|bytes| bytes + 16).sum::<usize>() + REPLY_OVERHEAD_BYTES;
        let mut client =
            PrivateShardClient::new(self.peer.channel.clone()).max_decoding_message_size(bytes_max);
        let reply = match self.peer.within(limit, client.answer_pass(request)).await {
            Ok(reply) => reply.into_inner(),
            Err(Error::Refused { refusal, .. }) => {
                let text = format!("{}: {refusal}", self.url);
                return Err(match refusal {
                    Refusal::Busy { retry_after, .. } => Unheld::Busy(retry_after),
                    Refusal::UnknownMap { .. }
                    | Refusal::WrongShard { .. }
                    | Refusal::WrongSide { .. } => Unheld::Skew(text),
                    _ => Unheld::Failed(text),
                });
            }
            Err(error) => return Err(Unheld::Failed(error.to_string())),
        };
        if reply.map_version != map || reply.shard as usize != self.shard {
            let text = format!("{}: it answered by another map, or as another shard", self.url);
            return Err(Unheld::Skew(text));
        }
        let found: Vec<usize> = reply.answers.iter().map(Bytes::len).collect();
        match found == expected {
            true => Ok(reply),
            false => {
                let text = format!("{}: answers of {found:?} bytes, not {expected:?}", self.url);
                Err(Unheld::Skew(text))
            }
        }
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.inflight.fetch_sub(1, Ordering::Relaxed);
    }
}

/// How often each server is asked what it holds.
pub(super) const HOLDS_EVERY: Duration = Duration::from_millis(300);
const HOLDS_MAX: Duration = Duration::from_secs(2);
const MISSES_MAX: u32 = 3;
const HOLDS_BYTES_MAX: usize = 64 << 10;
const REASON_CHARS_MAX: usize = 512;
