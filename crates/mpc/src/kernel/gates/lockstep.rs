//! The steps of a circuit over vector registers: what [`portable`](super::portable) does, for any
//! [`Machine`].
//!
//! All is inlined into a function of the machine's own module that has its target features: hence loops
//! instead of closures, which do not always inherit the features and are then called. Eight registers
//! are hashed at once: what one or two AES units of latency three or four keep busy.

use super::{ROUND_KEYS, rows, tweak};
use crate::garble::{Inputs, ONE_SLOT, Op, Slot, groups};
use crate::{Block, LANES};
use zeroize::Zeroize;

/// A vector unit with AES. Implementations inline every function.
///
/// # Safety
/// Each function may only be called where the machine's target features are, by a function that has
/// them; pointers are to as many bytes as are said, without alignment.
pub(super) unsafe trait Machine {
    /// One register of [`Self::BLOCKS`] blocks.
    type Register: Copy;
    /// Which blocks of a register.
    type Mask: Copy;
    /// Blocks in a register: 1, 2 or 4.
    const BLOCKS: usize;

    /// Reads `BLOCKS` blocks.
    unsafe fn load(from: *const u8) -> Self::Register;
    /// Writes `BLOCKS` blocks.
    unsafe fn store(to: *mut u8, x: Self::Register);
    /// Writes the low halves of the 2 · `BLOCKS` blocks.
    unsafe fn store_low(to: *mut u64, x: [Self::Register; 2]);
    /// `x` in every block.
    unsafe fn broadcast(x: Block) -> Self::Register;
    unsafe fn xor(x: Self::Register, y: Self::Register) -> Self::Register;
    /// The blocks whose lowest bit is set.
    unsafe fn colour(x: Self::Register) -> Self::Mask;
    /// Block i is in the mask if bit i of `bits` is set.
    unsafe fn chosen(bits: u16) -> Self::Mask;
    /// x ⊕ y in the blocks of the mask, x in the others.
    unsafe fn xor_where(mask: Self::Mask, x: Self::Register, y: Self::Register) -> Self::Register;
    /// [`sigma`](super::sigma) of every block.
    unsafe fn sigma(x: Self::Register) -> Self::Register;
    /// π(x) ⊕ y, all registers abreast.
    unsafe fn permute<const N: usize>(
        keys: &[Self::Register; 11],
        x: [Self::Register; N],
        y: [Self::Register; N],
    ) -> [Self::Register; N];
}

/// A wire's labels, in one piece of memory and whole cache lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([Block; LANES]);

/// What the steps of a group share. Two groups are done at once: while the chain of one group's gates
/// waits for a hash, the processor goes on with the other's.
struct State<'a, M: Machine, const TMMO: bool> {
    keys: &'a [M::Register; 11],
    zero: M::Register,
    inputs: &'a Inputs<'a>,
    /// Owns what `base` points to, and is not looked at meanwhile.
    work: Vec<Line>,
    base: *mut Line,
    /// The group's labels of the garbler and of the evaluator, and those made on the way.
    bases: [*const Block; 3],
    /// The tweaks of the group's instances' hashes number 0.
    tweaks: Line,
    /// Of the group's next hash.
    number: u64,
    /// What is projected and revealed of each instance, modulo 2^64.
    sum: [u64; LANES],
}

impl<'a, M: Machine, const TMMO: bool> State<'a, M, TMMO> {
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn new(inputs: &'a Inputs<'a>, keys: &'a [M::Register; 11], one: Block) -> Self {
        let mut work = vec![Line([0; LANES]); inputs.circuit.work_slots];
        work[usize::from(ONE_SLOT)] = Line([one; LANES]);
        let base = work.as_mut_ptr();
        let bases = [inputs.garbler.as_ptr(), inputs.evaluator.as_ptr(), base.cast_const().cast()];
        // SAFETY: the caller has the machine's features.
        let zero = unsafe { M::broadcast(0) };
        let tweaks = Line([0; LANES]);
        Self { keys, zero, inputs, work, base, bases, tweaks, number: 0, sum: [0; LANES] }
    }

