//! OT.
#![allow(missing_docs, unused)]
use crate::{Block, Platform};
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct Error;
pub struct ReceiverSetup; pub struct SenderSetup; pub struct CotReceiver; pub struct CotSender;
impl ReceiverSetup { pub fn new(seed:&[u8;32]) -> (Self, Vec<u8>) { todo!() } pub fn finish(self, points:&[u8]) -> Result<(CotReceiver, Vec<u8>), Error> { todo!() } }
impl SenderSetup { pub fn new(seed:&[u8;32], delta:Block, opening:&[u8]) -> Result<(Self, Vec<u8>), Error>  { todo!() } pub fn finish(self, corrections:&[u8]) -> Result<CotSender, Error>  { todo!() } }
impl CotReceiver { pub const BYTES: usize = 3; pub fn extend(&self, platform: Platform, batch:u64, choices:&[u16], labels:&mut[Block]) -> Vec<u8> { todo!() } pub fn labels(&self, platform:Platform, batch:u64, labels:&mut[Block]) { todo!() } pub fn to_bytes(&self) -> Vec<u8> { todo!() } pub fn from_bytes(b: &[u8]) -> Result<Self, Error> { todo!() } }
impl CotSender { pub fn extend(&self, platform: Platform, batch:u64, corrections:&[u8], zeros:&mut[Block]) -> Result<(), Error> { todo!() } }
pub fn correction_bytes(labels: usize) -> usize { 0 }
