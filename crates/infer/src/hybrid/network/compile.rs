//! From a network to what both parties run.

use hushtable_rlwe::ring::Platform;
use hushtable_table::Version;

use super::error::Error;
use super::graph::{Network, Post, sizes};
use super::lower::{Lowered, lower};
use super::quantise::{quantise, sum_fraction};
use super::ranges::{Range, Ranges, made_up, needed};
use crate::hybrid::check::{FRACTION_MAX, NAME_BYTES_MAX};
use crate::hybrid::linear;
use crate::hybrid::program::{Program, Rounding, Weights};
use crate::hybrid::terms::Terms;

/// How a network is to be compiled.
#[derive(Clone, Debug)]
#[allow(clippy::exhaustive_structs, reason = "written field by field")]
pub struct CompileSpec {
    /// Fraction bits of tensors and weights.
    pub fraction: u32,
    /// Bits that numbers are held with, 16 to 64; the least that suffice where there is none.
    pub bits: Option<u32>,
    /// How fraction bits are dropped.
    pub rounding: Rounding,
    /// Inputs as the network is to be used with: their ranges count, with one bit of margin. Where there
    /// are none, inputs are made up, with two.
    pub samples: Vec<Vec<f32>>,
    /// Between what made-up inputs lie; what the network says, or −4 to 4, where there is none.
    pub range: Option<[f32; 2]>,
    /// The encryption's parameters; chosen by the weights where there are none.
    pub lattice: Option<String>,
    /// Whether those that are chosen make clients prove that their uploads are encryptions.
    pub verify_uploads: bool,
}

impl Default for CompileSpec {
    fn default() -> Self {
        let (fraction, rounding) = (12, Rounding::Stochastic);
        Self {
            fraction,
            bits: None,
            rounding,
            samples: Vec::new(),
            range: None,
            lattice: None,
            verify_uploads: false,
        }
    }
}

/// A compiled network.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub struct Compiled {
    /// What both parties know.
    pub program: Program,
    /// What only the server knows.
    pub weights: Weights,
    /// How large numbers become.
    pub ranges: Ranges,
    /// The largest absolute value of an input, times 2^fraction.
    pub input_max: u64,
    /// What the client does to the answer, in order.
    pub post: Vec<Post>,
    /// What was changed on the way, for people.
    pub notes: Vec<String>,
}

/// Compiles a network.
///
/// # Errors
/// [`Error::Range`] for numbers that need more bits than there are, and says how many; [`Error::Spec`],
/// [`Error::Input`] for samples of another shape; [`Error::Unsupported`], [`Error::Weight`],
/// [`Error::Linear`].
pub fn compile(network: &Network, spec: &CompileSpec) -> Result<Compiled, Error> {
    let fraction = spec.fraction;
    if !(1..=FRACTION_MAX).contains(&fraction) {
        let (value, why) = (fraction.to_string(), format!("possible are 1 to {FRACTION_MAX}"));
        return Err(Error::Spec { field: "fraction", value, why });
    }
    if let Some(bits) = spec.bits.filter(|bits| !(16..=64).contains(bits)) {
        let (value, why) = (bits.to_string(), "possible are 16 to 64".into());
        return Err(Error::Spec { field: "bits", value, why });
    }
    let lowered = lower(network)?;
    let ranges = measure(network, &lowered, spec)?;
    let own = |range: &&Range| range.needed;
    let widest = ranges.stages.iter().max_by_key(own).expect("a network has a stage");
    let bits = spec.bits.unwrap_or(widest.needed.max(16));
    if widest.needed > bits || bits > 64 {
        return Err(Error::Range {
            stage: widest.stage.clone(),
            largest: widest.largest,
            margin: ranges.margin,
            fraction: widest.fraction,
            needed: widest.needed,
            bits: bits.min(64),
        });
    }
    let (mut program, weights) = quantise(&lowered, bits, fraction, spec.rounding)?;
    program.check()?;
    program.lattice = match &spec.lattice {
        Some(lattice) if spec.verify_uploads && !linear::is_verified(lattice) => {
            let why = "its uploads are not proven, and verify_uploads asks for it".into();
            return Err(Error::Spec { field: "lattice", value: lattice.clone(), why });
        }
        Some(lattice) => lattice.clone(),
        None => choose_lattice(&program, &weights, spec.verify_uploads)?,
    };
    program.check()?;
    let largest = ranges.input * (2.0_f64).powi((ranges.margin + fraction) as i32);
    let input_max = (largest.ceil() as u64).clamp(1, program.mask() >> 1);
    let Lowered { post, notes, .. } = lowered;
    // What no client takes is refused before anything is written: with the longest name, too.
    let name = "n".repeat(NAME_BYTES_MAX);
    Terms::new(&name, Version::from([0; 32]), program.clone(), post.clone(), input_max)?;
    Ok(Compiled { program, weights, ranges, input_max, post, notes })
}

