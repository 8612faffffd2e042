//! Pushes that end before they are whole: nothing is left of them, and the server takes the next one.

use std::fs::File;
use std::path::Path;
use std::time::Duration;

use crate::common::{PATIENCE, Process, Running, program, row, spec, table, until};
use bytes::Bytes;
use hushtable_pir::dpf::Side;
use hushtable_serve::host::{PushDefect, PushRefusal, ReloadError};
use hushtable_serve::wire::operate_client::OperateClient;
use hushtable_serve::wire::push_frame::Frame;
use hushtable_serve::wire::{PushFile, PushFrame, PushStart};
use hushtable_serve::{
    ChangeSpec, ClientSpec, EndpointSpec, Error, LookupClient, Server, ServerSpec, push,
};
use hushtable_table::{DType, Table};
use tempfile::TempDir;
use tonic::codegen::tokio_stream::{self, StreamExt};
use tonic::{Code, Request, Status};

const TOKEN: &str = "0123456789abcdef-token";
const FILES: usize = 4_000;

/// A server, what it serves and where pushes go.
struct Pushed {
    server: Running,
    folder: TempDir,
}

/// What is served and where pushes go, in `folder`.
fn spec_in(folder: &TempDir, side: Side) -> ServerSpec {
    let at = |name: &str| folder.path().join(name);
    table(500, 4, 1).save(&at("films")).unwrap();
    std::fs::write(at("token"), TOKEN).unwrap();
    std::fs::create_dir(at("pushes")).unwrap();
    let change = ChangeSpec {
        push_folder: Some(at("pushes")),
        push_token_file: Some(at("token")),
        ..ChangeSpec::default()
    };
    ServerSpec { table: at("films"), change, ..spec(side) }
}

impl Pushed {
    fn start(side: Side) -> Self {
        // In memory where there is one: thousands of files are flushed.
        let memory = Path::new("/dev/shm");
        let folder = if memory.is_dir() { TempDir::new_in(memory) } else { TempDir::new() };
        let folder = folder.unwrap();
        let spec = spec_in(&folder, side);
        Self { server: Running::start(Server::open(spec).unwrap()), folder }
    }

