//! One version of a table at a pair of servers, and what is asked of it.

use std::sync::Arc;

use bytes::Bytes;
use hushtable_client::{Script, Tally};
use hushtable_prg::PrgKind;
use hushtable_table::layout::{Layout, Planner};
use hushtable_table::{Shape, Version};

use super::bags::{BagScript, BagsScript, BagsTerms};
use super::terms::check_bags;
use super::{
    Answers, Call, Failure, LayoutInfo, LookupStats, PairTerms, Place, Reply, ReplyDefect,
    Retrieval, Round, RowFormat, Rows, TableInfo,
};
use crate::batch::{self, Geometry};
use crate::dpf;

/// One version of a table, as both servers announced it.
pub(super) struct PairTable {
    pub info: TableInfo,
    pub keys_per_request_max: usize,
    pub client: dpf::Client,
    pub bags: Bags,
}

/// What is known of the servers' layouts.
pub(super) enum Bags {
    /// Neither has one.
    None,
    /// They have different ones.
    Differ([Option<Version>; 2]),
    /// It is larger than the client fetches.
    TooLarge { bytes: u64, bytes_max: u64 },
    /// Both have this one, and take so many inferences in one request.
    Ready(Arc<Inference>, usize),
}

/// What it takes to ask by a layout.
pub(super) struct Inference {
    pub planner: Planner,
    pub client: batch::Client,
}

/// Two announcements that fit each other; the layout may still be to fetch.
pub(super) struct Matched {
    pub infos: [TableInfo; 2],
    pub terms: PairTerms,
}

impl Matched {
    /// What is known of the layouts before one is fetched; the layout, where that is the next thing.
    pub fn layout(&self, bytes_max: u64) -> Result<Bags, LayoutInfo> {
        let versions = self.infos.each_ref().map(|info| info.layout.map(|layout| layout.version));
        match (versions, self.infos[0].layout) {
            ([None, None], _) => Ok(Bags::None),
            ([Some(left), Some(right)], Some(info)) if left == right => match info.bytes {
                bytes if bytes > bytes_max => Ok(Bags::TooLarge { bytes, bytes_max }),
                _ => Err(info),
            },
            (versions, _) => Ok(Bags::Differ(versions)),
        }
    }

    /// Reads the layout that left sent. Whichever server it comes from, it hashes to what both
    /// announced.
    pub fn read_layout(&self, bytes: &[u8], prg: PrgKind) -> Result<Bags, Failure> {
        let [left, _] = &self.infos;
        let made = Inference::read(bytes, left, prg)
            .map_err(|defect| Failure::Reply { place: Place::Left, defect })?;
        self.with(Arc::new(made))
    }

    /// What a client has of `table`, where it is of the layout and the table that these servers announce, so that
    /// a large layout is not fetched of every server of a side.
    pub fn known_layout(&self, table: &PairTable, wanted: LayoutInfo) -> Option<Bags> {
        let Bags::Ready(known, _) = &table.bags else { return None };
        let [left, _] = &self.infos;
        let is_same = (table.info.version, table.info.layout) == (left.version, Some(wanted));
        // Where it does not do, it is fetched, and the reason told.
        is_same.then(|| self.with(Arc::clone(known)).ok()).flatten()
    }

    /// As [`known_layout`](Self::known_layout), of any of a client's tables.
    pub fn known_among(&self, tables: &[PairTable], wanted: LayoutInfo) -> Option<Bags> {
        tables.iter().find_map(|table| self.known_layout(table, wanted))
    }

    fn with(&self, made: Arc<Inference>) -> Result<Bags, Failure> {
        let mut bags_max = usize::MAX;
        for (place, info) in Place::PAIR.into_iter().zip(&self.infos) {
            let taken = check_bags(made.client.geometry(), info)
                .map_err(|defect| Failure::Reply { place, defect })?;
            bags_max = bags_max.min(taken);
        }
        Ok(Bags::Ready(made, bags_max))
    }

    pub fn into_table(self, bags: Bags, prg: PrgKind) -> Result<PairTable, Failure> {
        let PairTerms { group, keys_per_request_max } = self.terms;
        let [info, _] = self.infos;
        let client = dpf::Client::with_group(info.shape, info.version, prg, group)?;
        Ok(PairTable { info, keys_per_request_max, client, bags })
    }
}

impl Inference {
    fn read(bytes: &[u8], table: &TableInfo, prg: PrgKind) -> Result<Self, ReplyDefect> {
        let layout = Layout::from_bytes(bytes).map_err(ReplyDefect::Layout)?;
        let Some(LayoutInfo { version: expected, .. }) = table.layout else {
            return Err(ReplyDefect::OtherCall);
        };
        let found = layout.version();
        if found != expected {
            return Err(ReplyDefect::LayoutVersion { expected, found });
        }
        let shape = Shape::new(table.shape.rows(), table.dim, table.dtype)
            .map_err(ReplyDefect::TableShape)?;
        layout.check_table(shape, table.version).map_err(ReplyDefect::Layout)?;
        let client = batch::Client::new(Geometry::new(&layout), prg);
        Ok(Self { planner: Planner::new(Arc::new(layout)), client })
    }
}

