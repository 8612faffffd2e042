//! What engines count on, on the shim, and with HUSHTABLE_TEST_DEVICE=cuda on a GPU.

use std::process::Command;
use std::sync::Arc;
use std::{env, fs, thread};

use hushtable_gpu::cuda::{Need, Nvrtc};
use hushtable_gpu::shim::{TEST_DEVICE_VARIABLE, stand_in, under_test};
use hushtable_gpu::{
    Arg, Buffer, Cuda, CudaSpec, Device, Error, Kernel, Launch, ModuleSpec, Stream, alloc,
    alloc_pinned,
};

fn checks() -> ModuleSpec {
    ModuleSpec { source: "check.cu", defines: vec![("WITH_EXTRA", 5)] }
}

fn check(name: &'static str, device: &Arc<dyn Device>) -> Kernel {
    device.kernel(&checks(), name).expect("a kernel")
}

fn block(threads: u32) -> Launch {
    Launch { blocks: (1, 1), threads, shared_bytes: 0, is_cooperative: false }
}

fn put(device: &Arc<dyn Device>, stream: Stream, words: &[u32]) -> Buffer {
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let buffer = alloc(device, bytes.len()).expect("memory");
    device.copy_in(stream, &buffer, 0, &bytes).expect("in bounds");
    buffer
}

fn words(device: &Arc<dyn Device>, stream: Stream, buffer: &Buffer) -> Vec<u32> {
    let mut bytes = vec![0; buffer.bytes()];
    device.copy_out(stream, &mut bytes, buffer, 0).expect("in bounds");
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4"))).collect()
}

#[test]
fn bytes_come_back() {
    let device = under_test(1);
    let stream = device.stream().expect("a stream");
    // Odd lengths, and more than the driver stages at once.
    for length in [1usize, 15, 4097, 3 << 20] {
        let bytes: Vec<u8> = (0..length).map(|i| (i * 31 % 257) as u8).collect();
        let buffer = alloc(&device, length + 3).expect("memory");
        assert_eq!(buffer.address() % 16, 0);
        device.clear(stream, &buffer, 0, length + 3).expect("in bounds");
        device.copy_in(stream, &buffer, 2, &bytes).expect("in bounds");
        let mut back = vec![0xff; length + 3];
        device.copy_out(stream, &mut back, &buffer, 0).expect("in bounds");
        assert_eq!(back[..2], [0, 0]);
        assert!(back[2..length + 2] == bytes, "{length} bytes");
        assert_eq!(back[length + 2], 0);
        let past = device.copy_in(stream, &buffer, 4, &bytes).expect_err("past the end");
        assert!(matches!(past, Error::Geometry { .. }), "{past}");
    }
    let asked = device.facts().memory_bytes as usize + (1 << 30);
    match alloc(&device, asked) {
        Err(Error::DeviceMemory { asked: told, free }) => {
            assert_eq!(told, asked as u64);
            assert!(free <= device.facts().memory_bytes);
        }
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("more memory than there is"),
    }
}

#[test]
fn blocks_threads_and_shared_memory_are_as_launched() {
    let device = under_test(2);
    let stream = device.stream().expect("a stream");
    let reverse = check("reverse", &device);
    // The last is more shared memory than a block has unasked.
    for (blocks, threads, shared_bytes) in
        [((1, 1), 32, 128), ((3, 2), 96, 384), ((2, 5), 1024, 4096), ((2, 1), 64, 96 << 10)]
    {
        let expected: Vec<u32> = (0..blocks.1)
            .flat_map(|y| (0..blocks.0).map(move |x| 1000 * x + 1_000_000 * y))
            .flat_map(|base| (0..threads).rev().map(move |thread| base + thread))
            .collect();
        let out = put(&device, stream, &vec![0; expected.len()]);
        let launch = Launch { blocks, threads, shared_bytes, is_cooperative: false };
        let arguments = [out.at(0), Arg::U32(1)];
        // SAFETY: what the kernel takes, of buffers that are long enough.
        unsafe { device.launch(stream, reverse, launch, &arguments) }.expect("a launch");
        assert!(words(&device, stream, &out) == expected, "{launch:?}");
        let resident = device.blocks_per_multiprocessor(reverse, threads, shared_bytes);
        assert!((1..=64).contains(&resident.expect("a number")));
    }
    let launch = Launch { shared_bytes: device.facts().shared_bytes_max + 1, ..block(32) };
    let out = put(&device, stream, &[0]);
    // SAFETY: it is refused, and nothing runs.
    let error = unsafe { device.launch(stream, reverse, launch, &[out.at(0), Arg::U32(1)]) };
    assert!(matches!(error, Err(Error::Geometry { .. })), "{error:?}");
}

