//! The settings of servers, as data.

use hushtable_serve::settings::Kind;
use hushtable_serve::{Described, SCHEMES};
use pyo3::prelude::*;

use crate::errors::Failure;

/// A field of a server's spec: see `hushtable_serve::settings::Setting`.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct SettingFacts {
    name: &'static str,
    kind: &'static str,
    unit: Option<&'static str>,
    /// The words that it may be; empty where it may be others.
    choices: Vec<&'static str>,
    /// The default in JSON: null for none.
    default_json: String,
    unset: &'static str,
    help: &'static str,
}

/// A scheme: see `hushtable_serve::Described`.
#[pyclass(frozen, get_all, module = "hushtable._native")]
#[derive(Clone)]
pub(crate) struct SchemeFacts {
    name: &'static str,
    whose: &'static str,
    asked: &'static str,
    is_alone: bool,
}

/// The schemes that are built in.
#[pyfunction]
pub(crate) fn schemes() -> Vec<SchemeFacts> {
    let facts = |scheme: &Described| SchemeFacts {
        name: scheme.name,
        whose: scheme.whose,
        asked: scheme.asked,
        is_alone: scheme.is_alone,
    };
    SCHEMES.iter().map(facts).collect()
}

/// Every setting of a server of the scheme `served`.
#[pyfunction]
pub(crate) fn options(served: &str) -> PyResult<Vec<SettingFacts>> {
    let Some(scheme) = SCHEMES.iter().find(|scheme| scheme.name == served) else {
        let known: Vec<_> = SCHEMES.iter().map(|scheme| scheme.name).collect();
        let text = format!("there is no scheme {served:?}: it must be one of {}", known.join(", "));
        return Err(Failure::config(text).into());
    };
    let facts = |setting: &hushtable_serve::settings::Setting| SettingFacts {
        name: setting.name,
        kind: setting.kind.name(),
        unit: setting.kind.unit(),
        choices: match setting.kind {
            Kind::Choice(words) => words.to_vec(),
            _ => Vec::new(),
        },
        default_json: scheme.default_of(setting).to_string(),
        unset: setting.unset,
        help: setting.help,
    };
    Ok(scheme.settings().iter().map(facts).collect())
}
