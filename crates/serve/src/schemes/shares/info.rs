//! What a server says of its model, checked before anything secret leaves the client.

use hushtable_infer::dlrm::{Dlrm, DlrmSpec};
use hushtable_infer::shares::{DealtBy, Half, LookupOutline, Outline};
use hushtable_pir::client::version;
use hushtable_pir::dpf::{Domain, Group};
use hushtable_table::Version;
use serde::{Deserialize, Serialize};

use crate::peer::values::{defect, text};
use crate::{ReplyDefect, wire};

/// What a server computes, and what a client must know of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct SharesInfo {
    /// The model's name.
    pub name: String,
    /// The model's version.
    pub version: Version,
    /// The plan's hash.
    pub plan: Version,
    /// Which of the two servers it is.
    pub half: Half,
    /// The architecture.
    pub dlrm: Dlrm,
    /// Who deals.
    pub dealer: DealtBy,
    /// Sizes of what is dealt.
    pub outline: Outline,
    /// The server's software.
    pub software: String,
}

/// The terms as they travel.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Terms {
    model: DlrmSpec,
    outline: Outline,
    /// Left out where it is the client.
    #[serde(default, skip_serializing_if = "is_client")]
    dealer: DealtBy,
}

fn is_client(dealer: &DealtBy) -> bool {
    *dealer == DealtBy::Client
}

impl SharesInfo {
    /// The domain of each feature's lookup keys.
    ///
    /// # Errors
    /// [`hushtable_pir::Error`] for a table of too many rows.
    pub(super) fn domains(&self) -> Result<Vec<Domain>, hushtable_pir::Error> {
        let rows = self.dlrm.spec().features.iter().zip(self.dlrm.digits());
        let rows = rows.map(|(it, digits)| digits.slots() as u64 + u64::from(it.bag > 1));
        rows.map(|rows| Domain::new(rows, Group::Bits)).collect()
    }

    /// Lookup keys of one inference.
    pub fn key_count(&self) -> usize {
        self.outline.lookups.iter().map(|it| it.rows).sum()
    }

    /// Bytes that a client sends for one inference, to both servers together, beside its lookup keys.
    pub fn up_bytes(&self) -> usize {
        match self.dealer {
            DealtBy::Client => self.outline.up_bytes(),
            DealtBy::Servers => {
                [Half::Left, Half::Right].map(|half| self.outline.dense_bytes(half)).iter().sum()
            }
        }
    }

    /// Holds an announcement against what follows from its terms.
    ///
    /// # Errors
    /// [`ReplyDefect`] for what cannot be, or does not follow.
    pub(super) fn check(reply: wire::SharesInfoReply) -> Result<Self, ReplyDefect> {
        let found = version(&reply.model_version)?;
        let plan = version(&reply.plan)?;
        if reply.terms.len() > TERMS_BYTES_MAX {
            let (found, max) = (reply.terms.len() as u64, TERMS_BYTES_MAX as u64);
            return Err(ReplyDefect::Range { field: "terms", found, min: 1, max });
        }
        let terms: Terms = serde_json::from_slice(&reply.terms).map_err(|error| defect(&error))?;
        let dlrm = Dlrm::new(terms.model).map_err(|error| defect(&error))?;
        let (outline, dealer) = (terms.outline, terms.dealer);
        outline.check().map_err(|error| defect(&error))?;
        let spec = dlrm.spec();
        let follows = spec.features.iter().zip(dlrm.digits()).zip(&outline.lookups).all(
            |((feature, digits), lookup)| {
                let LookupOutline { rows, dim, .. } = *lookup;
                (rows, dim) == (feature.bag * digits.count(), spec.dim)
            },
        );
        if !follows || outline.lookups.len() != spec.features.len() || outline.dense != spec.dense {
            return Err(defect(&"an outline that is not its model's"));
        }
        let half = match reply.side {
            Some(0) => Half::Left,
            Some(1) => Half::Right,
            _ => return Err(defect(&"a side that is neither left nor right")),
        };
        let (name, software) = (text("name", reply.name)?, text("software", reply.software)?);
        let info = Self { name, version: found, plan, half, dlrm, dealer, outline, software };
        info.domains().map_err(|error| defect(&error))?;
        Ok(info)
    }
}

impl From<&SharesInfo> for wire::SharesInfoReply {
    fn from(info: &SharesInfo) -> Self {
        let (model, outline) = (info.dlrm.spec().clone(), info.outline.clone());
        let terms = Terms { model, outline, dealer: info.dealer };
        let terms = serde_json::to_vec(&terms).unwrap_or_default();
        Self {
            name: info.name.clone(),
            model_version: info.version.as_bytes().to_vec().into(),
            plan: info.plan.as_bytes().to_vec().into(),
            terms: terms.into(),
            side: Some(u32::from(info.half == Half::Right)),
            software: info.software.clone(),
        }
    }
}

/// The most that terms may take.
pub(super) const TERMS_BYTES_MAX: usize = 1 << 20;
