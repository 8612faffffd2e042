//! The client's half of the offline phase.

use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use hushtable_mpc::garble::{garble, labels};
use hushtable_mpc::ot::{CotReceiver, CotSender, ReceiverSetup, SenderSetup};
use hushtable_mpc::share::pack;
use hushtable_mpc::{Party, Secret, fill_random};

use super::super::clock::{Clock, Work};
use super::super::error::Error;
use super::super::linear::{self, LinearClient, ROWS, SEED_BYTES};
use super::super::outline::{Outline, Step};
use super::super::program::Term;
use super::super::seeds::{self, Seed, Use};
use super::super::windows::add_share;
use crate::records::Records;

/// How many steps are under way at once.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Parallel {
    /// All layers at once: a step may begin as soon as what it needs is there (Garimella et al., section
    /// 5.2: "layer-parallel HE").
    #[default]
    Layers,
    /// One step after the other.
    Sequential,
}

/// What a driver does next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "drivers handle each")]
pub enum Next {
    /// Make this step: [`OfflineClient::request`], send, [`OfflineClient::accept`].
    Step(u32),
    /// Every step that may begin is under way.
    Wait,
    /// All steps are done.
    Done,
}

/// The client's half of one precompute.
pub struct OfflineClient {
    outline: Arc<Outline>,
    garbler: Party,
    parallel: Parallel,
    records: Arc<dyn Records>,
    seed: Seed,
    linear: LinearClient,
    state: Mutex<State>,
    receiver: OnceLock<CotReceiver>,
    sender: OnceLock<CotSender>,
    /// Of each convolution, what it gives the client.
    products: Vec<Mutex<Vec<u64>>>,
    clock: Clock,
}

struct State {
    steps: Vec<Progress>,
    /// The first step that was not begun.
    cursor: usize,
    /// Steps under way.
    begun: usize,
    /// Where the client garbles, the server's first reply.
    opening: Option<Vec<u8>>,
    /// What the set-up's second step sends.
    second: Option<Arc<Vec<u8>>>,
    /// Steps that each convolution's pieces wait for, uploads and units, and those that each stage's and
    /// each tensor's wait for.
    uploads_left: Vec<usize>,
    /// Of each batch that is to be proven, the server's seeds, and rows that are not proven.
    proofs: Vec<ProofState>,
    units_left: Vec<usize>,
    convolutions_left: Vec<usize>,
    deals_left: Vec<usize>,
    /// Of each tensor, the client's masks.
    masks: Vec<Option<Arc<Vec<u64>>>>,
    /// Of each stage, the client's share of its sum, once it is whole.
    sums: Vec<Option<Arc<Vec<u64>>>>,
    /// Where the client garbles: masks as chunks bring them; a chunk's tables until they are sent.
    gathered: Vec<Vec<u64>>,
    tables: Vec<Option<Arc<Vec<u8>>>>,
}

#[derive(Clone)]
struct ProofState {
    seeds: [Option<Vec<u8>>; 2],
    rows_left: usize,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    Waiting,
    Begun,
    Done,
}

impl OfflineClient {
    /// A precompute with randomness from the operating system.
    ///
    /// # Errors
    /// [`Error::Entropy`], [`Error::Linear`].
    pub fn new(
        outline: Arc<Outline>,
        garbler: Party,
        parallel: Parallel,
        records: Arc<dyn Records>,
    ) -> Result<Self, Error> {
        let mut seed = Secret::new([0; 32]);
        fill_random(seed.expose_mut())?;
        Self::of_seed(outline, garbler, parallel, records, seed)
    }

