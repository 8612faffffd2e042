//! Pushes that end before they are whole: nothing is left of them, and the server takes the next one.

use std::path::Path;
use std::time::{Duration, Instant};

use crate::common::{Running, row, spec, table};
use bytes::Bytes;
use hushtable_pir::dpf::Side;
use hushtable_serve::wire::operate_client::OperateClient;
use hushtable_serve::wire::push_frame::Frame;
use hushtable_serve::wire::{PushFile, PushFrame, PushStart};
use hushtable_serve::{
    ChangeSpec, ClientSpec, EndpointSpec, LookupClient, Server, ServerSpec, push,
};
use tempfile::TempDir;
use tonic::Request;
use tonic::codegen::tokio_stream::{self, StreamExt};

const TOKEN: &str = "0123456789abcdef-token";
const FILES: usize = 4_000;

/// A server, what it serves and where pushes go.
struct Pushed {
    server: Running,
    folder: TempDir,
}

impl Pushed {
    fn start(side: Side) -> Self {
        let folder = TempDir::new().unwrap();
        let at = |name: &str| folder.path().join(name);
        table(500, 4, 1).save(&at("films")).unwrap();
        std::fs::write(at("token"), TOKEN).unwrap();
        std::fs::create_dir(at("pushes")).unwrap();
        let change = ChangeSpec {
            push_folder: Some(at("pushes")),
            push_token_file: Some(at("token")),
            ..ChangeSpec::default()
        };
        let spec = ServerSpec { table: at("films"), change, ..spec(side) };
        Self { server: Running::start(Server::open(spec).unwrap()), folder }
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("pushes")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Waits until nothing is where pushes go, and makes sure that nothing comes back.
    async fn is_clean(&self) {
        let deadline = Instant::now() + Duration::from_secs(20);
        while !self.names().is_empty() {
            assert!(Instant::now() < deadline, "left behind: {:?}", self.names());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(self.names(), Vec::<String>::new());
    }

    async fn push(&self, bundle: &Path) -> bool {
        let endpoint = EndpointSpec::new(self.server.url(), None);
        push(&endpoint, TOKEN, bundle, Duration::from_secs(5)).await.unwrap()
    }
}

fn start_of(files: usize, bytes: u64) -> PushFrame {
    let file = |number| PushFile { path: format!("parts/{number}"), bytes };
    let start = PushStart { name: "films".into(), files: (0..files).map(file).collect() };
    PushFrame { frame: Some(Frame::Start(start)) }
}

fn bytes_of(count: usize) -> PushFrame {
    PushFrame { frame: Some(Frame::Bytes(Bytes::from(vec![7; count]))) }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_is_cut_short_leaves_nothing_and_the_next_is_taken() {
    let servers = Side::BOTH.map(Pushed::start);
    let next = table(500, 4, 2);
    let bundle = servers[0].folder.path().join("next");
    next.save(&bundle).unwrap();
    // The client goes while the server waits for more, and while it has thousands of files to write.
    for (files, bytes) in [(2, 1), (FILES, FILES * 12)] {
        let endpoint = tonic::transport::Endpoint::from_shared(servers[0].server.url()).unwrap();
        let mut client = OperateClient::new(endpoint.connect().await.unwrap());
        let frames = tokio_stream::iter([start_of(files, 16), bytes_of(bytes)]);
        let mut request = Request::new(frames.chain(tokio_stream::pending()));
        let token = format!("Bearer {TOKEN}").parse().unwrap();
        request.metadata_mut().insert("authorization", token);
        let call = tokio::spawn(async move { client.push(request).await });
        while servers[0].names().is_empty() {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        call.abort();
        servers[0].is_clean().await;
    }

    // The old version is still served, and the same server takes the next one.
    let [left, right] = servers.each_ref().map(|it| EndpointSpec::new(it.server.url(), None));
    let spec = ClientSpec::new(left, right);
    let client = LookupClient::connect(&spec).await.unwrap();
    assert_eq!(client.lookup(&[11], 1).await.unwrap().rows, row(&table(500, 4, 1), 11));
    for server in &servers {
        assert!(server.push(&bundle).await);
    }
    let client = LookupClient::connect(&spec).await.unwrap();
    assert_eq!(client.lookup(&[11], 1).await.unwrap().rows, row(&next, 11));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_killed_server_left_of_a_push_goes_with_the_next() {
    let server = Pushed::start(Side::Left);
    let pushes = server.folder.path().join("pushes");
    let [old, young, other] = [".push-00aa", ".push-00bb", "films-1"].map(|name| pushes.join(name));
    for folder in [&old, &young, &other] {
        std::fs::create_dir(folder).unwrap();
        std::fs::write(folder.join("rows"), "half").unwrap();
    }
    let two_hours = std::time::SystemTime::now() - Duration::from_secs(2 * 3600 + 60);
    for folder in [&old, &other] {
        std::fs::File::open(folder).unwrap().set_modified(two_hours).unwrap();
    }
    let bundle = server.folder.path().join("next");
    table(500, 4, 2).save(&bundle).unwrap();
    assert!(server.push(&bundle).await);
    // A younger one may be another server's, which takes a push of its own.
    assert_eq!([&old, &young, &other].map(|folder| folder.exists()), [false, true, true]);
}
