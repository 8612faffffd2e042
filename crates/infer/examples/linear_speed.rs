//! Seconds and bytes of the linear layers of networks, on one thread, one JSON line each.
//!
//! Run pinned: `taskset -c 0 cargo run --release -p hushtable-infer --example linear_speed [NETWORK]
//! [LATTICE] [layers]`. Random weights of 12 fraction bits. `floor` is what the products and transforms alone
//! take, from the same kernels timed in this run. Parts are pairs: by the clock, and of the processor.

use std::error::Error;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::linear::{
    Layers, LinearClient, LinearServer, Prepared, ROWS, choose, convolve_modulo,
};
use hushtable_infer::hybrid::program::{Convolution, Shape};
use hushtable_rlwe::ring::{Buffer, NoiseSource, Ring};
use serde_json::json;

const BITS: u32 = 37;

fn main() -> Result<(), Box<dyn Error>> {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let only = arguments.first().filter(|only| *only != "all");
    let lattice = arguments.get(1);
    let detailed = arguments.get(2).is_some();
    for (name, size, convolutions) in [
        ("resnet32", 32, resnet32(32, 100)),
        ("resnet32", 64, resnet32(64, 200)),
        ("resnet18", 32, resnet18(32, 100)),
        ("resnet18", 64, resnet18(64, 200)),
        ("vgg16", 32, vgg16(32, 100)),
        ("vgg16", 64, vgg16(64, 200)),
    ] {
        if only.is_none_or(|only| *only == format!("{name}_{size}")) {
            measure(name, size, &convolutions, lattice.map(String::as_str), detailed)?;
        }
    }
    Ok(())
}

