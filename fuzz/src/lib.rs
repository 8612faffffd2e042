//! What several fuzz targets do with their bytes.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Engine, Geometry, OnionSpec, ParameterSet, Server};
use hushtable_table::{
    BuildSpec, Error, Source, SourceFormat, Table, Version, build, scan, verify,
};
use tempfile::TempDir;

/// Runs `work` in a folder that lives as long as the fuzzer, in memory where the system has that.
pub fn with_folder<T>(work: impl FnOnce(&Path) -> T) -> T {
    thread_local! {
        static FOLDER: OnceCell<TempDir> = const { OnceCell::new() };
    }
    FOLDER.with(|folder| {
        let folder = folder.get_or_init(|| {
            let memory = Path::new("/dev/shm");
            let parent = if memory.is_dir() { PathBuf::from(memory) } else { std::env::temp_dir() };
            tempfile::tempdir_in(parent).expect("a temporary folder")
        });
        work(folder.path())
    })
}

/// Lists the tensors in `bytes`, and builds each that could be a table.
///
/// A listing may not be larger than its file makes plausible; a build gives a bundle that
/// verifies, or an error.
pub fn scan_and_build(format: SourceFormat, bytes: &[u8]) {
    let Ok(tensors) = scan(format, bytes) else { return };
    assert!(tensors.len() <= bytes.len());
    for tensor in tensors.iter().filter(|tensor| tensor.is_table()).take(4) {
        with_folder(|folder| {
            let path = folder.join("source");
            fs::write(&path, bytes).expect("write the source");
            let key = Some(tensor.name.clone());
            let source = match format {
                SourceFormat::Npy => Source::Npy { path },
                SourceFormat::Safetensors => Source::Safetensors { path, key },
                _ => Source::Torch { path, key },
            };
            let out = folder.join("table");
            let spec = BuildSpec { name: "fuzz".to_owned(), ..BuildSpec::default() };
            match build(&source, &spec, &out, &mut |_, _| {}) {
                Ok(manifest) => {
                    let shape = manifest.shape();
                    assert_eq!(tensor.shape, [shape.rows(), shape.dim() as u64]);
                    assert!(shape.content_bytes() <= bytes.len() as u64);
                    assert!(verify(&out, &mut |_, _| {}).expect("a whole bundle").ok);
                    assert_eq!(Table::open(&out).expect("a whole bundle").manifest(), &manifest);
                }
                Err(Error::Codec(_) | Error::Shape(_) | Error::Source { .. }) => {}
                Err(other) => panic!("{other}"),
            }
        });
    }
}

/// A server of a small table under the test parameters, and a client of it.
pub fn small_onion() -> (Geometry, Client, Server) {
    let shape = TableShape::new(100, 64).expect("a small table");
    let geometry = Geometry::with_levels(ParameterSet::N256Test, shape, 3).expect("a small one");
    let version = Version::from([1; 32]);
    let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
    let engine = Engine::from_rows(geometry.clone(), version, &spec, &|first, out| {
        out.fill(first as u8);
        Ok(())
    });
    let client = Client::new(geometry.clone(), version).expect("randomness");
    (geometry, client, Server::new(Arc::new(engine.expect("a small engine"))))
}
