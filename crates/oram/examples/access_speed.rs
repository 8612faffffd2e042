//! Time of an access to an oblivious memory of 64-byte blocks in DRAM together with its position map, and of the
//! map alone, as one JSON line: `cargo run --release --example access_speed [BLOCKS [CALLS]]`. One thread; the processor's time
//! where the kernel tells it (so that other processes do not count), else the clock's.
use std::time::Instant;

use hushtable_oram::memory::MemoryOram;
use hushtable_oram::position::PositionMap;
use hushtable_oram::seal::Key;

/// Seconds that this thread has run, or since `start` if the kernel does not say.
fn seconds(start: Instant) -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok())
        .map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

/// Numbers that look random: the speed does not depend on them.
fn spread(i: u32) -> u32 {
    i.wrapping_mul(0x9e37_79b9).rotate_left(15).wrapping_mul(0x85eb_ca6b)
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args().skip(1);
    let blocks: usize = args.next().map_or(Ok(1 << 20), |arg| arg.parse())?;
    let calls: u32 = args.next().map_or(Ok(100_000), |arg| arg.parse())?;
    let key = Key::random()?;
    let clock = Instant::now();

    let start = seconds(clock);
    let mut memory = MemoryOram::new(blocks, 64, &key)?;
    let leaves = memory.leaves();
    let positions: Vec<u32> = (0..blocks as u32).map(|i| spread(i) & (leaves - 1)).collect();
    for (id, &leaf) in (0..).zip(&positions) {
        memory.insert(id, leaf, &[id as u8; 64])?;
    }
    let mut map = PositionMap::build(&positions, leaves, &key)?;
    drop(positions);
    let build = seconds(clock) - start;

    let mut seen = 0u64;
    let start = seconds(clock);
    for i in 0..calls {
        let id = ((u64::from(spread(i)) * blocks as u64) >> 32) as u32;
        let fresh = spread(!i) & (leaves - 1);
        let old = map.exchange(id, fresh)?;
        let first = memory.access(id, old, fresh, |payload| {
            let first = payload[0];
            payload[1] ^= 1;
            first
        })?;
        assert_eq!(first, id as u8, "a block was lost");
        seen += u64::from(first);
    }
    let us = (seconds(clock) - start) * 1e6 / f64::from(calls);
    std::hint::black_box(seen);

    let start = seconds(clock);
    for i in 0..calls / 4 {
        let id = ((u64::from(spread(i ^ 77)) * blocks as u64) >> 32) as u32;
        // Its block moves nowhere: what the map says afterwards is not used.
        map.exchange(id, spread(!i) & (leaves - 1))?;
    }
    let map_us = (seconds(clock) - start) * 1e6 / f64::from(calls / 4);
    println!(
        r#"{{"bench":"oblivious memory","params":{{"blocks":{blocks},"payload_bytes":64,"levels_of_map":{},"shape":"{:?}"}},"value":{us:.3},"unit":"us/access","map_us":{map_us:.3},"build_s":{build:.2},"bytes":{},"threads":1}}"#,
        map.depth(),
        memory.shape(),
        memory.memory_bytes() + map.memory_bytes(),
    );
    Ok(())
}
