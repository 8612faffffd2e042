//! GPUs: what is there.

#[cfg_attr(
    all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64")),
    path = "gpu/cuda.rs"
)]
#[cfg_attr(
    not(all(target_os = "linux", any(target_arch = "x86_64", target_arch = "aarch64"))),
    path = "gpu/absent.rs"
)]
pub(crate) mod engine;

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyDict;

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

/// A device, as Python reads it.
pub(crate) fn device_fields<'py>(
    py: Python<'py>,
    facts: &DeviceFacts,
) -> PyResult<Bound<'py, PyDict>> {
    let fields = PyDict::new(py);
    fields.set_item("index", facts.index)?;
    fields.set_item("name", &facts.name)?;
    fields.set_item("capability", facts.capability)?;
    fields.set_item("multiprocessors", facts.multiprocessors)?;
    fields.set_item("memory_bytes", facts.memory_bytes)?;
    Ok(fields)
}
