//! `vectors/linear.json`: keys, uploads and answers of linear layers under homomorphic encryption.
//!
//! `HUSHTABLE_WRITE_VECTORS=1` writes the file instead, from what is computed here.

use std::sync::Arc;

use hushtable_infer::Platform;
use hushtable_infer::hybrid::linear::{Layers, LinearClient, LinearServer, Prepared, ROWS};
use hushtable_infer::hybrid::program::{Convolution, Shape};
use serde::{Deserialize, Serialize};

#[derive(Deserialize, Serialize)]
struct File {
    format: u32,
    /// How the numbers of all vectors are made.
    numbers: String,
    vectors: Vec<Vector>,
}

#[derive(Deserialize, Serialize, Debug, PartialEq)]
struct Vector {
    lattice: String,
    bits: u32,
    convolution: Convolution,
    /// Each of 32 times this byte.
    client_seed: u8,
    server_seed: u8,
    /// BLAKE3 of the bytes.
    public_key: String,
    uploads: Vec<String>,
    /// Where uploads are proven: the seeds, what is committed to, and the rows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    proof: Vec<String>,
    units: Vec<String>,
    /// W · r − s: its first numbers, and BLAKE3 of all as little-endian u64.
    first: Vec<u64>,
    product: String,
}

const NUMBERS: &str = "weight i is (31 i^2 + 7 i) mod 1023 - 511; r_i is (i + 1) * 0x9e3779b97f4a7c15 and s_i \
                       (i + 1) * 0xd1342543de82ef95, modulo 2^bits";

fn compute(lattice: &str, bits: u32, convolution: Convolution, platform: Platform) -> Vector {
    let layers = Arc::new(Layers::new(lattice, bits, &[convolution], platform).unwrap());
    let weight = |i: usize| ((31 * i * i + 7 * i) % 1023) as i32 - 511;
    let weights: Vec<_> = (0..convolution.weights()).map(weight).collect();
    let numbers = |count: usize, factor: u64| -> Vec<u64> {
        (1..=count as u64).map(|i| i.wrapping_mul(factor) & (u64::MAX >> (64 - bits))).collect()
    };
    let masks = numbers(convolution.input.count(), 0x9e37_79b9_7f4a_7c15);
    let shares = numbers(convolution.output().count(), 0xd134_2543_de82_ef95);
    let (client_seed, server_seed) = (3, 5);
    let client = LinearClient::new(Arc::clone(&layers), &[client_seed; 32]).unwrap();
    let key = client.public_key();
    let prepared = Arc::new(Prepared::new(Arc::clone(&layers), &[weights]).unwrap());
    let server =
        LinearServer::new(Arc::clone(&layers), prepared, &[server_seed; 32], &key).unwrap();
    let digest = |bytes: &[u8]| blake3::hash(bytes).to_hex().to_string();
    let upload = |chunk| {
        let bytes = client.upload(0, chunk, &masks).unwrap();
        server.accept(0, chunk, &bytes).unwrap();
        digest(&bytes)
    };
    let uploads = (0..layers.uploads(0)).map(upload).collect();
    let mut proof = Vec::new();
    for batch in 0..layers.batches().len() {
        let seed = server.proof_seed(batch).unwrap();
        let commitment = client.commit(batch, &seed, |_| Ok(Arc::new(masks.clone()))).unwrap();
        let challenge = server.commit(batch, &commitment).unwrap();
        proof.extend([&seed[..], &commitment, &challenge].map(digest));
        for row in 0..ROWS {
            let bytes = client.prove(batch, &challenge, row).unwrap();
            server.verify(batch, row, &bytes).unwrap();
            proof.push(digest(&bytes));
        }
    }
    let mut product = vec![0; shares.len()];
    let mut unit = |unit| {
        let bytes = server.answer(0, unit, &shares).unwrap();
        client.open(0, unit, &bytes, &mut product).unwrap();
        digest(&bytes)
    };
    let units = (0..layers.units(0)).map(&mut unit).collect();
    let bytes: Vec<u8> = product.iter().flat_map(|value| value.to_le_bytes()).collect();
    Vector {
        lattice: lattice.to_owned(),
        bits,
        convolution,
        client_seed,
        server_seed,
        public_key: digest(&key),
        uploads,
        proof,
        units,
        first: product[..4].to_vec(),
        product: digest(&bytes),
    }
}

fn cases() -> Vec<(&'static str, u32, Convolution)> {
    let of = |[channels, height, width]: [usize; 3], outputs, kernel, stride, pad| Convolution {
        input: Shape { channels, height, width },
        outputs,
        kernel,
        stride,
        pad,
    };
    vec![
        ("linear_4096", 37, of([16, 32, 32], 16, [3, 3], [1, 1], [1; 4])),
        ("linear_4096", 32, of([5, 9, 11], 7, [3, 2], [2, 3], [0, 1, 2, 0])),
        ("linear_4096", 40, of([64, 1, 1], 10, [1, 1], [1, 1], [0; 4])),
        ("linear_8192", 41, of([3, 64, 64], 8, [3, 3], [2, 2], [1, 1, 0, 0])),
        ("linear_8192", 64, of([12, 8, 8], 20, [5, 5], [1, 1], [2; 4])),
        ("linear_8192_verified", 37, of([8, 32, 32], 8, [3, 3], [1, 1], [1; 4])),
        ("linear_8192_4_verified", 60, of([5, 9, 11], 7, [3, 2], [2, 3], [0, 1, 2, 0])),
    ]
}

#[test]
fn layers_agree_with_the_vectors_on_every_platform() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../vectors/linear.json");
    if std::env::var_os("HUSHTABLE_WRITE_VECTORS").is_some() {
        let of =
            |(lattice, bits, convolution)| compute(lattice, bits, convolution, Platform::detect());
        let vectors = cases().into_iter().map(of).collect();
        let file = File { format: 1, numbers: NUMBERS.to_owned(), vectors };
        let text = serde_json::to_string_pretty(&file).unwrap();
        std::fs::write(path, text + "\n").unwrap();
    }
    let text = std::fs::read_to_string(path).unwrap();
    let file: File = serde_json::from_str(&text).unwrap();
    assert_eq!((file.format, file.numbers.as_str()), (1, NUMBERS));
    assert_eq!(file.vectors.len(), cases().len());
    for platform in Platform::available() {
        for vector in &file.vectors {
            let found = compute(&vector.lattice, vector.bits, vector.convolution, platform);
            assert_eq!(found, *vector, "{platform:?}");
        }
    }
}