    fn names(&self) -> Vec<String> {
        let entries = std::fs::read_dir(self.folder.path().join("pushes")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }

    /// Waits until nothing is where pushes go, and makes sure that nothing comes back.
    async fn is_clean(&self) {
        until("nothing is left behind", async || self.names().is_empty()).await;
        tokio::time::sleep(Duration::from_millis(500)).await;
        assert_eq!(self.names(), Vec::<String>::new());
    }

    async fn push(&self, bundle: &Path) -> bool {
        self.try_push(TOKEN, bundle).await.unwrap()
    }

    async fn try_push(&self, token: &str, bundle: &Path) -> Result<bool, Error> {
        let endpoint = EndpointSpec::new(self.server.url(), None);
        push(&endpoint, token, bundle, PATIENCE).await
    }

    /// What the server says to a push of `frames`.
    async fn refusal(&self, token: &str, frames: Vec<PushFrame>) -> (Code, PushRefusal) {
        let status = send(&self.server.url(), token, tokio_stream::iter(frames)).await.unwrap_err();
        match PushRefusal::from_status(&status) {
            Some(refusal) => {
                assert_eq!(refusal.to_string(), status.message());
                (status.code(), refusal)
            }
            other => panic!("{other:?} of {status:?}"),
        }
    }
}

async fn send(
    url: &str,
    token: &str,
    frames: impl tokio_stream::Stream<Item = PushFrame> + Send + 'static,
) -> Result<bool, Status> {
    let endpoint = tonic::transport::Endpoint::from_shared(url.to_owned()).unwrap();
    let mut client = OperateClient::new(endpoint.connect().await.unwrap());
    let mut request = Request::new(frames);
    request.metadata_mut().insert("authorization", format!("Bearer {token}").parse().unwrap());
    Ok(client.push(request).await?.into_inner().taken)
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
        let frames = tokio_stream::iter([start_of(files, 16), bytes_of(bytes)]);
        let (url, frames) = (servers[0].server.url(), frames.chain(tokio_stream::pending()));
        let call = tokio::spawn(async move { send(&url, TOKEN, frames).await });
        until("it is written", async || !servers[0].names().is_empty()).await;
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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_push_says_why_and_leaves_nothing() {
    let server = Pushed::start(Side::Left);
    let named = |name: &str, path: &str, bytes| {
        let files = vec![PushFile { path: path.into(), bytes }];
        PushFrame { frame: Some(Frame::Start(PushStart { name: name.into(), files })) }
    };
    let name = |name: &str| PushRefusal::BadPushName { name: name.into() };
    let wrong = |defect| PushRefusal::BadPush { defect };
    let good = || named("films", "rows", 4);
    for (frames, expected) in [
        (vec![], wrong(PushDefect::Order)),
        (vec![bytes_of(4)], wrong(PushDefect::Order)),
        (vec![good(), good()], wrong(PushDefect::Order)),
        (vec![good(), bytes_of(3)], wrong(PushDefect::Fewer)),
        (vec![good(), bytes_of(5)], wrong(PushDefect::More)),
        (vec![good(), bytes_of(4), bytes_of(1)], wrong(PushDefect::More)),
        (vec![named("a film", "rows", 4)], name("a film")),
        (vec![named("films", "../rows", 4)], name("../rows")),
        (vec![start_of(0, 4)], PushRefusal::PushFiles { files: 0, files_max: 4096 }),
        (vec![start_of(4097, 4)], PushRefusal::PushFiles { files: 4097, files_max: 4096 }),
    ] {
        let (code, refusal) = server.refusal(TOKEN, frames).await;
        assert_eq!((code, refusal), (Code::InvalidArgument, expected));
        assert_eq!(server.names(), Vec::<String>::new());
    }
    // Two files that add up to more than any number.
    for start in [named("films", "rows", 1 << 60), start_of(2, u64::MAX)] {
        let (code, refusal) = server.refusal(TOKEN, vec![start]).await;
        let has_room = |bytes, room| bytes >= 1 << 60 && room > 0 && room < 1 << 60;
        assert!(
            matches!(refusal, PushRefusal::PushSpace { bytes, bytes_max } if has_room(bytes, bytes_max)),
            "{refusal:?}"
        );
        assert_eq!(code, Code::ResourceExhausted);
    }
    // Without the token nothing else is said, whatever is wrong besides.
    for frames in [vec![], vec![named("a film", "rows", 4)], vec![start_of(2, u64::MAX)]] {
        let refused = server.refusal("0123456789abcdef-other", frames).await;
        assert_eq!(refused, (Code::Unauthenticated, PushRefusal::PushToken));
    }
    server.is_clean().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_push_is_taken_at_a_time() {
    let server = Pushed::start(Side::Left);
    let bundle = server.folder.path().join("next");
    table(500, 4, 2).save(&bundle).unwrap();
    let frames = tokio_stream::iter([start_of(2, 16)]).chain(tokio_stream::pending());
    let url = server.server.url();
    let call = tokio::spawn(async move { send(&url, TOKEN, frames).await });
    until("it is written", async || !server.names().is_empty()).await;
    let error = server.try_push(TOKEN, &bundle).await.unwrap_err();
    let Some(refusal) = error.refused() else { panic!("{error}") };
    let PushRefusal::PushUnderWay { retry_after } = refusal else { panic!("{refusal}") };
    assert!(*retry_after > Duration::ZERO);
    call.abort();
    server.is_clean().await;
    assert!(server.push(&bundle).await);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_client_cannot_read_or_ask_for_is_said_by_it() {
    let server = Pushed::start(Side::Left);
    let bundle = server.folder.path().join("next");
    let next = table(500, 4, 2);
    next.save(&bundle).unwrap();
    let error = server.try_push("a token\nof two lines", &bundle).await.unwrap_err();
    assert!(matches!(error, Error::TokenText), "{error}");
    let missing = server.folder.path().join("missing");
    let error = server.try_push(TOKEN, &missing).await.unwrap_err();
    assert!(error.to_string().contains("missing"), "{error}");
    // The first of its files: the server would say that bytes are missing.
    let unread = bundle.join("a-file");
    std::os::unix::fs::symlink("/proc/self/mem", &unread).unwrap();
    let error = server.try_push(TOKEN, &bundle).await.unwrap_err();
    assert!(matches!(&error, Error::Io { what, .. } if what.ends_with("next/a-file")), "{error}");
    std::fs::remove_file(unread).unwrap();
    assert!(server.push(&bundle).await);

    // A bundle of another name, by the text that the log has.
    let other = server.folder.path().join("other");
    Table::from_weight("books", 10, 1, DType::F32, &[0.5; 10]).unwrap().save(&other).unwrap();
    let error = server.try_push(TOKEN, &other).await.unwrap_err();
    let Some(refusal) = error.refused::<PushRefusal>() else { panic!("{error}") };
    assert_eq!(refusal.reason(), "PUSH_NOT_TAKEN");
    assert!(refusal.to_string().contains("serves no table called \"books\""), "{refusal}");

    // A server that was started without a folder for pushes.
    let folder = TempDir::new().unwrap();
    let spec = ServerSpec { change: ChangeSpec::default(), ..spec_in(&folder, Side::Left) };
    let plain = Running::start(Server::open(spec).unwrap());
    let endpoint = EndpointSpec::new(plain.url(), None);
    let error = push(&endpoint, TOKEN, &bundle, PATIENCE).await.unwrap_err();
    assert!(matches!(error.of(), Some(ReloadError::NoPushes { .. })), "{error}");
    assert!(error.to_string().contains("--push-folder"), "{error}");
}

/// A disk that takes no more in the middle of a file, by a bound on the size of files: the process has the signal of
/// that ignored, as where the disk is full there is none. Its log goes to a full disk too: a refusal that could not be
/// written down was lost to its client with a panic.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_push_that_the_disk_does_not_hold_leaves_nothing_and_is_taken_when_it_does() {
    let folder = TempDir::new().unwrap();
    let spec = spec_in(&folder, Side::Left);
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "trap '' XFSZ; exec \"$@\"", "sh"]).arg(program());
    command.stderr(File::options().write(true).open("/dev/full").unwrap());
    let server = Process::start_by(&mut command, folder.path(), "left", &spec, &[]);
    server.ready().await;
    // So many bytes that the client is still sending when the server gives up.
    let next = table(200_000, 4, 2);
    let bundle = folder.path().join("next");
    next.save(&bundle).unwrap();
    let endpoint = EndpointSpec::new(server.url(), None);
    let names = || std::fs::read_dir(folder.path().join("pushes")).unwrap().count();

    server.limit_files(Some(4096));
    let error = push(&endpoint, TOKEN, &bundle, PATIENCE).await.unwrap_err();
    let Some(refusal) = error.refused::<PushRefusal>() else { panic!("{error:?}") };
    assert_eq!(refusal.reason(), "PUSH_UNWRITABLE");
    assert!(refusal.to_string().contains("write a file"), "{refusal}");
    assert_eq!(names(), 0);
    server.limit_files(None);
    assert!(push(&endpoint, TOKEN, &bundle, PATIENCE).await.unwrap());
    assert_eq!(names(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_newest_pushed_again_leaves_no_copy_and_what_is_no_file_of_it_is_refused() {
    let pushed = Pushed::start(Side::Left);
    let bundle = pushed.folder.path().join("next");
    table(500, 4, 2).save(&bundle).unwrap();
    assert!(pushed.push(&bundle).await);
    let [first] = <[String; 1]>::try_from(pushed.names()).unwrap();
    for _ in 0..3 {
        assert!(!pushed.push(&bundle).await);
        assert_eq!(pushed.names(), std::slice::from_ref(&first));
    }
    // What is served lies there still.
    pushed.server.comes_to("hushtable_reloads_total{outcome=\"unchanged\"}", 3.0).await;
    let stray = bundle.join("passwords.txt");
    std::fs::write(&stray, "secret").unwrap();
    let error = pushed.try_push(TOKEN, &bundle).await.unwrap_err();
    let Some(refusal) = error.refused::<PushRefusal>() else { panic!("{error:?}") };
    assert_eq!(refusal.reason(), "PUSH_DAMAGED");
    assert!(refusal.to_string().contains("passwords.txt"), "{refusal}");
    std::fs::remove_file(&stray).unwrap();
    // Another version, and then the first again, are new each.
    let other = pushed.folder.path().join("other");
    table(500, 4, 3).save(&other).unwrap();
    assert!(pushed.push(&other).await);
    assert!(pushed.push(&bundle).await);
    assert_eq!(pushed.names().len(), 3);
}
