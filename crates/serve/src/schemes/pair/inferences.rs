//! The server's half of whole inferences of a model: all its features' keys in one request.

use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::PrgKind;
use hushtable_pir::model::{Feature, Inference, Server};
use hushtable_table::Version;
use hushtable_table::model::ModelManifest;

use super::PairRefusal;
use super::bags;
use crate::batch::{Answered, Scheduler};
use crate::host::admission::Admission;
use crate::host::budget::{Reservation, origin_of};
use crate::peer::values::microseconds;
use crate::schemes::versions::Uses;
use crate::wire::{AnswerModelReply, AnswerModelRequest, ModelInfo};
use crate::{KeyDefect, Limit, Refusal};

/// A model behind a scheduler.
pub(crate) struct Inferences {
    server: Server,
    manifest: ModelManifest,
    info: ModelInfo,
    version: Bytes,
    prgs: Vec<PrgKind>,
    scheduler: Scheduler<Server>,
    /// Who asks for it.
    pub uses: Uses,
}

impl Inferences {
    pub fn new(
        server: Server,
        manifest: ModelManifest,
        prgs: Vec<PrgKind>,
        window: Duration,
        request_bytes_max: usize,
        scheduler: Scheduler<Server>,
    ) -> Self {
        let version = Bytes::copy_from_slice(manifest.version().as_bytes());
        let info = ModelInfo {
            name: manifest.name().to_owned(),
            versions: vec![version.clone()],
            manifest: manifest.to_json().into(),
            window_us: microseconds(window),
            request_bytes_max: request_bytes_max as u64,
        };
        Self { server, manifest, info, version, prgs, scheduler, uses: Uses::new() }
    }

    pub fn version(&self) -> Version {
        self.manifest.version()
    }

    /// What catalogs say of the model.
    pub fn info(&self) -> &ModelInfo {
        &self.info
    }

    fn accept(&self, parts: Vec<Bytes>) -> Result<Inference, Refusal> {
        let feature = |number: usize| self.manifest.features()[number].name.clone();
        let inference =
            self.server.accept(parts).map_err(|error| PairRefusal::of_part(&error, feature))?;
        let unknown = inference.prgs().find(|(_, prg)| !self.prgs.contains(prg));
        if let Some((number, prg)) = unknown {
            let accepted: Vec<_> = self.prgs.iter().map(|prg| prg.name()).collect();
            let (name, accepted) = (feature(number), accepted.join(", "));
            let message = format!("feature {name:?}: this server takes {accepted}, not {prg}");
            return Err(PairRefusal::BadBag { defect: KeyDefect::Prg, message }.into());
        }
        Ok(inference)
    }

    /// Answers a request that names this model.
    pub async fn answer(
        &self,
        request: AnswerModelRequest,
        reservation: Option<&Reservation>,
        admission: &Admission,
    ) -> Result<AnswerModelReply, Refusal> {
        let _using = self.uses.begin();
        let inference = self.accept(request.parts)?;
        admission.hold(reservation, held_bytes(self.server.features()))?;
        let origin = origin_of(reservation);
        let Answered { answers, queued, answering } = self
            .scheduler
            .answer_from(origin, vec![inference])
            .await
            .map_err(|error| error.refusal(Limit::QueueBags))?;
        Ok(AnswerModelReply {
            model_version: self.version.clone(),
            answers: answers.into(),
            queue_us: Some(microseconds(queued)),
            answer_us: Some(microseconds(answering)),
            state: None,
        })
    }
}

/// Bytes that an inference holds beside its request's: root seeds and answers.
fn held_bytes(features: &[Feature]) -> usize {
    let held = features.iter().map(|feature| match feature {
        Feature::Rows { .. } => feature.answer_bytes(),
        Feature::Bins(server) => bags::held_bytes(server.backend().geometry()),
    });
    held.sum()
}
