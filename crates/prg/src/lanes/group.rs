//! From nodes to words side by side, and back.
//!
//! `R` registers of nodes, one node a lane, become the `R` words of their seeds, one register a
//! word, by a transposition inside the lanes; the outputs take the same way back. Correction words
//! are added in between, where a control bit is a whole word of every register.
//!
//! Nothing here takes a closure over registers: a closure does not inherit the target features of
//! the function that it ends up in, and its intrinsics would stay calls.

use super::vector::Vector;
use crate::bits::mask;
use std::marker::PhantomData;

/// Lanes of the widest register.
const LANES_MAX: usize = 4;

/// A core on 32-bit words: sixteen words of output from four words of seed and a block counter.
pub(super) trait Block32 {
    fn block<V: Vector>(seed: [V; 4], counter: u32) -> [V; 16];
}

/// A core on 64-bit words: one word of output from two words of seed and a message number.
pub(super) trait Word64 {
    fn word<V: Vector>(seed: [V; 2], message: u8) -> V;
}

/// The first `W` 128-bit words of block `counter` of every seed, corrected.
#[inline(always)]
pub(super) fn each_block<C: Block32, V: Vector, const W: usize>(
    nodes: &[u128],
    counter: u32,
    correction: &[u128; W],
    out: &mut [u128],
) {
    let blocks = Blocks::<C, W> { counter, correction, core: PhantomData };
    each_group::<V, 4, W, _>(nodes, out, &blocks);
}

/// `2 * W` 64-bit words from the messages `first`, `first + 1`, … under every seed, corrected.
#[inline(always)]
pub(super) fn each_word<C: Word64, V: Vector, const W: usize>(
    nodes: &[u128],
    first: u8,
    correction: &[u128; W],
    out: &mut [u128],
) {
    let words = Words::<C, W> { first, correction, core: PhantomData };
    each_group::<V, 2, W, _>(nodes, out, &words);
}

/// `out[W * i..][..W] = function(seed_i)`, corrected, one seed at a time.
pub(super) fn each_seed<const W: usize>(
    nodes: &[u128],
    correction: &[u128; W],
    out: &mut [u128],
    function: impl Fn(u128) -> [u128; W],
) {
    for (&node, out) in nodes.iter().zip(out.chunks_exact_mut(W)) {
        let words = function(node & !1);
        for j in 0..W {
            out[j] = words[j] ^ (correction[j] & mask(node));
        }
    }
}

/// From `R` registers of nodes to `W` registers of output for each of them.
trait Group<const R: usize, const W: usize> {
    fn call<V: Vector>(&self, nodes: [V; R]) -> [[V; W]; R];
}

struct Blocks<'a, C, const W: usize> {
    counter: u32,
    correction: &'a [u128; W],
    core: PhantomData<C>,
}

impl<C: Block32, const W: usize> Group<4, W> for Blocks<'_, C, W> {
    #[inline(always)]
    fn call<V: Vector>(&self, nodes: [V; 4]) -> [[V; W]; 4] {
        let [low, b, c, d] = transpose_4(nodes);
        // The inverted bit less one: all ones for 1, zero for 0.
        let one = V::splat32(1);
        let control = low.and(one).xor(one).add32(V::splat32(u32::MAX));
        let block = C::block([low.and(V::splat32(!1)), b, c, d], self.counter);
        let mut out = [[low; W]; 4];
        for (j, correction) in self.correction.iter().enumerate() {
            let mut words = [low; 4];
            for (k, word) in words.iter_mut().enumerate() {
                let correction_word = V::splat32((correction >> (32 * k)) as u32);
                *word = block[4 * j + k].xor(correction_word.and(control));
            }
            let words = transpose_4(words);
            for register in 0..4 {
                out[register][j] = words[register];
            }
        }
        out
    }
}

struct Words<'a, C, const W: usize> {
    first: u8,
    correction: &'a [u128; W],
    core: PhantomData<C>,
}

impl<C: Word64, const W: usize> Group<2, W> for Words<'_, C, W> {
    #[inline(always)]
    fn call<V: Vector>(&self, [a, b]: [V; 2]) -> [[V; W]; 2] {
        let [low, high] = [a.low64(b), a.high64(b)];
        let one = V::splat64(1);
        let control = low.and(one).xor(one).add64(V::splat64(u64::MAX));
        let seed = [low.and(V::splat64(!1)), high];
        let mut out = [[low; W]; 2];
        for (j, correction) in self.correction.iter().enumerate() {
            let mut words = [low; 2];
            for (k, word) in words.iter_mut().enumerate() {
                let correction_word = V::splat64((correction >> (64 * k)) as u64);
                let message = self.first + (2 * j + k) as u8;
                *word = C::word(seed, message).xor(correction_word.and(control));
            }
            out[0][j] = words[0].low64(words[1]);
            out[1][j] = words[0].high64(words[1]);
        }
        out
    }
}

/// `R` registers of nodes a call; what is left over is filled up with zero nodes, whose output is
/// thrown away.
#[inline(always)]
fn each_group<V: Vector, const R: usize, const W: usize, G: Group<R, W>>(
    nodes: &[u128],
    out: &mut [u128],
    group: &G,
) {
    let nodes_a_group = R * V::LANES;
    let (groups, rest) = nodes.split_at(nodes.len() - nodes.len() % nodes_a_group);
    let (out, out_rest) = out.split_at_mut(W * groups.len());
    for (nodes, out) in
        groups.chunks_exact(nodes_a_group).zip(out.chunks_exact_mut(W * nodes_a_group))
    {
        one_group::<V, R, W, G>(nodes, out, group);
    }
    if !rest.is_empty() {
        let mut nodes = [[0; LANES_MAX]; R];
        let mut out = [[[0; W]; LANES_MAX]; R];
        let nodes = &mut nodes.as_flattened_mut()[..nodes_a_group];
        let out = &mut out.as_flattened_mut().as_flattened_mut()[..W * nodes_a_group];
        nodes[..rest.len()].copy_from_slice(rest);
        one_group::<V, R, W, G>(nodes, out, group);
        out_rest.copy_from_slice(&out[..out_rest.len()]);
    }
}

#[inline(always)]
fn one_group<V: Vector, const R: usize, const W: usize, G: Group<R, W>>(
    nodes: &[u128],
    out: &mut [u128],
    group: &G,
) {
    let mut registers = [V::splat(0); R];
    for (register, nodes) in registers.iter_mut().zip(nodes.chunks_exact(V::LANES)) {
        *register = V::load(nodes);
    }
    let registers = group.call(registers);
    for (register, out) in registers.iter().zip(out.chunks_exact_mut(W * V::LANES)) {
        for (lane, out) in out.chunks_exact_mut(W).enumerate() {
            for (word, out) in register.iter().zip(out) {
                word.store_lane(lane, out);
            }
        }
    }
}

/// Swaps word w of register r with word r of register w, in every lane.
#[inline(always)]
fn transpose_4<V: Vector>([a, b, c, d]: [V; 4]) -> [V; 4] {
    let (ab_low, ab_high) = (a.low32(b), a.high32(b));
    let (cd_low, cd_high) = (c.low32(d), c.high32(d));
    [ab_low.low64(cd_low), ab_low.high64(cd_low), ab_high.low64(cd_high), ab_high.high64(cd_high)]
}
