#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_pir::batch::{BatchEngine, Server};
use hushtable_pir::dpf::Side;
use hushtable_pir::{EngineSpec, PrgKind};
use hushtable_serve::wire::AnswerBagsRequest;
use hushtable_table::layout::{DropRule, Layout, LayoutMap, LayoutSpec, PartSpec};
use hushtable_table::{DType, Table};
use libfuzzer_sys::fuzz_target;
use prost::Message;

/// What servers do with an inference's bytes: decode the message, accept its keys, answer them. Hot
/// bins have one leaf, full ones several, so that both kinds of key are read.
fuzz_target!(|bytes: &[u8]| {
    static SERVERS: OnceLock<[Server; 2]> = OnceLock::new();
    let servers = SERVERS.get_or_init(servers);
    let Ok(request) = AnswerBagsRequest::decode(bytes) else { return };
    for server in servers {
        let geometry = server.backend().geometry();
        // With the right length, what is in the keys is read.
        let mut keys = request.keys.to_vec();
        for resized in [false, true] {
            if resized {
                keys.resize(geometry.request_bytes(server.side()), 0);
                if let [format, side, prg, zero, ..] = keys.as_mut_slice() {
                    (*format, *side, *zero) = (1, server.side().id(), 0);
                    *prg = PrgKind::ALL[usize::from(*prg) % PrgKind::ALL.len()].id();
                }
            }
            if let Ok(accepted) = server.accept(keys.clone()) {
                let mut answers = vec![0; geometry.answer_bytes()];
                server.answer(&[accepted], &mut answers).expect("accepted keys have answers");
            }
        }
    }
});

fn servers() -> [Server; 2] {
    const ROWS: u64 = 1100;
    let values: Vec<f32> = (0..ROWS).map(|row| row as f32).collect();
    let table = Table::from_weight("fuzz", ROWS, 1, DType::F32, &values).expect("a small table");
    let part =
        |rows, bins, queries, hashes| PartSpec { rows, bins, queries, hashes, companions: 0 };
    let spec = LayoutSpec {
        hot: Some(part(20, 2, 2, 1)),
        full: Some(part(ROWS, 2, 1, 2)),
        ids_max: 8,
        drop: DropRule::MostFrequent,
        seed: [1; 32],
    };
    let map = LayoutMap { hot_ids: (0..20).collect(), ..LayoutMap::default() };
    let layout = Layout::new(spec, map, table.shape(), table.version()).expect("a small layout");
    let engine_spec = EngineSpec { threads: 1, ..EngineSpec::default() };
    let engine = BatchEngine::from_table(&table, &layout, &engine_spec).expect("a small engine");
    let engine = Arc::new(engine);
    Side::BOTH.map(|side| Server::new(side, engine.clone()))
}
