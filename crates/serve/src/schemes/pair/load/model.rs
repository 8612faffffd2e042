//! Loads both servers of a model with whole inferences, and measures a model's engine without them:
//! `hushtable bench model`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hushtable_pir::batch::{self, Geometry};
use hushtable_pir::dpf::{self, Domain, Group, KeyPair, Reply, Side};
use hushtable_pir::model::{Feature, Inference, Server};
use hushtable_pir::{CpuEngine, EngineSpec, Platform, Prg, PrgKind, TableShape, Threads};
use hushtable_table::Version;
use hushtable_table::layout::{Layout, Planner};
use hushtable_table::model::ModelManifest;
use tokio::sync::Barrier;
use tokio::task::JoinSet;
use tonic::transport::Channel;

use crate::peer::endpoint::{Peer, REPLY_OVERHEAD_BYTES};
use crate::peer::load::{
    CALL_MAX, CONNECT_MAX, LoadClient, LoadReport, Tally, drive, one_thread, random_rows,
};
use crate::peer::random_u64;
use crate::schemes::pair::refusal::REFUSALS;
use crate::wire::private_lookup_client::PrivateLookupClient;
use crate::wire::{AnswerModelReply, AnswerModelRequest, AnswerRequest, LayoutRequest};
use crate::{EndpointSpec, Error, ReplyDefect};

/// How two servers are loaded with whole inferences of a model.
///
/// Each client has a connection of its own to each server, asks both at the same time with as many
/// ids for each feature as it may have, and sends its next inference when both have answered (a
/// closed loop). Keys are made before the clock starts. That the same keys get the same bytes is
/// checked every time; a sample of inferences is compared with lookups of single rows.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ModelLoadSpec {
    /// The left server.
    pub left: EndpointSpec,
    /// The right server.
    pub right: EndpointSpec,
    /// The model that both serve.
    pub manifest: ModelManifest,
    /// Clients.
    pub clients: usize,
    /// Before the clock starts.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
}

impl ModelLoadSpec {
    /// 32 clients, 2 s to warm up, 10 s to measure.
    pub fn new(left: EndpointSpec, right: EndpointSpec, manifest: ModelManifest) -> Self {
        Self {
            left,
            right,
            manifest,
            clients: 32,
            warmup: Duration::from_secs(2),
            duration: Duration::from_secs(10),
        }
    }

    /// Runs the load on a runtime of one thread. A query of the report is one whole inference.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::Io`] where no runtime can be made.
    pub fn run_blocking(&self) -> Result<LoadReport, Error> {
        one_thread()?.block_on(self.run())
    }

    /// Runs the load.
    ///
    /// # Errors
    /// [`Error::Refused`] for servers that do not hold the model, those of connections, and
    /// [`Error::Reply`] where the sample comes back wrong. Errors under load are counted instead.
    pub async fn run(&self) -> Result<LoadReport, Error> {
        let connect = || -> Result<[Peer; 2], Error> {
            Ok([
                Peer::new(&self.left, false, CONNECT_MAX, REFUSALS)?,
                Peer::new(&self.right, false, CONNECT_MAX, REFUSALS)?,
            ])
        };
        let sample = connect()?;
        let tables = Arc::new(Tables::fetch(&self.manifest, &sample[0]).await?);
        tables.check_sample(&sample).await?;
        let start = Arc::new(Barrier::new(self.clients.max(1)));
        let mut clients = JoinSet::new();
        for _ in 0..self.clients.max(1) {
            let inferences =
                (0..INFERENCES_A_CLIENT).map(|_| tables.prepare()).collect::<Result<_, _>>()?;
            let mut client = ModelClient { peers: connect()?, inferences };
            let (start, warmup, duration) = (Arc::clone(&start), self.warmup, self.duration);
            clients.spawn(async move {
                // Connect before the clock starts.
                let connected = client.ask(0).await;
                start.wait().await;
                connected?;
                Ok::<_, Error>(drive(client, warmup, duration).await)
            });
        }
        let tally = Tally::of_all(clients).await?;
        Ok(tally.report(1, Duration::ZERO, self.duration))
    }
}

