//! Servers of encrypted and of hybrid inference that many clients come to and leave stay within their memory, as
//! their allocator counts it.
//!
//! The suite runs each for some seconds; `make test-nightly` for 3,000 clients. All of them connect and ask what is
//! computed; one in ten, in two, or each has something computed, which takes a core for a tenth of a second and more.

use crate::common;
use crate::hybrid_common;
use crate::infer_common;

use std::time::Instant;

use common::{Process, Resting, is_long_soak};
use hushtable_serve::{
    CkksClient, CkksClientSpec, CkksServer, CkksServerSpec, EndpointSpec, HybridClient,
    HybridClientSpec,
};
use tempfile::TempDir;

/// Keys that the server has room for.
const KEPT: usize = 4;

/// One client after the other, in two halves after those that warm the server up.
async fn run(server: &Process, clients: usize, client: impl AsyncFn(usize)) -> Resting {
    let start = server.resting_bytes().await;
    // More than it has room for the keys of.
    let warm = (clients / 10).max(4 * KEPT);
    let all = async |numbers: std::ops::Range<usize>| {
        for number in numbers {
            client(number).await;
        }
        server.resting_bytes().await
    };
    let warmed = all(0..warm).await;
    let half = all(warm..warm + clients / 2).await;
    all(warm + clients / 2..warm + clients).await;
    Resting { start, warm: warmed, half, end: 0 }.ended(server).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_encrypted_inference_stays_as_large_as_it_is_when_warm() {
    let (clients, every) = if is_long_soak() { (3000, 10) } else { (40, 2) };
    let (started, folder) = (Instant::now(), TempDir::new().unwrap());
    let model = infer_common::bundle(folder.path(), 1);
    let spec = infer_common::spec(&model);
    let key_bytes = CkksServer::open(spec.clone()).unwrap().info().key_bytes();
    let spec = CkksServerSpec { keys_memory_bytes_max: KEPT * key_bytes, ..spec };
    let server = Process::start(folder.path(), "infer", &spec, &["infer"]);
    server.ready().await;
    let (dense, indices) = infer_common::features(1, 2);
    let expected = infer_common::logits(&model, &dense, &indices)[0];
    let resting = run(&server, clients, async |number| {
        let spec = CkksClientSpec::new(EndpointSpec::new(server.url(), None));
        let client = CkksClient::connect(&spec, None).await.unwrap();
        if number % every == 0 {
            let found = client.predict(1, &dense, &indices).await.unwrap().logits[0];
            assert!((found - expected).abs() < 1.0 / 1024.0, "{found} for {expected}");
        }
    });
    resting.await.check("infer", clients, clients / every, started.elapsed().as_secs_f64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_hybrid_inference_stays_as_large_as_it_is_when_warm() {
    let (clients, every) = if is_long_soak() { (3000, 10) } else { (40, 1) };
    let (started, folder) = (Instant::now(), TempDir::new().unwrap());
    let model = hybrid_common::bundle(folder.path(), 1);
    let spec = hybrid_common::spec(&model);
    let server = Process::start(folder.path(), "hybrid", &spec, &["hybrid"]);
    server.ready().await;
    let input = hybrid_common::input(3);
    let expected = hybrid_common::outputs(1, &input);
    let resting = run(&server, clients, async |number| {
        let spec = HybridClientSpec::new(EndpointSpec::new(server.url(), None));
        let client = HybridClient::connect(&spec).await.unwrap();
        if number % every == 0 {
            // What is made is used up.
            let found = client.predict(&input, None).await.unwrap().outputs;
            for (found, expected) in found.iter().zip(&expected) {
                assert!((found - expected).abs() < 1.0 / 64.0, "{found} for {expected}");
            }
        }
    });
    resting.await.check("hybrid", clients, clients / every, started.elapsed().as_secs_f64());
}
