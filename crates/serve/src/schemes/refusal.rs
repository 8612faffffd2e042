//! The refusals of all schemes that are built in, in one enum: what any server may answer with, and
//! each scheme's own table.

use crate::host::PushRefusal;
#[cfg(any(feature = "ckks", feature = "onion"))]
use crate::keys::refusal::keys_reasons;
use crate::peer::refusal::{gather, host_reasons, words};
#[cfg(feature = "ckks")]
use crate::schemes::ckks::CkksRefusal;
#[cfg(feature = "hybrid")]
use crate::schemes::hybrid::HybridRefusal;
#[cfg(feature = "onion")]
use crate::schemes::onion::refusal::onion_reasons;
#[cfg(feature = "pair")]
use crate::schemes::pair::refusal::pair_reasons;
#[cfg(feature = "shares")]
use crate::schemes::shares::SharesRefusal;
#[cfg(feature = "train")]
use crate::schemes::train::TrainRefusal;
#[cfg(not(any(feature = "ckks", feature = "onion")))]
use gather as keys_reasons;
#[cfg(not(feature = "onion"))]
use gather as onion_reasons;
#[cfg(not(feature = "pair"))]
use gather as pair_reasons;

gather! {
    [host_reasons pair_reasons keys_reasons onion_reasons]
    {
        /// Why a server refused a request.
        pub enum Refusal
    }
    {
        with {
            /// An encrypted inference.
            #[cfg(feature = "ckks")]
            Ckks(CkksRefusal),
            /// A call of hybrid inference.
            #[cfg(feature = "hybrid")]
            Hybrid(HybridRefusal),
            /// A push of a bundle.
            Push(PushRefusal),
            /// A prediction on shares.
            #[cfg(feature = "shares")]
            Shares(SharesRefusal),
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
        /// A ciphertext at another level, or of another scale, than the plan asks for.
        Level = "level",
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
        /// One peer's part of the bytes in flight.
        PeerBytes = "peer_bytes",
        /// One peer's requests in a second.
        PeerRequests = "peer_requests",
        /// Precomputes that are being made, or that are kept.
        Precomputes = "precomputes",
        /// Predictions at once.
        Predictions = "predictions",
        /// Inferences that wait.
        QueueBags = "queue_bags",
        /// Keys that wait.
        QueueKeys = "queue_keys",
        /// Encrypted queries that wait.
        QueueQueries = "queue_queries",
        /// A user's rows made anew, where they are not kept.
        RowsAgain = "rows_again",
        /// Uploads of keys at once.
        Uploads = "uploads",
    }
}
