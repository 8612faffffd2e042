//! Predictions on shares, by two real servers: right, refused, restarted, and by whom.

use std::path::PathBuf;
use std::time::Duration;

use crate::common::{Certificates, Running, network, until, wait_until_free};
use bytes::Bytes;
use hushtable_infer::dlrm::reference::forward;
use hushtable_infer::dlrm::spec::ABSENT;
use hushtable_infer::shares::Half;
use hushtable_infer::shares::bench::described;
use hushtable_infer::shares::exchange::Hello;
use hushtable_infer::shares::price::{Model, features};
use hushtable_pir::dpf::{Domain, Group, Key, KeyPair, Side};
use hushtable_pir::{Platform, Prg, PrgKind};
use hushtable_serve::wire::shared_inference_client::SharedInferenceClient;
use hushtable_serve::wire::{SharesFrame, SharesPredictReply, SharesPredictRequest};
use hushtable_serve::{
    EndpointSpec, Error, PeerError, SharesClient, SharesClientSpec, SharesRefusal, SharesServer,
    SharesServerSpec, TlsSpec, peer_name,
};
use tempfile::TempDir;
use tonic::transport::{Channel, Endpoint};
use tonic::{Code, Status};
use tonic_types::StatusExt;

/// A bundle of a model that is known in the clear.
pub(crate) struct Bundle {
    pub folder: TempDir,
    pub model: Model,
}

impl Bundle {
    pub fn write(seed: u64) -> Self {
        let features = [("user", 500, 1), ("item", 3000, 1), ("seen", 3000, 6)];
        let spec = described(5, &[16, 8], &[16, 1], &features);
        let model = Model::synthetic(spec, 12, 8, seed).unwrap();
        let folder = TempDir::new().unwrap();
        model.write(&folder.path().join("clicks"), "clicks").unwrap();
        Self { folder, model }
    }

    pub fn path(&self) -> PathBuf {
        self.folder.path().join("clicks")
    }

    pub fn spec(&self, side: Side, peer: Option<&str>) -> SharesServerSpec {
        SharesServerSpec {
            peer: peer.map(str::to_owned),
            network: network(),
            threads: 1,
            ..SharesServerSpec::new(self.path(), side)
        }
    }

    pub fn users(&self, count: u64) -> (Vec<f64>, Vec<u64>, Vec<f64>) {
        let (mut dense, mut indices, mut logits) = (Vec::new(), Vec::new(), Vec::new());
        for user in 0..count {
            let (own, rows) = features(&self.model.dlrm, user);
            let float = forward(&self.model.dlrm, &self.model.weights, &own, &rows).unwrap();
            logits.push(float.logit);
            dense.extend(own);
            indices.extend(rows);
        }
        (dense, indices, logits)
    }
}

fn start(bundle: &Bundle) -> [Running; 2] {
    let right = Running::start(SharesServer::open(bundle.spec(Side::Right, None)).unwrap());
    let spec = bundle.spec(Side::Left, Some(&right.url()));
    [Running::start(SharesServer::open(spec).unwrap()), right]
}

pub(crate) fn client_spec([left, right]: &[Running; 2]) -> SharesClientSpec {
    let endpoint = |server: &Running| EndpointSpec::new(server.url(), None);
    SharesClientSpec::new(endpoint(left), endpoint(right))
}

