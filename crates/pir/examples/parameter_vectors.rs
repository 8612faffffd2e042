//! Prints `vectors/parameters.json`: what an attacker of the single-server scheme is given, for every
//! set that servers offer, and the keys under sparse secrets that bootstraps publish.
//! `bench/core_svp.py` estimates from it what breaking them costs.
//!
//! `cargo run -p hushtable-pir --example parameter_vectors > vectors/parameters.json`

use hushtable_pir::onion::ParameterSet;
use hushtable_rlwe::ckks::{self, BootstrapLevels, KeySpec, Parameters, published_keys};
use hushtable_rlwe::ring::{Platform, SIGMA};
use hushtable_rlwe::{SecretKind, modulus_log2_max};
use serde_json::{Value, json};

fn main() -> Result<(), Box<dyn std::error::Error>> {
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
    let sparse: Vec<Value> = [
        ("y15", 32768, BootstrapLevels::Y15),
        ("r16", 65536, BootstrapLevels::R16),
        ("l16", 65536, BootstrapLevels::L16),
        ("f16", 65536, BootstrapLevels::F16),
    ]
    .into_iter()
    .map(|(name, degree, levels)| sparse(name, degree, levels))
    .collect::<Result<_, _>>()?;
    let file = json!({ "format": 1, "sets": sets, "sparse": sparse });
    println!("{}", serde_json::to_string_pretty(&file)?);
    Ok(())
}

/// The one key of a raise that is published under the sparse secret.
fn sparse(name: &str, degree: usize, levels: BootstrapLevels) -> Result<Value, ckks::Error> {
    let parameters = Parameters::new(levels.spec(name, degree)?, Platform::detect())?;
    let keys = KeySpec { raise: Some(levels.top()), ..KeySpec::default() };
    let keys = published_keys(&parameters, &keys)?;
    let moduli: Vec<_> = keys
        .into_iter()
        .filter(|key| key.secret == SecretKind::Weight32)
        .map(|key| key.moduli)
        .collect();
    let [moduli] = moduli.as_slice() else {
        unreachable!("a raise has one key of the sparse secret")
    };
    Ok(json!({
        "name": name,
        "degree": degree,
        "moduli": moduli,
        "modulus_log2_max": SecretKind::Weight32.modulus_log2_max(degree),
        "weight": 32,
        "error_deviation": SIGMA,
    }))
}
