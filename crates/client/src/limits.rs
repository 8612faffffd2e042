//! How long an operation may take, how long it took, and what came of a single call.

use std::time::Duration;

/// How long a client waits for one operation.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Limits {
    /// One call.
    pub call: Duration,
    /// Until when calls are made again, from the first one on.
    pub whole: Duration,
    /// Whether a call that was begun by then may end later.
    pub may_overrun: bool,
    /// How long a busy server is asked again, each time.
    pub busy: Duration,
}

impl Limits {
    /// Of a call that is made within `call`, and again within as long.
    pub fn of(call: Duration) -> Self {
        Self { call, whole: call, may_overrun: false, busy: call }
    }
}

/// How often an operation was made anew within its session, and what is known of its time.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Tried {
    /// Times before.
    pub times: u32,
    /// Since it began.
    pub elapsed: Duration,
}

/// What says how long it took.
pub trait Timed {
    /// From the operation's first step to its last, and how often it was made again: at another server, or anew.
    fn took(&mut self, elapsed: Duration, moves: u32);
}

/// What came of an operation that is one call.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Called<R> {
    /// The reply.
    pub reply: R,
    /// How often it was made again.
    pub retries: u32,
}

impl<R> Timed for Called<R> {
    fn took(&mut self, _: Duration, moves: u32) {
        self.retries += moves;
    }
}
