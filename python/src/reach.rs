//! Whom a client reaches and how, as `hushtable.client.reach.Reach` has it.

use std::path::PathBuf;
use std::time::Duration;

use hushtable_serve::EndpointSpec;
use hushtable_table::Version;
use pyo3::prelude::*;

use crate::errors::Failure;
use crate::trust::{Authorities, Trust, duration};

/// Servers, and how they are asked. What one scheme reads alone it takes of the `options` itself.
#[derive(FromPyObject)]
pub(crate) struct Reach<'py> {
    /// Of each operator, left's first.
    operators: Vec<Operator>,
    certificate: Option<(PathBuf, PathBuf)>,
    version: Option<String>,
    /// Of several models at two servers, the name of the one that is meant.
    pub(crate) model: Option<String>,
    pub(crate) options: Bound<'py, PyAny>,
}

/// URLs of servers that hold the same; whose certificates they have; what for, where that is not the host.
type Operator = (Vec<String>, Option<Authorities>, Option<String>);

/// What any client waits for and allows.
pub(crate) struct Limits {
    pub(crate) insecure: bool,
    pub(crate) connect_max: Duration,
    pub(crate) call_max: Duration,
    /// The only version to take.
    pub(crate) version: Option<Version>,
}

/// The options that every scheme reads.
#[derive(FromPyObject)]
struct Common {
    timeout: Option<f64>,
    connect_timeout: f64,
    insecure: bool,
}

impl Reach<'_> {
    /// The servers of as many operators as there are.
    pub(crate) fn endpoints<const N: usize>(&self) -> Result<[EndpointSpec; N], Failure> {
        let endpoint = |(urls, ca, name): &Operator| {
            let trust = Trust::read(ca.clone(), self.certificate.clone())?;
            trust.side(urls.clone(), name.clone())
        };
        let found: Vec<_> = self.operators.iter().map(endpoint).collect::<Result<_, Failure>>()?;
        <[_; N]>::try_from(found).map_err(|found| {
            Failure::config(format!("{N} operators' servers are asked, not {}", found.len()))
        })
    }

    /// `seconds` of a call where the caller does not say.
    pub(crate) fn limits(&self, seconds: f64) -> PyResult<Limits> {
        let Common { timeout, connect_timeout, insecure } = self.options.extract()?;
        Ok(Limits {
            insecure,
            connect_max: duration("connect_timeout", connect_timeout)?,
            call_max: duration("timeout", timeout.unwrap_or(seconds))?,
            version: self.version.as_deref().map(pinned).transpose()?,
        })
    }

    /// Whether servers that ask for a certificate are shown one.
    pub(crate) fn has_certificate(&self) -> bool {
        self.certificate.is_some()
    }
}

fn pinned(digits: &str) -> Result<Version, Failure> {
    digits.parse().map_err(|error| Failure::config(format!("version {digits:?}: {error}")))
}
