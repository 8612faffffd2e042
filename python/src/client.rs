//! Private lookups: from a pair of servers, and from one.

use std::path::PathBuf;
use std::sync::Arc;

use hushtable_serve::{
    ClientSpec, FetchedBags, Lookup, LookupClient, OnionClient, OnionClientSpec,
};
use hushtable_table::Version;
use numpy::{IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1};
use pyo3::prelude::*;

use crate::connected::{Connect, Connected, NativeCall};
use crate::errors::Failure;
use crate::facts::{Costs, LayoutFacts, ServedFacts};
use crate::prepare::parameter_set;
use crate::trust::{Authorities, Trust, duration};

/// A client of a left and a right server, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "PairClient")]
pub(crate) struct NativePairClient(Connected<LookupClient>);

/// A client of a single server, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "OnionClient")]
pub(crate) struct NativeOnionClient(Connected<OnionClient>);

/// Rows that a lookup fetched.
#[pyclass(frozen, get_all, module = "hushtable._native", name = "Rows")]
pub(crate) struct NativeRows {
    /// float32 [ids, dim].
    values: Py<PyArray2<f32>>,
    costs: Costs,
}

/// Rows of bags, as a layout answered them.
#[pyclass(frozen, get_all, module = "hushtable._native", name = "BagsRows")]
pub(crate) struct NativeBagsRows {
    /// float32 [ids, dim], of all bags' ids one after the other.
    values: Py<PyArray2<f32>>,
    /// Which ids' rows are there.
    kept: Py<PyArray1<bool>>,
    /// Of each bag the distinct ids that were dropped.
    dropped: Vec<usize>,
    /// Keys to each server, for all bags.
    keys: usize,
    costs: Costs,
}

impl Connect for LookupClient {
    type Spec = ClientSpec;

    async fn connect(spec: &ClientSpec) -> Result<Self, Failure> {
        let has_certificate = spec.left.identity.is_some();
        let connected = Self::connect(spec).await;
        connected.map_err(|error| Failure::at_connect(error, has_certificate))
    }
}

impl Connect for OnionClient {
    type Spec = OnionClientSpec;

    async fn connect(spec: &OnionClientSpec) -> Result<Self, Failure> {
        let has_certificate = spec.server.identity.is_some();
        let connected = Self::connect(spec).await;
        connected.map_err(|error| Failure::at_connect(error, has_certificate))
    }
}

#[pymethods]
impl NativePairClient {
    /// Connects to both servers. `cas` are the authorities that the left and the right server's
    /// certificates may come from; `names` what they are for, where that is not their URL's host.
    #[new]
    #[pyo3(signature = (left, right, *, cas, certificate, names, prg, insecure, connect_seconds,
                        seconds, layout_bytes_max, version))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn new(
        py: Python<'_>,
        left: Vec<String>,
        right: Vec<String>,
        cas: (Option<Authorities>, Option<Authorities>),
        certificate: Option<(PathBuf, PathBuf)>,
        names: (Option<String>, Option<String>),
        prg: &str,
        insecure: bool,
        connect_seconds: f64,
        seconds: f64,
        layout_bytes_max: u64,
        version: Option<&str>,
    ) -> PyResult<Self> {
        let [of_left, of_right] = Trust::of_sides(cas, certificate)?;
        let lookup_max = duration("timeout", seconds)?;
        let spec = ClientSpec {
            prg: prg.parse().map_err(Failure::config)?,
            insecure,
            connect_max: duration("connect_timeout", connect_seconds)?,
            call_max: lookup_max,
            lookup_max,
            layout_bytes_max,
            version: pinned_version(version)?,
            ..ClientSpec::new(of_left.side(left, names.0)?, of_right.side(right, names.1)?)
        };
        Ok(Self(Connected::open(py, spec)?))
    }

    /// The rows `ids`, and what they cost.
    fn lookup(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u64>,
        max_ids: usize,
    ) -> PyResult<NativeRows> {
        let (ids, session) = (ids.as_slice()?, self.0.session(py)?);
        let found = session.run(py, session.client().lookup(ids, max_ids))?;
        NativeRows::new(py, &found, ids.len())
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
        let count = ids.len();
        let call =
            move |client: Arc<LookupClient>| async move { client.lookup(&ids, max_ids).await };
        self.0.start(py, done, call, move |py, found| NativeRows::object(py, &found, count))
    }

    /// The rows of bags, and which of them are there. Bag `i` has `ids[bounds[i]..bounds[i + 1]]`.
    fn lookup_bags(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u64>,
        bounds: Vec<usize>,
    ) -> PyResult<NativeBagsRows> {
        let bags = split(ids.as_slice()?, &bounds)?;
        let session = self.0.session(py)?;
        let found = session.run(py, session.client().fetch_bags(&bags))?;
        NativeBagsRows::new(py, found)
    }

    /// As `start_lookup`, for `lookup_bags`.
    fn start_bags(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u64>,
        bounds: Vec<usize>,
        done: Py<PyAny>,
    ) -> PyResult<NativeCall> {
        let bags = split(ids.as_slice()?, &bounds)?;
        let call = move |client: Arc<LookupClient>| async move { client.fetch_bags(&bags).await };
        self.0.start(py, done, call, |py, found| {
            Ok(Py::new(py, NativeBagsRows::new(py, found)?)?.into_any())
        })
    }

    /// The layout that bags are asked by.
    fn layout(&self, py: Python<'_>) -> PyResult<Option<LayoutFacts>> {
        let layout = self.0.session(py)?.client().layout().map_err(Failure::from)?;
        Ok(layout.map(|layout| LayoutFacts::new(&layout)))
    }

    /// What the servers hold and take.
    fn info(&self, py: Python<'_>) -> PyResult<ServedFacts> {
        Ok(ServedFacts::of_pair(self.0.session(py)?.client().info()))
    }

    /// Closes the connections; lookups under way finish.
    fn close(&self) {
        self.0.close();
    }
}

