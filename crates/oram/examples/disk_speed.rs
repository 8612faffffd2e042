//! How fast this machine's disk reads and writes through [`FileStore`]: random runs of one to four
//! pages at several depths, and 1 MiB runs in order. One line of JSON each.
//!
//! ```sh
//! cargo run --release -p hushtable-oram --example disk_speed -- FOLDER [GIB [SECONDS]]
//! ```
//!
//! The file (2 GiB unless told otherwise) is filled with bytes that no disk compresses, and removed.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use hushtable_oram::disk::{Direct, FileSpec, FileStore, IoKind, PAGE_BYTES, Pages, Run, Store};
use rand::{Rng, RngExt, SeedableRng};
use rand_chacha::ChaCha8Rng;

const SEQUENTIAL_PAGES: u32 = 256;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let folder = PathBuf::from(args.next().ok_or("usage: disk_speed FOLDER [GIB [SECONDS]]")?);
    let gib: f64 = args.next().map_or(Ok(2.0), |arg| arg.parse())?;
    let seconds: f64 = args.next().map_or(Ok(0.5), |arg| arg.parse())?;
    let pages = ((gib * (1 << 30) as f64) as u64 / PAGE_BYTES as u64).next_multiple_of(256);
    let path = folder.join(format!("disk_speed.{}", std::process::id()));
    let outcome = measure(&path, pages, Duration::from_secs_f64(seconds));
    let _ = std::fs::remove_file(&path);
    outcome
}

fn measure(
    path: &std::path::Path,
    pages: u64,
    time: Duration,
) -> Result<(), Box<dyn std::error::Error>> {
    let spec = |io, depth| FileSpec { io, direct: Direct::Auto, depth };
    let mut rng = ChaCha8Rng::seed_from_u64(1);
    let mut buffer = Pages::with_count(16 * SEQUENTIAL_PAGES as usize);
    rng.fill_bytes(buffer.bytes_mut());
    let mut store = FileStore::create(path, pages, spec(IoKind::Auto, 16))?;
    let start = Instant::now();
    let runs: Vec<Run> = (0..pages)
        .step_by(SEQUENTIAL_PAGES as usize)
        .map(|first_page| Run { first_page, pages: SEQUENTIAL_PAGES })
        .collect();
    for runs in runs.chunks(16) {
        buffer.resize(runs.len() * SEQUENTIAL_PAGES as usize);
        store.write(runs, &buffer)?;
    }
    store.sync()?;
    report("fill", &store, 16, SEQUENTIAL_PAGES, runs.len(), start.elapsed());
    drop(store);

    for io in [IoKind::Auto, IoKind::Pread] {
        for depth in [1, 16, 64, 128] {
            let mut store = FileStore::open(path, spec(io, depth))?;
            for run_pages in [1, 2, 4] {
                for kind in ["read", "read_each", "write"] {
                    let batch = if depth == 1 { 64 } else { 4096 };
                    let (mut count, mut seen, start) = (0, 0_u64, Instant::now());
                    while start.elapsed() < time {
                        // A window of pages of its own for each run, so that none overlap.
                        let window = pages / batch / u64::from(run_pages);
                        let runs: Vec<Run> = (0..batch)
                            .map(|i| i * window + rng.random_range(0..window))
                            .map(|slot| slot * u64::from(run_pages))
                            .map(|first_page| Run { first_page, pages: run_pages })
                            .collect();
                        match kind {
                            "read" => store.read(&runs, &mut buffer)?,
                            "read_each" => store.read_each(&runs, &mut |_, bytes| {
                                seen ^= u64::from(bytes[0]);
                            })?,
                            _ => {
                                buffer.resize(runs.len() * run_pages as usize);
                                store.write(&runs, &buffer)?;
                            }
                        }
                        count += runs.len();
                    }
                    std::hint::black_box(seen);
                    report(kind, &store, depth, run_pages, count, start.elapsed());
                }
            }
            let start = Instant::now();
            store.read_each(&runs[..runs.len().min(512)], &mut |_, _| {})?;
            let count = runs.len().min(512);
            report("read_sequential", &store, depth, SEQUENTIAL_PAGES, count, start.elapsed());
        }
    }
    Ok(())
}

fn report(kind: &str, store: &FileStore, depth: usize, pages: u32, runs: usize, took: Duration) {
    let seconds = took.as_secs_f64();
    let line = serde_json::json!({
        "bench": "disk",
        "params": {
            "kind": kind,
            "io": if store.uses_uring() { "uring" } else { "pread" },
            "direct": store.is_direct(),
            "depth": depth,
            "run_bytes": pages as usize * PAGE_BYTES,
            "file_bytes": store.pages() * PAGE_BYTES as u64,
        },
        "value": runs as f64 / seconds,
        "unit": "runs/s",
        "us_per_run": seconds * 1e6 / runs as f64,
        "mib_per_s": (runs * pages as usize * PAGE_BYTES) as f64 / seconds / (1 << 20) as f64,
    });
    println!("{line}");
}
