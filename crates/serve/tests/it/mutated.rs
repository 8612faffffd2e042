//! Real sessions of every scheme with frames of theirs changed on the way: bits flipped, cut, left out, sent twice or in
//! another order. Whoever gets them fails in words and in time; nobody panics, and whoever comes next is answered.
//!
//! `HUSHTABLE_MUTATIONS` says how many sessions of each kind, where that is more than a few.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hushtable_oram::round::ControllerSpec;
use hushtable_pir::dpf::Side;
use hushtable_serve::{
    CkksClient, CkksClientSpec, CkksServer, CkksServerSpec, ClientSpec, EndpointSpec, Garbler,
    HybridClient, HybridClientSpec, HybridServer, HybridServerSpec, LookupClient, OnionClient,
    OnionClientSpec, OnionServer, OnionServerSpec, RoundSpec, SharesClient, SharesClientSpec,
    SharesServer, TrainClient, TrainClientSpec, TrainServer,
};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

use crate::common::{Pair, Running, network, row, table, until};
use crate::{hybrid_common, infer_common, shares, train_common};

/// Which way frames are changed.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Way {
    ToServer,
    ToClient,
}

/// What is between a client and a server, and changes a frame of theirs.
struct Between {
    addr: SocketAddr,
    state: Arc<State>,
}

struct State {
    rng: Mutex<ChaCha8Rng>,
    /// Frames with data that went each way.
    frames: [AtomicU64; 2],
    /// Which is changed next, by the frames that have gone; none where that is negative.
    next: [AtomicI64; 2],
    changed: AtomicUsize,
}

impl Between {
    async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let addr = listener.local_addr().unwrap();
        let rng = Mutex::new(ChaCha8Rng::seed_from_u64(7));
        let next = [AtomicI64::new(-1), AtomicI64::new(-1)];
        let (frames, changed) = Default::default();
        let state = Arc::new(State { rng, frames, next, changed });
        let own = Arc::clone(&state);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let Ok(server) = TcpStream::connect(to).await else { continue };
                let (from_client, to_client) = client.into_split();
                let (from_server, to_server) = server.into_split();
                tokio::spawn(carry(from_client, to_server, Way::ToServer, Arc::clone(&own)));
                tokio::spawn(carry(from_server, to_client, Way::ToClient, Arc::clone(&own)));
            }
        });
        Self { addr, state }
    }

    fn endpoint(&self) -> EndpointSpec {
        EndpointSpec::new(format!("http://{}", self.addr), None)
    }

    /// Has one of the next `count` frames that go this way changed.
    fn change(&self, way: Way, count: u64) {
        let at = self.state.rng.lock().unwrap().random_range(0..count.max(1));
        self.state.next[way as usize].store(at as i64, Ordering::Relaxed);
    }

    fn leave(&self) {
        self.state.next.iter().for_each(|next| next.store(-1, Ordering::Relaxed));
    }

    fn gone(&self) -> [u64; 2] {
        self.state.frames.each_ref().map(|frames| frames.load(Ordering::Relaxed))
    }
}

/// A frame of HTTP/2 on its way.
enum Passed {
    As(Vec<Vec<u8>>),
    /// The rest of the connection is lost.
    Cut(Vec<u8>),
    /// It goes after the next one.
    Later(Vec<u8>),
}

async fn carry(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, way: Way, state: Arc<State>) {
    let mut later = Vec::new();
    if way == Way::ToServer {
        let mut preface = [0; 24];
        if from.read_exact(&mut preface).await.is_err() || to.write_all(&preface).await.is_err() {
            return;
        }
    }
    let mut head = [0; 9];
    while from.read_exact(&mut head).await.is_ok() {
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]) as usize;
        let mut frame = head.to_vec();
        frame.resize(9 + length, 0);
        if from.read_exact(&mut frame[9..]).await.is_err() {
            break;
        }
        let is_data = head[3] == 0 && length > 0;
        if is_data {
            state.frames[way as usize].fetch_add(1, Ordering::Relaxed);
        }
        let is_next = is_data && state.next[way as usize].fetch_sub(1, Ordering::Relaxed) == 0;
        let passed = match is_next {
            false => Passed::As(vec![frame]),
            true => {
                state.changed.fetch_add(1, Ordering::Relaxed);
                changed(frame, &mut *state.rng.lock().unwrap())
            }
        };
        let bytes = match passed {
            Passed::As(frames) => {
                let before = if is_data { std::mem::take(&mut later) } else { Vec::new() };
                frames.into_iter().chain([before]).flatten().collect()
            }
            Passed::Later(frame) => {
                later = frame;
                Vec::new()
            }
            Passed::Cut(bytes) => {
                drop(to.write_all(&bytes).await);
                break;
            }
        };
        if to.write_all(&bytes).await.is_err() {
            break;
        }
    }
    drop(to.shutdown().await);
}

