//! Every module that engines may ask for compiles for the GPUs that it may meet, without a GPU.
//!
//! It takes NVRTC, which the `nvidia-cuda-nvrtc` wheel has; `make test-rust` says where that is. With
//! HUSHTABLE_NEEDS_NVRTC=1 it is a failure that there is none, else the test is skipped. With
//! HUSHTABLE_CUBINS=folder the machine code is left there, for `nvdisasm -c` (`pip install
//! nvidia-cuda-nvdisasm`), which shows what the compiler made of it.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::{env, fs, thread};

use hushtable_gpu::ModuleSpec;
use hushtable_gpu::cuda::{Need, Nvrtc};
use hushtable_gpu::module::{self, Listed};

const TARGETS: [&str; 2] = ["sm_80", "sm_90a"];

/// Registers that a thread can have.
const REGISTERS_MAX: u32 = 255;

/// As in `tensor.cu PRG=8`.
fn name(spec: &ModuleSpec) -> String {
    let defines: String =
        spec.defines.iter().map(|(name, value)| format!(" {name}={value}")).collect();
    format!("{}{defines}", spec.source)
}

/// What is wrong with a module's compilation for a target.
fn check(nvrtc: &Nvrtc, listed: &Listed, target: &str, cubins: Option<&PathBuf>) -> Vec<String> {
    let name = name(&listed.spec);
    let compiled = match nvrtc.compile(&listed.spec, target) {
        Ok(compiled) => compiled,
        Err(error) => return vec![format!("{name}: {error}")],
    };
    if let Some(folder) = cubins {
        let file = format!("{}.{target}.cubin", name.replace(' ', "."));
        fs::write(folder.join(file), &compiled.cubin).expect("the folder can be written to");
    }
    let mut wrong = Vec::new();
    if compiled.log.contains("warning") {
        wrong.push(format!("{name} for {target}: {}", compiled.log));
    }
    let resources = compiled.resources();
    if resources.is_empty() {
        wrong.push(format!("{name} for {target} has no kernel: {}", compiled.log));
    }
    let kernels: BTreeSet<_> = resources.iter().map(|found| found.kernel.as_str()).collect();
    for kernel in listed.spill_free.iter().filter(|kernel| !kernels.contains(*kernel)) {
        wrong.push(format!("{name} for {target} has no kernel {kernel}, only {kernels:?}"));
    }
    for found in &resources {
        let is_free = listed.spill_free.contains(&found.kernel.as_str());
        if found.registers > REGISTERS_MAX || (is_free && found.spill_bytes > 0) {
            wrong.push(format!("{name} for {target} spills: {found:?}"));
        }
    }
    wrong
}

#[test]
fn every_module_compiles_and_keeps_to_its_registers() {
    let nvrtc = match Nvrtc::find(&[], Need::default()) {
        Ok(found) => found,
        Err(error) => {
            let is_needed = env::var("HUSHTABLE_NEEDS_NVRTC").is_ok_and(|value| value == "1");
            assert!(!is_needed, "{error}");
            eprintln!("skipped: {error}");
            return;
        }
    };
    let cubins = env::var_os("HUSHTABLE_CUBINS").map(PathBuf::from);
    if let Some(folder) = &cubins {
        fs::create_dir_all(folder).expect("a folder can be made");
    }
    let all = module::all();
    let names: BTreeSet<String> = all.iter().map(|listed| name(&listed.spec)).collect();
    assert_eq!(names.len(), all.len(), "a module is listed twice");

    let jobs: Vec<(&Listed, &str)> =
        all.iter().flat_map(|listed| TARGETS.map(|target| (listed, target))).collect();
    let (next, wrong) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                while let Some((listed, target)) = jobs.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let found = check(&nvrtc, listed, target, cubins.as_ref());
                    wrong.lock().expect("nobody panicked").extend(found);
                }
            });
        }
    });
    let wrong = wrong.into_inner().expect("nobody panicked");
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
