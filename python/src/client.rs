//! Private lookups.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hushtable_pir::batch::Geometry;
use hushtable_serve::{
    Bag, ClientSpec, EndpointSpec, Identity, Lookup, LookupStats, OnionClientSpec,
};
use hushtable_table::layout::Layout;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;
use tokio::task::AbortHandle;

use crate::errors::Failure;
use crate::lookups::{Endpoints, Lookups, OnionFacts};
use crate::prepare::parameter_set;
use crate::session::Session;
use crate::table::Facts;

/// `(bytes_up, bytes_down, seconds, queue_seconds, answer_seconds, retries)`.
type Costs = (u64, u64, f64, f64, f64, u32);
type Rows<'py> = Bound<'py, PyArray2<f32>>;
/// `(rows, kept, dropped, keys, costs)`.
type BagResult<'py> = (Rows<'py>, Bound<'py, PyArray1<bool>>, usize, usize, Costs);
/// `(layout.json, keys, bytes_up, bytes_down, stored_bytes, map_bytes)`: what
/// `hushtable.LayoutInfo` is made of. Bytes of messages are of both servers together.
pub(crate) type LayoutFacts = (String, u64, u64, u64, u64, u64);

/// A client of two servers or of one, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "Client")]
pub(crate) struct NativeClient {
    endpoints: Endpoints,
    // Only locked by threads that hold the interpreter lock, and never across a call that lets go
    // of it: a fork, which takes the interpreter lock too, can then not copy it locked.
    session: Mutex<Option<Arc<Session>>>,
}

/// A lookup under way.
#[pyclass(frozen, module = "hushtable._native", name = "Call")]
pub(crate) struct NativeCall {
    task: AbortHandle,
}

#[pymethods]
impl NativeCall {
    /// Gives the lookup up; its callback may still be called.
    fn cancel(&self) {
        self.task.abort();
    }
}

