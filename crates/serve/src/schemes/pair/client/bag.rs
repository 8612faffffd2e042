//! Whole inferences: all rows of a bag of ids in one round trip to each server.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hushtable_pir::PrgKind;
use hushtable_pir::batch::{self, Geometry};
use hushtable_pir::dpf::Reply;
use hushtable_table::layout::{Layout, Plan, Planner};
use hushtable_table::{Shape, ShapeError, Version};
use tokio::time::Instant;

use super::super::terms::check_bags;
use super::{LookupClient, LookupStats, RowFormat, Session, is_version_change};
use crate::peer::endpoint::Peer;
use crate::peer::random_u64;
use crate::peer::session::Patience;
use crate::peer::values::version_from_wire;
use crate::wire::AnswerBagsReply;
use crate::{Error, LayoutInfo, ReplyDefect, TableInfo};

/// What a session knows of the servers' layouts.
pub(super) enum Bags {
    /// Neither has one.
    None,
    /// They have different ones.
    Differ([Option<Version>; 2]),
    /// It is larger than the client fetches.
    TooLarge { bytes: u64, bytes_max: u64 },
    /// Both have this one.
    Ready(Box<Inference>),
}

/// What it takes to ask by a layout.
pub(super) struct Inference {
    planner: Planner,
    client: batch::Client,
}

/// The rows of a bag of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Bag {
    /// `ids × row_bytes` bytes, in the ids' order: zero where an id was dropped.
    pub rows: Vec<u8>,
    /// For each id whether its row is there. The layout's rule decides which ids are dropped where
    /// not all fit; the servers do not learn whether any was.
    pub kept: Vec<bool>,
    /// Distinct ids that were dropped.
    pub dropped: usize,
    /// Keys sent to each server.
    pub keys: usize,
    /// What it cost.
    pub stats: LookupStats,
    format: RowFormat,
}

impl Bag {
    /// The rows as `ids × dim` numbers, zero where an id was dropped.
    ///
    /// # Errors
    /// [`Error::Rows`] for bytes that are no numbers of the table's type.
    pub fn to_f32(&self) -> Result<Vec<f32>, Error> {
        self.format.decode(&self.rows)
    }
}

impl Bags {
    /// Fetches the layout that both servers announce, and checks that it is that one and of their
    /// table.
    pub async fn open(
        (left, l): (&Peer, &TableInfo),
        (right, r): (&Peer, &TableInfo),
        prg: PrgKind,
        call_max: Duration,
        bytes_max: u64,
    ) -> Result<Self, Error> {
        let versions = [l, r].map(|info| info.layout.map(|layout| layout.version));
        let info = match (versions, l.layout) {
            ([None, None], _) => return Ok(Self::None),
            ([Some(a), Some(b)], Some(info)) if a == b => info,
            (versions, _) => return Ok(Self::Differ(versions)),
        };
        if info.bytes > bytes_max {
            return Ok(Self::TooLarge { bytes: info.bytes, bytes_max });
        }
        let bytes = left.layout(info, call_max).await?;
        let table = (l.version, Shape::new(l.shape.rows(), l.dim, l.dtype));
        // To hash a large layout and to note who carries whom takes seconds.
        let made = tokio::task::spawn_blocking(move || Inference::make(&bytes, info, table, prg));
        match made.await {
            Ok(made) => {
                let made = made.map_err(|defect| left.reply_error(defect))?;
                for (peer, info) in [(left, l), (right, r)] {
                    check_bags(made.client.geometry(), info)
                        .map_err(|defect| peer.reply_error(defect))?;
                }
                Ok(Self::Ready(Box::new(made)))
            }
            Err(panic) => std::panic::resume_unwind(panic.into_panic()),
        }
    }
}

impl Inference {
    /// Reads a layout. Whichever server it comes from, it hashes to what both announced.
    fn make(
        bytes: &[u8],
        info: LayoutInfo,
        (version, shape): (Version, Result<Shape, ShapeError>),
        prg: PrgKind,
    ) -> Result<Self, ReplyDefect> {
        let layout = Layout::from_bytes(bytes).map_err(ReplyDefect::Layout)?;
        let (expected, found) = (info.version, layout.version());
        if found != expected {
            return Err(ReplyDefect::LayoutVersion { expected, found });
        }
        let shape = shape.map_err(ReplyDefect::TableShape)?;
        layout.check_table(shape, version).map_err(ReplyDefect::Layout)?;
        let client = batch::Client::new(Geometry::new(&layout), prg);
        Ok(Self { planner: Planner::new(Arc::new(layout)), client })
    }
}

