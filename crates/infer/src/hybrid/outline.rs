//! What follows from a program: its circuits, its packing, the steps of a precompute and their sizes.

use std::ops::Range;
use std::sync::Arc;

use hushtable_mpc::garble::{Activation, ActivationSpec, groups};
use hushtable_mpc::share::packed_bytes;
use hushtable_mpc::{LANES, Party, Platform};

use super::error::Error;
use super::linear::{Layers, ROWS};
use super::program::{Activation as Activated, Convolution, Pool, Program, Rounding};
use super::windows::places;

/// One step of a precompute: the client sends a request, the server a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Step {
    /// Opens the oblivious transfer, and brings the client's public key.
    Open,
    /// Ends the transfer's set-up.
    SetUp,
    /// A piece of a convolution's encrypted masks.
    Upload {
        /// Which of [`Program::convolutions`].
        convolution: usize,
        /// Which piece.
        chunk: usize,
    },
    /// Once a batch of convolutions is uploaded ([`Layers::batches`]): coins for the proof that uploads are encryptions.
    Seed {
        /// Which batch.
        batch: usize,
    },
    /// What the client commits to for them, for more coins.
    Commit {
        /// Which batch.
        batch: usize,
    },
    /// What it answers to those.
    Prove {
        /// Which batch.
        batch: usize,
        /// Which row of the proof.
        row: usize,
    },
    /// A piece of a convolution on them.
    Unit {
        /// Which convolution.
        convolution: usize,
        /// Which piece.
        unit: usize,
    },
    /// Where the client garbles: what the server chooses its labels by, for one chunk.
    Deal {
        /// Which of [`Outline::chunks`].
        chunk: usize,
    },
    /// One chunk's garbled circuits; with what the client chooses its labels by, where the server garbles.
    Tables {
        /// Which chunk.
        chunk: usize,
    },
}

/// Some of a stage's activations: whole groups of lanes, but at the stage's end.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Chunk {
    /// Which stage.
    pub stage: usize,
    /// Which of the stage's results.
    pub range: Range<usize>,
    /// The number of its first instance among all of the precompute.
    pub first_instance: u64,
}

impl Chunk {
    /// Results in it.
    pub fn count(&self) -> usize {
        self.range.len()
    }
}

/// A program with what follows from it. Clients know all of it.
pub struct Outline {
    program: Program,
    platform: Platform,
    layers: Arc<Layers>,
    /// Stage, term, source and sizes of each convolution.
    convolutions: Vec<(usize, usize, usize, Convolution)>,
    /// Of each stage that has one.
    activations: Vec<Option<Activation>>,
    chunks: Vec<Chunk>,
    /// Chunks of each stage.
    chunks_of: Vec<Range<usize>>,
    /// The steps where the client garbles, and where the server does.
    steps: [Vec<Step>; 2],
}

impl Outline {
    /// What follows from a program that was checked.
    ///
    /// # Errors
    /// [`Error::Linear`] for a convolution or parameters that cannot be, [`Error::Garble`].
    pub fn new(program: Program, platform: Platform) -> Result<Self, Error> {
        let convolutions: Vec<_> = program.convolutions().collect();
        let shapes: Vec<_> = convolutions.iter().map(|&(.., shape)| shape).collect();
        let layers = Arc::new(Layers::new(&program.lattice, program.bits, &shapes, platform)?);
        let mut activations = Vec::with_capacity(program.stages.len());
        let (mut chunks, mut chunks_of) = (Vec::new(), Vec::new());
        let mut first_instance = 0;
        for (stage, own) in program.stages.iter().enumerate() {
            let first = chunks.len();
            let activation = own.activation.map(|found| {
                Activation::new(ActivationSpec {
                    bits: program.bits,
                    dropped: match program.rounding {
                        Rounding::Stochastic => found.shift,
                        Rounding::Nearest => 0,
                    },
                    shift: found.shift,
                    window: found.window[0] * found.window[1],
                    rectify: found.rectify,
                    most: found.most,
                })
            });
            let activation = activation.transpose()?;
            if let Some(activation) = &activation {
                let step = chunk_count(activation);
                let count = own.output().count();
                for from in (0..count).step_by(step) {
                    let range = from..count.min(from + step);
                    let instances = (groups(range.len()) * LANES) as u64;
                    chunks.push(Chunk { stage, range, first_instance });
                    first_instance += instances;
                }
            }
            activations.push(activation);
            chunks_of.push(first..chunks.len());
        }
        let mut outline = Self {
            program,
            platform,
            layers,
            convolutions,
            activations,
            chunks,
            chunks_of,
            steps: Default::default(),
        };
        outline.steps = [Party::Client, Party::Server].map(|garbler| outline.schedule(garbler));
        Ok(outline)
    }

