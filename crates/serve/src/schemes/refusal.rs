//! The refusals of all schemes that are built in, in one enum: what any server may answer with, and
//! each scheme's own table.

use crate::peer::refusal::{gather, host_reasons, words};
#[cfg(feature = "onion")]
use crate::schemes::onion::refusal::onion_reasons;
#[cfg(feature = "pair")]
use crate::schemes::pair::refusal::pair_reasons;
#[cfg(feature = "train")]
use crate::schemes::train::TrainRefusal;
#[cfg(not(feature = "onion"))]
use gather as onion_reasons;
#[cfg(not(feature = "pair"))]
use gather as pair_reasons;

gather! {
    [host_reasons pair_reasons onion_reasons]
    {
        /// Why a server refused a request.
        pub enum Refusal
    }
    {
        with {
            /// A call of a training round.
            #[cfg(feature = "train")]
            Train(TrainRefusal),
        }
    }
}

words! {
    /// What is wrong with a key or an encrypted query.
    pub enum KeyDefect {
        /// A key format that the server does not know.
        Format = "format",
        /// An output group that the server does not answer.
        Group = "group",
        /// Too few or too many bytes.
        Length = "length",
        /// Bits that must be zero are not.
        Padding = "padding",
        /// Made for other parameters than the server's.
        Parameters = "parameters",
        /// A generator that the server does not take.
        Prg = "prg",
        /// A number at or above its modulus.
        Residue = "residue",
        /// A side that is neither left nor right, or anything newer than this version.
        Other = "other",
    }
    or Other
}

words! {
    /// A limit that a busy server reached.
    pub enum Limit {
        /// One connection's part of the bytes in flight.
        ConnectionBytes = "connection_bytes",
        /// Bytes of requests and answers in flight.
        InflightBytes = "inflight_bytes",
        /// Inferences that wait.
        QueueBags = "queue_bags",
        /// Keys that wait.
        QueueKeys = "queue_keys",
        /// Encrypted queries that wait.
        QueueQueries = "queue_queries",
    }
}
