//! A client of one table at two servers.

use std::sync::Arc;
use std::time::Duration;

use hushtable_client::{Ask, Bell, Connect, Opening, Operation, Script, Shared, Tally, Verdict};
use hushtable_prg::PrgKind;
use hushtable_table::Version;
use hushtable_table::layout::Layout;

use super::announced::newest_of_both;
use super::bags::{BagScript, BagsScript};
use super::table::{
    KEYS_IN_PLACE_MAX, LookupScript, Matched, PairTable, is_layout_change, is_version_change,
    other_call,
};
use super::terms::check_sides;
use super::{
    AnnouncedTable, BagRows, BagsRows, Call, CallFault, Failure, Machine, PairTerms, Place, Reply,
    ReplyDefect, Retrieval, Round, Rows, TableInfo,
};

/// How a client asks two servers.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct PairSpec {
    /// Servers of the left side, and of the right side; one of each is asked.
    pub servers: [usize; 2],
    /// The generator that keys use.
    pub prg: PrgKind,
    /// The only version to ask for; `None` for whatever both servers hold.
    pub version: Option<Version>,
    /// Most bytes of a layout to fetch; 0 for a client that fetches no bags.
    pub layout_bytes_max: u64,
    /// How long one call to one server may take.
    pub call_max: Duration,
    /// How long a lookup may take, retries included.
    pub lookup_max: Duration,
}

/// A client of one table at two servers. Clones share its session.
#[derive(Clone)]
pub struct PairClient(Arc<Shared<Pair>>);

impl PairClient {
    /// Asks both servers what they hold, and checks that they are a left and a right one with one
    /// table. If the table has a layout, it is fetched. `bell` is rung for machines that wait for
    /// each other; `random` spreads retries.
    pub fn open<E: Send>(
        spec: PairSpec,
        random: u64,
        bell: Bell,
    ) -> impl Machine<E, Protocol = Retrieval, Output = Self> + use<E> {
        Opening::new(Pair(spec), bell, random, Self)
    }

    /// What both servers hold, as the left one announced it; the limits are those of the stricter.
    pub fn info(&self) -> TableInfo {
        self.0.session().info()
    }

    /// The layout by which bags are asked for; `None` where the servers' table has none.
    ///
    /// # Errors
    /// [`Failure::LayoutsDiffer`], [`Failure::LayoutBytes`] for layouts that cannot be asked by.
    pub fn layout(&self) -> Result<Option<Arc<Layout>>, Failure> {
        self.0.session().layout()
    }

    /// Fetches the rows `ids` with `max_ids` keys to each server. `random` spreads retries.
    pub fn lookup<E: Send>(
        &self,
        ids: &[u64],
        max_ids: usize,
        random: u64,
    ) -> impl Machine<E, Protocol = Retrieval, Output = Rows> + use<E> {
        Operation::new(&self.0, LookupAsk { ids: ids.to_vec(), max_ids }, random)
    }

    /// Fetches the rows of a bag of ids by the layout. `random` spreads retries and drops.
    pub fn bag<E: Send>(
        &self,
        ids: &[u64],
        random: u64,
    ) -> impl Machine<E, Protocol = Retrieval, Output = BagRows> + use<E> {
        Operation::new(&self.0, BagAsk { ids: ids.to_vec() }, random)
    }

    /// Fetches the rows of several bags of ids by the layout, in one request to each server where these take as
    /// many, else in as few as they do. `random` spreads retries and drops.
    pub fn bags<E: Send>(
        &self,
        bags: &[Vec<u64>],
        random: u64,
    ) -> impl Machine<E, Protocol = Retrieval, Output = BagsRows> + use<E> {
        Operation::new(&self.0, BagsAsk { bags: bags.to_vec() }, random)
    }
}

/// How a client of a table comes to its sessions.
pub(super) struct Pair(PairSpec);

impl Connect for Pair {
    type Protocol = Retrieval;
    type Session = PairTable;
    type Opening = PairOpening;

