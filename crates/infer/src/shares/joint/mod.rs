//! Dealing by the two servers: they make what an inference takes themselves, beforehand, and no client can deal badly.
//!
//! What is made is what a client deals ([`client::deal`](super::client::deal)), so that an inference goes as it does with
//! a client's keys; of the client it takes shares of the dense features alone. Each server draws bits, of
//! which the XOR with the other's is what a dealer would draw, and by oblivious transfers both ways
//! ([`Mutual`]) they make shares of the rest, in messages that both send at once:
//!
//! 1. *Choices.* Each server chooses labels by its bits of each r, of each m and of its vectors R; right also by its bits
//!    of ρ and of the r of [lifts](super::lift). All later transfers are of these labels.
//! 2. *Numbers.* Bits become numbers: with a and b the servers' bits, a ⊕ b = a + b · (1 − 2a), where right has chosen by b
//!    and left offers 1 − 2a, times what the bit stands for. Sums of these are shares of −r and 2^K · r̂, so of A0 and A1,
//!    and of ρ. Of each two vectors R and R', both additively shared, each server chooses by the bits of its own R, and is
//!    offered the other's R' times what the bit stands for: shares of R·R' (Gilboa).
//! 3. *Masked.* m is shared by XOR, for r̂ is and C is drawn so: m = 1 ⊕ r̂ ⊕ C. Of m times (1, A0, A1) shares are made
//!    both ways.
//! 4. *Units*, up to six messages: shares of a vector with a one at r's place in its leaf.
//! 5. *Trees*, two messages a level and one for the leaves: comparison keys at r
//!    ([`compare::joint`](hushtable_mpc::compare::joint)). All gates of a chunk share messages; a chunk is as many as there is
//!    memory for.
//! 6. *Made.* Each server says a hash of the correction words, which both have: what was changed or lost on its way is
//!    found here, and before.
//!
//! The work is 2^(K−8) nodes a gate, so that K is bounded ([`GATE_BITS_MAX`]).
//!
//! **What a server sees.** The choices of the other one, which are uniform to it (the transfers' receiver). What it is
//! offered, each number under a pad that it does not know ([`ot`](hushtable_mpc::ot)). Correction words, which are a key's,
//! and a share of each that follows from its own. So a simulator that is given the server's own randomness and what it
//! keeps draws the rest at random: both servers' halves of a precompute are distributed as a dealer's, where a dealer
//! would have taken the server's randomness for its share. What a dealer gives a server says nothing of r, m, ρ and R
//! ([gate](super::gate), [convert](super::convert), [products](super::products)). No message depends on a model's weights,
//! on rows or on a client: there are none yet.
//!
//! **A server that deviates** while it deals is found out where it chooses inconsistently ([`ot`](hushtable_mpc::ot)), in both
//! directions and before anything is offered to it. Offers are not checked: a wrong one makes numbers wrong where the
//! other's bit is 1, and whether step 6 then fails tells that bit, of an r that hides an X where it does not. It can make keys
//! wrong, too. Both follow the protocol; where a client deals, more depends on the client, and less on that.
//!
//! A batch number of transfers and a tweak of a pad are never used twice: they are counted, and a session that ends is
//! never taken up again. A precompute serves one inference, and is kept until then where it is taken once ([`Stock`]).

mod bits;
mod deal;
mod error;
mod parts;
mod precompute;
mod stock;
#[cfg(test)]
mod tests;

use hushtable_mpc::Platform;
use hushtable_mpc::compare::{Half, Prg};
use hushtable_mpc::ot::{Mutual, MutualSetup, SetupStep};

use self::deal::Deal;
pub use self::error::{BATCH_MAX, DealError, GATE_BITS_MAX};
pub use self::precompute::{Id, Precompute};
pub use self::stock::{Stock, StockError};
pub use super::error::PrecomputeError;
use super::outline::{Outline, StepOutline};
use super::stream::PRG;

/// One server's end of a session of dealing: a machine over messages, of which both servers send one and then take one.
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct Dealer {
    half: Half,
    outline: Outline,
    /// Batches so far.
    batches: u64,
    state: State,
    /// This server's share of the first r of the last batch.
    #[cfg(test)]
    drawn: u32,
}

enum State {
    Setup(Box<MutualSetup>),
    Ready(Box<Mutual>),
    Deals(Box<Mutual>, Box<Deal>),
    Over,
}

