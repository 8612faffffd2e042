//! `vectors/parameters.json`, from which `bench/core_svp.py` estimates what the offered parameter sets
//! cost to break, says what the code does.

use hushtable_pir::onion::ParameterSet;
use hushtable_rlwe::modulus_log2_max;
use hushtable_rlwe::ring::SIGMA;
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    format: u32,
    sets: Vec<Set>,
}

#[derive(Deserialize)]
struct Set {
    name: String,
    degree: usize,
    moduli: Vec<u64>,
    modulus_log2_max: f64,
    secret: String,
    error_deviation: f64,
}

#[test]
fn the_estimated_sets_are_the_offered_ones() {
    let text = include_str!("../../../../vectors/parameters.json");
    let File { format, sets } = serde_json::from_str(text).expect("valid vectors");
    assert_eq!(format, 1);
    let names: Vec<_> = sets.iter().map(|set| set.name.as_str()).collect();
    assert_eq!(
        names,
        ParameterSet::ALL.map(ParameterSet::name),
        "estimate every set, and no other"
    );
    for (found, set) in sets.iter().zip(ParameterSet::ALL) {
        let params = set.parameters();
        assert_eq!(found.degree, params.degree());
        assert_eq!(found.moduli, params.spec().moduli, "{}", found.name);
        assert_eq!(found.moduli.len(), params.ring().limbs(), "Q, of queries and of keys");
        assert_eq!(found.modulus_log2_max, modulus_log2_max(params.degree()));
        // The scheme draws every secret so: `NoiseSource::ternary`, `NoiseSource::gaussian`.
        assert_eq!(
            (found.secret.as_str(), found.error_deviation),
            ("uniform over -1, 0, 1", SIGMA)
        );
    }
}
