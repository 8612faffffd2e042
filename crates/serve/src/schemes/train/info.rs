//! What a training server says of itself and of its rounds, as types.

use bytes::Bytes;
use hushtable_oram::round::RoundReport;
use hushtable_oram::wire::{Pin, PublicKey, Terms};

use crate::wire::{FinishReply, StepTime, TrainInfoReply};
use crate::{ReplyDefect, wire};

/// What a training server announces.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct TrainInfo {
    /// What is trained, and how.
    pub terms: Terms,
    /// What requests are sealed to.
    pub public_key: PublicKey,
    /// Rounds committed.
    pub rounds: u64,
    /// The open round, with what it is doing; None where there is none.
    pub open: Option<(u64, RoundStage)>,
    /// Places, requests taken and uploads taken of the open round.
    pub users: [usize; 3],
    /// The server's software.
    pub software: String,
}

impl TrainInfo {
    /// The pin of the controller that was announced. It proves nothing that came with it: users are
    /// given theirs by somebody other than the operator.
    pub fn pin(&self) -> Pin {
        Pin::new(self.public_key, &self.terms)
    }

    /// How a round's number of accesses is drawn: a word, or one word with settings.
    pub fn mechanism(&self) -> String {
        match serde_json::to_value(self.terms.spec().fdp.mechanism) {
            Ok(serde_json::Value::String(name)) => name,
            Ok(settings) => settings.to_string(),
            Err(_) => String::new(),
        }
    }
}

/// What an open round is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RoundStage {
    /// Requests are taken.
    Requests,
    /// The memory fetches the rows.
    Beginning,
    /// Rows are given and uploads taken.
    Serving,
    /// The memory writes the updated rows.
    Finishing,
}

impl RoundStage {
    const ALL: [(Self, wire::RoundStage, &'static str); 4] = [
        (Self::Requests, wire::RoundStage::Requests, "requests"),
        (Self::Beginning, wire::RoundStage::Beginning, "beginning"),
        (Self::Serving, wire::RoundStage::Serving, "serving"),
        (Self::Finishing, wire::RoundStage::Finishing, "finishing"),
    ];

    /// As text: `requests`, `beginning`, `serving` or `finishing`.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(stage, ..)| *stage == self).map_or("", |(_, _, name)| name)
    }

    fn to_wire(self) -> wire::RoundStage {
        let found = Self::ALL.iter().find(|(stage, ..)| *stage == self);
        found.map_or(wire::RoundStage::None, |(_, wire, _)| *wire)
    }

    fn of_wire(number: i32) -> Result<Option<Self>, ReplyDefect> {
        if number == wire::RoundStage::None as i32 {
            return Ok(None);
        }
        let found = Self::ALL.iter().find(|(_, wire, _)| *wire as i32 == number);
        found.map(|(stage, ..)| Some(*stage)).ok_or(ReplyDefect::Stage { found: number })
    }
}

impl From<&TrainInfo> for TrainInfoReply {
    fn from(info: &TrainInfo) -> Self {
        let [users, requested, uploaded] = info.users.map(|count| count as u32);
        Self {
            terms: Bytes::copy_from_slice(info.terms.text()),
            public_key: Bytes::copy_from_slice(info.public_key.as_bytes()),
            rounds: info.rounds,
            round: info.open.map_or(0, |(round, _)| round),
            stage: info.open.map_or(wire::RoundStage::None, |(_, stage)| stage.to_wire()) as i32,
            users,
            requested,
            uploaded,
            software: info.software.clone(),
        }
    }
}

impl TryFrom<TrainInfoReply> for TrainInfo {
    type Error = ReplyDefect;

    fn try_from(reply: TrainInfoReply) -> Result<Self, ReplyDefect> {
        // What messages cannot be bound to is found now, not at the first request.
        let terms = Terms::read(&reply.terms)?;
        let stage = RoundStage::of_wire(reply.stage)?;
        Ok(Self {
            terms,
            public_key: PublicKey::from_bytes(&reply.public_key)?,
            rounds: reply.rounds,
            open: stage.map(|stage| (reply.round, stage)),
            users: [reply.users, reply.requested, reply.uploaded].map(|count| count as usize),
            software: reply.software,
        })
    }
}

impl From<&RoundReport> for FinishReply {
    fn from(report: &RoundReport) -> Self {
        let step = |(step, us): &(String, u64)| StepTime { step: step.clone(), us: Some(*us) };
        Self {
            round: Some(report.round),
            rounds: Some(report.rounds),
            users: Some(report.users as u32),
            requested: Some(report.requested as u32),
            uploaded: Some(report.uploaded as u32),
            requests: Some(report.requests),
            accesses: Some(report.accesses),
            read_bytes: Some(report.read_bytes),
            written_bytes: Some(report.written_bytes),
            journal_bytes: Some(report.journal_bytes),
            steps_us: report.steps_us.iter().map(step).collect(),
        }
    }
}

impl From<FinishReply> for RoundReport {
    fn from(reply: FinishReply) -> Self {
        let step = |step: StepTime| (step.step, step.us.unwrap_or(0));
        Self {
            round: reply.round.unwrap_or(0),
            rounds: reply.rounds.unwrap_or(0),
            users: reply.users.unwrap_or(0) as usize,
            requested: reply.requested.unwrap_or(0) as usize,
            uploaded: reply.uploaded.unwrap_or(0) as usize,
            requests: reply.requests.unwrap_or(0),
            accesses: reply.accesses.unwrap_or(0),
            read_bytes: reply.read_bytes.unwrap_or(0),
            written_bytes: reply.written_bytes.unwrap_or(0),
            journal_bytes: reply.journal_bytes.unwrap_or(0),
            steps_us: reply.steps_us.into_iter().map(step).collect(),
        }
    }
}