/// What becomes of a frame with data.
fn changed(mut frame: Vec<u8>, rng: &mut impl Rng) -> Passed {
    let length = frame.len() - 9;
    match rng.random_range(0..10) {
        0..4 => {
            for _ in 0..rng.random_range(1..8) {
                frame[9 + rng.random_range(0..length)] ^= 1 << rng.random_range(0..8);
            }
            Passed::As(vec![frame])
        }
        4..6 => {
            let from = 9 + rng.random_range(0..length);
            let to = (from + rng.random_range(1..64)).min(frame.len());
            rng.fill(&mut frame[from..to]);
            Passed::As(vec![frame])
        }
        6 => {
            frame.truncate(9 + rng.random_range(0..length));
            Passed::Cut(frame)
        }
        7 => Passed::As(vec![frame.clone(), frame]),
        8 => Passed::As(vec![]),
        _ => Passed::Later(frame),
    }
}

/// Runs sessions whose frames are changed, and honest ones before and after.
async fn runs(between: &[&Between], servers: &[&Running], session: impl AsyncFn(bool) -> bool) {
    let panics = Arc::new(AtomicUsize::new(0));
    let (seen, say) = (Arc::clone(&panics), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        seen.fetch_add(1, Ordering::Relaxed);
        say(panic);
    }));
    assert!(session(true).await, "an honest session");
    let counts: Vec<_> = between.iter().map(|between| between.gone()).collect();
    let before = resident_bytes();
    let sessions = std::env::var("HUSHTABLE_MUTATIONS").map_or(12, |count| count.parse().unwrap());
    let mut failed = 0;
    for number in 0..sessions {
        for way in [Way::ToServer, Way::ToClient] {
            let which = number % between.len();
            between[which].change(way, counts[which][way as usize]);
            let done = tokio::time::timeout(PATIENCE, session(false)).await;
            failed += usize::from(!done.expect("it ends in time"));
            between[which].leave();
        }
        assert_eq!(panics.load(Ordering::Relaxed), 0, "in session {number}");
    }
    let changed: usize =
        between.iter().map(|between| between.state.changed.load(Ordering::Relaxed)).sum();
    assert!(2 * changed > sessions, "{changed} frames were changed");
    assert!(failed > 0, "nothing of {changed} changed frames was noticed");
    // Servers that lost each other meet again first.
    until("an honest session afterwards", async || session(true).await).await;
    for server in servers {
        assert_eq!(server.page("/readyz").await.0, 200);
    }
    let grown = resident_bytes().saturating_sub(before);
    assert!(grown < 256 << 20, "{grown} bytes more than before");
}

/// What this process has in memory.
fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    1024 * line.trim().trim_end_matches(" kB").parse::<u64>().unwrap()
}