    fn opening(&self, known: Option<&Arc<PairTable>>) -> PairOpening {
        PairOpening {
            spec: self.0.clone(),
            known: known.cloned(),
            has_asked: false,
            common: None,
            restarts: 0,
            matched: None,
        }
    }

    fn first(&self) -> Place {
        Place::Left
    }

    fn servers(&self) -> [usize; 3] {
        let [left, right] = self.0.servers;
        [left, right, 0]
    }

    fn limits(&self) -> (Duration, Duration) {
        (self.0.call_max, self.0.lookup_max)
    }

    fn is_misfit(&self, failure: &Failure) -> bool {
        failure.is_misfit()
    }
}

/// Fetches both infos, holds them against each other, and fetches the layout.
pub(super) struct PairOpening {
    spec: PairSpec,
    known: Option<Arc<PairTable>>,
    has_asked: bool,
    /// The newest version that both list, where it is not the newest at both: what is known of it so far.
    common: Option<(Version, [TableInfo; 2])>,
    /// How often a server did not hold any more what it had announced.
    restarts: u32,
    /// What waits for its layout.
    matched: Option<Matched>,
}

impl Script for PairOpening {
    type Protocol = Retrieval;
    type Output = PairTable;

    fn next(&mut self, replies: Vec<Reply>, _: Tally) -> Result<Round<PairTable>, Failure> {
        let &mut PairOpening { spec: PairSpec { prg, version, layout_bytes_max, .. }, .. } = self;
        if !std::mem::replace(&mut self.has_asked, true) {
            let call = Call::TableInfo { version };
            return Ok(Round::Ask(Place::PAIR.map(|place| (place, call.clone())).into()));
        }
        let (matched, bags) = match self.matched.take() {
            Some(matched) => {
                let [Reply::Layout(bytes)] = &replies[..] else {
                    return Err(other_call(Place::Left));
                };
                let bags = matched.read_layout(bytes, prg)?;
                (matched, bags)
            }
            None => {
                let infos = match self.common.take() {
                    Some((version, infos)) => asked_again(version, infos, replies)?,
                    None => {
                        let (infos, listed) = infos_of(replies)?;
                        let [left, right] = &infos;
                        check_sides(left.side, right.side)?;
                        let [left_lists, right_lists] = &listed;
                        match newest_of_both(left_lists, right_lists) {
                            Some(common) if left.version != right.version && version.is_none() => {
                                let calls = wanting(common, &infos);
                                self.common = Some((common, infos));
                                return Ok(Round::Ask(calls));
                            }
                            _ => infos,
                        }
                    }
                };
                for found in infos.each_ref().map(|info| info.version) {
                    check_pin(version, Some(found))?;
                }
                let [left, right] = &infos;
                let terms = PairTerms::check([left, right], prg)?;
                let matched = Matched { infos, terms };
                let known = |wanted| matched.known_layout(self.known.as_ref()?, wanted);
                match matched.layout(layout_bytes_max) {
                    Ok(bags) => (matched, bags),
                    Err(layout) if let Some(bags) = known(layout) => (matched, bags),
                    Err(layout) => {
                        let call = Call::Layout { version: layout.version, bytes: layout.bytes };
                        self.matched = Some(matched);
                        return Ok(Round::Ask(vec![(Place::Left, call)]));
                    }
                }
            }
        };
        matched.into_table(bags, prg).map(Round::Done)
    }

    fn failed(&mut self, fault: &CallFault) -> Result<Verdict, Failure> {
        match fault {
            CallFault::Changed { .. } if self.common.is_some() && self.restarts < RESTARTS_MAX => {
                (self.has_asked, self.common) = (false, None);
                self.restarts += 1;
                return Ok(Verdict::GoOn);
            }
            CallFault::Changed { found } if self.matched.is_none() => {
                check_pin(self.spec.version, found.map(Version::from))?;
            }
            _ => {}
        }
        Ok(Verdict::End)
    }

    // To hash a large layout and to note who carries whom takes seconds.
    fn computes(&self) -> bool {
        self.matched.is_some()
    }
}

