//! Times poulpy-ckks on one core, for bench/peers/run.py. Prints one line of JSON an operation:
//! {"library", "operation", "degree", "bits", "key_bits", "ms", "best_ms", "runs"}.
//!
//! With `bootstrap` before the runs it times bootstraps alone, with their presets, levels left, bits, key bytes
//! and peak memory.
//!
//! `ms` is the median over runs of the CPU time that one operation takes, `best_ms` the least. A ciphertext here is `bits`
//! wide and has no limbs: rescaling is a shift, and a part of the product, so it has no line.

mod bootstrap;

use std::collections::HashMap;

use cpu_time::ProcessTime;
use poulpy_ckks::api::{CKKSModuleInfos, CKKSMulOps, CKKSRotateOps};
use poulpy_ckks::test_suite::CKKSTestParams;
use poulpy_ckks::test_suite::helpers::{
    alloc_ct, alloc_scratch, ckks_encrypt_coeffs, gen_atk, gen_sk_with_raw, gen_tsk,
};
use poulpy_ckks::{GLWEPlaintextMeta, Scale, SlotsKind};
use poulpy_core::layouts::LWEInfos;
use poulpy_cpu_avx512::NTT3x42Ifma;
use poulpy_hal::api::ScratchOwnedBorrow;
use poulpy_hal::layouts::{HostBytesBackend, Module};

/// Bits of a digit of the representation.
const BASE2K: usize = 52;
/// Bits of a plaintext's scale.
const LOG_DELTA: usize = 40;

/// log2 of the degree, bits of a ciphertext, and digits of a key's gadget digit.
const SETS: [(usize, usize, usize); 3] = [(13, 156, 1), (14, 360, 1), (15, 728, 2)];

fn times(runs: usize, mut what: impl FnMut()) -> (f64, f64) {
    what();
    let mut taken: Vec<f64> = (0..runs)
        .map(|_| {
            let began = ProcessTime::now();
            what();
            began.elapsed().as_secs_f64() * 1e3
        })
        .collect();
    taken.sort_by(f64::total_cmp);
    (taken[runs / 2], taken[0])
}

fn measure(log_n: usize, k: usize, dsize: usize, runs: usize) {
    let n = 1 << log_n;
    let params = CKKSTestParams {
        n,
        base2k: BASE2K,
        k,
        prec_meta: GLWEPlaintextMeta {
            scale: Scale::Log(LOG_DELTA),
            slots: SlotsKind::Complex,
            log_sparsity: 0,
        },
        prec_log_budget: 8,
        hw: n / 2,
        dsize,
        rank: 1,
    };
    let module = Module::<NTT3x42Ifma>::new(n as u64);
    let host = Module::<HostBytesBackend>::new(n as u64);
    let mut scratch = alloc_scratch(&params, &module);
    let (raw, secret) = gen_sk_with_raw(&params, &module, &host, [7; 32]);
    let tensor = gen_tsk(&params, &module, &raw, &mut scratch.borrow());
    let element = module.ckks_galois_element(1);
    let rotation = gen_atk(&params, &module, element, &raw, &mut scratch.borrow());
    let key_bits = params.atk_layout().k().as_usize();
    let rotations = HashMap::from([(element, rotation)]);
    let values: Vec<f64> = (0..n).map(|at| ((at * 37 % 101) as f64 - 50.0) / 64.0).collect();
    let prec = params.prec();
    let cipher = ckks_encrypt_coeffs(
        &params,
        &module,
        &host,
        &secret,
        k,
        &values,
        prec,
        &mut scratch.borrow(),
    );
    let say = |operation: &str, (median, best): (f64, f64)| {
        println!(
            "{{\"library\":\"poulpy-ckks 0.10.0\",\"operation\":\"{operation}\",\"degree\":{n},\
             \"bits\":{k},\"key_bits\":{key_bits},\"ms\":{median:.4},\"best_ms\":{best:.4},\"runs\":{runs}}}"
        );
    };
    let mut out = alloc_ct(&params, &module, k);
    let rotated = times(runs, || {
        module
            .ckks_rotate_into(1, &mut out, &cipher, &rotations, &mut scratch.borrow())
            .expect("there is a key for this rotation");
    });
    say("rotate", rotated);
    let mut product = alloc_ct(&params, &module, k - LOG_DELTA);
    let multiplied = times(runs, || {
        module
            .ckks_mul_into(&mut product, &cipher, &cipher, &tensor, &mut scratch.borrow())
            .expect("the ciphertext is wide enough for a product");
    });
    say("multiply", multiplied);
}

fn main() {
    let mut arguments = std::env::args().skip(1).peekable();
    let is_bootstrap = arguments.next_if(|text| text == "bootstrap").is_some();
    let runs = arguments.next().map_or(Ok(20), |text| text.parse()).ok().filter(|&runs| runs > 0);
    let only = arguments.next();
    let degree: Option<usize> = only.as_ref().and_then(|text| text.parse().ok());
    let Some(runs) = runs else {
        eprintln!("usage: poulpy_peer [RUNS [DEGREE]] or poulpy_peer bootstrap [RUNS [PRESET]]");
        std::process::exit(2);
    };
    if is_bootstrap {
        return bootstrap::measure(runs, only.as_deref());
    }
    for (log_n, k, dsize) in SETS {
        if degree.is_none_or(|degree| degree == 1 << log_n) {
            measure(log_n, k, dsize, runs);
        }
    }
}