#[test]
fn arguments_of_other_sizes_are_refused() {
    let device = under_test(3);
    if (1..12_040).contains(&device.facts().driver_version) {
        eprintln!("skipped: the driver does not say what kernels take");
        return;
    }
    let stream = device.stream().expect("a stream");
    let extra = check("extra", &device);
    let out = put(&device, stream, &[0; 64]);
    for arguments in [&[][..], &[out.at(0)], &[Arg::U32(1), out.at(0)], &[out.at(0); 3]] {
        // SAFETY: it is refused, and nothing runs.
        let error = unsafe { device.launch(stream, extra, block(32), arguments) };
        assert!(matches!(error, Err(Error::Arguments { .. })), "{error:?}");
    }
    // SAFETY: what the kernel takes, of buffers that are long enough.
    unsafe { device.launch(stream, extra, block(32), &[Arg::U64(1 << 40), out.at(0)]) }
        .expect("a launch");
    assert_eq!(words(&device, stream, &out)[62..], [5, 1 << 8]);
}

#[test]
fn shuffles_and_products_are_those_of_the_hardware() {
    let device = under_test(4);
    let stream = device.stream().expect("a stream");
    let out = put(&device, stream, &[0; 64]);
    // SAFETY: what the kernel takes, of buffers that are long enough.
    unsafe { device.launch(stream, check("shuffles", &device), block(64), &[out.at(0)]) }
        .expect("a launch");
    let expected: Vec<u32> =
        (0..64).map(|i: u32| 3 * (i / 32 * 32 + (((i % 32) ^ 5) + 1) % 32)).collect();
    assert_eq!(words(&device, stream, &out), expected);

    let word = |i: u32| i.wrapping_mul(0x9e37_79b9) ^ (i << 3);
    let (a, b): (Vec<u32>, Vec<u32>) =
        ((0..128).map(word).collect(), (500..564).map(word).collect());
    let d: Vec<u32> = (0..128).map(|i| u32::MAX - 77 * i).collect();
    let (left, right, sums) =
        (put(&device, stream, &a), put(&device, stream, &b), put(&device, stream, &d));
    let arguments = [left.at(0), right.at(0), sums.at(0)];
    // SAFETY: what the kernel takes, of buffers that are long enough.
    unsafe { device.launch(stream, check("tile", &device), block(32), &arguments) }
        .expect("a launch");
    let byte =
        |words: &[u32], line: usize, k: usize| (words[8 * line + k / 4] >> (8 * (k % 4))) & 255;
    let expected: Vec<u32> = (0..128)
        .map(|i| {
            let products = (0..32).map(|k| byte(&a, i / 8, k) * byte(&b, i % 8, k));
            products.fold(d[i], u32::wrapping_add)
        })
        .collect();
    assert_eq!(words(&device, stream, &sums), expected);
}

#[test]
fn a_cooperative_launch_waits_for_all() {
    let device = under_test(5);
    let stream = device.stream().expect("a stream");
    let kernel = check("rounds_of_all", &device);
    // Every block that runs at once, up to what is quick to check.
    let resident = device.blocks_per_multiprocessor(kernel, 32, 0).expect("a number");
    let at_once = resident * device.facts().multiprocessors;
    let (blocks, rounds) = (at_once.min(64), 6);
    let barrier = put(&device, stream, &[0]);
    let mut expected = vec![1u32; blocks as usize];
    let mut all = expected.clone();
    for _ in 0..rounds {
        let sum = expected.iter().fold(0u32, |sum, word| sum.wrapping_add(*word));
        expected = (0..blocks).map(|block| sum.wrapping_add(block)).collect();
        all.extend(&expected);
    }
    let mut start = all.clone();
    start[blocks as usize..].fill(0);
    let sums = put(&device, stream, &start);
    let launch =
        |blocks| Launch { blocks: (blocks, 1), threads: 32, shared_bytes: 0, is_cooperative: true };
    let arguments = [barrier.at(0), sums.at(0), Arg::U32(rounds)];
    // SAFETY: what the kernel takes, of buffers that are long enough.
    unsafe { device.launch(stream, kernel, launch(blocks), &arguments) }.expect("a launch");
    assert_eq!(words(&device, stream, &sums), all);
    // SAFETY: it is refused, and nothing runs.
    let error = unsafe { device.launch(stream, kernel, launch(at_once + 1), &arguments) };
    assert!(matches!(error, Err(Error::Geometry { .. })), "{error:?}");
}

