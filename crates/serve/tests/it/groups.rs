//! The output group of keys: what both servers answer fastest.

use std::sync::{Arc, Mutex};

use crate::common::{Running, row, spec, table, until};
use hushtable_pir::dpf::{Group, Key, Side};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Error, TableShape};
use hushtable_serve::load::LoadSpec;
use hushtable_serve::{ClientSpec, DeviceSpec, EndpointSpec, LookupClient, Server, ServerSpec};

const ROWS: u64 = 700;

/// An engine that says that it answers other groups as fast, and remembers which it was asked for.
struct Preferring {
    engine: CpuEngine,
    groups: &'static [Group],
    asked: Arc<Mutex<Vec<Group>>>,
}

impl Backend for Preferring {
    fn shape(&self) -> TableShape {
        self.engine.shape()
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), Error> {
        self.asked.lock().unwrap().extend(keys.iter().map(|key| key.params().domain.group()));
        self.engine.answer(keys, answers)
    }

    fn batch_keys_best(&self) -> usize {
        self.engine.batch_keys_best()
    }

    fn groups(&self) -> &[Group] {
        self.groups
    }

    fn description(&self) -> String {
        self.engine.description()
    }
}

fn endpoint(server: &Running) -> EndpointSpec {
    EndpointSpec::new(server.url(), None)
}

/// A running server that prefers the first of `groups`, and what it was asked for since it was ready.
fn start(side: Side, groups: &'static [Group]) -> (Running, Arc<Mutex<Vec<Group>>>) {
    let asked = Arc::<Mutex<Vec<Group>>>::default();
    let remembered = Arc::clone(&asked);
    let server = Server::of_table(spec(side), table(ROWS, 5, 1)).unwrap();
    let running = Running::start(server.with_backend(move |table| {
        let spec = EngineSpec { threads: 1, ..EngineSpec::default() };
        let engine = CpuEngine::from_table(table, &spec)?;
        Ok(Arc::new(Preferring { engine, groups, asked: remembered }))
    }));
    let mut checked = asked.lock().unwrap();
    assert!(groups.iter().all(|group| checked.contains(group)), "the self-check: {checked:?}");
    checked.clear();
    drop(checked);
    (running, asked)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn keys_are_of_the_group_that_both_servers_prefer() {
    use Group::{Bits, Z8, Z32};
    for (left, right, expected) in [
        (&[Z8, Bits][..], &[Z8, Bits][..], Z8),
        (&[Z8, Bits], &[Bits], Bits),
        (&[Bits], &[Z8, Bits], Bits),
        (&[Z32, Z8, Bits], &[Z32, Bits], Z32),
    ] {
        let (left, left_asked) = start(Side::Left, left);
        let (right, right_asked) = start(Side::Right, right);
        let client = LookupClient::connect(&ClientSpec::new(endpoint(&left), endpoint(&right)))
            .await
            .unwrap();
        let found = client.lookup(&[5, 699, 5], 4).await.unwrap();
        let table = table(ROWS, 5, 1);
        let rows: Vec<u8> = [5, 699, 5].into_iter().flat_map(|id| row(&table, id)).collect();
        assert_eq!(found.rows, rows);
        assert_eq!(*left_asked.lock().unwrap(), [expected; 4]);
        assert_eq!(*right_asked.lock().unwrap(), [expected; 4]);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_load_uses_what_the_server_prefers() {
    let (left, asked) = start(Side::Left, &[Group::Z8, Group::Bits]);
    let (right, _) = start(Side::Right, &[Group::Bits]);
    let load = LoadSpec {
        partner: Some(endpoint(&right)),
        clients: 2,
        keys_per_request: 3,
        warmup: std::time::Duration::ZERO,
        duration: std::time::Duration::from_millis(50),
        ..LoadSpec::new(endpoint(&left))
    };
    let mut requests = 0;
    let mut loads = 0;
    until("requests are answered", async || {
        let report = load.run().await.unwrap();
        assert_eq!(report.errors, 0);
        requests += report.requests;
        loads += 1;
        requests > 0
    })
    .await;
    let asked = asked.lock().unwrap();
    // The sample is compared with the partner's answers, which are of bits alone.
    assert_eq!(asked.iter().filter(|group| **group == Group::Bits).count(), 16 * loads);
    assert!(asked.len() as u64 >= 16 * loads as u64 + 3 * requests);
}

#[test]
fn a_device_that_is_not_there_is_an_error_only_where_it_was_asked_for() {
    let server = |device| {
        let spec = ServerSpec { device, ..spec(Side::Left) };
        Server::of_table(spec, table(ROWS, 5, 1)).unwrap()
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    // A number that no machine has, so that this holds where there is a GPU too.
    let absent = server(DeviceSpec::Cuda(4_000_000));
    let ended =
        runtime.block_on(async { absent.bind().await.unwrap().run(std::future::pending()).await });
    let Err(error) = ended else { panic!("there is such a GPU") };
    let text = error.to_string();
    assert!(error.of::<hushtable_serve::DeviceError>().is_some(), "{text}");
    assert!(text.contains("cuda:4000000 cannot be used: "), "{text}");
    for device in [DeviceSpec::Cpu, DeviceSpec::Auto] {
        Running::start(server(device)).stop().unwrap();
    }
}
