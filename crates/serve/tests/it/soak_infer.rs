//! Servers of encrypted and of hybrid inference that many clients come to and leave stay within their memory, as
//! the system counts it.
//!
//! The suite runs each for some seconds; `make test-nightly` for 3,000 clients. All of them connect and ask what is
//! computed; one in ten, in two, or each has something computed, which takes a core for a tenth of a second and more.

use crate::common;
use crate::hybrid_common;
use crate::infer_common;

use std::time::Instant;

use common::{Process, Resident, is_long_soak};
use hushtable_serve::{
    EndpointSpec, HybridClient, HybridClientSpec, InferClient, InferClientSpec, InferServer,
    InferServerSpec,
};
use tempfile::TempDir;

/// Keys that the server has room for.
const KEPT: usize = 4;
const HALVES_MAX: usize = 6;

/// One client after the other, in two halves after those that warm the server up. Memory goes up and down by
/// megabytes with the keys and the ciphertexts of the moment, so it is the most in each half that is told: what
/// clients leave lifts it as it lifts all. Where the second half has more, another follows, a few times: moments that
/// meet by chance lift the most once, what clients leave lifts each half.
async fn run(server: &Process, clients: usize, client: impl AsyncFn(usize)) -> Resident {
    let start = server.resident_bytes();
    // More than it has room for the keys of.
    let warm = (clients / 10).max(15 * KEPT);
    for number in 0..warm {
        client(number).await;
    }
    let warmed = server.resident_bytes();
    let most = async |half: usize| {
        let mut most = 0;
        for number in half * (clients / 2)..(half + 1) * (clients / 2) {
            client(number).await;
            most = server.resident_bytes().max(most);
        }
        most
    };
    let (half, end) = (most(0).await, most(1).await);
    let mut resident = Resident { start, warm: warmed, half, end };
    for more in 2..HALVES_MAX {
        if !resident.grows() {
            break;
        }
        resident = Resident { half: resident.end, end: most(more).await, ..resident };
    }
    resident
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_encrypted_inference_stays_as_large_as_it_is_when_warm() {
    // What computes holds megabytes for a moment: the most is known after some tens of predictions.
    let (clients, every) = if is_long_soak() { (3000, 10) } else { (60, 2) };
    let (started, folder) = (Instant::now(), TempDir::new().unwrap());
    let model = infer_common::bundle(folder.path(), 1);
    let spec = infer_common::spec(&model);
    let key_bytes = InferServer::open(spec.clone()).unwrap().info().key_bytes();
    let spec = InferServerSpec { keys_memory_bytes_max: KEPT * key_bytes, ..spec };
    let server = Process::start(folder.path(), "infer", &spec, &["infer"]);
    server.ready().await;
    let (dense, indices) = infer_common::features(1, 2);
    let expected = infer_common::logits(&model, &dense, &indices)[0];
    let resident = run(&server, clients, async |number| {
        let spec = InferClientSpec::new(EndpointSpec::new(server.url(), None));
        let client = InferClient::connect(&spec, None).await.unwrap();
        if number % every == 0 {
            let found = client.predict(1, &dense, &indices).await.unwrap().logits[0];
            assert!((found - expected).abs() < 1.0 / 1024.0, "{found} for {expected}");
        }
    });
    resident.await.check("infer", clients, clients / every, started.elapsed().as_secs_f64());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_of_hybrid_inference_stays_as_large_as_it_is_when_warm() {
    // As above: of a few predictions the most is not known.
    let (clients, every) = if is_long_soak() { (3000, 10) } else { (160, 1) };
    let (started, folder) = (Instant::now(), TempDir::new().unwrap());
    let model = hybrid_common::bundle(folder.path(), 1);
    let spec = hybrid_common::spec(&model);
    let server = Process::start(folder.path(), "hybrid", &spec, &["hybrid"]);
    server.ready().await;
    let input = hybrid_common::input(3);
    let expected = hybrid_common::outputs(1, &input);
    let resident = run(&server, clients, async |number| {
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
    resident.await.check("hybrid", clients, clients / every, started.elapsed().as_secs_f64());
}
