//! Models of predictions on shares, made up to be measured.

use std::path::PathBuf;

use hushtable_infer::dlrm::digits::CRITEO_ROWS;
use hushtable_infer::dlrm::reference::forward;
use hushtable_infer::shares::bench::{criteo, described};
use hushtable_infer::shares::price::{Model, features, measure};
use numpy::{PyArray1, PyArray2};
use pyo3::prelude::*;

use crate::errors::Failure;

/// A model with weights that are made up, for a bundle and for users to ask about.
#[pyclass(frozen, module = "hushtable._native.bench", name = "SharesBench")]
pub(crate) struct NativeSharesBench(Model);

/// Features of users, float32 [users, dense] and uint64 [users, indices], and their logits in floating point.
type Users<'py> = (Bound<'py, PyArray2<f32>>, Bound<'py, PyArray2<u64>>, Bound<'py, PyArray1<f64>>);

#[pymethods]
impl NativeSharesBench {
    /// `criteo`, 13-512-256-64-16 and 432-512-256-1 with 26 tables of a `divisor`-th of Criteo's rows; or `top`, its
    /// 432-512-256-1 alone.
    #[new]
    fn new(py: Python<'_>, model: &str, divisor: u64) -> PyResult<Self> {
        let spec = match model {
            "criteo" => criteo(CRITEO_ROWS.map(|rows| (rows / divisor.max(1)).max(2))),
            "top" => described(432, &[512], &[256, 1], &[]),
            _ => return Err(Failure::config(format!("there is no model {model:?}")).into()),
        };
        let made = py.detach(|| Model::synthetic(spec, 12, 8, 1)).map_err(Failure::from)?;
        Ok(Self(made))
    }

    /// Rows of all tables, and their bytes.
    fn tables(&self) -> (usize, usize) {
        let tables = self.0.network.tables();
        let bytes = tables.iter().map(|table| table.rows() * table.row_bytes()).sum();
        (tables.iter().map(|table| table.rows()).sum(), bytes)
    }

    /// Writes a bundle with a plan.
    fn write(&self, py: Python<'_>, out: PathBuf, name: &str) -> PyResult<()> {
        Ok(py.detach(|| self.0.write(&out, name)).map_err(Failure::from)?)
    }

    /// Made-up users, and what the model says of them.
    fn users<'py>(&self, py: Python<'py>, users: usize, seed: u64) -> PyResult<Users<'py>> {
        let Model { dlrm, weights, .. } = &self.0;
        let (mut dense, mut indices, mut logits) = (Vec::new(), Vec::new(), Vec::new());
        for user in 0..users as u64 {
            let (own, rows) = features(dlrm, seed.wrapping_add(user));
            // As clients take them.
            let own: Vec<f32> = own.iter().map(|&value| value as f32).collect();
            let wide: Vec<f64> = own.iter().map(|&value| f64::from(value)).collect();
            logits.push(forward(dlrm, weights, &wide, &rows).map_err(Failure::from)?.logit);
            dense.push(own);
            indices.push(rows);
        }
        Ok((
            PyArray2::from_vec2(py, &dense).map_err(Failure::config)?,
            PyArray2::from_vec2(py, &indices).map_err(Failure::config)?,
            PyArray1::from_vec(py, logits),
        ))
    }

    /// The client's and the slower server's microseconds of an inference where nothing lies between them, and values
    /// that go through an activation.
    fn work_us(&self, py: Python<'_>, runs: usize) -> PyResult<(f64, f64, usize)> {
        let measured = py.detach(|| measure(&self.0, runs)).map_err(Failure::from)?;
        Ok((measured.deal_us, measured.server_us, measured.activations))
    }
}