#[test]
fn streams_wait_for_events() {
    let device = under_test(6);
    let (first, second) = (device.stream().expect("one"), device.stream().expect("another"));
    let (count, rounds) = (1 << 20, 8);
    let mut pinned = alloc_pinned(&device, 4 * count).expect("memory");
    assert!(pinned.as_slice().iter().all(|byte| *byte == 0));
    let buffer = alloc(&device, pinned.bytes()).expect("memory");
    for round in 1..=rounds {
        pinned.as_mut_slice().fill(round);
        let before = device.record(first).expect("an event");
        device.copy_in(first, &buffer, 0, pinned.as_slice()).expect("in bounds");
        let copied = device.record(first).expect("an event");
        // The other stream reads what the first wrote, because it waits.
        device.wait(second, copied).expect("waits");
        let mut back = vec![0; buffer.bytes()];
        device.copy_out(second, &mut back, &buffer, 0).expect("in bounds");
        assert!(back.iter().all(|byte| *byte == round), "round {round}");
        let milliseconds = device.elapsed_ms(before, copied).expect("both came");
        assert!((0.0..60_000.0).contains(&milliseconds), "{milliseconds} ms");
    }
    let event = device.record(first).expect("an event");
    device.wait(second, event).expect("waits");
    device.forget(event);
    device.synchronize(second).expect("nothing fails");
}

#[test]
fn what_a_module_lacks_is_said() {
    let device = under_test(8);
    let error = device.kernel(&checks(), "no_such").expect_err("there is none");
    assert_eq!(error, Error::NoKernel { module: "check.cu", kernel: "no_such" });
    assert!(device.free_bytes().expect("a number") <= device.facts().memory_bytes);
    assert!(device.description().contains(&device.facts().name));
}

#[test]
fn any_thread_may_launch() {
    let device = under_test(7);
    thread::scope(|scope| {
        for start in 0..4 {
            let device = &device;
            scope.spawn(move || {
                let stream = device.stream().expect("a stream");
                let kernel = check("extra", device);
                let out = put(device, stream, &[0; 64]);
                for value in start..start + 20 {
                    let arguments = [Arg::U64(value), out.at(0)];
                    // SAFETY: what the kernel takes, of buffers that are long enough.
                    unsafe { device.launch(stream, kernel, block(32), &arguments) }
                        .expect("a launch");
                    let expected = [value as u32 + 5, 0];
                    assert_eq!(words(device, stream, &out)[..2], expected);
                }
            });
        }
    });
}

#[test]
fn closing_gives_everything_back() {
    if env::var(TEST_DEVICE_VARIABLE).is_ok_and(|device| device == "cuda") {
        let device = Cuda::open(&CudaSpec::default()).expect("a GPU");
        let stream = device.stream().expect("a stream");
        let out = put(&device, stream, &[0; 64]);
        let pinned = alloc_pinned(&device, 100).expect("memory");
        device.copy_in(stream, &out, 0, pinned.as_slice()).expect("in bounds");
        let arguments = [Arg::U64(1), out.at(0)];
        // SAFETY: what the kernel takes, of buffers that are long enough.
        unsafe { device.launch(stream, check("extra", &device), block(32), &arguments) }
            .expect("a launch");
        let (from, to) = (device.record(stream), device.record(stream));
        device.elapsed_ms(from.expect("an event"), to.expect("an event")).expect("both came");
        // Memory outlives the last that its user holds of the device.
        drop(device);
        drop((out, pinned));
        let again = Cuda::open(&CudaSpec::default()).expect("a GPU");
        let past = again.facts().memory_bytes as usize + 1;
        assert!(matches!(alloc(&again, past), Err(Error::DeviceMemory { .. })));
    }
}

/// All of the above again, through the driver's own interface: a library of that name does what a
/// driver does by the shim, and ends the program where it is used as no driver may be.
#[test]
fn a_stand_in_for_the_driver_is_used_as_the_manual_says() {
    if env::var_os(TEST_DEVICE_VARIABLE).is_some() {
        return;
    }
    if let Err(error) = Nvrtc::find(&[], Need::default()) {
        let is_needed = env::var("HUSHTABLE_NEEDS_NVRTC").is_ok_and(|value| value == "1");
        assert!(!is_needed, "{error}");
        eprintln!("skipped: {error}");
        return;
    }
    let parts = stand_in(&checks()).expect("it compiles");
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(parts.driver, folder.path().join("libcuda.so")).expect("copied");
    // The second by itself: what is left is looked for when the last of a process closes.
    let runs = [
        (vec!["device::"], "10 passed"),
        (vec!["--exact", "device::closing_gives_everything_back"], "1 passed"),
    ];
    for (arguments, expected) in runs {
        let output = Command::new(env::current_exe().expect("this program"))
            .args(arguments)
            .env(TEST_DEVICE_VARIABLE, "cuda")
            .env("LD_LIBRARY_PATH", folder.path())
            .env("XDG_CACHE_HOME", folder.path())
            .envs(parts.variables.clone())
            .output()
            .expect("a child");
        let (said, failed) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "{said}{failed}");
        assert!(said.contains(expected), "{said}");
    }
    let kept = fs::read_dir(folder.path().join("hushtable/kernels")).expect("kernels are kept");
    assert_eq!(kept.count(), 1);
}
