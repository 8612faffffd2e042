//! Circuits: what is computed, gate by gate, and where each wire's labels are kept.

use super::{Block, LANES, Platform, groups};
use crate::kernel::gates::{self, Hash};

/// A wire of a circuit that is being built.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wire(u32);

impl Wire {
    /// Always 0.
    pub const ZERO: Self = Self(0);
    /// Always 1.
    pub const ONE: Self = Self(1);
}

/// Where a wire's labels are: of the garbler's inputs, of the evaluator's, or made on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Garbler(u16),
    Evaluator(u16),
    Work(u16),
}

/// In [`Slot::Work`]: labels of the wires that are always 0 and always 1, which nothing writes.
pub(crate) const ZERO_SLOT: u16 = 0;
pub(crate) const ONE_SLOT: u16 = 1;

/// One step; `W` is a [`Wire`] while the circuit is built, and a [`Slot`] afterwards.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Op<W> {
    /// out = x0 ⊕ x1 ⊕ x2
    Xor { x: [W; 3], out: W },
    /// out = (x0 ⊕ x1) ∧ (y0 ⊕ y1) ⊕ z: two hash numbers, two blocks of table.
    And { x: [W; 2], y: [W; 2], z: W, out: W },
    /// The result grows by `weight` if `bit`: one hash number, one row.
    Project { bit: W, weight: u64 },
    /// The result grows by `weight` if `bit` and not `unless`: one hash number, three rows.
    ProjectUnless { bit: W, unless: W, weight: u64 },
    /// The result grows by `weight` if `bit`, and the evaluator sees that: one bit.
    Reveal { bit: W, weight: u64 },
}

/// Builds a [`Circuit`].
///
/// XOR and NOT are free; each AND costs two blocks of table. Words are slices of wires, lowest bit
/// first.
#[derive(Debug)]
pub struct Builder {
    garbler_wires: u32,
    evaluator_wires: u32,
    wires: u32,
    ops: Vec<Op<Wire>>,
}

impl Builder {
    /// A circuit over so many input bits of each party.
    ///
    /// # Panics
    /// If a party has more than 16,384 of them.
    pub fn new(garbler_wires: usize, evaluator_wires: usize) -> Self {
        let count = |wires: usize| {
            assert!(wires <= 1 << 14, "{wires} input bits of a party: at most 16,384");
            wires as u32
        };
        let (garbler_wires, evaluator_wires) = (count(garbler_wires), count(evaluator_wires));
        let wires = 2 + garbler_wires + evaluator_wires;
        Self { garbler_wires, evaluator_wires, wires, ops: Vec::new() }
    }

    /// The garbler's input bits `from..from + count`.
    pub fn garbler(&self, from: usize, count: usize) -> Vec<Wire> {
        assert!(from + count <= self.garbler_wires as usize, "the garbler has no such input");
        (from..from + count).map(|index| Wire(2 + index as u32)).collect()
    }

    /// The evaluator's input bits `from..from + count`.
    pub fn evaluator(&self, from: usize, count: usize) -> Vec<Wire> {
        assert!(from + count <= self.evaluator_wires as usize, "the evaluator has no such input");
        let first = 2 + self.garbler_wires;
        (from..from + count).map(|index| Wire(first + index as u32)).collect()
    }

    /// `value`'s lowest `bits`, known to both parties.
    pub fn constant(&self, value: u64, bits: usize) -> Vec<Wire> {
        (0..bits).map(|bit| if value >> bit & 1 == 1 { Wire::ONE } else { Wire::ZERO }).collect()
    }

