//! What a client asks within a session: that the server has its keys, and logits.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{
    Ask, CallFault, Place, Round, RoundOf, Script, Tally, Timed, Upload as Wanted, UploadTurn,
    Verdict,
};

use super::call::{Answer, Call, Failure, Inference, Reply};
use super::connect::Infer;
use super::held::Session;

/// What an upload came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Uploaded {
    /// Bytes of keys sent; none where they were there.
    pub sent_bytes: u64,
}

/// The logits of a query's users.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Answered {
    /// One a user, in their order.
    pub logits: Vec<f64>,
    /// Bytes of keys and queries sent.
    pub sent_bytes: u64,
    /// Bytes of answers received.
    pub received_bytes: u64,
    /// How long the query waited at the server.
    pub queue: Duration,
    /// How long it was computed on.
    pub answer: Duration,
    /// How often a busy server was asked again, or another server because the first drained or was out of reach.
    pub retries: u32,
}

impl Timed for Uploaded {
    fn took(&mut self, _: Duration, _: u32) {}
}

impl Timed for Answered {
    fn took(&mut self, _: Duration, moves: u32) {
        self.retries += moves;
    }
}

pub(super) struct Upload;

pub(super) struct Query {
    pub dense: Vec<f32>,
    pub indices: Vec<u64>,
}

impl Ask<Infer> for Upload {
    type Output = Uploaded;
    type Script = UploadScript;

    fn script(&self, session: &Arc<Session>, _: u64) -> Result<UploadScript, Failure> {
        // The server is asked, however often it had them.
        Ok(UploadScript(Keys::new(session, session.uploads.count())))
    }
}

impl Ask<Infer> for Query {
    type Output = Answered;
    type Script = QueryScript;

    fn script(&self, session: &Arc<Session>, _: u64) -> Result<QueryScript, Failure> {
        let query = session.client.query(&self.dense, &self.indices)?.into();
        let users = self.dense.len() / session.info.terms.dense().max(1);
        let keys = Keys::new(session, 0);
        Ok(QueryScript { keys, query, users, is_asked: false, may_upload_again: true })
    }

    fn computes(&self, _: &Session) -> bool {
        true
    }
}

/// Sees that the server has the keys. Where many operations miss them at once, one brings them.
struct Keys {
    session: Arc<Session>,
    stage: Stage,
    /// How often they were there when they were last seen to be.
    seen: u64,
}

enum Stage {
    Due,
    Looking(UploadTurn),
    Uploading(UploadTurn),
}

impl Keys {
    /// Of keys that were there more than `seen` times.
    fn new(session: &Arc<Session>, seen: u64) -> Self {
        Self { session: Arc::clone(session), stage: Stage::Due, seen }
    }

    /// What to do next for it; `None` once the server has them.
    fn next<T>(&mut self, reply: Option<Reply>) -> Result<Option<Round<Call, T>>, Failure> {
        let Session { info, client, upload_max, progress, .. } = &*self.session;
        let (plan, key_id) = (info.plan, client.key_id());
        let ask = |call| Some(Round::Ask(vec![(Place::Single, call)]));
        let turn = match std::mem::replace(&mut self.stage, Stage::Due) {
            Stage::Due => match self.session.uploads.after(self.seen) {
                Wanted::Done(count) => {
                    self.seen = count;
                    return Ok(None);
                }
                Wanted::Wait => return Ok(Some(Round::Pause(Place::Single, Some(*upload_max)))),
                Wanted::Turn(turn) => {
                    self.stage = Stage::Looking(turn);
                    return Ok(ask(Call::HaveKeys { plan, key_id }));
                }
            },
            Stage::Looking(turn) => match reply {
                Some(Reply::KeysHeld(true)) => turn,
                Some(Reply::KeysHeld(false)) => {
                    self.stage = Stage::Uploading(turn);
                    let (bytes, client) = (info.key_bytes() as u64, Arc::clone(client));
                    let (within, progress) = (*upload_max, progress.clone());
                    return Ok(ask(Call::UploadKeys { plan, bytes, client, within, progress }));
                }
                _ => return Err(Failure::OtherCall),
            },
            Stage::Uploading(turn) => match reply {
                Some(Reply::KeysKept(id)) if id == key_id => turn,
                Some(Reply::KeysKept(_)) => return Err(Failure::KeyId),
                _ => return Err(Failure::OtherCall),
            },
        };
        self.seen = turn.end();
        Ok(None)
    }
}

pub(super) struct UploadScript(Keys);

impl Script for UploadScript {
    type Protocol = Inference;
    type Output = Uploaded;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> RoundOf<Inference, Uploaded> {
        let round = self.0.next(replies.into_iter().next())?;
        Ok(round.unwrap_or(Round::Done(Uploaded { sent_bytes: tally.sent_bytes })))
    }
}

/// A query within a session. A server that does not have the keys gets them, and the query once more.
pub(super) struct QueryScript {
    keys: Keys,
    query: Bytes,
    users: usize,
    is_asked: bool,
    may_upload_again: bool,
}

impl QueryScript {
    fn open(&self, answer: Answer, tally: Tally) -> Result<Answered, Failure> {
        let Session { info, client, .. } = &*self.keys.session;
        let Answer { plan, answer, queue, took } = answer;
        if plan != info.plan {
            return Err(Failure::OtherPlan);
        }
        let (expected, found) = (info.answer_bytes(), answer.len());
        if found != expected {
            return Err(Failure::AnswerBytes { expected, found });
        }
        let mut logits = client.open(&answer)?;
        logits.truncate(self.users);
        Ok(Answered {
            logits,
            sent_bytes: tally.sent_bytes,
            received_bytes: found as u64,
            queue,
            answer: took,
            retries: tally.retries,
        })
    }
}

impl Script for QueryScript {
    type Protocol = Inference;
    type Output = Answered;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> RoundOf<Inference, Answered> {
        let reply = replies.into_iter().next();
        if self.is_asked {
            let Some(Reply::Answer(answer)) = reply else { return Err(Failure::OtherCall) };
            return self.open(answer, tally).map(Round::Done);
        }
        if let Some(round) = self.keys.next(reply)? {
            return Ok(round);
        }
        self.is_asked = true;
        let Session { info, client, .. } = &*self.keys.session;
        let call = Call::Predict {
            plan: info.plan,
            key_id: client.key_id(),
            query: self.query.clone(),
            answer_bytes: info.answer_bytes(),
        };
        Ok(Round::Ask(vec![(Place::Single, call)]))
    }

    fn failed(&mut self, fault: &CallFault) -> Result<Verdict, Failure> {
        if matches!(fault, CallFault::UnknownKeys) && self.is_asked && self.may_upload_again {
            (self.may_upload_again, self.is_asked) = (false, false);
            return Ok(Verdict::GoOn);
        }
        Ok(Verdict::End)
    }

    fn computes(&self) -> bool {
        self.is_asked
    }
}
