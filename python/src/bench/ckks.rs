//! Measurements of CKKS operations.

use std::time::Instant;

use hushtable_prg::Platform;
use hushtable_ring::{Kernel, NoiseSource};
use hushtable_rlwe::ckks::{
    Ciphertext, Diagonals, Encoder, Encrypted, Evaluate, EvaluationKeys, KeySpec, ParameterSpec,
    Parameters, Split, Transform, Work, decrypt, encrypt, key_bytes,
};
use hushtable_rlwe::{SecretKey, largest};
use pyo3::prelude::*;
use pyo3::types::PyDict;

use crate::bench::repeat;
use crate::errors::Failure;
use crate::machine::Random;

/// One operation on ciphertexts of random numbers, to be timed on one thread.
#[pyclass(frozen, module = "hushtable._native.bench", name = "CkksBench")]
pub(crate) struct NativeCkksBench {
    parameters: Parameters,
    encoder: Encoder,
    keys: EvaluationKeys,
    key_bytes: usize,
    operation: Operation,
    x: Ciphertext,
    /// log2 of the largest error in a slot.
    error_log2: f64,
    work: Work,
}

enum Operation {
    Rotate,
    Multiply,
    Rescale,
    Transform(Box<Transform>),
}

#[pymethods]
impl NativeCkksBench {
    /// Makes a set of `degree` with `limbs` primes in Q, keys, and a ciphertext of its top level, and
    /// holds one result against plain arithmetic. `operation` is rotate, multiply (relinearised and
    /// rescaled), rescale or transform: the map of `diagonals` diagonals with `baby_steps`.
    #[new]
    #[pyo3(signature = (degree, limbs, *, operation, diagonals, baby_steps))]
    fn new(
        py: Python<'_>,
        degree: usize,
        limbs: usize,
        operation: &str,
        diagonals: usize,
        baby_steps: usize,
    ) -> PyResult<Self> {
        let refused = |text: String| Err(Failure::config(text).into());
        if !["rotate", "multiply", "rescale", "transform"].contains(&operation) {
            return refused(format!(
                "operation is {operation:?}, but must be rotate, multiply, rescale, transform or \
                 bootstrap"
            ));
        }
        if limbs < 2 && operation != "rotate" {
            return refused(format!("limbs is {limbs}, but {operation} takes at least 2"));
        }
        if !(1..=degree / 2).contains(&diagonals) || !(1..=degree / 2).contains(&baby_steps) {
            return refused(format!(
                "diagonals is {diagonals} and baby_steps is {baby_steps}, but both must be 1 to {}, \
                 the slots",
                degree / 2
            ));
        }
        Ok(py.detach(|| Self::prepare(degree, limbs, operation, diagonals, baby_steps))?)
    }

    /// The set and what the operation takes, in numbers.
    #[getter]
    fn facts<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let (parameters, degree) = (&self.parameters, self.parameters.degree());
        let lattice = parameters.lattice();
        let facts = PyDict::new(py);
        facts.set_item("level", self.x.level())?;
        facts.set_item("log_q", lattice.ring().modulus_log2())?;
        facts.set_item("log_qp", lattice.key_ring().modulus_log2())?;
        facts.set_item("special_limbs", parameters.special_limbs())?;
        facts.set_item("scale_log2", parameters.spec().scale_log2)?;
        facts.set_item("key_bytes", self.key_bytes)?;
        facts.set_item("keys_memory_bytes", self.keys.memory_bytes())?;
        let prepared = match &self.operation {
            Operation::Transform(map) => map.memory_bytes(),
            _ => 0,
        };
        facts.set_item("prepared_bytes", prepared)?;
        facts.set_item("ciphertext_memory_bytes", self.x.memory_bytes())?;
        facts.set_item("error_log2", self.error_log2)?;
        facts.set_item("transforms", self.work.transforms)?;
        facts.set_item("vectors", self.work.multiplications(degree) / 8)?;
        facts.set_item("read_bytes", self.work.bytes)?;
        facts.set_item("ring_kernel", Kernel::new(Platform::detect()).isa())?;
        Ok(facts)
    }

    /// Seconds that each of several operations took, over at least `seconds`.
    fn seconds(&self, py: Python<'_>, seconds: f64) -> PyResult<Vec<f64>> {
        let mut evaluator = Encrypted::new(&self.encoder, &self.keys);
        // Rescaling writes over its ciphertext: a copy is made before the clock starts.
        if matches!(self.operation, Operation::Rescale) {
            let mut times = Vec::new();
            repeat(py, seconds, || {
                let mut copy = self.x.clone();
                let started = Instant::now();
                evaluator.rescale(&mut copy).map_err(failed)?;
                times.push(started.elapsed().as_secs_f64());
                evaluator.recycle(copy);
                Ok(())
            })?;
            // The first, cold, is not counted.
            times.remove(0);
            return Ok(times);
        }
        repeat(py, seconds, || {
            let result = self.run(&mut evaluator)?;
            evaluator.recycle(result);
            Ok(())
        })
    }
}

