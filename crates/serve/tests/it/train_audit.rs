//! The audit log of a server of rounds, as its operator finds it.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;

use hushtable_oram::round::ControllerSpec;
use hushtable_serve::{
    AuditSummary, ControllerPlace, MasterKey, RoundSpec, TrainError, TrainRefusal, TrainServer,
    TrainServerSpec,
};
use serde_json::Value;
use tempfile::TempDir;

use crate::common::Running;
use crate::train_common::{DIM, SLOTS, SOON, ask, connect, create, learn, refusal, spec};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn rounds_and_refusals_are_written_down_in_one_chain() {
    let folder = TempDir::new().unwrap();
    let mut made = ControllerSpec::new("films", (300, DIM), (2, SLOTS));
    made.fdp.epsilon = f64::INFINITY;
    made.cached_levels = 0;
    let (place, key) = create(&folder, &made, &mut |_, _| Ok(()));
    let path = folder.path().join("audit.jsonl");
    let audited = TrainServerSpec { audit_log: Some(path.clone()), ..spec() };
    let serve = |place: &ControllerPlace| {
        TrainServer::of_controller(audited.clone(), place.clone(), |_, _| {})
    };
    let server = Running::start(serve(&place).unwrap());
    let client = connect(&server).await;
    let round = client.open_round(RoundSpec::new(2)).await.unwrap();
    let mut session = ask(&client, round, 0, &[200]).await;
    let sealed = client.session(round, 1, None).unwrap().request(&[201]).unwrap();
    let refused = client.request(round, 0, sealed.into()).await;
    assert_eq!(refusal(refused), TrainRefusal::AlreadyDone { what: "request".into(), user: 0 });
    let refused = client.request(round, 1, vec![0; 50].into()).await;
    assert_eq!(refusal(refused), TrainRefusal::BadMessage { what: "request".into() });
    client.close_requests(round).await.unwrap();
    learn(&client, &mut session, 1.0, 1.0).await;
    let report = client.finish(round, false, SOON).await.unwrap();
    let second = client.open_round(RoundSpec::new(2)).await.unwrap();
    client.abandon(second).await.unwrap();
    server.stop().unwrap();
    let server = Running::start(serve(&place).unwrap());
    // Another may not write it meanwhile.
    let error = serve(&place).map(|_| ()).unwrap_err();
    assert!(matches!(error.of(), Some(TrainError::AuditInUse { .. })), "{error}");
    // Open at the end.
    let third = connect(&server).await.open_round(RoundSpec::new(1)).await.unwrap();
    server.stop().unwrap();

    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let told: Vec<String> = lines
        .iter()
        .map(|line| {
            let mut own: BTreeMap<String, Value> = serde_json::from_value(line.clone()).unwrap();
            for every in ["seq", "time", "prev", "hash", "software", "pin"] {
                own.remove(every);
            }
            let word = |(name, value): (String, Value)| format!("{name}={value}");
            own.into_iter().map(word).collect::<Vec<_>>().join(" ").replace('"', "")
        })
        .collect();
    let deadlines = "finish_ms=600000 request_ms=60000";
    assert_eq!(
        told,
        [
            "event=started rounds=0".to_owned(),
            format!("event=opened {deadlines} round={round} upload_ms=600000 users=2 users_min=1"),
            format!("event=refused reason=repeated round={round} user=0 what=request"),
            format!("event=refused reason=not_opened round={round} user=1 what=request"),
            format!("accesses={} event=begun requested=1 round={round}", report.accesses),
            format!(
                "accesses={} event=over outcome=committed refused=2 requested=1 round={round} \
                 rounds=1 uploaded=1 users=2",
                report.accesses
            ),
            format!("event=opened {deadlines} round={second} upload_ms=600000 users=2 users_min=1"),
            format!("event=over outcome=abandoned refused=0 round={second}"),
            "event=stopped rounds=1".to_owned(),
            "event=started rounds=1".to_owned(),
            format!("event=opened {deadlines} round={third} upload_ms=600000 users=1 users_min=1"),
            format!("event=over outcome=abandoned refused=0 round={third}"),
            "event=stopped rounds=1".to_owned(),
        ]
    );
    assert_eq!(lines[0]["pin"], place.pin().unwrap().to_string());
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    let found = AuditSummary::of_file(&path, &key, None).unwrap();
    assert_eq!((found.end.seq, found.outcomes["abandoned"]), (13, 2));
    let end = found.end.to_string();
    AuditSummary::of_file(&path, &key, Some(&end)).unwrap();

    // Changed on the disk: whoever checks sees it, and no server goes on with it.
    fs::write(&path, text.replace("\"outcome\":\"committed\"", "\"outcome\":\"abandoned\""))
        .unwrap();
    let error = AuditSummary::of_file(&path, &key, None).unwrap_err();
    assert!(matches!(error.of(), Some(TrainError::Audit { line: 6, .. })), "{error}");
    let error = serve(&place).map(|_| ()).unwrap_err();
    assert!(matches!(error.of(), Some(TrainError::Audit { line: 6, .. })), "{error}");
    fs::write(&path, &text).unwrap();
    for other in ["13:00", "x", &end.replace("13:", "12:"), &end.replace("13:", "14:")] {
        let error = AuditSummary::of_file(&path, &key, Some(other)).unwrap_err();
        assert!(matches!(error.of(), Some(TrainError::AuditExpected { .. })), "{error}");
    }
    // By another controller's key, nothing of it is one's own.
    let stranger = MasterKey::create(&folder.path().join("stranger.key")).unwrap();
    let error = AuditSummary::of_file(&path, &stranger, None).unwrap_err();
    assert!(matches!(error.of(), Some(TrainError::Audit { line: 1, .. })), "{error}");
}
