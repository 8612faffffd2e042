//! Fetches rows from two servers, so that neither learns which.

use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::PrgKind;
use hushtable_pir::client::{
    BagPart, BagRows, BagsRows, ModelClient, PairClient, PairSpec, Place, RowFormat,
};
use hushtable_table::Version;
use hushtable_table::layout::Layout;

use super::peer::PairWire;
use super::refusal::REFUSALS;
use crate::peer::drive::Driver;
use crate::peer::endpoint::Peer;
use crate::peer::random_u64;
use crate::{EndpointSpec, Error, Lookup, LookupStats, TableInfo};

/// How a client reaches its servers.
#[derive(Clone)]
#[allow(clippy::exhaustive_structs, reason = "a spec is written field by field")]
pub struct ClientSpec {
    /// The left server, or several of one operator.
    pub left: EndpointSpec,
    /// The right server, or several: of another operator, or there is no privacy.
    pub right: EndpointSpec,
    /// The generator that keys use.
    pub prg: PrgKind,
    /// The only version of the table to ask for; `None` for whatever both servers hold.
    pub version: Option<Version>,
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
    /// The defaults: AES-128 keys, any version, 5 s to connect, 30 s a call, 60 s a lookup, layouts
    /// up to 1 GiB.
    pub fn new(left: EndpointSpec, right: EndpointSpec) -> Self {
        Self {
            left,
            right,
            prg: PrgKind::Aes128,
            version: None,
            insecure: false,
            connect_max: Duration::from_secs(5),
            call_max: Duration::from_secs(30),
            lookup_max: Duration::from_secs(60),
            layout_bytes_max: 1 << 30,
        }
    }

    /// What drives a client's machines.
    pub(super) fn driver(&self) -> Result<Driver<PairWire>, Error> {
        // A single URL for both is found out by what it announces; of a list, another server may answer first.
        let [left, right] = self.servers();
        let both = self.left.urls().find(|url| self.right.urls().any(|other| other == *url));
        if let Some(url) = both.filter(|_| left + right > 2) {
            let reason = "it is given as left and as right: a server has one side".into();
            return Err(Error::Url { url: url.into(), reason });
        }
        let peers = |endpoint| Peer::each(endpoint, self.insecure, self.connect_max, REFUSALS);
        let peers = [(Place::Left, peers(&self.left)?), (Place::Right, peers(&self.right)?)];
        Ok(Driver::new(peers))
    }

    /// How many servers each side has.
    pub(super) fn servers(&self) -> [usize; 2] {
        [&self.left, &self.right].map(|side| side.urls().count())
    }
}

/// A client of one table at two servers.
pub struct LookupClient {
    driver: Driver<PairWire>,
    source: Source,
}

/// What keeps a client's session.
pub(super) enum Source {
    /// A client of the table itself.
    Table(PairClient),
    /// A client of a model, one of whose features reads the table; and what that was at first.
    Feature(ModelClient, String, Box<TableInfo>),
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
        self.format.decode(&self.rows).map_err(|source| Error::Rows { source })
    }
}

impl From<BagRows> for Bag {
    fn from(BagRows { rows, kept, dropped, keys, stats, format, .. }: BagRows) -> Self {
        Self { rows, kept, dropped, keys, stats, format }
    }
}

/// The rows of several bags of ids.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct FetchedBags {
    /// Each bag's, in their order.
    pub bags: Vec<BagPart>,
    /// Keys sent to each server, for all of them.
    pub keys: usize,
    /// Requests that each server got: one, unless it takes fewer bags at once.
    pub requests: usize,
    /// What all of it cost.
    pub stats: LookupStats,
    format: RowFormat,
}

impl FetchedBags {
    /// The rows of all bags, one after the other, as `ids × dim` numbers: zero where an id was dropped.
    ///
    /// # Errors
    /// As [`Bag::to_f32`].
    pub fn to_f32(&self) -> Result<Vec<f32>, Error> {
        let rows = self.bags.iter().map(|bag| self.format.decode(&bag.rows));
        Ok(rows.collect::<Result<Vec<_>, _>>().map_err(|source| Error::Rows { source })?.concat())
    }
}

impl From<BagsRows> for FetchedBags {
    fn from(BagsRows { bags, keys, requests, stats, format, .. }: BagsRows) -> Self {
        Self { bags, keys, requests, stats, format }
    }
}

