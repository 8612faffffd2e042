//! One client of the module for all schemes: what it is asked by name, its scheme answers.

use std::borrow::Cow;
use std::pin::Pin;
use std::slice::Iter;
use std::sync::Arc;

use hushtable_serve::Deadline;
use numpy::{PyArrayDyn, PyArrayMethods, PyReadonlyArrayDyn, PyUntypedArrayMethods};
use pyo3::IntoPyObjectExt;
use pyo3::conversion::FromPyObjectOwned;
use pyo3::exceptions::PyTypeError;
use pyo3::prelude::*;
use pyo3::types::PyTuple;

use crate::connected::{Connect, Connected};
use crate::errors::Failure;
use crate::reach::Reach;
use crate::schemes::SCHEMES;
use crate::trust::duration;

/// A client of a scheme.
pub(crate) trait Asked: Connect {
    /// Whom to connect to, by what Python was told.
    fn spec(reach: &Reach<'_>) -> PyResult<Self::Spec>;

    /// What the servers announced, for Python.
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;

    /// The call of this name.
    fn ask<'a>(self: Arc<Self>, call: &str, given: &mut Given<'a, '_, '_>) -> PyResult<Answer<'a>>;
}

/// A call that is not under way yet. What it ends with becomes Python's object by what it returns.
pub(crate) type Answer<'a> = Pin<Box<dyn Future<Output = Result<Finish, Failure>> + Send + 'a>>;

