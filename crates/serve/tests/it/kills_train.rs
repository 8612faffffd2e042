//! A training server is killed at any moment, on a disk that is full now and then, and what it said of
//! each round is what opening it again finds: no acknowledged round is lost, none is applied twice or
//! by half, none that was called failed stands.
//!
//! The suite kills it some times; `make test-nightly` 60 times. The full disk is a file system of its
//! own, where the system lets tests mount one.

use crate::common;
use crate::train_common;

use std::collections::HashMap;
use std::io::Write;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use common::{PATIENCE, Process, is_long_soak, page, until};
use hushtable_oram::round::ControllerSpec;
use hushtable_serve::{
    EndpointSpec, Error, Outcome, Refusal, RoundSpec, TrainClient, TrainClientSpec, TrainRefusal,
};
use rand::{RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use rustix::process::Signal;
use tempfile::TempDir;
use train_common::{FirstRows, create};

/// Where the controller lies, in the process that has a file system of its own.
const VARIABLE: &str = "HUSHTABLE_TEST_KILLS";
const ROWS: u64 = 400;
const DIM: usize = 4;
const SLOTS: usize = 3;
const START: f32 = 1e6;

/// What the operator was told of a round.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Said {
    /// Its report.
    Committed,
    /// That it is over, and how.
    Over(Outcome),
    /// Nothing: the answer did not come.
    Nothing,
}

/// What is known of all rounds, by all that was said.
#[derive(Default)]
struct Known {
    said: HashMap<u64, Said>,
    /// Rounds that the server refused to open: the disk was full.
    unwritable: usize,
    /// Rounds whose outcome was unknown for a while.
    unknown: usize,
}

/// Whether a round stands, by what is said of it now.
async fn outcome(client: &TrainClient, round: u64) -> Result<Said, Error> {
    match client.finish(round, true, PATIENCE).await {
        Ok(report) => {
            assert_eq!(report.round, round);
            Ok(Said::Committed)
        }
        Err(error) => match error.refused() {
            Some(&TrainRefusal::RoundOver { outcome, .. }) => Ok(Said::Over(outcome)),
            // It was opened, and never began.
            Some(TrainRefusal::NoRound { .. }) => Ok(Said::Over(Outcome::Failed)),
            _ => Err(error),
        },
    }
}

async fn connect(url: &str) -> Result<TrainClient, Error> {
    let endpoint = EndpointSpec::new(url.to_owned(), None);
    let spec = TrainClientSpec { trust_announced: true, ..TrainClientSpec::new(endpoint) };
    TrainClient::connect(&spec).await
}

/// One round after another, each of which takes 1 off the same two rows, until the server is gone.
async fn rounds(url: String, known: Arc<Mutex<Known>>) {
    let Ok(client) = connect(&url).await else { return };
    loop {
        let round = match client.open_round(RoundSpec::new(1)).await {
            Ok(round) => round,
            Err(error) => {
                let Some(refusal) = error.refused() else { return };
                let is_unwritable = matches!(refusal, TrainRefusal::Unwritable { .. });
                assert!(is_unwritable, "{refusal}");
                known.lock().unwrap().unwritable += 1;
                tokio::time::sleep(Duration::from_millis(50)).await;
                continue;
            }
        };
        known.lock().unwrap().said.insert(round, Said::Nothing);
        let served = async {
            let mut session = client.session(round, 0, None)?;
            let sealed = session.request(&[7, 300]).unwrap();
            client.request(round, 0, sealed.into()).await?;
            let sealed = client.rows(round, 0, PATIENCE).await?;
            let reply = session.reply(&sealed).unwrap();
            assert_eq!(reply.rows[0], reply.rows[DIM], "one row of a round, and not the other");
            let sealed = session.upload(&[1.0; SLOTS * DIM], 1.0).unwrap();
            client.upload(round, 0, sealed.into()).await
        };
        let served: Result<(), Error> = served.await;
        let finished = client.finish(round, true, PATIENCE).await;
        let said = match (served, finished) {
            (_, Ok(_)) => Said::Committed,
            (_, Err(error))
                if let Some(&TrainRefusal::RoundOver { outcome, .. }) = error.refused() =>
            {
                Said::Over(outcome)
            }
            // The memory failed: the next word says at what.
            (_, Err(Error::Refused { refusal: Refusal::Backend, .. })) => {
                outcome(&client, round).await.unwrap_or(Said::Nothing)
            }
            (_, Err(_)) => Said::Nothing,
        };
        let mut known = known.lock().unwrap();
        known.unknown += usize::from(said == Said::Over(Outcome::Unknown));
        known.said.insert(round, said);
    }
}

/// Takes all the space that is left.
fn fill(folder: &Path) {
    let mut file = std::fs::File::create(folder.join("filler")).unwrap();
    for bytes in [1 << 16, 1 << 12, 1] {
        while file.write_all(&vec![1; bytes]).is_ok() {}
    }
}

/// Waits until the server has opened its memory, whether or not it can write rounds.
async fn opened(server: &Process) -> bool {
    let mut is_writable = None;
    until("the memory is opened", async || {
        is_writable = match page(server.metrics_addr, "/readyz").await {
            (200, _) => Some(true),
            (_, text) if text.starts_with("its work cannot be done") => Some(false),
            _ => None,
        };
        is_writable.is_some()
    })
    .await;
    is_writable.unwrap()
}

