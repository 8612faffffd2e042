//! What a pass over a layout's bins takes, beside its parts' floors.
//!
//! `cargo run --release -p hushtable-pir --example batch_speed -- ROWS ROW_BYTES BINS QUERIES [BATCH…]`

use std::time::Instant;

use hushtable_pir::batch::{BatchBackend, BatchEngine, BatchKeys, Client, Geometry};
use hushtable_pir::dpf::Side;
use hushtable_pir::{EngineSpec, PrgKind, floor};
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec, Plan};
use hushtable_table::{DType, Shape, Version};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let numbers: Vec<u64> =
        std::env::args().skip(1).map(|arg| arg.parse()).collect::<Result<_, _>>()?;
    let [rows, row_bytes, bins, queries, batches @ ..] = numbers.as_slice() else {
        return Err("usage: batch_speed ROWS ROW_BYTES BINS QUERIES [BATCH…]".into());
    };
    let full = PartSpec {
        rows: *rows,
        bins: *bins as u32,
        queries: *queries as u32,
        hashes: 1,
        companions: 0,
    };
    let spec = LayoutSpec {
        hot: None,
        full: Some(full),
        ids_max: 64,
        drop: DropRule::Earliest,
        seed: [0; 32],
    };
    let shape = Shape::new(*rows, *row_bytes as usize / 4, DType::F32)?;
    let layout = Layout::new(spec, LayoutMap::default(), shape, Version::from([0; 32]))?;
    let geometry = Geometry::new(&layout);
    let costs = geometry.costs(&layout);
    println!("{costs:?}");
    let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
    let engine = BatchEngine::new(&layout, &spec, |id, row| {
        row.fill(id as u8);
        Ok(())
    })?;
    let client = Client::new(geometry.clone(), PrgKind::Aes128);
    let affine_ns = floor::affine_ns().unwrap_or(f64::NAN);
    for &batch in batches {
        for side in Side::BOTH {
            let requests: Vec<BatchKeys> = (0..batch)
                .map(|_| {
                    let (request, _) = client.query(&Plan::empty(geometry.keys()))?;
                    let bytes = match side {
                        Side::Left => request.left.clone(),
                        Side::Right => request.right.clone(),
                    };
                    BatchKeys::parse(&geometry, side, bytes)
                })
                .collect::<Result<_, _>>()?;
            let mut answers = vec![0; requests.len() * geometry.answer_bytes()];
            let mut best = f64::MAX;
            for _ in 0..20 {
                let started = Instant::now();
                engine.answer(&requests, &mut answers)?;
                best = best.min(started.elapsed().as_secs_f64());
            }
            // One instruction multiplies 64 stored bytes (8 rows × 8 bytes) with 8 queries' bits.
            let product = costs.product_bytes as f64 * batch as f64 / 512.0 * affine_ns * 1e-9;
            println!(
                "batch {batch:4} {side:5}: {:8.1} us an inference, product's floor {:6.1} us",
                best * 1e6 / batch as f64,
                product * 1e6 / batch as f64,
            );
        }
    }
    Ok(())
}
