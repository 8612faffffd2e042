//! The other side, as a client sees it: an address and a connection, what drives clients' machines
//! over it. Which scheme it speaks is the scheme's affair.

pub(crate) mod deadline;
pub(crate) mod drive;
pub(crate) mod endpoint;
pub(crate) mod lane;
pub(crate) mod load;
pub(crate) mod open;
pub(crate) mod shaper;
pub(crate) mod values;
pub(crate) mod watch;

use crate::Error;

pub(crate) fn random_u64() -> Result<u64, Error> {
    getrandom::u64().map_err(|_| Error::Pir(hushtable_pir::Error::Entropy))
}
