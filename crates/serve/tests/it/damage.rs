//! A server serves what its version says, or nothing: real processes over files that are damaged,
//! swapped and mixed before they start, and overwritten and cut short while they serve.

use crate::common;

use std::fs::{self, File, OpenOptions};
use std::io::{BufRead, BufReader, Read};
use std::net::SocketAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use common::{PATIENCE, block_until, layout_spec, network, page, row, spec, table};
use hushtable_pir::dpf::Side;
use hushtable_pir::onion::{self, OnionSpec, ParameterSet};
use hushtable_serve::{
    ClientSpec, EndpointSpec, Error, LookupClient, OnionClient, OnionClientSpec, OnionServerSpec,
    Refusal, ServerSpec,
};
use hushtable_table::layout::{Layout, LayoutMap};
use hushtable_table::{DType, Table};
use tempfile::TempDir;

const ROWS: u64 = 2000;
const DIM: usize = 16;

/// A server of `examples/serve_bundle.rs`, which cargo builds beside the tests.
struct Process {
    child: Child,
    addr: SocketAddr,
    metrics_addr: SocketAddr,
}

impl Process {
    /// Starts a server and waits until it is ready, or gives what it said when it ended.
    fn start(folder: &Path, spec: &impl serde::Serialize) -> Result<Self, String> {
        let file = folder.join("spec.json");
        let spec = serde_json::to_value(spec).unwrap();
        fs::write(&file, spec.to_string()).unwrap();
        // One of two servers has a side.
        let kind = spec.get("side").is_none().then_some("onion");
        let mut command = Command::new(common::program());
        command.arg(file).args(kind).env("RUST_LOG", "off");
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut line = String::new();
        BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let Ok(addrs) = serde_json::from_str::<serde_json::Value>(&line) else {
            return Err(last_words(&mut child));
        };
        let addr = |name: &str| addrs[name].as_str().unwrap().parse().unwrap();
        let mut process = Self { child, addr: addr("addr"), metrics_addr: addr("metrics_addr") };
        let mut has_ended = false;
        block_until("it is ready, or has ended", || {
            has_ended = process.child.try_wait().unwrap().is_some();
            has_ended || process.readyz() == Some(200)
        });
        if has_ended { Err(last_words(&mut process.child)) } else { Ok(process) }
    }

    /// The status of `/readyz`, while there is a server.
    fn readyz(&self) -> Option<u16> {
        let mut stream = std::net::TcpStream::connect(self.metrics_addr).ok()?;
        let request = b"GET /readyz HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n";
        std::io::Write::write_all(&mut stream, request).ok()?;
        let mut reply = String::new();
        stream.read_to_string(&mut reply).ok()?;
        reply.split(' ').nth(1)?.parse().ok()
    }

    /// Waits for its end, which must be an error and no signal, and gives its last words.
    fn end(&mut self) -> String {
        block_until("it has ended", || self.child.try_wait().unwrap().is_some());
        last_words(&mut self.child)
    }

