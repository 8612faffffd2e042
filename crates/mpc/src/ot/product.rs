//! Products of one party's bits with the other's numbers, and of bits that both share with numbers that both share.
//!
//! The receiver chose a label by its bit b, q ⊕ bΔ; the sender has a vector v. With pads h0 = H(q) and h1 = H(q ⊕ Δ), the
//! sender keeps −h0 and sends v + h0 − h1; the receiver has h_b, and adds what was sent if b is 1: h0 + b · v. So the two
//! have shares of b · v (Gilboa, "Two Party RSA Key Generation", CRYPTO 1999, with correlated transfers; Asharov, Lindell,
//! Schneider and Zohner, CCS 2013). Sums are taken modulo 2^32, or by XOR ([`Group`]).
//!
//! H(x, t) = π(π(x) ⊕ t) ⊕ π(x), as [garbling](crate::garble) has it, where its bound and its source stand. Under one Δ
//! no tweak t comes twice: both parties count the pads of either way. So a label may serve for any number of products.
//!
//! **What each party sees.** The sender nothing. The receiver v + h0 − h1, of which it knows one pad: the other is H of a
//! label that is Δ away from its own, so that what was sent is uniform to whoever does not know Δ, whatever b and v are.

use zeroize::{Zeroize, Zeroizing};

use super::mutual::Mutual;
use super::{Error, check_length};
use crate::Block;
use crate::kernel::gates::hash;

/// How shares are added up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(clippy::exhaustive_enums, reason = "whoever computes does both")]
pub enum Group {
    /// Bit by bit.
    Xor,
    /// Modulo 2^32.
    Add,
}

impl Group {
    fn add(self, x: u32, y: u32) -> u32 {
        match self {
            Self::Xor => x ^ y,
            Self::Add => x.wrapping_add(y),
        }
    }

    fn subtract(self, x: u32, y: u32) -> u32 {
        match self {
            Self::Xor => x ^ y,
            Self::Add => x.wrapping_sub(y),
        }
    }
}

/// Bits that the two share by XOR, with labels that each chose by its own. Where labels of one way alone are needed, the
/// others may be missing.
#[derive(Clone, Default)]
#[allow(missing_debug_implementations, reason = "it holds secrets")]
pub struct SharedBits {
    own: Vec<u8>,
    chosen: Vec<Block>,
    offered: Vec<Block>,
}

impl SharedBits {
    /// This party's bits, one a byte, the labels that it chose by them and the zero labels of the other's.
    ///
    /// # Panics
    /// Unless there is a label for each bit, or none of a way.
    pub fn new(own: &[u8], chosen: &[Block], offered: &[Block]) -> Self {
        for labels in [chosen, offered] {
            assert!(labels.is_empty() || labels.len() == own.len(), "a label for each bit");
        }
        Self { own: own.to_vec(), chosen: chosen.to_vec(), offered: offered.to_vec() }
    }

    /// This party's bits.
    pub fn own(&self) -> &[u8] {
        &self.own
    }

    /// The labels that this party chose.
    pub fn chosen(&self) -> &[Block] {
        &self.chosen
    }

    /// The zero labels of the other party's bits.
    pub fn offered(&self) -> &[Block] {
        &self.offered
    }

    /// The bits at these places.
    ///
    /// # Panics
    /// For a place that there is not.
    pub fn at(&self, places: impl Iterator<Item = usize> + Clone) -> Self {
        let labels = |labels: &[Block]| match labels {
            [] => Vec::new(),
            labels => places.clone().map(|place| labels[place]).collect(),
        };
        let own = places.clone().map(|place| self.own[place]).collect();
        Self { own, chosen: labels(&self.chosen), offered: labels(&self.offered) }
    }
}

impl Drop for SharedBits {
    fn drop(&mut self) {
        self.own.zeroize();
        self.chosen.zeroize();
        self.offered.zeroize();
    }
}

impl Mutual {
    /// Offers vectors of as many numbers for each of the other party's bits, whose zero labels these are: gives this
    /// party's shares of bit · vector, and the message to send.
    ///
    /// # Panics
    /// Unless there are as many numbers for each label.
    pub fn offer(
        &mut self,
        group: Group,
        zeros: &[Block],
        values: &[u32],
    ) -> (Zeroizing<Vec<u32>>, Vec<u8>) {
        let width = width(zeros, values);
        let delta = self.sender.delta();
        let first = self.claim(0, zeros.len(), width);
        let mut shares = pads(zeros, 0, width, first);
        let ones = pads(zeros, delta, width, first);
        let mut message = Vec::with_capacity(4 * values.len());
        for ((share, one), value) in shares.iter_mut().zip(ones.iter()).zip(values) {
            let sent = group.subtract(group.add(*value, *share), *one);
            message.extend(sent.to_le_bytes());
            *share = group.subtract(0, *share);
        }
        (shares, message)
    }

