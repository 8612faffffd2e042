//! How fast a bundle is built and verified, beside the disk's own speed.
//!
//! `cargo run --release -p hushtable-table --example table_speed -- FOLDER [ROWS [DIM [DTYPE]]]`
//! (1,048,576 × 64 f32 unless told otherwise). One thread; the source is in the page cache. The
//! floor of a build is to write and flush the same bytes with nothing done to them.

use std::error::Error;
use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Instant;

use hushtable_table::{BuildSpec, DType, Source, build, verify};

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args().skip(1);
    let folder = PathBuf::from(arguments.next().ok_or("say in which folder to measure")?);
    let rows: u64 = arguments.next().map_or(Ok(1 << 20), |it| it.parse())?;
    let dim: usize = arguments.next().map_or(Ok(64), |it| it.parse())?;
    let dtype: DType = arguments.next().map_or(Ok(DType::F32), |it| it.parse())?;

    let (input, output) = (folder.join("table_speed.npy"), folder.join("table_speed.table"));
    write_source(&input, rows, dim)?;
    let served_bytes = rows * dtype.row_bytes(dim) as u64;
    let report = |what: &str, start: Instant| {
        let seconds = start.elapsed().as_secs_f64();
        let speed = served_bytes as f64 / seconds / 1e6;
        println!("{what}: {seconds:.3} s, {speed:.0} MB/s of {rows} × {dim} {dtype}");
    };

    for round in ["first", "again"] {
        let start = Instant::now();
        write_floor(&folder.join("table_speed.floor"), served_bytes)?;
        report(&format!("write and flush ({round})"), start);

        let start = Instant::now();
        let spec =
            BuildSpec { name: "speed".to_owned(), dtype: Some(dtype), ..BuildSpec::default() };
        build(&Source::Npy { path: input.clone() }, &spec, &output, &mut |_, _| {})?;
        report(&format!("build ({round})"), start);

        let start = Instant::now();
        let found = verify(&output, &mut |_, _| {})?;
        report(&format!("verify ({round})"), start);
        if !found.ok {
            return Err("the bundle does not verify".into());
        }
    }
    fs::remove_file(&input)?;
    fs::remove_dir_all(&output)?;
    Ok(())
}

fn write_source(path: &Path, rows: u64, dim: usize) -> Result<(), Box<dyn Error>> {
    let header = format!("{{'descr': '<f4', 'fortran_order': False, 'shape': ({rows}, {dim})}}");
    let mut file = std::io::BufWriter::new(File::create(path)?);
    file.write_all(b"\x93NUMPY\x01\x00")?;
    file.write_all(&u16::try_from(header.len())?.to_le_bytes())?;
    file.write_all(header.as_bytes())?;
    // A linear congruential generator: bytes that do not repeat, and no dependency.
    let mut state = 1_u32;
    for _ in 0..rows * dim as u64 {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        file.write_all(&((state >> 8) as f32 / 65_536.0 - 128.0).to_le_bytes())?;
    }
    file.flush()?;
    Ok(())
}

fn write_floor(path: &Path, byte_count: u64) -> Result<(), Box<dyn Error>> {
    let chunk = vec![0x5a; 1 << 20];
    let mut file = File::create(path)?;
    let mut left = byte_count;
    while left > 0 {
        let count = left.min(chunk.len() as u64);
        file.write_all(&chunk[..usize::try_from(count)?])?;
        left -= count;
    }
    file.sync_all()?;
    fs::remove_file(path)?;
    Ok(())
}
