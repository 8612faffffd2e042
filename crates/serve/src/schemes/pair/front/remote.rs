//! Backends whose rows and bins lie on shards: keys go to each shard unread, partial answers are added up.

use std::sync::Arc;

use bytes::Bytes;
use hushtable_pir::batch::{BatchBackend, BatchKeys, Geometry};
use hushtable_pir::dpf::{Group, Key};
use hushtable_pir::model::{Asked, Together};
use hushtable_pir::{Backend, Error, TableShape};
use hushtable_table::Version;
use hushtable_table::model::ShardMap;

use super::ask::{ShardAsk, SharedKeys};
use crate::shards::{Fleet, InUse};
use crate::wire::{KeyRun, TableKeys};

/// What all backends of one version of a model go by.
#[derive(Clone)]
pub(super) struct Remote {
    pub fleet: Arc<Fleet>,
    pub map: Arc<Mapped>,
    /// Keys of a pass over one table.
    pub batch_keys_max: usize,
    /// Inferences of a pass.
    pub batch_bags_max: usize,
}

/// A map that is gone by.
pub(super) struct Mapped {
    pub map: Arc<ShardMap>,
    pub in_use: Arc<InUse>,
}

/// A table's rows on shards.
pub(super) struct RemoteRows {
    pub remote: Remote,
    /// Its number in the manifest.
    pub table: usize,
    pub shape: TableShape,
}

/// A layout's bins on shards.
pub(super) struct RemoteBins {
    pub remote: Remote,
    pub table: usize,
    pub geometry: Geometry,
}

/// All of a model's tables.
pub(super) struct RemoteTables {
    pub remote: Remote,
    /// By the manifest's index, the versions of tables and of their layouts.
    pub versions: Vec<TableVersions>,
}

/// A table's version, and its layout's.
pub(super) type TableVersions = (Version, Option<Version>);

/// What is asked of one table.
struct TableAsk<'a> {
    table: usize,
    what: What<'a>,
}

enum What<'a> {
    Rows { row_bytes: usize, keys: &'a [&'a Key] },
    Bins { geometry: &'a Geometry, keys: &'a [&'a BatchKeys] },
}

impl TableAsk<'_> {
    fn answer_bytes(&self) -> usize {
        match &self.what {
            What::Rows { row_bytes, keys } => row_bytes * keys.len(),
            What::Bins { geometry, keys } => geometry.answer_bytes() * keys.len(),
        }
    }

    fn to_wire(&self) -> TableKeys {
        let table = self.table as u32;
        match &self.what {
            What::Rows { keys, .. } => {
                let runs = keys.chunk_by(|a, b| a.params().key_bytes() == b.params().key_bytes());
                let runs = runs.map(|run| {
                    let key_bytes = run[0].params().key_bytes();
                    let mut keys = Vec::with_capacity(key_bytes * run.len());
                    run.iter().for_each(|key| keys.extend(key.to_bytes()));
                    KeyRun { key_bytes: key_bytes as u32, keys: keys.into() }
                });
                TableKeys { table, runs: runs.collect(), bags: Bytes::new() }
            }
            What::Bins { keys, .. } => {
                let bags =
                    keys.iter().flat_map(|keys| keys.as_bytes()).copied().collect::<Vec<_>>();
                TableKeys { table, runs: Vec::new(), bags: bags.into() }
            }
        }
    }

    /// Bytes that `shard` answers; none of a shard that has nothing of the table.
    fn expected(&self, map: &Mapped, shard: usize) -> usize {
        match &self.what {
            What::Rows { .. } => match map.map.rows_of(shard, self.table) {
                Some(_) => self.answer_bytes(),
                None => 0,
            },
            What::Bins { geometry, keys } => {
                let bins = geometry.bins_of_shard(shard, map.map.shards().len());
                let own = geometry.answers_of_bins(&bins);
                keys.len() * own.iter().map(|own| own.len()).sum::<usize>()
            }
        }
    }

    /// Adds what `shard` answered.
    fn add(&self, map: &Mapped, shard: usize, part: &[u8], answers: &mut [u8]) {
        match &self.what {
            What::Rows { row_bytes, keys } => {
                let mut at = 0;
                for run in keys.chunk_by(|a, b| group(a) == group(b)) {
                    let end = at + run.len() * row_bytes;
                    let (to, from) = (&mut answers[at..end], &part[at..end]);
                    match group(run[0]) {
                        // No carry: a run is one row.
                        Group::Bits | Group::Z8 => group(run[0]).add(to, from),
                        other => {
                            let rows = to.chunks_exact_mut(*row_bytes);
                            let rows = rows.zip(from.chunks_exact(*row_bytes));
                            rows.for_each(|(to, from)| other.add(to, from));
                        }
                    }
                    at = end;
                }
            }
            What::Bins { geometry, .. } => {
                let bins = geometry.bins_of_shard(shard, map.map.shards().len());
                let own = geometry.answers_of_bins(&bins);
                let mut rest = part;
                for answer in answers.chunks_exact_mut(geometry.answer_bytes()) {
                    for own in &own {
                        let (from, after) = rest.split_at(own.len());
                        rest = after;
                        answer[own.clone()].copy_from_slice(from);
                    }
                }
            }
        }
    }
}

fn group(key: &Key) -> Group {
    key.params().domain.group()
}

