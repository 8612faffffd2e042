//! The server's half of lookups by rows: one table behind a scheduler.

use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::dpf::{self, Key};
use hushtable_table::Version;

use super::PairRefusal;
use super::engine::Checked;
use crate::batch::{Answered, Scheduler};
use crate::host::admission::Admission;
use crate::host::budget::{Reservation, origin_of};
use crate::schemes::versions::Uses;
use crate::wire::{AnswerReply, AnswerRequest};
use crate::{KeyDefect, Limit, Refusal, TableInfo};

/// A table behind a scheduler.
pub(crate) struct Rows {
    server: dpf::Server,
    info: TableInfo,
    version: Bytes,
    scheduler: Scheduler<dpf::Server>,
    /// What a pass for one key takes.
    scan: Duration,
    /// Bytes of the whole table in memory; none at a front.
    whole_bytes: u64,
    /// Who asks for it.
    pub uses: Uses,
}

impl Rows {
    pub fn new(
        Checked { server, scan }: Checked<dpf::Server>,
        info: TableInfo,
        scheduler: Scheduler<dpf::Server>,
        whole_bytes: u64,
    ) -> Self {
        let version = Bytes::copy_from_slice(server.version().as_bytes());
        Self { server, info, version, scheduler, scan, whole_bytes, uses: Uses::new() }
    }

    pub fn scan(&self) -> Duration {
        self.scan
    }

    pub fn version(&self) -> Version {
        self.server.version()
    }

    /// What takes memory, by version: the table, or its changed rows and the table below them.
    pub fn parts(&self) -> impl Iterator<Item = (Version, u64)> + use<> {
        let whole = self.whole_bytes;
        let (own, below) = match self.server.backend().below() {
            Some(below) => (below.changed_bytes, Some((below.version, whole))),
            None => (whole, None),
        };
        std::iter::once((self.version(), own)).chain(below)
    }

    pub fn info(&self) -> &TableInfo {
        &self.info
    }

    pub fn server(&self) -> &dpf::Server {
        &self.server
    }

    fn accept(&self, request: &AnswerRequest) -> Result<Vec<Key>, Refusal> {
        let (keys, keys_max) = (request.keys.len(), self.info.keys_per_request_max);
        if keys == 0 {
            return Err(PairRefusal::NoKeys.into());
        }
        if keys > keys_max {
            return Err(PairRefusal::TooManyKeys { keys, keys_max }.into());
        }
        request.keys.iter().enumerate().map(|(i, bytes)| self.accept_key(i, bytes)).collect()
    }

    fn accept_key(&self, key_index: usize, bytes: &[u8]) -> Result<Key, Refusal> {
        let key =
            self.server.accept(bytes).map_err(|error| PairRefusal::of_key(key_index, &error))?;
        let params = key.params();
        let group = params.domain.group();
        if !self.info.groups.contains(&group) {
            let accepted: Vec<_> = self.info.groups.iter().map(|group| group.name()).collect();
            let accepted = accepted.join(", ");
            let message =
                format!("this server takes keys of group {accepted}, not {}", group.name());
            return Err(PairRefusal::BadKey { key_index, defect: KeyDefect::Group, message }.into());
        }
        if !self.info.prgs.contains(&params.prg) {
            let accepted: Vec<_> = self.info.prgs.iter().map(|prg| prg.name()).collect();
            let message = format!("this server takes {}, not {}", accepted.join(", "), params.prg);
            return Err(PairRefusal::BadKey { key_index, defect: KeyDefect::Prg, message }.into());
        }
        Ok(key)
    }

    /// Answers a request that names this table.
    pub async fn answer(
        &self,
        request: AnswerRequest,
        reservation: Option<&Reservation>,
        admission: &Admission,
    ) -> Result<AnswerReply, Refusal> {
        let _using = self.uses.begin();
        let keys = self.accept(&request)?;
        // The wire's bytes are not needed any more; the parsed keys are counted in their place.
        drop(request);
        admission.hold(reservation, keys.len() * self.info.shape.row_bytes())?;
        let origin = origin_of(reservation);
        let Answered { answers, queued, answering } = self
            .scheduler
            .answer_from(origin, keys)
            .await
            .map_err(|error| error.refusal(Limit::QueueKeys))?;
        Ok(AnswerReply {
            table_version: self.version.clone(),
            answers: answers.into(),
            queue_us: Some(queued.as_micros() as u64),
            answer_us: Some(answering.as_micros() as u64),
            state: None,
        })
    }
}