    #[inline(always)]
    fn start(&mut self, group: usize) {
        let (inputs, Inputs { circuit, first_instance, .. }) = (self.inputs, self.inputs);
        self.bases[0] = inputs.garbler[group * circuit.garbler_wires * LANES..].as_ptr();
        self.bases[1] = inputs.evaluator[group * circuit.evaluator_wires * LANES..].as_ptr();
        let first = first_instance.wrapping_add((group * LANES) as u64);
        for (own, lane) in self.tweaks.0.iter_mut().zip(0..) {
            *own = tweak(first.wrapping_add(lane), 0);
        }
        self.number = 0;
        self.sum = [0; LANES];
    }

    /// Where the [`LANES`] labels of a wire are.
    #[inline(always)]
    fn labels(&self, slot: Slot) -> *const Block {
        let (owner, at) = match slot {
            Slot::Garbler(at) => (0, at),
            Slot::Evaluator(at) => (1, at),
            Slot::Work(at) => (2, at),
        };
        // SAFETY: `check` found that each owner has as many labels as the circuit's slots ask for.
        unsafe { self.bases[owner].add(usize::from(at) * LANES) }
    }

    /// Where a step writes the [`LANES`] labels of its wire.
    #[inline(always)]
    fn out(&self, slot: Slot) -> *mut Block {
        let Slot::Work(at) = slot else { unreachable!("a step writes no party's input") };
        // SAFETY: as above.
        unsafe { self.base.add(usize::from(at)).cast() }
    }

    /// Registers of a wire's labels, from `lane` on.
    ///
    /// # Safety
    /// As the machine's; `from` is of [`Self::labels`], and `lane + N * M::BLOCKS` is at most [`LANES`].
    #[inline(always)]
    unsafe fn load<const N: usize>(&self, from: *const Block, lane: usize) -> [M::Register; N] {
        let mut x = [self.zero; N];
        for (i, x) in x.iter_mut().enumerate() {
            // SAFETY: the caller keeps within the wire's labels.
            *x = unsafe { M::load(from.add(lane + i * M::BLOCKS).cast()) };
        }
        x
    }

    /// The sum of several wires' labels.
    ///
    /// # Safety
    /// As [`Self::load`].
    #[inline(always)]
    unsafe fn sum<const W: usize, const N: usize>(
        &self,
        from: [*const Block; W],
        lane: usize,
    ) -> [M::Register; N] {
        // SAFETY: as the caller.
        let mut sum = unsafe { self.load(from[0], lane) };
        for &from in &from[1..] {
            // SAFETY: as the caller.
            sum = unsafe { xor::<M, N>(sum, self.load(from, lane)) };
        }
        sum
    }

    /// The tweaks of hash `number` from `lane` on.
    ///
    /// # Safety
    /// As [`Self::load`].
    #[inline(always)]
    unsafe fn tweaks<const N: usize>(&self, number: u64, lane: usize) -> [M::Register; N] {
        let mut tweaks = [self.zero; N];
        for (i, own) in tweaks.iter_mut().enumerate() {
            // SAFETY: the caller has the machine's features and keeps within the lanes. A number is the
            // low half of a tweak, which is 0 in the stored ones.
            *own = unsafe {
                let zeroth = M::load(self.tweaks.0.as_ptr().add(lane + i * M::BLOCKS).cast());
                M::xor(zeroth, M::broadcast(tweak(0, number)))
            };
        }
        tweaks
    }

    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn hash<const N: usize>(
        &self,
        x: [M::Register; N],
        tweaks: [M::Register; N],
    ) -> [M::Register; N] {
        // SAFETY: the caller has the machine's features.
        unsafe {
            if TMMO {
                let first = M::permute(self.keys, x, [self.zero; N]);
                M::permute(self.keys, xor::<M, N>(first, tweaks), first)
            } else {
                let mut x = xor::<M, N>(x, tweaks);
                for x in &mut x {
                    *x = M::sigma(*x);
                }
                M::permute(self.keys, x, x)
            }
        }
    }

