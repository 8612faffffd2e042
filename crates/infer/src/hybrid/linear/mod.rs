//! Linear.
#![allow(missing_docs, unused)]
use super::program::Convolution;
use hushtable_mpc::Platform;
use std::sync::Arc;
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct Error;
pub struct Layers;
pub struct LinearClient;
pub struct LinearServer;
pub struct Prepared;
impl Layers {
    pub fn new(
        lattice: &str,
        bits: u32,
        convolutions: &[Convolution],
        platform: Platform,
    ) -> Result<Self, Error> {
        todo!()
    }
    pub fn public_key_bytes(&self) -> usize {
        0
    }
    pub fn uploads(&self, conv: usize) -> usize {
        0
    }
    pub fn upload_bytes(&self, conv: usize, chunk: usize) -> usize {
        0
    }
    pub fn units(&self, conv: usize) -> usize {
        0
    }
    pub fn unit_bytes(&self, conv: usize, unit: usize) -> usize {
        0
    }
}
impl Prepared {
    pub fn new(l: Arc<Layers>, w: &[Vec<i32>]) -> Result<Self, Error> {
        todo!()
    }
}
impl LinearClient {
    pub fn new(layers: Arc<Layers>, seed: &[u8; 32]) -> Result<Self, Error> {
        todo!()
    }
    pub fn public_key(&self) -> Vec<u8> {
        todo!()
    }
    pub fn upload(&self, conv: usize, chunk: usize, tensor: &[u64]) -> Result<Vec<u8>, Error> {
        todo!()
    }
    pub fn open(
        &self,
        conv: usize,
        unit: usize,
        reply: &[u8],
        out: &mut [u64],
    ) -> Result<(), Error> {
        todo!()
    }
}
impl LinearServer {
    pub fn new(
        layers: Arc<Layers>,
        weights: Arc<Prepared>,
        seed: &[u8; 32],
        public_key: &[u8],
    ) -> Result<Self, Error> {
        todo!()
    }
    pub fn accept(&self, conv: usize, chunk: usize, bytes: &[u8]) -> Result<(), Error> {
        todo!()
    }
    pub fn answer(&self, conv: usize, unit: usize, share: &[u64]) -> Result<Vec<u8>, Error> {
        todo!()
    }
}
pub fn convolve(conv: &Convolution, weights: &[i32], x: &[u64], out: &mut [u64]) {}