/// A model's tables as a client asks them.
struct Tables {
    manifest: ModelManifest,
    /// By the manifest's index.
    tables: Vec<Asked>,
    answer_bytes: usize,
}

enum Asked {
    Rows { shape: TableShape, client: dpf::Client },
    Bins { shape: TableShape, planner: Planner, geometry: Geometry },
}

/// An inference whose keys are made.
struct Prepared {
    requests: [AnswerModelRequest; 2],
    answer_bytes: usize,
    /// What it was answered first, and must be again.
    answers: Option<[Bytes; 2]>,
}

struct ModelClient {
    peers: [Peer; 2],
    /// Inferences to ask in turn.
    inferences: Vec<Prepared>,
}

impl LoadClient for ModelClient {
    async fn ask(&mut self, turn: usize) -> Result<Option<u64>, Error> {
        let turn = turn % self.inferences.len();
        let inference = &mut self.inferences[turn];
        let [left, right] = ask_both(&self.peers, inference).await?;
        let version = &inference.requests[0].model_version;
        if left.model_version != *version || right.model_version != *version {
            return Ok(None);
        }
        let answer_us = left.answer_us.max(right.answer_us).unwrap_or(0);
        let found = [left.answers, right.answers];
        let is_right = *inference.answers.get_or_insert_with(|| found.clone()) == found;
        Ok(is_right.then_some(answer_us))
    }
}

fn client_of(peer: &Peer, reply_bytes_max: usize) -> PrivateLookupClient<Channel> {
    PrivateLookupClient::new(peer.channel.clone()).max_decoding_message_size(reply_bytes_max)
}

async fn ask_both(peers: &[Peer; 2], inference: &Prepared) -> Result<[AnswerModelReply; 2], Error> {
    let ask = |side: usize| {
        let (peer, request) = (&peers[side], inference.requests[side].clone());
        let mut client = client_of(peer, inference.answer_bytes + REPLY_OVERHEAD_BYTES);
        async move {
            Ok::<_, Error>(peer.within(CALL_MAX, client.answer_model(request)).await?.into_inner())
        }
    };
    let (left, right) = tokio::try_join!(ask(0), ask(1))?;
    Ok([left, right])
}

impl Tables {
    /// Fetches the layouts that the manifest names.
    async fn fetch(manifest: &ModelManifest, peer: &Peer) -> Result<Self, Error> {
        let mut tables = Vec::with_capacity(manifest.tables().len());
        for table in manifest.tables() {
            let shape = TableShape::new(table.shape.rows(), table.shape.row_bytes())?;
            tables.push(match table.layout {
                None => {
                    let client = dpf::Client::new(shape, table.version, PrgKind::Aes128)?;
                    Asked::Rows { shape, client }
                }
                Some(version) => {
                    let layout = fetch_layout(peer, version).await?;
                    let geometry = Geometry::new(&layout);
                    Asked::Bins { shape, planner: Planner::new(Arc::new(layout)), geometry }
                }
            });
        }
        let answer_bytes = manifest.features().iter().map(|feature| match &tables[feature.table] {
            Asked::Rows { shape, .. } => feature.max_ids * shape.row_bytes(),
            Asked::Bins { geometry, .. } => geometry.answer_bytes(),
        });
        let answer_bytes = answer_bytes.sum();
        Ok(Self { manifest: manifest.clone(), tables, answer_bytes })
    }

    /// One inference's ids: of features that are asked by rows as many as they may have.
    fn ids(&self) -> Result<Vec<Vec<u64>>, Error> {
        let ids =
            self.manifest.features().iter().map(|feature| match &self.tables[feature.table] {
                Asked::Rows { shape, .. } => random_rows(*shape, feature.max_ids),
                Asked::Bins { shape, planner, .. } => {
                    let layout = planner.layout();
                    let ids = feature.max_ids.min(layout.ids_max()).min(layout.keys());
                    random_rows(*shape, ids)
                }
            });
        ids.collect()
    }

    fn prepare(&self) -> Result<Prepared, Error> {
        Ok(self.ask(&self.ids()?)?.0)
    }

