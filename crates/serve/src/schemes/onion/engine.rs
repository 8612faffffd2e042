//! From a table to a server's half that is known to answer right.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hushtable_pir::Threads;
use hushtable_pir::onion::{self, Geometry, OnionBackend, OnionSpec, Server, Shard};
use hushtable_table::Table;
use hushtable_table::prepared::PreparedError;

use super::OnionServerSpec;
use super::role::ShardOf;
use super::spec::Settings;
use crate::Error;
use crate::batch::check::{check, is_row};
use crate::host::scheme::Loading;
use crate::peer::random_u64;

/// A backend, and how long it takes to read the table once, where it knows.
pub(super) struct Loaded {
    pub backend: Arc<dyn OnionBackend>,
    pub scan: Option<Duration>,
}

/// A checked server half and how long a pass for one query takes it.
pub(super) struct Checked {
    pub server: Server,
    pub pass: Duration,
}

/// Opens the prepared file for processors; where it is missing or stale, makes it first.
pub(super) fn load(
    settings: &Settings,
    geometry: &Geometry,
    threads: &Threads,
    table: &Table,
    prepared: Option<&Path>,
    loading: &Loading,
    progress: &(dyn Fn(u64, u64) + Sync),
) -> Result<Loaded, Error> {
    let (spec, set) = (&settings.spec, geometry.set());
    let engine_spec = engine_spec(spec, threads);
    let engine = match prepared {
        None => onion::Engine::from_table(table, set, &engine_spec)?,
        Some(path) => match onion::Engine::open(path, table, set, &engine_spec) {
            Err(onion::Error::Prepared(reason)) if is_stale(&reason) => {
                tracing::info!(%reason, "preparing the table");
                make_folder(path)?;
                let report = |done, all| {
                    progress(done, all);
                    !loading.is_abandoned.load(Ordering::Relaxed)
                };
                let made = onion::prepare(table, path, set, &engine_spec, &report)?;
                tracing::info!(
                    payload_bytes = made.payload_bytes,
                    resumed_units = made.resumed_units,
                    units = made.units,
                    "prepared the table"
                );
                onion::Engine::open(path, table, set, &engine_spec)?
            }
            opened => opened?,
        },
    };
    let scan = engine.scan();
    Ok(Loaded { backend: Arc::new(engine), scan: Some(scan) })
}

/// Takes a shard's part of the prepared file, where there is one; or else brings just its rows into that form, in
/// memory.
pub(super) fn load_shard(
    settings: &Settings,
    geometry: &Geometry,
    shard: ShardOf,
    threads: &Threads,
    table: &Table,
    is_patch_checked: bool,
    prepared: Option<&Path>,
) -> Result<Shard, Error> {
    let (spec, set, of) = (&settings.spec, geometry.set(), (shard.number, shard.count));
    let engine_spec = OnionSpec { is_patch_checked, ..engine_spec(spec, threads) };
    let in_memory = || onion::Engine::shard_from_table(table, of, set, &engine_spec);
    let engine = match prepared {
        None => in_memory()?,
        Some(path) => match onion::Engine::open_shard(path, table, of, set, &engine_spec) {
            Err(onion::Error::Prepared(reason)) if is_stale(&reason) => {
                tracing::info!(%reason, "preparing the shard's rows in memory");
                in_memory()?
            }
            opened => opened?,
        },
    };
    Ok(Shard::new(engine))
}

fn engine_spec(spec: &OnionServerSpec, threads: &Threads) -> OnionSpec {
    OnionSpec {
        shared: Some(threads.clone()),
        batch_queries_max: spec.batch_queries_max.unwrap_or(0),
        load: !spec.mapped,
        ..OnionSpec::new()
    }
}

/// Makes the folder of a file that is to be prepared: a model has none before its first.
fn make_folder(file: &Path) -> Result<(), Error> {
    let Some(folder) = file.parent() else { return Ok(()) };
    std::fs::create_dir_all(folder).map_err(|source| Error::Io {
        what: format!("make the folder {} for prepared tables", folder.display()),
        source,
    })
}

