//! What a server says of its model and plan, checked before anything secret leaves the client.

use bytes::Bytes;
use hushtable_rlwe::ring::Platform;
use hushtable_table::Version;

use crate::dlrm::{Error, Terms, TermsTooLong, check_terms_bytes};

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
    /// The plan's terms, in their own format.
    pub terms: Bytes,
    /// Bytes of a client's keys.
    pub key_bytes: u64,
    /// Bytes of one query.
    pub query_bytes: u64,
    /// Bytes of one answer.
    pub answer_bytes: u64,
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
    /// Parameters, layout, sizes: all that a client goes by.
    pub terms: Terms,
    /// The server's software.
    pub software: String,
    key_bytes: usize,
}

/// What does not fit in an announcement.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum InfoDefect {
    /// Terms that are too long to be any.
    #[error(transparent)]
    TermsTooLong(#[from] TermsTooLong),
    /// Terms that no plan has.
    #[error(transparent)]
    Terms(Error),
    /// Terms of another plan than the announced.
    #[error("terms of plan {found}, where {announced} was announced")]
    OtherPlan {
        /// What was announced.
        announced: Version,
        /// What the terms hash to.
        found: Version,
    },
    /// A size that does not follow from the terms.
    #[error("{found} {what}, where the terms make it {expected}")]
    Size {
        /// What is measured.
        what: &'static str,
        /// What the terms make it.
        expected: u64,
        /// What was announced.
        found: u64,
    },
}

impl Info {
    /// What a server of this model and these terms says.
    ///
    /// # Errors
    /// [`Error::Ckks`] for terms whose keys cannot be.
    pub fn new(
        name: String,
        version: Version,
        terms: Terms,
        software: String,
    ) -> Result<Self, Error> {
        let (plan, key_bytes) = (Version::from(terms.plan()), terms.key_bytes()?);
        Ok(Self { name, version, plan, terms, software, key_bytes })
    }

    /// Holds an announcement against what follows from its terms. The terms themselves are checked field by field,
    /// and against the security of 128 bits.
    ///
    /// # Errors
    /// [`InfoDefect`] for what cannot be, or does not follow.
    pub fn check(announced: Announced) -> Result<Self, InfoDefect> {
        let Announced { name, software, version, plan, terms, .. } = announced;
        check_terms_bytes(&terms)?;
        let terms = Terms::parse(&terms, Platform::detect()).map_err(InfoDefect::Terms)?;
        let info = Self::new(name, version, terms, software).map_err(InfoDefect::Terms)?;
        if info.plan != plan {
            return Err(InfoDefect::OtherPlan { announced: plan, found: info.plan });
        }
        for (what, expected, found) in [
            ("bytes of keys", info.key_bytes(), announced.key_bytes),
            ("bytes of a query", info.query_bytes(), announced.query_bytes),
            ("bytes of an answer", info.answer_bytes(), announced.answer_bytes),
        ] {
            let expected = expected as u64;
            if expected != found {
                return Err(InfoDefect::Size { what, expected, found });
            }
        }
        Ok(info)
    }

    /// What a server of this says.
    pub fn announced(&self) -> Announced {
        Announced {
            name: self.name.clone(),
            software: self.software.clone(),
            version: self.version,
            plan: self.plan,
            terms: self.terms.to_bytes().into(),
            key_bytes: self.key_bytes() as u64,
            query_bytes: self.query_bytes() as u64,
            answer_bytes: self.answer_bytes() as u64,
        }
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
}