fn measure(
    name: &str,
    size: usize,
    convolutions: &[Convolution],
    lattice: Option<&str>,
    detailed: bool,
) -> Result<(), Box<dyn Error>> {
    let platform = Platform::detect();
    let mut source = NoiseSource::from_seed(&[7; 32]);
    let weights: Vec<Vec<i32>> = convolutions.iter().map(|own| random(own, &mut source)).collect();
    let start = Instant::now();
    let pairs: Vec<_> =
        convolutions.iter().copied().zip(weights.iter().map(Vec::as_slice)).collect();
    let lattice = match lattice {
        Some(lattice) => lattice,
        None => choose(BITS, &pairs, false, platform)?,
    };
    let layers = Arc::new(Layers::new(lattice, BITS, convolutions, platform)?);
    let prepared = Arc::new(Prepared::new(Arc::clone(&layers), &weights)?);
    let plan = start.elapsed().as_secs_f64();
    let client = LinearClient::new(Arc::clone(&layers), &[1; 32])?;
    let server = LinearServer::new(Arc::clone(&layers), prepared, &[2; 32], &client.public_key())?;
    let kernels = kernels(layers.parameters().ring());
    let (mut all, mut up, mut down) = ([[0.0; 2]; 5], layers.public_key_bytes(), 0);
    let mut floor = 0.0;
    let mut counts = [0; 4];
    let mask = u64::MAX >> (64 - BITS);
    let draw = |convolution: &Convolution| {
        let mut input = vec![0; convolution.input.count()];
        source.words(&mut input);
        input.iter_mut().for_each(|value| *value &= mask);
        Arc::new(input)
    };
    let inputs: Vec<_> = convolutions.iter().map(draw).collect();
    // Of both parties, where uploads are proven: they are all there first.
    let (mut prove, mut verify, mut proof_bytes) = ([0.0; 2], [0.0; 2], 0);
    let mut uploaded = vec![[[0.0; 2]; 5]; convolutions.len()];
    for (batch, own) in layers.batches().iter().enumerate() {
        for index in own.clone() {
            for chunk in 0..layers.uploads(index) {
                let seconds = &mut uploaded[index];
                let upload = || client.upload(index, chunk, &inputs[index]);
                let bytes = timed(&mut seconds[0], upload)?;
                up += bytes.len();
                timed(&mut seconds[1], || server.accept(index, chunk, &bytes))?;
            }
        }
        let seed = timed(&mut verify, || server.proof_seed(batch))?;
        let tensor = |index: usize| Ok(Arc::clone(&inputs[index]));
        let commitment = timed(&mut prove, || client.commit(batch, &seed, tensor))?;
        proof_bytes += commitment.len();
        let seed = timed(&mut verify, || server.commit(batch, &commitment))?;
        for row in 0..ROWS {
            let bytes = timed(&mut prove, || client.prove(batch, &seed, row))?;
            proof_bytes += bytes.len();
            timed(&mut verify, || server.verify(batch, row, &bytes))?;
        }
    }
    for (index, convolution) in convolutions.iter().enumerate() {
        let mut seconds = uploaded[index];
        let input = &inputs[index];
        let mut out = vec![0; convolution.output().count()];
        let share = out.clone();
        let [own_up, own_down] = [up, down];
        let is_uploaded = !layers.batches().is_empty();
        for chunk in 0..if is_uploaded { 0 } else { layers.uploads(index) } {
            let bytes = timed(&mut seconds[0], || client.upload(index, chunk, input))?;
            up += bytes.len();
            timed(&mut seconds[1], || server.accept(index, chunk, &bytes))?;
        }
        for unit in 0..layers.units(index) {
            let bytes = timed(&mut seconds[2], || server.answer(index, unit, &share))?;
            down += bytes.len();
            timed(&mut seconds[3], || client.open(index, unit, &bytes, &mut out))?;
        }
        server.forget(index);
        let mut clear = share.clone();
        timed(&mut seconds[4], || {
            convolve_modulo(platform, BITS, convolution, &weights[index], input, &mut clear)
        });
        assert!(clear.iter().zip(&out).all(|(clear, out)| clear & mask == *out), "layer {index}");
        let work = layers.work(index);
        floor += work.products as f64 * kernels[0] + work.transforms as f64 * kernels[1];
        for (all, own) in
            counts.iter_mut().zip([work.uploads, work.answers, work.products, work.transforms])
        {
            *all += own;
        }
        for (all, own) in all.iter_mut().flatten().zip(seconds.into_iter().flatten()) {
            *all += own;
        }
        if detailed {
            println!(
                "{index:3} {:?} {seconds:.4?} up {} down {} {work:?}",
                (convolution.input, convolution.outputs, convolution.kernel, convolution.stride),
                up - own_up,
                down - own_down,
            );
        }
    }
    let [encrypted, processor] =
        [0, 1].map(|clock| all[..4].iter().map(|own| own[clock]).sum::<f64>());
    println!(
        "{}",
        json!({
            "bench": "linear",
            "params": { "network": name, "size": size, "lattice": lattice, "bits": BITS },
            "value": encrypted,
            "unit": "s",
            "floor": floor,
            "of_floor": floor / encrypted,
            "threads": 1,
            "isa": layers.parameters().ring().kernel().isa(),
            "detail": {
                "processor_s": processor, "plan_s": plan,
                "prove_s": prove, "verify_s": verify, "proof_bytes": proof_bytes,
                "encrypt_s": all[0], "accept_s": all[1], "evaluate_s": all[2], "decrypt_s": all[3],
                "clear_s": all[4], "up_bytes": up, "down_bytes": down,
                "uploads": counts[0], "answers": counts[1], "products": counts[2],
                "transforms": counts[3],
            },
        })
    );
    Ok(())
}

/// Wall-clock seconds and processor seconds: the second tell more where others run beside.
fn timed<T>(seconds: &mut [f64; 2], call: impl FnOnce() -> T) -> T {
    let start = (Instant::now(), processor_seconds());
    let out = call();
    seconds[0] += start.0.elapsed().as_secs_f64();
    seconds[1] += processor_seconds() - start.1;
    out
}

/// What this thread has run, by the scheduler's ticks; 0 where nothing says.
fn processor_seconds() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    let nanoseconds = text.split_whitespace().next().and_then(|number| number.parse().ok());
    nanoseconds.map_or(0.0, |number: f64| number / 1e9)
}