impl LookupClient {
    /// The layout by which bags are asked for; `None` where the servers' table has none.
    ///
    /// # Errors
    /// [`Error::LayoutsDiffer`], [`Error::LayoutBytes`] for layouts that cannot be asked by.
    pub fn layout(&self) -> Result<Option<Arc<Layout>>, Error> {
        match self.inference(&self.session().bags) {
            Ok(inference) => Ok(Some(Arc::clone(inference.planner.layout()))),
            Err(Error::NoLayout { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Fetches the rows of a bag of ids by the table's layout, in one round trip to each server, at
    /// the same time. What the servers see is the same for every bag: as many bytes each way, for an
    /// empty bag as for one that drops ids. Ids may repeat.
    ///
    /// Busy servers and changed layouts are dealt with as by [`lookup`](Self::lookup).
    ///
    /// # Errors
    /// [`Error::Bag`] for an id that is no row and more ids than the layout is made for;
    /// [`Error::NoLayout`], [`Error::LayoutsDiffer`], [`Error::LayoutBytes`] where there is no
    /// layout to ask by; [`Error::Refused`], [`Error::Unavailable`], [`Error::Timeout`],
    /// [`Error::Reply`] for what servers do.
    pub async fn fetch_bag(&self, ids: &[u64]) -> Result<Bag, Error> {
        let started = Instant::now();
        let patience = self.patience(started);
        let session = self.session();
        let mut bag = match self.fetch_bag_once(&session, ids, patience).await {
            Err(error) if is_layout_change(&error) => {
                let session = self.reopen(&session).await?;
                self.fetch_bag_once(&session, ids, patience).await?
            }
            other => other?,
        };
        bag.stats.elapsed = started.elapsed();
        Ok(bag)
    }

    async fn fetch_bag_once(
        &self,
        session: &Session,
        ids: &[u64],
        patience: Patience,
    ) -> Result<Bag, Error> {
        let Inference { planner, client } = self.inference(&session.bags)?;
        let plan = planner.plan_vartime(ids, random_u64()?)?;
        let (mut request, pending) = client.query(&plan)?;
        let geometry = client.geometry();
        let ask = |peer, keys: &mut Vec<u8>| {
            self.ask_bag(peer, geometry, Bytes::from(std::mem::take(keys)), patience)
        };
        let (left, right) = tokio::try_join!(
            ask(&self.left, &mut request.left),
            ask(&self.right, &mut request.right),
        )?;
        let entries = pending.combine(left.reply(), right.reply())?;
        let rows = pending.rows(&plan, &entries, session.info.shape.row_bytes());
        let us = |field: fn(&AnswerBagsReply) -> Option<u64>| {
            Duration::from_micros(field(&left.reply).max(field(&right.reply)).unwrap_or(0))
        };
        let stats = LookupStats {
            sent_bytes: left.sent_bytes + right.sent_bytes,
            received_bytes: (left.reply.answers.len() + right.reply.answers.len()) as u64,
            elapsed: Duration::ZERO,
            queue: us(|reply| reply.queue_us),
            answer: us(|reply| reply.answer_us),
            retries: left.retries + right.retries,
        };
        let Plan { found, dropped, .. } = plan;
        let kept = found.iter().map(Option::is_some).collect();
        let keys = geometry.keys();
        let format = RowFormat::of(&session.info);
        Ok(Bag { rows, kept, dropped, keys, stats, format })
    }

    async fn ask_bag(
        &self,
        peer: &Peer,
        geometry: &Geometry,
        keys: Bytes,
        patience: Patience,
    ) -> Result<AskedBag, Error> {
        let version = Bytes::copy_from_slice(geometry.version().as_bytes());
        let answer_bytes = geometry.answer_bytes();
        let ask = |limit| peer.answer_bags(version.clone(), keys.clone(), answer_bytes, limit);
        let (reply, retries) = patience.until_answered(ask).await?;
        let version =
            version_from_wire(&reply.layout_version).map_err(|defect| peer.reply_error(defect))?;
        let sent_bytes = keys.len() as u64 * u64::from(retries + 1);
        Ok(AskedBag { reply, version, sent_bytes, retries })
    }

    /// What asks by the session's layout.
    fn inference<'a>(&self, bags: &'a Bags) -> Result<&'a Inference, Error> {
        let [left, right] = [&self.left, &self.right].map(|peer| peer.url().to_owned());
        Err(match *bags {
            Bags::Ready(ref inference) => return Ok(inference),
            Bags::None => Error::NoLayout { left, right },
            Bags::Differ(versions) => {
                Error::LayoutsDiffer { left, right, versions: Box::new(versions) }
            }
            Bags::TooLarge { bytes, bytes_max } => {
                Error::LayoutBytes { url: left, bytes, bytes_max }
            }
        })
    }
}

/// One server's part of an inference.
struct AskedBag {
    reply: AnswerBagsReply,
    version: Version,
    sent_bytes: u64,
    retries: u32,
}

impl AskedBag {
    fn reply(&self) -> Reply<'_> {
        Reply { version: self.version, answers: &self.reply.answers }
    }
}

/// Whether the servers' layout may be another one by now.
fn is_layout_change(error: &Error) -> bool {
    matches!(
        error,
        Error::NoLayout { .. } | Error::LayoutsDiffer { .. } | Error::LayoutBytes { .. }
    ) || is_version_change(error)
}
