//! Bags of ids that are asked for by a layout: as many inferences in one request as both servers take.

use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use hushtable_client::{Script, Tally};
use hushtable_table::Version;
use hushtable_table::layout::Plan;

use super::table::{Inference, pair_of};
use super::{
    Answers, BagPart, BagRows, BagsRows, Call, Failure, LookupStats, Place, Reply, Retrieval,
    Round, RowFormat,
};
use crate::dpf::{self, Side};
use crate::{Error as Pir, batch};

/// What it takes to ask for bags within a session.
pub(super) struct BagsTerms {
    pub inference: Arc<Inference>,
    /// Inferences that one request may hold.
    pub bags_max: usize,
    /// The table's.
    pub version: Version,
    pub format: RowFormat,
}

/// Bags within a session. Requests go one after the other where one does not take all: what a server sees is
/// how many bags there are, and nothing of what they hold.
pub(super) struct BagsScript {
    terms: BagsTerms,
    /// Those whose request is still to be made, the next one last.
    plans: Vec<Plan>,
    /// Those of the request under way, in order.
    asked: Vec<(Plan, batch::Pending)>,
    done: BagsRows,
}

impl BagsScript {
    /// Plans every bag, so that one that cannot be asked for fails before anything is sent.
    pub fn new(terms: BagsTerms, bags: &[Vec<u64>], random: u64) -> Result<Self, Failure> {
        let planner = &terms.inference.planner;
        let plan = |(at, ids): (usize, &Vec<u64>)| {
            // One number of another for each bag: the drops of one say nothing of those of the next.
            planner.plan_vartime(ids, random ^ (at as u64).wrapping_mul(SPREAD))
        };
        let mut plans = bags.iter().enumerate().map(plan).collect::<Result<Vec<_>, _>>()?;
        plans.reverse();
        let done = BagsRows {
            bags: Vec::with_capacity(bags.len()),
            keys: bags.len() * terms.inference.client.geometry().keys(),
            requests: 0,
            stats: LookupStats::of(terms.version, &[], Tally::default()),
            format: terms.format,
        };
        Ok(Self { terms, plans, asked: Vec::new(), done })
    }

    /// The next request, with as many bags as it may hold.
    fn ask(&mut self) -> Result<Vec<(Place, Call)>, Failure> {
        let client = &self.terms.inference.client;
        let geometry = client.geometry();
        let count = self.terms.bags_max.clamp(1, self.plans.len());
        let mut keys =
            Side::BOTH.map(|side| BytesMut::with_capacity(count * geometry.request_bytes(side)));
        for plan in self.plans.split_off(self.plans.len() - count).into_iter().rev() {
            let (request, pending) = client.query(&plan)?;
            keys[0].extend_from_slice(&request.left);
            keys[1].extend_from_slice(&request.right);
            self.asked.push((plan, pending));
        }
        self.done.requests += 1;
        let (version, answer_bytes) = (geometry.version(), count * geometry.answer_bytes());
        let call = |keys: Bytes| Call::AnswerBags { version, keys, answer_bytes };
        Ok(Place::PAIR.into_iter().zip(keys.map(|keys| call(keys.freeze()))).collect())
    }

    /// The rows of the bags of the request under way.
    fn read(&mut self, answers: &[Answers; 2], tally: Tally) -> Result<(), Failure> {
        let one = self.terms.inference.client.geometry().answer_bytes();
        let expected = self.asked.len() * one;
        for found in answers.each_ref().map(|answers| answers.answers.len()) {
            if found != expected {
                return Err(Pir::AnswerBytes { expected, found }.into());
            }
        }
        for (at, (plan, pending)) in self.asked.drain(..).enumerate() {
            let [left, right] = answers.each_ref().map(|answers| dpf::Reply {
                version: answers.version,
                answers: &answers.answers[at * one..(at + 1) * one],
            });
            let entries = pending.combine(left, right)?;
            let rows = pending.rows(&plan, &entries, self.terms.format.row_bytes);
            let kept = plan.found.iter().map(Option::is_some).collect();
            self.done.bags.push(BagPart { rows, kept, dropped: plan.dropped });
        }
        let (before, now) = (self.done.stats, LookupStats::of(self.terms.version, answers, tally));
        self.done.stats = LookupStats {
            received_bytes: before.received_bytes + now.received_bytes,
            queue: before.queue + now.queue,
            answer: before.answer + now.answer,
            ..now
        };
        Ok(())
    }
}

impl Script for BagsScript {
    type Protocol = Retrieval;
    type Output = BagsRows;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> Result<Round<BagsRows>, Failure> {
        if !self.asked.is_empty() {
            self.read(&pair_of(replies)?, tally)?;
        }
        if self.plans.is_empty() {
            let none = BagsRows { bags: Vec::new(), ..self.done.clone() };
            return Ok(Round::Done(std::mem::replace(&mut self.done, none)));
        }
        self.ask().map(Round::Ask)
    }
}

/// A bag within a session.
pub(super) struct BagScript(pub BagsScript);

impl Script for BagScript {
    type Protocol = Retrieval;
    type Output = BagRows;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> Result<Round<BagRows>, Failure> {
        let BagsRows { mut bags, keys, stats, format, .. } = match self.0.next(replies, tally)? {
            Round::Done(done) => done,
            Round::Ask(calls) => return Ok(Round::Ask(calls)),
            Round::Pause(place, within) => return Ok(Round::Pause(place, within)),
        };
        let Some(BagPart { rows, kept, dropped }) = bags.pop() else {
            unreachable!("a script of one bag ends with one")
        };
        Ok(Round::Done(BagRows { rows, kept, dropped, keys, stats, format }))
    }
}

/// An odd number with bits all over it.
const SPREAD: u64 = 0x9E37_79B9_7F4A_7C15;
