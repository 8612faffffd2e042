//! Some inferences that are being dealt for, round by round.

use hushtable_mpc::Secret;
use hushtable_mpc::compare::joint::Making;
use hushtable_mpc::compare::{Half, Prg};
use hushtable_mpc::ot::{Mutual, choice_bytes};
use std::ops::Range;
use zeroize::Zeroizing;

use super::bits::{Bits, Numbers};
use super::error::{DealError, taken};
use super::parts::{Part, Relu};
use super::precompute::{Id, Precompute};
use crate::shares::outline::Outline;
use crate::shares::stream::{Stream, dealt_stream, random_seed};

/// One server's end of a batch.
pub(super) struct Deal {
    half: Half,
    prg: Prg,
    /// The hash of what both deal for, here and now.
    terms: [u8; 32],
    outline: [u8; 32],
    drafts: Vec<Draft>,
    stage: Stage,
    /// Keys of each chunk: of which inference and step, and which.
    chunks: std::vec::IntoIter<Vec<(usize, usize, Range<usize>)>>,
    /// Those of this chunk.
    making: Vec<(usize, usize, Making)>,
    made: Vec<Precompute>,
}

/// What the next message is of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    /// The terms, and choices by all bits that are shared.
    Choices,
    /// Bits that become numbers, and products of vectors.
    Numbers,
    /// m, and products with it.
    Masked,
    /// Vectors with a one at each r's place in its leaf.
    Units,
    /// Correction words.
    Trees,
    /// A hash of what was made.
    Made,
}

/// One inference.
struct Draft {
    seed: Secret<[u8; 32]>,
    /// ρ of each bit of the rows.
    rows: Numbers,
    parts: Vec<Part>,
}

impl Draft {
    fn new(outline: &Outline, half: Half) -> Result<Self, DealError> {
        let random = || random_seed().map_err(|error| DealError::Outline(Box::new(error)));
        let seed = random()?;
        let own = random()?;
        // What the online machine makes of the seed; the rest is not kept.
        let mut kept = dealt_stream(seed.expose());
        let mut own = Stream::new(own.expose(), OWN);
        let rows = Numbers::new(Bits::new(kept.bits(outline.looked_bits()), false), 1);
        let parts = outline.steps.iter().map(|it| Part::new(*it, half, &mut kept, &mut own));
        let parts = parts.collect();
        Ok(Self { seed, rows, parts })
    }

    fn bits(&mut self) -> impl Iterator<Item = &mut Bits> {
        std::iter::once(&mut self.rows.bits).chain(self.parts.iter_mut().flat_map(Part::bits))
    }
}

impl Deal {
    pub fn new(
        prg: Prg,
        half: Half,
        outline: &Outline,
        count: usize,
        terms: [u8; 32],
    ) -> Result<Self, DealError> {
        let drafts = (0..count).map(|_| Draft::new(outline, half));
        let drafts = drafts.collect::<Result<Vec<_>, _>>()?;
        Ok(Self {
            half,
            prg,
            terms,
            outline: outline.hash(),
            drafts,
            stage: Stage::Choices,
            chunks: Vec::new().into_iter(),
            making: Vec::new(),
            made: Vec::new(),
        })
    }

    pub(super) fn relus(&mut self) -> impl Iterator<Item = &mut Relu> {
        self.drafts.iter_mut().flat_map(|draft| &mut draft.parts).filter_map(Part::relu)
    }

    /// The next message.
    pub fn send(&mut self, mutual: &mut Mutual) -> Vec<u8> {
        let half = self.half;
        match self.stage {
            Stage::Choices => {
                let mut own = Zeroizing::new(Vec::new());
                for bits in self.drafts.iter_mut().flat_map(Draft::bits) {
                    own.extend_from_slice(&bits.own()[..bits.choices(half)]);
                }
                let (labels, message) = mutual.choose(&own);
                let mut labels = &labels[..];
                for bits in self.drafts.iter_mut().flat_map(Draft::bits) {
                    bits.choose(half, &mut labels);
                }
                [&self.terms, &message[..]].concat()
            }
            Stage::Numbers => {
                let mut message = Vec::new();
                for draft in &mut self.drafts {
                    message.extend(draft.rows.send(half, mutual));
                    for part in &mut draft.parts {
                        message.extend(part.send_numbers(half, mutual));
                    }
                }
                message
            }
            Stage::Masked => self.relus().flat_map(|it| it.send_masked(half, mutual)).collect(),
            Stage::Units => self.relus().flat_map(|it| it.send_units(mutual)).collect(),
            Stage::Trees => {
                self.making.iter_mut().flat_map(|(.., making)| making.send(mutual)).collect()
            }
            Stage::Made => {
                self.made = self.finish();
                self.hash().to_vec()
            }
        }
    }