/// Whether preparing the table again mends it. What another program may have put there, or is
/// writing now, is left alone.
fn is_stale(error: &PreparedError) -> bool {
    use PreparedError::{Blocks, File, Format, Meta, Missing, PayloadBytes, Stale};
    matches!(
        error,
        Blocks { .. }
            | File { .. }
            | Format { .. }
            | Meta { .. }
            | Missing { .. }
            | PayloadBytes { .. }
            | Stale { .. }
    )
}

/// Fetches a random row from `backend` as a client would, compares it with the table's bytes, and
/// measures a pass.
pub(super) fn check_row(
    geometry: &Geometry,
    table: &Table,
    backend: Arc<dyn OnionBackend>,
) -> Result<Checked, Error> {
    let (expected, found) = (table.version(), backend.version());
    if found != expected || backend.geometry() != geometry {
        let parameters = geometry.set().name();
        return Err(Error::BackendTable { expected, found, parameters });
    }
    let row = random_u64()? % table.rows();
    let Question { client, pending, asked, server } = Question::of(geometry, table, row, backend)?;
    let pass = check(&[(&server, asked)], |responses| {
        let responses = responses.first().map_or(&[][..], Vec::as_slice);
        let fetched = client.decode(&pending, server.version(), responses)?;
        Ok((!is_row(table, row, &fetched)?).then_some(row))
    })?;
    Ok(Checked { server, pass })
}

/// Fetches a random row of a shard's as if all others were zeros, compares it with the table's bytes, and measures
/// a pass. A shard of a very small table may have no row.
pub(super) fn check_shard(
    geometry: &Geometry,
    table: &Table,
    shard: Shard,
) -> Result<Checked, Error> {
    let (ids, shard) = (shard.ids(), Arc::new(shard));
    let backend: Arc<dyn OnionBackend> = Arc::clone(&shard) as _;
    if ids.is_empty() {
        return Ok(Checked { server: Server::new(backend), pass: Duration::ZERO });
    }
    let row = ids.start + random_u64()? % (ids.end - ids.start);
    let Question { client, pending, asked, server } = Question::of(geometry, table, row, backend)?;
    let mut response = vec![0; asked.len() * geometry.response_bytes()];
    shard.answer_alone(&asked, &mut response)?;
    let fetched = client.decode(&pending, server.version(), &response)?;
    if !is_row(table, row, &fetched)? {
        return Err(Error::SelfCheck { row });
    }
    let pass = check(&[(&server, asked)], |_| Ok(None))?;
    Ok(Checked { server, pass })
}

/// Asks what a front asks shards for a random row, and measures that. A front has no row to hold it against: each
/// shard has done so with its own.
pub(super) fn check_front(
    geometry: &Geometry,
    table: &Table,
    backend: Arc<dyn OnionBackend>,
) -> Result<Checked, Error> {
    let row = random_u64()? % table.rows();
    let Question { asked, server, .. } = Question::of(geometry, table, row, backend)?;
    let pass = check(&[(&server, asked)], |_| Ok(None))?;
    Ok(Checked { server, pass })
}

/// A query for a row, and what reads its answer.
struct Question {
    client: onion::Client,
    pending: onion::Pending,
    asked: Vec<onion::Asked>,
    server: Server,
}

impl Question {
    fn of(
        geometry: &Geometry,
        table: &Table,
        row: u64,
        backend: Arc<dyn OnionBackend>,
    ) -> Result<Self, Error> {
        let client = onion::Client::new(geometry.clone(), table.version())?;
        let server = Server::new(backend);
        let keys = Arc::new(server.accept_keys(client.keys())?);
        let (queries, pending) = client.query(&[row], 1)?;
        let asked = queries.iter().map(|query| server.accept(&keys, query));
        let asked = asked.collect::<Result<Vec<_>, _>>()?;
        Ok(Self { client, pending, asked, server })
    }
}
