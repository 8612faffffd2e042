#![no_main]

use hushtable_table::model::{IDS_SUM_MAX, ModelManifest, places};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Ok(manifest) = ModelManifest::from_json(bytes) else { return };
    assert_eq!(manifest.to_json(), bytes, "one model has one text");
    assert_eq!(ModelManifest::new(manifest.spec().clone()).expect("its own parts"), manifest);
    let ids: usize = manifest.features().iter().map(|feature| feature.max_ids).sum();
    assert!(ids <= IDS_SUM_MAX);
    for feature in manifest.features() {
        let table = &manifest.tables()[feature.table];
        // A name must not lead out of the model's folder.
        assert_eq!(places::table(&table.name).components().count(), 2);
        assert_eq!(places::prepared(&table.name).components().count(), 2);
    }
});