    /// The precompute that a seed gives, for known answers.
    ///
    /// # Errors
    /// [`Error::Linear`].
    #[doc(hidden)]
    pub fn of_seed(
        outline: Arc<Outline>,
        garbler: Party,
        parallel: Parallel,
        records: Arc<dyn Records>,
        seed: Seed,
    ) -> Result<Self, Error> {
        let program = outline.program();
        let layers = outline.layers();
        let linear = LinearClient::new(Arc::clone(layers), &seeds::derive(&seed, Use::Encryption))?;
        let stages = program.stages.len();
        let known = |tensor: usize| garbler == Party::Server || tensor == 0;
        let masks = (0..stages).map(|tensor| {
            let count = program.tensor(tensor).count();
            let draw = || seeds::numbers(&seed, Use::Masks, tensor, count, program.bits);
            known(tensor).then(|| Arc::new(draw()))
        });
        let masks = masks.collect();
        let convolutions = outline.convolutions();
        let state = State {
            steps: vec![Progress::Waiting; outline.steps(garbler).len()],
            cursor: 0,
            begun: 0,
            opening: None,
            second: None,
            uploads_left: (0..convolutions.len()).map(|index| layers.uploads(index)).collect(),
            proofs: vec![
                ProofState { seeds: [None, None], rows_left: ROWS };
                layers.batches().len()
            ],
            units_left: (0..convolutions.len()).map(|index| layers.units(index)).collect(),
            convolutions_left: (0..stages)
                .map(|stage| outline.convolutions_of(stage).len())
                .collect(),
            deals_left: (0..stages).map(|stage| outline.chunks_of(stage).len()).collect(),
            masks,
            sums: vec![None; stages],
            gathered: vec![Vec::new(); stages],
            tables: vec![None; outline.chunks().len()],
        };
        let products = convolutions
            .iter()
            .map(|(.., shape)| Mutex::new(vec![0; shape.output().count()]))
            .collect();
        let (receiver, sender) = (OnceLock::new(), OnceLock::new());
        let (state, clock) = (Mutex::new(state), Clock::default());
        let found = Self {
            outline,
            garbler,
            parallel,
            records,
            seed,
            linear,
            state,
            receiver,
            sender,
            products,
            clock,
        };
        // Stages without a convolution wait for their sources alone.
        found.finish_sums()?;
        Ok(found)
    }

    /// How many steps there are.
    pub fn steps(&self) -> u32 {
        self.outline.steps(self.garbler).len() as u32
    }

    /// Steps that are done.
    pub fn done(&self) -> u32 {
        self.state().steps.iter().filter(|step| **step == Progress::Done).count() as u32
    }

    /// What to do next; a step that is given counts as begun.
    pub fn next(&self) -> Next {
        let mut state = self.state();
        let steps = self.outline.steps(self.garbler);
        while state.steps.get(state.cursor).is_some_and(|step| *step != Progress::Waiting) {
            state.cursor += 1;
        }
        if self.parallel == Parallel::Sequential && state.begun > 0 {
            return Next::Wait;
        }
        let ready = (state.cursor..steps.len()).take(AHEAD).find(|&step| {
            state.steps[step] == Progress::Waiting && self.is_ready(&state, steps[step])
        });
        match ready {
            Some(step) => {
                state.steps[step] = Progress::Begun;
                state.begun += 1;
                Next::Step(step as u32)
            }
            None if state.begun == 0 && state.cursor == steps.len() => Next::Done,
            None => Next::Wait,
        }
    }

    /// Gives a step back that was begun and did not come to its end.
    pub fn abandon(&self, step: u32) {
        let mut state = self.state();
        if state.steps.get(step as usize) == Some(&Progress::Begun) {
            state.steps[step as usize] = Progress::Waiting;
            state.begun -= 1;
            state.cursor = state.cursor.min(step as usize);
        }
    }

    fn is_ready(&self, state: &State, step: Step) -> bool {
        match step {
            Step::Open => true,
            Step::SetUp => state.second.is_some(),
            Step::Upload { convolution, .. } => {
                let (_, _, source, _) = self.outline.convolutions()[convolution];
                state.steps[1] == Progress::Done && state.masks[source].is_some()
            }
            Step::Seed { batch } => {
                let mut own = self.outline.layers().batches()[batch].clone();
                state.proofs[..batch].iter().all(|earlier| earlier.rows_left == 0)
                    && own.all(|convolution| state.uploads_left[convolution] == 0)
            }
            Step::Commit { batch } => state.proofs[batch].seeds[0].is_some(),
            Step::Prove { batch, .. } => state.proofs[batch].seeds[1].is_some(),
            Step::Unit { convolution, .. } => match self.outline.layers().batch_of(convolution) {
                None => state.uploads_left[convolution] == 0,
                Some(batch) => state.proofs[batch].rows_left == 0,
            },
            Step::Deal { .. } => state.steps[1] == Progress::Done,
            Step::Tables { chunk } => match self.garbler {
                Party::Server => {
                    let stage = self.outline.chunks()[chunk].stage;
                    state.steps[1] == Progress::Done && state.sums[stage].is_some()
                }
                Party::Client => state.tables[chunk].is_some(),
            },
        }
    }

    fn step(&self, step: u32) -> Result<Step, Error> {
        let steps = self.outline.steps(self.garbler);
        let missing = Error::NoStep { step, steps: steps.len() as u32 };
        steps.get(step as usize).copied().ok_or(missing)
    }

