//! Times of the memories in DRAM, one JSON line each: `cargo run --release --example memory_speed [ENTRIES]`.
//! One thread; figures are means over the calls, of the processor's
//! time where the kernel tells it (so that other processes do not count), else of the clock's.
use std::time::Instant;

use hushtable_oram::buffer::BufferOram;
use hushtable_oram::memory::{MemoryOram, Shape};
use hushtable_oram::position::PositionMap;
use hushtable_oram::seal::Key;
use hushtable_oram::shape::Shape as Nodes;
use hushtable_oram::vtree::Vtree;

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn report(bench: &str, params: &str, value: f64, unit: &str) {
    println!(
        r#"{{"bench":"{bench}","params":"{params}","value":{value:.4},"unit":"{unit}","threads":1}}"#
    );
}

/// Seconds that this thread has run, or since `start` if the kernel does not say.
fn seconds(start: Instant) -> f64 {
    std::fs::read_to_string("/proc/thread-self/schedstat")
        .ok()
        .and_then(|text| text.split_whitespace().next()?.parse::<f64>().ok())
        .map_or_else(|| start.elapsed().as_secs_f64(), |ns| ns / 1e9)
}

/// Mean microseconds of a call.
fn time(
    calls: u32,
    mut call: impl FnMut(u32) -> Outcome,
) -> Result<f64, Box<dyn std::error::Error>> {
    let clock = Instant::now();
    let start = seconds(clock);
    for i in 0..calls {
        call(i)?;
    }
    Ok((seconds(clock) - start) * 1e6 / f64::from(calls))
}

/// Numbers that look random: the speed does not depend on them.
fn spread(i: u32) -> u32 {
    i.wrapping_mul(0x9e37_79b9).rotate_left(15).wrapping_mul(0x85eb_ca6b)
}

fn main() -> Outcome {
    let entries: usize = std::env::args().nth(1).map_or(Ok(10_000_000), |arg| arg.parse())?;
    let key = Key::random()?;
    let clock = Instant::now();

    for bytes in [512, 4096] {
        let mut text = vec![0; bytes];
        let mut tag = [0; 16];
        let us = time(400_000, |i| {
            let mut nonce = [0; 32];
            nonce[..4].copy_from_slice(&i.to_le_bytes());
            tag = key.seal_in_place(&nonce, b"", &mut text);
            Ok(())
        })?;
        report("seal", &format!("{bytes} bytes"), us, "us");
        let sealed = text.clone();
        let mut nonce = [0; 32];
        nonce[..4].copy_from_slice(&399_999u32.to_le_bytes());
        let us = time(400_000, |_| {
            text.copy_from_slice(&sealed);
            Ok(key.open_in_place(&nonce, b"", &mut text, &tag)?)
        })?;
        report("open", &format!("{bytes} bytes"), us, "us");
    }

    let mut vtree = Vtree::build(Nodes::binary(18), 1, &key, |_, _, _| ())?;
    let us = time(100_000, |i| {
        vtree.update_path((spread(i) >> 15).into(), |path| path[3] ^= 1)?;
        Ok(())
    })?;
    report("vtree update_path", "18 levels", us, "us");

    if std::env::var_os("SHAPES").is_some() {
        for (slots, period) in
            [(6, 5), (8, 8), (10, 11), (12, 13), (14, 16), (16, 20), (20, 25), (24, 32)]
        {
            for payload in [64, 128] {
                let capacity = entries / (payload / 4);
                let shape = Shape::of(capacity, payload, slots, period)?;
                let mut memory = MemoryOram::with_shape(shape, &key)?;
                let leaves = memory.leaves();
                let us = time(20_000, |i| {
                    let leaf = spread(i) & (leaves - 1);
                    memory.access(i % 1000, leaf, spread(!i), |payload| payload[0] ^= 1)?;
                    Ok(())
                })?;
                let at = format!("Z={slots} A={period} payload={payload} {shape:?}");
                report("access", &at, us, "us");
            }
        }
    }

    let positions: Vec<u32> = (0..entries as u32).map(|i| spread(i) >> 15).collect();
    for (pack_bits, scanned) in [(4, 4_000), (4, 40_000), (5, 10_000), (6, 4_000)] {
        let start = seconds(clock);
        let mut map = PositionMap::build_packed(&positions, 1 << 17, &key, pack_bits, scanned)?;
        let params = format!("{entries} entries, {} a block, {scanned} scanned", 1 << pack_bits);
        report("position build", &params, seconds(clock) - start, "s");
        report("position memory", &params, map.memory_bytes() as f64 / 1e6, "MB");
        let us = time(50_000, |i| {
            let id = ((u64::from(spread(i)) * entries as u64) >> 32) as u32;
            map.exchange(id, spread(!i) >> 15)?;
            Ok(())
        })?;
        report("position exchange", &params, us, "us");
    }

    for rows in [10_000u32, 100_000] {
        let params = format!("{rows} rows of 64 bytes, 16 numbers");
        let start = seconds(clock);
        let mut buffer = BufferOram::new(rows as usize, 64, 16, &key)?;
        report("buffer new", &params, (seconds(clock) - start) * 1e6 / f64::from(rows), "us a row");
        let us = time(rows, |rank| Ok(buffer.insert(rank, &[rank as u8; 64])?))?;
        report("buffer insert", &params, us, "us");
        let mut row = [0; 64];
        let us = time(20_000, |i| Ok(buffer.row(spread(i) % rows, &mut row)?))?;
        report("buffer row", &params, us, "us");
        let us = time(20_000, |i| Ok(buffer.add(spread(i) % rows, &[1.0; 16], 1.0)?))?;
        report("buffer add", &params, us, "us");
        let start = seconds(clock);
        let mut sum = 0;
        buffer.drain(|drained| sum += drained.contributions)?;
        assert_eq!(sum, 20_000);
        report(
            "buffer drain",
            &params,
            (seconds(clock) - start) * 1e6 / f64::from(rows),
            "us a row",
        );
    }
    Ok(())
}