/// Seconds of a product with a ciphertext and of a transform, both of all limbs, from the first-level
/// cache.
fn kernels(ring: &Ring) -> [f64; 2] {
    let kernel = ring.kernel();
    let (modulus, length) = (ring.modulus(0), 512);
    let rows: Vec<_> = (0..32).map(|_| Buffer::zeroed(length)).collect();
    let rows: Vec<&[u64]> = rows.iter().map(|row| &row[..]).collect();
    let mut out = Buffer::zeroed(length);
    let products = best(|| kernel.inner_product(modulus, &rows[..16], &rows[16..], &mut out));
    let mut values = Buffer::zeroed(ring.degree());
    let transform = best(|| kernel.forward(ring.table(0), black_box(&mut values)));
    let blocks = (2 * ring.limbs() * ring.degree()) as f64 / (16 * length) as f64;
    [products * blocks, transform * ring.limbs() as f64]
}

fn best(mut call: impl FnMut()) -> f64 {
    let run = |call: &mut dyn FnMut()| {
        let start = Instant::now();
        (0..100).for_each(|_| call());
        start.elapsed().as_secs_f64() / 100.0
    };
    (0..30).map(|_| run(&mut call)).fold(f64::INFINITY, f64::min)
}

/// He's initialisation, of 12 fraction bits.
fn random(convolution: &Convolution, source: &mut NoiseSource) -> Vec<i32> {
    let inputs = convolution.weights() / convolution.outputs;
    let deviation = (2.0 / inputs as f64).sqrt() * 4096.0;
    let mut words = vec![0; convolution.weights()];
    source.words(&mut words);
    let of = |word: u64| {
        // Four uniform numbers: nearly a Gaussian of deviation 2 / √12.
        let sum: u64 = (0..4).map(|part| word >> (16 * part) & 0xffff).sum();
        let unit = (sum as f64 / 65536.0 - 2.0) / (4.0f64 / 12.0).sqrt();
        (unit * deviation).round() as i32
    };
    words.into_iter().map(of).collect()
}

fn square(
    channels: usize,
    size: usize,
    outputs: usize,
    kernel: usize,
    stride: usize,
) -> Convolution {
    let input = Shape { channels, height: size, width: size };
    let before = (kernel - 1) / 2;
    // Strides see an even image: only what is read is padded.
    let after =
        if stride == 1 { before } else { before.min(kernel.saturating_sub(stride + before)) };
    let pad = [before, before, after, after];
    Convolution { input, outputs, kernel: [kernel; 2], stride: [stride; 2], pad }
}

/// Basic blocks: a stage's channels, its first stride, its blocks.
fn residual(
    size: usize,
    classes: usize,
    stages: &[(usize, usize)],
    blocks: usize,
) -> Vec<Convolution> {
    let (mut size, mut channels) = (size, stages[0].0);
    let mut all = vec![square(3, size, channels, 3, 1)];
    for &(outputs, stride) in stages {
        for block in 0..blocks {
            let stride = if block == 0 { stride } else { 1 };
            all.push(square(channels, size, outputs, 3, stride));
            if stride > 1 {
                all.push(square(channels, size, outputs, 1, stride));
            }
            (size, channels) = (size / stride, outputs);
            all.push(square(channels, size, outputs, 3, 1));
        }
    }
    all.push(square(channels, 1, classes, 1, 1));
    all
}

fn resnet32(size: usize, classes: usize) -> Vec<Convolution> {
    residual(size, classes, &[(16, 1), (32, 2), (64, 2)], 5)
}

fn resnet18(size: usize, classes: usize) -> Vec<Convolution> {
    residual(size, classes, &[(64, 1), (128, 2), (256, 2), (512, 2)], 2)
}

fn vgg16(size: usize, classes: usize) -> Vec<Convolution> {
    let (mut size, mut channels) = (size, 3);
    let mut all = Vec::new();
    for (outputs, count) in [(64, 2), (128, 2), (256, 3), (512, 3), (512, 3)] {
        for _ in 0..count {
            all.push(square(channels, size, outputs, 3, 1));
            channels = outputs;
        }
        size /= 2;
    }
    for outputs in [4096, 4096, classes] {
        all.push(square(channels * size * size, 1, outputs, 1, 1));
        (channels, size) = (outputs, 1);
    }
    all
}
