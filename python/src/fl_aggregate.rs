//! Pre and Post as Python functions on batches.

use std::cell::Cell;
use std::fmt;

use hushtable_oram::aggregate::{Aggregate, AggregateError, Batch};
use numpy::{
    IntoPyArray, PyArray1, PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods,
};
use pyo3::prelude::*;

use crate::errors::Failure;

thread_local! {
    /// Whether this thread is in a function that a controller called, with the controller locked.
    static IS_INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// Refuses a call of a controller from a function that a controller is calling: it would wait for
/// itself.
pub(crate) fn check_outside() -> Result<(), Failure> {
    match IS_INSIDE.get() {
        false => Ok(()),
        true => Err(Failure::new(
            "RoundError",
            "a controller cannot be called from its own aggregate functions",
        )),
    }
}

/// An aggregate of Python functions; what is not given is the built-in one's.
pub(crate) struct CallableAggregate {
    pre: Option<Py<PyAny>>,
    post: Option<Py<PyAny>>,
    built: Box<dyn Aggregate>,
}

impl CallableAggregate {
    pub(crate) fn new(
        pre: Option<Py<PyAny>>,
        post: Option<Py<PyAny>>,
        built: Box<dyn Aggregate>,
    ) -> Self {
        Self { pre, post, built }
    }
}

impl fmt::Debug for CallableAggregate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "CallableAggregate(over {})", self.built.name())
    }
}

impl Aggregate for CallableAggregate {
    fn name(&self) -> &'static str {
        "python"
    }

    fn state_bytes(&self, dim: usize) -> usize {
        self.built.state_bytes(dim)
    }

    fn owes_noise(&self) -> bool {
        self.built.owes_noise()
    }

    fn pre(&self, gradients: &mut [f32], weights: &mut [f32]) -> Result<(), AggregateError> {
        let Some(pre) = &self.pre else { return self.built.pre(gradients, weights) };
        let (rows, dim) = (weights.len(), gradients.len() / weights.len().max(1));
        called("pre", |py| {
            let arguments = (matrix(py, gradients, rows, dim)?, vector(py, weights));
            let returned = pre.call1(py, arguments)?;
            let (new_gradients, new_weights): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                returned.extract(py)?;
            copy_back(&new_gradients, "gradients", &[rows, dim], gradients)?;
            copy_back(&new_weights, "weights", &[rows], weights)
        })
    }

    fn post(&self, batch: &mut Batch<'_>) -> Result<(), AggregateError> {
        let Some(post) = &self.post else { return self.built.post(batch) };
        batch.check(self.state_bytes(batch.dim))?;
        let (rows, dim) = (batch.weights.len(), batch.dim);
        let state_bytes = self.state_bytes(dim);
        called("post", |py| {
            let state = batch.state.to_vec().into_pyarray(py).reshape([rows, state_bytes])?;
            let arguments = (
                matrix(py, batch.rows, rows, dim)?,
                state,
                matrix(py, batch.sums, rows, dim)?,
                vector(py, batch.weights),
                batch.round,
            );
            let returned = post.call1(py, arguments)?;
            let (new_rows, new_state): (Bound<'_, PyAny>, Bound<'_, PyAny>) =
                returned.extract(py)?;
            // Both are checked before either is taken.
            let new_state = numbers::<u8>(&new_state, "state", &[rows, state_bytes])?;
            copy_back(&new_rows, "rows", &[rows, dim], batch.rows)?;
            batch.state.copy_from_slice(new_state.as_slice()?);
            Ok(())
        })
    }

    fn settle(&self, batch: &mut Batch<'_>) -> Result<(), AggregateError> {
        self.built.settle(batch)
    }
}

/// Calls Python; what it raises becomes the aggregate's error.
fn called(
    step: &'static str,
    call: impl FnOnce(Python<'_>) -> PyResult<()>,
) -> Result<(), AggregateError> {
    Python::attach(|py| {
        IS_INSIDE.set(true);
        let done = call(py);
        IS_INSIDE.set(false);
        done.map_err(|error| AggregateError::Failed {
            name: "python".into(),
            step,
            reason: error.to_string(),
        })
    })
}

fn matrix<'py>(
    py: Python<'py>,
    numbers: &[f32],
    rows: usize,
    columns: usize,
) -> PyResult<Bound<'py, numpy::PyArray2<f32>>> {
    numbers.to_vec().into_pyarray(py).reshape([rows, columns])
}

fn vector<'py>(py: Python<'py>, numbers: &[f32]) -> Bound<'py, PyArray1<f32>> {
    numbers.to_vec().into_pyarray(py)
}

/// An array that a function returned, once it is of the right kind.
fn numbers<'py, T: numpy::Element>(
    returned: &Bound<'py, PyAny>,
    what: &str,
    shape: &[usize],
) -> PyResult<PyReadonlyArrayDyn<'py, T>> {
    let wrong = || {
        let kind = std::any::type_name::<T>();
        pyo3::exceptions::PyTypeError::new_err(format!(
            "{what} must come back as a contiguous array of {kind}, {shape:?}"
        ))
    };
    let array = returned.cast::<PyArrayDyn<T>>().map_err(|_| wrong())?;
    match array.shape() == shape && array.is_c_contiguous() {
        true => Ok(array.try_readonly()?),
        false => Err(wrong()),
    }
}

fn copy_back(
    returned: &Bound<'_, PyAny>,
    what: &str,
    shape: &[usize],
    to: &mut [f32],
) -> PyResult<()> {
    let array = numbers::<f32>(returned, what, shape)?;
    let from = array.as_slice()?;
    if from.iter().any(|number| !number.is_finite()) {
        let text = format!("{what} came back with a NaN or an infinity");
        return Err(pyo3::exceptions::PyValueError::new_err(text));
    }
    to.copy_from_slice(from);
    Ok(())
}
