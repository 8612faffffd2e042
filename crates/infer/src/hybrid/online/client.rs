//! The client's half of the online phase.

use std::collections::VecDeque;
use std::sync::Arc;

use hushtable_mpc::Party;
use hushtable_mpc::garble::{evaluate, labels, select};
use hushtable_mpc::ot::CotReceiver;
use hushtable_mpc::share::{pack, packed_bytes, unpack};

use super::super::clock::{Clock, Work};
use super::super::error::Error;
use super::super::outline::{Chunk, Outline};
use super::super::seeds::{self, Seed, Use};
use super::message::{Incoming, cut, label_bytes, read_labels};
use crate::records::Records;

/// The client's half of one prediction.
pub struct OnlineClient {
    outline: Arc<Outline>,
    garbler: Party,
    records: Arc<dyn Records>,
    seed: Seed,
    /// Where the server garbles.
    receiver: Option<CotReceiver>,
    outbox: VecDeque<Vec<u8>>,
    /// The next chunk.
    chunk: usize,
    /// Masks of the tensor that the current stage gives, and which it is.
    masks: (usize, Vec<u64>),
    answer: Incoming,
    output: Option<Vec<u64>>,
    clock: Clock,
}

impl OnlineClient {
    /// Uses up a precompute for `input`: its numbers in fixed point, modulo 2^bits.
    ///
    /// # Errors
    /// [`Error::Input`] for another count; [`Error::Record`], [`Error::Ot`] for a precompute that is
    /// damaged.
    pub fn new(
        outline: Arc<Outline>,
        garbler: Party,
        records: Arc<dyn Records>,
        input: &[u64],
    ) -> Result<Self, Error> {
        let program = outline.program();
        let expected = program.input.count();
        if input.len() != expected {
            return Err(Error::Input { expected, found: input.len() });
        }
        let (seed, transfer) = seeds::read_meta(&records.get(0)?, garbler, Party::Client)?;
        let masks = seeds::numbers(&seed, Use::Masks, 0, expected, program.bits);
        let hidden = input.iter().zip(masks).map(|(x, mask)| x.wrapping_sub(mask) & program.mask());
        let mut outbox = VecDeque::new();
        cut(&pack(program.bits, &hidden.collect::<Vec<_>>()), &mut outbox);
        let answers = program.stages.last().map_or(0, |stage| stage.sum.count());
        let answer = Incoming::new("the answer", packed_bytes(program.bits, answers));
        Ok(Self {
            outline,
            garbler,
            records,
            seed,
            receiver: transfer,
            outbox,
            chunk: 0,
            masks: (0, Vec::new()),
            answer,
            output: None,
            clock: Clock::default(),
        })
    }

    /// The next frame for the server; none until another came from it.
    pub fn pull(&mut self) -> Option<Vec<u8>> {
        self.outbox.pop_front()
    }

    /// Takes a frame from the server. Computes for up to some milliseconds.
    ///
    /// # Errors
    /// [`Error::Bytes`] for one of another length, [`Error::Order`] for one after the end; [`Error::Record`]
    /// for a precompute that is damaged.
    pub fn push(&mut self, frame: &[u8]) -> Result<(), Error> {
        if self.output.is_some() {
            let why = "nothing: the answer was whole";
            return Err(Error::Order { what: "a frame".to_owned(), why });
        }
        let outline = Arc::clone(&self.outline);
        let Some(chunk) = outline.chunks().get(self.chunk) else {
            return self.take_answer(frame);
        };
        let reply = match self.garbler {
            Party::Server => self.evaluate(chunk, frame)?,
            Party::Client => self.choose(chunk, frame)?,
        };
        self.outbox.push_back(reply);
        self.chunk += 1;
        Ok(())
    }

