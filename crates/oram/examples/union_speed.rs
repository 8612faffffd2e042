//! Milliseconds of the union of a round's requests, one JSON line a size.
//!
//! Run with `cargo run --release -p hushtable-oram --example union_speed [REQUESTS...]` (16384,
//! 100000 and 1000000 unless given). `ms` is the union with its rows' list and every slot's rank;
//! `keep_ms` is the choice of half as many rows at random, done instead of that list and ranks.
//! `scan_ms` is the paper's scan of one chunk of 16,384. Each is the best of some runs.

use hushtable_oram::union::{Loss, Union, scan};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha20Rng;
use serde_json::json;
use std::error::Error;
use std::hint::black_box;
use std::time::Instant;

fn main() -> Result<(), Box<dyn Error>> {
    let mut sizes: Vec<usize> =
        std::env::args().skip(1).map(|text| text.parse()).collect::<Result<_, _>>()?;
    if sizes.is_empty() {
        sizes = vec![16_384, 100_000, 1_000_000];
    }
    for requests in sizes {
        let mut random = ChaCha20Rng::seed_from_u64(1);
        let ids: Vec<u32> = (0..requests).map(|_| random.next_u32() % 10_000_000).collect();
        let runs_count = (1_000_000 / requests.max(1)).clamp(3, 30);
        let ms = best(runs_count, || {
            black_box(Union::new(&ids)?.all());
            Ok(())
        })?;
        let union = Union::new(&ids)?;
        let keep_ms = best(runs_count, || {
            black_box(union.keep(requests.div_ceil(2), Loss::Random, &mut random)?);
            Ok(())
        })?;
        let scan_ms = (requests == scan::CHUNK_LEN)
            .then(|| {
                best(3, || {
                    black_box(scan::scan(&ids));
                    Ok(())
                })
            })
            .transpose()?;
        let line = json!({
            "bench": "union",
            "params": {"requests": requests},
            "value": ms,
            "unit": "ms",
            "keep_ms": keep_ms,
            "scan_ms": scan_ms,
            "scan_over_union": scan_ms.map(|scan_ms| scan_ms / ms),
            "threads": if requests < 1 << 16 { 1 } else { rayon::current_num_threads() },
            "isa": "portable",
        });
        println!("{line}");
    }
    Ok(())
}

/// The least milliseconds of some runs.
fn best(
    runs_count: usize,
    mut run: impl FnMut() -> Result<(), Box<dyn Error>>,
) -> Result<f64, Box<dyn Error>> {
    let mut best = f64::INFINITY;
    for _ in 0..runs_count {
        let start = Instant::now();
        run()?;
        best = best.min(start.elapsed().as_secs_f64() * 1e3);
    }
    Ok(best)
}