    fn url(&self) -> String {
        format!("http://{}", self.addr)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a process that has ended, by an error, said.
#[track_caller]
fn last_words(child: &mut Child) -> String {
    let status = child.wait().unwrap();
    let mut words = String::new();
    child.stderr.take().unwrap().read_to_string(&mut words).unwrap();
    assert_eq!(status.code(), Some(1), "{status:?}: {words}");
    words
}

/// Flips bits of the byte at `at`.
fn flip(path: &Path, at: u64, bits: u8) {
    let file = OpenOptions::new().read(true).write(true).open(path).unwrap();
    let mut byte = [0];
    file.read_exact_at(&mut byte, at).unwrap();
    file.write_all_at(&[byte[0] ^ bits], at).unwrap();
}

fn truncate(path: &Path, bytes: u64) {
    OpenOptions::new().write(true).open(path).unwrap().set_len(bytes).unwrap();
}

fn copy_bundle(from: &Path, to: &Path) {
    let _ = fs::remove_dir_all(to);
    fs::create_dir(to).unwrap();
    for entry in fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        fs::copy(entry.path(), to.join(entry.file_name())).unwrap();
    }
}

/// Two bundles of the same shape and kind of layout, `a` and `b`, and room for a third.
struct Bundles {
    folder: TempDir,
    a: Table,
}

impl Bundles {
    fn new(dtype: DType) -> Self {
        let folder = TempDir::new().unwrap();
        let [a, _] = [("a", 1), ("b", 2)].map(|(name, seed)| {
            let values = table(ROWS, DIM, seed);
            let values: Vec<f32> = (0..ROWS)
                .flat_map(|id| row(&values, id))
                .collect::<Vec<u8>>()
                .chunks_exact(4)
                .map(|word| f32::from_le_bytes(word.try_into().unwrap()))
                .collect();
            let table = Table::from_weight("films", ROWS, DIM, dtype, &values).unwrap();
            // Other rows are hot in each, so that no file of one is a file of the other.
            let hot_ids: Vec<u32> = (0..40).map(|id| id + 100 * seed as u32).collect();
            let hot_companions = hot_ids.iter().map(|id| id + 1).collect();
            let map = LayoutMap { hot_ids, hot_companions, full_companions: vec![] };
            let spec = layout_spec(ROWS, seed as u8);
            let layout = Layout::new(spec, map, table.shape(), table.version()).unwrap();
            let table = table.with_layout(Arc::new(layout)).unwrap();
            table.save(&folder.path().join(name)).unwrap();
            table
        });
        Self { folder, a }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Bundle `a` with files of `b` in it.
    fn mixed(&self, files: &[&str]) -> PathBuf {
        let mixed = self.path("mixed");
        copy_bundle(&self.path("a"), &mixed);
        for file in files {
            fs::copy(self.path("b").join(file), mixed.join(file)).unwrap();
        }
        mixed
    }

    fn start(&self, bundle: PathBuf, side: Side) -> Result<Process, String> {
        Process::start(self.folder.path(), &ServerSpec { table: bundle, ..spec(side) })
    }

    /// Tries to serve `bundle` beside the whole `a`: what the server ends with. Where it serves,
    /// the test fails, and says how many of 200 lookups were wrong.
    fn refusal(&self, bundle: &Path, what: &str) -> String {
        let right = match self.start(bundle.to_owned(), Side::Right) {
            Err(words) => return words,
            Ok(right) => right,
        };
        let left = self.start(self.path("a"), Side::Left).unwrap();
        let endpoint = |server: &Process| EndpointSpec::new(server.url(), None);
        let spec = ClientSpec::new(endpoint(&left), endpoint(&right));
        let runtime = tokio::runtime::Runtime::new().unwrap();
        let wrong = runtime.block_on(async {
            let client = LookupClient::connect(&spec).await.unwrap();
            let mut wrong = 0;
            for id in (0..200).map(|i| i * 7) {
                let lookup = client.lookup(&[id], 1).await.unwrap();
                wrong += usize::from(lookup.rows != row(&self.a, id));
            }
            wrong
        });
        panic!("{what}: the server is ready, and {wrong} of 200 lookups are wrong");
    }
}

#[test]
fn rows_that_are_damaged_or_anothers_are_not_served() {
    let bundles = Bundles::new(DType::F32);
    let row_bytes = 4 * DIM as u64;
    let refusal = |what: &str, damage: &dyn Fn(&Path)| {
        let bundle = bundles.mixed(&[]);
        damage(&bundle);
        bundles.refusal(&bundle, what)
    };
    let words = refusal("eight damaged bytes", &|bundle| {
        (0..8).for_each(|i| flip(&bundle.join("rows.safetensors"), 4096 + 250 * i * row_bytes, 64));
    });
    assert!(words.contains("row 0 does not match its sum"), "{words}");
    assert!(words.contains("hushtable table verify"), "{words}");
    let words = refusal("one flipped bit", &|bundle| {
        flip(&bundle.join("rows.safetensors"), 4096 + 1777 * row_bytes + 63, 1);
    });
    assert!(words.contains("row 1777 does not match its sum"), "{words}");
    let words = refusal("a flipped bit in the header's padding", &|bundle| {
        // A space becomes a tab, which JSON does not mind.
        flip(&bundle.join("rows.safetensors"), 4000, b' ' ^ b'\t');
    });
    assert!(words.contains("the header is damaged"), "{words}");
    let words = refusal("a flipped bit in the sums", &|bundle| {
        flip(&bundle.join("rows.sums"), 16 + 4 * 99, 1);
    });
    assert!(words.contains("rows.sums: the row sums hash to"), "{words}");
    // Rows in each other's places, sums moved along: each row matches its sum.
    let words = refusal("two rows swapped with their sums", &|bundle| {
        for (file, start, size) in [("rows.safetensors", 4096, 64), ("rows.sums", 16, 4)] {
            let file = bundle.join(file);
            let mut bytes = fs::read(&file).unwrap();
            let (head, tail) = bytes.split_at_mut(start + 5 * size);
            head[start..start + size].swap_with_slice(&mut tail[..size]);
            fs::write(&file, bytes).unwrap();
        }
    });
    assert!(words.contains("rows.sums: the row sums hash to"), "{words}");
}

#[test]
fn int8_scales_and_codes_are_checked_alike() {
    let bundles = Bundles::new(DType::Int8);
    for (at, row) in [(4096 + 4 * 300 + 1, 300), (4096 + 4 * ROWS + 301 * DIM as u64, 301)] {
        let bundle = bundles.mixed(&[]);
        flip(&bundle.join("rows.safetensors"), at, 1);
        let words = bundles.refusal(&bundle, "a damaged int8 row");
        assert!(words.contains(&format!("row {row} does not match its sum")), "{words}");
    }
}

#[test]
fn files_mixed_from_two_bundles_are_not_served() {
    let bundles = Bundles::new(DType::F32);
    let files = ["manifest.json", "rows.safetensors", "rows.sums", "layout.json", "layout.map"];
    let whole = bundles.start(bundles.mixed(&[]), Side::Right);
    assert!(whole.is_ok(), "{:?}", whole.err());
    // Every mixture, both files of a layout and every file but one included.
    for mask in 1_u32..(1 << files.len()) - 1 {
        let chosen: Vec<&str> =
            (0..files.len()).filter(|i| mask >> i & 1 != 0).map(|i| files[i]).collect();
        let words = bundles.refusal(&bundles.mixed(&chosen), &format!("{chosen:?} of another"));
        assert!(words.contains("mixed"), "the bundle is not named: {words}");
    }
}

#[test]
fn rows_and_sums_that_were_forged_with_a_manifest_for_them_are_not_served() {
    let bundles = Bundles::new(DType::F32);
    let bundle = bundles.mixed(&["rows.safetensors", "rows.sums"]);
    // The manifest says `a`'s version, but the hash of `b`'s sums, under a checksum that fits.
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_slice(&fs::read(bundles.path(name).join("manifest.json")).unwrap())
            .unwrap()
    };
    let (mut forged, other) = (read("a"), read("b"));
    forged["row_sums_blake3"] = other["row_sums_blake3"].clone();
    let mut hasher = blake3::Hasher::new_derive_key("hushtable table manifest v1");
    let mut entry = |bytes: &[u8]| {
        hasher.update(&(bytes.len() as u64).to_le_bytes());
        hasher.update(bytes);
    };
    let hash = |name: &str| blake3::Hash::from_hex(forged[name].as_str().unwrap()).unwrap();
    entry(b"films");
    entry(&2_u64.to_le_bytes());
    entry(&ROWS.to_le_bytes());
    entry(&(DIM as u64).to_le_bytes());
    entry(b"f32");
    entry(hash("content_blake3").as_bytes());
    entry(hash("row_sums_blake3").as_bytes());
    entry(&0_u64.to_le_bytes());
    entry(b"memory");
    forged["checksum"] = hasher.finalize().to_hex().as_str().into();
    fs::write(bundle.join("manifest.json"), forged.to_string()).unwrap();
    let words = bundles.refusal(&bundle, "another table's rows under forged sums");
    assert!(words.contains("the rows hash to version"), "{words}");
    assert!(words.contains(&bundles.a.version().to_string()), "{words}");
}

/// A bundle of rows, and its prepared file.
struct Single {
    folder: TempDir,
    table: Table,
}

impl Single {
    fn new() -> Self {
        let folder = TempDir::new().unwrap();
        let table = table(ROWS, DIM, 1);
        let single = Self { folder, table };
        single.table.save(&single.path("a")).unwrap();
        single.prepare(&single.table, "whole");
        single
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn prepare(&self, table: &Table, name: &str) {
        let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
        let path = self.path(name);
        onion::prepare(table, &path, ParameterSet::N4096128, &spec, &|_, _| true).unwrap();
    }

    /// A copy of the prepared file.
    fn copy(&self) -> PathBuf {
        let copy = self.path("copy");
        let _ = fs::remove_file(&copy);
        fs::copy(self.path("whole"), &copy).unwrap();
        copy
    }

    fn start(&self, prepared: &Path, load: bool) -> Result<Process, String> {
        let network = network();
        let spec = OnionServerSpec {
            prepared: Some(prepared.into()),
            mapped: !load,
            network,
            threads: 1,
            window_us: Some(0),
            ..OnionServerSpec::new(self.path("a"))
        };
        Process::start(self.folder.path(), &spec)
    }

    /// Serves the mapped file and looks rows up; after some, `act` does something to it, while more are
    /// looked up, and then `after` more. Every answer must be right; gives the first error, if there is
    /// one.
    async fn lookups_while(
        &self,
        server: &Process,
        act: impl FnOnce() + Send + 'static,
        after: usize,
    ) -> Option<Error> {
        let spec = OnionClientSpec {
            lookup_max: PATIENCE,
            ..OnionClientSpec::new(EndpointSpec::new(server.url(), None))
        };
        let client = OnionClient::connect(&spec).await.unwrap();
        let (mut act, mut acting) = (Some(act), None);
        let (mut before, mut answered) = (0, 0);
        for id in (0..).map(|i| i * 31 % ROWS) {
            match client.lookup(&[id], 1).await {
                Ok(lookup) => assert_eq!(lookup.rows, row(&self.table, id), "row {id} is wrong"),
                Err(error) => return Some(error),
            }
            match &acting {
                None if before < LOOKUPS_BEFORE => before += 1,
                None => acting = act.take().map(std::thread::spawn),
                Some(thread) => answered += usize::from(thread.is_finished()),
            }
            if answered == after {
                break;
            }
        }
        acting.unwrap().join().unwrap();
        None
    }
}

const LOOKUPS_BEFORE: usize = 5;

#[test]
fn every_damaged_block_of_a_prepared_file_is_refused() {
    let single = Single::new();
    let bytes = fs::metadata(single.path("whole")).unwrap().len();
    for load in [true, false] {
        for at in [4096, bytes / 2, bytes - 4096] {
            let copy = single.copy();
            flip(&copy, at, 1);
            let words = single.start(&copy, load).err().unwrap_or_else(|| panic!("{at} is served"));
            assert!(words.contains("copy: block ") && words.contains("is damaged"), "{words}");
            assert!(words.contains("prepare the table again"), "{words}");
        }
    }
}

#[test]
fn another_tables_prepared_file_is_not_served_under_this_version() {
    let single = Single::new();
    single.prepare(&table(ROWS, DIM, 2), "other");
    // The other's payload and hashes, this one's header: the file's version does not fit.
    let (mut forged, whole) =
        ["other", "whole"].map(|name| fs::read(single.path(name)).unwrap()).into();
    forged[..4096].copy_from_slice(&whole[..4096]);
    let copy = single.path("copy");
    fs::write(&copy, &forged).unwrap();
    // A header that does not fit is made anew from the rows, which are checked; never served.
    let server = single.start(&copy, false).unwrap();
    assert!(fs::read(&copy).unwrap() == whole);
    drop(server);
    // Even with a version that fits, its rows are not the table's.
    let (version_at, header) = (forged.len() - 32, header_bytes(&whole));
    let (_, hashes) = forged[..version_at].split_at(hashes_at(&whole));
    let mut hasher = blake3::Hasher::new_derive_key("hushtable prepared content v1");
    hasher.update(header).update(hashes);
    let version = hasher.finalize();
    forged[version_at..].copy_from_slice(version.as_bytes());
    fs::write(&copy, &forged).unwrap();
    let words = single.start(&copy, false).err().expect("a forged file is served");
    assert!(words.contains("the self-check failed"), "{words}");
}

fn header_bytes(file: &[u8]) -> &[u8] {
    &file[..u32::from_le_bytes(file[16..20].try_into().unwrap()) as usize]
}

fn hashes_at(file: &[u8]) -> usize {
    let blocks = u32::from_le_bytes(file[64..68].try_into().unwrap()) as usize;
    file.len() - 32 - 32 * blocks
}

#[test]
fn damage_in_what_an_unfinished_preparation_left_is_found() {
    let single = Single::new();
    let spec = OnionSpec { threads: 1, ..OnionSpec::new() };
    let path = single.path("resumed");
    let set = ParameterSet::N4096128;
    let large = table(40_000, DIM, 3);
    large.save(&single.path("large")).unwrap();
    let large = Table::open(&single.path("large")).unwrap();
    let stopped = onion::prepare(&large, &path, set, &spec, &|_, _| false);
    assert!(matches!(stopped, Err(onion::Error::Stopped)), "{stopped:?}");
    let partial = single.path("resumed.partial");
    flip(&partial, 8192 + 3, 1);
    // The damaged unit is made again, whatever the journal says of it.
    onion::prepare(&large, &path, set, &spec, &|_, _| true).unwrap();
    let afresh = single.path("afresh");
    onion::prepare(&large, &afresh, set, &spec, &|_, _| true).unwrap();
    assert!(fs::read(&path).unwrap() == fs::read(&afresh).unwrap(), "it is served");
    onion::Engine::open(&path, &large, set, &spec).unwrap();
}

/// Asserts that a lookup was refused for it, and that the server ends for a file that was changed.
#[track_caller]
fn ends_for_the_change(server: &mut Process, error: &Error) {
    let refused = matches!(
        error,
        Error::Refused { refusal: Refusal::Backend | Refusal::Draining, .. }
            | Error::Unavailable { .. }
    );
    assert!(refused, "{error:?}");
    let words = server.end();
    assert!(words.contains("was written to, cut short"), "{words}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapped_file_cut_short_is_an_error_and_no_signal() {
    for bytes in [9000, 4096, 0] {
        let single = Single::new();
        let copy = single.copy();
        let mut server = single.start(&copy, false).unwrap();
        let cut = move || truncate(&copy, bytes);
        let error = single.lookups_while(&server, cut, 200).await.expect("it is answered from");
        ends_for_the_change(&mut server, &error);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapped_file_that_is_overwritten_is_not_answered_from() {
    let overwrite = |copy: PathBuf| {
        let bytes = fs::metadata(&copy).unwrap().len();
        let file = OpenOptions::new().write(true).open(copy).unwrap();
        for at in (4096..bytes - 4096).step_by(4096) {
            file.write_all_at(&[0x55; 8], at).unwrap();
        }
    };
    let map = |copy: PathBuf| {
        let file = OpenOptions::new().read(true).write(true).open(copy).unwrap();
        write_mapped(&file);
    };
    for act in [overwrite, map] as [fn(PathBuf); 2] {
        let single = Single::new();
        let copy = single.copy();
        let mut server = single.start(&copy, false).unwrap();
        let path = copy.clone();
        let error = single
            .lookups_while(&server, move || act(path), 200)
            .await
            .expect("it is answered from");
        ends_for_the_change(&mut server, &error);
        // Nor is it when the server starts again.
        let words = single.start(&copy, false).err().expect("it is served");
        assert!(words.contains("is damaged"), "{words}");
    }
}

/// Writes to a file as a process that has mapped it does, whose writes no system call announces.
fn write_mapped(file: &File) {
    let script = "import mmap, sys\n\
                  with open(sys.argv[1], 'r+b') as file, mmap.mmap(file.fileno(), 0) as map:\n    \
                  for at in range(4096, len(map) - 4096, 4096): map[at:at + 8] = b'U' * 8\n";
    let path = format!("/proc/{}/fd/{}", std::process::id(), std::os::fd::AsRawFd::as_raw_fd(file));
    let status = Command::new("python3").args(["-c", script, &path]).status().unwrap();
    assert!(status.success());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mapped_file_that_is_replaced_or_linked_goes_on_being_served() {
    let single = Single::new();
    let copy = single.copy();
    let server = single.start(&copy, false).unwrap();
    let (path, new, link) = (copy.clone(), single.path("new"), single.path("link"));
    fs::write(&new, b"not a prepared file").unwrap();
    let linked = path.clone();
    let error = single.lookups_while(&server, || fs::hard_link(linked, link).unwrap(), 20).await;
    assert!(error.is_none(), "{error:?}");
    let error = single.lookups_while(&server, || fs::rename(new, path).unwrap(), 20).await;
    assert!(error.is_none(), "{error:?}");
    assert_eq!(page(server.metrics_addr, "/readyz").await.0, 200);
}

#[test]
fn an_idle_server_learns_that_its_file_was_changed() {
    let single = Single::new();
    let copy = single.copy();
    let mut server = single.start(&copy, false).unwrap();
    flip(&copy, 5000, 1);
    let words = server.end();
    assert!(words.contains("was written to, cut short"), "{words}");
}