    /// x0 ⊕ x1 ⊕ x2
    pub fn xor(&mut self, x: [Wire; 3]) -> Wire {
        // Constants and pairs of equal wires cancel.
        let mut kept = [Wire::ZERO; 3];
        let mut count = 0;
        let mut is_inverted = false;
        for wire in x {
            if wire == Wire::ONE {
                is_inverted = !is_inverted;
            } else if let Some(at) = kept[..count].iter().position(|&other| other == wire) {
                kept.copy_within(at + 1..count, at);
                count -= 1;
            } else if wire != Wire::ZERO {
                kept[count] = wire;
                count += 1;
            }
        }
        kept[count..].fill(Wire::ZERO);
        match (count, is_inverted) {
            (0, _) => return if is_inverted { Wire::ONE } else { Wire::ZERO },
            (1, false) => return kept[0],
            // One of the three was a 1, so that its place is free.
            (_, true) => kept[2] = Wire::ONE,
            (_, false) => {}
        }
        let out = self.wire();
        self.ops.push(Op::Xor { x: kept, out });
        out
    }

    /// ¬x
    pub fn not(&mut self, x: Wire) -> Wire {
        self.xor([x, Wire::ONE, Wire::ZERO])
    }

    /// x ∧ y
    pub fn and(&mut self, x: Wire, y: Wire) -> Wire {
        self.gate([x, Wire::ZERO], [y, Wire::ZERO], Wire::ZERO)
    }

    /// (x0 ⊕ x1) ∧ (y0 ⊕ y1) ⊕ z, at the price of one AND; free where a constant decides.
    pub fn gate(&mut self, x: [Wire; 2], y: [Wire; 2], z: Wire) -> Wire {
        let known = |[a, b]: [Wire; 2]| {
            let is_constant = |wire: Wire| wire.0 < 2;
            (a == b || is_constant(a) && is_constant(b)).then_some(a != b)
        };
        match (known(x), known(y)) {
            (Some(false), _) | (_, Some(false)) => z,
            (Some(true), _) => self.xor([y[0], y[1], z]),
            (_, Some(true)) => self.xor([x[0], x[1], z]),
            (None, None) => {
                let out = self.wire();
                self.ops.push(Op::And { x, y, z, out });
                out
            }
        }
    }

    /// a + b + carry modulo 2^(their length), and the carry out of it; n bits cost n ANDs, and one
    /// less where `finish` finds the carry unused.
    ///
    /// # Panics
    /// If their lengths differ; so do the functions below.
    pub fn add(&mut self, a: &[Wire], b: &[Wire], mut carry: Wire) -> (Vec<Wire>, Wire) {
        assert_eq!(a.len(), b.len(), "words of one length");
        let mut sum = Vec::with_capacity(a.len());
        for (&a, &b) in a.iter().zip(b) {
            sum.push(self.xor([a, b, carry]));
            carry = self.gate([a, carry], [b, carry], carry);
        }
        (sum, carry)
    }

    /// a − b modulo 2^(their length), and whether a < b as numbers without sign.
    pub fn subtract(&mut self, a: &[Wire], b: &[Wire]) -> (Vec<Wire>, Wire) {
        assert_eq!(a.len(), b.len(), "words of one length");
        let mut borrow = Wire::ZERO;
        let mut difference = Vec::with_capacity(a.len());
        for (&a, &b) in a.iter().zip(b) {
            difference.push(self.xor([a, b, borrow]));
            let not_a = self.not(a);
            borrow = self.gate([not_a, borrow], [b, borrow], borrow);
        }
        (difference, borrow)
    }

    /// Whether a < b, as numbers in two's complement: one AND a bit.
    pub fn is_less(&mut self, a: &[Wire], b: &[Wire]) -> Wire {
        let (Some((&top_a, low_a)), Some((&top_b, low_b))) = (a.split_last(), b.split_last())
        else {
            return Wire::ZERO;
        };
        let (_, borrow) = self.subtract(low_a, low_b);
        // A set sign bit makes a number less: the signs change sides.
        let not_b = self.not(top_b);
        self.gate([not_b, borrow], [top_a, borrow], borrow)
    }

    /// x ∨ y
    pub fn or(&mut self, x: Wire, y: Wire) -> Wire {
        self.gate([x, Wire::ZERO], [y, Wire::ONE], y)
    }