#[pymethods]
impl NativeClient {
    /// Connects to both servers. `ca` is a file; `names` what the left and the right server's
    /// certificates are for, where that is not their URL's host.
    #[staticmethod]
    #[pyo3(signature = (left, right, *, ca, certificate, names, prg, insecure, connect_seconds,
                        seconds, layout_bytes_max))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn connect(
        py: Python<'_>,
        left: String,
        right: String,
        ca: Option<PathBuf>,
        certificate: Option<(PathBuf, PathBuf)>,
        names: (Option<String>, Option<String>),
        prg: &str,
        insecure: bool,
        connect_seconds: f64,
        seconds: f64,
        layout_bytes_max: u64,
    ) -> PyResult<Self> {
        let trust = Trust::read(ca, certificate)?;
        let lookup_max = duration("timeout", seconds)?;
        let spec = ClientSpec {
            prg: prg.parse().map_err(Failure::config)?,
            insecure,
            connect_max: duration("connect_timeout", connect_seconds)?,
            call_max: lookup_max,
            lookup_max,
            layout_bytes_max,
            ..ClientSpec::new(trust.endpoint(left, names.0), trust.endpoint(right, names.1))
        };
        Self::open(py, Endpoints::Two(Box::new(spec)))
    }

    /// Connects to a single server, which may serve by the `parameter_sets`; other arguments as of
    /// `connect`.
    #[staticmethod]
    #[pyo3(signature = (server, *, ca, certificate, name, parameter_sets, insecure,
                        connect_seconds, seconds))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn connect_one(
        py: Python<'_>,
        server: String,
        ca: Option<PathBuf>,
        certificate: Option<(PathBuf, PathBuf)>,
        name: Option<String>,
        parameter_sets: Vec<String>,
        insecure: bool,
        connect_seconds: f64,
        seconds: f64,
    ) -> PyResult<Self> {
        let trust = Trust::read(ca, certificate)?;
        let lookup_max = duration("timeout", seconds)?;
        let parameter_sets = parameter_sets.iter().map(|name| parameter_set(name));
        let spec = OnionClientSpec {
            parameter_sets: parameter_sets.collect::<Result<_, _>>()?,
            insecure,
            connect_max: duration("connect_timeout", connect_seconds)?,
            call_max: lookup_max,
            lookup_max,
            ..OnionClientSpec::new(trust.endpoint(server, name))
        };
        Self::open(py, Endpoints::One(Box::new(spec)))
    }

    /// The rows `ids` [ids, dim], and what they cost.
    fn lookup<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u64>,
        max_ids: usize,
    ) -> PyResult<(Rows<'py>, Costs)> {
        let ids = ids.as_slice()?;
        let session = self.session(py)?;
        let lookup = session.run(py, session.client().lookup(ids, max_ids))?;
        lookup_result(py, &lookup, ids.len())
    }

    /// Starts a lookup; `done(result, error)` is called on another thread when it is over, with
    /// what `lookup` returns or the error.
    fn start_lookup(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u64>,
        max_ids: usize,
        done: Py<PyAny>,
    ) -> PyResult<NativeCall> {
        let ids = ids.as_slice()?.to_vec();
        let session = self.session(py)?;
        let client = Arc::clone(session.client());
        let call = async move {
            let lookup = client.lookup(&ids, max_ids).await;
            move |py: Python<'_>| {
                let result = lookup_result(py, &lookup.map_err(Failure::from)?, ids.len())?;
                Ok(result.into_pyobject(py)?.into_any().unbind())
            }
        };
        Ok(start(&session, call, done))
    }

    /// The rows of a bag [ids, dim], which of them are there [ids], how many distinct ids were
    /// dropped, how many keys each server got, and what it cost.
    fn lookup_bag<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u64>,
    ) -> PyResult<BagResult<'py>> {
        let ids = ids.as_slice()?;
        let session = self.session(py)?;
        let bag = session.run(py, session.client().fetch_bag(ids))?;
        bag_result(py, bag)
    }

    /// As `start_lookup`, for `lookup_bag`.
    fn start_bag(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u64>,
        done: Py<PyAny>,
    ) -> PyResult<NativeCall> {
        let ids = ids.as_slice()?.to_vec();
        let session = self.session(py)?;
        let client = Arc::clone(session.client());
        let call = async move {
            let bag = client.fetch_bag(&ids).await;
            move |py: Python<'_>| {
                let result = bag_result(py, bag?)?;
                Ok(result.into_pyobject(py)?.into_any().unbind())
            }
        };
        Ok(start(&session, call, done))
    }

    /// The layout that bags are asked by; see `LayoutFacts`.
    fn layout(&self, py: Python<'_>) -> PyResult<Option<LayoutFacts>> {
        let layout = self.session(py)?.client().layout()?;
        Ok(layout.map(|layout| layout_facts(&layout)))
    }

    /// The table at the servers, and the most keys that one lookup may have.
    fn facts(&self, py: Python<'_>) -> PyResult<(Facts, usize)> {
        Ok(self.session(py)?.client().facts())
    }

    /// What a lookup from a single server costs; None with two.
    fn onion(&self, py: Python<'_>) -> PyResult<Option<OnionFacts>> {
        Ok(self.session(py)?.client().onion())
    }

    /// Closes the connections; lookups under way finish.
    fn close(&self) {
        self.locked().take();
    }
}

impl NativeClient {
    fn open(py: Python<'_>, endpoints: Endpoints) -> PyResult<Self> {
        let session = py.detach(|| Session::open(Lookups::connect(&endpoints)))?;
        Ok(Self { endpoints, session: Mutex::new(Some(Arc::new(session))) })
    }

    fn locked(&self) -> std::sync::MutexGuard<'_, Option<Arc<Session>>> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This process's session: in a forked child a new one, at its first use.
    fn session(&self, py: Python<'_>) -> PyResult<Arc<Session>> {
        let Some(found) = self.locked().clone() else {
            return Err(Failure::config("the client is closed: connect again").into());
        };
        if found.is_own() {
            return Ok(found);
        }
        let own = Arc::new(py.detach(|| Session::open(Lookups::connect(&self.endpoints)))?);
        // Another thread may have connected meanwhile: the last one stays, the other closes when
        // its lookup is done.
        *self.locked() = Some(Arc::clone(&own));
        Ok(own)
    }
}

