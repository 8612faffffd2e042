//! A user's half of a sealed round.

use std::sync::{Mutex, MutexGuard, PoisonError};

use hushtable_oram::wire::{Context, PublicKey, Shape, UserSession};
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Failure;
use crate::fl::check_shape;

/// A user in one round.
#[pyclass(frozen, module = "hushtable._native", name = "Session")]
pub(crate) struct NativeSession {
    session: Mutex<UserSession>,
}

#[pymethods]
impl NativeSession {
    /// A session with the controller of `public_key`, about a table of rows × dim.
    #[new]
    #[pyo3(signature = (public_key, table, rows, dim, slots, round, user))]
    #[allow(clippy::too_many_arguments, reason = "called from one place")]
    fn new(
        py: Python<'_>,
        public_key: &[u8],
        table: &str,
        rows: u64,
        dim: usize,
        slots: usize,
        round: u64,
        user: u32,
    ) -> PyResult<Self> {
        let session = py.detach(|| {
            let shape = Shape::new(slots, dim)?;
            let context = Context::new(table, rows, shape, round, user)?;
            Ok::<_, Failure>(UserSession::new(&PublicKey::from_bytes(public_key)?, context)?)
        })?;
        Ok(Self { session: Mutex::new(session) })
    }

    /// A session that was kept.
    #[staticmethod]
    fn from_bytes(bytes: &[u8]) -> PyResult<Self> {
        let session = UserSession::from_bytes(bytes).map_err(Failure::from)?;
        Ok(Self { session: Mutex::new(session) })
    }

    /// The session with its keys.
    fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        let bytes = self.locked().to_bytes().map_err(Failure::from)?;
        Ok(PyBytes::new(py, &bytes))
    }

    /// `(table, rows, dim, slots, round, user)`.
    fn facts(&self) -> (String, u64, usize, usize, u64, u32) {
        let session = self.locked();
        let context = session.context();
        let shape = context.shape();
        let table = context.table().to_owned();
        (table, context.rows(), shape.dim(), shape.slots(), context.round(), context.user())
    }

    /// Seals the request for ids.
    fn request<'py>(
        &self,
        py: Python<'py>,
        ids: PyReadonlyArray1<'py, u32>,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let sealed = self.locked().request(ids.as_slice()?).map_err(Failure::from)?;
        Ok(PyBytes::new(py, &sealed))
    }

    /// Opens a reply: rows [slots, dim], found [slots].
    #[allow(clippy::type_complexity, reason = "a plain tuple for Python to unpack")]
    fn rows<'py>(
        &self,
        py: Python<'py>,
        reply: &[u8],
    ) -> PyResult<(Bound<'py, PyArray2<f32>>, Bound<'py, PyArray1<bool>>)> {
        let session = self.locked();
        let reply = session.reply(reply).map_err(Failure::from)?;
        let shape = session.context().shape();
        let rows = reply.rows.into_pyarray(py).reshape([shape.slots(), shape.dim()])?;
        Ok((rows, reply.found.into_pyarray(py)))
    }

    /// Seals the upload of gradients [at most slots, dim].
    fn upload<'py>(
        &self,
        py: Python<'py>,
        gradients: PyReadonlyArray2<'py, f32>,
        weight: f32,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let mut session = self.locked();
        let (shape, found) = (session.context().shape(), gradients.shape());
        check_shape("gradients", found, [found[0].min(shape.slots()), shape.dim()])?;
        let sealed = session.upload(gradients.as_slice()?, weight).map_err(Failure::from)?;
        Ok(PyBytes::new(py, &sealed))
    }
}

impl NativeSession {
    /// Nothing that holds the lock lets go of the interpreter's, so that a fork cannot copy it taken.
    fn locked(&self) -> MutexGuard<'_, UserSession> {
        self.session.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
