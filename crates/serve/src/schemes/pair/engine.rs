//! From a table, and its layout, to a server's halves that are known to answer right.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hushtable_pir::batch::{self, BatchBackend, BatchEngine};
use hushtable_pir::dpf::{self, Group, Reply, Side};
use hushtable_pir::{Backend, CpuEngine, EngineSpec};
use hushtable_pir::PrgKind;
use hushtable_table::Table;
use hushtable_table::layout::{Found, Layout, Plan};

use crate::peer::random_u64;
use crate::{Error, ServerSpec};

/// A checked server half and how long one key takes it.
pub(crate) struct Engine {
    pub server: dpf::Server,
    pub scan: Duration,
}

/// Loads `table` for processors.
pub(crate) fn load(spec: &ServerSpec, table: &Table) -> Result<Arc<dyn Backend>, Error> {
    let spec = EngineSpec {
        threads: spec.threads,
        batch_keys_max: spec.batch_keys_max.unwrap_or(0),
        ..EngineSpec::default()
    };
    Ok(Arc::new(CpuEngine::from_table(table, &spec)?))
}

/// A checked server half of a layout and how long one inference takes it.
pub(crate) struct Bins {
    pub server: batch::Server,
    pub scan: Duration,
}

/// Loads the bins of `layout` for processors.
pub(crate) fn load_batch(
    spec: &ServerSpec,
    table: &Table,
    layout: &Layout,
) -> Result<Arc<dyn BatchBackend>, Error> {
    let spec = EngineSpec {
        threads: spec.threads,
        batch_keys_max: spec.batch_bags_max.unwrap_or(0),
        ..EngineSpec::default()
    };
    Ok(Arc::new(BatchEngine::from_table(table, layout, &spec)?))
}

/// Fetches a random row from `backend` as a client would, in each group that it answers, compares it
/// with the table's bytes, and measures a pass of the fastest group.
pub(crate) fn check(side: Side, table: &Table, backend: Arc<dyn Backend>) -> Result<Engine, Error> {
    let servers =
        Side::BOTH.map(|side| dpf::Server::new(side, table.version(), Arc::clone(&backend)));
    let mut scan = None;
    for &group in backend.groups() {
        let took = check_group(table, &servers, group)?;
        scan.get_or_insert(took);
    }
    let [left, right] = servers;
    let server = match side {
        Side::Left => left,
        Side::Right => right,
    };
    Ok(Engine { server, scan: scan.unwrap_or_default() })
}

/// How long a pass of one key of `group` takes, once it is seen to be answered right.
fn check_group(table: &Table, servers: &[dpf::Server; 2], group: Group) -> Result<Duration, Error> {
    let row = random_u64()? % table.rows();
    let shape = servers[0].backend().shape();
    let (request, pending) =
        dpf::Client::with_group(shape, table.version(), PrgKind::Aes128, group)?
            .query(&[row], 1)?;
    let mut answers = [vec![0; table.row_bytes()], vec![0; table.row_bytes()]];
    let mut scan = Duration::MAX;
    for ((server, keys), answer) in
        servers.iter().zip([&request.left, &request.right]).zip(&mut answers)
    {
        let keys = keys.iter().map(|key| server.accept(key)).collect::<Result<Vec<_>, _>>()?;
        // The first pass warms caches and threads; the fastest is what a pass takes undisturbed.
        for _ in 0..SCANS {
            let started = Instant::now();
            server.answer(&keys, answer)?;
            scan = scan.min(started.elapsed());
        }
    }
    let [left, right] =
        answers.each_ref().map(|answers| Reply { version: table.version(), answers });
    let mut expected = vec![0; table.row_bytes()];
    table
        .copy_rows(row, &mut expected)
        .map_err(|source| Error::Table { path: table_path(table), source: Box::new(source) })?;
    match pending.combine(left, right)? == expected {
        true => Ok(scan),
        false => Err(Error::SelfCheck { row }),
    }
}

/// Fetches random entries of each part from `backend` as a client would, compares their rows with
/// the table's, and measures a pass.
pub(crate) fn check_batch(
    side: Side,
    table: &Table,
    layout: &Layout,
    backend: Arc<dyn BatchBackend>,
) -> Result<Bins, Error> {
    let geometry = backend.geometry();
    if geometry.version() != layout.version() {
        let (expected, found) = (layout.version(), geometry.version());
        return Err(Error::BackendLayout { expected, found });
    }
    let (plan, ids) = random_plan(layout)?;
    let (request, pending) = batch::Client::new(geometry.clone(), PrgKind::Aes128).query(&plan)?;
    let answer_bytes = geometry.answer_bytes();
    let servers = Side::BOTH.map(|side| batch::Server::new(side, Arc::clone(&backend)));
    let mut answers = [vec![0; answer_bytes], vec![0; answer_bytes]];
    let mut scan = Duration::MAX;
    for ((server, bytes), answer) in
        servers.iter().zip([&request.left, &request.right]).zip(&mut answers)
    {
        let keys = [server.accept(bytes.clone())?];
        for _ in 0..SCANS {
            let started = Instant::now();
            server.answer(&keys, answer)?;
            scan = scan.min(started.elapsed());
        }
    }
    let [left, right] =
        answers.each_ref().map(|answers| Reply { version: layout.version(), answers });
    let entries = pending.combine(left, right)?;
    let row_bytes = table.row_bytes();
    let mut expected = vec![0; row_bytes];
    let rows = pending.rows(&plan, &entries, row_bytes);
    for (&id, row) in ids.iter().zip(rows.chunks_exact(row_bytes)) {
        table
            .copy_rows(id, &mut expected)
            .map_err(|source| Error::Table { path: table_path(table), source: Box::new(source) })?;
        if row != expected {
            return Err(Error::SelfCheck { row: id });
        }
    }
    let [left, right] = servers;
    let server = match side {
        Side::Left => left,
        Side::Right => right,
    };
    Ok(Bins { server, scan })
}

/// A plan that wants one row of each of a few bins of each part, and the ids stored there.
fn random_plan(layout: &Layout) -> Result<(Plan, Vec<u64>), Error> {
    let mut plan = Plan::empty(layout.keys());
    let mut ids = Vec::new();
    let mut first_key = 0;
    for part in layout.parts() {
        for _ in 0..ENTRIES_CHECKED {
            let index = random_u64()? % part.spec().rows;
            for place in part.places(index) {
                let key = first_key + place.bin as usize * part.queries();
                if plan.found.iter().flatten().any(|found| found.key as usize == key) {
                    continue;
                }
                plan.offsets[key] = place.offset;
                for (id, entry_row) in layout.entry_ids(part, index).zip(0..) {
                    plan.found.push(Some(Found { key: key as u32, entry_row }));
                    ids.push(id);
                }
            }
        }
        first_key += part.keys();
    }
    Ok((plan, ids))
}

pub(crate) fn table_path(table: &Table) -> std::path::PathBuf {
    table.path().map_or_else(|| table.name().into(), Into::into)
}

const SCANS: usize = 3;
const ENTRIES_CHECKED: usize = 4;
