//! max(x, 0) of shared numbers, with keys that the client deals.
//!
//! x is shared modulo 2^K, two's complement; what comes out is shared modulo 2^32. The dealer draws r below 2^K and,
//! for each gate, a bit m. Left and right
//!
//! 1. open X = x + r modulo 2^K (K bits each way). With X̂, r̂ the highest bits and X', r' the rest, the sign of x is
//!    X̂ ⊕ r̂ ⊕ \[X' < r'\]: x = X − r, and the last term is the borrow. A comparison key gives shares of it
//!    ([`hushtable_mpc::compare`]).
//! 2. open D = 1 ⊕ sign ⊕ m = X̂ ⊕ \[X' < r'\] ⊕ C, where the dealer gives shares of C = 1 ⊕ r̂ ⊕ m (a bit each way).
//!
//! If x is not negative, then as an integer x = X − r + 2^K · r̂ · (1 − X̂): x is below 2^(K−1), so X has wrapped around
//! 2^K just if r is in its upper half and X is in its lower one. So with A0 = −r + 2^K · r̂ and A1 = −r, t = X + A_X̂ is x
//! modulo 2^32, not only modulo 2^K. The result is (D ⊕ m) · t: m · t for D = 0, t − m · t for D = 1, and
//! m · t = m · X + m · A_X̂ is linear in what the dealer shares: A0, A1, m, m · A0 and m · A1 modulo 2^32. Where x is
//! negative, t is some number and the factor is 0.
//!
//! **What a server sees.** Both messages of the other one follow from X and D and what it sent itself. X is uniform,
//! for r is, and is used once; D is uniform, for m is, and independent of X. What it was dealt are a seed, numbers
//! that are uniform by themselves (the other server's shares are a seed's), and a comparison key, which hides r'. So a
//! simulator that draws all of these at random gives a view that cannot be told from the real one, whatever x is. The
//! bits of C come from the servers' seeds, and m from them: m = 1 ⊕ r̂ ⊕ C is uniform to each server, which has only its
//! own share of C, and independent of r.
//!
//! (Comparison by a point function's prefix: Storrier et al., "Grotto", CCS 2023. To pay for the wrap with r̂ where the
//! sign is known: Dalskov, Escudero and Keller, PoPETs 2020.)

use hushtable_mpc::compare::Prg;
use hushtable_mpc::compare::{Comparisons, Half, deal, evaluate};
use zeroize::Zeroize;

use super::Error;
use super::dealt::Dealt;
use super::lift::lowered;
use super::stream::Stream;
use super::words::mask;

/// A layer's gates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Gates {
    pub count: usize,
    pub bits: u32,
}

/// Numbers modulo 2^32 that are shared for each gate: A0, A1, m, m · A0, m · A1.
const NUMBERS: usize = 5;

impl Gates {
    pub fn comparisons(self) -> Comparisons {
        Comparisons::new(self.count, self.bits - 1)
    }

    pub fn mask(self) -> u32 {
        mask(self.bits)
    }

    /// Bytes of the comparison keys, which both servers get.
    pub fn words_bytes(self) -> usize {
        self.comparisons().words_bytes()
    }

    /// Bytes of shares that are given to whom they do not come from a seed.
    pub fn given_bytes(self) -> usize {
        4 * NUMBERS * self.count
    }