impl LookupClient {
    /// Connects to both servers and checks that they are a left and a right one with one table. If
    /// the table has a layout, it is fetched.
    ///
    /// Of a side with several servers, the first that can be asked is; and the same is checked of each that a
    /// lookup goes on to, before it gets a key.
    ///
    /// # Errors
    /// [`Error::Url`], [`Error::PlainText`], [`Error::NoCa`], [`Error::Pem`], [`Error::Tls`] for
    /// what is wrong with `spec`; [`Error::Unavailable`] or [`Error::Timeout`] for a server out of
    /// reach; [`Error::SidesSwapped`], [`Error::SameSide`], [`Error::TablesDiffer`],
    /// [`Error::AnnouncementsDiffer`], [`Error::Prg`] for servers that do not fit;
    /// [`Error::VersionMismatch`] for another version than `spec` asks for; [`Error::Reply`] for an
    /// announcement that cannot be, or a layout that is not the one announced. Servers with
    /// different layouts only fail [`fetch_bag`](Self::fetch_bag).
    pub async fn connect(spec: &ClientSpec) -> Result<Self, Error> {
        let driver = spec.driver()?;
        let &ClientSpec { prg, version, layout_bytes_max, call_max, lookup_max, .. } = spec;
        let servers = spec.servers();
        let spec = PairSpec { servers, prg, version, layout_bytes_max, call_max, lookup_max };
        let opening = PairClient::open(spec, random_u64()?, driver.bell());
        let source = Source::Table(driver.run(opening).await?);
        Ok(Self { driver, source })
    }

    pub(super) fn of(driver: Driver<PairWire>, source: Source) -> Self {
        Self { driver, source }
    }

    /// What both servers hold, as the left one announced it; the limits are those of the stricter. Of
    /// the table of a feature that the model has no more, what it was.
    pub fn info(&self) -> TableInfo {
        match &self.source {
            Source::Table(client) => client.info(),
            Source::Feature(client, feature, first) => {
                client.table_info(feature).unwrap_or_else(|_| (**first).clone())
            }
        }
    }

    /// Fetches the rows `ids` in one round trip to each server, at the same time. Both servers see
    /// `max_ids` keys, whatever the number of ids.
    ///
    /// A busy server is asked again after the delay that it names, with the same keys. If the table
    /// changed since the last lookup, its info is fetched and the lookup made once more; the stats
    /// say which version answered. Where a server drains or is out of reach, the lookup is made afresh, with new
    /// keys for both sides, and with the next server of that side; a server that drains is waited for, within
    /// `lookup_max`, where it is the only one.
    ///
    /// # Errors
    /// [`Error::Pir`] for an id that is no row or more than `max_ids` ids, [`Error::MaxIds`] where
    /// the servers take fewer keys, [`Error::VersionMismatch`] where the client asks for one version
    /// alone and the servers hold another, [`Error::Refused`], [`Error::Unavailable`],
    /// [`Error::Timeout`], [`Error::Reply`] for what servers do.
    pub async fn lookup(&self, ids: &[u64], max_ids: usize) -> Result<Lookup, Error> {
        let random = random_u64()?;
        let rows = match &self.source {
            Source::Table(client) => self.driver.run(client.lookup(ids, max_ids, random)).await,
            Source::Feature(client, feature, _) => {
                self.driver.run(client.table_lookup(feature, ids, max_ids, random)).await
            }
        };
        rows.map(Lookup::from)
    }

    /// As [`lookup`](Self::lookup), with rows as `ids × dim` numbers.
    ///
    /// # Errors
    /// As [`lookup`](Self::lookup), and [`Error::Rows`].
    pub async fn lookup_f32(&self, ids: &[u64], max_ids: usize) -> Result<Vec<f32>, Error> {
        self.lookup(ids, max_ids).await?.to_f32()
    }

    /// The layout by which bags are asked for; `None` where the servers' table has none.
    ///
    /// # Errors
    /// [`Error::LayoutsDiffer`], [`Error::LayoutBytes`] for layouts that cannot be asked by.
    pub fn layout(&self) -> Result<Option<Arc<Layout>>, Error> {
        let layout = match &self.source {
            Source::Table(client) => client.layout(),
            Source::Feature(client, feature, _) => client.layout(feature),
        };
        layout.map_err(|failure| self.driver.failure(failure))
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
    /// layout to ask by; [`Error::VersionMismatch`], [`Error::Refused`], [`Error::Unavailable`],
    /// [`Error::Timeout`], [`Error::Reply`] for what servers do.
    pub async fn fetch_bag(&self, ids: &[u64]) -> Result<Bag, Error> {
        let random = random_u64()?;
        let bag = match &self.source {
            Source::Table(client) => self.driver.run(client.bag(ids, random)).await,
            Source::Feature(client, feature, _) => {
                self.driver.run(client.table_bag(feature, ids, random)).await
            }
        };
        bag.map(Bag::from)
    }

    /// As [`fetch_bag`](Self::fetch_bag), for several bags: one request to each server holds them all, or as
    /// many as both servers take, and the next follows once its rows are there. Each server sees how many bags
    /// there are, and each bag costs the same. Where one of them cannot be asked for, nothing is sent; without any,
    /// nothing is either.
    ///
    /// # Errors
    /// As [`fetch_bag`](Self::fetch_bag).
    pub async fn fetch_bags(&self, bags: &[Vec<u64>]) -> Result<FetchedBags, Error> {
        let random = random_u64()?;
        let found = match &self.source {
            Source::Table(client) => self.driver.run(client.bags(bags, random)).await,
            Source::Feature(client, feature, _) => {
                self.driver.run(client.table_bags(feature, bags, random)).await
            }
        };
        found.map(FetchedBags::from)
    }
}
