//! What a pass over a model's tables takes, beside its floor.
//!
//! `cargo run --release -p hushtable-pir --example model_speed -- SCALE ROW_BYTES THREADS BATCH…`:
//! the tables are Criteo's (Kaggle), their rows divided by SCALE, one key an inference for each.

use std::sync::Arc;
use std::time::Instant;

use hushtable_pir::dpf::{self, Domain, Group, KeyPair, Side};
use hushtable_pir::model::{Feature, Inference, Server};
use hushtable_pir::{CpuEngine, EngineSpec, Platform, Prg, PrgKind, TableShape, Threads, floor};
use hushtable_table::Version;

const CRITEO_ROWS: [u64; 26] = [
    9_999_999, 29_427, 15_127, 7_295, 19_901, 3, 6_465, 1_310, 61, 9_999_999, 622_921, 219_556, 10,
    2_209, 9_779, 71, 4, 963, 14, 9_999_999, 4_384_510, 9_999_999, 290_588, 10_829, 95, 34,
];

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<usize> =
        std::env::args().skip(1).map(|arg| arg.parse()).collect::<Result<_, _>>()?;
    let [scale, row_bytes, threads, batches @ ..] = numbers.as_slice() else {
        return Err("usage: model_speed SCALE ROW_BYTES THREADS BATCH…".into());
    };
    let threads = Threads::new(*threads)?;
    let version = Version::from([0; 32]);
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let spec = EngineSpec { shared: Some(threads.clone()), ..EngineSpec::default() };
    let mut features = Vec::new();
    let mut domains = Vec::new();
    for rows in CRITEO_ROWS {
        let shape = TableShape::new((rows / *scale as u64).max(1), *row_bytes)?;
        let table: Vec<u8> = (0..shape.table_bytes()).map(|i| ((i * 31) >> 3) as u8).collect();
        let engine = CpuEngine::from_rows(shape, &table, &spec)?;
        let server = dpf::Server::new(Side::Left, version, Arc::new(engine));
        features.push(Feature::Rows { server, keys: 1 });
        domains.push(Domain::new(shape.rows(), Group::Bits)?);
    }
    let server = Server::new(version, features, threads.clone());
    println!("{} threads, {:.1} MB read a pass", threads.count(), server.read_bytes() as f64 / 1e6);
    for &batch in batches {
        let inferences: Vec<Inference> = (0..batch)
            .map(|i| {
                let key = |&domain: &Domain| {
                    let pair = KeyPair::generate(prg, domain, i as u64 * 977 % domain.rows())?;
                    Ok(pair.left.to_bytes())
                };
                let parts =
                    domains.iter().map(key).collect::<Result<Vec<_>, hushtable_pir::Error>>()?;
                Ok(server.accept(parts)?)
            })
            .collect::<Result<_, Box<dyn std::error::Error>>>()?;
        let mut answers = vec![0; batch * server.answer_bytes()];
        let mut best = f64::MAX;
        for _ in 0..9 {
            let started = Instant::now();
            server.answer(&inferences, &mut answers)?;
            best = best.min(started.elapsed().as_secs_f64());
        }
        // One instruction multiplies 64 stored bytes (8 rows × 8 bytes) with 8 inferences' bits.
        let affine_ns = floor::affine_ns().unwrap_or(f64::NAN);
        let gb_per_s = floor::read_gb_per_s(server.read_bytes() as usize, threads.count());
        let memory = server.read_bytes() as f64 / (gb_per_s * 1e9);
        let product = (server.product_bytes() as usize * batch) as f64 / 512.0 * affine_ns * 1e-9
            / threads.count() as f64;
        let floor = if batch == 1 { memory } else { memory.max(product) };
        println!(
            "batch {batch:4}: {:8.3} ms, {:7.0} inferences/s; floor {:8.3} ms: {:.2} of it",
            best * 1e3,
            batch as f64 / best,
            floor * 1e3,
            floor / best,
        );
    }
    Ok(())
}
