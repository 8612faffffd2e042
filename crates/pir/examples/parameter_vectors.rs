//! Prints `vectors/parameters.json`: what an attacker of the single-server scheme is given, for every
//! set that servers offer. `bench/core_svp.py` estimates from it what breaking them costs.
//!
//! `cargo run -p hushtable-pir --example parameter_vectors > vectors/parameters.json`

use hushtable_pir::onion::ParameterSet;
use hushtable_rlwe::modulus_log2_max;
use hushtable_rlwe::ring::SIGMA;
use serde_json::{Value, json};

fn main() -> Result<(), serde_json::Error> {
    let sets: Vec<Value> = ParameterSet::ALL
        .into_iter()
        .map(|set| {
            let params = set.parameters();
            json!({
                "name": params.name(),
                "degree": params.degree(),
                // Of queries and of evaluation keys alike.
                "moduli": params.spec().moduli,
                "modulus_log2_max": modulus_log2_max(params.degree()),
                "secret": "uniform over -1, 0, 1",
                "error_deviation": SIGMA,
            })
        })
        .collect();
    println!("{}", serde_json::to_string_pretty(&json!({ "format": 1, "sets": sets }))?);
    Ok(())
}
