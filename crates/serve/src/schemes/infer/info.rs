//! What a server says of its model and plan, checked before anything secret leaves the client.

use hushtable_infer::Platform;
use hushtable_infer::dlrm::{self, Terms};
use hushtable_pir::client::version;
use hushtable_table::Version;

use crate::peer::values::{defect, text};
use crate::{ReplyDefect, wire};

/// What a server computes, and what a client must know of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct InferInfo {
    /// The model's name.
    pub name: String,
    /// The model's version.
    pub version: Version,
    /// The plan's hash.
    pub plan: Version,
    /// Parameters, layout, sizes: all that a client goes by.
    pub terms: Terms,
    /// The server's software.
    pub software: String,
    key_bytes: usize,
}

impl InferInfo {
    /// What a server of this model and these terms says.
    pub(super) fn new(name: String, version: Version, terms: Terms) -> Result<Self, dlrm::Error> {
        let (plan, software) = (Version::from(terms.plan()), crate::host::SOFTWARE.into());
        let key_bytes = terms.key_bytes()?;
        Ok(Self { name, version, plan, terms, software, key_bytes })
    }

    /// Bytes of a client's keys.
    pub fn key_bytes(&self) -> usize {
        self.key_bytes
    }

    /// Bytes of one query.
    pub fn query_bytes(&self) -> usize {
        self.terms.query_bytes()
    }

    /// Bytes of one answer.
    pub fn answer_bytes(&self) -> usize {
        self.terms.answer_bytes()
    }

    /// Holds an announcement against what follows from its terms. The terms themselves are checked field
    /// by field, and against the security of 128 bits.
    ///
    /// # Errors
    /// [`ReplyDefect`] for what cannot be, or does not follow.
    pub(super) fn check(reply: wire::InferInfoReply) -> Result<Self, ReplyDefect> {
        let found = version(&reply.model_version)?;
        let announced = version(&reply.plan)?;
        if reply.terms.len() > TERMS_BYTES_MAX {
            let (found, max) = (reply.terms.len() as u64, TERMS_BYTES_MAX as u64);
            return Err(ReplyDefect::Range { field: "terms", found, min: 1, max });
        }
        let none = |error: dlrm::Error| defect(&error);
        let terms = Terms::parse(&reply.terms, Platform::detect()).map_err(none)?;
        let plan = Version::from(terms.plan());
        if plan != announced {
            let reason = format!("terms of plan {plan}, where {announced} was announced");
            return Err(ReplyDefect::Other { reason });
        }
        let key_bytes = terms.key_bytes().map_err(none)?;
        for (what, expected, found) in [
            ("bytes of keys", key_bytes, reply.key_bytes),
            ("bytes of a query", terms.query_bytes(), reply.query_bytes),
            ("bytes of an answer", terms.answer_bytes(), reply.answer_bytes),
        ] {
            let expected = expected as u64;
            if expected != found {
                return Err(ReplyDefect::Size { what, expected, found });
            }
        }
        let (name, software) = (text("name", reply.name)?, text("software", reply.software)?);
        Ok(Self { name, version: found, plan, terms, software, key_bytes })
    }
}

impl From<&InferInfo> for wire::InferInfoReply {
    fn from(info: &InferInfo) -> Self {
        Self {
            name: info.name.clone(),
            model_version: info.version.as_bytes().to_vec().into(),
            plan: info.plan.as_bytes().to_vec().into(),
            terms: info.terms.to_bytes().into(),
            key_bytes: info.key_bytes() as u64,
            query_bytes: info.query_bytes() as u64,
            answer_bytes: info.answer_bytes() as u64,
            software: info.software.clone(),
        }
    }
}

/// The most that terms may take.
pub(super) const TERMS_BYTES_MAX: usize = 1 << 20;
