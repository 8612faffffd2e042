//! A server of hybrid inference without sockets, with both phases for real, and where a client keeps its halves.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, OnceLock};

use bytes::Bytes;
use hushtable_client::simulation::Answered;
use hushtable_client::{CallError, CallFault};
use hushtable_infer::Platform;
use hushtable_infer::hybrid::network::reference;
use hushtable_infer::hybrid::program::{
    Activation, Convolution, Pool, Program, Rounding, Shape, Stage, Term, Weights,
};
use hushtable_infer::hybrid::records::{Memory, RecordError};
use hushtable_infer::hybrid::session::{
    Announced, Call, Half, Halves, HalvesError, Inference, PrecomputeId, Reply, Stream, TakenHalf,
};
use hushtable_infer::hybrid::store::Head;
use hushtable_infer::hybrid::{
    HybridModel, OfflineServer, OnlineServer, Party, Records, Terms, linear,
};
use hushtable_table::Version;
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha20Rng;

/// A network that a server may have.
pub struct Held {
    pub model: Arc<HybridModel>,
    pub announced: Announced,
}

/// Two of other plans and weights, whose inputs are of one size.
pub fn held() -> &'static [Held; 2] {
    static HELD: OnceLock<[Held; 2]> = OnceLock::new();
    HELD.get_or_init(|| [2, 3].map(Held::new))
}

impl Held {
    fn new(seed: u64) -> Self {
        let model = model(seed);
        let version = Version::from([seed as u8; 32]);
        let program = model.outline().program().clone();
        let terms = Terms::new("shapes", version, program, Vec::new(), 1 << 20).unwrap();
        let plan = Version::from(terms.id());
        let announced = Announced {
            name: "shapes".to_owned(),
            version,
            plan,
            terms,
            software: "test".to_owned(),
            client_garbles: true,
            server_garbles: true,
        };
        Self { model, announced }
    }

    /// An input's numbers, and what the network makes of them.
    pub fn asked(&self, seed: u64) -> (Arc<Vec<u64>>, Vec<u64>) {
        let program = self.model.outline().program();
        let mut rng = ChaCha20Rng::seed_from_u64(seed);
        let numbers = (0..program.input.count()).map(|_| rng.random_range(-512i64..512) as u64);
        let x: Vec<u64> = numbers.map(|number| number & program.mask()).collect();
        let expected = reference(program, self.model.weights(), &x, None);
        (Arc::new(x), expected)
    }

    pub fn steps(&self, garbler: Party) -> usize {
        self.model.outline().steps(garbler).len()
    }
}

/// A convolution with an activation, and a fully connected layer.
fn model(seed: u64) -> Arc<HybridModel> {
    let input = Shape { channels: 1, height: 4, width: 4 };
    let shape = |input: Shape, outputs, kernel, pad| Convolution {
        input,
        outputs,
        kernel: [kernel; 2],
        stride: [1; 2],
        pad: [pad; 4],
    };
    let first = shape(input, 1, 3, 1);
    let flat = Shape { channels: first.output().count(), height: 1, width: 1 };
    let last = shape(flat, 3, 1, 0);
    let stage = |name: &str, source, convolution: Convolution, activation| Stage {
        name: name.to_owned(),
        terms: vec![Term::Convolution { source, convolution, shift: 0 }],
        sum: convolution.output(),
        fraction: 2 * FRACTION,
        activation,
    };
    let active = Some(Activation::of(true, Pool::NONE, FRACTION));
    let stages = vec![stage("first", 0, first, active), stage("answer", 1, last, None)];
    let mut rng = ChaCha20Rng::seed_from_u64(seed);
    let convolutions: Vec<Vec<i32>> = [first, last]
        .map(|shape| (0..shape.weights()).map(|_| rng.random_range(-300..300)).collect())
        .into();
    let biases = stages.iter().map(|stage| vec![seed as i64 * 1000; stage.sum.channels]).collect();
    let parts = [(first, &convolutions[0][..]), (last, &convolutions[1][..])];
    let lattice = linear::choose(BITS, &parts, false, Platform::detect()).unwrap().to_owned();
    let rounding = Rounding::Nearest;
    let program = Program { bits: BITS, fraction: FRACTION, rounding, lattice, input, stages };
    let weights = Weights { biases, convolutions };
    Arc::new(HybridModel::new(program, weights, Platform::detect()).unwrap())
}

const BITS: u32 = 37;
const FRACTION: u32 = 8;