    /// The colours of a wire's labels as masks of all ones or zeros.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn colours(&self, slot: Slot) -> [u64; LANES] {
        let from = self.labels(slot);
        let mut colours = [0u64; LANES];
        for lane in (0..LANES).step_by(2 * M::BLOCKS) {
            // SAFETY: two registers from here are within the labels, and their low halves within
            // `colours`.
            unsafe { M::store_low(colours.as_mut_ptr().add(lane), self.load(from, lane)) };
        }
        for colour in &mut colours {
            *colour = (*colour & 1).wrapping_neg();
        }
        colours
    }

    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn step_xor(&mut self, x: [Slot; 3], out: Slot) {
        let x = [self.labels(x[0]), self.labels(x[1]), self.labels(x[2])];
        let line = self.out(out);
        for lane in (0..LANES).step_by(M::BLOCKS) {
            // SAFETY: one register from here is within the labels.
            unsafe {
                let [sum] = self.sum::<3, 1>(x, lane);
                M::store(line.add(lane).cast(), sum);
            }
        }
    }

    /// # Safety
    /// As the machine's; the table has two blocks for each lane.
    #[inline(always)]
    unsafe fn garble_and(
        &mut self,
        delta: M::Register,
        [x, y]: [[Slot; 2]; 2],
        [z, out]: [Slot; 2],
        table: &mut [u8],
    ) {
        let (generators, evaluators) = halves(table);
        let x = [self.labels(x[0]), self.labels(x[1])];
        let y = [self.labels(y[0]), self.labels(y[1])];
        let (z, line) = (self.labels(z), self.out(out));
        for lane in (0..LANES).step_by(2 * M::BLOCKS) {
            // SAFETY: two registers from here are within the labels, the halves and the line.
            unsafe {
                let [a, a2]: [_; 2] = self.sum(x, lane);
                let [b, b2]: [_; 2] = self.sum(y, lane);
                let [t, t2]: [_; 2] = self.tweaks(self.number, lane);
                let [u, u2]: [_; 2] = self.tweaks(self.number + 1, lane);
                let hashes = self.hash(
                    [
                        a,
                        a2,
                        M::xor(a, delta),
                        M::xor(a2, delta),
                        b,
                        b2,
                        M::xor(b, delta),
                        M::xor(b2, delta),
                    ],
                    [t, t2, t, t2, u, u2, u, u2],
                );
                let [a0, a02, a1, a12, b0, b02, b1, b12] = hashes;
                let zs: [_; 2] = self.load(z, lane);
                let each = [(a, b, a0, a1, b0, b1, zs[0]), (a2, b2, a02, a12, b02, b12, zs[1])];
                for (i, (a, b, a0, a1, b0, b1, z)) in each.into_iter().enumerate() {
                    let at = lane + i * M::BLOCKS;
                    let (is_a, is_b) = (M::colour(a), M::colour(b));
                    let generator = M::xor_where(is_b, M::xor(a0, a1), delta);
                    let evaluator = M::xor(b0, b1);
                    M::store(generators.add(16 * at), generator);
                    M::store(evaluators.add(16 * at), M::xor(evaluator, a));
                    let product = M::xor_where(is_a, M::xor(a0, b0), generator);
                    let product = M::xor_where(is_b, product, evaluator);
                    M::store(line.add(at).cast(), M::xor(product, z));
                }
            }
        }
        self.number += 2;
    }

    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn evaluate_and(&mut self, [x, y]: [[Slot; 2]; 2], [z, out]: [Slot; 2], table: &[u8]) {
        assert_eq!(table.len(), 2 * size_of::<Line>(), "two blocks a lane");
        let (generators, evaluators) = table.split_at(size_of::<Line>());
        let (generators, evaluators) = (generators.as_ptr(), evaluators.as_ptr());
        let x = [self.labels(x[0]), self.labels(x[1])];
        let y = [self.labels(y[0]), self.labels(y[1])];
        let (z, line) = (self.labels(z), self.out(out));
        for lane in (0..LANES).step_by(4 * M::BLOCKS) {
            // SAFETY: four registers from here are within the labels, the halves and the line.
            unsafe {
                let a: [_; 4] = self.sum(x, lane);
                let b: [_; 4] = self.sum(y, lane);
                let t: [_; 4] = self.tweaks(self.number, lane);
                let u: [_; 4] = self.tweaks(self.number + 1, lane);
                let hashes = self.hash(
                    [a[0], a[1], a[2], a[3], b[0], b[1], b[2], b[3]],
                    [t[0], t[1], t[2], t[3], u[0], u[1], u[2], u[3]],
                );
                let z: [_; 4] = self.load(z, lane);
                for i in 0..4 {
                    let at = lane + i * M::BLOCKS;
                    let generator = M::load(generators.add(16 * at));
                    let evaluator = M::xor(M::load(evaluators.add(16 * at)), a[i]);
                    let sum = M::xor(M::xor(hashes[i], hashes[i + 4]), z[i]);
                    let sum = M::xor_where(M::colour(a[i]), sum, generator);
                    let sum = M::xor_where(M::colour(b[i]), sum, evaluator);
                    M::store(line.add(at).cast(), sum);
                }
            }
        }
        self.number += 2;
    }

    /// The pads of the two colours.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn pads(&mut self, delta: M::Register, bit: Slot) -> [[u64; LANES]; 2] {
        let bit = self.labels(bit);
        let mut pads = [[0u64; LANES]; 2];
        for lane in (0..LANES).step_by(2 * M::BLOCKS) {
            // SAFETY: two registers from here are within the labels and the pads.
            unsafe {
                let a: [_; 2] = self.load(bit, lane);
                let a = by_colour::<M>(a, delta);
                let [t, t2]: [_; 2] = self.tweaks(self.number, lane);
                let keys = [a[0], a[1], M::xor(a[0], delta), M::xor(a[1], delta)];
                let [h0, h02, h1, h12] = self.hash(keys, [t, t2, t, t2]);
                M::store_low(pads[0].as_mut_ptr().add(lane), [h0, h02]);
                M::store_low(pads[1].as_mut_ptr().add(lane), [h1, h12]);
            }
        }
        self.number += 1;
        pads
    }

    /// The pads of the four pairs of colours, that of `bit` being the higher bit.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn pads_of_pairs(
        &mut self,
        delta: M::Register,
        bit: Slot,
        unless: Slot,
    ) -> [[u64; LANES]; 4] {
        let (bit, unless) = (self.labels(bit), self.labels(unless));
        let mut pads = [[0u64; LANES]; 4];
        for lane in (0..LANES).step_by(2 * M::BLOCKS) {
            // SAFETY: two registers from here are within the labels and the pads.
            unsafe {
                let a = by_colour::<M>(self.load(bit, lane), delta);
                let b = by_colour::<M>(self.load(unless, lane), delta);
                let high = M::sigma(delta);
                let mut keys = [self.zero; 8];
                for i in 0..2 {
                    keys[i] = M::xor(M::sigma(a[i]), b[i]);
                    keys[i + 2] = M::xor(keys[i], delta);
                    keys[i + 4] = M::xor(keys[i], high);
                    keys[i + 6] = M::xor(keys[i + 2], high);
                }
                let [t, t2]: [_; 2] = self.tweaks(self.number, lane);
                let hashes = self.hash(keys, [t, t2, t, t2, t, t2, t, t2]);
                for (pads, pair) in pads.iter_mut().zip(hashes.as_chunks::<2>().0) {
                    M::store_low(pads.as_mut_ptr().add(lane), *pair);
                }
            }
        }
        self.number += 1;
        pads
    }

    /// The pad under the active labels; `unless` is the wire that is always 0 where there is none.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn active_pad(&mut self, bit: Slot, unless: Option<Slot>) -> [u64; LANES] {
        let bit = self.labels(bit);
        let mut pad = [0u64; LANES];
        for lane in (0..LANES).step_by(4 * M::BLOCKS) {
            // SAFETY: four registers from here are within the labels and the pad.
            unsafe {
                let mut key: [_; 4] = self.load(bit, lane);
                if let Some(unless) = unless {
                    let b: [_; 4] = self.load(self.labels(unless), lane);
                    for (key, b) in key.iter_mut().zip(b) {
                        *key = M::xor(M::sigma(*key), b);
                    }
                }
                let [h0, h1, h2, h3] = self.hash(key, self.tweaks(self.number, lane));
                M::store_low(pad.as_mut_ptr().add(lane), [h0, h1]);
                M::store_low(pad.as_mut_ptr().add(lane + 2 * M::BLOCKS), [h2, h3]);
            }
        }
        self.number += 1;
        pad
    }

    /// One step of the garbler.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn garble(&mut self, op: &Op<Slot>, delta: M::Register, own: &mut [u8]) {
        let (mask, row_bytes) = (self.inputs.circuit.mask(), self.inputs.circuit.row_bytes);
        match *op {
            // SAFETY: the caller has the machine's features; so below.
            Op::Xor { x, out } => unsafe { self.step_xor(x, out) },
            // SAFETY: as above.
            Op::And { x, y, z, out } => unsafe { self.garble_and(delta, [x, y], [z, out], own) },
            Op::Project { bit, weight } => {
                // SAFETY: as above.
                let (bits, pads) = unsafe { (self.colours(bit), self.pads(delta, bit)) };
                let mut row = [0; LANES];
                for lane in 0..LANES {
                    let zero = pads[0][lane].wrapping_sub(weight & bits[lane]);
                    self.sum[lane] = self.sum[lane].wrapping_add(zero);
                    row[lane] = (zero.wrapping_add(weight & !bits[lane]) ^ pads[1][lane]) & mask;
                }
                rows::write(&row, row_bytes, own);
            }
            Op::ProjectUnless { bit, unless, weight } => {
                // SAFETY: as above.
                let (a, b) = unsafe { (self.colours(bit), self.colours(unless)) };
                // SAFETY: as above.
                let pads = unsafe { self.pads_of_pairs(delta, bit, unless) };
                let mut rows = [[0; LANES]; 3];
                for lane in 0..LANES {
                    let (a, b) = (a[lane], b[lane]);
                    let zero = pads[0][lane].wrapping_sub(weight & a & !b);
                    self.sum[lane] = self.sum[lane].wrapping_add(zero);
                    let number = |value| zero.wrapping_add(weight & value);
                    rows[0][lane] = (number(a & b) ^ pads[1][lane]) & mask;
                    rows[1][lane] = (number(!a & !b) ^ pads[2][lane]) & mask;
                    rows[2][lane] = (number(!a & b) ^ pads[3][lane]) & mask;
                }
                for (row, own) in rows.iter().zip(own.chunks_mut(LANES * row_bytes)) {
                    rows::write(row, row_bytes, own);
                }
            }
            Op::Reveal { bit, .. } => {
                // SAFETY: as above.
                let colours = unsafe { self.colours(bit) };
                own.copy_from_slice(&word(&colours).to_le_bytes());
            }
        }
    }

    /// One step of the evaluator.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn evaluate(&mut self, op: &Op<Slot>, own: &[u8]) {
        let row_bytes = self.inputs.circuit.row_bytes;
        match *op {
            // SAFETY: the caller has the machine's features; so below.
            Op::Xor { x, out } => unsafe { self.step_xor(x, out) },
            // SAFETY: as above.
            Op::And { x, y, z, out } => unsafe { self.evaluate_and([x, y], [z, out], own) },
            Op::Project { bit, .. } => {
                // SAFETY: as above.
                let (a, pad) = unsafe { (self.colours(bit), self.active_pad(bit, None)) };
                let row = rows::read(own, row_bytes);
                for lane in 0..LANES {
                    let value = pad[lane] ^ row[lane] & a[lane];
                    self.sum[lane] = self.sum[lane].wrapping_add(value);
                }
            }
            Op::ProjectUnless { bit, unless, .. } => {
                // SAFETY: as above.
                let (a, b) = unsafe { (self.colours(bit), self.colours(unless)) };
                // SAFETY: as above.
                let pad = unsafe { self.active_pad(bit, Some(unless)) };
                let (r1, rest) = own.split_at(LANES * row_bytes);
                let (r2, r3) = rest.split_at(LANES * row_bytes);
                let r1 = rows::read(r1, row_bytes);
                let r2 = rows::read(r2, row_bytes);
                let r3 = rows::read(r3, row_bytes);
                for lane in 0..LANES {
                    let (a, b) = (a[lane], b[lane]);
                    let row = r1[lane] & !a & b | r2[lane] & a & !b | r3[lane] & a & b;
                    self.sum[lane] = self.sum[lane].wrapping_add(pad[lane] ^ row);
                }
            }
            Op::Reveal { bit, weight } => {
                // SAFETY: as above.
                let colours = word(&unsafe { self.colours(bit) });
                let bits = colours ^ u16::from_le_bytes([own[0], own[1]]);
                for (lane, sum) in self.sum.iter_mut().enumerate() {
                    let is_set = u64::from(bits >> lane & 1).wrapping_neg();
                    *sum = sum.wrapping_add(weight & is_set);
                }
            }
        }
    }
}

