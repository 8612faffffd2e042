//! A controller's root counter in a real etcd: races, outages, other keys, TLS.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use crate::common::{PATIENCE, block_until, reserve};
use hushtable_oram::journal::{CounterPlace, JournalError};
use hushtable_oram::round::{Controller, ControllerSpec, Error as RoundError};
use hushtable_oram::seal::Key;
use hushtable_serve::certificate::LocalCa;
use hushtable_serve::{CounterSpec, Error};
use tempfile::TempDir;

const DIM: usize = 8;
const ROWS: u64 = 100;

/// One member of a cluster of one, ended with this value.
struct Etcd {
    child: Option<Child>,
    folder: TempDir,
    client: SocketAddr,
    peer: SocketAddr,
    tls: bool,
}

impl Etcd {
    /// Starts one; none, with a reason, where there is no etcd. `HUSHTABLE_NEEDS_ETCD` makes that a failure.
    fn start(tls: bool) -> Option<Self> {
        if Command::new("etcd").arg("--version").stdout(Stdio::null()).status().is_err() {
            let needed = std::env::var_os("HUSHTABLE_NEEDS_ETCD").is_some();
            assert!(!needed, "etcd is not installed: apt-get install etcd-server");
            eprintln!("skipped: etcd is not installed (apt-get install etcd-server)");
            return None;
        }
        let (client, peer) = (reserve(), reserve());
        let mut etcd = Self { child: None, folder: TempDir::new().unwrap(), client, peer, tls };
        if tls {
            let ca = LocalCa::new().unwrap();
            let write = |name: &str, pem: String| std::fs::write(etcd.file(name), pem).unwrap();
            write("ca.pem", ca.cert_pem());
            let server = ca.issue_server(&["127.0.0.1"]).unwrap();
            write("server.pem", server.cert);
            write("server.key", server.key);
            let client = ca.issue_client("controller").unwrap();
            write("client.pem", client.cert);
            write("client.key", client.key);
        }
        etcd.run();
        Some(etcd)
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn run(&mut self) {
        let scheme = if self.tls { "https" } else { "http" };
        let client = format!("{scheme}://{}", self.client);
        let peer = format!("http://{}", self.peer);
        let mut command = Command::new("etcd");
        command.args(["--name", "one", "--logger", "zap", "--log-level", "error"]);
        command.arg("--data-dir").arg(self.file("data"));
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--listen-peer-urls", &peer, "--initial-advertise-peer-urls", &peer]);
        command.args(["--initial-cluster", &format!("one={peer}")]);
        if self.tls {
            command.arg("--client-cert-auth").arg("--trusted-ca-file").arg(self.file("ca.pem"));
            command.arg("--cert-file").arg(self.file("server.pem"));
            command.arg("--key-file").arg(self.file("server.key"));
        }
        let null = Stdio::null;
        let child = command.stdin(null()).stdout(null()).stderr(null()).spawn();
        self.child = Some(child.expect("etcd starts"));
        let any = self.counter("any");
        block_until("etcd answers", || any.check_free().is_ok());
    }

    fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// A counter in it. A call may take long; one that is refused is not repeated for long.
    fn counter(&self, key: &str) -> CounterSpec {
        let url = match self.tls {
            false => format!("etcd://{}/{key}", self.client),
            true => {
                let [ca, cert, own] = ["ca.pem", "client.pem", "client.key"]
                    .map(|name| self.file(name).display().to_string());
                format!("etcds://{}/{key}?ca={ca}&cert={cert}&key={own}", self.client)
            }
        };
        CounterSpec::parse(Path::new(&url)).unwrap().with_waits(PATIENCE, Duration::from_secs(1))
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        self.stop();
    }
}

fn key() -> Key {
    Key::from_bytes([9; 32])
}

fn create(folder: &Path, counter: &CounterSpec) -> Result<Controller, RoundError> {
    let mut spec = ControllerSpec::new("films", (ROWS, DIM), (2, 3));
    spec.fdp.epsilon = 0.0;
    spec.cached_levels = 1;
    let mut fill = |first: u64, rows: &mut [f32]| {
        rows.iter_mut().zip(first * DIM as u64..).for_each(|(n, at)| *n = at as f32);
        Ok(())
    };
    Controller::create(folder, &key(), counter, &spec, &mut fill, &mut |_, _| {})
}

fn open(folder: &Path, counter: &CounterSpec) -> Result<Controller, RoundError> {
    Controller::open(folder, &key(), counter, &mut |_, _| {})
}

/// Moves rows 1 to 3 by one.
fn round(controller: &mut Controller) -> Result<(), RoundError> {
    controller.begin(1, &[1, 2, 3])?;
    controller.add(0, &[1.0; 3 * DIM], 1.0)?;
    controller.commit().map(drop)
}

fn first_of_row_2(controller: &mut Controller) -> f32 {
    let mut first = None;
    // Rows come in parts, as many at once as are read in one go.
    let mut take = |start: u64, rows: &[f32]| {
        let row = 2_usize.checked_sub(start as usize);
        first = first.or(row.and_then(|row| rows.get(row * DIM).copied()));
        Ok(())
    };
    controller.export(&mut take, &mut |_, _| {}).unwrap();
    first.expect("row 2")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir(to).unwrap();
    for file in ["controller.json", "journal", "tree"] {
        std::fs::copy(from.join(file), to.join(file)).unwrap();
    }
}

#[test]
fn of_two_copies_with_one_etcd_counter_one_goes_on() {
    for tls in [false, true] {
        let Some(etcd) = Etcd::start(tls) else { return };
        let at = TempDir::new().unwrap();
        let (ours, theirs) = (at.path().join("ours"), at.path().join("theirs"));
        let counter = etcd.counter("hushtable/films");
        let mut controller = create(&ours, &counter).unwrap();
        round(&mut controller).unwrap();
        let again = create(&at.path().join("again"), &counter).map(drop);
        let exists = matches!(again, Err(RoundError::Journal(JournalError::CounterExists { .. })));
        assert!(exists, "{again:?}");

        // Both live, from one state: whoever comes second has lost, and has read nothing.
        copy(&ours, &theirs);
        let mut copied = open(&theirs, &counter).unwrap();
        let moved = round(&mut controller).unwrap_err();
        let error = matches!(moved, RoundError::Journal(JournalError::CounterMoved { .. }));
        assert!(error && moved.to_string().contains("went on from a copy"), "{moved}");
        round(&mut copied).unwrap();
        drop(controller);
        let old = open(&ours, &counter).map(drop).unwrap_err();
        assert!(matches!(old, RoundError::Journal(JournalError::RolledBack { .. })), "{old}");
        assert_eq!((copied.round(), first_of_row_2(&mut copied)), (2, 2.0 * DIM as f32 - 2.0));

        // At once, from two threads: one of the two, whichever.
        copied.close().unwrap();
        let third = at.path().join("third");
        copy(&theirs, &third);
        let outcomes = std::thread::scope(|scope| {
            let runs = [&theirs, &third].map(|folder| {
                scope.spawn(|| open(folder, &counter).and_then(|mut c| round(&mut c)))
            });
            runs.map(|run| run.join().unwrap())
        });
        let won = outcomes.iter().filter(|outcome| outcome.is_ok()).count();
        assert_eq!(won, 1, "{outcomes:?}");
        for error in outcomes.into_iter().filter_map(Result::err) {
            let refused = matches!(
                error,
                RoundError::Journal(
                    JournalError::CounterMoved { .. } | JournalError::RolledBack { .. }
                )
            );
            assert!(refused, "{error}");
        }

        // Another controller's counter under the same key file, and a key that is not there.
        let sibling = etcd.counter("hushtable/sibling");
        create(&at.path().join("sibling"), &sibling).unwrap().close().unwrap();
        let other = open(&theirs, &sibling).map(drop).unwrap_err();
        assert!(
            matches!(other, RoundError::Journal(JournalError::OtherInstance { .. })),
            "{other}"
        );
        let missing = open(&theirs, &etcd.counter("hushtable/none")).map(drop).unwrap_err();
        let error = matches!(missing, RoundError::Journal(JournalError::CounterMissing { .. }));
        assert!(error, "{missing}");
    }
}

#[test]
fn a_round_outlives_an_etcd_that_is_gone() {
    let Some(mut etcd) = Etcd::start(false) else { return };
    let at = TempDir::new().unwrap();
    let (folder, counter) = (at.path().join("films"), etcd.counter("films"));
    let mut controller = create(&folder, &counter).unwrap();
    controller.begin(1, &[1, 2, 3]).unwrap();
    controller.add(0, &[1.0; 3 * DIM], 1.0).unwrap();
    etcd.stop();
    let gone = |error: RoundError| {
        let unavailable =
            matches!(error, RoundError::Journal(JournalError::CounterUnavailable { .. }));
        assert!(unavailable && error.to_string().contains("Nothing was lost"), "{error}");
    };
    // Whether it will count is for the journal and the counter to say, once there is one again.
    match controller.commit().map(drop).unwrap_err() {
        RoundError::Unsettled { rounds: 0, source } => gone(*source),
        other => panic!("{other}"),
    }
    assert!(matches!(controller.begin(1, &[1, 2, 3]), Err(RoundError::Ended)));
    drop(controller);
    gone(open(&folder, &counter).map(drop).unwrap_err());
    etcd.run();
    // The round was in the journal, whole; the counter goes past it now.
    let mut controller = open(&folder, &counter).unwrap();
    assert_eq!((controller.round(), first_of_row_2(&mut controller)), (1, 2.0 * DIM as f32 - 1.0));
    round(&mut controller).unwrap();
    controller.close().unwrap();
}

#[test]
fn urls_that_name_no_counter_are_refused() {
    for (url, expected) in [
        ("etcd://127.0.0.1:2379", "/KEY"),
        ("etcd://127.0.0.1:2379/", "1 to 1,024"),
        ("etcd://127.0.0.1/films", "HOST:PORT"),
        ("etcd:///films", "HOST:PORT"),
        ("etcd://10.0.0.7:2379/films", "etcds://"),
        ("etcd://127.0.0.1:2379/films?ca=ca.pem", "for etcds"),
        ("etcds://10.0.0.7:2379/films", "?ca=FILE"),
        ("etcds://10.0.0.7:2379/films?ca=ca.pem&cert=a.pem", "belong together"),
        ("etcds://10.0.0.7:2379/films?ca=ca.pem&user=me", "it takes"),
        ("etcds://10.0.0.7:2379/films?ca=ca.pem&ca=b.pem", "one value"),
    ] {
        let error = CounterSpec::parse(Path::new(url)).unwrap_err();
        let said = error.to_string();
        assert!(matches!(error, Error::Url { .. }) && said.contains(expected), "{url}: {said}");
    }
    let members = "etcds://a.example:2379,b.example:2379/films?ca=ca.pem&domain=etcd.example";
    let place = CounterSpec::parse(Path::new(members)).unwrap();
    assert_eq!(place.to_string(), "etcds://a.example:2379,b.example:2379/films");
    let file = CounterSpec::parse(Path::new("counters/films")).unwrap();
    assert_eq!(file, CounterSpec::File(PathBuf::from("counters/films")));
}
