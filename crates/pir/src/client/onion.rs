//! A client of one table at one server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_client::{
    Ask, Bell, Connect, Opening, Operation, Script, Shared, Tally, Upload, UploadTurn, Uploads,
    Verdict,
};
use hushtable_table::Version;

use super::pair::check_pin;
use super::table::other_call;
use super::{
    Call, CallFault, Failure, LookupStats, Machine, OnionInfo, Place, Reply, ReplyDefect,
    Retrieval, Round, Rows,
};
use crate::onion::{self, Client, ParameterSet, Pending};

/// How a client asks a server that is asked alone.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct OnionSpec {
    /// Servers; one of them is asked.
    pub servers: usize,
    /// The parameter sets that the server may serve by.
    pub parameter_sets: Vec<ParameterSet>,
    /// The only version to ask for; `None` for whatever the server holds.
    pub version: Option<Version>,
    /// How long one call may take.
    pub call_max: Duration,
    /// How long a lookup may take, uploads of keys and retries included.
    pub lookup_max: Duration,
}

/// A client of one table at one server. Clones share its session and keys.
#[derive(Clone)]
pub struct OnionClient(Arc<Shared<Onion>>);

impl OnionClient {
    /// Asks what the server holds, and makes a secret and keys for it. The keys are uploaded by the
    /// first lookup. `bell` is rung for machines that wait for each other; `random` spreads retries.
    pub fn open<E: Send>(
        spec: OnionSpec,
        random: u64,
        bell: Bell,
    ) -> impl Machine<E, Protocol = Retrieval, Output = Self> + use<E> {
        let scheme = Onion { spec, bell: bell.clone() };
        Opening::new(scheme, bell, random, Self)
    }

    /// What the server holds, as it announced it.
    pub fn info(&self) -> OnionInfo {
        self.0.session().info.clone()
    }

    /// Fetches the rows `ids` with `max_ids` queries. `random` spreads retries.
    pub fn lookup<E: Send>(
        &self,
        ids: &[u64],
        max_ids: usize,
        random: u64,
    ) -> impl Machine<E, Protocol = Retrieval, Output = Rows> + use<E> {
        Operation::new(&self.0, LookupAsk { ids: ids.to_vec(), max_ids }, random)
    }
}

/// See [`Connect`].
pub(super) struct Onion {
    spec: OnionSpec,
    bell: Bell,
}

/// One version of the table, with keys for it.
pub(super) struct Session {
    info: OnionInfo,
    client: Arc<Client>,
    keys: Bytes,
    uploads: Arc<Uploads>,
}

impl Connect for Onion {
    type Protocol = Retrieval;
    type Session = Session;
    type Opening = OnionOpening;

    fn opening(&self, known: Option<&Arc<Session>>) -> OnionOpening {
        let (spec, bell, known) = (self.spec.clone(), self.bell.clone(), known.cloned());
        OnionOpening { spec, bell, known, has_asked: false }
    }

    fn first(&self) -> Place {
        Place::Single
    }

    fn servers(&self) -> [usize; 3] {
        [0, 0, self.spec.servers]
    }

    fn limits(&self) -> (Duration, Duration) {
        (self.spec.call_max, self.spec.lookup_max)
    }

    fn is_misfit(&self, failure: &Failure) -> bool {
        failure.is_misfit()
    }
}

/// Fetches the info, holds it against what is accepted, and makes keys.
pub(super) struct OnionOpening {
    spec: OnionSpec,
    bell: Bell,
    known: Option<Arc<Session>>,
    has_asked: bool,
}

impl Script for OnionOpening {
    type Protocol = Retrieval;
    type Output = Session;

    fn next(&mut self, replies: Vec<Reply>, _: Tally) -> Result<Round<Session>, Failure> {
        if !std::mem::replace(&mut self.has_asked, true) {
            let call = Call::OnionInfo { version: self.spec.version };
            return Ok(Round::Ask(vec![(Place::Single, call)]));
        }
        let Some(Reply::OnionInfo(announced)) = replies.into_iter().next() else {
            return Err(other_call(Place::Single));
        };
        let info = OnionInfo::check(*announced, &self.spec.parameter_sets)
            .map_err(|defect| Failure::Reply { place: Place::Single, defect })?;
        check_pin(self.spec.version, Some(info.version))?;
        // The keys are one operator's: another of its servers, or this one after a restart, gets the same.
        let same = |known: &&Arc<Session>| {
            known.info.version == info.version && known.info.geometry == info.geometry
        };
        let (client, keys) = match self.known.as_ref().filter(same) {
            Some(known) => (Arc::clone(&known.client), known.keys.clone()),
            None => {
                let client = Client::new(info.geometry.clone(), info.version)?;
                let keys = Bytes::copy_from_slice(client.keys());
                (Arc::new(client), keys)
            }
        };
        let uploads = Uploads::new(self.bell.clone());
        Ok(Round::Done(Session { info, client, keys, uploads }))
    }

