//! The schemes: of each how its servers are reached and what they are asked, in its own file.

pub(crate) mod ckks;
pub(crate) mod hybrid;
pub(crate) mod model;
pub(crate) mod onion;
pub(crate) mod pair;
pub(crate) mod rows;
pub(crate) mod shares;

use crate::asked::Kind;

/// Every kind of clients.
pub(crate) const KINDS: [Kind; 6] =
    [pair::KIND, model::KIND, onion::KIND, ckks::KIND, hybrid::KIND, shares::KIND];
