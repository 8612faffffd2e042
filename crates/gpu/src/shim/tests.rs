use std::process::Command;
use std::sync::Arc;

use super::Shim;
use crate::{Arg, Buffer, Device, Error, Launch, ModuleSpec, Stream, alloc, alloc_pinned};

fn check(defines: &[(&'static str, u32)]) -> ModuleSpec {
    ModuleSpec { source: "check.cu", defines: defines.to_vec() }
}

fn block(threads: u32) -> Launch {
    Launch { blocks: (1, 1), threads, shared_bytes: 0, is_cooperative: false }
}

struct Bench {
    device: Arc<dyn Device>,
    stream: Stream,
}

impl Bench {
    fn new(seed: u64) -> Self {
        let device = Shim::new(seed);
        let stream = device.stream().expect("a stream");
        Self { device, stream }
    }

    fn put(&self, words: &[u32]) -> Buffer {
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
        let buffer = alloc(&self.device, bytes.len()).expect("memory");
        self.device.copy_in(self.stream, &buffer, 0, &bytes).expect("in bounds");
        buffer
    }

    fn words(&self, buffer: &Buffer) -> Vec<u32> {
        let mut bytes = vec![0; buffer.bytes()];
        self.device.copy_out(self.stream, &mut bytes, buffer, 0).expect("in bounds");
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4"))).collect()
    }

    fn run(&self, name: &'static str, launch: Launch, arguments: &[Arg]) -> Result<(), Error> {
        let kernel = self.device.kernel(&check(&[]), name)?;
        // SAFETY: what the kernel takes, of buffers that are long enough.
        unsafe { self.device.launch(self.stream, kernel, launch, arguments) }
    }
}

#[test]
fn barriers_hold_and_their_absence_shows() {
    let (blocks, threads) = ((3, 2), 96);
    let launch = Launch { blocks, threads, shared_bytes: 4 * threads, is_cooperative: false };
    let expected: Vec<u32> = (0..blocks.1)
        .flat_map(|y| (0..blocks.0).map(move |x| 1000 * x + 1_000_000 * y))
        .flat_map(|base| (0..threads).rev().map(move |thread| base + thread))
        .collect();
    let mut wrong = 0;
    for seed in 0..4 {
        let bench = Bench::new(seed);
        for is_waiting in [1, 0] {
            let out = bench.put(&vec![0; expected.len()]);
            bench.run("reverse", launch, &[out.at(0), Arg::U32(is_waiting)]).expect("a launch");
            if is_waiting == 1 {
                assert_eq!(bench.words(&out), expected, "seed {seed}");
            } else {
                wrong += u32::from(bench.words(&out) != expected);
            }
        }
    }
    assert_eq!(wrong, 4, "a missing barrier shows");
}

#[test]
fn shuffles_read_other_lanes() {
    let bench = Bench::new(1);
    let out = bench.put(&[0; 64]);
    bench.run("shuffles", block(64), &[out.at(0)]).expect("a launch");
    let expected: Vec<u32> =
        (0..64).map(|i: u32| 3 * (i / 32 * 32 + (((i % 32) ^ 5) + 1) % 32)).collect();
    assert_eq!(bench.words(&out), expected);
}

#[test]
fn a_tile_is_a_product() {
    let bench = Bench::new(2);
    let byte = |i: u32| (i.wrapping_mul(0x9e37_79b9) >> 24) as u8;
    let a: Vec<u8> = (0..16 * 32).map(byte).collect();
    let b: Vec<u8> = (1000..1000 + 32 * 8).map(byte).collect();
    let words = |bytes: &[u8]| -> Vec<u32> {
        bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4"))).collect()
    };
    let d: Vec<u32> = (0..128).map(|i| u32::MAX - 1000 * i).collect();
    let sums = bench.put(&d);
    let (left, right) = (bench.put(&words(&a)), bench.put(&words(&b)));
    bench.run("tile", block(32), &[left.at(0), right.at(0), sums.at(0)]).expect("a launch");
    let mut expected = d;
    for row in 0..16 {
        for column in 0..8 {
            for k in 0..32 {
                let product = u32::from(a[32 * row + k]) * u32::from(b[32 * column + k]);
                let sum = &mut expected[8 * row + column];
                *sum = sum.wrapping_add(product);
            }
        }
    }
    assert_eq!(bench.words(&sums), expected);
}

#[test]
fn blocks_of_a_cooperative_launch_wait_for_each_other() {
    let (blocks, rounds) = (5, 4);
    for seed in 0..3 {
        let bench = Bench::new(seed);
        let barrier = bench.put(&[0]);
        let mut words = vec![0; (blocks * (rounds + 1)) as usize];
        words[..blocks as usize].fill(1);
        let sums = bench.put(&words);
        let launch =
            Launch { blocks: (blocks, 1), threads: 32, shared_bytes: 0, is_cooperative: true };
        let arguments = [barrier.at(0), sums.at(0), Arg::U32(rounds)];
        bench.run("rounds_of_all", launch, &arguments).expect("a launch");
        for round in 1..=rounds {
            let row = |r: u32| (r * blocks) as usize..((r + 1) * blocks) as usize;
            let sum: u32 = words[row(round - 1)].iter().sum();
            let next: Vec<u32> = (0..blocks).map(|block| sum + block).collect();
            words[row(round)].copy_from_slice(&next);
        }
        assert_eq!(bench.words(&sums), words, "seed {seed}");
    }
}

#[test]
fn macros_make_modules() {
    let bench = Bench::new(0);
    let kernel = |module: &ModuleSpec| bench.device.kernel(module, "extra");
    let missing = kernel(&check(&[])).expect_err("left out");
    assert_eq!(missing, Error::NoKernel { module: "check.cu", kernel: "extra" });
    let spec = check(&[("WITH_EXTRA", 5)]);
    let extra = kernel(&spec).expect("a kernel");
    assert_eq!(kernel(&spec), Ok(extra));
    let out = bench.put(&[0; 64]);
    let arguments = [Arg::U64(1 << 40), out.at(0)];
    // SAFETY: what the kernel takes, of buffers that are long enough.
    unsafe { bench.device.launch(bench.stream, extra, block(32), &arguments) }.expect("a launch");
    assert_eq!(bench.words(&out)[62..], [5, 1 << 8]);
    let error = bench.device.kernel(&ModuleSpec { source: "no.cu", defines: vec![] }, "extra");
    assert!(matches!(error, Err(Error::Compile { module: "no.cu", .. })), "{error:?}");
    let error = bench.device.kernel(&check(&[("KERNEL", 5)]), "extra").expect_err("no C++");
    assert!(matches!(error, Error::Compile { module: "check.cu", .. }), "{error:?}");
}

#[test]
fn what_cannot_be_launched_is_refused() {
    let bench = Bench::new(0);
    let out = bench.put(&[0; 32]);
    let run = |launch, arguments: &[Arg]| bench.run("reverse", launch, arguments);
    let good = [out.at(0), Arg::U32(1)];
    for arguments in [&good[..1], &[out.at(0), Arg::U64(1)], &[good[0], good[1], good[1]]] {
        let error = run(block(32), arguments).expect_err("other arguments");
        assert!(matches!(error, Error::Arguments { .. }), "{error}");
    }
    let launches = [
        (Launch { threads: 48, ..block(32) }, "48 threads"),
        (Launch { threads: 1056, ..block(32) }, "1056 threads"),
        (Launch { blocks: (0, 1), ..block(32) }, "0 by 1 blocks"),
        (Launch { blocks: (1, 65_536), ..block(32) }, "1 by 65536 blocks"),
        (Launch { shared_bytes: 1 << 20, ..block(32) }, "1048576 bytes of shared"),
        (Launch { blocks: (129, 1), is_cooperative: true, ..block(32) }, "runs 128 such"),
    ];
    for (launch, expected) in launches {
        let error = run(launch, &good).expect_err("no such launch").to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn memory_is_counted_and_bounded() {
    let device = Shim::with_memory(0, 10_000);
    let stream = device.stream().expect("a stream");
    let first = alloc(&device, 6_000).expect("room");
    assert_eq!(device.free_bytes(), Ok(4_000));
    let error = alloc(&device, 5_000).err().expect("no room");
    assert_eq!(error, Error::DeviceMemory { asked: 5_000, free: 4_000 });
    let mut bytes = [0; 16];
    device.copy_out(stream, &mut bytes, &first, 5_984).expect("in bounds");
    assert_eq!(bytes, [0xa5; 16]);
    device.clear(stream, &first, 5_990, 10).expect("in bounds");
    device.copy_out(stream, &mut bytes, &first, 5_984).expect("in bounds");
    assert_eq!(bytes[..6], [0xa5; 6]);
    assert_eq!(bytes[6..], [0; 10]);
    for (offset, length) in [(5_985, 16), (6_001, 0), (usize::MAX, 2)] {
        let past = vec![0; length];
        let error = device.copy_in(stream, &first, offset, &past).expect_err("past the end");
        assert!(matches!(error, Error::Geometry { .. }), "{error}");
    }
    drop(first);
    assert_eq!(device.free_bytes(), Ok(10_000));
    let mut pinned = alloc_pinned(&device, 20_000).expect("the host's memory is not the device's");
    assert_eq!(pinned.as_slice(), vec![0; 20_000]);
    pinned.as_mut_slice()[19_999] = 1;
    let (from, to) = (device.record(stream).expect("now"), device.record(stream).expect("now"));
    device.wait(stream, from).expect("an event");
    assert!(device.elapsed_ms(from, to).expect("two events") >= 0.0);
}

/// Mistakes that end the program, by name, and what it must say. Run in a child of this test.
const MISTAKES: [(&str, &str); 9] = [
    ("missed_barrier", "barrier that the others do not reach"),
    ("missed_shuffle", "barrier that the others do not reach"),
    ("grid_sync_alone", "not cooperative"),
    ("past_the_end", "out of bounds (block 0, thread "),
    ("past_shared", "out of bounds"),
    ("misaligned", "misaligned address"),
    ("unaligned_word", "misaligned address"),
    ("stack", "out of bounds"),
    ("before_the_start", "bytes beside a buffer"),
];

fn make(mistake: &str) {
    let bench = Bench::new(3);
    let out = bench.put(&[0; 64]);
    let done = match mistake {
        "missed_barrier" => bench.run("missed_barrier", block(64), &[out.at(0)]),
        "missed_shuffle" => bench.run("missed_shuffle", block(64), &[out.at(0)]),
        "grid_sync_alone" => bench.run("grid_sync_alone", block(32), &[out.at(0)]),
        "past_the_end" => bench.run("write_word", block(32), &[out.at(0), Arg::U64(64)]),
        "past_shared" => {
            let launch = Launch { shared_bytes: 64, ..block(32) };
            bench.run("write_shared", launch, &[Arg::U32(16), out.at(0)])
        }
        "misaligned" => bench.run("read_vector", block(32), &[out.at(0), Arg::U64(8), out.at(0)]),
        "unaligned_word" => bench.run("write_word", block(32), &[out.at(2), Arg::U64(0)]),
        "stack" => bench.run("deep", block(32), &[out.at(0), Arg::U32(256)]),
        "before_the_start" => bench.run("write_word", block(32), &[out.at(0), Arg::U64(u64::MAX)]),
        _ => panic!("no mistake {mistake}"),
    };
    done.expect("the launch itself is right");
    drop(out);
}

#[test]
fn mistakes_end_the_program() {
    const WHICH: &str = "HUSHTABLE_SHIM_MISTAKE";
    if let Ok(mistake) = std::env::var(WHICH) {
        return make(&mistake);
    }
    let program = std::env::current_exe().expect("this program");
    for (mistake, expected) in MISTAKES {
        let output = Command::new(&program)
            .args(["--exact", "shim::tests::mistakes_end_the_program", "--nocapture"])
            .env(WHICH, mistake)
            .output()
            .expect("a child");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{mistake} passed: {said}");
        assert!(said.contains(expected), "{mistake}: {said}");
    }
}
