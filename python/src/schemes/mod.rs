//! The schemes: what the module does for each is a row in its own file.

pub(crate) mod ckks;
pub(crate) mod hybrid;
pub(crate) mod model;
pub(crate) mod onion;
pub(crate) mod pair;
pub(crate) mod rows;
pub(crate) mod shares;
pub(crate) mod train;

use hushtable_serve::Refusal;

use crate::asked::Kind;
use crate::errors::Failure;
use crate::serve_errors::Reads;
use crate::server::Serve;

/// Every scheme.
pub(crate) const SCHEMES: [Scheme; 6] =
    [pair::SCHEME, onion::SCHEME, train::SCHEME, ckks::SCHEME, hybrid::SCHEME, shares::SCHEME];

/// What the module does for a scheme.
pub(crate) struct Scheme {
    pub(crate) name: &'static str,
    /// The kinds of its clients that `Client` is.
    pub(crate) kinds: &'static [Kind],
    /// Starts a server of it, where `Server` is one.
    pub(crate) serve: Option<Serve>,
    /// A refusal of its own, which `of` makes an error of some class.
    pub(crate) refused: fn(&Refusal, of: Refused<'_>) -> Option<Failure>,
    /// Errors of its own.
    pub(crate) errors: &'static [Reads],
}

/// An error of the class of this name, with the text that a client gave a refusal.
pub(crate) type Refused<'a> = &'a dyn Fn(&'static str) -> Failure;
