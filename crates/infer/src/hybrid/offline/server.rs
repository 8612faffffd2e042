//! The server's half of the offline phase.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, OnceLock};

use hushtable_mpc::garble::{garble, labels};
use hushtable_mpc::ot::{CotReceiver, CotSender, ReceiverSetup, SenderSetup};
use hushtable_mpc::share::pack;
use hushtable_mpc::{Party, Secret, fill_random};

use super::super::clock::{Clock, Work};
use super::super::error::Error;
use super::super::linear::LinearServer;
use super::super::model::HybridModel;
use super::super::outline::Step;
use super::super::seeds::{self, Seed, Use};
use super::client::{empty, lock};
use crate::records::Records;

/// The server's half of one precompute.
pub struct OfflineServer {
    model: Arc<HybridModel>,
    garbler: Party,
    records: Arc<dyn Records>,
    seed: Seed,
    linear: OnceLock<LinearServer>,
    set_up: Mutex<SetUp>,
    receiver: OnceLock<CotReceiver>,
    sender: OnceLock<CotSender>,
    /// Shares of each convolution.
    shares: Vec<OnceLock<Vec<u64>>>,
    seen: Mutex<Seen>,
    clock: Clock,
}

#[derive(Default)]
struct Seen {
    /// Of each step that was begun, the hash of its request.
    requests: HashMap<u32, [u8; 32]>,
    /// Steps that were answered.
    answered: HashSet<u32>,
}

#[derive(Default)]
struct SetUp {
    receiver: Option<ReceiverSetup>,
    sender: Option<SenderSetup>,
    /// Replies to the first two steps.
    replies: [Option<Vec<u8>>; 2],
}

impl OfflineServer {
    /// A precompute with randomness from the operating system.
    ///
    /// # Errors
    /// [`Error::Entropy`].
    pub fn new(
        model: Arc<HybridModel>,
        garbler: Party,
        records: Arc<dyn Records>,
    ) -> Result<Self, Error> {
        let mut seed = Secret::new([0; 32]);
        fill_random(seed.expose_mut())?;
        Ok(Self::of_seed(model, garbler, records, seed))
    }

    /// The precompute that a seed gives, for known answers.
    #[doc(hidden)]
    pub fn of_seed(
        model: Arc<HybridModel>,
        garbler: Party,
        records: Arc<dyn Records>,
        seed: Seed,
    ) -> Self {
        let convolutions = model.outline().convolutions().len();
        Self {
            model,
            garbler,
            records,
            seed,
            linear: OnceLock::new(),
            set_up: Mutex::default(),
            receiver: OnceLock::new(),
            sender: OnceLock::new(),
            shares: (0..convolutions).map(|_| OnceLock::new()).collect(),
            seen: Mutex::default(),
            clock: Clock::default(),
        }
    }

    /// Whether every step was answered: then what is kept is whole.
    pub fn is_complete(&self) -> bool {
        lock(&self.seen).answered.len() == self.model.outline().steps(self.garbler).len()
    }

    /// Answers a step; the same bytes again where it was answered before. Computes for up to some
    /// milliseconds, and a quarter of one for each upload of a batch that is proven.
    ///
    /// # Errors
    /// [`Error::NoStep`]; [`Error::Order`] for a step before what it needs; [`Error::Changed`] for one that
    /// was made with other bytes; what its part says of bytes that are none of the protocol's;
    /// [`Error::Record`] where they cannot be kept.
    pub fn answer(&self, step: u32, request: &[u8]) -> Result<Vec<u8>, Error> {
        let steps = self.model.outline().steps(self.garbler);
        let missing = Error::NoStep { step, steps: steps.len() as u32 };
        let kind = *steps.get(step as usize).ok_or(missing)?;
        let hash = *blake3::hash(request).as_bytes();
        // Before it is answered: labels for two different choices would open a circuit twice.
        let found = *lock(&self.seen).requests.entry(step).or_insert(hash);
        if found != hash {
            return Err(Error::Changed { step });
        }
        let reply = self.reply(step, kind, request)?;
        lock(&self.seen).answered.insert(step);
        Ok(reply)
    }

