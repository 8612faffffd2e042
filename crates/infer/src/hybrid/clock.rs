//! Where a party's time goes.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

/// What a party computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Work {
    /// Encrypting, computing on ciphertexts, decrypting.
    Encryption,
    /// Oblivious transfer.
    Transfer,
    /// Garbling.
    Garbling,
    /// Evaluating garbled circuits, and choosing labels for them.
    Evaluation,
    /// Shares: linear layers in the clear among them.
    Shares,
}

/// Seconds of a thread for each kind of work.
#[derive(Debug, Default)]
pub struct Clock([AtomicU64; 5]);

impl Clock {
    /// Runs `work` and adds its time.
    pub(super) fn time<T>(&self, kind: Work, work: impl FnOnce() -> T) -> T {
        let began = Instant::now();
        let done = work();
        self.0[kind as usize].fetch_add(began.elapsed().as_nanos() as u64, Ordering::Relaxed);
        done
    }

    /// What was spent so far.
    pub fn spent(&self, kind: Work) -> Duration {
        Duration::from_nanos(self.0[kind as usize].load(Ordering::Relaxed))
    }
}

impl Work {
    /// Every kind.
    pub const ALL: [Self; 5] =
        [Self::Encryption, Self::Transfer, Self::Garbling, Self::Evaluation, Self::Shares];

    /// The kind's name in records.
    pub fn name(self) -> &'static str {
        match self {
            Self::Encryption => "he",
            Self::Transfer => "ot",
            Self::Garbling => "garble",
            Self::Evaluation => "evaluate",
            Self::Shares => "shares",
        }
    }
}