/// Within which a session of a client that waits for [`CALL_MAX`] ends.
const PATIENCE: Duration = Duration::from_secs(60);
const CALL_MAX: Duration = Duration::from_millis(500);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_from_two_servers() {
    let servers = Pair::start(1000, 16);
    let expected = row(&table(1000, 16, 1), 7);
    let [left, right] =
        [Between::start(servers.left.addr).await, Between::start(servers.right.addr).await];
    let call = [CALL_MAX, CALL_MAX];
    let spec = ClientSpec {
        call_max: call[0],
        lookup_max: call[1],
        ..ClientSpec::new(left.endpoint(), right.endpoint())
    };
    runs(&[&left, &right], &[&servers.left, &servers.right], async |is_honest| {
        let Ok(client) = LookupClient::connect(&spec).await else { return false };
        let Ok(found) = client.lookup(&[7, 999], 8).await else { return false };
        // Nothing but TLS holds rows against bits that are flipped on the way.
        assert!(!is_honest || found.rows[..64] == expected[..]);
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lookup_from_one_server() {
    let spec = OnionServerSpec { network: network(), threads: 1, ..OnionServerSpec::new("") };
    let server = Running::start(OnionServer::of_table(spec, table(500, 4, 1)).unwrap());
    let expected = row(&table(500, 4, 1), 7);
    let between = Between::start(server.addr).await;
    let spec = OnionClientSpec {
        call_max: CALL_MAX,
        lookup_max: 2 * CALL_MAX,
        ..OnionClientSpec::new(between.endpoint())
    };
    runs(&[&between], &[&server], async |is_honest| {
        let Ok(client) = OnionClient::connect(&spec).await else { return false };
        let Ok(found) = client.lookup(&[7], 1).await else { return false };
        assert!(!is_honest || found.rows == expected);
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prediction_under_encryption() {
    let folder = TempDir::new().unwrap();
    let model = infer_common::bundle(folder.path(), 1);
    // Each session brings keys of its own.
    let spec = CkksServerSpec { keys_memory_bytes_max: 64 << 20, ..infer_common::spec(&model) };
    let server = Running::start(CkksServer::open(spec).unwrap());
    let between = Between::start(server.addr).await;
    let spec = CkksClientSpec {
        call_max: 2 * CALL_MAX,
        upload_max: 2 * CALL_MAX,
        ..CkksClientSpec::new(between.endpoint())
    };
    let (dense, indices) = infer_common::features(1, 2);
    let expected = infer_common::logits(&model, &dense, &indices);
    runs(&[&between], &[&server], async |is_honest| {
        let Ok(client) = CkksClient::connect(&spec, None).await else { return false };
        let Ok(found) = client.predict(1, &dense, &indices).await else { return false };
        assert!(!is_honest || (found.logits[0] - expected[0]).abs() < 1.0 / 1024.0);
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prediction_of_hybrid_inference() {
    let folder = TempDir::new().unwrap();
    let model = hybrid_common::bundle(folder.path(), 1);
    // Sessions that broke off keep their places for a while.
    let spec = HybridServerSpec { precomputes_max: 1 << 12, ..hybrid_common::spec(&model) };
    let server = Running::start(HybridServer::open(spec).unwrap());
    let between = Between::start(server.addr).await;
    let garbler = AtomicUsize::new(0);
    let input = hybrid_common::input(3);
    let expected = hybrid_common::outputs(1, &input);
    runs(&[&between], &[&server], async |is_honest| {
        let garbler = match garbler.fetch_add(1, Ordering::Relaxed) / 2 % 2 {
            0 => Garbler::Server,
            _ => Garbler::Client,
        };
        let spec = HybridClientSpec {
            call_max: CALL_MAX,
            retry_max: CALL_MAX,
            garbler,
            ..HybridClientSpec::new(between.endpoint())
        };
        let Ok(client) = HybridClient::connect(&spec).await else { return false };
        let Ok(found) = client.predict(&input, None).await else { return false };
        assert!(!is_honest || (found.outputs[0] - expected[0]).abs() < 1.0 / 64.0);
        true
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_prediction_on_shares() {
    let bundle = shares::Bundle::write(31);
    let right = Running::start(SharesServer::open(bundle.spec(Side::Right, None)).unwrap());
    // What the servers say to each other goes this way too.
    let middle = Between::start(right.addr).await;
    let peer = format!("http://{}", middle.addr);
    let left = Running::start(SharesServer::open(bundle.spec(Side::Left, Some(&peer))).unwrap());
    let to = [Between::start(left.addr).await, Between::start(right.addr).await];
    let (dense, indices, expected) = bundle.users(1);
    let spec = SharesClientSpec {
        call_max: 4 * CALL_MAX,
        ..SharesClientSpec::new(to[0].endpoint(), to[1].endpoint())
    };
    runs(&[&to[0], &middle, &to[1], &middle], &[&left, &right], async |is_honest| {
        let Ok(client) = SharesClient::connect(&spec).await else { return false };
        let Ok(found) = client.predict(1, &dense, &indices).await else { return false };
        assert!(!is_honest || (found.logits[0] - expected[0]).abs() < 1.0 / 128.0);
        true
    })
    .await;
}

/// What users send and get is sealed, so what is changed on the way changes no row and no update.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_round_of_training() {
    let folder = TempDir::new().unwrap();
    let shape = (300, train_common::DIM);
    let mut spec = ControllerSpec::new("films", shape, (2, train_common::SLOTS));
    spec.fdp.epsilon = f64::INFINITY;
    spec.cached_levels = 0;
    let mut rows = |first: u64, out: &mut [f32]| {
        out.iter_mut().zip(first * shape.1 as u64..).for_each(|(number, at)| *number = at as f32);
        Ok(())
    };
    let (place, _) = train_common::create(&folder, &spec, &mut rows);
    let pin = place.pin().unwrap();
    let made = TrainServer::of_controller(train_common::spec(), place, |_, _| {});
    let server = Running::start(made.unwrap());
    let between = Between::start(server.addr).await;
    // The operator whose frames nobody changes clears away what a session left.
    let straight = train_common::connect(&server).await;
    let wait = 4 * CALL_MAX;
    let spec = TrainClientSpec {
        call_max: wait,
        pin: Some(pin),
        ..TrainClientSpec::new(between.endpoint())
    };
    runs(&[&between], &[&server], async |is_honest| {
        // One that is just being committed is over the next time.
        until("no round is open", async || match straight.info().await.unwrap().open {
            Some((round, _)) => {
                drop(straight.abandon(round).await);
                false
            }
            None => true,
        })
        .await;
        // One is taken away from the row in each round that ended with its update.
        let before = straight.info().await.unwrap().rounds;
        let expected = 27.0 - before as f32;
        let Ok(client) = TrainClient::connect(&spec).await else { return false };
        let Ok(round) = client.open_round(RoundSpec::new(2)).await else { return false };
        let asked = train_common::try_ask(&client, round, 0, &[9]).await;
        let Ok(mut user) = asked else { return false };
        if client.close_requests(round).await.is_err() {
            return false;
        }
        let Ok(sealed) = client.rows(round, 0, wait).await else { return false };
        match user.reply(&sealed) {
            Ok(reply) => assert_eq!(reply.rows[0], expected),
            Err(error) => {
                assert!(!is_honest, "{error}");
                return false;
            }
        }
        if train_common::try_learn(&client, &mut user, 1.0, 1.0).await.is_err() {
            return false;
        }
        let Ok(report) = client.finish(round, true, wait).await else { return false };
        // Nothing but TLS holds the operator's words against bits that are flipped on the way.
        assert!(!is_honest || (report.rounds, report.uploaded) == (before + 1, 1));
        true
    })
    .await;
}
