//! NVIDIA GPUs, by the engine of `hushtable-gpu`.

use std::path::PathBuf;

use hushtable_gpu::cuda::cache_folder;
use hushtable_gpu::{Cuda, CudaSpec, Probe, available};

use super::{DeviceFacts, How, Report, Times, no_gpu};
use crate::errors::Failure;

/// An engine over random rows.
pub(crate) enum Bench {}

impl Bench {
    pub fn new(_: u64, _: usize, index: u32, nvrtc_folders: Vec<PathBuf>) -> Result<Self, Failure> {
        let spec = CudaSpec { index, nvrtc_folders, cache_folder: None };
        let _ = Cuda::open(&spec).map_err(no_gpu)?;
        Err(no_gpu("not merged yet"))
    }

    pub fn facts(&self) -> DeviceFacts {
        match *self {}
    }

    pub fn description(&self) -> String {
        match *self {}
    }

    pub fn check(&self, _: usize, _: &How<'_>) -> Result<(), Failure> {
        match *self {}
    }

    pub fn answer_ms(&self, _: usize, _: &How<'_>, _: f64) -> Result<Times, Failure> {
        match *self {}
    }
}

pub(crate) fn report(nvrtc_folders: Vec<PathBuf>) -> Report {
    let found = available(&nvrtc_folders);
    let usable = (0..).zip(&found.devices).any(|(index, _)| found.is_usable(index));
    let driver = found.devices.first().map(|device| device.driver_version);
    Report {
        has_engine: true,
        reason: (!usable).then(|| found.obstacles.join("; ")),
        driver: driver.map(|version| format!("{}.{}", version / 1000, version % 1000 / 10)),
        devices: (0..)
            .zip(&found.devices)
            .map(|(index, facts)| device_facts(index, facts))
            .collect(),
        nvrtc: found.compiler,
        cache: cache_folder().map(|folder| folder.display().to_string()),
    }
}

pub(crate) fn probe(index: u32, nvrtc_folders: Vec<PathBuf>) -> Result<(f64, f64, f64), Failure> {
    let spec = CudaSpec { index, nvrtc_folders, cache_folder: None };
    let rates = Cuda::open(&spec).and_then(|device| Probe::measure(&device)).map_err(no_gpu)?;
    Ok((
        rates.read_bytes_per_s / 1e9,
        rates.multiply_adds_per_s / 1e12,
        rates.operations_per_s / 1e9,
    ))
}

fn device_facts(index: u32, facts: &hushtable_gpu::DeviceFacts) -> DeviceFacts {
    DeviceFacts {
        index,
        name: facts.name.clone(),
        capability: facts.capability,
        multiprocessors: facts.multiprocessors,
        memory_bytes: facts.memory_bytes,
    }
}
