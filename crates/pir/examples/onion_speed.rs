//! Where a single-server lookup's time goes: `onion_speed TABLE_MIB ROW_BYTES BATCH THREADS [SET]`.

use std::sync::Arc;
use std::time::Instant;

use hushtable_pir::TableShape;
use hushtable_pir::onion::{
    Client, Engine, Geometry, OnionBackend, OnionSpec, ParameterSet, Schedule, Server,
};
use hushtable_table::Version;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let number = |index: usize, default: u64| {
        args.get(index).map_or(default, |arg| arg.parse().expect("a number"))
    };
    let (mib, row_bytes) = (number(0, 256), number(1, 256));
    let (batch, threads) = (number(2, 1) as usize, number(3, 1) as usize);
    let set = args.get(4).and_then(|name| ParameterSet::from_name(name));
    let levels = number(5, 0) as u32;
    let shape = TableShape::new((mib << 20) / row_bytes, row_bytes as usize).expect("a shape");
    let set = set.unwrap_or(ParameterSet::N4096128);
    let geometry = match levels {
        0 => Geometry::new(set, shape),
        levels => Geometry::with_levels(set, shape, levels),
    }
    .expect("a geometry");
    let tournament = match args.get(6).map(String::as_str) {
        Some("bfs") => Schedule::BreadthFirst,
        Some("dfs") => Schedule::DepthFirst,
        Some(depth) => Schedule::Hierarchical { depth: depth.parse().expect("a depth") },
        None => OnionSpec::new().tournament,
    };
    let overlap = args.get(7).is_some();
    let spec = OnionSpec { threads, tournament, overlap, ..OnionSpec::new() };
    println!(
        "rows {} columns {} games {} levels {}: budget {:.2} bits, failure 2^{:.0}",
        geometry.rows(),
        geometry.columns(),
        geometry.games(),
        geometry.levels(),
        geometry.prediction().budget_bits(),
        geometry.prediction().failure_log2()
    );
    println!(
        "keys {} query {} response {} bytes, prepared / table {:.3}",
        geometry.key_bytes(),
        geometry.query_bytes(),
        geometry.response_bytes(),
        geometry.prepared_bytes() as f64 / shape.table_bytes() as f64
    );
    let started = Instant::now();
    let copy = |first: u64, out: &mut [u8]| {
        let mut word = first.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
        for bytes in out.chunks_mut(8) {
            word = word.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(1);
            bytes.copy_from_slice(&word.to_le_bytes()[..bytes.len()]);
        }
        Ok(())
    };
    let engine =
        Engine::from_rows(geometry.clone(), Version::from([0; 32]), &spec, &copy).expect("made");
    let took = started.elapsed().as_secs_f64();
    println!("prepared at {:.3} GB/s", shape.table_bytes() as f64 / took / 1e9);
    let started = Instant::now();
    let client = Client::new(geometry.clone(), Version::from([0; 32])).expect("a client");
    println!("keys made in {:?}", started.elapsed());
    let started = Instant::now();
    let (queries, pending) = client.query(&vec![shape.rows() / 2; batch], batch).expect("queries");
    println!("query made in {:?}", started.elapsed() / batch as u32);
    println!("scan {:?}", engine.scan());
    let engine = Arc::new(engine);
    let server = Server::new(Arc::clone(&engine) as Arc<dyn OnionBackend>);
    let keys = Arc::new(server.accept_keys(client.keys()).expect("keys"));
    let asked: Vec<_> =
        queries.iter().map(|query| server.accept(&keys, query).expect("a query")).collect();
    let mut responses = vec![0; batch * geometry.response_bytes()];
    for _ in 0..3 {
        let started = Instant::now();
        let stages = engine.answer_timed(&asked, &mut responses).expect("answers");
        let took = started.elapsed().as_secs_f64();
        println!(
            "{:.1} ms a query, {:.2} GB/s; expand {:.1} row_select {:.1} tournament {:.1} ms",
            took * 1e3 / batch as f64,
            batch as f64 * shape.table_bytes() as f64 / took / 1e9,
            stages.expand.as_secs_f64() * 1e3 / batch as f64,
            stages.row_select.as_secs_f64() * 1e3 / batch as f64,
            stages.tournament.as_secs_f64() * 1e3 / batch as f64,
        );
    }
    let started = Instant::now();
    client.decode(&pending, Version::from([0; 32]), &responses).expect("rows");
    println!("decoded in {:?}", started.elapsed() / batch as u32);
}
