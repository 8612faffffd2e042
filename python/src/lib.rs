//! Thin PyO3 bindings over the hushtable crates: arguments in, arrays and errors out.
//!
//! The names here are private to the Python package `hushtable`, which documents and types what
//! users call. Every call that may block runs without the interpreter lock.

#![forbid(unsafe_code)]

mod bench;
mod client;
mod errors;
mod fl;
mod fl_aggregate;
mod fl_client;
mod fl_session;
mod gpu;
mod layout;
mod logs;
mod lookups;
mod model;
mod onion_bench;
mod oram_bench;
mod prepare;
mod server;
mod session;
mod table;

use pyo3::pymodule;

/// A server allocates and frees megabytes a pass: the system's allocator hands those pages back and
/// faults them in again each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::bench::{
        NativeBench, expand_seconds, instruction_ns, load_bags, load_server, platforms, prg_names,
        read_gb_per_s,
    };
    #[pymodule_export]
    use super::client::{NativeCall, NativeClient};
    #[pymodule_export]
    use super::fl::NativeController;
    #[pymodule_export]
    use super::fl_client::NativeTrainClient;
    #[pymodule_export]
    use super::fl_session::{NativeSession, create_key, enroll, public_key};
    #[pymodule_export]
    use super::gpu::{NativeGpuBench, gpu_probe, gpu_report};
    #[pymodule_export]
    use super::layout::{NativeLayout, NativeProfile};
    #[pymodule_export]
    use super::logs::log_to_stderr;
    #[pymodule_export]
    use super::model::{NativeModel, build_model, plan_model, verify_model, write_model};
    #[pymodule_export]
    use super::onion_bench::{NativeOnionBench, multiply_ns, ntt_seconds, ring_kernel};
    #[pymodule_export]
    use super::oram_bench::{NativePathBench, oram_shape, page_seconds, union_seconds};
    #[pymodule_export]
    use super::prepare::{onion_sizes, parameter_sets, prepare_table, verify_prepared};
    #[pymodule_export]
    use super::server::{NativeServer, make_certificates};
    #[pymodule_export]
    use super::table::{NativeTable, build_table, verify_table};
    use pyo3::prelude::*;

    #[pymodule_init]
    fn init(module: &Bound<'_, PyModule>) -> PyResult<()> {
        module.add("__version__", env!("CARGO_PKG_VERSION"))
    }
}
