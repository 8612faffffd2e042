//! From a table to a server's half that is known to answer right.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hushtable_pir::Threads;
use hushtable_pir::onion::{self, Geometry, OnionBackend, OnionSpec, Server};
use hushtable_table::Table;
use hushtable_table::prepared::PreparedError;

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
    let engine_spec = OnionSpec {
        shared: Some(threads.clone()),
        batch_queries_max: spec.batch_queries_max.unwrap_or(0),
        load: !spec.mapped,
        ..OnionSpec::new()
    };
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
    let client = onion::Client::new(geometry.clone(), expected)?;
    let server = Server::new(backend);
    let keys = Arc::new(server.accept_keys(client.keys())?);
    let (queries, pending) = client.query(&[row], 1)?;
    let asked =
        queries.iter().map(|query| server.accept(&keys, query)).collect::<Result<Vec<_>, _>>()?;
    let pass = check(&[(&server, asked)], |responses| {
        let responses = responses.first().map_or(&[][..], Vec::as_slice);
        let fetched = client.decode(&pending, server.version(), responses)?;
        Ok((!is_row(table, row, &fetched)?).then_some(row))
    })?;
    Ok(Checked { server, pass })
}
