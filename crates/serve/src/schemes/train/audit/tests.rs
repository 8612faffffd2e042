use std::fs::{self, File};
use std::sync::atomic::{AtomicBool, Ordering};

use tempfile::TempDir;

use hushtable_oram::round::{ControllerSpec, RoundName, RoundReport};
use hushtable_oram::rounds::RoundLimits;
use hushtable_oram::wire::{Context, Pin, Terms, UserSession};

use super::super::host::Host;
use super::super::metrics::TrainMetrics;
use super::super::seats::{Place, Seats};
use super::super::{CommitError, MemoryError, RoundMemory};
use super::*;
use crate::host::quota::Holder;

fn refused(round: u64, user: u32) -> Event {
    Event::Refused { round, user, what: "upload", reason: "not_finite" }
}

fn key() -> ControllerKey {
    ControllerKey::from_seed(&[7; 32])
}

fn check(path: &Path, expected: Option<&str>) -> Result<AuditSummary, String> {
    let expected = expected.map(|text| ChainEnd::parse(text).unwrap());
    chain::read(File::open(path).unwrap(), &ChainKey::of(&key()), expected)
        .map_err(|broken| told_of(path, broken).to_string())
}

#[track_caller]
fn is_refused(path: &Path, words: &str) {
    let text = check(path, None).unwrap_err();
    assert!(text.contains(words), "{text}");
    // A server does not go on with it either, and leaves it as it is.
    let before = fs::read(path).unwrap();
    let error = Audit::open(path, &key()).map(|_| ()).unwrap_err();
    assert!(error.to_string().contains("move it away"), "{error}");
    assert_eq!(fs::read(path).unwrap(), before);
}

/// A log of 5 lines, by two servers.
fn log(folder: &TempDir) -> PathBuf {
    let path = folder.path().join("audit");
    let audit = Audit::open(&path, &key()).unwrap();
    (0..2).for_each(|user| audit.note(refused(u64::MAX, user)));
    assert!(audit.note_durably(Event::Stopped { rounds: 3 }));
    drop(audit);
    let audit = Audit::open(&path, &key()).unwrap();
    audit.note(Event::Over { round: 5, outcome: "committed".into(), refused: 2, report: None });
    audit.note(refused(9, 1));
    drop(audit);
    path
}

#[test]
fn lines_make_one_chain_across_restarts() {
    let folder = TempDir::new().unwrap();
    let path = log(&folder);
    let found = check(&path, None).unwrap();
    assert_eq!((found.end.seq, found.torn_bytes), (5, 0));
    assert_eq!(found.events["refused"], 3);
    assert_eq!((found.outcomes["committed"], found.refused["not_finite"]), (1, 3));
    let text = fs::read_to_string(&path).unwrap();
    assert_eq!(found.bytes, text.len() as u64);
    let lines: Vec<serde_json::Value> =
        text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    for (at, line) in lines.iter().enumerate() {
        assert_eq!(line["seq"], at + 1);
        let prev = if at == 0 { "0".repeat(64).into() } else { lines[at - 1]["hash"].clone() };
        assert_eq!(line["prev"], prev);
    }
    // Whole, though it is more than a float has room for.
    assert_eq!(lines[0]["round"], u64::MAX.to_string());
    // What was printed once is still in it.
    let first = ChainEnd::parse(&format!("1:{}", lines[0]["hash"].as_str().unwrap())).unwrap();
    check(&path, Some(&first.to_string())).unwrap();
    check(&path, Some(&found.end.to_string())).unwrap();
}

#[test]
fn a_change_anywhere_is_found_at_its_line() {
    let folder = TempDir::new().unwrap();
    let path = log(&folder);
    let whole = fs::read_to_string(&path).unwrap();
    let end = check(&path, None).unwrap().end.to_string();
    let lines: Vec<&str> = whole.lines().collect();
    // Each byte of the third line, line feed included.
    let start = lines[..2].iter().map(|line| line.len() + 1).sum::<usize>();
    for at in start..start + lines[2].len() + 1 {
        let mut bytes = whole.clone().into_bytes();
        bytes[at] ^= 1;
        fs::write(&path, bytes).unwrap();
        is_refused(&path, "line 3 of");
    }
    let write = |lines: &[&str]| fs::write(&path, lines.join("\n") + "\n").unwrap();
    // A line that is gone, one that is there twice, and two that changed places.
    write(&[lines[0], lines[2], lines[3], lines[4]]);
    is_refused(&path, "line 2 of");
    write(&[lines[0], lines[0], lines[1]]);
    is_refused(&path, "line 2 of");
    write(&[lines[0], lines[2], lines[1]]);
    is_refused(&path, "line 2 of");
    write(&lines[1..]);
    is_refused(&path, "line 1 of");
    // Rewritten whole, by somebody without the key.
    let other = Audit::open(&folder.path().join("other"), &ControllerKey::from_seed(&[8; 32]));
    other.unwrap().note(refused(1, 1));
    fs::rename(folder.path().join("other"), &path).unwrap();
    is_refused(&path, "line 1 of");
    fs::write(&path, "x".repeat(5000)).unwrap();
    is_refused(&path, "line 1 of");
    // A tail that is cut off at a line's end is seen against what was printed, and not otherwise.
    write(&lines[..4]);
    assert_eq!(check(&path, None).unwrap().end.seq, 4);
    let text = check(&path, Some(&end)).unwrap_err();
    assert!(text.contains("cut off"), "{text}");
    // As is one that went on otherwise.
    Audit::open(&path, &key()).unwrap().note(refused(10, 0));
    let text = check(&path, Some(&end)).unwrap_err();
    assert!(text.contains("another one"), "{text}");
}

