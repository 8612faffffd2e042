//! Two-server answers on an NVIDIA GPU.
//!
//! Everything that is CUDA is here: kernels as text (`kernels/`), compiled at run time by NVRTC and
//! cached; the driver, loaded at run time, so that a build without CUDA finds a GPU where there is
//! one. [`Device`] is what engines ask of it. A second device, `shim`, runs the same kernels on the
//! processor, so that all of an engine but the driver is tested where there is no GPU.
//!
//! The scheme, the strategies and the tables that they are measured by are those of Lam et al.,
//! "GPU-based Private Information Retrieval for On-Device Machine Learning Inference", §III-C.

mod ablation;
mod available;
mod bins;
mod clock;
pub mod cuda;
mod device;
mod engine;
mod error;
mod expand;
mod keys;
mod lane;
mod layout;
mod listed;
mod loaded;
pub mod module;
mod pass;
mod plan;
mod prg;
mod probe;
#[cfg(any(test, feature = "shim"))]
pub mod shim;
mod store;
mod strategy;

pub use ablation::{Ablation, Needs, row_domain, row_index};
pub use available::{Availability, available};
pub use bins::{BinsSpec, GpuBatchEngine};
pub use cuda::{Cuda, CudaSpec};
pub use device::{
    Arg, Buffer, Device, DeviceFacts, Event, Kernel, Launch, ModuleSpec, PinnedBuffer, Stream,
    alloc, alloc_pinned,
};
pub use engine::{GpuEngine, GpuSpec, Residence};
pub use error::Error;
pub use expand::{ExpandStrategy, Expander, Subtree};
pub use keys::{DeviceKeys, KeyKind, common_kind, pack};
pub use prg::PrgTuning;
pub use probe::Probe;
pub use strategy::Strategy;
