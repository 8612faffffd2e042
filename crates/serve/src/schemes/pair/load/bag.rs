//! Loads both servers with whole inferences: `hushtable bench serve --bags`.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::PrgKind;
use hushtable_pir::batch::{Client, Geometry, Pending};
use hushtable_pir::dpf::Reply;
use hushtable_table::layout::{Layout, Planner};
use tokio::sync::Barrier;
use tokio::task::JoinSet;

use crate::peer::endpoint::Peer;
use crate::peer::load::{
    CALL_MAX, CONNECT_MAX, LoadClient, LoadReport, Tally, drive, one_thread, random_rows,
};
use crate::peer::random_u64;
use crate::peer::values::version_from_wire;
use crate::schemes::pair::refusal::REFUSALS;
use crate::wire::AnswerBagsReply;
use crate::{ClientSpec, EndpointSpec, Error, LookupClient, ReplyDefect, TableInfo};

/// How two servers are loaded with whole inferences.
///
/// Each client has a connection of its own to each server, asks both at the same time, adds their
/// answers up, and sends its next inference when it has the last one's entries (a closed loop). Keys
/// are made before the clock starts. That the same keys get the same entries is checked every time;
/// a sample of bags is compared with ordinary lookups of the same rows.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct BagLoadSpec {
    /// The left server.
    pub left: EndpointSpec,
    /// The right server.
    pub right: EndpointSpec,
    /// Clients.
    pub clients: usize,
    /// Before the clock starts.
    pub warmup: Duration,
    /// How long to measure.
    pub duration: Duration,
}

impl BagLoadSpec {
    /// 32 clients, 2 s to warm up, 10 s to measure.
    pub fn new(left: EndpointSpec, right: EndpointSpec) -> Self {
        Self {
            left,
            right,
            clients: 32,
            warmup: Duration::from_secs(2),
            duration: Duration::from_secs(10),
        }
    }

    /// Runs the load on a runtime of one thread.
    ///
    /// # Errors
    /// As [`run`](Self::run), and [`Error::Io`] where no runtime can be made.
    pub fn run_blocking(&self) -> Result<LoadReport, Error> {
        one_thread()?.block_on(self.run())
    }

    /// Runs the load.
    ///
    /// # Errors
    /// Those of [`LookupClient::connect`], [`Error::NoLayout`] and [`Error::LayoutsDiffer`] for
    /// servers that cannot be loaded so, [`Error::Reply`] where the sample comes back wrong. Errors
    /// under load are counted instead.
    pub async fn run(&self) -> Result<LoadReport, Error> {
        let sample =
            LookupClient::connect(&ClientSpec::new(self.left.clone(), self.right.clone())).await?;
        let info = sample.info();
        check_sample(&sample, &info, &self.left.url).await?;
        let (Some(layout), Some(announced)) = (sample.layout()?, info.layout) else {
            let (left, right) = (self.left.url.clone(), self.right.url.clone());
            return Err(Error::NoLayout { left, right });
        };
        let geometry = Geometry::new(&layout);
        let planner = Planner::new(layout);
        let start = Arc::new(Barrier::new(self.clients.max(1)));
        let mut clients = JoinSet::new();
        for _ in 0..self.clients.max(1) {
            let client = BagClient {
                left: Peer::new(&self.left, false, CONNECT_MAX, REFUSALS)?,
                right: Peer::new(&self.right, false, CONNECT_MAX, REFUSALS)?,
                bags: make_bags(&planner, &geometry, &info)?,
                version: Bytes::copy_from_slice(geometry.version().as_bytes()),
                answer_bytes: geometry.answer_bytes(),
            };
            let (start, warmup, duration) = (Arc::clone(&start), self.warmup, self.duration);
            clients.spawn(async move {
                let connected = tokio::try_join!(
                    client.left.table_info(CALL_MAX),
                    client.right.table_info(CALL_MAX)
                );
                start.wait().await;
                connected?;
                Ok::<_, Error>(drive(client, warmup, duration).await)
            });
        }
        let tally = Tally::of_all(clients).await?;
        Ok(tally.report(1, announced.window, self.duration))
    }
}

