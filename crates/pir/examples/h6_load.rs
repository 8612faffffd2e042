use std::time::Instant;
use hushtable_pir::{CpuEngine, EngineSpec, TableShape};
use hushtable_table::{Table, DType};
use hushtable_pir::onion::{self, Engine, OnionSpec, ParameterSet};
fn main() {
    let rows: u64 = std::env::args().nth(1).unwrap().parse().unwrap();
    let dim = 32;
    let dir = tempfile::tempdir_in("/tmp").unwrap();
    let path = dir.path().join("t");
    {
        let values: Vec<f32> = (0..rows as usize * dim).map(|i| (i as u32).wrapping_mul(2654435761) as f32).collect();
        Table::from_weight("t", rows, dim, DType::F32, &values).unwrap().save(&path).unwrap();
    }
    let table = Table::open(&path).unwrap();
    let file = std::fs::File::open(path.join("rows.safetensors")).unwrap();
    let shape = TableShape::new(rows, 4 * dim).unwrap();
    let gb = rows as f64 * 4.0 * dim as f64 / 1e9;
    // the page cache is warm after this
    for threads in [1, 2] {
        let spec = EngineSpec { threads, ..EngineSpec::default() };
        let (mut best_a, mut best_b, mut best_h) = (f64::MAX, f64::MAX, f64::MAX);
        for _ in 0..4 {
            let map = unsafe { memmap2::MmapOptions::new().map_copy_read_only(&file) }.unwrap();
            let t = Instant::now();
            let e = CpuEngine::from_rows(shape, &map[4096..], &spec).unwrap();
            best_a = best_a.min(t.elapsed().as_secs_f64());
            drop(e);
            drop(map);
            let table = Table::open(&path).unwrap();
            let t = Instant::now();
            let e = CpuEngine::from_table(&table, &spec).unwrap();
            best_b = best_b.min(t.elapsed().as_secs_f64());
            drop(e);
            let t = Instant::now();
            let reading = table.reading().unwrap();
            let mut buf = vec![0; 256 * 128 * 4];
            for first in (0..rows).step_by(1024) { reading.copy_rows(first, &mut buf[..(rows - first).min(1024) as usize * 128]).unwrap(); }
            reading.finish().unwrap();
            best_h = best_h.min(t.elapsed().as_secs_f64());
        }
        println!("pair {threads} threads: unchecked {best_a:.3} s ({:.2} GB/s), checked {best_b:.3} s ({:.2} GB/s), ratio {:.3}; reading alone {:.2} GB/s one thread", gb / best_a, gb / best_b, best_b / best_a, gb / best_h);
    }
    let prepared = dir.path().join("p");
    let spec = OnionSpec { threads: 2, ..OnionSpec::new() };
    let small = Table::open(&path).unwrap();
    let t = Instant::now();
    onion::prepare(&small, &prepared, ParameterSet::N4096128, &spec, &|_, _| true).unwrap();
    println!("prepare {:.1} s", t.elapsed().as_secs_f64());
    let pgb = std::fs::metadata(&prepared).unwrap().len() as f64 / 1e9;
    for threads in [1, 2] { for load in [false, true] {
        let spec = OnionSpec { threads, load, ..OnionSpec::new() };
        let t = Instant::now();
        let e = Engine::open(&prepared, &small, ParameterSet::N4096128, &spec).unwrap();
        let took = t.elapsed().as_secs_f64();
        let scan = e.scan().as_secs_f64();
        println!("onion {threads} threads load={load}: open {took:.3} s ({:.2} GB/s of {pgb:.2} GB), scan {scan:.3} s", pgb / took);
    }}
}