    /// The keys for `ids`, and what reads the answers of features that are asked by rows.
    #[allow(clippy::type_complexity, reason = "a private function's two results")]
    fn ask(&self, ids: &[Vec<u64>]) -> Result<(Prepared, Vec<Option<dpf::Pending>>), Error> {
        let mut parts = [Vec::new(), Vec::new()];
        let mut pending = Vec::new();
        for (feature, ids) in self.manifest.features().iter().zip(ids) {
            let [left, right] = match &self.tables[feature.table] {
                Asked::Rows { client, .. } => {
                    let (request, read) = client.query(ids, feature.max_ids)?;
                    pending.push(Some(read));
                    [request.left.concat(), request.right.concat()]
                }
                Asked::Bins { planner, geometry, .. } => {
                    let plan = planner.plan_vartime(ids, random_u64()?)?;
                    let client = batch::Client::new(geometry.clone(), PrgKind::Aes128);
                    let (mut request, _) = client.query(&plan)?;
                    pending.push(None);
                    [std::mem::take(&mut request.left), std::mem::take(&mut request.right)]
                }
            };
            parts[0].push(left.into());
            parts[1].push(right.into());
        }
        let version = Bytes::copy_from_slice(self.manifest.version().as_bytes());
        let requests =
            parts.map(|parts| AnswerModelRequest { model_version: version.clone(), parts });
        let answer_bytes = self.answer_bytes;
        Ok((Prepared { requests, answer_bytes, answers: None }, pending))
    }

    /// Asks an inference, and the first row of each feature of rows by itself: both must give the
    /// same bytes, and either server alone cannot make that happen.
    async fn check_sample(&self, peers: &[Peer; 2]) -> Result<(), Error> {
        let wrong =
            || Err(Error::Reply { url: peers[0].url().into(), defect: ReplyDefect::Answers });
        let ids = self.ids()?;
        let (prepared, pending) = self.ask(&ids)?;
        let replies = ask_both(peers, &prepared).await?;
        if replies.iter().any(|reply| reply.answers.len() != self.answer_bytes) {
            return wrong();
        }
        let mut start = 0;
        for ((feature, ids), pending) in self.manifest.features().iter().zip(&ids).zip(pending) {
            let version = self.manifest.tables()[feature.table].version;
            match (&self.tables[feature.table], pending) {
                (Asked::Rows { shape, client }, Some(pending)) => {
                    let end = start + feature.max_ids * shape.row_bytes();
                    let [left, right] = replies
                        .each_ref()
                        .map(|reply| Reply { version, answers: &reply.answers[start..end] });
                    let rows = pending.combine(left, right)?;
                    start = end;
                    let alone = fetch_row(peers, client, version, ids[0], *shape).await?;
                    if rows[..shape.row_bytes()] != alone {
                        return wrong();
                    }
                }
                (Asked::Bins { geometry, .. }, _) => start += geometry.answer_bytes(),
                (Asked::Rows { .. }, None) => {}
            }
        }
        Ok(())
    }
}

/// Looks one row up by itself.
async fn fetch_row(
    peers: &[Peer; 2],
    client: &dpf::Client,
    version: Version,
    id: u64,
    shape: TableShape,
) -> Result<Vec<u8>, Error> {
    let (request, pending) = client.query(&[id], 1)?;
    let ask = |side: usize, keys: Vec<Vec<u8>>| {
        let keys = keys.into_iter().map(Bytes::from).collect();
        let table_version = Bytes::copy_from_slice(version.as_bytes());
        let request = AnswerRequest { table_version, keys };
        let mut client = client_of(&peers[side], shape.row_bytes() + REPLY_OVERHEAD_BYTES);
        let peer = &peers[side];
        async move { Ok::<_, Error>(peer.within(CALL_MAX, client.answer(request)).await?.into_inner()) }
    };
    let (left, right) = tokio::try_join!(ask(0, request.left), ask(1, request.right))?;
    let reply = |answers| Reply { version, answers };
    Ok(pending.combine(reply(&left.answers), reply(&right.answers))?)
}

