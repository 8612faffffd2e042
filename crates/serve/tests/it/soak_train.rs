//! A training server that holds many rounds stays within its memory, as its allocator counts it.
//!
//! The suite runs it for some seconds; `make test-nightly` for 3,000 rounds of 10 users.

use crate::common;
use crate::train_common;

use std::time::Instant;

use common::{PATIENCE, Process, Resting, is_long_soak};
use hushtable_oram::round::ControllerSpec;
use hushtable_serve::{EndpointSpec, RoundSpec, TrainClient, TrainClientSpec};
use tempfile::TempDir;
use train_common::create;

const ROWS: usize = 3000;
const DIM: usize = 8;
const SLOTS: usize = 4;
const USERS: usize = 10;
const MIB: f64 = (1 << 20) as f64;

/// A round of [`USERS`] users, each with a connection of its own.
async fn round(server: &Process, number: usize) {
    let connect = async || {
        let endpoint = EndpointSpec::new(server.url(), None);
        let spec = TrainClientSpec { trust_announced: true, ..TrainClientSpec::new(endpoint) };
        TrainClient::connect(&spec).await.unwrap()
    };
    let operator = connect().await;
    let round = operator.open_round(RoundSpec::new(USERS)).await.unwrap();
    let mut users = Vec::new();
    for user in 0..USERS {
        let client = connect().await;
        let ids: Vec<u32> =
            (0..SLOTS).map(|slot| ((number * 97 + user * 13 + slot) % ROWS) as u32).collect();
        let mut session = client.session(round, user as u32, None).unwrap();
        let sealed = session.request(&ids).unwrap();
        client.request(round, user as u32, sealed.into()).await.unwrap();
        users.push((client, session));
    }
    for (user, (client, session)) in users.iter_mut().enumerate() {
        let sealed = client.rows(round, user as u32, PATIENCE).await.unwrap();
        assert_eq!(session.reply(&sealed).unwrap().found, [true; SLOTS]);
        let sealed = session.upload(&[0.5; SLOTS * DIM], 1.0).unwrap();
        client.upload(round, user as u32, sealed.into()).await.unwrap();
    }
    let report = operator.finish(round, false, PATIENCE).await.unwrap();
    assert_eq!((report.requested, report.uploaded), (USERS, USERS));
}

async fn soak(rounds: usize) {
    let started = Instant::now();
    let folder = TempDir::new().unwrap();
    let mut spec = ControllerSpec::new("films", (ROWS as u64, DIM), (USERS, SLOTS));
    spec.fdp.epsilon = f64::INFINITY;
    let mut rows = |_: u64, out: &mut [f32]| {
        out.fill(1.0);
        Ok(())
    };
    let (place, _) = create(&folder, &spec, &mut rows);
    let train = ["train", place.folder.to_str().unwrap()];
    let server = Process::start(folder.path(), "train", &train_common::spec(), &train);
    server.ready().await;
    let start = server.resting_bytes().await;
    let warm = (rounds / 10).max(10);
    let all = async |numbers: std::ops::Range<usize>| {
        for number in numbers {
            round(&server, number).await;
        }
        (server.resting_bytes().await, server.allocated().most)
    };
    let (warmed, base) = all(0..warm).await;
    let (half, _) = all(warm..warm + rounds / 2).await;
    let (_, most) = all(warm + rounds / 2..warm + rounds).await;
    let resting = Resting { start, warm: warmed, half, end: 0 }.ended(&server).await;
    // An operator and the users of a round each have a connection; each user fetches rows once.
    let (clients, seconds) = (rounds * (USERS + 1), started.elapsed().as_secs_f64());
    resting.check("train", clients, rounds * USERS, seconds);
    let (base, most) = (base as f64 / MIB, most as f64 / MIB);
    println!(
        "training, {rounds} rounds of {USERS} users: {base:.1} MiB at most when warm, {most:.1} MiB at most, {} s",
        started.elapsed().as_secs()
    );
    assert!(most <= 1.1 * base + 1.0, "{most:.1} MiB were allocated, of {base:.1} when warm");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_training_server_stays_as_large_as_it_is_when_warm() {
    soak(if is_long_soak() { 3000 } else { 40 }).await;
}
