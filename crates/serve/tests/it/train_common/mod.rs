//! What tests of training rounds share: a memory in the clear, a server around it, its users.
#![allow(dead_code, reason = "each test file uses a part of it")]

use std::sync::{Arc, Mutex, mpsc};
use std::time::Duration;

use hushtable_oram::round::{Controller, ControllerSpec, Error as RoundError};
use hushtable_oram::wire::{AuthorityKey, ControllerKey, DUMMY, Terms, UserSession};
use hushtable_serve::{
    CommitError, ControllerPlace, Ended, EndpointSpec, Error, MasterKey, MemoryError, RoundMemory,
    RoundName, RoundReport, Settled, TrainClient, TrainClientSpec, TrainRefusal, TrainServer,
    TrainServerSpec,
};

use tempfile::TempDir;

use crate::common::{PATIENCE, Running, network};

pub const ROWS: usize = 50;
pub const DIM: usize = 3;
pub const SLOTS: usize = 4;
pub const USERS_MAX: usize = 5;
pub const SOON: Duration = PATIENCE;
/// What nothing here waits for to its end.
pub const HOUR: Duration = Duration::from_secs(3600);

/// What is wrong with the memory's disk or counter.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Trouble {
    #[default]
    None,
    /// A commit fails before it stands, and nobody can tell.
    Before,
    /// A commit fails behind that.
    Behind,
}

/// What the memory was asked, for tests to look at.
#[derive(Default)]
pub struct Seen {
    pub begun: Vec<Vec<u32>>,
    pub added: Vec<(usize, f32)>,
    pub abandoned: usize,
    /// Users whose rows were given, each time.
    pub given: Vec<usize>,
    pub rounds: u64,
    pub trouble: Trouble,
    pub settled: Vec<Settled>,
    /// Rows of the table.
    pub table: Vec<f32>,
}

/// A memory in the clear: rows minus the sum of weight × gradient.
pub struct PlainMemory {
    seen: Arc<Mutex<Seen>>,
    name: RoundName,
    ids: Vec<u32>,
    update: Vec<f32>,
    /// `begin` waits for a word here, where there is one to wait for.
    pub gate: Option<mpsc::Receiver<()>>,
    pub fails: bool,
    /// What the next `add` fails with.
    pub refuses: Option<MemoryError>,
}

impl PlainMemory {
    pub fn new() -> (Self, Arc<Mutex<Seen>>) {
        let table = (0..ROWS * DIM).map(|number| number as f32).collect();
        let seen = Arc::new(Mutex::new(Seen { table, ..Seen::default() }));
        let memory = Self {
            seen: Arc::clone(&seen),
            name: RoundName::NONE,
            ids: Vec::new(),
            update: vec![0.0; ROWS * DIM],
            gate: None,
            fails: false,
            refuses: None,
        };
        (memory, seen)
    }
}

impl RoundMemory for PlainMemory {
    fn begin(&mut self, name: RoundName, users: usize, ids: &[u32]) -> Result<(), MemoryError> {
        self.name = name;
        if let Some(gate) = &self.gate {
            gate.recv()?;
        }
        if self.fails {
            return Err("the disk is full".into());
        }
        assert_eq!(ids.len(), users * SLOTS);
        self.ids = ids.to_vec();
        self.update.fill(0.0);
        self.seen.lock().unwrap().begun.push(ids.to_vec());
        Ok(())
    }

    fn rows(
        &mut self,
        user: usize,
        rows: &mut [f32],
        found: &mut [bool],
    ) -> Result<(), MemoryError> {
        let mut seen = self.seen.lock().unwrap();
        seen.given.push(user);
        let ids = &self.ids[user * SLOTS..][..SLOTS];
        for ((id, row), found) in ids.iter().zip(rows.chunks_exact_mut(DIM)).zip(found) {
            *found = *id != DUMMY;
            if *found {
                row.copy_from_slice(&seen.table[*id as usize * DIM..][..DIM]);
            }
        }
        Ok(())
    }

