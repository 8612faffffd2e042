//! What a client asks within a session: a logit.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{
    Ask, CallFault, Cause, Place, Round, RoundOf, Script, Tally, Timed, Tried, pause,
};
use hushtable_mpc::fill_random;
use hushtable_pir::dpf::KeyPair;
use hushtable_pir::{Platform, Prg};

use super::call::{Call, Failure, Reply, Share, SharedInference};
use super::connect::Shares;
use super::held::{LOOKUP_PRG, Session};
use super::info::Info;
use crate::shares::client::{deal, open, share};
use crate::shares::{DealtBy, Error};

/// The logit of a user.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answered {
    /// The logit.
    pub logit: f64,
    /// Bytes of lookup keys sent to both servers, each time that it was dealt.
    pub key_bytes: u64,
    /// Bytes of what was dealt to both servers, each time.
    pub dealt_bytes: u64,
    /// Bytes of shares received.
    pub received_bytes: u64,
    /// How long a part waited at the slower server.
    pub queue: Duration,
    /// How long the slower server took from then on.
    pub answer: Duration,
    /// How often it was dealt anew.
    pub retries: u32,
}

impl Timed for Answered {
    fn took(&mut self, _: Duration, moves: u32) {
        self.retries += moves;
        // All requests of a model have the same number of bytes.
        let dealt = u64::from(moves) + 1;
        self.key_bytes *= dealt;
        self.dealt_bytes *= dealt;
    }
}

pub(super) struct Predict {
    pub dense: Vec<f64>,
    pub indices: Vec<u64>,
}

impl Ask<Shares> for Predict {
    type Output = Answered;
    type Script = PredictScript;

    // Draws and deals: what comes of it is sent at most once.
    fn script(&self, session: &Arc<Session>, _: u64) -> Result<PredictScript, Failure> {
        let Session { info, domains } = &**session;
        let prg = Prg::new(LOOKUP_PRG, Platform::detect());
        let mut keys: [Vec<Bytes>; 2] = Default::default();
        for (domain, places) in domains.iter().zip(info.dlrm.places(&self.indices)?) {
            for place in places {
                let KeyPair { left, right } = KeyPair::generate(prg, *domain, place as u64)?;
                keys[0].push(left.to_bytes().into());
                keys[1].push(right.to_bytes().into());
            }
        }
        let (common, own) = dealt(info, &self.dense)?;
        let key_bytes = keys.iter().flatten().map(|key| key.len() as u64).sum();
        let dealt_bytes = (2 * common.len() + own[0].len() + own[1].len()) as u64;
        let mut name = [0; 16];
        fill_random(&mut name).map_err(Error::from)?;
        let [left, right] = own;
        let [left_keys, right_keys] = keys;
        let call = |keys, dealt| Call::Predict {
            plan: info.plan,
            name,
            keys,
            common: common.clone(),
            dealt,
            share_bytes: info.outline.logit_bytes(),
        };
        let calls = [call(left_keys, left), call(right_keys, right)];
        let (info, calls) = (Arc::clone(info), Some(calls));
        Ok(PredictScript { info, calls, key_bytes, dealt_bytes })
    }

    fn again(
        &self,
        cause: Cause<'_, SharedInference>,
        tried: Tried,
        random: u64,
    ) -> Option<Duration> {
        let Cause::Fault(fault) = cause else { return None };
        let hint = match *fault {
            CallFault::Busy { retry_after } | CallFault::Pending { retry_after } => retry_after,
            // They were there: one of them restarts.
            CallFault::Draining | CallFault::Unreachable => LOST,
            _ => return None,
        };
        Some(pause(hint, tried.times, random))
    }

    // What is dealt in some tenths of a millisecond is dealt where it is: another thread would take longer.
    fn computes(&self, session: &Session) -> bool {
        let info = &session.info;
        info.up_bytes() > DEALT_IN_PLACE_BYTES_MAX || info.key_count() > KEYS_IN_PLACE_MAX
    }
}

/// What goes to both servers, and to each, beside lookup keys.
fn dealt(info: &Info, dense: &[f64]) -> Result<(Bytes, [Bytes; 2]), Error> {
    let take = |bytes: &mut Vec<u8>| Bytes::from(std::mem::take(bytes));
    Ok(match info.dealer {
        DealtBy::Client => {
            let mut dealt = deal(&info.outline, dense)?;
            (take(&mut dealt.common), [take(&mut dealt.left), take(&mut dealt.right)])
        }
        DealtBy::Servers => {
            let mut shared = share(&info.outline, dense)?;
            (Bytes::new(), [take(&mut shared.left), take(&mut shared.right)])
        }
    })
}

/// One inference, dealt.
pub(super) struct PredictScript {
    info: Arc<Info>,
    /// Left's and right's, until they are made.
    calls: Option<[Call; 2]>,
    key_bytes: u64,
    dealt_bytes: u64,
}

impl PredictScript {
    fn open(&self, left: &Share, right: &Share) -> Result<Answered, Failure> {
        let outline = &self.info.outline;
        for (place, reply) in Place::PAIR.into_iter().zip([left, right]) {
            if reply.plan != self.info.plan {
                return Err(Failure::OtherPlan { place });
            }
            let (expected, found) = (outline.logit_bytes(), reply.share.len());
            if expected != found {
                return Err(Failure::AnswerBytes { place, expected, found });
            }
        }
        Ok(Answered {
            logit: open(outline, &left.share, &right.share)?,
            key_bytes: self.key_bytes,
            dealt_bytes: self.dealt_bytes,
            received_bytes: (left.share.len() + right.share.len()) as u64,
            queue: left.queue.max(right.queue),
            answer: left.took.max(right.took),
            retries: 0,
        })
    }
}

impl Script for PredictScript {
    type Protocol = SharedInference;
    type Output = Answered;

    fn next(&mut self, replies: Vec<Reply>, _: Tally) -> RoundOf<SharedInference, Answered> {
        if let Some([left, right]) = self.calls.take() {
            return Ok(Round::Ask(vec![(Place::Left, left), (Place::Right, right)]));
        }
        let mut replies = replies.into_iter();
        let mut share = |place| match replies.next() {
            Some(Reply::Share(share)) => Ok(share),
            _ => Err(Failure::OtherCall { place }),
        };
        let (left, right) = (share(Place::Left)?, share(Place::Right)?);
        self.open(&left, &right).map(Round::Done)
    }
}

/// How long servers that have lost each other take to meet again, about.
pub const LOST: Duration = Duration::from_millis(50);

/// At about 2 GB/s.
const DEALT_IN_PLACE_BYTES_MAX: usize = 1 << 20;
/// At some microseconds a key.
const KEYS_IN_PLACE_MAX: usize = 128;
