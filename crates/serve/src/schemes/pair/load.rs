//! Loads one server and measures what it answers: `hushtable bench serve`.
//!
//! Each client has a connection of its own and sends its next request when it has the answer to the
//! last (a closed loop), or takes the next of given arrivals. Keys are made before the clock starts. Every answer's version and length
//! are checked, and that the same keys get the same bytes; with the other server's URL, a sample is
//! also combined and compared with a lookup of the same rows by an ordinary client.
//!
//! [`BagLoadSpec`] loads both servers of a table with a layout with whole inferences.

mod bag;
mod model;
mod stub;

pub use bag::BagLoadSpec;
pub use model::{ModelEngineReport, ModelEngineSpec, ModelLoadSpec};
pub use stub::serve_stub_shards;

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::PrgKind;
use hushtable_pir::client::common_group;
use hushtable_pir::dpf::{self, Reply, Side};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::refusal::REFUSALS;
use crate::error::KEYS_SETTING;
use crate::peer::endpoint::Peer;
use crate::peer::load::{
    CALL_MAX, CONNECT_MAX, LoadClient, LoadReport, Tally, drive, one_thread, random_rows,
};
use crate::peer::open::{self, Arrivals, OpenReport};
use crate::peer::values::version_from_wire;
use crate::wire::AnswerReply;
use crate::{EndpointSpec, Error, ReplyDefect, TableInfo};

/// How a server is loaded.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct LoadSpec {
    /// The server under load, left or right.
    pub server: EndpointSpec,
    /// Its partner, to check a sample of the answers with; not loaded.
    pub partner: Option<EndpointSpec>,
    /// Clients, each with a connection of its own.
    pub clients: usize,
    /// Keys in each request.
    pub keys_per_request: usize,
    /// Before the clock starts.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
}

impl LoadSpec {
    /// 64 clients of one key, 2 s to warm up, 10 s to measure.
    pub fn new(server: EndpointSpec) -> Self {
        Self {
            server,
            partner: None,
            clients: 64,
            keys_per_request: 1,
            warmup: Duration::from_secs(2),
            duration: Duration::from_secs(10),
        }
    }

    /// Runs the load on a runtime of one thread, so that it can be pinned to a core.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::Io`] where no runtime can be made.
    pub fn run_blocking(&self) -> Result<LoadReport, Error> {
        one_thread()?.block_on(self.run())
    }

    /// Runs a load of given arrivals on a runtime of one thread. `warmup` and `duration` are theirs to
    /// say.
    ///
    /// # Errors
    /// As [`run_blocking`](Self::run_blocking).
    pub fn run_open_blocking(&self, arrivals: &Arrivals) -> Result<OpenReport, Error> {
        one_thread()?.block_on(async {
            let (clients, info) = self.prepare().await?;
            for client in &clients {
                client.peer.table_info(CALL_MAX).await?;
            }
            Ok(open::run(clients, arrivals, info.window).await)
        })
    }

    /// Runs the load.
    ///
    /// # Errors
    /// [`Error::MaxIds`] for more keys a request than the server takes, the errors of
    /// [`LookupClient::connect`](crate::LookupClient::connect) for servers out of reach,
    /// [`Error::Reply`] where the sample comes back wrong. Errors under load are counted instead.
    pub async fn run(&self) -> Result<LoadReport, Error> {
        let (prepared, info) = self.prepare().await?;
        let start = Arc::new(Barrier::new(prepared.len()));
        let mut clients = JoinSet::new();
        for client in prepared {
            // Connect before the clock starts: thousands of handshakes would be measured otherwise.
            let (start, warmup, duration) = (Arc::clone(&start), self.warmup, self.duration);
            clients.spawn(async move {
                let connected = client.peer.table_info(CALL_MAX).await;
                start.wait().await;
                connected?;
                Ok::<_, Error>(drive(client, warmup, duration).await)
            });
        }
        let tally = Tally::of_all(clients).await?;
        Ok(tally.report(self.keys_per_request, info.window, self.duration))
    }