    /// A step's bytes for the server. Computes for up to some milliseconds, and a third of one for each upload of a batch
    /// that is proven.
    ///
    /// # Errors
    /// [`Error::NoStep`], [`Error::Order`] for a step that [`next`](Self::next) has not given; what its
    /// part says.
    pub fn request(&self, step: u32) -> Result<Vec<u8>, Error> {
        let order = |why| Error::Order { what: format!("step {step}"), why };
        match self.step(step)? {
            Step::Open => {
                let mut bytes = self.linear.public_key();
                if self.garbler == Party::Server {
                    let seed = seeds::derive(&self.seed, Use::Transfer);
                    bytes.extend(ReceiverSetup::new(&seed).1);
                }
                Ok(bytes)
            }
            Step::SetUp => {
                let second = self.state().second.clone();
                second.map(|bytes| bytes.to_vec()).ok_or_else(|| order("the first step"))
            }
            Step::Upload { convolution, chunk } => {
                let (_, _, source, _) = self.outline.convolutions()[convolution];
                let masks = self.state().masks[source].clone();
                let masks = masks.ok_or_else(|| order("its tensor's masks"))?;
                Ok(self
                    .clock
                    .time(Work::Encryption, || self.linear.upload(convolution, chunk, &masks))?)
            }
            Step::Commit { batch } => {
                let seed = self.state().proofs[batch].seeds[0].clone();
                let seed = seed.ok_or_else(|| order("the proof's seed"))?;
                let tensor = |convolution: usize| {
                    let (_, _, source, _) = self.outline.convolutions()[convolution];
                    let missing =
                        linear::Error::ProofOrder { batch, missing: "its tensor's masks" };
                    self.state().masks[source].clone().ok_or(missing)
                };
                let linear = &self.linear;
                Ok(self.clock.time(Work::Encryption, || linear.commit(batch, &seed, tensor))?)
            }
            Step::Prove { batch, row } => {
                let seed = self.state().proofs[batch].seeds[1].clone();
                let seed = seed.ok_or_else(|| order("the proof's challenge"))?;
                let linear = &self.linear;
                Ok(self.clock.time(Work::Encryption, || linear.prove(batch, &seed, row))?)
            }
            Step::Seed { .. } | Step::Unit { .. } | Step::Deal { .. } => Ok(Vec::new()),
            Step::Tables { chunk } if self.garbler == Party::Client => {
                let tables = self.state().tables[chunk].clone();
                tables.map(|bytes| bytes.to_vec()).ok_or_else(|| order("the chunk's deal"))
            }
            Step::Tables { chunk } => {
                let chunk = &self.outline.chunks()[chunk];
                let sums = self.state().sums[chunk.stage].clone();
                let sums = sums.ok_or_else(|| order("its stage's layers"))?;
                let receiver = self.receiver.get().ok_or_else(|| order("the set-up"))?;
                let circuit = self.outline.circuit(chunk);
                let shares: Vec<_> = self.outline.gather(chunk).map(|index| sums[index]).collect();
                let mut labels = vec![0; self.outline.labels(chunk)];
                let choices = circuit.choices(&shares);
                let batch = chunk.first_instance;
                let platform = self.outline.platform();
                Ok(self.clock.time(Work::Transfer, || {
                    receiver.extend(platform, batch, &choices, &mut labels)
                }))
            }
        }
    }

    /// Takes the server's reply to a step that was begun; one to another step, or that comes twice, changes nothing.
    /// Computes for up to some milliseconds.
    ///
    /// # Errors
    /// [`Error::NoStep`], [`Error::Bytes`] and what its part says of bytes that are none of the protocol's, of a server
    /// that chose its labels inconsistently among them; [`Error::Record`] where they cannot be kept.
    pub fn accept(&self, step: u32, reply: &[u8]) -> Result<(), Error> {
        let kind = self.step(step)?;
        // Circuits are made once for each chunk: tables for two choices under one offset would open it.
        if self.state().steps[step as usize] != Progress::Begun {
            return Ok(());
        }
        match kind {
            Step::Open => self.accept_open(reply)?,
            Step::SetUp => self.accept_set_up(reply)?,
            Step::Upload { .. } => empty("the reply to an upload", reply)?,
            Step::Seed { batch } => self.keep_seed(batch, 0, reply)?,
            Step::Commit { batch } => self.keep_seed(batch, 1, reply)?,
            Step::Prove { .. } => empty("the reply to a proof's row", reply)?,
            Step::Unit { convolution, unit } => {
                let mut product = lock(&self.products[convolution]);
                self.clock.time(Work::Encryption, || {
                    self.linear.open(convolution, unit, reply, &mut product)
                })?;
            }
            Step::Deal { chunk } => self.deal(chunk, reply)?,
            Step::Tables { .. } if self.garbler == Party::Client => {
                empty("the reply to tables", reply)?;
            }
            Step::Tables { chunk } => {
                let expected = self.outline.table_bytes(&self.outline.chunks()[chunk]);
                if reply.len() != expected {
                    let (what, found) = ("a chunk's tables", reply.len());
                    return Err(Error::Bytes { what, expected, found });
                }
                self.records.put(2 + chunk, reply)?;
            }
        }
        self.end(step)
    }

