//! The steps of a circuit over vector registers: what [`portable`](super::portable) does, for any
//! [`Machine`].
//!
//! All is inlined into a function of the machine's own module that has its target features. Eight
//! registers are hashed at once: what one or two AES units of latency three or four keep busy.

use super::{ROUND_KEYS, rows, tweak};
use crate::garble::{Inputs, ONE_SLOT, Op, Slot};
use crate::{Block, LANES};
use std::array::from_fn;
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
    /// Block i is `first` plus i in its high half.
    unsafe fn count(first: Block) -> Self::Register;
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

/// What all steps of a call share.
struct State<'a, M: Machine, const TMMO: bool> {
    keys: [M::Register; 11],
    zero: M::Register,
    inputs: &'a Inputs<'a>,
    work: Vec<Line>,
    /// Of the garbler's labels of the group, and of the evaluator's.
    firsts: [usize; 2],
    /// Of the group.
    instance: u64,
    /// Of the group's next hash.
    number: u64,
}

impl<'a, M: Machine, const TMMO: bool> State<'a, M, TMMO> {
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn new(inputs: &'a Inputs<'a>, one: Block) -> Self {
        let mut work = vec![Line([0; LANES]); inputs.circuit.work_slots];
        work[usize::from(ONE_SLOT)] = Line([one; LANES]);
        // SAFETY: the caller has the machine's features.
        let (keys, zero) = unsafe {
            let zero = M::broadcast(0);
            let mut keys = [zero; 11];
            for (key, round_key) in keys.iter_mut().zip(ROUND_KEYS) {
                *key = M::broadcast(round_key);
            }
            (keys, zero)
        };
        Self { keys, zero, inputs, work, firsts: [0; 2], instance: 0, number: 0 }
    }

    #[inline(always)]
    fn start(&mut self, group: usize) {
        let Inputs { circuit, first_instance, .. } = self.inputs;
        self.firsts = [circuit.garbler_wires, circuit.evaluator_wires].map(|wires| group * wires);
        self.instance = first_instance.wrapping_add((group * LANES) as u64);
        self.number = 0;
    }

    /// The labels of a wire.
    #[inline(always)]
    fn labels(&self, slot: Slot) -> &[Block; LANES] {
        let (own, at) = match slot {
            Slot::Work(at) => return &self.work[usize::from(at)].0,
            Slot::Garbler(at) => (self.inputs.garbler, self.firsts[0] + usize::from(at)),
            Slot::Evaluator(at) => (self.inputs.evaluator, self.firsts[1] + usize::from(at)),
        };
        &own.as_chunks::<LANES>().0[at]
    }

    #[inline(always)]
    fn write(&mut self, slot: Slot, line: &Line) {
        let Slot::Work(at) = slot else { unreachable!("a step writes no party's input") };
        self.work[usize::from(at)] = *line;
    }

    /// Registers of a wire's labels, from `lane` on.
    ///
    /// # Safety
    /// As the machine's; `lane + N * M::BLOCKS` is at most [`LANES`].
    #[inline(always)]
    unsafe fn load<const N: usize>(&self, slot: Slot, lane: usize) -> [M::Register; N] {
        let from = self.labels(slot).as_ptr();
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
        slots: [Slot; W],
        lane: usize,
    ) -> [M::Register; N] {
        // SAFETY: as the caller.
        let mut sum = unsafe { self.load(slots[0], lane) };
        for &slot in &slots[1..] {
            // SAFETY: as the caller.
            sum = unsafe { xor::<M, N>(sum, self.load(slot, lane)) };
        }
        sum
    }

