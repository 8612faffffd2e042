#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_pir::dpf::{Server, Side};
use hushtable_pir::{CpuEngine, EngineSpec, TableShape};
use hushtable_serve::wire::AnswerRequest;
use hushtable_table::Version;
use libfuzzer_sys::fuzz_target;
use prost::Message;

/// What a server does with a request's bytes: decode the message, accept its keys, answer them.
fuzz_target!(|bytes: &[u8]| {
    static SERVER: OnceLock<Server> = OnceLock::new();
    let server = SERVER.get_or_init(|| {
        let shape = TableShape::new(3, 5).expect("a small table");
        let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
        let engine = CpuEngine::from_rows(shape, b"one..two..three", &spec);
        Server::new(Side::Left, Version::from([1; 32]), Arc::new(engine.expect("fifteen bytes")))
    });
    if let Ok(request) = AnswerRequest::decode(bytes) {
        let keys: Vec<_> = request.keys.iter().filter_map(|key| server.accept(key).ok()).collect();
        let mut answers = vec![0; keys.len() * 5];
        server.answer(&keys, &mut answers).expect("accepted keys have answers");
    }
});
