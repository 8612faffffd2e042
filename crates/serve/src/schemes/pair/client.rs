//! Fetches rows from two servers, so that neither learns which.

mod bag;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::PrgKind;
use hushtable_pir::dpf::{self, Reply};
use hushtable_table::{DType, decode_rows};
use tokio::time::Instant;

use crate::error::KEYS_SETTING;
use crate::peer::endpoint::Peer;
use crate::peer::values::version_from_wire;
use crate::wire::AnswerReply;
use crate::{EndpointSpec, Error, PairTerms, Refusal, TableInfo};

use crate::peer::session::{Patience, Sessions};
pub use bag::Bag;
use bag::Bags;

/// How a client reaches its servers.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ClientSpec {
    /// The left server.
    pub left: EndpointSpec,
    /// The right server: of another operator, or there is no privacy.
    pub right: EndpointSpec,
    /// The generator that keys use.
    pub prg: PrgKind,
    /// Send keys to other machines over plain HTTP: for when something else encrypts the way.
    pub insecure: bool,
    /// How long a connection may take.
    pub connect_max: Duration,
    /// How long one call to one server may take.
    pub call_max: Duration,
    /// How long a lookup may take, retries included.
    pub lookup_max: Duration,
    /// Most bytes of a layout to fetch; 0 for a client that fetches no bags.
    pub layout_bytes_max: u64,
}

impl ClientSpec {
    /// The defaults: AES-128 keys, 5 s to connect, 30 s a call, 60 s a lookup, layouts up to 1 GiB.
    pub fn new(left: EndpointSpec, right: EndpointSpec) -> Self {
        Self {
            left,
            right,
            prg: PrgKind::Aes128,
            insecure: false,
            connect_max: Duration::from_secs(5),
            call_max: Duration::from_secs(30),
            lookup_max: Duration::from_secs(60),
            layout_bytes_max: 1 << 30,
        }
    }
}

/// A client of one table at two servers.
pub struct LookupClient {
    left: Peer,
    right: Peer,
    prg: PrgKind,
    call_max: Duration,
    lookup_max: Duration,
    layout_bytes_max: u64,
    sessions: Sessions<Session>,
}

/// One version of the table, as both servers announced it.
struct Session {
    info: TableInfo,
    keys_per_request_max: usize,
    client: dpf::Client,
    bags: Bags,
}

/// What a lookup fetched.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Lookup {
    /// `ids × row_bytes` bytes, in the ids' order.
    pub rows: Vec<u8>,
    /// What it cost.
    pub stats: LookupStats,
    pub(crate) format: RowFormat,
}

/// How a row's bytes make numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RowFormat {
    pub dtype: DType,
    pub dim: usize,
    pub row_bytes: usize,
}

/// What a lookup cost, all servers together where nothing else is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct LookupStats {
    /// Bytes of keys and queries sent.
    pub sent_bytes: u64,
    /// Bytes of answers received.
    pub received_bytes: u64,
    /// From the call to its rows.
    pub elapsed: Duration,
    /// How long the request waited at the server where it waited longer.
    pub queue: Duration,
    /// What its passes took at the server where they took longer.
    pub answer: Duration,
    /// Times that a request was sent again to a busy server.
    pub retries: u32,
}

impl Lookup {
    /// The rows as `ids × dim` numbers.
    ///
    /// # Errors
    /// [`Error::Rows`] for bytes that are no numbers of the table's type.
    pub fn to_f32(&self) -> Result<Vec<f32>, Error> {
        self.format.decode(&self.rows)
    }
}

impl RowFormat {
    pub fn of(info: &TableInfo) -> Self {
        let &TableInfo { dtype, dim, shape, .. } = info;
        Self { dtype, dim, row_bytes: shape.row_bytes() }
    }

    fn decode(self, rows: &[u8]) -> Result<Vec<f32>, Error> {
        let Self { dtype, dim, row_bytes } = self;
        let mut numbers = vec![0.0; rows.len() / row_bytes * dim];
        decode_rows(dtype, dim, rows, &mut numbers).map_err(|source| Error::Rows { source })?;
        Ok(numbers)
    }
}

impl LookupClient {
    /// Connects to both servers and checks that they are a left and a right one with one table. If
    /// the table has a layout, it is fetched.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for
    /// what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a server out of
    /// reach; [`Error::SidesSwapped`], [`Error::SameSide`], [`Error::TablesDiffer`],
    /// [`Error::AnnouncementsDiffer`], [`Error::Prg`] for servers that do not fit; [`Error::Reply`]
    /// for an announcement that cannot be, or a layout that is not the one announced.
    /// Servers with different layouts only fail [`fetch_bag`](Self::fetch_bag).
    pub async fn connect(spec: &ClientSpec) -> Result<Self, Error> {
        let left = Peer::new(&spec.left, spec.insecure, spec.connect_max)?;
        let right = Peer::new(&spec.right, spec.insecure, spec.connect_max)?;
        let session = open(&left, &right, spec.prg, spec.call_max, spec.layout_bytes_max).await?;
        Ok(Self {
            left,
            right,
            prg: spec.prg,
            call_max: spec.call_max,
            lookup_max: spec.lookup_max,
            layout_bytes_max: spec.layout_bytes_max,
            sessions: Sessions::new(session),
        })
    }

