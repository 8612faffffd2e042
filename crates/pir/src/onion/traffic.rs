//! Bytes that a schedule moves between memory and a scratchpad.
//!
//! A [`Ledger`] is a scheme that computes nothing: the very code of [`tree`](super::tree) runs over
//! it, and each ciphertext, key and selector that is touched is looked for in a scratchpad of limited
//! size, least recently used first out. What the paper's figure 8 compares are ratios of its totals.

use std::collections::BTreeMap;

use hushtable_rlwe::Parameters;
use hushtable_rlwe::scheme::Scheme;

use super::tree::{self, Node, Schedule, Subtree, Tournament};

/// Sizes of what moves, and of the scratchpad.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sizes {
    /// Bytes of a ciphertext.
    pub ciphertext: u64,
    /// Bytes of one level's key, or of a selector.
    pub key: u64,
    /// Bytes of the digits of one ciphertext, which a step needs beside its operands.
    pub digits: u64,
    /// Bytes of the scratchpad.
    pub scratchpad: u64,
}

impl Sizes {
    /// The sizes of expansion under `params`, each residue taking `residue_bits` bits.
    pub fn of_expansion(params: &Parameters, residue_bits: u64, scratchpad: u64) -> Self {
        let ring = params.ring();
        let poly = (ring.limbs() * ring.degree()) as u64 * residue_bits / 8;
        let digits = params.key_switch().digits() as u64;
        Self { ciphertext: 2 * poly, key: 2 * digits * poly, digits: digits * poly, scratchpad }
    }

    /// The sizes of a tournament.
    pub fn of_tournament(params: &Parameters, residue_bits: u64, scratchpad: u64) -> Self {
        let ring = params.answer_ring();
        let poly = (ring.limbs() * ring.degree()) as u64 * residue_bits / 8;
        let digits = 2 * params.selector().digits() as u64;
        Self { ciphertext: 2 * poly, key: 2 * digits * poly, digits: digits * poly, scratchpad }
    }

    /// With reduction overlapped: each digit is used up as soon as it is there, so that one
    /// polynomial's room is enough (Kim et al., "IVE", section IV-A).
    pub fn overlapped(self) -> Self {
        Self { digits: self.ciphertext / 2, ..self }
    }
}

/// Bytes moved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Moved {
    /// Ciphertexts read.
    pub ciphertext_reads: u64,
    /// Ciphertexts written.
    pub ciphertext_writes: u64,
    /// Keys or selectors read.
    pub key_reads: u64,
}

impl Moved {
    /// All of them.
    pub fn bytes(self) -> u64 {
        self.ciphertext_reads + self.ciphertext_writes + self.key_reads
    }
}

/// What expanding one query into `leaves` leaves moves.
pub fn of_expansion(schedule: Schedule, leaves: usize, sizes: Sizes) -> Moved {
    let levels = leaves.next_power_of_two().trailing_zeros();
    let mut ledger = Ledger::new(sizes);
    let ciphertext = ledger.stored();
    let root = vec![Node { residue: 0, ciphertext }];
    tree::expand(&mut ledger, schedule, root, (0, levels), leaves, &mut |ledger, node| {
        ledger.store(node.ciphertext);
    });
    ledger.moved
}

/// What a tournament of `columns` columns, which start in memory, moves.
pub fn of_tournament(schedule: Schedule, columns: u64, sizes: Sizes) -> Moved {
    let games = columns.next_power_of_two().trailing_zeros();
    let bits: Vec<usize> = (0..games as usize).collect();
    let mut ledger = Ledger::new(sizes);
    let mut tournament = Tournament::new(schedule, games);
    for index in 0..columns {
        let ciphertext = ledger.stored();
        tournament.push(&mut ledger, &bits, Subtree { level: 0, index, ciphertext });
    }
    for winner in tournament.finish(&mut ledger, &bits) {
        ledger.store(winner.ciphertext);
    }
    ledger.moved
}

/// A scheme that counts what is moved.
pub struct Ledger {
    sizes: Sizes,
    /// By last use: what is in the scratchpad.
    held: BTreeMap<u64, Held>,
    held_bytes: u64,
    clock: u64,
    names: u64,
    moved: Moved,
}

struct Held {
    item: Item,
    bytes: u64,
    is_newer_than_memory: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Item {
    Ciphertext(u64),
    Key(usize),
}

/// A ciphertext that the ledger follows.
pub struct Token(u64);

impl Ledger {
    fn new(sizes: Sizes) -> Self {
        let (held, moved) = (BTreeMap::new(), Moved::default());
        Self { sizes, held, held_bytes: 0, clock: 0, names: 0, moved }
    }

    /// A ciphertext that is in memory.
    fn stored(&mut self) -> Token {
        self.names += 1;
        Token(self.names)
    }