    /// Whether a ≥ `least`, a number without sign that both parties know: one AND a bit above the
    /// lowest that is set in it.
    pub fn is_at_least(&mut self, a: &[Wire], least: u64) -> Wire {
        assert_eq!(least.checked_shr(a.len() as u32).unwrap_or(0), 0, "a number of as many bits");
        let mut found = Wire::ONE;
        for (bit, &wire) in a.iter().enumerate() {
            found = match least >> bit & 1 {
                1 => self.and(wire, found),
                _ => self.or(wire, found),
            };
        }
        found
    }

    /// `then` if `condition`, else `otherwise`: one AND a bit.
    pub fn choose(&mut self, condition: Wire, then: &[Wire], otherwise: &[Wire]) -> Vec<Wire> {
        assert_eq!(then.len(), otherwise.len(), "words of one length");
        let pairs = then.iter().zip(otherwise);
        pairs.map(|(&a, &b)| self.gate([condition, Wire::ZERO], [a, b], b)).collect()
    }

    /// Adds `weight` to the result, for the evaluator under a mask that the garbler knows, if `bit` is
    /// set and `unless` is not.
    pub fn project(&mut self, bit: Wire, unless: Wire, weight: u64) {
        match unless {
            Wire::ZERO => self.ops.push(Op::Project { bit, weight }),
            _ => self.ops.push(Op::ProjectUnless { bit, unless, weight }),
        }
    }

    /// Adds `weight` to the result if `bit` is set, which the evaluator sees.
    pub fn reveal(&mut self, bit: Wire, weight: u64) {
        self.ops.push(Op::Reveal { bit, weight });
    }

    /// The circuit; results are modulo 2^`bits`, 1 to 64. Gates whose wire nothing reads are left out.
    ///
    /// # Panics
    /// If `bits` is not 1 to 64, or if more than 65,536 wires are alive at once.
    pub fn finish(mut self, bits: u32) -> Circuit {
        assert!((1..=64).contains(&bits), "results of {bits} bits: 1 to 64");
        let mut is_read = vec![false; self.wires as usize];
        let mut kept = Vec::with_capacity(self.ops.len());
        for op in std::mem::take(&mut self.ops).into_iter().rev() {
            if op.out().is_none_or(|out| is_read[out.0 as usize]) {
                op.for_each_read(|wire| is_read[wire.0 as usize] = true);
                kept.push(op);
            }
        }
        kept.reverse();
        let (ops, work_slots) = self.assign(&kept);
        let mut circuit = Circuit {
            garbler_wires: self.garbler_wires as usize,
            evaluator_wires: self.evaluator_wires as usize,
            bits,
            row_bytes: bits.div_ceil(8) as usize,
            group_bytes: 0,
            ops,
            work_slots,
        };
        circuit.group_bytes = circuit.ops.iter().map(|op| op.group_bytes(circuit.row_bytes)).sum();
        circuit
    }

    fn wire(&mut self) -> Wire {
        self.wires += 1;
        Wire(self.wires - 1)
    }