async fn fetch_layout(peer: &Peer, version: Version) -> Result<Layout, Error> {
    let mut client = client_of(peer, LAYOUT_MESSAGE_BYTES_MAX);
    let layout_version = Bytes::copy_from_slice(version.as_bytes());
    let chunks = client.layout(LayoutRequest { layout_version });
    let mut chunks = peer.within(CALL_MAX, chunks).await?.into_inner();
    let mut bytes = Vec::new();
    while let Some(chunk) = peer.within(CALL_MAX, chunks.message()).await? {
        bytes.extend_from_slice(&chunk.bytes);
    }
    let defect = |defect| Error::Reply { url: peer.url().into(), defect };
    let layout = Layout::from_bytes(&bytes).map_err(|error| defect(ReplyDefect::Layout(error)))?;
    match layout.version() == version {
        true => Ok(layout),
        false => Err(defect(ReplyDefect::Answers)),
    }
}

/// A model's engine on this machine, without servers: tables of pseudorandom rows.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ModelEngineSpec {
    /// Rows of each table.
    pub rows: Vec<u64>,
    /// Bytes of their rows.
    pub row_bytes: usize,
    /// Keys of an inference for each table.
    pub keys: usize,
    /// Inferences that share a pass.
    pub batch: usize,
    /// Threads; 0 for one a core.
    pub threads: usize,
    /// Passes to measure, at least one; one more runs before.
    pub passes: usize,
}

/// What a model's engine measured.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct ModelEngineReport {
    /// What each pass took, in seconds.
    pub pass_s: Vec<f64>,
    /// Stored bytes that a pass reads.
    pub read_bytes: u64,
    /// Stored bytes that one inference's keys are multiplied with: an affine instruction of 512 bits
    /// does 512 of them.
    pub product_bytes: u64,
    /// Threads that answered.
    pub threads: usize,
}

impl ModelEngineSpec {
    /// Loads the tables, makes keys for random rows, and measures passes of left's half.
    ///
    /// # Errors
    /// [`Error::Pir`] for shapes that no table has, for memory and threads that are not to be had.
    pub fn run(&self) -> Result<ModelEngineReport, Error> {
        let threads = Threads::new(self.threads)?;
        let version = Version::from([0; 32]);
        let prg = Prg::new(PrgKind::Aes128, Platform::detect());
        let spec = EngineSpec { shared: Some(threads.clone()), ..EngineSpec::default() };
        let mut features = Vec::with_capacity(self.rows.len());
        for &rows in &self.rows {
            let shape = TableShape::new(rows, self.row_bytes)?;
            let table: Vec<u8> = (0..shape.table_bytes()).map(|i| ((i * 31) >> 3) as u8).collect();
            let engine = CpuEngine::from_rows(shape, &table, &spec)?;
            let server = dpf::Server::new(Side::Left, version, Arc::new(engine));
            features.push(Feature::Rows { server, keys: self.keys.max(1) });
        }
        let server = Server::new(version, features, threads.clone());
        let key = |&rows: &u64| {
            let domain = Domain::new(rows, Group::Bits)?;
            let pair = KeyPair::generate(prg, domain, random_u64()? % rows)?;
            Ok(pair.left.to_bytes())
        };
        let part = |rows: &u64| -> Result<Vec<u8>, Error> {
            let keys: Vec<_> =
                (0..self.keys.max(1)).map(|_| key(rows)).collect::<Result<_, Error>>()?;
            Ok(keys.concat())
        };
        let mut inferences: Vec<Inference> = Vec::with_capacity(self.batch);
        for _ in 0..self.batch.max(1) {
            let parts = self.rows.iter().map(part).collect::<Result<Vec<_>, _>>()?;
            inferences.push(server.accept(parts)?);
        }
        let mut answers = vec![0; inferences.len() * server.answer_bytes()];
        let mut pass_s = Vec::with_capacity(self.passes);
        // The first pass warms caches and threads.
        for pass in 0..=self.passes.max(1) {
            let started = Instant::now();
            server.answer(&inferences, &mut answers)?;
            if pass > 0 {
                pass_s.push(started.elapsed().as_secs_f64());
            }
        }
        let (read_bytes, product_bytes) = (server.read_bytes(), server.product_bytes());
        Ok(ModelEngineReport { pass_s, read_bytes, product_bytes, threads: threads.count() })
    }
}

const INFERENCES_A_CLIENT: usize = 4;
/// A layout's chunk is at most 1 MiB.
const LAYOUT_MESSAGE_BYTES_MAX: usize = (1 << 20) + 64;
