//! What answers keys: processors or a GPU, as the spec asks for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hushtable_pir::batch::BatchBackend;
use hushtable_pir::{Backend, Threads};
use hushtable_table::Table;
use hushtable_table::layout::Layout;
use serde::{Deserialize, Serialize};

use super::engine;
use crate::error::Own;
use crate::{Error, ServerSpec};

/// What a server answers keys with: in a file `"auto"`, `"cpu"`, `"cuda"` (its first GPU) or
/// `"cuda:1"`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
#[non_exhaustive]
pub enum DeviceSpec {
    /// The first GPU if there is one that can be used, processors otherwise.
    #[default]
    Auto,
    /// Processors.
    Cpu,
    /// The GPU of this number, from 0 on, or no server.
    Cuda(u32),
}

impl fmt::Display for DeviceSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Cpu => f.write_str("cpu"),
            Self::Cuda(0) => f.write_str("cuda"),
            Self::Cuda(index) => write!(f, "cuda:{index}"),
        }
    }
}

impl FromStr for DeviceSpec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let unknown = || format!("a device is auto, cpu, cuda or cuda:NUMBER, not {text:?}");
        match text {
            "auto" => Ok(Self::Auto),
            "cpu" => Ok(Self::Cpu),
            "cuda" => Ok(Self::Cuda(0)),
            _ => {
                let number = text.strip_prefix("cuda:").ok_or_else(unknown)?;
                // `parse` takes a sign too.
                let is_number = number.bytes().all(|byte| byte.is_ascii_digit());
                number.parse().ok().filter(|_| is_number).map(Self::Cuda).ok_or_else(unknown)
            }
        }
    }
}

impl TryFrom<String> for DeviceSpec {
    type Error = String;

    fn try_from(text: String) -> Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceSpec> for String {
    fn from(spec: DeviceSpec) -> Self {
        spec.to_string()
    }
}

/// Loads `table` for the device that `spec` asks for.
pub(crate) fn load(
    spec: &ServerSpec,
    threads: &Threads,
    table: &Table,
) -> Result<Arc<dyn Backend>, Error> {
    choose(
        spec.device,
        "this table",
        |index| gpu::load(spec, table, index),
        || engine::load(spec, threads, table),
    )
}

/// Loads the bins of `layout` for the device that `spec` asks for: the one that answers the table's
/// rows, unless its memory has no room for both.
pub(crate) fn load_batch(
    spec: &ServerSpec,
    threads: &Threads,
    table: &Table,
    layout: &Layout,
) -> Result<Arc<dyn BatchBackend>, Error> {
    choose(
        spec.device,
        "the bins of this table's layout",
        |index| gpu::load_batch(spec, table, layout, index),
        || engine::load_batch(spec, threads, table, layout),
    )
}

/// The device asked for cannot answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("device {device} cannot be used: {reason}")]
#[non_exhaustive]
pub struct DeviceError {
    /// The device.
    pub device: DeviceSpec,
    /// What was looked for and what was found.
    pub reason: String,
}

impl Own for DeviceError {}

/// What a GPU or processors answer `what` by.
fn choose<B: ?Sized>(
    device: DeviceSpec,
    what: &str,
    on_gpu: impl Fn(u32) -> Result<Arc<B>, String>,
    on_processors: impl Fn() -> Result<Arc<B>, Error>,
) -> Result<Arc<B>, Error> {
    match device {
        DeviceSpec::Cpu => on_processors(),
        DeviceSpec::Cuda(index) => {
            on_gpu(index).map_err(|reason| DeviceError { device, reason }.into())
        }
        DeviceSpec::Auto => match gpu::is_present() {
            false => on_processors(),
            true => on_gpu(0).or_else(|reason| {
                tracing::warn!(
                    reason,
                    "there is a GPU driver, but no GPU that can serve {what}: processors answer"
                );
                on_processors()
            }),
        },
    }
}

/// NVIDIA GPUs, by the engine of `hushtable-gpu`.
#[cfg(feature = "gpu")]
mod gpu {
    use hushtable_gpu::{
        BinsSpec, Cuda, CudaSpec, Device, Error, GpuBatchEngine, GpuEngine, GpuSpec,
    };

