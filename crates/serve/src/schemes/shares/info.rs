//! What a server says of its model, on the wire.

use hushtable_infer::dlrm::TERMS_BYTES_MAX;
use hushtable_infer::shares::session::{Announced, InfoDefect};
use hushtable_pir::client::version;

use super::SharesInfo;
use crate::peer::values::{terms_too_long, text};
use crate::{ReplyDefect, wire};

/// An announcement as it came, but for what no announcement has.
pub(super) fn announced(reply: wire::SharesInfoReply) -> Result<Announced, ReplyDefect> {
    Ok(Announced {
        version: version(&reply.model_version)?,
        plan: version(&reply.plan)?,
        side: reply.side,
        terms: reply.terms,
        name: text("name", reply.name)?,
        software: text("software", reply.software)?,
    })
}

/// What does not fit in an announcement.
pub(super) fn defect(defect: &InfoDefect) -> ReplyDefect {
    match defect {
        InfoDefect::TermsTooLong(long) => terms_too_long(long.found, TERMS_BYTES_MAX),
        other => crate::peer::values::defect(other),
    }
}

impl From<&SharesInfo> for wire::SharesInfoReply {
    fn from(info: &SharesInfo) -> Self {
        let said = info.announced();
        Self {
            name: said.name,
            model_version: said.version.as_bytes().to_vec().into(),
            plan: said.plan.as_bytes().to_vec().into(),
            terms: said.terms,
            side: said.side,
            software: said.software,
        }
    }
}
