//! What a prediction takes, counted from the program alone: bytes each way, storage, operations.

use hushtable_mpc::Party;
use hushtable_mpc::garble::groups;
use hushtable_mpc::ot::{CORRECTIONS_BYTES, OPENING_BYTES, POINTS_BYTES, correction_bytes};
use hushtable_mpc::share::packed_bytes;
use serde::Serialize;

use super::linear::{COMMITMENT_BYTES, SEED_BYTES};
use super::outline::{Outline, Step};
use super::program::Program;

/// Bytes each way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[allow(clippy::exhaustive_structs, reason = "two counts")]
pub struct Bytes {
    /// From the client to the server.
    pub up: u64,
    /// From the server to the client.
    pub down: u64,
}

impl Bytes {
    /// Both ways.
    pub fn sum(self) -> u64 {
        self.up + self.down
    }
}

impl std::ops::AddAssign for Bytes {
    fn add_assign(&mut self, other: Self) {
        (self.up, self.down) = (self.up + other.up, self.down + other.down);
    }
}

/// Operations that a prediction takes, offline and online together: the least, whoever does them. Over
/// what a machine does of each a second, they are floors under its time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Operations {
    /// AND gates, in all instances.
    pub and_gates: u64,
    /// Blocks of AES to garble: the hash takes two.
    pub garble_blocks: u64,
    /// Blocks of AES to evaluate.
    pub evaluate_blocks: u64,
    /// Correlated transfers: bits of the evaluator's shares.
    pub transfers: u64,
    /// Blocks of AES for them, of each side: 32 trees of 16 leaves give each 512 bits.
    pub transfer_blocks: u64,
    /// Encryptions of masks.
    pub encryptions: u64,
    /// Answers under encryption.
    pub answers: u64,
    /// Products of a plaintext and a ciphertext.
    pub products: u64,
    /// Plaintexts that are transformed.
    pub transforms: u64,
    /// Multiplications modulo primes of 51 bits, of products and transforms.
    pub ring_multiplications: u64,
    /// Products of integers that the server's layers take online.
    pub multiplications: u64,
}

/// What a core does at best.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::exhaustive_structs, reason = "measured by callers")]
pub struct Speeds {
    /// Blocks of AES a second.
    pub aes_blocks: f64,
    /// Multiplications modulo primes of 51 bits a second.
    pub ring_multiplications: f64,
    /// Products of an integer of 32 bits and one of 64, summed, a second.
    pub multiplications: f64,
}

/// Seconds of a core below which no time of these operations can be.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Floors {
    /// Garbling.
    pub garbling: f64,
    /// Evaluating.
    pub evaluation: f64,
    /// Oblivious transfer, both sides.
    pub transfer: f64,
    /// Homomorphic encryption, both sides.
    pub encryption: f64,
    /// The server's layers online.
    pub shares: f64,
}

impl Operations {
    /// The floors under their times.
    pub fn floors(&self, speeds: &Speeds) -> Floors {
        let blocks = |count: u64| count as f64 / speeds.aes_blocks;
        Floors {
            garbling: blocks(self.garble_blocks),
            evaluation: blocks(self.evaluate_blocks),
            transfer: blocks(2 * self.transfer_blocks),
            encryption: self.ring_multiplications as f64 / speeds.ring_multiplications,
            shares: self.multiplications as f64 / speeds.multiplications,
        }
    }
}

/// What a prediction takes, where one party garbles.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Costs {
    /// Offline: keys, ciphertexts and their answers.
    pub encryption: Bytes,
    /// Offline: proofs that uploads are encryptions, where the parameters ask for them.
    pub proofs: Bytes,
    /// Offline: oblivious transfer.
    pub transfer: Bytes,
    /// Offline: garbled circuits.
    pub tables: Bytes,
    /// Online: labels.
    pub labels: Bytes,
    /// Online: shares, of inputs, of what comes between, and of the answer.
    pub shares: Bytes,
    /// Bytes of a precompute that the client keeps.
    pub client_store: u64,
    /// Bytes of a precompute that the server keeps.
    pub server_store: u64,
    /// Messages that wait for another, online.
    pub rounds: u64,
    /// What is computed.
    pub operations: Operations,
}