    /// Adds the keys of these gates to what both get and to what right is given; `own` is the dealer's randomness.
    pub fn deal(
        self,
        prg: Prg,
        own: &mut Stream,
        [left, right]: [&mut Stream; 2],
        common: &mut Vec<u8>,
        given: &mut Vec<u8>,
    ) {
        let mut r: Vec<u32> = own.words(self.count);
        r.iter_mut().for_each(|r| *r &= self.mask());
        let mut shares: [Vec<u32>; NUMBERS] = std::array::from_fn(|_| left.words(self.count));
        let [mut left_roots, mut right_roots] =
            [&mut *left, &mut *right].map(|it| it.blocks(self.count));
        let [mut left_c, mut right_c] = [left, right].map(|it| it.bits(self.count));
        let mut numbers: [Vec<u32>; NUMBERS] = Default::default();
        for ((r, left_c), right_c) in r.iter().zip(&left_c).zip(&right_c) {
            let top = r >> (self.bits - 1) & 1;
            let m = 1 ^ top ^ u32::from(left_c ^ right_c);
            let [a0, a1] = lowered(*r, self.bits);
            let values = [a0, a1, m, m.wrapping_mul(a0), m.wrapping_mul(a1)];
            numbers.iter_mut().zip(values).for_each(|(numbers, value)| numbers.push(value));
        }
        for (numbers, shares) in numbers.iter().zip(&shares) {
            let rest =
                numbers.iter().zip(shares).map(|(number, share)| number.wrapping_sub(*share));
            given.extend(rest.flat_map(u32::to_le_bytes));
        }
        let low = self.mask() >> 1;
        let mut points: Vec<u64> = r.iter().map(|r| u64::from(r & low)).collect();
        let mut roots: Vec<[u128; 2]> =
            left_roots.iter().zip(&right_roots).map(|(left, right)| [*left, *right]).collect();
        common.extend(deal(prg, self.comparisons(), &points, &roots));
        r.zeroize();
        points.zeroize();
        roots.zeroize();
        left_roots.zeroize();
        right_roots.zeroize();
        left_c.zeroize();
        right_c.zeroize();
        numbers.iter_mut().chain(&mut shares).for_each(Zeroize::zeroize);
    }
}

/// What one server has for a layer's gates: used once.
pub(super) struct Keys {
    gates: Gates,
    half: Half,
    /// Shares of A0, A1, m, m · A0, m · A1.
    numbers: [Vec<u32>; NUMBERS],
    roots: Vec<u128>,
    c: Vec<u8>,
    words: Vec<u8>,
}

impl Keys {
    /// Takes the next keys off what was dealt.
    pub fn take(gates: Gates, half: Half, dealt: &mut Dealt<'_>) -> Result<Self, Error> {
        let mut numbers: [Vec<u32>; NUMBERS] = Default::default();
        for numbers in &mut numbers {
            *numbers = dealt.numbers(gates.count)?;
        }
        let (roots, c) = (dealt.blocks(gates.count), dealt.bits(gates.count));
        let words = dealt.words(gates.words_bytes())?.to_vec();
        Ok(Self { gates, half, numbers, roots, c, words })
    }

    /// This server's share of X for its share of x.
    pub fn reveal(&self, x: &[u32]) -> Vec<u64> {
        let [_, a1, ..] = &self.numbers;
        let masked = x.iter().zip(a1).map(|(x, a1)| x.wrapping_sub(*a1) & self.gates.mask());
        masked.map(u64::from).collect()
    }

    /// This server's share of D at X.
    pub fn select(&self, prg: Prg, opened: &[u64]) -> Result<Vec<u64>, Error> {
        let low = u64::from(self.gates.mask() >> 1);
        let at: Vec<u64> = opened.iter().map(|opened| opened & low).collect();
        let keys = self.gates.comparisons();
        let less = evaluate(prg, self.half, keys, &self.roots, &self.words, &at)?;
        let top = |opened: u64| match self.half {
            Half::Left => opened >> (self.gates.bits - 1) & 1,
            Half::Right => 0,
        };
        let shares = less.iter().zip(&self.c).zip(opened);
        Ok(shares.map(|((less, c), &opened)| u64::from(less ^ c) ^ top(opened)).collect())
    }

    /// This server's share of max(x, 0), modulo 2^32.
    pub fn finish(&self, opened: &[u64], selected: &[u64]) -> Vec<u32> {
        let [a0, a1, m, ma0, ma1] = &self.numbers;
        let of = |(gate, (&opened, &selected)): (usize, (&u64, &u64))| {
            let is_upper = opened >> (self.gates.bits - 1) & 1 == 1;
            let (a, ma) = if is_upper { (a1[gate], ma1[gate]) } else { (a0[gate], ma0[gate]) };
            let opened = opened as u32;
            let t = match self.half {
                Half::Left => a.wrapping_add(opened),
                Half::Right => a,
            };
            let mt = m[gate].wrapping_mul(opened).wrapping_add(ma);
            if selected & 1 == 1 { t.wrapping_sub(mt) } else { mt }
        };
        opened.iter().zip(selected).enumerate().map(of).collect()
    }
}

impl Drop for Keys {
    fn drop(&mut self) {
        self.numbers.iter_mut().for_each(Zeroize::zeroize);
        self.roots.zeroize();
        self.c.zeroize();
    }
}