/// Makes an object once the interpreter is at hand.
pub(crate) type Finish = Box<dyn FnOnce(Python<'_>) -> PyResult<Py<PyAny>> + Send>;

/// What `call` answers, as an object that `finish` makes.
pub(crate) fn answer<'a, T, E, O>(
    call: impl Future<Output = Result<T, E>> + Send + 'a,
    finish: impl FnOnce(Python<'_>, T) -> PyResult<O> + Send + 'static,
) -> Answer<'a>
where
    T: Send + 'static,
    E: Into<Failure>,
    O: for<'py> IntoPyObject<'py>,
{
    Box::pin(async move {
        let found = call.await.map_err(Into::into)?;
        let finish = move |py: Python<'_>| finish(py, found)?.into_py_any(py);
        Ok(Box::new(finish) as Finish)
    })
}

/// No call of this name.
pub(crate) fn unknown<T>(call: &str) -> PyResult<T> {
    Err(PyTypeError::new_err(format!("a client of this scheme is not asked for {call}")))
}

/// What a call was given, in order. Its arrays are Python's own where the caller waits, and copies where a call
/// goes on without.
pub(crate) struct Given<'a, 'h, 'py> {
    held: Iter<'h, Held<'py>>,
    ids: fn(&'h [u64]) -> Cow<'a, [u64]>,
    numbers: fn(&'h [f32]) -> Cow<'a, [f32]>,
}

/// An argument, held.
enum Held<'py> {
    Ids(PyReadonlyArrayDyn<'py, u64>),
    Numbers(PyReadonlyArrayDyn<'py, f32>),
    Other(Bound<'py, PyAny>),
}

impl<'a, 'h, 'py> Given<'a, 'h, 'py> {
    /// Ids, or indices of rows.
    pub(crate) fn ids(&mut self) -> PyResult<Cow<'a, [u64]>> {
        match self.held.next() {
            Some(Held::Ids(ids)) => Ok((self.ids)(ids.as_slice()?)),
            _ => Err(PyTypeError::new_err("a call takes an array of uint64")),
        }
    }

    /// How many rows there are, and their numbers.
    pub(crate) fn numbers(&mut self) -> PyResult<(usize, Cow<'a, [f32]>)> {
        let (rows, numbers) = self.rows()?;
        Ok((rows, (self.numbers)(numbers)))
    }

    /// The same in twice the width.
    pub(crate) fn wide(&mut self) -> PyResult<(usize, Vec<f64>)> {
        let (rows, numbers) = self.rows()?;
        Ok((rows, numbers.iter().map(|&number| f64::from(number)).collect()))
    }

    /// Anything else.
    pub(crate) fn other<T: FromPyObjectOwned<'py>>(&mut self) -> PyResult<T> {
        match self.held.next() {
            Some(Held::Other(other)) => other.extract().map_err(Into::into),
            _ => Err(PyTypeError::new_err("a call takes something other than an array")),
        }
    }

    fn rows(&mut self) -> PyResult<(usize, &'h [f32])> {
        match self.held.next() {
            Some(Held::Numbers(it)) => {
                Ok((it.shape().first().copied().unwrap_or(1), it.as_slice()?))
            }
            _ => Err(PyTypeError::new_err("a call takes an array of float32")),
        }
    }
}

impl<'py> Held<'py> {
    fn read(one: Bound<'py, PyAny>) -> PyResult<Self> {
        if let Ok(ids) = one.cast::<PyArrayDyn<u64>>() {
            return Ok(Self::Ids(ids.try_readonly()?));
        }
        match one.cast::<PyArrayDyn<f32>>() {
            Ok(numbers) => Ok(Self::Numbers(numbers.try_readonly()?)),
            Err(_) => Ok(Self::Other(one)),
        }
    }
}

/// A client of any scheme, as the module keeps it.
pub(crate) trait AnyClient: Send + Sync {
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>>;
    fn ask(
        &self,
        py: Python<'_>,
        call: &str,
        given: &Bound<'_, PyTuple>,
        done: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>>;
    fn close(&self);
}

impl<C: Asked> AnyClient for Connected<C> {
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.session(py)?.client().info(py)
    }

    fn ask(
        &self,
        py: Python<'_>,
        call: &str,
        given: &Bound<'_, PyTuple>,
        done: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        let deadline = timeout.map(|seconds| duration("timeout", seconds)).transpose()?;
        let deadline = deadline.map(Deadline::after);
        let session = self.session_by(py, deadline)?;
        let client = Arc::clone(session.client());
        let held = given.iter().map(Held::read).collect::<PyResult<Vec<_>>>()?;
        let held = held.iter();
        if let Some(done) = done {
            let (ids, numbers) = (|ids: &[_]| ids.to_vec().into(), |it: &[_]| it.to_vec().into());
            let answer = held_by(deadline, client.ask(call, &mut Given { held, ids, numbers })?);
            return session.start(done, answer).into_py_any(py);
        }
        let (ids, numbers) = (|ids| Cow::Borrowed(ids), |numbers| Cow::Borrowed(numbers));
        let answer = held_by(deadline, client.ask(call, &mut Given { held, ids, numbers })?);
        session.run(py, answer)?(py)
    }

    fn close(&self) {
        Self::close(self);
    }
}

/// An answer that is there by the deadline, where there is one.
fn held_by(deadline: Option<Deadline>, answer: Answer<'_>) -> Answer<'_> {
    match deadline {
        Some(deadline) => Box::pin(deadline.hold(answer)),
        None => answer,
    }
}

/// One kind of clients, as its own file describes it.
pub(crate) struct Kind {
    name: &'static str,
    open: fn(Python<'_>, &Reach<'_>) -> PyResult<Box<dyn AnyClient>>,
}

impl Kind {
    pub(crate) const fn of<C: Asked>(name: &'static str) -> Self {
        Self { name, open: open::<C> }
    }
}

fn open<C: Asked>(py: Python<'_>, reach: &Reach<'_>) -> PyResult<Box<dyn AnyClient>> {
    Ok(Box::new(Connected::<C>::open(py, C::spec(reach)?, reach.has_certificate())?))
}

/// A client of the servers of one scheme, for many threads and for forked children.
#[pyclass(frozen, module = "hushtable._native", name = "Client")]
pub(crate) struct NativeClient(Box<dyn AnyClient>);

#[pymethods]
impl NativeClient {
    /// Connects as the `kind` of clients does: by its scheme, and `model` by pair to a model.
    #[new]
    fn new(py: Python<'_>, kind: &str, reach: Reach<'_>) -> PyResult<Self> {
        let mut kinds = SCHEMES.iter().flat_map(|scheme| scheme.kinds);
        let found = kinds.find(|known| known.name == kind);
        let found = found.ok_or_else(|| Failure::config(format!("no clients are of {kind:?}")))?;
        Ok(Self((found.open)(py, &reach)?))
    }

    /// What the servers hold and take.
    fn info(&self, py: Python<'_>) -> PyResult<Py<PyAny>> {
        self.0.info(py)
    }

    /// What the scheme's `call` returns. With `done` it is started: then `done(result, error)` is called on
    /// another thread when it is over, and what is returned can cancel it. It takes `timeout` seconds at most, in the
    /// place of the client's own.
    #[pyo3(signature = (call, *given, done=None, timeout=None))]
    fn ask(
        &self,
        py: Python<'_>,
        call: &str,
        given: &Bound<'_, PyTuple>,
        done: Option<Py<PyAny>>,
        timeout: Option<f64>,
    ) -> PyResult<Py<PyAny>> {
        self.0.ask(py, call, given, done, timeout)
    }

    /// Closes the connections; calls under way finish.
    fn close(&self) {
        self.0.close();
    }
}

/// A callable of Python's, to be told of what is done and of all there is. What it raises is reported and stops
/// nothing.
pub(crate) fn told(callable: Py<PyAny>) -> Arc<dyn Fn(u64, u64) + Send + Sync> {
    Arc::new(move |done, all| {
        // An interpreter that is shutting down is told nothing.
        Python::try_attach(|py| {
            if let Err(error) = callable.call1(py, (done, all)) {
                error.write_unraisable(py, None);
            }
        });
    })
}