#[test]
fn a_line_that_a_crash_cut_short_is_cut_off_and_noted() {
    let folder = TempDir::new().unwrap();
    let path = log(&folder);
    let whole = fs::read(&path).unwrap();
    let last =
        whole.len() - whole[..whole.len() - 1].iter().rposition(|b| *b == b'\n').unwrap() - 1;
    for kept in [1, last / 2, last - 1] {
        let torn = &whole[..whole.len() - last + kept];
        fs::write(&path, torn).unwrap();
        let found = check(&path, None).unwrap();
        assert_eq!((found.end.seq, found.torn_bytes), (4, kept as u64));
        drop(Audit::open(&path, &key()).unwrap());
        let found = check(&path, None).unwrap();
        assert_eq!((found.end.seq, found.torn_bytes, found.events["cut"]), (5, 0, 1));
        let text = fs::read_to_string(&path).unwrap();
        assert!(text.contains(&format!("\"event\":\"cut\",\"bytes\":{kept}")), "{text}");
    }
}

#[test]
fn a_log_has_one_writer() {
    let folder = TempDir::new().unwrap();
    let path = log(&folder);
    let audit = Audit::open(&path, &key()).unwrap();
    let error = Audit::open(&path, &key()).map(|_| ()).unwrap_err();
    assert!(matches!(error.of(), Some(TrainError::AuditInUse { .. })), "{error}");
    drop(audit);
    Audit::open(&path, &key()).unwrap();
}

#[test]
fn a_log_goes_though_a_forked_process_has_it_open() {
    let folder = TempDir::new().unwrap();
    let path = log(&folder);
    let file = File::open(&path).unwrap();
    file.try_lock().unwrap();
    let inherited = file.try_clone().unwrap();
    drop(LogFile { file, bytes: 0 });
    Audit::open(&path, &key()).unwrap();
    drop(inherited);
}

/// A disk that is full when it is told to be.
struct Disk {
    is_full: Arc<AtomicBool>,
    lines: Arc<Mutex<Vec<u8>>>,
}

impl Lines for Disk {
    fn append(&mut self, line: &[u8]) -> io::Result<()> {
        if self.is_full.load(Ordering::Relaxed) {
            return Err(io::ErrorKind::StorageFull.into());
        }
        lock(&self.lines).extend_from_slice(line);
        Ok(())
    }
}

/// A log on such a disk.
fn on_disk(disk: Disk) -> Audit {
    let (lines, key) = (Box::new(disk), ChainKey::of(&key()));
    let (end, waiting, fault) = (ChainEnd::START, VecDeque::new(), Arc::default());
    Audit::start(Writer { path: "audit".into(), lines, key, end, waiting, fault }).unwrap()
}

#[test]
fn what_a_full_disk_does_not_take_comes_later_and_in_order() {
    let (is_full, lines) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<u8>>>::default());
    let disk = Disk { is_full: Arc::clone(&is_full), lines: Arc::clone(&lines) };
    let audit = on_disk(disk);
    assert!(audit.note_durably(refused(1, 0)));
    assert_eq!(audit.fault(), None);
    is_full.store(true, Ordering::Relaxed);
    audit.note(refused(1, 1));
    assert!(!audit.note_durably(refused(1, 2)));
    assert!(audit.fault().unwrap().contains("cannot be written"));
    is_full.store(false, Ordering::Relaxed);
    assert!(audit.note_durably(refused(1, 3)));
    assert_eq!(audit.fault(), None);
    drop(audit);
    let found = chain::read(&**lock(&lines), &ChainKey::of(&key()), None);
    assert_eq!(found.map_err(|_| ()).unwrap().end.seq, 4);
    let text = String::from_utf8(lock(&lines).clone()).unwrap();
    let users: Vec<_> = text.lines().map(|line| line.split("\"user\":").nth(1).unwrap()).collect();
    assert!(users.iter().enumerate().all(|(at, user)| user.starts_with(&at.to_string())), "{text}");
}

