//! Measurements of bootstrapping.

use hushtable_prg::Platform;
use hushtable_ring::{Kernel, NoiseSource};
use hushtable_rlwe::ckks::{
    Bootstrap, BootstrapLevels, Ciphertext, Encoder, Encrypted, Evaluate, EvaluationKeys,
    Parameters, PreparedBootstrap, Transform, decrypt, encrypt, key_bytes,
};
use hushtable_rlwe::{SecretKey, largest};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bench::repeat;
use crate::errors::Failure;
use crate::machine::Random;

/// The bootstrap of a ciphertext of real numbers, to be timed on one thread.
#[pyclass(frozen, module = "hushtable._native.bench", name = "BootstrapBench")]
pub(crate) struct NativeBootstrapBench {
    parameters: Parameters,
    encoder: Encoder,
    keys: EvaluationKeys,
    key_bytes: usize,
    prepared: PreparedBootstrap<Transform>,
    x: Ciphertext,
    /// By vector: −log2 of the mean and of the largest error of a slot.
    bits: Vec<(&'static str, f64, f64)>,
}

#[pymethods]
impl NativeBootstrapBench {
    /// Makes the set of `degree` for `slots` numbers and keys. Random numbers, a constant, a single number
    /// that is not 0 and positive numbers are bootstrapped and held against what went in.
    #[new]
    #[pyo3(signature = (degree, slots))]
    fn new(py: Python<'_>, degree: usize, slots: usize) -> PyResult<Self> {
        Ok(py.detach(|| Self::prepare(degree, slots))?)
    }

    /// The set, the errors and what the bootstrap takes, in numbers.
    #[getter]
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (parameters, bootstrap) = (&self.parameters, self.prepared.bootstrap());
        let (lattice, work) = (parameters.lattice(), bootstrap.work());
        let facts = PyDict::new(py);
        facts.set_item("levels_left", bootstrap.levels().left)?;
        facts.set_item("level", bootstrap.levels().top())?;
        facts.set_item("log_q", lattice.ring().modulus_log2())?;
        facts.set_item("log_qp", lattice.key_ring().modulus_log2())?;
        facts.set_item("special_limbs", parameters.special_limbs())?;
        facts.set_item("scale_log2", parameters.spec().scale_log2)?;
        facts.set_item("failure_log2", bootstrap.failure_log2())?;
        facts.set_item("rotations", bootstrap.key_spec().rotations.len())?;
        facts.set_item("key_bytes", self.key_bytes)?;
        facts.set_item("keys_memory_bytes", self.keys.memory_bytes())?;
        let prepared: usize = self.prepared.transforms().map(Transform::memory_bytes).sum();
        facts.set_item("prepared_bytes", prepared)?;
        for (name, mean, worst) in &self.bits {
            facts.set_item(format!("{name}_mean_bits"), mean)?;
            facts.set_item(format!("{name}_worst_bits"), worst)?;
        }
        facts.set_item("transforms", work.transforms)?;
        facts.set_item("vectors", work.multiplications(parameters.degree()) / 8)?;
        facts.set_item("read_bytes", work.bytes)?;
        facts.set_item("ring_kernel", Kernel::new(Platform::detect()).isa())?;
        Ok(facts)
    }

    /// Seconds that each of several bootstraps took, over at least `seconds`.
    fn seconds(&self, py: Python<'_>, seconds: f64) -> PyResult<Vec<f64>> {
        let mut evaluator = Encrypted::new(&self.encoder, &self.keys);
        repeat(py, seconds, || {
            let out = self.prepared.run(&mut evaluator, &self.x).map_err(failed)?;
            evaluator.recycle(out);
            Ok(())
        })
    }
}

impl NativeBootstrapBench {
    fn prepare(degree: usize, slots: usize) -> Result<Self, Failure> {
        let levels = BootstrapLevels::of(degree, slots).map_err(Failure::config)?;
        let spec = levels.spec("bench_128", degree).map_err(Failure::config)?;
        let parameters = Parameters::new(spec, Platform::detect()).map_err(Failure::config)?;
        let bootstrap = Bootstrap::new(&parameters, levels, slots, 1.0).map_err(Failure::config)?;
        let wanted = bootstrap.key_spec();
        let key_bytes = key_bytes(&parameters, &wanted).map_err(failed)?;
        let mut source = NoiseSource::from_os().map_err(failed)?;
        let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
        let seed = source.seed();
        let keys = EvaluationKeys::generate(&parameters, &secret, &wanted, &seed, &mut source);
        let keys = keys.map_err(failed)?;
        let encoder = Encoder::new(&parameters);
        let mut evaluator = Encrypted::new(&encoder, &keys);
        let prepared = bootstrap.prepare(&evaluator).map_err(failed)?;
        let seed = source.seed();
        let (mut bits, mut first) = (Vec::new(), None);
        for (index, (name, values)) in vectors(slots).into_iter().enumerate() {
            let plain = encoder.encode_real(&values, bootstrap.input_level(), parameters.scale());
            let plain = plain.map_err(failed)?;
            let x = encrypt(&parameters, &secret, &plain, &seed, index as u64, &mut source);
            let x = x.map_err(failed)?;
            let out = prepared.run(&mut evaluator, &x).map_err(failed)?;
            let found = encoder.decode_real(&decrypt(&parameters, &secret, &out).map_err(failed)?);
            let errors = || found.iter().zip(values.iter().cycle()).map(|(x, y)| (x - y).abs());
            let worst = -largest(errors()).log2();
            let mean = -(errors().sum::<f64>() / found.len() as f64).log2();
            // Written so that what is no number is refused.
            if !(worst >= WORST_BITS_MIN && worst.is_finite()) {
                let text = format!(
                    "{name} numbers came back with {worst:.1} bits, at least {WORST_BITS_MIN} were \
                     expected: do not trust this machine's kernel"
                );
                return Err(Failure::new("Error", text));
            }
            bits.push((name, mean, worst));
            evaluator.recycle(out);
            first.get_or_insert(x);
        }
        let x = first.expect("there are vectors");
        drop(evaluator);
        Ok(Self { parameters, encoder, keys, key_bytes, prepared, x, bits })
    }
}

/// Numbers from −1 to 1 that a bootstrap treats differently.
fn vectors(slots: usize) -> [(&'static str, Vec<f64>); 4] {
    let mut random = Random(1);
    let number = |word: u64| (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    let random: Vec<f64> = (0..slots).map(|_| number(random.next())).collect();
    let positive = random.iter().map(|value| value.abs()).collect();
    let one_hot = (0..slots).map(|slot| f64::from(u8::from(slot == slots / 3))).collect();
    [
        ("random", random),
        ("constant", vec![0.7; slots]),
        ("one_hot", one_hot),
        ("positive", positive),
    ]
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new("Error", error)
}

/// A result with fewer bits is wrong, whatever the set.
const WORST_BITS_MIN: f64 = 10.0;
