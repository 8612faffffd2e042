//! What clients of private retrieval share on the wire: what a refusal means to their machines, and what a
//! machine's failure is to the caller.

use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{CallFault, Place};
use hushtable_pir::client::{Answers, Failure, Reply};

use crate::error::{Error, Own};
use crate::peer::drive::Servers;
use crate::peer::endpoint::Peer;
use crate::peer::values::version_from_wire;
use crate::refusal::Refusal;

impl Peer {
    /// A server's answers, its times in microseconds and its state, as a machine takes them.
    pub fn answers(
        &self,
        version: &[u8],
        answers: Bytes,
        [queue, answer, state]: [Option<u64>; 3],
    ) -> Result<Reply, Error> {
        let version = version_from_wire(version).map_err(|defect| self.reply_error(defect))?;
        let [queue, answer] =
            [queue, answer].map(|us| Duration::from_micros(us.unwrap_or_default()));
        Ok(Reply::Answers(Answers { version, answers, queue, answer, state }))
    }
}

/// The one-server scheme's own errors: ids, keys, prepared files, responses.
impl Own for hushtable_pir::onion::Error {}

/// What a machine makes of a refusal.
pub(crate) fn fault(refusal: &Refusal) -> CallFault {
    match refusal {
        Refusal::VersionSkew { expected, .. } => {
            CallFault::Changed { found: Some(*expected.as_bytes()) }
        }
        Refusal::UnknownModel { .. } | Refusal::UnknownTable { .. } => {
            CallFault::Changed { found: None }
        }
        _ => CallFault::Other,
    }
}

/// A machine's failure, with the servers' addresses; `setting` says what bounds a lookup, and where it is set.
pub(crate) fn error(failure: Failure, servers: &Servers, setting: &'static str) -> Error {
    let [left, right] = Place::PAIR.map(|place| servers.url(place));
    match failure {
        Failure::Timeout { place, after } => Error::Timeout { url: servers.url(place), after },
        Failure::Reply { place, defect } => servers.peer(place).reply_error(defect),
        Failure::SidesSwapped => Error::SidesSwapped { left, right },
        Failure::SameSide { side } => Error::SameSide { left, right, side },
        Failure::TablesDiffer { versions: [left_version, right_version] } => {
            Error::TablesDiffer { left, left_version, right, right_version }
        }
        Failure::AnnouncementsDiffer { field } => Error::AnnouncementsDiffer { left, right, field },
        Failure::LayoutsDiffer { versions } => Error::LayoutsDiffer { left, right, versions },
        Failure::NoLayout => Error::NoLayout { left, right },
        Failure::LayoutBytes { place, bytes, bytes_max } => {
            Error::LayoutBytes { url: servers.url(place), bytes, bytes_max }
        }
        Failure::Prg { place, prg, accepted } => {
            Error::Prg { url: servers.url(place), prg, accepted }
        }
        Failure::MaxIds { max_ids, keys_max } => Error::MaxIds { max_ids, keys_max, setting },
        Failure::VersionMismatch { expected, found } => {
            Error::VersionMismatch { urls: servers.urls(), expected, found }
        }
        Failure::ModelUnserved { place, model, models } => {
            Error::ModelUnserved { url: servers.url(place), model, models }
        }
        Failure::ModelsDiffer { model, versions } => {
            Error::ModelsDiffer { left, right, model, versions: Box::new(versions) }
        }
        Failure::Model(error) => Error::Manifest(error),
        Failure::FeatureTwice { feature } => Error::FeatureTwice { feature },
        Failure::FeatureIds { feature, ids, max_ids } => {
            Error::FeatureIds { feature, ids, max_ids }
        }
        Failure::FeatureIdRange { feature, id, rows } => {
            Error::FeatureIdRange { feature, id, rows }
        }
        Failure::Pir(error) => Error::Pir(error),
        Failure::Onion(error) => error.into(),
        Failure::Bag(error) => Error::Bag(error),
        other => Error::Client { reason: other.to_string() },
    }
}
