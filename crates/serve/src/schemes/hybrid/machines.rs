//! What this scheme drives: the machines of the protocol, and what they keep.
#![allow(missing_docs, unused_variables, clippy::all, dead_code)]
pub use hushtable_infer::hybrid::program::{Program, Weights};
pub use hushtable_infer::hybrid::records::{Memory, RecordError};
pub use hushtable_infer::hybrid::{
    Error, HybridModel, Next, OfflineClient, OfflineServer, OnlineClient, OnlineServer, Outline,
    Parallel, Party, Records,
};
#[derive(Clone, Debug, PartialEq)]
pub struct Terms {
    pub program: Program,
}
impl Terms {
    pub fn parse(bytes: &[u8]) -> Result<Self, Error> {
        todo!()
    }
    pub fn to_bytes(&self) -> Vec<u8> {
        todo!()
    }
    pub fn plan(&self) -> [u8; 32] {
        todo!()
    }
    pub fn program(&self) -> &Program {
        &self.program
    }
    pub fn encode(&self, input: &[f32]) -> Result<Vec<u64>, Error> {
        todo!()
    }
    pub fn decode(&self, output: &[u64]) -> Vec<f64> {
        todo!()
    }
}
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    pub id: [u8; 16],
    pub plan: [u8; 32],
    pub client_garbles: bool,
    pub role: Party,
}
pub struct StoreSpec {
    pub folder: std::path::PathBuf,
    pub bytes_max: u64,
    pub key: std::path::PathBuf,
}
pub struct Store;
pub struct Writing;
pub struct Taken;
#[derive(Debug, thiserror::Error)]
#[error("store")]
pub enum StoreError {
    Budget { bytes: u64, bytes_max: u64 },
    Full,
    Record(#[from] RecordError),
}
impl Store {
    pub fn open(spec: StoreSpec) -> Result<Self, StoreError> {
        todo!()
    }
    pub fn begin(&self, head: Head, sizes: &[u64]) -> Result<Writing, StoreError> {
        todo!()
    }
    pub fn take_id(&self, id: &[u8; 16]) -> Result<Option<Taken>, StoreError> {
        todo!()
    }
    pub fn list(&self) -> Vec<Head> {
        todo!()
    }
    pub fn discard(&self, id: &[u8; 16]) -> Result<(), StoreError> {
        todo!()
    }
    pub fn bytes(&self) -> u64 {
        0
    }
}
impl Writing {
    pub fn commit(&self) -> Result<(), StoreError> {
        todo!()
    }
}
impl Records for Writing {
    fn put(&self, r: usize, b: &[u8]) -> Result<(), RecordError> {
        todo!()
    }
    fn get(&self, r: usize) -> Result<Vec<u8>, RecordError> {
        todo!()
    }
}
impl Taken {
    pub fn head(&self) -> Head {
        todo!()
    }
}
impl Records for Taken {
    fn put(&self, r: usize, b: &[u8]) -> Result<(), RecordError> {
        todo!()
    }
    fn get(&self, r: usize) -> Result<Vec<u8>, RecordError> {
        todo!()
    }
}
pub fn network_of(
    model: &hushtable_table::model::Model,
    json: &str,
) -> Result<(Terms, Weights), Error> {
    todo!()
}
