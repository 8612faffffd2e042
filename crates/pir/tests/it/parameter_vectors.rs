//! `vectors/parameters.json`, from which `bench/core_svp.py` estimates what the offered parameter sets
//! and the sparse secrets of bootstraps cost to break, says what the code does.

use hushtable_pir::onion::ParameterSet;
use hushtable_rlwe::ckks::{BootstrapLevels, KeySpec, Parameters, published_keys};
use hushtable_rlwe::ring::{Platform, SIGMA};
use hushtable_rlwe::{SecretKind, modulus_log2_max};
use serde::Deserialize;

#[derive(Deserialize)]
struct File {
    format: u32,
    sets: Vec<Set>,
    sparse: Vec<Sparse>,
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

#[derive(Deserialize)]
struct Sparse {
    name: String,
    degree: usize,
    moduli: Vec<u64>,
    modulus_log2_max: f64,
    weight: usize,
    error_deviation: f64,
}

fn file() -> File {
    let text = include_str!("../../../../vectors/parameters.json");
    let file: File = serde_json::from_str(text).expect("valid vectors");
    assert_eq!(file.format, 1);
    file
}

#[test]
fn the_estimated_sets_are_the_offered_ones() {
    let File { sets, .. } = file();
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

#[test]
fn the_estimated_sparse_keys_are_those_of_bootstraps() {
    let File { sparse, .. } = file();
    let sets = [
        ("y15", 32768, BootstrapLevels::Y15),
        ("r16", 65536, BootstrapLevels::R16),
        ("l16", 65536, BootstrapLevels::L16),
        ("f16", 65536, BootstrapLevels::F16),
    ];
    assert_eq!(sparse.len(), sets.len());
    for (found, (name, degree, levels)) in sparse.iter().zip(sets) {
        assert_eq!((found.name.as_str(), found.degree), (name, degree));
        let spec = levels.spec(name, degree).expect("a set of 128 bits");
        let parameters = Parameters::new(spec, Platform::detect()).expect("a set of 128 bits");
        let keys = KeySpec { raise: Some(levels.top()), ..KeySpec::default() };
        let keys = published_keys(&parameters, &keys).expect("keys of a raise");
        let own: Vec<_> = keys.iter().filter(|key| key.secret == SecretKind::Weight32).collect();
        assert_eq!(own.len(), 1, "{name}: all that is published under the sparse secret");
        assert_eq!(found.moduli, own[0].moduli, "{name}");
        assert_eq!(found.modulus_log2_max, SecretKind::Weight32.modulus_log2_max(degree));
        assert_eq!((found.weight, found.error_deviation), (32, SIGMA));
    }
}
