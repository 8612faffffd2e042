//! What answers keys: processors or a GPU, as the spec asks for.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use hushtable_pir::{Backend, Threads};
use hushtable_table::Table;
use serde::{Deserialize, Serialize};

use super::engine;
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
    match spec.device {
        DeviceSpec::Cpu => engine::load(spec, threads, table),
        DeviceSpec::Cuda(index) => gpu::load(spec, table, index)
            .map_err(|reason| Error::Device { device: spec.device, reason }),
        DeviceSpec::Auto => match gpu::is_present() {
            false => engine::load(spec, threads, table),
            true => gpu::load(spec, table, 0).or_else(|reason| {
                tracing::warn!(
                    reason,
                    "there is a GPU driver, but no GPU that can serve this table: processors answer"
                );
                engine::load(spec, threads, table)
            }),
        },
    }
}

/// NVIDIA GPUs, by the engine of `hushtable-gpu`.
#[cfg(feature = "gpu")]
mod gpu {
    use hushtable_gpu::{Cuda, CudaSpec, Error, GpuEngine, GpuSpec};

    use super::{Arc, Backend, ServerSpec, Table};

    /// Whether there is a driver, and so somebody who expects a GPU to be used.
    pub fn is_present() -> bool {
        !matches!(Cuda::devices(), Err(Error::NoDriver { .. }))
    }

    pub fn load(spec: &ServerSpec, table: &Table, index: u32) -> Result<Arc<dyn Backend>, String> {
        let nvrtc_folders = spec.nvrtc_folders.clone();
        let cuda = CudaSpec { index, nvrtc_folders, cache_folder: None };
        let load = || {
            let device = Cuda::open(&cuda)?;
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
        if table.layout().is_some() {
            tracing::info!("whole inferences, by the table's layout, are answered by processors");
        }
        Ok(Arc::new(engine))
    }
}

/// A build that has no GPU engine.
#[cfg(not(feature = "gpu"))]
mod gpu {
    use super::{Arc, Backend, ServerSpec, Table};

    pub fn is_present() -> bool {
        false
    }

    pub fn load(_: &ServerSpec, _: &Table, _: u32) -> Result<Arc<dyn Backend>, String> {
        Err("this build has no GPU engine: packages for Linux on x86-64 and aarch64 have one"
            .into())
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
