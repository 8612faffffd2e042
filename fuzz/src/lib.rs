//! What several fuzz targets do with their bytes.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use arbitrary::Arbitrary;
use hushtable_infer::dlrm::cost::CostTable;
use hushtable_infer::dlrm::{self, Dlrm, Goal, bench};
use hushtable_infer::hybrid::program::{
    Activation, Convolution, Program, Rounding, Shape, Stage, Term, Weights,
};
use hushtable_infer::hybrid::{HybridModel, linear};
use hushtable_infer::shares::price::Model;
use hushtable_pir::TableShape;
use hushtable_pir::onion::{Client, Engine, Geometry, OnionSpec, ParameterSet, Server};
use hushtable_rlwe::SecretKey;
use hushtable_rlwe::ckks::{
    Ciphertext, Encoder, KeySpec, ModulusBits, ParameterSpec, Parameters, encrypt, write_keys,
};
use hushtable_rlwe::ring::{NoiseSource, Platform};
use hushtable_table::{
    BuildSpec, Error, Source, SourceFormat, Table, Version, build, scan, verify,
};
use tempfile::TempDir;

/// What becomes of a file at somebody's hands.
#[derive(Arbitrary, Debug)]
pub enum Damage {
    /// Its first bytes are left.
    Cut(u16),
    /// Bytes behind its end.
    Extend(Vec<u8>),
    /// Bits of one byte are changed.
    Flip(u16, u8),
    /// It is gone.
    Remove,
    /// Bytes of it are others.
    Write(u16, Vec<u8>),
}

impl Damage {
    /// Does this to the file at `path`, if there is one.
    pub fn inflict(&self, path: &Path) {
        // Removed by an earlier damage: nothing to do.
        let Ok(mut bytes) = fs::read(path) else { return };
        match self {
            Damage::Cut(length) => bytes.truncate(usize::from(*length)),
            Damage::Extend(tail) => bytes.extend(tail),
            Damage::Flip(offset, mask) => {
                if let Some(byte) = bytes.get_mut(usize::from(*offset)) {
                    *byte ^= mask;
                }
            }
            Damage::Remove => {
                fs::remove_file(path).expect("remove a file");
                return;
            }
            Damage::Write(offset, new) => {
                let offset = usize::from(*offset);
                if let Some(place) = bytes.get_mut(offset..offset + new.len()) {
                    place.copy_from_slice(new);
                }
            }
        }
        fs::write(path, bytes).expect("write a file");
    }
}

/// Changes `bytes` from `at` on, wherever in them that is, or puts the damage in their place where it is longer.
pub fn hurt(bytes: &mut Vec<u8>, at: u32, damage: &[u8]) {
    match damage.len() <= bytes.len() {
        true => {
            let at = at as usize % bytes.len().max(1);
            bytes[at..].iter_mut().zip(damage).for_each(|(byte, damage)| *byte ^= damage);
        }
        false => damage.clone_into(bytes),
    }
}

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
                SourceFormat::Npz => Source::Npz { path, key },
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

/// A small model's architecture.
pub fn small_dlrm() -> Dlrm {
    let text = r#"
        dense = 2
        bottom = [4, 2]
        top = [4, 1]
        dim = 2
        activation = "square"
        threshold = 8
        features = [{ name = "a", rows = 3 }, { name = "b", rows = 100 }]
    "#;
    Dlrm::parse(text).expect("a small model")
}

/// A server of a small model, and a client of it.
pub fn small_inference() -> (dlrm::Client, dlrm::Engine) {
    let model = small_dlrm();
    let weights = bench::synthetic_weights(&model, None, 1).expect("weights of its shapes");
    let costs = CostTable::shipped().expect("the table that is shipped");
    let plan = dlrm::plan(&model, &weights, Goal::default(), &costs).expect("a small plan");
    let engine = dlrm::Engine::new(&plan, &weights, Platform::detect()).expect("its engine");
    (dlrm::Client::new(engine.terms().clone()).expect("randomness"), engine)
}