    /// Touches an item: reads it if it is not held and `is_read`, marks it newer if `is_written`.
    fn touch(&mut self, item: Item, is_read: bool, is_written: bool) {
        let found = self.held.iter().find(|(_, held)| held.item == item).map(|(&at, _)| at);
        let held = match found.and_then(|at| self.held.remove(&at)) {
            Some(held) => held,
            None => {
                let bytes = match item {
                    Item::Ciphertext(_) => self.sizes.ciphertext,
                    Item::Key(_) => self.sizes.key,
                };
                if is_read {
                    match item {
                        Item::Ciphertext(_) => self.moved.ciphertext_reads += bytes,
                        Item::Key(_) => self.moved.key_reads += bytes,
                    }
                }
                self.held_bytes += bytes;
                Held { item, bytes, is_newer_than_memory: false }
            }
        };
        let is_newer_than_memory = held.is_newer_than_memory || is_written;
        self.clock += 1;
        self.held.insert(self.clock, Held { is_newer_than_memory, ..held });
        let room = self.sizes.scratchpad.saturating_sub(self.sizes.digits);
        while self.held_bytes > room && self.held.len() > 1 {
            let Some((_, oldest)) = self.held.pop_first() else { break };
            self.held_bytes -= oldest.bytes;
            if oldest.is_newer_than_memory {
                self.moved.ciphertext_writes += oldest.bytes;
            }
        }
    }

    /// A ciphertext that nobody needs any more leaves without being written.
    fn forget(&mut self, token: Token) {
        let item = Item::Ciphertext(token.0);
        let found = self.held.iter().find(|(_, held)| held.item == item).map(|(&at, _)| at);
        if let Some(held) = found.and_then(|at| self.held.remove(&at)) {
            self.held_bytes -= held.bytes;
        }
    }

    /// A result goes to memory, unless it is there.
    fn store(&mut self, token: Token) {
        let item = Item::Ciphertext(token.0);
        let found = self.held.values().find(|held| held.item == item);
        if found.is_some_and(|held| held.is_newer_than_memory) {
            self.moved.ciphertext_writes += self.sizes.ciphertext;
        }
        self.forget(token);
    }
}

impl Scheme for Ledger {
    type Ciphertext = Token;
    type Selector = usize;

    fn split(&mut self, level: u32, node: &mut Token) -> Token {
        let odd = self.stored();
        self.touch(Item::Key(level as usize), true, false);
        self.touch(Item::Ciphertext(node.0), true, true);
        self.touch(Item::Ciphertext(odd.0), false, true);
        odd
    }

    fn select(&mut self, bit: &usize, zero: &mut Token, one: Token) {
        self.touch(Item::Key(*bit), true, false);
        self.touch(Item::Ciphertext(one.0), true, false);
        self.touch(Item::Ciphertext(zero.0), true, true);
        self.forget(one);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::onion::ParameterSet;

    const PAPER_SCRATCHPAD: u64 = 4 << 20;

    /// The paper's figure 8: an 8 GB table, D0 = 256, so 2^11 columns; 28-bit residues; l = 5.
    fn ratios(of: impl Fn(Schedule, Sizes) -> Moved, sizes: Sizes) -> Vec<(u32, f64, f64, f64)> {
        let whole = of(Schedule::BreadthFirst, sizes).bytes() as f64;
        let ratio = |moved: Moved| whole / moved.bytes() as f64;
        (1..=6)
            .map(|depth| {
                let breadth = ratio(of(Schedule::HierarchicalBreadth { depth }, sizes));
                let depth_first = ratio(of(Schedule::Hierarchical { depth }, sizes));
                let overlapped = ratio(of(Schedule::Hierarchical { depth }, sizes.overlapped()));
                (depth, breadth, depth_first, overlapped)
            })
            .collect()
    }

    #[test]
    fn print_ratios() {
        let params = ParameterSet::IvePaper.parameters();
        let poly = 56 << 10;
        let sizes = Sizes {
            ciphertext: 2 * poly,
            key: 20 * poly,
            digits: 10 * poly,
            scratchpad: PAPER_SCRATCHPAD,
        };
        let _ = params;
        println!("{:?}", of_tournament(Schedule::BreadthFirst, 1 << 11, sizes));
        println!("{:?}", of_tournament(Schedule::DepthFirst, 1 << 11, sizes));
        for row in ratios(|schedule, sizes| of_tournament(schedule, 1 << 11, sizes), sizes) {
            println!("coltor {row:?}");
        }
        for digits in [5, 8] {
            let sizes = Sizes { key: 2 * digits * poly, digits: digits * poly, ..sizes };
            for row in ratios(|schedule, sizes| of_expansion(schedule, 311, sizes), sizes) {
                println!("expand {digits} {row:?}");
            }
        }
    }
}
