//! Private lookups from a single server.

use std::sync::Arc;

use hushtable_pir::onion::Error as OnionError;
use hushtable_serve::{
    Error, OnionClient, OnionClientSpec, OnionRefusal, OnionServer, OnionServerSpec, Refusal,
};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::asked::{Answer, Asked, Given, Kind, answer, unknown};
use crate::connected::Connect;
use crate::errors::Failure;
use crate::facts::{HeldFacts, ServedFacts};
use crate::prepare::parameter_set;
use crate::reach::{Limits, Reach};
use crate::schemes::rows::NativeRows;
use crate::schemes::{Refused, Scheme};
use crate::serve_errors::{known, too_many};
use crate::server::{self, Progress, Started};

pub(crate) const SCHEME: Scheme = Scheme {
    name: "onion",
    kinds: &[Kind::of::<OnionClient>("onion")],
    serve: Some(serve),
    refused,
    errors: &[known::<OnionError>],
};

/// The options that are this scheme's.
#[derive(FromPyObject)]
struct Options {
    parameter_sets: Vec<String>,
}

impl Connect for OnionClient {
    type Spec = OnionClientSpec;

    async fn connect(spec: &OnionClientSpec) -> Result<Self, Error> {
        Self::connect(spec).await
    }
}

impl Asked for OnionClient {
    fn spec(reach: &Reach<'_>) -> PyResult<OnionClientSpec> {
        let Limits { insecure, connect_max, call_max, version } = reach.limits(30.0)?;
        let own: Options = reach.options.extract()?;
        let parameter_sets = own.parameter_sets.iter().map(|name| parameter_set(name));
        let parameter_sets = parameter_sets.collect::<Result<_, _>>()?;
        let [server] = reach.endpoints()?;
        Ok(OnionClientSpec {
            parameter_sets,
            insecure,
            connect_max,
            call_max,
            lookup_max: call_max,
            version,
            ..OnionClientSpec::new(server)
        })
    }

    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        ServedFacts::of_onion(self.info()).into_py_any(py)
    }

    fn ask<'a>(self: Arc<Self>, call: &str, given: &mut Given<'a, '_, '_>) -> PyResult<Answer<'a>> {
        Ok(match call {
            // Rows of ids, which are padded to so many queries.
            "lookup" => {
                let (ids, max_ids) = (given.ids()?, given.other()?);
                let count = ids.len();
                let call = async move { self.lookup(&ids, max_ids).await };
                answer(call, move |py, found| NativeRows::new(py, &found, count))
            }
            _ => return unknown(call),
        })
    }
}

/// Starts the single server that an [`OnionServerSpec`] in JSON describes.
fn serve(json: &str) -> Result<Started, Failure> {
    let spec: OnionServerSpec = server::spec(json)?;
    let paths: Vec<_> = [&spec.table].into_iter().chain(&spec.tables).cloned().collect();
    let set = parameter_set(&spec.parameters)?;
    let (io_threads, progress) = (spec.network.io_threads, Arc::<Progress>::default());
    let told = Arc::clone(&progress);
    let server = OnionServer::open(spec)?.with_progress(move |done, all| told.tell(done, all));
    let facts = HeldFacts::read(&paths, Some(set))?;
    server::start(|| server.bind(), io_threads, progress, facts)
}

/// What one of the scheme's own refusals is to Python.
fn refused(refusal: &Refusal, of: Refused<'_>) -> Option<Failure> {
    Some(match *refusal.of::<OnionRefusal>()? {
        OnionRefusal::TooManyQueries { queries, queries_max } => {
            too_many(of("TooManyIds"), queries, queries_max)
        }
        OnionRefusal::BadQuery { .. } => of("KeyFormatError"),
        _ => of("ProtocolError"),
    })
}