    /// Stage after stage, so that a stage's circuits are made while the next ones' layers are computed; where uploads are
    /// proven, batch after batch of them.
    fn schedule(&self, garbler: Party) -> Vec<Step> {
        let mut steps = vec![Step::Open, Step::SetUp];
        let stages = self.program.stages.len();
        // Stages whose circuits are among the steps.
        let mut circuits = 0;
        let mut make = |steps: &mut Vec<Step>, before: usize| {
            for stage in circuits..before {
                for chunk in self.chunks_of[stage].clone() {
                    if garbler == Party::Client {
                        steps.push(Step::Deal { chunk });
                    }
                    steps.push(Step::Tables { chunk });
                }
            }
            circuits = circuits.max(before);
        };
        let is_whole = |end: usize, stage: &usize| self.convolutions_of(*stage).end <= end;
        for (proof, batch) in self.batches() {
            for convolution in batch.clone() {
                if garbler == Party::Client {
                    // Circuits give the masks of what is uploaded next.
                    make(&mut steps, self.convolutions[convolution].0);
                }
                let uploads = self.layers.uploads(convolution);
                steps.extend((0..uploads).map(|chunk| Step::Upload { convolution, chunk }));
            }
            if let Some(batch) = proof {
                steps.extend([Step::Seed { batch }, Step::Commit { batch }]);
                steps.extend((0..ROWS).map(|row| Step::Prove { batch, row }));
            }
            for convolution in batch.clone() {
                let units = self.layers.units(convolution);
                steps.extend((0..units).map(|unit| Step::Unit { convolution, unit }));
            }
            if garbler == Party::Server {
                let whole = (0..stages).take_while(|stage| is_whole(batch.end, stage));
                make(&mut steps, whole.count());
            }
        }
        make(&mut steps, stages);
        steps
    }

    /// The convolutions that are uploaded before any of them is computed on, with the number of their proof where they
    /// have one.
    fn batches(&self) -> Vec<(Option<usize>, Range<usize>)> {
        let proven = self.layers.batches();
        if !proven.is_empty() {
            return (0..).map(Some).zip(proven.iter().cloned()).collect();
        }
        let stages = (0..self.program.stages.len()).map(|stage| self.convolutions_of(stage));
        stages.filter(|batch| !batch.is_empty()).map(|batch| (None, batch)).collect()
    }

    /// The program.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The instructions in use.
    pub fn platform(&self) -> Platform {
        self.platform
    }

    /// How convolutions are packed.
    pub fn layers(&self) -> &Arc<Layers> {
        &self.layers
    }

    /// Stage, term, source and sizes of each convolution.
    pub fn convolutions(&self) -> &[(usize, usize, usize, Convolution)] {
        &self.convolutions
    }

    /// The convolutions of a stage.
    pub fn convolutions_of(&self, stage: usize) -> Range<usize> {
        let first = self.convolutions.partition_point(|&(own, ..)| own < stage);
        first..self.convolutions.partition_point(|&(own, ..)| own <= stage)
    }

    /// A stage's circuit.
    pub fn activation(&self, stage: usize) -> Option<&Activation> {
        self.activations[stage].as_ref()
    }

    /// The circuit of a chunk's stage.
    pub(super) fn circuit(&self, chunk: &Chunk) -> &Activation {
        self.activations[chunk.stage].as_ref().expect("only stages with a circuit have chunks")
    }

    /// All chunks, stage by stage.
    pub fn chunks(&self) -> &[Chunk] {
        &self.chunks
    }

    /// The chunks of a stage.
    pub fn chunks_of(&self, stage: usize) -> Range<usize> {
        self.chunks_of[stage].clone()
    }

    /// The steps of a precompute, in the order in which they are best begun.
    pub fn steps(&self, garbler: Party) -> &[Step] {
        match garbler {
            Party::Client => &self.steps[0],
            Party::Server => &self.steps[1],
        }
    }

    /// Labels of one party for a chunk.
    pub(super) fn labels(&self, chunk: &Chunk) -> usize {
        groups(chunk.count()) * self.circuit(chunk).wires() * LANES
    }

    /// Bytes of a chunk's tables.
    pub fn table_bytes(&self, chunk: &Chunk) -> usize {
        groups(chunk.count()) * LANES * self.circuit(chunk).table_bytes()
    }

    /// The indices in its stage's sum of a chunk's shares: for each result, its window's, row by row.
    pub(super) fn gather(&self, chunk: &Chunk) -> impl Iterator<Item = usize> + use<> {
        let stage = &self.program.stages[chunk.stage];
        let pool = stage.activation.map_or(Pool::NONE, Activated::pool);
        let sum = stage.sum;
        chunk.range.clone().flat_map(move |index| places(sum, pool, index))
    }

    /// Bytes of each record that a party keeps of a precompute.
    pub fn record_bytes(&self, garbler: Party, party: Party) -> Vec<u64> {
        let packed = |count: usize, bits: u32| packed_bytes(bits, count) as u64;
        let bits = self.program.bits;
        let answer = self.program.stages.last().map_or(0, |stage| stage.sum.count());
        let mut records = vec![meta_bytes(garbler, party) as u64];
        if party == Party::Client {
            records.push(packed(answer, bits));
        }
        for chunk in &self.chunks {
            let activation = self.circuit(chunk);
            let shares = chunk.count() * activation.spec().window;
            if party == garbler {
                records.push(packed(chunk.count(), bits));
                if party == Party::Client {
                    records.push(packed(shares, activation.share_bits() as u32));
                }
            } else {
                records.push(self.table_bytes(chunk) as u64);
            }
        }
        records
    }
}

/// Results of one chunk: as many as make its largest message about 1 MiB.
fn chunk_count(activation: &Activation) -> usize {
    let each = activation.table_bytes().max(16 * activation.wires());
    (CHUNK_BYTES / (each * LANES)).max(1) * LANES
}

/// The most bytes of a message, unless one group of lanes has more.
pub const CHUNK_BYTES: usize = 1_000_000;

/// Bytes of the first record: the seed, then the evaluator's transfer.
pub(super) fn meta_bytes(garbler: Party, party: Party) -> usize {
    match party == garbler {
        true => 32,
        false => 32 + hushtable_mpc::ot::CotReceiver::BYTES,
    }
}