    /// Gives each wire a slot, and a slot that is read for the last time to the next wire.
    fn assign(&self, ops: &[Op<Wire>]) -> (Vec<Op<Slot>>, usize) {
        let mut last_read = vec![0; self.wires as usize];
        for (at, op) in ops.iter().enumerate() {
            op.for_each_read(|wire| last_read[wire.0 as usize] = at);
        }
        let mut slots = Vec::with_capacity(self.wires as usize);
        slots.extend([Slot::Work(ZERO_SLOT), Slot::Work(ONE_SLOT)]);
        slots.extend((0..self.garbler_wires).map(|index| Slot::Garbler(index as u16)));
        slots.extend((0..self.evaluator_wires).map(|index| Slot::Evaluator(index as u16)));
        let inputs = slots.len();
        slots.resize(self.wires as usize, Slot::Work(ZERO_SLOT));
        let mut free: Vec<u16> = Vec::new();
        let mut work_slots = 2usize;
        let mut assigned = Vec::with_capacity(ops.len());
        for (at, op) in ops.iter().enumerate() {
            let mut ended: Vec<Wire> = Vec::new();
            op.for_each_read(|wire| {
                let is_own = wire.0 as usize >= inputs;
                if is_own && last_read[wire.0 as usize] == at && !ended.contains(&wire) {
                    ended.push(wire);
                }
            });
            let reads = op.map(|wire| slots[wire.0 as usize]);
            // A step reads all of a lane before it writes it, so its result may replace an operand.
            for wire in ended {
                if let Slot::Work(slot) = slots[wire.0 as usize] {
                    free.push(slot);
                }
            }
            if let Some(out) = op.out() {
                let slot = free.pop().unwrap_or_else(|| {
                    work_slots += 1;
                    u16::try_from(work_slots - 1).expect("at most 65,536 wires alive at once")
                });
                slots[out.0 as usize] = Slot::Work(slot);
                assigned.push(reads.with_out(Slot::Work(slot)));
            } else {
                assigned.push(reads);
            }
        }
        (assigned, work_slots)
    }
}

impl<W: Copy> Op<W> {
    pub(crate) fn out(&self) -> Option<W> {
        match *self {
            Self::Xor { out, .. } | Self::And { out, .. } => Some(out),
            Self::Project { .. } | Self::ProjectUnless { .. } | Self::Reveal { .. } => None,
        }
    }

    pub(crate) fn for_each_read(&self, mut read: impl FnMut(W)) {
        match *self {
            Self::Xor { x, .. } => x.into_iter().for_each(read),
            Self::And { x, y, z, .. } => x.into_iter().chain(y).chain([z]).for_each(read),
            Self::Project { bit, .. } | Self::Reveal { bit, .. } => read(bit),
            Self::ProjectUnless { bit, unless, .. } => [bit, unless].into_iter().for_each(read),
        }
    }

    fn map<V>(&self, of: impl Fn(W) -> V) -> Op<V> {
        match *self {
            Self::Xor { x, out } => Op::Xor { x: x.map(&of), out: of(out) },
            Self::And { x, y, z, out } => {
                Op::And { x: x.map(&of), y: y.map(&of), z: of(z), out: of(out) }
            }
            Self::Project { bit, weight } => Op::Project { bit: of(bit), weight },
            Self::ProjectUnless { bit, unless, weight } => {
                Op::ProjectUnless { bit: of(bit), unless: of(unless), weight }
            }
            Self::Reveal { bit, weight } => Op::Reveal { bit: of(bit), weight },
        }
    }

    fn with_out(self, slot: W) -> Self {
        match self {
            Self::Xor { x, .. } => Self::Xor { x, out: slot },
            Self::And { x, y, z, .. } => Self::And { x, y, z, out: slot },
            other => other,
        }
    }

    /// Bytes of table for the [`LANES`] instances of a group.
    pub(crate) fn group_bytes(&self, row_bytes: usize) -> usize {
        match self {
            Self::Xor { .. } => 0,
            Self::And { .. } => 2 * LANES * size_of::<Block>(),
            Self::Project { .. } => LANES * row_bytes,
            Self::ProjectUnless { .. } => 3 * LANES * row_bytes,
            Self::Reveal { .. } => LANES / 8,
        }
    }
}

/// A circuit of which many instances are garbled and evaluated side by side.
///
/// An instance's result is a number modulo 2^`bits`: the sum of the weights that it projects and
/// reveals. The order of labels and of tables is [`garble`](super::garble())'s.
#[derive(Debug)]
pub struct Circuit {
    pub(crate) garbler_wires: usize,
    pub(crate) evaluator_wires: usize,
    pub(crate) bits: u32,
    /// Bytes of one projection row.
    pub(crate) row_bytes: usize,
    pub(crate) group_bytes: usize,
    pub(crate) ops: Vec<Op<Slot>>,
    /// How many slots there are of [`Slot::Work`].
    pub(crate) work_slots: usize,
}

