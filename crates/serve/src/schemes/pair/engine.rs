//! From a table, its layout, and a model of several, to a server's halves that are known to answer
//! right.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hushtable_pir::batch::{self, BatchBackend, BatchEngine};
use hushtable_pir::dpf::{self, Side};
use hushtable_pir::model::{self, Feature};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Patched, Threads};
use hushtable_table::Table;
use hushtable_table::layout::Layout;
use hushtable_table::model::ModelManifest;

use super::question::{Question, Sides, random_change, random_row};
use crate::batch::check::check;
use crate::{Error, ServerSpec};

/// A checked server half and how long one query takes it.
pub(crate) struct Checked<S> {
    pub server: S,
    pub scan: Duration,
}

/// Loads `table` for processors.
pub(crate) fn load(
    spec: &ServerSpec,
    threads: &Threads,
    table: &Table,
) -> Result<Arc<dyn Backend>, Error> {
    let spec = engine_spec(threads, spec.batch_keys_max);
    Ok(Arc::new(CpuEngine::from_table(table, &spec)?))
}

/// Loads the bins of `layout` for processors.
pub(crate) fn load_batch(
    spec: &ServerSpec,
    threads: &Threads,
    table: &Table,
    layout: &Layout,
) -> Result<Arc<dyn BatchBackend>, Error> {
    let spec = engine_spec(threads, spec.batch_bags_max);
    Ok(Arc::new(BatchEngine::from_table(table, layout, &spec)?))
}

pub(super) fn engine_spec(threads: &Threads, batch_max: Option<usize>) -> EngineSpec {
    EngineSpec {
        shared: Some(threads.clone()),
        batch_keys_max: batch_max.unwrap_or(0),
        ..EngineSpec::default()
    }
}

/// The one of two that is `side`'s.
pub(super) fn of_side<T>(side: Side, sides: Sides<T>) -> T {
    let [left, right] = sides;
    match side {
        Side::Left => left,
        Side::Right => right,
    }
}

fn pair_of(answers: &[Vec<u8>]) -> Sides<&[u8]> {
    [0, 1].map(|side: usize| answers.get(side).map_or(&[][..], Vec::as_slice))
}

/// Fetches a random one of the `rows` that `backend` has as a client would, in each group that it
/// answers, compares it with the table's bytes, and measures a pass of the fastest group.
pub(crate) fn check_rows(
    side: Side,
    table: &Table,
    rows: Range<u64>,
    backend: Arc<dyn Backend>,
) -> Result<Checked<dpf::Server>, Error> {
    check_row(side, table, || random_row(rows.clone()), backend)
}

/// The same of what lies below a table's patch, by a row that the patch does not change; what a pass
/// took.
pub(super) fn check_base(
    table: &Table,
    rows: Range<u64>,
    base: &Arc<dyn Backend>,
) -> Result<Duration, Error> {
    let changed = table.patch().map_or(&[][..], |patch| patch.ids());
    let is_changed = |row: &u64| changed.binary_search(row).is_ok();
    let same = rows.clone().find(|row| !is_changed(row));
    let row = || {
        let row = random_row(rows.clone())?;
        Ok(if is_changed(&row) { same.unwrap_or(row) } else { row })
    };
    match same {
        Some(_) => Ok(check_row(Side::Left, table, row, Arc::clone(base))?.scan),
        // All of its rows are changed, and those are checked.
        None => Ok(Duration::ZERO),
    }
}

fn check_row(
    side: Side,
    table: &Table,
    row: impl Fn() -> Result<u64, Error>,
    backend: Arc<dyn Backend>,
) -> Result<Checked<dpf::Server>, Error> {
    let servers =
        Side::BOTH.map(|side| dpf::Server::new(side, table.version(), Arc::clone(&backend)));
    let mut scan = None;
    for &group in backend.groups() {
        let row = row()?;
        let (question, asked) = Question::of_row(table, row, group, 1)?;
        let accept = |(server, keys): (&dpf::Server, &Vec<Vec<u8>>)| {
            keys.iter().map(|key| server.accept(key)).collect::<Result<Vec<_>, _>>()
        };
        let [left, right] = [0, 1].map(|i: usize| accept((&servers[i], &asked[i])));
        let halves = [(&servers[0], left?), (&servers[1], right?)];
        let took = check(&halves, |answers| question.wrong(pair_of(answers)))?;
        scan.get_or_insert(took);
    }
    Ok(Checked { server: of_side(side, servers), scan: scan.unwrap_or_default() })
}