    use super::{Arc, Backend, BatchBackend, Layout, ServerSpec, Table};

    /// Whether there is a driver, and so somebody who expects a GPU to be used.
    pub fn is_present() -> bool {
        !matches!(Cuda::devices(), Err(Error::NoDriver { .. }))
    }

    pub fn load(spec: &ServerSpec, table: &Table, index: u32) -> Result<Arc<dyn Backend>, String> {
        let load = || {
            let device = open(spec, index)?;
            let batch_keys_max = spec.batch_keys_max.unwrap_or(0);
            let how = GpuSpec { batch_keys_max, ..GpuSpec::default() };
            let engine = GpuEngine::from_table(device, table, &how)?;
            // Kernels of a generator are compiled when they are first asked for: before any client
            // does, where nothing is cached.
            for prg in spec.prgs.iter().filter_map(|name| name.parse().ok()) {
                for &group in engine.groups() {
                    engine.warm_up(prg, group)?;
                }
            }
            Ok(engine)
        };
        let engine = load().map_err(|error: Error| error.to_string())?;
        Ok(Arc::new(engine))
    }

    pub fn load_batch(
        spec: &ServerSpec,
        table: &Table,
        layout: &Layout,
        index: u32,
    ) -> Result<Arc<dyn BatchBackend>, String> {
        let load = || {
            let how = BinsSpec {
                batch_requests_max: spec.batch_bags_max.unwrap_or(0),
                ..BinsSpec::default()
            };
            let engine = GpuBatchEngine::from_table(open(spec, index)?, table, layout, &how)?;
            for prg in spec.prgs.iter().filter_map(|name| name.parse().ok()) {
                engine.warm_up(prg)?;
            }
            Ok(engine)
        };
        let engine = load().map_err(|error: Error| error.to_string())?;
        Ok(Arc::new(engine))
    }

    fn open(spec: &ServerSpec, index: u32) -> Result<Arc<dyn Device>, Error> {
        let nvrtc_folders = spec.nvrtc_folders.clone();
        Cuda::open(&CudaSpec { index, nvrtc_folders, cache_folder: None })
    }
}

/// A build that has no GPU engine.
#[cfg(not(feature = "gpu"))]
mod gpu {
    use super::{Arc, Backend, BatchBackend, Layout, ServerSpec, Table};

    const REASON: &str =
        "this build has no GPU engine: packages for Linux on x86-64 and aarch64 have one";

    pub fn is_present() -> bool {
        false
    }

    pub fn load(_: &ServerSpec, _: &Table, _: u32) -> Result<Arc<dyn Backend>, String> {
        Err(REASON.into())
    }

    pub fn load_batch(
        _: &ServerSpec,
        _: &Table,
        _: &Layout,
        _: u32,
    ) -> Result<Arc<dyn BatchBackend>, String> {
        Err(REASON.into())
    }
}

#[cfg(test)]
mod tests {
    use super::DeviceSpec;

    #[test]
    fn a_device_is_one_of_four_words() {
        for (text, device) in [
            ("auto", DeviceSpec::Auto),
            ("cpu", DeviceSpec::Cpu),
            ("cuda", DeviceSpec::Cuda(0)),
            ("cuda:12", DeviceSpec::Cuda(12)),
        ] {
            assert_eq!(text.parse(), Ok(device));
            assert_eq!(device.to_string(), text);
        }
        assert_eq!("cuda:0".parse(), Ok(DeviceSpec::Cuda(0)));
        for text in ["", "gpu", "CUDA", "cuda:", "cuda:-1", "cuda:+1", "cuda:4294967296", "cuda: 1"]
        {
            let found: Result<DeviceSpec, String> = text.parse();
            assert!(found.unwrap_err().contains("auto, cpu, cuda or cuda:NUMBER"), "{text:?}");
        }
    }
}