impl<M: Machine, const TMMO: bool> Drop for State<'_, M, TMMO> {
    fn drop(&mut self) {
        for line in &mut self.work {
            line.0.zeroize();
        }
    }
}

/// Panics unless all slots of the circuit are where labels are, for `count` instances.
fn check(inputs: &Inputs<'_>, count: usize) {
    let circuit = inputs.circuit;
    let groups = groups(count);
    assert!(inputs.garbler.len() >= groups * circuit.garbler_wires * LANES, "garbler's labels");
    assert!(
        inputs.evaluator.len() >= groups * circuit.evaluator_wires * LANES,
        "evaluator's labels"
    );
    let is_there = |slot| match slot {
        Slot::Garbler(at) => usize::from(at) < circuit.garbler_wires,
        Slot::Evaluator(at) => usize::from(at) < circuit.evaluator_wires,
        Slot::Work(at) => usize::from(at) < circuit.work_slots,
    };
    for op in &circuit.ops {
        op.for_each_read(|slot| assert!(is_there(slot), "{op:?} reads beyond the labels"));
        assert!(op.out().is_none_or(is_there), "{op:?} writes beyond the labels");
    }
}

/// Garbles every group of instances.
///
/// # Safety
/// As the machine's.
#[inline(always)]
pub(super) unsafe fn garble<M: Machine, const TMMO: bool>(
    inputs: &Inputs<'_>,
    delta: Block,
    tables: &mut [u8],
    masks: &mut [u64],
) {
    let circuit = inputs.circuit;
    check(inputs, masks.len());
    // SAFETY: the caller has the machine's features.
    let (keys, register) = unsafe { (round_keys::<M>(), M::broadcast(delta)) };
    // SAFETY: as above.
    let mut states = unsafe { [(); 2].map(|()| State::<M, TMMO>::new(inputs, &keys, delta)) };
    let mut table = tables;
    for (pair, masks) in masks.chunks_mut(2 * LANES).enumerate() {
        let states = &mut states[..groups(masks.len())];
        let own;
        (own, table) = table.split_at_mut(states.len() * circuit.group_bytes);
        for (state, group) in states.iter_mut().zip(2 * pair..) {
            state.start(group);
        }
        let mut at = 0;
        for op in &circuit.ops {
            let bytes = op.group_bytes(circuit.row_bytes);
            for (group, state) in states.iter_mut().enumerate() {
                let own = &mut own[group * circuit.group_bytes + at..][..bytes];
                // SAFETY: the caller has the machine's features.
                unsafe { state.garble(op, register, own) };
            }
            at += bytes;
        }
        for (masks, state) in masks.chunks_mut(LANES).zip(states) {
            for (mask, sum) in masks.iter_mut().zip(state.sum) {
                *mask = sum & circuit.mask();
            }
        }
    }
}

