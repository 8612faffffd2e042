//! Training rounds over real sockets, around a memory that hides nothing.

use std::sync::mpsc;
use std::time::{Duration, Instant};

use crate::common::{Certificates, Running};
use crate::train_common::{
    DIM, HOUR, PlainMemory, SLOTS, SOON, USERS_MAX, ask, authority, closed_terms, connect, create,
    in_deadline, learn, outer_address, refusal, spec, start, start_with, terms, try_ask,
};
use bytes::Bytes;
use hushtable_oram::aggregate::GradientError;
use hushtable_oram::round::{BudgetSpec, Controller, ControllerSpec, Error as RoundError};
use hushtable_oram::wire::{
    self, AuthorityKey, Context, ControllerKey, Credential, DUMMY, Pin, RefusedReason, Terms,
    UserKey, UserSession,
};
use hushtable_serve::{
    Awaited, EndpointSpec, Error, MasterKey, MemoryError, Outcome, Refusal, RoundMemory, RoundSpec,
    RoundStage, TrainClient, TrainClientSpec, TrainError, TrainRefusal, TrainServer,
    TrainServerSpec,
};
use tempfile::TempDir;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_updates_what_its_users_asked_for() {
    let (server, seen) = start();
    let client = connect(&server).await;
    assert_eq!(client.connected().terms, terms());
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
    assert_eq!((report.users, report.requested, report.uploaded, report.requests), (2, 2, 2, 8));
    assert_eq!((report.accesses, report.read_bytes, report.written_bytes), (7, 4096, 8192));
    assert_eq!(report.steps_us, [("union".to_owned(), 12)]);
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

    let bad = |what: &str| TrainRefusal::BadMessage { what: what.into() };
    let sealed = |user| client.session(round, user, None).unwrap().request(&[2]).unwrap();
    let mut flipped = sealed(1);
    flipped[33] ^= 1;
    let refused = client.request(round, 1, flipped.into()).await;
    assert_eq!(refusal(refused), bad("request"));
    let refused = client.request(round, 2, sealed(1).into()).await;
    assert_eq!(refusal(refused), bad("request"));
    let refused = client.request(round, 1, vec![0; 9].into()).await;
    assert_eq!(refusal(refused), bad("request"));
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
    assert_eq!(refusal(refused), bad("upload"));
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
    for (what, reason, count) in [
        ("request", "not_opened", 3.0),
        ("request", "place", 1.0),
        ("request", "repeated", 1.0),
        ("request", "order", 1.0),
        ("rows", "order", 1.0),
        ("upload", "not_opened", 1.0),
        ("upload", "repeated", 1.0),
    ] {
        let labels = format!("what=\"{what}\",reason=\"{reason}\"");
        let name = format!("hushtable_messages_refused_total{{{labels}}}");
        assert_eq!(server.metric(&name).await, count, "{name}");
    }
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn deadlines_end_what_users_hold_up() {
    let (server, seen) = start();
    let client = connect(&server).await;
    let spec = |deadline| {
        let (request, upload) = (Some(deadline), Some(deadline));
        RoundSpec { users_min: 2, request, upload, ..RoundSpec::new(3) }
    };
    let short = Duration::from_millis(150);
    // Two of three come; one uploads.
    let (round, mut first) = in_deadline(short, async |deadline| {
        let round = client.open_round(spec(deadline)).await?;
        let first = try_ask(&client, round, 0, &[1]).await?;
        let closed = client.close_requests(round).await.unwrap_err();
        try_ask(&client, round, 2, &[9]).await?;
        let too_few = TrainRefusal::TooFewUsers { users: 1, users_min: 2 };
        assert_eq!(refusal::<()>(Err(closed)), too_few);
        Ok((round, first))
    })
    .await;
    client.rows(round, 0, SOON).await.unwrap();
    learn(&client, &mut first, 1.0, 1.0).await;
    let started = Instant::now();
    let report = client.finish(round, false, HOUR).await.unwrap();
    assert!(started.elapsed() < SOON);
    assert_eq!((report.requested, report.uploaded), (2, 1));
    assert_eq!(seen.lock().unwrap().added, [(0, 1.0)]);

    // Nobody comes in time.
    let round = in_deadline(short, async |deadline| {
        let round = client.open_round(spec(deadline)).await?;
        try_ask(&client, round, 1, &[1]).await.map(|_| round)
    })
    .await;
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
    // A call waits for half of that, and the client asks again and again.
    spec.network.request_ms_max = 3000;
    let server = start_with(spec, memory);
    let client = connect(&server).await;
    let round = client.open_round(RoundSpec::new(1)).await.unwrap();
    ask(&client, round, 0, &[4]).await;
    // While the memory begins, calls of others are answered, and rows are asked for again and again.
    let started = Instant::now();
    let wait = Duration::from_millis(1600);
    let pending = refusal(client.rows(round, 0, wait).await);
    assert!(started.elapsed() >= wait * 4 / 5);
    assert!(
        matches!(pending, TrainRefusal::Pending { awaited: Awaited::Requests, .. }),
        "{pending}"
    );
    assert_eq!(client.info().await.unwrap().open, Some((round, RoundStage::Beginning)));
    open_gate.send(()).unwrap();
    client.rows(round, 0, SOON).await.unwrap();
    server.stop().unwrap();
}

/// An upload that was taken and could not be added counted as one, and was answered as one when it
/// came again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_that_the_memory_refuses_may_come_again_and_is_reported() {
    let weight = GradientError::Weight { row: 0, bits: 0 };
    let bad: MemoryError = Box::new(RoundError::Gradients(weight));
    let failed: MemoryError = "a Python function raised".into();
    for (error, is_bad) in [(bad, true), (failed, false)] {
        let (mut memory, seen) = PlainMemory::new();
        memory.refuses = Some(error);
        let server = start_with(spec(), memory);
        let client = connect(&server).await;
        let round = client.open_round(RoundSpec::new(3)).await.unwrap();
        let mut sessions = Vec::new();
        for user in 0..2 {
            sessions.push(ask(&client, round, user, &[4]).await);
        }
        refusal(client.request(round, 2, Bytes::from_static(&[7; 99])).await);
        client.close_requests(round).await.unwrap();
        let sealed = Bytes::from(sessions[0].upload(&[1.0; SLOTS * DIM], 1.0).unwrap());
        let refused = client.upload(round, 0, sealed.clone()).await.unwrap_err();
        let is_message = matches!(refused.refused(), Some(TrainRefusal::BadMessage { .. }));
        assert_eq!(is_message, is_bad, "{refused}");
        assert!(!refused.to_string().contains("Python"), "the cause is the operator's to read");
        // The other user is unharmed, and the first may try again: it is added this time.
        learn(&client, &mut sessions[1], 1.0, 2.0).await;
        client.upload(round, 0, sealed).await.unwrap();
        assert_eq!(seen.lock().unwrap().added, [(1, 2.0), (0, 1.0)]);
        let report = client.finish(round, true, SOON).await.unwrap();
        let why = if is_bad { RefusedReason::Weight } else { RefusedReason::Failed };
        assert_eq!(report.uploaded, 2);
        assert_eq!(report.refused, [(0, why), (2, RefusedReason::NotOpened)]);
        server.stop().unwrap();
    }
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
        TrainServer::new(spec.clone(), terms(), key, open)
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
        trust_announced: true,
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
    let mut spec = ControllerSpec::new("films", (300, DIM), (2, SLOTS));
    spec.fdp.epsilon = f64::INFINITY;
    spec.cached_levels = 0;
    let mut rows = |first: u64, out: &mut [f32]| {
        out.iter_mut().zip(first * DIM as u64..).for_each(|(number, at)| *number = at as f32);
        Ok(())
    };
    let (place, key) = create(&folder, &spec, &mut rows);
    assert!(matches!(MasterKey::create(&place.key), Err(Error::Io { .. })));
    let (tree, pin) = (place.folder.join("tree"), place.pin().unwrap());
    let server =
        Running::start(TrainServer::of_controller(self::spec(), place, |_, _| {}).unwrap());
    let client = connect(&server).await;
    let about = client.connected().clone();
    assert_eq!(about.public_key, key.controller_key().public());
    assert_eq!((about.terms.rows(), about.terms.spec().users_max), (300, 2));
    assert_eq!(about.mechanism(), "geometric");
    assert_eq!(about.pin(), pin);
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
async fn a_server_that_announces_other_terms_than_the_pinned_gets_nothing() {
    let (server, seen) = start();
    let endpoint = EndpointSpec::new(server.url(), None);
    let pinned = |pin| TrainClientSpec { pin: Some(pin), ..TrainClientSpec::new(endpoint.clone()) };
    let key = ControllerKey::from_seed(&[3; 32]).public();
    let own = Pin::new(key, &terms());
    let client = TrainClient::connect(&pinned(own)).await.unwrap();
    assert_eq!((client.pin().unwrap(), client.connected().pin()), (own, own));
    let others: [fn(&mut ControllerSpec); 5] = [
        |spec| spec.rows = 7,
        |spec| spec.slots = 3,
        |spec| spec.dim = 4,
        |spec| spec.fdp.epsilon = 2.0,
        |spec| spec.users_max = 6,
    ];
    let mut texts = Vec::new();
    for change in others {
        let mut spec = terms().spec().clone();
        change(&mut spec);
        let spec = pinned(Pin::new(key, &Terms::of(&spec).unwrap()));
        texts.push(TrainClient::connect(&spec).await.map(|_| ()).unwrap_err());
    }
    let stranger = ControllerKey::from_seed(&[4; 32]).public();
    let refused = TrainClient::connect(&pinned(Pin::new(stranger, &terms()))).await;
    texts.push(refused.map(|_| ()).unwrap_err());
    for error in &texts {
        assert!(matches!(error.of(), Some(wire::Error::Pinned)), "{error}");
        assert_eq!(error.to_string(), texts[0].to_string());
    }
    assert!(seen.lock().unwrap().begun.is_empty());
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn other_machines_need_a_pin_and_enrolled_users_or_a_word_that_they_do_not() {
    let make = |spec: TrainServerSpec, terms: Terms| {
        let open = move || Ok(Box::new(PlainMemory::new().0) as Box<dyn RoundMemory>);
        TrainServer::new(spec, terms, ControllerKey::from_seed(&[3; 32]), open)
    };
    let mut open_to_all = spec();
    open_to_all.network.addr = ([0, 0, 0, 0], 0).into();
    open_to_all.network.insecure = true;
    let refused = make(open_to_all.clone(), terms()).map(|_| ()).unwrap_err();
    assert!(matches!(refused.of(), Some(TrainError::Unenrolled { .. })), "{refused}");
    let refused = make(open_to_all.clone(), closed_terms()).map(|_| ()).unwrap_err();
    assert!(matches!(refused.of(), Some(TrainError::OpenOperator { .. })), "{refused}");
    let certificates = Certificates::new();
    std::fs::write(certificates.path("token"), "0123456789abcdef").unwrap();
    let mut known = open_to_all.clone();
    known.operator_token_file = Some(certificates.path("token"));
    make(known, closed_terms()).unwrap();
    let mut certified = open_to_all.clone();
    certified.network.tls = Some(certificates.tls());
    let refused = make(certified.clone(), closed_terms()).map(|_| ()).unwrap_err();
    assert!(matches!(refused.of(), Some(TrainError::OpenOperator { .. })), "{refused}");
    certified.network.tls.as_mut().unwrap().client_ca = Some(certificates.path("ca.pem"));
    make(certified, closed_terms()).unwrap();
    open_to_all.allow_open_operator = true;
    open_to_all.allow_unenrolled = true;
    let Some(ip) = outer_address() else { return };
    open_to_all.network.addr = (ip, 0).into();
    let server = Running::start(make(open_to_all, terms()).unwrap());
    let endpoint = EndpointSpec::new(format!("http://{}", server.addr), None);
    let plain = TrainClientSpec { insecure: true, ..TrainClientSpec::new(endpoint) };
    let stranger = TrainClient::connect(&plain).await.unwrap();
    let round = stranger.open_round(RoundSpec::new(1)).await.unwrap();
    for refused in [stranger.pin().map(|_| ()), stranger.session(round, 0, None).map(|_| ())] {
        assert!(matches!(
            refused.as_ref().err().and_then(Error::of),
            Some(TrainError::NoPin { .. })
        ));
    }
    let trusting = TrainClientSpec { trust_announced: true, ..plain.clone() };
    let client = TrainClient::connect(&trusting).await.unwrap();
    client.session(round, 0, None).unwrap();
    let pinned = TrainClientSpec { pin: Some(client.pin().unwrap()), ..plain };
    TrainClient::connect(&pinned).await.unwrap().session(round, 0, None).unwrap();
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_operators_made_up_users_get_no_place() {
    let (memory, seen) = PlainMemory::new();
    let open = move || Ok(Box::new(memory) as Box<dyn RoundMemory>);
    let key = ControllerKey::from_seed(&[3; 32]);
    let pin = Pin::new(key.public(), &closed_terms());
    let server = Running::start(TrainServer::new(spec(), closed_terms(), key, open).unwrap());
    let client = connect(&server).await;
    assert_eq!(client.pin().unwrap(), pin);
    let enrolled = |seed| {
        let user = UserKey::from_seed(&[seed; 32]);
        let ticket = authority().enrol(&pin, &user.public()).unwrap();
        Credential::new(user, ticket)
    };
    let bad = TrainRefusal::BadMessage { what: "request".into() };
    let round = client.open_round(RoundSpec::new(3)).await.unwrap();
    let refused = client.session(round, 0, None).map(|_| ());
    assert!(matches!(refused.as_ref().err().and_then(Error::of), Some(wire::Error::NoCredential)));
    let ask = async |round, place, credential: &Credential, ids: &[u32]| {
        let mut session = client.session(round, place, Some(credential)).unwrap();
        let sealed = session.request(ids).unwrap();
        (session, sealed.clone(), client.request(round, place, sealed.into()).await)
    };
    // Made up: an own key with no ticket, and with one of an own authority.
    let made_up = UserKey::from_seed(&[66; 32]);
    let own = AuthorityKey::from_seed(&[67; 32]).enrol(&pin, &made_up.public()).unwrap();
    let none = format!("ticket1:{}", "00".repeat(48)).parse().unwrap();
    for ticket in [own, none] {
        let credential = Credential::new(made_up.clone(), ticket);
        let (_, _, refused) = ask(round, 0, &credential, &[1]).await;
        assert_eq!(refusal(refused), bad);
    }
    // Requests of users without a key, under the terms that the operator would rather have.
    let context = Context::new(&terms(), round, 0);
    let mut bare = UserSession::new(&Pin::new(*pin.key(), &terms()), context, None).unwrap();
    let sealed = bare.request(&[1]).unwrap();
    assert_eq!(refusal(client.request(round, 0, sealed.into()).await), bad);

    let (alice, bob) = (enrolled(1), enrolled(2));
    let (_, sealed, taken) = ask(round, 0, &alice, &[7]).await;
    taken.unwrap();
    // Replayed to another place, or once more by the same user.
    let replayed = client.request(round, 1, sealed.clone().into()).await;
    assert_eq!(refusal(replayed), bad);
    let (_, _, again) = ask(round, 1, &alice, &[8]).await;
    assert_eq!(refusal(again), TrainRefusal::AlreadySeated);
    // Alice's name and ticket before Bob's request.
    let mut session = client.session(round, 1, Some(&bob)).unwrap();
    let mut stolen = session.request(&[9]).unwrap();
    stolen[..80].copy_from_slice(&sealed[..80]);
    assert_eq!(refusal(client.request(round, 1, stolen.into()).await), bad);
    let (mut session, _, taken) = ask(round, 1, &bob, &[9]).await;
    taken.unwrap();
    assert_eq!(client.close_requests(round).await.unwrap(), 2);
    let expected = [[7, DUMMY, DUMMY, DUMMY], [9, DUMMY, DUMMY, DUMMY], [DUMMY; 4]].concat();
    assert_eq!(seen.lock().unwrap().begun, [expected]);
    let reply = session.reply(&client.rows(round, 1, SOON).await.unwrap()).unwrap();
    assert_eq!(reply.rows[..3], [27.0, 28.0, 29.0]);
    learn(&client, &mut session, 1.0, 1.0).await;
    assert_eq!(client.finish(round, true, SOON).await.unwrap().uploaded, 1);
    // Replayed in the next round.
    let next = client.open_round(RoundSpec::new(1)).await.unwrap();
    assert_eq!(refusal(client.request(next, 0, sealed.into()).await), bad);
    server.stop().unwrap();
}

/// An operator that edits `controller.json` to name an authority of its own, and puts it back.
#[test]
fn a_controller_whose_file_says_otherwise_than_its_journal_serves_no_rounds() {
    let folder = TempDir::new().unwrap();
    let mut spec = ControllerSpec::new("films", (64, DIM), (2, SLOTS));
    spec.authority = Some(authority().public());
    spec.cached_levels = 0;
    let mut rows = |_: u64, out: &mut [f32]| {
        out.fill(0.5);
        Ok(())
    };
    let (place, _) = create(&folder, &spec, &mut rows);
    let (path, honest) = (place.folder.join("controller.json"), place.terms().unwrap());
    assert_eq!(honest, Terms::of(&spec).unwrap());
    spec.authority = Some(UserKey::from_seed(&[66; 32]).public());
    std::fs::write(&path, spec.to_text().unwrap()).unwrap();
    let edited = place.terms().unwrap();
    let changed = |result: Result<Controller, Error>| {
        let error = result.map(|_| ()).unwrap_err();
        assert!(error.to_string().contains("controller.json"), "{error}");
    };
    changed(place.open_as(&edited, &mut |_, _| {}));
    std::fs::write(&path, honest.text()).unwrap();
    changed(place.open_as(&edited, &mut |_, _| {}));
    place.open_as(&honest, &mut |_, _| {}).unwrap().close().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_round_opens_once_the_budget_is_spent() {
    let folder = TempDir::new().unwrap();
    let mut spec = ControllerSpec::new("films", (300, DIM), (2, SLOTS));
    spec.budget = Some(BudgetSpec { epsilon: 2.5, delta: 0.0 });
    spec.cached_levels = 0;
    let (place, _) = create(&folder, &spec, &mut |_, _| Ok(()));
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