/// Fetches one of `rows` that changed, in each group, from the changes in `patched` alone: what is below was checked
/// when it was loaded, and takes `scan` for a pass.
pub(crate) fn check_changes(
    side: Side,
    table: &Table,
    rows: Range<u64>,
    patched: Patched,
    scan: Duration,
) -> Result<Checked<dpf::Server>, Error> {
    let patched = Arc::new(patched);
    let backend: Arc<dyn Backend> = Arc::clone(&patched) as _;
    let servers =
        Side::BOTH.map(|side| dpf::Server::new(side, table.version(), Arc::clone(&backend)));
    let ids = table.patch().map_or(&[][..], |patch| patch.ids());
    let [first, end] = [rows.start, rows.end].map(|row| ids.partition_point(|&id| id < row));
    for &group in backend.groups() {
        let Some(row) = random_change(&ids[first..end])? else { break };
        let (question, asked) = Question::of_row(table, row, group, 1)?;
        // As if the left server had answered with the row of before and the right one with nothing.
        let mut answers = [0, 1].map(|_: usize| vec![0; table.row_bytes()]);
        table
            .copy_base_row(row, &mut answers[0])
            .map_err(|error| Error::from(hushtable_pir::Error::of_table(error)))?;
        for ((server, asked), answer) in servers.iter().zip(asked).zip(&mut answers) {
            let keys = asked.iter().map(|key| server.accept(key)).collect::<Result<Vec<_>, _>>()?;
            patched.add_all_changes(&keys.iter().collect::<Vec<_>>(), answer)?;
        }
        let [left, right] = &answers;
        if let Some(row) = question.wrong([left, right])? {
            return Err(Error::SelfCheck { row });
        }
    }
    Ok(Checked { server: of_side(side, servers), scan })
}

/// Fetches random entries of each part from `backend` as a client would, of its `own` bins where it
/// has not all, compares their rows with the table's, and measures a pass.
pub(crate) fn check_bins(
    side: Side,
    table: &Table,
    layout: &Layout,
    own: Option<&[Range<usize>]>,
    backend: Arc<dyn BatchBackend>,
) -> Result<Checked<batch::Server>, Error> {
    let (expected, found) = (layout.version(), backend.geometry().version());
    if expected != found {
        return Err(Error::BackendLayout { expected, found });
    }
    let (question, [left, right]) = Question::of_bins(table, layout, own, backend.geometry())?;
    let servers = Side::BOTH.map(|side| batch::Server::new(side, Arc::clone(&backend)));
    let halves = [
        (&servers[0], vec![servers[0].accept(left)?]),
        (&servers[1], vec![servers[1].accept(right)?]),
    ];
    let scan = check(&halves, |answers| question.wrong(pair_of(answers)))?;
    Ok(Checked { server: of_side(side, servers), scan })
}

/// What answers a model's tables: by the manifest's index, the table, its rows, and its bins where
/// the manifest names a layout.
pub(crate) struct ModelTable<'a> {
    pub table: &'a Table,
    pub rows: dpf::Server,
    pub bins: Option<batch::Server>,
}

/// Puts a model's features together, fetches a random row of each as a client would, compares them
/// with the tables' bytes, and measures a pass.
pub(crate) fn check_model(
    side: Side,
    manifest: &ModelManifest,
    tables: &[ModelTable<'_>],
    threads: &Threads,
) -> Result<Checked<model::Server>, Error> {
    let servers = Side::BOTH.map(|side| model_server(side, manifest, tables, threads));
    let (questions, asked) = ask_model(manifest, tables)?;
    let [left, right] = asked;
    let halves = [
        (&servers[0], vec![servers[0].accept(left)?]),
        (&servers[1], vec![servers[1].accept(right)?]),
    ];
    let scan = check(&halves, |answers| {
        let [mut left, mut right] = pair_of(answers);
        for (question, feature) in questions.iter().zip(servers[0].features()) {
            let (own_left, rest_left) = left.split_at(feature.answer_bytes());
            let (own_right, rest_right) = right.split_at(feature.answer_bytes());
            (left, right) = (rest_left, rest_right);
            if let Some(row) = question.wrong([own_left, own_right])? {
                return Ok(Some(row));
            }
        }
        Ok(None)
    })?;
    Ok(Checked { server: of_side(side, servers), scan })
}

/// A model's features, each answered by its table's rows or bins.
pub(super) fn model_server(
    side: Side,
    manifest: &ModelManifest,
    tables: &[ModelTable<'_>],
    threads: &Threads,
) -> model::Server {
    let features = manifest.features().iter().map(|feature| {
        let ModelTable { table, rows, bins } = &tables[feature.table];
        match bins {
            Some(bins) => Feature::Bins(batch::Server::new(side, Arc::clone(bins.backend()))),
            None => {
                let backend = Arc::clone(rows.backend());
                let server = dpf::Server::new(side, table.version(), backend);
                Feature::Rows { server, keys: feature.max_ids }
            }
        }
    });
    model::Server::new(manifest.version(), features.collect(), threads.clone())
}

/// One server's keys of an inference, feature by feature.
type Parts = Vec<Vec<u8>>;

/// Asks for a random row of each feature.
pub(super) fn ask_model<'a>(
    manifest: &ModelManifest,
    tables: &[ModelTable<'a>],
) -> Result<(Vec<Question<'a>>, Sides<Parts>), Error> {
    let mut questions = Vec::with_capacity(manifest.features().len());
    let mut asked: Sides<Parts> = Default::default();
    for feature in manifest.features() {
        let ModelTable { table, rows, bins } = &tables[feature.table];
        let (question, [left, right]) = match (bins, table.layout()) {
            (Some(bins), Some(layout)) => {
                Question::of_bins(table, layout, None, bins.backend().geometry())?
            }
            _ => {
                let group = rows.backend().groups()[0];
                let row = random_row(0..table.rows())?;
                let (question, keys) = Question::of_row(table, row, group, feature.max_ids)?;
                (question, keys.map(|keys| keys.concat()))
            }
        };
        questions.push(question);
        asked[0].push(left);
        asked[1].push(right);
    }
    Ok((questions, asked))
}