    /// The server garbled: evaluates a chunk and hides the results.
    fn evaluate(&mut self, chunk: &Chunk, frame: &[u8]) -> Result<Vec<u8>, Error> {
        let (outline, platform) = (&self.outline, self.outline.platform());
        let program = outline.program();
        let circuit = outline.circuit(chunk);
        let count = outline.labels(chunk);
        let theirs = read_labels(frame, count)?;
        let receiver = self.receiver.as_ref().expect("read where the server garbles");
        let mut ours = vec![0; count];
        self.clock.time(Work::Transfer, || {
            receiver.labels(platform, chunk.first_instance, &mut ours);
        });
        let tables = self.records.get(2 + self.chunk)?;
        check_tables(outline, chunk, &tables)?;
        let mut out = vec![0; chunk.count()];
        let first = seeds::first_circuit(receiver.session(), chunk);
        self.clock.time(Work::Evaluation, || {
            evaluate(circuit, platform, first, &theirs, &ours, &tables, &mut out);
        });
        if self.masks.0 != chunk.stage + 1 {
            let tensor = chunk.stage + 1;
            let numbers = program.tensor(tensor).count();
            let draw = || seeds::numbers(&self.seed, Use::Masks, tensor, numbers, program.bits);
            self.masks = (tensor, self.clock.time(Work::Shares, draw));
        }
        for (value, mask) in out.iter_mut().zip(&self.masks.1[chunk.range.clone()]) {
            *value = value.wrapping_sub(*mask) & program.mask();
        }
        Ok(pack(program.bits, &out))
    }

    /// The client garbled: labels for its share, moved by what the server says.
    fn choose(&mut self, chunk: &Chunk, frame: &[u8]) -> Result<Vec<u8>, Error> {
        let (outline, platform) = (&self.outline, self.outline.platform());
        let circuit = outline.circuit(chunk);
        let spec = circuit.spec();
        let bits = spec.bits - spec.dropped;
        let count = chunk.count() * spec.window;
        let moves = unpack(bits, count, frame)?;
        let mut shares = unpack(bits, count, &self.records.get(3 + 2 * self.chunk)?)?;
        let mask = outline.program().mask();
        for (share, moved) in shares.iter_mut().zip(&moves) {
            // The circuit takes the highest bits.
            *share = (share.wrapping_add(*moved) << spec.dropped) & mask;
        }
        let mut ours = vec![0; outline.labels(chunk)];
        self.clock.time(Work::Evaluation, || {
            let first = seeds::first_label(chunk);
            labels(platform, &seeds::labels(&self.seed), first, &mut ours);
            let zeros = ours.clone();
            let choices = circuit.choices(&shares);
            select(platform, seeds::offset(&self.seed), &zeros, &choices, &mut ours);
        });
        Ok(label_bytes(&ours))
    }

    fn take_answer(&mut self, frame: &[u8]) -> Result<(), Error> {
        let Some(bytes) = self.answer.push(frame)? else {
            return Ok(());
        };
        let program = self.outline.program();
        let count = program.stages.last().map_or(0, |stage| stage.sum.count());
        let theirs = unpack(program.bits, count, &bytes)?;
        let ours = unpack(program.bits, count, &self.records.get(1)?)?;
        let sums = ours.iter().zip(theirs).map(|(x, y)| x.wrapping_add(y) & program.mask());
        self.output = Some(sums.collect());
        Ok(())
    }

    /// The answer, modulo 2^bits in the last stage's fraction, once it is whole.
    pub fn output(&self) -> Option<&[u64]> {
        self.output.as_deref()
    }

    /// Where the time went.
    pub fn clock(&self) -> &Clock {
        &self.clock
    }
}

/// Tables from the disk have the length that they were written with, or the program is another one.
pub(super) fn check_tables(outline: &Outline, chunk: &Chunk, tables: &[u8]) -> Result<(), Error> {
    let (expected, found) = (outline.table_bytes(chunk), tables.len());
    match expected == found {
        true => Ok(()),
        false => Err(Error::Bytes { what: "a kept chunk's tables", expected, found }),
    }
}
