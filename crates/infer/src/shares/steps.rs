//! What the servers do together, step by step, whichever kind a step is of.

use hushtable_mpc::compare::{Half, Prg};

use super::dealt::Dealt;
use super::outline::StepOutline;
use super::stream::Stream;
use super::{Error, gate, lift, products};
use gate::Gates;
use lift::Lifts;
use products::Products;

/// Adds what a step takes to what both get and to what right is given; `own` is the dealer's randomness.
pub(super) fn deal(
    step: StepOutline,
    prg: Prg,
    own: &mut Stream,
    [left, right]: [&mut Stream; 2],
    common: &mut Vec<u8>,
    given: &mut Vec<u8>,
) {
    match step {
        StepOutline::Relu { count, bits } => {
            Gates { count, bits }.deal(prg, own, [left, right], common, given);
        }
        StepOutline::Lift { count, bits } => Lifts { count, bits }.deal(own, left, given),
        StepOutline::Products { vectors, dim } => {
            Products { vectors, dim }.deal(own, left, given);
        }
    }
}

/// What one server has for a step: used once.
pub(super) enum Keys {
    Relu(gate::Keys),
    Lift(lift::Keys),
    Products(products::Keys),
}

/// What comes of a step's first message.
pub(super) enum Opened {
    /// Its outputs.
    Outputs(Vec<u32>),
    /// Bits that are opened in a second message.
    Bits(Vec<u64>),
}

impl Keys {
    pub fn take(step: StepOutline, half: Half, dealt: &mut Dealt<'_>) -> Result<Self, Error> {
        Ok(match step {
            StepOutline::Relu { count, bits } => {
                Self::Relu(gate::Keys::take(Gates { count, bits }, half, dealt)?)
            }
            StepOutline::Lift { count, bits } => {
                Self::Lift(lift::Keys::take(Lifts { count, bits }, half, dealt)?)
            }
            StepOutline::Products { vectors, dim } => {
                Self::Products(products::Keys::take(Products { vectors, dim }, half, dealt)?)
            }
        })
    }

    /// This server's share of what is opened first.
    pub fn reveal(&self, x: &[u32]) -> Vec<u64> {
        match self {
            Self::Relu(keys) => keys.reveal(x),
            Self::Lift(keys) => keys.reveal(x),
            Self::Products(keys) => keys.reveal(x),
        }
    }

    /// What follows from it.
    pub fn opened(&self, prg: Prg, opened: &[u64]) -> Result<Opened, Error> {
        Ok(match self {
            Self::Relu(keys) => Opened::Bits(keys.select(prg, opened)?),
            Self::Lift(keys) => Opened::Outputs(keys.finish(opened)),
            Self::Products(keys) => Opened::Outputs(keys.finish(opened)),
        })
    }

    /// The outputs of a step that opens bits.
    pub fn selected(&self, opened: &[u64], selected: &[u64]) -> Result<Vec<u32>, Error> {
        match self {
            Self::Relu(keys) => Ok(keys.finish(opened, selected)),
            Self::Lift(_) | Self::Products(_) => Err(Error::Finished),
        }
    }
}
