//! What private predictions take: both halves in one process, one step after the other.

use std::sync::Arc;
use std::time::Instant;

use hushtable_mpc::{Party, Platform};
use serde::Serialize;

use super::architectures::Architecture;
use super::clock::{Clock, Work};
use super::error::Error;
use super::model::HybridModel;
use super::network::{CompileSpec, compile, encode, reference};
use super::offline::{Next, OfflineClient, OfflineServer, Parallel};
use super::online::{OnlineClient, OnlineServer};
use super::outline::{Outline, Step};
use crate::records::{Memory, Records};

/// Seconds of a thread.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Seconds {
    /// Homomorphic encryption.
    pub he: f64,
    /// Oblivious transfer.
    pub ot: f64,
    /// Garbling.
    pub garble: f64,
    /// Evaluating, and choosing labels.
    pub evaluate: f64,
    /// Shares: linear layers in the clear among them.
    pub shares: f64,
}

/// Bytes that go one way.
#[derive(Clone, Copy, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Traffic {
    /// Encrypted masks and products, and the public key.
    pub he: u64,
    /// Oblivious transfer.
    pub ot: u64,
    /// Garbled circuits.
    pub circuits: u64,
    /// Labels, shares, and the answer.
    pub online: u64,
}

impl Traffic {
    /// All of it.
    pub fn total(&self) -> u64 {
        self.he + self.ot + self.circuits + self.online
    }
}

/// One phase.
#[derive(Clone, Debug, Default, Serialize)]
#[non_exhaustive]
pub struct Phase {
    /// From its begin to its end.
    pub seconds: f64,
    /// The client's.
    pub client: Seconds,
    /// The server's.
    pub server: Seconds,
    /// From the client to the server.
    pub up: Traffic,
    /// From the server to the client.
    pub down: Traffic,
    /// The server's seconds of each convolution's encryption, in order.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub layers: Vec<f64>,
}

/// What a prediction took.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Measured {
    /// What it was.
    pub counts: Counts,
    /// Making the precompute.
    pub offline: Phase,
    /// Using it.
    pub online: Phase,
    /// Whether the answer is the integer reference's, bit for bit.
    pub exact: bool,
    /// The instructions.
    pub isa: &'static str,
}

/// What follows from a network and its plan, without running anything.
#[derive(Clone, Debug, Serialize)]
#[non_exhaustive]
pub struct Counts {
    /// Numbers are held modulo 2^bits.
    pub bits: u32,
    /// Fraction bits.
    pub fraction: u32,
    /// The encryption's parameters.
    pub lattice: String,
    /// The ring's degree.
    pub degree: usize,
    /// Primes that ciphertexts are multiplied modulo.
    pub primes: usize,
    /// Stages.
    pub stages: usize,
    /// Convolutions and fully connected layers.
    pub convolutions: usize,
    /// Numbers that go through garbled circuits.
    pub activations: usize,
    /// Their AND gates.
    pub and_gates: u64,
    /// Their oblivious transfers: bits of the evaluator's.
    pub transfers: u64,
    /// Their garbled circuits' bytes, as the evaluator keeps them.
    pub circuit_bytes: u64,
    /// Multiplications of the linear layers.
    pub products: u64,
    /// What the client keeps of a precompute.
    pub client_bytes: u64,
    /// What the server keeps.
    pub server_bytes: u64,
    /// Encryptions by the client.
    pub uploads: usize,
    /// Ciphertexts that come back.
    pub answers: usize,
    /// Products of a plaintext and a ciphertext.
    pub ciphertext_products: usize,
    /// Plaintexts that are transformed.
    pub transforms: usize,
}

impl Counts {
    /// Of an outline, where this party garbles.
    pub fn of(outline: &Outline, garbler: Party) -> Self {
        let program = outline.program();
        let kept = |party| outline.record_bytes(garbler, party).iter().sum();
        let mut counts = Self {
            bits: program.bits,
            fraction: program.fraction,
            lattice: program.lattice.clone(),
            degree: outline.layers().parameters().degree(),
            primes: outline.layers().parameters().ring().limbs(),
            stages: program.stages.len(),
            convolutions: outline.convolutions().len(),
            activations: program.activations(),
            and_gates: 0,
            transfers: 0,
            circuit_bytes: 0,
            products: 0,
            client_bytes: kept(Party::Client),
            server_bytes: kept(Party::Server),
            uploads: 0,
            answers: 0,
            ciphertext_products: 0,
            transforms: 0,
        };
        for chunk in outline.chunks() {
            if let Some(activation) = outline.activation(chunk.stage) {
                let count = chunk.count() as u64;
                counts.and_gates += count * activation.and_gates() as u64;
                counts.transfers += count * activation.wires() as u64;
                counts.circuit_bytes += outline.table_bytes(chunk) as u64;
            }
        }
        for (at, &(.., own)) in outline.convolutions().iter().enumerate() {
            let out = own.output();
            counts.products += (own.weights() * out.height * out.width) as u64;
            let work = outline.layers().work(at);
            counts.uploads += work.uploads;
            counts.answers += work.answers;
            counts.ciphertext_products += work.products;
            counts.transforms += work.transforms;
        }
        counts
    }
}