pub(crate) fn assert_near(found: &[f64], expected: &[f64]) {
    assert_eq!(found.len(), expected.len());
    for (found, expected) in found.iter().zip(expected) {
        assert!((found - expected).abs() < 1.0 / 256.0, "{found} and {expected}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_prove_who_they_are_predict_for_many_clients() {
    let bundle = Bundle::write(1);
    let certificates = Certificates::new();
    let right_name = peer_name(Side::Right);
    let right = certificates.ca.issue_server(&["127.0.0.1", &right_name]).unwrap();
    let left = certificates.ca.issue_client(&peer_name(Side::Left)).unwrap();
    for (name, pem) in [("right", &right), ("left", &left)] {
        std::fs::write(certificates.path(&format!("{name}.pem")), &pem.cert).unwrap();
        std::fs::write(certificates.path(&format!("{name}.key")), &pem.key).unwrap();
    }
    let mut spec = bundle.spec(Side::Right, None);
    let mut tls = certificates.tls();
    tls.cert = certificates.path("right.pem");
    tls.key = certificates.path("right.key");
    spec.network.tls = Some(tls);
    spec.peer_ca = Some(certificates.path("ca.pem"));
    let right = Running::start(SharesServer::open(spec).unwrap());
    let mut spec = bundle.spec(Side::Left, Some(&right.tls_url()));
    spec.network.tls = Some(certificates.tls());
    spec.peer_ca = Some(certificates.path("ca.pem"));
    spec.peer_cert = Some(certificates.path("left.pem"));
    spec.peer_key = Some(certificates.path("left.key"));
    let left = Running::start(SharesServer::open(spec).unwrap());
    let endpoint =
        |server: &Running| EndpointSpec::new(server.tls_url(), Some(certificates.ca_pem()));
    let spec = SharesClientSpec::new(endpoint(&left), endpoint(&right));
    let client = SharesClient::connect(&spec).await.unwrap();
    assert_eq!(client.info().name, "clicks");
    let (dense, indices, expected) = bundle.users(40);
    let found = client.predict(40, &dense, &indices).await.unwrap();
    assert_near(&found.logits, &expected);
    let outline = &client.info().outline;
    let sent = 40 * outline.up_bytes() as u64;
    assert!(found.stats.dealt_bytes >= sent, "{:?}", found.stats);
    if found.stats.retries == 0 {
        assert_eq!(found.stats.dealt_bytes, sent);
    }
    assert_eq!(found.stats.received_bytes, 40 * 2 * outline.logit_bytes() as u64);
    // Many inferences shared the frames between the servers.
    assert_eq!(right.metric("hushtable_inferences_total").await, 40.0);
    let frames = right.metric("hushtable_peer_frames_sent_total").await;
    assert!(frames < 40.0 * 3.0, "{frames} frames, of three for one alone");
    let bytes = right.metric("hushtable_peer_sent_bytes_total").await;
    assert!(bytes >= 40.0 * outline.peer_bytes() as f64, "{bytes} bytes");
    // Another certificate of the same authority is not left's.
    let other = certificates.ca.issue_client("somebody.else").unwrap();
    std::fs::write(certificates.path("left.pem"), &other.cert).unwrap();
    std::fs::write(certificates.path("left.key"), &other.key).unwrap();
    let mut spec = bundle.spec(Side::Left, Some(&right.tls_url()));
    spec.peer_ca = Some(certificates.path("ca.pem"));
    spec.peer_cert = Some(certificates.path("left.pem"));
    spec.peer_key = Some(certificates.path("left.key"));
    let other = Running::start(SharesServer::open(spec).unwrap());
    let mut spec = SharesClientSpec::new(EndpointSpec::new(other.url(), None), endpoint(&right));
    spec.call_max = Duration::from_secs(2);
    let stranded = SharesClient::connect(&spec).await.unwrap();
    let error = stranded.predict(1, &dense[..5], &indices[..8]).await.unwrap_err();
    assert!(
        matches!(error, Error::Timeout { .. })
            || matches!(error.refused(), Some(SharesRefusal::NoPeer)),
        "{error}"
    );
    assert_eq!(right.metric("hushtable_sessions_total").await, 1.0);
    // And those who have met are none the worse.
    assert_near(
        &client.predict(1, &dense[..5], &indices[..8]).await.unwrap().logits,
        &expected[..1],
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn both_read_anew_what_they_prove_to_each_other_who_they_are_by() {
    let bundle = Bundle::write(1);
    let (certificates, others) = (Certificates::new(), Certificates::new());
    let write = |name: &str, pem: &str| std::fs::write(certificates.path(name), pem).unwrap();
    let own = certificates.ca.issue_server(&["127.0.0.1", &peer_name(Side::Right)]).unwrap();
    let wrong = certificates.ca.issue_client("somebody.else").unwrap();
    let left = certificates.ca.issue_client(&peer_name(Side::Left)).unwrap();
    for (name, pem) in [("right", &own), ("left", &wrong)] {
        write(&format!("{name}.pem"), &pem.cert);
        write(&format!("{name}.key"), &pem.key);
    }
    write("peers.pem", &others.ca.cert_pem());
    let mut spec = bundle.spec(Side::Right, None);
    let (cert, key) = (certificates.path("right.pem"), certificates.path("right.key"));
    spec.network.tls = Some(TlsSpec { cert, key, ..certificates.tls() });
    spec.peer_ca = Some(certificates.path("peers.pem"));
    let right = Running::start(SharesServer::open(spec).unwrap());
    let mut spec = bundle.spec(Side::Left, Some(&right.tls_url()));
    spec.peer_ca = Some(certificates.path("ca.pem"));
    spec.peer_cert = Some(certificates.path("left.pem"));
    spec.peer_key = Some(certificates.path("left.key"));
    let server = Running::start(SharesServer::open(spec).unwrap());
    // Right knows another authority than left's.
    let failed = async || right.metric("hushtable_handshakes_failed_total").await > 0.0;
    until("left is turned away", failed).await;
    write("peers.pem", &certificates.ca.cert_pem());
    let refused = "hushtable_requests_total{method=\"Exchange\",code=\"PERMISSION_DENIED\"}";
    let is_refused = async || right.page("/metrics").await.1.contains(refused);
    until("left is known and has another name", is_refused).await;
    // A certificate whose key is still to come is not taken, and costs nothing.
    write("left.pem", &left.cert);
    tokio::time::sleep(Duration::from_millis(1500)).await;
    write("left.key", &left.key);
    let met = async || right.metric("hushtable_sessions_total").await == 1.0;
    until("left is let in", met).await;
    let right_at = EndpointSpec::new(right.tls_url(), Some(certificates.ca_pem()));
    let spec = SharesClientSpec::new(EndpointSpec::new(server.url(), None), right_at);
    let client = SharesClient::connect(&spec).await.unwrap();
    let (dense, indices, expected) = bundle.users(1);
    assert_near(&client.predict(1, &dense, &indices).await.unwrap().logits, &expected);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_restart_meet_again_and_clients_hear_of_nothing() {
    let bundle = Bundle::write(2);
    let [left, right] = start(&bundle);
    let servers = [left, right];
    let spec = client_spec(&servers);
    let client = SharesClient::connect(&spec).await.unwrap();
    let (dense, indices, expected) = bundle.users(8);
    let predict = || async {
        let found = client.predict(8, &dense, &indices).await.unwrap();
        assert_near(&found.logits, &expected);
        found.stats.retries
    };
    predict().await;
    let [left, right] = servers;
    // Right goes, and comes again where it was.
    let addr = right.addr;
    tokio::task::spawn_blocking(|| right.stop().unwrap()).await.unwrap();
    let refusals = async || {
        let text = left.page("/metrics").await.1;
        let refused = "hushtable_requests_total{method=\"SharesPredict\",code=\"UNAVAILABLE\"} ";
        text.lines().find_map(|line| line.strip_prefix(refused)?.parse::<f64>().ok()).unwrap_or(0.0)
    };
    let before = refusals().await;
    let again = async {
        let mut spec = bundle.spec(Side::Right, None);
        spec.network.addr = addr;
        until("a part is refused", async || refusals().await > before).await;
        tokio::spawn(async move {
            let start = move || {
                wait_until_free(addr);
                Running::start(SharesServer::open(spec).unwrap())
            };
            tokio::task::spawn_blocking(start).await.unwrap()
        })
        .await
        .unwrap()
    };
    let (retries, right) = tokio::join!(predict(), again);
    assert!(retries > 0);
    // So does left.
    let (addr, url) = (left.addr, right.url());
    tokio::task::spawn_blocking(|| left.stop().unwrap()).await.unwrap();
    let mut spec = bundle.spec(Side::Left, Some(&url));
    spec.network.addr = addr;
    let start = move || {
        wait_until_free(addr);
        Running::start(SharesServer::open(spec).unwrap())
    };
    let _left = tokio::task::spawn_blocking(start).await.unwrap();
    predict().await;
}

pub(crate) async fn raw(server: &Running) -> SharedInferenceClient<Channel> {
    let channel = Endpoint::from_shared(server.url()).unwrap().connect().await.unwrap();
    SharedInferenceClient::new(channel)
}

/// A session's first frame, and what comes of it.
async fn hello(server: &Running, hello: Vec<u8>) -> Result<Bytes, Status> {
    let mut client = raw(server).await;
    let frames = frames(SharesFrame { payload: hello.into() });
    let mut reply = client.exchange(frames).await?.into_inner();
    Ok(reply.message().await?.unwrap().payload)
}

fn frames(
    frame: SharesFrame,
) -> impl tonic::codegen::tokio_stream::Stream<Item = SharesFrame> + Send + 'static {
    tonic::codegen::tokio_stream::iter([frame])
}

pub(crate) fn reason(status: &Status) -> (Code, String) {
    let details = status.get_error_details();
    (status.code(), details.error_info().map(|info| info.reason.clone()).unwrap_or_default())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn servers_that_do_not_go_together_are_told_apart() {
    let (bundle, other) = (Bundle::write(3), Bundle::write(4));
    let servers = start(&bundle);
    let client = SharesClient::connect(&client_spec(&servers)).await.unwrap();
    let [left, right] = servers;
    let (plan, version) = (*client.info().plan.as_bytes(), *client.info().version.as_bytes());
    let own = |half, plan, version| Hello::new(half, plan, version).unwrap().to_bytes();
    let mismatch = (Code::FailedPrecondition, "PEER_MISMATCH".to_owned());
    for (server, bytes, words) in [
        (&left, own(Half::Left, plan, version), "is left as well"),
        (&left, own(Half::Right, plan, version), "calls right"),
        (&right, own(Half::Right, plan, version), "is right as well"),
        (&right, own(Half::Left, version, version), "by plan"),
        (&right, own(Half::Left, plan, plan), "of version"),
        (&right, vec![1, 0, 3], "hello of 3 bytes"),
        (&right, Vec::new(), "hello of 0 bytes"),
    ] {
        let status = hello(server, bytes).await.unwrap_err();
        assert_eq!(reason(&status), mismatch, "{status}");
        assert!(status.message().contains(words), "{status}");
    }
    // None of them was a session.
    let (dense, indices, expected) = bundle.users(2);
    let found = client.predict(2, &dense, &indices).await.unwrap();
    assert_near(&found.logits, &expected);
    assert_eq!(right.metric("hushtable_sessions_total").await, 1.0);
    // Clients do not take the one for the other, nor another model's.
    let endpoint = |server: &Running| EndpointSpec::new(server.url(), None);
    let spec = SharesClientSpec::new(endpoint(&right), endpoint(&left));
    let error = SharesClient::connect(&spec).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, Error::SidesSwapped { .. }), "{error}");
    let spec = SharesClientSpec::new(endpoint(&left), endpoint(&left));
    let error = SharesClient::connect(&spec).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, Error::SameSide { side: Side::Left, .. }), "{error}");
    let stranger = Running::start(SharesServer::open(other.spec(Side::Right, None)).unwrap());
    let spec = SharesClientSpec::new(endpoint(&left), endpoint(&stranger));
    let error = SharesClient::connect(&spec).await.map(|_| ()).unwrap_err();
    assert!(matches!(&error, Error::VersionMismatch { .. }), "{error}");
    // What a spec says wrong is said before anything starts.
    let open = |spec| SharesServer::open(spec).map(|_| ()).unwrap_err();
    let error = open(bundle.spec(Side::Left, None));
    assert!(matches!(error.of(), Some(PeerError::NoAddress)), "{error}");
    let error = open(bundle.spec(Side::Right, Some("http://127.0.0.1:1")));
    assert!(matches!(error.of(), Some(PeerError::Address { .. })), "{error}");
    let mut spec = bundle.spec(Side::Right, None);
    spec.network.addr = ([0, 0, 0, 0], 0).into();
    assert!(matches!(open(spec).of(), Some(PeerError::NoAuthority { .. })));
}

#[test]
fn right_lets_in_nobody_whom_its_operator_did_not_mean() {
    let (bundle, certificates) = (Bundle::write(6), Certificates::new());
    let open = |spec| SharesServer::open(spec).map(|_| ()).unwrap_err();
    // An authority that nothing would be held against.
    let mut spec = bundle.spec(Side::Right, None);
    spec.peer_ca = Some(certificates.path("ca.pem"));
    let error = open(spec.clone());
    assert!(matches!(error.of(), Some(PeerError::NoTls)), "{error}");
    // Clients' authority could make a certificate of left's name.
    spec.network.tls = Some(certificates.tls());
    spec.network.tls.as_mut().unwrap().client_ca = Some(certificates.path("cert.pem"));
    let error = open(spec.clone());
    assert!(matches!(error.of(), Some(PeerError::TwoAuthorities)), "{error}");
    // That something else encrypts the way says nothing of who calls over TLS.
    spec.network.tls.as_mut().unwrap().client_ca = None;
    spec.peer_ca = None;
    spec.network.insecure = true;
    spec.network.addr = ([0, 0, 0, 0], 0).into();
    let error = open(spec);
    assert!(matches!(error.of(), Some(PeerError::NoAuthority { .. })), "{error}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parts_that_are_none_or_alone_are_refused_in_words() {
    let bundle = Bundle::write(5);
    let right = Running::start(SharesServer::open(bundle.spec(Side::Right, None)).unwrap());
    let mut spec = bundle.spec(Side::Left, Some(&right.url()));
    spec.silence_ms_max = 1000;
    let servers = [Running::start(SharesServer::open(spec).unwrap()), right];
    let client = SharesClient::connect(&client_spec(&servers)).await.unwrap();
    let (dense, indices, _) = bundle.users(1);
    // Features of another model never leave the client.
    let error = client.predict(1, &dense[..4], &indices).await.unwrap_err();
    assert!(error.of::<hushtable_infer::dlrm::Error>().is_some(), "{error}");
    let mut wrong = indices.clone();
    wrong[1] = 3000;
    let error = client.predict(1, &dense, &wrong).await.unwrap_err();
    assert!(error.to_string().contains("item"), "{error}");
    wrong[1] = ABSENT;
    assert!(client.predict(1, &dense, &wrong).await.is_err());
    let error = client.predict(1, &[f64::NAN; 5], &indices).await.unwrap_err();
    assert!(error.of::<hushtable_infer::shares::Error>().is_some(), "{error}");
    client.predict(1, &dense, &indices).await.unwrap();
    let good = part(&client, &dense, &indices);
    let ask = |request: SharesPredictRequest| async {
        let mut client = raw(&servers[0]).await;
        client.predict(request).await.map(tonic::Response::into_inner)
    };
    let refused = |request| async {
        let status: Result<SharesPredictReply, Status> = ask(request).await;
        let status = status.unwrap_err();
        (reason(&status).1, status.message().to_owned())
    };
    type Change = fn(&mut SharesPredictRequest);
    let changes: [(Change, &str, &str); 10] = [
        (|it| it.plan = Bytes::new(), "BAD_VERSION", "32 bytes"),
        (|it| it.plan = vec![9; 32].into(), "SHARES_PLAN", "computes by plan"),
        (|it| it.name.truncate(15), "BAD_PART", "name of 15 bytes"),
        (|it| drop(it.keys.pop()), "BAD_PART", "7 lookup keys"),
        (|it| it.keys.swap(0, 1), "BAD_PART", "rows"),
        (|it| it.keys[2].truncate(20), "BAD_PART", ""),
        // Such keys take many times the work of those that clients make.
        (
            |it| it.keys[0] = other_key(&it.keys[0], Group::Z32, PrgKind::Aes128),
            "BAD_PART",
            "group bits",
        ),
        (
            |it| it.keys[0] = other_key(&it.keys[0], Group::Bits, PrgKind::Sha256),
            "BAD_PART",
            "sha256",
        ),
        (|it| it.common.truncate(9), "BAD_PART", "dealt correction words of 9 bytes"),
        (|it| it.dealt.truncate(31), "BAD_PART", "dealt shares of 31 bytes"),
    ];
    for (change, expected, words) in changes {
        let mut request = good.clone();
        change(&mut request);
        let (found, text) = refused(request).await;
        assert_eq!(found, expected, "{text}");
        assert!(text.contains(words), "{text}");
    }
    // Right has no part of it.
    let (found, text) = refused(good.clone()).await;
    assert_eq!(found, "PEER_ABSENT", "{text}");
    let twice = tokio::join!(refused(good.clone()), refused(good.clone()));
    let mut names = [twice.0.0, twice.1.0];
    names.sort();
    assert_eq!(names, ["PEER_ABSENT", "SAME_NAME"]);
    client.predict(1, &dense, &indices).await.unwrap();
}

/// Left's part of an inference, dealt by hand.
/// A key for the same rows as another one, of that group and generator.
fn other_key(key: &[u8], group: Group, prg: PrgKind) -> Bytes {
    let rows = Key::parse(key).unwrap().params().domain.rows();
    let domain = Domain::new(rows, group).unwrap();
    let pair = KeyPair::generate(Prg::new(prg, Platform::detect()), domain, 0).unwrap();
    pair.left.to_bytes().into()
}

/// Left's part.
pub(crate) fn part(client: &SharesClient, dense: &[f64], indices: &[u64]) -> SharesPredictRequest {
    let [left, _] = parts(client, dense, indices);
    left
}

/// Left's and right's part.
pub(crate) fn parts(
    client: &SharesClient,
    dense: &[f64],
    indices: &[u64],
) -> [SharesPredictRequest; 2] {
    use hushtable_infer::shares::client::deal;
    let info = client.info();
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let places = info.dlrm.places(indices).unwrap();
    let mut keys = [Vec::new(), Vec::new()];
    for ((places, digits), feature) in
        places.iter().zip(info.dlrm.digits()).zip(&info.dlrm.spec().features)
    {
        let rows = digits.slots() as u64 + u64::from(feature.bag > 1);
        let domain = Domain::new(rows, Group::Bits).unwrap();
        for &place in places {
            let pair = KeyPair::generate(prg, domain, place as u64).unwrap();
            keys[0].push(Bytes::from(pair.left.to_bytes()));
            keys[1].push(Bytes::from(pair.right.to_bytes()));
        }
    }
    let dealt = deal(&info.outline, dense).unwrap();
    let [left, right] = keys;
    [(left, &dealt.left), (right, &dealt.right)].map(|(keys, own)| SharesPredictRequest {
        plan: Bytes::copy_from_slice(info.plan.as_bytes()),
        name: vec![7; 16].into(),
        keys,
        common: dealt.common.clone().into(),
        dealt: own.clone().into(),
    })
}
