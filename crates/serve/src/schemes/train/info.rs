//! What a training server says of itself and of its rounds, as types.

use bytes::Bytes;
use hushtable_oram::round::RoundReport;
use hushtable_oram::rounds::RoundStage;
use hushtable_oram::wire::{PublicKey, RefusedReason, Terms};

pub use hushtable_oram::session::Announced as TrainInfo;

use crate::wire::{FinishReply, StepTime, TrainInfoReply};
use crate::{ReplyDefect, wire};

const STAGES: [(RoundStage, wire::RoundStage); 4] = [
    (RoundStage::Requests, wire::RoundStage::Requests),
    (RoundStage::Beginning, wire::RoundStage::Beginning),
    (RoundStage::Serving, wire::RoundStage::Serving),
    (RoundStage::Finishing, wire::RoundStage::Finishing),
];

fn stage_to_wire(stage: RoundStage) -> wire::RoundStage {
    let found = STAGES.iter().find(|(known, _)| *known == stage);
    found.map_or(wire::RoundStage::None, |(_, wire)| *wire)
}

fn stage_of_wire(number: i32) -> Result<Option<RoundStage>, ReplyDefect> {
    if number == wire::RoundStage::None as i32 {
        return Ok(None);
    }
    let found = STAGES.iter().find(|(_, wire)| *wire as i32 == number);
    found.map(|(stage, _)| Some(*stage)).ok_or_else(|| ReplyDefect::Other {
        reason: format!("stage {number} of a round is unknown"),
    })
}

impl From<&TrainInfo> for TrainInfoReply {
    fn from(info: &TrainInfo) -> Self {
        let [users, requested, uploaded] = info.users.map(|count| count as u32);
        Self {
            terms: Bytes::copy_from_slice(info.terms.text()),
            public_key: Bytes::copy_from_slice(info.public_key.as_bytes()),
            rounds: info.rounds,
            round: info.open.map_or(0, |(round, _)| round),
            stage: info.open.map_or(wire::RoundStage::None, |(_, stage)| stage_to_wire(stage))
                as i32,
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
        let terms = Terms::read(&reply.terms).map_err(sealed)?;
        let stage = stage_of_wire(reply.stage)?;
        Ok(Self {
            terms,
            public_key: PublicKey::from_bytes(&reply.public_key).map_err(sealed)?,
            rounds: reply.rounds,
            open: stage.map(|stage| (reply.round, stage)),
            users: [reply.users, reply.requested, reply.uploaded].map(|count| count as usize),
            software: reply.software,
        })
    }
}

const REASONS: [(RefusedReason, wire::RefusedReason); RefusedReason::ALL.len()] = [
    (RefusedReason::Failed, wire::RefusedReason::Failed),
    (RefusedReason::Place, wire::RefusedReason::Place),
    (RefusedReason::Order, wire::RefusedReason::Order),
    (RefusedReason::Repeated, wire::RefusedReason::Repeated),
    (RefusedReason::NotOpened, wire::RefusedReason::NotOpened),
    (RefusedReason::Enrolment, wire::RefusedReason::Enrolment),
    (RefusedReason::Ids, wire::RefusedReason::Ids),
    (RefusedReason::Seated, wire::RefusedReason::Seated),
    (RefusedReason::NotFinite, wire::RefusedReason::NotFinite),
    (RefusedReason::Weight, wire::RefusedReason::Weight),
];

/// A byte for each place, so that the size of a reply says nothing of who was refused.
fn refused_to_wire(report: &RoundReport) -> Vec<i32> {
    let mut all = vec![wire::RefusedReason::None as i32; report.users];
    for &(user, reason) in &report.refused {
        let sent = REASONS.iter().find(|(known, _)| *known == reason);
        if let (Some(place), Some((_, sent))) = (all.get_mut(user as usize), sent) {
            *place = *sent as i32;
        }
    }
    all
}

fn refused_of_wire(all: &[i32]) -> Vec<(u32, RefusedReason)> {
    let is_refused = |&(_, number): &(u32, &i32)| *number != wire::RefusedReason::None as i32;
    let reason = |number: i32| {
        let found = REASONS.iter().find(|(_, sent)| *sent as i32 == number);
        // What a later server may say: that it is one is all that is known here.
        found.map_or(RefusedReason::Failed, |(reason, _)| *reason)
    };
    let places = (0..).zip(all).filter(is_refused);
    places.map(|(user, &number)| (user, reason(number))).collect()
}

/// What no sealed message can be bound to.
fn sealed(error: hushtable_oram::wire::Error) -> ReplyDefect {
    ReplyDefect::Other { reason: error.to_string() }
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
            refused: refused_to_wire(report),
        }
    }
}

impl From<FinishReply> for RoundReport {
    fn from(reply: FinishReply) -> Self {
        let refused = refused_of_wire(&reply.refused);
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
            refused,
        }
    }
}
