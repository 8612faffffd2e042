//! Training rounds over real sockets, around a memory that hides nothing.

mod common;

use std::sync::{Arc, Mutex, mpsc};
use std::time::{Duration, Instant};

use common::{Certificates, Running};
use hushtable_oram::round::{BudgetSpec, Controller, ControllerSpec};
use hushtable_oram::wire::{self, ControllerKey, DUMMY, Shape, UserSession};
use hushtable_serve::{
    Awaited, Committed, ControllerPlace, EndpointSpec, Error, MasterKey, MemoryError,
    MessageDefect, NetworkSpec, Outcome, Refusal, RoundMemory, RoundSpec, RoundStage, TrainClient,
    TrainClientSpec, TrainFacts, TrainRefusal, TrainServer, TrainServerSpec,
};
use tempfile::TempDir;

const ROWS: usize = 50;
const DIM: usize = 3;
const SLOTS: usize = 4;
const USERS_MAX: usize = 5;
const SOON: Duration = Duration::from_secs(20);

/// What the memory was asked, for tests to look at.
#[derive(Default)]
struct Seen {
    begun: Vec<Vec<u32>>,
    added: Vec<(usize, f32)>,
    abandoned: usize,
    rounds: u64,
    /// Rows of the table.
    table: Vec<f32>,
}

/// A memory in the clear: rows minus the sum of weight × gradient.
struct PlainMemory {
    seen: Arc<Mutex<Seen>>,
    ids: Vec<u32>,
    update: Vec<f32>,
    /// `begin` waits for a word here, where there is one to wait for.
    gate: Option<mpsc::Receiver<()>>,
    fails: bool,
}

impl PlainMemory {
    fn new() -> (Self, Arc<Mutex<Seen>>) {
        let table = (0..ROWS * DIM).map(|number| number as f32).collect();
        let seen = Arc::new(Mutex::new(Seen { table, ..Seen::default() }));
        let memory = Self {
            seen: Arc::clone(&seen),
            ids: Vec::new(),
            update: vec![0.0; ROWS * DIM],
            gate: None,
            fails: false,
        };
        (memory, seen)
    }
}