    fn add(&mut self, user: usize, gradients: &[f32], weight: f32) -> Result<(), MemoryError> {
        if let Some(error) = self.refuses.take() {
            return Err(error);
        }
        self.seen.lock().unwrap().added.push((user, weight));
        let ids = &self.ids[user * SLOTS..][..SLOTS];
        for (&id, gradient) in ids.iter().zip(gradients.chunks_exact(DIM)) {
            if id != DUMMY {
                let update = &mut self.update[id as usize * DIM..][..DIM];
                update.iter_mut().zip(gradient).for_each(|(sum, g)| *sum += weight * g);
            }
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<RoundReport, CommitError> {
        let mut seen = self.seen.lock().unwrap();
        if seen.trouble == Trouble::Before {
            seen.settled.push(Settled::new(self.name.number, Ended::Failed));
            return Err(CommitError::Unsettled("the counter does not answer".into()));
        }
        seen.table.iter_mut().zip(&self.update).for_each(|(row, update)| *row -= update);
        seen.rounds += 1;
        let report = RoundReport {
            round: self.name.number,
            users: self.ids.len() / SLOTS,
            requested: self.name.requested,
            rounds: seen.rounds,
            requests: self.ids.len() as u64,
            accesses: 7,
            read_bytes: 4096,
            written_bytes: 8192,
            steps_us: vec![("union".into(), 12)],
            ..RoundReport::default()
        };
        seen.settled.push(Settled::new(self.name.number, Ended::Committed(report.clone())));
        match seen.trouble {
            Trouble::Behind => Err(CommitError::Unsettled("the counter does not answer".into())),
            _ => Ok(report),
        }
    }

    fn abandon(&mut self) -> Result<(), MemoryError> {
        self.seen.lock().unwrap().abandoned += 1;
        Ok(())
    }

    fn settled(&self) -> Vec<Settled> {
        self.seen.lock().unwrap().settled.clone()
    }

    fn check(&mut self, _users: usize) -> Result<(), MemoryError> {
        match self.seen.lock().unwrap().trouble {
            Trouble::None => Ok(()),
            _ => Err("the counter does not answer".into()),
        }
    }

    fn rounds(&self) -> u64 {
        self.seen.lock().unwrap().rounds
    }
}

pub fn spec() -> TrainServerSpec {
    TrainServerSpec { network: network(), ..TrainServerSpec::default() }
}

pub fn terms() -> Terms {
    Terms::of(&ControllerSpec::new("films", (ROWS as u64, DIM), (USERS_MAX, SLOTS))).unwrap()
}

pub fn start_with(spec: TrainServerSpec, memory: PlainMemory) -> Running {
    let key = ControllerKey::from_seed(&[3; 32]);
    let open = move || Ok(Box::new(memory) as Box<dyn RoundMemory>);
    Running::start(TrainServer::new(spec, terms(), key, open).unwrap())
}

pub fn start() -> (Running, Arc<Mutex<Seen>>) {
    let (memory, seen) = PlainMemory::new();
    (start_with(spec(), memory), seen)
}

pub async fn connect(server: &Running) -> TrainClient {
    // Of whatever controller it announces: most tests are not about the pin.
    let endpoint = EndpointSpec::new(server.url(), None);
    let spec = TrainClientSpec { trust_announced: true, ..TrainClientSpec::new(endpoint) };
    TrainClient::connect(&spec).await.unwrap()
}

#[track_caller]
pub fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> TrainRefusal {
    let error = result.unwrap_err();
    error.refused().cloned().unwrap_or_else(|| panic!("{error}"))
}

/// Seals and sends a user's request.
pub async fn ask(client: &TrainClient, round: u64, user: u32, ids: &[u32]) -> UserSession {
    try_ask(client, round, user, ids).await.unwrap()
}

/// The same, where the round may be over.
pub async fn try_ask(
    client: &TrainClient,
    round: u64,
    user: u32,
    ids: &[u32],
) -> Result<UserSession, Error> {
    let mut session = client.session(round, user, None).unwrap();
    let sealed = session.request(ids).unwrap();
    client.request(round, user, sealed.into()).await?;
    Ok(session)
}

pub async fn learn(client: &TrainClient, session: &mut UserSession, gradient: f32, weight: f32) {
    try_learn(client, session, gradient, weight).await.unwrap();
}

/// The same, where the round may be over.
pub async fn try_learn(
    client: &TrainClient,
    session: &mut UserSession,
    gradient: f32,
    weight: f32,
) -> Result<(), Error> {
    let (round, user) = (session.context().round(), session.context().user());
    let sealed = session.upload(&[gradient; SLOTS * DIM], weight).unwrap();
    client.upload(round, user, sealed.into()).await.map(drop)
}

/// Has `before` done what it can be late for with longer and longer deadlines until it was not: what comes of it.
pub async fn in_deadline<T>(
    first: Duration,
    mut before: impl AsyncFnMut(Duration) -> Result<T, Error>,
) -> T {
    let mut deadline = first;
    loop {
        match before(deadline).await {
            Ok(made) => return made,
            Err(error) => {
                let is_over = matches!(error.refused(), Some(TrainRefusal::RoundOver { .. }));
                assert!(is_over && deadline < SOON, "{error}");
            }
        }
        deadline *= 4;
    }
}

/// The address of this machine on a network, where it has one: not loopback, and reachable here.
pub fn outer_address() -> Option<std::net::IpAddr> {
    let socket = std::net::UdpSocket::bind("0.0.0.0:0").ok()?;
    // Nothing is sent: this asks for the address that would be sent from.
    socket.connect("192.0.2.1:9").ok()?;
    let ip = socket.local_addr().ok()?.ip();
    (!ip.is_loopback() && !ip.is_unspecified()).then_some(ip)
}

pub fn authority() -> AuthorityKey {
    AuthorityKey::from_seed(&[6; 32])
}

pub fn closed_terms() -> Terms {
    let spec = terms().spec().clone();
    Terms::of(&ControllerSpec { authority: Some(authority().public()), ..spec }).unwrap()
}

/// Given the number of the first row to fill, and room for the rows from there on.
pub type FirstRows<'a> = dyn FnMut(u64, &mut [f32]) -> Result<(), RoundError> + 'a;

/// Makes the controller of `spec` in the folder, with the first rows that `rows` gives.
pub fn create(
    folder: &TempDir,
    spec: &ControllerSpec,
    rows: &mut FirstRows<'_>,
) -> (ControllerPlace, MasterKey) {
    let place = ControllerPlace::all_beside(&folder.path().join("films"));
    let key = MasterKey::create(&place.key).unwrap();
    let (counter, sealing) = (&place.counter, key.folder_key());
    Controller::create(&place.folder, &sealing, counter, spec, rows, &mut |_, _| {})
        .unwrap()
        .close()
        .unwrap();
    (place, key)
}