struct BagClient {
    left: Peer,
    right: Peer,
    /// Inferences to ask in turn.
    bags: Vec<PreparedBag>,
    version: Bytes,
    answer_bytes: usize,
}

struct PreparedBag {
    left: Bytes,
    right: Bytes,
    pending: Pending,
    /// What they were answered first, and must be again.
    entries: Option<Vec<u8>>,
}

impl LoadClient for BagClient {
    async fn ask(&mut self, turn: usize) -> Result<Option<u64>, Error> {
        let turn = turn % self.bags.len();
        let bag = &self.bags[turn];
        let ask = |peer: &Peer, keys: &Bytes| {
            let (peer, keys, version) = (peer.clone(), keys.clone(), self.version.clone());
            let answer_bytes = self.answer_bytes;
            async move { peer.answer_bags(version, keys, answer_bytes, CALL_MAX).await }
        };
        let (left, right) =
            tokio::try_join!(ask(&self.left, &bag.left), ask(&self.right, &bag.right))?;
        let is_right = self.bags[turn].is_right(&left, &right);
        Ok(is_right.then_some(left.answer_us.max(right.answer_us).unwrap_or(0)))
    }
}

impl PreparedBag {
    fn is_right(&mut self, left: &AnswerBagsReply, right: &AnswerBagsReply) -> bool {
        fn reply(reply: &AnswerBagsReply) -> Option<Reply<'_>> {
            let version = version_from_wire(&reply.layout_version).ok()?;
            Some(Reply { version, answers: &reply.answers })
        }
        let (Some(left), Some(right)) = (reply(left), reply(right)) else { return false };
        let Ok(entries) = self.pending.combine(left, right) else { return false };
        *self.entries.get_or_insert_with(|| entries.clone()) == entries
    }
}

/// A few inferences of random rows.
fn make_bags(
    planner: &Planner,
    geometry: &Geometry,
    info: &TableInfo,
) -> Result<Vec<PreparedBag>, Error> {
    let client = Client::new(geometry.clone(), PrgKind::Aes128);
    (0..BAGS_A_CLIENT)
        .map(|_| {
            let ids = random_rows(info.shape, bag_ids(planner.layout()))?;
            let plan = planner.plan_vartime(&ids, random_u64()?)?;
            let (mut request, pending) = client.query(&plan)?;
            let left = std::mem::take(&mut request.left).into();
            let right = std::mem::take(&mut request.right).into();
            Ok(PreparedBag { left, right, pending, entries: None })
        })
        .collect()
}

/// Fetches bags and looks the same rows up one by one: those kept must be the same.
async fn check_sample(client: &LookupClient, info: &TableInfo, url: &str) -> Result<(), Error> {
    let Some(layout) = client.layout()? else { return Ok(()) };
    let ids = random_rows(info.shape, bag_ids(&layout).min(info.keys_per_request_max))?;
    let bag = client.fetch_bag(&ids).await?;
    let lookup = client.lookup(&ids, ids.len()).await?;
    let row_bytes = info.shape.row_bytes();
    let rows = bag.rows.chunks_exact(row_bytes).zip(lookup.rows.chunks_exact(row_bytes));
    match rows.zip(&bag.kept).all(|((found, expected), &kept)| !kept || found == expected) {
        true => Ok(()),
        false => Err(Error::Reply { url: url.into(), defect: ReplyDefect::Answers }),
    }
}

/// Ids of a bag that a layout answers: as many as it takes, but no more than fit well.
fn bag_ids(layout: &Layout) -> usize {
    layout.ids_max().min(layout.keys()).min(IDS_MAX)
}

const BAGS_A_CLIENT: usize = 4;
const IDS_MAX: usize = 256;