impl PairTable {
    /// What asks by the layout.
    pub fn inference(&self) -> Result<&Inference, Failure> {
        Err(match self.bags {
            Bags::Ready(ref inference, _) => return Ok(inference),
            Bags::None => Failure::NoLayout,
            Bags::Differ(versions) => Failure::LayoutsDiffer { versions: Box::new(versions) },
            Bags::TooLarge { bytes, bytes_max } => {
                Failure::LayoutBytes { place: Place::Left, bytes, bytes_max }
            }
        })
    }

    /// The layout by which bags are asked for; `None` where the table has none.
    pub fn layout(&self) -> Result<Option<Arc<Layout>>, Failure> {
        match self.inference() {
            Ok(inference) => Ok(Some(Arc::clone(inference.planner.layout()))),
            Err(Failure::NoLayout) => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    /// What the left server announced; the limits are those of the stricter.
    pub fn info(&self) -> TableInfo {
        TableInfo { keys_per_request_max: self.keys_per_request_max, ..self.info.clone() }
    }

    /// Asks for the rows `ids` with `max_ids` keys.
    pub fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<LookupScript, Failure> {
        let keys_max = self.keys_per_request_max;
        if !(1..=keys_max).contains(&max_ids) && ids.len() <= max_ids {
            return Err(Failure::MaxIds { max_ids, keys_max });
        }
        let (request, pending) = self.client.query(ids, max_ids)?;
        let answer_bytes = max_ids * self.info.shape.row_bytes();
        let version = self.info.version;
        let call = |keys: Vec<Vec<u8>>| Call::Answer {
            version,
            keys: keys.into_iter().map(Bytes::from).collect(),
            answer_bytes,
        };
        let calls = vec![(Place::Left, call(request.left)), (Place::Right, call(request.right))];
        Ok(LookupScript { calls, pending, version, format: self.info.format() })
    }

    /// Asks for the rows of a bag by the layout.
    pub fn bag(&self, ids: &[u64], random: u64) -> Result<BagScript, Failure> {
        Ok(BagScript(BagsScript::new(self.bags()?, &[ids.to_vec()], random)?))
    }

    /// What asks for the rows of several bags by the layout.
    pub fn bags(&self) -> Result<BagsTerms, Failure> {
        self.inference()?;
        let Bags::Ready(inference, bags_max) = &self.bags else { return Err(Failure::NoLayout) };
        let (version, format) = (self.info.version, self.info.format());
        Ok(BagsTerms { inference: Arc::clone(inference), bags_max: *bags_max, version, format })
    }
}

/// A lookup within a session.
pub(super) struct LookupScript {
    calls: Vec<(Place, Call)>,
    pending: dpf::Pending,
    version: Version,
    format: RowFormat,
}

impl Script for LookupScript {
    type Protocol = Retrieval;
    type Output = Rows;

    fn next(&mut self, replies: Vec<Reply>, tally: Tally) -> Result<Round<Rows>, Failure> {
        if !self.calls.is_empty() {
            return Ok(Round::Ask(std::mem::take(&mut self.calls)));
        }
        let answers = pair_of(replies)?;
        let [left, right] = answers.each_ref().map(share);
        let rows = self.pending.combine(left, right)?;
        let stats = LookupStats::of(self.version, &answers, tally);
        Ok(Round::Done(Rows { rows, stats, format: self.format }))
    }
}

pub(super) fn share(answers: &Answers) -> dpf::Reply<'_> {
    dpf::Reply { version: answers.version, answers: &answers.answers }
}

/// Left's answers and right's.
pub(super) fn pair_of(replies: Vec<Reply>) -> Result<[Answers; 2], Failure> {
    match <[Reply; 2]>::try_from(replies) {
        Ok([Reply::Answers(left), Reply::Answers(right)]) => Ok([left, right]),
        Ok([Reply::Answers(_), _]) => Err(other_call(Place::Right)),
        _ => Err(other_call(Place::Left)),
    }
}

pub(super) fn other_call(place: Place) -> Failure {
    Failure::Reply { place, defect: ReplyDefect::OtherCall }
}

/// Whether the servers may hold another table than the answers' by now.
pub(super) fn is_version_change(failure: &Failure) -> bool {
    use crate::Error as Pir;
    matches!(failure, Failure::Pir(Pir::VersionMismatch { .. } | Pir::VersionChanged { .. }))
}

/// Whether the servers' layout may be another one by now.
pub(super) fn is_layout_change(failure: &Failure) -> bool {
    matches!(
        failure,
        Failure::NoLayout | Failure::LayoutsDiffer { .. } | Failure::LayoutBytes { .. }
    ) || is_version_change(failure)
}

/// Keys that a connection's thread makes itself: more take long enough to go elsewhere.
pub(super) const KEYS_IN_PLACE_MAX: usize = 256;
