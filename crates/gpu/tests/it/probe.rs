//! The probes compute what they say: a probe that the compiler could cut short would measure nothing.

use hushtable_gpu::shim::under_test;
use hushtable_gpu::{Arg, Launch, ModuleSpec, alloc};

fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes(word.try_into().expect("4"))).collect()
}

fn run(name: &'static str, input: &[u8], output: usize, arguments: &[Arg]) -> Vec<u32> {
    let device = under_test(1);
    let stream = device.stream().expect("a stream");
    let spec = ModuleSpec { source: "probe.cu", defines: vec![] };
    let kernel = device.kernel(&spec, name).expect("a kernel");
    let from = alloc(&device, input.len()).expect("memory");
    device.copy_in(stream, &from, 0, input).expect("in bounds");
    let out = alloc(&device, 4 * output).expect("memory");
    device.clear(stream, &out, 0, out.bytes()).expect("in bounds");
    let addresses: Vec<Arg> = if input.is_empty() { vec![out.at(0)] } else { vec![from.at(0)] };
    let mut all = [addresses, arguments.to_vec()].concat();
    if !input.is_empty() {
        all.push(out.at(0));
    }
    let launch = Launch { blocks: (3, 1), threads: 64, shared_bytes: 0, is_cooperative: false };
    // SAFETY: what the kernel takes, of buffers that are long enough.
    unsafe { device.launch(stream, kernel, launch, &all) }.expect("a launch");
    let mut bytes = vec![0; out.bytes()];
    device.copy_out(stream, &mut bytes, &out, 0).expect("in bounds");
    words(&bytes)
}

#[test]
fn reading_sums_every_word() {
    // More than one round of four, and a rest.
    for vectors in [1usize, 191, 192, 768, 2000] {
        let input: Vec<u8> = (0..16 * vectors).map(|i| (i * 7 % 251) as u8).collect();
        let expected = words(&input).into_iter().fold(0, u32::wrapping_add);
        let sum = run("probe_read", &input, 1, &[Arg::U64(vectors as u64)]);
        assert_eq!(sum, [expected], "{vectors} vectors");
    }
}

#[test]
fn every_round_of_arithmetic_counts() {
    let rounds = 5;
    let expected: Vec<u32> = (0..192u32)
        .map(|thread| {
            let one = |start: u32| {
                (0..rounds).fold(start, |a: u32, round| {
                    (a.wrapping_add(thread | 1) ^ round).rotate_left(7)
                })
            };
            (0..8).fold(0, |sum, i| sum ^ one(thread + i))
        })
        .collect();
    assert_eq!(run("probe_alu", &[], 192, &[Arg::U32(rounds)]), expected);
}

#[test]
fn every_product_of_tiles_counts() {
    // Each round adds the same product to each sum, so that rounds are a line.
    let at = |rounds| run("probe_mma", &[], 192, &[Arg::U32(rounds)]);
    let (none, one, seven) = (at(0), at(1), at(7));
    for thread in 0..192 {
        let step = one[thread].wrapping_sub(none[thread]);
        assert_ne!(step, 0, "thread {thread}");
        let expected = none[thread].wrapping_add(step.wrapping_mul(7));
        assert_eq!(seven[thread], expected, "thread {thread}");
    }
}