    fn failed(&mut self, fault: &CallFault) -> Result<Verdict, Failure> {
        if let CallFault::Changed { found } = fault {
            check_pin(self.spec.version, found.map(Version::from))?;
        }
        Ok(Verdict::End)
    }

    fn computes(&self) -> bool {
        self.has_asked
    }
}

struct LookupAsk {
    ids: Vec<u64>,
    max_ids: usize,
}

impl Ask<Onion> for LookupAsk {
    type Output = Rows;
    type Script = LookupScript;

    fn script(&self, session: &Arc<Session>, _: u64) -> Result<LookupScript, Failure> {
        let &Self { ref ids, max_ids } = self;
        let keys_max = session.info.queries_per_request_max;
        if !(1..=keys_max).contains(&max_ids) && ids.len() <= max_ids {
            return Err(Failure::MaxIds { max_ids, keys_max });
        }
        let (queries, pending) = session.client.query(ids, max_ids)?;
        Ok(LookupScript {
            session: Arc::clone(session),
            queries: queries.into_iter().map(Bytes::from).collect(),
            pending,
            stage: Stage::Upload,
            uploads: 0,
            may_upload_again: true,
        })
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        matches!(failure, Failure::Onion(onion::Error::VersionChanged { .. }))
    }

    fn computes(&self, _: &Session) -> bool {
        true
    }
}

/// A lookup within a session. A server that does not have the keys gets them, and the queries once
/// more.
pub(super) struct LookupScript {
    session: Arc<Session>,
    queries: Vec<Bytes>,
    pending: Pending,
    stage: Stage,
    /// How often the keys had been uploaded when the queries were sent.
    uploads: u64,
    may_upload_again: bool,
}

enum Stage {
    /// To have the keys uploaded, once more than `uploads` times. Where many lookups find them
    /// missing at once, one uploads.
    Upload,
    Uploading(UploadTurn),
    Asked,
}

impl LookupScript {
    fn ask(&mut self) -> Round<Rows> {
        let Session { info, client, .. } = &*self.session;
        self.stage = Stage::Asked;
        let call = Call::OnionAnswer {
            version: info.version,
            key_id: client.key_id(),
            queries: self.queries.clone(),
            response_bytes: self.queries.len() * info.geometry.response_bytes(),
        };
        Round::Ask(vec![(Place::Single, call)])
    }
}

impl Script for LookupScript {
    type Protocol = Retrieval;
    type Output = Rows;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> Result<Round<Rows>, Failure> {
        let reply = replies.into_iter().next();
        match std::mem::replace(&mut self.stage, Stage::Upload) {
            Stage::Upload => match self.session.uploads.after(self.uploads) {
                Upload::Wait => Ok(Round::Pause(Place::Single, None)),
                Upload::Turn(turn) => {
                    self.stage = Stage::Uploading(turn);
                    let call = Call::PutKeys { keys: self.session.keys.clone() };
                    Ok(Round::Ask(vec![(Place::Single, call)]))
                }
                Upload::Done(count) => {
                    self.uploads = count;
                    Ok(self.ask())
                }
            },
            Stage::Uploading(turn) => {
                let Some(Reply::KeysKept(id)) = reply else {
                    return Err(other_call(Place::Single));
                };
                if id != self.session.client.key_id() {
                    let (place, defect) = (Place::Single, ReplyDefect::KeyId);
                    return Err(Failure::Reply { place, defect });
                }
                self.uploads = turn.end();
                Ok(self.ask())
            }
            Stage::Asked => {
                let Some(Reply::Answers(answers)) = reply else {
                    return Err(other_call(Place::Single));
                };
                let Session { info, client, .. } = &*self.session;
                let rows = client.decode(&self.pending, answers.version, &answers.answers)?;
                let stats = LookupStats::of(info.version, &[answers], tally);
                Ok(Round::Done(Rows { rows, stats, format: info.format() }))
            }
        }
    }

    fn failed(&mut self, fault: &CallFault) -> Result<Verdict, Failure> {
        let was_asked = matches!(self.stage, Stage::Asked);
        match fault {
            CallFault::UnknownKeys if was_asked && self.may_upload_again => {
                self.may_upload_again = false;
                self.stage = Stage::Upload;
                Ok(Verdict::GoOn)
            }
            _ => Ok(Verdict::End),
        }
    }

    fn computes(&self) -> bool {
        matches!(self.stage, Stage::Asked)
    }
}
