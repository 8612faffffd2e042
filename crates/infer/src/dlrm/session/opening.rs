//! How a client comes to a server that computes by its plan.

use std::sync::Arc;

use hushtable_client::{Bell, Place, Round, RoundOf, Script, Tally, Uploads};

use super::call::{Call, Failure, Inference, Progress, Reply};
use super::held::{Session, SessionSpec};
use super::info::Info;
use crate::dlrm::Client;

/// Asks a server what it computes, and makes keys for that, where there are none yet.
pub(super) struct InferOpening {
    spec: SessionSpec,
    progress: Option<Progress>,
    bell: Bell,
    known: Option<Arc<Session>>,
    has_asked: bool,
}

impl InferOpening {
    pub fn new(
        spec: SessionSpec,
        progress: Option<Progress>,
        bell: Bell,
        known: Option<&Arc<Session>>,
    ) -> Self {
        Self { spec, progress, bell, known: known.cloned(), has_asked: false }
    }
}

impl Script for InferOpening {
    type Protocol = Inference;
    type Output = Session;

    fn next(&mut self, replies: Vec<Reply>, _: Tally) -> RoundOf<Inference, Session> {
        if !std::mem::replace(&mut self.has_asked, true) {
            return Ok(Round::Ask(vec![(Place::Single, Call::Info)]));
        }
        let Some(Reply::Info(announced)) = replies.into_iter().next() else {
            return Err(Failure::OtherCall);
        };
        let info = Info::check(*announced)?;
        let (found, pin) = (info.version, self.spec.version);
        if let Some(expected) = pin.filter(|&expected| expected != found) {
            return Err(Failure::VersionMismatch { expected, found });
        }
        let (info, client) = match &self.known {
            Some(known) if (known.info.version, known.info.plan) == (found, info.plan) => {
                (Arc::clone(&known.info), Arc::clone(&known.client))
            }
            Some(known) => {
                return Err(Failure::VersionMismatch { expected: known.info.version, found });
            }
            None => {
                let (bytes, bytes_max) = (info.key_bytes() as u64, self.spec.key_bytes_max);
                if bytes > bytes_max {
                    return Err(Failure::KeyBytes { bytes, bytes_max });
                }
                let client = Client::new(info.terms.clone())?;
                (Arc::new(info), Arc::new(client))
            }
        };
        let (uploads, upload_max) = (Uploads::new(self.bell.clone()), self.spec.upload_max);
        Ok(Round::Done(Session {
            info,
            client,
            uploads,
            upload_max,
            progress: self.progress.clone(),
        }))
    }

    fn computes(&self) -> bool {
        self.has_asked
    }
}