/// Evaluates every group of instances.
///
/// # Safety
/// As the machine's.
#[inline(always)]
pub(super) unsafe fn evaluate<M: Machine, const TMMO: bool>(
    inputs: &Inputs<'_>,
    tables: &[u8],
    out: &mut [u64],
) {
    let circuit = inputs.circuit;
    check(inputs, out.len());
    // SAFETY: the caller has the machine's features.
    let keys = unsafe { round_keys::<M>() };
    // SAFETY: as above. The label of the wire that is always 1 is 0 here, and Δ is that of its 0.
    let mut states = unsafe { [(); 2].map(|()| State::<M, TMMO>::new(inputs, &keys, 0)) };
    let mut table = tables;
    for (pair, results) in out.chunks_mut(2 * LANES).enumerate() {
        let states = &mut states[..groups(results.len())];
        let own;
        (own, table) = table.split_at(states.len() * circuit.group_bytes);
        for (state, group) in states.iter_mut().zip(2 * pair..) {
            state.start(group);
        }
        let mut at = 0;
        for op in &circuit.ops {
            let bytes = op.group_bytes(circuit.row_bytes);
            for (group, state) in states.iter_mut().enumerate() {
                let own = &own[group * circuit.group_bytes + at..][..bytes];
                // SAFETY: the caller has the machine's features.
                unsafe { state.evaluate(op, own) };
            }
            at += bytes;
        }
        for (results, state) in results.chunks_mut(LANES).zip(states) {
            for (result, sum) in results.iter_mut().zip(state.sum) {
                *result = sum & circuit.mask();
            }
        }
    }
}