/// A built-in network with made-up weights, compiled as by default but for `verify_uploads`
/// ([`CompileSpec::verify_uploads`]).
///
/// # Errors
/// [`Error::Network`] for another size; what [`HybridModel::new`] says.
pub fn model(
    architecture: Architecture,
    size: usize,
    verify_uploads: bool,
    platform: Platform,
) -> Result<(Arc<HybridModel>, u64), Error> {
    let network = architecture.build(size, SEED)?;
    let compiled = compile(&network, &CompileSpec { verify_uploads, ..CompileSpec::default() })?;
    let model = HybridModel::new(compiled.program, compiled.weights, platform)?;
    Ok((Arc::new(model), compiled.input_max))
}

/// Of what weights and inputs are made up.
const SEED: u64 = 1;

/// Makes a precompute, uses it for a made-up input, and compares the answer with the reference's.
///
/// # Errors
/// What either half says.
pub fn measure(model: &Arc<HybridModel>, garbler: Party) -> Result<Measured, Error> {
    let outline = Arc::clone(model.outline());
    let program = outline.program();
    let (client, server): (Arc<dyn Records>, Arc<dyn Records>) =
        (Arc::new(Memory::default()), Arc::new(Memory::default()));
    let input: Vec<f32> = (0..program.input.count())
        .map(|at| (at as u32).wrapping_mul(2_654_435_761) as f32 / u32::MAX as f32 * 2.0 - 1.0)
        .collect();
    let input = encode(program, u64::MAX >> 1, &input)?;
    let (offline, dither) = offline(model, garbler, &client, &server)?;
    let (online, output) = online(model, garbler, client, server, &input)?;
    let expected = reference(program, model.weights(), &input, Some(&dither));
    Ok(Measured {
        counts: Counts::of(&outline, garbler),
        offline,
        online,
        exact: output == expected,
        isa: outline.platform().name(),
    })
}

fn offline(
    model: &Arc<HybridModel>,
    garbler: Party,
    client: &Arc<dyn Records>,
    server: &Arc<dyn Records>,
) -> Result<(Phase, Vec<Vec<u64>>), Error> {
    let outline = Arc::clone(model.outline());
    let mut phase = Phase::default();
    phase.layers.resize(outline.convolutions().len(), 0.0);
    let began = Instant::now();
    let theirs = OfflineServer::new(Arc::clone(model), garbler, Arc::clone(server))?;
    let ours = OfflineClient::new(
        Arc::clone(&outline),
        garbler,
        Parallel::Sequential,
        Arc::clone(client),
    )?;
    while let Next::Step(step) = ours.next() {
        let request = ours.request(step)?;
        let asked = Instant::now();
        let reply = theirs.answer(step, &request)?;
        let answered = asked.elapsed().as_secs_f64();
        ours.accept(step, &reply)?;
        let (up, down) = (request.len() as u64, reply.len() as u64);
        match outline.steps(garbler)[step as usize] {
            Step::Open => {
                phase.up.he += up;
                phase.down.ot += down;
            }
            Step::Upload { convolution, .. } | Step::Unit { convolution, .. } => {
                phase.layers[convolution] += answered;
                phase.up.he += up;
                phase.down.he += down;
            }
            Step::Seed { .. } | Step::Commit { .. } | Step::Prove { .. } => {
                phase.up.he += up;
                phase.down.he += down;
            }
            Step::SetUp | Step::Deal { .. } => {
                phase.up.ot += up;
                phase.down.ot += down;
            }
            // Whoever evaluates chooses its labels: a client does so in the same step.
            Step::Tables { .. } if garbler == Party::Server => {
                phase.up.ot += up;
                phase.down.circuits += down;
            }
            Step::Tables { .. } => {
                phase.up.circuits += up;
                phase.down.circuits += down;
            }
        }
    }
    phase.seconds = began.elapsed().as_secs_f64();
    phase.client = seconds(ours.clock());
    phase.server = seconds(theirs.clock());
    Ok((phase, ours.dither()))
}

fn online(
    model: &Arc<HybridModel>,
    garbler: Party,
    client: Arc<dyn Records>,
    server: Arc<dyn Records>,
    input: &[u64],
) -> Result<(Phase, Vec<u64>), Error> {
    let mut phase = Phase::default();
    let began = Instant::now();
    let outline = Arc::clone(model.outline());
    let mut client = OnlineClient::new(outline, garbler, client, input)?;
    let mut server = OnlineServer::new(Arc::clone(model), garbler, server)?;
    loop {
        while let Some(frame) = client.pull() {
            phase.up.online += frame.len() as u64;
            server.push(&frame)?;
        }
        if let Some(output) = client.output() {
            let output = output.to_vec();
            phase.seconds = began.elapsed().as_secs_f64();
            phase.client = seconds(client.clock());
            phase.server = seconds(server.clock());
            return Ok((phase, output));
        }
        let Some(frame) = server.pull()? else {
            let why = "a frame of either side";
            return Err(Error::Order { what: "the end".to_owned(), why });
        };
        phase.down.online += frame.len() as u64;
        client.push(&frame)?;
    }
}

fn seconds(clock: &Clock) -> Seconds {
    let of = |kind| clock.spent(kind).as_secs_f64();
    Seconds {
        he: of(Work::Encryption),
        ot: of(Work::Transfer),
        garble: of(Work::Garbling),
        evaluate: of(Work::Evaluation),
        shares: of(Work::Shares),
    }
}