/// Kills the server of the controller in `disk` so many times, and more until enough has happened to show something,
/// and prints what came of it.
async fn kill(disk: &TempDir, can_fill: bool, kills: usize) {
    let own = TempDir::new().unwrap();
    let mut spec = ControllerSpec::new("films", (ROWS, DIM), (1, SLOTS));
    spec.fdp.epsilon = f64::INFINITY;
    spec.cached_levels = 1;
    let rows: &mut FirstRows<'_> = &mut |_, out| {
        out.fill(START);
        Ok(())
    };
    let (place, _) = create(disk, &spec, rows);
    let train = ["train", place.folder.to_str().unwrap()];
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let known = Arc::new(Mutex::new(Known::default()));
    let (mut settled, mut full_openings, mut fills) = (HashMap::<u64, Said>::new(), 0, 0);
    let mut killed = 0;
    for number in 0.. {
        let server = Process::start(own.path(), "train", &train_common::spec(), &train);
        let is_full = disk.path().join("filler").exists();
        let is_writable = opened(&server).await;
        full_openings += usize::from(is_full);
        assert!(is_full || is_writable, "a server that could write rounds says it cannot");
        let client = connect(&server.url()).await.unwrap();
        // All that was said before is still so; what nobody knew is known.
        let before = known.lock().unwrap().said.clone();
        for (&round, &said) in &before {
            if settled.contains_key(&round) {
                continue;
            }
            let now = outcome(&client, round).await.unwrap();
            assert_ne!(now, Said::Over(Outcome::Unknown), "unknown after it was opened again");
            match said {
                Said::Committed => {
                    assert_eq!(now, Said::Committed, "an acknowledged round is lost")
                }
                Said::Over(Outcome::Unknown) | Said::Nothing => {}
                Said::Over(_) => assert_ne!(now, Said::Committed, "called failed, and it stands"),
            }
            settled.insert(round, now);
        }
        let committed = settled.values().filter(|&&said| said == Said::Committed).count();
        assert_eq!(client.info().await.unwrap().rounds, committed as u64, "kill {number}");
        if is_full {
            std::fs::remove_file(disk.path().join("filler")).unwrap();
        }
        let is_shown = {
            let known = known.lock().unwrap();
            let is_lost = known.said.values().any(|&said| said == Said::Nothing);
            let was_full = !can_fill || (full_openings > 0 && known.unwritable > 0);
            committed > number && is_lost && was_full
        };
        assert!(number < 20 * kills || is_shown, "too little happens to show anything");
        if number >= kills && is_shown {
            killed = number;
            // What the rounds took off the rows is what they were said to.
            server.ready().await;
            let round = client.open_round(RoundSpec::new(1)).await.unwrap();
            let mut session = client.session(round, 0, None).unwrap();
            let sealed = session.request(&[7, 300]).unwrap();
            client.request(round, 0, sealed.into()).await.unwrap();
            let rows = client.rows(round, 0, PATIENCE).await.unwrap();
            let rows = session.reply(&rows).unwrap().rows;
            assert_eq!(rows[..2 * DIM], [START - committed as f32; 2 * DIM]);
            break;
        }
        let running = tokio::spawn(rounds(server.url(), Arc::clone(&known)));
        // However slow the machine, something is told of every server.
        let tells = async || {
            let known = known.lock().unwrap();
            let told = known.said.values().filter(|&&said| said != Said::Nothing).count();
            told > before.values().filter(|&&said| said != Said::Nothing).count()
        };
        until("a round ends", tells).await;
        let time = |random: &mut ChaCha8Rng| Duration::from_millis(random.random_range(10..250));
        tokio::time::sleep(time(&mut random)).await;
        if can_fill && random.random_range(0..3) > 0 {
            fill(disk.path());
            fills += 1;
            tokio::time::sleep(time(&mut random)).await;
            if random.random_range(0..2) == 0 {
                std::fs::remove_file(disk.path().join("filler")).unwrap();
                tokio::time::sleep(time(&mut random)).await;
            }
        }
        server.signal(Signal::KILL);
        drop(server);
        running.await.unwrap();
    }
    let known = known.lock().unwrap();
    let count = |is: fn(&Said) -> bool| settled.values().filter(|said| is(said)).count();
    let committed = count(|said| *said == Said::Committed);
    let lost_answers = known.said.values().filter(|&&said| said == Said::Nothing).count();
    println!(
        "{killed} kills, the disk full {fills} times, {full_openings} openings of it full: {} rounds, \
         {committed} committed, {} over otherwise, {lost_answers} answers lost with a server, \
         {} unknown for a while, {} not opened for want of space; every outcome as it was said",
        settled.len(),
        settled.len() - committed,
        known.unknown,
        known.unwritable,
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_controller_said_is_so() {
    let kills = if is_long_soak() { 60 } else { 8 };
    if let Some(folder) = std::env::var_os(VARIABLE) {
        return kill(&TempDir::new_in(folder).unwrap(), true, kills).await;
    }
    let disk = TempDir::new().unwrap();
    let mount = "mount -t tmpfs -o size=8m none \"$0\" || exit 77; exec \"$@\"";
    let output = Command::new("unshare")
        .args(["--mount", "--map-root-user", "sh", "-c", mount])
        .arg(disk.path())
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "--nocapture", "kills_train::what_a_killed_controller_said_is_so"])
        .env(VARIABLE, disk.path())
        .output();
    match output {
        Ok(output) if output.status.success() => {
            let said = String::from_utf8_lossy(&output.stdout);
            assert!(said.contains("1 passed"), "{said}");
            print!("{said}");
        }
        Ok(output) if output.status.code() != Some(77) && !output.stdout.is_empty() => {
            let [said, errors] = [output.stdout, output.stderr].map(String::from_utf8);
            panic!("{}\n{}", said.unwrap(), errors.unwrap());
        }
        _ => {
            eprintln!("no file system of its own for this test: the disk is not filled");
            kill(&disk, false, kills).await;
        }
    }
}