/// A client of CKKS under parameters without security, with what it would send.
pub struct CkksWorld {
    /// Three levels; a digit of two limbs.
    pub parameters: Parameters,
    /// Of the parameters.
    pub encoder: Encoder,
    /// The client's.
    pub secret: SecretKey,
    /// Products and a rotation.
    pub keys: KeySpec,
    /// Their bytes.
    pub key_bytes: Vec<u8>,
    /// A fresh ciphertext at the highest level.
    pub ciphertext: Ciphertext,
}

/// A small client of CKKS, the same every time.
pub fn ckks_world() -> CkksWorld {
    let bits = ModulusBits { first: 40, level: 30, special: 40 };
    let spec = ParameterSpec::of_bits("fuzz_test", 16, bits, 3, 2).expect("enough primes");
    let parameters = Parameters::new(spec, Platform::detect()).expect("a small set");
    let encoder = Encoder::new(&parameters);
    let mut source = NoiseSource::from_seed(&[1; 32]);
    let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
    let keys = KeySpec::at_every_level(&parameters, [1]);
    let mut key_bytes = Vec::new();
    let sink = |bytes: &[u8]| key_bytes.extend(bytes);
    write_keys(&parameters, &secret, &keys, &[2; 32], &mut source, sink).expect("keys");
    let plain = encoder.encode_real(&[0.5, -0.25], 3, parameters.scale()).expect("small numbers");
    let ciphertext = encrypt(&parameters, &secret, &plain, &[3; 32], 0, &mut source);
    let ciphertext = ciphertext.expect("a level that there is");
    CkksWorld { parameters, encoder, secret, keys, key_bytes, ciphertext }
}

/// A network of a convolution, an activation and a layer, with weights of its own.
pub fn small_hybrid() -> Arc<HybridModel> {
    let input = Shape { channels: 1, height: 5, width: 5 };
    let (kernel, stride, pad) = ([3, 3], [1, 1], [0; 4]);
    let first = Convolution { input, outputs: 2, kernel, stride, pad };
    let flat = Shape { channels: 18, height: 1, width: 1 };
    let last = Convolution { input: flat, outputs: 3, kernel: [1, 1], stride, pad };
    let stage = |name: &str, source, convolution: Convolution, activation| Stage {
        name: name.to_owned(),
        terms: vec![Term::Convolution { source, convolution, shift: 0 }],
        sum: convolution.output(),
        fraction: 12,
        activation,
    };
    let activation = Some(Activation {
        rectify: true,
        most: None,
        window: [1, 1],
        stride: None,
        pad: [0; 4],
        shift: 6,
    });
    let stages = vec![stage("first", 0, first, activation), stage("last", 1, last, None)];
    let weights = |convolution: Convolution| {
        (0..convolution.weights()).map(|index| index as i32 % 41 - 20).collect::<Vec<_>>()
    };
    let weights = Weights {
        convolutions: vec![weights(first), weights(last)],
        biases: vec![vec![1; 2], vec![2; 3]],
    };
    let parts = [first, last].into_iter().zip(weights.convolutions.iter().map(Vec::as_slice));
    let lattice = linear::choose(32, &parts.collect::<Vec<_>>(), false, Platform::detect())
        .expect("small weights")
        .to_owned();
    let rounding = Rounding::Stochastic;
    let program = Program { bits: 32, fraction: 6, rounding, lattice, input, stages };
    Arc::new(HybridModel::new(program, weights, Platform::detect()).expect("a small network"))
}

/// A small model for predictions on shares.
pub fn small_shared() -> Model {
    let text = r#"
        dense = 3
        bottom = [4, 2]
        top = [5, 1]
        dim = 2
        activation = "relu"
        [[features]]
        name = "a"
        rows = 9
    "#;
    let spec = Dlrm::parse(text).expect("a description").spec().clone();
    Model::synthetic(spec, 8, 8, 1).expect("a model")
}