    /// Where the time went.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    fn reply(&self, step: u32, kind: Step, request: &[u8]) -> Result<Vec<u8>, Error> {
        let order = |why| Error::Order { what: format!("step {step}"), why };
        let outline = self.model.outline();
        match kind {
            Step::Open => self.open(request),
            Step::SetUp => self.end_set_up(request),
            Step::Upload { convolution, chunk } => {
                let linear = self.linear.get().ok_or_else(|| order("the first step"))?;
                self.clock.time(Work::Encryption, || linear.accept(convolution, chunk, request))?;
                Ok(Vec::new())
            }
            Step::Seed { batch } => {
                empty("the request of a proof's seed", request)?;
                let linear = self.linear.get().ok_or_else(|| order("the first step"))?;
                Ok(linear.proof_seed(batch)?.to_vec())
            }
            Step::Commit { batch } => {
                let linear = self.linear.get().ok_or_else(|| order("the first step"))?;
                let commit = || linear.commit(batch, request);
                Ok(self.clock.time(Work::Encryption, commit)?.to_vec())
            }
            Step::Prove { batch, row } => {
                let linear = self.linear.get().ok_or_else(|| order("the first step"))?;
                self.clock.time(Work::Encryption, || linear.verify(batch, row, request))?;
                Ok(Vec::new())
            }
            Step::Unit { convolution, unit } => {
                empty("the request of a unit", request)?;
                let linear = self.linear.get().ok_or_else(|| order("the first step"))?;
                let share = self.share(convolution);
                Ok(self.clock.time(Work::Encryption, || linear.answer(convolution, unit, share))?)
            }
            Step::Deal { chunk: index } => {
                empty("the request of a deal", request)?;
                let chunk = &outline.chunks()[index];
                let receiver = self.receiver.get().ok_or_else(|| order("the set-up"))?;
                let mut labels = vec![0; outline.labels(chunk)];
                let values = seeds::choices_of(&self.seed, outline, index);
                let choices = outline.circuit(chunk).choices(&values);
                let batch = chunk.first_instance;
                Ok(self.clock.time(Work::Transfer, || {
                    receiver.extend(outline.platform(), batch, &choices, &mut labels)
                }))
            }
            Step::Tables { chunk } if self.garbler == Party::Client => {
                let expected = outline.table_bytes(&outline.chunks()[chunk]);
                if request.len() != expected {
                    let (what, found) = ("a chunk's tables", request.len());
                    return Err(Error::Bytes { what, expected, found });
                }
                self.records.put(1 + chunk, request)?;
                Ok(Vec::new())
            }
            Step::Tables { chunk } => self.garble(chunk, request),
        }
    }

    fn open(&self, request: &[u8]) -> Result<Vec<u8>, Error> {
        let mut set_up = lock(&self.set_up);
        if let Some(reply) = &set_up.replies[0] {
            return Ok(reply.clone());
        }
        let outline = self.model.outline();
        let key_bytes = outline.layers().public_key_bytes();
        let Some((key, opening)) = request.split_at_checked(key_bytes) else {
            let (what, found) = ("the first step", request.len());
            return Err(Error::Bytes { what, expected: key_bytes, found });
        };
        let seed = seeds::derive(&self.seed, Use::Transfer);
        let reply = match self.garbler {
            Party::Server => {
                let delta = seeds::offset(&self.seed);
                let (setup, points) = SenderSetup::new(&seed, delta, opening)?;
                set_up.sender = Some(setup);
                points
            }
            Party::Client => {
                empty("what follows the public key", opening)?;
                let (setup, opening) = ReceiverSetup::new(&seed);
                set_up.receiver = Some(setup);
                opening
            }
        };
        let seed = seeds::derive(&self.seed, Use::Encryption);
        let (layers, prepared) = (outline.layers(), self.model.prepared());
        let linear = LinearServer::new(Arc::clone(layers), Arc::clone(prepared), &seed, key)?;
        drop(self.linear.set(linear));
        set_up.replies[0] = Some(reply.clone());
        Ok(reply)
    }

    fn end_set_up(&self, request: &[u8]) -> Result<Vec<u8>, Error> {
        let mut set_up = lock(&self.set_up);
        if let Some(reply) = &set_up.replies[1] {
            return Ok(reply.clone());
        }
        let order = || Error::Order { what: "the set-up".to_owned(), why: "the first step" };
        let mut meta = self.seed.expose().to_vec();
        let reply = match self.garbler {
            Party::Server => {
                let setup = set_up.sender.take().ok_or_else(order)?;
                drop(self.sender.set(setup.finish(request)?));
                Vec::new()
            }
            Party::Client => {
                let setup = set_up.receiver.take().ok_or_else(order)?;
                let (receiver, corrections) = setup.finish(request)?;
                meta.extend_from_slice(&receiver.to_bytes());
                drop(self.receiver.set(receiver));
                corrections
            }
        };
        self.records.put(0, &meta)?;
        set_up.replies[1] = Some(reply.clone());
        Ok(reply)
    }

    /// Garbles a chunk under the labels that the client chose.
    fn garble(&self, index: usize, corrections: &[u8]) -> Result<Vec<u8>, Error> {
        let outline = self.model.outline();
        let chunk = &outline.chunks()[index];
        let (circuit, platform) = (outline.circuit(chunk), outline.platform());
        let order = || Error::Order { what: "a chunk".to_owned(), why: "the set-up" };
        let sender = self.sender.get().ok_or_else(order)?;
        let mut theirs = vec![0; outline.labels(chunk)];
        self.clock.time(Work::Transfer, || {
            sender.extend(platform, chunk.first_instance, corrections, &mut theirs)
        })?;
        let mut ours = vec![0; theirs.len()];
        labels(platform, &seeds::labels(&self.seed), seeds::first_label(chunk), &mut ours);
        let mut tables = vec![0; outline.table_bytes(chunk)];
        let mut masks = vec![0; chunk.count()];
        let delta = seeds::offset(&self.seed);
        let first = seeds::first_circuit(sender.session(), chunk);
        self.clock.time(Work::Garbling, || {
            garble(circuit, platform, delta, first, &ours, &theirs, &mut tables, &mut masks);
        });
        self.records.put(1 + index, &pack(outline.program().bits, &masks))?;
        Ok(tables)
    }

    /// The server's share of a convolution.
    fn share(&self, convolution: usize) -> &[u64] {
        self.shares[convolution]
            .get_or_init(|| seeds::share_of(&self.seed, self.model.outline(), convolution))
    }
}
