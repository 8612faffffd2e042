//! `vectors/prg.json`, which every implementation reads, on every platform of this machine.

use hushtable_prg::{Platform, Prg, PrgKind};
use serde_json::Value;

fn words(value: &Value) -> Vec<u128> {
    let word = |word: &Value| u128::from_str_radix(word.as_str().unwrap(), 16).unwrap();
    value.as_array().unwrap().iter().map(word).collect()
}

#[test]
fn every_platform_reproduces_the_vectors() {
    let file: Value = serde_json::from_str(include_str!("../../../../vectors/prg.json")).unwrap();
    assert_eq!(file["format"], 1);
    let nodes = words(&file["nodes"]);
    let two = words(&file["child_correction"]).try_into().unwrap();
    let four = words(&file["leaf_correction"]).try_into().unwrap();
    let generators = file["generators"].as_array().unwrap();
    assert_eq!(generators.len(), PrgKind::ALL.len());
    for vector in generators {
        let kind: PrgKind = vector["name"].as_str().unwrap().parse().unwrap();
        assert_eq!(vector["id"], kind.id());
        for platform in Platform::available() {
            let prg = Prg::new(kind, platform);
            let (mut children, mut leaves) = ([0; 12], [0; 24]);
            prg.expand(&nodes, &two, &mut children);
            prg.convert(&nodes, &four, &mut leaves);
            assert_eq!(children[..], words(&vector["children"]), "{kind} {platform:?}");
            assert_eq!(leaves[..], words(&vector["leaves"]), "{kind} {platform:?}");
        }
    }
}
