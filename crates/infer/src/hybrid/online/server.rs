//! The server's half of the online phase.

use std::collections::VecDeque;
use std::sync::Arc;

use hushtable_mpc::Party;
use hushtable_mpc::garble::{evaluate, labels, select};
use hushtable_mpc::ot::CotReceiver;
use hushtable_mpc::share::{pack, packed_bytes, unpack};

use super::super::clock::{Clock, Work};
use super::super::error::Error;
use super::super::linear::convolve_modulo;
use super::super::model::HybridModel;
use super::super::outline::Chunk;
use super::super::program::Term;
use super::super::seeds::{self, Seed};
use super::super::windows::add_share;
use super::client::check_tables;
use super::message::{Incoming, cut, label_bytes, read_labels};
use crate::records::Records;

/// The server's half of one prediction.
pub struct OnlineServer {
    model: Arc<HybridModel>,
    garbler: Party,
    records: Arc<dyn Records>,
    seed: Seed,
    /// Where the client garbles.
    receiver: Option<CotReceiver>,
    outbox: VecDeque<Vec<u8>>,
    input: Option<Incoming>,
    /// The server's shares of tensors; empty where they are not known yet, or not needed any more.
    tensors: Vec<Vec<u64>>,
    /// Its share of the current stage's sum, in which each activation's windows are.
    sum: Vec<u64>,
    stage: usize,
    /// The next chunk to be sent something for, and the next to be heard of.
    to_send: usize,
    to_take: usize,
    is_done: bool,
    clock: Clock,
}

impl OnlineServer {
    /// Uses up a precompute.
    ///
    /// # Errors
    /// [`Error::Record`], [`Error::Ot`] for a precompute that is damaged.
    pub fn new(
        model: Arc<HybridModel>,
        garbler: Party,
        records: Arc<dyn Records>,
    ) -> Result<Self, Error> {
        let (seed, receiver) = seeds::read_meta(&records.get(0)?, garbler, Party::Server)?;
        let program = model.outline().program();
        let bytes = packed_bytes(program.bits, program.input.count());
        let tensors = vec![Vec::new(); program.stages.len()];
        Ok(Self {
            garbler,
            records,
            seed,
            receiver,
            outbox: VecDeque::new(),
            input: Some(Incoming::new("the hidden input", bytes)),
            tensors,
            sum: Vec::new(),
            stage: 0,
            to_send: 0,
            to_take: 0,
            is_done: false,
            clock: Clock::default(),
            model,
        })
    }

    /// The next frame for the client; none until another came from it. Computes for up to some
    /// milliseconds.
    ///
    /// # Errors
    /// [`Error::Record`].
    pub fn pull(&mut self) -> Result<Option<Vec<u8>>, Error> {
        if self.input.is_none() && self.to_send < self.model.outline().chunks_of(self.stage).end {
            let frame = match self.garbler {
                Party::Server => self.labels_of(self.to_send),
                Party::Client => self.moves_of(self.to_send),
            };
            self.to_send += 1;
            return Ok(Some(frame));
        }
        Ok(self.outbox.pop_front())
    }