    /// Takes what the other party offered for this party's bits, `width` numbers each: gives this party's shares.
    ///
    /// # Errors
    /// [`Error`] for a message of another length.
    ///
    /// # Panics
    /// Unless there is a label for each bit.
    pub fn accept(
        &mut self,
        group: Group,
        labels: &[Block],
        bits: &[u8],
        width: usize,
        message: &[u8],
    ) -> Result<Zeroizing<Vec<u32>>, Error> {
        assert_eq!(labels.len(), bits.len(), "a label for each bit");
        check_length("products", message, 4 * width * labels.len())?;
        let first = self.claim(1, labels.len(), width);
        let mut shares = pads(labels, 0, width, first);
        let (sent, _) = message.as_chunks();
        let each = shares.chunks_exact_mut(width.max(1)).zip(sent.chunks_exact(width.max(1)));
        for ((shares, sent), bit) in each.zip(bits) {
            let mask = mask(*bit);
            for (share, sent) in shares.iter_mut().zip(sent) {
                *share = group.add(*share, u32::from_le_bytes(*sent) & mask);
            }
        }
        Ok(shares)
    }

    /// Begins to multiply bits that both share with vectors that both share in `group`: `values` are this party's shares.
    /// Gives what this party has of the products so far, for [`multiplied`](Self::multiplied), and the message to send.
    ///
    /// # Panics
    /// Unless there are as many numbers for each bit, and offered labels.
    pub fn multiply(
        &mut self,
        group: Group,
        bits: &SharedBits,
        values: &[u32],
    ) -> (Zeroizing<Vec<u32>>, Vec<u8>) {
        let width = width(&bits.offered, values);
        let each = || values.chunks_exact(width.max(1)).zip(&bits.own);
        // With a and b the parties' bits, a ⊕ b is a + b · (1 − 2a): modulo 2^32 what b is multiplied with has a's sign.
        let offered = each().flat_map(|(values, bit)| {
            let negative = match group {
                Group::Xor => 0,
                Group::Add => mask(*bit),
            };
            values.iter().map(move |value| (value ^ negative).wrapping_sub(negative))
        });
        let offered = Zeroizing::new(offered.collect::<Vec<u32>>());
        let (mut shares, message) = self.offer(group, &bits.offered, &offered);
        let own = each().flat_map(|(values, bit)| values.iter().map(|value| value & mask(*bit)));
        for (share, own) in shares.iter_mut().zip(own) {
            *share = group.add(*share, own);
        }
        (shares, message)
    }

    /// Ends it: `shares` are of [`multiply`](Self::multiply), or zeros of a party that had no numbers.
    ///
    /// # Errors
    /// [`Error`] for a message of another length.
    pub fn multiplied(
        &mut self,
        group: Group,
        bits: &SharedBits,
        shares: &mut [u32],
        message: &[u8],
    ) -> Result<(), Error> {
        let width = width(&bits.chosen, shares);
        let others = self.accept(group, &bits.chosen, &bits.own, width, message)?;
        for (share, other) in shares.iter_mut().zip(others.iter()) {
            *share = group.add(*share, *other);
        }
        Ok(())
    }

    /// The first tweak of so many pads of a way, which no other pads have.
    fn claim(&mut self, way: usize, labels: usize, width: usize) -> u128 {
        let first = self.tweaks[way];
        self.tweaks[way] += (labels * blocks(width)) as u128;
        first
    }
}

/// Numbers for each label.
fn width(labels: &[Block], values: &[u32]) -> usize {
    let width = values.len().checked_div(labels.len()).unwrap_or(0);
    assert_eq!(values.len(), width * labels.len(), "as many numbers for each label");
    width
}

/// Blocks of a pad.
fn blocks(width: usize) -> usize {
    width.div_ceil(WORDS)
}

/// The pads of labels, each ⊕ `delta`, of `width` numbers each.
fn pads(labels: &[Block], delta: Block, width: usize, first: u128) -> Zeroizing<Vec<u32>> {
    let each = self::blocks(width);
    let mut blocks = Zeroizing::new(Vec::with_capacity(each * labels.len()));
    for label in labels {
        blocks.extend(std::iter::repeat_n(label ^ delta, each));
    }
    hash(&mut blocks, first);
    let mut pads = Zeroizing::new(vec![0; width * labels.len()]);
    let of_labels = blocks.chunks_exact(each.max(1)).zip(pads.chunks_exact_mut(width.max(1)));
    for (blocks, pads) in of_labels {
        for (block, pads) in blocks.iter().zip(pads.chunks_mut(WORDS)) {
            for (word, pad) in pads.iter_mut().enumerate() {
                *pad = (block >> (32 * word)) as u32;
            }
        }
    }
    pads
}

/// All ones of a 1. Opaque to the compiler, which could otherwise branch on the bit.
fn mask(bit: u8) -> u32 {
    u32::from(std::hint::black_box(bit) & 1).wrapping_neg()
}

/// Numbers of a block.
const WORDS: usize = 4;
