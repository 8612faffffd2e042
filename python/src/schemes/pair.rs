//! Private lookups from a pair of servers.

use std::sync::Arc;

use hushtable_serve::{
    ClientSpec, DeviceError, Error, FetchedBags, LookupClient, ModelClient, PairRefusal, Refusal,
    Server, ServerSpec,
};
use numpy::{IntoPyArray, PyArray1, PyArray2};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::asked::{Answer, Asked, Given, Kind, answer, unknown};
use crate::connected::Connect;
use crate::errors::Failure;
use crate::facts::{Costs, HeldFacts, LayoutFacts, ServedFacts};
use crate::reach::{Limits, Reach};
use crate::schemes::rows::{NativeRows, into_rows};
use crate::schemes::{Refused, Scheme};
use crate::serve_errors::{config, too_many};
use crate::server::{self, Started};

pub(crate) const SCHEME: Scheme = Scheme {
    name: "pair",
    kinds: &[Kind::of::<LookupClient>("pair"), Kind::of::<ModelClient>("model")],
    serve: Some(serve),
    refused,
    errors: &[config::<DeviceError>],
};

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

/// The options that are this scheme's.
#[derive(FromPyObject)]
struct Options {
    prg: String,
    max_layout_bytes: u64,
}

impl Connect for LookupClient {
    type Spec = ClientSpec;

    async fn connect(spec: &ClientSpec) -> Result<Self, Error> {
        Self::connect(spec).await
    }
}

impl Asked for LookupClient {
    fn spec(reach: &Reach<'_>) -> PyResult<ClientSpec> {
        let Limits { insecure, connect_max, call_max, version } = reach.limits(30.0)?;
        let own: Options = reach.options.extract()?;
        let [left, right] = reach.endpoints()?;
        Ok(ClientSpec {
            prg: own.prg.parse().map_err(Failure::config)?,
            insecure,
            connect_max,
            call_max,
            lookup_max: call_max,
            layout_bytes_max: own.max_layout_bytes,
            version,
            ..ClientSpec::new(left, right)
        })
    }

    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        ServedFacts::of_pair(self.info()).into_py_any(py)
    }

    fn ask<'a>(self: Arc<Self>, call: &str, given: &mut Given<'a, '_, '_>) -> PyResult<Answer<'a>> {
        Ok(match call {
            // Rows of ids, which are padded to so many keys.
            "lookup" => {
                let (ids, max_ids) = (given.ids()?, given.other()?);
                let count = ids.len();
                let call = async move { self.lookup(&ids, max_ids).await };
                answer(call, move |py, found| NativeRows::new(py, &found, count))
            }
            // Rows of bags, and which are there: bag `i` has `ids[bounds[i]..bounds[i + 1]]`.
            "lookup_bags" => {
                let (ids, bounds) = (given.ids()?, given.other::<Vec<_>>()?);
                let bags = split(&ids, &bounds)?;
                answer(async move { self.fetch_bags(&bags).await }, NativeBagsRows::new)
            }
            // The layout that bags are asked by.
            "layout" => answer(async move { self.layout() }, |_, layout| {
                Ok(layout.map(|layout| LayoutFacts::new(&layout)))
            }),
            _ => return unknown(call),
        })
    }
}

/// Starts the server that a [`ServerSpec`] in JSON describes.
fn serve(json: &str) -> Result<Started, Failure> {
    let spec: ServerSpec = server::spec(json)?;
    let paths: Vec<_> = [&spec.table].into_iter().chain(&spec.tables).cloned().collect();
    let io_threads = spec.io_threads;
    let server = Server::open(spec)?;
    let facts = HeldFacts::read(&paths, None)?;
    server::start(|| server.bind(), io_threads, Arc::default(), facts)
}

/// What one of the scheme's own refusals is to Python.
fn refused(refusal: &Refusal, of: Refused<'_>) -> Option<Failure> {
    Some(match *refusal.of::<PairRefusal>()? {
        PairRefusal::TooManyKeys { keys, keys_max } => too_many(of("TooManyIds"), keys, keys_max),
        PairRefusal::TooManyBags { bags, bags_max } => too_many(of("TooManyIds"), bags, bags_max),
        PairRefusal::BadBag { .. }
        | PairRefusal::BadKey { .. }
        | PairRefusal::WrongDomain { .. } => of("KeyFormatError"),
        PairRefusal::LayoutSkew { .. } => of("VersionMismatch"),
        PairRefusal::NoLayout => of("NoLayout"),
        PairRefusal::WrongSide { .. } => of("SwappedServers"),
        _ => of("ProtocolError"),
    })
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
