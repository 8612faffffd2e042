//! Stubs until the machines are there.
#![allow(missing_docs, unused_variables, clippy::all, dead_code)]
use std::sync::Arc;
pub use hushtable_infer::hybrid::Records;
pub use hushtable_infer::hybrid::records::{Memory, RecordError};
pub use hushtable_infer::hybrid::program::{Program, Shape, Weights};
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Party { Client, Server }
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("a")] NoStep { step: u32, steps: u32 },
    #[error("b")] Order { what: String, why: &'static str },
    #[error("c")] Changed { step: u32 },
    #[error("d")] Bytes { what: &'static str, expected: usize, found: usize },
    #[error("e")] Input { expected: usize, found: usize },
    #[error(transparent)] Record(#[from] RecordError),
    #[error("entropy")] Entropy,
    #[error("network")] Network,
}
pub struct Outline;
impl Outline { pub fn new(program: Program, platform: hushtable_infer::Platform) -> Result<Self, Error> { todo!() }
 pub fn program(&self) -> &Program { todo!() }
 pub fn record_bytes(&self, garbler: Party, party: Party) -> Vec<u64> { todo!() } }
pub struct HybridModel;
impl HybridModel { pub fn new(program: Program, weights: Weights, platform: hushtable_infer::Platform) -> Result<Self, Error> { todo!() } pub fn outline(&self) -> &Arc<Outline> { todo!() } }
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Parallel { #[default] Layers, Sequential }
pub enum Next { Step(u32), Wait, Done }
pub struct OfflineClient;
impl OfflineClient { pub fn new(outline: Arc<Outline>, garbler: Party, parallel: Parallel, records: Arc<dyn Records>) -> Result<Self, Error> { todo!() }
 pub fn steps(&self) -> u32 { 0 } pub fn done(&self) -> u32 { 0 } pub fn next(&self) -> Next { todo!() } pub fn abandon(&self, step: u32) {}
 pub fn request(&self, step: u32) -> Result<Vec<u8>, Error> { todo!() } pub fn accept(&self, step: u32, reply: &[u8]) -> Result<(), Error> { todo!() } }
pub struct OfflineServer;
impl OfflineServer { pub fn new(model: Arc<HybridModel>, garbler: Party, records: Arc<dyn Records>) -> Result<Self, Error> { todo!() }
 pub fn is_complete(&self) -> bool { true } pub fn answer(&self, step: u32, request: &[u8]) -> Result<Vec<u8>, Error> { todo!() } }
pub struct OnlineClient;
impl OnlineClient { pub fn new(outline: Arc<Outline>, garbler: Party, records: Arc<dyn Records>, input: &[u64]) -> Result<Self, Error> { todo!() }
 pub fn pull(&mut self) -> Option<Vec<u8>> { None } pub fn push(&mut self, frame: &[u8]) -> Result<(), Error> { todo!() } pub fn output(&self) -> Option<&[u64]> { None } }
pub struct OnlineServer;
impl OnlineServer { pub fn new(model: Arc<HybridModel>, garbler: Party, records: Arc<dyn Records>) -> Result<Self, Error> { todo!() }
 pub fn pull(&mut self) -> Result<Option<Vec<u8>>, Error> { Ok(None) } pub fn push(&mut self, frame: &[u8]) -> Result<(), Error> { todo!() } pub fn is_done(&self) -> bool { true } }
#[derive(Clone, Debug, PartialEq)]
pub struct Terms { pub program: Program }
impl Terms { pub fn parse(bytes: &[u8]) -> Result<Self, Error> { todo!() } pub fn to_bytes(&self) -> Vec<u8> { todo!() } pub fn plan(&self) -> [u8; 32] { todo!() } pub fn program(&self) -> &Program { &self.program }
 pub fn encode(&self, input: &[f32]) -> Result<Vec<u64>, Error> { todo!() } pub fn decode(&self, output: &[u64]) -> Vec<f64> { todo!() } }
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head { pub id: [u8; 16], pub plan: [u8; 32], pub client_garbles: bool, pub role: Party }
pub struct StoreSpec { pub folder: std::path::PathBuf, pub bytes_max: u64, pub key: std::path::PathBuf }
pub struct Store; pub struct Writing; pub struct Taken;
#[derive(Debug, thiserror::Error)]
#[error("store")]
pub enum StoreError { Budget { bytes: u64, bytes_max: u64 }, Full, Record(#[from] RecordError) }
impl Store { pub fn open(spec: StoreSpec) -> Result<Self, StoreError> { todo!() } pub fn begin(&self, head: Head, sizes: &[u64]) -> Result<Writing, StoreError> { todo!() }
 pub fn take_id(&self, id: &[u8; 16]) -> Result<Option<Taken>, StoreError> { todo!() } pub fn list(&self) -> Vec<Head> { todo!() } pub fn discard(&self, id: &[u8; 16]) -> Result<(), StoreError> { todo!() } pub fn bytes(&self) -> u64 { 0 } }
impl Writing { pub fn commit(&self) -> Result<(), StoreError> { todo!() } }
impl Records for Writing { fn put(&self, r: usize, b: &[u8]) -> Result<(), RecordError> { todo!() } fn get(&self, r: usize) -> Result<Vec<u8>, RecordError> { todo!() } }
impl Taken { pub fn head(&self) -> Head { todo!() } }
impl Records for Taken { fn put(&self, r: usize, b: &[u8]) -> Result<(), RecordError> { todo!() } fn get(&self, r: usize) -> Result<Vec<u8>, RecordError> { todo!() } }
pub fn network_of(model: &hushtable_table::model::Model, json: &str) -> Result<(Terms, Weights), Error> { todo!() }
