//! Times the engine:
//! `cargo run --release -p hushtable-pir --example answer_speed -- ROWS BYTES BATCH THREADS GROUPS`.
//! Groups are separated by commas, and measured in turns: `bits,z32,z8`. Processor time is that of all threads.

use std::time::Instant;

use hushtable_pir::dpf::{Domain, Group, Key, KeyPair, expand_leaves};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, TableShape};
use hushtable_prg::{Platform, Prg, PrgKind};
use rustix::time::{ClockId, clock_gettime};

/// Answers measured of each group, and whole expansions of a key.
const ROUNDS: usize = 9;
const EXPANSIONS: usize = 20;

fn main() -> Result<(), hushtable_pir::Error> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let arg = |i: usize, default| args.get(i).and_then(|arg| arg.parse().ok()).unwrap_or(default);
    let (rows, row_bytes) = (arg(0, 1u64 << 20), arg(1, 256) as usize);
    let (batch, threads) = (arg(2, 256), arg(3, 1) as usize);
    let groups: Vec<Group> = match args.get(4) {
        None => vec![Group::Bits],
        Some(names) => names.split(',').map(|name| name.parse().expect("a group")).collect(),
    };
    let shape = TableShape::new(rows, row_bytes)?;
    let table: Vec<u8> = (0..shape.table_bytes()).map(|i| ((i * 31) >> 3) as u8).collect();
    let start = Instant::now();
    let spec = EngineSpec { threads, ..EngineSpec::default() };
    let engine = CpuEngine::from_rows(shape, &table, &spec)?;
    println!("{}, loaded in {:.2?}", engine.description(), start.elapsed());
    let prg = Prg::new(PrgKind::Aes128, Platform::detect());
    let keys_of = |group: &Group| -> Result<Vec<Key>, hushtable_pir::Error> {
        let domain = Domain::new(rows, *group)?;
        let key = |i| KeyPair::generate(prg, domain, i * 977 % rows).map(|pair| pair.left);
        (0..batch).map(key).collect()
    };
    let keys: Vec<Vec<Key>> = groups.iter().map(keys_of).collect::<Result<_, _>>()?;
    for (group, keys) in groups.iter().zip(&keys) {
        for height in [6, 8, 9, 11] {
            let mut best = f64::INFINITY;
            for _ in 0..EXPANSIONS {
                let start = processor_seconds();
                expand_leaves(&keys[0], Platform::detect(), height, |_, leaves| {
                    std::hint::black_box(leaves);
                });
                best = best.min(processor_seconds() - start);
            }
            let ns = best * 1e9 / rows as f64;
            println!("{}: expansion, 2^{height} leaves at a time: {ns:.4} ns/row", group.name());
        }
    }
    let mut answers = vec![0; batch as usize * row_bytes];
    let mut times = vec![Vec::new(); groups.len()];
    let mut least = vec![f64::INFINITY; groups.len()];
    for _ in 0..ROUNDS {
        for ((keys, times), least) in keys.iter().zip(&mut times).zip(&mut least) {
            let (start, spent) = (Instant::now(), processor_seconds());
            engine.answer(keys, &mut answers)?;
            *least = least.min(processor_seconds() - spent);
            times.push(start.elapsed().as_secs_f64());
        }
    }
    let mut first = None;
    for ((group, times), least) in groups.iter().zip(&mut times).zip(least) {
        times.sort_by(f64::total_cmp);
        let (best, median) = (times[0], times[times.len() / 2]);
        let of_first = *first.get_or_insert(median) / median;
        println!(
            "{}: best {:.3} ms, median {:.3} ms: {:.0} queries/s, {of_first:.4} of {}'s; processor {:.3} ms",
            group.name(),
            best * 1e3,
            median * 1e3,
            batch as f64 / median,
            groups[0].name(),
            least * 1e3,
        );
    }
    Ok(())
}

/// What this process has had of processors: what other processes take does not count.
fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}
