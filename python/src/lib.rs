//! Thin PyO3 bindings over the hushtable crates: arguments in, arrays and errors out.
//!
//! The names here are private to the Python package `hushtable`, which documents and types what
//! users call. Every call that may block runs without the interpreter lock.

#![forbid(unsafe_code)]

mod asked;
#[cfg(feature = "bench")]
mod bench;
mod connected;
mod errors;
mod facts;
mod fl;
mod fl_aggregate;
mod fl_audit;
mod fl_client;
mod fl_fdp;
mod fl_recover;
mod fl_session;
mod geometry;
mod gpu;
mod hybrid;
mod infer_ckks;
mod infer_project;
mod infer_shares;
mod layout;
mod load;
mod logs;
mod machine;
mod model;
mod offered;
mod prepare;
mod push;
mod reach;
mod schemes;
mod serve_errors;
mod server;
mod settings;
mod shards;
mod table;
mod trust;
mod watch;
mod within;

use pyo3::pymodule;

/// A server allocates and frees megabytes a pass: the system's allocator hands those pages back and
/// faults them in again each time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

#[pymodule(gil_used = false)]
mod _native {
    #[pymodule_export]
    use super::asked::NativeClient;
    #[pymodule_export]
    use super::connected::NativeCall;
    #[pymodule_export]
    use super::facts::{
        Costs, FeatureFacts, HeldFacts, LayoutFacts, ModelFacts, OnionFacts, ServedFacts,
        TableFacts,
    };
    #[pymodule_export]
    use super::fl::NativeController;
    #[pymodule_export]
    use super::fl_audit::audit_log;
    #[pymodule_export]
    use super::fl_client::NativeTrainClient;
    #[pymodule_export]
    use super::fl_fdp::fdp_expect;
    #[pymodule_export]
    use super::fl_recover::{
        backup_verify, controller_backup, controller_diagnose, controller_recover,
        controller_restore,
    };
    #[pymodule_export]
    use super::fl_session::{NativeSession, create_key, enroll, public_key};
    #[pymodule_export]
    use super::geometry::{onion_geometry, oram_shape};
    #[pymodule_export]
    use super::gpu::gpu_report;
    #[pymodule_export]
    use super::hybrid::{NativeHybridModel, hybrid_compile, hybrid_describe};
    #[pymodule_export]
    use super::infer_ckks::{
        NativeCkksModel, infer_compile, infer_describe, infer_plan, infer_shareable, infer_trace,
        relu_coefficients,
    };
    #[pymodule_export]
    use super::infer_project::{known_backends, paper_trace, project_trace};
    #[pymodule_export]
    use super::infer_shares::{shares_compile, shares_describe, shares_inputs, shares_plan};
    #[pymodule_export]
    use super::layout::{NativeLayout, NativeProfile};
    #[pymodule_export]
    use super::load::load_bags;
    #[pymodule_export]
    use super::logs::log_to_stderr;
    #[pymodule_export]
    use super::machine::{
        EngineFacts, PlatformFacts, check_engine, instruction_ns, platforms, prg_names,
        read_gb_per_s, ring_kernel,
    };
    #[pymodule_export]
    use super::model::{
        NativeModel, build_model, model_of_dense, plan_model, verify_model, write_model,
    };
    #[pymodule_export]
    use super::offered::offered_scheme;
    #[pymodule_export]
    use super::prepare::{
        NativePreparation, PreparedFacts, parameter_sets, prepare_range, prepare_ranges,
        prepare_table, standing_prepared, verify_prepared,
    };
    #[pymodule_export]
    use super::push::push_bundle;
    #[pymodule_export]
    use super::schemes::ckks::{CkksFacts, PredictionFacts};
    #[pymodule_export]
    use super::schemes::hybrid::{HybridFacts, HybridPredictionFacts, PrecomputeFacts};
    #[pymodule_export]
    use super::schemes::model::{NativeFeatureRows, NativeModelRows, model_pin};
    #[pymodule_export]
    use super::schemes::pair::NativeBagsRows;
    #[pymodule_export]
    use super::schemes::rows::NativeRows;
    #[pymodule_export]
    use super::schemes::shares::{SharesFacts, SharesPredictionFacts};
    #[pymodule_export]
    use super::schemes::train::NativeTrainServer;
    #[pymodule_export]
    use super::server::{
        IssuedPems, NativeServer, PemPair, certificate_validities, exit_with_parent,
        make_certificates,
    };
    #[pymodule_export]
    use super::settings::{SchemeFacts, SettingFacts, options, schemes};
    #[pymodule_export]
    use super::shards::{plan_shards, read_shards, shard_heads, shard_pieces, verify_shard};
    #[pymodule_export]
    use super::table::{
        DamageFacts, NativeTable, VerifyFacts, apply_patch, build_table, follow_table, patch_table,
        verify_table,
    };
    #[pymodule_export]
    use super::watch::watch_clients;
    #[pymodule_export]
    use super::within::join_within;

    #[pymodule_export]
    #[allow(non_upper_case_globals, reason = "as Python has it")]
    const __version__: &str = env!("CARGO_PKG_VERSION");
    #[cfg(feature = "bench")]
    use pyo3::pymodule;

    /// Measurements, which nothing of the product calls and nothing that is shipped has.
    #[cfg(feature = "bench")]
    #[pymodule]
    mod bench {
        #[pymodule_export]
        use crate::bench::bootstrap::NativeBootstrapBench;
        #[pymodule_export]
        use crate::bench::ckks::NativeCkksBench;
        #[pymodule_export]
        use crate::bench::coded::coded_lookup;
        #[pymodule_export]
        use crate::bench::garble::garble_rates;
        #[pymodule_export]
        use crate::bench::gpu::{NativeGpuBench, NativeGpuBinsBench, gpu_probe};
        #[pymodule_export]
        use crate::bench::hybrid::{HybridBench, hybrid_network};
        #[pymodule_export]
        use crate::bench::infer::{infer_models, infer_seconds};
        #[pymodule_export]
        use crate::bench::model::NativeModelBench;
        #[pymodule_export]
        use crate::bench::onion::{
            NativeOnionBench, multiply_ns, ntt_seconds, onion_operations, onion_traffic,
        };
        #[pymodule_export]
        use crate::bench::oram::{NativePathBench, page_seconds, union_seconds};
        #[pymodule_export]
        use crate::bench::ring::unit_seconds;
        #[pymodule_export]
        use crate::bench::shards::stub_shards;
        #[pymodule_export]
        use crate::bench::shares::NativeSharesBench;
        #[pymodule_export]
        use crate::bench::{NativeBench, expand_seconds, load_open, load_server};
    }
}
