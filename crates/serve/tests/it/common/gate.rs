//! Backends that a test stops in the middle of a pass, for as long as it wants.

use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::Duration;

use hushtable_pir::batch::{BatchBackend, BatchEngine, BatchKeys, Geometry};
use hushtable_pir::dpf::{Group, Key};
use hushtable_pir::onion::{self, OnionBackend};
use hushtable_pir::{Backend, CpuEngine, EngineSpec, Error, TableShape};
use hushtable_serve::{OnionServer, OnionServerSpec, Server, ServerSpec};
use hushtable_table::{Table, Version};

/// Where passes wait while it is held.
#[derive(Default)]
pub struct Gate {
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Default)]
struct State {
    is_held: bool,
    /// Passes that may go on although it is held.
    let_on: usize,
    waiting: usize,
}

impl Gate {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap()
    }

    /// Lets no pass go on until what is returned is dropped: declared after the servers, it goes first, so that
    /// they end.
    pub fn hold(self: &Arc<Self>) -> Held {
        self.state().is_held = true;
        Held(Arc::clone(self))
    }

    /// Passes that wait here.
    pub fn waiting(&self) -> usize {
        self.state().waiting
    }

    fn pass(&self) {
        // As long as no server runs a pass where it reads requests: those would wait with it.
        std::thread::sleep(LONG);
        let mut state = self.state();
        state.waiting += 1;
        while state.is_held && state.let_on == 0 {
            state = self.changed.wait(state).unwrap();
        }
        state.let_on = state.let_on.saturating_sub(1);
        state.waiting -= 1;
    }
}

/// A multiple of what a scheduler takes for short.
const LONG: Duration = Duration::from_millis(1);

pub struct Held(Arc<Gate>);

impl Held {
    /// Lets one pass go on.
    pub fn let_one_on(&self) {
        self.0.state().let_on += 1;
        self.0.changed.notify_all();
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        let mut state = self.0.state();
        (state.is_held, state.let_on) = (false, 0);
        self.0.changed.notify_all();
    }
}

/// A server of one of two whose passes, over rows and over bags, wait at a gate.
pub fn gated(spec: ServerSpec, table: Table) -> (Server, Arc<Gate>) {
    let gate = Arc::<Gate>::default();
    let (of_rows, of_bags) = (Arc::clone(&gate), Arc::clone(&gate));
    let engine = EngineSpec { threads: 1, ..EngineSpec::default() };
    let of_engine = engine.clone();
    let server = Server::of_table(spec, table).unwrap();
    let server = server.with_backend(move |table| {
        Ok(Arc::new(Gated { engine: CpuEngine::from_table(table, &of_engine)?, gate: of_rows }))
    });
    let server = server.with_batch_backend(move |table, layout| {
        let engine = BatchEngine::from_table(table, layout, &engine)?;
        Ok(Arc::new(Gated { engine, gate: of_bags }))
    });
    (server, gate)
}

/// The same of a server that is asked alone.
pub fn gated_onion(spec: OnionServerSpec, table: Table) -> (OnionServer, Arc<Gate>) {
    let gate = Arc::<Gate>::default();
    let of_backend = Arc::clone(&gate);
    let server = OnionServer::of_table(spec, table).unwrap().with_backend(move |table| {
        let spec = onion::OnionSpec { threads: 1, ..onion::OnionSpec::new() };
        let engine = onion::Engine::from_table(table, onion::ParameterSet::N4096128, &spec)?;
        Ok(Arc::new(Gated { engine, gate: of_backend }) as Arc<dyn OnionBackend>)
    });
    (server, gate)
}

/// A real engine behind a gate.
struct Gated<E> {
    engine: E,
    gate: Arc<Gate>,
}

impl Backend for Gated<CpuEngine> {
    fn shape(&self) -> TableShape {
        self.engine.shape()
    }

    fn answer(&self, keys: &[Key], answers: &mut [u8]) -> Result<(), Error> {
        self.gate.pass();
        self.engine.answer(keys, answers)
    }

    fn batch_keys_best(&self) -> usize {
        self.engine.batch_keys_best()
    }

    fn groups(&self) -> &[Group] {
        self.engine.groups()
    }

    fn description(&self) -> String {
        self.engine.description()
    }
}

impl BatchBackend for Gated<BatchEngine> {
    fn geometry(&self) -> &Geometry {
        self.engine.geometry()
    }

    fn answer(&self, requests: &[BatchKeys], answers: &mut [u8]) -> Result<(), Error> {
        self.gate.pass();
        self.engine.answer(requests, answers)
    }

    fn batch_requests_best(&self) -> usize {
        self.engine.batch_requests_best()
    }

    fn description(&self) -> String {
        self.engine.description()
    }
}

impl OnionBackend for Gated<onion::Engine> {
    fn geometry(&self) -> &onion::Geometry {
        self.engine.geometry()
    }

    fn version(&self) -> Version {
        OnionBackend::version(&self.engine)
    }

    fn answer(&self, queries: &[onion::Asked], responses: &mut [u8]) -> Result<(), onion::Error> {
        self.gate.pass();
        self.engine.answer(queries, responses)
    }

    fn batch_queries_best(&self) -> usize {
        self.engine.batch_queries_best()
    }

    fn description(&self) -> String {
        self.engine.description()
    }
}
