//! One inference of a model: the keys of all its features in one message to each server.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hushtable_client::{Script, Tally};
use hushtable_table::layout::Plan;
use hushtable_table::model::Feature;

use super::model::Session;
use super::table::{Inference, PairTable, pair_of};
use super::{
    Answers, Call, Failure, FeatureRows, LookupStats, ModelRows, Place, Reply, Retrieval, Round,
};
use crate::dpf::{self, Side};
use crate::{Error as Pir, batch};

/// An inference within a session.
pub(super) struct InferenceScript {
    session: Arc<Session>,
    calls: Vec<(Place, Call)>,
    /// One for each feature, in the manifest's order.
    parts: Vec<Part>,
    /// The features that were asked for, in the caller's order.
    asked: Vec<usize>,
}

/// A feature's part of an inference.
struct Part {
    pending: Pending,
    answer_bytes: usize,
    /// Ids asked for.
    ids: usize,
}

enum Pending {
    Rows(dpf::Pending),
    Bag(Box<(Plan, batch::Pending)>),
}

impl InferenceScript {
    pub fn new(
        session: &Arc<Session>,
        asked: &[(String, Vec<u64>)],
        random: u64,
    ) -> Result<Self, Failure> {
        let manifest = &session.facts.manifest;
        let features = manifest.features();
        let mut ids_of: Vec<Option<&[u64]>> = vec![None; features.len()];
        let mut order = Vec::with_capacity(asked.len());
        for (name, ids) in asked {
            let index = manifest.find_feature(name)?;
            if ids_of[index].replace(ids).is_some() {
                return Err(Failure::FeatureTwice { feature: name.clone() });
            }
            order.push(index);
        }
        let mut keys = [Vec::with_capacity(features.len()), Vec::with_capacity(features.len())];
        let mut parts = Vec::with_capacity(features.len());
        for (index, (feature, ids)) in features.iter().zip(ids_of).enumerate() {
            let table = &session.tables[feature.table];
            let ids = ids.unwrap_or_default();
            check_ids(feature, table, ids)?;
            let (part, [left, right]) = Part::make(feature, table, ids, random ^ index as u64)?;
            keys[0].push(left);
            keys[1].push(right);
            parts.push(part);
        }
        let version = manifest.version();
        let answer_bytes = parts.iter().map(|part| part.answer_bytes).sum();
        let call = |parts| Call::AnswerModel { version, parts, answer_bytes };
        let calls = Place::PAIR.into_iter().zip(keys.map(call)).collect();
        Ok(Self { session: Arc::clone(session), calls, parts, asked: order })
    }

    fn read(&self, answers: [Answers; 2], tally: Tally) -> Result<ModelRows, Failure> {
        let version = self.session.facts.version();
        let [left, right] = &answers;
        if left.version != right.version {
            let [left, right] = [left, right].map(|answers| answers.version);
            return Err(Pir::VersionMismatch { left, right }.into());
        }
        if left.version != version {
            let (expected, found) = (version, left.version);
            return Err(Pir::VersionChanged { side: Side::Left, expected, found }.into());
        }
        let expected = self.parts.iter().map(|part| part.answer_bytes).sum();
        for found in answers.each_ref().map(|answers| answers.answers.len()) {
            if found != expected {
                return Err(Pir::AnswerBytes { expected, found }.into());
            }
        }
        let mut starts = Vec::with_capacity(self.parts.len());
        let mut end = 0;
        for part in &self.parts {
            starts.push(end);
            end += part.answer_bytes;
        }
        let features = self.asked.iter().map(|&index| {
            let (part, start) = (&self.parts[index], starts[index]);
            let shares = answers
                .each_ref()
                .map(|answers| &answers.answers[start..start + part.answer_bytes]);
            part.rows(index, &self.session, shares)
        });
        Ok(ModelRows {
            features: features.collect::<Result<_, _>>()?,
            facts: Arc::clone(&self.session.facts),
            stats: LookupStats::of(version, &answers, tally),
        })
    }
}

impl Script for InferenceScript {
    type Protocol = Retrieval;
    type Output = ModelRows;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> Result<Round<ModelRows>, Failure> {
        match self.calls.is_empty() {
            false => Ok(Round::Ask(std::mem::take(&mut self.calls))),
            true => self.read(pair_of(replies)?, tally).map(Round::Done),
        }
    }
}

impl Part {
    /// A feature's keys for left and right: as many bytes whatever the ids are.
    fn make(
        feature: &Feature,
        table: &PairTable,
        ids: &[u64],
        random: u64,
    ) -> Result<(Self, [Bytes; 2]), Failure> {
        if let Ok(Inference { planner, client }) = table.inference() {
            let plan = planner.plan_vartime(ids, random)?;
            let (mut request, pending) = client.query(&plan)?;
            let keys = [&mut request.left, &mut request.right].map(std::mem::take);
            let answer_bytes = client.geometry().answer_bytes();
            let pending = Pending::Bag(Box::new((plan, pending)));
            return Ok((Self { pending, answer_bytes, ids: ids.len() }, keys.map(Bytes::from)));
        }
        let (request, pending) = table.client.query(ids, feature.max_ids)?;
        let answer_bytes = feature.max_ids * table.info.shape.row_bytes();
        let keys = [request.left, request.right].map(|keys| {
            let mut all = BytesMut::with_capacity(keys.iter().map(Vec::len).sum());
            keys.iter().for_each(|key| all.extend_from_slice(key));
            all.freeze()
        });
        Ok((Self { pending: Pending::Rows(pending), answer_bytes, ids: ids.len() }, keys))
    }

    fn rows(
        &self,
        index: usize,
        session: &Session,
        [left, right]: [&[u8]; 2],
    ) -> Result<FeatureRows, Failure> {
        let feature = &session.facts.manifest.features()[index];
        let table = &session.tables[feature.table];
        let format = table.info.format();
        let (rows, kept, dropped) = match &self.pending {
            Pending::Rows(pending) => {
                let version = table.info.version;
                let share = |answers| dpf::Reply { version, answers };
                (pending.combine(share(left), share(right))?, vec![true; self.ids], 0)
            }
            Pending::Bag(bag) => {
                let (plan, pending) = &**bag;
                let version = table.inference()?.client.geometry().version();
                let share = |answers| dpf::Reply { version, answers };
                let entries = pending.combine(share(left), share(right))?;
                let rows = pending.rows(plan, &entries, format.row_bytes);
                (rows, plan.found.iter().map(Option::is_some).collect(), plan.dropped)
            }
        };
        Ok(FeatureRows { feature: index, rows, kept, dropped, format })
    }
}

/// Whether ids can be asked for of a feature; the error names it.
fn check_ids(feature: &Feature, table: &PairTable, ids: &[u64]) -> Result<(), Failure> {
    let (max_ids, rows) = (feature.max_ids, table.info.shape.rows());
    let name = || feature.name.clone();
    if ids.len() > max_ids {
        return Err(Failure::FeatureIds { feature: name(), ids: ids.len(), max_ids });
    }
    match ids.iter().find(|&&id| id >= rows) {
        Some(&id) => Err(Failure::FeatureIdRange { feature: name(), id, rows }),
        None => Ok(()),
    }
}