/// The schedule of the fixed key.
///
/// # Safety
/// As the machine's.
#[inline(always)]
unsafe fn round_keys<M: Machine>() -> [M::Register; 11] {
    // SAFETY: the caller has the machine's features; so below.
    let mut keys = [unsafe { M::broadcast(0) }; 11];
    for (key, round_key) in keys.iter_mut().zip(ROUND_KEYS) {
        // SAFETY: as above.
        *key = unsafe { M::broadcast(round_key) };
    }
    keys
}

/// # Safety
/// As the machine's.
#[inline(always)]
pub(super) unsafe fn select<M: Machine>(
    delta: Block,
    zeros: &[Block],
    choices: &[u16],
    out: &mut [Block],
) {
    let (zeros, _) = zeros.as_chunks::<LANES>();
    let (out, _) = out.as_chunks_mut::<LANES>();
    // SAFETY: the caller has the machine's features.
    let delta = unsafe { M::broadcast(delta) };
    for ((zeros, &choices), out) in zeros.iter().zip(choices).zip(out) {
        for lane in (0..LANES).step_by(M::BLOCKS) {
            // SAFETY: one register from here is within both.
            unsafe {
                let x = M::load(zeros.as_ptr().add(lane).cast());
                let x = M::xor_where(M::chosen(choices >> lane), x, delta);
                M::store(out.as_mut_ptr().add(lane).cast(), x);
            }
        }
    }
}

