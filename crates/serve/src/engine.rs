//! From a table to a server's half that is known to answer right.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hushtable_pir::dpf::{self, Reply, Side};
use hushtable_pir::{Backend, CpuEngine, EngineSpec};
use hushtable_pir::{Platform, PrgKind};
use hushtable_table::Table;

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
        platform: Platform::detect(),
        batch_keys_max: spec.batch_keys_max.unwrap_or(0),
    };
    Ok(Arc::new(CpuEngine::from_table(table, &spec)?))
}

/// Fetches a random row from `backend` as a client would, compares it with the table's bytes, and
/// measures a pass.
pub(crate) fn check(side: Side, table: &Table, backend: Arc<dyn Backend>) -> Result<Engine, Error> {
    let row = random_u64()? % table.rows();
    let (request, pending) =
        dpf::Client::new(backend.shape(), table.version(), PrgKind::Aes128)?.query(&[row], 1)?;
    let servers =
        Side::BOTH.map(|side| dpf::Server::new(side, table.version(), Arc::clone(&backend)));
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
        .map_err(|source| Error::Table { path: table_path(table), source })?;
    if pending.combine(left, right)? != expected {
        return Err(Error::SelfCheck { row });
    }
    let [left, right] = servers;
    let server = match side {
        Side::Left => left,
        Side::Right => right,
    };
    Ok(Engine { server, scan })
}

pub(crate) fn table_path(table: &Table) -> std::path::PathBuf {
    table.path().map_or_else(|| table.name().into(), Into::into)
}

pub(crate) fn random_u64() -> Result<u64, Error> {
    getrandom::u64().map_err(|_| Error::Pir(hushtable_pir::Error::Entropy))
}

const SCANS: usize = 3;
