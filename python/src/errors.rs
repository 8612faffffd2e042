//! Rust errors to the classes of `hushtable.errors`.

use pyo3::prelude::*;
use pyo3::types::{PyDict, PyString};

/// A class of `hushtable.errors` with its text and attributes, made without the interpreter.
///
/// The classes live in Python, so that they can have several bases (`IdOutOfRange` is also an
/// `IndexError`) and attributes.
#[derive(Debug)]
pub(crate) struct Failure {
    class: &'static str,
    message: String,
    fields: Vec<(&'static str, Field)>,
}

/// An attribute of a Python error.
#[derive(Debug)]
pub(crate) enum Field {
    Count(u64),
    Seconds(f64),
    Text(String),
}

impl Failure {
    /// The error `class` of `hushtable.errors` with `message` and no attributes.
    pub(crate) fn new(class: &'static str, message: impl ToString) -> Self {
        Self { class, message: message.to_string(), fields: Vec::new() }
    }

    /// The same with one attribute more.
    pub(crate) fn with(mut self, name: &'static str, value: Field) -> Self {
        self.fields.push((name, value));
        self
    }

    fn to_object<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        let class = py.import("hushtable.errors")?.getattr(self.class)?;
        let fields = PyDict::new(py);
        for (name, value) in &self.fields {
            match value {
                Field::Count(count) => fields.set_item(name, count)?,
                Field::Seconds(seconds) => fields.set_item(name, seconds)?,
                Field::Text(text) => fields.set_item(name, text)?,
            }
        }
        class.call((PyString::new(py, &self.message),), Some(&fields))
    }
}

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> Self {
        Python::attach(|py| match failure.to_object(py) {
            Ok(object) => Self::from_value(object),
            Err(error) => error,
        })
    }
}

/// An id that is not a row.
pub(crate) fn id_out_of_range(id: u64, rows: u64) -> Failure {
    let last = rows.saturating_sub(1);
    let text =
        format!("id {id} is out of range: the table has {rows} rows, ids run from 0 to {last}");
    Failure::new("IdOutOfRange", text)
        .with("id", Field::Count(id))
        .with("rows", Field::Count(rows))
}

impl From<hushtable_table::Error> for Failure {
    fn from(error: hushtable_table::Error) -> Self {
        Self::new("TableError", error)
    }
}