    /// Takes the other server's message; what was made, once it is over.
    pub fn take(
        &mut self,
        mutual: &mut Mutual,
        message: &[u8],
    ) -> Result<Option<Vec<Precompute>>, DealError> {
        let (half, mut rest) = (self.half, message);
        match self.stage {
            Stage::Choices => {
                let other = other(half);
                if taken(&mut rest, self.terms.len())? != self.terms {
                    return Err(DealError::Terms);
                }
                let bits = self.drafts.iter_mut().flat_map(Draft::bits);
                let count = bits.map(|bits| bits.choices(other)).sum();
                let zeros = mutual.chosen(count, taken(&mut rest, choice_bytes(count))?)?;
                let mut zeros = &zeros[..];
                for bits in self.drafts.iter_mut().flat_map(Draft::bits) {
                    bits.offer(other, &mut zeros);
                }
            }
            Stage::Numbers => {
                for draft in &mut self.drafts {
                    draft.rows.take(half, mutual, &mut rest)?;
                    for part in &mut draft.parts {
                        part.take_numbers(half, mutual, &mut rest)?;
                    }
                }
            }
            Stage::Masked => {
                self.relus().try_for_each(|it| it.take_masked(half, mutual, &mut rest))?;
            }
            Stage::Units => self.relus().try_for_each(|it| it.take_units(mutual, &mut rest))?,
            Stage::Trees => {
                for (.., making) in &mut self.making {
                    let message = taken(&mut rest, making.message_bytes())?;
                    making.take(mutual, message)?;
                }
            }
            Stage::Made => {
                if taken(&mut rest, 32)? != self.hash() {
                    return Err(DealError::Disagree);
                }
            }
        }
        if !rest.is_empty() {
            let found = message.len();
            return Err(DealError::Bytes { expected: found - rest.len(), found });
        }
        Ok(self.go_on())
    }

    /// Goes to the next stage that has anything to say.
    fn go_on(&mut self) -> Option<Vec<Precompute>> {
        let has_relus = self.relus().next().is_some();
        self.stage = match self.stage {
            Stage::Choices => Stage::Numbers,
            Stage::Numbers if has_relus => Stage::Masked,
            Stage::Numbers => Stage::Made,
            Stage::Masked => Stage::Units,
            stage => stage,
        };
        if self.stage == Stage::Units && self.relus().all(|it| it.has_units()) {
            self.chunks = self.chunks().into_iter();
            self.stage = Stage::Trees;
        }
        if self.stage == Stage::Trees && self.making.iter().all(|(.., making)| making.is_done()) {
            self.next_chunk();
        }
        match self.stage {
            Stage::Made if !self.made.is_empty() => Some(std::mem::take(&mut self.made)),
            _ => None,
        }
    }

    fn next_chunk(&mut self) {
        for (draft, part, making) in std::mem::take(&mut self.making) {
            if let Some(relu) = self.drafts[draft].parts[part].relu() {
                relu.made(making);
            }
        }
        match self.chunks.next() {
            None => self.stage = Stage::Made,
            Some(chunk) => {
                for (draft, part, range) in chunk {
                    if let Some(relu) = self.drafts[draft].parts[part].relu() {
                        let making = relu.make(self.prg, self.half, range);
                        self.making.push((draft, part, making));
                    }
                }
            }
        }
    }

    /// All keys, in chunks whose trees are in memory at once.
    fn chunks(&mut self) -> Vec<Vec<(usize, usize, Range<usize>)>> {
        let mut chunks = vec![Vec::new()];
        let mut room = TREES_BYTES_MAX;
        for (draft, own) in self.drafts.iter_mut().enumerate() {
            for (part, own) in own.parts.iter_mut().enumerate() {
                let Some(relu) = own.relu() else { continue };
                let (count, bytes) =
                    (relu.gates.count, Making::state_bytes(relu.gates.comparisons()));
                let mut start = 0;
                while start < count {
                    if room < bytes {
                        chunks.push(Vec::new());
                        room = TREES_BYTES_MAX;
                    }
                    let end = count.min(start + room / bytes);
                    room -= (end - start) * bytes;
                    chunks.last_mut().expect("one at least").push((draft, part, start..end));
                    start = end;
                }
            }
        }
        chunks
    }

    /// What this server keeps of each inference.
    fn finish(&self) -> Vec<Precompute> {
        let precompute = |(number, draft): (usize, &Draft)| {
            let (mut common, mut given) = (Vec::new(), Zeroizing::new(Vec::new()));
            given.extend(draft.rows.shares.iter().flat_map(|it| it.to_le_bytes()));
            draft.parts.iter().for_each(|part| part.finish(&mut common, &mut given));
            let id = self.id(number);
            Precompute::new(self.half, id, &self.outline, [draft.seed.expose(), &common, &given])
        };
        self.drafts.iter().enumerate().map(precompute).collect()
    }

    /// What both servers call an inference of this batch.
    fn id(&self, number: usize) -> Id {
        let hash = blake3::keyed_hash(&self.terms, &(number as u64).to_le_bytes());
        std::array::from_fn(|place| hash.as_bytes()[place])
    }

    /// A hash of what both servers have of all that was made.
    fn hash(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new_keyed(&self.terms);
        hasher.update(b"made");
        for made in &self.made {
            hasher.update(made.common());
        }
        hasher.finalize().into()
    }
}

/// The other server's side.
pub(super) fn other(half: Half) -> Half {
    match half {
        Half::Left => Half::Right,
        Half::Right => Half::Left,
    }
}

const OWN: &str = "hushtable shares 2026-11 drawn by a server";
/// Bytes of trees in memory at once.
const TREES_BYTES_MAX: usize = 64 << 20;
