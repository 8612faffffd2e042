//! What a server says of its network, checked before anything secret leaves the client.

use hushtable_pir::client::version;
use hushtable_table::Version;

pub(super) use hushtable_infer::hybrid::TERMS_BYTES_MAX;
pub use hushtable_infer::hybrid::session::Announced as HybridInfo;

use super::machines::Terms;
use crate::peer::values::{defect, terms_too_long, text};
use crate::{ReplyDefect, wire};

/// Holds an announcement against what follows from its terms, which are checked field by field.
///
/// # Errors
/// [`ReplyDefect`] for what cannot be, or does not follow.
pub(super) fn check(reply: wire::HybridInfoReply) -> Result<HybridInfo, ReplyDefect> {
    let (name, software) = (text("name", reply.name)?, text("software", reply.software)?);
    let found = version(&reply.model_version)?;
    let announced = version(&reply.plan)?;
    if reply.terms.len() > TERMS_BYTES_MAX {
        return Err(terms_too_long(reply.terms.len() as u64, TERMS_BYTES_MAX));
    }
    let terms = Terms::parse(&reply.terms).map_err(|error| defect(&error))?;
    let plan = Version::from(terms.id());
    if plan != announced {
        let reason = format!("terms of plan {plan}, where {announced} was announced");
        return Err(ReplyDefect::Other { reason });
    }
    let (Some(client_garbles), Some(server_garbles)) = (reply.client_garbles, reply.server_garbles)
    else {
        let reason = "it does not say who garbles".to_owned();
        return Err(ReplyDefect::Other { reason });
    };
    if !client_garbles && !server_garbles {
        let reason = "neither side may garble".to_owned();
        return Err(ReplyDefect::Other { reason });
    }
    if terms.model() != name {
        let reason = "terms of a model of another name than was announced".to_owned();
        return Err(ReplyDefect::Other { reason });
    }
    Ok(HybridInfo { name, version: found, plan, terms, software, client_garbles, server_garbles })
}

impl From<&HybridInfo> for wire::HybridInfoReply {
    fn from(info: &HybridInfo) -> Self {
        Self {
            name: info.name.clone(),
            model_version: info.version.as_bytes().to_vec().into(),
            plan: info.plan.as_bytes().to_vec().into(),
            terms: info.terms.to_bytes().into(),
            software: info.software.clone(),
            client_garbles: Some(info.client_garbles),
            server_garbles: Some(info.server_garbles),
        }
    }
}
