//! What a server says of its model and plan, on the wire.

use hushtable_infer::dlrm::TERMS_BYTES_MAX;
use hushtable_infer::dlrm::session::{Announced, InfoDefect};
use hushtable_pir::client::version;

use super::CkksInfo;
use crate::peer::values::{terms_too_long, text};
use crate::{ReplyDefect, wire};

/// An announcement as it came, but for what no announcement has.
pub(super) fn announced(reply: wire::InferInfoReply) -> Result<Announced, ReplyDefect> {
    Ok(Announced {
        version: version(&reply.model_version)?,
        plan: version(&reply.plan)?,
        terms: reply.terms,
        key_bytes: reply.key_bytes,
        query_bytes: reply.query_bytes,
        answer_bytes: reply.answer_bytes,
        name: text("name", reply.name)?,
        software: text("software", reply.software)?,
    })
}

/// What does not fit in an announcement.
pub(super) fn defect(defect: &InfoDefect) -> ReplyDefect {
    match *defect {
        InfoDefect::TermsTooLong(long) => terms_too_long(long.found, TERMS_BYTES_MAX),
        InfoDefect::Size { what, expected, found } => ReplyDefect::Size { what, expected, found },
        ref other => crate::peer::values::defect(other),
    }
}

impl From<&CkksInfo> for wire::InferInfoReply {
    fn from(info: &CkksInfo) -> Self {
        let said = info.announced();
        Self {
            name: said.name,
            model_version: said.version.as_bytes().to_vec().into(),
            plan: said.plan.as_bytes().to_vec().into(),
            terms: said.terms,
            key_bytes: said.key_bytes,
            query_bytes: said.query_bytes,
            answer_bytes: said.answer_bytes,
            software: said.software,
        }
    }
}
