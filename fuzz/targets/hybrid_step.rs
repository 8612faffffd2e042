#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_fuzz::{hurt, small_hybrid};
use hushtable_infer::hybrid::records::Memory;
use hushtable_infer::hybrid::{
    HybridModel, Next, OfflineClient, OfflineServer, Parallel, Party, Records,
};
use libfuzzer_sys::fuzz_target;

// A precompute of which one step's request or reply is damaged on its way: an error or other numbers, and
// never a panic. A step that was answered is not answered to other bytes.
fuzz_target!(|input: (bool, u16, bool, u32, Vec<u8>)| {
    static MODEL: OnceLock<Arc<HybridModel>> = OnceLock::new();
    let model = MODEL.get_or_init(small_hybrid);
    let (is_client, which, is_request, at, damage) = input;
    let garbler = if is_client { Party::Client } else { Party::Server };
    let records = || Arc::new(Memory::default()) as Arc<dyn Records>;
    let server = OfflineServer::new(Arc::clone(model), garbler, records()).expect("a server");
    let outline = Arc::clone(model.outline());
    let client =
        OfflineClient::new(outline, garbler, Parallel::Layers, records()).expect("a client");
    let which = u32::from(which) % client.steps();
    while let Next::Step(step) = client.next() {
        let mut request = client.request(step).expect("a request");
        let is_hit = step == which;
        if is_hit && is_request {
            hurt(&mut request, at, &damage);
        }
        let Ok(mut reply) = server.answer(step, &request) else {
            assert!(is_hit || step > which);
            return;
        };
        if is_hit && !is_request {
            hurt(&mut reply, at, &damage);
        }
        if client.accept(step, &reply).is_err() {
            return;
        }
    }
});