    /// The clients, once a sample was seen to be right.
    async fn prepare(&self) -> Result<(Vec<KeyClient>, TableInfo), Error> {
        let peer = Peer::new(&self.server, false, CONNECT_MAX, REFUSALS)?;
        let info = peer.table_info(CALL_MAX).await?;
        let keys_max = info.keys_per_request_max;
        if !(1..=keys_max).contains(&self.keys_per_request) {
            let max_ids = self.keys_per_request;
            return Err(Error::MaxIds { max_ids, keys_max, setting: KEYS_SETTING });
        }
        if let Some(partner) = &self.partner {
            check_sample(&peer, &Peer::new(partner, false, CONNECT_MAX, REFUSALS)?, &info).await?;
        }
        let mut clients = Vec::new();
        for _ in 0..self.clients.max(1) {
            clients.push(KeyClient {
                peer: Peer::new(&self.server, false, CONNECT_MAX, REFUSALS)?,
                requests: make_requests(&info, self.keys_per_request)?,
                version: Bytes::copy_from_slice(info.version.as_bytes()),
                answer_bytes: self.keys_per_request * info.shape.row_bytes(),
            });
        }
        Ok((clients, info))
    }
}

struct KeyClient {
    peer: Peer,
    /// Requests to send in turn.
    requests: Vec<Prepared>,
    version: Bytes,
    answer_bytes: usize,
}

struct Prepared {
    keys: Vec<Bytes>,
    /// What they were answered first, and must be again.
    answers: Option<Bytes>,
}

impl LoadClient for KeyClient {
    async fn ask(&mut self, turn: usize) -> Result<Option<u64>, Error> {
        let turn = turn % self.requests.len();
        let keys = self.requests[turn].keys.clone();
        let reply =
            self.peer.answer(self.version.clone(), keys, self.answer_bytes, CALL_MAX).await?;
        Ok(self.is_right(turn, &reply).then_some(reply.answer_us.unwrap_or(0)))
    }
}

impl KeyClient {
    fn is_right(&mut self, i: usize, reply: &AnswerReply) -> bool {
        let right = reply.table_version == self.version && reply.answers.len() == self.answer_bytes;
        right
            && *self.requests[i].answers.get_or_insert_with(|| reply.answers.clone())
                == reply.answers
    }
}

/// A few requests of random rows, for the side of the server, of the group that it answers fastest.
fn make_requests(info: &TableInfo, keys: usize) -> Result<Vec<Prepared>, Error> {
    let group = common_group(&info.groups, &info.groups);
    let client = dpf::Client::with_group(info.shape, info.version, PrgKind::Aes128, group)?;
    let mut requests = Vec::with_capacity(REQUESTS_A_CLIENT);
    for _ in 0..REQUESTS_A_CLIENT {
        let (request, _) = client.query(&random_rows(info.shape, keys)?, keys)?;
        let keys = match info.side {
            Side::Left => request.left,
            Side::Right => request.right,
        };
        let keys = keys.into_iter().map(Bytes::from).collect();
        requests.push(Prepared { keys, answers: None });
    }
    Ok(requests)
}

/// Fetches the same rows twice, with different keys: both must give the same bytes, and either
/// server alone cannot make that happen.
async fn check_sample(peer: &Peer, partner: &Peer, info: &TableInfo) -> Result<(), Error> {
    let group = common_group(&info.groups, &partner.table_info(CALL_MAX).await?.groups);
    let client = dpf::Client::with_group(info.shape, info.version, PrgKind::Aes128, group)?;
    let keys = SAMPLE_KEYS.min(info.keys_per_request_max);
    let rows = random_rows(info.shape, keys)?;
    let version = Bytes::copy_from_slice(info.version.as_bytes());
    let (left, right) = match info.side {
        Side::Left => (peer, partner),
        Side::Right => (partner, peer),
    };
    let mut fetched = Vec::new();
    for _ in 0..2 {
        let (request, pending) = client.query(&rows, keys)?;
        let ask = |peer: &Peer, keys: Vec<Vec<u8>>| {
            let (peer, version) = (peer.clone(), version.clone());
            let answer_bytes = keys.len() * info.shape.row_bytes();
            let keys = keys.into_iter().map(Bytes::from).collect();
            async move { peer.answer(version, keys, answer_bytes, CALL_MAX).await }
        };
        let (l, r) = tokio::try_join!(ask(left, request.left), ask(right, request.right))?;
        let reply = |peer: &Peer, reply: &AnswerReply| {
            version_from_wire(&reply.table_version)
                .map_err(|defect| Error::Reply { url: peer.url().into(), defect })
        };
        let (lv, rv) = (reply(left, &l)?, reply(right, &r)?);
        fetched.push(pending.combine(
            Reply { version: lv, answers: &l.answers },
            Reply { version: rv, answers: &r.answers },
        )?);
    }
    match fetched[0] == fetched[1] {
        true => Ok(()),
        false => Err(Error::Reply { url: peer.url().into(), defect: ReplyDefect::Answers }),
    }
}

const REQUESTS_A_CLIENT: usize = 8;
const SAMPLE_KEYS: usize = 8;