/// A precompute of the server, while it is made and until it is used.
struct Made {
    garbler: Party,
    machine: OfflineServer,
    records: Arc<Memory>,
}

/// One server, from one restart to the next.
pub struct Server {
    /// Which network it has.
    pub holds: usize,
    /// Whether what is ready outlives a restart.
    pub keeps: bool,
    making: BTreeMap<PrecomputeId, Made>,
    ready: BTreeMap<PrecomputeId, (Party, Arc<Memory>)>,
    streams: Vec<Option<OnlineServer>>,
    /// Precomputes that predictions were opened with.
    opened: BTreeSet<PrecomputeId>,
    /// Calls that came, by name.
    pub came: BTreeMap<String, usize>,
    /// Frames that came and went.
    pub frames: usize,
    /// Bytes of steps and frames that came, and that went.
    pub bytes: [u64; 2],
}

impl Server {
    pub fn new(keeps: bool) -> Self {
        let (making, ready, streams) = (BTreeMap::new(), BTreeMap::new(), Vec::new());
        let (opened, came) = (BTreeSet::new(), BTreeMap::new());
        Self { holds: 0, keeps, making, ready, streams, opened, came, frames: 0, bytes: [0; 2] }
    }

    /// It was killed, and comes back.
    pub fn restart(&mut self) {
        self.making.clear();
        self.streams.iter_mut().for_each(|stream| *stream = None);
        if !self.keeps {
            self.ready.clear();
        }
    }

    /// It loses what it has made.
    pub fn forget(&mut self) {
        self.making.clear();
        self.ready.clear();
    }

    pub fn count(&self, name: &str) -> usize {
        self.came.get(name).copied().unwrap_or_default()
    }

    pub fn reply(&mut self, call: Call) -> Answered<Inference> {
        *self.came.entry(format!("{call:?}")).or_default() += 1;
        let held = &held()[self.holds];
        match call {
            Call::Info => Ok(Reply::Info(Box::new(held.announced.clone()))),
            Call::Begin { plan, id, client_garbles } => {
                self.check_plan(plan)?;
                // A call that was late, and made again meanwhile.
                if self.ready.contains_key(&id) {
                    return Err(refused(CallFault::Other, "it was made before"));
                }
                let garbler = if client_garbles { Party::Client } else { Party::Server };
                self.making.entry(id).or_insert_with(|| {
                    let records = Arc::new(Memory::default());
                    let own = Arc::clone(&records) as Arc<dyn Records>;
                    let machine = OfflineServer::new(Arc::clone(&held.model), garbler, own);
                    Made { garbler, machine: machine.unwrap(), records }
                });
                Ok(Reply::Done)
            }
            Call::Step { id, step, payload } => {
                let made = self.making.get(&id).ok_or_else(gone)?;
                // A step that is made again has the same bytes, or this says that it has not.
                let reply = made.machine.answer(step, &payload).unwrap();
                self.bytes[0] += payload.len() as u64;
                self.bytes[1] += reply.len() as u64;
                Ok(Reply::Step(reply.into()))
            }
            Call::Finish { id } => {
                if let Some(made) = self.making.remove(&id) {
                    assert!(made.machine.is_complete(), "a step is missing");
                    self.ready.insert(id, (made.garbler, made.records));
                }
                self.ready.get(&id).map(|_| Reply::Done).ok_or_else(gone)
            }
            Call::Open { plan, id } => {
                self.check_plan(plan)?;
                let (garbler, records) = self.ready.remove(&id).ok_or_else(gone)?;
                assert!(self.opened.insert(id), "a precompute was used twice");
                let machine = OnlineServer::new(Arc::clone(&held.model), garbler, records).unwrap();
                self.streams.push(Some(machine));
                Ok(Reply::Opened(Stream::new(self.streams.len() - 1)))
            }
            Call::Exchange { stream, frames } => {
                for frame in &frames {
                    self.frames += 1;
                    self.bytes[0] += frame.len() as u64;
                    self.stream(&stream)?.push(frame).unwrap();
                }
                let frame = self.stream(&stream)?.pull().unwrap().expect("it was sent all");
                self.frames += 1;
                self.bytes[1] += frame.len() as u64;
                Ok(Reply::Frame(frame.into()))
            }
            other => panic!("{other:?}"),
        }
    }

    fn check_plan(&self, plan: Version) -> Result<(), CallError<&'static str>> {
        match plan == held()[self.holds].announced.plan {
            true => Ok(()),
            false => Err(refused(CallFault::Other, OTHER_PLAN)),
        }
    }

    fn stream(&mut self, stream: &Stream) -> Result<&mut OnlineServer, CallError<&'static str>> {
        let number = *stream.wire::<usize>().expect("this wire's");
        let lost = || refused(CallFault::Unreachable, "the stream broke");
        self.streams[number].as_mut().ok_or_else(lost)
    }
}

