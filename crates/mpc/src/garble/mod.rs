//! Garbled circuits.
#![allow(missing_docs, unused)]
use crate::{Block, Platform};
#[derive(Debug, thiserror::Error)]
#[error("x")]
pub struct Error;
#[derive(Clone, Debug)]
pub struct ActivationSpec { pub bits: u32, pub dropped: u32, pub shift: u32, pub window: usize, pub rectify: bool }
#[derive(Clone)]
pub struct Activation(ActivationSpec);
impl Activation {
  pub fn new(spec: ActivationSpec) -> Result<Self, Error> { Ok(Self(spec)) }
  pub fn spec(&self) -> &ActivationSpec { &self.0 }
  pub fn share_bits(&self) -> usize { 0 }
  pub fn wires(&self) -> usize { 0 }
  pub fn and_gates(&self) -> usize { 0 }
  pub fn table_bytes(&self) -> usize { 0 }
  pub fn clear(&self, evaluator: &[u64], garbler: &[u64]) -> Vec<u64> { vec![] }
  pub fn choices(&self, shares: &[u64]) -> Vec<u16> { vec![] }
}
pub fn groups(count: usize) -> usize { count.div_ceil(16) }
#[allow(clippy::too_many_arguments)]
pub fn garble(activation:&Activation, platform:Platform, delta:Block, first_instance:u64, garbler_zeros:&[Block], evaluator_zeros:&[Block], tables:&mut[u8], masks:&mut[u64]) {}
pub fn evaluate(activation:&Activation, platform:Platform, first_instance:u64, garbler_labels:&[Block], evaluator_labels:&[Block], tables:&[u8], out:&mut[u64]) {}
pub fn select(platform: Platform, delta:Block, zeros:&[Block], choices:&[u16], out:&mut[Block]) {}
pub fn labels(platform: Platform, seed:&[u8;16], first:u64, out:&mut[Block]) {}
