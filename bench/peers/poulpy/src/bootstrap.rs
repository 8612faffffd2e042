//! Bootstraps of the crate's own presets, driven by what its benchmarks use.

use poulpy_ckks::layouts::EvalModRing;
use poulpy_ckks::presets::bootstrapping::{
    BootstrappingPreset, n15_d35_k180_p18_c2s, n16_d35_k636_p20_c2s, n16_d35_k685_p19_s2c_ffr_ci,
    n16_d35_k733_p20_s2c,
};
use poulpy_ckks::test_suite::presets::{
    BootstrappingPresetRun, CIBackend, preset_for_backend, preset_label,
};
use poulpy_core::layouts::{GGLWEInfos, LWEInfos};
use poulpy_cpu_avx512::NTT3x42Ifma;

use crate::times;

/// Bytes of a key's numbers, eight each.
fn key_bytes<K: GGLWEInfos + LWEInfos>(key: &K) -> usize {
    let rows = key.dnum().as_usize() * key.rank_in().as_usize();
    let columns = key.rank_out().as_usize() + 1;
    key.n().as_usize() * rows * columns * key.size() * 8
}

/// Bytes of all keys of a preset.
fn keys_bytes(preset: &BootstrappingPreset) -> usize {
    let keys = preset.keys_layout();
    let mut bytes: usize = keys.rotation_keys.values().map(key_bytes).sum();
    bytes += key_bytes(&keys.tensor_key);
    if let Some(both) = &keys.encapsulation {
        bytes += key_bytes(&both.dense_to_sparse);
        bytes += both.sparse_to_dense.as_ref().map_or(0, key_bytes);
    }
    if let Some(key) = &keys.first_factor_key {
        let diagonals = preset.plan().coeffs_to_slots().diagonal_indexes(preset.log_n());
        bytes += diagonals[0].len() * key_bytes(key);
    }
    if let Some((trace, embed)) = &keys.conversion_keys {
        bytes += key_bytes(trace) + key_bytes(embed);
    }
    bytes
}

/// Peak memory of the process in bytes, where the system says.
fn peak_bytes() -> Option<usize> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kilobytes: usize = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    Some(kilobytes * 1024)
}

/// What can be measured, each with whether slots are real.
const NAMES: [(&str, bool); 5] = [
    ("n15_d35_k180_p18_c2s", false),
    ("n16_d35_k636_p20_c2s", false),
    ("n16_d35_k733_p20_s2c", false),
    ("n16_d35_k733_p20_s2c", true),
    ("n16_d35_k685_p19_s2c_ffr_ci", false),
];

/// Times the presets' bootstraps, or of the one called `only` (with "+real", of real slots).
pub fn measure(runs: usize, only: Option<&str>) {
    let mut is_known = false;
    for (name, is_real) in NAMES {
        let label = if is_real { format!("{name}+real") } else { name.to_owned() };
        if only.is_none_or(|only| only == label) {
            is_known = true;
            measure_preset(name, &label, is_real, runs);
        }
    }
    if !is_known {
        eprintln!("error: there is no preset {only:?}");
        std::process::exit(2);
    }
}

fn measure_preset(name: &str, label: &str, is_real: bool, runs: usize) {
    let preset = match name {
        "n15_d35_k180_p18_c2s" => n15_d35_k180_p18_c2s(),
        "n16_d35_k636_p20_c2s" => n16_d35_k636_p20_c2s(),
        "n16_d35_k733_p20_s2c" => n16_d35_k733_p20_s2c(),
        _ => n16_d35_k685_p19_s2c_ffr_ci(),
    };
    let preset = preset.expect("a preset of the crate");
    let preset = preset_for_backend::<NTT3x42Ifma, CIBackend<NTT3x42Ifma>>(&preset)
        .expect("the backend takes the preset");
    assert!(preset_label(&preset).starts_with(name));
    let is_standard = matches!(preset.plan().eval_mod_ring(), EvalModRing::Standard);
    let (n, bytes) = (preset.n(), keys_bytes(&preset));
    let (k, left) = (preset.bootstrap_k(), preset.output_k() - preset.input_k());
    let (levels, scale) = (left / preset.log_delta(), preset.log_delta());
    let mut run = if is_standard {
        BootstrappingPresetRun::<NTT3x42Ifma>::setup(preset)
    } else {
        BootstrappingPresetRun::<NTT3x42Ifma>::setup_ci(preset)
    };
    if is_real {
        run = run.with_real_slots();
    }
    let (median, best) = times(runs, || run.bootstrap());
    let (found, _) = run.precision();
    let (mean, worst) = (found.avg_log2_prec, found.min_log2_prec);
    assert!(mean >= 10.0 && worst >= 5.0, "{label}: {mean} mean bits came back");
    let peak = peak_bytes().map_or("null".to_owned(), |bytes| bytes.to_string());
    println!(
        "{{\"library\":\"poulpy-ckks 0.10.0\",\"operation\":\"bootstrap\",\"set\":\"{label}\",\"degree\":{n},\
         \"slots\":{},\"bits\":{k},\"levels_left\":{levels},\"scale_log2\":{scale},\"mean_bits\":{mean:.3},\
         \"worst_bits\":{worst:.3},\"key_bytes\":{bytes},\"peak_bytes\":{peak},\"ms\":{median:.4},\
         \"best_ms\":{best:.4},\"runs\":{runs}}}",
        n / 2
    );
}
