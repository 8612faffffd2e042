use std::fs;
use std::path::PathBuf;

use super::cache::Cache;
use super::{Cuda, CudaSpec, Need, Nvrtc, compiled};
use crate::{Error, ModuleSpec};

/// NVRTC, or `None`, told, where the tests may do without.
fn nvrtc() -> Option<Nvrtc> {
    match Nvrtc::find(&[], Need::default()) {
        Ok(found) => Some(found),
        Err(error) => {
            let is_needed = std::env::var("HUSHTABLE_NEEDS_NVRTC").is_ok_and(|value| value == "1");
            assert!(!is_needed, "{error}");
            eprintln!("skipped: {error}");
            None
        }
    }
}

fn probe() -> ModuleSpec {
    ModuleSpec { source: "probe.cu", defines: vec![] }
}

#[test]
fn a_machine_without_a_device_is_told() {
    match Cuda::devices() {
        Ok(devices) => {
            let index = devices.len() as u32;
            let past = Cuda::open(&CudaSpec { index, ..CudaSpec::default() }).err();
            assert_eq!(past, Some(Error::DeviceIndex { index, devices: index }));
        }
        Err(error) => {
            assert_eq!(Cuda::open(&CudaSpec::default()).err(), Some(error.clone()));
            assert!(
                matches!(error, Error::NoDriver { .. } | Error::NoDevice | Error::Driver { .. }),
                "{error}"
            );
        }
    }
}

#[test]
fn a_compiled_module_is_kept_until_it_is_damaged() {
    let Some(nvrtc) = nvrtc() else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let cache = Cache::new(folder.path().to_owned());
    let make = |spec: &ModuleSpec, target| {
        compiled(&nvrtc, Some(&cache), spec, target).expect("it compiles")
    };
    let files = || -> Vec<PathBuf> {
        let entries = fs::read_dir(folder.path()).expect("there");
        entries.map(|entry| entry.expect("an entry").path()).collect()
    };
    let code = make(&probe(), "sm_80");
    assert_eq!(code[..4], *b"\x7fELF");
    let [file] = &files()[..] else { panic!("one file") };
    let whole = fs::read(file).expect("there");

    // What is kept is taken: other content under the same name, whole in itself, comes back.
    let key = blake3::Hash::from_hex(file.file_stem().and_then(|n| n.to_str()).expect("a name"));
    cache.store(&key.expect("a hash"), b"kept").expect("stored");
    assert_eq!(make(&probe(), "sm_80"), b"kept");

    let mut damaged = whole.clone();
    damaged[100] ^= 1;
    fs::write(file, damaged).expect("written");
    assert_eq!(make(&probe(), "sm_80"), code);
    assert_eq!(fs::read(file).expect("there"), whole);

    make(&probe(), "sm_90a");
    make(&ModuleSpec { defines: vec![("OTHER", 1)], ..probe() }, "sm_80");
    assert_eq!(files().len(), 3);

    // A folder that cannot be made is no reason to fail.
    let nowhere = Cache::new(file.join("under/a/file"));
    assert_eq!(compiled(&nvrtc, Some(&nowhere), &probe(), "sm_80"), Ok(code));
}

#[test]
fn the_compilers_words_come_back() {
    let Some(nvrtc) = nvrtc() else { return };
    let spec = ModuleSpec { defines: vec![("u32", 3)], ..probe() };
    match nvrtc.compile(&spec, "sm_80").expect_err("no C++") {
        Error::Compile { module: "probe.cu", target, log } => {
            assert_eq!(target, "sm_80");
            assert!(log.contains("error") && log.contains("platform.cuh"), "{log}");
        }
        other => panic!("{other}"),
    }
    let error = nvrtc.compile(&probe(), "sm_1").expect_err("no such target");
    assert!(error.to_string().contains("sm_1"), "{error}");
}

#[test]
fn a_compiler_must_suit_driver_and_device() {
    let Some(nvrtc) = nvrtc() else { return };
    let (major, _) = nvrtc.version();
    let need = |driver_version, capability| Need { driver_version, capability };
    let fits = need(Some(1000 * major), Some((9, 0)));
    assert!(Nvrtc::find(&[], fits).is_ok());
    for (lack, expected) in [
        (need(Some(1000 * major - 910), None), "does not load"),
        (need(None, Some((99, 0))), "does not know compute capability 99.0"),
    ] {
        let text = Nvrtc::find(&[], lack).expect_err("none will do").to_string();
        assert!(text.contains(expected), "{text}");
    }
}

#[test]
fn what_checks_devices_compiles_for_them() {
    let Some(nvrtc) = nvrtc() else { return };
    let spec = ModuleSpec { source: "check.cu", defines: vec![("WITH_EXTRA", 5)] };
    let found = nvrtc.compile(&spec, "sm_90a").expect("it compiles").resources();
    assert!(found.iter().any(|kernel| kernel.kernel == "extra"), "{found:?}");
    assert!(found.iter().all(|kernel| kernel.stack_bytes == 0), "{found:?}");
}