impl RoundMemory for PlainMemory {
    fn begin(&mut self, users: usize, ids: &[u32]) -> Result<(), MemoryError> {
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
        let seen = self.seen.lock().unwrap();
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

    fn commit(&mut self) -> Result<Committed, MemoryError> {
        let mut seen = self.seen.lock().unwrap();
        seen.table.iter_mut().zip(&self.update).for_each(|(row, update)| *row -= update);
        seen.rounds += 1;
        Ok(Committed {
            rounds: seen.rounds,
            requests: self.ids.len() as u64,
            accesses: 7,
            read_bytes: 4096,
            written_bytes: 8192,
            steps: vec![("union".into(), Duration::from_micros(12))],
        })
    }

    fn abandon(&mut self) -> Result<(), MemoryError> {
        self.seen.lock().unwrap().abandoned += 1;
        Ok(())
    }

    fn rounds(&self) -> u64 {
        self.seen.lock().unwrap().rounds
    }
}

fn spec() -> TrainServerSpec {
    TrainServerSpec {
        network: NetworkSpec {
            addr: ([127, 0, 0, 1], 0).into(),
            metrics_addr: Some(([127, 0, 0, 1], 0).into()),
            ..NetworkSpec::default()
        },
        ..TrainServerSpec::default()
    }
}

fn facts() -> TrainFacts {
    TrainFacts {
        name: "films".into(),
        rows: ROWS as u64,
        shape: Shape::new(SLOTS, DIM).unwrap(),
        users_max: USERS_MAX,
        epsilon: 1.0,
        mechanism: "geometric".into(),
    }
}

fn start_with(spec: TrainServerSpec, memory: PlainMemory) -> Running {
    let key = ControllerKey::from_seed(&[3; 32]);
    let open = move || Ok(Box::new(memory) as Box<dyn RoundMemory>);
    Running::start(TrainServer::new(spec, facts(), key, open).unwrap())
}

fn start() -> (Running, Arc<Mutex<Seen>>) {
    let (memory, seen) = PlainMemory::new();
    (start_with(spec(), memory), seen)
}

async fn connect(server: &Running) -> TrainClient {
    let spec = TrainClientSpec::new(EndpointSpec::new(server.url(), None));
    TrainClient::connect(&spec).await.unwrap()
}

#[track_caller]
fn refusal<T: std::fmt::Debug>(result: Result<T, Error>) -> TrainRefusal {
    match result.unwrap_err() {
        Error::Refused { refusal: Refusal::Train(refusal), .. } => refusal,
        other => panic!("{other}"),
    }
}

/// Seals and sends a user's request.
async fn ask(client: &TrainClient, round: u64, user: u32, ids: &[u32]) -> UserSession {
    let mut session = client.session(round, user).unwrap();
    let sealed = session.request(ids).unwrap();
    client.request(round, user, sealed.into()).await.unwrap();
    session
}

async fn learn(client: &TrainClient, session: &mut UserSession, gradient: f32, weight: f32) {
    let (round, user) = (session.context().round(), session.context().user());
    let sealed = session.upload(&[gradient; SLOTS * DIM], weight).unwrap();
    client.upload(round, user, sealed.into()).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_updates_what_its_users_asked_for() {
    let (server, seen) = start();
    let client = connect(&server).await;
    assert_eq!(client.connected().facts, facts());
    assert_eq!(client.info().await.unwrap().open, None);
    let round = client.open_round(RoundSpec::new(2)).await.unwrap();
    assert_eq!(client.info().await.unwrap().open, Some((round, RoundStage::Requests)));
    assert_eq!(
        refusal(client.open_round(RoundSpec::new(1)).await),
        TrainRefusal::RoundOpen { round }
    );

    let mut first = ask(&client, round, 0, &[7, 49]).await;
    // Rows may be waited for before the round begins.
    let early = async {
        let sealed = client.rows(round, 0, SOON).await.unwrap();
        first.reply(&sealed).unwrap()
    };
    let rest = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        ask(&client, round, 1, &[7]).await
    };
    let (reply, mut second) = tokio::join!(early, rest);
    assert_eq!(reply.found, [true, true, false, false]);
    assert_eq!(reply.rows[..6], [21.0, 22.0, 23.0, 147.0, 148.0, 149.0]);
    let expected = vec![7, 49, DUMMY, DUMMY, 7, DUMMY, DUMMY, DUMMY];
    assert_eq!(seen.lock().unwrap().begun, [expected]);

    learn(&client, &mut first, 1.0, 1.0).await;
    // Finish waits for the other user.
    let finish = client.finish(round, false, SOON);
    let rest = async {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(client.info().await.unwrap().users, [2, 2, 1]);
        learn(&client, &mut second, 1.0, 2.0).await;
    };
    let (report, ()) = tokio::join!(finish, rest);
    let report = report.unwrap();
    assert_eq!((report.round, report.rounds), (round, 1));
    assert_eq!((report.requested, report.uploaded, report.requests), (2, 2, 8));
    assert_eq!((report.accesses, report.read_bytes, report.written_bytes), (7, 4096, 8192));
    assert_eq!(report.steps, [("union".to_owned(), Duration::from_micros(12))]);
    assert_eq!(seen.lock().unwrap().table[21..24], [18.0, 19.0, 20.0]);
    assert_eq!(seen.lock().unwrap().table[147..150], [146.0, 147.0, 148.0]);

    // The operator lost the reply: the same again, and nothing happens twice.
    assert_eq!(client.finish(round, false, SOON).await.unwrap(), report);
    assert_eq!(client.info().await.unwrap().rounds, 1);
    assert_eq!(
        refusal(client.rows(round, 0, SOON).await),
        TrainRefusal::RoundOver { round, outcome: Outcome::Committed }
    );
    let next = client.open_round(RoundSpec::new(1)).await.unwrap();
    assert_ne!(next, round);
    client.abandon(next).await.unwrap();
    client.abandon(next).await.unwrap();
    assert_eq!(server.metric("hushtable_rounds_committed_total").await, 1.0);
    assert_eq!(server.metric("hushtable_rounds_abandoned_total").await, 1.0);
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bad_users_leave_the_others_unharmed() {
    let (server, seen) = start();
    let client = connect(&server).await;
    let users = USERS_MAX + 1;
    assert_eq!(
        refusal(client.open_round(RoundSpec::new(users)).await),
        TrainRefusal::TooManyUsers { users, users_max: USERS_MAX }
    );
    for spec in [RoundSpec::new(0), RoundSpec { users_min: 4, ..RoundSpec::new(3) }] {
        let refused = refusal(client.open_round(spec).await);
        assert!(matches!(refused, TrainRefusal::BadSetting { .. }), "{refused}");
    }
    let round = client.open_round(RoundSpec::new(3)).await.unwrap();
    let mut good = ask(&client, round, 0, &[1]).await;

    let defect_of = |refused| match refused {
        TrainRefusal::BadMessage { defect, .. } => defect,
        other => panic!("{other}"),
    };
    let sealed = |user| client.session(round, user).unwrap().request(&[2]).unwrap();
    let mut flipped = sealed(1);
    flipped[33] ^= 1;
    let refused = client.request(round, 1, flipped.into()).await;
    assert_eq!(defect_of(refusal(refused)), MessageDefect::Forged);
    let refused = client.request(round, 2, sealed(1).into()).await;
    assert_eq!(defect_of(refusal(refused)), MessageDefect::Forged);
    let refused = client.request(round, 1, vec![0; 9].into()).await;
    assert_eq!(defect_of(refusal(refused)), MessageDefect::Length);
    // A user whose program thinks that the table is larger.
    assert_eq!(
        refusal(client.request(round, 3, sealed(3).into()).await),
        TrainRefusal::TooManyUsers { users: 4, users_max: 3 }
    );
    assert_eq!(
        refusal(client.request(round, 0, sealed(0).into()).await),
        TrainRefusal::AlreadyDone { what: "request".into(), user: 0 }
    );
    assert_eq!(
        refusal(client.request(round ^ 1, 1, sealed(1).into()).await),
        TrainRefusal::NoRound { round: round ^ 1 }
    );
    assert_eq!(
        refusal(client.upload(round, 0, good.upload(&[], 1.0).unwrap().into()).await),
        TrainRefusal::NotBegun { round }
    );
    let mut other = ask(&client, round, 1, &[2]).await;
    assert_eq!(client.close_requests(round).await.unwrap(), 2);
    assert_eq!(
        refusal(client.request(round, 2, sealed(2).into()).await),
        TrainRefusal::RequestsClosed { user: 2 }
    );
    assert_eq!(refusal(client.rows(round, 2, SOON).await), TrainRefusal::NotRequested { user: 2 });
    // The slots of whoever did not come stay, empty.
    let expected = [[1, DUMMY, DUMMY, DUMMY], [2, DUMMY, DUMMY, DUMMY], [DUMMY; 4]].concat();
    assert_eq!(seen.lock().unwrap().begun, [expected]);

    let mut upload = other.upload(&[1.0; 3], 1.0).unwrap();
    upload[30] ^= 1;
    let refused = client.upload(round, 1, upload.into()).await;
    assert_eq!(defect_of(refusal(refused)), MessageDefect::Forged);
    let reply = good.reply(&client.rows(round, 0, SOON).await.unwrap()).unwrap();
    assert_eq!(reply.rows[..3], [3.0, 4.0, 5.0]);
    learn(&client, &mut good, 1.0, 1.0).await;
    learn(&client, &mut other, 2.0, 1.0).await;
    let again = other.upload(&[1.0; 3], 1.0).unwrap();
    assert_eq!(
        refusal(client.upload(round, 1, again.into()).await),
        TrainRefusal::AlreadyDone { what: "upload".into(), user: 1 }
    );
    let report = client.finish(round, false, SOON).await.unwrap();
    assert_eq!((report.requested, report.uploaded), (2, 2));
    assert_eq!(seen.lock().unwrap().added, [(0, 1.0), (1, 1.0)]);
    assert_eq!(seen.lock().unwrap().table[3..9], [2.0, 3.0, 4.0, 4.0, 5.0, 6.0]);
    assert!(server.metric("hushtable_messages_refused_total").await >= 8.0);
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_end_what_users_hold_up() {
    let (server, seen) = start();
    let client = connect(&server).await;
    let short = Some(Duration::from_millis(150));
    // Two of three come; one uploads.
    let spec = RoundSpec { users_min: 2, request: short, upload: short, ..RoundSpec::new(3) };
    let round = client.open_round(spec).await.unwrap();
    let mut first = ask(&client, round, 0, &[1]).await;
    assert_eq!(
        refusal(client.close_requests(round).await),
        TrainRefusal::TooFewUsers { users: 1, users_min: 2 }
    );
    ask(&client, round, 2, &[9]).await;
    client.rows(round, 0, SOON).await.unwrap();
    learn(&client, &mut first, 1.0, 1.0).await;
    let started = Instant::now();
    let report = client.finish(round, false, SOON).await.unwrap();
    assert!(started.elapsed() < SOON / 2);
    assert_eq!((report.requested, report.uploaded), (2, 1));
    assert_eq!(seen.lock().unwrap().added, [(0, 1.0)]);

    // Nobody comes in time.
    let round = client.open_round(spec).await.unwrap();
    ask(&client, round, 1, &[1]).await;
    assert_eq!(
        refusal(client.rows(round, 1, SOON).await),
        TrainRefusal::RoundOver { round, outcome: Outcome::Deserted }
    );
    assert_eq!(seen.lock().unwrap().begun.len(), 1);

    // The operator waits for nobody.
    let round = client.open_round(RoundSpec::new(1)).await.unwrap();
    ask(&client, round, 0, &[4]).await;
    client.rows(round, 0, SOON).await.unwrap();
    let report = client.finish(round, true, SOON).await.unwrap();
    assert_eq!((report.requested, report.uploaded), (1, 0));
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_memory_blocks_nobody_else_and_waiting_calls_come_back() {
    let (mut memory, _) = PlainMemory::new();
    let (open_gate, gate) = mpsc::channel();
    memory.gate = Some(gate);
    let mut spec = spec();
    spec.network.request_ms_max = 400;
    let server = start_with(spec, memory);
    let client = connect(&server).await;
    let round = client.open_round(RoundSpec::new(1)).await.unwrap();
    ask(&client, round, 0, &[4]).await;
    // While the memory begins, calls of others are answered, and rows are asked for again and again.
    let started = Instant::now();
    let pending = refusal(client.rows(round, 0, Duration::from_millis(500)).await);
    assert!(started.elapsed() >= Duration::from_millis(400));
    assert!(
        matches!(pending, TrainRefusal::Pending { awaited: Awaited::Requests, .. }),
        "{pending}"
    );
    assert_eq!(client.info().await.unwrap().open, Some((round, RoundStage::Beginning)));
    open_gate.send(()).unwrap();
    client.rows(round, 0, SOON).await.unwrap();
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failing_memory_ends_the_round_and_tells_everyone() {
    let (mut memory, seen) = PlainMemory::new();
    memory.fails = true;
    let server = start_with(spec(), memory);
    let client = connect(&server).await;
    let round = client.open_round(RoundSpec::new(2)).await.unwrap();
    ask(&client, round, 0, &[4]).await;
    let failed = client.close_requests(round).await.unwrap_err();
    assert!(matches!(failed, Error::Refused { refusal: Refusal::Backend, .. }), "{failed}");
    assert!(!failed.to_string().contains("disk"), "the cause is the operator's to read");
    assert_eq!(
        refusal(client.rows(round, 0, SOON).await),
        TrainRefusal::RoundOver { round, outcome: Outcome::Failed }
    );
    assert_eq!(seen.lock().unwrap().abandoned, 0);
    client.open_round(RoundSpec::new(2)).await.unwrap();
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_operators_calls_need_its_token() {
    let certificates = Certificates::new();
    let folder = TempDir::new().unwrap();
    let path = folder.path().join("token");
    let mut spec = spec();
    spec.network.tls = Some(certificates.tls());
    spec.operator_token_file = Some(path.clone());
    let make = |spec: &TrainServerSpec| {
        let key = ControllerKey::from_seed(&[3; 32]);
        let (memory, _) = PlainMemory::new();
        let open = move || Ok(Box::new(memory) as Box<dyn RoundMemory>);
        TrainServer::new(spec.clone(), facts(), key, open)
    };
    assert!(matches!(make(&spec), Err(Error::Io { .. })));
    for bad in ["", "short\n", "spaces are not allowed here\n"] {
        std::fs::write(&path, bad).unwrap();
        assert!(matches!(make(&spec), Err(Error::Token { .. })), "{bad:?}");
    }
    std::fs::write(&path, "0123456789abcdef\n").unwrap();
    let server = Running::start(make(&spec).unwrap());
    let url = format!("https://127.0.0.1:{}", server.addr.port());
    let endpoint = EndpointSpec::new(url, Some(certificates.ca_pem()));
    let with = |token: Option<&str>| TrainClientSpec {
        operator_token: token.map(Into::into),
        ..TrainClientSpec::new(endpoint.clone())
    };
    let operator = TrainClient::connect(&with(Some("0123456789abcdef"))).await.unwrap();
    let round = operator.open_round(RoundSpec::new(1)).await.unwrap();
    for token in [None, Some("0123456789abcdeg"), Some("0123456789abcde"), Some("")] {
        let stranger = TrainClient::connect(&with(token)).await.unwrap();
        let open = stranger.open_round(RoundSpec::new(1)).await;
        assert_eq!(refusal(open), TrainRefusal::OperatorOnly);
        assert_eq!(refusal(stranger.close_requests(round).await), TrainRefusal::OperatorOnly);
        let finish = stranger.finish(round, true, SOON).await;
        assert_eq!(refusal(finish), TrainRefusal::OperatorOnly);
        assert_eq!(refusal(stranger.abandon(round).await), TrainRefusal::OperatorOnly);
    }
    assert!(matches!(TrainClient::connect(&with(Some("new\nline"))).await, Err(Error::TokenText)));
    // A user needs none.
    let user = TrainClient::connect(&with(None)).await.unwrap();
    let session = ask(&user, round, 0, &[5]).await;
    let reply = session.reply(&user.rows(round, 0, SOON).await.unwrap()).unwrap();
    assert_eq!(reply.rows[..3], [15.0, 16.0, 17.0]);
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stopping_server_abandons_its_round() {
    let (server, seen) = start();
    let client = connect(&server).await;
    let round = client.open_round(RoundSpec::new(1)).await.unwrap();
    ask(&client, round, 0, &[4]).await;
    client.rows(round, 0, SOON).await.unwrap();
    server.stop().unwrap();
    let seen = seen.lock().unwrap();
    assert_eq!((seen.abandoned, seen.rounds), (1, 0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_controller_that_ended_is_opened_again_as_of_its_last_round() {
    let folder = TempDir::new().unwrap();
    let place = ControllerPlace::new(&folder.path().join("films"));
    let key = MasterKey::create(&place.key).unwrap();
    assert!(matches!(MasterKey::create(&place.key), Err(Error::Io { .. })));
    let mut spec = ControllerSpec::new("films", (300, DIM), (2, SLOTS));
    spec.fdp.epsilon = f64::INFINITY;
    spec.cached_levels = 0;
    let mut rows = |first: u64, out: &mut [f32]| {
        out.iter_mut().zip(first * DIM as u64..).for_each(|(number, at)| *number = at as f32);
        Ok(())
    };
    let (counter, sealing) = (&place.counter, key.folder_key());
    Controller::create(&place.folder, &sealing, counter, &spec, &mut rows, &mut |_, _| {})
        .unwrap()
        .close()
        .unwrap();
    let tree = place.folder.join("tree");
    let server =
        Running::start(TrainServer::of_controller(self::spec(), place, |_, _| {}).unwrap());
    let client = connect(&server).await;
    let about = client.connected().clone();
    assert_eq!(about.public_key, key.controller_key().public());
    assert_eq!((about.facts.rows, about.facts.users_max), (300, 2));
    assert_eq!(about.facts.mechanism, "geometric");
    let rounds = async |row: u32| {
        let round = client.open_round(RoundSpec::new(1)).await.unwrap();
        let mut user = ask(&client, round, 0, &[row]).await;
        let sealed = client.rows(round, 0, SOON).await?;
        let first = user.reply(&sealed).unwrap().rows[0];
        learn(&client, &mut user, 1.0, 1.0).await;
        client.finish(round, false, SOON).await.map(|report| (first, report))
    };
    let (first, report) = rounds(9).await.unwrap();
    assert_eq!((first, report.rounds, report.accesses), (27.0, 1, 1));

    // The disk loses the file, and has it again.
    let bytes = std::fs::read(&tree).unwrap();
    let file = std::fs::OpenOptions::new().write(true).open(&tree).unwrap();
    file.set_len(0).unwrap();
    let failed = rounds(9).await;
    assert!(
        matches!(refusal(failed), TrainRefusal::RoundOver { outcome: Outcome::Failed, .. }),
        "a round without a file"
    );
    std::fs::write(&tree, bytes).unwrap();
    let (first, report) = rounds(9).await.unwrap();
    assert_eq!((first, report.rounds), (26.0, 2));
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_round_opens_once_the_budget_is_spent() {
    let folder = TempDir::new().unwrap();
    let place = ControllerPlace::new(&folder.path().join("films"));
    let key = MasterKey::create(&place.key).unwrap();
    let mut spec = ControllerSpec::new("films", (300, DIM), (2, SLOTS));
    spec.budget = Some(BudgetSpec { epsilon: 2.5, delta: 0.0 });
    spec.cached_levels = 0;
    let (counter, sealing) = (&place.counter, key.folder_key());
    let mut rows = |_, _: &mut [f32]| Ok(());
    Controller::create(&place.folder, &sealing, counter, &spec, &mut rows, &mut |_, _| {})
        .unwrap()
        .close()
        .unwrap();
    let start = || {
        let made = TrainServer::of_controller(self::spec(), place.clone(), |_, _| {});
        Running::start(made.unwrap())
    };
    let server = start();
    let client = connect(&server).await;
    // A round that nobody began costs nothing, one that was abandoned costs as any other.
    let round = client.open_round(RoundSpec::new(1)).await.unwrap();
    client.abandon(round).await.unwrap();
    for ends_by_abandoning in [true, false] {
        let round = client.open_round(RoundSpec::new(1)).await.unwrap();
        ask(&client, round, 0, &[9]).await;
        client.rows(round, 0, SOON).await.unwrap();
        match ends_by_abandoning {
            true => client.abandon(round).await.unwrap(),
            false => drop(client.finish(round, true, SOON).await.unwrap()),
        }
    }
    let is_spent = |refusal| match refusal {
        TrainRefusal::BudgetSpent { rounds: 2, message } => message.contains("leaves 0.5"),
        other => panic!("{other:?}"),
    };
    assert!(is_spent(refusal(client.open_round(RoundSpec::new(1)).await)));
    server.stop().unwrap();
    let server = start();
    let client = connect(&server).await;
    assert!(is_spent(refusal(client.open_round(RoundSpec::new(1)).await)));
    server.stop().unwrap();
}

#[test]
fn facts_that_no_message_can_be_bound_to_are_refused() {
    let (memory, _) = PlainMemory::new();
    let facts = TrainFacts { rows: 0, ..facts() };
    let open = move || Ok(Box::new(memory) as Box<dyn RoundMemory>);
    let made = TrainServer::new(spec(), facts, ControllerKey::from_seed(&[3; 32]), open);
    assert!(matches!(made, Err(Error::Sealed(wire::Error::Setting { name: "rows", .. }))));
}
