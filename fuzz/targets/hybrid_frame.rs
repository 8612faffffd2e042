#![no_main]

use std::sync::{Arc, OnceLock};

use hushtable_fuzz::{hurt, small_hybrid};
use hushtable_infer::hybrid::records::RecordError;
use hushtable_infer::hybrid::{
    HybridModel, Next, OfflineClient, OfflineServer, OnlineClient, OnlineServer, Parallel, Party,
    Records,
};
use libfuzzer_sys::fuzz_target;

/// Records that may be used again: a fuzzer has no time for a precompute a run.
#[derive(Default)]
struct Kept(std::sync::Mutex<std::collections::BTreeMap<usize, Vec<u8>>>);

impl Records for Kept {
    fn put(&self, record: usize, bytes: &[u8]) -> Result<(), RecordError> {
        self.0.lock().expect("no panic").insert(record, bytes.to_vec());
        Ok(())
    }

    fn get(&self, record: usize) -> Result<Vec<u8>, RecordError> {
        let held = self.0.lock().expect("no panic");
        held.get(&record).cloned().ok_or(RecordError::Missing { record })
    }
}

type Halves = [Arc<Kept>; 2];

// A prediction of which one frame is damaged on its way, either way: an error or other numbers, and never a
// panic.
fuzz_target!(|input: (bool, u8, u32, Vec<u8>)| {
    static MODEL: OnceLock<(Arc<HybridModel>, [Halves; 2])> = OnceLock::new();
    let (model, kept) = MODEL.get_or_init(|| {
        let model = small_hybrid();
        let kept = [Party::Client, Party::Server].map(|garbler| precompute(&model, garbler));
        (model, kept)
    });
    let (is_client, which, at, damage) = input;
    let garbler = if is_client { Party::Client } else { Party::Server };
    let [ours, theirs] = kept[usize::from(!is_client)].clone().map(|half| half as Arc<dyn Records>);
    let x = vec![5; model.outline().program().input.count()];
    let outline = Arc::clone(model.outline());
    let mut client = OnlineClient::new(outline, garbler, ours, &x).expect("a client");
    let mut server = OnlineServer::new(Arc::clone(model), garbler, theirs).expect("a server");
    let mut frames = 0;
    let mut pass = |frame: &mut Vec<u8>| {
        if frames == which {
            hurt(frame, at, &damage);
        }
        frames = frames.saturating_add(1);
    };
    loop {
        while let Some(mut frame) = client.pull() {
            pass(&mut frame);
            if server.push(&frame).is_err() {
                return;
            }
        }
        let Ok(Some(mut frame)) = server.pull() else { return };
        pass(&mut frame);
        if client.push(&frame).is_err() {
            return;
        }
    }
});

fn precompute(model: &Arc<HybridModel>, garbler: Party) -> Halves {
    let halves = [Arc::new(Kept::default()), Arc::new(Kept::default())];
    let [ours, theirs] = halves.clone().map(|half| half as Arc<dyn Records>);
    let server = OfflineServer::new(Arc::clone(model), garbler, theirs).expect("a server");
    let outline = Arc::clone(model.outline());
    let client = OfflineClient::new(outline, garbler, Parallel::Layers, ours).expect("a client");
    while let Next::Step(step) = client.next() {
        let reply =
            server.answer(step, &client.request(step).expect("a request")).expect("a reply");
        client.accept(step, &reply).expect("accepted");
    }
    halves
}