    /// Marks a step as done, and makes what waited for it.
    fn end(&self, step: u32) -> Result<(), Error> {
        let kind = self.step(step)?;
        {
            let mut state = self.state();
            if state.steps[step as usize] != Progress::Begun {
                return Ok(());
            }
            state.steps[step as usize] = Progress::Done;
            state.begun -= 1;
            match kind {
                Step::Upload { convolution, .. } => state.uploads_left[convolution] -= 1,
                Step::Prove { batch, .. } => {
                    state.proofs[batch].rows_left -= 1;
                    if state.proofs[batch].rows_left == 0 {
                        self.linear.forget_proof(batch);
                    }
                }
                Step::Unit { convolution, .. } => {
                    state.units_left[convolution] -= 1;
                    if state.units_left[convolution] == 0 {
                        let (stage, ..) = self.outline.convolutions()[convolution];
                        state.convolutions_left[stage] -= 1;
                    }
                }
                Step::Tables { chunk } => state.tables[chunk] = None,
                Step::Deal { chunk } => {
                    let stage = self.outline.chunks()[chunk].stage;
                    state.deals_left[stage] -= 1;
                    if state.deals_left[stage] == 0 {
                        let masks = std::mem::take(&mut state.gathered[stage]);
                        if let Some(place) = state.masks.get_mut(stage + 1) {
                            *place = Some(Arc::new(masks));
                        }
                    }
                }
                Step::Open | Step::SetUp | Step::Seed { .. } | Step::Commit { .. } => {}
            }
        }
        self.finish_sums()
    }

    fn keep_seed(&self, batch: usize, which: usize, reply: &[u8]) -> Result<(), Error> {
        let (what, expected, found) = ("a proof's seed", SEED_BYTES, reply.len());
        if expected != found {
            return Err(Error::Bytes { what, expected, found });
        }
        let mut state = self.state();
        let seed = state.proofs[batch].seeds[which].get_or_insert_with(|| reply.to_vec());
        match seed == reply {
            true => Ok(()),
            false => Err(linear::Error::OtherSeed { batch }.into()),
        }
    }

    fn accept_open(&self, reply: &[u8]) -> Result<(), Error> {
        let seed = seeds::derive(&self.seed, Use::Transfer);
        let mut state = self.state();
        match self.garbler {
            Party::Server => {
                let (receiver, corrections) = ReceiverSetup::new(&seed).0.finish(reply)?;
                self.keep_meta(&receiver.to_bytes())?;
                drop(self.receiver.set(receiver));
                state.second = Some(Arc::new(corrections));
            }
            Party::Client => {
                let (_, points) = SenderSetup::new(&seed, seeds::offset(&self.seed), reply)?;
                self.keep_meta(&[])?;
                state.opening = Some(reply.to_vec());
                state.second = Some(Arc::new(points));
            }
        }
        Ok(())
    }

    fn accept_set_up(&self, reply: &[u8]) -> Result<(), Error> {
        match self.garbler {
            Party::Server => empty("the reply to the set-up", reply),
            Party::Client => {
                let order = Error::Order { what: "the set-up".to_owned(), why: "the first step" };
                let opening = self.state().opening.clone().ok_or(order)?;
                let seed = seeds::derive(&self.seed, Use::Transfer);
                let delta = seeds::offset(&self.seed);
                let (setup, _) = SenderSetup::new(&seed, delta, &opening)?;
                drop(self.sender.set(setup.finish(reply)?));
                Ok(())
            }
        }
    }

    /// Keeps the seed, and what labels are made of again.
    fn keep_meta(&self, transfer: &[u8]) -> Result<(), Error> {
        let mut meta = self.seed.expose().to_vec();
        meta.extend(transfer);
        Ok(self.records.put(0, &meta)?)
    }