    /// What both servers hold, as the left one announced it; the limits are those of the stricter.
    pub fn info(&self) -> TableInfo {
        let session = self.session();
        let keys_per_request_max = session.keys_per_request_max;
        TableInfo { keys_per_request_max, ..session.info.clone() }
    }

    /// Fetches the rows `ids` in one round trip to each server, at the same time. Both servers see
    /// `max_ids` keys, whatever the number of ids.
    ///
    /// A busy server is asked again after the delay that it names, with the same keys. If the table
    /// changed since the last lookup, its info is fetched and the lookup made once more.
    ///
    /// # Errors
    /// [`Error::Pir`] for an id that is no row or more than `max_ids` ids, [`Error::MaxIds`] where
    /// the servers take fewer keys, [`Error::Refused`], [`Error::Unavailable`],
    /// [`Error::Timeout`], [`Error::Reply`] for what servers do.
    pub async fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<Lookup, Error> {
        let started = Instant::now();
        let patience = self.patience(started);
        let session = self.session();
        let mut lookup = match self.lookup_once(&session, ids, max_ids, patience).await {
            Err(error) if is_version_change(&error) => {
                let session = self.reopen(&session).await?;
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

    fn patience(&self, started: Instant) -> Patience {
        Patience { call_max: self.call_max, deadline: started + self.lookup_max }
    }

    fn session(&self) -> Arc<Session> {
        self.sessions.current()
    }

    /// Asks again what the servers hold.
    async fn reopen(&self, stale: &Arc<Session>) -> Result<Arc<Session>, Error> {
        let Self { left, right, prg, call_max, layout_bytes_max, .. } = self;
        self.sessions.reopen(stale, open(left, right, *prg, *call_max, *layout_bytes_max)).await
    }

    async fn lookup_once(
        &self,
        session: &Session,
        ids: &[u64],
        max_ids: usize,
        patience: Patience,
    ) -> Result<Lookup, Error> {
        let keys_max = session.keys_per_request_max;
        if !(1..=keys_max).contains(&max_ids) && ids.len() <= max_ids {
            return Err(Error::MaxIds { max_ids, keys_max, setting: KEYS_SETTING });
        }
        let (request, pending) = session.client.query(ids, max_ids)?;
        let (left, right) = tokio::try_join!(
            self.ask(&self.left, session, request.left, patience),
            self.ask(&self.right, session, request.right, patience),
        )?;
        let rows = pending.combine(left.reply(), right.reply())?;
        let us = |of: fn(&AnswerReply) -> Option<u64>| {
            Duration::from_micros(of(&left.reply).max(of(&right.reply)).unwrap_or(0))
        };
        let stats = LookupStats {
            sent_bytes: left.sent_bytes + right.sent_bytes,
            received_bytes: (left.reply.answers.len() + right.reply.answers.len()) as u64,
            elapsed: Duration::ZERO,
            queue: us(|reply| reply.queue_us),
            answer: us(|reply| reply.answer_us),
            retries: left.retries + right.retries,
        };
        Ok(Lookup { rows, stats, format: RowFormat::of(&session.info) })
    }

    /// Sends keys to one server until it answers, it refuses for good, or time is up.
    async fn ask(
        &self,
        peer: &Peer,
        session: &Session,
        keys: Vec<Vec<u8>>,
        patience: Patience,
    ) -> Result<Asked, Error> {
        let version = Bytes::copy_from_slice(session.info.version.as_bytes());
        let keys: Vec<Bytes> = keys.into_iter().map(Bytes::from).collect();
        let answer_bytes = keys.len() * session.info.shape.row_bytes();
        let key_bytes = keys.iter().map(|key| key.len() as u64).sum::<u64>();
        let ask = |limit| peer.answer(version.clone(), keys.clone(), answer_bytes, limit);
        let (reply, retries) = patience.until_answered(ask).await?;
        let version =
            version_from_wire(&reply.table_version).map_err(|defect| peer.reply_error(defect))?;
        Ok(Asked { reply, version, sent_bytes: key_bytes * u64::from(retries + 1), retries })
    }
}

/// One server's part of a lookup.
struct Asked {
    reply: AnswerReply,
    version: hushtable_table::Version,
    sent_bytes: u64,
    retries: u32,
}

impl Asked {
    fn reply(&self) -> Reply<'_> {
        Reply { version: self.version, answers: &self.reply.answers }
    }
}

/// Fetches both infos and holds them against each other.
async fn open(
    left: &Peer,
    right: &Peer,
    prg: PrgKind,
    call_max: Duration,
    layout_bytes_max: u64,
) -> Result<Session, Error> {
    let (l, r) = tokio::try_join!(left.table_info(call_max), right.table_info(call_max))?;
    let PairTerms { group, keys_per_request_max, .. } =
        PairTerms::check([left.url(), right.url()], [&l, &r], prg)?;
    let bags = Bags::open((left, &l), (right, &r), prg, call_max, layout_bytes_max).await?;
    let client = dpf::Client::with_group(l.shape, l.version, prg, group)?;
    Ok(Session { bags, client, keys_per_request_max, info: l })
}

fn is_version_change(error: &Error) -> bool {
    use hushtable_pir::Error as Pir;
    matches!(
        error,
        Error::Refused {
            refusal: Refusal::LayoutSkew { .. }
                | Refusal::NoLayout
                | Refusal::VersionSkew { .. }
                | Refusal::WrongDomain { .. },
            ..
        } | Error::Pir(Pir::VersionMismatch { .. } | Pir::VersionChanged { .. })
    )
}
