//! Whole clients without sockets: matching servers, versions, layouts, key uploads, retries.
//!
//! Every operation of a client (opening it, a lookup, a bag) is a [`Machine`]: whoever drives it makes
//! the [`Call`]s that it yields, hands it what comes back, and polls it again when it says. A machine
//! knows no socket, no clock and no thread: the time is an argument, counted from any moment that
//! all machines of a client share, and what may be chosen by anyone is drawn from a number given to it. Keys
//! and secrets alone come from the operating system's generator.
//!
//! Servers are not believed: [`PairTerms`] and the announcements' checks refuse what does not fit before
//! anything secret leaves (`docs/security/clients.md`).
//!
//! A driver does this, until the machine is done:
//!
//! ```text
//! match machine.poll(now) {
//!     Send { id, place, server, call } => start the call; when it ends: machine.received(id, now, outcome)
//!     Wait { until }           => wait for a call's end, the bell, or that time; whichever is first
//!     Done(outcome)            => drop the calls that are still on their way
//! }
//! ```

mod announced;
mod bags;
mod call;
mod catalog;
mod defect;
mod exchange;
mod failure;
mod inference;
mod model;
mod model_opening;
mod onion;
mod onion_info;
mod opener;
mod operation;
mod pair;
mod route;
mod run;
mod shared;
mod stats;
mod table;
mod table_info;
mod terms;

use std::time::Duration;

pub use announced::{
    BAGS_PER_REQUEST_MAX, KEY_OVERHEAD_BYTES, KEYS_PER_REQUEST_MAX, QUERIES_PER_REQUEST_MAX,
    REQUEST_BYTES, version,
};
pub use call::{Answers, Call, CallError, CallFault, Place, Reply};
pub use catalog::{AnnouncedCatalog, AnnouncedModel, ModelInfo};
pub use defect::ReplyDefect;
pub use exchange::{RECONNECT_WITHIN, pause};
pub use failure::{Error, Failure};
pub use model::{FeatureRows, ModelClient, ModelFacts, ModelRows, ModelSpec};
pub use onion::{OnionClient, OnionSpec};
pub use onion_info::{AnnouncedOnion, ONION_REQUEST_BYTES, OnionInfo, QUERY_OVERHEAD_BYTES};
pub use pair::{PairClient, PairSpec};
pub use route::Moves;
pub use shared::Bell;
pub use stats::{BagPart, BagRows, BagsRows, LookupStats, RowFormat, Rows};
pub use table_info::{AnnouncedTable, LayoutInfo, TableInfo};
pub use terms::{PairTerms, common_group};

/// A call's number, of one machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct CallId(u64);

/// What a machine wants next.
#[derive(Debug)]
#[allow(clippy::exhaustive_enums, reason = "a driver does all of them")]
pub enum Step<T> {
    /// A call made.
    Send {
        /// Its number.
        id: CallId,
        /// To whom.
        place: Place,
        /// Which of the servers there, counted from zero; below what the client's spec says.
        server: usize,
        /// The call.
        call: Call,
    },
    /// To be polled again after a reply, when the client's [`Bell`] rings, and at this time.
    Wait {
        /// The time.
        until: Duration,
    },
    /// Nothing more: this came of it.
    Done(T),
}

/// An operation of a client; `E` is the error of whoever makes its calls.
pub trait Machine<E>: Send {
    /// What is asked for.
    type Output;

    /// Goes on.
    fn poll(&mut self, now: Duration) -> Step<Result<Self::Output, Error<E>>>;

    /// Takes what came of a call. Of a call that the machine does not wait for any more nothing is
    /// taken.
    fn received(&mut self, id: CallId, now: Duration, outcome: Result<Reply, CallError<E>>);

    /// Whether the next [`poll`](Self::poll) computes for milliseconds: threads that carry
    /// connections should not make it.
    fn computes(&self) -> bool;
}

impl<T> Step<T> {
    /// A step that is not done, of a machine of any output.
    fn undone<U>(self) -> Step<U> {
        match self {
            Self::Send { id, place, server, call } => Step::Send { id, place, server, call },
            Self::Wait { until } => Step::Wait { until },
            Self::Done(_) => unreachable!("only called on steps that are not done"),
        }
    }
}
