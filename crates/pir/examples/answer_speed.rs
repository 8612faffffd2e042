//! Times the engine: `cargo run --release -p hushtable-pir --example answer_speed -- ROWS BYTES BATCH THREADS`.

use std::time::Instant;

use hushtable_pir::dpf::{Domain, Group, Key, KeyPair, expand_leaves};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, TableShape};
use hushtable_prg::{Platform, Prg, PrgKind};

fn main() -> Result<(), hushtable_pir::Error> {
    let args: Vec<u64> = std::env::args().skip(1).filter_map(|arg| arg.parse().ok()).collect();
    let arg = |i: usize, default| args.get(i).copied().unwrap_or(default);
    let (rows, row_bytes) = (arg(0, 1 << 20), arg(1, 256) as usize);
    let (batch, threads) = (arg(2, 256), arg(3, 1) as usize);
    let shape = TableShape::new(rows, row_bytes)?;
    let table: Vec<u8> = (0..shape.table_bytes()).map(|i| ((i * 31) >> 3) as u8).collect();
    let start = Instant::now();
    let spec = EngineSpec { threads, ..EngineSpec::default() };
    let engine = CpuEngine::from_rows(shape, &table, &spec)?;
    println!("{}, loaded in {:.2?}", engine.description(), start.elapsed());
    let domain = Domain::new(rows, Group::Bits)?;
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let keys: Vec<Key> = (0..batch)
        .map(|i| KeyPair::generate(prg, domain, i * 977 % rows).map(|pair| pair.left))
        .collect::<Result<_, _>>()?;
    for height in [6, 8, 9, 11] {
        let mut best = f64::INFINITY;
        for _ in 0..100 {
            let start = Instant::now();
            expand_leaves(&keys[0], Platform::detect(), height, |_, leaves| {
                std::hint::black_box(leaves);
            });
            best = best.min(start.elapsed().as_secs_f64());
        }
        println!("expansion, 2^{height} leaves at a time: {:.4} ns/row", best * 1e9 / rows as f64);
    }
    let mut answers = vec![0; keys.len() * row_bytes];
    let mut times: Vec<f64> = (0..9)
        .map(|_| {
            let start = Instant::now();
            engine.answer(&keys, &mut answers).map(|()| start.elapsed().as_secs_f64())
        })
        .collect::<Result<_, _>>()?;
    times.sort_by(f64::total_cmp);
    let (best, median) = (times[0], times[times.len() / 2]);
    println!(
        "best {:.3} ms, median {:.3} ms: {:.0} queries/s",
        best * 1e3,
        median * 1e3,
        batch as f64 / median
    );
    Ok(())
}