/// The fastest parameters that hide the weights' noise.
fn choose_lattice(
    program: &Program,
    weights: &Weights,
    is_verified: bool,
) -> Result<String, Error> {
    let shapes = program.convolutions().map(|(.., shape)| shape);
    let parts: Vec<_> = shapes.zip(weights.convolutions.iter().map(Vec::as_slice)).collect();
    let found = linear::choose(program.bits, &parts, is_verified, Platform::detect());
    let name = found.map_err(|source| {
        let index = match source {
            linear::Error::Shape { convolution, .. }
            | linear::Error::Kernel { convolution, .. }
            | linear::Error::Noise { convolution, .. } => Some(convolution),
            _ => None,
        };
        let own = index.and_then(|index| program.convolutions().nth(index));
        let place = match own {
            Some((stage, ..)) => format!("stage {:?}", program.stages[stage].name),
            None => "the network".into(),
        };
        Error::Linear { place, source: Box::new(source) }
    })?;
    Ok(name.to_owned())
}

fn measure(network: &Network, lowered: &Lowered, spec: &CompileSpec) -> Result<Ranges, Error> {
    let shape = network.input();
    if let Some(other) = spec.samples.iter().find(|sample| sample.len() != shape.count()) {
        let (expected, found) = (shape.count(), other.len());
        return Err(Error::Input { expected, found, shape: sizes(shape) });
    }
    if spec.samples.iter().flatten().any(|value| !value.is_finite()) {
        let why = "a sample has a number that is none".into();
        return Err(Error::Spec { field: "samples", value: "NaN or infinity".into(), why });
    }
    let range = spec.range.or(network.range()).unwrap_or([-4.0, 4.0]);
    if !range.iter().all(|end| end.is_finite()) || range[0] >= range[1] {
        let why = "expected two numbers, the lower one first".into();
        return Err(Error::Spec { field: "range", value: format!("{range:?}"), why });
    }
    let is_random = spec.samples.is_empty();
    let (made, margin) = match is_random {
        true => (made_up(shape, range), 2),
        false => (Vec::new(), 1),
    };
    let samples = if is_random { &made } else { &spec.samples };
    let mut largest = vec![0.0; lowered.stages.len()];
    let mut input = 0.0_f64;
    for sample in samples {
        input = hushtable_rlwe::largest(sample.iter().map(|&x| f64::from(x)).chain([input]));
        let _ = lowered.run(sample, &mut largest);
    }
    let fraction = spec.fraction;
    let mut stages: Vec<Range> = Vec::new();
    for (stage, largest) in lowered.stages.iter().zip(largest) {
        if !largest.is_finite() {
            let why = format!("stage {:?} reaches infinity", stage.name);
            return Err(Error::Spec {
                field: "samples",
                value: format!("{} inputs", samples.len()),
                why,
            });
        }
        let own = sum_fraction(stage, fraction);
        let needed = needed(largest, own, margin);
        stages.push(Range { stage: stage.name.clone(), largest, fraction: own, needed });
    }
    let held = needed(input, fraction, margin);
    if let Some(first) = stages.first_mut() {
        // The input is held in the same bits.
        first.needed = first.needed.max(held);
    }
    Ok(Ranges { samples: samples.len(), is_random, margin, input, stages })
}