/// A memory that does what it is asked.
struct Still;

impl RoundMemory for Still {
    fn begin(&mut self, _: RoundName, _: usize, _: &[u32]) -> Result<(), MemoryError> {
        Ok(())
    }

    fn rows(&mut self, _: usize, _: &mut [f32], _: &mut [bool]) -> Result<(), MemoryError> {
        Ok(())
    }

    fn add(&mut self, _: usize, _: &[f32], _: f32) -> Result<(), MemoryError> {
        Ok(())
    }

    fn commit(&mut self) -> Result<RoundReport, CommitError> {
        Ok(RoundReport { rounds: 1, ..RoundReport::default() })
    }

    fn abandon(&mut self) -> Result<(), MemoryError> {
        Ok(())
    }

    fn rounds(&self) -> u64 {
        0
    }
}

#[tokio::test]
async fn no_round_opens_while_the_log_cannot_be_written_and_an_open_one_ends() {
    let (is_full, lines) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Vec<u8>>>::default());
    let audit = on_disk(Disk { is_full: Arc::clone(&is_full), lines: Arc::clone(&lines) });
    let terms = Terms::of(&ControllerSpec::new("films", (30, 2), (3, 2))).unwrap();
    let pin = Pin::new(key().public(), &terms);
    let (memory, metrics) = (Box::new(Still), TrainMetrics::default());
    let host = Host::new(terms.clone(), key(), memory, metrics, Seats::new(1 << 20), Some(audit));
    let (request_max, upload_max, finish_max) = (None, None, None);
    let limits = RoundLimits { users: 1, users_min: 1, request_max, upload_max, finish_max };
    let round = host.open(limits).await.unwrap();
    // The disk fills up: the round that is open goes its way to the end.
    is_full.store(true, Ordering::Relaxed);
    let context = Context::new(&terms, round, 0);
    let mut session = UserSession::new(&pin, context, None).unwrap();
    let place = Place { round, user: 0, certificate: None, holder: Holder::default() };
    let sealed = session.request(&[3]).unwrap();
    host.request(place, sealed.into()).await.unwrap();
    host.rows(place, Duration::from_secs(9)).await.unwrap();
    let sealed = session.upload(&[1.0; 2], 1.0).unwrap();
    host.upload(place, sealed.into()).await.unwrap();
    let report = host.finish(round, false, Duration::from_secs(9)).await.unwrap();
    assert_eq!(report.uploaded, 1);
    // No other is opened, whether or not that is known before it is tried.
    assert!(host.open(limits).await.is_err());
    assert!(host.open(limits).await.is_err());
    assert!(host.info().open.is_none());
    is_full.store(false, Ordering::Relaxed);
    let started = std::time::Instant::now();
    while host.audit_fault().is_some() && started.elapsed().as_secs() < 9 {
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let next = host.open(limits).await.unwrap();
    host.abandon(next).await.unwrap();
    host.note_stopped().await;
    let text = String::from_utf8(lock(&lines).clone()).unwrap();
    let events: Vec<_> = text
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .map(|line| (line["event"].clone(), line["round"].clone(), line["outcome"].clone()))
        .map(|(event, round, outcome)| format!("{event} {round} {outcome}").replace('"', ""))
        .collect();
    assert_eq!(events[1], format!("opened {round} null"));
    assert_eq!(events[2], format!("begun {round} null"));
    assert_eq!(events[3], format!("over {round} committed"));
    assert_eq!(events[events.len() - 2], format!("over {next} abandoned"));
    assert_eq!(events[events.len() - 1], "stopped null null");
}

#[test]
fn times_are_those_of_the_calendar() {
    for (seconds, text) in [
        (0, "1970-01-01T00:00:00.000Z"),
        (951_782_399, "2000-02-28T23:59:59.000Z"),
        (951_782_400, "2000-02-29T00:00:00.000Z"),
        (1_709_251_200, "2024-03-01T00:00:00.000Z"),
        (4_102_444_799, "2099-12-31T23:59:59.000Z"),
        (4_107_542_400, "2100-03-01T00:00:00.000Z"),
    ] {
        assert_eq!(utc(Duration::from_secs(seconds)), text);
    }
    assert_eq!(utc(Duration::from_millis(86_399_007)), "1970-01-01T23:59:59.007Z");
}