impl Circuit {
    /// The garbler's input bits of an instance.
    pub fn garbler_wires(&self) -> usize {
        self.garbler_wires
    }

    /// The evaluator's input bits of an instance.
    pub fn evaluator_wires(&self) -> usize {
        self.evaluator_wires
    }

    /// AND gates of an instance.
    pub fn and_gates(&self) -> usize {
        self.ops.iter().filter(|op| matches!(op, Op::And { .. })).count()
    }

    /// Hashes that the garbler and the evaluator make for an instance; each is two AES blocks.
    pub fn hashes(&self) -> [usize; 2] {
        self.ops.iter().fold([0, 0], |[garbler, evaluator], op| match op {
            Op::And { .. } => [garbler + 4, evaluator + 2],
            Op::Project { .. } => [garbler + 2, evaluator + 1],
            Op::ProjectUnless { .. } => [garbler + 4, evaluator + 1],
            Op::Xor { .. } | Op::Reveal { .. } => [garbler, evaluator],
        })
    }

    /// Bytes of table of a group of [`LANES`] instances.
    pub fn group_bytes(&self) -> usize {
        self.group_bytes
    }

    /// 2^bits − 1
    pub(crate) fn mask(&self) -> u64 {
        u64::MAX >> (64 - self.bits)
    }

    /// As [`garble`](super::garble()) does it; `masks` is 0 where nothing is projected.
    ///
    /// # Panics
    /// If a slice's length does not fit `masks.len()` instances, or if Δ's lowest bit is 0.
    #[allow(clippy::too_many_arguments, reason = "what garbling takes and gives")]
    pub fn garble(
        &self,
        platform: Platform,
        delta: Block,
        first_instance: u64,
        garbler_zeros: &[Block],
        evaluator_zeros: &[Block],
        tables: &mut [u8],
        masks: &mut [u64],
    ) {
        assert_eq!(delta & 1, 1, "Δ's lowest bit makes the colours of a wire's labels differ");
        self.check(masks.len(), garbler_zeros, evaluator_zeros, tables);
        let inputs = Inputs {
            circuit: self,
            first_instance,
            garbler: garbler_zeros,
            evaluator: evaluator_zeros,
        };
        gates::garble(platform, Hash::Tmmo, &inputs, delta, tables, masks);
    }

    /// As [`evaluate`](super::evaluate()) does it.
    ///
    /// # Panics
    /// If a slice's length does not fit `out.len()` instances.
    pub fn evaluate(
        &self,
        platform: Platform,
        first_instance: u64,
        garbler_labels: &[Block],
        evaluator_labels: &[Block],
        tables: &[u8],
        out: &mut [u64],
    ) {
        self.check(out.len(), garbler_labels, evaluator_labels, tables);
        let inputs = Inputs {
            circuit: self,
            first_instance,
            garbler: garbler_labels,
            evaluator: evaluator_labels,
        };
        gates::evaluate(platform, Hash::Tmmo, &inputs, tables, out);
    }

    pub(crate) fn check(
        &self,
        count: usize,
        garbler: &[Block],
        evaluator: &[Block],
        tables: &[u8],
    ) {
        let groups = groups(count);
        let labels = |wires: usize| groups * wires * LANES;
        assert_eq!(garbler.len(), labels(self.garbler_wires), "the garbler's labels");
        assert_eq!(evaluator.len(), labels(self.evaluator_wires), "the evaluator's labels");
        assert_eq!(tables.len(), groups * self.group_bytes, "bytes of tables");
    }
}

/// What garbling and evaluation start from: zero labels for the first, active ones for the second.
pub(crate) struct Inputs<'a> {
    pub circuit: &'a Circuit,
    pub first_instance: u64,
    pub garbler: &'a [Block],
    pub evaluator: &'a [Block],
}