fn into_rows(py: Python<'_>, values: Vec<f32>, count: usize) -> PyResult<Rows<'_>> {
    let dim = values.len().checked_div(count).unwrap_or(0);
    values.into_pyarray(py).reshape([count, dim])
}

fn lookup_result<'py>(
    py: Python<'py>,
    lookup: &Lookup,
    count: usize,
) -> PyResult<(Rows<'py>, Costs)> {
    let values = py.detach(|| lookup.to_f32()).map_err(Failure::from)?;
    Ok((into_rows(py, values, count)?, costs(&lookup.stats)))
}

fn bag_result(py: Python<'_>, bag: Bag) -> PyResult<BagResult<'_>> {
    let values = py.detach(|| bag.to_f32()).map_err(Failure::from)?;
    let rows = into_rows(py, values, bag.kept.len())?;
    Ok((rows, bag.kept.into_pyarray(py), bag.dropped, bag.keys, costs(&bag.stats)))
}

/// Makes a call on the session's thread. What it ends with is turned into Python's objects once the
/// interpreter is at hand, and given to `done(result, error)`.
fn start<F, R>(session: &Session, call: F, done: Py<PyAny>) -> NativeCall
where
    F: Future<Output = R> + Send + 'static,
    R: FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send + 'static,
{
    let task = session.spawn(async move {
        let result = call.await;
        // An interpreter that is shutting down waits for no lookup.
        Python::try_attach(|py| {
            let called = match result(py) {
                Ok(result) => done.call1(py, (result, py.None())),
                Err(error) => done.call1(py, (py.None(), error)),
            };
            if let Err(error) = called {
                error.write_unraisable(py, None);
            }
        });
    });
    NativeCall { task }
}

fn costs(stats: &LookupStats) -> Costs {
    (
        stats.sent_bytes,
        stats.received_bytes,
        stats.elapsed.as_secs_f64(),
        stats.queue.as_secs_f64(),
        stats.answer.as_secs_f64(),
        stats.retries,
    )
}

pub(crate) fn layout_facts(layout: &Layout) -> LayoutFacts {
    let costs = Geometry::new(layout).costs(layout);
    let up = costs.up_left_bytes + costs.up_right_bytes;
    let down = 2 * costs.down_bytes;
    (layout.to_json(), costs.keys, up, down, costs.stored_bytes, costs.map_bytes)
}

/// How servers are checked, and what they are shown.
pub(crate) struct Trust {
    ca_pem: Option<Vec<u8>>,
    identity: Option<Identity>,
}

impl Trust {
    pub(crate) fn read(
        ca: Option<PathBuf>,
        certificate: Option<(PathBuf, PathBuf)>,
    ) -> Result<Self, Failure> {
        let ca_pem = ca.as_deref().map(read_file).transpose()?;
        let identity = match certificate {
            None => None,
            Some((cert, key)) => {
                Some(Identity { cert_pem: read_file(&cert)?, key_pem: read_file(&key)? })
            }
        };
        Ok(Self { ca_pem, identity })
    }

    pub(crate) fn endpoint(&self, url: String, domain: Option<String>) -> EndpointSpec {
        EndpointSpec {
            domain,
            identity: self.identity.clone(),
            ..EndpointSpec::new(url, self.ca_pem.clone())
        }
    }
}

fn read_file(path: &std::path::Path) -> Result<Vec<u8>, Failure> {
    std::fs::read(path)
        .map_err(|error| Failure::config(format!("cannot read {}: {error}", path.display())))
}

pub(crate) fn duration(name: &str, seconds: f64) -> Result<Duration, Failure> {
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|duration| (MIN_WAIT..=MAX_WAIT).contains(duration))
        .ok_or_else(|| {
            Failure::config(format!("{name} is {seconds} seconds, but must be 0.001 to 86,400"))
        })
}

const MIN_WAIT: Duration = Duration::from_millis(1);
const MAX_WAIT: Duration = Duration::from_secs(86_400);