/// # Safety
/// As the machine's.
#[inline(always)]
unsafe fn xor<M: Machine, const N: usize>(
    mut x: [M::Register; N],
    y: [M::Register; N],
) -> [M::Register; N] {
    for (x, y) in x.iter_mut().zip(y) {
        // SAFETY: the caller has the machine's features.
        *x = unsafe { M::xor(*x, y) };
    }
    x
}

/// The labels of colour 0 of wires whose zero labels are `x`.
///
/// # Safety
/// As the machine's.
#[inline(always)]
unsafe fn by_colour<M: Machine>(mut x: [M::Register; 2], delta: M::Register) -> [M::Register; 2] {
    for x in &mut x {
        // SAFETY: the caller has the machine's features.
        *x = unsafe { M::xor_where(M::colour(*x), *x, delta) };
    }
    x
}

/// Where the generator and the evaluator halves of an AND are.
#[inline(always)]
fn halves(table: &mut [u8]) -> (*mut u8, *mut u8) {
    assert_eq!(table.len(), 2 * size_of::<Line>(), "two blocks a lane");
    let (generators, evaluators) = table.split_at_mut(size_of::<Line>());
    (generators.as_mut_ptr(), evaluators.as_mut_ptr())
}

/// Bit `lane` of each mask.
#[inline(always)]
fn word(masks: &[u64; LANES]) -> u16 {
    let mut word = 0;
    for (lane, mask) in masks.iter().enumerate() {
        word |= mask & 1 << lane;
    }
    word as u16
}

/// Permutes eight registers over and over, `blocks` blocks in all at least: what AES alone takes.
///
/// # Safety
/// As the machine's.
#[cfg(any(test, feature = "bench"))]
#[inline(always)]
pub(super) unsafe fn churn<M: Machine>(block: Block, blocks: u64) -> Block {
    // SAFETY: the caller has the machine's features; `out` has room for a register.
    unsafe {
        let (keys, zero) = (round_keys::<M>(), M::broadcast(0));
        let mut x = [zero; 8];
        for (i, x) in x.iter_mut().enumerate() {
            *x = M::broadcast(block.wrapping_add(i as u128));
        }
        for _ in 0..blocks.div_ceil(8 * M::BLOCKS as u64) {
            x = M::permute(&keys, x, [zero; 8]);
        }
        let mut sum = x[0];
        for &x in &x[1..] {
            sum = M::xor(sum, x);
        }
        let mut out = [0; LANES];
        M::store(out.as_mut_ptr().cast(), sum);
        out[0]
    }
}