    /// Takes a frame from the client. At a stage's end computes the next one, for up to a second.
    ///
    /// # Errors
    /// [`Error::Bytes`] for one of another length, [`Error::Order`] for one after the end; [`Error::Record`]
    /// for a precompute that is damaged.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), Error> {
        let model = Arc::clone(&self.model);
        let program = model.outline().program();
        if let Some(input) = &mut self.input {
            if let Some(bytes) = input.push(frame)? {
                self.tensors[0] = unpack(program.bits, program.input.count(), &bytes)?;
                self.input = None;
                self.add_up();
            }
            return Ok(());
        }
        let chunks = model.outline().chunks_of(self.stage);
        if self.is_done || self.to_take >= self.to_send.min(chunks.end) {
            let (what, why) = ("a frame".to_owned(), "what it answers");
            return Err(Error::Order { what, why });
        }
        let chunk = &model.outline().chunks()[self.to_take];
        let values = match self.garbler {
            Party::Server => self.unmask(chunk, frame)?,
            Party::Client => self.evaluate(chunk, frame)?,
        };
        self.tensors[self.stage + 1][chunk.range.clone()].copy_from_slice(&values);
        self.to_take += 1;
        if self.to_take == chunks.end {
            self.stage += 1;
            self.add_up();
        }
        Ok(())
    }

    /// Whether every frame was sent.
    pub fn is_done(&self) -> bool {
        self.is_done && self.outbox.is_empty()
    }

    /// Where the time went.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    /// The server's share of the current stage's sum; at the end, the answer.
    fn add_up(&mut self) {
        let model = Arc::clone(&self.model);
        let (outline, program) = (model.outline(), model.outline().program());
        let stage = &program.stages[self.stage];
        let mut sum = vec![0u64; stage.sum.count()];
        self.clock.time(Work::Shares, || {
            let mut convolutions = outline.convolutions_of(self.stage);
            for term in &stage.terms {
                match term {
                    Term::Windows { source, .. } => {
                        add_share(term, &self.tensors[*source], &mut sum);
                    }
                    Term::Convolution { source, convolution, shift } => {
                        let index = convolutions.next().expect("one a term");
                        let mut product = seeds::share_of(&self.seed, outline, index);
                        let weights = &model.weights().convolutions[index];
                        let (platform, bits) = (outline.platform(), program.bits);
                        let source = &self.tensors[*source];
                        convolve_modulo(platform, bits, convolution, weights, source, &mut product);
                        for (sum, product) in sum.iter_mut().zip(product) {
                            *sum = sum.wrapping_add(product << shift);
                        }
                    }
                }
            }
            let biases = &model.weights().biases[self.stage];
            let plane = (stage.sum.height * stage.sum.width).max(1);
            for (plane, bias) in sum.chunks_exact_mut(plane).zip(biases) {
                for value in plane {
                    *value = value.wrapping_add(*bias as u64) & program.mask();
                }
            }
        });
        // What no later stage reads is not kept.
        for tensor in 0..=self.stage {
            let is_read = |term: &Term| match *term {
                Term::Windows { source, .. } | Term::Convolution { source, .. } => source == tensor,
            };
            let later = &program.stages[self.stage + 1..];
            if !later.iter().any(|stage| stage.terms.iter().any(is_read)) {
                self.tensors[tensor] = Vec::new();
            }
        }
        if self.stage + 1 == program.stages.len() {
            cut(&pack(program.bits, &sum), &mut self.outbox);
            self.is_done = true;
        } else {
            self.tensors[self.stage + 1] = vec![0; stage.output().count()];
        }
        self.sum = sum;
    }

    /// The server's shares of a chunk's windows.
    fn shares_of(&self, chunk: &Chunk) -> Vec<u64> {
        self.model.outline().gather(chunk).map(|index| self.sum[index]).collect()
    }

    /// The server garbled: labels for its shares.
    fn labels_of(&self, index: usize) -> Vec<u8> {
        let (outline, platform) = (self.model.outline(), self.model.outline().platform());
        let chunk = &outline.chunks()[index];
        let mut ours = vec![0; outline.labels(chunk)];
        let choices = outline.circuit(chunk).choices(&self.shares_of(chunk));
        self.clock.time(Work::Evaluation, || {
            let first = seeds::first_label(chunk);
            labels(platform, &seeds::labels(&self.seed), first, &mut ours);
            let zeros = ours.clone();
            select(platform, seeds::offset(&self.seed), &zeros, &choices, &mut ours);
        });
        label_bytes(&ours)
    }

    /// The client garbled: how far the server's shares are from what it chose its labels by.
    fn moves_of(&self, index: usize) -> Vec<u8> {
        let outline = self.model.outline();
        let chunk = &outline.chunks()[index];
        let spec = outline.circuit(chunk).spec();
        let bits = spec.bits - spec.dropped;
        let mask = u64::MAX >> (64 - bits);
        let chosen = seeds::choices_of(&self.seed, outline, index);
        let shares = self.shares_of(chunk).into_iter().zip(chosen);
        let moves = shares.map(|(share, chosen)| {
            (share >> spec.dropped).wrapping_sub(chosen >> spec.dropped) & mask
        });
        pack(bits, &moves.collect::<Vec<_>>())
    }

    /// The server garbled: takes its masks off what the client found.
    fn unmask(&self, chunk: &Chunk, frame: &[u8]) -> Result<Vec<u64>, Error> {
        let program = self.model.outline().program();
        let mut values = unpack(program.bits, chunk.count(), frame)?;
        let masks = self.records.get(1 + self.to_take)?;
        let masks = unpack(program.bits, chunk.count(), &masks)?;
        for (value, mask) in values.iter_mut().zip(masks) {
            *value = value.wrapping_sub(mask) & program.mask();
        }
        Ok(values)
    }

    /// The client garbled: evaluates a chunk, whose masks are the client's.
    fn evaluate(&self, chunk: &Chunk, frame: &[u8]) -> Result<Vec<u64>, Error> {
        let (outline, platform) = (self.model.outline(), self.model.outline().platform());
        let count = outline.labels(chunk);
        let theirs = read_labels(frame, count)?;
        let receiver = self.receiver.as_ref().expect("read where the client garbles");
        let mut ours = vec![0; count];
        self.clock.time(Work::Transfer, || {
            receiver.labels(platform, chunk.first_instance, &mut ours);
        });
        let tables = self.records.get(1 + self.to_take)?;
        check_tables(outline, chunk, &tables)?;
        let mut out = vec![0; chunk.count()];
        let first = seeds::first_circuit(receiver.session(), chunk);
        let circuit = outline.circuit(chunk);
        self.clock.time(Work::Evaluation, || {
            evaluate(circuit, platform, first, &theirs, &ours, &tables, &mut out);
        });
        Ok(out)
    }
}
