//! A user's half of a sealed round.

use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};

use hushtable_oram::wire::{
    Context, Credential, Error as WireError, Pin, PublicKey, Terms, UserKey, UserSession,
};
use hushtable_serve::SecretFile;
use numpy::{
    IntoPyArray, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2,
    PyUntypedArrayMethods,
};
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::errors::Failure;

/// A user in one round.
#[pyclass(frozen, module = "hushtable._native", name = "Session")]
pub(crate) struct NativeSession {
    session: Mutex<UserSession>,
}

#[pymethods]
impl NativeSession {
    /// A session with the controller of `pin`, under these terms, by the user of the 32 secret
    /// bytes `key` and `ticket`, where users are enrolled.
    #[new]
    #[pyo3(signature = (pin, terms, round, user, *, key, ticket))]
    fn new(
        py: Python<'_>,
        pin: &str,
        terms: &[u8],
        round: u64,
        user: u32,
        key: Option<&[u8]>,
        ticket: Option<&str>,
    ) -> PyResult<Self> {
        let session = py.detach(|| {
            let pin: Pin = pin.parse()?;
            let context = Context::new(&Terms::pinned(terms, &pin)?, round, user);
            let credential = match (key, ticket) {
                (Some(key), Some(ticket)) => {
                    let key = <&[u8; 32]>::try_from(key)
                        .map_err(|_| Failure::config("a user's key has 32 bytes"))?;
                    Some(Credential::new(UserKey::from_seed(key), ticket.parse()?))
                }
                _ => None,
            };
            Ok::<_, Failure>(UserSession::new(&pin, context, credential.as_ref())?)
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

    /// `(terms, round, user)`.
    fn facts<'py>(&self, py: Python<'py>) -> (Bound<'py, PyBytes>, u64, u32) {
        let session = self.locked();
        let context = session.context();
        (PyBytes::new(py, context.terms().text()), context.round(), context.user())
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
        let shape = session.context().shape();
        let (dim, slots) = (shape.dim(), shape.slots());
        // How many rows there are is not told: the error may be raised where others read it.
        if gradients.shape()[1] != dim {
            return Err(Failure::from(WireError::Gradients { dim, slots }).into());
        }
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

/// Makes a user's or an authority's key in a new file: its public half, in hex.
#[pyfunction]
pub(crate) fn create_key(path: PathBuf) -> PyResult<String> {
    let secret = SecretFile::create(&path).map_err(Failure::from)?;
    Ok(secret.user().public().to_string())
}

/// The public half of a key file, in hex.
#[pyfunction]
pub(crate) fn public_key(path: PathBuf) -> PyResult<String> {
    let secret = SecretFile::read(&path).map_err(Failure::from)?;
    Ok(secret.user().public().to_string())
}

/// The ticket by which the authority whose key is in the file `authority` enrols the user of the
/// public key `user` with the controller of `pin`.
#[pyfunction]
pub(crate) fn enroll(authority: PathBuf, pin: &str, user: &str) -> PyResult<String> {
    let make = || {
        let (pin, user): (Pin, PublicKey) = (pin.parse()?, user.trim().parse()?);
        let authority = SecretFile::read(&authority)?.authority();
        Ok::<_, Failure>(authority.enrol(&pin, &user)?.to_string())
    };
    Ok(make()?)
}
