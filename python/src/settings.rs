//! The settings of servers, as data.

use hushtable_serve::settings::{Kind, Served};
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

/// Every setting of a server of the kind `served`: pair, onion, train, infer, hybrid or shares.
#[pyfunction]
pub(crate) fn options(served: &str) -> PyResult<Vec<SettingFacts>> {
    let Some(served) = Served::ALL.into_iter().find(|one| one.name() == served) else {
        let text = format!(
            "there is no server {served:?}: it must be pair, onion, train, infer, hybrid or shares"
        );
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
        default_json: served.default_of(setting).to_string(),
        unset: setting.unset,
        help: setting.help,
    };
    Ok(served.settings().iter().map(facts).collect())
}
