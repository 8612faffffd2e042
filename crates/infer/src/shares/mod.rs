//! Predictions on shares: left and right compute a recommendation model on rows and features that neither sees.
//!
//! Left and right of the pair scheme hold the weights, and after a private lookup the XOR shares of every row that a
//! client asked for. The client deals, with its lookup keys, shares of its dense features and what the two need to
//! go from layer to layer: comparison keys and masks, each used once ([`client::deal`]). Linear layers are local;
//! an activation takes two messages each way ([`gate`]), rows' bits become numbers in one ([`convert`]), and so do dot
//! products of vectors ([`products`]) and what is rounded without an activation ([`lift`]). What comes out are two
//! shares of a logit, for the client alone.
//!
//! **Numbers.** Shares are modulo 2^32. Activations have [`Outline::fraction_bits`] bits after the point, weights so
//! many that a layer's sums stay below 2^31. A sum loses its weights' bits where it goes into a gate: left rounds
//! its share down and right its own up, in a ring that is smaller by those bits. For x = l + r modulo 2^32,
//! ⌊l / 2^s⌋ + ⌈r / 2^s⌉ is ⌊x / 2^s⌋ or one more, modulo 2^(32−s): a sum of shares that wraps around 2^32 wraps
//! around 2^(32−s) too, so there is no error but this one, whatever x is. It is one more with a chance of just
//! what was cut off where l is uniform, so nothing is biased. (To cut off bits and stay modulo 2^32 fails
//! where shares wrap; nothing here does that.) The gate brings the result back modulo 2^32.
//!
//! **What each party sees** stands in docs/security/shares.md, with the arguments. All of it is for parties that follow the
//! protocol; a client that deals bad keys learns more of the model than predictions say. Where it must not, the two
//! servers deal, beforehand ([`joint`]).
//!
//! Halves are machines over bytes, and so is a whole client ([`session`]); nothing here has sockets.

#[cfg(feature = "bench")]
pub mod bench;
mod calibrate;
pub mod client;
pub mod convert;
mod dealt;
mod dense;
mod error;
pub mod exchange;
pub mod gate;
pub mod joint;
pub mod lift;
mod linear;
mod network;
mod outline;
mod plan;
pub mod price;
pub mod products;
mod random;
pub mod reference;
mod server;
pub mod session;
mod steps;
mod stream;
mod together;
mod words;

pub use calibrate::Ranges;
pub use error::Error;
pub use hushtable_mpc::compare::Half;
pub use network::{Network, QuantisedTable};
pub use outline::{LookupOutline, Outline, StepOutline};
pub use plan::{SCHEME, SharesPlan};
pub use server::{Progress, Server};
pub use together::{Dealers, Session, run};

/// Who deals what an inference takes.
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize,
)]
#[serde(rename_all = "lowercase")]
#[allow(clippy::exhaustive_enums, reason = "there are these two")]
pub enum DealtBy {
    /// The client, with each inference: whoever may deal may read the model.
    #[default]
    Client,
    /// The two servers, beforehand ([`joint`]).
    Servers,
}

impl std::fmt::Display for DealtBy {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Client => "the client",
            Self::Servers => "the two servers",
        })
    }
}

#[cfg(test)]
mod tests;