/// What a session does next.
#[derive(Clone)]
#[allow(clippy::exhaustive_enums, reason = "whoever drives it does both")]
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub enum Progress {
    /// Sends this, and awaits the other server's message.
    Send(Vec<u8>),
    /// A batch is over, and this is this server's half of it, in an order that both have; nothing after the setup. Next
    /// is [`Dealer::deal`], of both.
    Ready(Vec<Precompute>),
}

/// That servers can deal for a model.
///
/// # Errors
/// [`DealError::Outline`] for an outline that no model has, [`DealError::Wide`].
pub fn check(outline: &Outline) -> Result<(), DealError> {
    outline.check().map_err(|error| DealError::Outline(Box::new(error)))?;
    for (step, it) in outline.steps.iter().enumerate() {
        match *it {
            StepOutline::Relu { bits, .. } if bits > GATE_BITS_MAX => {
                return Err(DealError::Wide { step, bits });
            }
            StepOutline::Relu { .. } | StepOutline::Lift { .. } | StepOutline::Products { .. } => {}
        }
    }
    Ok(())
}

impl Dealer {
    /// Begins a session for a model, and gives the first message.
    ///
    /// # Errors
    /// As [`check`]; [`DealError::Entropy`].
    pub fn start(half: Half, outline: &Outline) -> Result<(Self, Vec<u8>), DealError> {
        check(outline)?;
        let (setup, opening) = MutualSetup::new()?;
        let state = State::Setup(setup);
        let dealer = Self {
            half,
            outline: outline.clone(),
            batches: 0,
            state,
            #[cfg(test)]
            drawn: 0,
        };
        Ok((dealer, opening))
    }

    /// Begins to deal for so many inferences at once, and gives the first message. The other server does the same.
    ///
    /// # Errors
    /// [`DealError::Turn`] where something else is under way, or the session is over; [`DealError::Batch`].
    pub fn deal(&mut self, count: usize) -> Result<Vec<u8>, DealError> {
        if !(1..=BATCH_MAX).contains(&count) {
            return Err(DealError::Batch { found: count });
        }
        let State::Ready(mut mutual) = std::mem::replace(&mut self.state, State::Over) else {
            return Err(DealError::Turn);
        };
        let terms = self.terms(&mutual, count);
        self.batches += 1;
        let prg = Prg::new(PRG, Platform::detect());
        let mut deal = Box::new(Deal::new(prg, self.half, &self.outline, count, terms)?);
        #[cfg(test)]
        {
            self.drawn = deal.relus().next().map_or(0, |relu| relu.drawn[0]);
        }
        let message = deal.send(&mut mutual);
        self.state = State::Deals(mutual, deal);
        Ok(message)
    }

    /// Takes the other server's message.
    ///
    /// # Errors
    /// [`DealError`]: the session is over, and what was under way is wiped.
    pub fn step(&mut self, message: &[u8]) -> Result<Progress, DealError> {
        match std::mem::replace(&mut self.state, State::Over) {
            State::Setup(setup) => match setup.step(message)? {
                SetupStep::Send(setup, reply) => {
                    self.state = State::Setup(setup);
                    Ok(Progress::Send(reply))
                }
                SetupStep::Done(mutual) => {
                    self.state = State::Ready(mutual);
                    Ok(Progress::Ready(Vec::new()))
                }
            },
            State::Deals(mut mutual, mut deal) => match deal.take(&mut mutual, message)? {
                Some(made) => {
                    self.state = State::Ready(mutual);
                    Ok(Progress::Ready(made))
                }
                None => {
                    let reply = deal.send(&mut mutual);
                    self.state = State::Deals(mutual, deal);
                    Ok(Progress::Send(reply))
                }
            },
            State::Ready(_) | State::Over => Err(DealError::Turn),
        }
    }

    /// What a batch is: the same of both servers where they deal for one model, in one session, and for as many.
    fn terms(&self, mutual: &Mutual, count: usize) -> [u8; 32] {
        let [own, other] = mutual.sessions();
        let [first, second] = match self.half {
            Half::Left => [own, other],
            Half::Right => [other, own],
        };
        let mut hasher = blake3::Hasher::new_derive_key(TERMS);
        hasher.update(first).update(second).update(&self.outline.hash());
        hasher.update(&self.batches.to_le_bytes()).update(&(count as u64).to_le_bytes());
        hasher.finalize().into()
    }
}

const TERMS: &str = "hushtable shares 2026-11 terms of dealing";