    /// The tweaks of hash `number` from `lane` on.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn tweaks<const N: usize>(&self, number: u64, lane: usize) -> [M::Register; N] {
        let mut tweaks = [self.zero; N];
        for (i, own) in tweaks.iter_mut().enumerate() {
            let instance = self.instance.wrapping_add((lane + i * M::BLOCKS) as u64);
            // SAFETY: the caller has the machine's features.
            *own = unsafe { M::count(tweak(instance, number)) };
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
                let first = M::permute(&self.keys, x, [self.zero; N]);
                M::permute(&self.keys, xor::<M, N>(first, tweaks), first)
            } else {
                let mut x = xor::<M, N>(x, tweaks);
                for x in &mut x {
                    *x = M::sigma(*x);
                }
                M::permute(&self.keys, x, x)
            }
        }
    }

    /// The colours of a wire's labels as masks of all ones or zeros.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn colours(&self, slot: Slot) -> [u64; LANES] {
        let mut colours = [0u64; LANES];
        for lane in (0..LANES).step_by(2 * M::BLOCKS) {
            // SAFETY: two registers from here are within the labels, and their low halves within
            // `colours`.
            unsafe { M::store_low(colours.as_mut_ptr().add(lane), self.load(slot, lane)) };
        }
        colours.map(|low| (low & 1).wrapping_neg())
    }

    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn step_xor(&mut self, x: [Slot; 3], out: Slot) {
        let mut line = Line([0; LANES]);
        for lane in (0..LANES).step_by(M::BLOCKS) {
            // SAFETY: one register from here is within the labels.
            unsafe {
                let [sum] = self.sum::<3, 1>(x, lane);
                M::store(line.0.as_mut_ptr().add(lane).cast(), sum);
            }
        }
        self.write(out, &line);
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
        let mut line = Line([0; LANES]);
        for lane in (0..LANES).step_by(2 * M::BLOCKS) {
            // SAFETY: two registers from here are within the labels, the halves and the line.
            unsafe {
                let [a, a2]: [_; 2] = self.sum(x, lane);
                let [b, b2]: [_; 2] = self.sum(y, lane);
                let [t, t2]: [_; 2] = self.tweaks(self.number, lane);
                let [u, u2]: [_; 2] = self.tweaks(self.number + 1, lane);
                let flip = |x| M::xor(x, delta);
                let hashes = self.hash(
                    [a, a2, flip(a), flip(a2), b, b2, flip(b), flip(b2)],
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
                    M::store(line.0.as_mut_ptr().add(at).cast(), M::xor(product, z));
                }
            }
        }
        self.number += 2;
        self.write(out, &line);
    }

    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn evaluate_and(&mut self, [x, y]: [[Slot; 2]; 2], [z, out]: [Slot; 2], table: &[u8]) {
        assert_eq!(table.len(), 2 * size_of::<Line>(), "two blocks a lane");
        let (generators, evaluators) = table.split_at(size_of::<Line>());
        let (generators, evaluators) = (generators.as_ptr(), evaluators.as_ptr());
        let mut line = Line([0; LANES]);
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
                    M::store(line.0.as_mut_ptr().add(at).cast(), sum);
                }
            }
        }
        self.number += 2;
        self.write(out, &line);
    }

    /// The pads of the two colours.
    ///
    /// # Safety
    /// As the machine's.
    #[inline(always)]
    unsafe fn pads(&mut self, delta: M::Register, bit: Slot) -> [[u64; LANES]; 2] {
        let mut pads = [[0u64; LANES]; 2];
        for lane in (0..LANES).step_by(2 * M::BLOCKS) {
            // SAFETY: two registers from here are within the labels and the pads.
            unsafe {
                let a: [_; 2] = self.load(bit, lane);
                let a = a.map(|a| M::xor_where(M::colour(a), a, delta));
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
        let mut pads = [[0u64; LANES]; 4];
        for lane in (0..LANES).step_by(2 * M::BLOCKS) {
            // SAFETY: two registers from here are within the labels and the pads.
            unsafe {
                let by_colour = |slot| {
                    let x: [_; 2] = self.load(slot, lane);
                    x.map(|x| M::xor_where(M::colour(x), x, delta))
                };
                let (a, b) = (by_colour(bit), by_colour(unless));
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
        let mut pad = [0u64; LANES];
        for lane in (0..LANES).step_by(4 * M::BLOCKS) {
            // SAFETY: four registers from here are within the labels and the pad.
            unsafe {
                let mut key: [_; 4] = self.load(bit, lane);
                if let Some(unless) = unless {
                    let b: [_; 4] = self.load(unless, lane);
                    key = xor::<M, 4>(key.map(|key| M::sigma(key)), b);
                }
                let [h0, h1, h2, h3] = self.hash(key, self.tweaks(self.number, lane));
                M::store_low(pad.as_mut_ptr().add(lane), [h0, h1]);
                M::store_low(pad.as_mut_ptr().add(lane + 2 * M::BLOCKS), [h2, h3]);
            }
        }
        self.number += 1;
        pad
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
    // SAFETY: the caller has the machine's features; so below.
    let mut state = unsafe { State::<M, TMMO>::new(inputs, delta) };
    let register = unsafe { M::broadcast(delta) };
    let (mask, row_bytes) = (circuit.mask(), circuit.row_bytes);
    let mut table = tables;
    for (group, masks) in masks.chunks_mut(LANES).enumerate() {
        state.start(group);
        let mut sum = [0u64; LANES];
        for op in &circuit.ops {
            let own;
            (own, table) = table.split_at_mut(op.group_bytes(row_bytes));
            match *op {
                Op::Xor { x, out } => unsafe { state.step_xor(x, out) },
                Op::And { x, y, z, out } => unsafe {
                    state.garble_and(register, [x, y], [z, out], own);
                },
                Op::Project { bit, weight } => {
                    let bits = unsafe { state.colours(bit) };
                    let pads = unsafe { state.pads(register, bit) };
                    let zero: [u64; LANES] =
                        from_fn(|lane| pads[0][lane].wrapping_sub(weight & bits[lane]));
                    sum = from_fn(|lane| sum[lane].wrapping_add(zero[lane]));
                    let row = from_fn(|lane| {
                        (zero[lane].wrapping_add(weight & !bits[lane]) ^ pads[1][lane]) & mask
                    });
                    rows::write(&row, row_bytes, own);
                }
                Op::ProjectUnless { bit, unless, weight } => {
                    let (a, b) = unsafe { (state.colours(bit), state.colours(unless)) };
                    let pads = unsafe { state.pads_of_pairs(register, bit, unless) };
                    let value: [[u64; LANES]; 4] = [
                        from_fn(|lane| weight & a[lane] & !b[lane]),
                        from_fn(|lane| weight & a[lane] & b[lane]),
                        from_fn(|lane| weight & !a[lane] & !b[lane]),
                        from_fn(|lane| weight & !a[lane] & b[lane]),
                    ];
                    let zero: [u64; LANES] =
                        from_fn(|lane| pads[0][lane].wrapping_sub(value[0][lane]));
                    sum = from_fn(|lane| sum[lane].wrapping_add(zero[lane]));
                    for (colours, own) in (1..4).zip(own.chunks_mut(LANES * row_bytes)) {
                        let row = from_fn(|lane| {
                            let masked = zero[lane].wrapping_add(value[colours][lane]);
                            (masked ^ pads[colours][lane]) & mask
                        });
                        rows::write(&row, row_bytes, own);
                    }
                }
                Op::Reveal { bit, .. } => {
                    let colours = unsafe { state.colours(bit) };
                    own.copy_from_slice(&word(&colours).to_le_bytes());
                }
            }
        }
        for (out, sum) in masks.iter_mut().zip(sum) {
            *out = sum & mask;
        }
    }
    wipe(state.work);
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
    // SAFETY: the caller has the machine's features; so below.
    let mut state = unsafe { State::<M, TMMO>::new(inputs, 0) };
    let row_bytes = circuit.row_bytes;
    let mut table = tables;
    for (group, results) in out.chunks_mut(LANES).enumerate() {
        state.start(group);
        let mut sum = [0u64; LANES];
        for op in &circuit.ops {
            let own;
            (own, table) = table.split_at(op.group_bytes(row_bytes));
            match *op {
                Op::Xor { x, out } => unsafe { state.step_xor(x, out) },
                Op::And { x, y, z, out } => unsafe { state.evaluate_and([x, y], [z, out], own) },
                Op::Project { bit, .. } => {
                    let a = unsafe { state.colours(bit) };
                    let pad = unsafe { state.active_pad(bit, None) };
                    let row = rows::read(own, row_bytes);
                    sum = from_fn(|lane| sum[lane].wrapping_add(pad[lane] ^ row[lane] & a[lane]));
                }
                Op::ProjectUnless { bit, unless, .. } => {
                    let (a, b) = unsafe { (state.colours(bit), state.colours(unless)) };
                    let pad = unsafe { state.active_pad(bit, Some(unless)) };
                    let (r1, rest) = own.split_at(LANES * row_bytes);
                    let (r2, r3) = rest.split_at(LANES * row_bytes);
                    let [r1, r2, r3] = [r1, r2, r3].map(|row| rows::read(row, row_bytes));
                    sum = from_fn(|lane| {
                        let (a, b) = (a[lane], b[lane]);
                        let row = r1[lane] & !a & b | r2[lane] & a & !b | r3[lane] & a & b;
                        sum[lane].wrapping_add(pad[lane] ^ row)
                    });
                }
                Op::Reveal { bit, weight } => {
                    let colours = word(&unsafe { state.colours(bit) });
                    let bits = colours ^ u16::from_le_bytes([own[0], own[1]]);
                    sum = from_fn(|lane| {
                        let is_set = u64::from(bits >> lane & 1).wrapping_neg();
                        sum[lane].wrapping_add(weight & is_set)
                    });
                }
            }
        }
        for (result, sum) in results.iter_mut().zip(sum) {
            *result = sum & circuit.mask();
        }
    }
    wipe(state.work);
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
    (0..LANES).fold(0, |word, lane| word | (masks[lane] as u16 & 1) << lane)
}

fn wipe(mut work: Vec<Line>) {
    for line in &mut work {
        line.0.zeroize();
    }
}

/// Permutes eight registers over and over, `blocks` blocks in all at least: what AES alone takes.
///
/// # Safety
/// As the machine's.
#[inline(always)]
pub(super) unsafe fn churn<M: Machine>(block: Block, blocks: u64) -> Block {
    // SAFETY: the caller has the machine's features; `out` has room for a register.
    unsafe {
        let zero = M::broadcast(0);
        let mut keys = [zero; 11];
        for (key, round_key) in keys.iter_mut().zip(ROUND_KEYS) {
            *key = M::broadcast(round_key);
        }
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