impl Costs {
    /// Of one prediction. Bytes are those of the protocol's messages, without framing.
    pub fn of(outline: &Outline, garbler: Party) -> Self {
        let (program, layers) = (outline.program(), outline.layers());
        let mut own = Self::default();
        let ups = |bytes: usize| Bytes { up: bytes as u64, down: 0 };
        let downs = |bytes: usize| Bytes { up: 0, down: bytes as u64 };
        // Who evaluates receives labels by transfer; who garbles sends tables, and its labels online.
        let is_server = garbler == Party::Server;
        let from_garbler = |bytes: usize| if is_server { downs(bytes) } else { ups(bytes) };
        let from_evaluator = |bytes: usize| if is_server { ups(bytes) } else { downs(bytes) };
        let labels = |chunk: usize| {
            let chunk = &outline.chunks()[chunk];
            groups(chunk.count())
                * 16
                * outline.activation(chunk.stage).map_or(0, |own| own.wires())
        };
        for step in outline.steps(garbler) {
            match *step {
                Step::Open => {
                    own.encryption += ups(layers.public_key_bytes());
                    own.transfer += from_evaluator(OPENING_BYTES);
                    own.transfer += from_garbler(POINTS_BYTES);
                }
                Step::SetUp => own.transfer += from_evaluator(CORRECTIONS_BYTES),
                Step::Upload { convolution, chunk } => {
                    own.encryption += ups(layers.upload_bytes(convolution, chunk));
                }
                Step::Seed { .. } => own.proofs += downs(SEED_BYTES),
                Step::Commit { .. } => {
                    own.proofs += ups(COMMITMENT_BYTES);
                    own.proofs += downs(SEED_BYTES);
                }
                Step::Prove { batch, .. } => own.proofs += ups(layers.proof_row_bytes(batch)),
                Step::Unit { convolution, unit } => {
                    own.encryption += downs(layers.unit_bytes(convolution, unit));
                }
                Step::Deal { .. } => {}
                Step::Tables { chunk } => {
                    own.transfer += from_evaluator(correction_bytes(labels(chunk)));
                    own.tables += from_garbler(outline.table_bytes(&outline.chunks()[chunk]));
                    own.labels += from_garbler(16 * labels(chunk));
                }
            }
        }
        own.shares += ups(packed_bytes(program.bits, program.input.count()));
        let answers = program.stages.last().map_or(0, |stage| stage.sum.count());
        own.shares += downs(packed_bytes(program.bits, answers));
        for chunk in outline.chunks() {
            let Some(circuit) = outline.activation(chunk.stage) else { continue };
            let count = chunk.count();
            own.shares += match garbler {
                // Results that the client hid.
                Party::Server => ups(packed_bytes(program.bits, count)),
                // By how much the server's shares differ from what it had chosen labels for.
                Party::Client => {
                    downs(packed_bytes(circuit.share_bits() as u32, count * circuit.spec().window))
                }
            };
            let instances = (groups(count) * 16) as u64;
            let [garble, evaluate] = circuit.circuit().hashes().map(|hashes| hashes as u64);
            let found = &mut own.operations;
            found.and_gates += instances * circuit.and_gates() as u64;
            found.garble_blocks += BLOCKS_PER_HASH * instances * garble;
            found.evaluate_blocks += BLOCKS_PER_HASH * instances * evaluate;
            found.transfers += instances * circuit.wires() as u64;
            found.transfer_blocks += BLOCKS_PER_TRANSFER * instances * circuit.wires() as u64;
        }
        let ring = layers.parameters().ring();
        let degree = layers.parameters().degree();
        for (index, &(.., shape)) in outline.convolutions().iter().enumerate() {
            let work = layers.work(index);
            let found = &mut own.operations;
            found.encryptions += work.uploads as u64;
            found.answers += work.answers as u64;
            found.products += work.products as u64;
            found.transforms += work.transforms as u64;
            let output = shape.output();
            let prime = (degree * ring.limbs()) as u64;
            // Both polynomials of a ciphertext; a transform for each upload, two for each answer.
            let transforms = (work.transforms + work.uploads + 2 * work.answers) as u64;
            found.ring_multiplications +=
                prime * (2 * work.products as u64 + transforms * u64::from(degree.ilog2()) / 2);
            found.multiplications += (shape.weights() * output.height * output.width) as u64;
        }
        own.client_store = outline.record_bytes(garbler, Party::Client).iter().sum();
        own.server_store = outline.record_bytes(garbler, Party::Server).iter().sum();
        own.rounds = rounds(program);
        own
    }

    /// All that travels before an input is known.
    pub fn offline(&self) -> Bytes {
        let mut sum = self.encryption;
        sum += self.proofs;
        sum += self.transfer;
        sum += self.tables;
        sum
    }

    /// All that travels once it is.
    pub fn online(&self) -> Bytes {
        let mut sum = self.labels;
        sum += self.shares;
        sum
    }

    /// The best split of a link of `link_mbps` for everything that travels.
    pub fn split(&self, link_mbps: f64) -> Split {
        let mut sum = self.offline();
        sum += self.online();
        Split::of(sum, link_mbps)
    }
}

/// Messages that wait for another: each stage's to the client and back, the input and the answer.
fn rounds(program: &Program) -> u64 {
    let active = program.stages.iter().filter(|stage| stage.activation.is_some());
    2 * active.count() as u64 + 2
}

/// How a link that both directions share is best split between them (Garimella et al., section 5.3,
/// "wireless slot allocation").
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
#[non_exhaustive]
pub struct Split {
    /// Megabits a second from the client.
    pub up_mbps: f64,
    /// Megabits a second to the client.
    pub down_mbps: f64,
    /// What sending everything then takes.
    pub seconds: f64,
    /// What it takes where both directions have half of the link.
    pub even_seconds: f64,
}

impl Split {
    /// The least of T(u) = U / u + D / (B − u), for U bits up and D down in a link of B: at
    /// u = B · √U / (√U + √D), where it is (√U + √D)² / B.
    pub fn of(bytes: Bytes, link_mbps: f64) -> Self {
        let megabits = |bytes: u64| bytes as f64 * 8.0 / 1e6;
        let (up, down) = (megabits(bytes.up), megabits(bytes.down));
        let roots = up.sqrt() + down.sqrt();
        let even_seconds = 2.0 * (up + down) / link_mbps;
        let up_mbps = match roots > 0.0 {
            true => link_mbps * up.sqrt() / roots,
            false => link_mbps / 2.0,
        };
        let seconds = roots * roots / link_mbps;
        Self { up_mbps, down_mbps: link_mbps - up_mbps, seconds, even_seconds }
    }
}

/// The tweakable hash is two calls of fixed-key AES.
const BLOCKS_PER_HASH: u64 = 2;
/// 512 bits.
const BLOCKS_PER_TRANSFER: u64 = 4;