impl NativeCkksBench {
    fn prepare(
        degree: usize,
        limbs: usize,
        operation: &str,
        diagonals: usize,
        baby_steps: usize,
    ) -> Result<Self, Failure> {
        let spec = ParameterSpec::of_limbs("bench_128", degree, limbs).map_err(Failure::config)?;
        let parameters = Parameters::new(spec, Platform::detect()).map_err(Failure::config)?;
        let (top, slots) = (parameters.levels(), parameters.slots());
        let encoder = Encoder::new(&parameters);
        let mut source = NoiseSource::from_os().map_err(failed)?;
        let secret = SecretKey::draw(parameters.lattice().key_ring(), &mut source);
        let split = Split::new(baby_steps);
        let (babies, giants) = split.rotations(0..diagonals);
        let mut wanted = KeySpec::default();
        let work = match operation {
            "rotate" => {
                wanted.rotations.insert(1, top);
                Work::rotate(&parameters, top)
            }
            "multiply" => {
                wanted.products = Some(top);
                Work::multiply(&parameters, top)
            }
            "rescale" => Work::rescale(top),
            _ => {
                let steps = babies.iter().chain(&giants);
                wanted.rotations.extend(steps.map(|&steps| (steps, top)));
                let steps = (babies.len(), giants.len());
                Work::transform(&parameters, top, diagonals, steps)
            }
        };
        let key_bytes = key_bytes(&parameters, &wanted).map_err(failed)?;
        let seed = source.seed();
        let keys = EvaluationKeys::generate(&parameters, &secret, &wanted, &seed, &mut source);
        let keys = keys.map_err(failed)?;
        let mut random = Random(1);
        let mut numbers = || -> Vec<f64> {
            let number = |word: u64| (word >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            (0..slots).map(|_| number(random.next())).collect()
        };
        let values = numbers();
        let scale = parameters.scale();
        let plain = encoder.encode_real(&values, top, scale).map_err(failed)?;
        let x = encrypt(&parameters, &secret, &plain, &source.seed(), 0, &mut source);
        let mut x = x.map_err(failed)?;
        if operation == "rescale" {
            // A scale to divide off, as a product leaves it.
            let scale = parameters.modulus(top).value() as f64;
            let mut evaluator = Encrypted::new(&encoder, &keys);
            evaluator.multiply_constant(&mut x, 1.0, scale).map_err(failed)?;
        }
        let (operation, expected) = match operation {
            "rotate" => {
                let mut rotated = values;
                rotated.rotate_left(1);
                (Operation::Rotate, rotated)
            }
            "multiply" => (Operation::Multiply, values.iter().map(|x| x * x).collect()),
            "rescale" => (Operation::Rescale, values),
            _ => {
                let mut map = Diagonals::new(slots);
                for steps in 0..diagonals {
                    map.insert(steps, numbers()).map_err(failed)?;
                }
                let prepared = Encrypted::new(&encoder, &keys).prepare(&map, split, top, scale);
                let prepared = prepared.map_err(failed)?;
                (Operation::Transform(Box::new(prepared)), map.apply(&values))
            }
        };
        let error_log2 = 0.0;
        let mut bench =
            Self { parameters, encoder, keys, key_bytes, operation, x, error_log2, work };
        let mut evaluator = Encrypted::new(&bench.encoder, &bench.keys);
        let result = bench.run(&mut evaluator)?;
        let plain = decrypt(&bench.parameters, &secret, &result).map_err(failed)?;
        let found = bench.encoder.decode_real(&plain);
        bench.error_log2 = largest(found.iter().zip(&expected).map(|(x, y)| x - y)).log2();
        // What is no number is not right.
        let is_right = bench.error_log2 <= ERROR_LOG2_MAX;
        if !is_right {
            let error = bench.error_log2;
            let text = format!("an error of 2^{error:.1}: do not trust this machine's kernel");
            return Err(Failure::new("Error", text));
        }
        Ok(bench)
    }

    fn run(&self, evaluator: &mut Encrypted) -> Result<Ciphertext, Failure> {
        let result = match &self.operation {
            Operation::Rotate => evaluator.rotate(&self.x, 1),
            Operation::Multiply => evaluator.multiply_rescale(&self.x, &self.x),
            Operation::Rescale => {
                let mut copy = self.x.clone();
                evaluator.rescale(&mut copy).map(|()| copy)
            }
            Operation::Transform(map) => evaluator.transform(&[map], &[&self.x]),
        };
        result.map_err(failed)
    }
}

fn failed(error: impl std::fmt::Display) -> Failure {
    Failure::new("Error", error)
}

/// A result that is further off than this is wrong, whatever the set.
const ERROR_LOG2_MAX: f64 = -4.0;
