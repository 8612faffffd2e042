//! The CUDA backend against the processor's: on the host shim, and on a device where there is one.

mod ablation;
mod bins;
mod compile;
mod device;
mod engine;
mod probe;