/// Holds what a server has against what alone was asked for.
pub(super) fn check_pin(pin: Option<Version>, found: Option<Version>) -> Result<(), Failure> {
    match pin {
        Some(expected) if found != pin => Err(Failure::VersionMismatch { expected, found }),
        _ => Ok(()),
    }
}

/// The calls to those servers whose newest version is another.
fn wanting(version: Version, infos: &[TableInfo; 2]) -> Vec<(Place, Call)> {
    let others = Place::PAIR.into_iter().zip(infos).filter(|(_, info)| info.version != version);
    others.map(|(place, _)| (place, Call::TableInfo { version: Some(version) })).collect()
}

/// What servers say of a version that they have announced.
fn asked_again(
    expected: Version,
    mut infos: [TableInfo; 2],
    replies: Vec<Reply>,
) -> Result<[TableInfo; 2], Failure> {
    let asked = Place::PAIR.into_iter().zip(&mut infos);
    let asked = asked.filter(|(_, info)| info.version != expected);
    for ((place, info), reply) in asked.zip(replies) {
        let Reply::TableInfo(announced) = reply else { return Err(other_call(place)) };
        *info = TableInfo::check(*announced).map_err(|defect| Failure::Reply { place, defect })?;
        let found = info.version;
        if found != expected {
            let defect = ReplyDefect::TableVersion { expected, found };
            return Err(Failure::Reply { place, defect });
        }
    }
    Ok(infos)
}

/// What each server says of its newest version, and all versions that it lists.
fn infos_of(replies: Vec<Reply>) -> Result<([TableInfo; 2], [Vec<Version>; 2]), Failure> {
    match <[Reply; 2]>::try_from(replies) {
        Ok([Reply::TableInfo(left), Reply::TableInfo(right)]) => {
            let check = |place, announced: AnnouncedTable| {
                let listed = announced.listed();
                let both = listed.and_then(|listed| Ok((TableInfo::check(announced)?, listed)));
                both.map_err(|defect| Failure::Reply { place, defect })
            };
            let (left, left_lists) = check(Place::Left, *left)?;
            let (right, right_lists) = check(Place::Right, *right)?;
            Ok(([left, right], [left_lists, right_lists]))
        }
        Ok([Reply::TableInfo(_), _]) => Err(other_call(Place::Right)),
        _ => Err(other_call(Place::Left)),
    }
}

struct LookupAsk {
    ids: Vec<u64>,
    max_ids: usize,
}

impl Ask<Pair> for LookupAsk {
    type Output = Rows;
    type Script = LookupScript;

    fn script(&self, table: &Arc<PairTable>, _: u64) -> Result<LookupScript, Failure> {
        table.lookup(&self.ids, self.max_ids)
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        is_version_change(failure)
    }
}

struct BagAsk {
    ids: Vec<u64>,
}

impl Ask<Pair> for BagAsk {
    type Output = BagRows;
    type Script = BagScript;

    fn script(&self, table: &Arc<PairTable>, random: u64) -> Result<BagScript, Failure> {
        table.bag(&self.ids, random)
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        is_layout_change(failure)
    }
}

struct BagsAsk {
    bags: Vec<Vec<u64>>,
}

impl Ask<Pair> for BagsAsk {
    type Output = BagsRows;
    type Script = BagsScript;

    fn script(&self, table: &Arc<PairTable>, random: u64) -> Result<BagsScript, Failure> {
        BagsScript::new(table.bags()?, &self.bags, random)
    }

    fn is_stale(&self, failure: &Failure) -> bool {
        is_layout_change(failure)
    }

    // Some microseconds a key: more of them are not for the threads of connections.
    fn computes(&self, table: &PairTable) -> bool {
        let keys = table.inference().map_or(0, |inference| inference.client.geometry().keys());
        keys * self.bags.len() > KEYS_IN_PLACE_MAX
    }
}

/// A version that a server has just announced may go before it is asked for.
const RESTARTS_MAX: u32 = 2;
