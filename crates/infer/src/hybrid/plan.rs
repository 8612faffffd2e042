//! A compiled network as a model bundle keeps it: all but the weights, which are made again from it.

use std::fmt::Write as _;

use hushtable_table::Version;
use hushtable_table::model::Model;
use serde::{Deserialize, Serialize};

use super::network::{Compiled, Error, Network, Post, Ranges, lower, quantise};
use super::program::{Program, Weights};
use super::terms::Terms;

/// The scheme that such plans are written for, which their files' names end with.
pub const SCHEME: &str = "hybrid";
/// The most bytes of a plan.
pub const PLAN_BYTES_MAX: usize = 16 << 20;

/// A compiled network without its weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
#[non_exhaustive]
pub struct Plan {
    /// 1.
    pub format: u32,
    /// What both parties know.
    pub program: Program,
    /// What the client does to the answer, in order.
    pub post: Vec<Post>,
    /// The largest absolute value of an input, times 2^fraction.
    pub input_max: u64,
    /// BLAKE3 of the integers that weights become.
    pub weights: Version,
    /// How large numbers become.
    pub ranges: Ranges,
    /// What was changed on the way, for people.
    pub notes: Vec<String>,
}

impl Plan {
    /// The plan of a compiled network.
    pub fn of(compiled: &Compiled) -> Self {
        Self {
            format: FORMAT,
            program: compiled.program.clone(),
            post: compiled.post.clone(),
            input_max: compiled.input_max,
            weights: hash(&compiled.weights),
            ranges: compiled.ranges.clone(),
            notes: compiled.notes.clone(),
        }
    }

    /// Reads a plan.
    ///
    /// # Errors
    /// [`Error::Refused`], [`Error::Program`].
    pub fn parse(json: &str) -> Result<Self, Error> {
        let refuse = |why: String| Error::Refused { what: "plan", why };
        if json.len() > PLAN_BYTES_MAX {
            return Err(refuse(format!("{} bytes, at most {PLAN_BYTES_MAX}", json.len())));
        }
        let plan: Self = serde_json::from_str(json).map_err(|error| refuse(error.to_string()))?;
        if plan.format != FORMAT {
            return Err(refuse(format!("format {}, this build reads {FORMAT}", plan.format)));
        }
        plan.program.check()?;
        Ok(plan)
    }

    /// Reads a plan of a model bundle.
    ///
    /// # Errors
    /// [`Error::Bundle`] for a plan that is not there, or of another version of the model;
    /// [`Error::Refused`] for one of another scheme; as [`parse`](Self::parse).
    pub fn read(model: &Model, name: &str) -> Result<Self, Error> {
        let found = model.plan(name)?;
        if found.scheme != SCHEME {
            let why = format!("plan {name:?} is of scheme {:?}, expected {SCHEME:?}", found.scheme);
            return Err(Error::Refused { what: "plan", why });
        }
        Self::parse(&found.json)
    }

    /// Writes this plan into a model bundle.
    ///
    /// # Errors
    /// [`Error::Bundle`].
    pub fn write(&self, model: &Model, name: &str) -> Result<(), Error> {
        model.write_plan(name, SCHEME, &self.to_json())?;
        Ok(())
    }

    /// The plan as JSON.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).unwrap_or_default()
    }

    /// The weights, made again from the network.
    ///
    /// # Errors
    /// [`Error::OtherNetwork`] where they, or the stages, are not those that the plan was made with;
    /// [`Error::Unsupported`], [`Error::Weight`].
    pub fn weights(&self, network: &Network) -> Result<Weights, Error> {
        let lowered = lower(network)?;
        let own = &self.program;
        let (mut program, weights) = quantise(&lowered, own.bits, own.fraction, own.rounding)?;
        program.lattice.clone_from(&own.lattice);
        let why = match () {
            () if program != *own => "its stages are others",
            () if lowered.post != self.post => "it ends in another way",
            () if hash(&weights) != self.weights => "its weights are others",
            () => return Ok(weights),
        };
        Err(Error::OtherNetwork { why: why.into() })
    }

    /// What clients are told: of a model of this name and version.
    ///
    /// # Errors
    /// [`Error::Refused`] for a name that cannot be printed, [`Error::Program`].
    pub fn terms(&self, model: &str, version: &Version) -> Result<Terms, Error> {
        // Whoever changes the weights, or how they are quantised, makes another plan: what is kept for
        // one must never be used with the other.
        let mut hasher = blake3::Hasher::new_derive_key("hushtable hybrid model and weights");
        hasher.update(version.as_bytes()).update(self.weights.as_bytes());
        let version = Version::from(*hasher.finalize().as_bytes());
        Terms::new(model, version, self.program.clone(), self.post.clone(), self.input_max)
    }

    /// What the plan holds, for people: stages, their sizes and ranges.
    pub fn describe(&self) -> String {
        let own = &self.program;
        let mut text = String::new();
        let _ = writeln!(
            text,
            "{} bits, {} of them fraction, {:?} rounding; {} stages, {} ReLUs, {} circuits",
            own.bits,
            own.fraction,
            own.rounding,
            own.stages.len(),
            own.relus(),
            own.activations()
        );
        for (stage, range) in own.stages.iter().zip(&self.ranges.stages) {
            let shape = stage.sum;
            let _ = writeln!(
                text,
                "{:<32} {:>5} × {:>3} × {:>3}  |y| ≤ {:<12.4} {} bits",
                stage.name, shape.channels, shape.height, shape.width, range.largest, range.needed
            );
        }
        for note in &self.notes {
            let _ = writeln!(text, "note: {note}");
        }
        text
    }
}

/// BLAKE3 of all integers, with how many there are of each kind.
fn hash(weights: &Weights) -> Version {
    let mut hasher = blake3::Hasher::new_derive_key("hushtable hybrid weights");
    let mut bytes = Vec::new();
    for own in &weights.convolutions {
        bytes.clear();
        bytes.extend((own.len() as u64).to_le_bytes());
        bytes.extend(own.iter().flat_map(|weight| weight.to_le_bytes()));
        hasher.update(&bytes);
    }
    for own in &weights.biases {
        bytes.clear();
        bytes.extend((own.len() as u64).to_le_bytes());
        bytes.extend(own.iter().flat_map(|bias| bias.to_le_bytes()));
        hasher.update(&bytes);
    }
    Version::from(*hasher.finalize().as_bytes())
}

const FORMAT: u32 = 1;
