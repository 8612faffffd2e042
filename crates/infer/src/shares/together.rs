//! Both servers and the client in one place: for tests, measurements and examples.

use std::sync::Arc;
use std::time::{Duration, Instant};

use hushtable_mpc::compare::Half;

use super::client::{Dealt, Shared, deal, open};
use super::joint::{self, DealError, Dealer, Precompute};
use super::network::Network;
use super::server::{Progress, Server};
use super::stream::random_seed;
use super::{Error, Outline};

/// Both servers of one inference.
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct Session {
    /// Left's and right's half.
    pub servers: [Server; 2],
    /// What they send each other next.
    pub messages: [Vec<u8>; 2],
    /// What both sent in each round.
    pub sent: Vec<[Vec<u8>; 2]>,
    /// How long left and right took so far.
    pub took: [Duration; 2],
}

impl Session {
    /// Begins an inference with each server's XOR share of the rows.
    ///
    /// # Errors
    /// As [`Server::start`].
    pub fn start(network: &Arc<Network>, dealt: &Dealt, rows: [&[u8]; 2]) -> Result<Self, Error> {
        let zero = random_seed()?;
        let start = |half, dealt_to: &[u8], rows: &[u8]| {
            let (network, began) = (Arc::clone(network), Instant::now());
            let started =
                Server::start(network, half, &dealt.common, dealt_to, rows, zero.expose())?;
            Ok::<_, Error>((started, began.elapsed()))
        };
        let left = start(Half::Left, &dealt.left, rows[0])?;
        let right = start(Half::Right, &dealt.right, rows[1])?;
        Self::begun([left, right])
    }

    /// Begins one with what the servers made beforehand.
    ///
    /// # Errors
    /// As [`Server::start_precomputed`].
    pub fn start_precomputed(
        network: &Arc<Network>,
        precomputes: [&Precompute; 2],
        dense: &Shared,
        rows: [&[u8]; 2],
    ) -> Result<Self, Error> {
        let zero = random_seed()?;
        let start = |half, precompute: &Precompute, dense: &[u8], rows: &[u8]| {
            let (network, began) = (Arc::clone(network), Instant::now());
            let started =
                Server::start_precomputed(network, half, precompute, dense, rows, zero.expose())?;
            Ok::<_, Error>((started, began.elapsed()))
        };
        let left = start(Half::Left, precomputes[0], &dense.left, rows[0])?;
        let right = start(Half::Right, precomputes[1], &dense.right, rows[1])?;
        Self::begun([left, right])
    }

    fn begun(started: [((Server, Progress), Duration); 2]) -> Result<Self, Error> {
        let [((left, to_right), left_took), ((right, to_left), right_took)] = started;
        let (Progress::Send(to_right), Progress::Send(to_left)) = (to_right, to_left) else {
            return Err(Error::Finished);
        };
        Ok(Self {
            servers: [left, right],
            messages: [to_right, to_left],
            sent: Vec::new(),
            took: [left_took, right_took],
        })
    }

    /// Exchanges messages until both have a share of the logit.
    ///
    /// # Errors
    /// As [`Server::step`].
    pub fn finish(&mut self) -> Result<[Vec<u8>; 2], Error> {
        loop {
            let [left, right] = &mut self.servers;
            let [to_right, to_left] = &self.messages;
            let began = Instant::now();
            let of_left = left.step(to_left)?;
            let between = Instant::now();
            let outcomes = [of_left, right.step(to_right)?];
            self.took[0] += between - began;
            self.took[1] += between.elapsed();
            self.sent.push(std::mem::take(&mut self.messages));
            match outcomes {
                [Progress::Send(to_right), Progress::Send(to_left)] => {
                    self.messages = [to_right, to_left];
                }
                [Progress::Done(left), Progress::Done(right)] => return Ok([left, right]),
                _ => return Err(Error::Finished),
            }
        }
    }
}

/// The logit of one inference, whose rows are shared by XOR.
///
/// # Errors
/// As what it calls.
pub fn run(network: &Arc<Network>, dense: &[f64], rows: [&[u8]; 2]) -> Result<f64, Error> {
    let outline: &Outline = network.outline();
    let dealt = deal(outline, dense)?;
    let [left, right] = Session::start(network, &dealt, rows)?.finish()?;
    open(outline, &left, &right)
}

/// Both servers of a session of dealing.
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct Dealers {
    /// Left and right.
    pub servers: [Dealer; 2],
    /// What both sent in each round of the last batch.
    pub sent: Vec<[Vec<u8>; 2]>,
    /// How long left and right took for it.
    pub took: [Duration; 2],
}

impl Dealers {
    /// Meets.
    ///
    /// # Errors
    /// As [`Dealer::start`] and [`Dealer::step`].
    pub fn meet(outline: &Outline) -> Result<Self, DealError> {
        let (left, to_right) = Dealer::start(Half::Left, outline)?;
        let (right, to_left) = Dealer::start(Half::Right, outline)?;
        let took = [Duration::ZERO; 2];
        let mut dealers = Self { servers: [left, right], sent: Vec::new(), took };
        dealers.settle([to_right, to_left])?;
        Ok(dealers)
    }

    /// Deals for so many inferences: left's halves, and right's.
    ///
    /// # Errors
    /// As [`Dealer::deal`] and [`Dealer::step`].
    pub fn deal(&mut self, count: usize) -> Result<[Vec<Precompute>; 2], DealError> {
        self.sent.clear();
        self.took = [Duration::ZERO; 2];
        let [left, right] = &mut self.servers;
        let began = Instant::now();
        let to_right = left.deal(count)?;
        let between = Instant::now();
        let to_left = right.deal(count)?;
        self.took = [between - began, between.elapsed()];
        self.settle([to_right, to_left])
    }

    /// Exchanges messages until both are ready.
    fn settle(&mut self, mut messages: [Vec<u8>; 2]) -> Result<[Vec<Precompute>; 2], DealError> {
        loop {
            let [left, right] = &mut self.servers;
            let began = Instant::now();
            let of_left = left.step(&messages[1])?;
            let between = Instant::now();
            let of_right = right.step(&messages[0])?;
            self.took[0] += between - began;
            self.took[1] += between.elapsed();
            self.sent.push(messages);
            messages = match [of_left, of_right] {
                [joint::Progress::Send(to_right), joint::Progress::Send(to_left)] => {
                    [to_right, to_left]
                }
                [joint::Progress::Ready(left), joint::Progress::Ready(right)] => {
                    return Ok([left, right]);
                }
                _ => return Err(DealError::Turn),
            };
        }
    }
}