fn gone() -> CallError<&'static str> {
    refused(CallFault::Gone, GONE)
}

pub fn refused(fault: CallFault, error: &'static str) -> CallError<&'static str> {
    CallError { fault, error }
}

/// What a server says to what is of another plan.
pub const OTHER_PLAN: &str = "another plan";
/// What a server says to a precompute that it does not have.
pub const GONE: &str = "no such precompute";

/// Where a client keeps its halves, through its own restarts: with room for as many as are made at once.
pub struct Folder {
    room: usize,
    open: AtomicUsize,
    held: Mutex<BTreeMap<PrecomputeId, (Head, Arc<Memory>)>>,
    taken: Mutex<BTreeSet<PrecomputeId>>,
    /// Those that are taken next: gone, or damaged.
    pub losing: Mutex<Vec<Lost>>,
}

/// What becomes of a half between a list of them and its use.
#[derive(Clone, Copy, Debug)]
pub enum Lost {
    /// Another process has taken it.
    Gone,
    /// It cannot be read.
    Damaged,
    /// Its records cannot.
    Records,
    /// It is there, and is not given.
    Medium,
}

struct Writing {
    head: Head,
    records: Arc<Memory>,
    folder: Arc<Folder>,
}

/// A folder, as each of its clients has it.
#[derive(Clone)]
pub struct Own(pub Arc<Folder>);

impl Folder {
    pub fn new(room: usize) -> Arc<Self> {
        let (open, held, taken, losing) = Default::default();
        Arc::new(Self { room, open, held, taken, losing })
    }

    pub fn count(&self) -> usize {
        self.held.lock().unwrap().len()
    }

    /// Halves that are being made.
    pub fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }
}

impl Halves for Own {
    fn begin(&self, head: Head, record_bytes: &[u64]) -> Result<Arc<dyn Half>, HalvesError> {
        assert!(!record_bytes.is_empty() && head.role == Party::Client.into());
        let folder = Arc::clone(&self.0);
        if folder.open.fetch_add(1, Ordering::Relaxed) >= folder.room {
            return Err("no room for another half".into());
        }
        Ok(Arc::new(Writing { head, records: Arc::default(), folder }))
    }

    fn take(&self, id: &PrecomputeId) -> Result<Option<TakenHalf>, HalvesError> {
        assert!(self.0.taken.lock().unwrap().insert(*id), "a half is taken twice");
        let taken = self.0.held.lock().unwrap().remove(id);
        match self.0.losing.lock().unwrap().pop() {
            Some(Lost::Gone) => return Ok(None),
            Some(Lost::Damaged) => {
                return Err(RecordError::Damaged { record: 1, why: "cut".into() }.into());
            }
            Some(Lost::Medium) => return Err("the disk is full".into()),
            Some(Lost::Records) => {
                let head = taken.unwrap().0;
                return Ok(Some(TakenHalf { head, records: Arc::new(Memory::default()) }));
            }
            None => {}
        }
        Ok(taken.map(|(head, records)| TakenHalf { head, records }))
    }

    fn list(&self) -> Vec<Head> {
        self.0.held.lock().unwrap().values().map(|(head, _)| *head).collect()
    }

    fn discard(&self, id: &PrecomputeId) -> Result<(), HalvesError> {
        self.0.held.lock().unwrap().remove(id).expect("it was there");
        Ok(())
    }
}

impl Half for Writing {
    fn commit(&self) -> Result<(), HalvesError> {
        let half = (self.head, Arc::clone(&self.records));
        assert!(self.folder.held.lock().unwrap().insert(self.head.id, half).is_none());
        Ok(())
    }
}

impl Drop for Writing {
    fn drop(&mut self) {
        self.folder.open.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Records for Writing {
    fn put(&self, record: usize, bytes: &[u8]) -> Result<(), RecordError> {
        self.records.put(record, bytes)
    }

    fn get(&self, record: usize) -> Result<Vec<u8>, RecordError> {
        self.records.get(record)
    }
}

/// As many bytes as a call brings.
pub fn payload(call: &Call) -> Bytes {
    match call {
        Call::Step { payload, .. } => payload.clone(),
        Call::Exchange { frames, .. } => frames.concat().into(),
        _ => Bytes::new(),
    }
}
