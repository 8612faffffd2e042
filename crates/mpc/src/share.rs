//! Shares.
#![allow(missing_docs, unused)]
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct Error;
pub fn pack(values: &[u64], bits: u32) -> Vec<u8> { todo!() }
pub fn unpack(bytes: &[u8], bits: u32, out: &mut [u64]) -> Result<(), Error> { todo!() }
