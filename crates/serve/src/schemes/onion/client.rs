//! Fetches rows from one server, which does not learn which.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::onion::{self, Client, ParameterSet};
use tokio::sync::Mutex;
use tokio::time::{Instant, timeout_at};

use super::OnionInfo;
use crate::error::QUERIES_SETTING;
use crate::peer::endpoint::Peer;
use crate::peer::session::{Patience, Sessions};
use crate::peer::values::version_from_wire;
use crate::wire::{OnionAnswerReply, OnionAnswerRequest};
use crate::{EndpointSpec, Error, Lookup, LookupStats, Refusal, ReplyDefect};

/// How a client reaches its server.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct OnionClientSpec {
    /// The server.
    pub server: EndpointSpec,
    /// The parameter sets that the server may serve by; [`ParameterSet::IvePaper`] has less than 128
    /// bits by the 2024 guidelines. A server of another set gets neither keys nor queries.
    pub parameter_sets: Vec<ParameterSet>,
    /// Send queries to other machines over plain HTTP: for when something else encrypts the way.
    pub insecure: bool,
    /// How long a connection may take.
    pub connect_max: Duration,
    /// How long one call may take.
    pub call_max: Duration,
    /// How long a lookup may take, uploads of keys and retries included.
    pub lookup_max: Duration,
}

impl OnionClientSpec {
    /// The defaults: the set `n4096_128` alone, 5 s to connect, 30 s a call, 60 s a lookup.
    pub fn new(server: EndpointSpec) -> Self {
        Self {
            server,
            parameter_sets: vec![ParameterSet::N4096128],
            insecure: false,
            connect_max: Duration::from_secs(5),
            call_max: Duration::from_secs(30),
            lookup_max: Duration::from_secs(60),
        }
    }
}

/// A client of one table at one server.
pub struct OnionClient {
    peer: Peer,
    parameter_sets: Vec<ParameterSet>,
    call_max: Duration,
    lookup_max: Duration,
    sessions: Sessions<Session>,
}

/// One version of the table, with keys for it.
struct Session {
    info: OnionInfo,
    client: Arc<Client>,
    keys: Bytes,
    key_id: Bytes,
    /// How often the keys were uploaded.
    uploads: Mutex<u64>,
}

/// A lookup on its way.
struct Asking<'a> {
    peer: &'a Peer,
    session: &'a Session,
    patience: Patience,
    stats: LookupStats,
}

impl OnionClient {
    /// Connects, asks what the server holds, and makes a secret and keys for it. The keys are
    /// uploaded by the first lookup.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for
    /// what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a server out of
    /// reach; [`Error::Unserved`] for a server of another scheme; [`Error::ParametersRefused`] and
    /// [`Error::Reply`] for one that announces what this client does not accept.
    pub async fn connect(spec: &OnionClientSpec) -> Result<Self, Error> {
        let peer = Peer::new(&spec.server, spec.insecure, spec.connect_max)?;
        let parameter_sets = spec.parameter_sets.clone();
        let &OnionClientSpec { call_max, lookup_max, .. } = spec;
        let sessions = Sessions::new(Session::open(&peer, &parameter_sets, call_max).await?);
        Ok(Self { peer, parameter_sets, call_max, lookup_max, sessions })
    }

    /// What the server holds, as it announced it.
    pub fn info(&self) -> OnionInfo {
        self.sessions.current().info.clone()
    }

    /// Fetches the rows `ids` in one round trip, and one more where the server does not have this
    /// client's keys. It sees `max_ids` queries, whatever the number of ids.
    ///
    /// A busy server is asked again after the delay that it names, with the same queries. If the
    /// table changed since the last lookup, new keys are made and the lookup made once more.
    ///
    /// # Errors
    /// [`Error::Onion`] for an id that is no row or more than `max_ids` ids, [`Error::MaxIds`] where
    /// the server takes fewer queries, [`Error::Refused`], [`Error::Unavailable`],
    /// [`Error::Timeout`], [`Error::Reply`], and after a change of the table
    /// [`Error::ParametersRefused`], for what the server does.
    pub async fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<Lookup, Error> {
        let started = Instant::now();
        let patience = Patience { call_max: self.call_max, deadline: started + self.lookup_max };
        let session = self.sessions.current();
        let mut lookup = match self.lookup_once(&session, ids, max_ids, patience).await {
            Err(error) if is_of_another_table(&error) => {
                let open = Session::open(&self.peer, &self.parameter_sets, self.call_max);
                let session = self.sessions.reopen(&session, open).await?;
                self.lookup_once(&session, ids, max_ids, patience).await?
            }
            other => other?,
        };
        lookup.stats.elapsed = started.elapsed();
        Ok(lookup)
    }

    /// As [`lookup`](Self::lookup), with rows as `ids × dim` numbers.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup), and [`Error::Rows`].
    pub async fn lookup_f32(&self, ids: &[u64], max_ids: usize) -> Result<Vec<f32>, Error> {
        self.lookup(ids, max_ids).await?.to_f32()
    }

