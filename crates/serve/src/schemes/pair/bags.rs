//! The server's half of whole inferences: the layout it hands out, and the keys it answers.

use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::PrgKind;
use hushtable_pir::batch::{self, BatchKeys, Geometry};
use hushtable_table::Version;
use hushtable_table::layout::Layout;
use tonic::Status;
use tonic::codegen::tokio_stream;

use super::PairRefusal;
use crate::LayoutInfo;
use crate::batch::{Answered, Scheduler};
use crate::host::admission::Admission;
use crate::host::budget::{Reservation, origin_of};
use crate::schemes::versions::Uses;
use crate::wire::{AnswerBagsReply, AnswerBagsRequest, LayoutChunk};
use crate::{KeyDefect, Limit, Refusal};

/// A layout's bins behind a scheduler.
pub(crate) struct Bags {
    server: batch::Server,
    layout: Bytes,
    version: Bytes,
    prgs: Vec<PrgKind>,
    window: Duration,
    bags_per_request_max: usize,
    scheduler: Scheduler<batch::Server>,
    stored_bytes: u64,
    /// Who asks for it.
    pub uses: Uses,
}

/// A layout on its way to a client.
pub(crate) type LayoutStream = tokio_stream::Iter<Chunks>;

impl Bags {
    pub fn new(
        server: batch::Server,
        layout: &Layout,
        prgs: Vec<PrgKind>,
        window: Duration,
        bags_per_request_max: usize,
        scheduler: Scheduler<batch::Server>,
        stored_bytes: u64,
    ) -> Self {
        let version = Bytes::copy_from_slice(layout.version().as_bytes());
        let (layout, uses) = (layout.to_bytes().into(), Uses::new());
        Self {
            server,
            layout,
            version,
            prgs,
            window,
            bags_per_request_max,
            scheduler,
            stored_bytes,
            uses,
        }
    }

    pub fn version(&self) -> Version {
        self.geometry().version()
    }

    /// Bytes in memory.
    pub fn stored_bytes(&self) -> u64 {
        self.stored_bytes
    }

    pub fn server(&self) -> &batch::Server {
        &self.server
    }

    /// What table infos say of the layout.
    pub fn info(&self) -> LayoutInfo {
        LayoutInfo {
            version: self.geometry().version(),
            bytes: self.layout.len() as u64,
            window: self.window,
            bags_per_request_max: self.bags_per_request_max,
        }
    }

    fn geometry(&self) -> &Geometry {
        self.server.backend().geometry()
    }

    /// The layout in chunks; what they hold on their way counts against the budget.
    pub fn layout(
        &self,
        reservation: Option<&Reservation>,
        admission: &Admission,
    ) -> Result<LayoutStream, Refusal> {
        self.uses.note();
        admission.hold(reservation, STREAM_BYTES)?;
        Ok(tokio_stream::iter(Chunks(self.layout.clone())))
    }

    /// How many inferences are in so many bytes of keys. What makes none is for the parser to name.
    fn count(&self, bytes: usize) -> Result<usize, Refusal> {
        let one = self.geometry().request_bytes(self.server.side());
        let bags_max = self.bags_per_request_max;
        match bytes / one {
            bags if !bytes.is_multiple_of(one) || bags == 0 => Ok(1),
            bags if bags > bags_max => Err(PairRefusal::TooManyBags { bags, bags_max }.into()),
            bags => Ok(bags),
        }
    }

    fn accept(&self, keys: Bytes) -> Result<BatchKeys, Refusal> {
        let keys = self.server.accept(keys.into()).map_err(|e| PairRefusal::of_bag(&e))?;
        if !self.prgs.contains(&keys.prg()) {
            let accepted: Vec<_> = self.prgs.iter().map(|prg| prg.name()).collect();
            let message = format!("this server takes {}, not {}", accepted.join(", "), keys.prg());
            return Err(PairRefusal::BadBag { defect: KeyDefect::Prg, message }.into());
        }
        Ok(keys)
    }

    /// Answers a request that names this layout.
    pub async fn answer(
        &self,
        request: AnswerBagsRequest,
        reservation: Option<&Reservation>,
        admission: &Admission,
    ) -> Result<AnswerBagsReply, Refusal> {
        let _using = self.uses.begin();
        let bags = self.count(request.keys.len())?;
        admission.hold(reservation, bags * held_bytes(self.geometry()))?;
        let mut keys = Vec::with_capacity(bags);
        let mut rest = request.keys;
        let one = rest.len() / bags;
        for _ in 0..bags {
            keys.push(self.accept(rest.split_to(one))?);
        }
        let origin = origin_of(reservation);
        let Answered { answers, queued, answering } = self
            .scheduler
            .answer_from(origin, keys)
            .await
            .map_err(|error| error.refusal(Limit::QueueBags))?;
        Ok(AnswerBagsReply {
            layout_version: self.version.clone(),
            answers: answers.into(),
            queue_us: Some(queued.as_micros() as u64),
            answer_us: Some(answering.as_micros() as u64),
            state: None,
        })
    }
}

/// Bytes that an inference holds beside its request's: root seeds and answer.
pub(crate) fn held_bytes(geometry: &Geometry) -> usize {
    16 * geometry.keys() + geometry.answer_bytes()
}

/// A layout's chunks.
pub(crate) struct Chunks(Bytes);

impl Iterator for Chunks {
    type Item = Result<LayoutChunk, Status>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let bytes = self.0.split_to(CHUNK_BYTES.min(self.0.len()));
        Some(Ok(LayoutChunk { bytes }))
    }
}

const CHUNK_BYTES: usize = 256 << 10;
/// What a layout on its way holds: the chunk that is encoded, and the buffer of its connection.
pub(crate) const STREAM_BYTES: usize = 2 * CHUNK_BYTES;
