//! All schemes that are built in, and what they say of themselves together.

use super::described::Described;
use crate::host::PushRefusal;
use crate::refusal::{Listed, Reason, Refusal, Status};

/// Every scheme that is built in.
pub const SCHEMES: &[Described] = &[
    #[cfg(feature = "pair")]
    super::pair::DESCRIBED,
    #[cfg(feature = "onion")]
    super::onion::DESCRIBED,
    #[cfg(feature = "train")]
    super::train::DESCRIBED,
    #[cfg(feature = "ckks")]
    super::ckks::DESCRIBED,
    #[cfg(feature = "hybrid")]
    super::hybrid::DESCRIBED,
    #[cfg(feature = "shares")]
    super::shares::DESCRIBED,
];

/// What any server answers to a push, whatever it serves.
const PUSHES: Listed = Listed::of::<PushRefusal>();

/// The tables of all services, some of them in several schemes.
fn tables() -> impl Iterator<Item = Listed> {
    let own = SCHEMES.iter().flat_map(|scheme| scheme.refusals()).copied();
    std::iter::once(PUSHES).chain(own)
}

/// Every reason for which a server of any scheme may refuse.
pub fn reasons() -> Vec<Reason> {
    let mut all = Refusal::reasons();
    for reason in tables().flat_map(|table| (table.reasons)()) {
        if !all.contains(&reason) {
            all.push(reason);
        }
    }
    all
}

/// The refusal that `status` carries, of whatever scheme; `None` where it carries none of hushtable's.
pub fn refusal_of(status: &Status) -> Option<Refusal> {
    Refusal::read(status, &tables().collect::<Vec<_>>())
}

#[cfg(test)]
mod tests;