impl Remote {
    /// Asks every shard that has something of what is asked; each ask's answers.
    fn ask(&self, asks: &[TableAsk<'_>]) -> Result<Vec<Vec<u8>>, Error> {
        let wire: Vec<_> = asks.iter().map(|ask| SharedKeys::new(ask.to_wire())).collect();
        let mut parts = Vec::new();
        // What each shard is asked for, by the asks' places.
        let mut asked: Vec<Vec<usize>> = Vec::new();
        for shard in 0..self.map.map.shards().len() {
            let expected: Vec<_> = asks.iter().map(|ask| ask.expected(&self.map, shard)).collect();
            let places: Vec<_> = (0..asks.len()).filter(|&place| expected[place] > 0).collect();
            if !places.is_empty() {
                let tables = places.iter().map(|&place| wire[place].clone()).collect();
                let expected = places.iter().map(|&place| expected[place]).collect();
                parts.push((shard, ShardAsk { tables, expected }));
            }
            asked.push(places);
        }
        let mut answers: Vec<Vec<u8>> =
            asks.iter().map(|ask| vec![0; ask.answer_bytes()]).collect();
        self.fleet.ask(&self.map.in_use, parts, |shard, found| {
            for (&place, part) in asked[shard].iter().zip(&found) {
                asks[place].add(&self.map, shard, part, &mut answers[place]);
            }
        })?;
        Ok(answers)
    }

    /// One table's answers, in as many passes as their messages take.
    fn answer_one<T>(
        &self,
        queries: &[T],
        one_bytes: usize,
        answers: &mut [u8],
        ask: impl Fn(&[T]) -> Result<Vec<Vec<u8>>, Error>,
    ) -> Result<(), Error> {
        let Some(answer_bytes) = answers.len().checked_div(queries.len()) else { return Ok(()) };
        let most =
            (self.fleet.request_bytes_max().saturating_sub(MESSAGE_BYTES) / one_bytes).max(1);
        for (queries, answers) in
            queries.chunks(most).zip(answers.chunks_mut(most.saturating_mul(answer_bytes)))
        {
            answers.copy_from_slice(&ask(queries)?[0]);
        }
        Ok(())
    }

    fn description(&self, what: &str) -> String {
        format!("a front of {} shards, {what}", self.map.map.shards().len())
    }
}

impl Backend for RemoteRows {
    fn shape(&self) -> TableShape {
        self.shape
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), Error> {
        self.answer_each(&keys.iter().collect::<Vec<_>>(), answers)
    }

    fn answer_each(&self, keys: &[&Key], answers: &mut [u8]) -> Result<(), Error> {
        let row_bytes = self.shape.row_bytes();
        let (expected, found) = (keys.len() * row_bytes, answers.len());
        if expected != found {
            return Err(Error::AnswerBytes { expected, found });
        }
        let longest = keys.iter().map(|key| key.params().key_bytes()).max().unwrap_or(1);
        self.remote.answer_one(keys, longest, answers, |keys| {
            let what = What::Rows { row_bytes, keys };
            self.remote.ask(&[TableAsk { table: self.table, what }])
        })
    }

    fn batch_keys_best(&self) -> usize {
        self.remote.batch_keys_max
    }

    fn description(&self) -> String {
        self.remote.description("rows")
    }
}

impl BatchBackend for RemoteBins {
    fn geometry(&self) -> &Geometry {
        &self.geometry
    }

    fn answer(&self, requests: &[BatchKeys], answers: &mut [u8]) -> Result<(), Error> {
        self.answer_each(&requests.iter().collect::<Vec<_>>(), answers)
    }

    fn answer_each(&self, requests: &[&BatchKeys], answers: &mut [u8]) -> Result<(), Error> {
        let (expected, found) = (requests.len() * self.geometry.answer_bytes(), answers.len());
        if expected != found {
            return Err(Error::AnswerBytes { expected, found });
        }
        let longest = requests.iter().map(|keys| keys.as_bytes().len()).max().unwrap_or(1);
        self.remote.answer_one(requests, longest, answers, |keys| {
            let what = What::Bins { geometry: &self.geometry, keys };
            self.remote.ask(&[TableAsk { table: self.table, what }])
        })
    }

    fn batch_requests_best(&self) -> usize {
        self.remote.batch_bags_max
    }

    fn description(&self) -> String {
        self.remote.description("bins")
    }
}

impl Together for RemoteTables {
    fn answer_together(&self, asked: Vec<Asked<'_>>) -> Result<Vec<Vec<u8>>, Error> {
        let table = |is_it: &dyn Fn(&TableVersions) -> bool| {
            // Never another table: its rows would be taken for the one's.
            let unknown = || Error::Table { reason: "it is none of the front's model".into() };
            self.versions.iter().position(is_it).ok_or_else(unknown)
        };
        let asks = asked.iter().map(|asked| match asked {
            Asked::Rows(server, keys) => Ok(TableAsk {
                table: table(&|known| known.0 == server.version())?,
                what: What::Rows { row_bytes: server.backend().shape().row_bytes(), keys },
            }),
            Asked::Bins(server, keys) => {
                let geometry = server.backend().geometry();
                let table = table(&|known| known.1 == Some(geometry.version()))?;
                Ok(TableAsk { table, what: What::Bins { geometry, keys } })
            }
        });
        let asks = asks.collect::<Result<Vec<_>, Error>>()?;
        self.remote.ask(&asks)
    }
}

/// What a message has around its keys.
const MESSAGE_BYTES: usize = 4096;
