//! A front: what clients of one side ask as they would any server, where the rows lie on shards.
//!
//! The scheduler makes passes here; each goes to a server of every shard, and what comes back is added up
//! ([`remote`]). No shard's choice depends on a query: every pass goes to every shard that has some of its table.

mod ask;
mod remote;

use std::sync::Arc;
use std::time::{Duration, Instant};

use hushtable_pir::batch::{self, BatchBackend, Geometry};
use hushtable_pir::dpf::{self, Side};
use hushtable_pir::model::{self, Together};
use hushtable_pir::{Backend, TableShape, Threads};
use hushtable_table::Table;
use hushtable_table::layout::Layout;
use hushtable_table::model::ModelManifest;

pub(super) use self::ask::HOLDS_PATH;
use self::remote::{Mapped, Remote, RemoteBins, RemoteRows, RemoteTables};
use super::engine::{self, Checked, ModelTable};
use super::question::{Question, random_row};
use super::sharded::Sharded;
use crate::batch::Answerer;
use crate::shards::Fleet;
use crate::{Error, ServerSpec};

/// What the tables of one version of a model are answered by at a front.
pub(super) struct Front {
    remote: Remote,
}

impl Front {
    pub fn new(fleet: &Arc<Fleet>, sharded: &Sharded, spec: &ServerSpec) -> Self {
        let remote = Remote {
            fleet: Arc::clone(fleet),
            map: Arc::new(Mapped {
                map: Arc::clone(&sharded.map),
                in_use: fleet.use_map(sharded.map_version),
            }),
            batch_keys_max: spec.batch_keys_max.unwrap_or(BATCH_KEYS),
            batch_bags_max: spec.batch_bags_max.unwrap_or(BATCH_BAGS),
        };
        Self { remote }
    }

    /// The number of a table of this name in the manifest.
    fn number_of(&self, name: &str) -> Result<usize, Error> {
        let tables = self.remote.map.map.tables();
        let found = tables.iter().position(|table| table.name == name);
        let unknown = || format!("the map of shards has no table {name:?}");
        Ok(found.ok_or_else(|| hushtable_pir::Error::Table { reason: unknown() })?)
    }

    /// What answers the rows of `table`, once every shard has answered for it. A front has no row to hold an answer
    /// against: each shard has done that with its own.
    pub fn rows(
        &self,
        side: Side,
        table: &Table,
        name: &str,
    ) -> Result<Checked<dpf::Server>, Error> {
        let shape = TableShape::new(table.rows(), table.row_bytes())?;
        let (remote, number) = (self.remote.clone(), self.number_of(name)?);
        let backend: Arc<dyn Backend> = Arc::new(RemoteRows { remote, table: number, shape });
        let server = dpf::Server::new(side, table.version(), Arc::clone(&backend));
        let row = random_row(0..table.rows())?;
        let (_, asked) = Question::of_row(table, row, backend.groups()[0], 1)?;
        let keys = engine::of_side(side, asked);
        let keys = keys.iter().map(|key| server.accept(key)).collect::<Result<Vec<_>, _>>()?;
        let scan = time(&server, &keys)?;
        Ok(Checked { server, scan })
    }

    /// The same of a layout's bins.
    pub fn bins(
        &self,
        side: Side,
        table: &Table,
        name: &str,
        layout: &Layout,
    ) -> Result<Checked<batch::Server>, Error> {
        let (remote, number) = (self.remote.clone(), self.number_of(name)?);
        let geometry = Geometry::new(layout);
        let (_, asked) = Question::of_bins(table, layout, None, &geometry)?;
        let backend: Arc<dyn BatchBackend> =
            Arc::new(RemoteBins { remote, table: number, geometry });
        let server = batch::Server::new(side, backend);
        let keys = [server.accept(engine::of_side(side, asked))?];
        let scan = time(&server, &keys)?;
        Ok(Checked { server, scan })
    }

    /// The same of a whole model, whose tables' keys go to a shard in one message.
    pub fn model(
        &self,
        side: Side,
        manifest: &ModelManifest,
        tables: &[ModelTable<'_>],
        threads: &Threads,
    ) -> Result<Checked<model::Server>, Error> {
        let layout = |table: &Table| table.layout().map(|layout| layout.version());
        let versions = tables.iter().map(|it| (it.table.version(), layout(it.table))).collect();
        let together: Arc<dyn Together> =
            Arc::new(RemoteTables { remote: self.remote.clone(), versions });
        let server = engine::model_server(side, manifest, tables, threads);
        let server = server.answering_together(together);
        let (_, asked) = engine::ask_model(manifest, tables)?;
        let inference = [server.accept(engine::of_side(side, asked))?];
        let scan = time(&server, &inference)?;
        Ok(Checked { server, scan })
    }

    /// Inferences of a pass, of which each takes `bytes`, that one message may hold.
    pub fn batch_bags_max(&self, bytes: usize) -> usize {
        let most = self.remote.fleet.request_bytes_max() / bytes.max(1);
        self.remote.batch_bags_max.min(most).max(1)
    }
}

/// How long the fastest of a few passes takes.
fn time<A: Answerer>(server: &A, queries: &[A::Query]) -> Result<Duration, Error>
where
    Error: From<A::Error>,
{
    let mut answers = vec![0; queries.len() * server.answer_bytes()];
    let mut fastest = Duration::MAX;
    for _ in 0..PASSES {
        let started = Instant::now();
        server.answer(queries, &mut answers)?;
        fastest = fastest.min(started.elapsed());
    }
    Ok(fastest)
}

const PASSES: usize = 3;
/// Keys of a pass: what a shard's processors answer best.
const BATCH_KEYS: usize = 256;
const BATCH_BAGS: usize = 64;
