//! Both parties in one process: for tests, and for whoever wants to see what a private prediction gives.

use std::sync::Arc;

use hushtable_mpc::Party;

use super::error::Error;
use super::model::HybridModel;
use super::offline::{Next, OfflineClient, OfflineServer, Parallel};
use super::online::{OnlineClient, OnlineServer};
use crate::records::{Memory, Records};

/// Both halves of a precompute.
pub struct Precompute {
    garbler: Party,
    client: Arc<dyn Records>,
    server: Arc<dyn Records>,
    /// Low bits of the client's shares: [`OfflineClient::dither`].
    pub dither: Vec<Vec<u64>>,
    /// Bytes from the client to the server, and back.
    pub bytes: [u64; 2],
}

/// A prediction's result.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Outcome {
    /// The answer, modulo 2^bits in the last stage's fraction.
    pub output: Vec<u64>,
    /// Bytes from the client to the server, and back.
    pub bytes: [u64; 2],
}

impl Precompute {
    /// Makes a precompute.
    ///
    /// # Errors
    /// What either half says.
    pub fn make(model: &Arc<HybridModel>, garbler: Party) -> Result<Self, Error> {
        let (client, server) = (Arc::new(Memory::default()), Arc::new(Memory::default()));
        let (client, server): (Arc<dyn Records>, Arc<dyn Records>) = (client, server);
        let theirs = OfflineServer::new(Arc::clone(model), garbler, Arc::clone(&server))?;
        let outline = Arc::clone(model.outline());
        let ours = OfflineClient::new(outline, garbler, Parallel::Layers, Arc::clone(&client))?;
        let mut bytes = [0; 2];
        // One step after the other: a step is ready whenever none is under way.
        while let Next::Step(step) = ours.next() {
            let request = ours.request(step)?;
            let reply = theirs.answer(step, &request)?;
            ours.accept(step, &reply)?;
            bytes[0] += request.len() as u64;
            bytes[1] += reply.len() as u64;
        }
        debug_assert!(theirs.is_complete());
        Ok(Self { garbler, client, server, dither: ours.dither(), bytes })
    }

    /// Uses it up.
    ///
    /// # Errors
    /// What either half says.
    pub fn predict(self, model: &Arc<HybridModel>, input: &[u64]) -> Result<Outcome, Error> {
        let outline = Arc::clone(model.outline());
        let mut client = OnlineClient::new(outline, self.garbler, self.client, input)?;
        let mut server = OnlineServer::new(Arc::clone(model), self.garbler, self.server)?;
        let mut bytes = [0; 2];
        loop {
            while let Some(frame) = client.pull() {
                bytes[0] += frame.len() as u64;
                server.push(&frame)?;
            }
            if let Some(output) = client.output() {
                return Ok(Outcome { output: output.to_vec(), bytes });
            }
            let Some(frame) = server.pull()? else {
                let why = "a frame of either side";
                return Err(Error::Order { what: "the end".to_owned(), why });
            };
            bytes[1] += frame.len() as u64;
            client.push(&frame)?;
        }
    }
}
