//! What a GPU does.

#[cfg_attr(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "gpu/cuda.rs"
)]
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "gpu/absent.rs"
)]
mod engine;

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::errors::Failure;
use crate::gpu::device_fields;
use crate::layout::NativeLayout;

/// An engine on a GPU over random rows, to be checked and timed.
#[pyclass(frozen, module = "hushtable._native.bench", name = "GpuBench")]
pub(crate) struct NativeGpuBench(engine::Bench);

/// An engine on a GPU over a layout's bins, to be checked and timed.
#[pyclass(frozen, module = "hushtable._native.bench", name = "GpuBinsBench")]
pub(crate) struct NativeGpuBinsBench(engine::BinsBench);

/// How keys are answered.
pub(crate) struct How<'a> {
    pub strategy: &'a str,
    pub prg: &'a str,
    pub group: &'a str,
    /// By the paper's steps, with a leaf for each row (`row`) or the group's (`wide`); none as a server
    /// does.
    pub leaf: Option<&'a str>,
    /// Batches that do not fit are answered in smaller ones.
    pub streams: bool,
}

/// What one inference takes of one server, of the two sides the larger.
#[derive(Clone, Copy)]
pub(crate) struct BinsWork {
    pub keys: u64,
    /// Calls of the generator for nodes' children, and for leaves.
    pub inner_nodes: u64,
    pub leaves: u64,
    /// Bytes that keys multiply with, and bytes of the bins.
    pub product_bytes: u64,
    pub stored_bytes: u64,
}

/// Milliseconds of each of several answers.
#[derive(Default)]
pub(crate) struct Times {
    /// Between events on the device.
    pub device_ms: Vec<f64>,
    /// Of the whole call.
    pub wall_ms: Vec<f64>,
}

#[pymethods]
impl NativeGpuBench {
    /// Fills `rows × row_bytes` and loads them onto device `device`; NVRTC may be in `folders`.
    #[new]
    #[pyo3(signature = (rows, row_bytes, *, device, folders))]
    fn new(
        py: Python<'_>,
        rows: u64,
        row_bytes: usize,
        device: u32,
        folders: Vec<PathBuf>,
    ) -> PyResult<Self> {
        Ok(Self(py.detach(|| engine::Bench::new(rows, row_bytes, device, folders))?))
    }

    /// The device.
    #[getter]
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        device_fields(py, &self.0.facts())
    }

    /// Device, strategy, bytes.
    #[getter]
    fn description(&self) -> String {
        self.0.description()
    }

    /// Answers `batch` keys of each side and compares every byte with the engine for processors, and
    /// those of trees with a leaf for each row, which it does not answer, with the rows.
    #[pyo3(signature = (batch, *, strategy, prg, group, leaf=None, streams=false))]
    #[allow(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn check(
        &self,
        py: Python<'_>,
        batch: usize,
        strategy: &str,
        prg: &str,
        group: &str,
        leaf: Option<&str>,
        streams: bool,
    ) -> PyResult<()> {
        let how = How { strategy, prg, group, leaf, streams };
        Ok(py.detach(|| self.0.check(batch, &how))?)
    }

    /// Bytes of device memory that a batch takes beside the table by a step of the paper's: those of
    /// nodes, and those of shares.
    #[pyo3(signature = (batch, *, strategy, prg, group, leaf))]
    fn step_bytes(
        &self,
        batch: usize,
        strategy: &str,
        prg: &str,
        group: &str,
        leaf: &str,
    ) -> PyResult<(u64, u64)> {
        let how = How { strategy, prg, group, leaf: Some(leaf), streams: false };
        Ok(self.0.step_bytes(batch, &how)?)
    }

    /// `device` and `wall`: milliseconds that each of several answers to `batch` keys took, over at
    /// least `seconds`; the first is not counted.
    #[pyo3(signature = (batch, *, strategy, prg, group, seconds, leaf=None, streams=false))]
    #[allow(clippy::too_many_arguments, reason = "Python's keyword arguments")]
    fn answer_ms<'py>(
        &self,
        py: Python<'py>,
        batch: usize,
        strategy: &str,
        prg: &str,
        group: &str,
        seconds: f64,
        leaf: Option<&str>,
        streams: bool,
    ) -> PyResult<Bound<'py, PyDict>> {
        let how = How { strategy, prg, group, leaf, streams };
        let times = py.detach(|| self.0.answer_ms(batch, &how, seconds))?;
        time_fields(py, times)
    }
}

#[pymethods]
impl NativeGpuBinsBench {
    /// Loads the bins of `layout` with made-up rows onto device `device`; NVRTC may be in `folders`.
    #[new]
    #[pyo3(signature = (layout, *, device, folders))]
    fn new(
        py: Python<'_>,
        layout: &NativeLayout,
        device: u32,
        folders: Vec<PathBuf>,
    ) -> PyResult<Self> {
        Ok(Self(py.detach(|| engine::BinsBench::new(layout.layout(), device, folders))?))
    }

    /// The device.
    #[getter]
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        device_fields(py, &self.0.facts())
    }

    /// Device, bins, bytes.
    #[getter]
    fn description(&self) -> String {
        self.0.description()
    }

    /// What one inference takes of one server; see `BinsWork`.
    #[getter]
    fn work<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let BinsWork { keys, inner_nodes, leaves, product_bytes, stored_bytes } = self.0.work();
        let fields = PyDict::new(py);
        fields.set_item("keys", keys)?;
        fields.set_item("inner_nodes", inner_nodes)?;
        fields.set_item("leaves", leaves)?;
        fields.set_item("product_bytes", product_bytes)?;
        fields.set_item("stored_bytes", stored_bytes)?;
        Ok(fields)
    }

    /// Answers `batch` requests to each side and compares every byte with the engine for processors.
    #[pyo3(signature = (batch, *, prg))]
    fn check(&self, py: Python<'_>, batch: usize, prg: &str) -> PyResult<()> {
        Ok(py.detach(|| self.0.check(batch, prg))?)
    }

    /// `device` and `wall`: milliseconds that each of several answers to `batch` requests took, of the
    /// side that takes longer, over about `seconds`; the first is not counted.
    #[pyo3(signature = (batch, *, prg, seconds))]
    fn answer_ms<'py>(
        &self,
        py: Python<'py>,
        batch: usize,
        prg: &str,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let times = py.detach(|| self.0.answer_ms(batch, prg, seconds))?;
        time_fields(py, times)
    }
}

fn time_fields(py: Python<'_>, times: Times) -> PyResult<Bound<'_, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("device", times.device_ms)?;
    fields.set_item("wall", times.wall_ms)?;
    Ok(fields)
}

/// GB/s read, 10^12 int8 multiply-adds/s on the tensor cores, 10^9 32-bit integer operations/s, as the
/// device measures them.
#[pyfunction]
pub(crate) fn gpu_probe(
    py: Python<'_>,
    device: u32,
    folders: Vec<PathBuf>,
) -> PyResult<(f64, f64, f64)> {
    Ok(py.detach(|| engine::probe(device, folders))?)
}

/// The error of what there is no device for.
pub(crate) fn no_gpu(reason: impl std::fmt::Display) -> Failure {
    Failure::config(format!("no GPU can be used: {reason}"))
}
