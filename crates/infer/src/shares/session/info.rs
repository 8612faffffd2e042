//! What a server says of its model, checked before anything secret leaves the client.

use bytes::Bytes;
use hushtable_pir::dpf::{Domain, Group};
use hushtable_table::Version;
use serde::{Deserialize, Serialize};

use crate::dlrm::{self, Dlrm, DlrmSpec, TermsTooLong, check_terms_bytes};
use crate::shares::{DealtBy, Error, Half, LookupOutline, Outline};

/// What a server announces, as it came.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Announced {
    /// The model's name.
    pub name: String,
    /// The server's software.
    pub software: String,
    /// The model's version.
    pub version: Version,
    /// The plan's hash.
    pub plan: Version,
    /// Which of the two servers it is: 0 for left, 1 for right.
    pub side: Option<u32>,
    /// The terms, in their own format.
    pub terms: Bytes,
}

/// What a server computes, and what a client must know of it.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Info {
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

/// What both servers of a plan announce alike.
#[derive(Clone, Debug, PartialEq)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct Terms {
    /// The architecture.
    pub dlrm: Dlrm,
    /// Who deals.
    pub dealer: DealtBy,
    /// Sizes of what is dealt.
    pub outline: Outline,
}

/// The terms as they travel.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct WrittenTerms {
    model: DlrmSpec,
    outline: Outline,
    /// Left out where it is the client.
    #[serde(default, skip_serializing_if = "is_client")]
    dealer: DealtBy,
}

fn is_client(dealer: &DealtBy) -> bool {
    *dealer == DealtBy::Client
}

/// What does not fit in an announcement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InfoDefect {
    /// Terms that are too long to be any.
    #[error(transparent)]
    TermsTooLong(#[from] TermsTooLong),
    /// Terms that are none.
    #[error(transparent)]
    Terms(serde_json::Error),
    /// A model that cannot be.
    #[error(transparent)]
    Model(dlrm::Error),
    /// An outline that no model has.
    #[error(transparent)]
    Outline(Error),
    /// An outline of another model.
    #[error("an outline that is not its model's")]
    OtherOutline,
    /// A side that there is not.
    #[error("a side that is neither left nor right")]
    Side,
    /// A table of too many rows.
    #[error(transparent)]
    Rows(hushtable_pir::Error),
}

impl Terms {
    /// Reads and checks terms.
    ///
    /// # Errors
    /// [`InfoDefect`] for what no model has, or for an outline of another one.
    fn parse(bytes: &[u8]) -> Result<Self, InfoDefect> {
        check_terms_bytes(bytes)?;
        let written: WrittenTerms = serde_json::from_slice(bytes).map_err(InfoDefect::Terms)?;
        let WrittenTerms { model, outline, dealer } = written;
        let dlrm = Dlrm::new(model).map_err(InfoDefect::Model)?;
        outline.check().map_err(InfoDefect::Outline)?;
        let spec = dlrm.spec();
        let follows = spec.features.iter().zip(dlrm.digits()).zip(&outline.lookups).all(
            |((feature, digits), lookup)| {
                let LookupOutline { rows, dim, .. } = *lookup;
                (rows, dim) == (feature.bag * digits.count(), spec.dim)
            },
        );
        if !follows || outline.lookups.len() != spec.features.len() || outline.dense != spec.dense {
            return Err(InfoDefect::OtherOutline);
        }
        Ok(Self { dlrm, dealer, outline })
    }
}

impl Info {
    /// What a server of this half, model and plan says.
    pub fn new(
        name: String,
        version: Version,
        plan: Version,
        half: Half,
        terms: Terms,
        software: String,
    ) -> Self {
        let Terms { dlrm, dealer, outline } = terms;
        Self { name, version, plan, half, dlrm, dealer, outline, software }
    }

    /// Holds an announcement against what follows from its terms.
    ///
    /// # Errors
    /// [`InfoDefect`] for what cannot be, or does not follow.
    pub fn check(announced: Announced) -> Result<Self, InfoDefect> {
        let Announced { name, software, version, plan, side, terms } = announced;
        let terms = Terms::parse(&terms)?;
        let half = match side {
            Some(0) => Half::Left,
            Some(1) => Half::Right,
            _ => return Err(InfoDefect::Side),
        };
        let info = Self::new(name, version, plan, half, terms, software);
        info.domains().map_err(InfoDefect::Rows)?;
        Ok(info)
    }

    /// What a server of this says.
    pub fn announced(&self) -> Announced {
        let (model, outline) = (self.dlrm.spec().clone(), self.outline.clone());
        let terms = WrittenTerms { model, outline, dealer: self.dealer };
        Announced {
            name: self.name.clone(),
            software: self.software.clone(),
            version: self.version,
            plan: self.plan,
            side: Some(u32::from(self.half == Half::Right)),
            terms: serde_json::to_vec(&terms).unwrap_or_default().into(),
        }
    }

    /// Whether another server announces the same terms.
    pub(super) fn has_terms_of(&self, other: &Self) -> bool {
        (&self.outline, self.dealer) == (&other.outline, other.dealer) && self.dlrm == other.dlrm
    }

    /// The domain of each feature's lookup keys.
    ///
    /// # Errors
    /// [`hushtable_pir::Error`] for a table of too many rows.
    pub fn domains(&self) -> Result<Vec<Domain>, hushtable_pir::Error> {
        let rows = self.dlrm.spec().features.iter().zip(self.dlrm.digits());
        let rows = rows.map(|(it, digits)| digits.slots() as u64 + u64::from(it.bag > 1));
        rows.map(|rows| Domain::new(rows, Group::Bits)).collect()
    }

    /// Lookup keys of one inference.
    pub fn key_count(&self) -> usize {
        self.outline.lookups.iter().map(|it| it.rows).sum()
    }

    /// Bytes that a client sends for one inference, to both servers together, beside its lookup
    /// keys.
    pub fn up_bytes(&self) -> usize {
        match self.dealer {
            DealtBy::Client => self.outline.up_bytes(),
            DealtBy::Servers => {
                [Half::Left, Half::Right].map(|half| self.outline.dense_bytes(half)).iter().sum()
            }
        }
    }
}
