//! NVIDIA GPUs, by the engine of `hushtable-gpu`.

use std::path::PathBuf;

use hushtable_gpu::available;
use hushtable_gpu::cuda::cache_folder;

use super::{DeviceFacts, Report};

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

/// What the engine knows of a device.
pub(crate) fn device_facts(index: u32, facts: &hushtable_gpu::DeviceFacts) -> DeviceFacts {
    DeviceFacts {
        index,
        name: facts.name.clone(),
        capability: facts.capability,
        multiprocessors: facts.multiprocessors,
        memory_bytes: facts.memory_bytes,
    }
}
