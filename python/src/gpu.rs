//! GPUs: what is there, and what one does.

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

/// An engine on a GPU over random rows, to be checked and timed.
#[pyclass(frozen, module = "hushtable._native.bench", name = "GpuBench")]
pub(crate) struct NativeGpuBench(engine::Bench);

/// A device, as `doctor` and benchmarks say it.
pub(crate) struct DeviceFacts {
    pub index: u32,
    pub name: String,
    pub capability: (u32, u32),
    pub multiprocessors: u32,
    pub memory_bytes: u64,
}

/// What was looked for and what was found.
#[derive(Default)]
pub(crate) struct Report {
    /// This build has an engine for GPUs.
    pub has_engine: bool,
    /// Why no GPU would be used; none where one would.
    pub reason: Option<String>,
    /// The version of CUDA that the driver is for.
    pub driver: Option<String>,
    pub devices: Vec<DeviceFacts>,
    /// The compiler's file and version.
    pub nvrtc: Option<String>,
    /// Where compiled kernels are kept.
    pub cache: Option<String>,
}

/// How keys are answered.
pub(crate) struct How<'a> {
    pub strategy: &'a str,
    pub prg: &'a str,
    pub group: &'a str,
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

    /// Answers `batch` keys of each side and compares every byte with the engine for processors.
    #[pyo3(signature = (batch, *, strategy, prg, group))]
    fn check(
        &self,
        py: Python<'_>,
        batch: usize,
        strategy: &str,
        prg: &str,
        group: &str,
    ) -> PyResult<()> {
        Ok(py.detach(|| self.0.check(batch, &How { strategy, prg, group }))?)
    }

    /// `device` and `wall`: milliseconds that each of several answers to `batch` keys took, over at
    /// least `seconds`; the first is not counted.
    #[pyo3(signature = (batch, *, strategy, prg, group, seconds))]
    fn answer_ms<'py>(
        &self,
        py: Python<'py>,
        batch: usize,
        strategy: &str,
        prg: &str,
        group: &str,
        seconds: f64,
    ) -> PyResult<Bound<'py, PyDict>> {
        let how = How { strategy, prg, group };
        let times = py.detach(|| self.0.answer_ms(batch, &how, seconds))?;
        let fields = PyDict::new(py);
        fields.set_item("device", times.device_ms)?;
        fields.set_item("wall", times.wall_ms)?;
        Ok(fields)
    }
}

/// What was looked for and what was found, in `folders` for NVRTC too; see `Report`.
#[pyfunction]
pub(crate) fn gpu_report(py: Python<'_>, folders: Vec<PathBuf>) -> PyResult<Bound<'_, PyDict>> {
    let report = py.detach(|| engine::report(folders));
    let devices: Vec<_> =
        report.devices.iter().map(|facts| device_fields(py, facts)).collect::<PyResult<_>>()?;
    let fields = PyDict::new(py);
    fields.set_item("engine", report.has_engine)?;
    fields.set_item("available", report.reason.is_none())?;
    fields.set_item("reason", report.reason)?;
    fields.set_item("driver", report.driver)?;
    fields.set_item("devices", devices)?;
    fields.set_item("nvrtc", report.nvrtc)?;
    fields.set_item("cache", report.cache)?;
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

fn device_fields<'py>(py: Python<'py>, facts: &DeviceFacts) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("index", facts.index)?;
    fields.set_item("name", &facts.name)?;
    fields.set_item("capability", facts.capability)?;
    fields.set_item("multiprocessors", facts.multiprocessors)?;
    fields.set_item("memory_bytes", facts.memory_bytes)?;
    Ok(fields)
}

/// The error of what there is no device for.
pub(crate) fn no_gpu(reason: impl std::fmt::Display) -> Failure {
    Failure::config(format!("no GPU can be used: {reason}"))
}
