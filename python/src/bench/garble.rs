//! What garbling costs here.

use hushtable_mpc::bench::{CircuitCost, GarblingSpec, Rates, garbling};
use pyo3::prelude::*;
use serde_json::{Value, json};

use super::platform;
use crate::errors::Failure;

/// Garbles and evaluates, and counts bytes; what was found, as JSON.
#[pyfunction]
#[pyo3(signature = (*, bits, fraction, threads, seconds, isa))]
pub(crate) fn garble_rates(
    py: Python<'_>,
    bits: u32,
    fraction: u32,
    threads: usize,
    seconds: f64,
    isa: Option<&str>,
) -> PyResult<String> {
    let spec = GarblingSpec { platform: platform(isa)?, threads, bits, fraction, seconds };
    let found = py.detach(|| garbling(&spec)).map_err(Failure::config)?;
    let circuits: Vec<Value> = found.circuits.iter().map(circuit).collect();
    Ok(json!({
        "isa": found.isa,
        "threads": found.threads,
        "aes_blocks_per_s": found.aes_blocks,
        "tmmo": rates(&found.tmmo),
        "tmmo_floor": rates(&found.tmmo_floor),
        "mmo": rates(&found.mmo),
        "mmo_floor": rates(&found.mmo_floor),
        "circuits": circuits,
    })
    .to_string())
}

fn rates(found: &Rates) -> Value {
    json!({ "garble": found.garble, "evaluate": found.evaluate })
}

fn circuit(found: &CircuitCost) -> Value {
    json!({
        "name": found.name,
        "and_gates": found.and_gates,
        "table_bytes": found.table_bytes,
        "evaluator_label_bytes": found.evaluator_label_bytes,
        "garbler_label_bytes": found.garbler_label_bytes,
        "per_s": rates(&found.rates),
        "floor_per_s": rates(&found.floor),
    })
}
