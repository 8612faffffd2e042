//! Loads a server that is asked alone: `hushtable bench serve --scheme onion --rate 4`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::onion::{Client, ParameterSet};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use super::refusal::REFUSALS;
use crate::error::QUERIES_SETTING;
use crate::peer::endpoint::Peer;
use crate::peer::load::{
    CALL_MAX, CONNECT_MAX, LoadClient, LoadReport, Tally, drive, one_thread, random_rows,
};
use crate::peer::open::{self, Arrivals, OpenReport};
use crate::wire::OnionAnswerRequest;
use crate::{EndpointSpec, Error, OnionClient, OnionClientSpec, OnionInfo, ReplyDefect};

/// How a server that is asked alone is loaded.
///
/// Each client has a connection and keys of its own, and sends its next request when it has the
/// responses to the last (a closed loop), or takes the next of given [`Arrivals`]. Keys are made and uploaded, and queries made, before the
/// clock starts. That the same queries get the same responses is checked every time; a sample of
/// rows is fetched twice under different queries and compared.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct OnionLoadSpec {
    /// The server.
    pub server: EndpointSpec,
    /// The parameter sets that it may serve by.
    pub parameter_sets: Vec<ParameterSet>,
    /// Clients.
    pub clients: usize,
    /// Queries in each request.
    pub queries_per_request: usize,
    /// Before the clock starts.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
}

impl OnionLoadSpec {
    /// 16 clients of one query, 2 s to warm up, 10 s to measure.
    pub fn new(server: EndpointSpec) -> Self {
        Self {
            server,
            parameter_sets: vec![ParameterSet::N4096128],
            clients: 16,
            queries_per_request: 1,
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
            let mut ready = Vec::with_capacity(clients.len());
            for (client, keys) in clients {
                client.peer.put_keys(keys, CALL_MAX).await?;
                ready.push(client);
            }
            Ok(open::run(ready, arrivals, info.window).await)
        })
    }

    /// Runs the load.
    ///
    /// # Errors
    /// [`Error::MaxIds`] for more queries a request than the server takes, the errors of
    /// [`OnionClient::connect`] for a server out of reach, [`Error::Refused`] for one without room
    /// for the clients' keys, [`Error::Reply`] where the sample comes back wrong. Errors under load
    /// are counted instead.
    pub async fn run(&self) -> Result<LoadReport, Error> {
        let (prepared, info) = self.prepare().await?;
        let start = Arc::new(Barrier::new(prepared.len()));
        let mut clients = JoinSet::new();
        for (client, client_keys) in prepared {
            let (start, warmup, duration) = (Arc::clone(&start), self.warmup, self.duration);
            clients.spawn(async move {
                let uploaded = client.peer.put_keys(client_keys, CALL_MAX).await;
                start.wait().await;
                uploaded?;
                Ok::<_, Error>(drive(client, warmup, duration).await)
            });
        }
        let tally = Tally::of_all(clients).await?;
        Ok(tally.report(self.queries_per_request, info.window, self.duration))
    }

    /// The clients, each with the keys to upload, once a sample was seen to be right.
    async fn prepare(&self) -> Result<(Vec<(QueryClient, Bytes)>, OnionInfo), Error> {
        let parameter_sets = self.parameter_sets.clone();
        let spec = OnionClientSpec { parameter_sets, ..OnionClientSpec::new(self.server.clone()) };
        let sample = OnionClient::connect(&spec).await?;
        let info = sample.info();
        let queries = self.queries_per_request;
        let keys_max = info.queries_per_request_max;
        if !(1..=keys_max).contains(&queries) {
            let setting = QUERIES_SETTING;
            return Err(Error::MaxIds { max_ids: queries, keys_max, setting });
        }
        self.check_sample(&sample, &info).await?;
        let mut clients = Vec::new();
        for _ in 0..self.clients.max(1) {
            let peer = Peer::new(&self.server, false, CONNECT_MAX, REFUSALS)?;
            let client = Client::new(info.geometry.clone(), info.version)?;
            let requests = make_requests(&client, &info, queries)?;
            let response_bytes = queries * info.geometry.response_bytes();
            let client_keys = Bytes::copy_from_slice(client.keys());
            clients.push((QueryClient { peer, requests, response_bytes }, client_keys));
        }
        Ok((clients, info))
    }

    async fn check_sample(&self, client: &OnionClient, info: &OnionInfo) -> Result<(), Error> {
        let count = SAMPLE_ROWS.min(info.queries_per_request_max);
        let rows = random_rows(info.shape, count)?;
        let first = client.lookup(&rows, count).await?.rows;
        match first == client.lookup(&rows, count).await?.rows {
            true => Ok(()),
            false => {
                let url = self.server.url.clone();
                Err(Error::Reply { url, defect: ReplyDefect::Answers })
            }
        }
    }
}

struct QueryClient {
    peer: Peer,
    /// Requests to send in turn.
    requests: Vec<PreparedQueries>,
    response_bytes: usize,
}

struct PreparedQueries {
    request: OnionAnswerRequest,
    /// What they were answered first, and must be again.
    responses: Option<Bytes>,
}

impl LoadClient for QueryClient {
    async fn ask(&mut self, turn: usize) -> Result<Option<u64>, Error> {
        let turn = turn % self.requests.len();
        let PreparedQueries { request, responses } = &mut self.requests[turn];
        let reply = self.peer.onion_answer(request.clone(), self.response_bytes, CALL_MAX).await?;
        let right = reply.table_version == request.table_version
            && reply.responses.len() == self.response_bytes
            && *responses.get_or_insert_with(|| reply.responses.clone()) == reply.responses;
        Ok(right.then_some(reply.answer_us.unwrap_or(0)))
    }
}

/// A few requests for random rows.
fn make_requests(
    client: &Client,
    info: &OnionInfo,
    queries: usize,
) -> Result<Vec<PreparedQueries>, Error> {
    (0..REQUESTS_A_CLIENT)
        .map(|_| {
            let (made, _) = client.query(&random_rows(info.shape, queries)?, queries)?;
            let request = OnionAnswerRequest {
                table_version: Bytes::copy_from_slice(info.version.as_bytes()),
                key_id: Bytes::copy_from_slice(client.key_id().as_bytes()),
                queries: made.into_iter().map(Bytes::from).collect(),
            };
            Ok(PreparedQueries { request, responses: None })
        })
        .collect()
}

const REQUESTS_A_CLIENT: usize = 4;
const SAMPLE_ROWS: usize = 8;