    /// Garbles a chunk: its masks are those of the next tensor, negated.
    fn deal(&self, chunk: usize, corrections: &[u8]) -> Result<(), Error> {
        let own = &self.outline.chunks()[chunk];
        let (circuit, platform) = (self.outline.circuit(own), self.outline.platform());
        let order = Error::Order { what: "a deal".to_owned(), why: "the set-up" };
        let sender = self.sender.get().ok_or(order)?;
        let mut theirs = vec![0; self.outline.labels(own)];
        self.clock.time(Work::Transfer, || {
            sender.extend(platform, own.first_instance, corrections, &mut theirs)
        })?;
        let mut ours = vec![0; theirs.len()];
        labels(platform, &seeds::labels(&self.seed), seeds::first_label(own), &mut ours);
        let mut tables = vec![0; self.outline.table_bytes(own)];
        let mut masks = vec![0; own.count()];
        let delta = seeds::offset(&self.seed);
        let first = seeds::first_circuit(sender.session(), own);
        self.clock.time(Work::Garbling, || {
            garble(circuit, platform, delta, first, &ours, &theirs, &mut tables, &mut masks);
        });
        let mask = self.outline.program().mask();
        for value in &mut masks {
            *value = value.wrapping_neg() & mask;
        }
        self.records.put(2 + 2 * chunk, &pack(self.outline.program().bits, &masks))?;
        let mut state = self.state();
        let count = self.outline.program().stages[own.stage].output().count();
        let gathered = &mut state.gathered[own.stage];
        gathered.resize(count, 0);
        gathered[own.range.clone()].copy_from_slice(&masks);
        state.tables[chunk] = Some(Arc::new(tables));
        Ok(())
    }

    /// Adds up the stages whose convolutions are done and whose sources have masks.
    fn finish_sums(&self) -> Result<(), Error> {
        let program = self.outline.program();
        for (stage, own) in program.stages.iter().enumerate() {
            let sources: Vec<_> = {
                let state = self.state();
                if state.sums[stage].is_some() || state.convolutions_left[stage] > 0 {
                    continue;
                }
                let windows = own.terms.iter().filter_map(|term| match *term {
                    Term::Windows { source, .. } => Some(source),
                    Term::Convolution { .. } => None,
                });
                let masks = windows.map(|source| state.masks[source].clone());
                match masks.collect::<Option<_>>() {
                    Some(masks) => masks,
                    None => continue,
                }
            };
            let mut sum = vec![0; own.sum.count()];
            let (mut sources, mut next) = (sources.iter(), self.outline.convolutions_of(stage));
            for term in &own.terms {
                match term {
                    Term::Windows { .. } => {
                        let source = sources.next().expect("one a term of windows");
                        add_share(term, source, &mut sum);
                    }
                    Term::Convolution { shift, .. } => {
                        let product = lock(&self.products[next.next().expect("one a term")]);
                        for (sum, product) in sum.iter_mut().zip(product.iter()) {
                            *sum = sum.wrapping_add(product << shift);
                        }
                    }
                }
            }
            sum.iter_mut().for_each(|value| *value &= program.mask());
            self.keep_sum(stage, &sum)?;
            self.state().sums[stage] = Some(Arc::new(sum));
        }
        Ok(())
    }

    /// Keeps what the online phase needs of a stage's sum.
    fn keep_sum(&self, stage: usize, sum: &[u64]) -> Result<(), Error> {
        let program = self.outline.program();
        if stage + 1 == program.stages.len() {
            self.records.put(1, &pack(program.bits, sum))?;
        } else if self.garbler == Party::Client {
            for index in self.outline.chunks_of(stage) {
                let chunk = &self.outline.chunks()[index];
                let spec = self.outline.circuit(chunk).spec();
                let shares = self.outline.gather(chunk).map(|index| sum[index] >> spec.dropped);
                let bits = spec.bits - spec.dropped;
                self.records.put(3 + 2 * index, &pack(bits, &shares.collect::<Vec<_>>()))?;
            }
        }
        Ok(())
    }

    /// Where the time went.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The low bits of the client's share of each stage's sum, by which [`super::super::reference`] rounds as the
    /// circuits do. For tests: the precompute is none any more.
    #[doc(hidden)]
    pub fn dither(&self) -> Vec<Vec<u64>> {
        let sums = self.state().sums.clone();
        let stages = self.outline.program().stages.iter();
        let low = stages.zip(sums).map(|(stage, sum)| {
            let bits = stage.activation.map_or(0, |activation| activation.shift);
            let sum = sum.iter().flat_map(|sum| sum.iter());
            sum.map(|value| value & ((1 << bits) - 1)).collect()
        });
        low.collect()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Of nothing.
pub(super) fn empty(what: &'static str, bytes: &[u8]) -> Result<(), Error> {
    match bytes.len() {
        0 => Ok(()),
        found => Err(Error::Bytes { what, expected: 0, found }),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Steps that are looked at for one that is ready.
const AHEAD: usize = 4096;
