//! What an operator is told of a round is what became of it: over a counter that fails, a restart, and
//! where the operator itself goes away.

use std::time::{Duration, Instant};

use crate::common::{Running, until};
use crate::train_common::{
    DIM, PlainMemory, SLOTS, SOON, Trouble, ask, connect, create, in_deadline, learn, refusal,
    spec, start, start_with, try_ask, try_learn,
};
use hushtable_oram::round::ControllerSpec;
use hushtable_serve::{Outcome, RoundSpec, TrainRefusal, TrainServer};
use tempfile::TempDir;

/// Asks for a page until it has this status.
async fn becomes(server: &Running, path: &str, status: u16) -> String {
    let mut last = String::new();
    until(&format!("{path} is {status}"), async || {
        let (found, text) = server.page(path).await;
        last = text;
        found == status
    })
    .await;
    last
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_that_nobody_knows_the_end_of_is_not_called_failed() {
    for (trouble, stands) in [(Trouble::Behind, true), (Trouble::Before, false)] {
        let (memory, seen) = PlainMemory::new();
        let server = start_with(spec(), memory);
        let client = connect(&server).await;
        let round = client.open_round(RoundSpec::new(1)).await.unwrap();
        let mut user = ask(&client, round, 0, &[7]).await;
        let sealed = client.rows(round, 0, SOON).await.unwrap();
        user.reply(&sealed).unwrap();
        learn(&client, &mut user, 1.0, 1.0).await;
        becomes(&server, "/readyz", 200).await;
        seen.lock().unwrap().trouble = trouble;
        let _lost = client.finish(round, false, SOON).await.unwrap_err();
        let unknown = TrainRefusal::RoundOver { round, outcome: Outcome::Unknown };
        assert_eq!(refusal(client.finish(round, false, SOON).await), unknown);
        assert_eq!(refusal(client.abandon(round).await), unknown);
        let open = refusal(client.open_round(RoundSpec::new(1)).await);
        assert!(matches!(open, TrainRefusal::Unwritable { .. }), "{open}");
        let text = becomes(&server, "/readyz", 503).await;
        assert_eq!(text, "its work cannot be done at present: see the log\n");
        assert_eq!(server.page("/livez").await.0, 200);

        seen.lock().unwrap().trouble = Trouble::None;
        let finished = client.finish(round, false, SOON).await;
        match stands {
            true => {
                let report = finished.unwrap();
                assert_eq!((report.round, report.rounds, report.requested), (round, 1, 1));
            }
            false => assert_eq!(
                refusal(finished),
                TrainRefusal::RoundOver { round, outcome: Outcome::Failed }
            ),
        }
        becomes(&server, "/readyz", 200).await;
        let row = seen.lock().unwrap().table[21];
        assert_eq!(row, if stands { 20.0 } else { 21.0 });
        assert_eq!(client.info().await.unwrap().rounds, u64::from(stands));
        client.open_round(RoundSpec::new(1)).await.unwrap();
        server.stop().unwrap();
    }
}

/// Between rounds it is seen without anyone asking, and forgotten again.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_cannot_write_rounds_is_not_ready() {
    let (server, seen) = start();
    becomes(&server, "/readyz", 200).await;
    seen.lock().unwrap().trouble = Trouble::Before;
    becomes(&server, "/readyz", 503).await;
    seen.lock().unwrap().trouble = Trouble::None;
    becomes(&server, "/readyz", 200).await;
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_vanished_operators_round_ends_at_its_deadline() {
    let (server, seen) = start();
    let operator = connect(&server).await;
    let user = connect(&server).await;
    let mut lost = 0;
    let (round, asked, short) = in_deadline(Duration::from_millis(200), async |short| {
        lost += 1;
        let spec = RoundSpec { upload: Some(short), finish: Some(short), ..RoundSpec::new(1) };
        let round = operator.open_round(spec).await?;
        let asked = Instant::now();
        let mut session = try_ask(&user, round, 0, &[7]).await?;
        let sealed = user.rows(round, 0, SOON).await?;
        session.reply(&sealed).unwrap();
        try_learn(&user, &mut session, 1.0, 1.0).await?;
        Ok((round, asked, short))
    })
    .await;
    drop(operator);
    until("the round is over", async || user.info().await.unwrap().open.is_none()).await;
    assert!(asked.elapsed() >= 2 * short, "it was not waited for");
    let expired = TrainRefusal::RoundOver { round, outcome: Outcome::Expired };
    let back = connect(&server).await;
    assert_eq!(refusal(back.finish(round, false, SOON).await), expired);
    back.abandon(round).await.unwrap();
    let (abandoned, rounds) = {
        let seen = seen.lock().unwrap();
        (seen.abandoned, seen.rounds)
    };
    assert_eq!((abandoned, rounds), (lost, 0), "nothing is updated without the operator's word");
    back.open_round(RoundSpec::new(1)).await.unwrap();
    server.stop().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn finish_is_answered_again_after_a_restart() {
    let folder = TempDir::new().unwrap();
    let mut spec = ControllerSpec::new("films", (300, DIM), (2, SLOTS));
    spec.fdp.epsilon = f64::INFINITY;
    spec.cached_levels = 0;
    let mut rows = |_: u64, out: &mut [f32]| {
        out.fill(5.0);
        Ok(())
    };
    let (place, _) = create(&folder, &spec, &mut rows);
    let start = || {
        let server = TrainServer::of_controller(self::spec(), place.clone(), |_, _| {});
        Running::start(server.unwrap())
    };
    let mut server = start();
    let mut known = Vec::new();
    for number in 0..6 {
        let client = connect(&server).await;
        let round = client.open_round(RoundSpec::new(2)).await.unwrap();
        let mut user = ask(&client, round, 0, &[9]).await;
        client.close_requests(round).await.unwrap();
        let sealed = client.rows(round, 0, SOON).await.unwrap();
        let rows = user.reply(&sealed).unwrap().rows;
        assert_eq!(rows[0], 5.0 - ((number + 1) / 2) as f32, "each committed round is there once");
        learn(&client, &mut user, 1.0, 1.0).await;
        let report = match number % 2 {
            0 => Some(client.finish(round, true, SOON).await.unwrap()),
            _ => None,
        };
        // Every other round is still open: the server ends it.
        known.push((round, report));
        server.stop().unwrap();
        server = start();
        let client = connect(&server).await;
        for (round, report) in &known {
            let again = client.finish(*round, false, SOON).await;
            match report {
                Some(report) => {
                    let again = again.unwrap();
                    assert_eq!((again.round, again.rounds), (report.round, report.rounds));
                    assert_eq!((again.users, again.requested, again.uploaded), (2, 1, 1));
                    assert_eq!(again.accesses, report.accesses);
                }
                None => assert_eq!(
                    refusal(again),
                    TrainRefusal::RoundOver { round: *round, outcome: Outcome::Abandoned }
                ),
            }
        }
        let never = refusal(client.finish(12345, false, SOON).await);
        assert_eq!(never, TrainRefusal::NoRound { round: 12345 });
    }
    server.stop().unwrap();
}
