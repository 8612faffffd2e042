//! How a client comes to two servers that compute one model by one plan.

use std::sync::Arc;

use hushtable_client::{Place, Round, RoundOf, Script, Tally};

use super::call::{Call, Failure, Reply, SharedInference};
use super::held::{Session, SessionSpec};
use super::info::Info;
use crate::shares::Half;

/// Asks both servers what they compute, and holds that against each other.
pub(super) struct SharesOpening {
    spec: SessionSpec,
    has_asked: bool,
}

impl SharesOpening {
    pub fn new(spec: SessionSpec) -> Self {
        Self { spec, has_asked: false }
    }

    fn matched(&self, left: Info, right: &Info) -> Result<Session, Failure> {
        match (left.half, right.half) {
            (Half::Left, Half::Right) => {}
            (Half::Right, Half::Left) => return Err(Failure::SidesSwapped),
            (half, _) => return Err(Failure::SameSide { half }),
        }
        let pin = self.spec.version.unwrap_or(left.version);
        let pairs = [(left.version, right.version), (left.plan, right.plan), (pin, left.version)];
        if let Some((expected, found)) = pairs.into_iter().find(|(it, other)| it != other) {
            return Err(Failure::VersionMismatch { expected, found });
        }
        let announced = left.dealer;
        if let Some(accepted) = self.spec.dealer.filter(|&accepted| accepted != announced) {
            return Err(Failure::Dealer { announced, accepted });
        }
        if !right.has_terms_of(&left) {
            return Err(Failure::TermsDiffer);
        }
        let domains = left.domains()?;
        Ok(Session { info: Arc::new(left), domains })
    }
}

impl Script for SharesOpening {
    type Protocol = SharedInference;
    type Output = Session;

    fn next(&mut self, replies: Vec<Reply>, _: Tally) -> RoundOf<SharedInference, Session> {
        if !std::mem::replace(&mut self.has_asked, true) {
            return Ok(Round::Ask(Place::PAIR.map(|place| (place, Call::Info)).into()));
        }
        let mut replies = replies.into_iter();
        let left = info_of(Place::Left, replies.next())?;
        let right = info_of(Place::Right, replies.next())?;
        self.matched(left, &right).map(Round::Done)
    }
}

fn info_of(place: Place, reply: Option<Reply>) -> Result<Info, Failure> {
    let Some(Reply::Info(announced)) = reply else { return Err(Failure::OtherCall { place }) };
    Info::check(*announced).map_err(|defect| Failure::Info { place, defect: Box::new(defect) })
}