#[pymethods]
impl NativeOnionClient {
    /// Connects to a single server, which may serve by the `parameter_sets`; other arguments as of
    /// `PairClient`.
    #[new]
    #[pyo3(signature = (server, *, ca, certificate, name, parameter_sets, insecure,
                        connect_seconds, seconds, version))]
    #[allow(clippy::too_many_arguments, reason = "called from one place, by keyword")]
    fn new(
        py: Python<'_>,
        server: Vec<String>,
        ca: Option<Authorities>,
        certificate: Option<(PathBuf, PathBuf)>,
        name: Option<String>,
        parameter_sets: Vec<String>,
        insecure: bool,
        connect_seconds: f64,
        seconds: f64,
        version: Option<&str>,
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
            version: pinned_version(version)?,
            ..OnionClientSpec::new(trust.side(server, name)?)
        };
        Ok(Self(Connected::open(py, spec)?))
    }

    /// The rows `ids`, and what they cost.
    fn lookup(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u64>,
        max_ids: usize,
    ) -> PyResult<NativeRows> {
        let (ids, session) = (ids.as_slice()?, self.0.session(py)?);
        let found = session.run(py, session.client().lookup(ids, max_ids))?;
        NativeRows::new(py, &found, ids.len())
    }

    /// As `PairClient.start_lookup`.
    fn start_lookup(
        &self,
        py: Python<'_>,
        ids: PyReadonlyArray1<'_, u64>,
        max_ids: usize,
        done: Py<PyAny>,
    ) -> PyResult<NativeCall> {
        let ids = ids.as_slice()?.to_vec();
        let count = ids.len();
        let call =
            move |client: Arc<OnionClient>| async move { client.lookup(&ids, max_ids).await };
        self.0.start(py, done, call, move |py, found| NativeRows::object(py, &found, count))
    }

    /// What the server holds and takes.
    fn info(&self, py: Python<'_>) -> PyResult<ServedFacts> {
        Ok(ServedFacts::of_onion(self.0.session(py)?.client().info()))
    }

    /// Closes the connections; lookups under way finish.
    fn close(&self) {
        self.0.close();
    }
}

impl NativeRows {
    pub(crate) fn new(py: Python<'_>, found: &Lookup, count: usize) -> PyResult<Self> {
        let values = py.detach(|| found.to_f32()).map_err(Failure::from)?;
        Ok(Self { values: into_rows(py, values, count)?, costs: Costs::new(&found.stats) })
    }

    pub(crate) fn object(py: Python<'_>, found: &Lookup, count: usize) -> PyResult<Py<PyAny>> {
        Ok(Py::new(py, Self::new(py, found, count)?)?.into_any())
    }
}

impl NativeBagsRows {
    fn new(py: Python<'_>, found: FetchedBags) -> PyResult<Self> {
        let values = py.detach(|| found.to_f32()).map_err(Failure::from)?;
        let kept: Vec<_> = found.bags.iter().flat_map(|bag| bag.kept.iter().copied()).collect();
        Ok(Self {
            values: into_rows(py, values, kept.len())?,
            costs: Costs::new(&found.stats),
            kept: kept.into_pyarray(py).unbind(),
            dropped: found.bags.iter().map(|bag| bag.dropped).collect(),
            keys: found.keys,
        })
    }
}

/// Each bag's ids.
fn split(ids: &[u64], bounds: &[usize]) -> Result<Vec<Vec<u64>>, Failure> {
    let parts = bounds.windows(2).map(|ends| ids.get(ends[0]..ends[1]).map(<[u64]>::to_vec));
    parts.collect::<Option<_>>().ok_or_else(|| Failure::config("bounds do not fit the ids"))
}

/// The version that a caller asks for alone, from its digits.
pub(crate) fn pinned_version(digits: Option<&str>) -> Result<Option<Version>, Failure> {
    let parse = |digits: &str| {
        digits.parse().map_err(|error| Failure::config(format!("version {digits:?}: {error}")))
    };
    digits.map(parse).transpose()
}

pub(crate) fn into_rows(
    py: Python<'_>,
    values: Vec<f32>,
    count: usize,
) -> PyResult<Py<PyArray2<f32>>> {
    let dim = values.len().checked_div(count).unwrap_or(0);
    Ok(values.into_pyarray(py).reshape([count, dim])?.unbind())
}
