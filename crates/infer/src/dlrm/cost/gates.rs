//! What gates, and the reductions of bootstraps, do of one ciphertext.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use hushtable_rlwe::ckks::{Bootstrap, Clear, Evaluate, ModulusBits, ParameterSpec, Parameters};
use hushtable_rlwe::ring::Platform;

use super::super::error::Error;
use super::super::gate::{self, Gate, Prepared};
use super::counted::Counted;
use super::kinds::{Counts, Kind};

/// Operations of a circuit that takes one ciphertext: kinds, by how many levels they are below it, and how
/// often.
type Relative = Arc<[(Kind, usize, usize)]>;

/// What `gate` does of a ciphertext at `level`. Of a gate that cannot be computed it is nothing: a plan
/// with one is refused before it is compiled.
pub(in super::super) fn gate_operations(
    gate: &Gate,
    level: usize,
) -> impl Iterator<Item = (Kind, usize, usize)> + use<> {
    // What is done depends on which coefficients are zero alone.
    let key = match *gate {
        Gate::Square => (0, 0, 0),
        Gate::Polynomial { degree, .. } => (1, degree, 0),
        Gate::Relu { degree, .. } => (2, degree.unwrap_or(0), 0),
        Gate::Silu { degree, range } => (3, degree, range.to_bits()),
    };
    let gate = match *gate {
        Gate::Relu { degree, .. } => Gate::Relu { degree, range: 1.0 },
        gate => gate,
    };
    let found = remembered(key, || {
        let coefficients = match gate {
            Gate::Polynomial { degree, .. } => vec![1.0 / 64.0; degree + 1],
            _ => Vec::new(),
        };
        let (depth, prepared) = (gate::depth(&gate), Prepared::new(&gate, &coefficients)?);
        count(|evaluator, x| {
            let scale = evaluator.parameters().scale();
            prepared.evaluate(evaluator, x, depth, scale).map(drop)
        })
    });
    at(&found, level)
}

/// What the reduction of a bootstrap does of a ciphertext at `level`.
pub(in super::super) fn reduction_operations(
    level: usize,
) -> impl Iterator<Item = (Kind, usize, usize)> + use<> {
    let found = remembered((4, 0, 0), || {
        // Of any width: the same coefficients are zero.
        let (cosine, angles) = Bootstrap::reduction(1.0)?;
        count(|evaluator, x| {
            let (mut x, scale) = (x.clone(), evaluator.parameters().scale());
            evaluator.add_constant(&mut x, 0.0)?;
            let level = evaluator.level(&x) - cosine.depth();
            let mut x = cosine.evaluate(evaluator, &x, level, scale)?;
            for _ in 0..angles {
                x = evaluator.square_rescale(&x)?;
                evaluator.add_constant(&mut x, 0.0)?;
            }
            Ok(())
        })
    });
    at(&found, level)
}

fn at(found: &Relative, level: usize) -> impl Iterator<Item = (Kind, usize, usize)> + use<> {
    let own: Counts = found.to_vec();
    own.into_iter().map(move |(kind, below, count)| (kind, level.saturating_sub(below), count))
}

/// What was counted for `key` before, or is now: planning asks for the same gates over and over.
fn remembered(key: (u8, usize, u64), counted: impl FnOnce() -> Result<Counts, Error>) -> Relative {
    static KNOWN: Mutex<BTreeMap<(u8, usize, u64), Relative>> = Mutex::new(BTreeMap::new());
    let known = || KNOWN.lock().unwrap_or_else(PoisonError::into_inner);
    if let Some(found) = known().get(&key) {
        return Arc::clone(found);
    }
    let found: Relative = counted().unwrap_or_default().into();
    let mut known = known();
    // Ranges are any numbers: what is known must not grow without end.
    if known.len() >= KNOWN_MAX {
        known.clear();
    }
    known.insert(key, Arc::clone(&found));
    found
}

/// Runs a circuit of one ciphertext and counts what it does, each by how far below its level.
fn count(
    run: impl FnOnce(&mut Counted<Clear>, &<Clear as Evaluate>::Ciphertext) -> Result<(), Error>,
) -> Result<Counts, Error> {
    static PARAMETERS: OnceLock<Parameters> = OnceLock::new();
    let parameters = match PARAMETERS.get() {
        Some(parameters) => parameters,
        None => {
            let bits = ModulusBits { first: 46, level: 36, special: 46 };
            let spec =
                ParameterSpec::of_bits("counting", COUNTING_DEGREE, bits, COUNTING_LEVELS, 1)?;
            let made = Parameters::new(spec, Platform::detect())?;
            PARAMETERS.get_or_init(|| made)
        }
    };
    let clear = Clear::new(parameters);
    let x = clear.vector(&[0.0], COUNTING_LEVELS, parameters.scale())?;
    let mut counted = Counted::new(clear);
    run(&mut counted, &x)?;
    let own = counted.finish().into_iter();
    Ok(own.map(|own| (own.kind, COUNTING_LEVELS - own.level, own.count)).collect())
}

/// A set with more levels than any gate has.
const COUNTING_DEGREE: usize = 32_768;
const COUNTING_LEVELS: usize = 18;
/// Gates whose operations are remembered.
const KNOWN_MAX: usize = 256;
