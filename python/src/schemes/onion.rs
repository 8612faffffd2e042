//! Private lookups from a single server.

use std::sync::Arc;

use hushtable_serve::{Error, OnionClient, OnionClientSpec};
use pyo3::IntoPyObjectExt;
use pyo3::prelude::*;

use crate::asked::{Answer, Asked, Given, Kind, answer, unknown};
use crate::connected::Connect;
use crate::facts::ServedFacts;
use crate::prepare::parameter_set;
use crate::reach::{Limits, Reach};
use crate::schemes::rows::NativeRows;

pub(crate) const KIND: Kind = Kind::of::<OnionClient>("onion");

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