    async fn lookup_once(
        &self,
        session: &Session,
        ids: &[u64],
        max_ids: usize,
        patience: Patience,
    ) -> Result<Lookup, Error> {
        let keys_max = session.info.queries_per_request_max;
        if !(1..=keys_max).contains(&max_ids) && ids.len() <= max_ids {
            return Err(Error::MaxIds { max_ids, keys_max, setting: QUERIES_SETTING });
        }
        let (client, ids) = (Arc::clone(&session.client), ids.to_vec());
        let (queries, pending) = computing(move || client.query(&ids, max_ids)).await?;
        let mut asking =
            Asking { peer: &self.peer, session, patience, stats: LookupStats::default() };
        let reply = asking.ask(queries).await?;
        let stats = LookupStats {
            received_bytes: reply.responses.len() as u64,
            queue: Duration::from_micros(reply.queue_us.unwrap_or(0)),
            answer: Duration::from_micros(reply.answer_us.unwrap_or(0)),
            ..asking.stats
        };
        let version = version_from_wire(&reply.table_version)
            .map_err(|defect| self.peer.reply_error(defect))?;
        let client = Arc::clone(&session.client);
        let decode = move || client.decode(&pending, version, &reply.responses);
        Ok(Lookup { rows: computing(decode).await?, stats, format: session.info.format() })
    }
}

impl Session {
    async fn open(
        peer: &Peer,
        accepted: &[ParameterSet],
        call_max: Duration,
    ) -> Result<Self, Error> {
        let info = peer.onion_info(accepted, call_max).await?;
        let (geometry, version) = (info.geometry.clone(), info.version);
        let client = computing(move || Client::new(geometry, version)).await?;
        let keys = Bytes::copy_from_slice(client.keys());
        let key_id = Bytes::copy_from_slice(client.key_id().as_bytes());
        Ok(Self { info, client: Arc::new(client), keys, key_id, uploads: Mutex::new(0) })
    }
}

impl Asking<'_> {
    /// Sends queries; a server that does not have the keys gets them, and the queries once more.
    async fn ask(&mut self, queries: Vec<Vec<u8>>) -> Result<OnionAnswerReply, Error> {
        let queries: Vec<Bytes> = queries.into_iter().map(Bytes::from).collect();
        // Only the first lookup finds no upload yet.
        let uploads = self.upload(0).await?;
        match self.send(&queries).await {
            Err(Error::Refused { refusal: Refusal::UnknownKeys { .. }, .. }) => {
                self.upload(uploads).await?;
                self.send(&queries).await
            }
            other => other,
        }
    }

    async fn send(&mut self, queries: &[Bytes]) -> Result<OnionAnswerReply, Error> {
        let Session { info, key_id, .. } = self.session;
        let request = OnionAnswerRequest {
            table_version: Bytes::copy_from_slice(info.version.as_bytes()),
            key_id: key_id.clone(),
            queries: queries.to_vec(),
        };
        let query_bytes = queries.iter().map(|query| query.len() as u64).sum::<u64>();
        let response_bytes = queries.len() * info.geometry.response_bytes();
        let ask = |limit| self.peer.onion_answer(request.clone(), response_bytes, limit);
        let answered = self.patience.until_answered(ask).await;
        let retries = answered.as_ref().map_or(0, |(_, retries)| *retries);
        self.stats.retries += retries;
        self.stats.sent_bytes += query_bytes * u64::from(retries + 1);
        Ok(answered?.0)
    }

    /// Uploads the keys, unless that was done more than `uploads` times already: where many lookups
    /// find them missing at once, one uploads. Returns how often they were uploaded by now.
    async fn upload(&mut self, uploads: u64) -> Result<u64, Error> {
        let Session { keys, key_id, uploads: count, .. } = self.session;
        let Patience { call_max, deadline } = self.patience;
        let Ok(mut count) = timeout_at(deadline, count.lock()).await else {
            return Err(Error::Timeout { url: self.peer.url().into(), after: call_max });
        };
        if *count > uploads {
            return Ok(*count);
        }
        let put = |limit| self.peer.put_keys(keys.clone(), limit);
        let (reply, retries) = self.patience.until_answered(put).await?;
        if reply.key_id != *key_id {
            return Err(self.peer.reply_error(ReplyDefect::KeyId));
        }
        self.stats.retries += retries;
        self.stats.sent_bytes += keys.len() as u64 * u64::from(retries + 1);
        *count += 1;
        Ok(*count)
    }
}

/// Runs what computes for milliseconds off the threads of connections.
async fn computing<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, onion::Error> + Send + 'static,
) -> Result<T, Error> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => Ok(done?),
        Err(panic) => std::panic::resume_unwind(panic.into_panic()),
    }
}

/// Whether the server's table, or the parameters that it serves it by, may be others by now.
fn is_of_another_table(error: &Error) -> bool {
    matches!(
        error,
        Error::Refused {
            refusal: Refusal::VersionSkew { .. }
                | Refusal::BadKeys { .. }
                | Refusal::BadQuery { .. },
            ..
        } | Error::Onion(onion::Error::VersionChanged { .. })
    )
}
