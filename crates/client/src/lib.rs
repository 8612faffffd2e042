//! Whole clients without sockets, threads or clocks: sessions, routes, retries, key uploads.
//!
//! Every operation of a client (opening it, a lookup, a prediction) is a [`Machine`]: whoever drives it makes
//! the calls that it yields, hands it what comes back, and polls it again when it says. The time is an
//! argument, counted from any moment that all machines of a client share, and what may be chosen by anyone is
//! drawn from a number given to it. Which calls there are, and what is asked with them, is the scheme's: its
//! crate gives a [`Protocol`], says how a session is made ([`Connect`]) and what is asked within one ([`Ask`]).
//!
//! A driver does this, until the machine is done:
//!
//! ```text
//! match machine.poll(now) {
//!     Send { id, place, server, call } => start the call; when it ends: machine.received(id, now, outcome)
//!     Wait { until }           => drop the calls that it does not await any more;
//!                                 wait for a call's end, the bell, or that time; whichever is first
//!     Done(outcome)            => drop the calls that are still on their way
//! }
//! ```
//!
//! What the schemes' clients have in common, and where it is:
//!
//! - a call that is made again while the server is busy, and once where a connection was lost (`exchange`);
//! - rounds of calls to several servers, each decided by what the last one brought ([`Script`]);
//! - several servers of one operator, one of which is asked ([`Moves`]);
//! - a session that is made anew where what servers hold has changed, by one operation for all ([`Operation`]);
//! - operations that follow each other, each with time of its own ([`Series`]).

#![forbid(unsafe_code)]

mod call;
mod exchange;
mod limits;
mod opener;
mod operation;
mod place;
mod random;
mod route;
mod run;
mod series;
mod shared;
#[cfg(feature = "simulation")]
pub mod simulation;
mod uploads;

use std::time::Duration;

pub use call::{CallError, CallFault, CallId, Error, OwnTime, Protocol};
pub use exchange::{RECONNECT_WITHIN, pause};
pub use limits::{Called, Limits, Timed, Tried};
pub use operation::{Opening, Operation};
pub use place::Place;
pub use random::Random;
pub use route::Moves;
pub use run::{Round, RoundOf, Script, Tally, Verdict};
pub use series::{InTurn, PartOutcome, Series, Then};
pub use shared::{Ask, Bell, Cause, Connect, Shared};
pub use uploads::{Upload, UploadTurn, Uploads};

/// What a machine wants next; `C` is its protocol's call.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "a driver does all of them")]
pub enum Step<C, T> {
    /// A call made.
    Send {
        /// Its number.
        id: CallId,
        /// To whom.
        place: Place,
        /// Which of the servers there, counted from zero; below what the client's spec says.
        server: usize,
        /// The call.
        call: C,
    },
    /// To be polled again after a reply, when the client's [`Bell`] rings, and at this time.
    Wait {
        /// The time.
        until: Duration,
    },
    /// Nothing more: this came of it.
    Done(T),
}

/// What comes of a machine of the protocol `P`.
pub type Outcome<P, T, E> = Result<T, Error<<P as Protocol>::Failure, E>>;

/// What a machine of the protocol `P` wants next.
pub type Stepped<P, T, E> = Step<<P as Protocol>::Call, Outcome<P, T, E>>;

/// An operation of a client; `E` is the error of whoever makes its calls.
pub trait Machine<E>: Send {
    /// What it calls, and what comes back.
    type Protocol: Protocol;
    /// What is asked for.
    type Output;

    /// Goes on.
    fn poll(&mut self, now: Duration) -> Stepped<Self::Protocol, Self::Output, E>;

    /// Takes what came of a call. Of a call that the machine does not wait for any more nothing is
    /// taken.
    fn received(
        &mut self,
        id: CallId,
        now: Duration,
        outcome: Result<<Self::Protocol as Protocol>::Reply, CallError<E>>,
    );

    /// Whether the machine still waits for a call: one that it does not may be given up, so that its server need not
    /// answer it.
    fn awaits(&self, id: CallId) -> bool;

    /// Ends it by this time, whatever time its scheme would give it: all of it, calls that have a time of their own
    /// among them. To be said before the first [`poll`](Self::poll).
    fn end_by(&mut self, end: Duration);

    /// Whether the next [`poll`](Self::poll) computes for milliseconds: threads that carry
    /// connections should not make it.
    fn computes(&self) -> bool;
}

impl<C, T> Step<C, T> {
    /// A step that is not done, of a machine of any output.
    fn undone<U>(self) -> Step<C, U> {
        match self {
            Self::Send { id, place, server, call } => Step::Send { id, place, server, call },
            Self::Wait { until } => Step::Wait { until },
            Self::Done(_) => unreachable!("only called on steps that are not done"),
        }
    }
}
